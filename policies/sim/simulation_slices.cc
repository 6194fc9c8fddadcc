// SPDX-License-Identifier: Apache-2.0
// Proportional preemptors: hardware time slices.
#include "policies/sim/simulation_impl.h"

namespace sluice::policy::sim {

// Round robin of time slices over the vGPUs that have something resident, as the hardware's runlist
// does it; a switch between two contexts costs switch_ns. Who has nothing to run is passed over.
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
  // It takes effect with the next round; but who was alone, or gated, is read now.
  if (current_ == kNoVgpu || !resident(current_))
    rotate();
  else if (current_ != a.vgpu)
    slice_over();
}

// The current vGPU has nothing more to run: the next, or nobody.
void Simulation::rotate() {
  const VgpuId n = static_cast<VgpuId>(vgpus_.size());
  const VgpuId from = current_ == kNoVgpu ? n - 1 : current_;
  VgpuId next = kNoVgpu;
  for (VgpuId i = 1; i <= n && next == kNoVgpu; ++i)
    if (resident((from + i) % n)) next = (from + i) % n;
  if (next == kNoVgpu || next == current_) {
    ++slice_version_;  // whoever is there stays, without a limit
    if (current_ == kNoVgpu || next == current_ || vgpus_[current_].heads.empty()) return;
    // Gated, and nothing of it is left.
    report_usage();
    drop_hold(vgpus_[current_].holds.front());
    account_.set_holding(current_, false, now_ns_);
    reassign(current_);
    current_ = kNoVgpu;
    return;
  }
  if (current_ != kNoVgpu && !vgpus_[current_].holds.empty()) {
    const uint32_t id = vgpus_[current_].holds.front();
    const VgpuId v = current_;
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
  const bool first = current_ == kNoVgpu;
  current_ = next;
  const uint64_t cost = first ? w_.gpu.start_ns : w_.gpu.switch_ns;
  start_hold(next, kNone, 0, static_cast<uint16_t>(w_.gpu.sm_count), cost);
  push(now_ns_ + cost + slice_of(next), EventKind::kSlice, 0, ++slice_version_);
}

// The slice is over, or somebody has come: go on, or to the next.
void Simulation::slice_over() {
  bool others = false;
  for (VgpuId v = 0; v < vgpus_.size() && !others; ++v) others = v != current_ && resident(v);
  if (!others) {
    ++slice_version_;
    return;
  }
  const Hold& h = holds_[vgpus_[current_].holds.front()];
  const uint64_t end_ns =
      h.since_ns + (h.state == HoldState::kStarting ? w_.gpu.switch_ns : 0) + slice_of(current_);
  if (now_ns_ < end_ns) return push(end_ns, EventKind::kSlice, 0, ++slice_version_);
  rotate();
}

}  // namespace sluice::policy::sim
