// SPDX-License-Identifier: Apache-2.0
// Which loops wait for other blocks (rule in-order), in shapes that are easily taken for something
// else.
#include <gtest/gtest.h>

#include <string>

#include "kernels/passes/rewrite.h"

namespace sluice::passes {
namespace {

// %rd0: the parameter p, %rd1: q, %r0: n; %r1: the block, %r2: the thread.
KernelReport report_of(const std::string& body, const std::string& before = "") {
  auto rewritten = rewrite_module(
      ".version 8.0\n.target sm_90\n.address_size 64\n" + before +
      ".entry k(.param .u64 p, .param .u64 q, .param .u32 n) {\n"
      ".reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .shared .align 16 .b8 s[16];\n"
      "ld.param.u64 %rd0, [p]; ld.param.u64 %rd1, [q]; ld.param.u32 %r0, [n];\n"
      "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;\n" +
      body + "\nret; }");
  EXPECT_TRUE(rewritten) << rewritten.error().message;
  if (!rewritten || rewritten->kernels.size() != 1) return {};
  return rewritten->kernels[0];
}

std::string tier(const std::string& body, const std::string& before = "") {
  const KernelReport r = report_of(body, before);
  return std::string(r.tier == Tier::kOpaque ? r.code : tier_name(r.tier));
}

// A read of the flag of the block that %r3 numbers.
const std::string kPoll =
    "mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd0, %rd2;\n"
    "L: ld.volatile.global.u32 %r4, [%rd3]; setp.eq.u32 %p0, %r4, 0; @%p0 bra L;";

TEST(PtxWaits, NeighboursThatAreNotLower) {
  EXPECT_EQ(tier("add.s32 %r3, %r1, -1;" + kPoll), "in-order");
  EXPECT_EQ(tier("not.b32 %r3, %r2; add.s32 %r3, %r1, %r3;" + kPoll), "in-order");
  // The way round a ring, by the parameter: of the index, or of the address.
  EXPECT_EQ(
      tier("setp.eq.u32 %p1, %r1, 0; selp.b32 %r5, %r0, %r1, %p1; add.s32 %r3, %r5, -1;" + kPoll),
      "waits");
  EXPECT_EQ(
      tier("setp.eq.u32 %p1, %r1, 0; selp.b32 %r5, 0, %r1, %p1; add.s32 %r3, %r5, -1;" + kPoll),
      "in-order");
  EXPECT_EQ(tier("add.s32 %r5, %r1, -1; mov.u32 %r3, %r0; setp.eq.u32 %p1, %r1, 0; @%p1 bra M;\n"
                 "mov.u32 %r3, %r5;\nM: " +
                 kPoll),
            "waits");
  // Numbers that begin elsewhere: one above is above nevertheless.
  const std::string from_first =
      "sub.s32 %r3, %r1, %r0; mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd0, %rd2;";
  const std::string look = "setp.eq.u32 %p0, %r4, 0; @%p0 bra L;";
  EXPECT_EQ(tier(from_first + "L: ld.volatile.global.u32 %r4, [%rd3+4];" + look), "waits");
  EXPECT_EQ(tier(from_first + "L: ld.volatile.global.u32 %r4, [%rd3+-4];" + look), "in-order");
  // A distance from a table may be negative; one that is a parameter is taken for a row's length.
  EXPECT_EQ(tier("ld.global.u32 %r5, [%rd1]; sub.s32 %r3, %r1, %r5;" + kPoll), "waits");
  EXPECT_EQ(tier("sub.s32 %r3, %r1, %r0;" + kPoll), "in-order");
  // Two threads, one for each neighbour.
  EXPECT_EQ(tier("shl.b32 %r5, %r2, 1; add.s32 %r6, %r1, %r5; add.s32 %r3, %r6, -1;" + kPoll),
            "waits");
  // A row of flags for each block, one for each thread.
  EXPECT_EQ(tier("shl.b32 %r5, %r1, 7; add.s32 %r6, %r5, %r2; add.s32 %r3, %r6, -128;" + kPoll),
            "in-order");
  // Numbers that go down the grid's columns.
  const std::string two = "mov.u32 %r7, %ctaid.y; shl.b32 %r5, %r1, 2; add.s32 %r6, %r5, %r7;";
  EXPECT_EQ(tier(two + "add.s32 %r3, %r6, -1;" + kPoll), "waits");
  // By the grid's height, which may be 1: then nothing is lower than by x.
  const auto down = report_of(
      "mov.u32 %r7, %ctaid.y; mov.u32 %r8, %nctaid.y; mad.lo.s32 %r6, %r1, %r8, %r7;"
      "add.s32 %r3, %r6, -1;" +
      kPoll);
  EXPECT_EQ(down.tier, Tier::kInOrder);
  EXPECT_TRUE(down.one_row);
  const auto along = report_of(
      "mov.u32 %r7, %ctaid.y; mov.u32 %r8, %nctaid.x; mad.lo.s32 %r6, %r7, %r8, %r1;"
      "add.s32 %r3, %r6, -1;" +
      kPoll);
  EXPECT_EQ(along.tier, Tier::kInOrder);
  EXPECT_FALSE(along.one_row);
}

// A number that the loop changes by way of another register: down the blocks, or up.
TEST(PtxWaits, NumbersThatTheLoopChanges) {
  const auto scan = [](const std::string& step) {
    return tier(
        "add.s32 %r3, %r1, -1;\n"
        "R: mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd0, %rd2;\n"
        "L: ld.volatile.global.u32 %r4, [%rd3]; setp.eq.u32 %p0, %r4, 0; @%p0 bra L;\n"
        "mov.u32 %r5, %r3; add.s32 %r6, %r5, " +
        step +
        "; mov.u32 %r3, %r6;"
        "setp.lt.u32 %p1, %r3, %r0; @%p1 bra R;");
  };
  EXPECT_EQ(scan("-1"), "in-order");
  EXPECT_EQ(scan("1"), "waits");
}

TEST(PtxWaits, TurnsThatAreNotPassedUp) {
  const auto turn = [&](const std::string& own, const std::string& pass) {
    return tier(own +
                "L: ld.volatile.global.u32 %r4, [%rd0]; setp.ne.u32 %p0, %r4, %r3; @%p0 bra L;" +
                pass);
  };
  const std::string same = "mov.u32 %r3, %r1;";
  EXPECT_EQ(turn(same, "add.s32 %r5, %r3, 1; st.volatile.global.u32 [%rd0], %r5;"), "in-order");
  EXPECT_EQ(turn(same, "add.s32 %r5, %r4, 1; st.volatile.global.u32 [%rd0], %r5;"), "in-order");
  EXPECT_EQ(turn(same,
                 "add.s32 %r5, %r3, 1; setp.eq.u32 %p1, %r5, %r0; selp.b32 %r6, 0, %r5, %p1;"
                 "st.volatile.global.u32 [%rd0], %r6;"),
            "in-order");
  EXPECT_EQ(turn(same, "add.s32 %r5, %r3, -1; st.volatile.global.u32 [%rd0], %r5;"), "waits");
  EXPECT_EQ(turn(same, "red.global.add.u32 [%rd0], -1;"), "waits");
  EXPECT_EQ(turn(same, "st.volatile.global.u32 [%rd0], %r0;"), "waits");
  EXPECT_EQ(turn("mov.u32 %r7, %ctaid.y; shl.b32 %r5, %r1, 2; add.s32 %r3, %r5, %r7;",
                 "add.s32 %r5, %r3, 1; st.volatile.global.u32 [%rd0], %r5;"),
            "waits");
}

TEST(PtxWaits, TokensThatAreHandedOn) {
  const std::string box = "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd0, %rd2;";
  const std::string take =
      box + "L: atom.global.cas.b32 %r4, [%rd3], 1, 0; setp.ne.u32 %p0, %r4, 1; @%p0 bra L;";
  EXPECT_EQ(tier(take + "atom.global.exch.b32 %r5, [%rd3], 1;"), "plain");
  EXPECT_EQ(tier(take + "shl.b32 %r5, %r1, 2; cvt.u64.u32 %rd4, %r5; add.s64 %rd5, %rd4, %rd0;"
                        "st.global.u32 [%rd5], 1;"),
            "plain");
  EXPECT_EQ(tier(take + "atom.global.exch.b32 %r5, [%rd3+4], 1;"), "waits");
  EXPECT_EQ(tier(take + "st.global.u32 [%rd3+-4], 1;"), "waits");
  EXPECT_EQ(tier(take + "xor.b32 %r5, %r1, 1; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %rd0, %rd4;"
                        "st.global.u32 [%rd5], 1;"),
            "waits");
  // A bit that the shift has left free: the same place.
  EXPECT_EQ(tier("shl.b32 %r5, %r0, 1; or.b32 %r6, %r5, 1; mul.wide.s32 %rd2, %r6, 4; add.s64 "
                 "%rd3, %rd0, %rd2;"
                 "L: atom.global.exch.b32 %r4, [%rd3], 1; setp.ne.u32 %p0, %r4, 0; @%p0 bra L;"
                 "mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd0, %rd4; st.global.u32 [%rd5+4], 0;"),
            "plain");
  // Whatever it leaves there, it waits until the box is empty.
  EXPECT_EQ(tier("L: mov.u32 %r3, %clock; atom.global.cas.b32 %r4, [%rd0], 0, %r3; setp.ne.u32 "
                 "%p0, %r4, 0;"
                 "@%p0 bra L;"),
            "waits");
  // Two that hand a token to and fro: what takes it does not put it back.
  EXPECT_EQ(
      tier("mov.u32 %r6, 0; R: setp.eq.u32 %p1, %r1, 0; @%p1 bra B;\n"
           "A: atom.global.cas.b32 %r4, [%rd0], 1, 0; setp.ne.u32 %p0, %r4, 1; @%p0 bra A; bra N;\n"
           "B: atom.global.cas.b32 %r5, [%rd0], 0, 1; setp.ne.u32 %p0, %r5, 0; @%p0 bra B;\n"
           "N: add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, %r0; @%p2 bra R;"),
      "waits");
}

// What is on top of a stack may be asked, as long as only a swap that fails reads it again.
// A loop whose end is elsewhere than what its turns wait for.
TEST(PtxWaits, StatesThatWait) {
  // state %r5, turns %r6: `end` says when it stays in its first state.
  const auto machine = [](const std::string& poll, const std::string& turn) {
    return tier(
        "mov.u32 %r5, 0; mov.u32 %r6, 0;\n"
        "L: setp.ne.u32 %p0, %r5, 0; @%p0 bra W;\n" +
        poll +
        "bra.uni N;\n"
        "W: add.s32 %r6, %r6, 1; setp.eq.u32 %p2, %r6, 10; @%p2 bra E;\n"
        "N: " +
        turn + "bra.uni L;\nE: st.global.u32 [%rd1], %r6;");
  };
  const std::string flag =
      "ld.volatile.global.u32 %r4, [%rd0]; setp.eq.u32 %p1, %r4, 0;\n"
      "@%p1 bra N; mov.u32 %r5, 1;\n";
  EXPECT_EQ(machine(flag, ""), "waits");
  EXPECT_EQ(machine(flag, "add.s32 %r7, %r7, 1;"), "waits");
  // What it asks for is the kernel's own.
  EXPECT_EQ(machine("setp.eq.u32 %p1, %r0, 0; @%p1 bra N; mov.u32 %r5, 1;\n", ""), "plain");
}

// A counter that every poll advances, with others' flag in it.
TEST(PtxWaits, CountersWithFlags) {
  const auto until = [](const std::string& part, const std::string& end,
                        const std::string& declared = "") {
    return tier(declared + "L: atom.global.add.u32 %r4, [%rd0], 65536;\n" + part + "setp." + end +
                " %p0, %r5, %r0; @%p0 bra L;");
  };
  EXPECT_EQ(until("mov.u32 %r5, %r4;", "lt.u32"), "plain");
  EXPECT_EQ(until("shr.u32 %r5, %r4, 16;", "lt.u32"), "plain");
  EXPECT_EQ(until("and.b32 %r5, %r4, 65535;", "ne.u32"), "waits");
  EXPECT_EQ(until("cvt.u16.u32 %h, %r4; cvt.u32.u16 %r5, %h;", "ne.u32", ".reg .b16 %h;"), "waits");
  EXPECT_EQ(until("rem.u32 %r6, %r4, 3; add.u32 %r5, %r6, 1;", "ne.u32"), "waits");
  // Asked for something else than the end.
  EXPECT_EQ(tier("L: atom.global.add.u32 %r4, [%rd0], 1; setp.ge.u32 %p0, %r4, %r0; @%p0 bra E;\n"
                 "and.b32 %r5, %r4, 1; setp.eq.u32 %p1, %r5, 0; @%p1 bra L;\n"
                 "st.global.u32 [%rd1], %r4; bra.uni L;\nE:"),
            "plain");
}

// Who takes a lock and ends without returning it leaves that to a block that comes later.
TEST(PtxWaits, LocksThatAreNotAlwaysReturned) {
  const std::string take =
      "L: atom.global.cas.b32 %r4, [%rd0], 0, 1; setp.ne.u32 %p0, %r4, 0; @%p0 bra L;\n";
  const std::string give = "atom.global.exch.b32 %r5, [%rd0], 0;\n";
  EXPECT_EQ(tier(take + give), "plain");
  const auto only_if = [&](const std::string& condition) {
    return tier(take + condition + "@%p1 bra E;\n" + give + "E:");
  };
  EXPECT_EQ(only_if("ld.global.u32 %r6, [%rd1]; add.s32 %r7, %r6, 1; setp.gt.u32 %p1, %r7, %r0;"),
            "waits");
  EXPECT_EQ(only_if("and.b32 %r6, %r1, 1; setp.eq.u32 %p1, %r6, 0;"), "waits");
  // The same was asked before it was taken.
  EXPECT_EQ(tier("ld.global.u32 %r6, [%rd1]; setp.gt.u32 %p1, %r6, %r0; @%p1 bra E;\n" + take +
                 "@%p1 bra E;\n" + give + "E:"),
            "plain");
  // With a guard it is tried, at least.
  EXPECT_EQ(tier(take + "setp.eq.u32 %p1, %r2, 0;\n@%p1 " + give), "plain");
  // By one thread of each block: taken and returned by the same one.
  EXPECT_EQ(tier("setp.ne.u32 %p1, %r2, 0; @%p1 bra M;\n" + take + "M: bar.sync 0; @%p1 bra E;\n" +
                 give + "E:"),
            "plain");
  // Either way it is returned, in a loop over data as well.
  EXPECT_EQ(tier(take +
                 "R: ld.global.u32 %r6, [%rd1]; add.s64 %rd1, %rd1, 4;\n"
                 "setp.eq.u32 %p1, %r6, 0; @%p1 bra R;\n"
                 "setp.gt.u32 %p2, %r6, 9; @%p2 bra M;\n" +
                 give + "bra E;\nM: st.global.u32 [%rd0], 0;\nE:"),
            "plain");
  // Tried until it is done: ends only behind what it has done.
  EXPECT_EQ(
      tier("mov.u32 %r6, 0;\n"
           "L: atom.global.cas.b32 %r4, [%rd0], 0, 1; setp.ne.u32 %p0, %r4, 0; @%p0 bra M;\n" +
           give + "mov.u32 %r6, 1;\nM: setp.eq.u32 %p1, %r6, 0; @%p1 bra L;"),
      "plain");
}

TEST(PtxWaits, RetriesThatMayGiveUp) {
  const std::string swap = "add.u32 %r5, %r4, 1; atom.global.cas.b32 %r6, [%rd0], %r4, %r5;";
  const std::string look = "L: ld.volatile.global.u32 %r4, [%rd0]; setp.eq.u32 %p0, %r4, 0;";
  EXPECT_EQ(tier(look + "@%p0 bra E;" + swap + "setp.ne.u32 %p1, %r6, %r4; @%p1 bra L; E:"),
            "plain");
  EXPECT_EQ(tier(look + "@%p0 bra E;" + swap + "setp.eq.u32 %p1, %r6, %r4; @!%p1 bra L; E:"),
            "plain");
  EXPECT_EQ(tier(look + "@%p0 bra L;" + swap + "setp.ne.u32 %p1, %r6, %r4; @%p1 bra L; E:"),
            "waits");
  // Again where it has passed: until it is empty.
  EXPECT_EQ(tier(look + "@%p0 bra E;" + swap + "setp.eq.u32 %p1, %r6, %r4; @%p1 bra L; E:"),
            "waits");
}

TEST(PtxWaits, CountersThatStandStill) {
  const std::string count =
      "L: atom.global.add.u32 %r4, [%rd0], 1; setp.ge.u32 %p0, %r4, %r0; @%p0 bra E;";
  EXPECT_EQ(tier(count + "st.global.u32 [%rd1], %r4; bra L; E:"), "plain");
  EXPECT_EQ(tier(count + "atom.global.add.u32 %r5, [%rd0], 1; bra L; E:"), "plain");
  EXPECT_EQ(tier(count + "red.global.add.u32 [%rd0], -1; bra L; E:"), "waits");
  EXPECT_EQ(tier(count + "st.global.u32 [%rd0], 0; bra L; E:"), "waits");
  // The step is in a register: the block's size is above 0, a parameter or a difference may not be.
  const auto by = [&](const std::string& step) {
    return tier("mov.u32 %r5, %ntid.x; mov.u32 %r7, %ntid.y;" + step +
                "L: atom.global.add.u32 %r4, [%rd0], %r6; setp.ge.u32 %p0, %r4, %r0; @%p0 bra E;"
                "st.global.u32 [%rd1], %r4; bra L; E:");
  };
  EXPECT_EQ(by("mov.u32 %r6, %r5;"), "plain");
  EXPECT_EQ(by("shl.b32 %r6, %r5, 2;"), "plain");
  EXPECT_EQ(by("add.u32 %r6, %r5, %r7;"), "plain");
  EXPECT_EQ(by("mov.u32 %r6, %r0;"), "waits");
  EXPECT_EQ(by("sub.u32 %r6, %r5, %r7;"), "waits");
  EXPECT_EQ(by("add.u32 %r6, %r5, -32;"), "waits");
  EXPECT_EQ(by("shl.b32 %r6, %r5, 31;"), "waits");
  EXPECT_EQ(by("mov.u32 %r6, %r2;"), "waits");
}

// A loop that polls at the very place where the loop around it begins.
TEST(PtxWaits, LoopsThatBeginAtOnePlace) {
  const std::string rounds = "add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r0; @%p1 bra L;";
  EXPECT_EQ(tier("mov.u32 %r6, 0; L: ld.volatile.global.u32 %r4, [%rd0]; setp.eq.u32 %p0, %r4, 0; "
                 "@%p0 bra L;" +
                 rounds),
            "waits");
  EXPECT_EQ(tier("mov.u32 %r6, 0; L: ld.volatile.shared.u32 %r4, [s]; setp.eq.u32 %p0, %r4, 0; "
                 "@%p0 bra L;" +
                 rounds),
            "plain");
}

// What is looked at is bounded, however many swaps stand in however many loops around one another:
// 172 KiB of this kept the rewriter for 40 s. With long loops the bound is soon reached.
TEST(PtxWaits, SwapsInDeeplyNestedLoops) {
  constexpr int kLoops = 500, kWork = 20'000;
  std::string body;
  for (int i = 0; i < kLoops; ++i)
    body += "S" + std::to_string(i) + ": atom.global.cas.b32 %r4, [%rd0+" + std::to_string(4 * i) +
            "], 0, 1;\n";
  for (int i = 0; i < kWork; ++i) body += "add.u32 %r5, %r5, 1;\n";
  for (int i = kLoops; i-- > 0;)
    body +=
        "setp.ne.u32 %p1, %r4, " + std::to_string(i) + "; @%p1 bra S" + std::to_string(i) + ";\n";
  const KernelReport r = report_of(body);
  EXPECT_EQ(r.tier, Tier::kOpaque);
  EXPECT_NE(r.reason.find("too many reads and swaps"), r.reason.npos) << r.reason;
}

// Each function calls the one before it in the text: that the last one needs its block's index
// was found in as many rounds as there are functions.
TEST(PtxWaits, AChainOfCallsThatEndsInTheBlocksIndex) {
  constexpr int kFunctions = 1000;
  const auto function = [](int i, const std::string& body) {
    return ".func f" + std::to_string(i) + "() { .reg .b32 %r<4>; " + body + " ret; }\n";
  };
  std::string before = function(0, "mov.u32 %r1, %ctaid.x; bar.sync 0;");
  for (int i = 1; i < kFunctions; ++i)
    before += function(i, "call f" + std::to_string(i - 1) + ";");
  const KernelReport r = report_of("call f" + std::to_string(kFunctions - 1) + ";", before);
  EXPECT_TRUE(r.evictable) << r.reason;
}

// How long to sleep, in a variable: data. Not where somebody may write it.
TEST(PtxWaits, ConstantsInVariables) {
  const std::string loop =
      "L: ld.volatile.shared.u32 %r4, [s]; ld.global.u32 %r5, [t]; nanosleep.u32 %r5;"
      "setp.ne.u32 %p0, %r4, 0; @%p0 bra E; setp.lt.u32 %p1, %r5, 9; @%p1 bra L; mov.u32 %r6, 1; "
      "bra L; E:";
  EXPECT_EQ(tier(loop, ".global .u32 t = 20;\n"), "plain");
  EXPECT_EQ(tier(loop, ".visible .global .u32 t = 20;\n"), "waits");
  EXPECT_EQ(tier(loop + "st.global.u32 [t], 1;", ".global .u32 t = 20;\n"), "waits");
  EXPECT_EQ(tier(loop, ".global .u32 t = 20;\n.global .u64 u = t;\n"), "waits");
}

// Behind a jump there is often something that nothing leads to; it makes no other way into the
// loop.
TEST(PtxWaits, WhatNothingLeadsToIsNoWayIn) {
  EXPECT_EQ(tier("mov.u32 %r6, 0; R: add.u32 %r6, %r6, 1;\n"
                 "L: atom.global.cas.b32 %r4, [%rd0], 1, 0; bra A; st.global.u32 [%rd1], 2;\n"
                 "A: setp.ne.u32 %p0, %r4, 1; @%p0 bra L; setp.lt.u32 %p1, %r6, %r0; @%p1 bra R;"),
            "waits");
}

// The first lane reads, plainly, and the others keep what they had until it passes its value on.
TEST(PtxWaits, ValuesThatAreOnlyHandedRound) {
  const auto loop = [](const std::string& others) {
    return tier(
        "mov.u32 %r9, %tid.x; setp.ne.s32 %p1, %r9, 0; mov.u32 %r3, 0;\n"
        "L: mov.u32 %r4, %r3; @%p1 bra A; ld.global.cg.u32 %r4, [%rd0];\n"
        "A: shfl.sync.idx.b32 %r5|%p0, %r4, 0, 31, -1; setp.eq.s32 %p0, %r5, 0;\n" +
        others + "@%p0 bra L;");
  };
  EXPECT_EQ(loop("mov.u32 %r3, %r5; "), "waits");
  EXPECT_EQ(loop("add.u32 %r3, %r5, 1; "), "lane-masks");  // counts
  EXPECT_EQ(loop("mov.u32 %r3, %clock; "), "lane-masks");
}

// Without optimisation every atomic is a function of its own.
TEST(PtxWaits, SwapsInFunctions) {
  const std::string swap =
      ".func (.param .b32 v) swap(.param .b64 a, .param .b32 b, .param .b32 c) { .reg .b32 %r<4>; "
      ".reg .b64 %rd;\n"
      "ld.param.u64 %rd, [a]; ld.param.u32 %r1, [b]; ld.param.u32 %r2, [c]; atom.cas.b32 %r3, "
      "[%rd], %r1, %r2;\n"
      "st.param.b32 [v], %r3; ret; }\n";
  const auto call = [](const std::string& address, const std::string& compare,
                       const std::string& value, const std::string& result = "%r4") {
    return "{ .param .b64 a; .param .b32 b; .param .b32 c; .param .b32 v; st.param.b64 [a], " +
           address + "; st.param.b32 [b], " + compare + "; st.param.b32 [c], " + value +
           "; call (v), swap, (a, b, c); ld.param.b32 " + result + ", [v]; } ";
  };
  const std::string take = "L: " + call("%rd0", "0", "1") + "setp.ne.u32 %p0, %r4, 0; @%p0 bra L;";
  EXPECT_EQ(tier(take, swap), "waits");
  EXPECT_EQ(tier(take + call("%rd1", "1", "0", "%r5"), swap), "waits");
  EXPECT_EQ(tier(take + call("%rd0", "1", "0", "%r5"), swap), "plain");
  EXPECT_EQ(
      tier("L: " + call("%rd0", "%r1", "%r1") + "setp.ne.u32 %p0, %r4, %r1; @%p0 bra L;", swap),
      "waits");
  // nvcc passes 16 bits in 32.
  const std::string of_halves =
      ".func (.param .b32 v) swap(.param .b64 a, .param .b32 b, .param .b32 c) { .reg .b32 %r; "
      ".reg .b16 %h<4>; .reg .b64 %rd;\n"
      "ld.param.u64 %rd, [a]; ld.param.u16 %h1, [b]; ld.param.u16 %h2, [c]; atom.cas.b16 %h3, "
      "[%rd], %h1, %h2;\n"
      "cvt.u32.u16 %r, %h3; st.param.b32 [v], %r; ret; }\n";
  EXPECT_EQ(
      tier("L: " + call("%rd0", "1", "1") + "setp.ne.u32 %p0, %r4, 1; @%p0 bra L;", of_halves),
      "waits");
  EXPECT_EQ(tier(take + call("%rd0", "1", "0", "%r5"), of_halves), "plain");
  // Nobody asks what came of it.
  EXPECT_EQ(tier("L: " + call("%rd0", "0", "1") +
                     "add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, %r0; @%p0 bra L;",
                 swap),
            "plain");
}

// To a list's next element, to a tree's root: each turn reads somewhere else, however it reads.
TEST(PtxWaits, PlacesThatAreFollowed) {
  const std::string to = "mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd0, %rd2;\n";
  const std::string walk = "mov.u32 %r3, %r1; L: " + to + "ld.volatile.global.u32 %r4, [%rd3];\n";
  EXPECT_EQ(tier(walk + "mov.u32 %r3, %r4; setp.ne.s32 %p0, %r4, -1; @%p0 bra L;"), "plain");
  EXPECT_EQ(tier(walk + "setp.eq.u32 %p0, %r4, %r3; mov.u32 %r3, %r4; @!%p0 bra L;"), "plain");
  // Stays there, on all ways or on one; or where the larger of both is.
  EXPECT_EQ(tier(walk + "setp.eq.u32 %p0, %r4, %r3; @%p0 bra L;"), "waits");
  EXPECT_EQ(tier(walk + "setp.lt.s32 %p0, %r4, 0; @%p0 bra L;\n"
                        "mov.u32 %r3, %r4; setp.ne.s32 %p1, %r4, 7; @%p1 bra L;"),
            "waits");
  EXPECT_EQ(tier(walk + "max.s32 %r3, %r3, %r4; setp.ne.s32 %p0, %r4, 7; @%p0 bra L;"), "waits");
  EXPECT_EQ(tier(walk + "@%p1 mov.u32 %r3, %r4; setp.ne.s32 %p0, %r4, 7; @%p0 bra L;"), "waits");
  // A flag beside what is followed, which may be a ring.
  EXPECT_EQ(tier(walk + "add.s64 %rd4, %rd1, %rd2; ld.volatile.global.u32 %r5, [%rd4];\n"
                        "mov.u32 %r3, %r4; setp.eq.u32 %p0, %r5, 0; @%p0 bra L;"),
            "waits");
  // The same name in another scope, as calls that are written in place have it: what is read there
  // leads back to the same place.
  const auto through = [](const std::string& kept) {
    return tier(
        "mov.u64 %rd3, %rd0; L: { .reg .b64 %a; mov.u64 %a, %rd3;\n"
        "ld.acquire.gpu.global.u64 %rd2, [%a];\n" +
        kept +
        " ld.global.u64 %rd3, [%a]; st.global.u32 [%rd1+8], %r0; }\nsetp.eq.u64 %p0, %rd2, 0; @%p0 "
        "bra L;");
  };
  EXPECT_EQ(through(""), "plain");
  EXPECT_EQ(through("} { .reg .b64 %a; mov.u64 %a, %rd1;"), "waits");
}

// A set's root is hung under another one; whoever fails has been overtaken.
TEST(PtxWaits, RootsThatAreHungAnew) {
  const auto unite = [](const std::string& compared) {
    return tier(
        "mov.u32 %r3, %r2; mov.u32 %r4, %r1;\n"
        "O: mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd0, %rd2;\n"
        "ld.volatile.global.u32 %r5, [%rd3]; setp.eq.u32 %p0, %r5, %r3; @%p0 bra R;\n"
        "L: ld.volatile.global.u32 %r3, [%rd3]; mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd0, "
        "%rd2;\n"
        "ld.volatile.global.u32 %r5, [%rd3]; setp.ne.u32 %p0, %r5, %r3; @%p0 bra L;\n"
        "R: setp.eq.u32 %p1, %r3, %r4; @%p1 bra E;\n"
        "max.u32 %r6, %r3, %r4; min.u32 %r4, %r3, %r4; mul.wide.s32 %rd4, %r6, 4;\n"
        "add.s64 %rd5, %rd0, %rd4; atom.global.cas.b32 %r7, [%rd5], " +
        compared + ", %r4; setp.ne.u32 %p2, %r7, " + compared +
        "; mov.u32 %r3, %r6; @%p2 bra O;\nE: ");
  };
  EXPECT_EQ(unite("%r6"), "plain");
  // What is the same every turn may be a token.
  EXPECT_EQ(unite("%r0"), "waits");
}

// A called function that keeps what it polls to itself ends no loop of its caller's.
TEST(PtxWaits, CallsThatKeepWhatTheyPoll) {
  const auto calls = [](const std::string& body, const std::string& module = "") {
    return tier(
        "mov.u64 %rd2, s; cvta.shared.u64 %rd3, %rd2;\n"
        "L: { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd0; st.param.b64 [b], %rd3;\n"
        "call f, (a, b); }\n"
        "ld.shared.u32 %r4, [s]; setp.ne.u32 %p0, %r4, 0; @%p0 bra L;",
        module +
            ".func f(.param .b64 a, .param .b64 b) { .reg .b32 %r<4>; .reg .b64 %rd<5>;\n"
            ".reg .pred %p; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];\n" +
            body + " ret; }\n");
  };
  EXPECT_EQ(calls("atom.global.add.u32 %r1, [%rd1], %r2;"), "plain");
  EXPECT_EQ(calls("ld.volatile.global.u32 %r1, [%rd1]; st.global.u32 [%rd1+4], %r1;"), "plain");
  EXPECT_EQ(calls("ld.volatile.global.u32 %r1, [%rd1]; st.u32 [%rd2], %r1;"), "waits");
  EXPECT_EQ(calls("ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p, %r1, 0; @%p bra E;\n"
                  "st.u32 [%rd2], 0; E: "),
            "waits");
  // Of the block's own memory, by a generic address.
  const std::string polls_own =
      "mov.u64 %rd3, own; cvta.shared.u64 %rd4, %rd3; atom.or.b32 %r1, [%rd4], 0;";
  EXPECT_EQ(calls(polls_own + "st.u32 [%rd2], %r1;", ".shared .b32 own;\n"), "plain");
}

// Without optimisation every variable is in the stack frame, which is read by a generic address.
TEST(PtxWaits, VariablesInTheStackFrame) {
  const auto framed = [](const std::string& body, const std::string& before = "") {
    return tier(
        ".local .align 8 .b8 frame[32]; .reg .b64 %SP, %SPL, %rda;\n"
        "mov.u64 %SPL, frame; cvta.local.u64 %SP, %SPL; st.u64 [%SP+0], %rd0;"
        "st.u32 [%SP+8], %r0; st.u32 [%SP+12], 0;" +
            body,
        before);
  };
  // A counter and its end, beside a fence: work.
  const std::string count =
      "L: ld.u32 %r3, [%SP+12]; ld.u32 %r4, [%SP+8]; membar.gl;"
      "setp.ge.u32 %p0, %r3, %r4; @%p0 bra E; add.u32 %r5, %r3, 1;";
  EXPECT_EQ(framed(count + "st.u32 [%SP+12], %r5; bra L; E:"), "plain");
  // The flag's address is in the frame, the flag is not.
  const std::string poll =
      "L: ld.u64 %rd3, [%SP+0]; ld.volatile.u32 %r3, [%rd3];"
      "st.u32 [%SP+16], %r3; ld.u32 %r4, [%SP+16]; membar.gl;"
      "setp.eq.u32 %p0, %r4, 0; @%p0 bra L;";
  EXPECT_EQ(framed(poll), "waits");
  EXPECT_EQ(framed("mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd3, -4;"
                   "st.u64 [%SP+0], %rd4;" +
                   poll),
            "waits");  // two values: %rd0 is one of them
  // Half of a slot is written anew, or its address goes elsewhere: it may be any address.
  const std::string lower =
      "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd0, %rd2;"
      "add.s64 %rda, %rd3, -4; st.u64 [%SP+24], %rda;";
  const std::string ask =
      "L: ld.u64 %rd4, [%SP+24]; ld.volatile.u32 %r3, [%rd4];"
      "setp.eq.u32 %p0, %r3, 0; @%p0 bra L;";
  EXPECT_EQ(framed(lower + ask), "in-order");
  EXPECT_EQ(framed(lower + "st.u32 [%SP+24], %r0;" + ask), "waits");
  EXPECT_EQ(framed(lower + "st.u32 [%SP+28], %r0;" + ask), "waits");
  EXPECT_EQ(
      framed(lower + "add.u64 %rd5, %SP, 24; add.u64 %rd6, %rd5, %rd1; st.u32 [%rd6], %r0;" + ask),
      "waits");
  EXPECT_EQ(framed(lower + "add.u64 %rd5, %SP, 8; st.global.u64 [%rd1], %rd5;" + ask), "waits");
  EXPECT_EQ(
      framed(lower + "mov.u64 %rd5, %SP; @%p1 mov.u64 %rd5, %rd1; st.u64 [%rd5], %rd1;" + ask),
      "waits");
  // A member's address is made by `or`, where the frame's alignment leaves the bits free.
  const std::string lower_by_or =
      "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd0, %rd2; add.s64 %rda, %rd3, -4;"
      "add.u64 %rd5, %SP, 16; or.b64 %rd6, %rd5, 4; st.u32 [%rd6], %r1; st.u64 [%SP+24], %rda;";
  EXPECT_EQ(framed(lower_by_or + ask), "in-order");
  const std::string not_free =
      "add.u64 %rd5, %SP, 16; or.b64 %rd6, %rd5, 8; st.u32 [%rd6], %r1;";  // the frame's is 8
  EXPECT_EQ(framed(lower + not_free + ask), "waits");
  // A name of an inner scope is another frame.
  EXPECT_EQ(framed(lower +
                   "{ .local .align 8 .b8 frame[32]; .reg .b64 %x; mov.u64 %x, frame;"
                   "st.local.u64 [%x+24], %rd1; }" +
                   ask),
            "in-order");
}

// Calls that are written in place pass variables by reference, and objects that hold references.
TEST(PtxWaits, VariablesThatFramesReferTo) {
  const auto referred = [](const std::string& body) {
    return tier(
        ".local .align 8 .b8 count[16]; .local .align 8 .b8 object[16]; .local .align 8 .b8 "
        "outer[8];"
        ".reg .b64 %at, %in, %out, %rda, %rdb;\n"
        "mov.u64 %rd2, count; cvta.local.u64 %at, %rd2; mov.u64 %rd3, object;"
        "cvta.local.u64 %in, %rd3; mov.u64 %rd4, outer; cvta.local.u64 %out, %rd4;\n"
        "st.u32 [%at], 0; st.u64 [%in+8], %at; st.u64 [%out], %in;\n" +
        body);
  };
  // A counter that is read through two of them, beside a sleep: work.
  const std::string read =
      "L: ld.u64 %rda, [%out]; ld.u64 %rdb, [%rda+8]; ld.u32 %r3, [%rdb]; nanosleep.u32 20;";
  const std::string step =
      "add.u32 %r4, %r3, 1; st.u32 [%rdb], %r4; setp.lt.u32 %p0, %r4, %r0; @%p0 bra L;";
  EXPECT_EQ(referred(read + step), "plain");
  EXPECT_EQ(referred("setp.ne.u64 %p1, %in, 0; @!%p1 trap;" + read + step), "plain");
  // An object that holds its own address.
  EXPECT_EQ(referred("st.u64 [%in], %in; ld.u64 %rd5, [%in]; st.u32 [%rd5+8], %r0;" + read + step),
            "waits");
  EXPECT_EQ(referred("st.u64 [%in], %in; ld.u64 %rd5, [%in]; st.u64 [%rd5+8], %at;" + read + step),
            "waits");  // two values
  EXPECT_EQ(
      referred("st.u64 [%at+8], %at; ld.u64 %rd5, [%at+8]; st.u32 [%rd5], %r0;" + read + step),
      "plain");
  // It leads elsewhere on some way, other threads or functions may have it, or it is not whole.
  EXPECT_EQ(referred("@%p1 st.u64 [%in+8], %rd1;" + read + step), "waits");
  EXPECT_EQ(referred("st.global.u64 [%rd1], %in;" + read + step), "waits");
  EXPECT_EQ(referred("ld.u64 %rd5, [%out]; st.global.u64 [%rd1], %rd5;" + read + step), "waits");
  EXPECT_EQ(referred("add.s64 %rd5, %out, %rd1; st.u64 [%rd5], %rd1;" + read + step), "waits");
  EXPECT_EQ(referred("ld.u64 %rd5, [%out]; st.u8 [%rd5+9], %r0;" + read + step), "waits");
  // The counter itself is the thread's own memory in any case.
  EXPECT_EQ(referred("st.global.u64 [%rd1], %at;" + read + step), "plain");
  // What is polled comes through them, too.
  const std::string poll =
      "L: ld.u64 %rda, [%out]; ld.u64 %rdb, [%rda+8]; ld.acquire.gpu.global.u32 %r3, [%rd1];"
      "st.u32 [%rdb], %r3; ld.u32 %r4, [%at]; setp.eq.u32 %p0, %r4, 0; @%p0 bra L;";
  EXPECT_EQ(referred(poll), "waits");
  EXPECT_EQ(referred("mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd0, %rd5; add.s64 %rd7, %rd6, -4;"
                     "st.u64 [%in], %rd7; L: ld.u64 %rda, [%out]; ld.u64 %rdb, [%rda];"
                     "ld.acquire.gpu.u32 %r3, [%rdb]; setp.eq.u32 %p0, %r3, 0; @%p0 bra L;"),
            "in-order");
}

// The word that is swapped is named by a variable in a frame whose address goes elsewhere.
TEST(PtxWaits, TokensNamedByVariablesInMemory) {
  const std::string frame =
      ".local .align 8 .b8 frame[16]; .reg .b64 %SP, %SPL; mov.u64 %SPL, frame;"
      "cvta.local.u64 %SP, %SPL; st.u64 [%SP+0], %rd0; add.u64 %rd5, %SP, 0;"
      "st.global.u64 [%rd1], %rd5;";
  const std::string take =
      "L: ld.u64 %rd3, [%SP+0]; atom.cas.b32 %r4, [%rd3], 1, 0; setp.ne.u32 %p0, %r4, 1;"
      "@%p0 bra L;";
  EXPECT_EQ(tier(frame + take), "waits");
  EXPECT_EQ(tier(frame + take + "st.global.u32 [%rd1+8], 1;"), "waits");
  EXPECT_EQ(tier(frame + take + "ld.u64 %rd4, [%SP+0]; atom.exch.b32 %r5, [%rd4], 1;"), "plain");
}

// A sum of values that others have written, counted by a number that begins as the sum did.
TEST(PtxWaits, NothingDependsOnWhatIsReadLater) {
  const auto counted = [](const std::string& before, const std::string& inside = "") {
    return tier("mov.u32 %r3, 0;" + before + "mov.u32 %r4, %r3;" +
                "L: ld.volatile.global.u32 %r5, [%rd0]; add.u32 %r3, %r3, %r5;" + inside +
                "add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, %r0; @%p0 bra L;");
  };
  EXPECT_EQ(counted(""), "plain");
  EXPECT_EQ(counted("", "mov.u32 %r4, %r3;"), "waits");
  // The loop is behind itself: what it read last time decides when it ends this time.
  EXPECT_EQ(tier("mov.u32 %r3, 0; mov.u32 %r6, 0;\n"
                 "R: mov.u32 %r4, %r3;\n"
                 "L: ld.volatile.global.u32 %r3, [%rd0]; add.u32 %r4, %r4, 1;"
                 "setp.lt.u32 %p0, %r4, %r0; @%p0 bra L;\n"
                 "setp.eq.u32 %p1, %r3, 0; @%p1 bra R;"),
            "waits");
}

// A value that is its own lock: read, swapped for a mark, stored back.
TEST(PtxWaits, ValuesThatAreTheirOwnLock) {
  const std::string start = "mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd0, %rd2;";
  const std::string read = "L: ld.volatile.global.u32 %r3, [%rd3];";
  const std::string skip = "setp.eq.s32 %p0, %r3, -1; @%p0 bra L;";
  const std::string take =
      "T: atom.global.cas.b32 %r4, [%rd3], %r3, -1; setp.ne.s32 %p1, %r4, %r3; @%p1 bra L;";
  const std::string store = "add.s32 %r5, %r3, 1; membar.gl; st.volatile.global.u32 [%rd3], %r5;";
  const std::string lock = start + read + skip + take;
  EXPECT_EQ(tier(lock + store), "plain");
  EXPECT_EQ(tier(lock + "atom.global.exch.b32 %r6, [%rd3], 7;"), "plain");
  // Never given back; the mark stored again; not on every path; half of it; elsewhere.
  EXPECT_EQ(tier(lock), "waits");
  EXPECT_EQ(tier(lock + "st.global.u32 [%rd3], -1;"), "waits");
  EXPECT_EQ(tier(lock + "setp.eq.u32 %p2, %r0, 0; @%p2 bra E;" + store + "E:"), "waits");
  EXPECT_EQ(tier(lock + "setp.eq.u32 %p2, %r0, 0; @%p2 st.volatile.global.u32 [%rd3], 3;"),
            "waits");
  EXPECT_EQ(tier(lock + "st.global.u16 [%rd3], 0;"), "waits");
  EXPECT_EQ(tier(lock + "st.global.u32 [%rd3+4], 0;"), "waits");
  EXPECT_EQ(tier(lock + "st.global.u32 [%rd1], 0;"), "waits");
  EXPECT_EQ(tier(lock + "add.s64 %rd3, %rd3, 4;" + store), "waits");
  // Other values are waited for as well; another one than the swap leaves.
  EXPECT_EQ(tier(start + read + "setp.lt.s32 %p0, %r3, 0; @%p0 bra L;" + take + store), "waits");
  EXPECT_EQ(tier(start + read + "setp.eq.s32 %p0, %r3, -2; @%p0 bra L;" + take + store), "waits");
  EXPECT_EQ(tier(start + read + "setp.ne.s32 %p0, %r3, -1; @%p0 bra L;" + take + store), "waits");
  // One block fills what the others wait for: whatever else may write there.
  const std::string fill = "setp.eq.u32 %p3, %r1, 7; @!%p3 bra G; st.global.u32 ";
  EXPECT_EQ(tier(start + fill + "[%rd3], 5; G:" + read + skip + take + store), "waits");
  EXPECT_EQ(tier(start + fill + "[%rd0+28], 5; G:" + read + skip + take + store), "waits");
  EXPECT_EQ(tier(start + fill + "[%rd1], 5; G:" + read + skip + take + store), "plain");
  // The answer is the last turn's.
  EXPECT_EQ(tier(start + "mov.u32 %r4, 0;" + read + skip +
                 "setp.ne.s32 %p1, %r4, %r3; atom.global.cas.b32 %r4, [%rd3], %r3, -1;"
                 "@%p1 bra L;" +
                 store),
            "waits");
  // Another one is read while this one is held.
  EXPECT_EQ(tier(lock +
                 "M: ld.volatile.global.u32 %r7, [%rd1]; setp.eq.u32 %p2, %r7, 0;"
                 "@%p2 bra M;" +
                 store),
            "waits");
}

// Copies bring to shared memory what others write.
TEST(PtxWaits, CopiesThatPoll) {
  const auto copies = [&](const std::string& next) {
    return tier(
        "mov.u32 %r3, s; L: cp.async.cg.shared.global [%r3], [%rd0], 16; cp.async.wait_all;\n" +
        next + "ld.shared.u32 %r4, [%r3]; setp.eq.u32 %p0, %r4, 0; @%p0 bra L;");
  };
  EXPECT_EQ(copies(""), "waits");
  EXPECT_EQ(copies("add.s64 %rd0, %rd0, 16;"), "plain");
  EXPECT_EQ(tier("L: suld.b.1d.b32.trap {%r4}, [%rd0, {0}]; setp.eq.u32 %p0, %r4, 0; @%p0 bra L;"),
            "waits");
}

}  // namespace
}  // namespace sluice::passes
