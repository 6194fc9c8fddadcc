// SPDX-License-Identifier: Apache-2.0
#include "kernels/suite/programs/driver.h"

#include <array>
#include <cstdint>

namespace sluice::suite {

std::string describe(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "no description";
  return std::string(name) + " (" + std::to_string(static_cast<int>(result)) + ", " + text + ")";
}

Context::Context() {
  SLUICE_SUITE_CALL(cuInit(0));
  int count = 0;
  SLUICE_SUITE_CALL(cuDeviceGetCount(&count));
  if (count == 0) throw DriverError("cuDeviceGetCount", CUDA_ERROR_NO_DEVICE);
  SLUICE_SUITE_CALL(cuDeviceGet(&device_, 0));
  CUcontext context = nullptr;
  SLUICE_SUITE_CALL(cuDevicePrimaryCtxRetain(&context, device_));
  SLUICE_SUITE_CALL(cuCtxSetCurrent(context));
}

Context::~Context() { (void)cuDevicePrimaryCtxRelease(device_); }

std::string Context::device_name() const {
  std::array<char, 256> name{};
  SLUICE_SUITE_CALL(cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), device_));
  return name.data();
}

Module make_module(const char* ptx) {
  std::array<char, 4096> log{};
  std::array<CUjit_option, 2> options = {CU_JIT_ERROR_LOG_BUFFER,
                                         CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values = {
      log.data(), reinterpret_cast<void*>(static_cast<std::uintptr_t>(log.size() - 1))};
  CUmodule module = nullptr;
  const CUresult result =
      cuModuleLoadDataEx(&module, ptx, options.size(), options.data(), values.data());
  if (result != CUDA_SUCCESS) {
    const std::string call = std::string("cuModuleLoadDataEx") +
                             (log[0] != '\0' ? std::string(" [") + log.data() + "]" : "");
    throw DriverError(call.c_str(), result);
  }
  return Module(module);
}

Stream make_stream() {
  CUstream stream = nullptr;
  SLUICE_SUITE_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return Stream(stream);
}

Event make_event() {
  CUevent event = nullptr;
  SLUICE_SUITE_CALL(cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
  return Event(event);
}

DeviceBuffer make_device_buffer(std::size_t bytes) {
  CUdeviceptr address = 0;
  SLUICE_SUITE_CALL(cuMemAlloc(&address, bytes));
  return DeviceBuffer(address);
}

PinnedBuffer make_pinned_buffer(std::size_t bytes) {
  void* address = nullptr;
  SLUICE_SUITE_CALL(cuMemAllocHost(&address, bytes));
  return PinnedBuffer(address);
}

}  // namespace sluice::suite
