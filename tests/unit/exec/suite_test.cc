// SPDX-License-Identifier: Apache-2.0
// The suite's first kernels as nvcc made them, on the interpreter, against the CPU references.
// Their evictable clones are in passes/eviction_suite_test.cc.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "kernels/suite/workloads/reference.h"
#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

template <class T>
std::vector<T> random_values(size_t count, uint64_t seed) {
  suite::Generator generator(seed);
  std::vector<T> values(count);
  for (T& v : values) {
    if constexpr (std::is_same_v<T, float>)
      v = generator.next_float();
    else if constexpr (std::is_same_v<T, double>)
      v = generator.next_double();
    else
      v = static_cast<T>(generator.next());
  }
  return values;
}

struct Parameters {
  std::vector<std::byte> bytes;
  template <class T>
  Parameters& add(T value) {
    while (bytes.size() % sizeof(T) != 0) bytes.push_back(std::byte{0});
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof(T));
    return *this;
  }
};

class ExecSuite : public ExecTest {
 protected:
  bool load_suite(const std::string& name) {
    std::ifstream file(std::string(SLUICE_SOURCE_ROOT) + "/kernels/suite/ptx/" + name + ".ptx");
    std::stringstream text;
    text << file.rdbuf();
    entry_ = name;
    return load(text.str());
  }

  void run_suite(Dim3 grid, Dim3 block, const Parameters& parameters) {
    ASSERT_EQ(launch_raw(grid, block, parameters.bytes, 0, entry_), RunState::kDone)
        << fault_.describe();
  }

  std::string entry_;
};

TEST_F(ExecSuite, Triad) {
  ASSERT_TRUE(load_suite("triad")) << error_;
  const uint64_t n = 5000;
  auto b = random_values<double>(n, 1), c = random_values<double>(n, 2);
  std::vector<double> a(n), expected(n);
  const uint64_t pa = share(a), pb = share(b), pc = share(c);
  run_suite({40}, {128}, Parameters().add(pa).add(pb).add(pc).add(1.75).add(n));
  suite::reference_triad(expected, b, c, 1.75);
  EXPECT_EQ(a, expected);
}

TEST_F(ExecSuite, Matmul) {
  ASSERT_TRUE(load_suite("matmul")) << error_;
  const uint32_t rows = 45, cols = 53, inner = 37;
  auto a = random_values<float>(rows * inner, 1), b = random_values<float>(inner * cols, 2);
  std::vector<float> c(rows * cols), expected(rows * cols);
  const uint64_t pc = share(c), pa = share(a), pb = share(b);
  run_suite({(cols + 7) / 8, (rows + 7) / 8}, {8, 8},
            Parameters().add(pc).add(pa).add(pb).add(0.5f).add(rows).add(cols).add(inner));
  suite::reference_matmul(expected, a, b, 0.5f, cols, inner);
  EXPECT_EQ(c, expected);
}

TEST_F(ExecSuite, Reduction) {
  ASSERT_TRUE(load_suite("reduction")) << error_;
  const uint64_t n = 40000;
  auto in = random_values<uint32_t>(n, 3);
  std::vector<uint64_t> total(1);
  const uint64_t pt = share(total), pi = share(in);
  run_suite({40}, {128}, Parameters().add(pt).add(pi).add(uint32_t{7}).add(n));
  EXPECT_EQ(total[0], suite::reference_reduction(in, 7));
}

TEST_F(ExecSuite, Stencil2d) {
  ASSERT_TRUE(load_suite("stencil2d")) << error_;
  const uint32_t width = 150, height = 70;
  auto in = random_values<float>(width * height, 4);
  std::vector<float> out(width * height), expected(width * height);
  const uint64_t po = share(out), pi = share(in);
  run_suite({(width + 31) / 32, (height + 3) / 4}, {32, 4},
            Parameters().add(po).add(pi).add(0.5f).add(0.1f).add(0.025f).add(2.0f).add(width).add(
                height));
  suite::reference_stencil2d(expected, in, {0.5f, 0.1f, 0.025f}, 2.0f, width, height);
  EXPECT_EQ(out, expected);
}

TEST_F(ExecSuite, Histogram) {
  ASSERT_TRUE(load_suite("histogram")) << error_;
  auto words = random_values<uint32_t>(30000, 5);
  std::vector<uint32_t> bins(256);
  std::array<uint32_t, 256> expected = {};
  const uint64_t pb = share(bins), pw = share(words);
  run_suite({24}, {128}, Parameters().add(pb).add(pw).add(uint32_t{0x5a}).add(uint64_t{30000}));
  suite::reference_histogram(expected, words, 0x5a);
  EXPECT_TRUE(std::equal(bins.begin(), bins.end(), expected.begin()));
}

TEST_F(ExecSuite, Md5) {
  ASSERT_TRUE(load_suite("md5")) << error_;
  const uint64_t n = 3000;
  auto in = random_values<uint32_t>(n * 4 + 4, 6);
  std::vector<uint32_t> out(n * 4 + 4), expected(n * 4);
  // Vectors of 16 bytes: give the kernel aligned addresses.
  const auto aligned = [](uint64_t p) { return (p + 15) & ~uint64_t{15}; };
  const uint64_t pi = aligned(share(in)), po = aligned(share(out));
  auto* first_in = reinterpret_cast<uint32_t*>(pi);
  auto* first_out = reinterpret_cast<uint32_t*>(po);
  run_suite({(n + 63) / 64}, {64}, Parameters().add(po).add(pi).add(uint64_t{99}).add(n));
  suite::reference_md5(expected, {first_in, n * 4}, 99);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), first_out));
}

}  // namespace
}  // namespace sluice::exec
