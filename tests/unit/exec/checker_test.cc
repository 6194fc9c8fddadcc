// SPDX-License-Identifier: Apache-2.0
// The checker: every kind of finding in a kernel that has it, with the right lines and parties, and
// silence where a kernel is right. Races: checker_race_test.cc.
#include "tests/unit/exec/checker_fixture.h"

namespace sluice::exec {
namespace {

// --- options and text ---

TEST(CheckerOptions, Words) {
  auto some = CheckOptions::parse("memory,race");
  ASSERT_TRUE(some);
  EXPECT_TRUE(some->memory && some->race && !some->uninit && !some->barrier && !some->error);
  auto every = CheckOptions::parse("all,error");
  ASSERT_TRUE(every);
  EXPECT_TRUE(every->memory && every->race && every->uninit && every->barrier && every->error);
  EXPECT_FALSE(CheckOptions::parse("")->any());
  EXPECT_FALSE(CheckOptions::parse("memory,rase"));
}

// --- what nobody has written ---

TEST_F(CheckerTest, UnwrittenGlobalMemory) {
  defined_ = false;
  const auto found = check(kernel(kShared + kThread +
                                  "st.global.u32 [%rd10], %r1;\n"
                                  "ld.global.u32 %r8, [%rd10];\n"
                                  "ld.global.u32 %r9, [%rd10+1024];\n"
                                  "st.global.u32 [%rd10], %r9;"),
                           {1, 1, 1}, {32, 1, 1}, "uninit");
  expect_one(found, CheckKind::kUninit, "ld.global.u32 %r9");
  EXPECT_EQ(found[0].address, reinterpret_cast<uint64_t>(memory_.data()) + 1024);
  EXPECT_NE(found[0].detail.find("PTX line " + std::to_string(line_of(text_, "[%rd10], %r9"))),
            std::string::npos)
      << found[0].describe();
}

// One element too many is read, compared and thrown away, as merging does: no mistake.
TEST_F(CheckerTest, SpeculativeReadsThatCountForNothing) {
  defined_ = false;
  expect_none(check(kernel(kShared + kThread +
                           "ld.shared.u32 %r8, [%r5+1024];\n"  // nobody writes there
                           "setp.lt.u32 %p1, %r8, 5;\n"
                           "setp.gt.u32 %p2, %r1, 100;\n"  // never
                           "and.pred %p3, %p1, %p2;\n"
                           "selp.u32 %r9, %r8, %r1, %p3;\n"
                           "@%p3 bra END;\n"
                           "st.global.u32 [%rd10], %r9;\nEND:"),
                    {1, 1, 1}, {64, 1, 1}));
}

// Where it does count it is found behind any arithmetic, and by way of shared memory.
TEST_F(CheckerTest, UndefinedValuesAreFollowed) {
  const struct {
    const char *use, *how;
  } kUses[] = {
      {"setp.lt.u32 %p1, %r9, 5;\n@%p1 bra END;\n", "branch"},
      {"cvt.u64.u32 %rd11, %r9;\nand.b64 %rd11, %rd11, 60;\nadd.s64 %rd11, %rd11, %rd0;\n"
       "st.global.u32 [%rd11], 1;\n",
       "address"},
      {"atom.global.add.u32 %r10, [%rd0], %r9;\n", "memory"},
      {"st.shared.u32 [%r5], %r9;\nbar.sync 0;\nld.shared.u32 %r9, [%r5];\n"
       "st.global.u32 [%rd10], %r9;\n",
       "memory"},
      {"cvt.rn.f32.u32 %f1, %r9;\nfma.rn.f32 %f2, %f1, %f1, %f1;\nst.global.f32 [%rd10], %f2;\n",
       "memory"},
  };
  for (const auto& [use, how] : kUses) {
    const auto found = check(kernel(kShared + kThread +
                                    "ld.shared.u32 %r8, [%r5+1024];\n"
                                    "mad.lo.u32 %r9, %r8, 3, %r1;\n" +
                                    use + "END:"),
                             {1, 1, 1}, {32, 1, 1}, "uninit");
    ASSERT_EQ(found.size(), 1u) << use << all(found);
    EXPECT_NE(found[0].detail.find(how), std::string::npos) << found[0].describe();
  }
  // Through shared memory it is the second read that is reported, at its own line.
  const auto found = check(kernel(kShared + kThread +
                                  "ld.shared.u32 %r8, [%r5+1024];\n"
                                  "mov.u32 %r8, 7;\n"
                                  "st.global.u32 [%rd10], %r8;"),
                           {1, 1, 1}, {32, 1, 1}, "uninit");
  expect_none(found);  // overwritten
}

TEST_F(CheckerTest, CopiesCarryWhatIsWritten) {
  Checker checker(*CheckOptions::parse("uninit"));
  checker.on_allocate(0x10000, 64, 1);
  checker.on_allocate(0x20000, 64, 2);
  checker.on_write(0x10010, 16);
  checker.on_copy(0x20000, 0x10000, 64);
  const std::lock_guard lock(checker.shadow().mutex());
  EXPECT_TRUE(checker.shadow().never_written(0x20000, 16));
  EXPECT_FALSE(checker.shadow().never_written(0x20010, 16));
  EXPECT_TRUE(checker.shadow().never_written(0x20020, 32));
  EXPECT_FALSE(checker.shadow().never_written(0x2000f, 2));  // one of the two is
  EXPECT_FALSE(checker.shadow().never_written(0x30000, 4));  // not known
}

TEST_F(CheckerTest, UnwrittenSharedAndLocalMemory) {
  const std::string local = ".local .align 4 .b8 loc[64];\n";
  const auto found = check(kernel(kShared + local + kThread +
                                  "st.shared.u32 [%r5], %r1;\n"
                                  "ld.shared.u32 %r8, [%r5];\n"
                                  "ld.shared.u32 %r9, [%r5+2048];\n"
                                  "st.local.u32 [loc+8], %r8;\n"
                                  "ld.local.u32 %r10, [loc+8];\n"
                                  "ld.local.u32 %r11, [loc+12];\n"
                                  "st.global.u32 [%rd10], %r9;\n"
                                  "add.u32 %r12, %r8, %r11;\nst.global.u32 [%rd10], %r12;"),
                           {1, 1, 1}, {32, 1, 1}, "uninit");
  ASSERT_EQ(found.size(), 2u) << all(found);
  EXPECT_EQ(found[0].space, "shared");
  EXPECT_EQ(found[0].party.line, line_of(text_, "[%r5+2048]"));
  EXPECT_EQ(found[1].space, "local");
  EXPECT_EQ(found[1].party.line, line_of(text_, "[loc+12]"));
}

// A struct with padding is copied whole; its padding is read by nobody else.
TEST_F(CheckerTest, PaddingIsNoFinding) {
  const std::string local = ".local .align 8 .b8 loc[16];\n";
  expect_none(check(kernel(kShared + local + kThread +
                           "st.local.u8 [loc], %r1;\nst.local.u32 [loc+4], %r1;\n"
                           "ld.local.u64 %rd11, [loc];\nst.global.u64 [%rd0], %rd11;"),
                    {1, 1, 1}, {1, 1, 1}));
}

// Shared memory of the block before is gone.
TEST_F(CheckerTest, EachBlockBeginsWithUnwrittenSharedMemory) {
  const std::string text = kernel(kShared + kThread +
                                  "setp.eq.u32 %p1, %r2, 0;\n@%p1 st.shared.u32 [%r5], %r1;\n"
                                  "bar.sync 0;\n@%p1 bra END;\n"
                                  "ld.shared.u32 %r8, [%r5];\nst.global.u32 [%rd10], %r8;\nEND:");
  ASSERT_TRUE(load(text));
  Checker checker(*CheckOptions::parse("uninit"));
  environment_.checker = &checker;
  memory_.assign(4096, 0);
  EXPECT_EQ(launch({2, 1, 1}, {32, 1, 1}, {share(memory_)}), RunState::kDone);
  ASSERT_EQ(checker.findings().size(), 1u);
  EXPECT_EQ(checker.findings()[0].party.block.x, 1u);
}

TEST_F(CheckerTest, ArgumentsOfCallsAreWritten) {
  expect_none(check(
      kernel(kShared + kThread +
                 "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), twice, (a); "
                 "ld.param.b32 %r8, [b]; }\nst.global.u32 [%rd10], %r8;",
             ".func (.param .b32 out) twice(.param .b32 in)\n{\n.reg .b32 %x;\n"
             ".local .align 4 .b8 keep[8];\n"
             "ld.param.b32 %x, [in];\nst.local.b32 [keep+4], %x;\nld.local.b32 %x, [keep+4];\n"
             "add.u32 %x, %x, %x;\nst.param.b32 [out], %x;\nret;\n}\n"),
      {1, 1, 1}, {40, 1, 1}));
}

// --- barriers ---

// Threads below `bound` come to the one barrier, the others to the other.
std::string two_sides(const std::string& bound, const std::string& one, const std::string& other) {
  return kShared + kThread + "setp.lt.u32 %p1, %r1, " + bound + ";\n@!%p1 bra ELSE;\n" + one +
         ";\nst.global.u32 [%rd10], 1;\nbra END;\nELSE: \n" + other +
         ";\nst.global.u32 [%rd10], 2;\nEND:";
}

TEST_F(CheckerTest, DivergentBarrier) {
  const auto found = check(kernel(kShared + kThread +
                                  "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra PAST;\n"
                                  "bar.sync 0;\n"
                                  "PAST: st.global.u32 [%rd10], %r1;"),
                           {1, 1, 1}, {32, 1, 1}, "barrier");
  expect_one(found, CheckKind::kBarrier, "bar.sync");
  EXPECT_EQ(found[0].party.thread.x, 0u);
  EXPECT_EQ(found[0].other.thread.x, 16u);
}

TEST_F(CheckerTest, TwoSidesOfABranchAtTwoBarriers) {
  const auto found = check(kernel(two_sides("16", "bar.sync 0", "barrier.sync.aligned 0")),
                           {1, 1, 1}, {32, 1, 1}, "barrier");
  expect_one(found, CheckKind::kBarrier, "barrier.sync.aligned", "bar.sync");
}

// barrier.sync without .aligned is meant for that.
TEST_F(CheckerTest, UnalignedBarrierMayDiverge) {
  expect_none(
      check(kernel(two_sides("16", "barrier.sync 0", "barrier.sync 0")), {1, 1, 1}, {32, 1, 1}));
}

TEST_F(CheckerTest, WarpsAtDifferentBarrierInstructions) {
  const auto found = check(kernel(two_sides("32", "bar.sync 0", "barrier.sync.aligned 0")),
                           {1, 1, 1}, {64, 1, 1}, "barrier");
  expect_one(found, CheckKind::kBarrier, "barrier.sync.aligned", "bar.sync");
}

// Threads that have left before count nowhere: the usual `if (i >= n) return;`.
TEST_F(CheckerTest, EarlyReturnBeforeABarrier) {
  for (const char* bound : {"20", "40", "64"})
    expect_none(check(kernel(kShared + kThread + "setp.ge.u32 %p1, %r1, " + bound +
                             ";\n@%p1 ret;\n"
                             "st.shared.u32 [%r5], %r1;\nbar.sync 0;\n"
                             "ld.shared.u32 %r8, [%r3];\nst.global.u32 [%rd10], %r8;"),
                      {1, 1, 1}, {96, 1, 1}));
}

TEST_F(CheckerTest, CountsThatDoNotAgree) {
  const auto found = check(kernel(two_sides("32", "bar.sync 3, 64", "bar.sync 3, 96")), {1, 1, 1},
                           {64, 1, 1}, "barrier");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].kind, CheckKind::kBarrier);
  EXPECT_NE(found[0].detail.find("96 threads"), std::string::npos) << found[0].describe();
  EXPECT_NE(found[0].detail.find("64 threads"), std::string::npos) << found[0].describe();
}

TEST_F(CheckerTest, ArrivalsThatNobodyWaitsFor) {
  const auto found =
      check(kernel(kShared + kThread + "bar.arrive 2, 128;"), {1, 1, 1}, {64, 1, 1}, "barrier");
  expect_one(found, CheckKind::kBarrier, "bar.arrive");
  EXPECT_NE(found[0].detail.find("64 of 128 threads"), std::string::npos) << found[0].describe();
}

// --- memory ---

TEST_F(CheckerTest, FaultsSayWhoFreed) {
  Checker checker(*CheckOptions::parse("memory"));
  environment_.checker = &checker;
  ASSERT_TRUE(load(kernel("st.global.u32 [%rd0], 1;")));
  memory_.assign(64, 0);
  const uint64_t base = reinterpret_cast<uint64_t>(memory_.data());
  checker.on_allocate(base, 256, 5);
  checker.on_free(base, 9);
  EXPECT_EQ(launch({1, 1, 1}, {1, 1, 1}, {base + 8}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kOutOfBounds);
  EXPECT_NE(fault_.describe().find("call 9 freed"), std::string::npos) << fault_.describe();
  EXPECT_NE(fault_.describe().find("call 5 had allocated"), std::string::npos) << fault_.describe();
}

TEST_F(CheckerTest, FaultsSayHowFarOutside) {
  Checker checker(*CheckOptions::parse("memory"));
  environment_.checker = &checker;
  ASSERT_TRUE(load(kernel("st.global.u32 [%rd0], 1;")));
  memory_.assign(64, 0);
  const uint64_t base = share(memory_);
  checker.on_allocate(base, 256, 5);
  EXPECT_EQ(launch({1, 1, 1}, {1, 1, 1}, {base + 256 + 12}), RunState::kFault);
  EXPECT_NE(fault_.describe().find("12 bytes past the end of 256 bytes"), std::string::npos)
      << fault_.describe();
}

TEST(CheckerMemory, Leaks) {
  std::vector<Finding> reported;
  Checker checker(*CheckOptions::parse("memory"),
                  [&reported](const Finding& f) { reported.push_back(f); });
  checker.on_allocate(0x1000, 100, 3);
  checker.on_allocate(0x2000, 200, 4);
  checker.on_free(0x1000, 5);
  checker.report_leaks();
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(reported[0].kind, CheckKind::kLeak);
  EXPECT_EQ(reported[0].bytes, 200u);
  EXPECT_NE(reported[0].describe().find("allocated by call 4"), std::string::npos)
      << reported[0].describe();
  EXPECT_EQ(checker.summary(), "1 findings (1 leak), seen 1 times");
}

// --- what is said, and what follows ---

TEST_F(CheckerTest, ErrorEndsTheLaunch) {
  defined_ = false;
  check(kernel(kShared + kThread + "ld.global.u32 %r9, [%rd10];\nst.global.u32 [%rd10], %r9;"),
        {1, 1, 1}, {32, 1, 1}, "uninit,error");
  EXPECT_EQ(state_, RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kTrap);
  EXPECT_NE(fault_.detail.find("uninit:"), std::string::npos) << fault_.describe();
}

TEST_F(CheckerTest, SourceLines) {
  defined_ = false;
  std::string text = kernel(kShared + kThread +
                            ".loc 1 41 3\nld.global.u32 %r9, [%rd10];\n"
                            ".loc 1 42 3\nst.global.u32 [%rd10], %r9;");
  text += ".file 1 \"/home/someone/reduce.cu\"\n";
  const auto found = check(text, {1, 1, 1}, {32, 1, 1}, "uninit");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].party.source, "reduce.cu:41");
  EXPECT_EQ(found[0].json().rfind("{\"check\":\"uninit\",\"kernel\":\"k\",\"line\":", 0), 0u)
      << found[0].json();
}

TEST_F(CheckerTest, ALimitedNumberIsReported) {
  std::string body = kShared + kThread;
  for (int k = 0; k < 130; ++k)
    body += "ld.global.u32 %r9, [%rd10+" + std::to_string(4 * k) +
            "];\nst.global.u32 [%rd10+8192], %r9;\n";
  defined_ = false;
  const auto found = check(kernel(body), {1, 1, 1}, {1, 1, 1}, "uninit");
  EXPECT_EQ(found.size(), 100u);
  EXPECT_EQ(reported_.size(), 100u);
  EXPECT_EQ(checker_->total(), 130u);
  EXPECT_NE(checker_->summary().find("30 more places"), std::string::npos) << checker_->summary();
}

// Without a checker there is none: the same kernel, unchanged, and no finding anywhere.
TEST_F(CheckerTest, OffMeansOff) {
  environment_.checker = nullptr;
  ASSERT_TRUE(
      load(kernel(kShared + kThread + "ld.shared.u32 %r8, [%r6];\nst.global.u32 [%rd10], %r8;")));
  memory_.assign(4096, 0);
  EXPECT_EQ(launch({1, 1, 1}, {64, 1, 1}, {share(memory_)}), RunState::kDone);
}

}  // namespace
}  // namespace sluice::exec
