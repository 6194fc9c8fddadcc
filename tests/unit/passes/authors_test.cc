// SPDX-License-Identifier: Apache-2.0
// Kernels that say by <sluice/preempt.cuh> where they can leave: as they are against evicted at
// random; and what an author may get wrong.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "kernels/tool/eviction_run.h"
#include "tests/authors/cases.h"
#include "tests/support/rounds.h"

namespace sluice::tool {
namespace {

using authors::Argument;
using authors::Case;

KernelLaunch prepare(EvictionRun& run, const Case& c) {
  KernelLaunch launch;
  launch.kernel = c.kernel;
  launch.grid = {c.grid[0], c.grid[1], c.grid[2]};
  launch.block = {c.block[0], c.block[1], c.block[2]};
  launch.dynamic_shared = c.dynamic_shared;
  std::mt19937 random(11);
  for (const Argument& a : c.arguments) {
    const bool number = a.kind == Argument::kNumber;
    std::uint64_t value = a.value;
    if (!number) {
      const std::size_t b = run.add_buffer(a.value);
      value = run.address(b);
      for (std::size_t i = 0; a.kind == Argument::kNumbers && i + 4 <= a.value; i += 4) {
        const std::uint32_t word = random();
        std::memcpy(run.data(b) + i, &word, 4);
      }
    }
    const std::size_t bytes = number ? 4 : 8, at = launch.params.size();
    launch.params.resize(at + bytes);
    std::memcpy(launch.params.data() + at, &value, bytes);
  }
  return launch;
}

// Runs the clone with many evictions and wants the original's memory; returns the evictions.
std::uint32_t expect_same(EvictionRun& run, const KernelLaunch& launch, std::uint64_t rounds) {
  const auto before = run.contents();
  auto original = run.run_original(launch, 1);
  EXPECT_TRUE(original) << original.error().message;
  if (!original) return 0;
  const auto expected = run.contents();
  EXPECT_TRUE(expected != before) << "the kernel shows nothing";
  std::uint32_t evictions = 0;
  for (std::uint64_t seed = 1; seed <= rounds; ++seed) {
    run.restore(before);
    EvictionOptions options;
    options.seed = seed;
    options.most_evictions = seed % 4 == 0 ? 50 : 6;
    options.expected_steps = original->steps;
    auto clone = run.run_clone(launch, options);
    EXPECT_TRUE(clone) << clone.error().message;
    if (!clone) return evictions;
    evictions += clone->evictions;
    EXPECT_EQ(first_difference(expected, run.contents()), "") << clone->setting;
  }
  return evictions;
}

TEST(Authors, KernelsLeaveInMidWorkAndGoOn) {
  for (const Case& c : authors::cases(1, 1)) {
    SCOPED_TRACE(c.kernel);
    auto run = EvictionRun::load(authors::text());
    ASSERT_TRUE(run) << run.error().message;
    const passes::KernelReport* report = (*run)->report(c.kernel);
    ASSERT_NE(report, nullptr);
    EXPECT_EQ(report->tier, passes::Tier::kResumable) << report->author_reason;
    EXPECT_TRUE(report->resumable);
    EXPECT_EQ(report->author_code, "");
    EXPECT_EQ(report->persistent, std::string(c.kernel) == "work_queue");
    EXPECT_GT(expect_same(**run, prepare(**run, c), rounds(40)), rounds(40u));
  }
}

// Fewer blocks than there are evictions: none of this could be without leaving in mid-work.
TEST(Authors, OneBlockLeavesOftenerThanItHasTasks) {
  Case c = authors::cases(1, 1)[1];
  c.grid[0] = 1;
  auto run = EvictionRun::load(authors::text());
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_GT(expect_same(**run, prepare(**run, c), 40), 40u)
      << "oftener than the 40 runs have tasks";
}

TEST(Authors, MisuseIsNamedAndChangesNothing) {
  const std::map<std::string, std::string> codes = {
      {"divergent", "author-divergent"},      {"own_answer", "author-divergent"},
      {"returned", "author-divergent"},       {"never_resumed", "author-resume"},
      {"resumed_sometimes", "author-resume"}, {"other_type", "author-state"},
      {"in_function", "author-function"},     {"never_leaves", "author-no-leave"}};
  for (const auto& [kernel, code] : codes) {
    SCOPED_TRACE(kernel);
    auto run = EvictionRun::load(authors::misuse_text());
    ASSERT_TRUE(run) << run.error().message;
    const passes::KernelReport* report = (*run)->report(kernel);
    ASSERT_NE(report, nullptr);
    EXPECT_FALSE(report->resumable);
    EXPECT_EQ(report->author_code, code) << report->author_reason;
    EXPECT_NE(report->author_reason.find("line"), std::string::npos) << report->author_reason;
    ASSERT_TRUE(report->evictable) << report->reason;
    expect_same(**run, prepare(**run, authors::misuse(kernel.c_str())), rounds(10));
  }
}

// In PTX by hand: what the header's types do not let through.
std::string by_hand(const std::string& body) {
  return ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n"
         ".reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .local .align 4 .b32 own[1];\n"
         ".reg .b32 sluice_should_leave, sluice_leave; .reg .b64 sluice_resume_at, "
         "sluice_save_at;\n"
         "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n" +
         body + "ret;\n}\n";
}
std::string author_code(const std::string& body) {
  auto rewritten = passes::rewrite_module(by_hand(body));
  return rewritten ? std::string(rewritten->kernels[0].author_code) : "does not parse";
}

TEST(Authors, OddPointsAreRefused) {
  const std::string ask = "mov.b32 sluice_should_leave, 0;\nsetp.ne.u32 %p1, %r2, 5;\n";
  const std::string leave = "@%p1 bra ON;\nand.b32 sluice_leave, 0, 0;\nexit;\nON:\n";
  EXPECT_EQ(author_code(ask + leave), "");
  EXPECT_EQ(author_code("mov.b32 sluice_should_leave, 1;\n" + leave), "author-form");
  EXPECT_EQ(author_code("@%p2 mov.b32 sluice_should_leave, 0;\n" + leave), "author-form");
  EXPECT_EQ(author_code(ask + "and.b32 sluice_leave, %r1, 0;\n"), "author-form");
  EXPECT_EQ(author_code(ask + "and.b32 sluice_leave, 4;\n"), "author-form");
  EXPECT_EQ(author_code(leave), "author-no-leave");
  EXPECT_EQ(author_code(ask), "author-no-leave");
  EXPECT_EQ(
      author_code(ask + "and.b64 sluice_resume_at, 1028, 0;\nand.b32 sluice_leave, 1028, 0;\n"),
      "author-state");
  EXPECT_EQ(author_code(ask + "and.b64 sluice_resume_at, 18446744073709551615, 0;\n" + leave),
            "author-state");
}

// Persistent already: a loop that draws from a counter, or over tiles by the grid's size; a loop
// over elements by the grid's size and the block's is not.
TEST(Authors, PersistentKernelsAreKnown) {
  const auto persistent = [](const std::string& step, const std::string& work) {
    auto rewritten =
        passes::rewrite_module(by_hand(step + "mov.u32 %r7, 100;\nAGAIN:\n" + work +
                                       "setp.lt.u32 %p1, %r2, %r7;\n@%p1 bra AGAIN;\n"));
    return rewritten && rewritten->kernels[0].persistent;
  };
  const std::string add = "add.u32 %r2, %r2, %r3;\n";
  const std::string grid = "mov.u32 %r3, %nctaid.x;\n";
  EXPECT_TRUE(persistent(grid, add));
  EXPECT_TRUE(persistent(grid, "add.u32 %r5, %r2, %r3;\nmov.u32 %r2, %r5;\n"));
  EXPECT_TRUE(
      persistent("mov.u32 %r4, %nctaid.x;\nmov.u32 %r5, %nctaid.y;\n"
                 "mul.lo.u32 %r3, %r4, %r5;\n",
                 add));
  EXPECT_TRUE(persistent("", "atom.global.add.u32 %r2, [%rd1], 1;\n"));
  EXPECT_FALSE(
      persistent("mov.u32 %r4, %nctaid.x;\nmov.u32 %r5, %ntid.x;\n"
                 "mul.lo.u32 %r3, %r4, %r5;\n",
                 add));
  EXPECT_FALSE(persistent("mov.u32 %r3, %ntid.x;\n", add));
  // A block's size that is known at compile time is a constant.
  const std::string wide = "mov.u32 %r4, %nctaid.x;\nmul.lo.u32 %r3, %r4, 128;\n";
  EXPECT_FALSE(persistent(wide + "mad.lo.u32 %r2, %r2, 128, %r1;\n", add));
  EXPECT_TRUE(persistent(wide + "mul.lo.u32 %r2, %r2, 128;\n", add));
  EXPECT_FALSE(persistent(grid, "add.u32 %r2, %r2, 1;\nadd.u32 %r6, %r2, %r3;\n"));
  EXPECT_FALSE(persistent(grid + "@%p2 mov.u32 %r3, 5;\n", add));
}

// A decision that is different for each thread in a way that no analysis sees: the kernel ends with
// an error, not with a wrong result.
TEST(Authors, ABlockThatLeavesInPartTraps) {
  auto run = EvictionRun::load(by_hand(
      "mov.b32 sluice_should_leave, 0;\n"
      "mov.u64 %rd2, own; cvta.local.u64 %rd2, %rd2; st.u32 [%rd2], %r1;\nld.u32 %r3, [%rd2];\n"
      "setp.lt.u32 %p1, %r3, 9;\n@!%p1 bra ON;\nand.b32 sluice_leave, 0, 0;\nexit;\nON:\n"));
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_TRUE((*run)->report("k")->resumable) << (*run)->report("k")->author_reason;
  KernelLaunch launch;
  launch.kernel = "k";
  launch.grid = {1, 1, 1};
  launch.block = {32, 1, 1};
  const std::uint64_t out = (*run)->address((*run)->add_buffer(4));
  launch.params.resize(8);
  std::memcpy(launch.params.data(), &out, 8);
  auto clone = (*run)->run_clone(launch, {});
  ASSERT_FALSE(clone);
  EXPECT_NE(clone.error().message.find("trap"), std::string::npos) << clone.error().message;
}

}  // namespace
}  // namespace sluice::tool
