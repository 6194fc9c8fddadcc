// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker under grants of parts of the GPU whose SMs change while launches run: they
// stay where they are but for the SMs that were lost, go on on those that were won, and memory is
// in the end what the launches make of it.
#include <algorithm>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/worker/kernels.h"

namespace sluice::test {
namespace {

constexpr uint32_t kSms = 8;
const uint32_t kGpuSms = kNvidia ? 132 : kSms;

class WorkerSpace : public WorkerProcess {
 protected:
  void start_in_space(wp::Signal signal, const SmSet& sms) {
    WorkerBench::Options o;
    o.signal = signal;
    o.spatial_sms = kGpuSms;
    o.open = false;
    o.environment = {"SLUICE_SOFT_SMS=" + std::to_string(kSms), "SLUICE_SOFT_THREADS=2"};
    start(std::move(o));
    ASSERT_NE(b, nullptr);
    b->grant_part(sms);
    make_context();
    make_module();
    n_ = 64 * grid_;
    data_ = alloc(n_ * 4).as<uint64_t>();
    auto* values = reinterpret_cast<uint32_t*>(b->bulk(kStaging));
    expected_.resize(n_);
    for (uint32_t i = 0; i < n_; ++i) values[i] = expected_[i] = i;
    ASSERT_EQ(b->call(SLUICE_CALL_COPY, to_device(data_, kStaging, n_ * 4), context).status, 0);
  }
  void launch_long(uint32_t k) {
    b->post(SLUICE_CALL_LAUNCH, launch_body(add, grid_, 64, data_, n_, k, 0, rounds_), context,
            SLUICE_RECORD_NO_REPLY);
    asked_.emplace_back(k, rounds_);
  }
  // Not between the launches: they would be done before the last is asked for.
  void expect_asked() {
    for (const auto& [k, rounds] : asked_)
      for (auto& v : expected_) v = advance(v, k, rounds);
    asked_.clear();
  }
  // One launch is on the GPU, and has begun.
  void wait_running(uint64_t launches) {
    for (int i = 0; i < 200'000; ++i) {
      if (b->report->header.launches_done >= launches) return;
      for (const auto& r : b->report->records)
        if (r.launch_id == launches &&
            __atomic_load_n(&r.state, __ATOMIC_ACQUIRE) == SLUICE_LAUNCH_RUNNING)
          return;
      ::usleep(50);
    }
    FAIL() << "the launch does not begin";
  }
  void finish() {
    ASSERT_EQ(sync(120000).status, CUDA_SUCCESS);
    expect_asked();
    ASSERT_EQ(b->call(SLUICE_CALL_COPY, to_host(kStaging, data_, n_ * 4), context).status, 0);
    EXPECT_EQ(std::memcmp(b->bulk(kStaging), expected_.data(), n_ * 4), 0);
    EXPECT_EQ(b->report->header.in_flight, 0u);
    EXPECT_EQ(b->report->header.demand, 0u);
    EXPECT_EQ(b->report->header.unconfined, 0u);
    EXPECT_TRUE(b->async_errors.empty());
  }
  uint32_t grid_ = kNvidia ? 50'000 : 3000, rounds_ = kNvidia ? 8000 : 20,
           n_ = 0;  // its data within the staging area
  uint64_t data_ = 0;
  std::vector<uint32_t> expected_;
  std::vector<std::pair<uint32_t, uint32_t>> asked_;  // of each launch: its number and its rounds
};

// By signal; alone, or with others queued behind it.
class WorkerSpaceMoves : public WorkerSpace,
                         public testing::WithParamInterface<std::tuple<wp::Signal, bool>> {};

// What the test knows of how launches lie, and what sluiced would say for the next set.
struct Sets {
  SmSet now, spread;
  bool may_stay(const SmSet& to, SmSet::Range* leave) const {
    const SmSet lost = (spread | now) - to;
    *leave = lost.next_range();
    for (SmSet::Range r = lost.next_range(); r.lo < r.hi; r = lost.next_range(r.hi))
      leave->hi = r.hi;
    return !to.meets(SmSet(leave->lo, leave->hi));
  }
};

TEST_P(WorkerSpaceMoves, SmsChangeUnderLaunchesAndMemoryIsRight) {
  const auto [signal, chain] = GetParam();
  std::mt19937 random(7);
  Sets sets{.now = SmSet(0, kGpuSms / 2), .spread = SmSet(0, kGpuSms / 2)};
  start_in_space(signal, sets.now);
  uint64_t launches = 0;
  int moves = 0;
  // Until both kinds of change have come under a launch that stayed; on a busy machine most
  // launches are over before that.
  for (int round = 0; round < 1000 && (round < 4 || b->report->header.narrowed < 6 ||
                                       (!chain && b->report->header.grown < 3));
       ++round) {
    launch_long(static_cast<uint32_t>(++launches));
    for (int i = 0; chain && i < 5; ++i) launch_long(static_cast<uint32_t>(++launches));
    ASSERT_NO_FATAL_FAILURE(wait_running(chain ? launches - 5 : launches));
    for (int i = 0; i < 4; ++i, ++moves) {
      SmSet to;
      if (random() % 4 == 0) {
        for (uint32_t sm = 0; sm < kGpuSms; ++sm)
          if (random() % 2) to.add(sm);
        to.add(random() % kGpuSms);
      } else {
        const uint32_t lo = random() % 3 == 0 ? random() % kGpuSms : sets.now.next_range().lo;
        to = SmSet(lo, std::min(kGpuSms, lo + 1 + static_cast<uint32_t>(random() % kGpuSms)));
      }
      if (to == sets.now || to.count() == kGpuSms) continue;
      SmSet::Range leave{0, 0xffff};
      const bool stays = sets.may_stay(to, &leave);
      if (!stays) leave = {0, 0xffff};
      b->grant_part(to, true, stays, leave);
      ASSERT_TRUE(b->wait_moved()) << "sluiced would wait for ever";
      sets.spread = stays ? sets.spread | sets.now | to : to;
      sets.now = to;
    }
    ASSERT_EQ(sync(120000).status, CUDA_SUCCESS);
  }
  std::printf(
      "%d changes under %lu launches: %lu under which launches stayed, %lu second grids, %d called "
      "back whole after all\n",
      moves, launches, b->report->header.narrowed, b->report->header.grown, b->called_back_whole);
  EXPECT_GE(b->report->header.narrowed, 3u);
  EXPECT_GE(b->report->header.grown, chain ? 0u : 1u);
  finish();
  EXPECT_EQ(b->report->header.launches_done, launches);
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerSpaceMoves,
    testing::Combine(testing::Values(wp::Signal::kHost, wp::Signal::kProxy, wp::Signal::kWrite),
                     testing::Bool()),
    [](const auto& of) {
      std::string name(wp::kSignalNames[static_cast<size_t>(std::get<0>(of.param))]);
      std::replace(name.begin(), name.end(), '-', '_');
      return name + (std::get<1>(of.param) ? "_chains" : "_alone");
    });

// An eviction of everything while a second grid runs: both leave, and the launch is done in the
// end.
TEST_F(WorkerSpace, EverythingLeavesAlsoASecondGrid) {
  start_in_space(kNvidia ? wp::Signal::kProxy : wp::Signal::kHost, SmSet(0, 2));
  uint64_t launches = 0;
  for (int round = 0; round < 20 && (round < 3 || b->report->header.evictions < 3); ++round) {
    launch_long(static_cast<uint32_t>(++launches));
    ASSERT_NO_FATAL_FAILURE(wait_running(launches));
    b->grant_part(SmSet(0, kGpuSms / 2), true, true, {0, 0});
    ASSERT_TRUE(b->wait_moved());
    b->take_back();
    ASSERT_TRUE(b->wait_left());
    b->grant_part(SmSet(0, 2));
    ASSERT_EQ(sync(120000).status, CUDA_SUCCESS);
    // On a busy machine it may have been done before it was evicted. The next takes longer.
    if (b->report->header.evictions == 0 && round < 8) rounds_ *= 2;
  }
  EXPECT_GE(b->report->header.grown, 1u);
  EXPECT_GE(b->report->header.evictions, 1u);
  finish();
}

// What runs on any SM cannot stay: the worker says so, and sluiced calls it back.
TEST_F(WorkerSpace, WhatNoSetBindsIsCalledBackWhole) {
  start_in_space(kNvidia ? wp::Signal::kProxy : wp::Signal::kHost, SmSet(0, 2));
  // Under the whole GPU a launch is on no list of SMs.
  b->grant();
  launch_long(1);
  ASSERT_NO_FATAL_FAILURE(wait_running(1));
  EXPECT_EQ(b->report->header.keeps, 0u);
  b->grant_part(SmSet(0, 2), true, true, {2, 0xffff});
  ASSERT_TRUE(b->wait_moved());
  EXPECT_TRUE(b->called_back_whole == 1 || b->report->header.launches_done == 1);
  finish();
}

// The prologue form: a block's task is its own number, so none can go home from an SM that is
// somebody else's. It runs on any, is reported as such while it is in flight, and leaves when it is
// evicted.
TEST_F(WorkerSpace, WhatRunsOneTaskABlockIsSaidToUseEverySm) {
  start_in_space(kNvidia ? wp::Signal::kProxy : wp::Signal::kHost, SmSet(0, 2));
  auto rewritten = passes::rewrite_module(std::string(kHead) + kHalvesMeet + kBody + "ret;\n}\n");
  ASSERT_TRUE(rewritten.ok());
  ASSERT_TRUE(rewritten->kernels[0].once) << rewritten->kernels[0].reason;
  const Answer a = load(rewritten->text);
  ASSERT_EQ(a.status, CUDA_SUCCESS);
  module = a.as<uint64_t>();
  add = function("add", SLUICE_FUNCTION_EVICTABLE | SLUICE_FUNCTION_ONCE);
  launch_long(1);
  ASSERT_NO_FATAL_FAILURE(wait_running(1));
  const bool reported = __atomic_load_n(&b->report->header.unconfined, __ATOMIC_SEQ_CST) == 1;
  const bool ended = __atomic_load_n(&b->report->header.launches_done, __ATOMIC_SEQ_CST) == 1;
  EXPECT_TRUE(reported || ended);
  EXPECT_EQ(b->report->header.keeps, 0u) << "it cannot stay while its SMs change";
  b->grant_part(SmSet(0, 3), true);
  ASSERT_TRUE(b->wait_moved());
  EXPECT_EQ(b->report->header.opaque_launches, 0u);
  finish();
}

}  // namespace
}  // namespace sluice::test
