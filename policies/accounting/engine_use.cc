// SPDX-License-Identifier: Apache-2.0
#include "policies/accounting/engine_use.h"

#include <algorithm>

namespace sluice::accounting {

namespace {
constexpr double kRounding = 0.01;  // parts that add up to a whole number come out as that
}  // namespace

void EngineUse::add(uint32_t worker, uint32_t vgpu) {
  workers_[worker].vgpu = vgpu;
  trusted_.try_emplace(vgpu);
}

void EngineUse::remove(uint32_t worker) {
  if (resident_ == worker) resident_ = kNobody;
  workers_.erase(worker);
  proof_.remove(worker);
  count_claimants();
}

void EngineUse::set_slice(uint32_t worker, uint64_t slice_ns) {
  workers_[worker].slice_ns = slice_ns;
  proof_.set_slice(settled_ns_, worker, slice_ns);
}

void EngineUse::set_witness(uint32_t process) {
  witness_ = process;
  on_witness(settled_ns_, OverrunProof::Say::kGone);
}

void EngineUse::on_witness(uint64_t now_ns, OverrunProof::Say say) {
  said_.push_back(
      {.time_ns = std::max(now_ns, settled_ns_), .process = kNobody, .on = true, .said = say});
}

void EngineUse::on_stall(uint64_t now_ns, uint64_t stall_ns) {
  said_.push_back({.time_ns = std::max(now_ns, settled_ns_),
                   .process = kNobody,
                   .on = false,
                   .stall_ns = stall_ns});
}

void EngineUse::on_claim(uint64_t now_ns, uint32_t worker, bool claims, bool wants) {
  claims_.push_back({std::max(now_ns, settled_ns_), worker, claims, wants});
}

void EngineUse::on_record(uint64_t time_ns, uint32_t process, bool start) {
  if (process == kNobody) process = ~0u;
  const uint64_t last_ns = records_.empty() ? settled_ns_ : records_.back().time_ns;
  records_.push_back({std::max(time_ns, last_ns), process, start});
}

void EngineUse::on_lost(uint64_t time_ns) {
  const uint64_t last_ns = records_.empty() ? settled_ns_ : records_.back().time_ns;
  records_.push_back({std::max(time_ns, last_ns), kNobody, false});
}

void EngineUse::charge_parts(double ns) {
  double parts = 0;
  for (const auto& [process, w] : workers_)
    if (w.claims) parts += static_cast<double>(w.slice_ns + config_.switch_ns);
  for (auto& [process, w] : workers_)
    if (w.claims)
      (is_free() ? w.free_ns : w.due_ns) +=
          ns * static_cast<double>(w.slice_ns + config_.switch_ns) / parts;
}

// Somebody comes, or it is too long for a switch.
void EngineUse::end_gap(bool was_switch) {
  is_between_ = false;
  const uint64_t ns = std::exchange(gap_ns_, 0);
  if (!was_switch) charge_parts(static_cast<double>(ns));
}

// The most that is left of any vGPU that claims beside an idle resident of another one.
uint64_t EngineUse::trusted_ns() const {
  const auto holder = workers_.find(resident_);
  if (holder == workers_.end() || holder->second.claims) return 0;
  uint64_t most = 0;
  for (const auto& [process, w] : workers_)
    if (w.claims && w.vgpu != holder->second.vgpu)
      most = std::max(most, trusted_.at(w.vgpu).left_ns);
  return most;
}

// Of each that claims, once, however many sessions it has.
void EngineUse::use_up_trust(uint64_t ns) {
  for (const auto& [process, w] : workers_)
    if (w.claims) trusted_.at(w.vgpu).claims = true;
  for (auto& [vgpu, b] : trusted_)
    if (std::exchange(b.claims, false)) b.left_ns -= std::min(b.left_ns, ns);
}

void EngineUse::trust(uint32_t vgpu, uint64_t ns) {
  uint64_t& left_ns = trusted_.at(vgpu).left_ns;
  left_ns = std::min(left_ns + ns, kTrustedNs);
}

// Up to there nothing changes but how long claims are trusted.
void EngineUse::pass(uint64_t to_ns) {
  while (settled_ns_ < to_ns) {
    uint64_t ns = to_ns - settled_ns_;
    if (const uint64_t trusted = trusted_ns(); trusted > 0) ns = std::min(ns, trusted);
    settled_ns_ += ns;
    charge(ns);
  }
}

void EngineUse::charge(uint64_t ns) {
  const auto resident = workers_.find(resident_);
  bool any = false, others_want = false, others_claim = false;
  for (const auto& [process, w] : workers_) {
    others_want |= w.wants && process != resident_;
    any |= w.claims;
    others_claim |= w.claims && resident != workers_.end() && w.vgpu != resident->second.vgpu;
  }
  if (resident != workers_.end()) interval_ns_ += ns;
  proof_.pass(settled_ns_, interval_ns_, others_claim);
  if (resident == workers_.end()) {
    if (!any) return;
    gap_ns_ += ns;
    if (!is_between_ || gap_ns_ > kBetweenNs) end_gap(false);
    return;
  }
  Worker& holder = resident->second;
  if (holder.claims) {
    trust(holder.vgpu, ns);
  } else if (any) {
    if (trusted_ns() == 0) return;
    use_up_trust(ns);
  } else {
    return;
  }
  const uint64_t held_back = std::min(ns, config_.interval_cost_ns - withheld_ns_);
  withheld_ns_ += held_back;
  // Who runs and says that it has nothing pays for what it keeps from the one that wants the GPU.
  (is_free() && (holder.wants || !others_want) ? holder.free_ns : holder.due_ns) +=
      static_cast<double>(ns - held_back);
}

void EngineUse::start(uint32_t process) {
  end(false);
  const auto w = workers_.find(process);
  end_gap(w != workers_.end());
  resident_ = w == workers_.end() ? kNobody : process;
  interval_ns_ = withheld_ns_ = 0;
  if (process != kNobody && ended_.worker == process && settled_ns_ - ended_.at_ns <= kStoppedNs) {
    interval_ns_ = ended_.interval_ns;
    ended_ = {};
  } else {
    decide_ended();
  }
  proof_.on_resident(settled_ns_, process, process != kNobody && process == witness_);
  if (w != workers_.end()) w->second.seen = true;
}

void EngineUse::decide_ended() {
  const auto w = workers_.find(ended_.worker);
  if (w != workers_.end() && 2 * ended_.interval_ns < w->second.slice_ns)
    w->second.due_ns += static_cast<double>(ended_.withheld_ns);
  ended_ = {};
}

void EngineUse::end(bool whole) {
  proof_.on_resident(settled_ns_, kNobody, false);
  if (resident_ == kNobody) return;
  decide_ended();
  if (whole) ended_ = {resident_, settled_ns_, interval_ns_, withheld_ns_};
  is_between_ = whole;
  resident_ = kNobody;
}

// Of whose events the next one is, if it is not later than that.
std::deque<EngineUse::Event>* EngineUse::next_event(uint64_t until_ns) {
  std::deque<Event>* next = nullptr;
  for (std::deque<Event>* each : {&claims_, &said_, &records_})
    if (!each->empty() && each->front().time_ns <= until_ns &&
        (!next || each->front().time_ns < next->front().time_ns))
      next = each;
  return next;
}

void EngineUse::settle(uint64_t until_ns, std::vector<Used>& used) {
  while (std::deque<Event>* from = next_event(until_ns)) {
    const Event e = from->front();
    from->pop_front();
    pass(e.time_ns);
    if (from == &claims_) {
      if (const auto w = workers_.find(e.process); w != workers_.end())
        w->second.claims = e.on, w->second.wants = e.wants;
      count_claimants();
    } else if (from == &said_) {
      e.said ? proof_.on_witness(e.time_ns, *e.said) : proof_.excuse(e.time_ns, e.stall_ns);
    } else if (e.on) {
      start(e.process);
    } else {
      if (e.process == kNobody) proof_.on_witness(e.time_ns, OverrunProof::Say::kGone);
      end(e.process == resident_);
    }
  }
  pass(until_ns);
  hand_out(used);
}

void EngineUse::settle_without_log(uint64_t until_ns, std::vector<Used>& used) {
  records_.clear();
  end(false);
  end_gap(false);
  proof_.on_witness(settled_ns_, OverrunProof::Say::kGone);
  settle(until_ns, used);
}

void EngineUse::count_claimants() {
  uint32_t first = ~0u;
  bool several = false;
  for (const auto& [process, w] : workers_) {
    if (!w.wants) continue;
    several |= first != ~0u && first != w.vgpu;
    first = w.vgpu;
  }
  if (!several && !alone_) alone_since_ns_ = settled_ns_;
  alone_ = !several;
}

void EngineUse::hand_out(std::vector<Used>& used) {
  for (auto& [process, w] : workers_) {
    for (const bool free : {false, true}) {
      double& due_ns = free ? w.free_ns : w.due_ns;
      const auto ns = static_cast<uint64_t>(std::max(due_ns + kRounding, 0.0));
      if (ns == 0) continue;
      due_ns -= static_cast<double>(ns);
      used.push_back({process, ns, free});
    }
  }
}

}  // namespace sluice::accounting
