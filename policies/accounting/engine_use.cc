// SPDX-License-Identifier: Apache-2.0
#include "policies/accounting/engine_use.h"

#include <algorithm>

namespace sluice::accounting {

namespace {
constexpr double kRounding = 0.01;  // parts that add up to a whole number come out as that
}  // namespace

void EngineUse::add(uint32_t worker, uint32_t vgpu) {
  workers_[worker].vgpu = vgpu;
  believed_.try_emplace(vgpu);
}

void EngineUse::remove(uint32_t worker) {
  if (resident_ == worker) resident_ = kNobody;
  workers_.erase(worker);
  look_who_wants();
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

// Two others at least, or one could have any busy neighbour ended by claiming work that it has not.
void EngineUse::watch_overrun(uint64_t ns) {
  const Worker& holder = workers_[resident_];
  uint32_t first = ~0u;
  bool several = false;
  for (const auto& [process, w] : workers_) {
    if (!w.claims || w.patience_ns == 0 || w.vgpu == holder.vgpu) continue;
    if (first != ~0u && first != w.vgpu) several = true;
    first = w.vgpu;
  }
  const uint64_t before = overrun_ns_, most = holder.slice_ns + config_.overrun_ns;
  overrun_ns_ = several ? before + ns : 0;
  if (before <= most && overrun_ns_ > most) overruns_.push_back(resident_);
}

// The most that is left of any vGPU that claims beside an idle resident of another one.
uint64_t EngineUse::believed_ns() const {
  const auto holder = workers_.find(resident_);
  if (holder == workers_.end() || holder->second.claims) return 0;
  uint64_t most = 0;
  for (const auto& [process, w] : workers_)
    if (w.claims && w.vgpu != holder->second.vgpu)
      most = std::max(most, believed_.at(w.vgpu).left_ns);
  return most;
}

// Of each that claims, once, however many sessions it has.
void EngineUse::use_up_belief(uint64_t ns) {
  for (const auto& [process, w] : workers_)
    if (w.claims) believed_.at(w.vgpu).claims = true;
  for (auto& [vgpu, b] : believed_)
    if (std::exchange(b.claims, false)) b.left_ns -= std::min(b.left_ns, ns);
}

void EngineUse::believe(uint32_t vgpu, uint64_t ns) {
  uint64_t& left_ns = believed_.at(vgpu).left_ns;
  left_ns = std::min(left_ns + ns, kBelievedNs);
}

// Up to there nothing changes but whose patience is at its end.
void EngineUse::pass(uint64_t to_ns) {
  while (settled_ns_ < to_ns) {
    uint64_t ns = to_ns - settled_ns_;
    for (const auto& [process, w] : workers_)
      if (w.claims && process != resident_ && w.patience_ns > 0) ns = std::min(ns, w.patience_ns);
    if (const uint64_t believed = believed_ns(); believed > 0) ns = std::min(ns, believed);
    settled_ns_ += ns;
    charge(ns);
  }
}

void EngineUse::charge(uint64_t ns) {
  bool any = false, others_want = false;
  for (auto& [process, w] : workers_) {
    others_want |= w.wants && process != resident_;
    if (!w.claims) continue;
    any = true;
    if (process == resident_) continue;
    w.patience_ns -= std::min(w.patience_ns, ns);
  }
  if (resident_ == kNobody) {
    if (any) charge_parts(static_cast<double>(ns));
    return;
  }
  Worker& holder = workers_[resident_];
  interval_ns_ += ns;
  watch_overrun(ns);
  if (holder.claims) {
    believe(holder.vgpu, ns);
  } else if (any) {
    if (believed_ns() == 0) return;
    use_up_belief(ns);
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
  resident_ = w == workers_.end() ? kNobody : process;
  interval_ns_ = withheld_ns_ = 0;
  if (process != kNobody && ended_.worker == process && settled_ns_ - ended_.at_ns <= kStoppedNs) {
    interval_ns_ = ended_.interval_ns;
    ended_ = {};
  } else {
    overrun_ns_ = 0;
    decide_ended();
  }
  if (w == workers_.end()) return;
  w->second.seen = true;
  w->second.patience_ns = kPatienceNs;
}

void EngineUse::decide_ended() {
  const auto w = workers_.find(ended_.worker);
  if (w != workers_.end() && 2 * ended_.interval_ns < w->second.slice_ns)
    w->second.due_ns += static_cast<double>(ended_.withheld_ns);
  ended_ = {};
}

void EngineUse::end(bool whole) {
  if (resident_ == kNobody) return;
  Worker& w = workers_[resident_];
  decide_ended();
  if (whole) ended_ = {resident_, settled_ns_, interval_ns_, withheld_ns_};
  w.patience_ns = kPatienceNs;
  resident_ = kNobody;
}

void EngineUse::settle(uint64_t until_ns, std::vector<Used>& used) {
  for (;;) {
    const bool record = !records_.empty() && records_.front().time_ns <= until_ns;
    const bool claim = !claims_.empty() && claims_.front().time_ns <= until_ns;
    if (!record && !claim) break;
    const bool claim_first =
        claim && (!record || claims_.front().time_ns <= records_.front().time_ns);
    std::deque<Event>& from = claim_first ? claims_ : records_;
    const Event e = from.front();
    from.pop_front();
    pass(e.time_ns);
    if (claim_first) {
      if (const auto w = workers_.find(e.process); w != workers_.end())
        w->second.claims = e.on, w->second.wants = e.wants;
      look_who_wants();
    } else if (e.on) {
      start(e.process);
    } else {
      end(e.process == resident_);
    }
  }
  pass(until_ns);
  hand_out(used);
}

void EngineUse::settle_without_log(uint64_t until_ns, std::vector<Used>& used) {
  records_.clear();
  end(false);
  settle(until_ns, used);
}

void EngineUse::look_who_wants() {
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
