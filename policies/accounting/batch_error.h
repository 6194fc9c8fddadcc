// SPDX-License-Identifier: Apache-2.0
// BatchError: by how much a sum of single reads may be wrong. Reads of one batch may depend on each
// other (adaptive_poller.h makes them on lattices), so each batch is two samples in one: its reads
// belong by turns to the one and the other half, whose lattices begin at random offsets of their
// own. What the halves differ by says how wrong their sum is, whatever happens within them
// (interpenetrating samples: Mahalanobis 1946) - also where a program is in step with the lattice,
// for which reads taken one by one would promise too much - and a load that changes, which is
// no error, is the same for both. Pure; one thread.
#pragma once

#include <cmath>
#include <cstdint>

namespace sluice::accounting {

class BatchError {
 public:
  // Fewer batches say too little.
  static constexpr uint32_t kLeast = 10;

  // A read of half 0 or 1 that stands for `stood_ns`, of which it found `ran_ns` (all or nothing)
  // at work.
  void add(uint32_t half, double stood_ns, double ran_ns) {
    stood_ += half ? stood_ns : -stood_ns;
    ran_ += half ? ran_ns : -ran_ns;
  }
  void end_batch() {
    ++batches_;
    ss_ += stood_ * stood_, sr_ += stood_ * ran_, rr_ += ran_ * ran_;
    stood_ = ran_ = 0;
  }
  uint32_t batches() const { return batches_; }
  // Of the difference between what was found at work and `part` of what the reads stood for, over
  // all batches: wrong once in a thousand (Student's quantile for so many batches).
  double bound_ns(double part) const {
    const double n = batches_;
    if (n < 1) return 0;
    const double variance = std::fmax(rr_ - 2 * part * sr_ + part * part * ss_, 0);
    return (3.3 + 10 / n + 40 / (n * n)) * std::sqrt(variance * (1 + 1 / n));
  }

 private:
  double stood_ = 0, ran_ = 0;       // of the batch that goes on: half 1 less half 0
  double ss_ = 0, sr_ = 0, rr_ = 0;  // squares and products of that, summed
  uint32_t batches_ = 0;
};

}  // namespace sluice::accounting
