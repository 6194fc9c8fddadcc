// SPDX-License-Identifier: Apache-2.0
// DurationModel: how long a kernel will run, learnt from how long it ran: ridge regression per
// kernel on grid, block, shared memory and input sizes (FLEP section 4.2: linear, L2 penalty),
// on line, with slow forgetting, kept between runs as text. TaskRate: time per task from progress
// (FRS section IV-E). PreemptionCost: what evicting a kernel has cost (FLEP: mean of 50 runs; here
// a moving mean).
//
// Pure; one thread; owned by whoever predicts (the simulator, sluiced's scheduler). Features come
// from guests: every number is clipped and nothing is asserted on it. A wrong prediction may cost
// efficiency; fairness and progress must not rest on it (policy.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "mediator/base/result.h"

namespace sluice::policy {

struct LaunchShape {
  uint32_t grid_blocks = 0, block_threads = 0, shared_bytes = 0;
  uint64_t input_bytes = 0;
};

class DurationModel {
 public:
  using Key = uint64_t;  // stable hash of the kernel
  // Kernels beyond this are not learnt (a guest could invent names for ever); 200 bytes each.
  static constexpr size_t kMaxKernels = 65536;

  // Predicted SM-ns; nothing before the first learn() of that kernel. Never negative, at most 2^50.
  std::optional<uint64_t> predict(Key kernel, const LaunchShape& shape) const;
  // One launch ended and had taken this much (SM-ns, without waiting).
  void learn(Key kernel, const LaunchShape& shape, uint64_t sm_ns);

  size_t size() const { return kernels_.size(); }
  uint64_t samples(Key kernel) const;
  // Mean |predicted / measured - 1| over the last launches of it, predicted before each was learnt.
  double error(Key kernel) const;

  // Text, one kernel a line, with a first line that names the format. restore() replaces
  // everything; its error names the line, and the model is as before then.
  std::string save() const;
  Result<void> restore(std::string_view text);

 private:
  static constexpr int kFeatures = 6;
  using Vector = std::array<double, kFeatures>;
  struct Kernel {
    std::array<double, kFeatures*(kFeatures + 1) / 2>
        xx{};  // decayed sums of x x^T, lower triangle
    Vector xy{};
    double mean = 0;    // decayed mean of y, what the penalty pulls towards
    double weight = 0;  // decayed number of samples
    double error = 0;
    uint64_t samples = 0;
    mutable Vector beta{};
    mutable bool solved = false;
  };
  static Vector features(const LaunchShape& shape);
  static void solve(const Kernel& k);

  std::unordered_map<Key, Kernel> kernels_;
};

// Time per task, refined at each look at a launch's progress word.
class TaskRate {
 public:
  // `tasks` more were done in `sm_ns`.
  void observe(uint32_t tasks, uint64_t sm_ns);
  // SM-ns per task, 0 while nothing is known.
  double sm_ns_per_task() const { return rate_; }

 private:
  double rate_ = 0;
};

class PreemptionCost {
 public:
  void observe(uint64_t ns);
  uint64_t mean_ns() const { return static_cast<uint64_t>(mean_); }
  uint64_t count() const { return count_; }
  // What an earlier one said.
  void restore(uint64_t count, uint64_t mean_ns) {
    count_ = count;
    mean_ = static_cast<double>(mean_ns);
  }

 private:
  double mean_ = 0;
  uint64_t count_ = 0;
};

}  // namespace sluice::policy
