// SPDX-License-Identifier: Apache-2.0
// HeldMemory: the host's memory that a worker keeps for its guest's objects and for what is queued
// in its streams, by their numbers. A session has some of it free (kHeldFreeBytes); the rest is
// charged to its vGPU's host memory, in steps.
//
//   settled --more is held--> asked --refused--> refused --kHeldAgainNs--> asked again
//      ^                        |                   |  ^                       |    |
//      +--------granted---------+    less is held --+  +-------refused---------+    |
//      +----------------------------------------<-----------------------granted----+
//
// While it is refused, no object is made (CUDA_ERROR_OUT_OF_MEMORY), and kRefusedOperations are
// queued at most.
//
// Owned by the WorkerSession, used under its lock. Pure: the session charges and asks.
#pragma once

#include <cstdint>

#include "mediator/worker/limits.h"

namespace sluice::worker {

class HeldMemory {
 public:
  struct Counts {
    uint64_t objects = 0;      // that have a handle
    uint64_t allocations = 0;  // and variables, and mappings
    uint64_t textures = 0;
    uint64_t operations = 0;    // in streams
    uint64_t bodies_bytes = 0;  // parameters and bodies of what waits
  };
  // What they take beyond what is free, in whole steps.
  static uint64_t chargeable(const Counts& c) {
    const uint64_t held = c.objects * kObjectHostBytes + c.allocations * kAllocationHostBytes +
                          c.textures * kTextureHostBytes + c.operations * kOperationHostBytes +
                          c.bodies_bytes;
    if (held <= kHeldFreeBytes) return 0;
    return (held - kHeldFreeBytes + kHeldStepBytes - 1) / kHeldStepBytes * kHeldStepBytes;
  }

  enum class State : uint8_t { kSettled, kAsked, kRefused, kAskedAgain };
  State state = State::kSettled;
  uint64_t charged = 0;     // bytes
  uint64_t refused_ns = 0;  // when it was last

  bool refused() const { return state == State::kRefused || state == State::kAskedAgain; }
  bool asked() const { return state == State::kAsked || state == State::kAskedAgain; }
  // Whether it is time to ask for more than what is charged; then it counts as asked.
  bool ask(uint64_t now_ns) {
    if (asked() || (refused() && now_ns - refused_ns < kHeldAgainNs)) return false;
    state = refused() ? State::kAskedAgain : State::kAsked;
    return true;
  }
};

}  // namespace sluice::worker
