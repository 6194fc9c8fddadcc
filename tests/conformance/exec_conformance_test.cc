// SPDX-License-Identifier: Apache-2.0
// The conformance set on kernels/exec, against what a real GPU answered.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "kernels/exec/block/block.h"
#include "tests/conformance/instructions.h"
#include "tests/support/rounds.h"

namespace sluice::conformance {
namespace {

class NoEnvironment : public exec::Environment {
 public:
  uint64_t global_timer_ns() override { return 0; }
  void print(std::string_view) override {}
};

// A half's value.
double half(uint32_t bits, bool bf16) {
  const int mantissa_bits = bf16 ? 7 : 10, bias = bf16 ? 127 : 15;
  const int top = bf16 ? 255 : 31;
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits) & top;
  double v = exponent == 0
                 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                 : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  if (exponent == top) v = mantissa == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -v : v;
}

bool close(const Case& c, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  if (std::isinf(a) || std::isinf(b)) return false;
  return std::fabs(a - b) <=
         std::max(c.absolute, c.relative * std::max(std::fabs(a), std::fabs(b)));
}

// Two approximations of the same number, as bit patterns of the case's result.
bool close(const Case& c, uint64_t x, uint64_t y) {
  const uint32_t xa = static_cast<uint32_t>(x), yb = static_cast<uint32_t>(y);
  const bool bf16 = c.d == Kind::kBf16 || c.d == Kind::kBf16x2;
  if (bf16 || c.d == Kind::kF16 || c.d == Kind::kF16x2) {
    const bool pair = c.d == Kind::kF16x2 || c.d == Kind::kBf16x2;
    return close(c, half(xa & 0xffff, bf16), half(yb & 0xffff, bf16)) &&
           (!pair || close(c, half(xa >> 16, bf16), half(yb >> 16, bf16)));
  }
  float a, b;
  std::memcpy(&a, &xa, 4);
  std::memcpy(&b, &yb, 4);
  return close(c, double{a}, double{b});
}

TEST(ExecConformance, AnswersAsTheGpuDid) {
  const std::vector<Case> all = all_cases();
  std::map<std::string, std::vector<uint64_t>> golden;
  for (Golden& g : read_golden(SLUICE_GOLDEN_FILE)) golden[g.name] = std::move(g.results);
  ASSERT_EQ(golden.size(), all.size()) << "record the golden data anew";
  std::vector<Case> cases;
  for (size_t k = 0; k < all.size(); ++k)
    if (runs(k)) cases.push_back(all[k]);

  auto program = exec::decode_text(module_text(cases));
  ASSERT_TRUE(program.ok()) << program.error().message;
  auto image = exec::Image::make(*program, {});
  ASSERT_TRUE(image.ok());
  exec::MemoryMap map;
  NoEnvironment environment;
  std::vector<uint64_t> out(kThreads), in(kThreads * 5);
  const uint64_t addresses[2] = {reinterpret_cast<uint64_t>(out.data()),
                                 reinterpret_cast<uint64_t>(in.data())};
  ASSERT_TRUE(map.add(addresses[0], kThreads * 8));
  ASSERT_TRUE(map.add(addresses[1], kThreads * 40));
  size_t wrong = 0;
  for (const Case& c : cases) {
    const std::vector<uint64_t> words = operands(c);
    std::copy(words.begin(), words.end(), in.begin());  // in place: the kernel has its address
    exec::LaunchShape shape;
    shape.block = {kThreads};
    auto block = exec::Block::make(*image, c.name, shape, std::as_bytes(std::span(addresses)), map,
                                   environment);
    ASSERT_TRUE(block.ok()) << block.error().message;
    (*block)->start({0, 0, 0}, {});
    ASSERT_EQ((*block)->run(1'000'000).state, exec::RunState::kDone)
        << (*block)->fault().describe();
    const std::vector<uint64_t>& expected = golden.at(c.name);
    const bool exact = c.relative == 0 && c.absolute == 0;
    size_t differ = 0;
    for (size_t t = 0; t < kThreads; ++t) {
      if (exact ? out[t] == expected[t] : close(c, out[t], expected[t])) continue;
      if (differ++ > 3) continue;
      ADD_FAILURE() << c.text << std::hex << "\n  operands " << in[t * 5] << " " << in[t * 5 + 1]
                    << " " << in[t * 5 + 2] << " " << in[t * 5 + 3] << "\n  here " << out[t]
                    << ", GPU " << expected[t];
    }
    if (differ != 0) {
      ++wrong;
      std::printf("%s: %zu of %zu differ\n", c.name.c_str(), differ, kThreads);
    }
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace sluice::conformance
