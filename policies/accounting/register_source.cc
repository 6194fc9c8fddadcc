// SPDX-License-Identifier: Apache-2.0
#include "policies/accounting/register_source.h"

#include <algorithm>
#include <cmath>

namespace sluice::accounting {
namespace {

constexpr double kKept = 0.9;  // of what phases have shown, by each later one

}  // namespace

RegisterSource::RegisterSource(uint64_t gap_ns) : owner_(kTsgCount, kNobody), gap_ns_(gap_ns) {}

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
      return {State::kSwitching, switching_, tsgid};
    default:  // invalid, or a value that no manual names: nobody's time
      return {State::kIdle, kNobody, tsgid};
  }
}

void RegisterSource::begin_phase() {
  if (following_) ++of(last_->owner).runs.lost;
  following_ = false;
  polled_ns_ = 0;
  last_.reset();
}

void RegisterSource::count_whole(uint32_t vgpu, uint64_t ns) {
  Runs& r = of(vgpu).runs;
  ++r.whole;
  r.whole_ns += ns;
  const double length = static_cast<double>(ns);
  // The longer, the likelier it was broken; more than e^2 would rest on too few.
  const double weight = gapless_ns_ > 0 ? std::exp(std::min(length * gaps_ / gapless_ns_, 2.0)) : 1;
  r.weight += weight;
  r.weight_ns += weight * length;
  r.weight_ns2 += weight * length * length;
}

void RegisterSource::begin_run() {
  if (last_->owner == kNobody || last_->state != State::kRunning) return;
  Used& u = of(last_->owner);
  if (u.last_begin_ns) {
    u.cycle_begins[u.cycle_count % kCycles] = u.last_begin_ns;
    u.cycles[u.cycle_count++ % kCycles] = last_ns_ - u.last_begin_ns;
    ++u.phase_cycles;
  }
  u.last_begin_ns = last_ns_;
}

// After a gap or a phase nobody knows which run is the next one.
void RegisterSource::forget_begins() {
  for (Used& u : used_) u.last_begin_ns = 0;
}

// Of the cycles that began shortly before a phase's end only the short ones were seen: those count
// where enough others have been.
void RegisterSource::keep_whole_cycles(Used& u) {
  constexpr uint32_t kEnough = 4;
  if (u.phase_cycles == 0) return;
  const uint64_t room = 5 * cycle_ns(static_cast<uint32_t>(&u - used_.data())) / 4;
  uint32_t cut = 0;
  while (cut < u.phase_cycles &&
         u.cycle_begins[(u.cycle_count - 1 - cut) % kCycles] + room > last_ns_)
    ++cut;
  if (u.cycle_count >= cut + kEnough) u.cycle_count -= cut;
  u.phase_cycles = 0;
}

uint64_t RegisterSource::cycle_ns(uint32_t vgpu) const {
  if (vgpu >= used_.size() || used_[vgpu].cycle_count == 0) return 0;
  auto seen = used_[vgpu].cycles;
  const auto end = seen.begin() + std::min(used_[vgpu].cycle_count, kCycles),
             middle = seen.begin() + (end - seen.begin()) / 2;
  std::nth_element(seen.begin(), middle, end);
  // Pauses and interruptions aside, the mean: a lattice keeps in step with that, and not with the
  // median of cycles that vary.
  const uint64_t least = *middle - *middle / 4, most = *middle + *middle / 4;
  uint64_t sum = 0, n = 0;
  for (auto it = seen.begin(); it != end; ++it)
    if (*it >= least && *it <= most) sum += *it, ++n;
  return sum / n;
}

void RegisterSource::end_run(bool end_seen) {
  if (!last_) return;
  const uint64_t ns = last_ns_ - run_start_ns_;
  if (end_seen && run_begin_seen_ && ns > 0 && (shortest_ns_ == 0 || ns < shortest_ns_))
    shortest_ns_ = ns;
  if (last_->owner == kNobody) return;
  Runs& r = of(last_->owner).runs;
  r.seen_ns += ns;
  r.ends += end_seen;
  if (end_seen && run_begin_seen_)
    count_whole(last_->owner, ns);
  else
    ++r.cut;
}

bool RegisterSource::sample(uint64_t now_ns, uint32_t status0) {
  const Seen seen = decode(status0);
  if (!last_) run_start_ns_ = now_ns, run_begin_seen_ = false;
  bool unread = false;
  if (last_) {
    const uint64_t dt = now_ns > last_ns_ ? now_ns - last_ns_ : 0;
    if (unread = dt > gap_ns(); unread) {
      end_run(false);
      if (run_begin_seen_ && last_->owner != kNobody) ++of(last_->owner).runs.lost;
      forget_begins();
      gaps_ += 1;
      run_start_ns_ = now_ns;
      run_begin_seen_ = false;
      last_ = seen;
      last_ns_ = now_ns;
      return true;
    }
    polled_ns_ += dt;
    gapless_ns_ += static_cast<double>(dt);
    // As in the paper, the time up to the sample that shows a change belongs to the old state; the
    // delays at both ends of a run cancel out on average.
    if (last_->state != State::kIdle && last_->owner != kNobody) of(last_->owner).phase_ns += dt;
    if (seen.state != last_->state || seen.tsgid != last_->tsgid || seen.owner != last_->owner) {
      last_ns_ = now_ns;
      end_run(true);
      run_start_ns_ = now_ns;
      run_begin_seen_ = true;
      if (last_->owner != kNobody) of(last_->owner).phase_error_ns += dt;
      if (seen.owner != kNobody) of(seen.owner).phase_error_ns += dt;
      last_ = seen;
      begin_run();
      return false;
    }
  }
  last_ = seen;
  last_ns_ = now_ns;
  return false;
}

void RegisterSource::follow(uint64_t now_ns, uint32_t status0) {
  if (!following_) return;
  const Seen seen = decode(status0);
  const uint64_t dt = now_ns > last_ns_ ? now_ns - last_ns_ : 0;
  if (dt > gap_ns()) {
    ++of(last_->owner).runs.lost;
    broke_ = true;
    following_ = false;
    last_.reset();
    return;
  }
  last_ns_ = now_ns;
  Used& u = of(last_->owner);
  u.total_ns += dt;
  u.round_ns += static_cast<double>(dt);
  round_ns_ += static_cast<double>(dt);
  if (seen.state == last_->state && seen.tsgid == last_->tsgid && seen.owner == last_->owner)
    return;
  u.edge_ns += dt;
  count_whole(last_->owner, last_ns_ - run_start_ns_);
  following_ = false;
  last_.reset();
}

void RegisterSource::end_phase(uint64_t pause_ns) {
  end_run(false);
  if (polled_ns_ > 0) {
    const double polled = static_cast<double>(polled_ns_), pause = static_cast<double>(pause_ns);
    for (Used& u : used_) {
      const double share = static_cast<double>(u.phase_ns) / polled;
      u.total_ns += u.phase_ns + static_cast<uint64_t>(share * pause + 0.5);
      u.edge_ns +=
          static_cast<uint64_t>(static_cast<double>(u.phase_error_ns) * (1 + pause / polled) + 0.5);
      u.round_ns += static_cast<double>(u.phase_ns) + share * pause;
      if (pause_ns > 0) {
        const double change = share - u.last_share;
        if (phases_ == 0)
          u.unknown_ns = pause_ns;
        else
          u.variance += pause * pause * change * change / 2;
        u.last_share = share;
      }
      u.phase_ns = u.phase_error_ns = 0;
    }
    phases_ += pause_ns > 0;
    round_ns_ += polled + pause;
  }
  for (Used& u : used_) keep_whole_cycles(u);
  forget_begins();
  gaps_ *= kKept, gapless_ns_ *= kKept;
  shortest_ns_ += shortest_ns_ / 32;
  following_ =
      last_ && last_->owner != kNobody && last_->state == State::kRunning && run_begin_seen_;
  broke_ = false;
  if (!following_) last_.reset();
}

void RegisterSource::point(const StatusRead& seen, uint64_t stratum_ns, uint32_t half) {
  const double s = static_cast<double>(stratum_ns);
  uint32_t owner = kNobody;  // for most of the read
  double most = 0;
  for (const StatusRead::Part& p : seen) {
    const uint32_t v = decode(p.status0).owner;
    const double part = seen.part_of(p);
    if (part > most) most = part, owner = v;
    if (v == kNobody) continue;
    of(v).total_ns += static_cast<uint64_t>(s * part);
    of(v).round_ns += s * part;
    of(v).batches.add(half, 0, s * part);
  }
  // Only those found now or before differ between this read and the last.
  if (reads_ > 0 && owner != last_read_) {
    if (owner != kNobody) of(owner).point_variance += s * s / 2;
    if (last_read_ != kNobody) of(last_read_).point_variance += s * s / 2;
  } else if (reads_ == 0) {
    for (Used& u : used_) u.unknown_ns += stratum_ns;
  }
  last_read_ = owner;
  ++reads_;
  round_ns_ += s;
  round_reads_ += 1;
}

uint64_t RegisterSource::error_ns(uint32_t vgpu) const {
  if (vgpu >= used_.size()) return 0;
  const Used& u = used_[vgpu];
  const double points = u.batches.batches() >= BatchError::kLeast
                            ? u.batches.bound_ns(0)
                            : 3.3 * std::sqrt(u.point_variance);
  return u.edge_ns + u.unknown_ns +
         static_cast<uint64_t>(std::hypot(3.3 * std::sqrt(u.variance), points));
}

void RegisterSource::end_batch() {
  for (Used& u : used_) u.batches.end_batch();
}

double RegisterSource::take_change() {
  double largest = 0;
  const double n = std::max(round_reads_, 1.0);
  for (Used& u : used_) {
    const double load = round_ns_ > 0 ? u.round_ns / round_ns_ : 0;
    const double noise = 3 * std::sqrt(std::max(load * (1 - load), 0.01) / n) * std::sqrt(2.0);
    if (rounds_ > 0) largest = std::max(largest, std::abs(load - u.load) - noise);
    u.load = load;
    u.round_ns = 0;
  }
  ++rounds_;
  round_ns_ = round_reads_ = 0;
  return largest;
}

}  // namespace sluice::accounting
