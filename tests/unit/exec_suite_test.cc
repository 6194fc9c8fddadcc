// The suite's kernels as nvcc made them, and their evictable clones, on the interpreter: results
// against the CPU references; the clones also through evictions and relaunches.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "abi/preempt.h"
#include "kernels/passes/rewrite.h"
#include "kernels/suite/reference.h"
#include "tests/unit/exec_harness.h"

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

// Division by d as abi/preempt.h has it (Granlund and Montgomery).
void magic(uint32_t d, uint32_t& m, uint8_t& s1, uint8_t& s2) {
  uint32_t l = 0;
  while (l < 32 && (uint64_t{1} << l) < d) ++l;
  m = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << l) - d)) / d + 1);
  s1 = static_cast<uint8_t>(std::min(l, 1u));
  s2 = static_cast<uint8_t>(l > 0 ? l - 1 : 0);
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

// Whether the original runs, or the clone straight through, or the clone with many evictions.
enum class How { kOriginal, kClone, kEvicted };

class ExecSuite : public ExecTest, public ::testing::WithParamInterface<How> {
 protected:
  bool load_suite(const std::string& name) {
    std::ifstream file(std::string(SLUICE_SOURCE_ROOT) + "/kernels/suite/" + name + ".ptx");
    std::stringstream text;
    text << file.rdbuf();
    entry_ = name;
    std::string source = text.str();
    if (GetParam() != How::kOriginal) {
      auto rewritten = passes::rewrite_module(source);
      if (!rewritten) {
        error_ = rewritten.error().message;
        return false;
      }
      source = rewritten->text;
      for (const passes::KernelReport& kernel : rewritten->kernels)
        if (kernel.name == name) report_ = kernel;
      if (!report_.evictable) {
        error_ = "not evictable: " + report_.reason;
        return false;
      }
    }
    return load(source);
  }

  void run_suite(Dim3 grid, Dim3 block, const Parameters& parameters) {
    if (GetParam() == How::kOriginal) {
      ASSERT_EQ(launch_raw(grid, block, parameters.bytes, 0, entry_), RunState::kDone)
          << fault_.describe();
      return;
    }
    // What the launcher does, in small: workers until every task has run.
    alignas(128) sluice_launch_control control = {};
    alignas(64) uint64_t signal = 0;
    alignas(64) sluice_launch_record record = {};
    ASSERT_TRUE(map_.add(reinterpret_cast<uint64_t>(&control), sizeof(control)));
    ASSERT_TRUE(map_.add(reinterpret_cast<uint64_t>(&signal), sizeof(signal), false));
    ASSERT_TRUE(map_.add(reinterpret_cast<uint64_t>(&record), sizeof(record)));
    sluice_preempt_params block_params = {};
    block_params.control = reinterpret_cast<uint64_t>(&control);
    block_params.signal = reinterpret_cast<uint64_t>(&signal);
    block_params.record = reinterpret_cast<uint64_t>(&record);
    block_params.grid_x = grid.x;
    block_params.grid_y = grid.y;
    block_params.grid_z = grid.z;
    block_params.chunk = 2;
    magic(grid.x, block_params.magic_x, block_params.shift_x1, block_params.shift_x2);
    magic(grid.y, block_params.magic_y, block_params.shift_y1, block_params.shift_y2);
    const uint32_t total = static_cast<uint32_t>(grid.count());
    record.tasks_total = total;
    const uint32_t workers = std::min(total, 6u);
    uint32_t launches = 0;
    for (uint32_t generation = 1; control.done == 0; ++generation) {
      ASSERT_LT(generation, total + 2) << "each physical launch runs at least one task";
      block_params.generation = generation;
      std::vector<std::byte> bytes = parameters.bytes;
      bytes.resize(report_.param_offset_of_block);
      const auto* from = reinterpret_cast<const std::byte*>(&block_params);
      bytes.insert(bytes.end(), from, from + sizeof(block_params));
      std::vector<std::unique_ptr<Block>> resident;
      for (uint32_t k = 0; k < workers; ++k) {
        LaunchShape shape;
        shape.grid = {workers};
        shape.block = block;
        auto made =
            Block::make(image_, entry_ + SLUICE_CLONE_SUFFIX, shape, bytes, map_, environment_);
        ASSERT_TRUE(made.ok()) << made.error().message;
        (*made)->start({k, 0, 0}, {k % 3, 3});
        resident.push_back(std::move(*made));
      }
      ++launches;
      uint32_t left = workers, turns = 0;
      while (left != 0) {
        // Evicted after a few turns: everybody leaves at its next chunk boundary.
        if (GetParam() == How::kEvicted && ++turns == 3)
          __atomic_store_n(&signal, SLUICE_EVICT_ALL_SMS(generation), __ATOMIC_SEQ_CST);
        for (auto& each : resident) {
          if (!each) continue;
          const RunResult result = each->run(40);
          ASSERT_NE(result.state, RunState::kFault) << each->fault().describe();
          if (result.state == RunState::kDone) {
            each.reset();
            --left;
          }
        }
      }
      ASSERT_EQ(control.exited, 0u);
      ASSERT_EQ(record.tasks_done, control.finished);
      ASSERT_EQ(record.state,
                static_cast<uint32_t>(control.done ? SLUICE_LAUNCH_DONE : SLUICE_LAUNCH_TOEVICT));
    }
    EXPECT_EQ(control.finished, total);
    if (GetParam() == How::kEvicted && total > 16) {
      EXPECT_GT(launches, 1u);
    }
    for (const void* p : {static_cast<const void*>(&control), static_cast<const void*>(&signal),
                          static_cast<const void*>(&record)})
      map_.remove(reinterpret_cast<uint64_t>(p));
  }

  std::string entry_;
  passes::KernelReport report_;
};

INSTANTIATE_TEST_SUITE_P(All, ExecSuite,
                         ::testing::Values(How::kOriginal, How::kClone, How::kEvicted),
                         [](const auto& param) {
                           return std::string(param.param == How::kOriginal ? "Original"
                                              : param.param == How::kClone  ? "Clone"
                                                                            : "Evicted");
                         });

TEST_P(ExecSuite, Triad) {
  ASSERT_TRUE(load_suite("triad")) << error_;
  const uint64_t n = 5000;
  auto b = random_values<double>(n, 1), c = random_values<double>(n, 2);
  std::vector<double> a(n), expected(n);
  const uint64_t pa = share(a), pb = share(b), pc = share(c);
  run_suite({40}, {128}, Parameters().add(pa).add(pb).add(pc).add(1.75).add(n));
  suite::reference_triad(expected, b, c, 1.75);
  EXPECT_EQ(a, expected);
}

TEST_P(ExecSuite, Matmul) {
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

TEST_P(ExecSuite, Reduction) {
  ASSERT_TRUE(load_suite("reduction")) << error_;
  const uint64_t n = 40000;
  auto in = random_values<uint32_t>(n, 3);
  std::vector<uint64_t> total(1);
  const uint64_t pt = share(total), pi = share(in);
  run_suite({40}, {128}, Parameters().add(pt).add(pi).add(uint32_t{7}).add(n));
  EXPECT_EQ(total[0], suite::reference_reduction(in, 7));
}

TEST_P(ExecSuite, Stencil2d) {
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

TEST_P(ExecSuite, Histogram) {
  ASSERT_TRUE(load_suite("histogram")) << error_;
  auto words = random_values<uint32_t>(30000, 5);
  std::vector<uint32_t> bins(256);
  std::array<uint32_t, 256> expected = {};
  const uint64_t pb = share(bins), pw = share(words);
  run_suite({24}, {128}, Parameters().add(pb).add(pw).add(uint32_t{0x5a}).add(uint64_t{30000}));
  suite::reference_histogram(expected, words, 0x5a);
  EXPECT_TRUE(std::equal(bins.begin(), bins.end(), expected.begin()));
}

TEST_P(ExecSuite, Md5) {
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
