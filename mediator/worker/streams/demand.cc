// SPDX-License-Identifier: Apache-2.0
// Demand: how many launches the GPU alone can bring about; the rest of the engine is in
// streams/engine.cc.
//
// A launch is stalled if the program has to do something first: an operation before it, in its
// stream or in one that it is ordered behind, is a host function or a wait for a value, and not
// complete. Only the others are reported to sluiced. Otherwise a program that withholds an answer
// would count as backlogged, and hold its share of the GPU idle.
#include <algorithm>
#include <limits>

#include "mediator/worker/streams/engine.h"

namespace sluice::worker {

namespace {
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

bool counts_as_demand(OpKind kind) { return kind == OpKind::kLaunch || kind == OpKind::kOpaque; }
bool needs_program(OpKind kind) { return kind == OpKind::kHostFunc || kind == OpKind::kValueWait; }
}  // namespace

void StreamEngine::demand_appended(Stream& s, const Op& op) {
  if (needs_program(op.kind)) {
    s.program_seqs.push_back(op.seq);
    ++program_ops_;
    demand_stale_ = true;
  }
  if (!counts_as_demand(op.kind)) return;
  s.launch_seqs.push_back(op.seq);
  ++launches_queued_;
  if (program_ops_ != 0) {
    demand_stale_ = true;
  } else if (!demand_stale_) {
    gate_.set_demand(launches_queued_);
  }
}

// `op` was the oldest of its stream.
void StreamEngine::demand_finished(Stream& s, const Op& op) {
  while (!s.waits.empty() && s.waits.front().first <= op.seq) s.waits.pop_front();
  demand_stale_ |= program_ops_ != 0;
  if (needs_program(op.kind)) {
    s.program_seqs.pop_front();
    --program_ops_;
  }
  if (!counts_as_demand(op.kind)) return;
  s.launch_seqs.pop_front();
  --launches_queued_;
  if (!demand_stale_) gate_.set_demand(launches_queued_);
}

// Per stream the seq of the first operation that is stalled; from there on all are. Each order that
// there is leads from an earlier operation to a later one, so passes over the streams come to an
// end.
std::map<const StreamEngine::Stream*, uint64_t> StreamEngine::first_stalled() const {
  std::map<const Stream*, uint64_t> first;
  for (const auto& s : streams_)
    first[s.get()] = s->program_seqs.empty() ? kNever : s->program_seqs.front();
  for (bool changed = true; changed;) {
    changed = false;
    // What a stream of the kind has to wait for in its context, by the rule of the legacy stream.
    std::map<std::pair<ContextId, StreamKind>, uint64_t> across;
    for (const auto& s : streams_) {
      if (s->kind == StreamKind::kNonBlocking) continue;
      const StreamKind other =
          s->kind == StreamKind::kLegacy ? StreamKind::kBlocking : StreamKind::kLegacy;
      auto [at, fresh] = across.try_emplace({s->context, other}, kNever);
      at->second = std::min(at->second, first[s.get()]);
    }
    for (const auto& s : streams_) {
      uint64_t bound = first[s.get()];
      if (auto it = across.find({s->context, s->kind}); it != across.end() && it->second < bound) {
        const auto next = std::lower_bound(s->ops.begin(), s->ops.end(), it->second,
                                           [](const Op& op, uint64_t seq) { return op.seq < seq; });
        if (next != s->ops.end()) bound = std::min(bound, next->seq);
      }
      for (const auto& [seq, record] : s->waits) {
        if (seq >= bound) break;
        if (record->complete) continue;
        const auto recorded_in = by_id_.find(record->stream);
        if (recorded_in != by_id_.end() && first[recorded_in->second] <= record->seq) bound = seq;
      }
      if (bound == first[s.get()]) continue;
      first[s.get()] = bound;
      changed = true;
    }
  }
  return first;
}

uint32_t StreamEngine::runnable() const {
  if (program_ops_ == 0) return launches_queued_;
  uint32_t count = 0;
  for (const auto& [s, stalled] : first_stalled()) {
    const auto& launches = s->launch_seqs;
    count += static_cast<uint32_t>(std::lower_bound(launches.begin(), launches.end(), stalled) -
                                   launches.begin());
  }
  return count;
}

void StreamEngine::update_demand() {
  if (!demand_stale_) return;
  demand_stale_ = false;
  gate_.set_demand(runnable());
}

}  // namespace sluice::worker
