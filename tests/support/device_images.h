// SPDX-License-Identifier: Apache-2.0
// Copies of a GPU's memory that stay on it, and their comparison there, bit by bit: what takes the
// host seconds for some hundred megabytes takes the GPU a millisecond. For programs that run
// originals against clones on hardware (tests/golden/clone_gpu, tests/bench/preempt).
//
// One thread, one context. Works in the stream it was given, and every call returns when that is
// done. A failing call of the driver goes to `check`, which does not return from it.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "mediator/gpu/driver_api.h"

namespace sluice::testing {

// Device memory of somebody else.
struct DevicePiece {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
};

class DeviceImages {
 public:
  using Check = std::function<void(CUresult, const char* what)>;
  // A copy of each piece, in order. Given back by its DeviceImages' free() only.
  using Image = std::vector<DevicePiece>;

  DeviceImages(const gpu::DriverApi& api, CUstream stream, Check check);
  ~DeviceImages();
  DeviceImages(const DeviceImages&) = delete;
  DeviceImages& operator=(const DeviceImages&) = delete;

  // Into `image`, which is new (empty) or an earlier one of the same pieces, perhaps of fewer.
  // Waits for the whole context first: uploads and fills of the default stream, which ours does not
  // wait for.
  void take(std::span<const DevicePiece> pieces, Image& image);
  void put(std::span<const DevicePiece> pieces, const Image& image);
  bool same(std::span<const DevicePiece> pieces, const Image& image);
  void free(Image& image);

 private:
  void compare(CUfunction f, CUdeviceptr a, CUdeviceptr b, std::size_t count);

  const gpu::DriverApi& api_;
  CUstream stream_;
  Check check_;
  CUmodule module_ = nullptr;
  CUfunction wide_ = nullptr, bytes_ = nullptr;
  CUdeviceptr differing_ = 0;  // how many words differ
};

}  // namespace sluice::testing
