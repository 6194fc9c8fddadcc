// SPDX-License-Identifier: Apache-2.0
// Kernels that a naive rewriter gets wrong (hazards.cc): each is in the tier that it must be
// in, and its clone, evicted at random, leaves the memory that the original leaves.
#include "tests/unit/passes/hazards.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/tool/eviction_run.h"
#include "tests/support/rounds.h"

namespace sluice::tool {

namespace hazards {
void PrintTo(const Hazard& h, std::ostream* out) { *out << h.name; }
}  // namespace hazards

namespace {

using hazards::Hazard;

class Hazards : public testing::TestWithParam<Hazard> {};

TEST_P(Hazards, EvictedAtRandomLeavesTheSame) {
  const Hazard& h = GetParam();
  auto run = EvictionRun::load(hazards::text_of(h));
  ASSERT_TRUE(run) << run.error().message;
  const passes::KernelReport* report = (*run)->report("k");
  ASSERT_NE(report, nullptr);
  EXPECT_STREQ(passes::tier_name(report->tier), h.tier) << report->reason;
  EXPECT_EQ(report->persistent, std::string(h.name).starts_with("work_queue"));
  if (!report->evictable) {
    EXPECT_FALSE(report->reason.empty());
    return;
  }
  const std::size_t out = (*run)->add_buffer(20000), in = (*run)->add_buffer(4096);
  std::mt19937 random(7);
  for (std::size_t i = 0; i < 1024; ++i) {
    const std::uint32_t value = random();
    std::memcpy((*run)->data(in) + 4 * i, &value, 4);
  }
  KernelLaunch launch;
  launch.kernel = "k";
  launch.grid = {h.grid[0], h.grid[1], h.grid[2]};
  launch.block = {h.block[0], h.block[1], h.block[2]};
  launch.dynamic_shared = h.dynamic_shared;
  const std::uint64_t pointers[2] = {(*run)->address(out), (*run)->address(in)};
  launch.params.resize(20);
  std::memcpy(launch.params.data(), pointers, 16);
  std::memcpy(launch.params.data() + 16, &h.n, 4);

  const auto before = (*run)->contents();
  auto original = (*run)->run_original(launch, 1);
  ASSERT_TRUE(original) << original.error().message;
  const auto expected = (*run)->contents();
  EXPECT_TRUE(expected != before) << "the kernel shows nothing";
  std::uint32_t evictions = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    (*run)->restore(before);
    EvictionOptions options;
    options.seed = seed;
    options.most_evictions = seed % 10 == 0 ? 50 : 5;
    options.expected_steps = original->steps;
    auto clone = (*run)->run_clone(launch, options);
    ASSERT_TRUE(clone) << clone.error().message;
    evictions += clone->evictions;
    ASSERT_EQ(first_difference(expected, (*run)->contents()), "") << clone->setting;
    if (seed < 60 && seed >= rounds<std::uint64_t>(60) && evictions > 5) break;
  }
  EXPECT_GT(evictions, 5u);
}

// Forms that are made apart are the same, byte for byte, and are whole without the original.
TEST_P(Hazards, FormsApartAreTheSame) {
  const std::string text = hazards::text_of(GetParam());
  const auto all = passes::rewrite_module(text);
  ASSERT_TRUE(all);
  const passes::KernelReport& kernel = all->kernels[0];
  std::vector<std::string> names;
  for (const passes::Forms forms : {passes::Forms::kFirst, passes::Forms::kOthers}) {
    passes::RewriteOptions options;
    options.forms = forms;
    options.alone = true;
    const auto alone = passes::rewrite_module(text, options);
    ASSERT_TRUE(alone);
    EXPECT_EQ(alone->kernels[0].evictable, kernel.evictable);
    EXPECT_EQ(alone->kernels[0].reason, kernel.reason);
    const auto module = ptx::Module::parse(alone->text);
    ASSERT_TRUE(module) << module.error().message;
    for (const ptx::Function& f : module->functions()) {
      const std::string_view body = module->text_of(f.range);
      EXPECT_NE(all->text.find(body), std::string::npos) << body;
      if (f.is_entry) names.emplace_back(f.name);
    }
    exec::DecodeOptions refuse;
    refuse.refuse_kernels_alone = true;
    EXPECT_TRUE(exec::decode_text(alone->text, refuse)) << alone->text;
  }
  std::vector<std::string> wanted;
  if (kernel.evictable) wanted.emplace_back("k" SLUICE_CLONE_SUFFIX);
  if (kernel.one_task_too) wanted.emplace_back("k" SLUICE_ONE_TASK_SUFFIX);
  if (kernel.windows_too) wanted.emplace_back("k" SLUICE_WINDOW_SUFFIX);
  EXPECT_EQ(names, wanted);
}

// What `body` ends with, run by one thread of each of two blocks; empty: well.
std::string fault_of(const std::string& body) {
  Hazard h{};
  h.before = ".shared .align 8 .b64 twice;";
  h.target = "sm_90a";
  const std::string lone = "setp.ne.u32 %p1, %r0, 0;\n@%p1 ret;\n" + body + "ret;\n";
  h.body = lone.c_str();
  auto run = EvictionRun::load(hazards::text_of(h));
  EXPECT_TRUE(run) << run.error().message;
  KernelLaunch launch;
  launch.kernel = "k";
  launch.grid = {2, 1, 1};
  launch.block = {32, 1, 1};
  const std::uint64_t pointers[2] = {(*run)->address((*run)->add_buffer(4096)),
                                     (*run)->address((*run)->add_buffer(4096))};
  launch.params.resize(20);
  std::memcpy(launch.params.data(), pointers, 16);
  auto ran = (*run)->run_original(launch, 1);
  return ran ? std::string() : ran.error().message;
}

// What shows that the clones of the asynchronous hazards clean up: without, their next task would
// do this.
TEST(StrictInterpreter, RegistersHandedOverTheWrongWayAreAFault) {
  const auto set = [](const std::string& how, int to) {
    return "setmaxnreg." + how + ".sync.aligned.u32 " + std::to_string(to) + ";\n";
  };
  EXPECT_EQ(fault_of(set("dec", 40)), "");
  EXPECT_EQ(fault_of(set("dec", 40) + set("dec", 40) + set("inc", 128) + set("dec", 104)), "");
  EXPECT_NE(fault_of(set("dec", 40) + set("dec", 104)).find("the other way round"),
            std::string::npos);
  EXPECT_NE(fault_of(set("inc", 208) + set("inc", 144)).find("the other way round"),
            std::string::npos);
}

TEST(StrictInterpreter, AnObjectMadeTwiceIsAFault) {
  const std::string init = "mbarrier.init.shared.b64 [twice], 1;\n";
  const std::string inval = "mbarrier.inval.shared.b64 [twice];\n";
  EXPECT_EQ(fault_of(init), "");  // the other block's is another object
  EXPECT_EQ(fault_of(init + inval + init), "");
  EXPECT_NE(fault_of(init + init).find("made twice"), std::string::npos);
  EXPECT_NE(fault_of(inval).find("made twice or not at all"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, Hazards, testing::ValuesIn(hazards::all()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice::tool
