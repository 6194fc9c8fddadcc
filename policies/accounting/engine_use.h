// SPDX-License-Identifier: Apache-2.0
// EngineUse: what each worker's context has used of a GPU that goes round among contexts by time
// slices, by the GPU's own context-switch log. What `wfq` on slices is charged by (decision 0013).
//
// Terms   resident    its context is on the compute engine, from a start to an end in the log
//         claims      has launches in flight, or an open gate and launches that wait: the worker
//                     says so. A hint: it may be a lie
//         part        its slice and a switch, of the same of all that claim
//
// Who is charged for each moment
//   the resident    if it claims, or another does: an idle context leaves at once when another
//                   wants the engine, so whoever stays uses it
//   nobody          between two contexts, for kBetweenNs at most: by parts, one that visits would
//                   pay for more than half of all switches beside it
//   all that claim  each its part, where nobody known is resident (another program of the host, a
//                   log that has lost records): as if there were no log
//   nobody          if none claims
//
// The log is late, by up to a second for a vGPU that has the GPU alone. What it used then would be
// a debt to a vGPU that has come meanwhile. So use is `free` once no other vGPU has wanted the GPU
// for kAloneNs: it is shown, and not charged.
//
// What saving and restoring a context takes lies within its interval. It is not charged, unless the
// interval is shorter than half a slice: who gives its slices away pays for the switches. One that
// starts again where it has just ended was stopped, by a new slice for instance: it goes on.
//
// False reports
//   reports no work, and runs on      charged all the same
//   reports work, and starts nothing  counts against an idle resident for as long as its vGPU has
//                                     really run, kTrustedNs at most, and is used up by that. Then
//                                     the time is nobody's: what the GPU idles while others are
//                                     kept from it is for the policy to charge
//                                     (policies/wfq/slices/waste.h)
//   longer slices than it was given   charged, and ended where the host's witness proves it
//                                     (overrun_proof.h)
//
// Pure; one thread; times do not go backwards. The caller (daemon/scheduling) maps processes to
// workers and times to the host's clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "policies/accounting/overrun_proof.h"

namespace sluice::accounting {

class EngineUse {
 public:
  static constexpr uint32_t kNobody = OverrunProof::kNobody;
  struct Config {
    uint64_t interval_cost_ns = 137'000;  // of a context at full occupancy (an H200)
    uint64_t switch_ns = 200'000;         // of a part
    uint64_t overrun_ns = 500'000'000;    // of proved excess ends a worker
  };
  // How long claims are trusted: of one that never ran, and at most. Less: an honest vGPU is
  // trusted for a shorter time when it says that an idle neighbour is in its way. More: claims cost
  // a neighbour more.
  static constexpr uint64_t kFirstTrustedNs = 1'000'000, kTrustedNs = 10'000'000;
  static constexpr uint64_t kAloneNs = 1'000'000;
  // Longer, and it is no switch.
  static constexpr uint64_t kBetweenNs = 1'000'000;

  explicit EngineUse(const Config& config) : config_(config), proof_(config.overrun_ns) {}

  // `worker`: its process. `vgpu`: whose it is.
  void add(uint32_t worker, uint32_t vgpu);
  void remove(uint32_t worker);
  bool has(uint32_t worker) const { return workers_.count(worker) != 0; }
  void set_slice(uint32_t worker, uint64_t slice_ns);

  // From `now_ns` on, until the next call for it. `wants`: it has launches, be its gate open or
  // not.
  void on_claim(uint64_t now_ns, uint32_t worker, bool claims, bool wants);
  void on_claim(uint64_t now_ns, uint32_t worker, bool claims) {
    on_claim(now_ns, worker, claims, claims);
  }
  // The witness is this process; kNobody: there is none.
  void set_witness(uint32_t process);
  void on_witness(uint64_t now_ns, OverrunProof::Say say);
  // Until now the GPU stood for so long: whoever was on it could not leave.
  void on_stall(uint64_t now_ns, uint64_t stall_ns);
  // In the order of the log. Any process; those that were never added are strangers.
  void on_record(uint64_t time_ns, uint32_t process, bool start);
  // Records are missing from here on until the next one.
  void on_lost(uint64_t time_ns);

  struct Used {
    uint32_t worker;
    uint64_t ns;
    bool free = false;
  };
  // All records up to `until_ns` are known: appends what has been used since the last call.
  void settle(uint64_t until_ns, std::vector<Used>& used);
  // The same without any log, for the time since the last call.
  void settle_without_log(uint64_t until_ns, std::vector<Used>& used);
  uint64_t settled_ns() const { return settled_ns_; }

  // Somebody seems to keep the GPU: the witness is to look.
  bool suspects() const { return proof_.suspects(settled_ns_); }
  // Workers that are proved to keep the GPU beyond their slices, each once, since the last call.
  std::vector<uint32_t> take_overruns() { return proof_.take(); }
  uint64_t excess_ns(uint32_t worker) const { return proof_.excess_ns(settled_ns_, worker); }
  // Whether the log has had an interval of it.
  bool seen(uint32_t worker) const {
    const auto w = workers_.find(worker);
    return w != workers_.end() && w->second.seen;
  }

 private:
  struct Worker {
    uint32_t vgpu = 0;
    uint64_t slice_ns = 0;
    bool claims = false;  // at settled_ns_
    bool wants = false;   // the same
    double free_ns = 0;   // as due_ns
    bool seen = false;
    double due_ns = 0;
  };
  // A claim, a record, or what the witness says (no value: a stall).
  struct Event {
    uint64_t time_ns;
    uint32_t process;
    bool on;
    bool wants = false;
    std::optional<OverrunProof::Say> said = {};
    uint64_t stall_ns = 0;
  };
  std::deque<Event>* next_event(uint64_t until_ns);
  void pass(uint64_t to_ns);
  void charge(uint64_t ns);
  uint64_t trusted_ns() const;
  void use_up_trust(uint64_t ns);
  void trust(uint32_t vgpu, uint64_t ns);
  void start(uint32_t process);
  void end(bool whole);
  void decide_ended();
  void charge_parts(double ns);
  void end_gap(bool was_switch);
  bool is_free() const { return alone_ && settled_ns_ > alone_since_ns_ + kAloneNs; }
  void count_claimants();
  void hand_out(std::vector<Used>& used);

  const Config config_;
  std::map<uint32_t, Worker> workers_;
  struct Trust {
    uint64_t left_ns = kFirstTrustedNs;
    bool claims = false;  // in use_up_trust() only
  };
  std::map<uint32_t, Trust> trusted_;  // by vGPU
  OverrunProof proof_;
  uint32_t witness_ = kNobody;
  // After settled_ns_, each in its own order; at one time in this. A record of kNobody: some are
  // lost.
  std::deque<Event> claims_, said_, records_;
  uint32_t resident_ = kNobody;  // of workers_
  uint64_t interval_ns_ = 0;     // how long it has been
  uint64_t withheld_ns_ = 0;     // of interval_cost_ns
  // The interval that ended last: whether its switches are its own is decided when another begins.
  struct Ended {
    uint32_t worker = 0;
    uint64_t at_ns = 0, interval_ns = 0, withheld_ns = 0;
  };
  Ended ended_;
  static constexpr uint64_t kStoppedNs = 1'000'000;
  // One has ended, and no other has begun; how much of it somebody claimed.
  bool is_between_ = false;
  uint64_t gap_ns_ = 0;
  uint64_t settled_ns_ = 0;
  uint64_t alone_since_ns_ = 0;  // one vGPU wants the GPU at most
  bool alone_ = true;
};

}  // namespace sluice::accounting
