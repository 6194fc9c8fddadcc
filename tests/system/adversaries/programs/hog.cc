// SPDX-License-Identifier: Apache-2.0
// Breaks no rule, and takes what it can: work of kinds that a scheduler of launches may not see, or
// cannot take from it.
//
//   hog long MS         kernels of so many milliseconds each that cannot leave before their end
//   hog paced US PAUSE  kernels of so many microseconds, each waited for, with pauses of so many
//   hog tiny STREAMS    the shortest launches without end, each waited for, in so many threads
//   hog copies          device memory copied to and fro without end
//   hog fills           device memory filled without end
//   hog contexts        as many contexts as it gets; then it is "ready"
//   hog transfers       the host's memory copied to the device and back without end
// Prints "ready", then runs until it is killed; exit 1: a call failed.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/driver_program.h"

namespace {

constexpr size_t kBytes = 16u << 20;

// One block, so that it has no place where it could leave.
constexpr const char* kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 ns)
{ .reg .b64 %end, %now; .reg .pred %p; ld.param.u64 %now, [ns];
  mov.u64 %end, %globaltimer; add.u64 %end, %end, %now;
AGAIN: mov.u64 %now, %globaltimer; setp.lt.u64 %p, %now, %end; @%p bra AGAIN; ret; }
.visible .entry nothing() { ret; }
)";

CUcontext context;
CUfunction hold, nothing;

[[noreturn]] void fail(CUresult r) {
  std::printf("failed %d\n", static_cast<int>(r));
  std::fflush(stdout);
  std::_Exit(1);
}
void must(CUresult r) {
  if (r != CUDA_SUCCESS) fail(r);
}

[[noreturn]] void launch(CUfunction kernel, uint64_t ns, std::chrono::microseconds pause = {}) {
  must(cuCtxSetCurrent(context));
  CUstream stream;
  must(cuStreamCreate(&stream, 1));
  void* arguments[] = {&ns};
  for (;;) {
    must(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
    must(cuStreamSynchronize(stream));
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
  }
}

[[noreturn]] void move(const char* how) {
  CUdeviceptr a, b;
  must(cuMemAlloc(&a, kBytes));
  must(cuMemAlloc(&b, kBytes));
  std::vector<char> host(kBytes);
  for (;;) {
    if (!std::strcmp(how, "copies")) {
      must(cuMemcpyDtoD(a, b, kBytes));
    } else if (!std::strcmp(how, "fills")) {
      must(cuMemsetD32(a, 1, kBytes / 4));
      must(cuCtxSynchronize());
    } else {
      must(cuMemcpyHtoD(a, host.data(), kBytes));
      must(cuMemcpyDtoH(host.data(), a, kBytes));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int count = argc > 2 ? std::atoi(argv[2]) : 1;
  CUmodule module;
  must(cuInit(0));
  must(cuDevicePrimaryCtxRetain(&context, 0));
  must(cuCtxSetCurrent(context));
  must(cuModuleLoadData(&module, kPtx));
  must(cuModuleGetFunction(&hold, module, "hold"));
  must(cuModuleGetFunction(&nothing, module, "nothing"));
  CUcontext another;
  const bool opens = !std::strcmp(argv[1], "contexts");
  while (opens && cuCtxCreate_v2(&another, 0, 0) == CUDA_SUCCESS) {
  }
  std::puts("ready");
  std::fflush(stdout);
  if (opens) std::this_thread::sleep_for(std::chrono::hours(1));
  if (!std::strcmp(argv[1], "long")) launch(hold, static_cast<uint64_t>(count) * 1'000'000);
  if (!std::strcmp(argv[1], "paced"))
    launch(hold, static_cast<uint64_t>(count) * 1'000,
           std::chrono::microseconds(argc > 3 ? std::atoi(argv[3]) : 0));
  if (std::strcmp(argv[1], "tiny") != 0) move(argv[1]);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([] { launch(nothing, 0); });
  for (std::thread& t : threads) t.join();
}
