// SPDX-License-Identifier: Apache-2.0
// The host side of reduction.cu: total += factor * sum of words; in a chain the total's 8 bytes
// become the first words of the next launch's input.
#include <algorithm>

#include "kernels/suite/reduction.ptx.h"
#include "kernels/suite/workloads/reference.h"
#include "kernels/suite/workloads/workloads.h"

namespace sluice::suite {

namespace {

constexpr std::uint32_t kThreads = 128;  // both as in reduction.cu
constexpr std::uint32_t kPerThread = 8;
constexpr std::uint64_t kDefaultSize = 2 * 1024 * 1024;

// Odd, so that no bit of the sum gets lost.
std::uint32_t factor(std::uint64_t launch) { return static_cast<std::uint32_t>(2 * launch + 1); }

class Reduction final : public Workload {
 public:
  explicit Reduction(const Options& options) : n_(size_of(options, kDefaultSize)) {
    (void)blocks_for(n_, kThreads * kPerThread);
    Generator generator(options.seed);
    in_.resize(n_);
    for (std::uint32_t& value : in_) value = static_cast<std::uint32_t>(generator.next() >> 32);
    sum_ = reference_reduction(in_, 1);
  }

  const char* name() const override { return "reduction"; }
  const char* ptx() const override { return kReductionPtx; }
  std::uint64_t size() const override { return n_; }
  LaunchShape shape() const override {
    return {.grid_x = blocks_for(n_, kThreads * kPerThread), .block_x = kThreads};
  }
  std::vector<std::span<const std::byte>> inputs() const override {
    return {std::as_bytes(std::span(in_))};
  }
  std::size_t output_bytes() const override { return sizeof(std::uint64_t); }
  std::size_t chain_bytes() const override {
    return std::min<std::size_t>(sizeof(std::uint64_t), n_ * sizeof(std::uint32_t));
  }
  bool accumulates() const override { return true; }
  void arguments(Arguments& arguments, std::uint64_t out, std::span<const std::uint64_t> inputs,
                 std::uint64_t launch) const override {
    arguments.add(out);
    arguments.add(inputs[0]);
    arguments.add(factor(launch));
    arguments.add(n_);
  }
  void advance(std::span<std::byte> output, std::uint64_t first, std::uint64_t chain) override {
    std::uint64_t& total = as_elements<std::uint64_t>(output)[0];
    // The sum over the input as it stands: only its first words change along a chain.
    const std::size_t changed = chain_bytes() / sizeof(std::uint32_t);
    const std::uint64_t rest = sum_ - reference_reduction(std::span(in_).first(changed), 1);
    std::uint32_t head[2] = {in_[0], changed > 1 ? in_[1] : 0};
    for (std::uint64_t i = 0; i < chain; ++i) {
      total += (rest + head[0] + head[1]) * factor(first + i);
      std::memcpy(head, &total, chain_bytes());
    }
  }

 protected:
  Element element() const override { return Element::kU64; }

 private:
  std::uint64_t n_;
  std::uint64_t sum_ = 0;
  std::vector<std::uint32_t> in_;
};

}  // namespace

std::unique_ptr<Workload> make_reduction(const Options& options) {
  return std::make_unique<Reduction>(options);
}

}  // namespace sluice::suite
