// SPDX-License-Identifier: Apache-2.0
// What nvcc makes of tests/unit/exec/kernels/language.cu, at -O3, -O0 and -G: calls, recursion,
// virtual functions, pointers to functions, alloca, malloc, printf, assert; against the CPU.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int apply(int which, int a, int b) { return which == 0 ? a + b : which == 1 ? a * b : a - b; }

class ExecLanguage : public ExecTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    std::ifstream file(std::string(SLUICE_SOURCE_ROOT) + "/tests/unit/exec/kernels/language_" +
                       GetParam() + ".ptx");
    std::stringstream text;
    text << file.rdbuf();
    ASSERT_TRUE(load(text.str())) << error_;
  }
  template <class... T>
  static std::vector<std::byte> arguments(T... values) {
    std::vector<std::byte> bytes;
    const auto add = [&bytes](auto value) {
      while (bytes.size() % sizeof(value) != 0) bytes.push_back(std::byte{0});
      const auto* from = reinterpret_cast<const std::byte*>(&value);
      bytes.insert(bytes.end(), from, from + sizeof(value));
    };
    (add(values), ...);
    return bytes;
  }
};

TEST_P(ExecLanguage, Recursion) {
  std::vector<int32_t> out(70);
  ASSERT_EQ(launch_raw({1}, {70}, arguments(share(out)), 0, "recurse"), RunState::kDone)
      << fault_.describe();
  for (int i = 0; i < 70; ++i) EXPECT_EQ(out[i], fib(i % 12) + 1000 * (i % 2 == 0)) << i;
}

TEST_P(ExecLanguage, VirtualFunctions) {
  std::vector<float> out(64);
  ASSERT_EQ(launch_raw({1}, {64}, arguments(share(out)), 0, "virtual_calls"), RunState::kDone)
      << fault_.describe();
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(out[i], (i % 3 != 0 ? 1.0f : 3.0f) * static_cast<float>(i * i)) << i;
  EXPECT_EQ(heap_.use().pieces, 0u);
}

TEST_P(ExecLanguage, PointersToFunctions) {
  std::vector<int32_t> out(96);
  ASSERT_EQ(launch_raw({1}, {96}, arguments(share(out), int32_t{5}), 0, "pointers"),
            RunState::kDone)
      << fault_.describe();
  const int constant_table[3] = {2, 0, 1};
  for (int i = 0; i < 96; ++i)
    EXPECT_EQ(out[i], apply(i % 3, i, 5) + apply(constant_table[(i + 5) % 3], i, i) + i * 7) << i;
}

TEST_P(ExecLanguage, StructuresByValue) {
  std::vector<int32_t> out(32);
  ASSERT_EQ(launch_raw({1}, {32}, arguments(share(out)), 0, "structures"), RunState::kDone)
      << fault_.describe();
  for (int t = 0; t < 32; ++t) {
    int sum = 0;
    for (int i = 0; i < 20; ++i) sum += (i * t + 3 * i) * (i + 1);
    EXPECT_EQ(out[t], sum) << t;
  }
}

TEST_P(ExecLanguage, RecursiveSort) {
  const int n = 40, threads = 48;
  std::vector<int32_t> data(n * threads);
  uint32_t seed = 12345;
  for (int32_t& v : data) v = static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 20);
  std::vector<int32_t> expected = data;
  for (int t = 0; t < threads; ++t)
    std::sort(expected.begin() + t * n, expected.begin() + (t + 1) * n);
  ASSERT_EQ(launch_raw({1}, {threads}, arguments(share(data), int32_t{n}), 0, "sorts"),
            RunState::kDone)
      << fault_.describe();
  EXPECT_EQ(data, expected);
}

TEST_P(ExecLanguage, Alloca) {
  std::vector<int32_t> out(64);
  ASSERT_EQ(launch_raw({1}, {64}, arguments(share(out)), 0, "dynamic_stack"), RunState::kDone)
      << fault_.describe();
  for (int t = 0; t < 64; ++t) {
    int sum = 0;
    for (int i = 0; i <= t % 7; ++i) sum += i * i;
    EXPECT_EQ(out[t], sum) << t;
  }
}

TEST_P(ExecLanguage, DynamicSharedMemoryInAFunction) {
  std::vector<int32_t> out(64);
  ASSERT_EQ(launch_raw({1}, {64}, arguments(share(out)), 64 * 4, "shared_in_function"),
            RunState::kDone)
      << fault_.describe();
  for (int t = 0; t < 64; ++t) EXPECT_EQ(out[t], (63 - t + 5) * 2 + 1) << t;
}

TEST_P(ExecLanguage, Heap) {
  std::vector<int32_t> out(128);
  ASSERT_EQ(launch_raw({1}, {128}, arguments(share(out), int32_t{20}), 0, "lists"), RunState::kDone)
      << fault_.describe();
  for (int t = 0; t < 128; ++t) EXPECT_EQ(out[t], 190 * t) << t;
  EXPECT_EQ(heap_.use().bytes, 0u);
}

TEST_P(ExecLanguage, FullHeapGivesNull) {
  ASSERT_TRUE(heap_.resize(1024));
  std::vector<int32_t> out(1);
  ASSERT_EQ(launch_raw({1}, {1}, arguments(share(out), int32_t{1000}), 0, "lists"), RunState::kDone)
      << fault_.describe();
  EXPECT_EQ(heap_.use().bytes, 0u);
}

TEST_P(ExecLanguage, CallsInDivergentLoops) {
  const int rounds = 9;
  std::vector<int32_t> out(32);
  ASSERT_EQ(launch_raw({1}, {32}, arguments(share(out), int32_t{rounds}), 0, "diverge"),
            RunState::kDone)
      << fault_.describe();
  std::vector<int32_t> value(32);
  for (int i = 0; i < 32; ++i) value[i] = i;
  for (int r = 0; r < rounds; ++r) {
    for (int i = 0; i < 32; ++i)
      value[i] = ((i ^ r) & 1) != 0 ? apply((i + r) % 3, value[i], 3) : value[i] + fib((i + r) % 7);
    std::vector<int32_t> before = value;
    for (int i = 0; i < 32; ++i) value[i] += before[i ^ 1];
  }
  EXPECT_EQ(out, value);
}

TEST_P(ExecLanguage, Printf) {
  ASSERT_EQ(launch_raw({1}, {40}, arguments(int32_t{2}), 0, "prints"), RunState::kDone)
      << fault_.describe();
  EXPECT_EQ(environment_.printed,
            "0  0.00 text c 123456789012345 0x1234|ff|-3|%\n"
            "1  1.50 text c 123456789012345 0x1234|ff|-3|%\n");
}

TEST_P(ExecLanguage, Assert) {
  ASSERT_EQ(launch_raw({1}, {40}, arguments(int32_t{33}), 0, "asserts"), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kAssert);
  EXPECT_EQ(fault_.thread.x, 33u);
  EXPECT_NE(fault_.detail.find(
                "block: [0,0,0], thread: [33,0,0] Assertion `threadIdx.x < limit` failed."),
            std::string::npos)
      << fault_.detail;
  EXPECT_NE(fault_.detail.find("language.cu:"), std::string::npos);
  ASSERT_EQ(environment_.failed.size(), 7u) << "a line for each thread from 33 to 39";
  EXPECT_EQ(environment_.failed[0], fault_.detail);
  EXPECT_NE(environment_.failed[6].find("thread: [39,0,0] Assertion"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(nvcc, ExecLanguage, ::testing::Values("O3", "O0", "G"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sluice::exec
