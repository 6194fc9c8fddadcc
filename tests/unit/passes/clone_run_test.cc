// SPDX-License-Identifier: Apache-2.0
// Clones at work: rewritten kernels run on the interpreter, their blocks interleaved at random, and
// are evicted at every point that the schedule has. Every task must run exactly once, whatever
// happens, and the control block and the record must say so (abi/preempt.h).
#include "tests/unit/passes/clone_run.h"

namespace sluice::passes {
namespace {

TEST_F(CloneRun, EvictedAtEveryTurn) { EXPECT_GT(evict_everywhere({}, 1), 20); }

TEST_F(CloneRun, WithProxy) {
  Setting s;
  s.proxy = true;
  EXPECT_GT(evict_everywhere(s, 1), 20);
}

TEST_F(CloneRun, EarlyReturns) {
  Setting s;
  s.kernel = "early";
  s.grid = {17, 1, 1};
  s.threads = 70;        // a warp that is not full
  s.runs_per_task = 30;  // threads below 40 that 4 does not divide
  EXPECT_GT(evict_everywhere(s, 3), 20);
}

TEST_F(CloneRun, BarriersAndDynamicSharedMemory) {
  Setting s;
  s.kernel = "shared";
  s.grid = {13, 1, 1};
  EXPECT_GT(evict_everywhere(s, 3), 20);
  s.proxy = true;
  s.chunk = 1;
  EXPECT_GT(evict_everywhere(s, 7), 10);
}

TEST_F(CloneRun, ManySchedules) {
  int evictions = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    Setting s;
    s.seed = seed;
    s.kernel = seed % 2 ? "count" : "shared";
    s.grid = seed % 2 ? exec::Dim3{1 + seed % 7, 1 + seed % 3, 1 + seed % 2} : exec::Dim3{29, 1, 1};
    s.workers = 1 + seed % 5;
    s.chunk = static_cast<std::uint16_t>(1 + seed % 6);
    s.chunk_max = 64;
    s.batch_shift = static_cast<std::uint8_t>(seed % 4);
    s.target_clocks = 1u << (seed % 20);
    s.first_tickets = seed % 4 < 2;
    s.proxy = seed % 3 == 0;
    evictions += evict_everywhere(s, 41);
  }
  EXPECT_GT(evictions, 100);
  EXPECT_GT(left_seen_, 50u);
}

TEST_F(CloneRun, ChunkOfZeroIsOne) {
  Setting s;
  s.chunk = 0;
  begin(s);
  launch(s, -1);
  check_results(s);
}

TEST_F(CloneRun, KernelThatNeverReadsItsIndex) {
  Setting s;
  s.kernel = "blind";
  begin(s);
  launch(s, -1);
  check_left(s, 1);
  EXPECT_EQ(device_->out[0], 12u * 64);
}

TEST_F(CloneRun, OldEvictionsDoNotCount) {
  Setting s;
  begin(s);
  generation_ = 7;
  device_->signal = SLUICE_EVICT_ALL_SMS(7);
  launch(s, -1);  // generation 8
  check_left(s, 1);
  check_results(s);
}

TEST_F(CloneRun, OnlyTheSmsInRangeLeave) {
  Setting s;
  s.grid = {40, 1, 1};
  s.workers = 4;
  s.chunk = 1;
  for (bool proxy : {false, true}) {
    s.proxy = proxy;
    begin(s);
    launch(s, 0, 1, 2);  // workers on SM 0 go on and do it all
    check_left(s, 1);
    check_results(s);
    begin(s);
    launch(s, 0, 0, 2);  // both SMs of this GPU: all leave
    check_left(s, 1);
    EXPECT_LT(device_->control.finished, 40u);
  }
}

// FLEP's spatial form: workers stay within the range and the quota of their launch, and what those
// who had to go have left is done by a relaunch with fewer workers.
TEST_F(CloneRun, RestsOfManyAreDoneByFew) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Setting s;
    s.seed = seed;
    s.grid = {61, 1, 1};
    s.workers = 6;
    s.chunk = 4;
    s.chunk_max = 8;
    s.batch_shift = 3;
    s.proxy = seed % 2 == 0;
    begin(s);
    flags_ = SLUICE_LAUNCH_SPATIAL;
    launch(s, static_cast<int>(20 * seed), 0, 2);
    check_left(s, 1);
    if (device_->control.done == 0) {
      EXPECT_GT(device_->control.sms_left, 0u);
    }
    s.workers = 1;
    if (device_->control.done == 0) launch(s, -1);
    check_results(s);
  }
  EXPECT_GT(left_seen_, 10u);
}

TEST_F(CloneRun, AQuotaOfWorkersOnEachSm) {
  Setting s;
  s.grid = {40, 1, 1};
  s.workers = 8;
  begin(s);
  flags_ = SLUICE_LAUNCH_SPATIAL;
  quota_ = 1;
  launch(s, -1);
  quota_ = 0;
  check_left(s, 1);
  check_results(s);
}

// A distributor of blocks that prefers SMs with most room sends the next block where one has just
// left: those that are not wanted where they are wait until the others have come to their places.
TEST_F(CloneRun, BlocksOnOtherSmsWaitUntilTheWorkersHaveCome) {
  Setting s;
  s.grid = {40, 1, 1};
  s.workers = 6;
  only_sm_0_ = true;
  away_first_ = 200;
  for (std::uint32_t place : {0u, 3u}) {
    for (bool proxy : {false, true}) {
      s.proxy = proxy;
      begin(s);
      flags_ = SLUICE_LAUNCH_SPATIAL;
      place_ = place;
      left_first_ = 0;
      launch(s, -1);
      EXPECT_EQ(left_first_, place == 0 ? 3 : 0);
      check_left(s, 1);
      check_results(s);
      EXPECT_EQ(device_->control.placed[0], 0u) << "clean for a relaunch";
      EXPECT_EQ(device_->control.placing_ns[0], 0u);
    }
  }
}

// However few come: nobody waits for ever.
TEST_F(CloneRun, BlocksOnOtherSmsWaitNoLongerThanTheyShould) {
  Setting s;
  s.grid = {40, 1, 1};
  s.workers = 4;
  begin(s);
  flags_ = SLUICE_LAUNCH_SPATIAL;
  only_sm_0_ = true;
  place_ = 1000;
  launch(s, -1);
  check_left(s, 1);
  check_results(s);
  EXPECT_EQ(device_->control.placing_ns[0], 0u);
}

TEST_F(CloneRun, NothingRunsBehindAnEvictedPredecessor) {
  Setting s;
  for (bool proxy : {false, true}) {
    s.proxy = proxy;
    begin(s);
    launch(s, -1, 0, 0xffff, true);
    check_left(s, 1);
    EXPECT_EQ(device_->control.next_ticket, 0u);
    EXPECT_EQ(device_->out[0], 0u);
    device_->predecessor.done = 1;
    launch(s, -1, 0, 0xffff, true);
    check_left(s, 2);
    check_results(s);
  }
}

}  // namespace
}  // namespace sluice::passes
