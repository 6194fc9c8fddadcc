// SPDX-License-Identifier: Apache-2.0
// QueueBounds: how much a program may have queued in its streams, in operations and in bytes of
// parameters and kept bodies.
//
//   below the bound               records are taken
//   at the bound                  the decoder stops taking records until something has completed
//   at it, a host function waits  the decoder goes on, because the records behind may be the host
//                                 function's end. The program is asked to stop (it is held), and
//                                 let go at 7/8 of the bound
//   at the hard bound             the session ends
//
// While the vGPU has no host memory left (HeldMemory) the bound is lower, and what waits for a host
// function beyond it ends the session at once.
//
// Owned by the WorkerSession; under its lock, but for `bytes` and whether the decoder has stopped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mediator/worker/limits.h"

namespace sluice::worker {

class QueueBounds {
 public:
  struct Queued {
    size_t operations = 0;           // in streams
    bool waits_for_program = false;  // a host function is reached and has not run
    bool memory_refused = false;     // HeldMemory::refused()
  };

  QueueBounds(size_t operations, size_t hard_operations)
      : operations_(operations), hard_operations_(hard_operations) {}

  // Parameters of launches that are not done, bodies of calls that wait.
  std::atomic<uint64_t> bytes{0};

  bool full(const Queued& q) const { return reached(q, 1, 1); }

  // At the bound, while a host function waits: why the session has to end; empty: it goes on.
  std::string breach(const Queued& q) const {
    if (q.memory_refused)
      return "what waits for a host function takes more of the host's memory than the vGPU has "
             "left (vgpu.host_memory)";
    if (q.operations >= hard_operations_)
      return "more than " + std::to_string(hard_operations_) +
             " operations wait for a host function";
    if (bytes >= kMostParameterBytes)
      return "parameters that wait for a host function take more than " +
             std::to_string(kMostParameterBytes >> 20) + " MiB";
    return "";
  }

  // Whether the program is to be held from now on, if that has changed.
  std::optional<bool> follow_hold(const Queued& q) {
    if (!holds_) {
      if (!full(q) || !q.waits_for_program) return std::nullopt;
    } else if (q.operations != 0 && reached(q, 7, 8)) {
      return std::nullopt;
    }
    holds_ = !holds_;
    return holds_;
  }

  // The decoder takes no records until resume().
  void stop_decoder() { decoder_stopped_.store(true); }
  // True: it had stopped, and is to be woken.
  bool resume_decoder() { return decoder_stopped_.exchange(false); }

 private:
  bool reached(const Queued& q, uint32_t part, uint32_t of) const {
    const size_t most = q.memory_refused ? kRefusedOperations : operations_;
    return q.operations >= most / of * part || bytes >= kQueuedParameterBytes / of * part;
  }

  const size_t operations_, hard_operations_;
  bool holds_ = false;
  std::atomic<bool> decoder_stopped_{false};
};

// The body of a record that is not done at once. It counts among what the session has queued.
class KeptBody {
 public:
  KeptBody(QueueBounds& queued, std::span<const std::byte> body)
      : queued_(queued), bytes_(body.begin(), body.end()) {
    queued_.bytes += bytes_.size();
  }
  ~KeptBody() { queued_.bytes -= bytes_.size(); }
  KeptBody(const KeptBody&) = delete;
  KeptBody& operator=(const KeptBody&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  QueueBounds& queued_;
  const std::vector<std::byte> bytes_;
};

}  // namespace sluice::worker
