// SPDX-License-Identifier: Apache-2.0
// OverrunProof: who keeps a GPU beyond its time slices, proved by a context that no guest controls.
//
// A worker sets its own slices, so one that was taken over can set longer ones. That others wait is
// no proof: they may lie about it, to have an honest neighbour ended. So a context of the host's
// own, the witness (daemon/scheduling/gpu_witness.h), launches an empty kernel and waits for it. If
// the GPU goes round, nobody is on it for longer than a slice meanwhile.
//
// Terms   piece       a context is on the GPU without a break, by the context-switch log
//         allowance   the longest slice that its worker was given in the last kLateNs, since an
//                     honest one may learn of a new one seconds late; and a tolerance
//         excess      of a piece, while the witness waits: what is beyond the allowance. It adds up
//                     for each worker and leaks away by kLeak of the time
//
//   try      it means                              next
//   kNone    nobody was asked                      asked: kAsked
//   kAsked   the witness is to launch              it says that it waits: kWaits
//   kWaits   its launch waits for the GPU          it says so again: what is pending counts
//   from both: the witness is on the GPU (then what is pending counts), says that it was served, or
//   ends; or records are lost: kNone
//
// While a fault, a new context or a module stops the GPU, somebody may be on it: what that took
// comes off everybody's excess.
//
// What it does not prove, and only charging answers: pieces that follow one another. A new slice
// stops whoever runs, and the same context may go on with a whole one. Whose slice was set is not
// in the log: a worker may do it to itself, or to a neighbour that it wants to have ended.
//
// Driven by EngineUse, in the order of the log. Pure; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace sluice::accounting {

class OverrunProof {
 public:
  // The slice that contexts have until their worker has set one, and what restoring a context, a
  // clock and the GPU's microcode add to one.
  static constexpr uint64_t kDriversSliceNs = 2'000'000, kToleranceNs = 5'000'000;
  static constexpr uint64_t kLateNs = 10'000'000'000;
  static constexpr double kLeak = 0.005;
  // The witness is asked when intervals were longer than 1.5 slices and 1 ms by so much, lately,
  // while another vGPU claimed work. The hint may be a lie: it costs one short switch.
  static constexpr uint64_t kSuspectNs = 100'000'000, kMostSuspectNs = 1'000'000'000;
  static constexpr double kSuspectLeak = 0.1;

  explicit OverrunProof(uint64_t overrun_ns) : overrun_ns_(overrun_ns) {}

  void set_slice(uint64_t now_ns, uint32_t worker, uint64_t slice_ns);
  void remove(uint32_t worker) { workers_.erase(worker); }

  // What the witness says, or is known of it. kWaits: until now, and since it said so first.
  enum class Say : uint8_t { kAsked, kWaits, kServed, kGone };
  void on_witness(uint64_t now_ns, Say say);
  // The log: a process is on the GPU from now on. kNobody: it has left, or nobody knows.
  static constexpr uint32_t kNobody = 0;
  void on_resident(uint64_t now_ns, uint32_t process, bool witness);
  // Until now the GPU stood for so long.
  void excuse(uint64_t now_ns, uint64_t stall_ns);
  // Up to now_ns nothing has changed. `interval_ns`: how long the resident has been there, breaks
  // left out. `others_claim`: a vGPU that is not its own says that it has work.
  void pass(uint64_t now_ns, uint64_t interval_ns, bool others_claim);

  bool suspects(uint64_t now_ns) const { return suspicion(now_ns) > kSuspectNs; }
  // Workers whose excess has passed overrun_ns, each once, since the last call.
  std::vector<uint32_t> take() { return std::exchange(proved_, {}); }
  // For people: what has added up.
  uint64_t excess_ns(uint64_t now_ns, uint32_t worker) const;

 private:
  enum class Try : uint8_t { kNone, kAsked, kWaits };
  struct Given {
    uint64_t until_ns, slice_ns;
  };
  struct Worker {
    uint64_t slice_ns = 0;
    std::deque<Given> given;  // until then they count; each shorter than the one before
    double excess_ns = 0;     // at counted_ns
    uint64_t counted_ns = 0, pending_ns = 0;
    bool proved = false;
  };
  uint64_t allowance(uint64_t now_ns, const Worker& w) const;
  double suspicion(uint64_t now_ns) const;
  void count(uint64_t now_ns);
  void end_try(Try next = Try::kNone);

  const uint64_t overrun_ns_;
  std::map<uint32_t, Worker> workers_;
  Try try_ = Try::kNone;
  uint32_t resident_ = kNobody;
  bool witness_resident_ = false;
  uint64_t passed_ns_ = 0;
  uint64_t piece_ns_ = 0;  // of the resident's piece, while the witness waited
  double suspicion_ns_ = 0;
  uint64_t suspected_ns_ = 0;  // when that was so much
  std::vector<uint32_t> proved_;
};

}  // namespace sluice::accounting
