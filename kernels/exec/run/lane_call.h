// SPDX-License-Identifier: Apache-2.0
// What a function that the driver provides sees of the lane that calls it: its memory, and the
// parameters of the call. Internal to kernels/exec; one thread at a time.
#pragma once

#include <cstring>
#include <string>

#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp_state.h"

namespace sluice::exec::detail {

// By generic addresses.
struct LaneMemory {
  static constexpr size_t kMaxString = 4096;

  WarpState& warp;
  const BlockState& block;
  uint32_t lane;

  bool read(uint64_t address, void* to, size_t bytes) const {
    const uint8_t* from = find(address, bytes, false);
    if (from != nullptr) std::memcpy(to, from, bytes);
    return from != nullptr;
  }
  bool write(uint64_t address, const void* from, size_t bytes) const {
    uint8_t* to = find(address, bytes, true);
    if (to != nullptr) std::memcpy(to, from, bytes);
    return to != nullptr;
  }
  // False: not readable before its end or the limit.
  bool read_string(uint64_t address, std::string& text) const {
    for (size_t k = 0; k < kMaxString; ++k) {
      char c;
      if (!read(address + k, &c, 1)) return false;
      if (c == '\0') return true;
      text += c;
    }
    return true;
  }

 private:
  uint8_t* find(uint64_t address, size_t bytes, bool write) const {
    const uint64_t window = address & ~(kWindowBytes - 1), inside = address & (kWindowBytes - 1);
    const auto within = [&](uint8_t* base, uint64_t size) {
      return bytes <= size && inside <= size - bytes ? base + inside : nullptr;
    };
    if (window == kLocalWindow)
      return within(warp.local + size_t{lane} * block.local_bytes, block.local_bytes);
    if (window == kSharedWindow) return within(block.shared, block.shared_bytes);
    if (window == kParamWindow)
      return write ? nullptr : within(const_cast<uint8_t*>(block.params), block.param_bytes);
    const MemoryRange range = block.map->reach(address, bytes);
    return range.bytes == 0 || (write && !range.writable) ? nullptr
                                                          : reinterpret_cast<uint8_t*>(address);
  }
};

// They lie in the lane's local memory.
struct Parameters {
  uint8_t* local;
  const uint32_t* offsets;

  template <class T>
  T get(uint32_t k) const {
    T v;
    std::memcpy(&v, local + offsets[k], sizeof v);
    return v;
  }
  uint64_t operator[](uint32_t k) const { return get<uint64_t>(k); }
};

}  // namespace sluice::exec::detail
