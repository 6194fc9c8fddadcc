// SPDX-License-Identifier: Apache-2.0
// The host side of stencil2d.cu: one step of a 9-point stencil on a square; in a chain the result
// is the next launch's input, as in a solver.
#include <cmath>

#include "kernels/suite/stencil2d.ptx.h"
#include "kernels/suite/workloads/reference.h"
#include "kernels/suite/workloads/workloads.h"

namespace sluice::suite {

namespace {

constexpr std::uint32_t kBlockX = 32;
constexpr std::uint32_t kBlockY = 4;
constexpr std::uint64_t kDefaultEdge = 512;
// The kernel's grid has at most 65535 rows of blocks.
constexpr std::uint64_t kMaxEdge = 65535ull * kBlockY;
// Add up to 1, so that values stay within [-1, 1) along any chain; not all powers of two, so that
// roundings happen and a wrong order of operations shows.
constexpr StencilWeights kWeights = {0.28f, 0.12f, 0.06f};

class Stencil2d final : public Workload {
 public:
  explicit Stencil2d(const Options& options)
      : edge_(size_of(options, kDefaultEdge, 2)), chained_(options.chain > 1) {
    if (edge_ > kMaxEdge) throw UsageError("--size is at most " + std::to_string(kMaxEdge));
    Generator generator(options.seed);
    in_.resize(edge_ * edge_);
    for (float& value : in_) value = generator.next_float();
    if (!chained_) {
      base_.resize(in_.size());
      reference_stencil2d(base_, in_, kWeights, 1.0f, edge_, edge_);
    }
  }

  const char* name() const override { return "stencil2d"; }
  const char* ptx() const override { return kStencil2dPtx; }
  std::uint64_t size() const override { return edge_; }
  LaunchShape shape() const override {
    const std::uint32_t columns = blocks_for(edge_, kBlockX);
    const std::uint32_t rows = blocks_for(edge_, kBlockY);
    (void)blocks_for(std::uint64_t{columns} * rows, 1);
    return {.grid_x = columns, .grid_y = rows, .block_x = kBlockX, .block_y = kBlockY};
  }
  std::vector<std::span<const std::byte>> inputs() const override {
    return {std::as_bytes(std::span(in_))};
  }
  std::size_t output_bytes() const override { return edge_ * edge_ * sizeof(float); }
  std::size_t chain_bytes() const override { return output_bytes(); }
  void arguments(Arguments& arguments, std::uint64_t out, std::span<const std::uint64_t> inputs,
                 std::uint64_t launch) const override {
    arguments.add(out);
    arguments.add(inputs[0]);
    arguments.add(kWeights.centre);
    arguments.add(kWeights.beside);
    arguments.add(kWeights.across);
    arguments.add(scale(launch));
    arguments.add(static_cast<std::uint32_t>(edge_));
    arguments.add(static_cast<std::uint32_t>(edge_));
  }
  void advance(std::span<std::byte> output, std::uint64_t first, std::uint64_t chain) override {
    const std::span<float> out = as_elements<float>(output);
    if (chain == 1) {
      const float by = scale(first);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = base_[i] * by;
      return;
    }
    std::vector<float> in = in_;
    for (std::uint64_t i = 0; i < chain; ++i) {
      reference_stencil2d(out, in, kWeights, scale(first + i), edge_, edge_);
      in.assign(out.begin(), out.end());
    }
  }

 protected:
  Element element() const override { return Element::kF32; }

 private:
  float scale(std::uint64_t launch) const {
    return chained_ ? 1.0f : std::exp2f(static_cast<float>(launch % 31) - 15.0f);
  }

  std::uint64_t edge_;
  bool chained_;
  std::vector<float> in_;
  std::vector<float> base_;  // one step with scale 1: scaling by a power of two is exact
};

}  // namespace

std::unique_ptr<Workload> make_stencil2d(const Options& options) {
  return std::make_unique<Stencil2d>(options);
}

}  // namespace sluice::suite
