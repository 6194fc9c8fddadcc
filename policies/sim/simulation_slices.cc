// SPDX-License-Identifier: Apache-2.0
// Proportional preemptors: hardware time slices.
#include "policies/sim/simulation_impl.h"

namespace sluice::policy::sim {

// Round robin of time slices over the vGPUs that have something resident, as the hardware's runlist
// does it; a switch between two contexts costs switch_ns. A vGPU without work is passed over.
bool Simulation::resident(VgpuId v) const {
  const VgpuState& g = vgpus_[v];
  if (g.heads.empty()) return false;
  if (!g.slice_set || g.slice_ns > 0) return true;
  // Gated: only what has begun goes on.
  return std::any_of(g.heads.begin(), g.heads.end(),
                     [&](uint32_t p) { return programs_[p].head.started; });
}

uint64_t Simulation::slice_of(VgpuId v) const {
  const Machine& m = w_.config.machine;
  const uint64_t slice = vgpus_[v].slice_set ? vgpus_[v].slice_ns : m.slice_floor_ns;
  return std::clamp(slice, m.slice_floor_ns, std::max(m.slice_floor_ns, m.slice_ceiling_ns));
}

void Simulation::set_slice(const Action& a) {
  if (a.vgpu >= vgpus_.size()) return violate("a slice for a vGPU that is not there");
  VgpuState& g = vgpus_[a.vgpu];
  g.slice_ns = a.value;
  g.slice_set = true;
  reassign(a.vgpu);
  // It takes effect with the next round; but a vGPU that was alone, or gated, is read now.
  if (slice_.current == kNoVgpu || !resident(slice_.current))
    rotate();
  else if (slice_.current != a.vgpu)
    slice_over();
}

// The current vGPU has nothing more to run: the next, or nobody.
void Simulation::rotate() {
  const VgpuId n = static_cast<VgpuId>(vgpus_.size());
  const VgpuId from = slice_.current == kNoVgpu ? n - 1 : slice_.current;
  VgpuId next = kNoVgpu;
  for (VgpuId i = 1; i <= n && next == kNoVgpu; ++i)
    if (resident((from + i) % n)) next = (from + i) % n;
  if (next == kNoVgpu || next == slice_.current) {
    ++slice_.version;  // whoever is there stays, without a limit
    if (slice_.current == kNoVgpu || next == slice_.current || vgpus_[slice_.current].heads.empty())
      return;
    // Gated, and nothing of it is left.
    report_usage();
    drop_hold(vgpus_[slice_.current].holds.front());
    account_.set_holding(slice_.current, false, now_ns_);
    reassign(slice_.current);
    slice_.current = kNoVgpu;
    return;
  }
  if (slice_.current != kNoVgpu && !vgpus_[slice_.current].holds.empty()) {
    const uint32_t id = vgpus_[slice_.current].holds.front();
    const VgpuId v = slice_.current;
    report_usage();  // who holds nothing is not read, and a long kernel has no event of its
                     // own in its turn
    drop_hold(id);
    account_.set_holding(v, false, now_ns_);
    if (!vgpus_[v].heads.empty()) {
      ++out_.evictions;
      ++out_.vgpus[v].evictions;
    }
    reassign(v);
  }
  const bool first = slice_.current == kNoVgpu;
  slice_.current = next;
  const uint64_t cost = first ? w_.gpu.start_ns : w_.gpu.switch_ns;
  start_hold(next, kNone, 0, static_cast<uint16_t>(w_.gpu.sm_count), cost);
  push(now_ns_ + cost + slice_of(next), EventKind::kSlice, 0, ++slice_.version);
}

// The slice is over, or somebody has come: go on, or to the next.
void Simulation::slice_over() {
  bool others = false;
  for (VgpuId v = 0; v < vgpus_.size() && !others; ++v) others = v != slice_.current && resident(v);
  if (!others) {
    ++slice_.version;
    return;
  }
  const Hold& h = held_.holds[vgpus_[slice_.current].holds.front()];
  const uint64_t end_ns = h.since_ns + (h.state == HoldState::kStarting ? w_.gpu.switch_ns : 0) +
                          slice_of(slice_.current);
  if (now_ns_ < end_ns) return push(end_ns, EventKind::kSlice, 0, ++slice_.version);
  rotate();
}

}  // namespace sluice::policy::sim
