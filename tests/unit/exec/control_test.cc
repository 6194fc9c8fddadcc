// SPDX-License-Identifier: Apache-2.0
// Control flow of kernels/exec: divergence, loops, calls, barriers, warp-wide operations, progress.
#include <algorithm>
#include <thread>

#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

// %r0 = %tid.x and %rd10 = p0 + 4 * global thread number.
class ExecControl : public ExecTest {};

TEST_F(ExecControl, AddsAndStores) {
  ASSERT_TRUE(
      load(kernel(std::string(kIndex) + "mad.lo.u32 %r4, %r3, 3, 7;\nst.global.u32 [%rd10], %r4;")))
      << error_;
  std::vector<uint32_t> out(1000);
  ASSERT_EQ(launch({4}, {250}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 1000; ++i) ASSERT_EQ(out[i], i * 3 + 7);
}

TEST_F(ExecControl, NestedBranches) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    mov.u32 %r4, 0;
    and.b32 %r5, %r3, 1; setp.eq.u32 %p1, %r5, 0;
    @%p1 bra EVEN;
    and.b32 %r5, %r3, 2; setp.eq.u32 %p2, %r5, 0;
    @%p2 bra ODD0;
    mov.u32 %r4, 300; bra JOIN;
  ODD0: mov.u32 %r4, 200; bra JOIN;
  EVEN: mov.u32 %r4, 100;
    setp.gt.u32 %p3, %r3, 40;
    @!%p3 bra JOIN;
    add.u32 %r4, %r4, 50;
  JOIN: add.u32 %r4, %r4, %r3;
    activemask.b32 %r6;
    st.global.u32 [%rd10], %r4;
    add.s64 %rd11, %rd1, %rd9;
    st.global.u32 [%rd11], %r6;)")))
      << error_;
  std::vector<uint32_t> out(64), masks(64);
  ASSERT_EQ(launch({1}, {64}, {share(out), share(masks)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t base = i % 2 == 0 ? (i > 40 ? 150 : 100) : (i & 2) == 0 ? 200 : 300;
    EXPECT_EQ(out[i], base + i);
    EXPECT_EQ(masks[i], 0xffffffffu) << "the warp is converged again";
  }
}

TEST_F(ExecControl, DivergentLoops) {
  // Collatz steps: every lane has its own trip count.
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    add.u32 %r4, %r3, 1; mov.u32 %r5, 0;
  HEAD: setp.le.u32 %p1, %r4, 1;
    @%p1 bra DONE;
    add.u32 %r5, %r5, 1;
    and.b32 %r6, %r4, 1; setp.ne.u32 %p2, %r6, 0;
    @%p2 bra ODD;
    shr.u32 %r4, %r4, 1; bra HEAD;
  ODD: mad.lo.u32 %r4, %r4, 3, 1; bra HEAD;
  DONE: st.global.u32 [%rd10], %r5;
    activemask.b32 %r6; add.s64 %rd11, %rd1, %rd9; st.global.u32 [%rd11], %r6;)")))
      << error_;
  std::vector<uint32_t> out(256), masks(256);
  ASSERT_EQ(launch({2}, {128}, {share(out), share(masks)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t n = i + 1, steps = 0;
    while (n > 1) {
      n = n % 2 == 0 ? n / 2 : 3 * n + 1;
      ++steps;
    }
    ASSERT_EQ(out[i], steps);
    ASSERT_EQ(masks[i], 0xffffffffu);
  }
}

TEST_F(ExecControl, PartialWarpAndEarlyReturn) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    setp.ge.u32 %p1, %r3, 40; @%p1 ret;
    bar.sync 0;
    st.global.u32 [%rd10], 1;)")))
      << error_;
  std::vector<uint32_t> out(70);
  ASSERT_EQ(launch({1}, {70}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 70; ++i) EXPECT_EQ(out[i], i < 40 ? 1u : 0u);
}

// Sides of a branch run together again behind it, whether returns or exits end the kernel, or both.
TEST_F(ExecControl, LanesMeetAgainWhateverEndsTheKernel) {
  std::vector<uint32_t> out(32);
  const uint64_t base = share(out);
  std::vector<uint64_t> steps;
  for (const char* early : {"ret", "exit"})
    for (const char* last : {"ret", "exit"}) {
      std::string body = "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 31;\n@%p1 " +
                         std::string(early) +
                         ";\nand.b32 %r2, %r1, 1;\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra EVEN;\n"
                         "add.u32 %r3, %r1, 100;\nbra MEET;\nEVEN: add.u32 %r3, %r1, 200;\nMEET:\n";
      for (int k = 0; k < 20; ++k) body += "add.u32 %r3, %r3, 1;\n";
      body += "mul.wide.u32 %rd1, %r1, 4;\nadd.u64 %rd1, %rd0, %rd1;\nst.global.u32 [%rd1], %r3;\n";
      ASSERT_TRUE(load(kernel(body + last + ";"))) << error_;
      out.assign(32, 0);
      steps_ = 0;
      ASSERT_EQ(launch({1, 1, 1}, {32, 1, 1}, {base}), RunState::kDone);
      for (uint32_t k = 0; k < 31; ++k) EXPECT_EQ(out[k], k + 20 + (k % 2 == 0 ? 200 : 100));
      EXPECT_EQ(out[31], 0u);
      steps.push_back(steps_);
    }
  EXPECT_EQ(steps, std::vector<uint64_t>(4, steps[0]));
}

TEST_F(ExecControl, BarrierExchangesThroughSharedMemory) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    .shared .align 4 .b8 tile[1024];
    mov.u32 %r4, tile; shl.b32 %r5, %r0, 2; add.u32 %r6, %r4, %r5;
    mov.u32 %r7, 0;
  LOOP: st.shared.u32 [%r6], %r3;
    bar.sync 0;
    sub.u32 %r8, 255, %r0; shl.b32 %r8, %r8, 2; add.u32 %r8, %r4, %r8;
    ld.shared.u32 %r3, [%r8];
    bar.sync 0;
    add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, 5; @%p1 bra LOOP;
    st.global.u32 [%rd10], %r3;)")))
      << error_;
  std::vector<uint32_t> out(256);
  ASSERT_EQ(launch({1}, {256}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 256; ++i) ASSERT_EQ(out[i], 255 - i);
}

TEST_F(ExecControl, BarriersByNumberAndCount) {
  // Warps 0 and 1 produce (arrive), warps 2 and 3 consume (sync), at barrier 3 with 128 threads.
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    .shared .align 4 .b8 box[512];
    mov.u32 %r4, box; shl.b32 %r5, %r0, 2; add.u32 %r6, %r4, %r5;
    setp.ge.u32 %p1, %r0, 64; @%p1 bra CONSUME;
    add.u32 %r7, %r0, 1000; st.shared.u32 [%r6], %r7;
    barrier.cta.arrive 3, 128; bra END;
  CONSUME: mov.u32 %r9, 3; barrier.cta.sync %r9, 128;
    ld.shared.u32 %r7, [%r6+-256]; st.global.u32 [%rd10], %r7;
  END: bar.red.popc.u32 %r8, 0, %p1;
    bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, %p1;
    selp.u32 %r10, 1, 0, %p2; selp.u32 %r11, 2, 0, %p3; or.b32 %r10, %r10, %r11;
    shl.b32 %r8, %r8, 8; or.b32 %r10, %r10, %r8;
    add.s64 %rd11, %rd1, %rd9; st.global.u32 [%rd11], %r10;)")))
      << error_;
  std::vector<uint32_t> out(128), red(128);
  ASSERT_EQ(launch({1}, {128}, {share(out), share(red)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[64 + i], 1000 + i);
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(red[i], 64u << 8 | 2);
}

TEST_F(ExecControl, BarrierInDivergentCodeCountsThreads) {
  // The two sides of a branch meet at barrier 0 from different places (non-aligned form).
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    and.b32 %r4, %r0, 1; setp.eq.u32 %p1, %r4, 0;
    @%p1 bra EVEN;
    barrier.sync 0; mov.u32 %r5, 1; bra JOIN;
  EVEN: barrier.sync 0; mov.u32 %r5, 2;
  JOIN: st.global.u32 [%rd10], %r5;)")))
      << error_;
  std::vector<uint32_t> out(96);
  ASSERT_EQ(launch({1}, {96}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? 2u : 1u);
}

TEST_F(ExecControl, LockInsideAWarp) {
  // Every lane takes the same lock in turn: needs progress of lanes that the others spin on.
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
  SPIN: atom.global.cas.b32 %r4, [%rd0], 0, 1;
    setp.ne.u32 %p1, %r4, 0; @%p1 bra SPIN;
    ld.volatile.global.u32 %r5, [%rd0+4]; add.u32 %r5, %r5, 1; st.volatile.global.u32 [%rd0+4], %r5;
    membar.gl;
    atom.global.exch.b32 %r6, [%rd0], 0;)")))
      << error_;
  std::vector<uint32_t> lock(2);
  ASSERT_EQ(launch({2}, {128}, {share(lock)}), RunState::kDone) << fault_.describe();
  EXPECT_EQ(lock[0], 0u);
  EXPECT_EQ(lock[1], 256u);
}

TEST_F(ExecControl, FlagBetweenLanesAndBetweenWarps) {
  // Lane 0 waits, without atomics, for what the last lane of the block stores after the join.
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    setp.ne.u32 %p1, %r0, 0; @%p1 bra OTHERS;
  WAIT: ld.volatile.global.u32 %r4, [%rd0]; setp.eq.u32 %p2, %r4, 0; @%p2 bra WAIT;
  OTHERS: setp.ne.u32 %p3, %r0, 5; @%p3 bra END;
    st.global.u32 [%rd0], 77;
  END: bar.sync 0;)")))
      << error_;
  std::vector<uint32_t> flag(1);
  ASSERT_EQ(launch({1}, {64}, {share(flag)}), RunState::kDone) << fault_.describe();
  EXPECT_EQ(flag[0], 77u);
}

// Lane 0 polls for what the others store behind the place where they should meet: they go on
// without it. At the next barrier of the block the warp is whole again.
TEST_F(ExecControl, LanesThatWentOnAloneMeetAtTheNextBarrier) {
  ASSERT_TRUE(load(kernel(std::string(".shared .align 4 .b32 flag[1];\n") + kIndex +
                          R"(setp.eq.u32 %p0, %r0, 0;
    @%p0 st.shared.u32 [flag], 0;
    bar.sync 0;
    @!%p0 bra MEET;
    POLL: ld.volatile.shared.u32 %r4, [flag]; setp.eq.u32 %p1, %r4, 0; @%p1 bra POLL;
    MEET: @!%p0 st.volatile.shared.u32 [flag], 1;
    bar.sync 0;
    activemask.b32 %r5; st.global.u32 [%rd10], %r5;)")))
      << error_;
  std::vector<uint32_t> out(32);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kDone) << fault_.describe();
  EXPECT_EQ(out, std::vector<uint32_t>(32, 0xffffffffu));
}

TEST_F(ExecControl, CallsWithArgumentsAndResults) {
  const char* const functions = R"(
.func (.param .b32 out) square(.param .b32 a) {
  .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.u32 %r1, [a];
  setp.gt.u32 %p1, %r1, 20; @%p1 bra BIG;
  mul.lo.u32 %r2, %r1, %r1; st.param.b32 [out], %r2; ret;
BIG: st.param.b32 [out], 9999; ret;
}
.func (.param .b32 out) twice(.param .b32 a) {
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [a];
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), square, (x);
  ld.param.b32 %r2, [y]; }
  add.u32 %r2, %r2, %r2; st.param.b32 [out], %r2; ret;
})";
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    mov.u32 %r5, 5;
    setp.lt.u32 %p1, %r0, 16; @%p1 bra CALL; mov.u32 %r5, 1; bra AFTER;
  CALL: { .param .b32 param0; .param .b32 retval0;
      st.param.b32 [param0], %r0; call (retval0), twice, (param0); ld.param.b32 %r5, [retval0]; }
  AFTER: { .param .b32 param0; .param .b32 retval0;
      st.param.b32 [param0], %r0; call.uni (retval0), square, (param0);
      ld.param.b32 %r6, [retval0]; }
    add.u32 %r5, %r5, %r6; st.global.u32 [%rd10], %r5;)",
                          functions)))
      << error_;
  std::vector<uint32_t> out(32);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t square = i > 20 ? 9999 : i * i;
    EXPECT_EQ(out[i], (i < 16 ? 2 * square : 1) + square);
  }
}

TEST_F(ExecControl, BranchTable) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    and.b32 %r4, %r0, 3;
  ts: .branchtargets A, B, C, A;
    brx.idx %r4, ts;
  A: mov.u32 %r5, 10; bra END;
  B: mov.u32 %r5, 20; bra END;
  C: mov.u32 %r5, 30;
  END: add.u32 %r5, %r5, %r4; activemask.b32 %r6; setp.ne.u32 %p1, %r6, -1; @%p1 mov.u32 %r5, 0;
    st.global.u32 [%rd10], %r5;)")))
      << error_;
  std::vector<uint32_t> out(64);
  ASSERT_EQ(launch({1}, {64}, {share(out)}), RunState::kDone) << fault_.describe();
  const uint32_t expected[] = {10, 21, 32, 13};
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], expected[i % 4]);
}

TEST_F(ExecControl, Shuffles) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    mul.lo.u32 %r4, %r0, 10;
    shfl.sync.up.b32 %r5|%p1, %r4, 1, 0, -1;
    shfl.sync.down.b32 %r6|%p2, %r4, 2, 31, -1;
    shfl.sync.bfly.b32 %r7, %r4, 16, 31, -1;
    shfl.sync.idx.b32 %r8, %r4, 3, 0x181f, -1;
    selp.u32 %r9, 1, 0, %p1; selp.u32 %r10, 1, 0, %p2;
    mul.wide.u32 %rd11, %r0, 24; add.s64 %rd11, %rd0, %rd11;
    st.global.u32 [%rd11], %r5; st.global.u32 [%rd11+4], %r6; st.global.u32 [%rd11+8], %r7;
    st.global.u32 [%rd11+12], %r8; st.global.u32 [%rd11+16], %r9;
    st.global.u32 [%rd11+20], %r10;)")))
      << error_;
  std::vector<uint32_t> out(32 * 6);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[6 * i], (i > 0 ? i - 1 : i) * 10);
    EXPECT_EQ(out[6 * i + 1], (i < 30 ? i + 2 : i) * 10);
    EXPECT_EQ(out[6 * i + 2], (i ^ 16) * 10);
    EXPECT_EQ(out[6 * i + 3], ((i & 24) + 3) * 10) << "segments of eight";
    EXPECT_EQ(out[6 * i + 4], i > 0 ? 1u : 0u);
    EXPECT_EQ(out[6 * i + 5], i < 30 ? 1u : 0u);
  }
}

TEST_F(ExecControl, CollectivesOfTilesAndOfDivergedLanes) {
  // Halves of the warp with their own masks, converged; then the same from two sides of a branch,
  // and a full-warp vote whose lanes come on different ways.
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    setp.lt.u32 %p1, %r0, 16; selp.b32 %r4, 0xffff, 0xffff0000, %p1;
    redux.sync.add.u32 %r5, %r0, %r4;
    @%p1 bra LOW;
    redux.sync.max.u32 %r6, %r0, %r4;
    vote.sync.ballot.b32 %r7, %p1, -1; bra JOIN;
  LOW: redux.sync.min.u32 %r6, %r0, %r4;
    vote.sync.ballot.b32 %r7, %p1, -1;
  JOIN: match.any.sync.b32 %r8, %r5, -1;
    elect.sync %r9|%p2, -1; selp.u32 %r10, 1, 0, %p2;
    vote.sync.all.pred %p3, %p1, -1; vote.sync.any.pred %p4, %p1, -1;
    selp.u32 %r11, 2, 0, %p3; selp.u32 %r12, 4, 0, %p4; or.b32 %r10, %r10, %r11;
    or.b32 %r10, %r10, %r12;
    mul.wide.u32 %rd11, %r0, 20; add.s64 %rd11, %rd0, %rd11;
    st.global.u32 [%rd11], %r5; st.global.u32 [%rd11+4], %r6; st.global.u32 [%rd11+8], %r7;
    st.global.u32 [%rd11+12], %r8; st.global.u32 [%rd11+16], %r10;)")))
      << error_;
  std::vector<uint32_t> out(32 * 5);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[5 * i], i < 16 ? 120u : 376u);
    EXPECT_EQ(out[5 * i + 1], i < 16 ? 0u : 31u);
    EXPECT_EQ(out[5 * i + 2], 0xffffu);
    EXPECT_EQ(out[5 * i + 3], i < 16 ? 0xffffu : 0xffff0000u);
    EXPECT_EQ(out[5 * i + 4], i == 0 ? 5u : 4u);
  }
}

TEST_F(ExecControl, CollectiveAfterEarlyExit) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    setp.ge.u32 %p1, %r0, 20; @%p1 exit;
    redux.sync.add.u32 %r4, 1, -1;
    st.global.u32 [%rd10], %r4;)")))
      << error_;
  std::vector<uint32_t> out(32);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 20 ? 20u : 0u);
}

TEST_F(ExecControl, DeadlockIsAFault) {
  ASSERT_TRUE(
      load(kernel("mov.u32 %r0, %tid.x;\nsetp.lt.u32 %p1, %r0, 32;\n@%p1 bra SKIP;\nbar.sync "
                  "1;\nSKIP: bar.sync 0;")))
      << error_;
  ASSERT_EQ(launch({3}, {64}, {}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kDeadlock);
  EXPECT_EQ(fault_.kernel, "k");
}

TEST_F(ExecControl, TrapSaysWhereAndWho) {
  const std::string text = kernel("mov.u32 %r0, %tid.y;\nsetp.eq.u32 %p1, %r0, 3;\n@%p1 trap;");
  ASSERT_TRUE(load(text)) << error_;
  ASSERT_EQ(launch({1, 2}, {8, 8}, {}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kTrap);
  EXPECT_EQ(fault_.thread.y, 3u);
  EXPECT_EQ(fault_.thread.x, 0u);
  const auto line = static_cast<uint32_t>(
      std::count(text.begin(), text.begin() + static_cast<long>(text.find("@%p1 trap")), '\n') + 1);
  EXPECT_EQ(fault_.line, line);
}

TEST_F(ExecControl, UnsupportedIsRefusedByNameAndLine) {
  EXPECT_FALSE(load(kernel("tcgen05.fence::before_thread_sync;")));
  EXPECT_NE(error_.find("tcgen05.fence"), std::string::npos) << error_;
  EXPECT_NE(error_.find("line "), std::string::npos) << error_;
  EXPECT_FALSE(load(kernel("add.frobnicate.u32 %r0, %r1, %r2;")));
  EXPECT_FALSE(load(kernel("add.u32 %r0, %r1;")));
  EXPECT_FALSE(load(kernel("add.u32 %r0, %r1, %nosuch;")));
  EXPECT_FALSE(load(kernel("bra NOWHERE;")));
}

TEST_F(ExecControl, StopsAndGoesOn) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    mov.u32 %r4, 0;
  L: add.u32 %r4, %r4, 1; bar.sync 0; setp.lt.u32 %p1, %r4, 100; @%p1 bra L;
    st.global.u32 [%rd10], %r4;)")))
      << error_;
  std::vector<uint32_t> out(128);
  slice_ = 7;
  ASSERT_EQ(launch({1}, {128}, {share(out)}), RunState::kDone) << fault_.describe();
  for (const uint32_t v : out) EXPECT_EQ(v, 100u);
}

TEST_F(ExecControl, PollingBlocksSayThatTheyWait) {
  ASSERT_TRUE(
      load(kernel("W: ld.volatile.global.u32 %r4, [%rd0];\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bra W;")))
      << error_;
  std::vector<uint32_t> flag(1);
  LaunchShape shape;
  shape.block = {64};
  auto block = Block::make(image_, "k", shape, parameters({share(flag)}), map_, environment_);
  ASSERT_TRUE(block.ok());
  (*block)->start({0, 0, 0}, {});
  const RunResult first = (*block)->run(1'000'000);
  EXPECT_EQ(first.state, RunState::kYielded);
  EXPECT_TRUE(first.waiting);
  EXPECT_LT(first.steps, 100'000u);
  __atomic_store_n(flag.data(), 1, __ATOMIC_RELEASE);  // as another process would
  EXPECT_EQ((*block)->run(1'000'000).state, RunState::kDone);
}

TEST_F(ExecControl, AtomicsThatDoWorkAreNoPolling) {
  ASSERT_TRUE(load(kernel(R"(
    mov.u32 %r4, 0;
  L: atom.global.add.u32 %r5, [%rd0], 1; ld.volatile.global.u32 %r6, [%rd0];
    add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 5000; @%p1 bra L;)")))
      << error_;
  std::vector<uint32_t> counter(1);
  LaunchShape shape;
  shape.block = {64};
  auto block = Block::make(image_, "k", shape, parameters({share(counter)}), map_, environment_);
  ASSERT_TRUE(block.ok());
  (*block)->start({0, 0, 0}, {});
  const RunResult result = (*block)->run(10'000'000);
  EXPECT_EQ(result.state, RunState::kDone) << "neither stopped early nor called waiting";
  EXPECT_EQ(counter[0], 64 * 5000u);
}

TEST_F(ExecControl, BlocksOnSeveralThreadsShareAtomics) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    mov.u32 %r4, 0;
  L: atom.global.add.u32 %r5, [%rd0], 1;
    red.global.add.u64 [%rd0+8], 3; atom.global.add.f32 %f1, [%rd0+16], 0f3F800000;
    atom.global.max.s32 %r6, [%rd0+20], %r3;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 50; @%p1 bra L;)")))
      << error_;
  std::vector<uint32_t> memory(8);
  const uint64_t base = share(memory);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, base, t] {
      LaunchShape shape;
      shape.grid = {4};
      shape.block = {64};
      auto block = Block::make(image_, "k", shape, parameters({base}), map_, environment_);
      (*block)->start({t, 0, 0}, {t, 4});
      while ((*block)->run(100).state == RunState::kYielded) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory[0], 4 * 64 * 50u);
  uint64_t sum;
  std::memcpy(&sum, &memory[2], 8);
  EXPECT_EQ(sum, 4 * 64 * 50 * 3u);
  float f;
  std::memcpy(&f, &memory[4], 4);
  EXPECT_EQ(f, 4 * 64 * 50.0f);
  EXPECT_EQ(memory[5], 255u);
}

TEST_F(ExecControl, PrintsAndAsserts) {
  const char* const before = R"(
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,
.param .b64 e);
.global .align 1 .b8 fmt[16] = {116, 61, 37, 100, 32, 120, 61, 37, 46, 50, 102, 10, 0};
.global .align 1 .b8 msg[4] = {110, 61, 49, 0};)";
  ASSERT_TRUE(load(kernel(R"(
    .local .align 8 .b8 depot[16];
    mov.u64 %rd20, depot; cvta.local.u64 %rd21, %rd20;
    mov.u32 %r0, %tid.x; st.local.u32 [%rd20], %r0; cvt.rn.f64.u32 %fd1, %r0;
    st.local.f64 [%rd20+8], %fd1;
    mov.u64 %rd22, fmt; cvta.global.u64 %rd23, %rd22;
    { .param .b64 param0; .param .b64 param1; .param .b32 retval0;
      st.param.b64 [param0], %rd23; st.param.b64 [param1], %rd21;
      call.uni (retval0), vprintf, (param0, param1); ld.param.b32 %r1, [retval0]; }
    setp.ne.u32 %p1, %r0, 1; @%p1 bra END;
    mov.u64 %rd24, msg; cvta.global.u64 %rd25, %rd24;
    { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
      st.param.b64 [a], %rd25; st.param.b64 [b], %rd25; st.param.b32 [c], 42;
      st.param.b64 [d], %rd25; st.param.b64 [e], 1;
      call.uni __assertfail, (a, b, c, d, e); }
  END:)",
                          before)))
      << error_;
  ASSERT_EQ(launch({1}, {2}, {}), RunState::kFault);
  EXPECT_EQ(environment_.printed, "t=0 x=0.00\nt=1 x=1.00\n");
  EXPECT_EQ(fault_.kind, FaultKind::kAssert);
  EXPECT_EQ(fault_.thread.x, 1u);
  EXPECT_NE(fault_.detail.find(":42:"), std::string::npos) << fault_.detail;
}

}  // namespace
}  // namespace sluice::exec
