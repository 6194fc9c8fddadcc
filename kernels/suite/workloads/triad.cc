// SPDX-License-Identifier: Apache-2.0
// The host side of triad.cu: a = b + s c; in a chain the result is the next launch's b.
#include <algorithm>

#include "kernels/suite/triad.ptx.h"
#include "kernels/suite/workloads/reference.h"
#include "kernels/suite/workloads/workloads.h"

namespace sluice::suite {

namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint64_t kDefaultSize = 512 * 1024;

constexpr std::uint64_t kVariants = 1021;  // where results are not kept

class Triad final : public Workload {
 public:
  explicit Triad(const Options& options) : n_(size_of(options, kDefaultSize)) {
    (void)blocks_for(n_, kThreads);
    Generator generator(options.seed);
    b_.resize(n_);
    c_.resize(n_);
    for (double& value : b_) value = generator.next_double();
    for (double& value : c_) value = generator.next_double();
    if (options.chain == 1 && output_bytes() <= kMaxKeptBytes) {
      for (std::uint64_t i = 0; i < kKeptVariants; ++i) {
        kept_.emplace_back(n_);
        reference_triad(kept_.back(), b_, c_, variant_factor(i));
      }
    }
  }

  const char* name() const override { return "triad"; }
  const char* ptx() const override { return kTriadPtx; }
  std::uint64_t size() const override { return n_; }
  LaunchShape shape() const override {
    return {.grid_x = blocks_for(n_, kThreads), .block_x = kThreads};
  }
  std::vector<std::span<const std::byte>> inputs() const override {
    return {std::as_bytes(std::span(b_)), std::as_bytes(std::span(c_))};
  }
  std::size_t output_bytes() const override { return n_ * sizeof(double); }
  std::size_t chain_bytes() const override { return output_bytes(); }
  void arguments(Arguments& arguments, std::uint64_t out, std::span<const std::uint64_t> inputs,
                 std::uint64_t launch) const override {
    arguments.add(out);
    arguments.add(inputs[0]);
    arguments.add(inputs[1]);
    arguments.add(factor(launch));
    arguments.add(n_);
  }
  void advance(std::span<std::byte> output, std::uint64_t first, std::uint64_t chain) override {
    const std::span<double> a = as_elements<double>(output);
    if (!kept_.empty()) {
      std::ranges::copy(kept_[first % kept_.size()], a.begin());
      return;
    }
    reference_triad(a, b_, c_, factor(first));
    // In place: each element depends on no other.
    for (std::uint64_t i = 1; i < chain; ++i) reference_triad(a, a, c_, factor(first + i));
  }

 protected:
  Element element() const override { return Element::kF64; }

 private:
  // With 10 bits, so that s * c is not exact in general and the fused rounding is exercised.
  static double variant_factor(std::uint64_t variant) {
    return 1.0 + static_cast<double>(variant + 1) * 0x1p-10;
  }
  double factor(std::uint64_t launch) const {
    return variant_factor(launch % (kept_.empty() ? kVariants : kept_.size()));
  }

  std::uint64_t n_;
  std::vector<double> b_, c_;
  std::vector<std::vector<double>> kept_;  // results by variant, or empty
};

}  // namespace

std::unique_ptr<Workload> make_triad(const Options& options) {
  return std::make_unique<Triad>(options);
}

}  // namespace sluice::suite
