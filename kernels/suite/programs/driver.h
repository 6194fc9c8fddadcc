// SPDX-License-Identifier: Apache-2.0
// Thin ownership around CUDA driver API objects for the suite's programs and benchmarks: each class
// owns one handle and gives it back; every call's result is checked.
//
// These are programs as a user writes them, so a failing CUDA call is an exception that main()
// turns into a message and exit code 3; nothing of the mediator uses this. One thread at a time,
// with the context current. Does not: hide any call that the programs are meant to exercise.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/suite/programs/cuda_api.h"

namespace sluice::suite {

// "CUDA_ERROR_OUT_OF_MEMORY (2, not enough device memory)".
std::string describe(CUresult result);

// A driver call that failed. what() is "call: describe(result)".
class DriverError : public std::runtime_error {
 public:
  DriverError(const char* call, CUresult result)
      : std::runtime_error(std::string(call) + ": " + describe(result)), result_(result) {}
  CUresult result() const { return result_; }

 private:
  CUresult result_;
};

inline void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw DriverError(call, result);
}
// Checks a call and names it in the error.
#define SLUICE_SUITE_CALL(call) ::sluice::suite::check((call), #call)

// Ownership of one handle that `Release` gives back. Releasing ignores the result: after a fault
// every call fails, and the first failure has already been reported.
template <class Handle, CUresult (*Release)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != Handle{}) Release(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_{};
};

// The first device and its primary context, current on the thread that made it.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  CUdevice device() const { return device_; }
  std::string device_name() const;

 private:
  CUdevice device_ = 0;
};

using Module = Owned<CUmodule, &cuModuleUnload>;
using Stream = Owned<CUstream, &cuStreamDestroy>;
using Event = Owned<CUevent, &cuEventDestroy>;
using DeviceBuffer = Owned<CUdeviceptr, &cuMemFree>;
using PinnedBuffer = Owned<void*, &cuMemFreeHost>;

// `ptx` is zero-terminated text. On failure the error carries the compiler's log.
Module make_module(const char* ptx);
Stream make_stream();  // does not synchronise with the legacy stream
Event make_event();    // no timing, waits by sleeping
DeviceBuffer make_device_buffer(std::size_t bytes);
PinnedBuffer make_pinned_buffer(std::size_t bytes);

}  // namespace sluice::suite
