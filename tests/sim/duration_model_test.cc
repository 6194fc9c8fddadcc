// SPDX-License-Identifier: Apache-2.0
// The duration model: learns what is linear, follows a change, survives hostile numbers and files.
#include <gtest/gtest.h>

#include <cmath>

#include "policies/model/duration_model.h"
#include "policies/sim/random.h"

namespace sluice::policy {
namespace {

TEST(DurationModel, KnowsNothingThenTheMeanThenTheLine) {
  DurationModel m;
  EXPECT_FALSE(m.predict(1, {100, 256, 0, 0}).has_value());
  m.learn(1, {100, 256, 0, 0}, 1'000'000);
  EXPECT_NEAR(static_cast<double>(*m.predict(1, {100, 256, 0, 0})), 1e6, 1e3);
  EXPECT_FALSE(m.predict(2, {100, 256, 0, 0}).has_value()) << "kernels are learnt apart";
  sim::Random r(5);
  const auto truth = [](uint32_t grid, uint32_t block) { return 20'000 + 1.5 * grid * block; };
  for (int i = 0; i < 100; ++i) {  // FLEP: 100 inputs
    const auto grid = static_cast<uint32_t>(r.between(10, 20'000));
    const auto block = static_cast<uint32_t>(32 * r.between(1, 32));
    m.learn(3, {grid, block, 0, 64}, static_cast<uint64_t>(truth(grid, block) * r.factor(0.05)));
  }
  double error = 0;
  for (int i = 0; i < 100; ++i) {
    const auto grid = static_cast<uint32_t>(r.between(1000, 20'000));
    const double expected = truth(grid, 512);
    error += std::abs(static_cast<double>(*m.predict(3, {grid, 512, 0, 64})) / expected - 1) / 100;
  }
  EXPECT_LT(error, 0.069) << "FLEP's figure 7: 6.9 %";
  EXPECT_EQ(m.samples(3), 100u);
  EXPECT_GT(m.error(3), 0);
}

TEST(DurationModel, FollowsADifferentInput) {
  DurationModel m;
  for (int i = 0; i < 500; ++i) m.learn(1, {100, 256, 0, 0}, 1'000'000);
  for (int i = 0; i < 1500; ++i) m.learn(1, {100, 256, 0, 0}, 3'000'000);
  EXPECT_NEAR(static_cast<double>(*m.predict(1, {100, 256, 0, 0})), 3e6, 1e5);
}

TEST(DurationModel, BoundsWhatHostileShapesCanDo) {
  DurationModel m;
  const LaunchShape worst{0xffffffff, 0xffffffff, 0xffffffff, ~0ull};
  for (int i = 0; i < 50; ++i) {
    m.learn(1, worst, ~0ull);
    m.learn(1, {}, 0);
    m.learn(1, {static_cast<uint32_t>(i), 1, 2, 3}, 1ull << (i + 10));
    for (const LaunchShape& s : {worst, LaunchShape{}, LaunchShape{7, 0, 0xffffffff, 0}}) {
      EXPECT_LE(*m.predict(1, s), 1ull << 50);
    }
  }
  for (uint64_t k = 0; k < DurationModel::kMaxKernels + 10; ++k) m.learn(k, {}, 5);
  EXPECT_EQ(m.size(), DurationModel::kMaxKernels);
}

TEST(DurationModel, IsKeptAsText) {
  DurationModel m;
  sim::Random r(9);
  for (int i = 0; i < 300; ++i)
    m.learn(r.below(5), {static_cast<uint32_t>(r.below(5000)), 128, 0, 8}, r.between(1, 1'000'000));
  const std::string text = m.save();
  DurationModel copy;
  ASSERT_TRUE(copy.restore(text).ok());
  EXPECT_EQ(copy.save(), text);
  for (uint64_t k = 0; k < 5; ++k) {
    EXPECT_EQ(copy.predict(k, {77, 128, 0, 8}), m.predict(k, {77, 128, 0, 8}));
    EXPECT_EQ(copy.samples(k), m.samples(k));
  }
}

TEST(DurationModel, RefusesWrongTextAndStaysAsItWas) {
  DurationModel m;
  m.learn(1, {}, 100);
  const std::string before = m.save();
  std::string text = before;
  for (const std::string& wrong :
       {std::string(), std::string("x"), text + "zz 1", text + text, text + "1 1 nan\n",
        text.substr(0, text.size() - 8), text.substr(0, text.size() - 1) + " 1\n",
        std::string("sluice-duration-model 1\n0000000000000002 0 0x1p+0\n")}) {
    const auto result = m.restore(wrong);
    EXPECT_FALSE(result.ok()) << wrong;
    if (!result.ok()) {
      EXPECT_NE(result.error().message.find("line"), std::string::npos);
    }
    EXPECT_EQ(m.save(), before);
  }
}

TEST(TaskRate, TakesTheLastTasksMost) {
  TaskRate t;
  EXPECT_EQ(t.sm_ns_per_task(), 0);
  t.observe(0, 5);
  t.observe(10, 1000);
  EXPECT_EQ(t.sm_ns_per_task(), 100);
  for (int i = 0; i < 10; ++i) t.observe(10, 3000);
  EXPECT_NEAR(t.sm_ns_per_task(), 300, 1);
}

TEST(PreemptionCost, IsTheMeanOfTheLastFifty) {
  PreemptionCost c;
  EXPECT_EQ(c.mean_ns(), 0u);
  c.observe(100);
  c.observe(300);
  EXPECT_EQ(c.mean_ns(), 200u);
  EXPECT_EQ(c.count(), 2u);
}

}  // namespace
}  // namespace sluice::policy
