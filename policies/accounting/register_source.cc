#include "policies/accounting/register_source.h"

#include <algorithm>

namespace sluice::accounting {

RegisterSource::RegisterSource() : owner_(kTsgCount, kNobody) {}

void RegisterSource::assign(uint32_t tsgid, uint32_t vgpu) {
  if (tsgid < kTsgCount) owner_[tsgid] = vgpu;
}

RegisterSource::Used& RegisterSource::of(uint32_t vgpu) {
  if (vgpu >= used_.size()) used_.resize(vgpu + 1);
  return used_[vgpu];
}

RegisterSource::Seen RegisterSource::decode(uint32_t status0) const {
  const uint32_t tsgid = SLUICE_STATUS0_TSGID(status0);
  switch (SLUICE_STATUS0_CTX_STATUS(status0)) {
    case SLUICE_CTX_VALID:
      if (!SLUICE_STATUS0_BUSY(status0)) return {State::kIdle, kNobody, tsgid};
      return {State::kRunning, owner_[tsgid], tsgid};
    case SLUICE_CTX_SAVE:
    case SLUICE_CTX_LOAD:
    case SLUICE_CTX_SWITCH:
      return {State::kSwitching, kNobody, tsgid};
    default:  // invalid, or a value that no manual names: nobody's time
      return {State::kIdle, kNobody, tsgid};
  }
}

void RegisterSource::begin_phase() {
  phase_ = Phase{};
  last_.reset();
}

void RegisterSource::sample(uint64_t now_ns, uint32_t status0) {
  const Seen seen = decode(status0);
  if (last_) {
    const uint64_t dt = now_ns > last_ns_ ? now_ns - last_ns_ : 0;
    phase_.polled_ns += dt;
    phase_.longest_gap_ns = std::max(phase_.longest_gap_ns, dt);
    // As in the paper, the time up to the sample that shows a change belongs to the old state; the
    // delays at both ends of a run cancel out on average.
    switch (last_->state) {
      case State::kIdle: phase_.idle_ns += dt; break;
      case State::kSwitching: phase_.switch_ns += dt; break;
      case State::kRunning:
        if (last_->owner == kNobody)
          phase_.unassigned_ns += dt;
        else
          of(last_->owner).phase_ns += dt;
        break;
    }
    if (seen.state != last_->state || seen.tsgid != last_->tsgid) {
      ++phase_.switches;
      if (last_->owner != kNobody) of(last_->owner).phase_error_ns += dt;
      if (seen.owner != kNobody) of(seen.owner).phase_error_ns += dt;
    }
  }
  last_ = seen;
  last_ns_ = now_ns;
}

RegisterSource::Phase RegisterSource::end_phase(uint64_t pause_ns) {
  if (phase_.polled_ns > 0) {
    const double scale = 1.0 + static_cast<double>(pause_ns) / static_cast<double>(phase_.polled_ns);
    for (Used& u : used_) {
      u.total_ns += static_cast<uint64_t>(static_cast<double>(u.phase_ns) * scale + 0.5);
      u.error_ns += static_cast<uint64_t>(static_cast<double>(u.phase_error_ns) * scale + 0.5);
      u.phase_ns = u.phase_error_ns = 0;
    }
  }
  last_.reset();
  return phase_;
}

}  // namespace sluice::accounting
