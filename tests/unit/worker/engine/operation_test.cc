// SPDX-License-Identifier: Apache-2.0
// The states of an operation, and how far the driver has come in a stream.
#include <gtest/gtest.h>

#include <initializer_list>

#include "mediator/worker/streams/driver_queue.h"
#include "mediator/worker/streams/operation.h"

namespace sluice::worker {
namespace {

TEST(OperationTest, ComesToItsEndByTheTableOnly) {
  Operation op{.kind = OpKind::kLaunch};
  for (OpState to : {OpState::kOpen, OpState::kSubmitted, OpState::kEnded, OpState::kEvicted,
                     OpState::kSubmitted, OpState::kEnded}) {
    op.set_state(to);
    EXPECT_EQ(op.state, to);
    EXPECT_EQ(op.in_flight(), to == OpState::kOpen || to == OpState::kSubmitted);
  }
  EXPECT_FALSE(may_become(OpState::kHeld, OpState::kEnded));
  EXPECT_FALSE(may_become(OpState::kSubmitted, OpState::kEvicted)) << "it may still run";
  EXPECT_FALSE(may_become(OpState::kEvicted, OpState::kHeld)) << "it has begun";
  for (OpState last : {OpState::kPassed, OpState::kFailed, OpState::kReached})
    for (OpState to : {OpState::kHeld, OpState::kOpen, OpState::kSubmitted, OpState::kEnded})
      EXPECT_FALSE(may_become(last, to));
}

TEST(DriverQueueTest, AMarkerEndsWhatIsBeforeIt) {
  DriverQueue queue;
  EXPECT_EQ(queue.add(), 0u);
  EXPECT_EQ(queue.add(), 1u);
  queue.mark(7);
  EXPECT_EQ(queue.add(), 2u);
  EXPECT_EQ(queue.unmarked(), 1u);
  EXPECT_TRUE(queue.is_last(2));
  queue.mark(8);
  EXPECT_EQ(queue.oldest_marker(), 7u);
  EXPECT_EQ(queue.reach(), 2u);
  EXPECT_TRUE(queue.ended(1));
  EXPECT_FALSE(queue.ended(2));
  EXPECT_EQ(queue.length(), 1u);
  EXPECT_EQ(queue.reach(), 1u);
  EXPECT_FALSE(queue.has_marker());
  EXPECT_EQ(queue.length(), 0u);
}

}  // namespace
}  // namespace sluice::worker
