// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/streams/demand.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sluice::worker {

namespace {
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

bool needs_program(OpKind kind) { return kind == OpKind::kHostFunc || kind == OpKind::kValueWait; }
}  // namespace

void Demand::appended(EngineStream& s, const Operation& op, uint64_t now_ns) {
  if (needs_program(op.kind)) {
    s.program_seqs.push_back(op.seq);
    ++program_ops_;
    stale_ = true;
  }
  if (!op.needs_grant()) return;
  s.launch_seqs.push_back(op.seq);
  ++launches_;
  if (program_ops_ != 0) {
    stale_ = true;
  } else if (!stale_) {
    gate_.set_demand(launches_, now_ns);
  }
}

void Demand::finished(EngineStream& s, const Operation& op, uint64_t now_ns) {
  while (!s.waits.empty() && s.waits.front().first <= op.seq) s.waits.pop_front();
  stale_ |= program_ops_ != 0;
  if (needs_program(op.kind)) {
    s.program_seqs.pop_front();
    --program_ops_;
  }
  if (!op.needs_grant()) return;
  s.launch_seqs.pop_front();
  --launches_;
  if (!stale_) gate_.set_demand(launches_, now_ns);
}

// Per stream the seq of the first operation that is stalled; from there on all are. Each order that
// there is leads from an earlier operation to a later one, so passes over the streams come to an
// end.
std::map<const EngineStream*, uint64_t> Demand::first_stalled(const EngineStreams& streams) {
  std::map<const EngineStream*, uint64_t> first;
  for (const auto& s : streams.all)
    first[s.get()] = s->program_seqs.empty() ? kNever : s->program_seqs.front();
  for (bool changed = true; changed;) {
    changed = false;
    // What a stream of the kind has to wait for in its context, by the rule of the legacy stream.
    std::map<std::pair<ContextId, StreamKind>, uint64_t> across;
    for (const auto& s : streams.all) {
      if (s->kind == StreamKind::kNonBlocking) continue;
      const StreamKind other =
          s->kind == StreamKind::kLegacy ? StreamKind::kBlocking : StreamKind::kLegacy;
      auto [at, fresh] = across.try_emplace({s->context, other}, kNever);
      at->second = std::min(at->second, first[s.get()]);
    }
    for (const auto& s : streams.all) {
      uint64_t bound = first[s.get()];
      if (auto it = across.find({s->context, s->kind}); it != across.end() && it->second < bound) {
        const auto next =
            std::lower_bound(s->ops.begin(), s->ops.end(), it->second,
                             [](const Operation& op, uint64_t seq) { return op.seq < seq; });
        if (next != s->ops.end()) bound = std::min(bound, next->seq);
      }
      for (const auto& [seq, record] : s->waits) {
        if (seq >= bound) break;
        if (record->complete) continue;
        const auto recorded_in = streams.by_id.find(record->stream);
        if (recorded_in != streams.by_id.end() && first[recorded_in->second] <= record->seq)
          bound = seq;
      }
      if (bound == first[s.get()]) continue;
      first[s.get()] = bound;
      changed = true;
    }
  }
  return first;
}

uint32_t Demand::runnable(const EngineStreams& streams) const {
  if (program_ops_ == 0) return launches_;
  uint32_t count = 0;
  for (const auto& [s, stalled] : first_stalled(streams)) {
    const auto& launches = s->launch_seqs;
    count += static_cast<uint32_t>(std::lower_bound(launches.begin(), launches.end(), stalled) -
                                   launches.begin());
  }
  return count;
}

void Demand::update(const EngineStreams& streams, uint64_t now_ns) {
  if (!stale_) return;
  stale_ = false;
  gate_.set_demand(runnable(streams), now_ns);
}

}  // namespace sluice::worker
