// SPDX-License-Identifier: Apache-2.0
// The recorder of the GPU's context-switch log (mediator/spawner/switch_recorder.h) as a process,
// with a driver made for the test, and sluiced's end of it (daemon/scheduling/switch_log_feed.h).
#include "mediator/spawner/switch_recorder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "mediator/base/clock.h"
#include "mediator/daemon/scheduling/switch_log_feed.h"
#include "mediator/daemon/scheduling/worker_time_slices.h"
#include "tests/support/fake_driver_device.h"

namespace sluice::spawner {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Two contexts have the GPU in turn, 3 ms and 1 ms; all of that is written at each flush.
class GoesRound : public test::FakeDriverDevice {
 public:
  int flushes = 0, fail_after = 1 << 30;
  void on_flush() override {
    if (++flushes > fail_after) refuse_at = calls;  // the call after this one
    for (const uint64_t now = monotonic_ns(); at_ns_ < now;) {
      const uint64_t length = first_ ? 3 * kMs : kMs;
      if (at_ns_ + length > now) break;
      switches(true, first_ ? 70 : 71, at_ns_);
      switches(false, first_ ? 70 : 71, at_ns_ + length);
      at_ns_ += length;
      first_ = !first_;
    }
  }

 private:
  uint64_t at_ns_ = monotonic_ns();
  bool first_ = true;
};

class SwitchRecorderTest : public ::testing::Test {
 protected:
  // The child's end, however it ends.
  static void wait_for(pid_t pid) { EXPECT_EQ(::waitpid(pid, nullptr, 0), pid); }
  template <class Condition>
  static bool soon(const Condition& condition) {
    for (int i = 0; i < 3000; ++i) {
      if (condition()) return true;
      ::usleep(10'000);
    }
    return false;
  }
};

TEST_F(SwitchRecorderTest, RecordsWithTheHostsClockAndEndsWithSluiced) {
  GoesRound device;
  auto recorder = SwitchRecorder::start(device);
  ASSERT_TRUE(recorder.ok()) << recorder.error().message;
  SwitchLogFeed feed;
  EXPECT_FALSE(feed.usable(monotonic_ns()));
  EXPECT_EQ(feed.reader(), nullptr);
  feed.connect(Fd(::dup(recorder->ring())), Fd(::dup(recorder->control())), monotonic_ns());
  recorder->hand_over();
  auto ring = feed.reader();
  ASSERT_TRUE(ring);
  feed.hurry(true, monotonic_ns());
  std::vector<gpu::SwitchEvent> events;
  ASSERT_TRUE(soon([&] {
    ring->read(events);
    return events.size() >= 40;
  }));
  const uint64_t now = monotonic_ns();
  EXPECT_TRUE(feed.usable(now)) << feed.why(now);
  EXPECT_LE(ring->known_ns(), now);
  uint64_t resident[2] = {};
  for (size_t i = 1; i < events.size(); ++i) {
    EXPECT_LE(events[i].time_ns, now);
    EXPECT_GE(events[i].time_ns, events[i - 1].time_ns);
    if (events[i].start == 0) {
      EXPECT_EQ(events[i].pid, events[i - 1].pid);
      resident[events[i].pid - 70] += events[i].time_ns - events[i - 1].time_ns;
    }
  }
  EXPECT_GT(resident[1], 0u);
  EXPECT_NEAR(static_cast<double>(resident[0]) / static_cast<double>(resident[1]), 3, 0.5);
  const pid_t pid = recorder->pid();
  feed.refuse("over");
  EXPECT_EQ(feed.why(monotonic_ns()), "over");
  wait_for(pid);
}

TEST_F(SwitchRecorderTest, ADriverThatRefusesIsSaid) {
  test::FakeDriverDevice device;
  device.admin = false;
  auto recorder = SwitchRecorder::start(device);
  ASSERT_FALSE(recorder.ok());
  EXPECT_NE(recorder.error().message.find("bind"), std::string::npos) << recorder.error().message;
}

TEST_F(SwitchRecorderTest, ADriverThatKillsItsCallerIsSaid) {
  class Dies : public test::FakeDriverDevice {
    int open(const char*) override { ::_exit(3); }
  } device;
  EXPECT_FALSE(SwitchRecorder::start(device).ok());
}

TEST_F(SwitchRecorderTest, ADriverThatStopsLaterTakesTheLogAway) {
  GoesRound device;
  device.fail_after = 5;
  auto recorder = SwitchRecorder::start(device);
  ASSERT_TRUE(recorder.ok()) << recorder.error().message;
  SwitchLogFeed feed;
  feed.connect(Fd(::dup(recorder->ring())), Fd(::dup(recorder->control())), monotonic_ns());
  feed.hurry(true, monotonic_ns());
  EXPECT_TRUE(soon([&] { return !feed.usable(monotonic_ns()); }));
  EXPECT_NE(feed.why(monotonic_ns()).find("driver"), std::string::npos);
  wait_for(recorder->pid());
}

TEST_F(SwitchRecorderTest, OneThatIsKilledIsMissed) {
  GoesRound device;
  auto recorder = SwitchRecorder::start(device);
  ASSERT_TRUE(recorder.ok()) << recorder.error().message;
  SwitchLogFeed feed;
  feed.connect(Fd(::dup(recorder->ring())), Fd(::dup(recorder->control())), monotonic_ns());
  feed.hurry(true, monotonic_ns());
  ::kill(recorder->pid(), SIGKILL);
  wait_for(recorder->pid());
  EXPECT_TRUE(soon([&] { return !feed.usable(monotonic_ns()); }));
  EXPECT_NE(feed.why(monotonic_ns()).find("silent"), std::string::npos);
  feed.hurry(false, monotonic_ns());  // nobody takes that
}

// As sluiced puts it together: what two workers have used, by the log, although both have slices of
// one length and never stop working.
TEST_F(SwitchRecorderTest, WorkersAreChargedByIt) {
  GoesRound device;
  auto recorder = SwitchRecorder::start(device);
  ASSERT_TRUE(recorder.ok()) << recorder.error().message;
  auto feed = std::make_shared<SwitchLogFeed>();
  feed->connect(Fd(::dup(recorder->ring())), Fd(::dup(recorder->control())), monotonic_ns());
  feed->hurry(true, monotonic_ns());
  WorkerTimeSlices slices({.interval_cost_ns = 0}, feed);
  slices.add(70, 1), slices.add(71, 2);
  slices.set(70, 4 * kMs), slices.set(71, 4 * kMs);
  std::map<pid_t, uint64_t> used;
  const auto look = [&] {
    slices.read_use(
        monotonic_ns(), true, [](pid_t) { return TimeSlices::Work::kRuns; },
        [&](pid_t worker, uint64_t ns, bool) { used[worker] += ns; });
  };
  look();
  ASSERT_TRUE(soon([&] {
    look();
    return used[70] + used[71] > 400 * kMs;
  }));
  EXPECT_GT(used[70], 2 * used[71]);
  // Without it, equal parts.
  ::kill(recorder->pid(), SIGKILL);
  wait_for(recorder->pid());
  ASSERT_TRUE(soon([&] { return !feed->usable(monotonic_ns()); }));
  look();
  used.clear();
  ::usleep(20'000);
  look();
  EXPECT_GT(used[70], 0u);
  EXPECT_NEAR(static_cast<double>(used[70]), static_cast<double>(used[71]), 2);
}

}  // namespace
}  // namespace sluice::spawner
