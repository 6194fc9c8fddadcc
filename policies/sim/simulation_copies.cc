// SPDX-License-Identifier: Apache-2.0
// Copies between host and device: they have engines of their own, hold no SM, and no policy hears
// of them, as in sluiced. In their stream they are in order with its launches.
#include "policies/sim/simulation_impl.h"

namespace sluice::policy::sim {

// What stands first in the program's queue begins: a launch becomes its head, a copy is given to
// its engine.
void Simulation::next_in_stream(uint32_t i) {
  ProgramState& s = programs_[i];
  if (s.head.present || s.copying || s.queue.empty()) return;
  if (s.queue.front().copy_ns == 0) return make_head(i);
  const ProgramState::Queued& q = s.queue.front();
  const auto way = static_cast<uint32_t>(q.way);
  s.copying = true;
  s.copy_since_ns = now_ns_;
  engines_[way].add(w_.programs[i].vgpu, i, q.copy_ns);
  begin_copy(way);
}

void Simulation::begin_copy(uint32_t way) {
  const auto weight = [this](VgpuId v) { return static_cast<double>(vgpus_[v].share.weight); };
  if (const uint64_t ns = engines_[way].begin(weight)) push(now_ns_ + ns, EventKind::kCopied, way);
}

void Simulation::copied(uint32_t way) {
  const CopyEngine::Ended part = engines_[way].end();
  VgpuResult& v = out_.vgpus[part.vgpu];
  v.copied_ns[way] += part.ns;
  if (part.whole) {
    const uint32_t i = part.copy.program;
    ProgramState& s = programs_[i];
    v.copies_took_ns += now_ns_ - s.copy_since_ns;
    v.copies_alone_ns += s.queue.front().copy_ns;
    const bool run_ends = s.queue.front().last;
    s.queue.pop_front();
    s.copying = false;
    ++out_.programs[i].copies_done;
    if (run_ends) run_ended(i);
    next_in_stream(i);
    try_host(i);
  }
  begin_copy(way);
}

}  // namespace sluice::policy::sim
