// SPDX-License-Identifier: Apache-2.0
// SessionEnd: why a session ends, for its program to read. The first reason stays.
//
//   error    a CUresult; 0: an orderly end; none: nothing has ended it yet
//   status   an errno, for a program that still waits for its session
//
// Owned by a GuestSession; one thread.
#pragma once

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

namespace sluice {

// The CUresults that a program sees when its session is taken from it
// (abi/cuda_driver_values.h): the sticky "unknown", where a worker died or somebody broke a rule.
inline constexpr int kCudaErrorUnknown = 999;
// "Unavailable", where its vGPU has used up what its faults may cost others.
inline constexpr int kCudaErrorDeviceUnavailable = 46;
// Where a session did not leave the GPU: "launch timeout", as a watchdog's victim gets from
// NVIDIA's driver.
inline constexpr int kCudaErrorLaunchTimeout = 702;

class SessionEnd {
 public:
  // Until its worker runs, failing is what ends a session.
  void expect_failed_start() { error_ = kCudaErrorUnknown; }
  void started() { error_.reset(); }

  void set(int cuda_error, std::string reason) {
    if (error_) return;
    error_ = cuda_error;
    reason_ = std::move(reason);
  }
  void set_status(int status) { status_ = status; }

  bool is_set() const { return error_.has_value(); }
  int error() const { return error_.value_or(0); }
  const std::string& reason() const { return reason_; }
  int status() const { return status_; }

 private:
  std::optional<int> error_;
  std::string reason_;
  int status_ = EIO;
};

}  // namespace sluice
