// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/memory/pinned.h"

#include <atomic>
#include <optional>

namespace sluice::guest {

namespace {
std::atomic<uint32_t> given_later{0};  // extents that are not yet free
}

PinnedMemory& pinned_memory() {
  static auto* memory = new PinnedMemory;
  return *memory;
}

CUresult PinnedMemory::take_extents(WorkerLink& link, uint64_t context, uint64_t bytes,
                                    sluice_bulk* bulk) {
  sluice_extent body{};
  body.bytes = bytes;
  Pending pending;
  CUresult r = link.call(SLUICE_CALL_EXTENT_ALLOC, context, body, pending);
  if (r == CUDA_ERROR_OUT_OF_MEMORY && given_later != 0) {
    link.wait_until([] { return given_later == 0; });
    r = link.call(SLUICE_CALL_EXTENT_ALLOC, context, body, pending);
  }
  if (r != CUDA_SUCCESS) return r;
  if (!pending.read(*bulk) || bulk->bytes < bytes || bulk->offset > link.channel().region_bytes() ||
      bulk->bytes > link.channel().region_bytes() - bulk->offset)
    return CUDA_ERROR_UNKNOWN;
  return CUDA_SUCCESS;
}

CUresult PinnedMemory::give_extents(WorkerLink& link, uint64_t context, const sluice_bulk& bulk) {
  return link.call(SLUICE_CALL_EXTENT_FREE, context, bulk);
}

void PinnedMemory::give_extents_later(WorkerLink& link, uint64_t context, const sluice_bulk& bulk) {
  ++given_later;
  (void)link.start_detached(SLUICE_CALL_EXTENT_FREE, context, bulk,
                            [](uint64_t, CUresult) { --given_later; });
}

CUresult PinnedMemory::allocate(WorkerLink& link, uint64_t context, size_t bytes, void** address) {
  if (bytes > SLUICE_WINDOW_BYTES) return CUDA_ERROR_OUT_OF_MEMORY;
  sluice_bulk bulk{};
  if (bytes >= kOwnExtents) {
    const CUresult r = take_extents(link, context, bytes, &bulk);
    if (r != CUDA_SUCCESS) return r;
    *address = link.channel().region() + bulk.offset;
    return CUDA_SUCCESS;
  }
  const uint64_t size = (bytes + kAlign - 1) / kAlign * kAlign;
  std::lock_guard lock(mutex_);
  for (int round = 0; round < 2; ++round) {
    for (auto& [offset, arena] : arenas_) {
      for (auto piece = arena.free.begin(); piece != arena.free.end(); ++piece) {
        if (piece->second < size) continue;
        const uint64_t at = piece->first, left = piece->second - size;
        arena.free.erase(piece);
        if (left != 0) arena.free[at + size] = left;
        ++arena.used;
        *address = link.channel().region() + at;
        return CUDA_SUCCESS;
      }
    }
    const CUresult r = take_extents(link, context, SLUICE_EXTENT_BYTES, &bulk);
    if (r != CUDA_SUCCESS) return r;
    Arena& arena = arenas_[bulk.offset];
    arena.bytes = bulk.bytes;
    arena.free[bulk.offset] = bulk.bytes;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult PinnedMemory::release(WorkerLink& link, uint64_t context, void* address, size_t bytes) {
  const uint64_t at = link.offset_of(address);
  if (bytes >= kOwnExtents) {
    const uint64_t whole =
        (bytes + SLUICE_EXTENT_BYTES - 1) / SLUICE_EXTENT_BYTES * SLUICE_EXTENT_BYTES;
    return give_extents(link, context, {at, whole});
  }
  // Part of an extent: the worker cannot tell when it is free, so everything queued must be done,
  // as with CUDA's own cuMemFreeHost.
  if (context != 0) {
    sluice_synchronize body{};
    body.what = SLUICE_SYNC_CONTEXT;
    link.defer(link.call(SLUICE_CALL_SYNCHRONIZE, context, body));
  }
  const uint64_t size = (bytes + kAlign - 1) / kAlign * kAlign;
  std::optional<sluice_bulk> empty;
  {
    std::lock_guard lock(mutex_);
    auto it = arenas_.upper_bound(at);
    if (it == arenas_.begin()) return CUDA_ERROR_INVALID_VALUE;
    --it;
    Arena& arena = it->second;
    auto piece = arena.free.emplace(at, size).first;
    if (auto next = std::next(piece);
        next != arena.free.end() && piece->first + piece->second == next->first) {
      piece->second += next->second;
      arena.free.erase(next);
    }
    if (piece != arena.free.begin()) {
      auto before = std::prev(piece);
      if (before->first + before->second == piece->first) {
        before->second += piece->second;
        arena.free.erase(piece);
      }
    }
    if (--arena.used == 0 && arenas_.size() > 1) {  // one stays, for the next small request
      empty = sluice_bulk{it->first, arena.bytes};
      arenas_.erase(it);
    }
  }
  return empty ? give_extents(link, context, *empty) : CUDA_SUCCESS;
}

}  // namespace sluice::guest
