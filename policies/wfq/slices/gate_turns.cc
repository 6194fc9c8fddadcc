// SPDX-License-Identifier: Apache-2.0
#include "policies/wfq/slices/gate_turns.h"

#include <algorithm>

namespace sluice::policy::slices {

uint64_t GateTurns::back_ns(VgpuId v) const {
  return gpu_.habit(v).waited_ns + static_cast<uint64_t>(gpu_.lengths.handover_ns());
}

double GateTurns::begin_round(uint64_t now_ns, double ends_ns) {
  find_members(now_ns);
  active_ = !staying_.empty() || (chatting_.size() >= 2 && chatting_.size() > away_);
  if (!active_) {
    ends_ns_ = 0;
    return ends_ns;
  }
  if (now_ns >= ends_ns_ || !holder_is_member()) begin_turn(now_ns);
  for (size_t i = away_; i < chatting_.size(); ++i)
    gpu_.gate(now_ns, chatting_[i], chatting_[i] != holder_);
  if (holder_ == kThoseThatStay) return std::min(ends_ns, static_cast<double>(ends_ns_ - now_ns));
  for (const VgpuId v : staying_) gpu_.gate(now_ns, v, true);
  const bool is_away = !gpu_.clock[holder_].backlogged();
  return static_cast<double>((is_away ? std::min(back_ns(holder_), ends_ns_) : ends_ns_) - now_ns);
}

void GateTurns::find_members(uint64_t now_ns) {
  std::erase_if(chatting_, [&](VgpuId v) {
    return gpu_.clock[v].backlogged() || now_ns >= back_ns(v) || !gpu_.chats(now_ns, v) ||
           gpu_.share(v).priority != gpu_.top_priority;
  });
  away_ = chatting_.size();
  staying_.clear();
  for (const VgpuId v : gpu_.top)
    if (gpu_.chats(now_ns, v))
      chatting_.push_back(v);
    else if (!gpu_.visits(now_ns, v))
      staying_.push_back(v);
  if (staying_.size() > kMostThatStay ||
      std::none_of(chatting_.begin(), chatting_.end(),
                   [&](VgpuId v) { return gpu_.habit(v).fills_its_turn(gpu_.lengths); }))
    staying_.clear();
}

bool GateTurns::holder_is_member() const {
  if (holder_ == kThoseThatStay) return !staying_.empty();
  return std::find(chatting_.begin(), chatting_.end(), holder_) != chatting_.end();
}

void GateTurns::begin_turn(uint64_t now_ns) {
  const auto ahead = [&](VgpuId v) { return gpu_[v].lead_ns > gpu_.quantum_ns(v); };
  VgpuId next = kNoVgpu;
  for (size_t i = away_; i < chatting_.size(); ++i) {
    const VgpuId v = chatting_[i];
    if (next == kNoVgpu ||
        (ahead(v) != ahead(next) ? ahead(next) : gpu_[v].turn_ns < gpu_[next].turn_ns))
      next = v;
  }
  double lead_ns = 0, turn_ns = 0;
  for (const VgpuId v : staying_) {
    lead_ns += gpu_[v].lead_ns;
    turn_ns += gpu_.quantum_ns(v);
  }
  const bool all_ahead = lead_ns > turn_ns;
  if (next == kNoVgpu ||
      (!staying_.empty() &&
       (ahead(next) != all_ahead ? ahead(next) : staying_turn_ns_ < gpu_[next].turn_ns)))
    return begin_turn_of_staying(now_ns, turn_ns, lead_ns);
  holder_ = next;
  gpu_[next].turn_ns = now_ns;
  ends_ns_ = now_ns + gpu_.slice_for(next, gpu_[next].lead_ns) +
             static_cast<uint64_t>(gpu_.lengths.handover_ns());
}

void GateTurns::begin_turn_of_staying(uint64_t now_ns, double turn_ns, double lead_ns) {
  holder_ = kThoseThatStay;
  staying_turn_ns_ = now_ns;
  const double length_ns =
      std::clamp(turn_ns - SliceLengths::kGain * lead_ns, SliceLengths::kShorter * turn_ns,
                 SliceLengths::kLonger * turn_ns);
  ends_ns_ = now_ns + static_cast<uint64_t>(length_ns);
}

}  // namespace sluice::policy::slices
