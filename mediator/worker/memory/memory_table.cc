// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/memory/memory_table.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "abi/channel.h"

namespace sluice::worker {

bool MemoryTable::remove_extent(uint64_t guest_offset, uint64_t guest_bytes) {
  const auto it = extents_.find(guest_offset);
  if (it == extents_.end() || it->second != guest_bytes) return false;
  extents_.erase(it);
  return true;
}

bool MemoryTable::owns_region(uint64_t guest_offset, uint64_t guest_bytes) const {
  auto it = extents_.upper_bound(guest_offset);
  if (it == extents_.begin()) return false;
  --it;
  const uint64_t into = guest_offset - it->first;
  return into < it->second && guest_bytes <= it->second - into;
}

bool MemoryTable::owns_range(uint64_t guest_address, uint64_t guest_bytes) const {
  if (allocations.contains(guest_address, guest_bytes) ||
      mappings.contains(guest_address, guest_bytes)) {
    return true;
  }
  return guest_address >= SLUICE_WINDOW_ADDRESS &&
         owns_region(guest_address - SLUICE_WINDOW_ADDRESS, guest_bytes);
}

uint64_t MemoryTable::bytes_behind(std::span<const std::byte> guest_params) const {
  constexpr uint64_t kLeastAddress = 1u << 16;  // most words are no addresses
  uint64_t bytes = 0;
  for (size_t i = 0; i < std::min(guest_params.size() / 8, kParamWords); ++i) {
    uint64_t word;
    std::memcpy(&word, &guest_params[8 * i], sizeof word);
    if (word < kLeastAddress) continue;
    if (const auto* a = allocations.find(word))
      bytes += a->bytes;
    else if (const auto* m = mappings.find(word))
      bytes += m->bytes;
  }
  return bytes;
}

bool MemoryTable::owns_rows(uint64_t guest_address, uint64_t width, uint64_t pitch,
                            uint64_t rows) const {
  const auto span = rows_span(width, pitch, rows);
  return span && owns_range(guest_address, *span);
}

}  // namespace sluice::worker
