// SPDX-License-Identifier: Apache-2.0
#include "kernels/suite/workloads/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sluice::suite {

std::uint64_t Generator::next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float Generator::next_float() {
  return static_cast<float>(static_cast<std::int64_t>(next()) >> 40) * 0x1p-23f;
}

double Generator::next_double() {
  return static_cast<double>(static_cast<std::int64_t>(next()) >> 11) * 0x1p-52;
}

void reference_triad(std::span<double> a, std::span<const double> b, std::span<const double> c,
                     double s) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::fma(s, c[i], b[i]);
}

float reference_matmul_element(std::span<const float> a, std::span<const float> b, float scale,
                               std::size_t cols, std::size_t inner, std::size_t row,
                               std::size_t col) {
  float sum = 0.0f;
  for (std::size_t k = 0; k < inner; ++k)
    sum = std::fma(a[row * inner + k], b[k * cols + col], sum);
  return sum * scale;
}

void reference_matmul(std::span<float> c, std::span<const float> a, std::span<const float> b,
                      float scale, std::size_t cols, std::size_t inner) {
  const std::size_t rows = c.size() / cols;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t col = 0; col < cols; ++col) {
      c[row * cols + col] = reference_matmul_element(a, b, scale, cols, inner, row, col);
    }
  }
}

std::uint64_t reference_reduction(std::span<const std::uint32_t> in, std::uint32_t factor) {
  std::uint64_t sum = 0;
  for (const std::uint32_t value : in) sum += std::uint64_t{value} * factor;
  return sum;
}

void reference_stencil2d(std::span<float> out, std::span<const float> in, StencilWeights weights,
                         float scale, std::size_t width, std::size_t height) {
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      const std::size_t at = y * width + x;
      float value = in[at];
      if (x > 0 && x + 1 < width && y > 0 && y + 1 < height) {
        const float beside = (in[at - width] + in[at + width]) + (in[at - 1] + in[at + 1]);
        const float across =
            (in[at - width - 1] + in[at - width + 1]) + (in[at + width - 1] + in[at + width + 1]);
        value = std::fma(weights.across, across,
                         std::fma(weights.beside, beside, weights.centre * value));
      }
      out[at] = scale * value;
    }
  }
}

void reference_histogram(std::span<std::uint32_t, kHistogramBins> bins,
                         std::span<const std::uint32_t> words, std::uint32_t mask) {
  for (const std::uint32_t word : words) {
    for (unsigned shift = 0; shift < 32; shift += 8) ++bins[((word >> shift) ^ mask) & 0xff];
  }
}

namespace {

// T[i] = floor(2^32 * |sin(i + 1)|), RFC 1321 section 3.4.
std::array<std::uint32_t, 64> make_sine_table() {
  std::array<std::uint32_t, 64> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::uint32_t>(
        std::floor(0x1p32 * std::fabs(std::sin(static_cast<double>(i + 1)))));
  }
  return table;
}

constexpr std::array<std::uint32_t, 4> kMd5Start = {0x67452301u, 0xefcdab89u, 0x98badcfeu,
                                                    0x10325476u};

void md5_block(std::array<std::uint32_t, 4>& state, const std::array<std::uint32_t, 16>& x) {
  static const std::array<std::uint32_t, 64> sine = make_sine_table();
  static constexpr int kShift[4][4] = {
      {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
  auto [a, b, c, d] = state;
  for (std::uint32_t i = 0; i < 64; ++i) {
    std::uint32_t mix = 0, k = 0;
    switch (i / 16) {
      case 0:
        mix = (b & c) | (~b & d);
        k = i;
        break;
      case 1:
        mix = (b & d) | (c & ~d);
        k = 5 * i + 1;
        break;
      case 2:
        mix = b ^ c ^ d;
        k = 3 * i + 5;
        break;
      default:
        mix = c ^ (b | ~d);
        k = 7 * i;
        break;
    }
    const std::uint32_t rotated = std::rotl(a + mix + x[k % 16] + sine[i], kShift[i / 16][i % 4]);
    a = d;
    d = c;
    c = b;
    b += rotated;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
}

}  // namespace

Md5Digest md5_digest(std::span<const std::uint8_t> message) {
  std::array<std::uint32_t, 4> state = kMd5Start;
  const std::uint64_t bits = std::uint64_t{message.size()} * 8;
  // The message, one bit, zeros, and the length in bits, in blocks of 64 bytes.
  const std::size_t blocks = (message.size() + 1 + 8 + 63) / 64;
  for (std::size_t block = 0; block < blocks; ++block) {
    std::array<std::uint32_t, 16> words{};
    for (std::size_t i = 0; i < 64; ++i) {
      const std::size_t at = block * 64 + i;
      std::uint8_t byte = 0;
      if (at < message.size()) {
        byte = message[at];
      } else if (at == message.size()) {
        byte = 0x80;
      } else if (at >= blocks * 64 - 8) {
        byte = static_cast<std::uint8_t>(bits >> (8 * (at - (blocks * 64 - 8))));
      }
      words[i / 4] |= std::uint32_t{byte} << (8 * (i % 4));
    }
    md5_block(state, words);
  }
  Md5Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::uint8_t>(state[i / 4] >> (8 * (i % 4)));
  }
  return digest;
}

void reference_md5(std::span<std::uint32_t> out, std::span<const std::uint32_t> in,
                   std::uint64_t salt) {
  // Each message fills half of one block; the rest is the padding of 32 bytes. The words go in
  // directly: millions of messages are checked while a GPU waits for the next launch.
  for (std::uint64_t i = 0; i < in.size() / 4; ++i) {
    std::array<std::uint32_t, 4> state = kMd5Start;
    md5_block(state, {in[i * 4], in[i * 4 + 1], in[i * 4 + 2], in[i * 4 + 3],
                      static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32),
                      static_cast<std::uint32_t>(salt), static_cast<std::uint32_t>(salt >> 32),
                      0x80u, 0, 0, 0, 0, 0, 32 * 8, 0});
    std::ranges::copy(state, out.begin() + static_cast<std::ptrdiff_t>(i * 4));
  }
}

}  // namespace sluice::suite
