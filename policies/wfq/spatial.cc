// SPDX-License-Identifier: Apache-2.0
// wfq for exclusive preemptors that can give a part of the SMs (Machine::spatial): vGPUs run side
// by side, and what is shared is SM-time. The unit of a decision is one SM.
//
// Why: with whole-GPU turns of length q, a vGPU entitled to a share s of a second is off by up to
// q * (1 - s); 256 equal vGPUs within 1 % would need turns of 39 us. Side by side each is entitled
// to r = SMs * s: one with 8.25 SMs holds 8 for good and a ninth for a quarter of the time, one
// with half an SM has turns of milliseconds on one. (McNaughton's wrap-around rule is the same with
// everything known beforehand.)
//
// Terms   frame F      kFrameNs, or the latency target if less; longer if hand-overs cost too much
//         ahead(v, h)  v's vtime one frame from now if it held h SMs: vtime + h * F / weight
//         short        its known work fits into its entitlement of a frame, and it does not lead V
//         steady       a change of a set stops all SMs of a vGPU (Machine::change_ns)
//
// Rules
//   give_free()   a free SM goes to the vGPU with room whose ahead(v, its SMs) is the least
//   exchange()    an SM moves from v to b if v, without it, would still be ahead of b:
//                 ahead(v, h - 1) > ahead(b, h). With h = 0 or 1 this is start-time fair queuing
//                 with turns of r * F; with many SMs it is apportionment (Adams' rule)
//   turn_end()    an SM is held for min(r, 1) * F, or for a hand-over's length if the taker is
//                 short or lacks whole SMs of its entitlement
//   is_short()    counts the end of the work, not a frame. A false claim is charged: the vGPU is
//                 then ahead and waits like others
//   room_of()     SMs that launches cannot use are left to others; lag beyond one quantum is lost
//   take_from_below()  a vGPU that will be back, by experience, before its SMs could be handed over
//                 and back keeps them and pays; with nobody working beside it for tiny pauses only
//   rests()       steady: F is up to 100 ms, a vGPU changes sets once in a turn, nobody is short,
//                 SMs return to their last holder, short pauses are hidden (parts/pauses.h)
//
// Guarantee  over a window T in which all compared are backlogged, |got / entitled - 1| is at most
//   2 (F + d) / T for a vGPU entitled to a hand-over's length in a frame, and (one turn + d) /
//   (entitlement in T) for others; d is the time that an SM takes to leave. tests/sim/wfq_test.cc.
// Priorities are strict. No timer while nobody else could use an SM (disengaged).
// Cost: O(log n) for each SM that moves, and one row of figures for each holder whose turn is over.
#include <algorithm>
#include <bit>
#include <vector>

#include "mediator/base/check.h"
#include "policies/parts/indexed_heap.h"
#include "policies/parts/pauses.h"
#include "policies/parts/share_tree.h"
#include "policies/policy.h"
#include "policies/wfq/fair_clock.h"
#include "policies/wfq/forms.h"
#include "policies/wfq/spatial_ahead.h"
#include "policies/wfq/spatial_figures.h"
#include "policies/wfq/spatial_rows.h"

namespace sluice::policy {
namespace {
using namespace wfq_spatial;

// An idle GPU waits for who pauses shorter than a hand-over by this.
constexpr uint64_t kWorthKeeping = 32;
// Exchanges of a decision that are not urgent. The others follow after a tick: no event takes long.
constexpr uint32_t kPatientAtOnce = 8;

class WfqSpatial final : public Policy, Ahead {
 public:
  explicit WfqSpatial(const Config& config) : Ahead(config), had_(sms_) {
    room_.reserve(kPriorityLevels);
    for (uint32_t i = 0; i < kPriorityLevels; ++i) room_.emplace_back(Less{&key_});
    for (uint32_t i = 0; i < sms_; ++i) free_sms_.push_back(static_cast<uint16_t>(i));
  }
  std::string_view name() const override { return "wfq"; }

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions&) override {
    clock_.add(v, share);
    if (v >= own_.size()) own_.resize(v + 1), key_.resize(v + 1);
    own_[v] = Own{};
    own_[v].per_weight = per_weight(v);
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    on_reweighed(now_ns, v, share, out);
    decide(now_ns, out);
  }
  void on_reweighed(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    leave_room(v);
    count_busy(v, false);
    clock_.change(v, share);
    own_[v].per_weight = per_weight(v);
    count_busy(v, clock_[v].backlogged());
    look_at(v);
  }
  void on_group(uint64_t, GroupId group, const GroupShare& share, Actions&) override {
    clock_.set_group(group, share.parent);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(!clock_[v].backlogged() && own_[v].held == 0 && own_[v].leaving == 0);
    clock_.remove(v);
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (clock_[v].backlogged()) return;
    Own& o = own_[v];
    const uint64_t gap_ns = now_ns - o.idle_since_ns;
    const uint64_t gap =
        std::clamp<uint64_t>(gap_ns, 1, kFrameNs);  // 0 would say that it is not known
    o.gap_ns = o.gap_ns ? (o.gap_ns * 3 + gap) / 4 : gap;
    // Kept for it while it paused: paid like use, or pausing would hold SMs for nothing.
    if (o.kept) {
      const uint64_t before = clock_[v].used_sm_ns,
                     charged = before - o.idle_at_sm_ns;  // sluiced's clock runs on
      clock_.charge(v, gap_ns * o.held - std::min(gap_ns * o.held, charged));
      const uint64_t paid = clock_[v].used_sm_ns - before;  // for no work
      o.known_to_sm_ns += paid, o.idle_at_sm_ns += paid;
      o.kept = false;
    }
    idling_.stop(now_ns);
    clock_.turn_busy(v);
    count_busy(v, true);
    look_at(v);
    decide(now_ns, out);
  }
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    const VgpuId v = launch.vgpu;
    Own& o = own_[v];
    const uint64_t run = std::min(launch.run_predicted_sm_ns, FairClock::kMaxUsage);
    if (launch.id == 0) {  // as a whole: nothing is known of how many SMs it can use
      set_known(v, run);
      if (!clock_[v].backlogged()) return;
      look_at(v);
      if (is_short(v)) decide(now_ns, out);
      return;
    }
    set_known(v, run ? std::max(known(v), run)
                     : std::min(known(v) + launch.predicted_sm_ns, FairClock::kMaxUsage));
    const uint32_t width = launch.sms_wanted ? std::min<uint32_t>(launch.sms_wanted, sms_) : sms_;
    o.width += width;
    o.launches.push_back({launch.id, width});
    look_at_width(now_ns, launch);
    if (!clock_[v].backlogged()) return;
    const bool had_room = room(v).contains(v);
    look_at(v);
    // One more launch of who could use more SMs anyway changes nothing, unless it is short.
    if ((!had_room && room(v).contains(v)) || is_short(v) || surplus_of(v)) decide(now_ns, out);
  }
  void on_launch_done(uint64_t, const Launch& launch, Actions&) override {
    Own& o = own_[launch.vgpu];
    const auto it = std::find_if(o.launches.begin(), o.launches.end(),
                                 [&](const OpenLaunch& t) { return t.id == launch.id; });
    if (it == o.launches.end()) return;
    o.width -= it->width;
    *it = o.launches.back();
    o.launches.pop_back();
    // Between its last launch and the next one it is what it was: counted here it would have room
    // for anything, and a next one that can use more than the last would be nothing new.
    if (!o.launches.empty()) look_at(launch.vgpu);
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (!clock_[v].backlogged()) return;
    leave_room(v);
    count_busy(v, false);
    clock_.turn_idle(v);
    Own& o = own_[v];
    o.width = 0;
    set_known(v, 0);
    o.idle_at_sm_ns = clock_[v].used_sm_ns;
    o.launches.clear();
    o.idle_since_ns = now_ns;
    if (o.place != kNowhere) write_row(v);
    // Ski rental, but only for vGPUs that are known to come back in time. Where sets are steady,
    // pauses.cc has seen to that.
    o.kept = !steady_ && o.held > 0 && o.gap_ns > 0 && static_cast<double>(o.gap_ns) < handover_ns_;
    decide(now_ns, out);
  }

  void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    const VgpuUsage report{v, usage};
    on_usages(now_ns, {&report, 1});
  }
  void on_usages(uint64_t, std::span<const VgpuUsage> reports) override {
    clock_.charge(reports, [&](uint32_t priority, int64_t back) {
      for (VgpuId i = 0; i < own_.size(); ++i)
        if (clock_[i].share.priority == priority) key_[i] -= back;
    });
  }
  bool reads_tasks() const override { return false; }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason why, Actions& out) override {
    on_released(now_ns, v, 0, {}, why, out);
  }
  void on_released(uint64_t now_ns, VgpuId v, LaunchId, SmRange sms, LeftReason,
                   Actions& out) override {
    const uint32_t hi = std::min<uint32_t>(sms.hi, sms_);
    for (uint32_t i = sms.lo; i < hi; ++i) {
      Sm& s = sm_[i];
      if (s.holder != v) continue;
      if (steady_) had_.note(i, v, now_ns);
      Own& o = own_[v];
      if (s.leaving) {
        --o.leaving;
        if (s.next != kNoVgpu) {
          --own_[s.next].coming;
          if (clock_[s.next].backlogged()) look_at(s.next);
        } else {
          --unassigned_;
        }
        o.drain_ns += (static_cast<double>(now_ns - s.since_ns) - o.drain_ns) / 8;
      } else {
        lose(v, i);
      }
      s = Sm{};
      free_sms_.push_back(static_cast<uint16_t>(i));
      if (!clock_[v].backlogged() || o.held + o.leaving > 0) continue;
      look_at(v);
    }
    drop_holder(v);
    if (clock_[v].backlogged()) look_at(v);
    decide(now_ns, out);
  }
  void on_handover(uint64_t, uint64_t cost_ns) override { learn_handover(cost_ns); }
  void on_change(uint64_t, uint64_t cost_ns) override { change_.learn(cost_ns); }
  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    decide(now_ns, out);
  }
  uint64_t quantum_ns() const override { return frame_ns(0); }

 private:
  // ---- who could use another SM
  IndexedHeap<Less>& room(VgpuId v) { return room_[clock_[v].share.priority]; }
  void count_busy(VgpuId v, bool busy) {
    auto& level = lightest_[clock_[v].share.priority];
    if (!steady_ || level.contains(v) == busy) return;
    if (busy)
      level.push(v);
    else
      level.remove(v);
  }
  void leave_room(VgpuId v) {
    if (!room(v).contains(v)) return;
    room(v).remove(v);
    if (room(v).empty()) levels_with_room_ &= ~(1u << clock_[v].share.priority);
  }
  void look_at(VgpuId v) {
    if (own_[v].place != kNowhere) write_row(v);
    if (!clock_[v].backlogged()) return;
    if (own_[v].rests_until_ns) return leave_room(v);
    if (room_of(v) == 0) {
      if (!own_[v].launches.empty()) {  // it has all that it can use: nobody keeps it from more
        clock_.forgive(v);
        if (own_[v].place != kNowhere) write_row(v);
      }
      return leave_room(v);
    }
    key_[v] = ahead_if_given(v);
    if (room(v).contains(v))
      room(v).update(v);
    else
      room(v).push(v), levels_with_room_ |= 1u << clock_[v].share.priority;
  }
  // The one that an SM should go to, kNoVgpu if nobody has room. Keys grow while their owners run
  // and the heap is not notified: the least one is checked again until it is true.
  VgpuId best(uint32_t priority) {
    auto& heap = room_[priority];
    while (!heap.empty()) {
      const VgpuId v = heap.top();
      const int64_t now = ahead_if_given(v);
      if (now <= key_[v]) return v;
      key_[v] = now;
      heap.update(v);
    }
    return kNoVgpu;
  }
  VgpuId best_of_all() {
    for (uint32_t levels = levels_with_room_; levels != 0;) {
      const auto i = static_cast<uint32_t>(std::bit_width(levels)) - 1;
      levels &= ~(1u << i);
      frame_ = frame_ns(i);
      rate_ = rate_of(i);
      if (const VgpuId v = best(i); v != kNoVgpu) return v;
    }
    return kNoVgpu;
  }

  // ---- SMs -----------------------------------------------------------------------------------
  void hold(VgpuId v, uint32_t sm, uint64_t now_ns) {
    sm_[sm] = {.holder = v, .since_ns = now_ns};
    Own& o = own_[v];
    ++o.held;
    o.changed_ns = now_ns;
    if (steady_) had_.note(sm, v, now_ns);
    o.sms.push_back(static_cast<uint16_t>(sm));
    if (o.place == kNowhere) o.place = holders_.add(v);
    write_row(v);
  }
  void lose(VgpuId v, uint32_t sm) {
    Own& o = own_[v];
    --o.held;
    o.sms.erase(std::find(o.sms.begin(), o.sms.end(), static_cast<uint16_t>(sm)));
  }
  void give_free(uint64_t now_ns, Actions& out) {
    if (free_sms_.empty()) return;
    // Lowest first, so that a vGPU gets a contiguous range; or what it had before.
    std::sort(free_sms_.begin(), free_sms_.end());
    given_.clear();
    while (!free_sms_.empty()) {
      const VgpuId v = best_of_all();
      if (v == kNoVgpu) break;
      const auto first = [&](uint16_t a, uint16_t b) {
        return had_.last_ns(a, v) > had_.last_ns(b, v);
      };
      const auto at =
          steady_ ? std::min_element(free_sms_.begin(), free_sms_.end(), first) : free_sms_.begin();
      given_.push_back({*at, v});
      hold(v, *at, now_ns);
      free_sms_.erase(at);
      look_at(v);
    }
    std::sort(given_.begin(), given_.end());
    for (size_t i = 0; i < given_.size();) {
      const auto [sm, v] = given_[i];
      uint16_t hi = sm;
      for (; i < given_.size() && given_[i] == std::pair{hi, v}; ++i) ++hi;
      out.push_back(Action::run(v, {sm, hi}));
    }
  }

  // v leaves `count` of the SMs that it may be asked for, the last to come first; where sets are
  // steady, those first that `next` had.
  void take(uint64_t now_ns, VgpuId v, VgpuId next, uint32_t count, uint64_t older_than_ns,
            Actions& out) {
    Own& o = own_[v];
    taken_.clear();
    for (size_t i = o.sms.size(); i-- > 0 && (steady_ || taken_.size() < count);)
      if (steady_ || sm_[o.sms[i]].since_ns <= older_than_ns) taken_.push_back(o.sms[i]);
    if (steady_) {
      std::stable_sort(taken_.begin(), taken_.end(), [&](uint16_t a, uint16_t b) {
        return had_.last_ns(a, next) > had_.last_ns(b, next);
      });
      taken_.resize(std::min<size_t>(taken_.size(), count));
      o.changed_ns = now_ns;
    }
    std::sort(taken_.begin(), taken_.end());
    for (const uint16_t i : taken_) {
      lose(v, i);
      ++o.leaving;
      if (next != kNoVgpu)
        ++own_[next].coming;
      else
        ++unassigned_;
      sm_[i].leaving = true;
      sm_[i].next = next;
      sm_[i].since_ns = now_ns;
    }
    for (size_t i = 0; i < taken_.size();) {
      size_t end = i + 1;
      while (end < taken_.size() && taken_[end] == taken_[end - 1] + 1) ++end;
      out.push_back(
          Action::evict(v, next, {taken_[i], static_cast<uint16_t>(taken_[end - 1] + 1)}));
      i = end;
    }
    drop_holder(v);
    if (clock_[v].backlogged()) look_at(v);
    if (next != kNoVgpu) look_at(next);
  }

  // ---- decisions -----------------------------------------------------------------------------
  void decide(uint64_t now_ns, Actions& out) {
    // What is free costs nobody anything.
    uint64_t rested_ns = wake_rested(free_sms_.empty() ? now_ns : kNever);
    give_free(now_ns, out);
    uint64_t wake_ns = kNever;
    // Each moves SMs from one to another; as many as hold any are enough for one event.
    for (size_t rounds = holders_.size() + 1; rounds-- > 0 && unassigned_ == 0;) {
      const VgpuId b = best_of_all();
      if (b == kNoVgpu) break;
      wake_ns = kNever;
      if (rests(now_ns, b, rested_ns)) continue;
      if (!exchange(now_ns, b, wake_ns, out)) break;
      if (rounds > 0 && questions_ < kPatientAtOnce) continue;
      wake_ns = now_ns + kTickNs;
      break;
    }
    forget_order();
    wake_ns = std::min(wake_ns, rested_ns);
    if (wake_ns == kNever) return;
    wake_ns = std::max(wake_ns, now_ns + kTickNs);
    if (wake_ns_ > now_ns && wake_ns_ <= wake_ns) return;  // that one will look again
    wake_ns_ = wake_ns;
    out.push_back(Action::wake(wake_ns));
  }

  // A vGPU that has had another set for less than a turn takes nothing, unless it lacks whole SMs.
  bool rests(uint64_t now_ns, VgpuId v, uint64_t& until_ns) {
    Own& o = own_[v];
    if (!steady_ || o.held == 0 || o.held + o.coming < static_cast<uint32_t>(entitled_sms(v)))
      return false;
    if (holders_.any_below(clock_[v].share.priority)) return false;
    uint64_t end_ns = o.changed_ns + static_cast<uint64_t>(std::min(entitled_sms(v), 1.0) *
                                                           static_cast<double>(frame_));
    // A vGPU with whole SMs waits for one that lacks SMs and rests: only the turns of those that
    // have less cannot wait.
    if (end_ns <= now_ns && entitled_sms(v) >= 1 && !resting_.empty()) end_ns = until_ns;
    if (end_ns <= now_ns) return false;
    o.rests_until_ns = end_ns;
    resting_.push_back(v);
    leave_room(v);
    until_ns = std::min(until_ns, end_ns);
    return true;
  }
  // vGPUs that have rested by now take part again. Returns when the next one will have.
  uint64_t wake_rested(uint64_t now_ns) {
    uint64_t next_ns = kNever;
    for (size_t i = 0; i < resting_.size();) {
      const VgpuId v = resting_[i];
      if (own_[v].rests_until_ns > now_ns && !holders_.any_below(clock_[v].share.priority)) {
        next_ns = std::min(next_ns, own_[v].rests_until_ns);
        ++i;
        continue;
      }
      own_[v].rests_until_ns = 0;
      resting_[i] = resting_.back();
      resting_.pop_back();
      look_at(v);
    }
    return next_ns;
  }
  // Takes SMs from whoever is furthest ahead for b. If nobody has to give any now, says when
  // somebody may.
  bool exchange(uint64_t now_ns, VgpuId b, uint64_t& wake_ns, Actions& out) {
    const uint32_t level = clock_[b].share.priority;
    const Own& taker = own_[b];
    const bool urgent = is_short(b) || is_low(b) ||
                        taker.held + taker.coming < static_cast<uint32_t>(entitled_sms(b));
    const Wanted wanted{.by = b,
                        .level = static_cast<int32_t>(level),
                        .key = ahead_if_given(b),
                        .now_ns = now_ns,
                        .urgent = urgent,
                        .least_ns = least_turn_ns()};
    if (frame_ != rows_of_frame_ || rate_ != rows_of_rate_) {
      rows_of_frame_ = frame_, rows_of_rate_ = rate_;
      turns_.renew(holders_, [&](Row& row) { return turn_end(row); });
      forget_order();
    }
    if (holders_.any_below(level) && take_from_below(wanted, wake_ns, out)) return true;
    const auto [victim, lead] = furthest_ahead(wanted);
    if (victim == kNoVgpu) {
      // Timers are no denser than that: one that is due by then checks again.
      if (wake_ns_ <= now_ns || wake_ns_ > now_ns + kTickNs) wake_ns = when_ahead(wanted, wake_ns);
      return false;
    }
    // As many as keep the order: each SM moves the two towards each other.
    const double step =
        static_cast<double>(frame_) * (own_[victim].per_weight + own_[b].per_weight);
    const auto more = static_cast<uint32_t>(
        std::min(static_cast<double>(lead) / step, static_cast<double>(sms_)));
    const uint32_t surplus = surplus_of(victim);
    const uint32_t count = std::min({1 + more, room_of(b), surplus ? surplus : own_[victim].held});
    take(now_ns, victim, b, count, now_ns - wanted.turn_ns(holders_[own_[victim].place]), out);
    return true;
  }
  // vGPUs that are idle or of a lower level leave what they have. Returns the first one that has to
  // now, if any.
  bool take_from_below(const Wanted& wanted, uint64_t& wake_ns, Actions& out) {
    for (const Row& row : holders_) {
      if (row.level >= wanted.level) continue;
      const VgpuId v = row.vgpu;
      const Own& o = own_[v];
      if (row.level != kIdle) {
        take(wanted.now_ns, v, wanted.by, std::min(room_of(wanted.by), o.held), kNever, out);
        return true;
      }
      const uint64_t for_ns = std::min(wanted.least_ns, 4 * o.gap_ns),
                     until_ns = o.idle_since_ns + for_ns;
      // If nobody works meanwhile, a pause must be next to nothing beside what handing over costs.
      const bool worth = o.gap_ns * kWorthKeeping <= wanted.least_ns || !holders_.all_idle() ||
                         idling_.may(wanted.now_ns, for_ns, handover_ns_);
      if (o.kept && wanted.now_ns < until_ns && worth) {
        wake_ns = std::min(wake_ns, until_ns);
        continue;
      }
      wake_ns = when_ahead(wanted, &row, wake_ns);
      own_[v].kept = false;
      idling_.stop(wanted.now_ns);
      take(wanted.now_ns, v, kNoVgpu, o.held, kNever, out);  // whoever is best when they come
      return true;
    }
    return false;
  }

  std::vector<int64_t> key_;  // of each vGPU, as the heap knows it; never above the true one
  Holders had_;
  std::vector<VgpuId> resting_;
  std::vector<std::pair<uint16_t, VgpuId>> given_;  // scratch of give_free()
  std::vector<uint16_t> taken_;                     // scratch of take()
  std::vector<uint16_t> free_sms_;
  uint64_t rows_of_frame_ = 0;  // what their rows were written with
  double rows_of_rate_ = 0;
  std::vector<IndexedHeap<Less>> room_;  // by priority: busy and able to use another SM
  static_assert(kPriorityLevels <= 32);
  uint32_t levels_with_room_ = 0;  // a bit for each of room_ that is not empty
  uint32_t unassigned_ = 0;        // SMs that idle ones are leaving, for nobody yet
  uint64_t wake_ns_ = 0;
  Idling idling_;
};

}  // namespace

std::unique_ptr<Policy> make_wfq_spatial(const Config& config) {
  return keep_pauses(config, share_tree(config, std::make_unique<WfqSpatial>(config)));
}

}  // namespace sluice::policy
