// SPDX-License-Identifier: Apache-2.0
// The host side of matmul.cu: C = scale * (A * B), A size x inner, B inner x size; in a chain the
// first values of C become the next launch's A (all of it where inner = size).
#include <algorithm>
#include <cmath>

#include "kernels/suite/matmul.ptx.h"
#include "kernels/suite/workloads/reference.h"
#include "kernels/suite/workloads/workloads.h"

namespace sluice::suite {

namespace {

constexpr std::uint32_t kTile = 8;  // as in matmul.cu
constexpr std::uint64_t kDefaultEdge = 256;
constexpr std::uint64_t kDefaultInner = 32;
// The kernel's grid has at most 65535 rows of blocks.
constexpr std::uint64_t kMaxEdge = 65535ull * kTile;
// Up to this many multiply-adds (about a second of one core) the whole product is checked; beyond,
// one element of every tile, chosen by the seed, so that every block is still checked.
constexpr std::uint64_t kMaxFullCheck = 1ull << 28;

class Matmul final : public Workload {
 public:
  explicit Matmul(const Options& options)
      : edge_(size_of(options, kDefaultEdge, 2)),
        inner_(options.inner != 0 ? options.inner : std::min(edge_, kDefaultInner)),
        chained_(options.chain > 1) {
    if (edge_ > kMaxEdge || inner_ > kMaxEdge) {
      throw UsageError("--size and --inner are at most " + std::to_string(kMaxEdge));
    }
    sampled_ = edge_ * edge_ * inner_ > kMaxFullCheck;
    if (sampled_ && chained_)
      throw UsageError("--chain needs a smaller --size: all of it is checked");
    Generator generator(options.seed);
    a_.resize(edge_ * inner_);
    b_.resize(inner_ * edge_);
    for (float& value : a_) value = generator.next_float();
    for (float& value : b_) value = generator.next_float();
    if (sampled_) {
      for (std::uint64_t row = 0; row < edge_; row += kTile) {
        for (std::uint64_t col = 0; col < edge_; col += kTile) {
          const std::uint64_t r =
              row + generator.next() % std::min<std::uint64_t>(kTile, edge_ - row);
          const std::uint64_t c =
              col + generator.next() % std::min<std::uint64_t>(kTile, edge_ - col);
          sample_.push_back(r * edge_ + c);
        }
      }
    }
    if (chained_) {
      // B's values have variance 1/3, so each link multiplies the standard deviation by
      // sqrt(inner / 3); the nearest power of two keeps it in range.
      const float growth = std::sqrt(static_cast<float>(inner_) / 3.0f);
      chain_scale_ = std::exp2f(-std::round(std::log2(growth)));
    } else {
      compute_base();
    }
  }

  const char* name() const override { return "matmul"; }
  const char* ptx() const override { return kMatmulPtx; }
  std::uint64_t size() const override { return edge_; }
  LaunchShape shape() const override {
    const std::uint32_t tiles = blocks_for(edge_, kTile);
    (void)blocks_for(std::uint64_t{tiles} * tiles, 1);
    return {.grid_x = tiles, .grid_y = tiles, .block_x = kTile, .block_y = kTile};
  }
  std::vector<std::span<const std::byte>> inputs() const override {
    return {std::as_bytes(std::span(a_)), std::as_bytes(std::span(b_))};
  }
  std::size_t output_bytes() const override { return edge_ * edge_ * sizeof(float); }
  std::size_t chain_bytes() const override {
    return std::min(edge_, inner_) * edge_ * sizeof(float);
  }
  void arguments(Arguments& arguments, std::uint64_t out, std::span<const std::uint64_t> inputs,
                 std::uint64_t launch) const override {
    arguments.add(out);
    arguments.add(inputs[0]);
    arguments.add(inputs[1]);
    arguments.add(scale(launch));
    arguments.add(static_cast<std::uint32_t>(edge_));
    arguments.add(static_cast<std::uint32_t>(edge_));
    arguments.add(static_cast<std::uint32_t>(inner_));
  }
  void advance(std::span<std::byte> output, std::uint64_t first, std::uint64_t chain) override {
    const std::span<float> c = as_elements<float>(output);
    if (chain == 1) {
      const float by = scale(first);
      for (std::size_t i = 0; i < c.size(); ++i) c[i] = base_[i] * by;
      return;
    }
    std::vector<float> a = a_;
    for (std::uint64_t i = 0; i < chain; ++i) {
      reference_matmul(c, a, b_, scale(first + i), edge_, inner_);
      std::copy_n(c.begin(), chain_bytes() / sizeof(float), a.begin());
    }
  }
  Verdict compare(std::span<const std::byte> want, std::span<const std::byte> got) const override {
    if (!sampled_) return Workload::compare(want, got);
    Verdict verdict;
    for (const std::uint64_t index : sample_) {
      compare_element(Element::kF32, want, got, index, verdict);
    }
    return verdict;
  }

 protected:
  Element element() const override { return Element::kF32; }

 private:
  float scale(std::uint64_t launch) const {
    return chained_ ? chain_scale_ : std::exp2f(static_cast<float>(launch % 31) - 15.0f);
  }
  void compute_base() {
    base_.resize(edge_ * edge_);
    if (!sampled_) return reference_matmul(base_, a_, b_, 1.0f, edge_, inner_);
    for (const std::uint64_t at : sample_) {
      base_[at] = reference_matmul_element(a_, b_, 1.0f, edge_, inner_, at / edge_, at % edge_);
    }
  }

  std::uint64_t edge_, inner_;
  bool chained_;
  bool sampled_ = false;
  float chain_scale_ = 1.0f;
  std::vector<float> a_, b_;
  std::vector<float> base_;  // the product with scale 1: scaling by a power of two is exact
  std::vector<std::uint64_t> sample_;
};

}  // namespace

std::unique_ptr<Workload> make_matmul(const Options& options) {
  return std::make_unique<Matmul>(options);
}

}  // namespace sluice::suite
