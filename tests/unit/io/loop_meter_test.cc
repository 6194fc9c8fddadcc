// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/loop_meter.h"

#include <gtest/gtest.h>

#include "mediator/base/process/processor_time.h"

namespace sluice::io {
namespace {

constexpr uint64_t kLongNs = 5'000'000;

void use_processor(uint64_t ns) {
  const uint64_t end_ns = thread_cpu_ns() + ns;
  while (thread_cpu_ns() < end_ns) {
  }
}

uint64_t cost_of_a_call(uint64_t in_it_ns) {
  uint64_t cost_ns = 0;
  {
    LoopMeter::Call call(typeid(int), &cost_ns);
    use_processor(in_it_ns);
  }
  return cost_ns;
}

TEST(LoopMeter, ACallCostsWhatItTakesAndWhatTheLoopTookToComeToIt) {
  cost_of_a_call(0);
  EXPECT_GE(cost_of_a_call(kLongNs), kLongNs);
  use_processor(kLongNs);  // epoll, timers: not all of it was for the next call
  EXPECT_GE(cost_of_a_call(0), 100'000u);
}

// Loops poll where there are many processors. What they spent on that was charged to the next ring:
// an honest program of short launches was held back as a flood is.
TEST(LoopMeter, WhatALoopSpentPollingBeforeIsNoCallsCost) {
  cost_of_a_call(0);
  use_processor(kLongNs);
  LoopMeter::before_poll();
  EXPECT_LT(cost_of_a_call(0), 100'000u);
}

}  // namespace
}  // namespace sluice::io
