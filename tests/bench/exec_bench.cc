// SPDX-License-Identifier: Apache-2.0
// How fast the interpreter is: lane instructions per second on one core, and the suite's kernels.
// Run by hand (`meson test` does not): there is nothing to pass or fail.
#include <benchmark/benchmark.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/exec/block/block.h"

namespace {

using namespace sluice;
using namespace sluice::exec;

class BenchEnvironment : public Environment {
 public:
  uint64_t global_timer_ns() override { return 0; }
  void print(std::string_view) override {}
};

struct Bench {
  MemoryMap map;
  BenchEnvironment environment;
  std::shared_ptr<const Image> image;
  std::vector<uint8_t> memory = std::vector<uint8_t>(64 << 20);
  uint64_t base = (reinterpret_cast<uint64_t>(memory.data()) + 255) & ~uint64_t{255};

  explicit Bench(const std::string& text) {
    (void)map.add(base, memory.size() - 256);
    auto program = decode_text(text);
    if (!program) {
      std::fprintf(stderr, "%s\n", program.error().message.c_str());
      std::exit(1);
    }
    // Module variables at the end of the memory.
    std::vector<uint64_t> addresses;
    uint64_t at = base + memory.size() - (8 << 20);
    for (const SymbolInfo& symbol : (*program)->symbols()) {
      at = (at + 255) & ~uint64_t{255};
      addresses.push_back(at);
      at += symbol.bytes;
    }
    image = *Image::make(*program, addresses);
  }
  // One launch; warp instructions.
  uint64_t launch(const std::string& entry, Dim3 grid, Dim3 block,
                  const std::vector<std::byte>& bytes) {
    LaunchShape shape;
    shape.grid = grid;
    shape.block = block;
    auto made = Block::make(image, entry, shape, bytes, map, environment);
    if (!made) {
      std::fprintf(stderr, "%s\n", made.error().message.c_str());
      std::exit(1);
    }
    uint64_t steps = 0;
    for (uint32_t y = 0; y < grid.y; ++y)
      for (uint32_t x = 0; x < grid.x; ++x) {
        (*made)->start({x, y, 0}, {});
        for (;;) {
          const RunResult r = (*made)->run(1 << 20);
          steps += r.steps;
          if (r.state == RunState::kDone) break;
          if (r.state == RunState::kFault) {
            std::fprintf(stderr, "%s\n", (*made)->fault().describe().c_str());
            std::exit(1);
          }
        }
      }
    return steps;
  }
};

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

void report(benchmark::State& state, uint64_t steps, uint64_t items) {
  state.counters["lane_instr/s"] =
      benchmark::Counter(static_cast<double>(steps) * 32, benchmark::Counter::kIsRate);
  state.counters["items/s"] =
      benchmark::Counter(static_cast<double>(items), benchmark::Counter::kIsRate);
}

std::string loop_kernel(const std::string& body) {
  return ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
         ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<16>;\n"
         "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, "
         "%rd1, %rd2;\n"
         "cvt.rn.f32.u32 %f1, %r1; mov.f32 %f2, 0f3F800347; mov.f32 %f3, 0f3DCCCCCD; mov.u32 %r2, "
         "0;\n"
         "L:\n" +
         body +
         "add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 1000; @%p1 bra L;\n"
         "add.f32 %f1, %f1, %f4; st.global.f32 [%rd3], %f1; ret; }\n";
}
std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int k = 0; k < times; ++k) all += text;
  return all;
}

void loop(benchmark::State& state, const std::string& body) {
  Bench bench(loop_kernel(body));
  uint64_t steps = 0;
  for (auto _ : state) steps += bench.launch("k", {8}, {128}, Parameters().add(bench.base).bytes);
  report(state, steps, 0);
}
void fma_chain(benchmark::State& state) {
  loop(state, repeat("fma.rn.f32 %f1, %f1, %f2, %f3;\n", 16));
}
void integer_mix(benchmark::State& state) {
  loop(state, repeat("mad.lo.u32 %r3, %r1, %r2, %r3; xor.b32 %r4, %r3, %r1; shl.b32 %r5, %r4, 3; "
                     "add.u32 %r1, %r5, %r2;\n",
                     4));
}
void global_loads(benchmark::State& state) {
  loop(state, repeat("ld.global.f32 %f4, [%rd3]; add.f32 %f1, %f1, %f4;\n", 8));
}
void divergent(benchmark::State& state) {
  loop(state,
       "and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 0; @%p2 bra A; add.f32 %f1, %f1, %f2; bra J;\n"
       "A: mul.f32 %f1, %f1, %f2;\nJ:\n");
}
BENCHMARK(fma_chain);
BENCHMARK(integer_mix);
BENCHMARK(global_loads);
BENCHMARK(divergent);

std::string suite_text(const std::string& name) {
  std::ifstream file(std::string(SLUICE_SOURCE_ROOT) + "/kernels/suite/ptx/" + name + ".ptx");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}
void triad(benchmark::State& state) {
  Bench bench(suite_text("triad"));
  const uint64_t n = 1 << 20;
  uint64_t steps = 0, items = 0;
  for (auto _ : state) {
    steps += bench.launch("triad", {n / 256}, {256},
                          Parameters()
                              .add(bench.base)
                              .add(bench.base + 8 * n)
                              .add(bench.base + 16 * n)
                              .add(2.0)
                              .add(n)
                              .bytes);
    items += n;
  }
  report(state, steps, items);
}
void matmul(benchmark::State& state) {
  Bench bench(suite_text("matmul"));
  const uint32_t n = 256;
  uint64_t steps = 0, items = 0;
  for (auto _ : state) {
    steps += bench.launch("matmul", {n / 8, n / 8}, {8, 8},
                          Parameters()
                              .add(bench.base)
                              .add(bench.base + (1 << 20))
                              .add(bench.base + (2 << 20))
                              .add(1.0f)
                              .add(n)
                              .add(n)
                              .add(n)
                              .bytes);
    items += uint64_t{n} * n * n;
  }
  report(state, steps, items);
}
void md5(benchmark::State& state) {
  Bench bench(suite_text("md5"));
  const uint64_t n = 1 << 16;
  uint64_t steps = 0, items = 0;
  for (auto _ : state) {
    steps += bench.launch(
        "md5", {n / 128}, {128},
        Parameters().add(bench.base).add(bench.base + 16 * n).add(uint64_t{1}).add(n).bytes);
    items += n;
  }
  report(state, steps, items);
}
void histogram(benchmark::State& state) {
  Bench bench(suite_text("histogram"));
  const uint64_t n = 1 << 20;
  uint64_t steps = 0, items = 0;
  for (auto _ : state) {
    steps += bench.launch("histogram", {64}, {128},
                          Parameters().add(bench.base).add(bench.base + 4096).add(1u).add(n).bytes);
    items += n;
  }
  report(state, steps, items);
}
void stencil2d(benchmark::State& state) {
  Bench bench(suite_text("stencil2d"));
  const uint32_t n = 1024;
  uint64_t steps = 0, items = 0;
  for (auto _ : state) {
    steps += bench.launch("stencil2d", {n / 32, n / 8}, {32, 8},
                          Parameters()
                              .add(bench.base)
                              .add(bench.base + (8 << 20))
                              .add(.5f)
                              .add(.1f)
                              .add(.1f)
                              .add(1.f)
                              .add(n)
                              .add(n)
                              .bytes);
    items += uint64_t{n} * n;
  }
  report(state, steps, items);
}
BENCHMARK(triad);
BENCHMARK(matmul);
BENCHMARK(md5);
BENCHMARK(histogram);
BENCHMARK(stencil2d);

}  // namespace

BENCHMARK_MAIN();
