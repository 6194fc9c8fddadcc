// SPDX-License-Identifier: Apache-2.0
// The figures that wfq in space (wfq/spatial.cc, which explains them) decides by: frames,
// entitlements, which vGPUs are short, which are ahead. Its own; it accounts and compares, and
// decides nothing. Units: ns, SM-ns, and virtual time (fair_clock.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policies/parts/change_cost.h"
#include "policies/parts/indexed_heap.h"
#include "policies/policy.h"
#include "policies/wfq/fair_clock.h"
#include "policies/wfq/spatial_rows.h"

namespace sluice::policy::wfq_spatial {

// Two turns more or less in a second, the begin and the end of a window, stay below 1 % of the
// share.
inline constexpr uint64_t kFrameNs = 4'000'000;
// Where each change of a set is expensive, sets last longer: until changes cost next to nothing
// (kSteadyLoss). They never last so long that the vGPU with the smallest share is off by more than
// 1 % of it over a second: it is one SM ahead or behind for about half of a frame.
inline constexpr double kSteadyLoss = 0.003, kSteadyFrameNs = 100e6, kSteadyFrameOfOneSmNs = 9e6;
// Timers are no denser than this: crossings that lie closer are decided together.
inline constexpr uint64_t kTickNs = 10'000;
// Beyond any GPU; bounds the tables.
inline constexpr uint32_t kMaxSms = 4096;
inline constexpr uint64_t kNever = ~0ull;
// Virtual times stay below 2^60 (fair_clock.h).
inline constexpr int64_t kAheadOfAll = int64_t{1} << 61;

class Figures {
 protected:
  explicit Figures(const Config& config)
      : config_(config),
        steady_(config.machine.change_ns > 0),
        clock_(config),
        sms_(std::clamp(config.machine.sm_count, 1u, kMaxSms)),
        lightest_(kPriorityLevels, IndexedHeap<Lighter>(Lighter{&clock_})),
        change_(config.machine.change_ns),
        handover_ns_(static_cast<double>(config.machine.handover_ns)) {}

  void learn_handover(uint64_t cost_ns) {
    const double bound = static_cast<double>(config_.max_quantum_ns) * config_.handover_loss;
    handover_ns_ += (std::min(static_cast<double>(cost_ns), bound) - handover_ns_) / 8;
    // The frame does not follow each of them: what rests on it would have to be reckoned anew each
    // time.
    if (handover_ns_ > 1.6 * frame_handover_ns_ || handover_ns_ < frame_handover_ns_ / 1.6)
      frame_handover_ns_ = handover_ns_;
  }
  // All who take turns on parts of an SM hand over once in a frame, those at most that there are
  // SMs at a time.
  uint64_t frame_ns(uint32_t priority) const {
    if (steady_) return steady_frame_ns(priority);
    const double busy = clock_.busy(priority);
    const double paid =
        config_.handover_loss > 0 ? frame_handover_ns_ * busy / (config_.handover_loss * sms_) : 0;
    const uint64_t wanted =
        std::min(kFrameNs, std::max<uint64_t>(config_.latency_target_ns, kTickNs));
    return std::clamp(static_cast<uint64_t>(paid), wanted,
                      std::max(wanted, config_.max_quantum_ns));
  }
  // A change stops all SMs of two vGPUs; each of them has two in a frame at most, so all together
  // cost 2 changes of the GPU in it.
  uint64_t steady_frame_ns(uint32_t priority) const {
    const double least = std::max(
        config_.handover_loss > 0 ? 2 * change_.ns() / config_.handover_loss : 0, 1.0 * kTickNs);
    const double most =
        std::clamp(2 * change_.ns() / kSteadyLoss, least, std::max(least, kSteadyFrameNs));
    double frame = most;
    if (!lightest_[priority].empty())
      frame = kSteadyFrameOfOneSmNs * rate_of(priority) *
              clock_[lightest_[priority].top()].share.weight;
    return static_cast<uint64_t>(std::clamp(frame, least, most));
  }
  uint64_t least_turn_ns() const {
    return static_cast<uint64_t>(steady_ ? 2 * change_.ns() : handover_ns_);
  }
  double per_weight(VgpuId v) const {
    return static_cast<double>(FairClock::kScale) / clock_[v].share.weight;
  }
  // SMs for each unit of weight, of the current level.
  double rate_of(uint32_t priority) const {
    return static_cast<double>(sms_) /
           static_cast<double>(std::max<int64_t>(clock_.weight(priority), 1));
  }
  double entitled_sms(VgpuId v) const { return rate_ * clock_[v].share.weight; }
  uint32_t room_of(VgpuId v) const {
    const Own& o = own_[v];
    const uint64_t limit = o.launches.empty() ? sms_ : std::clamp<uint64_t>(o.width, 1, sms_);
    const uint64_t has = static_cast<uint64_t>(o.held) + o.coming;
    return has < limit ? static_cast<uint32_t>(limit - has) : 0;
  }
  // SMs that it holds and that its launches cannot use, and have not been able to for a frame or
  // are not going to: the first to go. For less it keeps them, or launches of microseconds that can
  // use few and many by turns would lose them all the time.
  uint32_t surplus_of(VgpuId v) const {
    const Own& o = own_[v];
    return o.narrow && !o.launches.empty() && o.held > o.width
               ? static_cast<uint32_t>(o.held - std::max<uint64_t>(o.width, 1))
               : 0;
  }
  // After a launch was announced.
  void look_at_width(uint64_t now_ns, const Launch& launch) {
    Own& o = own_[launch.vgpu];
    if (o.held <= o.width)
      o.narrow_since_ns = 0;
    else if (o.narrow_since_ns == 0)
      o.narrow_since_ns = std::max<uint64_t>(now_ns, 1);
    o.narrow =
        o.narrow_since_ns && (now_ns - o.narrow_since_ns >= kFrameNs ||
                              launch.predicted_sm_ns >= kFrameNs * std::max<uint64_t>(o.width, 1));
  }
  // All its work is known and fits into its share of a frame, and it is not ahead: who claims to be
  // short and is not is ahead after one frame.
  bool is_short(VgpuId v) const { return is_short(v, known(v), own_[v].idle_at_sm_ns); }
  bool is_short(VgpuId v, uint64_t rest, uint64_t idle_at_sm_ns) const {
    if (rest == 0 || steady_) return false;
    const uint64_t spent = std::min(clock_[v].used_sm_ns - idle_at_sm_ns, FairClock::kMaxUsage);
    return static_cast<double>(rest + spent) <= entitled_sms(v) * static_cast<double>(frame_) &&
           !clock_.leads(v);
  }
  // Of class `low`, and below its share.
  bool is_low(VgpuId v) const {
    return clock_[v].share.latency == LatencyClass::kLow && !steady_ && !clock_.leads(v);
  }
  // Predicted rest of the known launches, SM-ns; 0: not known.
  uint64_t known(VgpuId v) const { return rest_of(v, own_[v].known_to_sm_ns); }
  uint64_t rest_of(VgpuId v, uint64_t known_to_sm_ns) const {
    return static_cast<uint64_t>(
        std::max<int64_t>(static_cast<int64_t>(known_to_sm_ns - clock_[v].used_sm_ns), 0));
  }
  void set_known(VgpuId v, uint64_t sm_ns) {
    own_[v].known_to_sm_ns = clock_[v].used_sm_ns + sm_ns;
  }
  int64_t ahead(VgpuId v, uint32_t sms) const {
    double work = static_cast<double>(static_cast<uint64_t>(sms) * frame_);
    if (is_short(v)) work = std::min(work, static_cast<double>(known(v)));
    return clock_[v].vtime + static_cast<int64_t>(work * own_[v].per_weight);
  }
  int64_t ahead_if_given(VgpuId v) const { return ahead(v, own_[v].held + own_[v].coming); }
  // The part of a row that follows from the frame and from its entitlement; of all holders,
  // when these change. Returns when its turn ends.
  uint64_t turn_end(Row& row) const {
    const VgpuId v = row.vgpu;
    // Without one of its SMs, and with what that takes to leave.
    double work = static_cast<double>(static_cast<uint64_t>(std::max(row.held, 1u) - 1) * frame_);
    const uint64_t rest = rest_of(v, row.known_to_sm_ns);
    if (is_short(v, rest, row.idle_at_sm_ns)) work = std::min(work, static_cast<double>(rest));
    row.beyond =
        surplus_of(v) ? kAheadOfAll : static_cast<int64_t>(work * row.per_weight) + row.drain;
    // What it has beyond its share, rounded up, it has only because nobody else was there.
    const double entitled = entitled_sms(v);
    const bool beyond = static_cast<double>(row.held) > entitled + 1;
    row.turn_ns = least_turn_ns();
    if (!beyond)
      row.turn_ns = std::max(row.turn_ns, static_cast<uint64_t>(std::min(entitled, 1.0) *
                                                                static_cast<double>(frame_)));
    return row.oldest_ns == kNever ? kNever : row.oldest_ns + row.turn_ns;
  }

  // Orders vGPUs by weight.
  struct Lighter {
    const FairClock* clock;
    bool operator()(uint32_t a, uint32_t b) const {
      return (*clock)[a].share.weight < (*clock)[b].share.weight;
    }
  };

  const Config config_;
  const bool steady_;  // changes of sets are expensive: Machine::change_ns
  FairClock clock_;
  const uint32_t sms_;
  std::vector<IndexedHeap<Lighter>> lightest_;  // steady: the busy ones, by priority
  ChangeCost change_;
  std::vector<Own> own_;
  uint64_t frame_ = kFrameNs;  // these two of the current level
  double rate_ = 1;
  double handover_ns_;
  double frame_handover_ns_ = handover_ns_;
};

}  // namespace sluice::policy::wfq_spatial
