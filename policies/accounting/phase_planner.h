// SPDX-License-Identifier: Apache-2.0
// PhasePlanner: how long LoGA's accounting polls and how long it pauses (VEE 2018, section 3.3):
// both grow linearly with the number of vGPUs, so that each is seen often enough, and both are
// drawn at random around their mean, so that a periodic program cannot hide in the pauses. Pure;
// seeded; one thread.
#pragma once

#include <cstdint>

namespace sluice::accounting {

class PhasePlanner {
 public:
  // The paper's 1 ms and 5 ms per channel, section 5.1. Their ratio is the CPU cost: poll / (poll +
  // pause) of one core; their length is how late a change is noticed.
  struct Config {
    uint64_t poll_ns_per_vgpu = 1'000'000;
    uint64_t pause_ns_per_vgpu = 5'000'000;
    double spread = 0.5;  // lengths are uniform in mean * (1 +- spread); 0: fixed
    uint64_t seed = 1;
  };
  struct Lengths {
    uint64_t poll_ns, pause_ns;
  };

  explicit PhasePlanner(const Config& config) : config_(config), state_(config.seed) {}
  Lengths next(uint32_t vgpus) {
    const uint64_t n = vgpus ? vgpus : 1;
    return {draw(n * config_.poll_ns_per_vgpu), draw(n * config_.pause_ns_per_vgpu)};
  }

 private:
  // splitmix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
  uint64_t random() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint64_t draw(uint64_t mean_ns) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;  // [0, 1)
    return static_cast<uint64_t>(static_cast<double>(mean_ns) *
                                 (1.0 + config_.spread * (2.0 * unit - 1.0)));
  }

  Config config_;
  uint64_t state_;
};

}  // namespace sluice::accounting
