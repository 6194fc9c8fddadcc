// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/session/replies.h"

#include "mediator/base/check.h"

namespace sluice::worker {

void Replies::send(uint64_t call_id, uint16_t opcode, int32_t status,
                   std::span<const std::byte> body) {
  SLUICE_CHECK(body.size() <= kMaxRecordBody);
  sluice_completion c{};
  c.opcode = opcode;
  c.call_id = call_id;
  c.status = status;
  std::lock_guard lock(mutex_);
  if (failure_.load(std::memory_order_relaxed)) return;
  if (backlog_.empty() && ring_.push(c, body)) {
    ring_.publish();
    return;
  }
  if (ring_.broken()) {
    failure_.store("the program broke the completion ring", std::memory_order_release);
    return;
  }
  backlog_bytes_ += sizeof c + body.size();
  if (backlog_bytes_ > kMaxBacklogBytes) {
    failure_.store("the program does not take its completions", std::memory_order_release);
    return;
  }
  backlog_.push_back({c, {body.begin(), body.end()}});
  waiting_.store(true, std::memory_order_relaxed);
  // The sleeper may not know that there is something to wait for: it polls the ring again.
  if (!armed_) armed_ = ring_.arm_space(record_bytes(backlog_.front().body.size()));
  if (!armed_) flush_locked();
}

bool Replies::flush_locked() {
  bool any = false;
  while (!backlog_.empty() && ring_.push(backlog_.front().header, backlog_.front().body)) {
    backlog_bytes_ -= sizeof(sluice_completion) + backlog_.front().body.size();
    backlog_.pop_front();
    any = true;
  }
  if (any) ring_.publish();
  if (ring_.broken())
    failure_.store("the program broke the completion ring", std::memory_order_release);
  if (backlog_.empty()) waiting_.store(false, std::memory_order_relaxed);
  return backlog_.empty();
}

void Replies::flush() {
  std::lock_guard lock(mutex_);
  flush_locked();
}

bool Replies::arm() {
  std::lock_guard lock(mutex_);
  while (!flush_locked() && !ring_.broken()) {
    if (armed_ || ring_.arm_space(record_bytes(backlog_.front().body.size()))) {
      armed_ = true;
      return true;
    }
  }
  return false;
}

void Replies::disarm() {
  std::lock_guard lock(mutex_);
  if (armed_) ring_.disarm_space();
  armed_ = false;
}

}  // namespace sluice::worker
