// SPDX-License-Identifier: Apache-2.0
// Who is charged for each moment of a GPU that goes round among contexts
// (policies/accounting/engine_use.h), and what lies gain.
#include "policies/accounting/engine_use.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace sluice::accounting {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kA = 70, kB = 71, kC = 72, kStranger = 99;

class EngineUseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const uint32_t w : {kA, kB, kC}) {
      use_.add(w, w);
      use_.set_slice(w, 4 * kMs);
    }
    settle(0);
  }
  void settle(uint64_t until_ns) {
    std::vector<EngineUse::Used> used;
    use_.settle(until_ns, used);
    for (const auto& u : used) sum_[u.worker] += u.ns;
  }
  void claims(uint64_t at_ns, std::initializer_list<uint32_t> workers, bool yes = true) {
    for (const uint32_t w : workers) use_.on_claim(at_ns, w, yes);
  }
  // One context runs from there to there.
  void runs(uint32_t w, uint64_t from_ns, uint64_t to_ns) {
    use_.on_record(from_ns, w, true);
    use_.on_record(to_ns, w, false);
  }
  // By hardware that goes round; `slices` as each context has really set them.
  void round_robin(uint64_t from_ns, uint64_t to_ns,
                   const std::vector<std::pair<uint32_t, uint64_t>>& slices) {
    uint64_t at = from_ns;
    for (size_t i = 0; at < to_ns; i = (i + 1) % slices.size()) {
      runs(slices[i].first, at, at + slices[i].second);
      at += slices[i].second + kGapNs;
    }
  }
  static constexpr uint64_t kGapNs = 85'000;
  EngineUse use_{{.interval_cost_ns = 137'000, .switch_ns = 200'000, .overrun_ns = 500 * kMs}};
  std::map<uint32_t, uint64_t> sum_;
};

TEST_F(EngineUseTest, WhoIsResidentIsChargedButForTheSwitch) {
  claims(0, {kA, kB});
  runs(kA, kMs, 5 * kMs);
  runs(kB, 5 * kMs + kGapNs, 9 * kMs + kGapNs);
  settle(kMs);
  EXPECT_EQ(sum_[kA], kMs / 2) << "before the first record, equal parts";
  EXPECT_EQ(sum_[kB], kMs / 2);
  settle(11 * kMs);
  // Slices of 4 ms less the cost, and half of the time in which nobody came.
  const auto each = static_cast<double>(kMs / 2 + 3'863'000 + (2 * kMs - kGapNs) / 2);
  EXPECT_NEAR(static_cast<double>(sum_[kA]), each, 2);
  EXPECT_NEAR(static_cast<double>(sum_[kB]), each, 2);
}

TEST_F(EngineUseTest, WhoGivesItsSlicesAwayPaysForTheSwitches) {
  claims(0, {kA, kB});
  settle(0);
  uint64_t at = 0;
  for (int i = 0; i < 100; ++i) {
    runs(kA, at, at + 4 * kMs);
    at += 4 * kMs + kGapNs;
    runs(kB, at, at + kMs);
    at += kMs + kGapNs;
  }
  settle(at);
  EXPECT_GE(sum_[kB], 99 * kMs);
  EXPECT_LT(sum_[kA], 396 * kMs) << "whole slices cost their work only";
}

// Each new slice stops whoever runs; the same context goes on.
// A visitor comes between any two slices of one that stays; both claim all the time, and the
// visitor's slice is the longer one. By parts it would pay for most of the time between them.
TEST_F(EngineUseTest, WhoVisitsDoesNotPayForTheOthersSwitches) {
  use_.set_slice(kA, 5 * kMs), use_.set_slice(kB, kMs);
  claims(0, {kA, kB});
  settle(0);
  uint64_t at = 0;
  for (int i = 0; i < 100; ++i) {
    runs(kB, at, at + kMs);
    at += kMs + kGapNs;
    runs(kA, at, at + kMs / 10);
    at += kMs / 10 + kGapNs;
  }
  settle(at);
  EXPECT_NEAR(static_cast<double>(sum_[kA]), 100.0 * kMs / 10, kMs);
  EXPECT_NEAR(static_cast<double>(sum_[kB]), 100.0 * (kMs - 137'000), kMs);
}

TEST_F(EngineUseTest, WhoIsStoppedAndGoesOnHasNotGivenItsSliceAway) {
  claims(0, {kA, kB});
  uint64_t at = 0;
  for (int i = 0; i < 100; ++i) {
    for (int piece = 0; piece < 4; ++piece) {
      runs(kA, at, at + kMs);
      at += kMs + kGapNs;
    }
    runs(kB, at, at + 4 * kMs);
    at += 4 * kMs + kGapNs;
  }
  settle(at);
  // Four pieces cost A what four switches take, 4 times 0.137 ms; nothing is added for them.
  EXPECT_NEAR(static_cast<double>(sum_[kA]), 100.0 * (4 * kMs - 4 * 137'000), kMs);
}

// The figures that made this: slices of 8 and 2 ms, of which the log's residency says 3.87 and a
// witness in the kernels 4.06.
TEST_F(EngineUseTest, SlicesOfFourToOneAreWorkOfFourToOne) {
  use_.set_slice(kA, 8 * kMs), use_.set_slice(kB, 2 * kMs);
  claims(0, {kA, kB});
  round_robin(0, 10'000 * kMs, {{kA, 8 * kMs}, {kB, 2 * kMs}});
  settle(10'000 * kMs);
  EXPECT_NEAR(static_cast<double>(sum_[kA]) / static_cast<double>(sum_[kB]), 4.2, 0.1);
}

// The log tells of a vGPU that is alone a second late, when another has come: no debt of then.
TEST_F(EngineUseTest, WhatIsUsedAloneIsFreeHoweverLateItIsTold) {
  std::map<uint32_t, uint64_t> free;
  const auto tell = [&](uint64_t until_ns) {
    std::vector<EngineUse::Used> used;
    use_.settle(until_ns, used);
    for (const auto& u : used) (u.free ? free : sum_)[u.worker] += u.ns;
  };
  claims(0, {kA});
  use_.on_record(0, kA, true);
  claims(900 * kMs, {kB});
  tell(950 * kMs);
  EXPECT_NEAR(static_cast<double>(free[kA]), 900e6, 1.2e6);
  EXPECT_NEAR(static_cast<double>(sum_[kA]), 50e6, 1.2e6);
  // B has launches behind its closed gate: A is not alone.
  use_.on_claim(950 * kMs, kB, false, true);
  tell(1050 * kMs);
  EXPECT_NEAR(static_cast<double>(sum_[kA]), 150e6, 1.2e6);
  // C runs and says that it has nothing: not for free, while A wants the GPU and is trusted.
  use_.on_claim(1050 * kMs, kB, false, false);
  use_.on_record(1050 * kMs, kA, false);
  runs(kC, 1050 * kMs, 1150 * kMs);
  use_.on_record(1150 * kMs, kA, true);
  tell(1200 * kMs);
  EXPECT_NEAR(static_cast<double>(sum_[kC]), EngineUse::kTrustedNs, 0.2e6);
  EXPECT_EQ(free[kC], 0u);
  EXPECT_NEAR(static_cast<double>(sum_[kA]), 150e6, 1.2e6);
  EXPECT_NEAR(static_cast<double>(free[kA]), 950e6, 1.4e6);
}

TEST_F(EngineUseTest, AnIdleContextThatNobodyDisplacesIsNotCharged) {
  claims(0, {kA});
  use_.on_record(0, kA, true);
  claims(10 * kMs, {kA}, false);
  settle(1000 * kMs);
  EXPECT_NEAR(static_cast<double>(sum_[kA]), 10e6, 0.2e6);
}

TEST_F(EngineUseTest, SayingThatItHasNothingAndRunningOnIsChargedAsFarAsTheOtherIsBelieved) {
  claims(0, {kA, kB});
  runs(kB, 0, 40 * kMs);
  use_.on_record(40 * kMs, kA, true);
  claims(41 * kMs, {kA}, false);
  settle(40 * kMs);
  const uint64_t b_ran = sum_[kB];
  settle(400 * kMs);
  EXPECT_EQ(sum_[kA], kMs + EngineUse::kTrustedNs - 137'000);
  EXPECT_EQ(sum_[kB], b_ran) << "whose time the rest was nobody knows";
}

TEST_F(EngineUseTest, SayingThatItHasWorkAndStartingNothingCostsAnIdleNeighbourNothing) {
  claims(0, {kA, kB});
  use_.on_record(0, kA, true);
  claims(kMs, {kA}, false);  // honestly
  settle(5000 * kMs);
  EXPECT_LE(sum_[kA], kMs + EngineUse::kFirstTrustedNs);
  // Doing so again and again does not renew it, nor do more sessions.
  const uint64_t before = sum_[kA];
  for (uint32_t t = 5000; t < 9000; t += 100) {
    claims(t * kMs, {kB}, false);
    use_.add(1000 + t, kB);
    claims((t + 1) * kMs, {kB, 1000 + t});
  }
  settle(9000 * kMs);
  EXPECT_EQ(sum_[kA], before);
  // A kernel of 10 us makes it worth 10 us.
  runs(kB, 9000 * kMs, 9000 * kMs + 10'000);
  use_.on_record(9001 * kMs, kA, true);
  settle(9500 * kMs);
  EXPECT_LE(sum_[kA], before + 10'000);
}

TEST_F(EngineUseTest, LongerSlicesThanItWasGivenAreCharged) {
  claims(0, {kA, kB});
  round_robin(0, 20'000 * kMs, {{kA, 4000 * kMs}, {kB, 4 * kMs}});
  settle(20'000 * kMs);
  EXPECT_GE(static_cast<double>(sum_[kA]), 0.99 * 20e9 * 4000 / 4004);
  EXPECT_TRUE(use_.take_overruns().empty()) << "no witness";
}

TEST_F(EngineUseTest, ManyRoundsOfHonestSlicesAreEqual) {
  std::vector<std::pair<uint32_t, uint64_t>> slices;
  for (uint32_t w = 200; w < 264; ++w) {
    use_.add(w, w), use_.set_slice(w, 4 * kMs);
    slices.push_back({w, 4 * kMs}), claims(0, {w});
  }
  round_robin(0, 3000 * kMs, slices);
  settle(3000 * kMs);
  for (uint32_t w = 200; w < 264; ++w)
    EXPECT_NEAR(static_cast<double>(sum_[w]), 3e9 / 64, 5e6) << w;
}

TEST_F(EngineUseTest, StrangersAndLostRecordsAreNobodys) {
  claims(0, {kA, kB});
  use_.set_slice(kA, 5'800'000), use_.set_slice(kB, 1'800'000);  // parts of 6 and 2
  runs(kStranger, 0, 80 * kMs);
  settle(80 * kMs);
  EXPECT_NEAR(static_cast<double>(sum_[kA]), 60e6, 2);
  EXPECT_NEAR(static_cast<double>(sum_[kB]), 20e6, 2);
  use_.on_record(80 * kMs, kA, true);
  settle(90 * kMs);
  const uint64_t a = sum_[kA];
  use_.on_lost(90 * kMs);
  settle(170 * kMs);
  EXPECT_NEAR(static_cast<double>(sum_[kA] - a), 60e6, 200e3);
}

TEST_F(EngineUseTest, WithoutALogEachHasItsPart) {
  claims(0, {kA, kB});
  std::vector<EngineUse::Used> used;
  use_.settle_without_log(8 * kMs, used);
  ASSERT_EQ(used.size(), 2u);
  EXPECT_EQ(used[0].ns, 4 * kMs);
  EXPECT_EQ(used[1].ns, 4 * kMs);
}

TEST_F(EngineUseTest, WhoIsGoneIsForgotten) {
  claims(0, {kA, kB});
  use_.on_record(0, kA, true);
  settle(10 * kMs);
  use_.remove(kA);
  claims(11 * kMs, {kA});
  settle(20 * kMs);
  EXPECT_FALSE(use_.has(kA));
  EXPECT_GE(sum_[kB], 9 * kMs);
}

// Whatever comes, in whatever order: no more is handed out than time has passed.
TEST_F(EngineUseTest, NeverMoreThanTheTimeThatPassed) {
  uint32_t state = 1;
  const auto random = [&](uint32_t n) {
    return (state = state * 1664525 + 1013904223) / 65536 % n;
  };
  uint64_t at = 0;
  for (int i = 0; i < 20'000; ++i) {
    at += random(3) * 500'000;
    const uint32_t who = 70 + random(4);
    switch (random(5)) {
      case 0:
        use_.on_claim(at, who, random(2) != 0);
        break;
      case 1:
      case 2:
        use_.on_record(at, who, random(2) != 0);
        break;
      case 3:
        if (random(10) == 0) use_.on_lost(at);
        break;
      default:
        settle(at);
    }
  }
  settle(at);
  uint64_t all = 0;
  for (const auto& [w, ns] : sum_) all += ns;
  EXPECT_LE(all, at + 10);
  EXPECT_GT(all, at / 4);
}

}  // namespace
}  // namespace sluice::accounting
