// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker on the software GPU: the forms of a clone beside the loop, one task a block
// and windows.
#include "tests/unit/worker/eviction.h"

namespace sluice::test {
namespace {

class WorkerForms : public WorkerEviction {};

// One task a block, for as long as it takes to leave: launches try both clones and take the faster;
// a kernel that is kept in order begins with this one.
TEST_F(WorkerForms, ChainsOfLaunchesWithOneTaskABlockSurviveEvictions) {
  for (wp::Signal signal : {wp::Signal::kHost, wp::Signal::kProxy, wp::Signal::kWrite}) {
    SCOPED_TRACE(wp::kSignalNames[static_cast<size_t>(signal)]);
    WorkerBench::Options o;
    o.signal = signal;
    o.admission_us = 1'000'000'000;
    chain_under_evictions(std::move(o), 20, SLUICE_FUNCTION_IN_ORDER);
  }
}

TEST_F(WorkerForms, OneTaskABlockIsTakenWhereTheGridMayTakeSoLongToLeave) {
  const auto trap_in_it = [](std::string& text) {
    const size_t at = text.find('{', text.find("add" SLUICE_ONE_TASK_SUFFIX));
    ASSERT_NE(at, text.npos);
    text.insert(at + 1, "\n\ttrap;");
  };
  for (uint32_t us : {0u, 1'000'000'000u}) {
    WorkerBench::Options o;
    o.admission_us = us;
    start(std::move(o));
    make_context();
    make_module(SLUICE_FUNCTION_IN_ORDER, trap_in_it);
    const uint32_t kN = 64 * kGrid;
    launch(kGrid, 64, alloc(kN * 4).as<uint64_t>(), kN, 1);
    EXPECT_EQ(sync().status == CUDA_SUCCESS, us == 0);
  }
}

// In windows of the grid, once it is known how long a task takes.
TEST_F(WorkerForms, ChainsOfLaunchesInWindowsSurviveEvictions) {
  WorkerBench::Options o;
  o.window_us = 1'000'000'000;
  chain_under_evictions(std::move(o), 20, 0, 3);
}

TEST_F(WorkerForms, WindowsAreTakenWhereTheyMayLastSoLong) {
  const auto trap_in_it = [](std::string& text) {
    const size_t at = text.find('{', text.find("add" SLUICE_WINDOW_SUFFIX));
    ASSERT_NE(at, text.npos);
    text.insert(at + 1, "\n\ttrap;");
  };
  for (uint32_t us : {0u, 1'000'000'000u}) {
    WorkerBench::Options o;
    o.window_us = us;
    start(std::move(o));
    make_context();
    make_module(0, trap_in_it);
    const uint32_t kN = 64 * kGrid;
    const uint64_t d = alloc(kN * 4).as<uint64_t>();
    launch(kGrid, 64, d, kN, 1);
    EXPECT_EQ(sync().status, CUDA_SUCCESS);
    launch(kGrid, 64, d, kN, 2);
    EXPECT_EQ(sync().status, us == 0 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
  }
}

// Launches in windows write nothing down: the worker knows that what it has queued has run.
// Which form a launch takes hangs on measured times, and a busy machine may make windows look slow.
// So results and records are checked in every attempt, and one attempt must have taken windows.
TEST_F(WorkerForms, LaunchesInWindowsAreDoneWhetherTimedOrNot) {
  constexpr uint32_t kLaunches = 40, kAttempts = 40;
  const uint32_t kN = 64 * kGrid;
  uint32_t timed = kLaunches;
  for (uint32_t attempt = 0; attempt < kAttempts && timed > kLaunches / 2; ++attempt) {
    SCOPED_TRACE(attempt);
    WorkerBench::Options o;
    o.window_us = 1'000'000'000;
    start(std::move(o));
    make_context();
    // The loop's blocks behind the first, which says when the launch has begun, take long: so
    // windows are taken.
    make_module(0, [](std::string& text) {
      const size_t at = text.find('{', text.find("add" SLUICE_CLONE_SUFFIX));
      ASSERT_NE(at, text.npos);
      text.insert(at + 1,
                  "\n\t.reg .b32 %late;\n\t.reg .pred %until;\n\tmov.u32 %late, %ctaid.x;\n"
                  "\tmin.u32 %late, %late, 1;\n\tmad.lo.u32 %late, %late, 60000, 1;\n"
                  "LATE:\n\tsub.u32 %late, %late, 1;\n"
                  "\tsetp.ne.u32 %until, %late, 0;\n\t@%until bra LATE;");
    });
    const uint64_t d = alloc(kN * 4).as<uint64_t>();
    zero(d, kN * 4);
    uint32_t expected = 0;
    for (uint32_t k = 0; k < kLaunches; ++k) {
      launch(kGrid, 64, d, kN, k);
      // Alone, and behind others that may not be done.
      if (k < 8 || k % 4 == 0) {
        ASSERT_EQ(sync().status, CUDA_SUCCESS);
      }
      expected = advance(expected, k, kRounds);
    }
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
    const uint32_t* got = words(d, kN * 4);
    for (uint32_t i : {0u, kN / 2, kN - 1}) EXPECT_EQ(got[i], expected);
    uint32_t done = 0;
    timed = 0;
    for (const sluice_launch_record& r : b->report->records) {
      if (r.launch_id == 0) continue;
      EXPECT_EQ(r.state, static_cast<uint32_t>(SLUICE_LAUNCH_DONE));
      EXPECT_EQ(r.tasks_done, r.tasks_total);
      ++done;
      timed += r.start_ns != 0 && r.left_ns != 0;  // not in windows: nothing in them says so
    }
    EXPECT_EQ(done, kLaunches);
    EXPECT_GE(timed, 1u) << "the first one, in a loop";
  }
  EXPECT_LE(timed, kLaunches / 2);
}

}  // namespace
}  // namespace sluice::test
