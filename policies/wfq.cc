// wfq: start-time weighted fair queuing over measured GPU time, the default policy.
//
// Each vGPU has a virtual time: the SM-time it has used, divided by its weight. The one with the
// smallest runs; after a quantum the next decision is made. So the virtual times of vGPUs that have
// work stay within a quantum of each other, and their shares follow their weights.
//   - The system's virtual time V of a priority level is the mean of its busy vGPUs' virtual times,
//     weighted by weight (as in EEVDF, Stoica & Abdel-Wahab 1995), so the lags V - vt add up to nothing.
//   - A vGPU that turns busy starts at max(its own finish, V): nobody saves up GPU time by being idle
//     (LoGA section 3.4, NEON). Only across a gap shorter than `short_gap_ns` is its lag kept, at most
//     max_quantum_ns of credit, because a program that pauses between two launches is owed what it was
//     owed; with a full reset such a program would lose its turn at each pause.
//   - The quantum is at least the measured hand-over / handover_loss; above that it shrinks with
//     the number of busy vGPUs towards latency_target / n; min and max from the config bound it.
//     A waiting vGPU whose virtual time is below the one that the holder's turn began with (it came
//     back owed) waits for that least quantum only.
//   - Disengaged: while one vGPU alone has work there is no timer and nothing to decide.
//   - Who turns idle while others wait loses the GPU at once (work conservation).
//   - Priorities are strict: a higher level runs first and takes the GPU at once; V and quantum are
//     each level's own. Starving lower levels is then what the operator asked for.
// Time that a vGPU takes to leave (or a long opaque launch) is charged to it like any other, without
// bound: it waits that much longer for its next turn.
#include <algorithm>
#include <vector>

#include "mediator/base/check.h"
#include "policies/indexed_heap.h"
#include "policies/policy.h"

namespace sluice::policy {
namespace {

__extension__ typedef __int128 Int128;

// Virtual time is kScale * SM-nanoseconds / weight. 64 keeps the division's remainder below 160
// SM-nanoseconds at the largest weight.
constexpr int64_t kScale = 64;
// One report is clipped here (days of a whole GPU): larger would overflow before the rebase below.
constexpr uint64_t kMaxUsage = 1ull << 50;
// Lags are clipped here (seconds of a whole GPU at weight 1), so that scaling one by two weights
// cannot overflow. Only a debt kept over a short gap or a change of weight is ever cut by it.
constexpr int64_t kMaxLag = 1ll << 46;
// Virtual times are moved back by V when V reaches this, so that they never overflow.
constexpr int64_t kRebaseAt = 1ll << 60;

class Wfq final : public Policy {
 public:
  explicit Wfq(const Config& config)
      : config_(config), handover_ns_(static_cast<double>(config.machine.handover_ns)) {
    levels_.reserve(kPriorityLevels);
    for (uint32_t i = 0; i < kPriorityLevels; ++i) levels_.emplace_back(Less{&vgpus_});
  }
  std::string_view name() const override { return "wfq"; }

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions&) override {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    Vgpu& g = vgpus_[v];
    SLUICE_CHECK(!g.present);
    g = Vgpu{};
    g.present = true;
    g.share = bounded(share);
    g.vtime = level(g).vtime();
    g.idle_since_ns = now_ns;
  }

  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    Vgpu& g = vgpus_[v];
    const VgpuShare changed = bounded(share);
    const bool waits = level(g).waiting.contains(v);
    if (waits) level(g).waiting.remove(v);
    // What it is owed (or owes) in GPU time stays the same.
    if (g.busy) leave(v);
    g.lag = clipped(static_cast<Int128>(g.lag) * g.share.weight / changed.weight);
    const bool moved = g.share.priority != changed.priority;
    g.share = changed;
    if (moved) {
      g.lag = 0;
      g.vtime = level(g).vtime();
    }
    if (g.busy) join(v, /*keep_lag=*/true);
    if (waits) level(g).waiting.push(v);
    if (v == holder_) slice_start_vtime_ = g.vtime;
    decide(now_ns, out);
  }

  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(v != holder_ && !vgpus_[v].busy);
    vgpus_[v].present = false;
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    Vgpu& g = vgpus_[v];
    if (g.busy) return;
    g.busy = true;
    join(v, now_ns - g.idle_since_ns <= config_.short_gap_ns);
    if (v != holder_) level(g).waiting.push(v);
    decide(now_ns, out);
  }

  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    Vgpu& g = vgpus_[v];
    if (!g.busy) return;
    leave(v);
    g.busy = false;
    g.idle_since_ns = now_ns;
    if (level(g).waiting.contains(v)) level(g).waiting.remove(v);
    decide(now_ns, out);
  }

  void on_usage(uint64_t, VgpuId v, const Usage& usage) override {
    Vgpu& g = vgpus_[v];
    const uint64_t sm_ns = std::min(usage.sm_ns, kMaxUsage);
    const int64_t delta = static_cast<int64_t>(sm_ns) * kScale / g.share.weight;
    g.vtime += delta;
    if (!g.busy) {
      g.lag = clipped(static_cast<Int128>(g.lag) - delta);
      return;
    }
    Level& l = level(g);
    l.weighted_sum += static_cast<Int128>(delta) * g.share.weight;
    if (l.waiting.contains(v)) l.waiting.update(v);  // charged beside the holder
    if (l.vtime() >= kRebaseAt) rebase(g.share.priority);
  }

  void on_left(uint64_t now_ns, VgpuId v, LeftReason, Actions& out) override {
    if (v != holder_) return;
    holder_ = kNoVgpu;
    leaving_ = false;
    if (vgpus_[v].busy) level(vgpus_[v]).waiting.push(v);
    decide(now_ns, out);
  }

  void on_handover(uint64_t, uint64_t cost_ns) override {
    // Clipped at what max_quantum_ns can pay for, so that one stuck eviction does not lengthen
    // everybody's quantum for long.
    const double bound = static_cast<double>(config_.max_quantum_ns) * config_.handover_loss;
    handover_ns_ += (std::min(static_cast<double>(cost_ns), bound) - handover_ns_) / 8;
  }

  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    decide(now_ns, out);
  }

  uint64_t quantum_ns() const override {
    uint32_t busy = 0;
    for (const Level& l : levels_) busy = std::max(busy, l.busy);
    return quantum_for(busy);
  }

 private:
  struct Vgpu {
    bool present = false;
    bool busy = false;
    VgpuShare share;
    int64_t vtime = 0;
    uint64_t turn = 0;  // number of its last turn, 0: none since it was added
    int64_t lag = 0;  // V - vtime when it turned idle, less what it was charged since
    uint64_t idle_since_ns = 0;
  };
  struct Less {
    const std::vector<Vgpu>* vgpus;
    bool operator()(uint32_t a, uint32_t b) const {
      const Vgpu &x = (*vgpus)[a], &y = (*vgpus)[b];
      if (x.vtime != y.vtime) return x.vtime < y.vtime;
      // Who ran last goes last, or an eviction that took no time would give it the GPU right back.
      return x.turn != y.turn ? x.turn < y.turn : a < b;
    }
  };
  struct Level {
    explicit Level(Less less) : waiting(less) {}
    IndexedHeap<Less> waiting;  // busy and not the holder
    Int128 weighted_sum = 0;    // of weight * vtime over the busy, the holder included
    int64_t weight = 0;
    int64_t last = 0;           // V when the last busy one left
    uint32_t busy = 0;
    int64_t vtime() const {
      return weight ? static_cast<int64_t>(weighted_sum / weight) : last;
    }
  };

  static VgpuShare bounded(VgpuShare s) {
    s.weight = std::clamp(s.weight, 1u, kMaxWeight);
    s.priority = std::min(s.priority, kPriorityLevels - 1);
    return s;
  }
  static int64_t clipped(Int128 lag) {
    return static_cast<int64_t>(std::clamp<Int128>(lag, -kMaxLag, kMaxLag));
  }
  Level& level(const Vgpu& g) { return levels_[g.share.priority]; }

  void join(VgpuId v, bool keep_lag) {
    Vgpu& g = vgpus_[v];
    Level& l = level(g);
    const int64_t now = l.vtime();
    if (keep_lag && l.weight > 0) {
      const int64_t credit = static_cast<int64_t>(std::min(
          kMaxUsage, config_.max_quantum_ns * config_.machine.sm_count)) * kScale / g.share.weight;
      // V moves as v joins; placed here, its lag to the new V is what it was.
      const Int128 lag = std::min(g.lag, credit);
      g.vtime = now - static_cast<int64_t>(lag * (l.weight + g.share.weight) / l.weight);
    } else {
      g.vtime = std::max(g.vtime, now);
    }
    l.weighted_sum += static_cast<Int128>(g.vtime) * g.share.weight;
    l.weight += g.share.weight;
    ++l.busy;
  }
  void leave(VgpuId v) {
    Vgpu& g = vgpus_[v];
    Level& l = level(g);
    const int64_t now = l.vtime();
    g.lag = clipped(static_cast<Int128>(now) - g.vtime);
    l.weighted_sum -= static_cast<Int128>(g.vtime) * g.share.weight;
    l.weight -= g.share.weight;
    --l.busy;
    if (l.weight == 0) l.last = now;
  }

  void rebase(uint32_t priority) {
    Level& l = levels_[priority];
    const int64_t back = l.vtime();
    l.weighted_sum -= static_cast<Int128>(back) * l.weight;
    // A turn that began many rebases ago (nobody else came) must not run away downwards.
    if (holder_ != kNoVgpu && vgpus_[holder_].share.priority == priority)
      slice_start_vtime_ = std::max(slice_start_vtime_ - back, -kRebaseAt);
    for (Vgpu& g : vgpus_) {
      if (!g.present || g.share.priority != priority) continue;
      // An idle one far behind would start at V anyway.
      g.vtime = g.busy ? g.vtime - back : std::max<int64_t>(g.vtime - back, 0);
    }
  }

  uint64_t least_quantum() const {
    const double from_handover =
        config_.handover_loss > 0 ? handover_ns_ / config_.handover_loss : 0.0;
    return std::min(std::max(config_.min_quantum_ns, static_cast<uint64_t>(from_handover)),
                    config_.max_quantum_ns);
  }
  uint64_t quantum_for(uint32_t busy) const {
    const uint64_t wanted = config_.latency_target_ns / std::max(busy, 1u);
    return std::min(std::max(wanted, least_quantum()), config_.max_quantum_ns);
  }

  // The waiting vGPU that should run next, or kNoVgpu.
  VgpuId best() const {
    for (size_t i = levels_.size(); i-- > 0;)
      if (!levels_[i].waiting.empty()) return levels_[i].waiting.top();
    return kNoVgpu;
  }

  void decide(uint64_t now_ns, Actions& out) {
    if (leaving_) return;  // on_left() decides
    VgpuId next = best();
    if (next == kNoVgpu) return;
    if (holder_ == kNoVgpu) {
      level(vgpus_[next]).waiting.remove(next);
      holder_ = next;
      start_slice(now_ns);
      out.push_back(Action::run(holder_));
      next = best();
      if (next == kNoVgpu) return;
    }
    const Vgpu& h = vgpus_[holder_];
    const Vgpu& n = vgpus_[next];
    if (!h.busy || n.share.priority > h.share.priority) return evict(next, out);
    if (n.share.priority < h.share.priority) return;
    const uint64_t quantum =
        n.vtime < slice_start_vtime_ ? least_quantum() : quantum_for(level(h).busy);
    if (now_ns - slice_start_ns_ >= quantum) {
      // At equal virtual times the one that waits goes first: it has waited longer.
      if (n.vtime <= h.vtime) return evict(next, out);
      start_slice(now_ns);
    }
    const uint64_t end_ns = slice_start_ns_ + quantum;
    if (wake_ns_ != end_ns) {
      wake_ns_ = end_ns;
      out.push_back(Action::wake(end_ns));
    }
  }

  void start_slice(uint64_t now_ns) {
    vgpus_[holder_].turn = ++turns_;
    slice_start_ns_ = now_ns;
    slice_start_vtime_ = vgpus_[holder_].vtime;
  }

  void evict(VgpuId next, Actions& out) {
    leaving_ = true;
    out.push_back(Action::evict(holder_, next));
  }

  const Config config_;
  std::vector<Vgpu> vgpus_;
  std::vector<Level> levels_;
  VgpuId holder_ = kNoVgpu;
  bool leaving_ = false;
  uint64_t turns_ = 0;
  uint64_t slice_start_ns_ = 0;
  int64_t slice_start_vtime_ = 0;
  uint64_t wake_ns_ = 0;  // last wake asked for
  double handover_ns_;
};

}  // namespace

std::unique_ptr<Policy> make_wfq(const Config& config) { return std::make_unique<Wfq>(config); }

}  // namespace sluice::policy
