// wfq for exclusive preemptors that can give a part of the SMs (Machine::spatial): vGPUs run side by side, and
// what is shared is SM-time. The unit of a decision is one SM.
//
// With whole-GPU turns of length q, a vGPU that is owed a share s of a second can be off by q * (1 - s): 256 equal
// vGPUs within 1 % would need turns of 39 us. Side by side each is owed r = SMs * s of an SM; who is owed 8.25 SMs
// holds 8 of them for good and a ninth for a quarter of the time, and who is owed half an SM has turns of
// milliseconds on one. So the same accuracy costs some SMs' worth of longer turns (McNaughton's wrap-around rule
// is the same with everything known beforehand).
//
// One rule divides space and time. Virtual times are fair_clock.h's. Where would v's virtual time be one frame F from
// now if it held h SMs: ahead(v, h) = vtime + h * F / weight.
//   - A free SM goes to the vGPU with room whose ahead(v, its SMs) is the least.
//   - An SM moves from v to b if v, without it, would still be ahead of b: ahead(v, h - 1) > ahead(b, h).
// With h = 0 or 1 this is start-time fair queuing with turns of r * F; with many SMs it is apportionment (Adams' rule).
// A short job - what is known of it fits into its share of a frame - counts the end of its work, not a frame, and takes SMs that
// have been held for a hand-over's length. Who says so and goes on is charged: its vtime is then ahead, and it waits
// like everybody.
//   - Turns: an SM is not taken from its holder before it had it for min(r, 1) * F, or for a hand-over's length if
//     the taker lacks the whole SMs of its share or is short. A hand-over's length is the least turn: less, and an SM would
//     leave more than it works.
//   - F is kFrameNs (or the latency target, if less), but long enough that all hand-overs together cost at most
//     handover_loss of the GPU.
//   - Bound: over a window T, with all compared backlogged, |got / owed - 1| <= 2 (F + d) / T for those owed at least
//     a hand-over's length in a frame, and (one turn + d) / (owed in T) for those owed less, d the time that an SM
//     takes to leave. Measured: docs/papers.md.
//   - A vGPU that cannot use more SMs (Launch::sms_wanted) leaves them to the others, and what it would be owed beyond
//     is forgotten but for one quantum's credit.
//   - A tenant that comes back, by experience, sooner than its SMs could be handed over and back keeps them meanwhile
//     and pays for it; if nobody works beside it, only if its pauses are next to nothing.
//   - Priorities are strict; a higher level takes what it can use at once, a lower one has the rest.
//   - Disengaged: no timer while nobody else could use an SM.
// Cost: O(log n) for each SM that moves, and for each round of moves a look at a short row of figures for each who holds SMs (at
// most as many as there are SMs), kept up to date as they change.
#include <algorithm>
#include <vector>

#include "mediator/base/check.h"
#include "policies/fair_clock.h"
#include "policies/indexed_heap.h"
#include "policies/policy.h"
#include "policies/wfq_spatial_rows.h"

namespace sluice::policy {
namespace {
using namespace wfq_spatial;

// Two turns more or less in a second, the begin and the end of a window, stay below 1 % of the share.
constexpr uint64_t kFrameNs = 4'000'000;
// Timers are no denser than this: crossings that lie closer are decided together.
constexpr uint64_t kTickNs = 10'000;
// An idle GPU waits for a tenant whose pauses are shorter than a hand-over by this.
constexpr uint64_t kWorthKeeping = 32;
// ... and for others as long as that costs this part of the time; so many hand-overs' lengths at once.
constexpr double kIdleLoss = 0.009, kIdleBurst = 8;
// Beyond any GPU; bounds the tables.
constexpr uint32_t kMaxSms = 4096;

class WfqSpatial final : public Policy {
 public:
  explicit WfqSpatial(const Config& config)
      : config_(config), clock_(config), sms_(std::clamp(config.machine.sm_count, 1u, kMaxSms)), sm_(sms_),
        free_(sms_), handover_ns_(static_cast<double>(config.machine.handover_ns)) {
    room_.reserve(kPriorityLevels);
    for (uint32_t i = 0; i < kPriorityLevels; ++i) room_.emplace_back(Less{&own_});
    for (uint32_t i = 0; i < sms_; ++i) free_sms_.push_back(i);
  }
  std::string_view name() const override { return "wfq"; }

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions&) override {
    clock_.add(now_ns, v, share);
    if (v >= own_.size()) own_.resize(v + 1);
    own_[v] = Own{};
    own_[v].per_weight = per_weight(v);
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    leave_room(v);
    clock_.change(v, share);
    own_[v].per_weight = per_weight(v);
    look_at(v);
    decide(now_ns, out);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(!clock_[v].busy && own_[v].held == 0 && own_[v].leaving == 0);
    clock_.remove(v);
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (clock_[v].busy) return;
    Own& o = own_[v];
    const uint64_t gap_ns = now_ns - o.idle_since_ns;
    const uint64_t gap = std::clamp<uint64_t>(gap_ns, 1, kFrameNs);  // 0 would say that it is not known
    o.gap_ns = o.gap_ns ? (o.gap_ns * 3 + gap) / 4 : gap;
    // Kept for it while it paused: paid like use, or pausing would be a way to hold SMs for nothing.
    if (o.kept) clock_.charge(v, gap_ns * o.held), o.kept = false;
    stop_idling(now_ns);
    clock_.turn_busy(now_ns, v);
    look_at(v);
    decide(now_ns, out);
  }
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    const VgpuId v = launch.vgpu;
    Own& o = own_[v];
    const uint64_t run = std::min(launch.run_predicted_sm_ns, FairClock::kMaxUsage);
    if (launch.id == 0) {  // as a whole: nothing is known of how many SMs it can use
      o.known = run;
      if (!clock_[v].busy) return;
      look_at(v);
      if (is_short(v)) decide(now_ns, out);
      return;
    }
    o.known = run ? std::max(o.known, run) : std::min(o.known + launch.predicted_sm_ns, FairClock::kMaxUsage);
    const uint32_t width = launch.sms_wanted ? std::min<uint32_t>(launch.sms_wanted, sms_) : sms_;
    o.width += width;
    o.launches.push_back({launch.id, width});
    if (!clock_[v].busy) return;
    const bool had_room = room(v).contains(v);
    look_at(v);
    // One more launch of who could use more SMs anyway changes nothing, unless it is short.
    if ((!had_room && room(v).contains(v)) || is_short(v)) decide(now_ns, out);
  }
  void on_launch_done(uint64_t, const Launch& launch, Actions&) override {
    Own& o = own_[launch.vgpu];
    const auto it = std::find_if(o.launches.begin(), o.launches.end(), [&](const Told& t) { return t.id == launch.id; });
    if (it == o.launches.end()) return;
    o.width -= it->width;
    *it = o.launches.back();
    o.launches.pop_back();
    look_at(launch.vgpu);
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (!clock_[v].busy) return;
    leave_room(v);
    clock_.turn_idle(now_ns, v);
    Own& o = own_[v];
    o.known = o.spent = o.width = 0;
    o.launches.clear();
    o.idle_since_ns = now_ns;
    if (o.place != kNowhere) write_row(v);
    // Ski rental, but only for those who have shown that they come back in time.
    o.kept = o.held > 0 && o.gap_ns > 0 && static_cast<double>(o.gap_ns) < handover_ns_;
    decide(now_ns, out);
  }

  void on_usage(uint64_t, VgpuId v, const Usage& usage) override {
    const int64_t before = clock_[v].vtime;
    const int64_t back = clock_.charge(v, usage.sm_ns);
    Own& o = own_[v];
    if (o.place != kNowhere) holders_[o.place].ahead += clock_[v].vtime - before;
    o.known -= std::min<uint64_t>(o.known, usage.sm_ns);
    o.spent = std::min<uint64_t>(o.spent + std::min<uint64_t>(usage.sm_ns, FairClock::kMaxUsage), FairClock::kMaxUsage);
    if (!back) return;
    rows_of_rate_ = 0;
    for (VgpuId i = 0; i < own_.size(); ++i)
      if (clock_[i].share.priority == clock_[v].share.priority) own_[i].key -= back;
  }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason why, Actions& out) override {
    on_released(now_ns, v, 0, {}, why, out);
  }
  void on_released(uint64_t now_ns, VgpuId v, LaunchId, SmRange sms, LeftReason, Actions& out) override {
    const uint32_t hi = std::min<uint32_t>(sms.hi, sms_);
    for (uint32_t i = sms.lo; i < hi; ++i) {
      Sm& s = sm_[i];
      if (s.holder != v) continue;
      Own& o = own_[v];
      if (s.leaving) {
        --o.leaving;
        if (s.next != kNoVgpu) {
          --own_[s.next].coming;
          if (clock_[s.next].busy) look_at(s.next);
        } else {
          --unassigned_;
        }
        o.drain_ns += (static_cast<double>(now_ns - s.since_ns) - o.drain_ns) / 8;
      } else {
        lose(v, i);
      }
      s = Sm{};
      free_sms_.push_back(i);
      if (!clock_[v].busy || o.held + o.leaving > 0) continue;
      look_at(v);
    }
    drop_holder(v);
    if (clock_[v].busy) look_at(v);
    decide(now_ns, out);
  }
  void on_handover(uint64_t, uint64_t cost_ns) override {
    const double bound = static_cast<double>(config_.max_quantum_ns) * config_.handover_loss;
    handover_ns_ += (std::min(static_cast<double>(cost_ns), bound) - handover_ns_) / 8;
    // The frame does not follow each of them: what rests on it would have to be reckoned anew each time.
    if (handover_ns_ > 1.25 * frame_handover_ns_ || handover_ns_ < 0.8 * frame_handover_ns_) frame_handover_ns_ = handover_ns_;
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    decide(now_ns, out);
  }
  uint64_t quantum_ns() const override { return frame_ns(0); }

 private:
  // ---- figures -------------------------------------------------------------------------------
  // All who take turns on parts of an SM hand over once in a frame, those at most that there are SMs at a time.
  uint64_t frame_ns(uint32_t priority) const {
    const double busy = clock_.busy(priority);
    const double paid = config_.handover_loss > 0 ? frame_handover_ns_ * busy / (config_.handover_loss * sms_) : 0;
    const uint64_t wanted = std::min(kFrameNs, std::max<uint64_t>(config_.latency_target_ns, kTickNs));
    return std::clamp(static_cast<uint64_t>(paid), wanted, std::max(wanted, config_.max_quantum_ns));
  }
  uint64_t least_turn_ns() const { return static_cast<uint64_t>(handover_ns_); }
  double per_weight(VgpuId v) const { return static_cast<double>(FairClock::kScale) / clock_[v].share.weight; }
  // SMs for each unit of weight, of the level that is looked at.
  double rate_of(uint32_t priority) const {
    return static_cast<double>(sms_) / static_cast<double>(std::max<int64_t>(clock_.weight(priority), 1));
  }
  double owed_sms(VgpuId v) const { return rate_ * clock_[v].share.weight; }
  uint32_t room_of(VgpuId v) const {
    const Own& o = own_[v];
    const uint64_t limit = o.launches.empty() ? sms_ : std::clamp<uint64_t>(o.width, 1, sms_);
    const uint64_t has = static_cast<uint64_t>(o.held) + o.coming;
    return has < limit ? static_cast<uint32_t>(limit - has) : 0;
  }
  // All its work is known and fits into its share of a frame, and it is not ahead: who claims to be short and is not is
  // ahead after one frame.
  bool is_short(VgpuId v) const {
    const Own& o = own_[v];
    return o.known > 0 && static_cast<double>(o.known + o.spent) <= owed_sms(v) * static_cast<double>(frame_) &&
           clock_.lead_sm_ns(v) <= 0;
  }
  int64_t ahead(VgpuId v, uint32_t sms) const {
    double work = static_cast<double>(static_cast<uint64_t>(sms) * frame_);
    if (is_short(v)) work = std::min(work, static_cast<double>(own_[v].known));
    return clock_[v].vtime + static_cast<int64_t>(work * own_[v].per_weight);
  }
  int64_t ahead_if_given(VgpuId v) const { return ahead(v, own_[v].held + own_[v].coming); }
  // Without one of its SMs, and with what that takes to leave.
  int64_t ahead_if_taken(VgpuId v) const {
    const Own& o = own_[v];
    return ahead(v, std::max(o.held, 1u) - 1) +
           static_cast<int64_t>(o.drain_ns * o.per_weight);
  }

  // ---- who could use another SM --------------------------------------------------------------
  IndexedHeap<Less>& room(VgpuId v) { return room_[clock_[v].share.priority]; }
  void leave_room(VgpuId v) {
    if (room(v).contains(v)) room(v).remove(v);
  }
  void look_at(VgpuId v) {
    if (own_[v].place != kNowhere) write_row(v);
    if (!clock_[v].busy) return;
    if (room_of(v) == 0) {
      // It has all that it can use: nobody keeps it from more.
      if (!own_[v].launches.empty()) {
        clock_.forgive(v);
        if (own_[v].place != kNowhere) write_row(v);
      }
      return leave_room(v);
    }
    own_[v].key = ahead_if_given(v);
    if (room(v).contains(v)) room(v).update(v);
    else room(v).push(v);
  }
  // The one that an SM should go to, kNoVgpu if nobody has room. Keys grow while their owners run and the heap is
  // not told: the least one is looked at again until it is true.
  VgpuId best(uint32_t priority) {
    auto& heap = room_[priority];
    while (!heap.empty()) {
      const VgpuId v = heap.top();
      const int64_t now = ahead_if_given(v);
      if (now <= own_[v].key) return v;
      own_[v].key = now;
      heap.update(v);
    }
    return kNoVgpu;
  }
  VgpuId best_of_all() {
    for (uint32_t i = kPriorityLevels; i-- > 0;) {
      if (room_[i].empty()) continue;
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
    o.sms.push_back(static_cast<uint16_t>(sm));
    if (o.place == kNowhere) {
      o.place = static_cast<uint32_t>(holders_.size());
      holders_.push_back({.vgpu = v});
    }
    write_row(v);
  }
  void lose(VgpuId v, uint32_t sm) {
    Own& o = own_[v];
    --o.held;
    o.sms.erase(std::find(o.sms.begin(), o.sms.end(), static_cast<uint16_t>(sm)));
  }
  void drop_holder(VgpuId v) {
    Own& o = own_[v];
    if (o.held || o.place == kNowhere) return;
    holders_[o.place] = holders_.back();
    own_[holders_.back().vgpu].place = o.place;
    holders_.pop_back();
    o.place = kNowhere;
  }

  void give_free(uint64_t now_ns, Actions& out) {
    if (free_sms_.empty()) return;
    // Lowest first, so that what one vGPU gets hangs together.
    std::sort(free_sms_.begin(), free_sms_.end());
    size_t given = 0;
    for (; given < free_sms_.size(); ++given) {
      const VgpuId v = best_of_all();
      if (v == kNoVgpu) break;
      free_[given] = v;
      hold(v, free_sms_[given], now_ns);
      look_at(v);
    }
    for (size_t i = 0; i < given;) {
      size_t end = i + 1;
      while (end < given && free_[end] == free_[i] && free_sms_[end] == free_sms_[end - 1] + 1) ++end;
      out.push_back(Action::run(free_[i], {static_cast<uint16_t>(free_sms_[i]),
                                           static_cast<uint16_t>(free_sms_[end - 1] + 1)}));
      i = end;
    }
    free_sms_.erase(free_sms_.begin(), free_sms_.begin() + static_cast<std::ptrdiff_t>(given));
  }

  // v leaves `count` of the SMs that it may be asked for, the last to come first.
  void take(uint64_t now_ns, VgpuId v, VgpuId next, uint32_t count, uint64_t older_than_ns, Actions& out) {
    Own& o = own_[v];
    taken_.clear();
    for (size_t i = o.sms.size(); i-- > 0 && taken_.size() < count;)
      if (sm_[o.sms[i]].since_ns <= older_than_ns) taken_.push_back(o.sms[i]);
    std::sort(taken_.begin(), taken_.end());
    for (const uint16_t i : taken_) {
      lose(v, i);
      ++o.leaving;
      if (next != kNoVgpu) ++own_[next].coming;
      else ++unassigned_;
      sm_[i].leaving = true;
      sm_[i].next = next;
      sm_[i].since_ns = now_ns;
    }
    for (size_t i = 0; i < taken_.size();) {
      size_t end = i + 1;
      while (end < taken_.size() && taken_[end] == taken_[end - 1] + 1) ++end;
      out.push_back(Action::evict(v, next, {taken_[i], static_cast<uint16_t>(taken_[end - 1] + 1)}));
      i = end;
    }
    drop_holder(v);
    if (clock_[v].busy) look_at(v);
    if (next != kNoVgpu) look_at(next);
  }

  // ---- decisions -----------------------------------------------------------------------------
  void decide(uint64_t now_ns, Actions& out) {
    give_free(now_ns, out);
    uint64_t wake_ns = kNever;
    // Each round moves SMs from one to another; as many as hold any are enough for one event.
    for (size_t rounds = holders_.size() + 1; rounds-- > 0 && unassigned_ == 0;) {
      const VgpuId b = best_of_all();
      if (b == kNoVgpu) break;
      wake_ns = kNever;
      if (!exchange(now_ns, b, wake_ns, out)) break;
      if (rounds == 0) wake_ns = now_ns + kTickNs;
    }
    if (wake_ns == kNever) return;
    wake_ns = std::max(wake_ns, now_ns + kTickNs);
    if (wake_ns_ > now_ns && wake_ns_ <= wake_ns) return;  // that one will look again
    wake_ns_ = wake_ns;
    out.push_back(Action::wake(wake_ns));
  }

  // Takes SMs from whoever is furthest ahead for b. If nobody has to give any now, says when somebody may.
  bool exchange(uint64_t now_ns, VgpuId b, uint64_t& wake_ns, Actions& out) {
    const uint32_t level = clock_[b].share.priority;
    const Own& taker = own_[b];
    const int64_t key = ahead_if_given(b);
    const bool urgent = is_short(b) || taker.held + taker.coming < static_cast<uint32_t>(owed_sms(b));
    const uint64_t least = least_turn_ns();
    if (frame_ != rows_of_frame_ || rate_ != rows_of_rate_) {
      rows_of_frame_ = frame_, rows_of_rate_ = rate_;
      for (const Row& row : holders_) write_row(row.vgpu);
    }
    VgpuId victim = kNoVgpu;
    int64_t most = 0;
    for (const Row& row : holders_) {
      const VgpuId v = row.vgpu;
      if (row.level != static_cast<int32_t>(level) || v == b) {
        if (row.level == kIdle) {
          const Own& o = own_[v];
          // If nobody works meanwhile, a pause must be next to nothing beside what handing over costs.
          const bool worth = o.gap_ns * kWorthKeeping <= least || somebody_works() || may_idle(now_ns, std::min(least, 4 * o.gap_ns));
          const uint64_t until_ns = o.idle_since_ns + std::min(least, 4 * o.gap_ns);
          if (o.kept && now_ns < until_ns && worth) {
            wake_ns = std::min(wake_ns, until_ns);
            continue;
          }
          own_[v].kept = false;
          stop_idling(now_ns);
          take(now_ns, v, kNoVgpu, o.held, kNever, out);  // whoever is best when they come
          return true;
        }
        if (row.level > static_cast<int32_t>(level) || v == b) continue;
        take(now_ns, v, b, std::min(room_of(b), own_[v].held), kNever, out);
        return true;
      }
      const uint64_t ripe_ns = row.oldest_ns + (urgent ? least : row.turn_ns);
      const int64_t lead = row.ahead - key;
      if (lead > 0 && ripe_ns <= now_ns) {
        if (victim == kNoVgpu || lead > most) victim = v, most = lead;
        continue;
      }
      if (ripe_ns >= wake_ns) continue;
      // When its lead is there, at its present speed.
      const double until = lead > 0 ? 0 : std::min(static_cast<double>(1 - lead) * row.ns_per_lead, 1e12);
      wake_ns = std::min(wake_ns, std::max(ripe_ns, now_ns + static_cast<uint64_t>(until)));
    }
    if (victim == kNoVgpu) return false;
    // As many as keep the order: each SM moves the two towards each other.
    const double step = static_cast<double>(frame_) * (own_[victim].per_weight + own_[b].per_weight);
    const auto more = static_cast<uint32_t>(std::min(static_cast<double>(most) / step, static_cast<double>(sms_)));
    const uint32_t count = std::min({1 + more, room_of(b), own_[victim].held});
    take(now_ns, victim, b, count, now_ns - (urgent ? least : holders_[own_[victim].place].turn_ns), out);
    return true;
  }
  // The whole GPU waits for somebody's next launch. All of that together costs at most kIdleLoss of the time.
  bool may_idle(uint64_t now_ns, uint64_t for_ns) {
    if (idles_since_ns_) return true;
    idle_credit_ns_ = std::min(idle_credit_ns_ + static_cast<double>(now_ns - idle_credit_at_ns_) * kIdleLoss, kIdleBurst * handover_ns_);
    idle_credit_at_ns_ = now_ns;
    if (idle_credit_ns_ < static_cast<double>(for_ns)) return false;
    idles_since_ns_ = now_ns;
    return true;
  }
  void stop_idling(uint64_t now_ns) {
    if (idles_since_ns_) idle_credit_ns_ -= static_cast<double>(now_ns - idles_since_ns_);
    idles_since_ns_ = 0;
  }
  bool somebody_works() const {
    return std::any_of(holders_.begin(), holders_.end(), [](const Row& row) { return row.level != kIdle; });
  }
  // What exchange() has to know of a holder, after something of it has changed.
  void write_row(VgpuId v) {
    const Own& o = own_[v];
    Row& row = holders_[o.place];
    row.level = clock_[v].busy ? static_cast<int32_t>(clock_[v].share.priority) : kIdle;
    row.oldest_ns = oldest(v);
    row.ahead = ahead_if_taken(v);
    // What it has beyond its share, rounded up, it has only because nobody else was there.
    const double owed = owed_sms(v);
    const bool beyond = static_cast<double>(o.held) > owed + 1;
    row.turn_ns = least_turn_ns();
    if (!beyond) row.turn_ns = std::max(row.turn_ns, static_cast<uint64_t>(std::min(owed, 1.0) * static_cast<double>(frame_)));
    row.ns_per_lead = 1 / (static_cast<double>(std::max(o.held + o.leaving, 1u)) * o.per_weight);
  }
  uint64_t oldest(VgpuId v) const {
    uint64_t ns = kNever;
    for (const uint16_t i : own_[v].sms) ns = std::min(ns, sm_[i].since_ns);
    return ns;
  }

  static constexpr uint64_t kNever = ~0ull;
  const Config config_;
  FairClock clock_;
  const uint32_t sms_;
  std::vector<Own> own_;
  std::vector<Sm> sm_;
  std::vector<VgpuId> free_;          // scratch of give_free()
  std::vector<uint16_t> taken_;       // scratch of take()
  std::vector<uint32_t> free_sms_;
  std::vector<Row> holders_;          // with held SMs
  uint64_t rows_of_frame_ = 0;        // what their rows were written with
  double rows_of_rate_ = 0;
  std::vector<IndexedHeap<Less>> room_;  // by priority: busy and able to use another SM
  uint32_t unassigned_ = 0;           // SMs that idle ones are leaving, for nobody yet
  uint64_t frame_ = kFrameNs;         // these two of the level that is looked at
  double rate_ = 1;
  uint64_t wake_ns_ = 0;
  double idle_credit_ns_ = 0;
  uint64_t idle_credit_at_ns_ = 0, idles_since_ns_ = 0;
  double handover_ns_;
  double frame_handover_ns_ = handover_ns_;
};

}  // namespace

std::unique_ptr<Policy> make_wfq_spatial(const Config& config) { return std::make_unique<WfqSpatial>(config); }

}  // namespace sluice::policy
