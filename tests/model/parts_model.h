// SPDX-License-Identifier: Apache-2.0
// The part of the gate protocol that changes a session's SMs (abi/stub.h, "to change the SMs"), as
// a model for explore(): one session A with its worker and its stream, one sluiced that moves it
// between sets of two SMs, closes and opens it, in any order, and somebody else who takes at once
// whatever SM A is said to have left. Every load and store of a shared word, every bell and every
// step of a kernel's worker is a step of its own. A launch has a worker on each SM of its set,
// which may come there late.
//
// With `keeps`, sluiced may let launches stay on the SMs of the new set, and the worker may bring
// that about (a second grid on SMs that were won) or ask for the whole recall. With crashes, A's
// worker dies once at any step, or sluiced does and comes back. A proxy's look at the evict word is
// one step; why it may be: BlockConfinement::check_sms.
//
// The rest of the protocol (demand, contended, heartbeats) is gate_model.h's. Launches are counted;
// with `endless` one runs until it is evicted, as a kernel without end would.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::model {

enum class PartsMutant : uint8_t {
  kNone,
  kNoWait,             // sluiced: SMs count as left once the evict word is stored
  kInFlightReadFirst,  // sluiced: checks whether A has left before it stores the new grant
  kSetAfterGrant,      // sluiced: the set is stored behind the grant word that names it
  kSameGeneration,     // sluiced: a change keeps the generation
  kGrantReadFirst,     // worker: reads the grant before in_flight says so
  kSilentEnter,      // worker: enters under a recalled word and does not say that the old has left
  kOlderNotCounted,  // worker: says so although something older is in flight
  kNoLook,           // worker: launches that stay count as having left without a look at their SMs
  kNoCopy,           // worker: the evict word is not put into the control blocks of queued launches
  kLookFirst,        // worker: it is put there after the look
  kKeepGrantFirst,   // sluiced: stores the grant under which launches stay before the evict word
  kRecallUnheard,    // sluiced: does not call back whole when asked
};

struct PartsModel {
  uint8_t launches = 2, tasks = 2;
  uint8_t moves = 3;
  bool endless = false;
  bool keeps = false;
  uint8_t worker_crashes = 0, sluiced_crashes = 0;
  PartsMutant mutant = PartsMutant::kNone;

  enum WorkerPc : uint8_t {
    kIdle,
    kCount,
    kGrant,
    kSet,
    kBackOut,
    kNote,
    kEndGrant,
    kKeepSet,
    kKeepCopy,
    kKeepLook,
    kGrowCount,
    kGrowGrant
  };
  enum OnSm : uint8_t { kToCome, kTest, kFetch, kOut };
  enum SluicedPc : uint8_t {
    kMain,
    kEarly,
    kStoreSet,
    kStoreGrant,
    kLateSet,
    kStoreEvict,
    kRingGate,
    kRead,
    kWait,
    kDown
  };

  struct State {
    // pages and bells
    uint8_t gen, open, recall, keep, set[2], evict, evict_sms, in_flight, left, ring, gate, ask;
    // worker
    uint8_t pc, g_gen, g_open, g_recall, g_set, note, held, kept, whole, twin, dead;
    uint8_t to_do, head, issued, physical, ended, reissue;
    uint8_t flight[2];  // generations of what is in the stream and of what has ended there, the
                        // oldest first
    // GPU
    uint8_t stream, copy[2], copy_sms[2], id[2], launch_gen[2], launch_set[2], next[2];
    uint8_t on[2], grown,
        grown_gen;  // of the launch that runs: its worker on each SM; SMs of its second grid
    // sluiced
    uint8_t spc, moves, granted, target, old_gen, lost, early, theirs, keeping, spread;
    uint8_t worker_crashes, sluiced_crashes;
    uint8_t bad;
  };

  State initial() const {
    State n{};
    n.to_do = launches;
    n.moves = moves;
    n.spc = kMain;
    n.held = 1;
    n.worker_crashes = worker_crashes;
    n.sluiced_crashes = sluiced_crashes;
    return n;
  }
  const char* violation(const State& n) const {
    if (n.bad == 1) return "a task started on an SM that is somebody else's";
    if (n.bad == 2) return "a task ran twice";
    return nullptr;
  }
  bool goal(const State& n) const {
    if (n.spc != kMain || n.moves) return false;
    if (n.dead) return n.dead == 3;
    if (endless) return n.granted == 0 || n.stream > 0;  // it runs, if it may
    return n.granted == 0 || (n.to_do == 0 && n.physical == 0);
  }

  template <class Emit>
  void successors(const State& n, Emit emit) const {
    if (!n.dead) worker(n, emit);
    gpu(n, emit);
    sluiced(n, emit);
    crashes(n, emit);
  }

 private:
  static uint8_t older(const State& n, uint8_t than) {
    uint8_t count = 0;
    for (uint8_t i = 0; i < n.physical; ++i) count += n.flight[i] < than;
    return count;
  }
  void say_left(State& n, uint8_t generation) const {
    n.pc = kIdle;
    if (generation > n.left) n.left = generation, n.ring = 1;
    n.g_gen = n.g_open = n.g_recall = n.g_set = n.note = 0;
  }
  // After the words are read: is there something to say, and then what is next.
  void note(State& n) const {
    const bool all_left = n.g_open ? n.g_recall && (!older(n, n.g_gen) || n.kept >= n.g_gen ||
                                                    mutant == PartsMutant::kOlderNotCounted)
                                   : n.physical == 0;
    if (all_left) {
      say_left(n, n.g_open ? static_cast<uint8_t>(n.g_gen - 1) : n.g_gen);
    } else {
      n.pc = kIdle;
      n.g_gen = n.g_open = n.g_recall = n.g_set = 0;
    }
  }
  // SMs of `set` on which the launch that runs has no worker, nor will have.
  static uint8_t won(const State& n, uint8_t set) {
    uint8_t more = 0;
    for (uint8_t sm = 0; sm < 2; ++sm)
      if ((set >> sm & 1) && (!((n.launch_set[0] | n.grown) >> sm & 1) || n.on[sm] == kOut))
        more = static_cast<uint8_t>(more | 1 << sm);
    return more;
  }
  void after_look(State& n) const {
    if (n.stream == 1 && n.physical == 1 && won(n, n.g_set)) {
      n.pc = kGrowCount;
    } else {
      n.kept = n.g_gen;
      n.pc = kNote;
    }
  }
  // The launch at the head of the stream begins.
  static void begin(State& n) {
    n.grown = n.grown_gen = 0;
    for (uint8_t sm = 0; sm < 2; ++sm) n.on[sm] = n.launch_set[0] >> sm & 1 ? kToCome : kOut;
  }
  template <class Emit>
  void worker(const State& n, Emit& emit) const {
    State m = n;
    const auto read_grant = [&] { m.g_gen = n.gen, m.g_open = n.open, m.g_recall = n.recall; };
    switch (n.pc) {
      case kIdle:
        if (n.gate) {
          m.gate = m.held = 0;
          emit(m, "A: gate bell");
          m = n;
        }
        if (n.ended) {
          --m.ended;
          m.physical = static_cast<uint8_t>(n.physical - (n.twin ? 2 : 1));
          m.flight[0] = m.physical ? n.flight[1] : 0;
          m.flight[1] = m.twin = 0;
          m.in_flight = m.physical;
          if (!endless && n.next[n.head] >= tasks) {
            ++m.head;
            --m.to_do;
            --m.issued;
          } else {
            m.reissue = 1;
          }
          m.pc = kEndGrant;
          emit(m, "A: a launch's end, in_flight = n - 1");
          m = n;
        }
        if (n.open && n.recall && n.keep && older(n, n.gen) && n.kept < n.gen && n.whole < n.gen) {
          read_grant();
          m.pc = kKeepSet;
          emit(m, "A: grant? older launches may stay");
          m = n;
        }
        if (n.reissue && n.physical == 0) m.reissue = m.issued = 0;
        if (!m.reissue && !n.held && m.issued < n.to_do && n.physical < 2) {
          m.pc = mutant == PartsMutant::kGrantReadFirst ? kGrant : kCount;
          emit(m, "A: has something to launch");
        }
        return;
      case kCount:
        m.in_flight = static_cast<uint8_t>(n.physical + 1);
        m.pc = kGrant;
        if (mutant == PartsMutant::kGrantReadFirst) m.pc = n.g_open ? kSet : kBackOut;
        return emit(m, "A: in_flight = n + 1");
      case kGrant:
        read_grant();
        m.pc = n.open ? kSet : kBackOut;
        if (mutant == PartsMutant::kGrantReadFirst) m.pc = kCount;
        return emit(m, "A: grant?");
      case kSet: {
        m.g_set = n.set[n.g_gen & 1];
        const auto id = static_cast<uint8_t>(n.head + n.issued);
        m.id[n.stream] = id;
        m.launch_gen[n.stream] = n.g_gen;
        m.launch_set[n.stream] = m.g_set;
        m.flight[n.physical] = n.g_gen;
        m.copy[n.stream] = m.copy_sms[n.stream] = 0;
        if (n.stream == 0) begin(m);
        ++m.stream;
        ++m.physical;
        ++m.issued;
        m.pc = mutant == PartsMutant::kSilentEnter ? kIdle : kNote;
        if (m.pc == kIdle) m.g_gen = m.g_open = m.g_recall = m.g_set = 0;
        return emit(m, "A: set? launches");
      }
      case kNote:
        note(m);
        return emit(m, "A: left, if nothing older is in flight");
      case kBackOut:
        m.in_flight = n.physical;
        m.held = 1;
        note(m);
        return emit(m, "A: in_flight = n, holds");
      case kKeepSet: {
        m.g_set = n.set[n.g_gen & 1];
        m.whole = n.g_gen;
        m.ask = static_cast<uint8_t>(n.g_gen - 1);
        m.ring = 1;
        State asks = m;
        asks.pc = kIdle;
        asks.g_gen = asks.g_open = asks.g_recall = asks.g_set = 0;
        emit(asks, "A: asks to be called back whole");
        if (n.twin || (n.physical > 1 && won(n, m.g_set))) return;
        m = n;
        m.g_set = n.set[n.g_gen & 1];
        m.pc = mutant == PartsMutant::kLookFirst ? kKeepLook : kKeepCopy;
        return emit(m, "A: set? they are to stay");
      }
      case kKeepCopy:
        for (uint8_t i = 0; i < n.stream && mutant != PartsMutant::kNoCopy; ++i)
          m.copy[i] = n.evict, m.copy_sms[i] = n.evict_sms;
        m.pc = kKeepLook;
        if (mutant == PartsMutant::kLookFirst) after_look(m);
        return emit(m, "A: evict word into the control blocks");
      case kKeepLook:
        for (uint8_t sm = 0; sm < 2; ++sm)
          if (n.stream && !(n.g_set >> sm & 1) && (n.on[sm] == kTest || n.on[sm] == kFetch) &&
              mutant != PartsMutant::kNoLook)
            return;
        if (mutant == PartsMutant::kLookFirst)
          m.pc = kKeepCopy;
        else
          after_look(m);
        return emit(m, "A: nobody is on the SMs that were lost");
      case kGrowCount:
        m.in_flight = static_cast<uint8_t>(n.physical + 1);
        m.pc = kGrowGrant;
        return emit(m, "A: in_flight = n + 1, for a second grid");
      case kGrowGrant:
        if (!n.open || n.gen != n.g_gen) {
          read_grant();
          m.in_flight = n.physical;
          note(m);
          return emit(m, "A: in_flight = n, no second grid");
        }
        if (n.stream) {
          const uint8_t more = won(n, n.g_set);
          m.grown = static_cast<uint8_t>(n.grown | more);
          m.grown_gen = n.g_gen;
          for (uint8_t sm = 0; sm < 2; ++sm)
            if (more >> sm & 1) m.on[sm] = kToCome;
          m.twin = 1;
          m.flight[m.physical++] = n.g_gen;
        } else {
          m.in_flight = n.physical;  // it has ended meanwhile
        }
        m.kept = n.g_gen;
        m.pc = kNote;
        return emit(m, "A: a second grid");
      case kEndGrant:
        read_grant();
        m.pc = kNote;
        return emit(m, "A: grant? at the end");
      default:
        return;
    }
  }

  template <class Emit>
  void gpu(const State& n, Emit& emit) const {
    if (n.stream == 0) return;
    State m = n;
    const uint8_t id = n.id[0];
    if (n.copy[0] != n.evict || n.copy_sms[0] != n.evict_sms) {
      m.copy[0] = n.evict, m.copy_sms[0] = n.evict_sms;
      emit(m, "GPU: the proxy copies the evict word");
      m = n;
    }
    const bool over = !endless && n.next[id] >= tasks;
    const bool pred_undone = id > 0 && (endless || n.next[id - 1] < tasks);
    for (uint8_t sm = 0; sm < 2; ++sm) {
      const auto bit = static_cast<uint8_t>(1 << sm);
      m = n;
      if (n.on[sm] == kToCome) {
        m.on[sm] = kTest;
        emit(m, "GPU: a worker comes to its SM");
      } else if (n.on[sm] == kTest) {
        const uint8_t gen = n.grown & bit ? n.grown_gen : n.launch_gen[0];
        const bool evicted = n.copy[0] >= gen && (n.copy_sms[0] & bit);
        m.on[sm] = pred_undone || evicted || over ? kOut : kFetch;
        emit(m, "GPU: a worker tests evict");
      } else if (n.on[sm] == kFetch) {
        if (n.theirs & bit) m.bad = 1;
        if (!endless && !over) ++m.next[id];
        if (!endless && m.next[id] > tasks) m.bad = 2;
        m.on[sm] = kTest;
        emit(m, "GPU: runs a task on its SM");
      }
    }
    if (n.on[0] != kOut || n.on[1] != kOut) return;
    m = n;
    m.id[0] = n.id[1], m.launch_gen[0] = n.launch_gen[1], m.launch_set[0] = n.launch_set[1];
    m.copy[0] = n.copy[1], m.copy_sms[0] = n.copy_sms[1];
    m.id[1] = m.launch_gen[1] = m.launch_set[1] = m.copy[1] = m.copy_sms[1] = 0;
    --m.stream;
    ++m.ended;
    if (m.stream)
      begin(m);
    else
      m.on[0] = m.on[1] = m.grown = m.grown_gen = m.launch_gen[0] = m.launch_set[0] = m.copy[0] =
          m.copy_sms[0] = 0;
    emit(m, "GPU: all have left");
  }

  template <class Emit>
  void crashes(const State& n, Emit& emit) const {
    State m = n;
    if (n.worker_crashes && !n.dead) {
      m.worker_crashes = 0;
      m.dead = 1;
      emit(m, "A: dies");
      m = n;
    }
    if (n.dead == 1) {
      m.dead = 2;
      m.stream = m.on[0] = m.on[1] = m.grown = 0;
      emit(m, "driver: A's context is gone");
      m = n;
    }
    // Its exit is heard of after that, at any time; nothing is waited for any more.
    if (n.dead == 2 && n.spc != kDown) {
      m.dead = 3;
      m.theirs = static_cast<uint8_t>(n.theirs | n.granted | n.lost);
      m.granted = m.target = m.old_gen = m.lost = m.early = m.keeping = m.spread = m.moves = 0;
      m.spc = kMain;
      emit(m, "sluiced: A is gone");
      m = n;
    }
    if (n.sluiced_crashes && n.spc != kDown) {
      m.sluiced_crashes = 0;
      m.spc = kDown;
      m.target = m.lost = m.early = m.keeping = 0;
      emit(m, "sluiced: dies");
    }
  }

  bool evict_first(const State& n) const {
    return n.keeping && mutant != PartsMutant::kKeepGrantFirst;
  }
  template <class Emit>
  void sluiced(const State& n, Emit& emit) const {
    State m = n;
    const auto over = [&] {
      m.theirs = static_cast<uint8_t>(n.theirs | n.lost);
      m.spc = kMain;
      m.spread = static_cast<uint8_t>(n.keeping ? n.spread | n.granted : n.granted);
      m.old_gen = m.lost = m.target = m.early = m.keeping = 0;
    };
    if (n.keeping == 1 && (n.spc == kRead || n.spc == kWait) && n.ask >= n.old_gen &&
        mutant != PartsMutant::kRecallUnheard) {
      m.keeping = 2;
      m.evict = n.old_gen;
      m.evict_sms = 3;
      emit(m, "sluiced: evict word, all SMs after all");
      m = n;
    }
    const bool has_left = n.in_flight == 0 || n.left >= n.old_gen;
    switch (n.spc) {
      case kMain:
        if (n.moves == 0 || n.dead) return;
        if (n.theirs) {
          --m.moves;
          m.theirs = 0;
          emit(m, "somebody else has left its SM");
        }
        for (uint8_t to = 0; to < 4; ++to) {
          if (to == n.granted || (to & n.theirs)) continue;
          m = n;
          --m.moves;
          m.target = to;
          m.old_gen = n.gen;
          m.lost = static_cast<uint8_t>(n.granted & ~to);
          m.spc = mutant == PartsMutant::kInFlightReadFirst && n.granted ? kEarly
                  : to && mutant != PartsMutant::kSetAfterGrant          ? kStoreSet
                                                                         : kStoreGrant;
          emit(m, to == 0   ? "sluiced: is to close A"
                  : to == 3 ? "sluiced: A gets both SMs"
                            : "sluiced: A gets one SM");
          if (!keeps || !to || !n.granted) continue;
          m.keeping = 1;
          m.spread = static_cast<uint8_t>(n.spread | n.granted);
          emit(m, "sluiced: A gets other SMs, launches may stay");
        }
        return;
      case kEarly:
        m.early = has_left;
        m.spc = n.target ? kStoreSet : kStoreGrant;
        return emit(m, "sluiced: in_flight? (mutant)");
      case kStoreSet:
        m.set[(n.gen + 1) & 1] = n.target;
        m.spc = evict_first(n) ? kStoreEvict : kStoreGrant;
        return emit(m, "sluiced: set of the next generation");
      case kStoreGrant:
        if (n.target) {
          if (mutant != PartsMutant::kSameGeneration || n.granted == 0)
            ++m.gen;
          else
            m.set[n.gen & 1] = n.target;
          m.open = 1;
          m.recall = n.granted != 0;
          m.keep = n.keeping != 0;
        } else {
          m.open = m.recall = m.keep = 0;
        }
        m.spc = mutant == PartsMutant::kSetAfterGrant && n.target ? kLateSet
                : n.granted && !evict_first(n)                    ? kStoreEvict
                                                                  : kRingGate;
        m.granted = n.target;
        if (n.granted == 0) m.old_gen = 0;
        return emit(m, n.target ? "sluiced: grant" : "sluiced: closes the gate");
      case kLateSet:
        m.set[n.gen & 1] = n.target;
        m.spc = n.old_gen ? kStoreEvict : kRingGate;
        return emit(m, "sluiced: set, behind the grant (mutant)");
      case kStoreEvict:
        if (!n.keeping || (n.spread & ~n.target)) {
          m.evict = n.old_gen;
          m.evict_sms = n.keeping ? static_cast<uint8_t>(n.spread & ~n.target) : 3;
        }
        m.spc = evict_first(n) ? kStoreGrant : n.target ? kRingGate : kRead;
        return emit(m, "sluiced: evict word");
      case kRingGate:
        m.gate = 1;
        m.spc = n.old_gen ? kRead : kMain;
        if (!n.old_gen) m.target = m.lost = 0, m.spread = n.granted;
        return emit(m, "sluiced: rings the gate");
      case kRead:
        if (has_left || mutant == PartsMutant::kNoWait || n.early)
          over();
        else
          m.spc = kWait;
        return emit(m, "sluiced: in_flight? left?");
      case kWait:
        if (!n.ring) return;
        m.ring = 0;
        m.spc = kRead;
        return emit(m, "sluiced: A's ring");
      case kDown:
        // Back: what it finds is closed with a generation above both words, as one step; the order
        // of its stores is gate_model.h's matter.
        if (n.dead) {
          m.spc = kMain;
          return emit(m, "sluiced: is back");
        }
        m.gen = static_cast<uint8_t>(std::max(n.gen, n.evict) + 1);
        m.open = m.recall = m.keep = 0;
        m.evict = m.old_gen = m.gen;
        m.evict_sms = 3;
        m.gate = 1;
        m.lost = static_cast<uint8_t>(3 & ~n.theirs);
        m.granted = m.target = 0;
        m.spc = kRead;
        return emit(m, "sluiced: is back, closes and evicts everything");
      default:
        return;
    }
  }
};

}  // namespace sluice::model
