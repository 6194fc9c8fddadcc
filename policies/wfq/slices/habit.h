// SPDX-License-Identifier: Apache-2.0
// Habit: how a vGPU comes and goes on a GPU in time slices, learnt from when it becomes backlogged
// and idle, and from what it is seen to use. Pure; one per vGPU, in SlicedGpu.
//
// Terms   burst     what a vGPU uses from one time that it becomes idle to the next
//         gap       for how long it is idle then
//         visits    its work is mostly over soon after it has come
//         pauses    its bursts are shorter than its quantum
//         chats     it waits after each of many short launches, for less than a switch takes
//         returns   it waits after each of its long launches, for less than a switch takes
//
// A log of the GPU's reports use some milliseconds late, for several bursts at once: bursts and
// gaps are means.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "policies/policy.h"
#include "policies/wfq/slices/lengths.h"

namespace sluice::policy::slices {

// A sum in which what was added counts for a factor of e less with each kLatelyNs that pass.
class FadingSum {
 public:
  static constexpr double kLatelyNs = 300e6;
  void add(uint64_t now_ns, double x) {
    sum_ = at(now_ns) + x;
    added_ns_ = now_ns;
  }
  double at(uint64_t now_ns) const {
    return sum_ * std::exp(-static_cast<double>(now_ns - added_ns_) / kLatelyNs);
  }
  void clear() { sum_ = 0; }

 private:
  double sum_ = 0;
  uint64_t added_ns_ = 0;
};

struct Habit {
  uint64_t came_ns = 0;     // when it became backlogged last, ...
  uint64_t busy_ns = 0;     // ... and for how long it was the last time
  uint64_t waited_ns = 0;   // when it became idle last; 0: never
  uint64_t used_at_ns = 0;  // when it was last seen to use the GPU
  double used_ns = 0;       // since burst_ns was taken last, ...
  uint32_t bursts = 0;      // ... in which it became idle so often
  double burst_ns = 0;      // a mean; 0: not measured
  double gap_ns = 0;        // a mean; 0: not measured
  bool idled_open = false;  // its gate was open when it became idle
  FadingSum used_lately;    // of the GPU, as the log tells, ns
  FadingSum came_lately;    // times that it became backlogged
  FadingSum busy_lately;    // for how long it was backlogged, ns

  void note_use(uint64_t now_ns, double ns) {
    used_lately.add(now_ns, ns);
    used_at_ns = now_ns;
    used_ns += ns;
  }
  // It was backlogged from came_ns until now.
  void note_busy(uint64_t now_ns) {
    busy_lately.add(now_ns, std::min(static_cast<double>(now_ns - came_ns), FadingSum::kLatelyNs));
  }
  // Of the time lately: for which it has used the GPU, and was backlogged.
  double part_used(uint64_t now_ns) const { return used_lately.at(now_ns) / FadingSum::kLatelyNs; }
  double part_busy(uint64_t now_ns, bool backlogged) const {
    const double ns = backlogged ? static_cast<double>(now_ns - came_ns) : 0;
    return std::min((busy_lately.at(now_ns) + ns) / FadingSum::kLatelyNs, 1.0);
  }
  double comes_a_second(uint64_t now_ns) const {
    return came_lately.at(now_ns) / FadingSum::kLatelyNs * 1e9;
  }

  void note_gap(uint64_t now_ns) {
    if (waited_ns == 0) return;
    const auto gap = static_cast<double>(std::min(now_ns - waited_ns, kWaitsNs));
    gap_ns += (gap - gap_ns) / (gap_ns > 0 ? 4 : 1);
  }
  void note_burst(const SliceLengths& lengths) {
    ++bursts;
    // Another program now: a burst is no longer than it was busy.
    if (lengths.free_alone() && kOther * static_cast<double>(busy_ns) < burst_ns)
      burst_ns = 0, used_lately.clear();
    if (used_ns <= 0) return;
    burst_ns += (used_ns / bursts - burst_ns) / (burst_ns > 0 ? 4 : 1);
    used_ns = 0;
    bursts = 0;
  }
  // It had the GPU alone, and says how it came and went.
  void take(const Rhythm& rhythm) {
    burst_ns = static_cast<double>(rhythm.burst_ns);
    gap_ns = static_cast<double>(std::min(rhythm.gap_ns, kWaitsNs));
    busy_ns = rhythm.burst_ns;
    waited_ns = rhythm.waited_ns;
    used_ns = 0;
    bursts = 0;
  }
  // What it has used until now was no burst: it had the GPU alone.
  void forget_burst(uint64_t now_ns) {
    came_ns = now_ns;
    used_ns = 0;
    bursts = 0;
  }

  bool waited_lately(uint64_t now_ns) const {
    return waited_ns != 0 && now_ns - waited_ns < kWaitsNs;
  }
  static double longest_visit_ns(const SliceLengths& lengths) {
    return static_cast<double>(lengths.mean_slice_ns()) / kVisitsPerSlice;
  }
  bool visits(uint64_t now_ns, bool backlogged, const SliceLengths& lengths) const {
    const auto slice_ns = static_cast<double>(lengths.mean_slice_ns());
    if (backlogged && lengths.free_alone() &&
        static_cast<double>(now_ns - came_ns) > kStays * (slice_ns + lengths.handover_ns()))
      return false;
    if (burst_ns > 0) return burst_ns < longest_visit_ns(lengths);
    // Not measured yet: it was over within a slice of another's, of which it waited a part.
    return lengths.free_alone() && busy_ns > 0 &&
           static_cast<double>(busy_ns) < SliceLengths::kLonger * slice_ns + lengths.soon_ns();
  }
  // A turn in each round is not its share. Nor are its bursts so short that the others would stop
  // for next to nothing.
  bool pauses(uint64_t now_ns, double quantum_ns, const SliceLengths& lengths) const {
    return waited_lately(now_ns) && burst_ns >= lengths.handover_ns() / kShortestBurst &&
           burst_ns < quantum_ns;
  }
  bool chats(uint64_t now_ns, const SliceLengths& lengths) const {
    return waited_lately(now_ns) && gap_ns < lengths.soon_ns() && burst_ns > 0 &&
           burst_ns < static_cast<double>(lengths.mean_slice_ns()) / 2;
  }
  bool returns(const SliceLengths& lengths) const {
    return gap_ns > 0 && gap_ns < lengths.soon_ns() &&
           burst_ns >= static_cast<double>(lengths.mean_slice_ns()) / 2;
  }
  // It has one launch of a round, whatever its slice. Of launches of many slices it has those, and
  // others would wait for the rest of one at the end of each turn.
  bool needs_turns(uint64_t now_ns, const SliceLengths& lengths) const {
    return waited_lately(now_ns) && returns(lengths) &&
           burst_ns < kManySlices * static_cast<double>(lengths.mean_slice_ns());
  }
  // A new slice for those that go on would cost them more than the wait: each stops whoever runs
  // (an H200).
  bool returns_soon(const SliceLengths& lengths) const {
    return lengths.free_alone() && idled_open && returns(lengths);
  }
  // To keep the GPU for it while it waits costs next to nothing, less than half a switch.
  bool wait_is_short(const SliceLengths& lengths) const {
    return lengths.free_alone() && idled_open && gap_ns > 0 && gap_ns < lengths.handover_ns() / 2 &&
           gap_ns < kShortWait * (burst_ns + gap_ns);
  }
  // More of a turn by gates is work than of slices that change at each of its launches. Of longer
  // launches the slices are.
  bool fills_its_turn(const SliceLengths& lengths) const {
    return gap_ns < burst_ns && burst_ns < kShortLaunches * lengths.handover_ns();
  }
  // It would not use half of `part` of the GPU if it never waited.
  bool asks_less_than_half(double part) const {
    return gap_ns > 0 && burst_ns / (burst_ns + gap_ns) < part / 2;
  }
  // It has come and gone many times, and was not seen to use anything.
  bool comes_for_nothing(uint64_t now_ns) const {
    return bursts >= kEmptyBursts && now_ns - used_at_ns > kEmptyNs;
  }

 private:
  static constexpr uint64_t kWaitsNs = 100'000'000;
  static constexpr double kOther = 4;  // bursts so much shorter are another program's
  // A vGPU that has been busy for so many slices is no visitor, whatever it did before.
  static constexpr double kStays = 4;
  // What a visitor is seen to use may be half of what it waits for others' slices.
  static constexpr double kVisitsPerSlice = 2;
  static constexpr double kShortestBurst = 8;    // of a switch: less is not worth stopping others
  static constexpr double kShortWait = 0.07;     // of the time between two launches
  static constexpr double kShortLaunches = 2.5;  // switches' lengths
  // Fewer: launches of 20 ms have no weights. More: three with launches of 100 ms that wait after
  // each keep a fourth vGPU from the GPU for 152 ms at a time, instead of 52 (model).
  static constexpr double kManySlices = 6;
  // More times than one that waits after its shortest launches comes before a log reports them.
  static constexpr uint32_t kEmptyBursts = 16;
  static constexpr uint64_t kEmptyNs = 100'000'000;
};

}  // namespace sluice::policy::slices
