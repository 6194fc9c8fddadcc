// SPDX-License-Identifier: Apache-2.0
// A program that loads a module of many kernels, as a compiled program has it, and launches some:
//
//   module_load IMAGE KERNELS LAUNCHED [wait]
//       IMAGE      a fat binary, cubin or PTX file whose kernels are k0, k1, ..., each
//                  (unsigned *out, unsigned n), which adds its number to out[0..n) and 1 to the
//                  variable `launches` (module_load.py makes it)
//       wait       the first launch stands behind a value in its stream that is written when the
//                  launch has returned
//
// One line of JSON: what the load, finding all kernels, and first and second launches took (each
// with its synchronisation). 1 and a text if a call failed or a result is wrong.
//
// Used by module_load.py.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "abi/cuda_driver.h"
#include "tests/support/driver_program.h"

namespace {

constexpr unsigned kItems = 1 << 16, kThreads = 256;

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

#define CU(call) sluice::test::check(call, #call)

struct Program {
  CUmodule module = nullptr;
  std::vector<CUfunction> kernels;
  CUdeviceptr out = 0, flag = 0;
  unsigned* flag_here = nullptr;
  CUstream stream = nullptr;

  double launch(size_t i, bool behind_a_wait) {
    unsigned n = kItems;
    void* params[] = {&out, &n};
    const auto t = Clock::now();
    if (behind_a_wait) CU(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuLaunchKernel(kernels[i], kItems / kThreads, 1, 1, kThreads, 1, 1, 0, stream, params,
                      nullptr));
    const double called = ms_since(t);
    if (behind_a_wait) __atomic_store_n(flag_here, 1u, __ATOMIC_SEQ_CST);
    CU(cuStreamSynchronize(stream));
    return behind_a_wait ? called : ms_since(t);
  }
};

double sum(const std::vector<double>& all) {
  double total = 0;
  for (const double x : all) total += x;
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: module_load IMAGE KERNELS LAUNCHED [wait]\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto count = static_cast<size_t>(std::atoi(argv[2])),
             launched = static_cast<size_t>(std::atoi(argv[3]));
  const bool wait = argc > 4 && std::strcmp(argv[4], "wait") == 0;
  if (image.empty() || launched > count) return 2;

  Program p;
  auto t = Clock::now();
  CUdevice device;
  CUcontext context;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  CU(cuStreamCreate(&p.stream, 0));
  CU(cuMemAlloc_v2(&p.out, kItems * sizeof(unsigned)));
  CU(cuMemsetD32_v2(p.out, 0, kItems));
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&p.flag_here), sizeof(unsigned),
                    CU_MEMHOSTALLOC_DEVICEMAP));
  *p.flag_here = 0;
  CU(cuMemHostGetDevicePointer_v2(&p.flag, p.flag_here, 0));
  CU(cuCtxSynchronize());
  const double init_ms = ms_since(t);

  t = Clock::now();
  CU(cuModuleLoadData(&p.module, image.c_str()));
  const double load_ms = ms_since(t);
  t = Clock::now();
  p.kernels.resize(count);
  for (size_t i = 0; i < count; ++i)
    CU(cuModuleGetFunction(&p.kernels[i], p.module, ("k" + std::to_string(i)).c_str()));
  const double find_ms = ms_since(t);

  std::vector<double> first, second;
  unsigned wanted = 0;
  for (size_t i = 0; i < launched; ++i, wanted += 2 * static_cast<unsigned>(i - 1)) {
    first.push_back(p.launch(i, wait && i == 0));
    second.push_back(p.launch(i, false));
  }

  std::vector<unsigned> out(kItems);
  CU(cuMemcpyDtoH_v2(out.data(), p.out, kItems * sizeof(unsigned)));
  CUdeviceptr launches_at;
  unsigned launches = 0;
  size_t bytes = 0;
  CU(cuModuleGetGlobal_v2(&launches_at, &bytes, p.module, "launches"));
  CU(cuMemcpyDtoH_v2(&launches, launches_at, sizeof launches));
  bool right = launches == 2 * launched;
  for (const unsigned x : out) right = right && x == wanted;
  if (!right) {
    std::fprintf(stderr, "module_load: wrong: %u launches, out[0] %u, wanted %u\n", launches,
                 out[0], wanted);
    return 1;
  }
  t = Clock::now();
  CU(cuModuleUnload(p.module));
  std::printf(
      "{\"init_ms\": %.3f, \"load_ms\": %.3f, \"find_ms\": %.3f, \"first_launches_ms\": %.3f, "
      "\"first_ms\": %.3f, \"second_launches_ms\": %.3f, \"unload_ms\": %.3f}\n",
      init_ms, load_ms, find_ms, sum(first), first.empty() ? 0 : first[0], sum(second),
      ms_since(t));
  return 0;
}
