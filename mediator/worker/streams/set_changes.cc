// SPDX-License-Identifier: Apache-2.0
// Launches that stay where they are while their session's set of SMs changes (abi/stub.h, "keep");
// the rest of the engine is in streams/engine.cc.
#include <algorithm>

#include "mediator/base/check.h"
#include "mediator/worker/streams/engine.h"

namespace sluice::worker {

// How launches in flight would take a change of their SM set; sluiced reads it before a change.
uint32_t StreamEngine::how_kept() const {
  uint32_t kept = 0;
  bool grows = true;
  for (const auto& s : streams_.all)
    for (size_t i = s->ended; i < s->next; ++i)
      if (const Op& op = s->ops[i]; op.kind == OpKind::kLaunch && op.in_flight())
        if (driver_.stays_on_sms(*op.work)) return SLUICE_KEEPS_SMS;
  for (const auto& s : streams_.all) {
    for (size_t i = s->ended; i < s->next; ++i) {
      const Op& op = s->ops[i];
      if (!op.needs_grant() || !op.in_flight()) continue;
      if (op.flight.confinement != Confinement::kBlocks || !op.flight.grant.part ||
          op.flight.second.generation != 0)
        return 0;
      ++kept;
      grows &= i == 0 && s->queue.is_last(op.flight.item);
    }
  }
  if (kept == 0 || kept > limits_.most_kept) return 0;
  return grows ? SLUICE_KEEPS_SHRINK | SLUICE_KEEPS_GROW : SLUICE_KEEPS_SHRINK;
}

// sluiced has changed the SMs and would let older launches stay: those that run on SMs that were
// lost leave them, those that are alone in their stream go on on SMs that were won. What cannot be
// done so is recalled whole.
void StreamEngine::change_sms(uint64_t now_ns) {
  Grant to;
  if (!gate_.keeping(&to)) return;
  std::vector<EngineDriver::Running> running;
  std::vector<std::pair<Stream*, Op*>> ops;
  SmSet lost;
  for (auto& s : streams_.all) {
    collect(*s, now_ns);
    for (size_t i = s->ended; i < s->next; ++i) {
      Op& op = s->ops[i];
      if (!op.needs_grant() || !op.in_flight()) continue;
      if (op.flight.grant.generation >= to.generation) continue;
      if (op.flight.confinement != Confinement::kBlocks || !op.flight.grant.part ||
          op.flight.second.generation != 0)
        return gate_.call_back_whole(to.generation);
      const bool grows = !op.flight.grant.sms.contains_all(to.sms);
      if (grows && (i != 0 || !s->queue.is_last(op.flight.item)))
        return gate_.call_back_whole(to.generation);
      lost = lost | (op.flight.grant.sms - to.sms);
      running.push_back({s->id, op.work.get()});
      ops.push_back({s.get(), &op});
    }
  }
  if (pending_error_ != CUDA_SUCCESS || running.empty())
    return;  // what has ended has said that it has left
  if (running.size() > limits_.most_kept) return gate_.call_back_whole(to.generation);
  if (!lost.empty()) {
    bool left = false;
    const CUresult r = driver_.narrow(running, lost, &left);
    if (r == CUDA_ERROR_NOT_SUPPORTED) return gate_.call_back_whole(to.generation);
    if (r != CUDA_SUCCESS) {
      pending_error_ = r;
      return;
    }
    if (!left) return;
  }
  for (auto& [s, op] : ops) {
    if (!op->flight.grant.sms.contains_all(to.sms) && !grow(*s, *op, to, now_ns)) {
      if (pending_error_ == CUDA_SUCCESS) gate_.call_back_whole(to.generation);
      return;
    }
    op->flight.grant.sms = to.sms;
  }
  ++counters_.narrowed;
  gate_.kept(to.generation, now_ns);
}

bool StreamEngine::grow(Stream& s, Op& op, const Grant& to, uint64_t now_ns) {
  Grant entered;
  if (!gate_.enter(now_ns, &entered)) return false;
  CUresult r = entered.generation == to.generation ? driver_.grow(s.id, *op.work, entered, now_ns)
                                                   : CUDA_ERROR_NOT_SUPPORTED;
  if (r != CUDA_SUCCESS) {
    gate_.leave(now_ns, true, entered);
    if (r != CUDA_ERROR_NOT_SUPPORTED) pending_error_ = r;
    return false;
  }
  op.flight.second = entered;
  // In the stream there is now a wait for the second grid: the launch has ended when the stream is
  // past that.
  op.flight.item = s.queue.add();
  ++physical_;
  ++counters_.grown;
  mark_if_due(s, now_ns);
  return true;
}

}  // namespace sluice::worker
