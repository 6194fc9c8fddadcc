// SPDX-License-Identifier: Apache-2.0
// Gate: the worker's half of the gate protocol of abi/stub.h, over the three stub pages.
//
// Owned by the session, used under the stream engine's lock by whichever of the worker's threads
// holds it; the words themselves are shared with sluiced, and every access to them is here. Reads
// no clock: `now_ns` is CLOCK_MONOTONIC handed in. Launches nothing, holds nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "abi/stub.h"
#include "mediator/base/sm_set.h"
#include "mediator/worker/streams/rhythm_meter.h"

namespace sluice::worker {

inline constexpr uint64_t kStaleHeartbeatNs = SLUICE_STALE_HEARTBEAT_NS;

// Under what a physical launch goes to the GPU.
struct Grant {
  uint32_t generation = 0;
  bool part = false;  // only on `sms`; false: on all
  SmSet sms;
  uint32_t level = 0;    // of the streams' priority
  bool fill = false;     // others are kept out of the gaps of chains
  bool standby = false;  // this vGPU has no turn: short launches only
};

class Gate {
 public:
  // The pages outlive the gate. `ring` writes sluiced's eventfd. `started_ns` stands for the first
  // heartbeat until there is one.
  Gate(const sluice_host_page* host, const sluice_signal_page* signal, sluice_report_header* report,
       uint64_t started_ns, std::function<void()> ring);

  // Before a physical launch: counts it in flight, then reads the grant. True: launch under *grant.
  // False: the gate is closed, the launch is held and not counted.
  bool enter(uint64_t now_ns, Grant* grant);
  // The grant as it is now, if there is one. Not counted, so that it may be another one soon.
  bool peek(Grant* grant) const;
  // One that entered under `grant` is not kept to its SMs, if these are a part: reported to sluiced
  // while it is in flight.
  void runs_anywhere(const Grant& grant);

  // A physical launch that entered under `grant` is known to have ended. `confined`:
  // runs_anywhere() was not called for it.
  void leave(uint64_t now_ns, bool confined, const Grant& grant);

  // Launches that the program queued and that are not done.
  void set_demand(uint32_t demand, uint64_t now_ns);

  // After a fault nothing is wanted and nothing runs.
  void reset(uint64_t now_ns);

  // The session is ending: from now on the gate is closed, whatever the grant says.
  void shut() { shut_ = true; }
  bool open(uint64_t now_ns) const;
  // The grant word as it is now, for a thread that waits for it to change. Any thread.
  uint64_t word() const { return __atomic_load_n(&host_->grant, __ATOMIC_ACQUIRE); }
  // Another vGPU waits for the GPU: keep what cannot be evicted short.
  bool contended() const;
  bool stale(uint64_t now_ns) const;
  // Launches of an older generation have been called back, are still in flight and must not stay.
  bool calling_back() const;
  // The same where they may stay on SMs of the new set, until kept() or
  // call_back_whole() is called. *grant: the new one.
  bool keeping(Grant* grant) const;
  // What is older than `generation` is on SMs of that generation's set only, and comes to no
  // others.
  void kept(uint32_t generation, uint64_t now_ns);
  // It cannot be brought about: sluiced calls what is older than `generation` back whole.
  void call_back_whole(uint32_t generation);
  // How far what is in flight could stay (SLUICE_KEEPS_*); a hint for sluiced.
  void set_keeps(uint32_t flags);
  uint32_t in_flight() const { return in_flight_; }
  uint32_t demand() const { return demand_; }

 private:
  struct Flight {
    uint32_t generation;
    uint32_t count;
  };
  uint64_t grant() const {
    const uint64_t word = __atomic_load_n(&host_->grant, __ATOMIC_SEQ_CST);
    return shut_ ? word & ~uint64_t{SLUICE_GRANT_OPEN} : word;
  }
  Grant read_open_grant(uint64_t word) const;
  void note_if_left(uint64_t grant, uint64_t now_ns);
  void store_in_flight();
  void count_unconfined(int change);
  void note_rhythm(uint64_t now_ns);

  const sluice_host_page* host_;
  const sluice_signal_page* signal_;
  sluice_report_header* report_;
  uint64_t started_ns_;
  std::function<void()> ring_;
  // Private copies: the pages are written, never read back.
  uint32_t in_flight_ = 0;
  uint64_t in_flight_since_ns_ = 0, flight_ns_ = 0;  // see sluice_report_header
  std::deque<Flight> flights_;                       // the same by generation, the oldest first
  uint32_t unconfined_ = 0;
  uint32_t demand_ = 0;
  uint32_t idles_ = 0;  // how often it became 0
  RhythmMeter rhythm_;
  uint32_t left_generation_ = 0;
  uint32_t kept_generation_ = 0;   // of the newest grant under which older launches stay
  uint32_t whole_generation_ = 0;  // of the newest under which they are called back whole after all
  uint32_t keeps_ = 0;
  bool shut_ = false;
};

}  // namespace sluice::worker
