// SPDX-License-Identifier: Apache-2.0
// The gate protocol of abi/stub.h as a model for explore(): two sessions of two vGPUs, each with
// its program, its worker and its stream on the GPU, and one sluiced. Every load and store of a
// shared word, every bell and every step of a kernel's leader is a step of its own (what a party
// does with words that no other party reads goes with the step before). The words are seq_cst,
// so steps interleave and nothing more (what store buffers do is the other model's matter; a store
// that is not seq_cst is a mutant here: the load behind it comes first).
//
// The GPU: a stream per session, first in, first out, with up to two launches queued eagerly. A
// launch's proxy copies the evict word into the launch's control block at any time, or, in an
// opaque session, never. The leader leaves at once if its predecessor is not done, tests the copy
// before each ticket, and leaves when the tickets are used up. sluiced: the scheduler's rules
// (mediator/core/sharing) with every choice that a policy has left open: whom to grant, and when to
// evict a busy holder (`evictions` times, so that the search ends). Crashes: a worker at any step,
// its launches with it; sluiced at any step: its private state is lost, pages and bells stay, and
// the heartbeat goes stale some time later.
#pragma once

#include "tests/model/gate_model_state.h"

namespace sluice::model {

struct GateModel : GateModelState {
  explicit GateModel(const GateModelState& settings) : GateModelState(settings) {}

  template <class Emit>
  void successors(const State& n, Emit emit) const {
    for (int i = 0; i < 2; ++i) {
      if (!n.s[i].alive) continue;
      worker(n, i, emit);
      gpu(n, i, emit);
      if (n.kills) {
        State m = n;
        --m.kills;
        die(m.s[i]);
        emit(m, i ? "B dies" : "A dies");
      }
    }
    if (n.up) {
      sluiced(n, emit);
      if (n.crashes) {
        State m = n;
        --m.crashes;
        m.up = m.pc = m.cur = m.r_demand = m.r_in_flight = m.holder = m.leaving = m.engaged = 0;
        m.early = 0;
        for (Session& s : m.s) s.want = 0;
        emit(m, "sluiced crashes");
      }
      return;
    }
    if (!n.stale) {
      State m = n;
      m.stale = 1;
      emit(m, "heartbeat goes stale");
    }
  }

 private:
  // ---- worker
  // -------------------------------------------------------------------------------------
  template <class Emit>
  void worker(const State& n, int i, Emit& emit) const {
    const Session& s = n.s[i];
    State m = n;
    Session& w = m.s[i];
    const auto read_grant = [&] { w.g_gen = s.gen, w.g_flags = s.flags; };
    switch (s.pc) {
      case kWIdle:
        if (s.to_queue) {
          --w.to_queue;
          ++w.queued;
          w.demand = w.queued;
          w.pc = kWDemandGrant;
          if (s.demand) next_launch(w);
          emit(m, i ? "B: program launches, demand = n" : "A: program launches, demand = n");
        }
        m = n;
        if (s.ended) {
          --w.ended;
          --w.physical;
          if (mutant == GateMutant::kEndGrantReadFirst)
            w.pc = kWEndGrantFirst;
          else
            end_of_launch(w);
          emit(m,
               i ? "B: a launch's end, in_flight = n - 1" : "A: a launch's end, in_flight = n - 1");
        }
        m = n;
        if (s.gate) {
          w.gate = 0;
          next_launch(w);
          emit(m, i ? "B: gate bell" : "A: gate bell");
        }
        m = n;
        // Its timer: it holds launches, and finds the heartbeat stale.
        if (n.stale && s.queued && !s.physical) {
          next_launch(w);
          emit(m, i ? "B: gate timer" : "A: gate timer");
        }
        return;
      case kWDemandGrant:
        if (!(s.flags & kOpen) || (s.flags & kStandby && mutant != GateMutant::kStandbySilent))
          w.ring = 1;
        next_launch(w);
        return emit(m, i ? "B: ring if closed" : "A: ring if closed");
      case kWPeek:
        w.pc = s.flags & kStandby && i == 0 ? kWIdle : kWInFlight;
        return emit(m, i ? "B: grant? standby" : "A: grant? standby: too long");
      case kWGrantFirst:
        read_grant();
        w.pc = kWInFlight;
        return emit(m, "worker: grant? (mutant)");
      case kWInFlight:
        w.in_flight = static_cast<uint8_t>(s.physical + 1);
        w.pc = kWReadGrant;
        if (mutant == GateMutant::kGrantReadFirst) {
          if (s.g_flags & kOpen)
            submit(w);
          else
            w.pc = kWHeartbeat;
        }
        return emit(m, i ? "B: in_flight = n + 1" : "A: in_flight = n + 1");
      case kWReadGrant:
        read_grant();
        if (s.flags & kOpen)
          submit(w);
        else
          w.pc = kWHeartbeat;
        return emit(m, i ? "B: grant? open: launches" : "A: grant? open: launches");
      case kWHeartbeat:
        if (n.stale) {
          if (mutant != GateMutant::kSameFailOpen) ++w.g_gen;
          submit(w);
        } else {
          w.pc = kWBackOut;
        }
        return emit(m, i ? "B: heartbeat?" : "A: heartbeat?");
      case kWBackOut:
        w.in_flight = s.physical;
        w.pc = s.physical == 0 && mutant != GateMutant::kSilentBackOut ? kWLeft : kWIdle;
        if (w.pc == kWIdle) clear(w);
        return emit(m, i ? "B: in_flight = n" : "A: in_flight = n");
      case kWLeft:
        if (!left_first || s.left != s.g_gen) w.ring = 1;
        w.left = s.g_gen;
        w.pc = w.demand != w.queued ? kWEndDemand : kWIdle;
        clear(w);
        return emit(m, i ? "B: left, rings" : "A: left, rings");
      case kWEndGrantFirst:
        read_grant();
        w.pc = kWEndInFlight;
        return emit(m, "worker: grant? (mutant)");
      case kWEndInFlight:
        end_of_launch(w);
        return emit(m, "worker: in_flight = n - 1 (mutant)");
      case kWEndDemand:
        w.demand = s.queued;
        w.pc = s.queued == 0 && mutant != GateMutant::kNoIdleRing ? kWEndContended : kWEndGrant;
        if (left_first && s.queued) next_launch(w);
        return emit(m, i ? "B: demand = n" : "A: demand = n");
      case kWEndContended:
        if ((mutant == GateMutant::kEndGrantReadFirst ? s.g_flags : s.flags) & kContended)
          w.ring = 1;
        w.pc = kWEndGrant;
        if (left_first) next_launch(w);
        return emit(m, i ? "B: ring if contended" : "A: ring if contended");
      case kWEndGrant:
        if (mutant != GateMutant::kEndGrantReadFirst) read_grant();
        if (!(w.g_flags & kOpen) && s.physical == 0) {
          w.pc = kWLeft;
        } else {
          w.pc = kWIdle;
          if (w.g_flags & kOpen) next_launch(w);
          if (w.demand != w.queued) w.pc = kWEndDemand;
          clear(w);
        }
        return emit(m, i ? "B: grant? at the end" : "A: grant? at the end");
      default:
        return;
    }
  }
  // What the worker does next, from what it alone knows: no step of its own.
  void next_launch(Session& w) const {
    if (w.reissue && w.physical == 0) w.reissue = 0, w.issued = 0;
    if (w.reissue || w.issued >= w.queued || w.physical >= 2)
      w.pc = kWIdle;
    else if (mutant == GateMutant::kGrantReadFirst)
      w.pc = kWGrantFirst;
    else
      w.pc = standby ? kWPeek : kWInFlight;
  }
  void submit(Session& w) const {
    const auto id = static_cast<uint8_t>(w.head + w.issued);
    w.id[w.stream] = id;
    w.launch_gen[w.stream] = w.g_gen;
    ++w.stream;
    ++w.physical;
    ++w.issued;
    if (mutant == GateMutant::kControlZeroed) w.next_ticket[id] = 0;
    clear(w);
    next_launch(w);
  }
  void end_of_launch(Session& w) const {
    w.in_flight = w.physical;
    if (w.done[w.head]) {
      ++w.head;
      --w.queued;
      --w.issued;
      w.pc = left_first ? kWEndGrant : kWEndDemand;
    } else {
      w.reissue = 1;
      w.pc = kWEndGrant;
    }
  }
  // Dead registers are zeroed, so that equal situations are equal states.
  static void clear(Session& w) { w.g_gen = w.g_flags = 0; }

  // ---- GPU
  // ----------------------------------------------------------------------------------------
  template <class Emit>
  void gpu(const State& n, int i, Emit& emit) const {
    const Session& s = n.s[i];
    if (s.stream == 0) return;
    State m = n;
    Session& w = m.s[i];
    const uint8_t id = s.id[0], gen = s.launch_gen[0];
    const auto leave = [&] {
      w.id[0] = s.id[1], w.launch_gen[0] = s.launch_gen[1];
      w.id[1] = w.launch_gen[1] = 0;
      --w.stream;
      ++w.ended;
      w.gpu_pc = kGTest;
      w.copy = 0;
    };
    if (s.copy != s.evict && !(opaque && i == 0)) {
      w.copy = s.evict;
      emit(m, i ? "GPU: B's proxy copies the evict word" : "GPU: A's proxy copies the evict word");
      m = n;
    }
    // A task runs from its ticket to the leader's next test, so the two are one step apart. The
    // done word is set with the last ticket: nobody reads it before the launch has left.
    switch (s.gpu_pc) {
      case kGTest:
        if ((id > 0 && !s.done[id - 1] && mutant != GateMutant::kNoPredecessor) || s.copy >= gen)
          leave();
        else if (s.next_ticket[id] >= tasks[i])
          leave();
        else
          w.gpu_pc = kGFetch;
        return emit(m, i ? "GPU: B tests evict" : "GPU: A tests evict");
      case kGFetch: {
        const uint8_t t = s.next_ticket[id];
        ++w.next_ticket[id];
        if (s.left >= gen) m.bad = 1;
        if (n.up && n.holder != i + 1 && !(s.flags & kStandby)) m.bad = 2;
        if (n.up && !(s.flags & kOpen) && n.pc != kSEvictWord && gen > s.evict) m.bad = 5;
        if (s.ran[id] & (1u << t)) m.bad = 3;
        if (id > 0 && !s.done[id - 1]) m.bad = 4;
        w.ran[id] = static_cast<uint8_t>(s.ran[id] | (1u << t));
        if (w.next_ticket[id] == tasks[i]) w.done[id] = 1;
        w.gpu_pc = kGTest;
        return emit(m, i ? "GPU: B fetches a ticket" : "GPU: A fetches a ticket");
      }
      default:
        return;
    }
  }

  // ---- sluiced
  // ------------------------------------------------------------------------------------
  template <class Emit>
  void sluiced(const State& n, Emit& emit) const {
    State m = n;
    const uint8_t c = n.cur;
    const Session& s = n.s[c];
    Session& w = m.s[c];
    switch (n.pc) {
      case kSMain:
        return decide(n, emit);
      case kSReadDemand:
        m.r_demand = s.demand;
        m.pc = kSReadInFlight;
        return emit(m, "sluiced: demand?");
      case kSReadInFlight: {
        // The mutant's first read counts (kSClose comes from evict(), which read for it).
        const bool early = mutant == GateMutant::kInFlightReadFirst && n.early;
        const uint8_t f = early ? n.r_in_flight : s.in_flight;
        w.want = n.r_demand > 0 || s.in_flight > 0;
        if (n.leaving && n.holder == c + 1 && (f == 0 || s.left == s.gen))
          m.holder = m.leaving = m.engaged = 0;
        m.pc = kSMain;
        m.r_demand = m.r_in_flight = m.early = 0;
        m.cur = 0;
        return emit(m, "sluiced: in_flight? left?");
      }
      case kSClose:
        w.flags = kContended;
        m.pc = kSEvictWord;
        return emit(m, "sluiced: closes the gate");
      case kSEvictWord:
        w.evict = s.gen;
        m.pc = kSReadDemand;
        return emit(m, "sluiced: evict word");
      case kSGrantRing:
        w.gate = 1;
        m.pc = kSMain;
        m.cur = 0;
        return emit(m, "sluiced: rings the gate");
      default:
        return;
    }
  }
  template <class Emit>
  void decide(const State& n, Emit& emit) const {
    State m = n;
    // What follows from what is known is done before the next event is looked at.
    if (n.holder == 0 && (n.s[0].want || n.s[1].want)) {
      for (uint8_t i = 0; i < 2; ++i) {
        if (!n.s[i].want) continue;
        m = n;
        Session& w = m.s[i];
        if (w.flags & kStandby) {
          m.holder = static_cast<uint8_t>(i + 1);
          evict(m, i);
          emit(m, i ? "sluiced: B is not to go on" : "sluiced: A is not to go on");
          m = n;
          m.engaged = n.s[1 - i].want;
          w.flags = static_cast<uint8_t>(kOpen | (m.engaged ? kContended : 0));
          m.holder = static_cast<uint8_t>(i + 1);
          m.cur = i;
          m.pc = mutant == GateMutant::kAcceptSilent ? kSMain : kSGrantRing;
          if (m.pc == kSMain) m.cur = 0;
          emit(m, i ? "sluiced: accepts B" : "sluiced: accepts A");
          continue;
        }
        if (mutant != GateMutant::kSameGeneration || w.gen == 0) ++w.gen;
        m.engaged = n.s[1 - i].want;
        w.flags = static_cast<uint8_t>(kOpen | (m.engaged ? kContended : 0));
        m.holder = static_cast<uint8_t>(i + 1);
        m.cur = i;
        m.pc = kSGrantRing;
        emit(m, i ? "sluiced: grants B" : "sluiced: grants A");
      }
      return;
    }
    if (n.holder && !n.leaving) {
      const auto i = static_cast<uint8_t>(n.holder - 1);
      const uint8_t rival = n.s[1 - i].want;
      Session& w = m.s[i];
      if (n.engaged != rival) {
        m.engaged = rival;
        w.flags = static_cast<uint8_t>(kOpen | (rival ? kContended : 0));
        if (rival && mutant != GateMutant::kEngageUnread) {
          m.cur = i;
          m.pc = kSReadDemand;
        }
        return emit(m, "sluiced: sets or clears contended");
      }
      if (n.engaged && !n.s[i].want) {
        if (standby) {
          State k = n;
          k.s[i].flags = kOpen | kContended | kStandby;
          k.holder = k.engaged = 0;
          if (mutant != GateMutant::kStandbyUnread) k.cur = i, k.pc = kSReadDemand;
          emit(k, i ? "sluiced: B stands by" : "sluiced: A stands by");
        }
        evict(m, i);
        return emit(m, "sluiced: evicts an idle holder");
      }
    }
    for (uint8_t i = 0; i < 2; ++i) {
      m = n;
      if (n.s[i].ring) {
        m.s[i].ring = 0;
        m.cur = i;
        m.pc = kSReadDemand;
        emit(m, i ? "sluiced: B's ring" : "sluiced: A's ring");
      }
      m = n;
      if (!n.s[i].alive && !n.s[i].reaped) {
        m.s[i] = Session{};
        m.s[i].reaped = 1;
        if (n.holder == i + 1) m.holder = m.leaving = m.engaged = 0;
        emit(m, i ? "sluiced: B is gone" : "sluiced: A is gone");
      }
    }
    m = n;
    if (n.holder && !n.leaving && n.engaged && n.s[0].want && n.s[1].want && n.evictions) {
      --m.evictions;
      evict(m, static_cast<uint8_t>(n.holder - 1));
      emit(m, "sluiced: evicts a busy holder");
    }
  }
  void evict(State& m, uint8_t i) const {
    m.leaving = 1;
    m.cur = i;
    if (mutant == GateMutant::kInFlightReadFirst) m.early = 1, m.r_in_flight = m.s[i].in_flight;
    m.pc = kSClose;
  }
};

}  // namespace sluice::model
