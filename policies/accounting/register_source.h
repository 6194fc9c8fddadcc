// RegisterSource: GPU time per vGPU from samples of the GPU's engine status register, as LoGA does
// (VEE 2018, sections 3.3 and 4.1): a change of the channel group in the register is a context switch, and
// the time between two switches belongs to the group that was there.
//
// Pure; one thread. Whoever reads the register (mediator/gpu) feeds samples with their times, one
// polling phase at a time, and asks for the totals; between phases nothing is known, so totals of the
// phases are scaled by (polling + pause) / polling. What it measures is the hardware's word; nothing
// that a guest writes enters it.
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

  void begin_phase();
  // Times do not go backwards within a phase.
  void sample(uint64_t now_ns, uint32_t status0);
  // Ends the phase; `pause_ns` is the unpolled time that these samples are to stand for as well.
  // Advances used_ns() of each vGPU by what it used in the phase, scaled.
  Phase end_phase(uint64_t pause_ns);

  uint64_t used_ns(uint32_t vgpu) const { return vgpu < used_.size() ? used_[vgpu].total_ns : 0; }
  // How wrong used_ns() may be by the sampling within the phases: each switch that was seen lies
  // anywhere between two samples, for the vGPU that came and the one that went. Scaled as used_ns() is.
  // It bounds nothing about what happened in the pauses: that is the trade-off that LoGA makes, and
  // randomising the phases (phase_planner.h) keeps periodic programs from profiting by it.
  uint64_t error_ns(uint32_t vgpu) const { return vgpu < used_.size() ? used_[vgpu].error_ns : 0; }

 private:
  struct Used {
    uint64_t total_ns = 0, error_ns = 0;
    uint64_t phase_ns = 0, phase_error_ns = 0;
  };
  enum class State : uint8_t { kIdle, kSwitching, kRunning };
  struct Seen {
    State state;
    uint32_t owner;  // of kRunning
    uint32_t tsgid;
  };
  Seen decode(uint32_t status0) const;
  Used& of(uint32_t vgpu);

  std::vector<uint32_t> owner_;  // by tsgid
  std::vector<Used> used_;       // by vGPU
  Phase phase_;
  std::optional<Seen> last_;
  uint64_t last_ns_ = 0;
};

}  // namespace sluice::accounting
