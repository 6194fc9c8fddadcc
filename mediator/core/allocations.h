// SPDX-License-Identifier: Apache-2.0
// AllocationMap: which device addresses belong to a session: its allocations and the global
// variables of its modules. Under unified addressing any other address could be the worker's own
// memory, so nothing is copied or filled that is not found here.
//
// Owned by the session of a sluice-worker; not thread-safe (the session locks). Pure bookkeeping.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace sluice {

struct Allocation {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t owner = 0;          // the context's or module's handle: gone with it
  uint64_t charged_bytes = 0;  // of the session's lease; 0: a module's variable
};

class AllocationMap {
 public:
  // At once: each costs some hundred bytes of the host's memory here and in the driver, which
  // nothing charges, and one byte of device memory takes 512. Fewer: programs without an allocator
  // of their own run out of memory early.
  static constexpr size_t kMost = 1u << 20;

  // False, and nothing changed, if there are too many, or it is empty, wraps around, or overlaps
  // another one: then the driver or we are confused, and the caller gives the memory back. The very
  // same range with charge 0 may be added again (a variable looked up twice).
  bool add(const Allocation& allocation);

  // Takes out the allocation that starts at `guest_address`; variables cannot be taken out so.
  std::optional<Allocation> remove(uint64_t guest_address);
  // The allocation in which the address lies, or null.
  const Allocation* find(uint64_t guest_address) const;
  // Whether [address, address + bytes) lies in one allocation. Zero bytes: the address does.
  bool contains(uint64_t guest_address, uint64_t guest_bytes) const;

  // Takes out everything that belongs to `owner`.
  std::vector<Allocation> remove_owner(uint64_t owner);

  size_t size() const { return by_address_.size(); }
  uint64_t charged_bytes() const { return charged_; }

 private:
  std::map<uint64_t, Allocation> by_address_;
  uint64_t charged_ = 0;
};

// Bytes from the first to the last of `rows` rows; no value if that overflows or a row is wider
// than the pitch.
std::optional<uint64_t> rows_span(uint64_t width, uint64_t pitch, uint64_t rows);

}  // namespace sluice
