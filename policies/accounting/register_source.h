// RegisterSource: GPU time per vGPU from samples of the GPU's engine status register, as LoGA does
// (VEE 2018, sections 3.3 and 4.1): a change of the channel group in the register is a context switch, and
// the time between two switches belongs to the group that was there.
//
// Pure; one thread. Whoever reads the register (mediator/gpu) feeds samples with their times, one
// polling phase at a time, and asks for the totals. A pause between two phases is either unread, and the
// phase's totals are scaled by (polling + pause) / polling as in the paper, or read now and then, each single
// read standing for its stratum of the pause (adaptive_poller.h). What it measures is the hardware's word;
// nothing that a guest writes enters it.
//
// Differences from the paper: newer GPUs (abi/registers.h) tell idle from busy in the same word, so no
// channel table is read; time in which a context is saved or loaded is kept apart (`switch_ns`) and
// charged to nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "abi/registers.h"

namespace sluice::accounting {

class RegisterSource {
 public:
  static constexpr uint32_t kTsgCount = 4096;  // 12 bits in the register
  static constexpr uint32_t kNobody = 0xffffffffu;

  struct Phase {
    uint64_t polled_ns = 0;        // first to last sample
    uint64_t idle_ns = 0;
    uint64_t switch_ns = 0;
    uint64_t unassigned_ns = 0;    // channel groups that belong to no vGPU
    uint32_t switches = 0;
    uint64_t longest_gap_ns = 0;   // between two samples: what is shorter may go unseen
  };

  RegisterSource();

  // Channel group `tsgid` belongs to `vgpu` from now on (kNobody: to none). Out of range: ignored.
  void assign(uint32_t tsgid, uint32_t vgpu);

  // Time in which a context is saved, loaded or changed is `vgpu`'s from now on; kNobody (as at first): nobody's.
  void charge_switches_to(uint32_t vgpu) { switching_ = vgpu; }
  // Nothing was measured of `vgpu` so far.
  void forget(uint32_t vgpu) {
    if (vgpu < used_.size()) used_[vgpu] = Used{};
  }

  void begin_phase();
  // Times do not go backwards within a phase.
  void sample(uint64_t now_ns, uint32_t status0);
  // Ends the phase; `pause_ns` is the unpolled time that these samples are to stand for as well.
  // Advances used_ns() of each vGPU by what it used in the phase, scaled.
  Phase end_phase(uint64_t pause_ns);

  uint64_t used_ns(uint32_t vgpu) const { return vgpu < used_.size() ? used_[vgpu].total_ns : 0; }
  // A single read in a pause, made at a random time in a stratum of `stratum_ns`, for which it stands. Between
  // end_phase(0) and begin_phase().
  void point(uint32_t status0, uint64_t stratum_ns);

  // By how much used_ns() may be wrong, either way. Three parts: each switch that was seen lies anywhere
  // between two samples; single reads are right on average only; so are phases that stand for their pause.
  // The first is a bound; for the other two it is 3.3 standard errors (wrong once in a thousand),
  // estimated from differences of successive reads or phases, which is right also where loads drift, and
  // too large where they are periodic. A first phase says nothing of its pause: all of that is error.
  // A program that knew when phases come could hide from them; that is why both are drawn at random.
  uint64_t error_ns(uint32_t vgpu) const;

  // Runs: times without a break in which a vGPU's channel group was running, seen within phases. Where a
  // program waits after each kernel they are its kernels. Runs that a phase's end cuts are counted
  // (a launch longer than every phase is one long cut run), so that the mean is that of a renewal process:
  // run time seen / ends seen; where nearly all are whole, the mean of the whole ones, which is sharper.
  struct Runs {
    uint64_t whole = 0, whole_ns = 0;  // begin and end seen
    uint64_t ends = 0;
    uint64_t cut = 0;                  // begin or end not seen
    uint64_t seen_ns = 0;
    // 0: not known, no end was seen.
    double mean_ns() const {
      if (whole > 8 * cut && whole > 0) return static_cast<double>(whole_ns) / static_cast<double>(whole);
      return ends ? static_cast<double>(seen_ns) / static_cast<double>(ends) : 0;
    }
  };
  Runs runs(uint32_t vgpu) const { return vgpu < used_.size() ? used_[vgpu].runs : Runs{}; }

  // Part of the time since the last call in which v was running, by all reads; for AdaptivePoller::observe.
  // Returns the largest change of any vGPU's load against the call before, less three standard errors.
  double take_change();

 private:
  struct Used {
    uint64_t total_ns = 0, edge_ns = 0;  // edge_ns: hard error
    double variance = 0;                 // of the rest, ns^2
    uint64_t unknown_ns = 0;             // a first phase's pause
    uint64_t phase_ns = 0, phase_error_ns = 0;
    double last_share = 0;               // in the phase before
    bool last_read = false;              // the read before found it running
    double load = 0, round_ns = 0;       // for take_change()
    Runs runs;
  };
  enum class State : uint8_t { kIdle, kSwitching, kRunning };
  struct Seen {
    State state;
    uint32_t owner;  // of kRunning
    uint32_t tsgid;
  };
  Seen decode(uint32_t status0) const;
  void end_run(bool end_seen);
  Used& of(uint32_t vgpu);

  std::vector<uint32_t> owner_;  // by tsgid
  uint32_t switching_ = kNobody;
  std::vector<Used> used_;       // by vGPU
  Phase phase_;
  std::optional<Seen> last_;
  uint64_t last_ns_ = 0;
  uint64_t run_start_ns_ = 0;
  bool run_begin_seen_ = false;
  uint64_t phases_ = 0;         // that stood for a pause
  uint32_t last_read_ = kNobody;
  uint64_t reads_ = 0;
  double round_ns_ = 0, round_reads_ = 0;
  uint64_t rounds_ = 0;
};

}  // namespace sluice::accounting
