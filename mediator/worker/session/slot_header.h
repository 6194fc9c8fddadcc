// SPDX-License-Identifier: Apache-2.0
// SlotHeader: the words of a slot's header by which the worker speaks to its program without a
// record: whether the session has ended and why, whether the program is to stop submitting, and
// which kernels' clones are wanted (abi/channel.h, sluice_slot_header).
//
// Owned by the WorkerSession. end(): any thread; the rest under its lock. The program can overwrite
// all of it, so nothing is read back but to choose a place for a wanted clone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

#include "abi/channel.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/ring/fence.h"
#include "mediator/ring/wait.h"

namespace sluice::worker {

class SlotHeader {
 public:
  // `wake`: the eventfd that wakes the program.
  SlotHeader(sluice_slot_header* header, int wake) : header_(header), wake_(wake) {}

  // The session is over, because of this. The first call wins: false from then on.
  bool end(CUresult code, const std::string& reason) {
    if (ended_.exchange(true)) return false;
    std::memset(header_->reason, 0, sizeof header_->reason);
    std::memcpy(header_->reason, reason.data(),
                std::min(reason.size(), sizeof header_->reason - 1));
    __atomic_store_n(&header_->error, static_cast<int32_t>(code), __ATOMIC_RELAXED);
    __atomic_store_n(&header_->state, uint32_t{SLUICE_SLOT_ENDED}, __ATOMIC_RELEASE);
    signal_eventfd(wake_);
    return true;
  }

  // The program is to stop submitting work, or may go on.
  void hold(bool holds) {
    store_shared(header_->hold, uint32_t{holds}, std::memory_order_release);
    if (!holds) signal_eventfd(wake_);
  }

  // Requests the clones of this function from the program. Of two functions that share a place one
  // may never get clones; so every kTurn-th request replaces the one that is there.
  void want_clones(uint64_t function) {
    constexpr uint32_t kTurn = 8;
    uint64_t& place = header_->wanted_clones[function % SLUICE_WANTED_CLONES];
    const uint64_t there = load_shared(place);
    if (there != function && (there == 0 || ++wants_ % kTurn == 0)) store_shared(place, function);
  }

 private:
  sluice_slot_header* const header_;
  const int wake_;
  std::atomic<bool> ended_{false};
  uint32_t wants_ = 0;  // calls of want_clones() that found the place taken
};

}  // namespace sluice::worker
