// SPDX-License-Identifier: Apache-2.0
// QuotaLease: the device memory that a session may use, leased from its vGPU in chunks, so that few
// allocations have to ask sluiced and a vGPU's limit holds over all its processes.
//
// Owned by the session of a sluice-worker; not thread-safe (the session locks). Pure: it says what
// to ask for and what to give back; messages are the caller's. The same for memory of the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mediator/base/check.h"

namespace sluice {

// What memory is charged for.
enum class ChargeKind : uint32_t { kAllocations, kModules, kLocalMemory, kLimits, kContexts };
inline constexpr uint32_t kChargeKinds = 5;
inline constexpr const char* kChargeKindNames[kChargeKinds] = {
    "allocations", "modules", "local memory", "limits", "contexts"};

class QuotaLease {
 public:
  // One request to sluiced leases at least so much. Larger: processes of one vGPU hold quota that
  // they do not use. Smaller: more messages.
  static constexpr uint64_t kChunkBytes = 64ull << 20;
  // Allocations are charged in such units, the driver's own smallest one.
  static constexpr uint64_t kUnitBytes = 512;

  // In chunks that suit a limit of this many bytes: processes of one vGPU share even a small one.
  static uint64_t chunk_for(uint64_t limit_bytes) {
    constexpr uint64_t kLeast = 1ull << 20, kChunksOfALimit = 64;
    return std::clamp(limit_bytes / kChunksOfALimit / kLeast * kLeast, kLeast, kChunkBytes);
  }
  explicit QuotaLease(uint64_t chunk_bytes = kChunkBytes) : chunk_(chunk_bytes) {}

  // What an allocation of this many bytes is charged; 0 if it overflows.
  static uint64_t charge_for(uint64_t guest_bytes) {
    if (guest_bytes > ~uint64_t{0} - kUnitBytes) return 0;
    return (guest_bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  }

  // True: charged. False: `lacking(bytes)` more has to be leased first.
  bool charge(uint64_t bytes, ChargeKind kind = ChargeKind::kAllocations) {
    if (bytes > leased_ - used_) return false;
    used_ += bytes;
    of_kind_[static_cast<uint32_t>(kind)] += bytes;
    show(kind);
    return true;
  }
  uint64_t lacking(uint64_t bytes) const {
    const uint64_t room = leased_ - used_;
    return bytes > room ? bytes - room : 0;
  }
  // What to ask for first when `lacking` bytes are; if that is refused, ask for just `lacking`.
  uint64_t request_for(uint64_t lacking) const {
    const uint64_t rest = lacking % chunk_;
    const uint64_t fill = rest == 0 ? 0 : chunk_ - rest;
    return lacking > ~uint64_t{0} - fill ? lacking : lacking + fill;
  }
  void leased(uint64_t bytes) { leased_ += bytes; }
  // From now on what is charged of each kind stands there, kChargeKinds numbers, for others to
  // read.
  void show_in(uint64_t* kinds) { shown_ = kinds; }

  // Gives `bytes` up; returns how much of the lease should go back to sluiced now. Beyond a chunk
  // that is unused all but half of one does: a program that frees and allocates in turn does not
  // ask each time, and many small frees are few messages.
  uint64_t release(uint64_t bytes, ChargeKind kind = ChargeKind::kAllocations) {
    uint64_t& of_kind = of_kind_[static_cast<uint32_t>(kind)];
    SLUICE_CHECK(bytes <= used_ && bytes <= of_kind);
    used_ -= bytes;
    of_kind -= bytes;
    show(kind);
    const uint64_t unused = leased_ - used_;
    if (unused <= chunk_) return 0;
    const uint64_t back = unused - chunk_ / 2;
    leased_ -= back;
    return back;
  }

  // Gives `bytes` up, and their lease with them: somebody else is charged for them now.
  void hand_over(uint64_t bytes) {
    uint64_t& of_kind = of_kind_[static_cast<uint32_t>(ChargeKind::kAllocations)];
    SLUICE_CHECK(bytes <= used_ && bytes <= of_kind);
    used_ -= bytes;
    of_kind -= bytes;
    leased_ -= bytes;
    show(ChargeKind::kAllocations);
  }

  uint64_t used_bytes() const { return used_; }
  uint64_t used_bytes(ChargeKind kind) const { return of_kind_[static_cast<uint32_t>(kind)]; }
  uint64_t leased_bytes() const { return leased_; }

 private:
  void show(ChargeKind kind) {
    if (shown_)
      __atomic_store_n(&shown_[static_cast<uint32_t>(kind)], used_bytes(kind), __ATOMIC_RELAXED);
  }

  uint64_t chunk_;
  uint64_t* shown_ = nullptr;
  uint64_t of_kind_[kChargeKinds] = {};
  uint64_t leased_ = 0;
  uint64_t used_ = 0;
};

}  // namespace sluice
