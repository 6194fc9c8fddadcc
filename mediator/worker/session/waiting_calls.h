// SPDX-License-Identifier: Apache-2.0
// WaitingCalls: calls whose answer waits for a stream, by the token that the stream engine
// completes. A host function has two ends: its stream reaches it (the call is answered), and the
// program has run it; in between it is found by the id of its call.
//
// What the worker itself does behind a stream's work (memory that is freed in stream order) waits
// here, too, and answers no call: the stream's own bound is its bound.
//
// Owned by the WorkerSession, used under its lock. The guest fills it, so its owner bounds calls().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "mediator/gpu/driver_api.h"

namespace sluice::worker {

class WaitingCalls {
 public:
  using Then = std::function<void(CUresult)>;

  // The token whose completion calls `then`, which answers a call.
  uint64_t add(Then then) {
    ++calls_;
    return add({std::move(then), true});
  }
  // The same of one that answers none.
  uint64_t add_own(Then then) { return add({std::move(then), false}); }
  // Calls what waits for the token. Nothing does when a host function was reached and then failed.
  void complete(uint64_t token, CUresult status) {
    const auto it = waiting_.find(token);
    if (it == waiting_.end()) return;
    const Entry entry = std::move(it->second);
    waiting_.erase(it);
    if (entry.answers) --calls_;
    entry.then(status);
  }

  // False: the id is in use.
  bool add_host_function(uint64_t guest_call_id, uint64_t token) {
    return host_functions_.emplace(guest_call_id, token).second;
  }
  bool has_host_function(uint64_t guest_call_id) const {
    return host_functions_.count(guest_call_id) != 0;
  }
  std::optional<uint64_t> host_function(uint64_t guest_call_id) const {
    const auto it = host_functions_.find(guest_call_id);
    if (it == host_functions_.end()) return std::nullopt;
    return it->second;
  }
  void remove_host_function(uint64_t guest_call_id) { host_functions_.erase(guest_call_id); }

  bool empty() const { return waiting_.empty(); }
  size_t calls() const { return calls_; }
  // Grows with each call that waits: a sign that something is going on.
  uint64_t next_token() const { return next_token_; }

 private:
  struct Entry {
    Then then;
    bool answers;
  };
  uint64_t add(Entry entry) {
    const uint64_t token = next_token_++;
    waiting_.emplace(token, std::move(entry));
    return token;
  }

  std::unordered_map<uint64_t, Entry> waiting_;
  size_t calls_ = 0;                                       // of waiting_
  std::unordered_map<uint64_t, uint64_t> host_functions_;  // call id -> token
  uint64_t next_token_ = 1;
};

}  // namespace sluice::worker
