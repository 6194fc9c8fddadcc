// SPDX-License-Identifier: Apache-2.0
// Who is proved to keep the GPU beyond its slices (policies/accounting/overrun_proof.h), by
// hardware that goes round among contexts, the witness's among them; and who is not.
#include "policies/accounting/overrun_proof.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

#include "policies/accounting/engine_use.h"

namespace sluice::accounting {
namespace {

// The hardware, the witness and sluiced, in steps of 0.1 ms.
class OverrunProofTest : public ::testing::Test {
 protected:
  using Say = OverrunProof::Say;
  static constexpr uint64_t kMs = 1'000'000, kStepNs = 100'000;
  static constexpr uint32_t kA = 70, kB = 71, kC = 72, kWitness = 80;
  struct Context {
    uint32_t worker;
    uint64_t slice_ns;
    bool works = true;
    uint64_t reset_ns = 0;  // a slice is set anew so often, from where the first one begins
  };

  void SetUp() override {
    for (const uint32_t w : {kA, kB, kC}) {
      use_.add(w, w);
      use_.set_slice(w, kMs);
    }
    use_.set_witness(kWitness);
  }

  // Until somebody is proved to overrun, or so long. Whom, 0: nobody.
  uint32_t run(uint64_t for_ns) {
    const uint64_t end_ns = now_ns_ + for_ns;
    while (now_ns_ < end_ns) {
      now_ns_ += kStepNs;
      hardware();
      witness();
      if (now_ns_ % (10 * kMs) != 0) continue;
      std::vector<EngineUse::Used> used;
      if (log_) use_.settle(now_ns_ - log_late_ns_, used);
      if (log_ && use_.suspects() && witness_up_) ask();
      const auto overruns = use_.take_overruns();
      if (!overruns.empty()) return overruns.front();
    }
    return 0;
  }
  void claim(std::initializer_list<uint32_t> workers, bool yes = true) {
    for (const uint32_t w : workers) use_.on_claim(now_ns_, w, yes);
  }
  void witness_dies() { witness_up_ = submitted_ = false; }
  uint64_t excess_ns(uint32_t worker) const { return use_.excess_ns(worker); }

  std::vector<Context> contexts_;  // without the witness's
  EngineUse use_{{.interval_cost_ns = 137'000, .switch_ns = 200'000, .overrun_ns = 500 * kMs}};
  uint64_t now_ns_ = kMs, log_late_ns_ = 10 * kMs;
  bool log_ = true, witness_up_ = true;
  uint64_t submits_late_ns_ = 0, tells_late_ns_ = 0;  // no processor for so long, before and after
  unsigned asked_ = 0;

 private:
  static constexpr size_t kNone = ~size_t{0};
  bool works(size_t i) const { return i == contexts_.size() ? submitted_ : contexts_[i].works; }
  uint32_t process(size_t i) const {
    return i == contexts_.size() ? kWitness : contexts_[i].worker;
  }
  void go_to(size_t i) {
    if (on_ != kNone) use_.on_record(now_ns_, process(on_), false);
    if (i != kNone) use_.on_record(now_ns_, process(i), true);
    on_ = i;
    since_ns_ = now_ns_;
  }
  size_t next() const {
    const size_t count = contexts_.size() + 1, from = on_ == kNone ? 0 : on_ + 1;
    for (size_t i = 0; i < count; ++i)
      if (works((from + i) % count)) return (from + i) % count;
    return kNone;
  }
  // An idle context stays until another one works.
  void hardware() {
    if (on_ != kNone && on_ < contexts_.size() && works(on_)) {
      const Context& c = contexts_[on_];
      if (c.reset_ns != 0 && now_ns_ - since_ns_ >= c.reset_ns) return go_to(on_);
      if (now_ns_ - since_ns_ < c.slice_ns) return;
    }
    if (on_ == contexts_.size()) submitted_ = false;  // an empty kernel
    if (const size_t i = next(); i != kNone && i != on_) go_to(i);
    if (on_ != kNone && now_ns_ - since_ns_ >= kMs) since_ns_ = now_ns_;  // alone: again
  }
  void ask() {
    if (asking_ || now_ns_ - asked_ns_ < 100 * kMs) return;
    asking_ = true, said_ns_ = 0;
    asked_ns_ = now_ns_;
    ++asked_;
    use_.on_witness(now_ns_, Say::kAsked);
  }
  // What it says arrives later: its first word even when it has been served long ago.
  void witness() {
    if (!asking_ || !witness_up_) return;
    if (said_ns_ == 0 && now_ns_ >= asked_ns_ + submits_late_ns_) {
      submitted_ = true;
      said_ns_ = now_ns_;
      words_.push_back({now_ns_ + tells_late_ns_, Say::kWaits});
    } else if (said_ns_ != 0 && submitted_ && now_ns_ - said_ns_ >= 20 * kMs) {
      said_ns_ = now_ns_;
      words_.push_back({now_ns_ + tells_late_ns_, Say::kWaits});
    } else if (said_ns_ != 0 && !submitted_ && !served_) {
      served_ = true;
      words_.push_back({now_ns_ + 2 * tells_late_ns_, Say::kServed});
    }
    while (!words_.empty() && words_.front().first <= now_ns_) {
      use_.on_witness(now_ns_, words_.front().second);
      if (words_.front().second == Say::kServed) asking_ = served_ = false;
      words_.pop_front();
    }
  }

  size_t on_ = kNone;
  uint64_t since_ns_ = 0;
  bool submitted_ = false, asking_ = false, served_ = false;
  std::deque<std::pair<uint64_t, Say>> words_;
  uint64_t asked_ns_ = 0, said_ns_ = 0;
};

TEST_F(OverrunProofTest, SlicesOfTenSecondsBesideOneNeighbour) {
  contexts_ = {{kA, 10'000 * kMs}, {kB, kMs}};
  claim({kA, kB});
  EXPECT_EQ(run(5000 * kMs), kA);
  EXPECT_LT(now_ns_, 1500 * kMs);
}

TEST_F(OverrunProofTest, SlicesBelowTheDeadline) {
  contexts_ = {{kA, 450 * kMs}, {kB, kMs}};
  claim({kA, kB});
  EXPECT_EQ(run(10'000 * kMs), kA);
  EXPECT_LT(now_ns_, 5000 * kMs);
}

TEST_F(OverrunProofTest, SlicesALittleLongerTakeLonger) {
  contexts_ = {{kA, 20 * kMs}, {kB, kMs}};
  claim({kA, kB});
  EXPECT_EQ(run(60'000 * kMs), kA);
}

TEST_F(OverrunProofTest, WithoutAWitnessNobodyIsEnded) {
  witness_up_ = false;
  contexts_ = {{kA, 10'000 * kMs}, {kB, kMs}};
  claim({kA, kB, kC});
  EXPECT_EQ(run(30'000 * kMs), 0u);
}

// Of two that claim work and launch nothing, an honest one was ended that ran a long kernel.
TEST_F(OverrunProofTest, WhoRunsAloneIsNotEndedHoweverManyClaim) {
  contexts_ = {{kA, kMs}};
  claim({kA, kB, kC});
  EXPECT_EQ(run(60'000 * kMs), 0u);
  EXPECT_GT(asked_, 10u);
  EXPECT_EQ(excess_ns(kA), 0u);
}

TEST_F(OverrunProofTest, AnIdleContextThatNobodyDisplaces) {
  contexts_ = {{kA, kMs}};
  claim({kA});
  run(100 * kMs);
  contexts_[0].works = false;
  claim({kA}, false), claim({kB, kC});
  EXPECT_EQ(run(60'000 * kMs), 0u);
}

TEST_F(OverrunProofTest, LongKernelsOfManyGoRound) {
  contexts_ = {{kA, kMs}, {kB, kMs}, {kC, kMs}};
  for (uint32_t w = 200; w < 232; ++w) {
    use_.add(w, w), use_.set_slice(w, kMs);
    contexts_.push_back({w, kMs}), claim({w});
  }
  claim({kA, kB, kC});
  EXPECT_EQ(run(20'000 * kMs), 0u);
}

// SET_TIMESLICE waits for seconds while another process makes a context.
TEST_F(OverrunProofTest, AnHonestWorkerThatLearnsOfANewSliceThreeSecondsLate) {
  use_.set_slice(kA, 80 * kMs);
  contexts_ = {{kA, 80 * kMs}, {kB, kMs}};
  claim({kA, kB});
  run(1000 * kMs);
  use_.set_slice(kA, kMs);
  EXPECT_EQ(run(3000 * kMs), 0u);
  contexts_[0].slice_ns = kMs;
  EXPECT_EQ(run(20'000 * kMs), 0u);
  // One that never does is found.
  contexts_[0].slice_ns = 80 * kMs;
  EXPECT_EQ(run(20'000 * kMs), kA);
}

TEST_F(OverrunProofTest, TwoContextsOfOneWorkerBackToBack) {
  use_.set_slice(kA, 30 * kMs);
  contexts_ = {{kA, 30 * kMs}, {kA, 30 * kMs}, {kA, 30 * kMs}, {kB, kMs}};
  claim({kA, kB});
  EXPECT_EQ(run(30'000 * kMs), 0u);
  EXPECT_GT(asked_, 10u);
}

// It may be A that sets its slice all the time, or B, which would have A ended: nothing tells
// which.
TEST_F(OverrunProofTest, AContextThatNewSlicesStopAllTheTimeIsChargedOnly) {
  contexts_ = {{kA, 10'000 * kMs, true, 5 * kMs}, {kB, kMs}};
  claim({kA, kB});
  EXPECT_EQ(run(30'000 * kMs), 0u);
  EXPECT_GT(asked_, 0u);
}

TEST_F(OverrunProofTest, WhatTheLogDoesNotTellIsNoProof) {
  contexts_ = {{kA, 10'000 * kMs}, {kB, kMs}};
  claim({kA, kB});
  run(200 * kMs);
  const uint64_t known_ns = excess_ns(kA);
  log_ = false;
  run(200 * kMs);
  EXPECT_EQ(excess_ns(kA), known_ns) << "the log has told nothing more";
  std::vector<EngineUse::Used> used;
  use_.settle_without_log(now_ns_, used);  // it has gone
  EXPECT_LE(excess_ns(kA), known_ns);
  log_ = true;
  EXPECT_EQ(run(5000 * kMs), 0u) << "who is on the GPU is not known before the next record";
}

TEST_F(OverrunProofTest, ALateLogIsAsGood) {
  log_late_ns_ = 1000 * kMs;
  contexts_ = {{kA, 450 * kMs}, {kB, kMs}};
  claim({kA, kB});
  EXPECT_EQ(run(20'000 * kMs), kA);
}

TEST_F(OverrunProofTest, AWitnessWithoutAProcessorProvesNothing) {
  // B has nothing, and claims. The witness is served at once, and says so half a second later.
  tells_late_ns_ = 500 * kMs;
  contexts_ = {{kA, kMs}};
  claim({kA, kB});
  EXPECT_EQ(run(60'000 * kMs), 0u);
  EXPECT_GT(asked_, 10u);
  EXPECT_EQ(excess_ns(kA), 0u);
  // It submits late, while A keeps the GPU: nothing counts before.
  tells_late_ns_ = 0, submits_late_ns_ = 400 * kMs;
  contexts_[0].slice_ns = 60'000 * kMs;
  run(390 * kMs);
  EXPECT_EQ(excess_ns(kA), 0u);
}

// Its launch is gone with it, and A has the GPU alone.
// "It still waits", said when the log shows that it has run.
TEST_F(OverrunProofTest, ALateWordProvesNothing) {
  OverrunProof proof(500 * kMs);
  proof.set_slice(0, kA, kMs);
  const auto keeps = [&](uint64_t from_ns) {
    proof.on_resident(from_ns, kA, false);
    proof.pass(from_ns, 0, true);
    proof.on_witness(from_ns, Say::kWaits);
    proof.pass(from_ns + 400 * kMs, 400 * kMs, true);
    proof.on_witness(from_ns + 400 * kMs, Say::kWaits);
    return proof.excess_ns(from_ns + 400 * kMs, kA);
  };
  // It was on the GPU when it was asked: its launch has run at once.
  proof.on_resident(kMs, kWitness, true);
  proof.on_witness(kMs, Say::kAsked);
  EXPECT_EQ(keeps(2 * kMs), 0u);
  // It has been on the GPU since.
  proof.on_witness(1000 * kMs, Say::kAsked);
  proof.on_witness(1000 * kMs, Say::kWaits);
  proof.on_resident(1003 * kMs, kWitness, true);
  EXPECT_EQ(keeps(1004 * kMs), 0u);
  // Neither.
  proof.on_witness(2000 * kMs, Say::kAsked);
  EXPECT_GT(keeps(2001 * kMs), 300 * kMs);
}

TEST_F(OverrunProofTest, AWitnessThatDiesWhileItWaits) {
  contexts_ = {{kA, 10'000 * kMs}, {kB, kMs}};
  claim({kA, kB});
  run(300 * kMs);
  const uint64_t proved_ns = excess_ns(kA);
  ASSERT_GT(proved_ns, 0u);
  witness_dies();
  EXPECT_EQ(run(10'000 * kMs), 0u);
  EXPECT_LE(excess_ns(kA), proved_ns);
}

// The GPU stands for 150 ms at each fault of somebody's, with A on it.
TEST_F(OverrunProofTest, AStallByAFaultIsNobodys) {
  contexts_ = {{kA, kMs}, {kB, kMs}};
  claim({kA, kB});
  const auto stall = [&](bool known) {
    contexts_[0].slice_ns = 150 * kMs;
    const uint32_t proved = run(160 * kMs);
    contexts_[0].slice_ns = kMs;
    if (known) use_.on_stall(now_ns_, 150 * kMs);
    return proved + run(200 * kMs);
  };
  for (int fault = 0; fault < 30; ++fault) EXPECT_EQ(stall(true), 0u);
  uint32_t proved = 0;
  for (int fault = 0; fault < 30 && proved == 0; ++fault) proved = stall(false);
  EXPECT_EQ(proved, kA) << "what is no fault's is A's";
}

// Loading a module stops the GPU for a while, too, but that is no way out.
TEST_F(OverrunProofTest, ShortStallsExcuseNoLongSlices) {
  contexts_ = {{kA, 450 * kMs}, {kB, kMs}};
  claim({kA, kB});
  uint32_t proved = 0;
  for (int i = 0; i < 100 && proved == 0; ++i) {
    proved = run(100 * kMs);
    use_.on_stall(now_ns_, 10 * kMs);
  }
  EXPECT_EQ(proved, kA);
}

TEST_F(OverrunProofTest, ExcessLeaksAway) {
  contexts_ = {{kA, 300 * kMs}, {kB, kMs}};
  claim({kA, kB});
  EXPECT_EQ(run(400 * kMs), 0u);
  contexts_[0].slice_ns = kMs;
  run(1000 * kMs);
  const uint64_t excess = excess_ns(kA);
  ASSERT_GT(excess, 50 * kMs);
  run(1000 * kMs);
  EXPECT_LT(excess_ns(kA), excess);
  run(100'000 * kMs);
  EXPECT_EQ(excess_ns(kA), 0u);
}

}  // namespace
}  // namespace sluice::accounting
