// SPDX-License-Identifier: Apache-2.0
// Replies: the completion ring of one slot, filled by all of the worker's threads. What does not
// fit waits in private memory, in order and bounded, because nothing here may ever wait for the
// guest.
//
// Owned by the session; any thread. The thread that waits on the slot's bell calls flush() then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "mediator/ring/ring.h"

namespace sluice::worker {

class Replies {
 public:
  // Completions of a program that does not take them. Enough for every call that its rings can
  // hold; a program further behind than that is hostile or dead.
  static constexpr size_t kMaxBacklogBytes = 4u << 20;

  explicit Replies(RingProducer ring) : ring_(std::move(ring)) {}

  // The answer to a call (call_id 0: an asynchronous error).
  void send(uint64_t call_id, uint16_t opcode, int32_t status,
            std::span<const std::byte> body = {});
  // Moves what waits into the ring.
  void flush();
  // Before sleeping on the bell: flushes; true: the bell will ring when there is room again.
  // After it, disarm().
  bool arm();
  void disarm();
  bool waiting() const { return waiting_.load(std::memory_order_relaxed); }
  // Why the session has to end, or null.
  const char* failure() const { return failure_.load(std::memory_order_acquire); }

 private:
  bool flush_locked();

  std::mutex mutex_;
  RingProducer ring_;
  struct Late {
    sluice_completion header;
    std::vector<std::byte> body;
  };
  std::deque<Late> backlog_;
  size_t backlog_bytes_ = 0;
  bool armed_ = false;
  std::atomic<bool> waiting_{false};
  std::atomic<const char*> failure_{nullptr};
};

}  // namespace sluice::worker
