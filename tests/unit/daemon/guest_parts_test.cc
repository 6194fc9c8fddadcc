// SPDX-License-Identifier: Apache-2.0
// The parts of a vGPU and of its sessions, each by itself: why a session ends, what it has done to
// others, who waits for a session.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

#include <string>
#include <vector>

#include "mediator/base/limits.h"
#include "mediator/daemon/admin/events.h"
#include "mediator/daemon/guests/offence_record.h"
#include "mediator/daemon/guests/session_end.h"
#include "mediator/daemon/guests/start_queue.h"

namespace sluice {
namespace {

TEST(EventLog, WhoIsSaidMuchOfPushesOutItsOwnOnly) {
  EventLog events;
  events.add(1, log::Level::kInfo, "vgpu quiet: created");
  for (size_t i = 0; i < 3 * limits::kMaxEvents; ++i)
    events.add(2, log::Level::kInfo,
               (i % 2 ? "vgpu loud: " : "workers of loud: ") + std::to_string(i));
  events.add(3, log::Level::kInfo, "vgpu quiet: deleted");
  const auto& all = events.events();
  ASSERT_EQ(all.size(), limits::kMaxEvents);
  EXPECT_EQ(all.front().text, "vgpu quiet: created");
  EXPECT_EQ(all[1].number, 2 * limits::kMaxEvents + 4) << "the oldest of the others went";
  EXPECT_EQ(all.back().number, events.last());
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const Event& a, const Event& b) { return a.number < b.number; }));
}

TEST(SessionEnd, TheFirstReasonStays) {
  SessionEnd end;
  EXPECT_FALSE(end.is_set());
  end.expect_failed_start();
  EXPECT_EQ(end.error(), kCudaErrorUnknown);
  end.started();
  EXPECT_FALSE(end.is_set());
  end.set(0, "the program has ended");
  end.set(kCudaErrorUnknown, "late");
  EXPECT_TRUE(end.is_set());
  EXPECT_EQ(end.error(), 0);
  EXPECT_EQ(end.reason(), "the program has ended");
  EXPECT_EQ(end.status(), EIO);
}

using Verdict = OffenceRecord::Verdict;

TEST(OffenceRecord, AFaultCountsOnceByItsLongestStall) {
  OffenceRecord record;
  const auto first = record.on_fault(100);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->stall_ns, 100u);
  EXPECT_FALSE(first->more);
  EXPECT_FALSE(record.on_fault(100));
  EXPECT_FALSE(record.on_fault(99));
  const auto longer = record.on_fault(150);
  ASSERT_TRUE(longer);
  EXPECT_EQ(longer->stall_ns, 50u);
  EXPECT_TRUE(longer->more);
}

TEST(OffenceRecord, WhatWasMeasuredCountsBeforeWhatIsUsual) {
  const OffenceRecord record;
  EXPECT_EQ(record.settle({}).verdict, Verdict::kNothing);
  EXPECT_EQ(record.settle({.worker_error_ns = 5}).stall_ns, 5u);
  EXPECT_EQ(record.settle({.end_error_ns = 6}).stall_ns, 6u);
  EXPECT_EQ(record.settle({.worker_error_ns = 5, .measured_ns = 0}).stall_ns, 0u);
  EXPECT_EQ(record.settle({.worker_error_ns = 5, .measured_ns = 0}).verdict, Verdict::kFault);
  EXPECT_EQ(record.settle({.measured_ns = 7}).stall_ns, 7u);
  EXPECT_EQ(record.settle({.measured_ns = 0}).verdict, Verdict::kNothing);
}

TEST(OffenceRecord, WhoLeavesWorkBehindThatNobodySeesPaysForTheWorst) {
  const OffenceRecord record;
  OffenceRecord::Evidence e{.in_flight_unseen = true, .worst_ns = 9};
  EXPECT_EQ(record.settle(e).verdict, Verdict::kForcedEnd);
  EXPECT_EQ(record.settle(e).stall_ns, 9u);
  e.measured_ns = 0;
  EXPECT_EQ(record.settle(e).verdict, Verdict::kNothing) << "something measures it";
  e.died_of_signal = true;
  EXPECT_EQ(record.settle(e).verdict, Verdict::kForcedEnd);
  EXPECT_EQ(record.settle(e).stall_ns, 0u);
}

TEST(OffenceRecord, AnEndByForceCountsOnceAndNotForOthersDeeds) {
  OffenceRecord broke, forced, expelled;
  broke.on_broken_protocol();
  EXPECT_EQ(broke.settle({}).verdict, Verdict::kForcedEnd);
  forced.on_forced_end();
  expelled.on_expelled();
  for (OffenceRecord* record : {&forced, &expelled}) {
    record->on_broken_protocol();
    const OffenceRecord::Evidence e{.end_error_ns = 5, .in_flight_unseen = true, .worst_ns = 9};
    EXPECT_EQ(record->settle(e).verdict, Verdict::kNothing);
    EXPECT_EQ(record->settle({.worker_error_ns = 5}).verdict, Verdict::kFault);
  }
}

class StartQueueTest : public testing::Test, private StartQueue::Owner {
 protected:
  void add(int programs) {
    for (int i = 0; i < programs; ++i)
      queue.add({{true, static_cast<uint64_t>(i)}, std::to_string(i), 0});
    queue.serve();
  }
  static constexpr int kBurst = static_cast<int>(limits::kSessionBurst);

  boost::asio::io_context io;
  uint64_t back_off = 0;
  bool memory_is_free = true;
  int waits = 0;
  std::vector<std::string> started;
  StartQueue queue{io, *this};

 private:
  uint64_t back_off_ns() const override { return back_off; }
  void on_start_waits(const StartQueue::Request&) override { ++waits; }
  bool start_session(const StartQueue::Request& request) override {
    if (memory_is_free) started.push_back(request.program);
    return memory_is_free;
  }
};

TEST_F(StartQueueTest, StartsABurstAndTheRestInTime) {
  add(kBurst + 1);
  EXPECT_EQ(started.size(), size_t{kBurst});
  EXPECT_EQ(queue.size(), 1u);
  io.run_one();  // the timer
  EXPECT_EQ(started.back(), std::to_string(kBurst));
  EXPECT_EQ(queue.size(), 0u);
}

TEST_F(StartQueueTest, TheBackOffIsReportedOnceAndEnds) {
  back_off = 1'000'000;
  add(1);
  io.run_one();
  EXPECT_EQ(waits, 1);
  EXPECT_TRUE(started.empty());
  back_off = 0;  // the others have gone
  io.run_one();
  EXPECT_EQ(started.size(), 1u);
}

TEST_F(StartQueueTest, WhatMemoryHeldUpKeepsItsPlace) {
  memory_is_free = false;
  add(2);
  memory_is_free = true;
  queue.serve();
  EXPECT_EQ(started, (std::vector<std::string>{"0", "1"}));
}

TEST_F(StartQueueTest, ThoseThatLeaveAreForgottenAndTheRestIsHandedBack) {
  back_off = 1'000'000;
  add(3);
  queue.remove_if([](const StartQueue::Request& r) { return r.origin.id == 1; });
  const auto rest = queue.close();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[1].program, "2");
  EXPECT_EQ(io.run(), 1u) << "the timer was cancelled";
  EXPECT_TRUE(started.empty());
}

}  // namespace
}  // namespace sluice
