// SPDX-License-Identifier: Apache-2.0
// The suite's programs must notice what a bad GPU does: launches left out, run twice, spoilt, or
// out of order. With the fake driver; the kernels' own results are for the system tests.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "kernels/suite/programs/driver.h"
#include "kernels/suite/programs/runner.h"
#include "kernels/suite/workloads/workloads.h"
#include "tests/unit/suite/fake_driver.h"

namespace sluice::suite {
namespace {

using testing::fake_driver;
using testing::reset_fake_driver;

struct Kind {
  const char* name;
  std::unique_ptr<Workload> (*make)(const Options&);
  std::uint64_t size;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class SuiteRunner : public ::testing::TestWithParam<Kind> {
 protected:
  SuiteRunner() { reset_fake_driver(); }
  Options small() const {
    Options options;
    options.size = GetParam().size;
    options.launches = 24;
    options.verify_every = 1;
    return options;
  }
  Report run(const Options& options) const {
    const auto workload = GetParam().make(options);
    Report report;
    run_workload(*workload, options, report, stop_);
    return report;
  }
  volatile std::sig_atomic_t stop_ = 0;
};

TEST_P(SuiteRunner, RightGpuIsRight) {
  for (const bool lazy : {false, true}) {
    for (const std::uint64_t verify : {0, 1, 5}) {
      for (const std::uint64_t streams : {1, 3}) {
        fake_driver().lazy = lazy;
        Options options = small();
        options.verify_every = verify;
        options.streams = streams;
        const Report report = run(options);
        EXPECT_EQ(report.wrong, 0u);
        EXPECT_GE(report.right, 4u);
        EXPECT_EQ(report.launches, 24u);
        EXPECT_EQ(report.stopped_by, "launches");
        EXPECT_EQ(fake_driver().live_objects, 0u);
      }
    }
  }
}

TEST_P(SuiteRunner, EveryLaunchIsChecked) { EXPECT_EQ(run(small()).right, 24u); }

TEST_P(SuiteRunner, ChainsAreRightHoweverStreamsRun) {
  for (const bool lazy : {false, true}) {
    fake_driver().lazy = lazy;
    Options options = small();
    options.chain = 5;
    options.launches = 40;
    const Report report = run(options);
    EXPECT_EQ(report.wrong, 0u);
    EXPECT_EQ(report.right, 8u);
    EXPECT_EQ(report.launches, 40u);
  }
}

TEST_P(SuiteRunner, KeepsTheQueueFull) {
  Options options = small();
  options.depth = 3;
  options.launches = 0;
  options.seconds = 1e9;
  // Stop after a while, before the queue drains; what the waits saw until then must hold.
  std::uint64_t fewest = 0;
  fake_driver().times = [&](std::uint64_t launch) {
    if (launch == 30) {
      fewest = fake_driver().fewest_queued_in_wait;
      stop_ = 1;
    }
    return 1;
  };
  const Report report = run(options);
  EXPECT_EQ(report.stopped_by, "signal");
  EXPECT_EQ(report.wrong, 0u);
  EXPECT_GE(fewest, 2u);
}

TEST_P(SuiteRunner, NoticesALaunchLeftOut) {
  fake_driver().times = [](std::uint64_t launch) { return launch == 13 ? 0 : 1; };
  EXPECT_EQ(run(small()).wrong, 1u);
}

TEST_P(SuiteRunner, NoticesThatNothingRuns) {
  fake_driver().times = [](std::uint64_t) { return 0; };
  const Report report = run(small());
  EXPECT_EQ(report.right, 0u);
  EXPECT_EQ(report.wrong, 24u);
}

TEST_P(SuiteRunner, NoticesALaunchLeftOutOfAChain) {
  fake_driver().times = [](std::uint64_t launch) { return launch == 7 ? 0 : 1; };
  Options options = small();
  options.chain = 3;
  EXPECT_GE(run(options).wrong, 1u);
}

TEST_P(SuiteRunner, NoticesOneWrongBit) {
  for (const std::uint64_t verify : {0, 1}) {
    reset_fake_driver();
    fake_driver().spoil = [](std::uint64_t launch, void* out) {
      if (launch != 23) return;
      static_cast<unsigned char*>(out)[7] ^= 1;
    };
    Options options = small();
    options.verify_every = verify;
    EXPECT_EQ(run(options).wrong, 1u);
  }
}

TEST_P(SuiteRunner, NoticesTheResultOfTheLaunchBefore) {
  // The slot still holds its last result: as if the launch had not run and nothing been poisoned.
  std::vector<unsigned char> last;
  fake_driver().spoil = [&](std::uint64_t launch, void* out) {
    if (launch == 8)
      last.assign(static_cast<unsigned char*>(out), static_cast<unsigned char*>(out) + 8);
    if (launch == 12) std::memcpy(out, last.data(), last.size());
  };
  EXPECT_EQ(run(small()).wrong, 1u);
}

TEST_P(SuiteRunner, SumsNoticeALaunchThatRanTwiceLongAgo) {
  fake_driver().times = [](std::uint64_t launch) { return launch == 3 ? 2 : 1; };
  Options options = small();
  options.verify_every = 0;
  const Report report = run(options);
  EXPECT_EQ(report.wrong, GetParam().make(options)->accumulates() ? 1u : 0u);
}

TEST_P(SuiteRunner, DriverErrorsAreReported) {
  for (const char* call :
       {"cuInit", "cuModuleLoadDataEx", "cuMemAlloc", "cuLaunchKernel", "cuEventSynchronize"}) {
    reset_fake_driver();
    fake_driver().failing_call = call;
    fake_driver().failure = CUDA_ERROR_LAUNCH_FAILED;
    try {
      (void)run(small());
      ADD_FAILURE() << call << " failed and nobody said so";
    } catch (const DriverError& error) {
      EXPECT_EQ(error.result(), CUDA_ERROR_LAUNCH_FAILED);
      EXPECT_NE(std::string(error.what()).find(call), std::string::npos) << error.what();
    }
    EXPECT_EQ(fake_driver().live_objects, 0u) << call;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SuiteRunner,
                         ::testing::Values(Kind{"triad", make_triad, 1000},
                                           Kind{"matmul", make_matmul, 19},
                                           Kind{"reduction", make_reduction, 3000},
                                           Kind{"stencil2d", make_stencil2d, 21},
                                           Kind{"histogram", make_histogram, 4096},
                                           Kind{"md5", make_md5, 50}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(SuiteChecks, OneInNAndEverySlot) {
  for (const std::uint64_t every : {1, 2, 3, 4, 5, 16, 64}) {
    for (const std::uint64_t depth : {1, 3, 4, 8}) {
      std::uint64_t checked = 0;
      std::set<std::uint64_t> slots;
      for (std::uint64_t unit = 0; unit < 64 * every; ++unit) {
        if (!is_checked(unit, every)) continue;
        ++checked;
        slots.insert(unit % depth);
      }
      EXPECT_EQ(checked, 64u) << every;
      EXPECT_EQ(slots.size(), depth) << every << " " << depth;
    }
  }
  EXPECT_FALSE(is_checked(0, 0));
}

TEST(SuiteProgram, ExitCodes) {
  const auto run = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "triad");
    return run_program("triad", make_triad, static_cast<int>(arguments.size()), arguments.data());
  };
  reset_fake_driver();
  EXPECT_EQ(run({"--size", "100", "--launches", "5", "--json"}), 0);
  EXPECT_EQ(run({"--size", "100", "--frobnicate"}), 2);
  EXPECT_EQ(run({"--inner", "4"}), 2);
  fake_driver().times = [](std::uint64_t) { return 0; };
  EXPECT_EQ(run({"--size=100", "--launches=5"}), 1);
  fake_driver().failing_call = "cuLaunchKernel";
  fake_driver().failure = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_EQ(run({"--size=100", "--launches=5", "--json"}), 3);
}

TEST(SuiteProgram, JsonLine) {
  Report report;
  report.program = "triad";
  report.device = "a \"b\" \\ \n";
  report.launches = 7;
  report.right = 2;
  report.stopped_by = "launches";
  const std::string json = to_json(report, Options{}, 100);
  EXPECT_NE(json.find("\"device\": \"a \\\"b\\\" \\\\  \""), std::string::npos) << json;
  EXPECT_NE(json.find("\"launches\": 7"), std::string::npos) << json;
  EXPECT_NE(json.find("\"error\": null"), std::string::npos) << json;
  EXPECT_EQ(json.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace sluice::suite
