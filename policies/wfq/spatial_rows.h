// SPDX-License-Identifier: Apache-2.0
// What wfq in space (wfq/spatial.cc) keeps of each vGPU, of each SM and of each holder. That file's
// own.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "policies/parts/idling.h"
#include "policies/parts/indexed_heap.h"
#include "policies/policy.h"

namespace sluice::policy::wfq_spatial {

inline constexpr uint32_t kNowhere = 0xffffffffu;
inline constexpr int32_t kIdle = -1;

// A launch that was announced and has not ended.
struct OpenLaunch {
  LaunchId id;
  uint32_t width;
};
// A vGPU.
struct Own {
  uint32_t held = 0;     // SMs that it holds and keeps
  uint32_t leaving = 0;  // that it holds and is evicted from
  uint32_t coming = 0;   // that others are evicted from for it
  uint64_t width = 0;    // SMs that its launches can use together; no limit if no launch is known
  std::vector<OpenLaunch> launches;
  uint64_t narrow_since_ns = 0;  // since when each launch, as announced, could use fewer SMs than
                                 // it held; 0: it could use them
  bool narrow = false;           // and that lasts
  uint64_t known_to_sm_ns = 0;   // what it will have used when the known launches have ended; at
                                 // most what it has used: not known
  double per_weight = 0;         // virtual time of a SM-ns
  uint64_t idle_at_sm_ns = 0;    // what it had used when it turned idle last
  uint64_t idle_since_ns = 0, gap_ns = 0;
  double drain_ns = 0;        // from the evict until an SM is left
  uint32_t place = kNowhere;  // in holders_
  bool kept = false;          // idle, and its SMs wait for it
  std::vector<uint16_t> sms;  // held ones, the last to come last
  uint64_t changed_ns = 0;    // when its set changed last
  uint64_t rests_until_ns =
      0;  // its set has changed so lately that it takes nothing from others; 0: not
};
struct Sm {
  VgpuId holder = kNoVgpu;
  VgpuId next = kNoVgpu;  // the vGPU that gets it next
  bool leaving = false;
  uint64_t since_ns = 0;  // granted; or evicted
};
// Who held each SM lately, and until when: so that sets come back. A driver keeps by set what it
// made for one (docs/decisions/0008-green-contexts.md).
class Holders {
 public:
  explicit Holders(uint32_t sms) : of_(sms) {}
  // v has it now.
  void note(uint32_t sm, VgpuId v, uint64_t now_ns) {
    auto& l = of_[sm];
    const auto at = std::find_if(l.begin(), l.end() - 1, [&](const Held& h) { return h.by == v; });
    std::move_backward(l.begin(), at, at + 1);
    l.front() = {v, now_ns};
  }
  // When v had it last; 0: not known.
  uint64_t last_ns(uint32_t sm, VgpuId v) const {
    for (const Held& h : of_[sm])
      if (h.by == v) return h.until_ns;
    return 0;
  }

 private:
  struct Held {
    VgpuId by = kNoVgpu;
    uint64_t until_ns = 0;
  };
  std::vector<std::array<Held, 6>> of_;  // the last of them first
};
// A holder as an exchange sees it.
struct Row {
  VgpuId vgpu = kNoVgpu;
  int32_t level = kIdle;  // its priority, if it is busy
  uint32_t held = 0;      // copies of Own, of one that is busy
  double per_weight = 0;
  uint64_t known_to_sm_ns = 0, idle_at_sm_ns = 0;
  int64_t drain = 0;       // virtual time that an SM of it takes to leave
  int64_t beyond = 0;      // ahead_if_taken() less its virtual time
  uint64_t oldest_ns = 0;  // since when it has the SM that it had longest
  uint64_t turn_ns = 0;    // planned length of a turn
  double ns_per_lead = 0;  // its speed, inverse
};
// An SM is wanted, now.
struct Wanted {
  VgpuId by;
  int32_t level;
  int64_t key;  // its virtual time with it
  uint64_t now_ns;
  bool urgent;  // after the least turn, not only after its holder's
  uint64_t least_ns;
  uint64_t turn_ns(const Row& row) const { return urgent ? least_ns : row.turn_ns; }
  bool ripe(const Row& row) const { return row.oldest_ns + turn_ns(row) <= now_ns; }
};
// All holders, in no order; how many of each level.
class Rows {
 public:
  size_t size() const { return rows_.size(); }
  Row& operator[](size_t place) { return rows_[place]; }
  const Row& operator[](size_t place) const { return rows_[place]; }
  const Row* begin() const { return rows_.data(); }
  const Row* end() const { return rows_.data() + rows_.size(); }
  // Its place.
  uint32_t add(VgpuId v) {
    rows_.push_back({.vgpu = v});
    ++count_[0];
    return static_cast<uint32_t>(rows_.size() - 1);
  }
  // The last one takes the place.
  VgpuId drop(uint32_t place) {
    --count_[static_cast<size_t>(rows_[place].level + 1)];
    rows_[place] = rows_.back();
    rows_.pop_back();
    return place < rows_.size() ? rows_[place].vgpu : kNoVgpu;
  }
  void set_level(Row& row, int32_t level) {
    --count_[static_cast<size_t>(row.level + 1)];
    ++count_[static_cast<size_t>(level + 1)];
    row.level = level;
  }
  // Whether somebody is idle or of a lower level.
  bool any_below(uint32_t level) const {
    for (uint32_t i = 0; i <= level; ++i)
      if (count_[i]) return true;
    return false;
  }
  bool all_idle() const { return count_[0] == rows_.size(); }

 private:
  std::vector<Row> rows_;
  std::array<uint32_t, kPriorityLevels + 1> count_{};
};
// When holders' turns end: those that are over, and the others, the earliest first. Times never go
// backwards.
class Turns {
 public:
  void set(VgpuId v, uint64_t end_ns) {
    if (v >= end_ns_.size()) end_ns_.resize(v + 1), over_at_.resize(v + 1, kNowhere);
    const bool same = end_ns_[v] == end_ns;
    end_ns_[v] = end_ns;
    if (going_on_.contains(v)) {
      if (!same) going_on_.update(v);
      return;
    }
    if (over_at_[v] != kNowhere) {
      if (same) return;
      leave_over(v);
    }
    going_on_.push(v);
  }
  void remove(VgpuId v) {
    if (going_on_.contains(v))
      going_on_.remove(v);
    else if (v < over_at_.size() && over_at_[v] != kNowhere)
      leave_over(v);
  }
  // Those of all rows anew: end_ns(row).
  template <class End>
  void renew(Rows& rows, End&& end_ns) {
    for (const VgpuId v : over_) over_at_[v] = kNowhere, going_on_.push(v);
    over_.clear();
    for (size_t i = 0; i < rows.size(); ++i) end_ns_[rows[i].vgpu] = end_ns(rows[i]);
    going_on_.rebuild();
  }
  void pass(uint64_t now_ns) {
    while (!going_on_.empty() && end_ns_[going_on_.top()] <= now_ns) {
      const VgpuId v = going_on_.top();
      going_on_.remove(v);
      over_at_[v] = static_cast<uint32_t>(over_.size());
      over_.push_back(v);
    }
  }
  const std::vector<VgpuId>& over() const { return over_; }  // in no order
  bool is_over(VgpuId v) const { return over_at_[v] != kNowhere; }
  // visit(v, when its turn ends); those later than v only if it says so.
  template <class Visit>
  void going_on(Visit&& visit) const {
    going_on_.descend([&](VgpuId v) { return visit(v, end_ns_[v]); });
  }

 private:
  struct Sooner {
    const std::vector<uint64_t>* end_ns;
    bool operator()(uint32_t a, uint32_t b) const { return (*end_ns)[a] < (*end_ns)[b]; }
  };
  void leave_over(VgpuId v) {
    over_[over_at_[v]] = over_.back();
    over_at_[over_.back()] = over_at_[v];
    over_.pop_back();
    over_at_[v] = kNowhere;
  }
  std::vector<uint64_t> end_ns_;
  std::vector<uint32_t> over_at_;  // in over_
  std::vector<VgpuId> over_;
  IndexedHeap<Sooner> going_on_{Sooner{&end_ns_}};
};
// Orders vGPUs by key.
struct Less {
  const std::vector<int64_t>* key;
  bool operator()(uint32_t a, uint32_t b) const {
    const int64_t x = (*key)[a], y = (*key)[b];
    return x != y ? x < y : a < b;
  }
};

}  // namespace sluice::policy::wfq_spatial
