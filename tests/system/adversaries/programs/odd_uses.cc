// SPDX-License-Identifier: Apache-2.0
// Uses calls as they are allowed to be used, and as hardly any program does.
//
//   odd-uses storm       64 streams full of short host functions between launches
//   odd-uses endless     host functions that never return, with launches queued behind them
//   odd-uses calling     host functions that call CUDA, from within which more of them are queued
//   odd-uses exiting     children that exit or abort in a host function, with work queued, one
//   after
//                        the other
//   odd-uses pools SEED  memory pools with sizes and attributes at and beyond their ends, exported
//                        and imported, freed twice, and never
// Runs until it is killed; prints "ready" when it begins. Exit 1: a call failed that must not.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "abi/cuda_driver_functions.h"
#include "abi/cuda_graph.h"
#include "tests/support/driver_program.h"

namespace {

using sluice::test::check;

constexpr const char* kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 to, .param .u32 rounds)
{ .reg .b64 %a; .reg .b32 %i, %n; .reg .pred %p;
  ld.param.u64 %a, [to]; ld.param.u32 %n, [rounds]; mov.u32 %i, 0;
AGAIN: add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra AGAIN;
  st.global.u32 [%a], %i; ret; }
)";

CUfunction kernel;
CUdeviceptr memory = 0;
CUstream own_stream;

void prepare() {
  kernel = sluice::test::load_kernel(kPtx, "count");
  check(cuMemAlloc(&memory, 4096), "memory");
  check(cuStreamCreate(&own_stream, 1), "stream");
}
CUstream stream() {
  CUstream s;
  check(cuStreamCreate(&s, 1), "stream");
  return s;
}
CUresult launch(CUstream s, unsigned rounds) {
  void* arguments[] = {&memory, &rounds};
  return cuLaunchKernel(kernel, 16, 1, 1, 64, 1, 1, 0, s, arguments, nullptr);
}
void ready() {
  std::puts("ready");
  std::fflush(stdout);
}

void returns(void*) {}
void never_returns(void*) {
  for (;;) ::pause();
}
void calls_cuda(void*) {
  CUcontext context;
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  CUdeviceptr some;
  if (cuMemAlloc(&some, 1 << 20) == CUDA_SUCCESS) cuMemFree(some);
  launch(own_stream, 1000);
  cuLaunchHostFunc(own_stream, returns, nullptr);
  CUmodule module;
  if (cuModuleLoadData(&module, kPtx) == CUDA_SUCCESS) cuModuleUnload(module);
}
void ends(void* how) {
  if (how == nullptr) ::_exit(0);
  std::abort();
}

[[noreturn]] void storm() {
  prepare();
  std::vector<CUstream> streams(64);
  for (CUstream& s : streams) s = stream();
  ready();
  for (;;)
    for (CUstream s : streams) {
      cuLaunchHostFunc(s, returns, nullptr);
      launch(s, 2000);
      cuLaunchHostFunc(s, returns, nullptr);
    }
}

[[noreturn]] void endless() {
  prepare();
  std::vector<CUstream> streams(64);
  for (CUstream& s : streams) {
    s = stream();
    cuLaunchHostFunc(s, never_returns, nullptr);
    for (int i = 0; i < 100; ++i) launch(s, 1'000'000);
  }
  ready();
  for (size_t i = 0;; ++i) {
    launch(own_stream, 20'000);
    CUevent event;
    if (cuEventCreate(&event, 0) != CUDA_SUCCESS) continue;
    cuEventRecord(event, streams[i % streams.size()]);
    cuStreamWaitEvent(streams[(i + 1) % streams.size()], event, 0);
    cuEventDestroy(event);
    if (i % 8 == 0) cuStreamSynchronize(own_stream);
  }
}

[[noreturn]] void calling() {
  prepare();
  ready();
  for (;;) {
    cuLaunchHostFunc(own_stream, calls_cuda, nullptr);
    launch(own_stream, 5000);
    CUstream s = stream();
    cuLaunchHostFunc(s, returns, nullptr);
    cuStreamDestroy(s);
  }
}

[[noreturn]] void exiting() {
  ready();
  for (long i = 0;; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      prepare();
      launch(own_stream, 100'000);
      cuLaunchHostFunc(own_stream, ends, i % 2 == 0 ? nullptr : &own_stream);
      for (int n = 0; n < 1000; ++n) launch(own_stream, 100'000);
      cuStreamSynchronize(own_stream);
      ::_exit(1);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) std::exit(1);
  }
}

[[noreturn]] void pools(unsigned seed) {
  constexpr uint64_t kSizes[] = {0,          1,          511,        512,        513,
                                 4096,       65536,      1 << 20,    8 << 20,    64 << 20,
                                 1ull << 32, 1ull << 40, 1ull << 62, 1ull << 63, ~0ull - 4096,
                                 ~0ull - 1,  ~0ull};
  constexpr size_t kMostPools = 200, kMostAddresses = 2000;
  prepare();
  std::mt19937 random(seed);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const auto size = [&] { return kSizes[below(std::size(kSizes))]; };
  std::vector<CUstream> streams(8);
  for (CUstream& s : streams) s = stream();
  std::vector<CUmemoryPool> all;
  std::vector<CUdeviceptr> addresses;
  const auto pool = [&] { return all[below(all.size())]; };
  const auto attribute = [&] { return static_cast<CUmemPool_attribute>(below(12)); };
  ready();
  for (;;) {
    CUstream s = streams[below(streams.size())];
    CUdeviceptr address = 0;
    uint64_t value = size();
    switch (all.empty() ? 0 : below(11)) {
      case 0: {
        CUmemPoolProps properties{};
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = below(4) == 0 ? static_cast<int>(random()) : 0;
        CUmemoryPool made;
        if (all.size() < kMostPools && cuMemPoolCreate(&made, &properties) == CUDA_SUCCESS)
          all.push_back(made);
        break;
      }
      case 1: {  // some are used on
        const size_t at = below(all.size());
        cuMemPoolDestroy(all[at]);
        if (below(4) != 0) all.erase(all.begin() + static_cast<ptrdiff_t>(at));
        break;
      }
      case 2:
      case 3:
        if (cuMemAllocFromPoolAsync(&address, value, pool(), s) == CUDA_SUCCESS)
          addresses.push_back(address);
        break;
      case 4:
        if (cuMemAllocAsync(&address, value, s) == CUDA_SUCCESS) addresses.push_back(address);
        break;
      case 5:
      case 6:
        if (addresses.empty()) break;
        if (const size_t at = below(addresses.size()); below(3) != 0) {
          cuMemFreeAsync(addresses[at], s);
          if (below(8) != 0) addresses.erase(addresses.begin() + static_cast<ptrdiff_t>(at));
        } else {
          cuMemFree(addresses[at]);
        }
        break;
      case 7:
        cuMemPoolSetAttribute(pool(), attribute(), &value);
        break;
      case 8:
        cuMemPoolGetAttribute(pool(), attribute(), &value);
        break;
      case 9:
        cuMemPoolTrimTo(pool(), value);
        break;
      default:
        launch(s, 1000);
        if (below(20) == 0) cuStreamSynchronize(s);
    }
    if (addresses.size() > kMostAddresses) addresses.resize(kMostAddresses / 2);  // the rest leaks
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  if (!std::strcmp(how, "storm")) storm();
  if (!std::strcmp(how, "endless")) endless();
  if (!std::strcmp(how, "calling")) calling();
  if (!std::strcmp(how, "exiting")) exiting();
  if (!std::strcmp(how, "pools") && argc > 2) pools(static_cast<unsigned>(std::atoi(argv[2])));
  std::fputs("usage: odd-uses storm|endless|calling|exiting|pools SEED\n", stderr);
  return 2;
}
