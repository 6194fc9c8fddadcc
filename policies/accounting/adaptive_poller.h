// SPDX-License-Identifier: Apache-2.0
// AdaptivePoller: when to read the status register, at a bounded cost in CPU. LoGA polls without a
// pause in 1 ms of 6 per vGPU, 17 % of a core (VEE 2018, sections 3.3 and 5.6). Here a round is a
// short dense phase (the paper's polling phase, for the lengths of runs) and a long pause in which
// single reads are made, one at a random time in each stratum of the pause (for loads). In steady
// state both together stay below `steady_budget` of a core; when loads change (observe()), rounds
// are as dense as the paper's for a while.
//
// Why single random reads: the error of a load measured in dense phases alone depends on how many
// phases there were, since reads a microsecond apart see the same thing; one random read per
// stratum is independent of the program's period and its error falls with the root of the number of
// reads (stratified sampling).
//
// Where the dense phases have shown how long a cycle of the program is, reads do better: kBatch of
// them at a time stand by turns on two lattices whose step is some cycles and the golden part of
// one, so that they are spread over the cycle as evenly as any sequence can be (Kronecker's
// sequence; Niederreiter 1978), and what is left falls with their number instead of its root. Each
// lattice begins at a random offset: every read is at a random time, the estimate has no bias, and
// a program that keeps no cycle, or another one, is measured as by random reads. The error of
// the sum is estimated from what the two lattices differ by (batch_error.h).
//
// A read may go on for a window: for a whole cycle where that is short, for some pauses where these
// are. It then sees what the program uses of it, for little more than the wake-up that it costs
// anyway; its begin is as random, so it has no bias either.
//
// Lengths need few phases where runs are alike: once they are known, dense phases have an eighth of
// the budget instead of half. At first, and now and then while they are not known, one phase is
// made ahead of the budget.
//
// Pure; seeded; one thread; whoever reads the register executes the plans.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sluice::accounting {

class AdaptivePoller {
 public:
  static constexpr uint32_t kBatch = 64,
                            kWindowBatch =
                                16;  // reads; even. Those that go on for a window are fewer
  static constexpr uint64_t kMostWindowNs = 120'000;
  struct Config {
    double steady_budget = 0.02;             // of a core; larger: smaller errors, more CPU
    double engaged_budget = 1.0 / 6;         // after a change: the paper's
    uint64_t wake_ns = 4'000;                // CPU of one timer wake-up with a read
    uint64_t dense_ns_per_vgpu = 1'000'000;  // section 5.1
    uint64_t dense_max_ns = 50'000'000;
    double change = 0.05;         // a load that moved by more than this is a change
    uint32_t engaged_rounds = 8;  // dense rounds after one, and at first
    uint64_t first_dense_ns =
        10'000'000;       // dense time for lengths that are not known, ahead of the budget
    double spread = 0.5;  // lengths are uniform in mean * (1 +- spread)
    uint64_t seed = 1;
  };
  struct Plan {
    uint64_t dense_ns;    // read without a pause
    uint64_t pause_ns;    // then this long, in strata of
    uint64_t stratum_ns;  // with one read in each
    uint64_t window_ns;   // that goes on for so long; 0: one read
  };

  explicit AdaptivePoller(const Config& config)
      : config_(config),
        state_(config.seed),
        wake_ns_(config.wake_ns),
        engaged_(config.engaged_rounds) {}

  // What is known so far of the programs that run; 0, false: nothing.
  struct Known {
    uint64_t longest_run_ns = 0;  // mean length of the longest runs: a dense phase should hold some
    uint64_t cycle_ns = 0;        // from the begin of a run to that of the next
    uint64_t cycle_run_ns = 0;    // mean length of the runs in these cycles
    bool lengths = false;         // RegisterSource::Runs::known(), of all
  };
  Plan next(uint32_t vgpus, const Known& known) {
    const double budget = engaged_ ? config_.engaged_budget : config_.steady_budget;
    if (engaged_) --engaged_;
    const uint64_t mean =
        std::min(config_.dense_max_ns, std::max(config_.dense_ns_per_vgpu * std::max(vgpus, 1u),
                                                20 * std::min(known.longest_run_ns, kLong)));
    // At first, and now and then where lengths stay unknown, a phase is paid for later: the sooner
    // they and the cycle are known, the more is left for loads.
    const bool ahead = !known.lengths && credit_ns_ >= static_cast<double>(config_.first_dense_ns);
    const double share = budget * (known.lengths ? 1.0 / 8 : 1.0 / 2);
    Plan p{};
    // Shorter phases where little has to be learnt, or the pauses would be seconds.
    p.dense_ns = ahead ? config_.first_dense_ns
                       : draw(known.lengths ? std::max(mean / 4, config_.dense_ns_per_vgpu) : mean);
    p.window_ns = window(known);
    windows_ = p.window_ns > 0;
    p.stratum_ns = lattice_step(static_cast<double>(wake_ns_ + p.window_ns) / (budget - share),
                                static_cast<double>(known.cycle_ns));
    // By this phase's own length, not the mean: the budget holds for every round.
    p.pause_ns = ahead
                     ? kFirstPauseNs
                     : static_cast<uint64_t>(static_cast<double>(p.dense_ns) * (1 - share) / share);
    const double earned = credit_ns_ + kCredit * static_cast<double>(p.pause_ns);
    credit_ns_ = ahead ? 0 : std::min(earned, static_cast<double>(config_.first_dense_ns));
    return p;
  }
  // When in the stratum that begins at `from_ns` to read. Random in each; on a lattice the place in
  // the stratum is the same throughout a batch.
  uint64_t read_at(uint64_t from_ns, uint64_t stratum_ns) {
    if (in_batch_ == batch_) in_batch_ = 0;
    if (in_batch_ == 0) batch_ = windows_ ? kWindowBatch : kBatch;
    double& place = place_[in_batch_ % 2];
    if (in_batch_++ < 2 || !lattice_) place = unit();
    return from_ns + static_cast<uint64_t>(place * static_cast<double>(stratum_ns));
  }
  // Of the read that read_at() planned last: which half of its batch it belongs to, and whether it
  // ends that.
  uint32_t half() const { return (in_batch_ + 1) % 2; }
  bool batch_ends() const { return in_batch_ == batch_; }
  // The largest change of a vGPU's load since the round before, beyond what sampling explains.
  void observe(double change) {
    if (change > config_.change) engaged_ = config_.engaged_rounds;
  }
  // What a wake-up was measured to cost since; at first it is the configuration's.
  void set_wake_ns(uint64_t ns) { wake_ns_ = std::max<uint64_t>(ns, 1); }
  uint64_t wake_ns() const { return wake_ns_; }
  bool engaged() const { return engaged_ > 0; }
  // CPU that the plan costs, in parts of a core.
  double cost(const Plan& p) const {
    const double reads = static_cast<double>(p.pause_ns) / static_cast<double>(p.stratum_ns);
    return (static_cast<double>(p.dense_ns) + reads * static_cast<double>(wake_ns_ + p.window_ns)) /
           static_cast<double>(p.dense_ns + p.pause_ns);
  }

 private:
  static constexpr uint64_t kLong = 1'000'000'000;
  static constexpr uint64_t kFirstPauseNs = 50'000'000;
  static constexpr double kCredit = 5e-4;  // of the time, for phases ahead of the budget
  static constexpr double kGolden = 0.6180339887498949;
  // The stratum, half of a lattice's step, is no shorter than `least`.
  uint64_t lattice_step(double least, double cycle) {
    lattice_ = cycle > 0 && cycle < static_cast<double>(kLong);
    if (!lattice_) return static_cast<uint64_t>(std::max(least, 1.0));
    // Either of the two golden parts, so that no other cycle stays in step for long.
    const double part = unit() < 0.5 ? kGolden : 1 - kGolden, step = 2 * least;
    if (cycle < step)
      return static_cast<uint64_t>((std::ceil(step / cycle - part) + part) * cycle / 2);
    return static_cast<uint64_t>(
        std::max(cycle / (std::max(std::floor(cycle / step - part), 0.0) + part), step) / 2);
  }
  // A read that goes on for a whole cycle sees what the program uses of it, and one that goes on
  // for some pauses most of what single reads can miss: worth it where that costs no more than some
  // wake-ups.
  uint64_t window(const Known& known) const {
    const uint64_t cycle = known.cycle_ns, run = std::min(known.cycle_run_ns, cycle);
    if (cycle == 0) return 0;
    if (cycle <= std::min(kMostWindowNs, 4 * wake_ns_)) return cycle;
    const uint64_t some = 3 * std::min(run, cycle - run);
    return some <= wake_ns_ ? some : 0;
  }
  double unit() {  // splitmix64 (Steele, Lea, Flood 2014), in [0, 1)
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  uint64_t draw(uint64_t mean) {
    return static_cast<uint64_t>(static_cast<double>(mean) *
                                 (1.0 + config_.spread * (2.0 * unit() - 1.0)));
  }

  const Config config_;
  uint64_t state_;
  uint64_t wake_ns_;
  uint32_t engaged_;
  double credit_ns_ = static_cast<double>(config_.first_dense_ns);
  bool lattice_ = false;
  double place_[2] = {};
  bool windows_ = false;
  uint32_t batch_ = kBatch, in_batch_ = 0;  // reads planned of the batch that goes on
};

}  // namespace sluice::accounting
