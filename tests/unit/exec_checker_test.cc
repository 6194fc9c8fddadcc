// The checker: every kind of finding in a kernel that has it, with the right lines and parties, and
// silence where a kernel is right.
#include "kernels/exec/checker.h"

#include <algorithm>

#include "tests/unit/exec_harness.h"

namespace sluice::exec {
namespace {

// The line of `text` in which `part` stands first, from 1.
uint32_t line_of(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return 1 + static_cast<uint32_t>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

class CheckerTest : public ExecTest {
 protected:
  // Runs the kernel on `memory` (parameter 0) with all checks.
  std::vector<Finding> check(const std::string& text, Dim3 grid, Dim3 block,
                             const std::string& checks = "all", uint32_t dynamic_shared = 0) {
    auto options = CheckOptions::parse(checks);
    EXPECT_TRUE(options) << options.error().message;
    checker_ = std::make_unique<Checker>(*options, [this](const Finding& f) { told_.push_back(f); });
    environment_.checker = checker_.get();
    text_ = text;
    EXPECT_TRUE(load(text)) << error_;
    if (memory_.empty()) memory_.assign(4096, 0);
    const uint64_t base = reinterpret_cast<uint64_t>(memory_.data());
    if (map_.size() == 0) share(memory_);
    told_.clear();
    checker_->on_allocate(base, memory_.size() * 4, 1, defined_);
    state_ = launch_interleaved(grid, block, parameters({base}), dynamic_shared);
    return checker_->findings();
  }

  // All blocks of the grid resident at once, in turns of some instructions: so races between blocks
  // are there to be seen whichever comes first, and blocks that wait for one another get on.
  RunState launch_interleaved(Dim3 grid, Dim3 block, const std::vector<std::byte>& bytes,
                              uint32_t dynamic_shared) {
    LaunchShape shape;
    shape.grid = grid;
    shape.block = block;
    shape.dynamic_shared_bytes = dynamic_shared;
    shape.grid_id = ++grid_id_;
    std::vector<std::unique_ptr<Block>> blocks;
    for (uint32_t k = 0; k < grid.count(); ++k) {
      auto made = Block::make(image_, "k", shape, bytes, map_, environment_);
      if (!made) {
        ADD_FAILURE() << made.error().message;
        return RunState::kFault;
      }
      blocks.push_back(std::move(*made));
      blocks.back()->start({k % grid.x, k / grid.x % grid.y, k / grid.x / grid.y}, {0, 1});
    }
    for (int rounds = 0; !blocks.empty(); ++rounds) {
      if (rounds > 1'000'000) {
        ADD_FAILURE() << "the kernel does not end";
        return RunState::kYielded;
      }
      for (size_t k = 0; k < blocks.size();) {
        const RunResult run = blocks[k]->run(slice_);
        if (run.state == RunState::kFault) {
          fault_ = blocks[k]->fault();
          return RunState::kFault;
        }
        if (run.state == RunState::kDone)
          blocks.erase(blocks.begin() + static_cast<long>(k));
        else
          ++k;
      }
    }
    return RunState::kDone;
  }

  static std::string all(const std::vector<Finding>& findings) {
    std::string text;
    for (const Finding& f : findings) text += f.describe() + "\n";
    return text;
  }

  // Exactly one finding, of that kind, between these two lines, in either order (the second empty:
  // nobody else).
  void expect_one(const std::vector<Finding>& findings, CheckKind kind, const std::string& at,
                  const std::string& other = "") {
    ASSERT_EQ(findings.size(), 1u) << all(findings);
    const Finding& f = findings[0];
    EXPECT_EQ(f.kind, kind) << f.describe();
    EXPECT_EQ(f.kernel, "k");
    uint32_t mine = f.party.line, theirs = f.has_other ? f.other.line : 0;
    const uint32_t a = line_of(text_, at), b = other.empty() ? 0 : line_of(text_, other);
    if (b != 0 && mine == b) std::swap(mine, theirs);
    EXPECT_EQ(mine, a) << f.describe();
    if (b != 0) {
      EXPECT_EQ(theirs, b) << f.describe();
    }
    EXPECT_EQ(told_.size(), findings.size());
  }

  void expect_none(const std::vector<Finding>& findings) {
    EXPECT_EQ(state_, RunState::kDone) << fault_.describe();
    EXPECT_TRUE(findings.empty()) << all(findings);
  }

  std::unique_ptr<Checker> checker_;
  std::vector<Finding> told_;
  std::vector<uint32_t> memory_;
  std::string text_;
  RunState state_ = RunState::kDone;
  bool defined_ = true;
  uint64_t grid_id_ = 0;
};

const std::string kShared = ".shared .align 16 .b8 sh[4096];\n";
const std::string kThread =
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, sh;\nshl.b32 %r4, %r1, 2;\n"
    "add.u32 %r5, %r3, %r4;\n"              // own word
    "add.u32 %r6, %r1, 1;\nmov.u32 %r7, %ntid.x;\nrem.u32 %r6, %r6, %r7;\nshl.b32 %r6, %r6, 2;\n"
    "add.u32 %r6, %r6, %r3;\n"              // the next thread's
    "cvt.u64.u32 %rd10, %r4;\nadd.s64 %rd10, %rd10, %rd0;\n";  // own word of global memory

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
  const auto found = check(
      kernel(kShared + kThread +
             "st.shared.u32 [%r5], %r1;\n"
             "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra SKIP;\n"
             "bar.warp.sync 0xffff;\n"
             "ld.shared.u32 %r8, [%r3+4];\n"    // thread 1's: ordered
             "ld.shared.u32 %r9, [%r3+80];\n"   // thread 20's: not
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
  expect_none(check(kernel(body + "bar.sync 0;\nld.shared.u32 %r9, [%r3];\nst.global.u32 [%rd10], %r9;"),
                    {1, 1, 1}, {96, 1, 1}));
  expect_one(check(kernel(body + "ld.shared.u32 %r9, [%r3];\nst.global.u32 [%rd10], %r9;"), {1, 1, 1},
                   {96, 1, 1}, "race"),
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
  const auto found = check(
      kernel(produce + "bar.arrive 1, 64;\nst.shared.u32 [%r5], 7;\n" + consume), {1, 1, 1},
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
  const auto found = check(kernel(kShared + kThread + "mov.u32 %r9, %r5;\nshl.b32 %r9, %r1, 4;\n" + use), {1, 1, 1}, {32, 1, 1}, "uninit");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].party.line, line_of(text_, "ldmatrix"));
}

// A lock: what it protects is ordered by it.
TEST_F(CheckerTest, LockInSharedMemory) {
  const std::string lock =
      kShared + kThread +
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.v2.u32 [%r3], {0, 0};\nbar.sync 0;\n"
      "SPIN: atom.shared.cas.b32 %r8, [%r3], 0, 1;\nsetp.ne.u32 %p2, %r8, 0;\n@%p2 bra SPIN;\n"
      "membar.cta;\n"
      "ld.shared.u32 %r9, [%r3+4];\nadd.u32 %r9, %r9, 1;\nst.shared.u32 [%r3+4], %r9;\n";
  expect_none(check(kernel(lock + "membar.cta;\natom.shared.exch.b32 %r8, [%r3], 0;"), {1, 1, 1},
                    {64, 1, 1}));
  EXPECT_FALSE(
      check(kernel(lock + "atom.shared.exch.b32 %r8, [%r3], 0;"), {1, 1, 1}, {64, 1, 1}, "race").empty());
}

// --- races in global memory ---

TEST_F(CheckerTest, GlobalRaceBetweenBlocks) {
  slice_ = 5;
  const auto found = check(kernel(kShared + kThread +
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
         "WAIT: " + poll + " %r9, [%rd11+-4];\nsetp.eq.u32 %p3, %r9, 0;\n@%p3 bra WAIT;\n" +
         "ld.global.u32 %r8, [%rd11+508];\n"  // the predecessor's sum
         "SUM: add.u32 %r8, %r8, %r2;\nst.global.u32 [%rd11+512], %r8;\n" + publish +
         " [%rd11], 1;\nEND:";
}

TEST_F(CheckerTest, LookBackByReleaseAndAcquire) {
  slice_ = 6;
  expect_none(check(kernel(look_back("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32")),
                    {12, 1, 1}, {32, 1, 1}));
}

TEST_F(CheckerTest, LookBackByFenceAndVolatile) {
  slice_ = 6;
  expect_none(check(kernel(look_back("membar.gl;\nst.volatile.global.u32",
                                     "ld.volatile.global.u32")),
                    {12, 1, 1}, {32, 1, 1}));
}

TEST_F(CheckerTest, LookBackThatForgetsToRelease) {
  slice_ = 6;
  expect_one(check(kernel(look_back("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32")),
                   {12, 1, 1}, {32, 1, 1}, "race"),
             CheckKind::kRace, "ld.global.u32 %r8", "st.global.u32 [%rd11+512]");
}

// atomicAdd made of compare-and-swap: its plain first load is no race.
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
  const std::string text =
      kernel(kShared + kThread + "ld.global.u32 %r8, [%rd10];\nadd.u32 %r8, %r8, %r1;\n"
                                 "st.global.u32 [%rd10], %r8;");
  expect_none(check(text, {1, 1, 1}, {64, 1, 1}));
  const uint64_t base = reinterpret_cast<uint64_t>(memory_.data());
  EXPECT_EQ(launch_interleaved({1, 1, 1}, {64, 1, 1}, parameters({base}), 0), RunState::kDone);
  expect_none(checker_->findings());
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
                           "setp.gt.u32 %p2, %r1, 100;\n"      // never
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
       "st.global.u32 [%rd11], 1;\n", "address"},
      {"atom.global.add.u32 %r10, [%rd0], %r9;\n", "memory"},
      {"st.shared.u32 [%r5], %r9;\nbar.sync 0;\nld.shared.u32 %r9, [%r5];\n"
       "st.global.u32 [%rd10], %r9;\n", "memory"},
      {"cvt.rn.f32.u32 %f1, %r9;\nfma.rn.f32 %f2, %f1, %f1, %f1;\nst.global.f32 [%rd10], %f2;\n",
       "memory"},
  };
  for (const auto& [use, how] : kUses) {
    const auto found = check(kernel(kShared + kThread +
                                    "ld.shared.u32 %r8, [%r5+1024];\n"
                                    "mad.lo.u32 %r9, %r8, 3, %r1;\n" + use + "END:"),
                             {1, 1, 1}, {32, 1, 1}, "uninit");
    ASSERT_EQ(found.size(), 1u) << use << all(found);
    EXPECT_NE(found[0].detail.find(how), std::string::npos) << found[0].describe();
  }
  // Through shared memory it is the second read that is told, at its own line.
  const auto found = check(kernel(kShared + kThread + "ld.shared.u32 %r8, [%r5+1024];\n"
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
  const auto found = check(kernel(kShared + kThread +
                                  "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra ELSE;\n"
                                  "bar.sync 0;\nst.global.u32 [%rd10], 1;\nbra END;\n"
                                  "ELSE: \nbarrier.sync.aligned 0;\nst.global.u32 [%rd10], 2;\nEND:"),
                           {1, 1, 1}, {32, 1, 1}, "barrier");
  expect_one(found, CheckKind::kBarrier, "barrier.sync.aligned", "bar.sync");
}

// barrier.sync without .aligned is meant for that.
TEST_F(CheckerTest, UnalignedBarrierMayDiverge) {
  expect_none(check(kernel(kShared + kThread +
                           "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra ELSE;\n"
                           "barrier.sync 0;\nst.global.u32 [%rd10], 1;\nbra END;\n"
                           "ELSE: \nbarrier.sync 0;\nst.global.u32 [%rd10], 2;\nEND:"),
                    {1, 1, 1}, {32, 1, 1}));
}

TEST_F(CheckerTest, WarpsAtDifferentBarrierInstructions) {
  const auto found = check(kernel(kShared + kThread +
                                  "setp.lt.u32 %p1, %r1, 32;\n@!%p1 bra ELSE;\n"
                                  "bar.sync 0;\nst.global.u32 [%rd10], 1;\nbra END;\n"
                                  "ELSE: \nbarrier.sync.aligned 0;\nst.global.u32 [%rd10], 2;\nEND:"),
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
  const auto found = check(kernel(kShared + kThread +
                                  "setp.lt.u32 %p1, %r1, 32;\n@!%p1 bra ELSE;\n"
                                  "bar.sync 3, 64;\nbra END;\n"
                                  "ELSE: \nbar.sync 3, 96;\nEND:"),
                           {1, 1, 1}, {64, 1, 1}, "barrier");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].kind, CheckKind::kBarrier);
  EXPECT_NE(found[0].detail.find("96 threads"), std::string::npos) << found[0].describe();
  EXPECT_NE(found[0].detail.find("64 threads"), std::string::npos) << found[0].describe();
}

TEST_F(CheckerTest, ArrivalsThatNobodyWaitsFor) {
  const auto found = check(kernel(kShared + kThread + "bar.arrive 2, 128;"), {1, 1, 1}, {64, 1, 1},
                           "barrier");
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
  std::vector<Finding> told;
  Checker checker(*CheckOptions::parse("memory"), [&told](const Finding& f) { told.push_back(f); });
  checker.on_allocate(0x1000, 100, 3);
  checker.on_allocate(0x2000, 200, 4);
  checker.on_free(0x1000, 5);
  checker.report_leaks();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, CheckKind::kLeak);
  EXPECT_EQ(told[0].bytes, 200u);
  EXPECT_NE(told[0].describe().find("allocated by call 4"), std::string::npos) << told[0].describe();
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

TEST_F(CheckerTest, ALimitedNumberIsTold) {
  std::string body = kShared + kThread;
  for (int k = 0; k < 130; ++k) body += "ld.global.u32 %r9, [%rd10+" + std::to_string(4 * k) + "];\nst.global.u32 [%rd10+8192], %r9;\n";
  defined_ = false;
  const auto found = check(kernel(body), {1, 1, 1}, {1, 1, 1}, "uninit");
  EXPECT_EQ(found.size(), 100u);
  EXPECT_EQ(told_.size(), 100u);
  EXPECT_EQ(checker_->total(), 130u);
  EXPECT_NE(checker_->summary().find("30 more places"), std::string::npos) << checker_->summary();
}

// Without a checker there is none: the same kernel, unchanged, and no finding anywhere.
TEST_F(CheckerTest, OffMeansOff) {
  environment_.checker = nullptr;
  ASSERT_TRUE(load(kernel(kShared + kThread + "ld.shared.u32 %r8, [%r6];\nst.global.u32 [%rd10], %r8;")));
  memory_.assign(4096, 0);
  EXPECT_EQ(launch({1, 1, 1}, {64, 1, 1}, {share(memory_)}), RunState::kDone);
}

}  // namespace
}  // namespace sluice::exec
