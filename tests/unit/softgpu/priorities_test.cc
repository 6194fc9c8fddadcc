// SPDX-License-Identifier: Apache-2.0
// Stream priorities across the processes that share a software GPU in mps mode: at block
// boundaries, counted in blocks, never in time.
#include <list>

#include "mediator/softgpu/shared/shared_gpu.h"
#include "tests/unit/softgpu/contention/contender.h"

namespace sluice::softgpu {
namespace {

class Priorities : public ContentionTest {
 protected:
  const std::map<std::string, std::string> kMps{
      {"SLUICE_SOFT_MODE", "mps"}, {"SLUICE_SOFT_STALL_MS", "5000"}, {"SLUICE_SOFT_THREADS", "2"}};
  static SharedGpu::Urgencies on_sm0(uint8_t urgency) {
    SharedGpu::Urgencies at{};
    at[0] = urgency;
    return at;
  }
};

TEST_F(Priorities, RoomIsForTheMostUrgentWhoFindNone) {
  Config config;
  config.gpu_file = path_;
  config.mode = SLUICE_SOFT_MPS;
  auto low = *SharedGpu::open(config), high = *SharedGpu::open(config);
  const SmLimits limits;
  const SmClaim eighth{8192, 1024, 256, 1};
  const Rank least{urgency_of(0)}, most{urgency_of(-5)};
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(low->claim(0, limits, eighth, least));
  EXPECT_FALSE(high->claim(0, limits, eighth, most));
  high->mark_starved(on_sm0(most.urgency));
  for (int i = 0; i < 8; ++i) {
    low->unclaim(0, eighth);
    EXPECT_FALSE(low->claim(0, limits, eighth, least)) << "the room is the urgent one's";
    low->mark_starved(on_sm0(least.urgency));
    EXPECT_TRUE(high->claim(0, limits, eighth, most)) << "and more than its part of it";
  }
  EXPECT_TRUE(low->claim(1, limits, eighth, least)) << "where nobody urgent waits";
  high->unclaim(0, eighth);
  EXPECT_FALSE(low->claim(0, limits, eighth, least)) << "it still finds too little";
  const uint32_t bell = low->bell();
  high->clear_starved();
  EXPECT_NE(low->bell(), bell) << "the others hear that it has all it wanted";
  EXPECT_TRUE(low->claim(0, limits, eighth, least));
}

// `low` fills the GPU; `other`, low as well, and after it `high` wait for room.
TEST_F(Priorities, RoomIsForTheMostUrgentOfAllProcesses) {
  for (const bool fills : {true, false}) {
    Contender low(path_, kMps), other(path_, kMps), high(path_, kMps);
    uint32_t tsgid[3];
    Contender* const all[] = {&low, &other, &high};
    for (int i = 0; i < 3; ++i) {
      tsgid[i] = static_cast<uint32_t>(all[i]->ask('i'));
      ASSERT_EQ(all[i]->ask(i == 2 ? 'h' : 'l'), 0);
    }
    const auto blocks = [&](int i) {
      uint32_t sum = 0;
      const uint32_t process = channel(tsgid[i]).process;
      for (const auto& claim : state().claims[process % kMaxProcesses])
        sum += SmClaim::unpacked(claim.load()).blocks;
      return sum;
    };
    const auto starves = [&](int i) {
      return (state().starved.load() >> channel(tsgid[i]).process & 1) != 0;
    };
    ASSERT_EQ(low.ask('S'), 0);
    while (blocks(0) != 16) ::usleep(200);
    ASSERT_EQ(other.ask('S'), 0);
    while (!starves(1)) ::usleep(200);
    ASSERT_EQ(high.ask(fills ? 'S' : 's'), 0);
    while (!starves(2)) ::usleep(200);
    EXPECT_EQ(blocks(0), 16u) << "nothing that runs is taken off";
    EXPECT_EQ(low.ask('r'), 0);
    while (blocks(2) != (fills ? 16 : 1)) ::usleep(200);
    // What the urgent one leaves is the other's.
    while (blocks(1) != (fills ? 0 : 15)) ::usleep(200);
    EXPECT_EQ(high.ask('r'), 0);
    while (blocks(1) != 16) ::usleep(200);
    EXPECT_EQ(other.ask('r'), 0);
    for (const uint32_t t : tsgid) EXPECT_EQ(channel(t).saved_blocks, 0u);
  }
}

// As on an H100: a launch of equals that came later gets what an earlier one leaves.
TEST_F(Priorities, OfEqualsTheFirstEndsBesideLaterOnesThatNeverDo) {
  Contender first(path_, kMps);
  std::list<Contender> later;
  for (int i = 0; i < 4; ++i) later.emplace_back(path_, kMps);
  ASSERT_GT(first.ask('i'), 0);
  for (Contender& c : later) ASSERT_GT(c.ask('i'), 0);
  ASSERT_EQ(first.ask('C'), 0);  // many more blocks than there is room for at once
  for (Contender& c : later) ASSERT_EQ(c.ask('S'), 0);
  EXPECT_GE(first.ask('w'), 0);
  for (Contender& c : later) EXPECT_EQ(c.ask('r'), 0);
}

TEST_F(Priorities, AnUrgentOneThatDiesKeepsNobodyWaiting) {
  Contender low(path_, kMps);
  ASSERT_GT(low.ask('i'), 0);
  ASSERT_EQ(low.ask('S'), 0);
  {
    Contender high(path_, kMps);
    ASSERT_GT(high.ask('i'), 0);
    ASSERT_EQ(high.ask('h'), 0);
    ASSERT_EQ(high.ask('S'), 0);
    while (state().starved.load() == 0) ::usleep(200);
    high.kill();
  }
  EXPECT_EQ(low.ask('r'), 0);
  EXPECT_EQ(low.ask('k'), 0) << "its mark of having found no room has gone with it";
}

}  // namespace
}  // namespace sluice::softgpu
