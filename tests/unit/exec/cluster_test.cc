// SPDX-License-Identifier: Apache-2.0
// Thread block clusters: special registers, barrier.cluster, mapa and getctarank, shared memory of
// other blocks.
#include <numeric>

#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

class ExecCluster : public ExecTest {
 protected:
  // The grid in clusters of `size`; text of entry `k`.
  RunState run(const std::string& text, Dim3 grid, Dim3 block, Dim3 size) {
    EXPECT_TRUE(load(text)) << error_;
    if (!image_) return RunState::kFault;
    memory_.assign(4096, 0);
    if (base_ == 0) base_ = share(memory_);
    cluster_ = size;
    explicit_cluster_ = true;
    return launch(grid, block, {base_});
  }

  std::vector<uint32_t> memory_;
  uint64_t base_ = 0;
};

// Each thread's 32-bit element of the array at %rd0, of one-dimensional grids: kIndex. And the
// shared array `s` of 64 words, where this thread's word is at %r4; %r5: the rank, %r6: the next
// block's.
const std::string kWords = ".shared .align 16 .b32 s[64];\n" + std::string(kIndex) +
                           "mov.u32 %r4, s;\nmad.lo.u32 %r4, %r0, 4, %r4;\n"
                           "mov.u32 %r5, %cluster_ctarank;\nmov.u32 %r7, %cluster_nctarank;\n"
                           "add.u32 %r6, %r5, 1;\nrem.u32 %r6, %r6, %r7;\n";
const std::string kSync =
    "barrier.cluster.arrive.release.aligned;\n"
    "barrier.cluster.wait.acquire.aligned;\n";

TEST_F(ExecCluster, RegistersOfABlockInTheMiddle) {
  // Blocks of 8 x 6 x 2 in clusters of 2 x 3 x 1: 4 x 2 x 2 clusters. Block (5, 4, 1) is in cluster
  // (2, 1, 1), there at (1, 1, 0), which is its rank 1 + 2 * 1 = 3 of 6.
  std::string body =
      "mov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ctaid.y;\nmov.u32 %r2, %ctaid.z;\n"
      "setp.ne.u32 %p0, %r0, 5;\n@%p0 ret;\nsetp.ne.u32 %p0, %r1, 4;\n@%p0 ret;\n"
      "setp.ne.u32 %p0, %r2, 1;\n@%p0 ret;\n";
  int at = 0;
  const auto store = [&](const std::string& name) {
    body += "mov.u32 %r3, %" + name + ";\nst.global.u32 [%rd0+" + std::to_string(at) + "], %r3;\n";
    at += 4;
  };
  for (const char* name : {"clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"})
    for (const char* axis : {".x", ".y", ".z"}) store(std::string(name) + axis);
  store("cluster_ctarank");
  store("cluster_nctarank");
  body +=
      "mov.pred %p1, %is_explicit_cluster;\nselp.u32 %r3, 1, 0, %p1;\n"
      "st.global.u32 [%rd0+56], %r3;\n";
  ASSERT_EQ(run(kernel(body), {8, 6, 2}, {1, 1, 1}, {2, 3, 1}), RunState::kDone);
  const std::vector<uint32_t> expected = {2, 1, 1, 4, 2, 2, 1, 1, 0, 2, 3, 1, 3, 6, 1};
  EXPECT_EQ(std::vector<uint32_t>(memory_.begin(), memory_.begin() + 15), expected);
}

TEST_F(ExecCluster, ALaunchWithoutClustersHasThoseOfOneBlock) {
  ASSERT_TRUE(load(kernel(
      std::string(kIndex) +
      "mov.u32 %r4, %cluster_nctarank;\nmov.u32 %r5, %clusterid.x;\nmov.u32 %r6, %nclusterid.x;\n"
      "mov.pred %p1, %is_explicit_cluster;\nselp.u32 %r7, 1000, 0, %p1;\n"
      "mad.lo.u32 %r4, %r4, 100, %r5;\nmad.lo.u32 %r4, %r6, 10, %r4;\nadd.u32 %r4, %r4, %r7;\n"
      "barrier.cluster.arrive;\nbarrier.cluster.wait;\nst.global.u32 [%rd10], %r4;\n")))
      << error_;
  memory_.assign(3, 0);
  ASSERT_EQ(launch({3, 1, 1}, {1, 1, 1}, {share(memory_)}), RunState::kDone);
  EXPECT_EQ(memory_, (std::vector<uint32_t>{130, 131, 132}));
}

// Whoever goes on before the others have come reads an older round's number.
TEST_F(ExecCluster, TheBarrierKeepsBlocksInStep) {
  slice_ = 7;
  const std::string text =
      kernel(kWords +
             "mov.u32 %r8, 0;\nmov.u32 %r10, 0;\n"
             "mul.wide.u32 %rd8, %r6, 4;\nadd.u64 %rd8, %rd0, %rd8;\n"
             "mul.wide.u32 %rd7, %r5, 4;\nadd.u64 %rd7, %rd0, %rd7;\nround:\n"
             "add.u32 %r8, %r8, 1;\nst.volatile.global.u32 [%rd7+1024], %r8;\n" +
             kSync +
             "ld.volatile.global.u32 %r9, [%rd8+1024];\n"
             "setp.ne.u32 %p0, %r9, %r8;\n@%p0 add.u32 %r10, %r10, 1;\n" +
             kSync +
             "setp.lt.u32 %p0, %r8, 20;\n@%p0 bra round;\n"
             "st.global.u32 [%rd10], %r10;\n");
  ASSERT_EQ(run(text, {4, 1, 1}, {40, 1, 1}, {4, 1, 1}), RunState::kDone);
  EXPECT_EQ(std::accumulate(memory_.begin(), memory_.begin() + 160, 0u), 0u);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(memory_[256 + rank], 20u);
}

// Threads that have ended are not waited for, nor whole blocks, before or after others wait.
TEST_F(ExecCluster, ThreadsThatHaveEndedCountAsArrived) {
  for (const uint64_t slice : {1, 1000}) {
    slice_ = slice;
    const std::string text =
        kernel(kWords +
               "setp.eq.u32 %p0, %r5, 1;\n@%p0 exit;\nsetp.lt.u32 %p0, %r0, 5;\n@%p0 exit;\n"
               "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
               "st.global.u32 [%rd10], 1;\n");
    ASSERT_EQ(run(text, {3, 1, 1}, {40, 1, 1}, {3, 1, 1}), RunState::kDone) << fault_.describe();
    EXPECT_EQ(std::accumulate(memory_.begin(), memory_.begin() + 120, 0u), 70u);
  }
}

// Between an arrival and its wait a thread may do other work, here whole barriers of its block.
TEST_F(ExecCluster, ArrivalAndWaitAreApart) {
  slice_ = 5;
  const std::string text = kernel(kWords +
                                  "barrier.cluster.arrive.relaxed;\nbar.sync 0;\n"
                                  "st.shared.u32 [%r4], %r3;\nbar.sync 0;\n"
                                  "barrier.cluster.wait;\n" +
                                  kSync +
                                  "mapa.shared::cluster.u32 %r8, %r4, %r6;\n"
                                  "ld.shared::cluster.u32 %r9, [%r8];\n"
                                  "st.global.u32 [%rd10], %r9;\n" +
                                  kSync);
  ASSERT_EQ(run(text, {2, 1, 1}, {64, 1, 1}, {2, 1, 1}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(memory_[i], (i + 64) % 128) << i;
}

// What the manual leaves undefined is as on an H100: a wait without an arrival, two arrivals.
TEST_F(ExecCluster, WaitsAndArrivalsThatDoNotPairDoNotHang) {
  EXPECT_EQ(run(kernel("barrier.cluster.wait;"), {2, 1, 1}, {32, 1, 1}, {2, 1, 1}),
            RunState::kDone);
  EXPECT_EQ(run(kernel("barrier.cluster.arrive;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;"),
                {2, 1, 1}, {32, 1, 1}, {2, 1, 1}),
            RunState::kDone);
}

TEST_F(ExecCluster, ABarrierThatNobodyCanCompleteIsAFault) {
  // Thread 0 of block 1 waits for 32 threads at barrier 1, the rest at the cluster's.
  const std::string text =
      kernel(kWords +
             "setp.eq.u32 %p0, %r5, 1;\nsetp.lt.and.u32 %p0, %r0, 32, %p0;\n"
             "@%p0 bra own;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\nret;\n"
             "own:\nbarrier.sync 1, 64;\n");
  ASSERT_EQ(run(text, {2, 1, 1}, {64, 1, 1}, {2, 1, 1}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kDeadlock);
}

TEST_F(ExecCluster, AddressesAreMappedAndNameTheirBlock) {
  const std::string text = kernel(
      kWords +
      "mapa.shared::cluster.u32 %r8, %r4, %r6;\n"
      "getctarank.shared::cluster.u32 %r10, %r8;\ngetctarank.shared::cluster.u32 %r11, %r4;\n"
      "cvt.u64.u32 %rd1, %r4;\nmapa.shared::cluster.u64 %rd2, %rd1, %r6;\n"
      "cvta.shared.u64 %rd3, %rd1;\nmapa.u64 %rd4, %rd3, %r6;\ngetctarank.u64 %r12, %rd4;\n"
      "cvta.to.shared.u64 %rd5, %rd4;\nsub.u64 %rd6, %rd5, %rd2;\ncvt.u32.u64 %r13, %rd6;\n"
      "isspacep.shared::cta %p1, %rd3;\nisspacep.shared::cluster %p2, %rd4;\n"
      "isspacep.shared::cta %p3, %rd4;\nisspacep.global %p4, %rd4;\n"
      "mapa.u64 %rd7, %rd3, %r5;\nisspacep.shared::cta %p5, %rd7;\n"
      "selp.u32 %r14, 1, 0, %p1;\n@%p2 add.u32 %r14, %r14, 10;\n"
      "@%p3 add.u32 %r14, %r14, 100;\n@%p4 add.u32 %r14, %r14, 1000;\n"
      "@%p5 add.u32 %r14, %r14, 10000;\n"
      "mul.wide.u32 %rd9, %r1, 16;\nadd.u64 %rd9, %rd9, %rd0;\n"
      "st.global.v4.u32 [%rd9], {%r10, %r11, %r12, %r13};\n"
      "mul.wide.u32 %rd9, %r1, 4;\nadd.u64 %rd9, %rd9, %rd0;\n"
      "st.global.u32 [%rd9+64], %r14;\n");
  ASSERT_EQ(run(text, {3, 1, 1}, {1, 1, 1}, {3, 1, 1}), RunState::kDone);
  for (uint32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(memory_[4 * r], (r + 1) % 3);
    EXPECT_EQ(memory_[4 * r + 1], r);
    EXPECT_EQ(memory_[4 * r + 2], (r + 1) % 3);
    EXPECT_EQ(memory_[4 * r + 3], 0u);
    EXPECT_EQ(memory_[16 + r], 10011u);
  }
}

// A ring: each block's words are written, read and counted up by its neighbours, in every state
// space and width in which they can be named.
TEST_F(ExecCluster, LoadsStoresAndAtomicsReachOtherBlocks) {
  const std::string text = kernel(
      kWords +
      "mapa.shared::cluster.u32 %r8, %r4, %r6;\n"  // the next block's word
      "cvt.u64.u32 %rd1, %r4;\ncvta.shared.u64 %rd1, %rd1;\n"
      "mapa.u64 %rd2, %rd1, %r6;\n"  // the same, generic
      "st.shared.u32 [%r4], 0;\n" +
      kSync + "st.shared::cluster.u32 [%r8], %r3;\n" + kSync +  // index of the block before
      "ld.shared.u32 %r9, [%r4];\nst.global.u32 [%rd10], %r9;\n" + kSync +
      "atom.add.u32 %r10, [%rd2], 1000;\n"  // generic
      "st.global.u32 [%rd10+1024], %r10;\n" +
      kSync + "red.relaxed.cluster.shared::cluster.add.u32 [%r8], 7;\n" + kSync +
      "ld.u32 %r11, [%rd2];\nst.global.u32 [%rd10+2048], %r11;\n"
      "atom.shared::cluster.cas.b32 %r12, [%r8], %r11, 5;\n" +
      kSync + "ld.shared::cta.u32 %r13, [%r4];\nst.global.u32 [%rd10+3072], %r13;\n" + kSync);
  for (const uint64_t slice : {3, 1000}) {
    slice_ = slice;
    ASSERT_EQ(run(text, {4, 1, 1}, {48, 1, 1}, {4, 1, 1}), RunState::kDone) << fault_.describe();
    for (uint32_t i = 0; i < 192; ++i) {
      const uint32_t before = (i + 144) % 192;  // the same thread of the block before
      EXPECT_EQ(memory_[i], before) << i;
      EXPECT_EQ(memory_[256 + i], i) << "what it has stored itself";
      EXPECT_EQ(memory_[512 + i], i + 1007) << i;
      EXPECT_EQ(memory_[768 + i], 5u) << i;
    }
  }
}

// Vectors, bytes and 64 bits; a warp of which each lane reads another block.
TEST_F(ExecCluster, LanesMayNameDifferentBlocks) {
  const std::string text =
      kernel(kWords + "st.shared.u32 [%r4], %r3;\n" + kSync +
             "and.b32 %r8, %r0, 3;\nmov.u32 %r9, s;\nmapa.shared::cluster.u32 %r10, %r9, %r8;\n"
             "ld.shared::cluster.v4.u32 {%r11, %r12, %r13, %r14}, [%r10+32];\n"
             "add.u32 %r11, %r11, %r14;\nld.shared::cluster.u8 %r15, [%r10+8];\n"
             "ld.shared::cluster.u64 %rd3, [%r10+16];\nshr.u64 %rd3, %rd3, 32;\n"
             "cvt.u32.u64 %r16, %rd3;\nadd.u32 %r11, %r11, %r15;\nadd.u32 %r11, %r11, %r16;\n"
             "st.global.u32 [%rd10], %r11;\n" +
             kSync);
  ASSERT_EQ(run(text, {4, 1, 1}, {32, 1, 1}, {4, 1, 1}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 128; ++i) {
    const uint32_t base = 32 * (i & 3);  // words 8, 11, 2 and 5 of that block
    EXPECT_EQ(memory_[i], 4 * base + 8 + 11 + 2 + 5) << i;
  }
}

TEST_F(ExecCluster, WhatIsNotThereIsAFault) {
  struct {
    const char *name, *body, *says;
    FaultKind kind;
  } const cases[] = {
      {"a rank that is not there", "mapa.shared::cluster.u32 %r8, %r4, 2;\n", "no block",
       FaultKind::kNoBlock},
      {"beyond its memory", "mapa.shared::cluster.u32 %r8, %r4, 1;\nadd.u32 %r8, %r8, 256;\n",
       "256 bytes", FaultKind::kSharedBounds},
      {"below it", "mapa.shared::cluster.u32 %r8, %r4, 1;\nsub.u32 %r8, %r8, 64;\n", "bytes",
       FaultKind::kSharedBounds},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string text =
        kernel(kWords + kSync + c.body + "ld.shared::cluster.u32 %r9, [%r8];\n" + kSync);
    ASSERT_EQ(run(text, {2, 1, 1}, {32, 1, 1}, {2, 1, 1}), RunState::kFault);
    EXPECT_EQ(fault_.kind, c.kind);
    EXPECT_NE(fault_.describe().find(c.says), std::string::npos) << fault_.describe();
  }
  // .shared is the block's own; st.shared of another's address is not PTX.
  ASSERT_EQ(
      run(kernel(kWords + kSync +
                 "mapa.shared::cluster.u32 %r8, %r4, %r6;\nst.shared.u32 [%r8], 1;\n" + kSync),
          {2, 1, 1}, {32, 1, 1}, {2, 1, 1}),
      RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kOthersShared);
  EXPECT_EQ(fault_.space, "shared");
}

TEST_F(ExecCluster, SharedMemoryOfABlockThatHasEndedIsGone) {
  const std::string text =
      kernel(kWords + "mapa.shared::cluster.u32 %r8, %r4, 1;\n" + kSync +
             "setp.eq.u32 %p0, %r5, 1;\n@%p0 ret;\nmov.u32 %r9, 0;\nagain:\nadd.u32 %r9, %r9, 1;\n"
             "setp.lt.u32 %p0, %r9, 20000;\n@%p0 bra again;\nst.shared::cluster.u32 [%r8], 1;\n");
  ASSERT_EQ(run(text, {2, 1, 1}, {32, 1, 1}, {2, 1, 1}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kNoBlock);
  EXPECT_EQ(fault_.space, "shared::cluster");
  EXPECT_EQ(fault_.block.x, 0u);
  EXPECT_NE(fault_.describe().find("block 1 of the cluster has ended"), std::string::npos)
      << fault_.describe();
}

// A block alone is rank 0 of its own cluster.
TEST_F(ExecCluster, ABlockAloneReachesItselfByItsRank) {
  const std::string text = kernel(kWords +
                                  "mapa.shared::cluster.u32 %r8, %r4, 0;\n"
                                  "st.shared::cluster.u32 [%r8], 42;\nld.shared.u32 %r9, [%r4];\n"
                                  "ld.shared.u32 %r10, [%r8];\nadd.u32 %r9, %r9, %r10;\n"
                                  "st.global.u32 [%rd10], %r9;\n");
  ASSERT_EQ(run(text, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}), RunState::kDone) << fault_.describe();
  EXPECT_EQ(memory_[0], 84u);
}

// Every block arrives at the mbarrier of rank 0, which waits for all and reads what they left
// there.
TEST_F(ExecCluster, OtherBlocksArriveAtAnMbarrier) {
  const std::string text = kernel(
      ".shared .align 8 .b64 bar;\n" + kWords +
      "mov.u32 %r8, bar;\nmapa.shared::cluster.u32 %r9, %r8, 0;\n"
      "setp.eq.u32 %p0, %r5, 0;\nsetp.eq.and.u32 %p1, %r0, 0, %p0;\n"
      "@%p1 mbarrier.init.shared::cta.b64 [%r8], 128;\nfence.mbarrier_init.release.cluster;\n" +
      kSync +
      "mov.u32 %r10, s;\nmapa.shared::cluster.u32 %r10, %r10, 0;\nmad.lo.u32 %r10, %r5, 4, %r10;\n"
      "add.u32 %r11, %r5, 1;\nst.shared::cluster.u32 [%r10], %r11;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];\n"
      "@!%p0 bra done;\n"
      "wait:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r8], 0;\n"
      "@!%p2 bra wait;\n"
      "ld.shared.v4.u32 {%r12, %r13, %r14, %r15}, [s];\n"
      "mad.lo.u32 %r12, %r13, 10, %r12;\nmad.lo.u32 %r12, %r14, 100, %r12;\n"
      "mad.lo.u32 %r12, %r15, 1000, %r12;\nst.global.u32 [%rd10], %r12;\ndone:\n" +
      kSync);
  for (const uint64_t slice : {3, 1000}) {
    slice_ = slice;
    ASSERT_EQ(run(text, {4, 1, 1}, {32, 1, 1}, {4, 1, 1}), RunState::kDone) << fault_.describe();
    for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(memory_[i], 4321u) << i;
  }
}

// Bulk copies: from shared memory to another block's, whose mbarrier counts the bytes; and from
// global memory to several blocks at once.
TEST_F(ExecCluster, BulkCopiesGoToOtherBlocks) {
  const std::string text = kernel(
      ".shared .align 16 .b32 in[64];\n.shared .align 8 .b64 bar;\n" + kWords +
      "mov.u32 %r8, bar;\nmov.u32 %r9, in;\nmov.u32 %r10, s;\n"
      "st.shared.u32 [%r4], %r3;\nsetp.eq.u32 %p0, %r0, 0;\n"
      "@%p0 mbarrier.init.shared::cta.b64 [%r8], 1;\n"
      "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 256;\n" +
      kSync +
      "mapa.shared::cluster.u32 %r11, %r9, %r6;\nmapa.shared::cluster.u32 %r12, %r8, %r6;\n"
      "@%p0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
      "[%r11], [%r10], 256, [%r12];\n"
      "wait:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0;\n@!%p2 bra wait;\n"
      "mad.lo.u32 %r13, %r0, 4, %r9;\nld.shared.u32 %r14, [%r13];\n"
      "st.global.u32 [%rd10], %r14;\n" +
      kSync +
      // Round 2: rank 0 sends 64 words from global memory to blocks 1 and 3.
      "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 256;\n" + kSync +
      "setp.eq.and.u32 %p1, %r5, 0, %p0;\nmov.b16 %rs1, 10;\nadd.u64 %rd1, %rd0, 4096;\n"
      "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%r9], [%rd1], 256, [%r8], %rs1;\n" +
      kSync +
      "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r8], 1;\nselp.u32 %r15, 1000, 0, %p2;\n"
      "ld.shared.u32 %r14, [%r13];\nadd.u32 %r14, %r14, %r15;\n"
      "st.global.u32 [%rd10+2048], %r14;\n" +
      kSync);
  ASSERT_TRUE(load(text)) << error_;
  memory_.assign(4096, 0);
  for (uint32_t i = 0; i < 64; ++i) memory_[1024 + i] = 5000 + i;
  cluster_ = {4, 1, 1};
  ASSERT_EQ(launch({4, 1, 1}, {64, 1, 1}, {share(memory_)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t before = (i + 192) % 256;
    EXPECT_EQ(memory_[i], before) << i;
    const bool sent = i / 64 == 1 || i / 64 == 3;
    EXPECT_EQ(memory_[512 + i], sent ? 6000 + i % 64 : before) << i;
  }
}

// Each thread stores a pair to the next block and adds to a sum there; the mbarrier there counts
// the bytes of both.
TEST_F(ExecCluster, AsynchronousStoresAndReductionsCountAtTheMbarrier) {
  const std::string text = kernel(
      ".shared .align 16 .b64 pairs[64];\n.shared .align 8 .b64 bar;\n.shared .align 8 .b64 "
      "sum;\n" +
      kWords +
      "mov.u32 %r8, bar;\nmov.u32 %r9, pairs;\nmov.u32 %r10, sum;\nsetp.eq.u32 %p0, %r0, 0;\n"
      "@%p0 mbarrier.init.shared::cta.b64 [%r8], 1;\n@%p0 st.shared.u64 [%r10], 5;\n"
      "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 512;\n" +  // 32 * (8 + 8)
      kSync +
      "mad.lo.u32 %r9, %r0, 8, %r9;\nmapa.shared::cluster.u32 %r11, %r9, %r6;\n"
      "mapa.shared::cluster.u32 %r12, %r8, %r6;\nmapa.shared::cluster.u32 %r13, %r10, %r6;\n"
      "add.u32 %r14, %r3, 1000;\ncvt.u64.u32 %rd1, %r3;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r11], {%r3, %r14}, "
      "[%r12];\n"
      "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [%r13], "
      "%rd1, "
      "[%r12];\n"
      "wait:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0;\n@!%p2 bra wait;\n"
      "ld.shared.v2.u32 {%r15, %r16}, [%r9];\nld.shared.u32 %r17, [%r10];\n"
      "mul.wide.u32 %rd9, %r3, 12;\nadd.u64 %rd9, %rd9, %rd0;\n"
      "st.global.u32 [%rd9], %r15;\nst.global.u32 [%rd9+4], %r16;\nst.global.u32 [%rd9+8], "
      "%r17;\n" +
      kSync);
  for (const uint64_t slice : {3, 1000}) {
    slice_ = slice;
    ASSERT_EQ(run(text, {3, 1, 1}, {32, 1, 1}, {3, 1, 1}), RunState::kDone) << fault_.describe();
    for (uint32_t i = 0; i < 96; ++i) {
      const uint32_t before = (i + 64) % 96, first = before / 32 * 32;
      EXPECT_EQ(memory_[3 * i], before) << i;
      EXPECT_EQ(memory_[3 * i + 1], before + 1000) << i;
      EXPECT_EQ(memory_[3 * i + 2], 5 + 32 * first + 496) << i;
    }
  }
}

TEST_F(ExecCluster, TheLaunchMustSuitTheKernel) {
  ASSERT_TRUE(
      load(".version 8.0\n.target sm_90\n.address_size 64\n"
           ".visible .entry r() .reqnctapercluster 2, 1, 2 { ret; }\n"
           ".visible .entry e() .explicitcluster .maxclusterrank 4 { ret; }\n"
           ".visible .entry k() { ret; }\n"))
      << error_;
  const EntryInfo& r = *program_->find_entry("r");
  EXPECT_EQ(r.required_cluster[0], 2u);
  EXPECT_EQ(r.required_cluster[1], 1u);
  EXPECT_EQ(r.required_cluster[2], 2u);
  EXPECT_TRUE(program_->find_entry("e")->explicit_cluster);
  EXPECT_EQ(program_->find_entry("e")->max_cluster_blocks, 4u);
  const auto made = [&](const char* name, Dim3 grid, Dim3 cluster) {
    LaunchShape shape{grid, {32, 1, 1}};
    shape.cluster = cluster;
    return Block::make(image_, name, shape, {}, map_, environment_).ok();
  };
  EXPECT_TRUE(made("r", {4, 4, 4}, {2, 1, 2}));
  EXPECT_FALSE(made("r", {4, 4, 4}, {1, 1, 1}));
  EXPECT_FALSE(made("r", {4, 4, 4}, {2, 2, 1}));
  EXPECT_TRUE(made("k", {16, 1, 1}, {16, 1, 1}));
  EXPECT_FALSE(made("k", {34, 1, 1}, {17, 1, 1}));
  EXPECT_FALSE(made("k", {9, 1, 1}, {2, 1, 1}));
  EXPECT_FALSE(made("k", {8, 1, 1}, {0, 1, 1}));
  for (const char* bad : {".reqnctapercluster 0, 1, 1", ".reqnctapercluster x",
                          ".reqnctapercluster 1, 1, 1, 1", ".maxclusterrank 99999"})
    EXPECT_FALSE(load(std::string(".version 8.0\n.target sm_90\n.address_size 64\n"
                                  ".visible .entry e() ") +
                      bad + " { ret; }\n"))
        << bad;
}

}  // namespace
}  // namespace sluice::exec
