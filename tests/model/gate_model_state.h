// SPDX-License-Identifier: Apache-2.0
// The words, settings and states of the gate protocol's model (gate_model.h): what is shared, what
// each party has for itself, and what must hold. No step is here.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::model {

enum class GateMutant : uint8_t {
  kNone,
  kGrantReadFirst,     // worker: g = grant before in_flight = n + 1
  kSilentBackOut,      // worker: closed gate met with nothing in flight: no left, no ring
  kEndGrantReadFirst,  // worker: at a launch's end, reads the grant before in_flight, demand
  kNoIdleRing,         // worker: demand = 0 without reading `contended`
  kInFlightReadFirst,  // sluiced: reads in_flight before it closes the gate
  kSameGeneration,     // sluiced: a new grant keeps the generation of the last
  kEngageUnread,       // sluiced: sets `contended` without reading demand
  kSameFailOpen,       // worker: stale heartbeat: launches with the word's own generation
  kControlZeroed,      // worker: a relaunch starts with a zeroed counter
  kNoPredecessor,      // GPU: the leader does not read the predecessor's done word
  kStandbyUnread,      // sluiced: sets `standby` without reading demand
  kStandbySilent,      // worker: does not ring that it has demand while it stands by
  kAcceptSilent,       // sluiced: clears `standby` without ringing the gate
};

struct GateModelState {
  static constexpr int kLaunches = 2;  // per session, at most

  uint8_t launches[2] = {2, 1};  // logical launches that each program queues
  uint8_t tasks[2] = {2, 1};     // of each launch of A, of B
  uint8_t evictions = 2;         // evictions of a busy holder, altogether
  uint8_t kills = 0;             // workers that die
  uint8_t crashes = 0;           // of sluiced
  bool opaque = false;           // A's launches poll no evict word
  bool queued_at_start = false;  // the programs have launched before the search begins
  // The worker's other legal order, the one of mediator/worker/streams/gate.cc: at a launch's end
  // it checks whether it has left before it stores demand, and it reports (and rings) each
  // generation once.
  bool left_first = false;
  // An idle holder may stand by instead of being evicted. A's launches are too long to go then.
  bool standby = false;
  GateMutant mutant = GateMutant::kNone;

  enum WorkerPc : uint8_t {
    kWIdle,
    kWDemandGrant,
    kWPeek,
    kWInFlight,
    kWGrantFirst,
    kWReadGrant,
    kWHeartbeat,
    kWBackOut,
    kWLeft,
    kWEndGrantFirst,
    kWEndInFlight,
    kWEndDemand,
    kWEndContended,
    kWEndGrant
  };
  enum GpuPc : uint8_t { kGTest, kGFetch };
  enum SluicedPc : uint8_t {
    kSMain,
    kSReadDemand,
    kSReadInFlight,
    kSClose,
    kSEvictWord,
    kSGrantRing
  };
  static constexpr uint8_t kOpen = 1, kContended = 2, kStandby = 4;

  struct Session {
    // host and signal page, report, bells
    uint8_t gen, flags, evict, demand, in_flight, left, ring, gate;
    // program and worker
    uint8_t to_queue, alive, pc, g_gen, g_flags;
    uint8_t queued;    // logical launches accepted and not done
    uint8_t head;      // number of the first of them
    uint8_t issued;    // of those, given to the stream since the last reissue
    uint8_t physical;  // launches in the stream whose end the worker has not handled
    uint8_t ended;     // launches that have left the stream and were not handled
    uint8_t reissue;
    // GPU
    uint8_t stream, gpu_pc, copy, id[2], launch_gen[2];
    uint8_t next_ticket[kLaunches], ran[kLaunches], done[kLaunches];
    uint8_t reaped;
    // sluiced's private knowledge
    uint8_t want;
  };
  struct State {
    Session s[2];
    uint8_t up, stale, pc, cur, r_demand, r_in_flight;
    uint8_t holder;  // 0: none
    uint8_t leaving, engaged;
    uint8_t early;  // mutant: r_in_flight was read before the gate was closed
    uint8_t evictions, kills, crashes;
    uint8_t bad;
  };

  State initial() const {
    State n{};
    for (int i = 0; i < 2; ++i) {
      n.s[i].to_queue = launches[i];
      n.s[i].alive = 1;
      n.s[i].flags = kContended;
      if (queued_at_start) {
        n.s[i].to_queue = 0;
        n.s[i].queued = n.s[i].demand = launches[i];
        n.s[i].ring = 1;
      }
    }
    n.up = 1;
    n.evictions = evictions;
    n.kills = kills;
    n.crashes = crashes;
    return n;
  }
  const char* violation(const State& n) const {
    switch (n.bad) {
      case 1:
        return "a task started after its generation was reported to have left";
      case 2:
        return "a task started in a session that does not hold the GPU";
      case 3:
        return "a task ran twice";
      case 4:
        return "a launch ran before its predecessor was done";
      case 5:
        return "a task started that no evict word will reach";
      default:
        return nullptr;
    }
  }
  bool goal(const State& n) const {
    for (const Session& s : n.s)
      if (s.alive && (s.to_queue || s.queued || s.pc != kWIdle)) return false;
    return true;
  }

  // What a dead worker leaves behind: its pages and its rings.
  static void die(Session& s) {
    Session dead{};
    dead.gen = s.gen, dead.flags = s.flags, dead.evict = s.evict;
    dead.demand = s.demand, dead.in_flight = s.in_flight, dead.left = s.left;
    dead.ring = s.ring;
    dead.want = s.want;
    s = dead;
  }
};

}  // namespace sluice::model
