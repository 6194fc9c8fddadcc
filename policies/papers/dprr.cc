// SPDX-License-Identifier: Apache-2.0
// dprr: dynamic priority-based round robin (Chen et al., "EffiSha", section 7), after Linux's O(1)
// scheduler.
//   - Two queues, active and inactive, by dynamic priority. A new kernel enters the active one with
//     its initial priority, "increased by one for every millisecond the kernel waits in the active
//     queue", by 20 at most.
//   - The chosen kernel gets a slice of (p + 1)/2 ms, p being its priority as it is chosen (the
//     paper does not say which of the two it means; with the initial one a kernel of priority 0
//     that has waited for 20 ms would get the same half millisecond as one that came now).
//   - At the slice's end it goes into the inactive queue and its priority is what it was initially.
//     A kernel that comes meanwhile waits for the slice's end, whatever its priority.
//   - When the active queue is empty, the two switch roles.
// So within a round each kernel gets one slice. As printed that starves the inactive ones for as
// long as new kernels keep the active queue from becoming empty (in figure 9's workload, tens of
// seconds), which Linux's scheduler knew and met with a limit. Here it is kRoundNs: when somebody
// waits and a round is older than that, new kernels enter the inactive queue, the next round's. The
// paper's Table 3 is over before it. Where one kernel alone is there, nothing is timed.
// Config::quantum_ns replaces the half millisecond.
#include <array>

#include "policies/parts/kernel_queue.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kAgeingNs = 1'000'000;
constexpr uint32_t kMaxAgeing = 20;
constexpr uint64_t kSlicePerStepNs = 500'000;
// Longer: newcomers of a high priority are served sooner, for longer at the others' cost.
constexpr uint64_t kRoundNs = 100'000'000;

class Dprr final : public KernelQueue {
 public:
  explicit Dprr(const Config& config)
      : KernelQueue(config), step_ns_(config.quantum_ns ? config.quantum_ns : kSlicePerStepNs) {
    for (auto& queue : queues_) {
      queue.reserve(kPriorityLevels);
      for (uint32_t i = 0; i < kPriorityLevels; ++i) queue.emplace_back(Less{this});
    }
  }
  std::string_view name() const override { return "dprr"; }
  uint64_t quantum_ns() const override { return step_ns_; }

 protected:
  // Within a level who has waited longest is first, at any time: its ageing is the greatest. So the
  // first of a queue is the best of its levels' firsts.
  void enqueue(uint64_t now_ns, uint32_t slot, bool returned) override {
    if (slot >= waits_.size()) waits_.resize(slot + 1);
    Wait& w = waits_[slot];
    const bool used_up = returned && now_ns >= slice_end_ns_;
    if (sizes_[0] + sizes_[1] == 0) round_began_ns_ = now_ns;
    const bool late = !returned && now_ns - round_began_ns_ > kRoundNs;
    w.queue = used_up || late ? 1 - active_ : active_;
    w.level = priority(slot);
    w.since_ns = now_ns;
    w.order = ++orders_;
    queues_[w.queue][w.level].push(slot);
    ++sizes_[w.queue];
  }
  void dequeue(uint64_t, uint32_t slot) override {
    const Wait& w = waits_[slot];
    queues_[w.queue][w.level].remove(slot);
    --sizes_[w.queue];
  }
  uint32_t first(uint64_t now_ns) override {
    if (sizes_[active_] > 0) return best(active_, now_ns);
    return sizes_[1 - active_] > 0 ? best(1 - active_, now_ns) : kNone;
  }
  void started(uint64_t now_ns, uint32_t slot) override {
    // Chosen from the inactive queue: the active one was empty.
    if (waits_[slot].queue != active_) switch_queues(now_ns);
    start_slice(now_ns, dynamic(slot, now_ns));
  }
  bool displaces(uint64_t now_ns, uint32_t next, uint32_t holder) override {
    if (now_ns < slice_end_ns_) return false;
    if (sizes_[active_] > 0) return true;
    // The holder goes into the inactive queue and the two switch: it may come out first again.
    if (priority(next) >= priority(holder)) return true;
    switch_queues(now_ns);
    start_slice(now_ns, priority(holder));
    return false;
  }
  uint64_t due_ns() const override { return slice_end_ns_; }

 private:
  struct Wait {
    uint32_t queue = 0, level = 0;
    uint64_t since_ns = 0, order = 0;
  };
  struct Less {
    const Dprr* q;
    bool operator()(uint32_t a, uint32_t b) const {
      return q->waits_[a].order < q->waits_[b].order;
    }
  };

  // Waiting counts in the active queue only: for those that came with a switch, from it.
  uint32_t dynamic(uint32_t slot, uint64_t now_ns) const {
    const Wait& w = waits_[slot];
    if (w.queue != active_) return w.level;
    const uint64_t waited = (now_ns - std::max(w.since_ns, switched_ns_)) / kAgeingNs;
    return w.level + static_cast<uint32_t>(std::min<uint64_t>(waited, kMaxAgeing));
  }
  uint32_t best(uint32_t queue, uint64_t now_ns) const {
    uint32_t found = kNone;
    for (uint32_t level = kPriorityLevels; level-- > 0;) {
      const auto& heap = queues_[queue][level];
      if (heap.empty()) continue;
      const uint32_t slot = heap.top();
      if (found == kNone || dynamic(slot, now_ns) > dynamic(found, now_ns)) found = slot;
    }
    return found;
  }
  void switch_queues(uint64_t now_ns) {
    active_ = 1 - active_;
    switched_ns_ = round_began_ns_ = now_ns;
  }
  void start_slice(uint64_t now_ns, uint32_t p) { slice_end_ns_ = now_ns + (p + 1) * step_ns_; }

  const uint64_t step_ns_;
  std::array<std::vector<IndexedHeap<Less>>, 2> queues_;
  std::array<uint32_t, 2> sizes_{};
  uint32_t active_ = 0;
  uint64_t switched_ns_ = 0;
  uint64_t round_began_ns_ = 0;
  std::vector<Wait> waits_;
  uint64_t orders_ = 0;
  uint64_t slice_end_ns_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_dprr(const Config& config) { return std::make_unique<Dprr>(config); }

}  // namespace sluice::policy
