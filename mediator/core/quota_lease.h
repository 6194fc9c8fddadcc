// QuotaLease: the device memory that a session may use, leased from its vGPU in chunks, so that an
// allocation seldom has to ask sluiced and a vGPU's limit holds over all its processes.
//
// Owned by the session of a sluice-worker; not thread-safe (the session locks). Pure: it says what
// to ask for and what to give back; messages are the caller's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mediator/base/check.h"

namespace sluice {

class QuotaLease {
 public:
  // One request to sluiced leases at least so much. Larger: processes of one vGPU hold quota that
  // they do not use. Smaller: more messages.
  static constexpr uint64_t kChunkBytes = 64ull << 20;
  // Allocations are charged in such units, the driver's own smallest one.
  static constexpr uint64_t kUnitBytes = 512;

  // What an allocation of so many bytes is charged; 0 if it overflows.
  static uint64_t charge_for(uint64_t guest_bytes) {
    if (guest_bytes > ~uint64_t{0} - kUnitBytes) return 0;
    return (guest_bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  }

  // True: charged. False: `lacking(bytes)` more has to be leased first.
  bool charge(uint64_t bytes) {
    if (bytes > leased_ - used_) return false;
    used_ += bytes;
    return true;
  }
  uint64_t lacking(uint64_t bytes) const {
    const uint64_t room = leased_ - used_;
    return bytes > room ? bytes - room : 0;
  }
  // What to ask for first when `lacking` bytes are; if that is refused, ask for just `lacking`.
  static uint64_t request_for(uint64_t lacking) {
    const uint64_t rest = lacking % kChunkBytes;
    const uint64_t fill = rest == 0 ? 0 : kChunkBytes - rest;
    return lacking > ~uint64_t{0} - fill ? lacking : lacking + fill;
  }
  void leased(uint64_t bytes) { leased_ += bytes; }

  // Gives `bytes` up; returns how much of the lease should go back to sluiced now. One unused chunk
  // is kept, so that a program that frees and allocates in turn does not ask each time.
  uint64_t release(uint64_t bytes) {
    SLUICE_CHECK(bytes <= used_);
    used_ -= bytes;
    const uint64_t unused = leased_ - used_;
    if (unused <= kChunkBytes) return 0;
    const uint64_t back = unused - kChunkBytes;
    leased_ -= back;
    return back;
  }

  uint64_t used_bytes() const { return used_; }
  uint64_t leased_bytes() const { return leased_; }

 private:
  uint64_t leased_ = 0;
  uint64_t used_ = 0;
};

}  // namespace sluice
