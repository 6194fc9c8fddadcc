// SPDX-License-Identifier: Apache-2.0
// A program whose short kernels come every 0.5 to 5 ms until it is killed. On a vGPU of higher
// priority each of them takes the GPU from whoever has it.
//
//   visitor SEED
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "abi/cuda_driver.h"

namespace {

constexpr char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry visit(.param .u64 at) { .reg .b64 %d; .reg .b32 %r; ld.param.u64 %d, [at];"
    " atom.global.add.u32 %r, [%d], 1; ret; }\n";

void ok(CUresult r, const char* what) {
  if (r == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s answers %d\n", what, static_cast<int>(r));
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::mt19937 random(static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)));
  CUcontext context;
  CUmodule module;
  CUfunction visit;
  CUdeviceptr at;
  ok(cuInit(0), "cuInit");
  ok(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  ok(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  ok(cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
  ok(cuModuleGetFunction(&visit, module, "visit"), "cuModuleGetFunction");
  ok(cuMemAlloc_v2(&at, 4), "cuMemAlloc");
  void* params[] = {&at};
  for (;;) {
    ok(cuLaunchKernel(visit, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr), "cuLaunchKernel");
    ok(cuCtxSynchronize(), "cuCtxSynchronize");
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 4500));
  }
}
