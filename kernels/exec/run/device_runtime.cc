// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/run/device_runtime.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "abi/cuda_runtime_errors.h"
#include "kernels/exec/block/device_launches.h"
#include "kernels/exec/memory/device_heap.h"

namespace sluice::exec::detail {
namespace {

// cudaError_t
constexpr uint64_t kSuccess = 0, kInvalidValue = 1, kMemoryAllocation = 2, kInvalidPitchValue = 12,
                   kInvalidDeviceFunction = 98, kInvalidDevice = 101, kUnsupportedLimit = 215;
constexpr int kRuntimeVersion = 13000;
// What device code gets for a stream or an event: it only hands it back.
constexpr uint64_t kHandle = 0x100;

// Stores a result that is returned through a pointer.
template <class T>
std::optional<uint64_t> store(const LaneMemory& memory, uint64_t address, const T& value) {
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

// Both in rows, one child each. Whoever asks for too many gets the error of the first for which
// there is no room.
uint64_t copy_rows(DeviceLaunches& launches, const Parameters& p) {
  const uint64_t width = p[4], height = p[5];
  if (width == 0 || height == 0) return kSuccess;
  if (width > p[1] || width > p[3]) return kInvalidPitchValue;
  uint64_t whole;
  if (width == p[1] && width == p[3] && !__builtin_mul_overflow(width, height, &whole))
    return launches.copy(p[0], p[2], whole, p[7]);
  uint64_t error = kSuccess;
  for (uint64_t row = 0; row < height && error == kSuccess; ++row)
    error = launches.copy(p[0] + row * p[1], p[2] + row * p[3], width, p[7]);
  return error;
}
uint64_t fill_rows(DeviceLaunches& launches, const Parameters& p) {
  const auto value = static_cast<uint8_t>(p.get<uint32_t>(2));
  const uint64_t width = p[3], height = p[4];
  if (width == 0 || height == 0) return kSuccess;
  if (width > p[1]) return kInvalidPitchValue;
  uint64_t whole;
  if (width == p[1] && !__builtin_mul_overflow(width, height, &whole))
    return launches.fill(p[0], value, whole, p[5]);
  uint64_t error = kSuccess;
  for (uint64_t row = 0; row < height && error == kSuccess; ++row)
    error = launches.fill(p[0] + row * p[1], value, width, p[5]);
  return error;
}

// The members of cudaFuncAttributes that all versions of CUDA since 10 have.
struct KernelAttributes {
  uint64_t shared, constant, local;
  int threads, registers, ptx_version, binary_version, cache, dynamic_shared, carveout;
};

std::optional<uint64_t> kernel_attributes(const DeviceLaunches& launches, const LaneMemory& memory,
                                          uint64_t to, uint64_t kernel) {
  // CUfunction_attribute
  constexpr int kThreads = 0, kShared = 1, kConstant = 2, kLocal = 3, kLast = 9;
  int all[kLast + 1];
  for (int k = 0; k <= kLast; ++k) {
    const std::optional<int> value = launches.kernel_attribute(kernel, k);
    if (!value) return kInvalidDeviceFunction;
    all[k] = *value;
  }
  const auto bytes = [&all](int which) { return static_cast<uint64_t>(all[which]); };
  const KernelAttributes attributes{
      bytes(kShared), bytes(kConstant), bytes(kLocal), all[kThreads], all[4],
      all[5],         all[6],           all[7],        all[8],        all[9]};
  constexpr size_t kBytes = offsetof(KernelAttributes, carveout) + sizeof attributes.carveout;
  std::array<uint8_t, kBytes> image;
  std::memcpy(image.data(), &attributes, kBytes);
  return store(memory, to, image);
}

std::optional<uint64_t> ask(Builtin function, const DeviceLaunches& launches,
                            const LaneMemory& memory, const Parameters& p) {
  if (function == Builtin::kKernelAttributes)
    return kernel_attributes(launches, memory, p[0], p[1]);
  if (function == Builtin::kOccupancy) {
    const auto blocks = launches.blocks_per_sm(p[1], p.get<uint32_t>(2), p[3]);
    return blocks ? store(memory, p[0], *blocks) : kInvalidDeviceFunction;
  }
  if (p.get<uint32_t>(2) != 0) return kInvalidDevice;
  const auto value = launches.device_attribute(p.get<int>(1));
  return value ? store(memory, p[0], *value) : kInvalidValue;
}

// An error's name or sentence where kernels can read it. All of them are one piece.
uint64_t error_text(DeviceLaunches& launches, int error, bool name) {
#define SLUICE_TEXTS(name, value, text) #name "\0" text "\0"
  static constexpr char kTexts[] =
      SLUICE_CUDA_RUNTIME_ERRORS(SLUICE_TEXTS) SLUICE_CUDA_RUNTIME_NO_ERROR;
#undef SLUICE_TEXTS
#define SLUICE_NUMBER(name, value, text) value,
  static constexpr int kNumbers[] = {SLUICE_CUDA_RUNTIME_ERRORS(SLUICE_NUMBER)};
#undef SLUICE_NUMBER
  launches.show({kTexts, sizeof kTexts});
  const char* text = kTexts;
  for (const int number : kNumbers) {
    const char* const sentence = text + std::strlen(text) + 1;
    if (number == error) return reinterpret_cast<uint64_t>(name ? text : sentence);
    text = sentence + std::strlen(sentence) + 1;
  }
  return reinterpret_cast<uint64_t>(text);
}

std::optional<uint64_t> queue(Builtin function, DeviceLaunches& launches, const LaneMemory& memory,
                              const Parameters& p) {
  switch (function) {
    case Builtin::kLaunch:
      return launches.launch(p[0], p[1]);
    case Builtin::kCopy:  // whatever its kind: it is between generic addresses
      return launches.copy(p[0], p[1], p[2], p[4]);
    case Builtin::kFill:
      return launches.fill(p[0], static_cast<uint8_t>(p.get<uint32_t>(1)), p[2], p[3]);
    case Builtin::kCopyRows:
      return copy_rows(launches, p);
    case Builtin::kFillRows:
      return fill_rows(launches, p);
    case Builtin::kDeviceAttribute:
    case Builtin::kKernelAttributes:
    case Builtin::kOccupancy:
      return ask(function, launches, memory, p);
    case Builtin::kErrorName:
    case Builtin::kErrorText:
      return error_text(launches, p.get<int>(0), function == Builtin::kErrorName);
    case Builtin::kLimit: {
      const auto value = launches.limit(p.get<int>(1));
      return value ? store(memory, p[0], *value) : kUnsupportedLimit;
    }
    default:
      return launches.parameters(p[0], p.get<Dim3>(1), p.get<Dim3>(2), p.get<uint32_t>(3));
  }
}

}  // namespace

std::optional<uint64_t> call_device_runtime(Builtin function, const LaneMemory& memory,
                                            const Parameters& parameters, std::string& detail) {
  DeviceLaunches* launches = memory.block.shape.launches;
  if (needs_launches(function)) {
    if (launches != nullptr) return queue(function, *launches, memory, parameters);
    memory.warp.fault(FaultKind::kTrap, memory.lane, 0, 0);
    detail = "kernels cannot launch kernels here";
    return std::nullopt;
  }
  switch (function) {
    case Builtin::kMakeHandle:
      return store(memory, parameters[0], kHandle);
    case Builtin::kDeviceMalloc:
      return allocate(memory, parameters[0], parameters[1]);
    case Builtin::kDeviceFree:
      return release(memory, parameters[0], detail);
    case Builtin::kGetDevice:
    case Builtin::kCacheConfig:  // none preferred
      return store(memory, parameters[0], 0);
    case Builtin::kDeviceCount:
      return store(memory, parameters[0], 1);
    case Builtin::kRuntimeVersion:
      return store(memory, parameters[0], kRuntimeVersion);
    case Builtin::kLastError:
    case Builtin::kPeekAtLastError:
      return launches == nullptr ? kSuccess : launches->error(function == Builtin::kLastError);
    default:
      return kSuccess;
  }
}

}  // namespace sluice::exec::detail
