// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/run/device_runtime.h"

#include "kernels/exec/block/device_launches.h"
#include "kernels/exec/memory/device_heap.h"

namespace sluice::exec::detail {
namespace {

// cudaError_t
constexpr uint64_t kSuccess = 0, kMemoryAllocation = 2;
// What device code gets for a stream or an event: it only hands it back.
constexpr uint64_t kHandle = 0x100;

// Stores a result that is returned through a pointer.
std::optional<uint64_t> store(const LaneMemory& memory, uint64_t address, uint64_t value) {
  if (memory.write(address, &value, sizeof value)) return kSuccess;
  memory.warp.fault(FaultKind::kOutOfBounds, memory.lane, address, sizeof value);
  return std::nullopt;
}

std::optional<uint64_t> allocate(const LaneMemory& memory, uint64_t to, uint64_t bytes) {
  DeviceHeap* heap = memory.block.shape.heap;
  const uint64_t address = heap == nullptr ? 0 : heap->allocate(bytes);
  if (address == 0 && bytes != 0) return kMemoryAllocation;
  return store(memory, to, address);
}

std::optional<uint64_t> release(const LaneMemory& memory, uint64_t address, std::string& detail) {
  DeviceHeap* heap = memory.block.shape.heap;
  if (address == 0 || (heap != nullptr && heap->free(address))) return kSuccess;
  memory.warp.fault(FaultKind::kBadFree, memory.lane, address, 0);
  detail = "cudaFree of what cudaMalloc did not give, or a second one";
  return std::nullopt;
}

uint64_t queue(Builtin function, DeviceLaunches& launches, const Parameters& p) {
  switch (function) {
    case Builtin::kLaunch:
      return launches.launch(p[0], p[1]);
    case Builtin::kCopy:  // whatever its kind: it is between generic addresses
      return launches.copy(p[0], p[1], p[2], p[4]);
    case Builtin::kFill:
      return launches.fill(p[0], static_cast<uint8_t>(p.get<uint32_t>(1)), p[2], p[3]);
    default:
      return launches.parameters(p[0], p.get<Dim3>(1), p.get<Dim3>(2), p.get<uint32_t>(3));
  }
}

}  // namespace

std::optional<uint64_t> call_device_runtime(Builtin function, const LaneMemory& memory,
                                            const Parameters& parameters, std::string& detail) {
  DeviceLaunches* launches = memory.block.shape.launches;
  switch (function) {
    case Builtin::kMakeHandle:
      return store(memory, parameters[0], kHandle);
    case Builtin::kDeviceMalloc:
      return allocate(memory, parameters[0], parameters[1]);
    case Builtin::kDeviceFree:
      return release(memory, parameters[0], detail);
    case Builtin::kLaunchParameters:
    case Builtin::kLaunch:
    case Builtin::kCopy:
    case Builtin::kFill:
      if (launches == nullptr) {
        memory.warp.fault(FaultKind::kTrap, memory.lane, 0, 0);
        detail = "kernels cannot launch kernels here";
        return std::nullopt;
      }
      return queue(function, *launches, parameters);
    case Builtin::kLastError:
    case Builtin::kPeekAtLastError:
      return launches == nullptr ? kSuccess : launches->error(function == Builtin::kLastError);
    default:
      return kSuccess;
  }
}

}  // namespace sluice::exec::detail
