// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/preempt/cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "kernels.ptx.h"
#include "kernels/suite/workloads/workloads.h"

namespace sluice::bench {

namespace {

using suite::Case;
using suite::Launch;

// Builds a launch's parameter block as the driver lays it out.
class Params {
 public:
  explicit Params(Launch& launch) : launch_(launch) {}
  Params& buffer(std::uint32_t index) {
    const auto at = add(std::uint64_t{0});
    launch_.pointers.push_back({at, index, 0});
    return *this;
  }
  template <class T>
  Params& value(T v) {
    add(v);
    return *this;
  }

 private:
  template <class T>
  std::uint32_t add(T v) {
    std::size_t at = (launch_.params.size() + sizeof v - 1) / sizeof v * sizeof v;
    launch_.params.resize(at + sizeof v);
    std::memcpy(launch_.params.data() + at, &v, sizeof v);
    launch_.param_offsets.push_back(static_cast<std::uint32_t>(at));
    return static_cast<std::uint32_t>(at);
  }
  Launch& launch_;
};

template <class T, class F>
void add_buffer(Case& c, const char* name, std::size_t n, F make) {
  suite::Buffer b{name, std::vector<std::byte>(n * sizeof(T))};
  for (std::size_t i = 0; i < n; ++i) {
    const T v = make(i);
    std::memcpy(b.initial.data() + i * sizeof(T), &v, sizeof v);
  }
  c.buffers.push_back(std::move(b));
}
float noise(std::size_t i) {
  auto x = static_cast<std::uint32_t>(i * 2654435761u + 12345u);
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return static_cast<float>(x % 100003) / 100003.0f + 0.25f;
}
float zero(std::size_t) { return 0; }

Case start(const char* name) {
  Case c;
  c.name = name;
  c.ptx = suite::kPreemptKernelsPtx;
  return c;
}
Launch& add_launch(Case& c, const char* kernel, suite::Extent3 grid, suite::Extent3 block) {
  Launch l;
  l.kernel = kernel;
  l.grid = grid;
  l.block = block;
  c.steps.emplace_back(std::move(l));
  return std::get<Launch>(c.steps.back());
}
std::uint32_t size(double scale, double full, double dimensions, std::uint32_t multiple) {
  const double edge = full * std::pow(scale, 1 / dimensions);
  return std::max(multiple, static_cast<std::uint32_t>(edge) / multiple * multiple);
}

Case transpose(double scale) {
  Case c = start("transpose");
  const std::uint32_t n = size(scale, 8192, 2, 32);
  add_buffer<float>(c, "out", std::size_t{n} * n, zero);
  add_buffer<float>(c, "in", std::size_t{n} * n, noise);
  Params(add_launch(c, "transpose", {n / 32, n / 32, 1}, {32, 8, 1})).buffer(0).buffer(1).value(n);
  return c;
}
Case gemm(double scale, bool registers) {
  Case c = start(registers ? "gemm_registers" : "gemm1024");
  const std::uint32_t n = size(scale, 2048, 3, 64);
  add_buffer<float>(c, "c", std::size_t{n} * n, zero);
  add_buffer<float>(c, "a", std::size_t{n} * n, noise);
  add_buffer<float>(c, "b", std::size_t{n} * n, noise);
  const std::uint32_t edge = registers ? 64 : 32;
  Params(add_launch(c, c.name.c_str(), {n / edge, n / edge, 1}, {registers ? 64u : 1024u, 1, 1}))
      .buffer(0)
      .buffer(1)
      .buffer(2)
      .value(n);
  return c;
}
Case black_scholes(double scale) {
  Case c = start("black_scholes");
  const std::uint32_t n = size(scale, 64e6, 1, 256) + 77;
  for (const char* name : {"call", "put"}) add_buffer<float>(c, name, n, zero);
  for (const char* name : {"s", "k", "t"}) add_buffer<float>(c, name, n, noise);
  Params(add_launch(c, "black_scholes", {(n + 255) / 256, 1, 1}, {256, 1, 1}))
      .buffer(0)
      .buffer(1)
      .buffer(2)
      .buffer(3)
      .buffer(4)
      .value(0.02f)
      .value(0.3f)
      .value(n);
  return c;
}
Case nbody(double scale) {
  Case c = start("nbody");
  const std::uint32_t n = size(scale, 262144, 2, 128);
  add_buffer<float>(c, "out", 4 * std::size_t{n}, zero);
  add_buffer<float>(c, "bodies", 4 * std::size_t{n}, noise);
  Launch& l = add_launch(c, "nbody", {n / 128, 1, 1}, {128, 1, 1});
  l.dynamic_shared = 128 * 16;
  // Each block reads a part only, so that tasks take some 10 us.
  Params(l).buffer(0).buffer(1).value(std::min(n, 4096u));
  return c;
}
Case softmax_rows(double scale) {
  Case c = start("softmax_rows");
  const std::uint32_t rows = size(scale, 262144, 1, 32), columns = 256;
  add_buffer<float>(c, "out", std::size_t{rows} * columns, zero);
  add_buffer<float>(c, "in", std::size_t{rows} * columns, noise);
  Params(add_launch(c, "softmax_rows", {rows, 1, 1}, {32, 1, 1}))
      .buffer(0)
      .buffer(1)
      .value(columns);
  return c;
}
Case stencil3d(double scale) {
  Case c = start("stencil3d");
  const std::uint32_t n = size(scale, 512, 3, 32);
  add_buffer<float>(c, "out", std::size_t{n} * n * n, zero);
  add_buffer<float>(c, "in", std::size_t{n} * n * n, noise);
  Params(add_launch(c, "stencil3d", {n / 32, n / 8, n}, {32, 8, 1}))
      .buffer(0)
      .buffer(1)
      .value(n)
      .value(n)
      .value(n);
  return c;
}
Case spmv(double scale) {
  Case c = start("spmv");
  const std::uint32_t rows = size(scale, 1 << 20, 1, 32) + 5;
  std::mt19937 random(7);
  std::vector<int> begin{0};
  for (std::uint32_t i = 0; i < rows; ++i)
    begin.push_back(begin.back() +
                    static_cast<int>(random() % 17 == 0 ? random() % 400 : random() % 40));
  const auto n = static_cast<std::size_t>(begin.back());
  add_buffer<float>(c, "y", rows, zero);
  add_buffer<int>(c, "begin", rows + 1, [&](std::size_t i) { return begin[i]; });
  add_buffer<int>(c, "column", n, [&](std::size_t) { return static_cast<int>(random() % rows); });
  add_buffer<float>(c, "value", n, noise);
  add_buffer<float>(c, "x", rows, noise);
  Params(add_launch(c, "spmv", {(rows + 7) / 8, 1, 1}, {256, 1, 1}))
      .buffer(0)
      .buffer(1)
      .buffer(2)
      .buffer(3)
      .buffer(4)
      .value(rows);
  return c;
}
Case scan_lookback(double scale) {
  Case c = start("scan_lookback");
  const std::uint32_t blocks = size(scale, 16384, 1, 4);
  const std::size_t n = std::size_t{blocks} * 4096;
  add_buffer<std::uint32_t>(c, "out", n, [](std::size_t) { return 0u; });
  add_buffer<std::uint32_t>(c, "in", n,
                            [](std::size_t i) { return static_cast<std::uint32_t>(i * 7 % 13); });
  add_buffer<std::uint64_t>(c, "status", blocks, [](std::size_t) { return std::uint64_t{0}; });
  Params(add_launch(c, "scan_lookback", {blocks, 1, 1}, {256, 1, 1})).buffer(0).buffer(1).buffer(2);
  return c;
}

// One of the suite's programs as a case; two right runs of theirs leave the same bytes.
Case of_workload(const char* name, std::unique_ptr<suite::Workload> (*make)(const suite::Options&),
                 double scale) {
  suite::Options options;
  options.scale = scale;
  const std::unique_ptr<suite::Workload> w = make(options);
  Case c;
  c.name = name;
  c.ptx = w->ptx();
  c.buffers.push_back({"out", std::vector<std::byte>(w->output_bytes())});
  std::vector<std::uint64_t> marks;
  for (const auto& input : w->inputs()) {
    c.buffers.push_back({"in", std::vector<std::byte>(input.begin(), input.end())});
    marks.push_back(0x5a5a000000000000u + c.buffers.size() - 1);
  }
  // Marks in place of addresses tell which arguments are pointers.
  suite::Arguments arguments;
  w->arguments(arguments, 0x5a5a000000000000u, marks, 0);
  const suite::LaunchShape shape = w->shape();
  Launch& l =
      add_launch(c, w->name(), {shape.grid_x, shape.grid_y, 1}, {shape.block_x, shape.block_y, 1});
  Params params(l);
  // Sizes of the arguments: the kernels' own declarations, 8 bytes but where the text says 32.
  const std::string text = w->ptx();
  std::size_t at = text.find(".entry");
  for (std::size_t i = 0; i < arguments.count(); ++i) {
    at = text.find(".param .", at) + 8;
    std::uint64_t value;
    std::memcpy(&value, arguments.pointers()[i], sizeof value);
    if (value >> 48 == 0x5a5a) {
      params.buffer(static_cast<std::uint32_t>(value & 0xffff));
    } else if (text.substr(at + 1, 2) == "32") {
      params.value(static_cast<std::uint32_t>(value));
    } else {
      params.value(value);
    }
  }
  return c;
}

}  // namespace

Case spin_case(std::uint32_t tasks, std::uint32_t threads, std::uint64_t clocks) {
  Case c = start("spin");
  add_buffer<std::uint64_t>(c, "out", 64, [](std::size_t) { return std::uint64_t{0}; });
  Params(add_launch(c, "spin", {tasks, 1, 1}, {threads, 1, 1})).buffer(0).value(clocks);
  return c;
}

std::vector<CaseMaker> all_cases(double scale) {
  std::vector<CaseMaker> cases;
  const auto own = [&](const char* name, Case (*make)(double)) {
    cases.push_back({name, [=] { return make(scale); }});
  };
  own("transpose", transpose);
  own("gemm1024", [](double s) { return gemm(s, false); });
  own("gemm_registers", [](double s) { return gemm(s, true); });
  own("black_scholes", black_scholes);
  own("nbody", nbody);
  own("softmax_rows", softmax_rows);
  own("stencil3d", stencil3d);
  own("spmv", spmv);
  own("scan_lookback", scan_lookback);
  const auto program = [&](const char* name,
                           std::unique_ptr<suite::Workload> (*make)(const suite::Options&),
                           double factor) {
    cases.push_back({name, [=] { return of_workload(name, make, scale * factor); }});
  };
  program("triad", suite::make_triad, 100);
  program("matmul", suite::make_matmul, 400);
  program("reduction", suite::make_reduction, 100);
  program("stencil2d", suite::make_stencil2d, 100);
  program("histogram", suite::make_histogram, 200);
  program("md5", suite::make_md5, 400);
  for (const suite::Row& row : suite::catalog()) {
    cases.push_back({std::string("suite/") + row.name, [&row, scale] {
                       return row.make({.scale = std::max(1.0, row.gpu_scale * scale), .seed = 1});
                     }});
  }
  return cases;
}

}  // namespace sluice::bench
