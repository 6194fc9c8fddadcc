// AdaptivePoller: when to read the status register, at a bounded cost in CPU. LoGA polls without a pause in
// 1 ms of 6 per vGPU, 17 % of a core (VEE 2018, sections 3.3 and 5.6). Here a round is a short dense phase (the
// paper's polling phase, for the lengths of runs) and a long pause in which single reads are made, one at a
// random time in each stratum of the pause (for loads). In steady state both together stay below
// `steady_budget` of a core; when loads change (observe()), rounds are as dense as the paper's for a while.
//
// Why single random reads: the error of a load measured in dense phases alone depends on how many
// phases there were, since reads a microsecond apart see the same thing; one random read per stratum is
// independent of the program's period and its error falls with the number of reads (stratified sampling).
//
// Pure; seeded; one thread; whoever reads the register executes the plans.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::accounting {

class AdaptivePoller {
 public:
  struct Config {
    double steady_budget = 0.02;    // of a core; larger: smaller errors, more CPU
    double engaged_budget = 1.0 / 6;  // after a change: the paper's
    uint64_t read_ns = 1'000;       // one read in the dense loop (section 3.3: about 1 us)
    uint64_t wake_ns = 4'000;       // CPU of one timer wake-up with a read
    uint64_t dense_ns_per_vgpu = 1'000'000;  // section 5.1
    uint64_t dense_max_ns = 50'000'000;
    double change = 0.05;           // a load that moved by more than this is a change
    uint32_t engaged_rounds = 8;    // dense rounds after one, and at first
    double spread = 0.5;            // lengths are uniform in mean * (1 +- spread)
    uint64_t seed = 1;
  };
  struct Plan {
    uint64_t dense_ns;    // read without a pause
    uint64_t pause_ns;    // then this long, in strata of
    uint64_t stratum_ns;  // with one read in each
  };

  explicit AdaptivePoller(const Config& config)
      : config_(config), state_(config.seed), wake_ns_(config.wake_ns), engaged_(config.engaged_rounds) {}

  // `longest_run_ns`: mean length of the longest runs seen so far, 0 if unknown: a dense phase should
  // hold some twenty, so that those cut by its ends matter little.
  Plan next(uint32_t vgpus, uint64_t longest_run_ns) {
    const double budget = engaged_ ? config_.engaged_budget : config_.steady_budget;
    if (engaged_) --engaged_;
    const uint64_t mean = std::min(
        config_.dense_max_ns,
        std::max(config_.dense_ns_per_vgpu * std::max(vgpus, 1u), 20 * std::min(longest_run_ns, kLong)));
    // Half of the budget for each kind.
    const double share = budget / 2;
    Plan p{};
    p.dense_ns = draw(mean);
    p.stratum_ns = static_cast<uint64_t>(static_cast<double>(wake_ns_) / share);
    // By this phase's own length, not the mean: the budget holds for every round.
    p.pause_ns = static_cast<uint64_t>(static_cast<double>(p.dense_ns) * (1 - share) / share);
    return p;
  }
  // When in the stratum that begins at `from_ns` to read; uniform.
  uint64_t read_at(uint64_t from_ns, uint64_t stratum_ns) {
    return from_ns + static_cast<uint64_t>(unit() * static_cast<double>(stratum_ns));
  }
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
    return (static_cast<double>(p.dense_ns) + reads * static_cast<double>(wake_ns_)) /
           static_cast<double>(p.dense_ns + p.pause_ns);
  }

 private:
  static constexpr uint64_t kLong = 1'000'000'000;
  double unit() {  // splitmix64 (Steele, Lea, Flood 2014), in [0, 1)
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  uint64_t draw(uint64_t mean) {
    return static_cast<uint64_t>(static_cast<double>(mean) * (1.0 + config_.spread * (2.0 * unit() - 1.0)));
  }

  const Config config_;
  uint64_t state_;
  uint64_t wake_ns_;
  uint32_t engaged_;
};

}  // namespace sluice::accounting
