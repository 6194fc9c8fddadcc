// SPDX-License-Identifier: Apache-2.0
// mma of small whole numbers, whose sums are exact whatever the order: the shapes that have no
// recorded results of a GPU (tests/conformance has the others').
#include <array>
#include <random>

#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

uint32_t half_of(int value) {
  const auto magnitude = static_cast<uint32_t>(value < 0 ? -value : value);
  if (magnitude == 0) return 0;
  const int top = 31 - __builtin_clz(magnitude);
  return (value < 0 ? 0x8000u : 0) | static_cast<uint32_t>(top + 15) << 10 |
         (magnitude ^ 1u << top) << (10 - top);
}
uint32_t e4m3_of(int value) {  // of -3 to 3
  static constexpr uint8_t kCodes[] = {0, 0x38, 0x40, 0x44};
  return kCodes[value < 0 ? -value : value] | (value < 0 ? 0x80u : 0);
}
uint32_t float_of(int value) {
  const auto f = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}

// Words of a lane: A from 0, B from 4, C and D from 8.
class ExecMma : public ExecTest {
 protected:
  ExecMma() : memory_(32 * 16), out_(32 * 8) {
    base_ = share(memory_);
    out_base_ = share(out_);
  }
  void begin() { std::fill(memory_.begin(), memory_.end(), 0); }
  void put(uint32_t lane, uint32_t reg, uint32_t shift, uint32_t bits) {
    memory_[lane * 16 + reg] |= bits << shift;
  }
  int number() { return static_cast<int>(random_() % 7) - 3; }
  static std::string list(uint32_t from, uint32_t n) {
    std::string text;
    for (uint32_t k = 0; k < n; ++k) text += (k == 0 ? "{%r" : ", %r") + std::to_string(from + k);
    return text + "}";
  }
  void run(const std::string& name, std::array<uint32_t, 4> registers) {
    std::string body = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd8, %r1, 64; add.u64 %rd8, %rd8, %rd0;";
    for (uint32_t k = 0; k < 16; ++k)
      body +=
          "ld.global.u32 %r" + std::to_string(10 + k) + ", [%rd8+" + std::to_string(4 * k) + "];\n";
    body += name + " " + list(26, registers[0]) + ", " + list(10, registers[1]) + ", " +
            list(14, registers[2]) + ", " + list(18, registers[3]) +
            ";\nmul.wide.u32 %rd8, %r1, 32; add.u64 %rd8, %rd8, %rd1;\n";
    for (uint32_t k = 0; k < registers[0]; ++k)
      body +=
          "st.global.u32 [%rd8+" + std::to_string(4 * k) + "], %r" + std::to_string(26 + k) + ";\n";
    ASSERT_TRUE(load(kernel(body))) << error_;
    ASSERT_EQ(launch({1}, {32}, {base_, out_base_}), RunState::kDone) << fault_.describe();
  }

  std::mt19937 random_{5};
  std::vector<uint32_t> memory_, out_;
  uint64_t base_ = 0, out_base_ = 0;
};

// PTX manual, "Matrix fragments for mma.m8n8k4 with .f16": four products of a warp.
TEST_F(ExecMma, OfEightByEightByFourHalves) {
  for (const bool a_column : {false, true}) {
    for (const bool b_row : {false, true}) {
      for (const auto& [d, c] : {std::pair{"f16", "f16"}, {"f32", "f16"}, {"f32", "f32"}}) {
        const std::string name = std::string("mma.sync.aligned.m8n8k4.") +
                                 (a_column ? "col" : "row") + (b_row ? ".row." : ".col.") + d +
                                 ".f16.f16." + c;
        SCOPED_TRACE(name);
        begin();
        int a[4][8][4], b[4][4][8], sum[4][8][8];
        // Where row and column of C stand: a lane of the quad pair, and its element.
        const auto place = [](bool floats, int row, int column) {
          return floats ? std::pair{(row & 1) + (column & 2) + row / 4 * 16,
                                    (row & 2) + (column & 4) + (column & 1)}
                        : std::pair{row % 4 + row / 4 * 16, column};
        };
        const bool c_floats = c[1] == '3', d_floats = d[1] == '3';
        for (int q = 0; q < 4; ++q) {
          for (int i = 0; i < 8; ++i) {
            for (int k = 0; k < 4; ++k) {
              a[q][i][k] = number();
              const int at = a_column ? i % 4 : k, lane = (a_column ? k : i % 4) + i / 4 * 16;
              put(q * 4 + lane, at / 2, at % 2 * 16, half_of(a[q][i][k]));
              b[q][k][i] = number();
              const int b_at = b_row ? i % 4 : k, b_lane = (b_row ? k : i % 4) + i / 4 * 16;
              put(q * 4 + b_lane, 4 + b_at / 2, b_at % 2 * 16, half_of(b[q][k][i]));
            }
            for (int j = 0; j < 8; ++j) {
              sum[q][i][j] = number();
              const auto [lane, at] = place(c_floats, i, j);
              if (c_floats)
                put(q * 4 + lane, 8 + at, 0, float_of(sum[q][i][j]));
              else
                put(q * 4 + lane, 8 + at / 2, at % 2 * 16, half_of(sum[q][i][j]));
            }
          }
        }
        run(name, {d_floats ? 8u : 4u, 2, 2, c_floats ? 8u : 4u});
        for (int q = 0; q < 4; ++q) {
          for (int i = 0; i < 8; ++i) {
            for (int j = 0; j < 8; ++j) {
              for (int k = 0; k < 4; ++k) sum[q][i][j] += a[q][i][k] * b[q][k][j];
              const auto [lane, at] = place(d_floats, i, j);
              const uint32_t* const its = &out_[(q * 4 + lane) * 8];
              const uint32_t got = d_floats ? its[at] : its[at / 2] >> at % 2 * 16 & 0xffff;
              ASSERT_EQ(got, d_floats ? float_of(sum[q][i][j]) : half_of(sum[q][i][j]))
                  << q << " " << i << " " << j;
            }
          }
        }
      }
    }
  }
}

TEST_F(ExecMma, OfFp8WithSumsOfHalvesAndOfSixteenColumns) {
  for (const int depth : {16, 32}) {
    for (const bool halves : {false, true}) {
      const std::string type = halves ? "f16" : "f32";
      SCOPED_TRACE(type + " k" + std::to_string(depth));
      begin();
      std::vector<int> a(16 * depth), b(depth * 8);
      for (int k = 0; k < depth; ++k) {
        const int place = k / 4 % 4, half = k / 16;
        for (int i = 0; i < 16; ++i)
          put(i % 8 * 4 + place, i / 8 + half * 2, k % 4 * 8, e4m3_of(a[i * depth + k] = number()));
        for (int j = 0; j < 8; ++j)
          put(j * 4 + place, 4 + half, k % 4 * 8, e4m3_of(b[k * 8 + j] = number()));
      }
      const uint32_t d = halves ? 2 : 4;
      run("mma.sync.aligned.m16n8k" + std::to_string(depth) + ".row.col." + type + ".e4m3.e4m3." +
              type,
          {d, depth == 32 ? 4u : 2u, depth == 32 ? 2u : 1u, d});
      for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; ++j) {
          int sum = 0;
          for (int k = 0; k < depth; ++k) sum += a[i * depth + k] * b[k * 8 + j];
          const uint32_t* const its = &out_[(i % 8 * 4 + j / 2) * 8];
          const uint32_t got = halves ? its[i / 8] >> j % 2 * 16 & 0xffff : its[i / 8 * 2 + j % 2];
          ASSERT_EQ(got, halves ? half_of(sum) : float_of(sum)) << i << " " << j;
        }
      }
    }
  }
}

TEST_F(ExecMma, WhatTheManualDoesNotHaveIsRefused) {
  for (const char* text : {"m8n8k4.row.col.f16.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6, "
                           "%r7}, {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7};",
                           "m16n8k8.row.row.f16.f16.f16.f16 {%r0, %r1}, {%r2, %r3}, {%r4}, {%r5, "
                           "%r6};",
                           "m16n8k8.row.f16.f16.f16.f16 {%r0, %r1}, {%r2, %r3}, {%r4}, {%r5, %r6};",
                           "m16n8k16.row.col.f32.e4m3.e4m3.f16 {%f0, %f1, %f2, %f3}, {%r2, %r3}, "
                           "{%r4}, {%r5, %r6};"})
    EXPECT_FALSE(load(kernel(std::string("mma.sync.aligned.") + text))) << text;
}

}  // namespace
}  // namespace sluice::exec
