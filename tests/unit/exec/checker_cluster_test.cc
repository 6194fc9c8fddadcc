// SPDX-License-Identifier: Apache-2.0
// The checker and clusters: their barrier, mbarriers and writes to other blocks order and define.
#include "tests/unit/exec/checker_fixture.h"

namespace sluice::exec {
namespace {

const std::string kClusterSync = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
// %r12: this thread's word in the other block; %rd11, %rd12: its own and the other block's word of
// global memory.
const std::string kOther = kShared + kThread +
                           "mov.u32 %r10, %cluster_ctarank;\nxor.b32 %r11, %r10, 1;\n"
                           "mapa.shared::cluster.u32 %r12, %r5, %r11;\n"
                           "mul.wide.u32 %rd11, %r10, 256;\nadd.u64 %rd11, %rd11, %rd10;\n"
                           "mul.wide.u32 %rd12, %r11, 256;\nadd.u64 %rd12, %rd12, %rd10;\n";

class CheckerCluster : public CheckerTest {
 protected:
  void SetUp() override { cluster_ = {2, 1, 1}; }
};

TEST_F(CheckerCluster, TheBarrierOrdersSharedAndGlobalMemory) {
  expect_none(
      check(kernel(kOther +
                   "mov.u32 %r9, 0;\nL: st.shared::cluster.u32 [%r12], %r1;\n"
                   "st.global.u32 [%rd11], %r9;\n" +
                   kClusterSync +
                   "ld.shared.u32 %r8, [%r5];\nld.shared.u32 %r13, [%r6];\n"
                   "ld.global.u32 %r14, [%rd12];\nadd.u32 %r8, %r8, %r13;\n"
                   "add.u32 %r8, %r8, %r14;\nst.global.u32 [%rd11+1024], %r8;\n" +
                   kClusterSync + "add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p1, %r9, 5;\n@%p1 bra L;"),
            {2, 1, 1}, {64, 1, 1}, "race,uninit,barrier,memory"));
}

TEST_F(CheckerCluster, GlobalMemoryWithoutTheBarrierIsARace) {
  const auto found = check(kernel(kOther +
                                  "st.global.u32 [%rd11], %r1;\n"
                                  "ld.global.u32 %r14, [%rd12];\n"
                                  "st.global.u32 [%rd11+1024], %r14;\n" +
                                  kClusterSync),
                           {2, 1, 1}, {64, 1, 1}, "race");
  expect_one(found, CheckKind::kRace, "ld.global", "st.global");
}

TEST_F(CheckerCluster, WhatNobodyWroteInTheOwnMemoryIsStillFound) {
  const auto found =
      check(kernel(kOther + kClusterSync +
                   "ld.shared.u32 %r8, [%r6];\nst.global.u32 [%rd11], %r8;\n" + kClusterSync),
            {2, 1, 1}, {64, 1, 1}, "uninit");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].kind, CheckKind::kUninit);
}

// Block 0 writes global memory and arrives at block 1's mbarrier, which waits and reads it.
TEST_F(CheckerCluster, AnArrivalAtAnotherBlocksMbarrierOrdersWhatCameBefore) {
  expect_none(check(
      kernel(".shared .align 8 .b64 bar;\n" + kOther +
             "mov.u32 %r13, bar;\nmapa.shared::cluster.u32 %r14, %r13, 1;\n"
             "setp.eq.u32 %p0, %r10, 1;\nsetp.eq.and.u32 %p1, %r1, 0, %p0;\n"
             "@%p1 mbarrier.init.shared.b64 [%r13], 32;\n" +
             kClusterSync +
             "@%p0 bra reader;\nst.global.u32 [%rd11], %r1;\n"
             "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14];\nbra done;\n"
             "reader:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r13], 0;\n"
             "@!%p2 bra reader;\nld.global.u32 %r15, [%rd12];\nst.global.u32 [%rd11], %r15;\n"
             "done:\n" +
             kClusterSync),
      {2, 1, 1}, {32, 1, 1}, "race,uninit"));
}

}  // namespace
}  // namespace sluice::exec
