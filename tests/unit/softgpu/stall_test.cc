// SPDX-License-Identifier: Apache-2.0
// What a fault of one process does to the others on the same software GPU: every channel stands
// still for as long as on an H100, and who faulted stands in the file.
#include "mediator/base/clock.h"
#include "mediator/gpu/soft_gpu.h"
#include "tests/unit/softgpu/contention/contender.h"

namespace sluice::softgpu {
namespace {

class Stall : public ContentionTest {
 protected:
  using Environment = std::map<std::string, std::string>;
  // How long the GPU stood still for what `command` does to it; the answer has to be `error`.
  uint64_t stall_of(char command, long error, const Environment& environment = {}) {
    Contender c(path_, environment);
    EXPECT_GT(c.ask('i'), 0);
    const uint64_t before = monotonic_ns();
    EXPECT_EQ(c.ask(command), error);
    auto gpu = gpu::SoftGpu::open(path_, false);
    EXPECT_TRUE(gpu.ok());
    const auto pid = static_cast<uint32_t>(c.pid());
    EXPECT_EQ((*gpu)->fault_stall_ns(pid + 1, 0), 0u) << "nobody else's";
    EXPECT_EQ((*gpu)->fault_stall_ns(pid, monotonic_ns()), 0u) << "not since then";
    const uint64_t stall = (*gpu)->fault_stall_ns(pid, before);
    if (stall != 0) {
      EXPECT_GE(monotonic_ns(), before + stall) << "it hears when the GPU goes on";
    }
    return stall;
  }
};

TEST_F(Stall, AnUnmappedAddressTakesAsLongAsOnAnH100) {
  EXPECT_EQ(stall_of('x', 700), 150'000'000u);
}
TEST_F(Stall, AMisalignedOneTakesHalf) { EXPECT_EQ(stall_of('X', 716), 78'000'000u); }
TEST_F(Stall, ATrapStopsNobody) { EXPECT_EQ(stall_of('t', 719), 0u); }
TEST_F(Stall, TimeSlicesStandStill) {
  EXPECT_EQ(stall_of('x', 700, {{"SLUICE_SOFT_MODE", "timeslice"}}), 150'000'000u);
}
TEST_F(Stall, ZeroSwitchesItOff) {
  const Environment off = {{"SLUICE_SOFT_FAULT_US", "0"}, {"SLUICE_SOFT_EXCEPTION_US", "0"}};
  EXPECT_EQ(stall_of('x', 700, off), 0u);
  EXPECT_EQ(stall_of('X', 716, off), 0u);
  EXPECT_EQ(faults().put, 0u);
}
TEST_F(Stall, SideBySideNothingStandsStill) {
  EXPECT_EQ(stall_of('x', 700, {{"SLUICE_SOFT_MODE", "mps"}}), 0u);
}

TEST_F(Stall, TheNeighbourStandsStillAndGoesOn) {
  const Environment long_stall = {{"SLUICE_SOFT_FAULT_US", "1000000"}};
  Contender a(path_, long_stall), b(path_, long_stall);
  ASSERT_GT(a.ask('i'), 0);
  ASSERT_GT(b.ask('i'), 0);
  a.tell('x');
  while (faults().put == 0) ::usleep(200);
  const uint64_t until = state().stalled_until_ns;
  EXPECT_EQ(b.ask('k'), 0) << "with right results";
  EXPECT_GE(monotonic_ns(), until) << "its kernels ended before the GPU went on";
  EXPECT_EQ(a.answer(), 700);
}

TEST_F(Stall, GoesOnWhenWhoFaultedIsKilled) {
  const Environment long_stall = {{"SLUICE_SOFT_FAULT_US", "1000000"}};
  Contender a(path_, long_stall), b(path_, long_stall);
  ASSERT_GT(a.ask('i'), 0);
  ASSERT_GT(b.ask('i'), 0);
  a.tell('x');
  while (faults().put == 0) ::usleep(200);
  a.kill();
  EXPECT_EQ(b.ask('k'), 0);
  EXPECT_GE(monotonic_ns(), state().stalled_until_ns.load());
}

TEST_F(Stall, OnlyTheFirstFaultOfAContextCounts) {
  Contender a(path_);
  ASSERT_GT(a.ask('i'), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a.ask('x'), 700);
  EXPECT_EQ(faults().put, 1u);
}

}  // namespace
}  // namespace sluice::softgpu
