// SPDX-License-Identifier: Apache-2.0
// RegisterReads: for how long one vGPU ran of the time that it held the GPU, as far as single reads
// of the status registers show. Pure; one thread; owned by UsageMeter, one for each vGPU.
//
//   held = dense + read
//   dense  within phases of reads without a gap; register_source.h knows what ran there
//   read   the rest, of which each single read stands for a stratum
//   blind  the part of `read` that no read stands for, or one that cannot tell whose time it was
//
// What runs of `read` is the part of the reads that saw it running. The error is 3.3 standard
// errors of that (wrong once in a thousand; batch_error.h), all that may have happened while blind,
// and ln(1000) reads' worth, since reads that all agree do not prove that all time does.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "policies/accounting/batch_error.h"
#include "policies/accounting/usage_fusion.h"

namespace sluice::accounting {

class RegisterReads {
 public:
  // A single read within a hold, of half 0 or 1 of its batch. It stands for `ns`, of which it saw
  // the part `ran` at work.
  void add(uint32_t half, double ns, double ran) {
    stood_ns_ += ns;
    ran_ns_ += ran * ns;
    if (last_ >= 0) variance_ += ns * ns * (ran - last_) * (ran - last_) / 2;
    last_ = ran;
    batches_.add(half, ns, ran * ns);
    ++reads_;
  }
  void end_batch() { batches_.end_batch(); }
  double stood_ns() const { return stood_ns_; }

  void add_blind(uint64_t ns) { blind_ns_ += ns; }
  void add_dense(uint64_t ns) { dense_ns_ += ns; }

  // `held_ns`: held in all, up to now.
  void begin_phase(uint64_t held_ns) {
    phase_held_ns_ = held_ns;
    phase_blind_ns_ = blind_ns_;
  }
  void end_phase(uint64_t held_ns) { dense_ns_ += in_phase_ns(held_ns); }
  // Held in the phase that goes on, and not blind.
  uint64_t in_phase_ns(uint64_t held_ns) const {
    const uint64_t phase = held_ns - std::min(held_ns, phase_held_ns_);
    return phase - std::min(phase, blind_ns_ - std::min(blind_ns_, phase_blind_ns_));
  }

  // What it ran outside phases, of `held_ns` since restart(), of which `phase_ns` in the phase that
  // goes on. `open_ns`: held since the last read, of which nothing is known.
  Estimate outside_phases(uint64_t held_ns, uint64_t phase_ns, uint64_t open_ns) const {
    const uint64_t dense = dense_ns_ + phase_ns;
    const uint64_t read = held_ns - std::min(held_ns, dense);
    const uint64_t blind = std::min(blind_ns_, read);
    const auto rest = static_cast<double>(read - blind);
    double used = static_cast<double>(read) / 2, error = used;
    if (reads_ != 0) {
      // What was not seen was as what was, or anything.
      const double part = ran_ns_ / stood_ns_, scale = rest / stood_ns_;
      used = part * static_cast<double>(read);
      error = std::max(part, 1 - part) * static_cast<double>(blind);
      const double of_reads = batches_.batches() >= BatchError::kLeast ? batches_.bound_ns(part)
                                                                       : 3.3 * std::sqrt(variance_);
      error += std::min(rest, scale * of_reads + rest * kCertainty / static_cast<double>(reads_));
    }
    return {static_cast<uint64_t>(used),
            static_cast<uint64_t>(error) + std::min(open_ns, read) + 1};
  }

  // Other sources are used from now on: what was read until then is settled.
  void restart(uint64_t held_ns) {
    *this = RegisterReads{};
    phase_held_ns_ = held_ns;
  }

 private:
  // So many reads have to agree before what none of them saw is rarer than their inverse, once in a
  // thousand: ln 1000.
  static constexpr double kCertainty = 6.9;

  double stood_ns_ = 0, ran_ns_ = 0, variance_ = 0;
  double last_ = -1;  // -1: none, 0: it did not run, 1: it ran
  BatchError batches_;
  uint64_t reads_ = 0;
  uint64_t blind_ns_ = 0, dense_ns_ = 0;
  uint64_t phase_held_ns_ = 0, phase_blind_ns_ = 0;  // at the phase's begin
};

}  // namespace sluice::accounting
