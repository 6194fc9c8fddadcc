// SPDX-License-Identifier: Apache-2.0
// The armed wake-up protocol of abi/channel.h, searched exhaustively: one ring, a producer that
// waits for room and a consumer that waits for data, under a memory model with store buffers.
//
// Memory: each party's stores go into a buffer of its own, which it reads first itself, and reach
// memory later, one at a time.
//   - kTso: in order (x86: write-back memory, also KVM and TCG guests on x86).
//   - kPso: in any order but per variable, except that a release store waits for all before it.
//   (What a
//     write-combined BAR2 does between the fences of mediator/ring.)
// A full fence waits until the buffer is empty. A bell (eventfd, doorbell register) is rung at once
// and is *not* a fence, which is the harder case.
//
// Mutants show that the search can fail and why each fence is there.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/model/explorer.h"

namespace sluice::model {
namespace {

enum class Memory { kTso, kPso };
enum class Mutant {
  kNone,
  kProducerWithoutFence,  // head = new; armed?
  kConsumerWithoutFence,  // armed = 1; head == tail still?
  kNoSecondLook,          // armed = 1; fence; wait
  kArmedReadFirst,        // armed? ; head = new; ring
  kSpaceWithoutFence,     // tail = new; space_armed?
  kFullWithoutFence,      // space_armed = 1; tail still?
  kHeadNotRelease,        // the record may be seen after the head
};

constexpr int kItems = 4, kCapacity = 2;
enum Var : uint8_t { kHead, kTail, kArmed, kSpaceArmed, kData0, kData1, kVars };
constexpr uint8_t kRelease = 0x80;

struct WakeupModel {
  Memory memory = Memory::kTso;
  Mutant mutant = Mutant::kNone;

  struct Buffer {
    uint8_t count;
    uint8_t var[4], value[4];
  };
  enum ProducerPc : uint8_t {
    kPLook,
    kPFullArm,
    kPFullFence,
    kPFullLook,
    kPWait,
    kPDisarm,
    kPWrite,
    kPReadArmedFirst,
    kPPublish,
    kPFence,
    kPReadArmed,
    kPRing,
    kPDone
  };
  enum ConsumerPc : uint8_t {
    kCLook,
    kCArm,
    kCFence,
    kCLookAgain,
    kCWait,
    kCDisarm,
    kCConsume,
    kCTail,
    kCTailFence,
    kCReadSpace,
    kCRing
  };
  struct State {
    uint8_t memory[kVars];
    uint8_t data_bell, space_bell;
    Buffer buffer[2];  // 0: producer, 1: consumer
    uint8_t p_pc, c_pc;
    uint8_t produced, consumed;  // indices as their owners know them
    uint8_t seen_armed;
    uint8_t garbage;
  };

  State initial() const { return State{}; }
  const char* violation(const State& s) const {
    return s.garbage ? "the consumer read a record that was not written" : nullptr;
  }
  bool goal(const State& s) const {
    return s.p_pc == kPDone && s.consumed == kItems && s.c_pc == kCWait;
  }

  static uint8_t load(const State& s, int who, uint8_t var) {
    const Buffer& b = s.buffer[who];
    for (int i = b.count - 1; i >= 0; --i)
      if ((b.var[i] & ~kRelease) == var) return b.value[i];
    return s.memory[var];
  }
  // False if the buffer is full: the store has to wait.
  static bool store(State& s, int who, uint8_t var, uint8_t value, bool release = false) {
    Buffer& b = s.buffer[who];
    if (b.count == 4) return false;
    b.var[b.count] = static_cast<uint8_t>(var | (release ? kRelease : 0));
    b.value[b.count] = value;
    ++b.count;
    return true;
  }
  static void take(State& s, int who, int i) {
    Buffer& b = s.buffer[who];
    s.memory[b.var[i] & ~kRelease] = b.value[i];
    for (int k = i; k + 1 < b.count; ++k) b.var[k] = b.var[k + 1], b.value[k] = b.value[k + 1];
    --b.count;
    b.var[b.count] = b.value[b.count] = 0;
  }
  static uint8_t record(uint8_t n) { return static_cast<uint8_t>(n + 1); }  // what item n holds

  template <class Emit>
  void successors(const State& s, Emit emit) const {
    for (int who = 0; who < 2; ++who) drain(s, who, emit);
    producer(s, emit);
    consumer(s, emit);
  }

  template <class Emit>
  void drain(const State& s, int who, Emit& emit) const {
    const Buffer& b = s.buffer[who];
    for (int i = 0; i < b.count; ++i) {
      if (i > 0 && memory == Memory::kTso) break;
      bool blocked = i > 0 && (b.var[i] & kRelease);
      for (int k = 0; k < i; ++k)
        if ((b.var[k] & ~kRelease) == (b.var[i] & ~kRelease)) blocked = true;
      if (blocked) continue;
      State n = s;
      take(n, who, i);
      emit(n, who ? "consumer's store reaches memory" : "producer's store reaches memory");
    }
  }

  template <class Emit>
  void producer(const State& s, Emit& emit) const {
    State n = s;
    const auto full = [&] {
      return static_cast<uint8_t>(s.produced - load(s, 0, kTail)) == kCapacity;
    };
    const bool fenced = s.buffer[0].count == 0;
    switch (s.p_pc) {
      case kPLook:
        n.p_pc = s.produced == kItems ? kPDone : full() ? kPFullArm : kPWrite;
        return emit(n, "producer: polls for room");
      case kPFullArm:
        if (!store(n, 0, kSpaceArmed, 1)) return;
        n.p_pc = mutant == Mutant::kFullWithoutFence ? kPFullLook : kPFullFence;
        return emit(n, "producer: space_armed = 1");
      case kPFullFence:
        if (!fenced) return;
        n.p_pc = kPFullLook;
        return emit(n, "producer: fence");
      case kPFullLook:
        n.p_pc = full() ? kPWait : kPDisarm;
        return emit(n, "producer: polls again");
      case kPWait:
        if (!s.space_bell) return;
        n.space_bell = 0;
        n.p_pc = kPDisarm;
        return emit(n, "producer: woken");
      case kPDisarm:
        if (!store(n, 0, kSpaceArmed, 0)) return;
        n.p_pc = kPLook;
        return emit(n, "producer: space_armed = 0");
      case kPWrite:
        if (!store(n, 0, static_cast<uint8_t>(kData0 + s.produced % kCapacity), record(s.produced)))
          return;
        n.p_pc = mutant == Mutant::kArmedReadFirst ? kPReadArmedFirst : kPPublish;
        return emit(n, "producer: writes the record");
      case kPReadArmedFirst:
        n.seen_armed = load(s, 0, kArmed);
        n.p_pc = kPPublish;
        return emit(n, "producer: armed?");
      case kPPublish:
        if (!store(n, 0, kHead, static_cast<uint8_t>(s.produced + 1),
                   mutant != Mutant::kHeadNotRelease))
          return;
        ++n.produced;
        n.p_pc = mutant == Mutant::kProducerWithoutFence ? kPReadArmed : kPFence;
        return emit(n, "producer: head = new");
      case kPFence:
        if (!fenced) return;
        n.p_pc = mutant == Mutant::kArmedReadFirst ? kPRing : kPReadArmed;
        return emit(n, "producer: fence");
      case kPReadArmed:
        n.seen_armed = load(s, 0, kArmed);
        n.p_pc = kPRing;
        return emit(n, "producer: armed?");
      case kPRing:
        if (s.seen_armed) n.data_bell = 1;
        n.seen_armed = 0;
        n.p_pc = kPLook;
        return emit(n, "producer: rings if armed");
      default:
        return;
    }
  }

  template <class Emit>
  void consumer(const State& s, Emit& emit) const {
    State n = s;
    const bool empty = load(s, 1, kHead) == s.consumed;
    const bool fenced = s.buffer[1].count == 0;
    switch (s.c_pc) {
      case kCLook:
        n.c_pc = empty ? kCArm : kCConsume;
        return emit(n, "consumer: polls");
      case kCArm:
        if (!store(n, 1, kArmed, 1)) return;
        n.c_pc = mutant == Mutant::kConsumerWithoutFence ? kCLookAgain : kCFence;
        return emit(n, "consumer: armed = 1");
      case kCFence:
        if (!fenced) return;
        n.c_pc = mutant == Mutant::kNoSecondLook ? kCWait : kCLookAgain;
        return emit(n, "consumer: fence");
      case kCLookAgain:
        n.c_pc = empty ? kCWait : kCDisarm;
        return emit(n, "consumer: polls again");
      case kCWait:
        if (!s.data_bell) return;
        n.data_bell = 0;
        n.c_pc = kCDisarm;
        return emit(n, "consumer: woken");
      case kCDisarm:
        if (!store(n, 1, kArmed, 0)) return;
        n.c_pc = kCLook;
        return emit(n, "consumer: armed = 0");
      case kCConsume:
        n.garbage =
            load(s, 1, static_cast<uint8_t>(kData0 + s.consumed % kCapacity)) != record(s.consumed);
        n.c_pc = kCTail;
        return emit(n, "consumer: reads the record");
      case kCTail:
        if (!store(n, 1, kTail, static_cast<uint8_t>(s.consumed + 1), true)) return;
        ++n.consumed;
        n.c_pc = mutant == Mutant::kSpaceWithoutFence ? kCReadSpace : kCTailFence;
        return emit(n, "consumer: tail = new");
      case kCTailFence:
        if (!fenced) return;
        n.c_pc = kCReadSpace;
        return emit(n, "consumer: fence");
      case kCReadSpace:
        n.c_pc = load(s, 1, kSpaceArmed) ? kCRing : kCLook;
        return emit(n, "consumer: space_armed?");
      case kCRing:
        n.space_bell = 1;
        n.c_pc = kCLook;
        return emit(n, "consumer: rings");
      default:
        return;
    }
  }
};

TEST(WakeupModel, NoLostWakeupUnderTso) {
  const Exploration e = explore(WakeupModel{});
  std::cout << e.report() << "\n";
  EXPECT_TRUE(e.ok()) << e.report();
  EXPECT_GT(e.states, 1000u);
}

TEST(WakeupModel, NoLostWakeupUnderPso) {
  const Exploration e = explore(WakeupModel{.memory = Memory::kPso});
  std::cout << e.report() << "\n";
  EXPECT_TRUE(e.ok()) << e.report();
  EXPECT_GT(e.states, 1000u);
}

TEST(WakeupModel, EachFenceIsNeeded) {
  for (Mutant m :
       {Mutant::kProducerWithoutFence, Mutant::kConsumerWithoutFence, Mutant::kNoSecondLook,
        Mutant::kArmedReadFirst, Mutant::kSpaceWithoutFence, Mutant::kFullWithoutFence}) {
    const Exploration e = explore(WakeupModel{.mutant = m});
    EXPECT_TRUE(e.complete);
    EXPECT_EQ(e.problem, "stuck: from here the work can never be completed")
        << "mutant " << static_cast<int>(m) << ": " << e.report();
  }
}

TEST(WakeupModel, HeadMustBeARelease) {
  EXPECT_TRUE(explore(WakeupModel{.mutant = Mutant::kHeadNotRelease}).ok())
      << "x86 keeps the order";
  const Exploration e =
      explore(WakeupModel{.memory = Memory::kPso, .mutant = Mutant::kHeadNotRelease});
  EXPECT_EQ(e.problem, "the consumer read a record that was not written");
}

}  // namespace
}  // namespace sluice::model
