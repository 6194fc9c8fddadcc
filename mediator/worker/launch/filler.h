// SPDX-License-Identifier: Apache-2.0
// Filler: blocks of our own that keep others out of the gaps of a chain, where turns are priorities
// (docs/decisions/0011-turns.md).
//
// Between two dependent kernels the GPU is free for a microsecond or two. Blocks of a lower level
// begin there, and the next kernel waits until they end: half a block of the others at each gap,
// tens of microseconds. So while a chain is in flight above them, short blocks that do nothing are
// queued one priority below the chain's own and above the others': they take the SMs in the gaps,
// and give them back within some 2 us.
//
//   state    event                                                         next
//   kIdle    a launch whose grant says so (SLUICE_GRANT_FILL) went to a    kFills
//            lane above its stream's own, and kLeastChain launches are
//            queued
//   kFills   less than two are queued, or the gate is closed, or a launch  kIdle
//            of the context went to its stream's own lane: the blocks that
//            have not begun end at once
//   any      the driver refuses something                                  kNever
//
// The stop word is where kernels of the guest can write. One that keeps it from being seen has the
// grids that are queued run to their ends after the turn: kDepth * kWaves blocks of kBlockNs in
// each place on an SM, 0.2 ms, which nobody is charged for. Nothing else rests on what it writes.
//
// Owned by CudaStreams, used under the session's lock. Follows the context whose launch came last.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "abi/stub.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/objects.h"

namespace sluice::worker {

class Filler {
 public:
  static constexpr uint32_t kLeastChain = 3;  // fewer kernels have no gaps worth it
  static constexpr uint32_t kDepth = 2;       // grids in the driver's queue
  static constexpr uint32_t kWaves = 50;      // blocks that follow one another in a grid
  static constexpr uint32_t kBlockNs = 2000;

  explicit Filler(const gpu::DriverApi& api) : api_(api) {}

  // Makes what it needs in `context`: the first chain is not to wait until its kernel has been
  // compiled (20 ms on an H200).
  void prepare(ContextObject& context);
  // A launch of `context` has gone to a lane of this priority, above its stream's own.
  void launched_above(ContextObject& context, int priority);
  // One of `context` has gone to its stream's own lane: the chain, if it was one, is over above.
  void launched_below(const ContextObject& context);
  // After each poll of the engine. `queued`: launches that are not done; `open`: the gate is.
  void follow(uint32_t queued, bool open);
  // The context goes, and all that was made in it.
  void forget(const ContextObject& context);

  bool follows() const { return context_ != nullptr; }  // or follow() does nothing
  bool fills() const { return state_ == State::kFills; }
  uint64_t grids() const { return grids_; }

 private:
  enum class State : uint8_t { kIdle, kFills, kNever };
  // One for each context.
  struct Place {
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    uint32_t* stop = nullptr;         // pinned: the newest fill that is over
    CUdeviceptr stop_address = 0;     // the same, for kernels
    CUdeviceptr seen = 0;             // what a block has read there, in device memory
    uint32_t cycles = 0;              // of a block
    uint32_t threads = 0;             // of a block
    uint32_t blocks = 0;              // of a grid
    std::map<int, CUstream> streams;  // by priority
    std::array<CUevent, kDepth> ended{};
    std::array<bool, kDepth> queued{};
  };
  bool make(ContextObject& context, Place& p);
  bool is_ready(ContextObject& context);
  void give_up();
  bool size_blocks(const ContextObject& c, Place& p) const;
  bool queue(Place& p);
  void stop();

  const gpu::DriverApi& api_;
  State state_ = State::kIdle;
  std::map<ContextId, Place> places_;
  ContextObject* context_ = nullptr;  // of the newest launch above
  int priority_ = 0;                  // of its lane
  uint32_t fill_ = 0;                 // the number of the present one, or of the last
  uint64_t grids_ = 0;
};

}  // namespace sluice::worker
