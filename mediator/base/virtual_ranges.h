// SPDX-License-Identifier: Apache-2.0
// VirtualRanges: the bookkeeping of CUDA's virtual memory management (cuMemAddressReserve and what
// follows): ranges of addresses that are reserved, mappings of physical memory in them, and who may
// touch those. What is asked for is checked here in full: nothing overlaps, a mapping lies in one
// reservation and goes as a whole. `Memory` stands for physical memory, say a shared_ptr.
//
// Owned by whoever keeps a process's addresses (a session of sluice-worker, the software GPU); not
// thread-safe, the owner locks. Addresses and sizes are bytes and may be anything. It maps nothing
// itself. Rules: NVIDIA, CUDA Driver API, "Virtual Memory Management".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace sluice {

template <class Memory>
class VirtualRanges {
 public:
  struct Mapping {
    uint64_t base = 0, bytes = 0;
    Memory memory{};
    int access = 0;  // CUmemAccess_flags of the device; 0: mapped, but nobody may touch it
  };

  // False, and nothing changed: empty, wraps around, or overlaps another reservation.
  bool reserve(uint64_t base, uint64_t bytes) {
    if (bytes == 0 || base > UINT64_MAX - bytes) return false;
    const auto next = reservations_.lower_bound(base);
    if (next != reservations_.end() && next->first < base + bytes) return false;
    if (next != reservations_.begin()) {
      const auto& [before, length] = *std::prev(next);
      if (base - before < length) return false;
    }
    reservations_.emplace_hint(next, base, bytes);
    reserved_bytes_ += bytes;
    return true;
  }

  // Gives a reservation up: all of it, with nothing mapped in it. False: it is not that.
  bool unreserve(uint64_t base, uint64_t bytes) {
    const auto it = reservations_.find(base);
    if (it == reservations_.end() || it->second != bytes || !is_free(base, bytes)) return false;
    reservations_.erase(it);
    reserved_bytes_ -= bytes;
    return true;
  }

  // Whether the range lies in one reservation and nothing is mapped in it.
  bool can_map(uint64_t base, uint64_t bytes) const {
    const auto at = reservation_of(base);
    return bytes != 0 && at != reservations_.end() && bytes <= at->second - (base - at->first) &&
           is_free(base, bytes);
  }
  bool map(uint64_t base, uint64_t bytes, Memory memory) {
    if (!can_map(base, bytes)) return false;
    mappings_.emplace(base, Mapping{base, bytes, std::move(memory), 0});
    return true;
  }

  // Whether the range is made of whole mappings without gaps, be they in one reservation or in
  // several side by side.
  bool is_whole(uint64_t base, uint64_t bytes) const {
    uint64_t left = bytes;
    for (auto it = mappings_.find(base);
         it != mappings_.end() && it->first == base && left >= it->second.bytes; ++it) {
      left -= it->second.bytes;
      base += it->second.bytes;
      if (left == 0) return true;
    }
    return false;
  }
  // Whether the range is reserved, by one reservation or several side by side (as an H200's driver
  // takes it), and cuts no mapping. It may have gaps, or nothing in it at all.
  bool can_unmap(uint64_t base, uint64_t bytes) const {
    if (bytes == 0 || !is_reserved(base, bytes)) return false;
    const auto cut = [&](uint64_t border) {
      const Mapping* one = find(border);
      return one != nullptr && one->base != border;
    };
    return !cut(base) && !cut(base + bytes);
  }
  // Takes the mappings in the range out; nothing: can_unmap() says no.
  std::optional<std::vector<Mapping>> unmap(uint64_t base, uint64_t bytes) {
    if (!can_unmap(base, bytes)) return std::nullopt;
    std::vector<Mapping> out;
    const auto first = mappings_.lower_bound(base), last = mappings_.lower_bound(base + bytes);
    for (auto it = first; it != last; ++it) out.push_back(std::move(it->second));
    mappings_.erase(first, last);
    return out;
  }
  // What unmap() has taken out is there again, as it was.
  void put_back(std::vector<Mapping> mappings) {
    for (Mapping& one : mappings) {
      const uint64_t base = one.base;
      mappings_.insert_or_assign(base, std::move(one));
    }
  }
  bool set_access(uint64_t base, uint64_t bytes, int access) {
    if (!is_whole(base, bytes)) return false;
    set_access_within(base, bytes, access);
    return true;
  }
  // Of every mapping that begins in the range.
  void set_access_within(uint64_t base, uint64_t bytes, int access) {
    for (auto it = mappings_.lower_bound(base); it != mappings_.end() && it->first - base < bytes;
         ++it)
      it->second.access = access;
  }

  // The mapping in which the address lies, or null.
  const Mapping* find(uint64_t address) const {
    auto it = mappings_.upper_bound(address);
    if (it == mappings_.begin()) return nullptr;
    --it;
    return address - it->first < it->second.bytes ? &it->second : nullptr;
  }
  bool is_reserved(uint64_t address) const {
    return reservation_of(address) != reservations_.end();
  }
  // All of it, in one reservation or in several that lie side by side.
  bool is_reserved(uint64_t base, uint64_t bytes) const {
    for (auto at = reservation_of(base); at != reservations_.end();) {
      const uint64_t end = at->first + at->second;
      if (bytes <= end - base) return true;
      at = reservations_.find(end);
    }
    return false;
  }

  // Whether all of the range may be touched: mappings that lie side by side are as one. Zero bytes:
  // the address.
  bool contains(uint64_t address, uint64_t bytes) const {
    const Mapping* at = find(address);
    if (at == nullptr || at->access == 0) return false;
    if (bytes > UINT64_MAX - address) return false;
    const uint64_t end = address + bytes;
    auto it = mappings_.find(at->base);
    uint64_t reached = at->base + at->bytes;
    while (reached < end) {
      if (++it == mappings_.end() || it->first != reached || it->second.access == 0) return false;
      reached += it->second.bytes;
    }
    return true;
  }

  // Calls f(base, bytes, access) for what may be touched in the reservation of `address`: mappings
  // side by side with the same access count as one.
  template <class F>
  void for_each_run(uint64_t address, F&& f) const {
    const auto at = reservation_of(address);
    if (at == reservations_.end()) return;
    const uint64_t end = at->first + at->second;
    for (auto it = mappings_.lower_bound(at->first); it != mappings_.end() && it->first < end;) {
      const uint64_t base = it->first;
      const int access = it->second.access;
      uint64_t reached = base;
      while (it != mappings_.end() && it->first == reached && it->first < end &&
             it->second.access == access) {
        reached += it->second.bytes;
        ++it;
      }
      if (access != 0) f(base, reached - base, access);
    }
  }
  // Base and bytes of each reservation, and of the one in which the address lies ({0, 0}: none).
  const std::map<uint64_t, uint64_t>& reservations() const { return reservations_; }
  std::pair<uint64_t, uint64_t> reservation(uint64_t address) const {
    const auto at = reservation_of(address);
    return at == reservations_.end() ? std::pair<uint64_t, uint64_t>{0, 0}
                                     : std::pair<uint64_t, uint64_t>(*at);
  }

  size_t mapping_count() const { return mappings_.size(); }
  uint64_t reserved_bytes() const { return reserved_bytes_; }

 private:
  std::map<uint64_t, uint64_t>::const_iterator reservation_of(uint64_t address) const {
    auto it = reservations_.upper_bound(address);
    if (it == reservations_.begin()) return reservations_.end();
    --it;
    return address - it->first < it->second ? it : reservations_.end();
  }
  // No mapping begins in the range or reaches into it; it does not wrap around.
  bool is_free(uint64_t base, uint64_t bytes) const {
    const auto next = mappings_.lower_bound(base);
    if (next != mappings_.end() && next->first - base < bytes) return false;
    return find(base) == nullptr;
  }

  std::map<uint64_t, uint64_t> reservations_;  // base -> bytes
  std::map<uint64_t, Mapping> mappings_;
  uint64_t reserved_bytes_ = 0;
};

}  // namespace sluice
