// SPDX-License-Identifier: Apache-2.0
// The checker and races: what is one is found with its lines and parties, what is ordered is not.
#include "tests/unit/exec/checker_fixture.h"

namespace sluice::exec {
namespace {

// --- races in shared memory ---

TEST_F(CheckerTest, SharedRaceBetweenWarps) {
  const auto found = check(kernel(kShared + kThread +
                                  "st.shared.u32 [%r5], %r1;\n"
                                  "ld.shared.u32 %r8, [%r6];\n"
                                  "st.global.u32 [%rd10], %r8;"),
                           {1, 1, 1}, {64, 1, 1}, "race");
  // Threads 31 and 63 read what another warp writes, and lanes what the next lane writes.
  expect_one(found, CheckKind::kRace, "ld.shared", "st.shared");
  EXPECT_EQ(found[0].space, "shared");
  EXPECT_GT(found[0].count, 1u);
}

TEST_F(CheckerTest, SharedExchangeWithBarrier) {
  expect_none(check(kernel(kShared + kThread +
                           "mov.u32 %r9, 0;\n"
                           "L: st.shared.u32 [%r5], %r1;\nbar.sync 0;\n"
                           "ld.shared.u32 %r8, [%r6];\nbar.sync 0;\n"
                           "st.global.u32 [%rd10], %r8;\n"
                           "add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p1, %r9, 5;\n@%p1 bra L;"),
                    {2, 1, 1}, {128, 1, 1}, "race,uninit,barrier,memory"));
}

// One barrier is forgotten: the next round's store meets this round's load.
TEST_F(CheckerTest, SharedRaceOverTheLoopsEnd) {
  const auto found = check(kernel(kShared + kThread +
                                  "mov.u32 %r9, 0;\n"
                                  "L: st.shared.u32 [%r5], %r9;\nbar.sync 0;\n"
                                  "ld.shared.u32 %r8, [%r6];\n"
                                  "st.global.u32 [%rd10], %r8;\n"
                                  "add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p1, %r9, 5;\n@%p1 bra L;"),
                           {1, 1, 1}, {64, 1, 1}, "race");
  expect_one(found, CheckKind::kRace, "st.shared", "ld.shared");
}

TEST_F(CheckerTest, WarpSynchronousWithAndWithoutSync) {
  const std::string before = kShared + kThread + "st.shared.u32 [%r5], %r1;\n";
  const std::string after = "ld.shared.u32 %r8, [%r6];\nst.global.u32 [%rd10], %r8;";
  expect_none(check(kernel(before + "bar.warp.sync -1;\n" + after), {1, 1, 1}, {32, 1, 1}, "race"));
  expect_one(check(kernel(before + after), {1, 1, 1}, {32, 1, 1}, "race"), CheckKind::kRace,
             "ld.shared", "st.shared");
}

// Half a warp's collective orders that half only.
TEST_F(CheckerTest, PartialCollectiveOrdersItsLanesOnly) {
  const auto found = check(kernel(kShared + kThread +
                                  "st.shared.u32 [%r5], %r1;\n"
                                  "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra SKIP;\n"
                                  "bar.warp.sync 0xffff;\n"
                                  "ld.shared.u32 %r8, [%r3+4];\n"   // thread 1's: ordered
                                  "ld.shared.u32 %r9, [%r3+80];\n"  // thread 20's: not
                                  "st.global.u32 [%rd10], %r8;\nst.global.u32 [%rd10], %r9;\n"
                                  "SKIP:"),
                           {1, 1, 1}, {32, 1, 1}, "race");
  expect_one(found, CheckKind::kRace, "[%r3+80]", "st.shared");
  EXPECT_EQ(found[0].other.thread.x, 20u);
}

TEST_F(CheckerTest, SharedAtomicsDoNotRaceAmongThemselvesButPlainReadsDo) {
  const std::string body = kShared + kThread +
                           "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%r3], 0;\nbar.sync 0;\n"
                           "atom.shared.add.u32 %r8, [%r3], 1;\n";
  expect_none(
      check(kernel(body + "bar.sync 0;\nld.shared.u32 %r9, [%r3];\nst.global.u32 [%rd10], %r9;"),
            {1, 1, 1}, {96, 1, 1}));
  expect_one(check(kernel(body + "ld.shared.u32 %r9, [%r3];\nst.global.u32 [%rd10], %r9;"),
                   {1, 1, 1}, {96, 1, 1}, "race"),
             CheckKind::kRace, "ld.shared", "atom.shared");
}

// Several write one word and somebody reads what came of it; or nobody does.
TEST_F(CheckerTest, SharedWritesToOneWord) {
  const std::string body =
      kShared + kThread + "st.shared.u32 [%r3+2048], %r1;\nst.shared.u32 [%r5], 3;\nbar.sync 0;\n";
  expect_none(check(kernel(body + "ld.shared.u32 %r9, [%r6];\nst.global.u32 [%rd10], %r9;"),
                    {1, 1, 1}, {96, 1, 1}));
  expect_one(check(kernel(body + "ld.shared.u32 %r9, [%r3+2048];\nst.global.u32 [%rd10], %r9;"),
                   {1, 1, 1}, {96, 1, 1}, "race"),
             CheckKind::kRace, "st.shared.u32 [%r3+2048]", "st.shared.u32 [%r3+2048]");
}

// Bytes: neighbours in one word do not race.
TEST_F(CheckerTest, BytesOfOneWord) {
  expect_none(check(kernel(kShared + kThread +
                           "add.u32 %r9, %r3, %r1;\nst.shared.u8 [%r9], %r1;\nbar.sync 0;\n"
                           "ld.shared.u8 %r8, [%r9];\nst.global.u32 [%rd10], %r8;"),
                    {1, 1, 1}, {256, 1, 1}));
}

// Named barriers: producers arrive, consumers wait.
TEST_F(CheckerTest, ProducerAndConsumerWarps) {
  const std::string produce = kShared + kThread +
                              "setp.lt.u32 %p1, %r1, 32;\n@!%p1 bra CONSUME;\n"
                              "st.shared.u32 [%r5], %r1;\n";
  const std::string consume =
      "bra END;\n"
      "CONSUME:\n"
      "bar.sync 1, 64;\n"
      "ld.shared.u32 %r8, [%r5+-128];\nst.global.u32 [%rd10], %r8;\n"
      "END:";
  expect_none(check(kernel(produce + "bar.arrive 1, 64;\n" + consume), {1, 1, 1}, {64, 1, 1}));
  // What is written after the arrival is not covered by it.
  const auto found =
      check(kernel(produce + "bar.arrive 1, 64;\nst.shared.u32 [%r5], 7;\n" + consume), {1, 1, 1},
            {64, 1, 1}, "race");
  expect_one(found, CheckKind::kRace, "ld.shared", "st.shared.u32 [%r5], 7");
}

// An mbarrier orders what was written before arriving with what is read after waiting.
TEST_F(CheckerTest, Mbarrier) {
  const auto text = [](bool waits) {
    return kernel(kShared + ".shared .align 8 .b64 bar;\n" + kThread +
                  "mov.u32 %r20, bar;\nsetp.eq.u32 %p1, %r1, 0;\n"
                  "@%p1 mbarrier.init.shared.b64 [%r20], 64;\nbar.sync 0;\n"
                  "st.shared.u32 [%r5], %r1;\n"
                  "mbarrier.arrive.shared.b64 %rd12, [%r20];\n" +
                  (waits ? "WAIT: mbarrier.test_wait.shared.b64 %p2, [%r20], %rd12;\n"
                           "@!%p2 bra WAIT;\n"
                         : "") +
                  "ld.shared.u32 %r8, [%r6];\nst.global.u32 [%rd10], %r8;");
  };
  expect_none(check(text(true), {1, 1, 1}, {64, 1, 1}));
  expect_one(check(text(false), {1, 1, 1}, {64, 1, 1}, "race"), CheckKind::kRace, "ld.shared",
             "st.shared");
}

// What stmatrix and cp.async write counts as written, and races like any other access.
TEST_F(CheckerTest, MatricesAndAsynchronousCopies) {
  const std::string body = kShared + kThread +
                           "shl.b32 %r9, %r1, 4;\nadd.u32 %r9, %r9, %r3;\n"  // own 16 bytes
                           "cvt.u64.u32 %rd11, %r1;\nshl.b64 %rd11, %rd11, 4;\n"
                           "add.s64 %rd11, %rd11, %rd0;\n"
                           "cp.async.ca.shared.global [%r9], [%rd11], 16;\n"
                           "cp.async.wait_all;\n";
  const std::string use =
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r9];\n"
      "st.shared.u32 [%r5+2048], %r10;";
  expect_none(check(kernel(body + "bar.sync 0;\n" + use), {1, 1, 1}, {32, 1, 1}));
  const std::string other =
      "xor.b32 %r9, %r9, 512;\n"  // the other warp's
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r9];\n"
      "st.shared.u32 [%r5+2048], %r10;";
  expect_one(check(kernel(body + other), {1, 1, 1}, {64, 1, 1}, "race"), CheckKind::kRace,
             "ldmatrix", "cp.async.ca");
  defined_ = false;
  const auto found =
      check(kernel(kShared + kThread + "mov.u32 %r9, %r5;\nshl.b32 %r9, %r1, 4;\n" + use),
            {1, 1, 1}, {32, 1, 1}, "uninit");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].party.line, line_of(text_, "ldmatrix"));
}

// A lock: what it protects is ordered by it. Two warps: how long they spin grows with the square.
TEST_F(CheckerTest, LockInSharedMemory) {
  const std::string lock =
      kShared + kThread +
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.v2.u32 [%r3], {0, 0};\nbar.sync 0;\n"
      "SPIN: atom.shared.cas.b32 %r8, [%r3], 0, 1;\nsetp.ne.u32 %p2, %r8, 0;\n@%p2 bra SPIN;\n"
      "membar.cta;\n"
      "ld.shared.u32 %r9, [%r3+4];\nadd.u32 %r9, %r9, 1;\nst.shared.u32 [%r3+4], %r9;\n";
  expect_none(check(kernel(lock + "membar.cta;\natom.shared.exch.b32 %r8, [%r3], 0;"), {1, 1, 1},
                    {40, 1, 1}));
  EXPECT_FALSE(
      check(kernel(lock + "atom.shared.exch.b32 %r8, [%r3], 0;"), {1, 1, 1}, {40, 1, 1}, "race")
          .empty());
}

// --- races in global memory ---

TEST_F(CheckerTest, GlobalRaceBetweenBlocks) {
  slice_ = 5;
  const auto found =
      check(kernel(kShared + kThread +
                   "st.global.u32 [%rd10], %r2;\n"  // both blocks the same words
                   "ld.global.u32 %r8, [%rd10+4];\nst.global.u32 [%rd10+2048], %r8;"),
            {2, 1, 1}, {32, 1, 1}, "race");
  ASSERT_FALSE(found.empty());
  bool between_blocks = false;
  for (const Finding& f : found) {
    EXPECT_EQ(f.kind, CheckKind::kRace);
    EXPECT_EQ(f.space, "global");
    between_blocks = between_blocks || f.party.block.x != f.other.block.x;
  }
  EXPECT_TRUE(between_blocks) << all(found);
}

// All write the same value: a flag that says "changed".
TEST_F(CheckerTest, TheSameValueByEverybody) {
  expect_none(check(kernel(kShared + kThread + "st.global.u32 [%rd0], 1;"), {4, 1, 1}, {64, 1, 1}));
}

TEST_F(CheckerTest, NeighbouringBytesByBlocks) {
  slice_ = 3;
  expect_none(check(kernel(kShared + kThread +
                           "mad.lo.u32 %r9, %r2, 2, 0;\ncvt.u64.u32 %rd11, %r9;\n"
                           "add.s64 %rd11, %rd11, %rd0;\n"
                           "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.global.u16 [%rd11], %r2;"),
                    {8, 1, 1}, {32, 1, 1}));
}

// The sum of partial sums by the last block (threadfence reduction).
std::string threadfence_reduction(bool with_fence) {
  return kShared + kThread +
         // partial sum of the block: memory[64 + block] = block + 1
         "add.u32 %r8, %r2, 1;\nmul.wide.u32 %rd11, %r2, 4;\nadd.s64 %rd11, %rd11, %rd0;\n"
         "setp.eq.u32 %p1, %r1, 0;\n"
         "@%p1 st.global.u32 [%rd11+256], %r8;\n" +
         (with_fence ? std::string("membar.gl;\n") : std::string()) +
         "@%p1 atom.global.add.u32 %r9, [%rd0], 1;\n"
         "mov.u32 %r10, %nctaid.x;\nsub.u32 %r10, %r10, 1;\n"
         "@%p1 st.shared.u32 [%r3], %r9;\nbar.sync 0;\nld.shared.u32 %r9, [%r3];\n"
         "setp.ne.u32 %p2, %r9, %r10;\n@%p2 bra END;\n"
         "ld.global.u32 %r11, [%rd10+256];\nst.global.u32 [%rd10+1024], %r11;\n"
         "END:";
}

TEST_F(CheckerTest, ThreadfenceReduction) {
  slice_ = 4;
  expect_none(check(kernel(threadfence_reduction(true)), {8, 1, 1}, {64, 1, 1}));
}

TEST_F(CheckerTest, ThreadfenceReductionWithoutTheFence) {
  slice_ = 4;
  expect_one(check(kernel(threadfence_reduction(false)), {8, 1, 1}, {64, 1, 1}, "race"),
             CheckKind::kRace, "ld.global.u32 %r11", "st.global.u32 [%rd11+256]");
}

// Decoupled look-back: each block waits for its predecessor's value.
std::string look_back(const std::string& publish, const std::string& poll) {
  return kShared + kThread +
         "mul.wide.u32 %rd11, %r2, 4;\nadd.s64 %rd11, %rd11, %rd0;\nsetp.ne.u32 %p1, %r1, 0;\n"
         "@%p1 bra END;\n"
         "mov.u32 %r8, 0;\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra SUM;\n"
         "WAIT: " +
         poll + " %r9, [%rd11+-4];\nsetp.eq.u32 %p3, %r9, 0;\n@%p3 bra WAIT;\n" +
         "ld.global.u32 %r8, [%rd11+508];\n"  // the predecessor's sum
         "SUM: add.u32 %r8, %r8, %r2;\nst.global.u32 [%rd11+512], %r8;\n" +
         publish + " [%rd11], 1;\nEND:";
}

TEST_F(CheckerTest, LookBackByReleaseAndAcquire) {
  slice_ = 6;
  expect_none(check(kernel(look_back("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32")),
                    {12, 1, 1}, {32, 1, 1}));
}

TEST_F(CheckerTest, LookBackByFenceAndVolatile) {
  slice_ = 6;
  expect_none(
      check(kernel(look_back("membar.gl;\nst.volatile.global.u32", "ld.volatile.global.u32")),
            {12, 1, 1}, {32, 1, 1}));
}

TEST_F(CheckerTest, LookBackThatForgetsToRelease) {
  slice_ = 6;
  expect_one(check(kernel(look_back("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32")),
                   {12, 1, 1}, {32, 1, 1}, "race"),
             CheckKind::kRace, "ld.global.u32 %r8", "st.global.u32 [%rd11+512]");
}

// atomicAdd made of compare-and-swap: its plain first load is no race.
// Bulk reductions of several blocks do not race among themselves; copies do.
TEST_F(CheckerTest, BulkReductions) {
  const auto kernel_of = [](const std::string& copy) {
    return kernel(
        ".shared .align 128 .b8 s[128];\nmov.u32 %r1, s; mov.u32 %r2, %tid.x;\n"
        "mad.lo.u32 %r3, %r2, 4, %r1; mov.u32 %r4, %ctaid.x; st.shared.u32 [%r3], %r4;\n"
        "bar.sync 0; setp.ne.u32 %p1, %r2, 0; @%p1 bra N;\n" +
        copy + " [%rd0], [%r1], 128;\nN:");
  };
  expect_none(check(kernel_of("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"),
                    {2, 1, 1}, {32, 1, 1}, "race"));
  const auto found = check(kernel_of("cp.async.bulk.global.shared::cta.bulk_group"), {2, 1, 1},
                           {32, 1, 1}, "race");
  expect_one(found, CheckKind::kRace, "cp.async.bulk", "cp.async.bulk");
}

TEST_F(CheckerTest, CompareAndSwapLoop) {
  slice_ = 7;
  expect_none(check(kernel(kShared + kThread +
                           "ld.global.u32 %r8, [%rd0];\n"
                           "AGAIN: add.u32 %r9, %r8, 1;\n"
                           "atom.global.cas.b32 %r10, [%rd0], %r8, %r9;\n"
                           "setp.ne.u32 %p1, %r10, %r8;\nmov.u32 %r8, %r10;\n@%p1 bra AGAIN;"),
                    {4, 1, 1}, {32, 1, 1}));
  EXPECT_EQ(memory_[0], 128u);
}

// Two launches are ordered by their stream.
TEST_F(CheckerTest, OneLaunchAfterTheOther) {
  const std::string text = kernel(kShared + kThread +
                                  "ld.global.u32 %r8, [%rd10];\nadd.u32 %r8, %r8, %r1;\n"
                                  "st.global.u32 [%rd10], %r8;");
  expect_none(check(text, {1, 1, 1}, {64, 1, 1}));
  const uint64_t base = reinterpret_cast<uint64_t>(memory_.data());
  EXPECT_EQ(launch_interleaved({1, 1, 1}, {64, 1, 1}, parameters({base}), 0), RunState::kDone);
  expect_none(checker_->findings());
}

}  // namespace
}  // namespace sluice::exec
