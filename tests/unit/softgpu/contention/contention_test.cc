// SPDX-License-Identifier: Apache-2.0
// Several processes on one software GPU: turns, registers, memory, and what the death of one in the
// middle of a kernel does to the others.
#include "tests/unit/softgpu/contention/contender.h"

namespace sluice::softgpu {
namespace {

class Contention : public ContentionTest {
 protected:
  // The first has the GPU, the second stands in line behind it, the third behind that.
  void line_up(Contender& first, Contender& second, Contender& third) {
    const auto a = static_cast<uint32_t>(first.ask('i')),
               b = static_cast<uint32_t>(second.ask('i')),
               c = static_cast<uint32_t>(third.ask('i'));
    first.ask('s');
    await_running(a);
    second.ask('s');
    await_waiting(b);
    third.tell('k');
    await_waiting(c);
  }
};

TEST_F(Contention, RegistersShowWhoRunsAndOnlyOneDoes) {
  Contender a(path_), b(path_);
  const auto ta = static_cast<uint32_t>(a.ask('i')), tb = static_cast<uint32_t>(b.ask('i'));
  EXPECT_NE(ta, tb);
  EXPECT_EQ(running(), 0u);
  a.ask('s');
  await_running(ta);
  b.ask('s');
  await_waiting(tb);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(running(), ta);
    ::usleep(1000);
  }
  EXPECT_EQ(a.ask('r'), 0);
  await_running(tb);
  EXPECT_EQ(b.ask('r'), 0);
  while (running() != 0) ::usleep(200);
  EXPECT_EQ(channel(ta).kernels, 1u);
  EXPECT_GE(channel(ta).engine_ns, 50'000'000u);
}

TEST_F(Contention, BothGetOnUnderContention) {
  Contender a(path_), b(path_), c(path_);
  for (Contender* x : {&a, &b, &c}) ASSERT_GT(x->ask('i'), 0);
  for (Contender* x : {&a, &b, &c}) x->tell('k');
  for (Contender* x : {&a, &b, &c}) EXPECT_EQ(x->answer(), 0);
}

TEST_F(Contention, AProcessKilledInTheMiddleOfAKernelLeavesTheGpu) {
  Contender a(path_), b(path_);
  const auto ta = static_cast<uint32_t>(a.ask('i')), tb = static_cast<uint32_t>(b.ask('i'));
  a.ask('s');
  await_running(ta);
  b.tell('k');
  await_waiting(tb);
  a.kill();
  EXPECT_EQ(b.answer(), 0) << "all of the other's kernels ran";
  EXPECT_NE(running(), ta);
}

TEST_F(Contention, AProcessKilledWhileItWaitsLosesItsPlace) {
  Contender a(path_), b(path_), c(path_);
  line_up(a, b, c);
  b.kill();
  EXPECT_EQ(a.ask('r'), 0);
  EXPECT_EQ(c.answer(), 0);
}

TEST_F(Contention, AStoppedContenderIsOvertaken) {
  Contender a(path_), b(path_), c(path_);
  line_up(a, b, c);
  b.stop();
  EXPECT_EQ(a.ask('r'), 0);
  EXPECT_EQ(c.answer(), 0) << "b is first in line and does not come";
  b.go_on();
  EXPECT_EQ(b.ask('r'), 0) << "and gets its turn all the same";
}

TEST_F(Contention, ADeadProcessesMemoryComesBack) {
  Contender a(path_), b(path_);
  ASSERT_GT(a.ask('i'), 0);
  ASSERT_GT(b.ask('i'), 0);
  const long before = b.ask('f');
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a.ask('a'), 0);
  EXPECT_EQ(b.ask('f'), before - (3 << 20));
  long r = 0;
  int got = 0;
  while ((r = b.ask('a')) == 0) ++got;
  EXPECT_EQ(r, 2) << "out of memory";
  EXPECT_EQ(got, 4);
  a.kill();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(b.ask('a'), 0);
}

}  // namespace
}  // namespace sluice::softgpu
