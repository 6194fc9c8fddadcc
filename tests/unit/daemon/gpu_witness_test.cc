// SPDX-License-Identifier: Apache-2.0
// sluiced's witness (mediator/daemon/scheduling/gpu_witness.h) as a process of the spawner's on the
// software GPU, which somebody else may keep.
#include "mediator/daemon/scheduling/gpu_witness.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/daemon/scheduling/worker_time_slices.h"
#include "mediator/gpu/soft_gpu.h"
#include "tests/unit/softgpu/contention/contender.h"

namespace sluice {
namespace {

using Say = GpuWitness::Say;
using State = GpuWitness::State;

class GpuWitnessTest : public softgpu::ContentionTest {
 protected:
  void SetUp() override {
    ContentionTest::SetUp();
    log::init("test", log::Level::kError);
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override {
    slices_.reset();
    witness_.reset();
    spawner_.reset();
    std::filesystem::remove_all(folder_);
    ContentionTest::TearDown();
  }
  void start(const std::string& worker = SLUICE_TEST_WORKER) {
    io::SpawnerSpec spec;
    spec.path = SLUICE_TEST_SPAWNER;
    spec.runtime_dir = folder_;
    spec.worker = worker;
    spec.library = std::getenv("SLUICE_TEST_SOFTCUDA");
    spec.environment = {"PATH=/usr/bin", "SLUICE_SOFT_MODE=timeslice", "SLUICE_SOFT_MEMORY=12M",
                        "SLUICE_SOFT_THREADS=1", "SLUICE_SOFT_STALL_MS=60000"};
    spec.uids = "2000000000-2000000009";
    auto spawner = io::SpawnerLink::start(io_, std::move(spec));
    ASSERT_TRUE(spawner.ok()) << spawner.error().message;
    spawner_ = std::move(*spawner);
    GpuWitness::Settings settings;
    settings.nvidia = false;
    settings.library = std::getenv("SLUICE_TEST_SOFTCUDA");
    settings.soft_gpu_file = path_;
    settings.no_log = [this] { return no_log_; };
    settings.hear = [this](Say say) {
      heard_.push_back(say);
      if (slices_) slices_->on_witness(say);
    };
    settings.again_ms = 5;
    witness_ = std::make_unique<GpuWitness>(io_, *spawner_, std::move(settings));
  }
  // A process that keeps the GPU, as a worker that was taken over does.
  std::unique_ptr<softgpu::Contender> keep_gpu() {
    auto keeps = std::make_unique<softgpu::Contender>(
        path_, std::map<std::string, std::string>{{"SLUICE_SOFT_MODE", "timeslice"},
                                                  {"SLUICE_SOFT_THREADS", "1"},
                                                  {"SLUICE_SOFT_STALL_MS", "60000"}});
    const auto tsgid = static_cast<uint32_t>(keeps->ask('i'));
    auto gpu = gpu::SoftGpu::open(path_, true);
    EXPECT_TRUE(gpu.ok());
    (*gpu)->set_timeslice(tsgid, 10'000'000);
    EXPECT_EQ(keeps->ask('s'), 0);
    await_running(tsgid);
    return keeps;
  }
  bool run_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      io_.run_one_for(std::chrono::milliseconds(5));
      io_.restart();
    }
    return true;
  }
  bool is_up() {
    return run_until([&] { return witness_->process() != 0; });
  }
  bool hears(Say say, long times = 1) {
    return run_until([&] { return std::count(heard_.begin(), heard_.end(), say) >= times; });
  }

  boost::asio::io_context io_{1};
  std::string folder_ = "/tmp/sluice-witness.XXXXXX", no_log_;
  std::unique_ptr<io::SpawnerLink> spawner_;
  std::unique_ptr<GpuWitness> witness_;
  std::unique_ptr<WorkerTimeSlices> slices_;
  std::vector<Say> heard_;
};

TEST_F(GpuWitnessTest, IsServedWhereNobodyKeepsTheGpu) {
  start();
  ASSERT_TRUE(is_up()) << witness_->why();
  EXPECT_EQ(witness_->why(), "");
  EXPECT_EQ(heard_, std::vector{Say::kGone}) << "there is another one";
  const uint64_t now = monotonic_ns();
  witness_->ask(now);
  EXPECT_EQ(witness_->state(), State::kAsked);
  ASSERT_TRUE(hears(Say::kServed));
  EXPECT_EQ(heard_[1], Say::kAsked);
  EXPECT_EQ(heard_[2], Say::kWaits);
  // 25 times a second, not more.
  heard_.clear();
  witness_->ask(now + 39'000'000);
  EXPECT_TRUE(heard_.empty());
  witness_->ask(now + 41'000'000);
  EXPECT_TRUE(hears(Say::kServed));
}

TEST_F(GpuWitnessTest, SaysThatItWaitsWhileSomebodyKeepsTheGpu) {
  start();
  ASSERT_TRUE(is_up()) << witness_->why();
  const auto keeps = keep_gpu();
  witness_->ask(monotonic_ns());
  ASSERT_TRUE(hears(Say::kWaits, 4)) << "again and again";
  EXPECT_EQ(keeps->ask('r'), 0);
  EXPECT_TRUE(hears(Say::kServed));
}

// The log says who it is, the other one that it waits, and the witness that this is so.
TEST_F(GpuWitnessTest, WhoKeepsTheGpuIsProvedTo) {
  auto log = gpu::SwitchRingWriter::make();
  ASSERT_TRUE(log.ok());
  auto feed = std::make_shared<SwitchLogFeed>();
  feed->connect(Fd(::dup(log->fd())), Fd(::open("/dev/null", O_RDWR)), monotonic_ns());
  start();
  ASSERT_TRUE(is_up()) << witness_->why();
  slices_ = std::make_unique<WorkerTimeSlices>(
      accounting::EngineUse::Config{.overrun_ns = 10'000'000}, feed);
  slices_->set_witness(std::move(witness_));
  slices_->on_witness(Say::kGone);
  EXPECT_TRUE(slices_->witness().wanted);
  EXPECT_EQ(slices_->witness().why, "");
  const auto keeps = keep_gpu();
  const pid_t other = ::getpid();
  slices_->add(keeps->pid(), 1), slices_->add(other, 2);
  for (const pid_t w : {keeps->pid(), other}) slices_->set(w, 1'000'000);
  const auto read_use = [&] {
    const uint64_t now = monotonic_ns();
    log->publish(now);
    slices_->read_use(
        now, true, [](pid_t) { return TimeSlices::Work::kRuns; }, [](pid_t, uint64_t, bool) {});
  };
  read_use();
  log->add({.time_ns = monotonic_ns(), .pid = static_cast<uint32_t>(keeps->pid()), .start = 1});
  std::vector<pid_t> overruns;
  ASSERT_TRUE(run_until([&] {
    read_use();
    overruns = slices_->take_overruns();
    return !overruns.empty();
  }));
  EXPECT_EQ(overruns, std::vector{keeps->pid()});
}

TEST_F(GpuWitnessTest, IsStartedAnewWhenItHasDied) {
  start();
  ASSERT_TRUE(is_up());
  const uint32_t first = witness_->process();
  heard_.clear();
  ::kill(static_cast<pid_t>(first), SIGKILL);
  ASSERT_TRUE(run_until([&] { return witness_->process() == 0; }));
  EXPECT_EQ(heard_.front(), Say::kGone);
  EXPECT_NE(witness_->why(), "");
  witness_->ask(monotonic_ns());  // nobody
  ASSERT_TRUE(is_up());
  EXPECT_NE(witness_->process(), first);
  witness_->ask(monotonic_ns());
  EXPECT_TRUE(hears(Say::kServed));
}

TEST_F(GpuWitnessTest, ThereIsNoneWithoutALog) {
  no_log_ = "root is needed";
  start();
  EXPECT_EQ(witness_->state(), State::kNone);
  EXPECT_NE(witness_->why().find("root is needed"), std::string::npos);
  no_log_.clear();
  EXPECT_TRUE(is_up()) << "a recorder came later";
}

// It says Ready, and then what only a worker of a guest may.
TEST_F(GpuWitnessTest, WhatSaysWhatAWitnessMayNotIsNone) {
  start(SLUICE_FAKE_WORKER);
  ASSERT_TRUE(hears(Say::kGone, 2)) << "it was there, and is no more";
  EXPECT_NE(witness_->why(), "");
}

}  // namespace
}  // namespace sluice
