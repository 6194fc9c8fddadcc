// SPDX-License-Identifier: Apache-2.0
// The engine's waits: for streams, contexts and events, and for host functions that the program
// runs. The rest of the engine is in streams/engine.cc.
#include <algorithm>

#include "mediator/worker/streams/engine.h"

namespace sluice::worker {

void StreamEngine::notify_stream(StreamId stream, uint64_t token, uint64_t now_ns) {
  if (error_ != CUDA_SUCCESS) return driver_.complete(token, error_);
  Stream& s = at(stream);
  append(s, OpKind::kNotify, nullptr, token, now_ns);
  settle(now_ns);
}

void StreamEngine::notify_context(ContextId context, uint64_t token, uint64_t now_ns) {
  if (error_ != CUDA_SUCCESS) return driver_.complete(token, error_);
  auto group = std::make_shared<NotifyGroup>();
  group->remaining = 1;  // ours, so that it cannot complete before all are in
  for (auto& s : streams_.all) {
    if (s->context != context || s->ops.empty()) continue;
    Op& op = append(*s, OpKind::kNotify, nullptr, token, now_ns);
    op.group = group;
    ++group->remaining;
  }
  if (--group->remaining == 0) return driver_.complete(token, CUDA_SUCCESS);
  settle(now_ns);
}

void StreamEngine::notify_record(const std::shared_ptr<EventRecord>& record, uint64_t token) {
  if (error_ != CUDA_SUCCESS) return driver_.complete(token, error_);
  if (!record || record->complete) return driver_.complete(token, CUDA_SUCCESS);
  record->waiting.push_back(token);
}

// Whether the stream's work is done when the driver's queue of it has come to its end.
bool StreamEngine::ends_with_queue(const Stream& s) const {
  return !s.ops.empty() && s.flow == Flow::kFlowing && s.next == s.ops.size() &&
         s.launches_issued == 0 && clear_across(s, next_seq_) &&
         std::none_of(s.ops.begin(), s.ops.end(),
                      [](const Op& op) { return op.state == State::kFailed; });
}

bool StreamEngine::write_end_word(StreamId stream, uint64_t address, uint32_t value,
                                  uint64_t now_ns) {
  if (error_ != CUDA_SUCCESS) return false;
  Stream& s = at(stream);
  if (!ends_with_queue(s)) return false;
  mark_if_due(s, now_ns, true);
  return pending_error_ == CUDA_SUCCESS && driver_.write_end_word(stream, address, value);
}

bool StreamEngine::write_end_word_of_context(ContextId context, uint64_t address, uint32_t value,
                                             uint64_t now_ns) {
  const Stream* busy = nullptr;
  for (const auto& s : streams_.all) {
    if (s->context != context || s->ops.empty()) continue;
    if (busy != nullptr || s->removed) return false;
    busy = s.get();
  }
  return busy != nullptr && write_end_word(busy->id, address, value, now_ns);
}

bool StreamEngine::idle(StreamId stream) const {
  const Stream& s = *streams_.by_id.at(stream);
  return s.ops.empty() && clear_across(s, next_seq_);
}

bool StreamEngine::host_func_done(uint64_t token, uint64_t now_ns) {
  for (auto& s : streams_.all) {
    if (s->ops.empty()) continue;
    Op& op = s->ops.front();
    if (op.state != State::kReached || op.token != token) continue;
    --host_funcs_waiting_;
    op.token = 0;  // answered when it was reached
    finish(*s, CUDA_SUCCESS, now_ns);
    settle(now_ns);
    return true;
  }
  return false;
}

}  // namespace sluice::worker
