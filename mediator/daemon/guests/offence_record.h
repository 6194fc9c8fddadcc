// SPDX-License-Identifier: Apache-2.0
// OffenceRecord: what a session has done to others, and what of it was counted: each fault once, by
// the longest time for which the GPU is known to have stood still, and an end by force only where
// nothing else was counted.
//
//   while it runs   on_fault(): its worker reports a sticky error, or the kernel's log has its pid
//                   on_forced_end(): sluiced ends it because its work did not leave the GPU
//   at its end      settle(): what nobody has seen until then
//
// What its work has kept the GPU for, if it went before it was ended for that, is the scheduler's
// to say (Scheduler::take_stay_ns()).
//
// Pure. Owned by a GuestSession.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace sluice {

class OffenceRecord {
 public:
  struct Fault {
    uint64_t stall_ns = 0;  // beyond what was counted before
    bool more = false;      // of a fault that was counted before
  };
  // The GPU stood still for so long. Nothing: that was counted.
  std::optional<Fault> on_fault(uint64_t stall_ns) {
    if (fault_counted_ && stall_ns <= stall_ns_) return std::nullopt;
    const bool more = std::exchange(fault_counted_, true);
    return Fault{stall_ns - std::exchange(stall_ns_, stall_ns), more};
  }
  void on_forced_end() { forced_end_counted_ = true; }
  void on_broken_protocol() { broke_protocol_ = true; }
  // It is ended for what others of its vGPU have done.
  void on_expelled() { expelled_ = true; }

  // What is known of a session whose worker is gone.
  struct Evidence {
    // What its worker's error, and the error that ended it, usually stop the GPU for. Nothing: they
    // are no faults of its own for certain.
    std::optional<uint64_t> worker_error_ns, end_error_ns;
    std::optional<uint64_t> measured_ns;  // nothing: no source measures it
    bool in_flight_unseen = false;        // work was on the GPU, and nobody would see its fault
    bool died_of_signal = false;
    uint64_t worst_ns = 0;  // of any fault
  };
  // kFault, kForcedEnd: for on_fault(), or as an end by force that stopped the GPU for so long.
  enum class Verdict { kNothing, kFault, kForcedEnd };
  struct Settlement {
    Verdict verdict = Verdict::kNothing;
    uint64_t stall_ns = 0;
  };
  Settlement settle(const Evidence& e) const {
    const bool not_its_own = forced_end_counted_ || expelled_;
    std::optional<uint64_t> usual = e.worker_error_ns;
    if (!usual && !not_its_own) usual = e.end_error_ns;
    if (usual || e.measured_ns.value_or(0) > 0)
      return {Verdict::kFault, e.measured_ns.value_or(usual.value_or(0))};
    if (not_its_own) return {};
    // Nobody has seen how what was on the GPU ended, and nothing measures it: it may have faulted.
    const bool unseen = e.in_flight_unseen && !e.measured_ns;
    if (!unseen && !e.died_of_signal && !broke_protocol_) return {};
    return {Verdict::kForcedEnd, unseen ? e.worst_ns : 0};
  }

 private:
  bool fault_counted_ = false, forced_end_counted_ = false;
  bool expelled_ = false, broke_protocol_ = false;
  uint64_t stall_ns_ = 0;  // of the fault that was counted
};

}  // namespace sluice
