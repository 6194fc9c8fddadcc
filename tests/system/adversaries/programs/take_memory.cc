// SPDX-License-Identifier: Apache-2.0
// Takes device memory without allocating it, in one way at a time, as much as there is.
//
//   take-memory WAY     modules | constants | local | heap | stack | contexts | streams: prints
//                       "held N", N pieces that it got, holds them until its input ends, and exits
//                       0
//   take-memory alloc BYTES    allocates and fills so much, compares it when its input ends, prints
//                       "right" and exits 0; 1 if it is not there or not right
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/driver_program.h"

namespace {

using sluice::test::check;

constexpr char kHeader[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
constexpr int kMost = 4096;

// How many of them it gets until the first error, which has to be the right one.
template <class F>
int take(F one) {
  for (int i = 0; i < kMost; ++i) {
    const CUresult r = one(i);
    if (r == CUDA_ERROR_OUT_OF_MEMORY || r == CUDA_ERROR_INVALID_VALUE) return i;
    check(r, "taking memory");
  }
  return kMost;
}

int modules(const char* space, int bytes) {
  const std::string text =
      std::string(kHeader) + space + " .align 4 .b8 big[" + std::to_string(bytes) + "];\n";
  return take([&](int) {
    CUmodule module;
    return cuModuleLoadData(&module, text.c_str());
  });
}

// Kernels with twice the local memory each time: 8 KiB for each thread, 16, ...
int local_memory() {
  return take([](int i) {
    if (i > 12) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::string text = std::string(kHeader) +
                             ".visible .entry k()\n{\n.local .align 4 .b8 depot[" +
                             std::to_string(4096 << i) +
                             "];\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\nmov.u64 %rd1, depot;\n" +
                             "mov.u32 %r1, 7;\nst.local.u32 [%rd1], %r1;\nret;\n}\n";
    CUmodule module;
    CUfunction kernel;
    CUresult r = cuModuleLoadData(&module, text.c_str());
    if (r == CUDA_SUCCESS) r = cuModuleGetFunction(&kernel, module, "k");
    if (r == CUDA_SUCCESS)
      r = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    if (r == CUDA_SUCCESS) r = cuCtxSynchronize();
    return r;
  });
}

int limit(CUlimit which, size_t first) {
  return take(
      [&](int i) { return i > 40 ? CUDA_ERROR_OUT_OF_MEMORY : cuCtxSetLimit(which, first << i); });
}

int contexts() {
  return take([](int) {
    CUcontext context;
    CUresult r = cuCtxCreate_v2(&context, 0, 0);
    if (r == CUDA_SUCCESS) r = cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64u << 20);
    return r;
  });
}

int streams() {
  return take([](int) {
    CUstream stream;
    return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  });
}

void wait_for_end_of_input() {
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}

int allocate(size_t bytes) {
  CUdeviceptr memory;
  check(cuMemAlloc(&memory, bytes), "the rest of the memory");
  check(cuMemsetD8(memory, 0x5a, bytes), "filling it");
  check(cuCtxSynchronize(), "filling it");
  std::puts("held 1");
  wait_for_end_of_input();
  std::vector<unsigned char> back(bytes);
  check(cuMemcpyDtoH(back.data(), memory, bytes), "reading it");
  for (const unsigned char byte : back)
    if (byte != 0x5a) return 1;
  std::puts("right");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  CUcontext context;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "context");
  check(cuCtxSetCurrent(context), "context");
  if (way == "alloc" && argc == 3) return allocate(std::strtoull(argv[2], nullptr, 10));
  int held = -1;
  if (way == "modules") held = modules(".global", 8 << 20);
  if (way == "constants") held = modules(".const", 60000);
  if (way == "local") held = local_memory();
  if (way == "heap") held = limit(CU_LIMIT_MALLOC_HEAP_SIZE, 16u << 20);
  if (way == "stack") held = limit(CU_LIMIT_STACK_SIZE, 2048);
  if (way == "contexts") held = contexts();
  if (way == "streams") held = streams();
  if (held < 0) return 2;
  std::printf("held %d\n", held);
  wait_for_end_of_input();
  return 0;
}
