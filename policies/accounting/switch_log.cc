// SPDX-License-Identifier: Apache-2.0
#include "policies/accounting/switch_log.h"

#include <algorithm>
#include <cmath>

namespace sluice::accounting {

SwitchLog::Vgpu& SwitchLog::of(uint32_t vgpu) {
  if (vgpu >= vgpus_.size()) vgpus_.resize(vgpu + 1);
  return vgpus_[vgpu];
}

void SwitchLog::on_work(uint64_t now_ns, uint32_t vgpu, bool has_work) {
  of(vgpu).edges.push_back({std::max(now_ns, settled_ns_), has_work});
}

void SwitchLog::forget(uint32_t vgpu) {
  if (vgpu >= vgpus_.size()) return;
  vgpus_[vgpu] = Vgpu{};
  vgpus_[vgpu].idle_since_ns = settled_ns_;
}

void SwitchLog::restart(uint64_t now_ns) {
  records_.clear();
  gap_before_.clear();
  if (!unknown_ && resident_ != kNobody) end_interval(resident_, true);
  resident_ = kNobody;
  unknown_ = true;
  seen_ = after_gap_ = outside_ = false;
  ended_ns_ = 0;
  settled_ns_ = std::max(settled_ns_, now_ns);
  forget_edges(settled_ns_);
}

void SwitchLog::on_dropped() { after_gap_ = true; }

void SwitchLog::on_record(const Record& r) {
  constexpr uint32_t kSeqMask = 0xffff;
  if (seen_ && ((last_seq_ + 1) & kSeqMask) != (r.seq & kSeqMask)) after_gap_ = true;
  seen_ = true;
  last_seq_ = r.seq;
  if (r.vgpu != kNobody) of(r.vgpu);
  Record kept = r;
  if (kept.time_ns < settled_ns_) {
    // The reader promised too much. What was settled stays; the record says who is there from now
    // on.
    ++late_;
    kept.time_ns = settled_ns_;
    if (unknown_ == false && !r.start && r.vgpu != resident_) after_gap_ = true;
  }
  records_.push_back(kept);
  gap_before_.push_back(after_gap_);
  gaps_ += after_gap_;
  after_gap_ = false;
}

uint64_t SwitchLog::work_between(const Vgpu& v, uint64_t from_ns, uint64_t to_ns) const {
  uint64_t sum = 0, at = from_ns;
  bool work = v.work;
  for (const Edge& e : v.edges) {
    if (e.time_ns >= to_ns) break;
    if (e.time_ns > at) {
      if (work) sum += e.time_ns - at;
      at = e.time_ns;
    }
    work = e.has_work;
  }
  if (work && to_ns > at) sum += to_ns - at;
  return sum;
}

void SwitchLog::forget_edges(uint64_t to_ns) {
  for (Vgpu& v : vgpus_)
    while (!v.edges.empty() && v.edges.front().time_ns <= to_ns) {
      if (v.work && !v.edges.front().has_work) v.idle_since_ns = v.edges.front().time_ns;
      v.work = v.edges.front().has_work;
      v.edges.pop_front();
    }
}

void SwitchLog::advance(uint64_t to_ns) {
  if (to_ns <= settled_ns_) return;
  const uint64_t dt = to_ns - settled_ns_;
  if (unknown_) {
    uint32_t claimants = 0;
    for (const Vgpu& v : vgpus_) claimants += work_between(v, settled_ns_, to_ns) > 0;
    for (Vgpu& v : vgpus_) {
      const uint64_t work = work_between(v, settled_ns_, to_ns);
      v.done.used_ns += work / std::max(claimants, 1u);
      v.done.error_ns += work;
    }
  } else if (resident_ != kNobody) {
    Vgpu& v = of(resident_);
    v.done.resident_ns += dt;
    const uint64_t work = work_between(v, settled_ns_, to_ns);
    v.interval_work_ns += work;
    if (outside_) {
      v.done.outside_ns += dt - work;
      for (Vgpu& other : vgpus_)
        if (&other != &v) other.done.taken_ns += work_between(other, settled_ns_, to_ns);
    }
  }
  settled_ns_ = to_ns;
  forget_edges(to_ns);
}

// `cut`: its begin or its end was not seen, so it holds the cost of one half at most.
void SwitchLog::end_interval(uint32_t vgpu, bool cut) {
  Vgpu& v = of(vgpu);
  const uint64_t expected = cut ? config_.interval_cost_ns / 2 : config_.interval_cost_ns;
  const uint64_t cost = std::min(v.interval_work_ns, expected);
  v.done.used_ns += v.interval_work_ns - cost;
  v.done.cost_ns += cost;
  ++v.done.intervals;
  // A short interval may be all cost or all work.
  const uint64_t uncertain = config_.interval_cost_error_ns + (cut ? expected : 0);
  v.done.error_ns += std::min(uncertain, v.interval_work_ns) + 2 * config_.stamp_error_ns;
  v.interval_work_ns = 0;
}

void SwitchLog::settle(uint64_t watermark_ns) {
  while (!records_.empty() && records_.front().time_ns <= watermark_ns) {
    const Record r = records_.front();
    const bool gap = gap_before_.front();
    records_.pop_front();
    gap_before_.pop_front();
    if (gap && !unknown_) {
      if (resident_ != kNobody) end_interval(resident_, true);
      resident_ = kNobody;
      unknown_ = true;
    }
    if (!unknown_ && resident_ == kNobody && ended_ns_ != 0 && r.start && r.time_ns > ended_ns_ &&
        r.time_ns - ended_ns_ <= config_.longest_switch_ns) {
      // What of it was settled before is not counted: too little, never too much.
      for (Vgpu& v : vgpus_) v.done.switched_ns += work_between(v, settled_ns_, r.time_ns);
    }
    ended_ns_ = r.start ? 0 : std::max(r.time_ns, settled_ns_);
    advance(r.time_ns);
    if (r.start) {
      // A start without the end of the one before: the engine holds one only, so it has ended here.
      if (!unknown_ && resident_ != kNobody) end_interval(resident_, true);
      resident_ = r.vgpu;
      outside_ = false;
      if (r.vgpu != kNobody) {
        const Vgpu& v = of(r.vgpu);
        outside_ = !v.work && r.time_ns > v.idle_since_ns + config_.grace_ns;
      }
      unknown_ = false;
    } else {
      if (!unknown_ && resident_ == r.vgpu && resident_ != kNobody) end_interval(resident_, false);
      resident_ = kNobody;
      unknown_ = false;
    }
  }
  advance(watermark_ns);
}

}  // namespace sluice::accounting
