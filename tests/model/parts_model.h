// The part of the gate protocol that changes a session's SMs (abi/stub.h, "to change the SMs"), as a model for
// explore(): one session A with its worker and its stream, one sluiced that moves it between sets of two SMs, closes
// and opens it, in any order, and somebody else who takes at once whatever SM A is said to have left. Every load and
// store of a shared word, every bell and every step of a kernel's leader is a step of its own.
//
// The rest of the protocol (demand, contended, heartbeats, crashes) is gate_model.h's. Launches are counted; with
// `endless` one runs until it is evicted, as a kernel without end would.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::model {

enum class PartsMutant : uint8_t {
  kNone,
  kNoWait,             // sluiced: SMs count as left once the evict word is stored
  kInFlightReadFirst,  // sluiced: looks whether A has left before it stores the new grant
  kSetAfterGrant,      // sluiced: the set is stored behind the grant word that names it
  kSameGeneration,     // sluiced: a change keeps the generation
  kGrantReadFirst,     // worker: looks at the grant before in_flight says so
  kSilentEnter,        // worker: enters under a recalled word and does not say that the old has left
  kOlderNotCounted,    // worker: says so although something older is in flight
};

struct PartsModel {
  uint8_t launches = 2, tasks = 2;
  uint8_t moves = 3;
  bool endless = false;
  PartsMutant mutant = PartsMutant::kNone;

  enum WorkerPc : uint8_t { kIdle, kCount, kGrant, kSet, kBackOut, kNote, kEndGrant };
  enum GpuPc : uint8_t { kTest, kFetch };
  enum SluicedPc : uint8_t { kMain, kEarly, kStoreSet, kStoreGrant, kLateSet, kStoreEvict, kRingGate, kRead, kWait };

  struct State {
    // pages and bells
    uint8_t gen, open, recall, set[2], evict, in_flight, left, ring, gate;
    // worker
    uint8_t pc, g_gen, g_open, g_recall, g_set, note, held;
    uint8_t to_do, head, issued, physical, ended, reissue;
    uint8_t flight[2];  // generations of what is in the stream and of what has ended there, the oldest first
    // GPU
    uint8_t stream, gpu_pc, copy, id[2], launch_gen[2], launch_set[2], next[2];
    // sluiced
    uint8_t spc, moves, granted, target, old_gen, lost, early, theirs;
    uint8_t bad;
  };

  State initial() const {
    State n{};
    n.to_do = launches;
    n.moves = moves;
    n.spc = kMain;
    n.held = 1;
    return n;
  }
  const char* violation(const State& n) const {
    if (n.bad == 1) return "a task started on an SM that is somebody else's";
    if (n.bad == 2) return "a task ran twice";
    return nullptr;
  }
  bool goal(const State& n) const {
    if (n.spc != kMain || n.moves) return false;
    if (endless) return n.granted == 0 || n.stream > 0;  // it runs, if it may
    return n.granted == 0 || (n.to_do == 0 && n.physical == 0);
  }

  template <class Emit>
  void successors(const State& n, Emit emit) const {
    worker(n, emit);
    gpu(n, emit);
    sluiced(n, emit);
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
    const bool all_left = n.g_open ? n.g_recall && (!older(n, n.g_gen) || mutant == PartsMutant::kOlderNotCounted)
                                   : n.physical == 0;
    if (all_left) {
      say_left(n, n.g_open ? static_cast<uint8_t>(n.g_gen - 1) : n.g_gen);
    } else {
      n.pc = kIdle;
      n.g_gen = n.g_open = n.g_recall = n.g_set = 0;
    }
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
          --m.physical;
          m.flight[0] = n.flight[1];
          m.flight[1] = 0;
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
      case kEndGrant:
        read_grant();
        m.pc = kNote;
        return emit(m, "A: grant? at the end");
      default: return;
    }
  }

  template <class Emit>
  void gpu(const State& n, Emit& emit) const {
    if (n.stream == 0) return;
    State m = n;
    const uint8_t id = n.id[0];
    if (n.copy != n.evict) {
      m.copy = n.evict;
      emit(m, "GPU: the proxy copies the evict word");
      m = n;
    }
    if (n.gpu_pc == kTest) {
      const bool pred_undone = id > 0 && (endless || n.next[id - 1] < tasks);
      if (pred_undone || n.copy >= n.launch_gen[0] || (!endless && n.next[id] >= tasks)) {
        m.id[0] = n.id[1], m.launch_gen[0] = n.launch_gen[1], m.launch_set[0] = n.launch_set[1];
        m.id[1] = m.launch_gen[1] = m.launch_set[1] = 0;
        --m.stream;
        ++m.ended;
        m.copy = 0;
      } else {
        m.gpu_pc = kFetch;
      }
      return emit(m, "GPU: tests evict");
    }
    if (n.launch_set[0] & n.theirs) m.bad = 1;
    if (!endless && ++m.next[id] > tasks) m.bad = 2;
    m.gpu_pc = kTest;
    emit(m, "GPU: runs a task on one of its SMs");
  }

  template <class Emit>
  void sluiced(const State& n, Emit& emit) const {
    State m = n;
    const auto over = [&] {
      m.theirs = static_cast<uint8_t>(n.theirs | n.lost);
      m.spc = kMain;
      m.old_gen = m.lost = m.target = m.early = 0;
    };
    const bool has_left = n.in_flight == 0 || n.left >= n.old_gen;
    switch (n.spc) {
      case kMain:
        if (n.moves == 0) return;
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
                  : to && mutant != PartsMutant::kSetAfterGrant         ? kStoreSet
                                                                         : kStoreGrant;
          emit(m, to == 0 ? "sluiced: is to close A" : to == 3 ? "sluiced: A is to have both SMs"
                                                               : "sluiced: A is to have one SM");
        }
        return;
      case kEarly:
        m.early = has_left;
        m.spc = n.target ? kStoreSet : kStoreGrant;
        return emit(m, "sluiced: in_flight? (mutant)");
      case kStoreSet:
        m.set[(n.gen + 1) & 1] = n.target;
        m.spc = kStoreGrant;
        return emit(m, "sluiced: set of the next generation");
      case kStoreGrant:
        if (n.target) {
          if (mutant != PartsMutant::kSameGeneration || n.granted == 0)
            ++m.gen;
          else
            m.set[n.gen & 1] = n.target;
          m.open = 1;
          m.recall = n.granted != 0;
        } else {
          m.open = m.recall = 0;
        }
        m.spc = mutant == PartsMutant::kSetAfterGrant && n.target ? kLateSet : n.granted ? kStoreEvict : kRingGate;
        m.granted = n.target;
        if (n.granted == 0) m.old_gen = 0;
        return emit(m, n.target ? "sluiced: grant" : "sluiced: closes the gate");
      case kLateSet:
        m.set[n.gen & 1] = n.target;
        m.spc = n.old_gen ? kStoreEvict : kRingGate;
        return emit(m, "sluiced: set, behind the grant (mutant)");
      case kStoreEvict:
        m.evict = n.old_gen;
        m.spc = n.target ? kRingGate : kRead;
        return emit(m, "sluiced: evict word");
      case kRingGate:
        m.gate = 1;
        m.spc = n.old_gen ? kRead : kMain;
        if (!n.old_gen) m.target = m.lost = 0;
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
      default: return;
    }
  }
};

}  // namespace sluice::model
