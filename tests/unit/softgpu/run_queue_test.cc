// SPDX-License-Identifier: Apache-2.0
// Which block of a grid runs next.
#include <gtest/gtest.h>

#include <map>

#include "mediator/softgpu/grid/run_queue.h"

namespace sluice::softgpu {
namespace {

using Queue = RunQueue<int*>;
using Kind = Queue::Kind;

TEST(RunQueue, TakesHotOnesFirstAndTheOthersNowAndThen) {
  int hot = 0, cold = 0, polling = 0;
  Queue queue;
  EXPECT_EQ(queue.pick(), nullptr);
  for (uint64_t i = 1; i < Queue::kPicksPerOther; ++i) (void)queue.pick();
  std::map<int*, uint64_t> picked;
  for (uint64_t i = 0; i < Queue::kPicksPerOther; ++i) {
    for (auto [item, kind] : {std::pair{&hot, Kind::kHot}, std::pair{&cold, Kind::kCold},
                              std::pair{&polling, Kind::kPolling}})
      queue.add(item, kind);
    ++picked[queue.pick()];
    queue.remove_if([](int*) { return true; });
    EXPECT_TRUE(queue.empty());
  }
  EXPECT_EQ(picked[&hot], Queue::kPicksPerOther - 2);
  EXPECT_EQ(picked[&cold], 1u);
  EXPECT_EQ(picked[&polling], 1u);
}

TEST(RunQueue, KnowsWhatItHasAndForgetsWhatGoes) {
  int a = 0, b = 0;
  Queue queue;
  queue.add(&a, Kind::kPolling);
  EXPECT_FALSE(queue.any_working());
  EXPECT_EQ(queue.polling(), 1u);
  queue.add(&b, Kind::kCold);
  EXPECT_TRUE(queue.any_cold() && queue.any_working());
  queue.remove_if([&](int* item) { return item == &b; });
  EXPECT_FALSE(queue.any_cold() || queue.any_working());
  EXPECT_EQ(queue.pick(), &a);
  EXPECT_EQ(queue.pick(), nullptr);
}

}  // namespace
}  // namespace sluice::softgpu
