// SPDX-License-Identifier: Apache-2.0
// RegisterSource: GPU time per vGPU from samples of the GPU's engine status register, as LoGA does
// (VEE 2018, sections 3.3 and 4.1): a change of the channel group in the register is a context
// switch, and the time between two switches belongs to the group that was there.
//
// Pure; one thread. Whoever reads the register (mediator/gpu) feeds samples with their times, one
// polling phase at a time, and asks for the totals. A pause between two phases is either unread,
// and the phase's totals are scaled by (polling + pause) / polling as in the paper, or read now and
// then, each single read standing for its stratum of the pause (adaptive_poller.h). What it
// measures is the hardware's word; nothing that a guest writes enters it.
//
// Differences from the paper: newer GPUs (abi/registers.h) have an idle bit in the same word, so no
// channel table is read; time in which a context is saved or loaded is kept apart (`switch_ns`) and
// charged to nobody.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "abi/registers.h"
#include "policies/accounting/batch_error.h"
#include "policies/accounting/status_read.h"

namespace sluice::accounting {

class RegisterSource {
 public:
  static constexpr uint32_t kTsgCount = 4096;  // 12 bits in the register
  static constexpr uint32_t kNobody = 0xffffffffu;
  static constexpr uint64_t kNever = ~0ull;
  static constexpr uint32_t kCycles = 256;

  // `gap_ns`: a gap between two samples that is longer than this, and than half of the shortest
  // time that was seen without a change, is time not read: something may have come and gone in it
  // (a reader that was interrupted would take two kernels with a short pause between them for one).
  explicit RegisterSource(uint64_t gap_ns = kNever);

  // Channel group `tsgid` belongs to `vgpu` from now on (kNobody: to none). Out of range: ignored.
  void assign(uint32_t tsgid, uint32_t vgpu);

  // Time in which a context is saved, loaded or changed is `vgpu`'s from now on; kNobody (as at
  // first): nobody's.
  void charge_switches_to(uint32_t vgpu) { switching_ = vgpu; }
  // Nothing was measured of `vgpu` so far.
  void forget(uint32_t vgpu) {
    if (vgpu < used_.size()) used_[vgpu] = Used{};
  }

  void begin_phase();
  // Times do not go backwards within a phase. Returns whether the time since the last sample counts
  // as not read.
  bool sample(uint64_t now_ns, uint32_t status0);
  // Ends the phase; `pause_ns` is the unpolled time that these samples are to stand for as well.
  // Advances used_ns() of each vGPU by what it used in the phase, scaled.
  void end_phase(uint64_t pause_ns);

  // After a phase: whether a run that began in it goes on. A reader that continues until it ends,
  // within reason, makes each run that begins in a phase a whole one: phases then choose runs by
  // where they begin, long ones as often as short ones. That time counts as used, and is not to be
  // stood for by others.
  bool follows() const { return following_; }
  bool broke() const { return broke_; }  // by a gap that was too long
  void follow(uint64_t now_ns, uint32_t status0);

  uint64_t used_ns(uint32_t vgpu) const { return vgpu < used_.size() ? used_[vgpu].total_ns : 0; }
  // A single read in a pause, made at a random time in a stratum of `stratum_ns`, for which it
  // stands. Between end_phase(0) and begin_phase(). `half`: of its batch (AdaptivePoller::half()).
  void point(const StatusRead& seen, uint64_t stratum_ns, uint32_t half = 0);
  void point(uint32_t status0, uint64_t stratum_ns, uint32_t half = 0) {
    point(StatusRead(status0), stratum_ns, half);
  }
  // The last one ended a batch (AdaptivePoller::batch_ends()). O(vGPUs).
  void end_batch();

  // By how much used_ns() may be wrong, either way. Three parts: each switch that was seen lies
  // anywhere between two samples; single reads are right on average only; so are phases that stand
  // for their pause. The first is a bound; for the other two it is 3.3 standard errors (wrong once
  // in a thousand), estimated from differences of successive phases and of the halves of batches of
  // reads (batch_error.h; of successive reads until there are some), which is right also where
  // loads drift. A first phase says nothing of its pause: all of that is error. A program that knew
  // when phases come could hide from them; that is why both are drawn at random.
  uint64_t error_ns(uint32_t vgpu) const;

  // Runs: times without a break in which a vGPU's channel group was running, seen within phases.
  // Where a program waits after each kernel they are its kernels. The mean is that of the runs that
  // began in a phase and were followed to their end, each weighed by the inverse of its chance not
  // to be broken by a gap. Where many could not be (a launch longer than every phase), it is that
  // of a renewal process: run time seen in phases / ends seen there.
  struct Runs {
    uint64_t whole = 0, whole_ns = 0;  // begin and end seen
    uint64_t ends = 0;                 // within phases
    uint64_t lost = 0;                 // begun in a phase, and their end was not seen
    uint64_t cut = 0;                  // begin or end not seen within a phase
    uint64_t seen_ns = 0;
    double weight = 0, weight_ns = 0, weight_ns2 = 0;  // of the whole ones
    // 0: not known, no end was seen.
    double mean_ns() const {
      if (whole > 8 * lost && weight > 0) return weight_ns / weight;
      return ends ? static_cast<double>(seen_ns) / static_cast<double>(ends) : 0;
    }
    // The mean's standard error is below 1 % of it.
    bool known() const {
      if (whole < 6 || whole <= 8 * lost) return false;
      const double mean = weight_ns / weight, variance = weight_ns2 / weight - mean * mean,
                   n = static_cast<double>(whole);
      return variance * (1 + 10 / n) < 1e-4 * mean * mean * n;
    }
  };
  Runs runs(uint32_t vgpu) const { return vgpu < used_.size() ? used_[vgpu].runs : Runs{}; }

  // From the begin of one of v's runs to that of its next: the mean of those of the last kCycles
  // seen that are near their median, because a program that pauses now and then has the same cycle
  // before and after; 0: not known.
  uint64_t cycle_ns(uint32_t vgpu) const;

  // Part of the time since the last call in which v was running, by all reads; for
  // AdaptivePoller::observe. Returns the largest change of any vGPU's load against the call before,
  // less three standard errors.
  double take_change();

 private:
  struct Used {
    uint64_t total_ns = 0, edge_ns = 0;  // edge_ns: hard error
    double variance = 0;                 // of phases that stand for their pause, ns^2
    double point_variance = 0;           // of single reads, by themselves
    BatchError batches;                  // of the same, by batches
    uint64_t unknown_ns = 0;             // a first phase's pause
    uint64_t phase_ns = 0, phase_error_ns = 0;
    double last_share = 0;          // in the phase before
    double load = 0, round_ns = 0;  // for take_change()
    Runs runs;
    std::array<uint64_t, kCycles> cycles{}, cycle_begins{};  // the last ones
    uint32_t cycle_count = 0;                                // that were seen
    uint32_t phase_cycles = 0;                               // of them, in this phase
    uint64_t last_begin_ns = 0;  // of a run, in this phase since its last gap; 0: none
  };
  enum class State : uint8_t { kIdle, kSwitching, kRunning };
  struct Seen {
    State state;
    uint32_t owner;  // of kRunning
    uint32_t tsgid;
  };
  Seen decode(uint32_t status0) const;
  void end_run(bool end_seen);
  void begin_run();
  void forget_begins();
  void keep_whole_cycles(Used& u);
  void count_whole(uint32_t vgpu, uint64_t ns);
  uint64_t gap_ns() const {
    return gap_ns_ == kNever ? kNever : std::max(gap_ns_, shortest_ns_ / 2);
  }
  Used& of(uint32_t vgpu);

  std::vector<uint32_t> owner_;  // by tsgid
  const uint64_t gap_ns_;
  uint64_t shortest_ns_ = 0;  // without a change, begin and end seen; 0: none yet. Forgotten slowly
  double gaps_ = 0, gapless_ns_ = 0;  // how often a phase is broken, the later ones more
  bool broke_ = false;
  bool following_ = false;  // with last_ and run_start_ns_ as they were
  uint32_t switching_ = kNobody;
  std::vector<Used> used_;  // by vGPU
  uint64_t polled_ns_ = 0;  // in this phase, from its first to its last sample
  std::optional<Seen> last_;
  uint64_t last_ns_ = 0;
  uint64_t run_start_ns_ = 0;
  bool run_begin_seen_ = false;
  uint64_t phases_ = 0;  // that stood for a pause
  uint32_t last_read_ = kNobody;
  uint64_t reads_ = 0;
  double round_ns_ = 0, round_reads_ = 0;
  uint64_t rounds_ = 0;
};

}  // namespace sluice::accounting
