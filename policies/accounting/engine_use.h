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
//   wants
//                   the engine, so whoever stays uses it
//   all that claim  each its part, where nobody known is resident (between two contexts, another
//                   program of the host, a log that has lost records): as if there were no log
//   nobody          if none claims
//
// The log tells late, of a vGPU that has the GPU alone up to a second late: what it used then would
// be a debt to whoever has come meanwhile. So use is `free` while no other vGPU wants the GPU, once
// that has lasted for kAloneNs: it is shown, and nobody is owed anything for it.
//
// What saving and restoring a context takes lies within its interval. It is not charged, unless the
// interval is shorter than half a slice: who gives its slices away pays for the switches. One that
// starts again where it has just ended was stopped, by a new slice for instance: it goes on.
//
// Lies
//   "I have nothing", and running on     charged all the same
//   "I have work", and starting nothing  counts against an idle resident for as long as its vGPU
//                                        has really run, kBelievedNs at most, and is used up by
//                                        that. Then the time is nobody's: what the GPU idles while
//                                        others are kept from it is for the policy to charge
//                                        (policies/wfq/slices.cc)
//   longer slices than it was given      charged. Where two other vGPUs claim at once for longer
//                                        than overrun_ns, the interval is an overrun: see
//                                        take_overruns()
//
// Pure; one thread; times do not go backwards. The caller (daemon/scheduling) maps processes to
// workers and times to the host's clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace sluice::accounting {

class EngineUse {
 public:
  struct Config {
    uint64_t interval_cost_ns = 137'000;  // of a context at full occupancy (an H200)
    uint64_t switch_ns = 200'000;         // of a part
    uint64_t overrun_ns = 500'000'000;    // beyond its slice
  };
  // What is believed of claims: of one that never ran, and at most. Less: an honest vGPU is
  // believed for a shorter time that an idle neighbour is in its way. More: claims cost a neighbour
  // more.
  static constexpr uint64_t kFirstBelievedNs = 1'000'000, kBelievedNs = 10'000'000;
  // So long after it has run one that claims is a witness of an overrun.
  static constexpr uint64_t kPatienceNs = 1'000'000'000;
  static constexpr uint64_t kAloneNs = 1'000'000;

  explicit EngineUse(const Config& config) : config_(config) {}

  // `worker`: its process. `vgpu`: whose it is.
  void add(uint32_t worker, uint32_t vgpu);
  void remove(uint32_t worker);
  bool has(uint32_t worker) const { return workers_.count(worker) != 0; }
  void set_slice(uint32_t worker, uint64_t slice_ns) { workers_[worker].slice_ns = slice_ns; }

  // From `now_ns` on, until the next call for it. `wants`: it has launches, be its gate open or
  // not.
  void on_claim(uint64_t now_ns, uint32_t worker, bool claims, bool wants);
  void on_claim(uint64_t now_ns, uint32_t worker, bool claims) {
    on_claim(now_ns, worker, claims, claims);
  }
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

  // Workers whose interval is an overrun, each once an interval, since the last call.
  std::vector<uint32_t> take_overruns() { return std::exchange(overruns_, {}); }
  // Whether the log has had an interval of it.
  bool seen(uint32_t worker) const {
    const auto w = workers_.find(worker);
    return w != workers_.end() && w->second.seen;
  }

 private:
  static constexpr uint32_t kNobody = 0;
  struct Worker {
    uint32_t vgpu = 0;
    uint64_t slice_ns = 0;
    bool claims = false;  // at settled_ns_
    bool wants = false;   // the same
    double free_ns = 0;   // as due_ns
    bool seen = false;
    uint64_t patience_ns = kPatienceNs;  // what is left of it as a witness
    double due_ns = 0;
  };
  // A claim, or a record.
  struct Event {
    uint64_t time_ns;
    uint32_t process;
    bool on;
    bool wants = false;
  };
  void pass(uint64_t to_ns);
  void charge(uint64_t ns);
  uint64_t believed_ns() const;
  void use_up_belief(uint64_t ns);
  void believe(uint32_t vgpu, uint64_t ns);
  void start(uint32_t process);
  void end(bool whole);
  void decide_ended();
  void charge_parts(double ns);
  bool is_free() const { return alone_ && settled_ns_ > alone_since_ns_ + kAloneNs; }
  void look_who_wants();
  void watch_overrun(uint64_t ns);
  void hand_out(std::vector<Used>& used);

  const Config config_;
  std::map<uint32_t, Worker> workers_;
  struct Belief {
    uint64_t left_ns = kFirstBelievedNs;
    bool claims = false;  // in use_up_belief() only
  };
  std::map<uint32_t, Belief> believed_;  // by vGPU
  std::deque<Event> claims_, records_;   // after settled_ns_; a record of kNobody: some are lost
  uint32_t resident_ = kNobody;          // of workers_
  uint64_t interval_ns_ = 0;             // how long it has been
  uint64_t withheld_ns_ = 0;             // of interval_cost_ns
  uint64_t overrun_ns_ = 0;
  // The interval that ended last: whether its switches are its own is decided when another begins.
  struct Ended {
    uint32_t worker = 0;
    uint64_t at_ns = 0, interval_ns = 0, withheld_ns = 0;
  };
  Ended ended_;
  static constexpr uint64_t kStoppedNs = 1'000'000;
  std::vector<uint32_t> overruns_;
  uint64_t settled_ns_ = 0;
  uint64_t alone_since_ns_ = 0;  // one vGPU wants the GPU at most
  bool alone_ = true;
};

}  // namespace sluice::accounting
