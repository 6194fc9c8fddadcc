// SPDX-License-Identifier: Apache-2.0
// sluice-suite-fault: runs a kernel that writes far out of bounds and says what the program saw.
// One JSON line on stdout: {"program": "fault", "call": ..., "result": ..., "code": N,
// "later_code": N}.
// Exit: 0 if the error was CUDA_ERROR_ILLEGAL_ADDRESS or CUDA_ERROR_LAUNCH_FAILED and a later wait
// fails too (as CUDA has it: the context is lost); 1 if not; 3 if the fault could not be tried.
#include <cstdio>

#include "kernels/suite/fault.ptx.h"
#include "kernels/suite/programs/driver.h"

namespace {

using namespace sluice::suite;

constexpr std::size_t kBytes = 4096;
constexpr unsigned kThreads = 64;
// In 4-byte elements: every thread but the first is 4 TiB or more away.
constexpr unsigned long long kStride = 1ull << 40;

bool is_kernel_fault(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED;
}

int run() {
  const Context context;
  const Module module = make_module(kFaultPtx);
  CUfunction function = nullptr;
  SLUICE_SUITE_CALL(cuModuleGetFunction(&function, module.get(), "fault"));
  const DeviceBuffer out = make_device_buffer(kBytes);
  const Stream stream = make_stream();

  CUdeviceptr address = out.get();
  unsigned long long stride = kStride;
  void* arguments[] = {&address, &stride};
  // Launches are asynchronous: the fault surfaces at the latest when the stream is waited for.
  const char* call = "cuLaunchKernel";
  CUresult result =
      cuLaunchKernel(function, 1, 1, 1, kThreads, 1, 1, 0, stream.get(), arguments, nullptr);
  if (result == CUDA_SUCCESS) {
    call = "cuStreamSynchronize";
    result = cuStreamSynchronize(stream.get());
  }
  // Not an asynchronous call: those may say success as long as their end is not known.
  const CUresult later = cuCtxSynchronize();
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown";
  std::printf(
      "{\"program\": \"fault\", \"call\": \"%s\", \"result\": \"%s\", \"code\": %d, "
      "\"later_code\": %d}\n",
      call, name, static_cast<int>(result), static_cast<int>(later));
  return is_kernel_fault(result) && later != CUDA_SUCCESS ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const DriverError& error) {
    std::fprintf(stderr, "fault: %s\n", error.what());
    return 3;
  }
}
