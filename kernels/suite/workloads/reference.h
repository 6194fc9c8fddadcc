// SPDX-License-Identifier: Apache-2.0
// CPU references of the suite's kernels, and the input data of its programs. Pure functions on
// memory of the caller; any thread; no GPU, no driver. Where a kernel fixes the order of its
// floating-point operations, its reference has the same bits (fused where the kernel is fused).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::suite {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA'14):
// small, fast, the same everywhere.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // Uniform in [-1, 1), with 24 or 53 random bits.
  float next_float();
  double next_double();

 private:
  std::uint64_t state_;
};

// a[i] = fma(s, c[i], b[i]). All of one length.
void reference_triad(std::span<double> a, std::span<const double> b, std::span<const double> c,
                     double s);

// One element of C = scale * (A * B), row-major: the sum over `inner` in index order, fused.
float reference_matmul_element(std::span<const float> a, std::span<const float> b, float scale,
                               std::size_t cols, std::size_t inner, std::size_t row,
                               std::size_t col);
// All of C; rows = c.size() / cols.
void reference_matmul(std::span<float> c, std::span<const float> a, std::span<const float> b,
                      float scale, std::size_t cols, std::size_t inner);

// What one launch adds to the total: the sum of in[i] * factor modulo 2^64.
std::uint64_t reference_reduction(std::span<const std::uint32_t> in, std::uint32_t factor);

struct StencilWeights {
  float centre, beside, across;
};
// out and in are width x height, row-major, and must not overlap.
void reference_stencil2d(std::span<float> out, std::span<const float> in, StencilWeights weights,
                         float scale, std::size_t width, std::size_t height);

inline constexpr std::size_t kHistogramBins = 256;
// Adds the counts of the bytes of `words`, each exclusive-or'ed with the low byte of `mask`.
void reference_histogram(std::span<std::uint32_t, kHistogramBins> bins,
                         std::span<const std::uint32_t> words, std::uint32_t mask);

using Md5Digest = std::array<std::uint8_t, 16>;
// RFC 1321, any length. The table of sines is computed, not copied from the kernel's.
Md5Digest md5_digest(std::span<const std::uint8_t> message);
// The kernel's messages: in holds four words per message, out gets four words per digest.
void reference_md5(std::span<std::uint32_t> out, std::span<const std::uint32_t> in,
                   std::uint64_t salt);

}  // namespace sluice::suite
