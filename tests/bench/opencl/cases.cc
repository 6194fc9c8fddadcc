// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/opencl/cases.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace sluice::bench {
namespace {

using std::uint32_t;
using std::uint64_t;

// The numbers of Numerical Recipes' 64-bit generator: the same everywhere.
struct Random {
  uint64_t state = 1;
  uint32_t bits() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33) ^ static_cast<uint32_t>(state >> 20);
  }
  float unit() { return static_cast<float>(bits() >> 8) * 0x1p-24f; }
};

template <class T, class Make>
Buffer filled(size_t count, Make&& make) {
  Buffer buffer;
  buffer.bytes.resize(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const T value = make(i);
    std::memcpy(buffer.bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return buffer;
}
Buffer floats(size_t count) {
  Random random;
  return filled<float>(count, [&](size_t) { return random.unit(); });
}
Buffer output(size_t bytes) { return {std::vector<std::uint8_t>(bytes), true}; }

Argument buffer(int index) { return {index, 0, 8}; }
Argument u64(uint64_t value) { return {-1, value, 8}; }
Argument u32(uint32_t value) { return {-1, value, 4}; }
Argument f32(float value) { return u32(std::bit_cast<uint32_t>(value)); }
Argument f64(double value) { return u64(std::bit_cast<uint64_t>(value)); }

void lay_out(Case& c, unsigned blocks, unsigned threads) {
  c.grid[0] = blocks;
  c.block[0] = threads;
}

Case triad(unsigned log_items) {
  const size_t n = size_t{1} << log_items;
  Random random;
  const auto value = [&](size_t) { return static_cast<double>(random.unit()); };
  Case c;
  c.buffers = {output(n * 8), filled<double>(n, value), filled<double>(n, value)};
  c.arguments = {buffer(0), buffer(1), buffer(2), f64(1.0009765625), u64(n)};
  lay_out(c, static_cast<unsigned>(n / 256), 256);
  c.items = n;
  c.unit = "threads";
  return c;
}

Case matmul(unsigned log_items) {
  const uint32_t edge = 1u << (log_items / 3);
  const size_t n = size_t{edge} * edge;
  Case c;
  c.buffers = {output(n * 4), floats(n), floats(n)};
  c.arguments = {buffer(0), buffer(1), buffer(2), f32(0.5f), u32(edge), u32(edge), u32(edge)};
  c.grid[0] = c.grid[1] = edge / 8;
  c.block[0] = c.block[1] = 8;
  c.items = n * edge;
  c.unit = "multiply-adds";
  return c;
}

Case md5(unsigned log_items) {
  const size_t n = size_t{1} << (log_items - 5);
  Random random;
  Case c;
  c.buffers = {output(n * 16), filled<uint32_t>(n * 4, [&](size_t) { return random.bits(); })};
  c.arguments = {buffer(0), buffer(1), u64(12345), u64(n)};
  lay_out(c, static_cast<unsigned>((n + 127) / 128), 128);
  c.items = n;
  c.unit = "digests";
  return c;
}

Case histogram(unsigned log_items) {
  const size_t n = size_t{1} << log_items;
  Random random;
  Case c;
  c.buffers = {output(256 * 4), filled<uint32_t>(n / 4, [&](size_t) { return random.bits(); })};
  c.arguments = {buffer(0), buffer(1), u32(0x5a), u64(n / 4)};
  lay_out(c, static_cast<unsigned>(n / 4 / 128 / 16 + 1), 128);
  c.items = n;
  c.unit = "bytes";
  return c;
}

Case reduction(unsigned log_items) {
  const size_t n = size_t{1} << log_items;
  Random random;
  Case c;
  c.buffers = {output(8), filled<uint32_t>(n, [&](size_t) { return random.bits(); })};
  c.arguments = {buffer(0), buffer(1), u32(7), u64(n)};
  lay_out(c, static_cast<unsigned>(n / (128 * 8)), 128);
  c.items = n;
  c.unit = "elements";
  return c;
}

Case stencil2d(unsigned log_items) {
  const uint32_t edge = 1u << (log_items / 2);
  const size_t n = size_t{edge} * edge;
  Case c;
  c.buffers = {output(n * 4), floats(n)};
  c.arguments = {buffer(0),  buffer(1), f32(0.25f), f32(0.15f),
                 f32(0.05f), f32(1.0f), u32(edge),  u32(edge)};
  c.grid[0] = edge / 32;
  c.grid[1] = edge / 8;
  c.block[0] = 32;
  c.block[1] = 8;
  c.items = n;
  c.unit = "points";
  return c;
}

Case fma_chain(unsigned log_items) {
  const size_t n = size_t{1} << (log_items > 15 ? log_items - 7 : 8);
  const uint32_t rounds = static_cast<uint32_t>((size_t{1} << log_items) / n);
  Case c;
  c.buffers = {output(n * 4)};
  c.arguments = {buffer(0), f32(1.0001f), f32(0.1f), u32(rounds)};
  lay_out(c, static_cast<unsigned>(n / 128), 128);
  c.items = n * rounds * 16;
  c.unit = "multiply-adds";
  return c;
}

Case vector_add(unsigned log_items) {
  const size_t n = size_t{1} << log_items;
  Case c;
  c.buffers = {output(n * 4), floats(n), floats(n)};
  c.arguments = {buffer(0), buffer(1), buffer(2), u32(static_cast<uint32_t>(n))};
  lay_out(c, static_cast<unsigned>(n / 256), 256);
  c.items = n;
  c.unit = "threads";
  return c;
}

Case collatz(unsigned log_items) {
  const size_t n = size_t{1} << (log_items - 5);
  Case c;
  c.buffers = {output(n * 4)};
  c.arguments = {buffer(0), u32(1), u32(static_cast<uint32_t>(n))};
  lay_out(c, static_cast<unsigned>((n + 127) / 128), 128);
  c.items = n;
  c.unit = "threads";
  return c;
}

Case spmv(unsigned log_items) {
  const uint32_t rows = 1u << (log_items - 4);
  Random random;
  std::vector<uint32_t> starts{0};
  for (uint32_t row = 0; row < rows; ++row)
    starts.push_back(starts.back() + 8 + random.bits() % 16);
  const size_t nonzeros = starts.back();
  Case c;
  c.buffers = {output(rows * size_t{4}),
               filled<uint32_t>(starts.size(), [&](size_t i) { return starts[i]; }),
               filled<uint32_t>(nonzeros, [&](size_t) { return random.bits() % rows; }),
               floats(nonzeros), floats(rows)};
  c.arguments = {buffer(0), buffer(1), buffer(2), buffer(3), buffer(4), u32(rows)};
  lay_out(c, (rows + 127) / 128, 128);
  c.items = nonzeros;
  c.unit = "non-zeros";
  return c;
}

Case bodies(unsigned log_items) {
  const uint32_t n = std::max(128u, 1u << (log_items / 2));
  Case c;
  c.buffers = {output(size_t{n} * 16), floats(size_t{n} * 4)};
  c.arguments = {buffer(0), buffer(1), u32(n)};
  lay_out(c, n / 128, 128);
  c.items = uint64_t{n} * n;
  c.unit = "interactions";
  return c;
}

struct Row {
  const char* name;
  const char* module;
  Case (*make)(unsigned log_items);
};
constexpr const char* kTwins = "tests/bench/opencl/twins.ptx";
constexpr Row kRows[] = {
    {"triad", "kernels/suite/ptx/triad.ptx", triad},
    {"matmul", "kernels/suite/ptx/matmul.ptx", matmul},
    {"md5", "kernels/suite/ptx/md5.ptx", md5},
    {"histogram", "kernels/suite/ptx/histogram.ptx", histogram},
    {"reduction", "kernels/suite/ptx/reduction.ptx", reduction},
    {"stencil2d", "kernels/suite/ptx/stencil2d.ptx", stencil2d},
    {"fma_chain", kTwins, fma_chain},
    {"vector_add", kTwins, vector_add},
    {"collatz", kTwins, collatz},
    {"spmv", kTwins, spmv},
    {"bodies", kTwins, bodies},
};

}  // namespace

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

Case make_case(const std::string& name, unsigned log_items) {
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    Case c = row.make(log_items);
    c.name = row.name;
    c.module = row.module;
    return c;
  }
  throw std::invalid_argument("no case is called '" + name + "'");
}

}  // namespace sluice::bench
