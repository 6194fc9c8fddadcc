// SPDX-License-Identifier: Apache-2.0
// LatencyHistogram: counts of durations in logarithmic buckets with 16 linear steps per octave, so
// every quantile is right to 1/16. Fixed size, no allocation; one thread; any owner.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace sluice::accounting {

class LatencyHistogram {
 public:
  void add(uint64_t ns) {
    ++counts_[bucket_of(ns)];
    ++count_;
    sum_ns_ += ns;
    if (ns > max_ns_) max_ns_ = ns;
  }
  uint64_t count() const { return count_; }
  uint64_t sum_ns() const { return sum_ns_; }
  uint64_t max_ns() const { return max_ns_; }

  // The smallest bucket bound that at least `q` (0..1) of the samples do not exceed; 0 if empty.
  uint64_t quantile_ns(double q) const {
    if (count_ == 0) return 0;
    const double wanted = q * static_cast<double>(count_);
    uint64_t seen = 0;
    for (unsigned i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (static_cast<double>(seen) >= wanted && seen > 0) {
        const uint64_t bound = upper_bound_ns(i);
        return bound < max_ns_ ? bound : max_ns_;
      }
    }
    return max_ns_;
  }

  void merge(const LatencyHistogram& other) {
    for (unsigned i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    sum_ns_ += other.sum_ns_;
    if (other.max_ns_ > max_ns_) max_ns_ = other.max_ns_;
  }

 private:
  // Durations of 2^40 ns (18 minutes) and more share the last bucket.
  static constexpr unsigned kSteps = 16, kStepBits = 4, kOctaves = 40;
  static constexpr unsigned kBuckets = (kOctaves - kStepBits) * kSteps + kSteps;

  static unsigned bucket_of(uint64_t ns) {
    if (ns < kSteps) return static_cast<unsigned>(ns);
    if (ns >> kOctaves) return kBuckets - 1;
    const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - 1 - kStepBits;
    return (shift + 1) * kSteps + static_cast<unsigned>((ns >> shift) - kSteps);
  }
  static uint64_t upper_bound_ns(unsigned bucket) {
    if (bucket < kSteps) return bucket;
    const unsigned shift = bucket / kSteps - 1;
    return ((static_cast<uint64_t>(kSteps + bucket % kSteps) + 1) << shift) - 1;
  }

  std::array<uint32_t, kBuckets> counts_{};
  uint64_t count_ = 0, sum_ns_ = 0;
  uint64_t max_ns_ = 0;
};

}  // namespace sluice::accounting
