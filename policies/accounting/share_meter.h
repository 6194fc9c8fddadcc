// SPDX-License-Identifier: Apache-2.0
// ShareMeter: who got how much of the GPU while it was contended. A share is defined only over
// intervals in which the vGPUs compared are all backlogged (terms: policies/policy.h).
//
// Pure and owned by one thread: notified of each change of "has work", of weight, of the groups and
// of the GPU's holders with its time, it adds up the intervals between. Every change costs
// O(holders), and O(groups above) for a member's work and weights (running sums and marks);
// totals() copies the meter, O(members and groups). Where the GPU is shared in space, "GPU time" is
// the time for which all of it was held: of `units` (SMs), each for its part.
//
// The entitlement is by weight down the tree of groups: a busy member's, or a busy group's, part of
// its parent's, among its busy siblings; a group is busy while a member in it is. Priorities,
// minima and maxima are not in it: one that its maximum stops (throttled: parts/share_tree.h) is
// busy here.
//
// Two readings of one run:
//   - all: the intervals in which *every* member (two or more) has work. The strict one, for a
//     report about a fixed set of vGPUs.
//   - own: for each vGPU the intervals in which it and at least one other has work, with its
//     entitlement there (by the instant, GPU time without hand-overs). The useful one where vGPUs
//     come and go.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::accounting {

class ShareMeter {
 public:
  using Member = uint32_t;  // a small dense id
  static constexpr Member kNobody = 0xffffffffu;
  using Group = uint32_t;  // the same
  static constexpr Group kRoot = 0;

  struct Totals {
    uint64_t all_gpu_ns = 0;         // GPU time held while all members had work
    uint64_t own_contended_ns = 0;   // it had work and somebody else too
    uint64_t own_gpu_ns = 0;         // GPU time held during own_contended_ns
    uint64_t own_rivals_gpu_ns = 0;  // GPU time that others held during own_contended_ns
    uint64_t own_entitled_ns = 0;    // its entitlement to own_gpu_ns + own_rivals_gpu_ns

    // Share asked and got over own contended intervals; 0 if there were none.
    double share_asked() const { return ratio(own_entitled_ns); }
    double share_got() const { return ratio(own_gpu_ns); }

   private:
    double ratio(uint64_t part) const {
      const uint64_t whole = own_gpu_ns + own_rivals_gpu_ns;
      return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
    }
  };

  // `units`: what set_held() counts in; 1 where the GPU is given whole.
  explicit ShareMeter(uint32_t units = 1) : units_(units) {}

  // In a group that is not there: in the root.
  void add(uint64_t now_ns, Member m, uint32_t weight, Group group = kRoot);
  void remove(uint64_t now_ns, Member m);
  void set_share(uint64_t now_ns, Member m, uint32_t weight, Group group = kRoot);
  // A group, not the root, is new or has changed; with what is in it. Below the root where its
  // parent is not there, or within it.
  void set_group(uint64_t now_ns, Group group, uint32_t weight, Group parent = kRoot);
  void set_busy(uint64_t now_ns, Member m, bool busy);
  // Who holds the GPU, all of it, from now on (kNobody: nobody, e.g. between two holders).
  void set_holder(uint64_t now_ns, Member m);
  // m holds so many units from now on, beside what others hold. In sum more than all only where
  // somebody uses more than it was given.
  void set_held(uint64_t now_ns, Member m, uint32_t units);

  // m has used so much GPU time since the last call, whoever held it: where holding says nothing of
  // use. Times of use and of work may be apart by as much as the measuring is late.
  void add_used(uint64_t now_ns, Member m, uint64_t gpu_ns);

  // Cumulative, up to now_ns. Differences of two calls describe the time between.
  Totals totals(uint64_t now_ns, Member m) const;
  // Time in which all members (at least two) had work; `all_gpu_ns` adds up to at most this, the
  // rest went into hand-overs.
  uint64_t all_contended_ns(uint64_t now_ns) const;
  bool contended(Member m) const { return members_[m].busy && busy_count_ >= 2; }

 private:
  struct State {
    bool present = false;
    bool busy = false;
    uint32_t weight = 1;
    Group group = kRoot;
    // Values of the running sums below when it became busy, so that closing costs O(1).
    double entitled_mark = 0;
    uint64_t contended_mark = 0, gpu_mark = 0, own_gpu_mark = 0;
    uint32_t held = 0;
    Totals done;  // its GPU times in units
  };
  // `entitled` is up to date after sync() only. It grows by what `entitled` of the parent has grown
  // since, times weight / busy_weight: neither changes without a sync().
  struct Node {
    bool present = false;
    uint32_t weight = 1;
    Group parent = kRoot;
    uint64_t busy_weight = 0;  // of the busy ones directly in it
    double entitled = 0;       // of each unit of that weight: a running sum, as those below
    double parent_mark = 0;    // `entitled` of the parent at the last sync()
  };
  void settle(uint64_t now_ns);
  void entitle(uint64_t part);
  bool has(Group g) const { return g < groups_.size() && groups_[g].present; }
  bool is_within(Group g, Group above) const;
  void sync(Group g);
  void reweigh(Group g, uint32_t from, uint32_t to);
  void open(State& s);
  void close(State& s);
  void accumulate(const State& s, Totals& t) const;

  std::vector<State> members_;
  std::vector<Node> groups_ = {{.present = true}};  // the root's `entitled` is always up to date
  uint32_t present_count_ = 0, busy_count_ = 0;
  uint32_t units_;
  std::vector<Member> holders_;
  uint64_t last_ns_ = 0;
  bool started_ = false;
  // Running sums over contended time (two or more busy); GPU time in units.
  uint64_t contended_ns_ = 0;      // of any two
  uint64_t contended_gpu_ns_ = 0;  // GPU time held by anybody in it
  uint64_t all_contended_ns_ = 0;
};

}  // namespace sluice::accounting
