// SPDX-License-Identifier: Apache-2.0
// What the software GPU itself costs, beside the instructions that it executes: loading PTX,
// memory, launches, short blocks, changes of context and preemption. By hand; nothing to pass or
// fail.
//
//   softgpu_cost DRIVER [PTX]     DRIVER: libsluice-softcuda.so; PTX: a text to load instead of 1
//                                 MB made of the tests' kernels
// Set SLUICE_SOFT_* as you like. Preemption is measured by the GPU's own words.
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "mediator/gpu/driver_api.h"
#include "mediator/gpu/soft_gpu.h"
#include "mediator/softgpu/softgpu.h"
#include "tests/unit/softgpu/ptx.h"

namespace {

using namespace sluice;
using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void check(CUresult r, const char* what) {
  if (r == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, gpu::describe(r).c_str());
  std::exit(1);
}

// Proportional set size of this process, MiB.
double pss_mib() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Pss:", 0) == 0) return std::atof(line.c_str() + 4) / 1024;
  }
  return 0;
}

// The tests' module with every entry and variable repeated under other names, to about `bytes`.
std::string repeated(size_t bytes) {
  const std::string text = kTestPtx;
  const size_t body = text.find(".visible .entry");
  std::string all = text.substr(0, body);
  const std::string kernels = text.substr(body);
  for (int copy = 0; all.size() < bytes; ++copy) {
    size_t at = 0;
    for (size_t next; (next = kernels.find(".entry ", at)) != std::string::npos;) {
      const size_t end = kernels.find('(', next);
      all += kernels.substr(at, end - at) + "_" + std::to_string(copy);
      at = end;
    }
    all += kernels.substr(at);
  }
  return all;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  char file[] = "/tmp/softgpu-cost-XXXXXX";
  const int fd = ::mkstemp(file);
  ::close(fd);
  ::unlink(file);
  if (::getenv("SLUICE_SOFT_GPU") == nullptr) ::setenv("SLUICE_SOFT_GPU", file, 1);
  const std::string gpu_file = ::getenv("SLUICE_SOFT_GPU");
  auto loaded = gpu::load_driver(argv[1]);
  if (!loaded) return std::fprintf(stderr, "%s\n", loaded.error().message.c_str()), 1;
  const gpu::DriverApi& api = *loaded;
  const double before = pss_mib();
  CUcontext context;
  check(api.cuInit(0), "cuInit");
  check(api.cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");

  std::string text = repeated(1 << 20);
  if (argc > 2) {
    std::stringstream s;
    s << std::ifstream(argv[2]).rdbuf();
    text = s.str();
  }
  std::vector<double> times;
  for (int i = 0; i < 7; ++i) {
    CUmodule big;
    const auto start = Clock::now();
    check(api.cuModuleLoadData(&big, text.c_str()), "cuModuleLoadData");
    times.push_back(us_since(start));
    if (i == 0)
      std::printf("memory with that module        %8.1f MiB beyond the program's\n",
                  pss_mib() - before);
    check(api.cuModuleUnload(big), "cuModuleUnload");
  }
  std::printf("load %7.2f MB of PTX           %8.1f ms (%.1f ms/MB)\n",
              static_cast<double>(text.size()) / 1e6, median(times) / 1e3,
              median(times) / 1e3 / (static_cast<double>(text.size()) / 1e6));

  CUmodule module;
  check(api.cuModuleLoadData(&module, kTestPtx), "cuModuleLoadData");
  const auto kernel = [&](const char* name) {
    CUfunction f = nullptr;
    check(api.cuModuleGetFunction(&f, module, name), name);
    return f;
  };
  CUdeviceptr out;
  constexpr size_t kBytes = 64 << 20;
  check(api.cuMemAlloc(&out, kBytes), "cuMemAlloc");
  check(api.cuMemsetD8(out, 1, kBytes), "cuMemsetD8");

  times.clear();
  for (int i = 0; i < 2000; ++i) {
    const auto start = Clock::now();
    check(api.cuLaunchKernel(kernel("empty"), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
          "launch");
    check(api.cuCtxSynchronize(), "cuCtxSynchronize");
    times.push_back(us_since(start));
  }
  std::printf("empty launch and synchronise   %8.1f us\n", median(times));

  constexpr unsigned kBlocks = 200'000;
  times.clear();
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    check(
        api.cuLaunchKernel(kernel("empty"), kBlocks, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
        "launch");
    check(api.cuCtxSynchronize(), "cuCtxSynchronize");
    times.push_back(us_since(start));
  }
  std::printf("one empty block                %8.3f us\n", median(times) / kBlocks);

  uint32_t n = 1 << 24, first = 0;
  void* iota[] = {&out, &n, &first};
  times.clear();
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    check(api.cuLaunchKernel(kernel("iota"), n / 256, 1, 1, 256, 1, 1, 0, nullptr, iota, nullptr),
          "launch");
    check(api.cuCtxSynchronize(), "cuCtxSynchronize");
    times.push_back(us_since(start));
  }
  std::printf("one store by 16 M threads      %8.1f ms\n", median(times) / 1e3);
  std::printf("memory besides 64 MiB of device memory %5.1f MiB beyond the program's\n",
              pss_mib() - before - kBytes / 1048576.0);

  auto shared = gpu::SoftGpu::open(gpu_file, /*control=*/true);
  if (!shared) return 0;
  uint32_t rounds = 60'000;
  void* churn[] = {&out, &rounds};
  check(api.cuLaunchKernel(kernel("churn"), 16, 1, 1, 128, 1, 1, 0, nullptr, churn, nullptr),
        "launch");
  std::vector<double> latencies;
  unsigned tsgid = 0;
  reinterpret_cast<decltype(&sluice_softgpu_tsgid)>(::dlsym(api.library, "sluice_softgpu_tsgid"))(
      nullptr, &tsgid);
  const uint64_t kernels = (*shared)->channel(tsgid).kernels;
  ::usleep(20'000);
  while ((*shared)->channel(tsgid).kernels == kernels && latencies.size() < 500) {
    const uint64_t seen = (*shared)->channel(tsgid).preempt_count;
    const auto start = Clock::now();
    (*shared)->preempt(tsgid);
    while ((*shared)->channel(tsgid).preempt_count == seen &&
           (*shared)->channel(tsgid).kernels == kernels)
      ::usleep(20);  // the SMs need the processor
    if ((*shared)->channel(tsgid).preempt_count != seen) latencies.push_back(us_since(start));
    ::usleep(1000);
  }
  check(api.cuCtxSynchronize(), "cuCtxSynchronize");
  const sluice_soft_channel channel = (*shared)->channel(tsgid);
  if (!latencies.empty()) {
    std::sort(latencies.begin(), latencies.end());
    std::printf(
        "preempted %zu times: request to last block off its SM, median %.0f us, 99%% %.0f us, "
        "longest %.0f us\n",
        latencies.size(), latencies[latencies.size() / 2], latencies[latencies.size() * 99 / 100],
        latencies.back());
    std::printf(
        "  of that by the GPU's own words: mean %.0f us, longest %.0f us; %.1f blocks saved each "
        "time\n",
        static_cast<double>(channel.preempt_total_ns) / 1e3 /
            static_cast<double>(channel.preempt_count),
        static_cast<double>(channel.preempt_max_ns) / 1e3,
        static_cast<double>(channel.saved_blocks) / static_cast<double>(channel.preempt_count));
  }
  ::unlink(file);
  return 0;
}
