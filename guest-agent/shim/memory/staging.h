// SPDX-License-Identifier: Apache-2.0
// The session's staging memory: a small part of the shared region through which pageable memory,
// module texts and parameters travel. Handed out in pieces, taken back when the worker has used
// them.
//
// Owned by the process's session state; any thread. Waits for a piece only in acquire(), through
// the session, so that completions are taken meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "guest-agent/shim/session/worker_link.h"

namespace sluice::guest {

class Staging {
 public:
  explicit Staging(WorkerLink& link);

  // Copies of more than this go piece by piece, so that reading one overlaps with filling the next.
  // Of `total` bytes in all: so that there are several, each worth its record.
  size_t piece_bytes(size_t total = SIZE_MAX) const;
  size_t total_bytes() const { return blocks_.size() * kBlockBytes; }

  // A piece of at least `bytes` (at most total_bytes()), waiting for one if need be. Null: the
  // session has ended, or there is no staging memory.
  std::byte* acquire(size_t bytes);
  // The same without waiting; null: none is free now. For a thread that holds a piece
  // already: two of them would wait for each other's.
  std::byte* acquire_if_free(size_t bytes);
  // Not while holding the session's locks.
  void release(std::byte* piece, size_t bytes);

 private:
  static constexpr size_t kBlockBytes = 16 << 10;

  std::byte* try_acquire(size_t blocks);

  WorkerLink& link_;
  std::byte* base_ = nullptr;
  size_t piece_bytes_ = 0;
  std::mutex mutex_;
  std::vector<bool> blocks_;  // true: in use
};

// The process's, made with its session.
Staging& staging(WorkerLink& link);

}  // namespace sluice::guest
