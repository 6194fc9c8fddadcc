// SPDX-License-Identifier: Apache-2.0
// The software GPU's ways to share itself: by time slices, side by side, on SMs of one's own; and
// what preemption leaves of what it interrupts. All asserted by what happened, in which order, and
// by what the GPU's own log and registers say; never by how long this machine took.
#include <random>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/gpu/register_reader.h"
#include "mediator/gpu/soft_gpu.h"
#include "mediator/softgpu/shared/shared_gpu.h"
#include "policies/accounting/switch_log.h"
#include "tests/unit/softgpu/contention/contender.h"

namespace sluice::softgpu {
namespace {

using Environment = std::map<std::string, std::string>;

class Modes : public ContentionTest {
 protected:
  Environment mode(const char* mode, const char* preemption = "save") {
    return {{"SLUICE_SOFT_MODE", mode},
            {"SLUICE_SOFT_PREEMPTION", preemption},
            {"SLUICE_SOFT_STALL_MS", "5000"},
            {"SLUICE_SOFT_THREADS", "2"}};
  }
  // Once somebody has made the file.
  gpu::SoftGpu& gpu() {
    if (!gpu_) gpu_ = *gpu::SoftGpu::open(path_, true);
    return *gpu_;
  }
  // What `c` or `C` makes when nobody disturbs it.
  long undisturbed(char command) {
    char name[] = "/tmp/sluice-gpu-XXXXXX";
    Fd fd(::mkstemp(name));
    ::unlink(name);
    Contender alone(name, mode("fcfs"));
    EXPECT_GT(alone.ask('i'), 0);
    EXPECT_EQ(alone.ask(command), 0);
    const long sum = alone.ask('w');
    ::unlink(name);
    return sum;
  }
  std::unique_ptr<gpu::SoftGpu> gpu_;
};

TEST_F(Modes, ASliceEndsAKernelThatWouldNot) {
  Contender a(path_, mode("timeslice")), b(path_, mode("timeslice"));
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  ASSERT_GT(b.ask('i'), 0);
  ASSERT_EQ(a.ask('s'), 0);
  await_running(ta);
  EXPECT_EQ(b.ask('k'), 0) << "all of b's kernels end while a's goes on";
  EXPECT_EQ(a.ask('r'), 0);
  const sluice_soft_channel c = channel(ta);
  EXPECT_GE(c.preempt_count, 1u);
  EXPECT_GE(c.saved_blocks, 1u);
  EXPECT_GT(c.saved_bytes, 0u);
  EXPECT_GE(c.preempt_total_ns, c.preempt_max_ns);
  EXPECT_EQ(c.kernels, 1u);
}

TEST_F(Modes, SlicesGoRoundAndAreAsLongAsTheirOwnersSay) {
  std::vector<std::unique_ptr<Contender>> all;
  std::vector<uint32_t> groups;
  for (int i = 0; i < 3; ++i) {
    all.push_back(std::make_unique<Contender>(path_, mode("timeslice")));
    groups.push_back(static_cast<uint32_t>(all.back()->ask('i')));
  }
  const uint32_t slices_us[] = {1000, 3000, 6000};
  for (size_t i = 0; i < 3; ++i) gpu().set_timeslice(groups[i], slices_us[i]);
  for (auto& x : all) ASSERT_EQ(x->ask('s'), 0);
  // All three wait or run: from here on the log shows a full round again and again.
  for (uint32_t t : groups)
    while (channel(t).preempt_count < 2) ::usleep(500);
  std::vector<gpu::SoftGpu::SwitchRecord> log;
  gpu().read_log(log);
  log.clear();
  while (log.size() < 40) {
    gpu().read_log(log);
    ::usleep(1000);
  }
  EXPECT_EQ(gpu().lost_records(), 0u);
  std::vector<uint32_t> order;
  for (size_t i = 0; i + 1 < log.size(); ++i) {
    EXPECT_EQ(((log[i].seq + 1) & 0xffff), log[i + 1].seq);
    EXPECT_LE(log[i].time_ns, log[i + 1].time_ns);
    EXPECT_NE(log[i].start, log[i + 1].start) << "one on the engine at a time";
    if (!log[i].start) continue;
    ASSERT_EQ(log[i].tsgid, log[i + 1].tsgid) << "who has started ends";
    order.push_back(log[i].tsgid);
    const size_t who =
        static_cast<size_t>(std::find(groups.begin(), groups.end(), log[i].tsgid) - groups.begin());
    ASSERT_LT(who, 3u);
    // Its stamps have steps of 32 ns.
    EXPECT_GE(log[i + 1].time_ns - log[i].time_ns + 64, slices_us[who] * 1000u);
  }
  for (size_t i = 3; i < order.size(); ++i) {
    EXPECT_EQ(order[i], order[i - 3]) << "first come first served";
    EXPECT_NE(order[i], order[i - 1]);
  }
  for (auto& x : all) EXPECT_EQ(x->ask('r'), 0);
}

TEST_F(Modes, DrainingLetsRunningBlocksFinish) {
  const long sum = undisturbed('C');
  Contender a(path_, mode("timeslice", "drain")), b(path_, mode("timeslice", "drain"));
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  ASSERT_GT(b.ask('i'), 0);
  gpu().set_timeslice(ta, 200);
  ASSERT_EQ(a.ask('C'), 0);
  await_running(ta);
  EXPECT_EQ(b.ask('k'), 0);
  EXPECT_EQ(a.ask('w'), sum);
  EXPECT_EQ(channel(ta).saved_blocks, 0u);
}

TEST_F(Modes, ADrainedKernelIsPreemptedBetweenItsBlocks) {
  Contender a(path_, mode("fcfs", "drain"));
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  const long sum = undisturbed('C');
  ASSERT_EQ(a.ask('C'), 0);
  await_running(ta);
  gpu().preempt(ta);
  while (channel(ta).preempt_count == 0 && channel(ta).kernels == 0) ::usleep(100);
  EXPECT_EQ(a.ask('w'), sum);
  EXPECT_EQ(channel(ta).saved_blocks, 0u);
}

TEST_F(Modes, WhatIsSavedAtAnyPointGoesOnAsIfNothingHadBeen) {
  const long sum = undisturbed('c');
  Contender a(path_, mode("fcfs"));
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  std::mt19937 random(1);
  ASSERT_EQ(a.ask('c'), 0);
  await_running(ta);
  for (uint64_t seen = 0; channel(ta).kernels == 0; ++seen) {
    gpu().preempt(ta);
    while (channel(ta).preempt_count == seen && channel(ta).kernels == 0) ::usleep(50);
    ::usleep(random() % 2000);
  }
  EXPECT_EQ(a.ask('w'), sum);
  EXPECT_GE(channel(ta).preempt_count, 1u);
  EXPECT_GE(channel(ta).saved_blocks, 1u);
}

TEST_F(Modes, BlocksThatAreMovedToOtherSmsGoOn) {
  const long sum = undisturbed('c');
  Contender a(path_, mode("mps"));
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  std::mt19937 random(2);
  ASSERT_EQ(a.ask('c'), 0);
  while (channel(ta).kernels == 0) {
    uint64_t set[SLUICE_SOFT_MAX_SMS / 64] = {1 + random() % 15};
    gpu().set_sms(ta, set);
    ::usleep(random() % 2000);
  }
  EXPECT_EQ(a.ask('w'), sum);
  EXPECT_GE(channel(ta).saved_blocks, 1u);
}

// A cluster leaves and comes back as a whole, whatever its blocks are doing.
TEST_F(Modes, ClustersAreSavedAtAnyPoint) {
  const long sum = undisturbed('K');
  EXPECT_NE(sum, 0);
  Contender a(path_, mode("fcfs"));
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  std::mt19937 random(3);
  ASSERT_EQ(a.ask('K'), 0);
  await_running(ta);
  for (uint64_t seen = 0; channel(ta).kernels == 0; ++seen) {
    gpu().preempt(ta);
    while (channel(ta).preempt_count == seen && channel(ta).kernels == 0) ::usleep(50);
    ::usleep(random() % 2000);
  }
  EXPECT_EQ(a.ask('w'), sum);
  EXPECT_GE(channel(ta).saved_blocks, 1u);
}

TEST_F(Modes, ClustersThatAreMovedToOtherSmsGoOn) {
  const long sum = undisturbed('K');
  Contender a(path_, mode("mps"));
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  std::mt19937 random(4);
  ASSERT_EQ(a.ask('K'), 0);
  while (channel(ta).kernels == 0) {
    uint64_t set[SLUICE_SOFT_MAX_SMS / 64] = {1 + random() % 15};  // one SM holds a cluster
    gpu().set_sms(ta, set);
    ::usleep(random() % 2000);
  }
  EXPECT_EQ(a.ask('w'), sum);
  EXPECT_GE(channel(ta).saved_blocks, 1u);
}

TEST_F(Modes, InMpsClustersOfTwoGetAllTheirRoomAtOnce) {
  const long sum = undisturbed('K');
  Contender a(path_, mode("mps")), b(path_, mode("mps"));
  ASSERT_GT(a.ask('i'), 0);
  ASSERT_GT(b.ask('i'), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a.ask('K'), 0);
    ASSERT_EQ(b.ask('K'), 0);
    EXPECT_EQ(b.ask('w'), sum);
    EXPECT_EQ(a.ask('w'), sum);
  }
}

TEST_F(Modes, InMpsKernelsOfTwoRunSideBySide) {
  Contender a(path_, mode("mps")), b(path_, mode("mps"));
  const auto ta = static_cast<uint32_t>(a.ask('i')), tb = static_cast<uint32_t>(b.ask('i'));
  ASSERT_EQ(a.ask('s'), 0);
  await_running(SLUICE_SOFT_MPS_TSGID);
  ASSERT_EQ(b.ask('s'), 0);
  while (state().running.load() != ((1ull << (ta - 1)) | (1ull << (tb - 1)))) ::usleep(200);
  EXPECT_EQ(b.ask('r'), 0);
  EXPECT_EQ(a.ask('r'), 0);
  while (running() != 0) ::usleep(200);
  EXPECT_GT(channel(ta).sm_ns, 0u);
}

// Blocks that wait for one another come to be on the SMs all together, whoever else has room there.
TEST_F(Modes, InMpsACooperativeGridGathers) {
  Contender a(path_, mode("mps")), b(path_, mode("mps"));
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  ASSERT_GT(b.ask('i'), 0);
  const auto await_blocks = [&](uint32_t wanted) {
    for (uint32_t blocks = 0; blocks != wanted; ::usleep(200)) {
      blocks = 0;
      for (const auto& process : state().claims)
        for (const auto& sm : process) blocks += SmClaim::unpacked(sm.load()).blocks;
    }
  };
  ASSERT_EQ(b.ask('s'), 0);
  await_blocks(1);
  ASSERT_EQ(a.ask('g'), 0);
  await_blocks(16);  // 15 of its 16 are there, and only look
  EXPECT_EQ(b.ask('r'), 0);
  EXPECT_EQ(a.ask('y'), 0);
  // Parts of two would wait for one another.
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(a.ask('g'), 0);
    ASSERT_EQ(b.ask('g'), 0);
    EXPECT_EQ(b.ask('y'), 0);
    EXPECT_EQ(a.ask('y'), 0);
  }
  EXPECT_GE(channel(ta).kernels, 6u);
}

TEST_F(Modes, BlocksGoOnlyToTheSmsTheyAreGiven) {
  Contender a(path_, mode("mps")), b(path_, mode("mps"));
  const auto ta = static_cast<uint32_t>(a.ask('i')), tb = static_cast<uint32_t>(b.ask('i'));
  gpu().set_sms(ta, {0b0010});
  gpu().set_sms(tb, {0b1100});
  EXPECT_EQ(a.ask('m'), 0b0010);
  EXPECT_EQ(b.ask('m') & ~0b1100, 0);
  gpu().set_sms(ta, {});
  // A kernel that fills the rest of the GPU leaves others what is theirs.
  gpu().set_sms(tb, {0b0111});
  ASSERT_EQ(b.ask('S'), 0);
  EXPECT_EQ(a.ask('m') & 0b1000, 0b1000);
  EXPECT_EQ(b.ask('r'), 0);
}

TEST_F(Modes, APercentageGivesPartsOfTheGpuThatDoNotMeet) {
  Environment half = mode("mps");
  half["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "50";
  Contender a(path_, half), b(path_, half);
  ASSERT_GT(a.ask('i'), 0);
  ASSERT_GT(b.ask('i'), 0);
  // Both fill what they have, so all of it is seen.
  ASSERT_EQ(a.ask('S'), 0);
  ASSERT_EQ(b.ask('S'), 0);
  EXPECT_EQ(a.ask('r'), 0);
  EXPECT_EQ(b.ask('r'), 0);
  const long on_a = a.ask('m'), on_b = b.ask('m');
  EXPECT_EQ(on_a & on_b, 0);
  EXPECT_LE(__builtin_popcountl(static_cast<unsigned long>(on_a)), 2);
}

// Five SMs: two groups of two, and one that is left over.
TEST_F(Modes, InMpsGreenContextsOfProcessesDoNotMeet) {
  Environment five = mode("mps");
  five["SLUICE_SOFT_SMS"] = "5";
  Contender a(path_, five), b(path_, five), c(path_, five);
  for (Contender* each : {&a, &b, &c}) ASSERT_GT(each->ask('i'), 0);
  ASSERT_EQ(a.ask('0'), 2);
  ASSERT_EQ(b.ask('1'), 2);
  ASSERT_EQ(c.ask('0'), 2);
  EXPECT_EQ(a.ask('m'), 0b00011);
  EXPECT_EQ(b.ask('m'), 0b01100);
  // One fills its part, and another process's cooperative grid waits for room in it.
  ASSERT_EQ(a.ask('S'), 0);
  ASSERT_EQ(c.ask('g'), 0);
  while (state().gathering[0].load() == 0) ::usleep(200);
  EXPECT_EQ(state().gathering[2].load(), 0u);
  EXPECT_EQ(b.ask('m'), 0b01100) << "whatever goes on elsewhere";
  EXPECT_EQ(b.ask('g'), 0);
  EXPECT_EQ(b.ask('y'), 0);
  for (const auto& process : state().claims)
    for (uint32_t sm = 2; sm < 5; ++sm)
      EXPECT_EQ(process[sm].load(), 0u) << "nothing of a's or c's is there";
  ASSERT_EQ(b.ask('R'), 2);
  EXPECT_EQ(b.ask('m'), 0b10000);
  EXPECT_EQ(a.ask('r'), 0);
  EXPECT_EQ(c.ask('y'), 0);
  // Whoever rules over the GPU has the last word.
  const auto tc = static_cast<uint32_t>(c.ask('i'));
  gpu().set_sms(tc, {0b00110});
  EXPECT_EQ(c.ask('m'), 0b00010) << "what both allow";
  gpu().set_sms(tc, {0b01000});
  EXPECT_EQ(c.ask('m'), 0b01000) << "nothing is left of its own";
}

// Green contexts of those that take turns are confined, too, and preempted like all else.
TEST_F(Modes, GreenContextsTakeTurnsWithTheirProcess) {
  Environment settings = mode("timeslice");
  settings["SLUICE_SOFT_TIMESLICE_US"] = "200";
  settings["SLUICE_SOFT_GREEN"] = "scattered";
  Contender a(path_, settings), b(path_, settings);
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  ASSERT_GT(b.ask('i'), 0);
  ASSERT_EQ(a.ask('0'), 2);
  EXPECT_EQ(a.ask('m'), 0b0101) << "not neighbours";
  ASSERT_EQ(a.ask('S'), 0);
  await_running(ta);
  EXPECT_EQ(b.ask('k'), 0) << "all of b's kernels end while a's goes on";
  EXPECT_GE(channel(ta).saved_blocks, 1u);
  EXPECT_EQ(a.ask('r'), 0);
  EXPECT_EQ(a.ask('m'), 0b0101);
}

// As under MPS on an H200: groups come in an order of the chip's, and %smid counts within the
// context.
TEST_F(Modes, GroupsAndSmsMayHaveOtherNumbers) {
  Environment settings = mode("mps");
  settings["SLUICE_SOFT_SMS"] = "7";
  settings["SLUICE_SOFT_GREEN"] = "permuted";
  settings["SLUICE_SOFT_SMID"] = "virtual";
  Contender a(path_, settings);
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  const auto used = [&] { return gpu().take_sms_used(ta)[0]; };
  EXPECT_EQ(a.ask('m'), 0b1111111) << "not outside of green contexts";
  EXPECT_EQ(used(), 0b1111111u);
  const uint64_t groups[] = {0b001100, 0b000011, 0b110000};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a.ask(static_cast<char>('0' + i)), 3);
    EXPECT_EQ(used(), 0u) << "nothing has run since";
    EXPECT_EQ(a.ask('m'), 0b11);
    EXPECT_EQ(used(), groups[i]);
  }
  ASSERT_EQ(a.ask('R'), 3);
  EXPECT_EQ(a.ask('m'), 0b1);
  EXPECT_EQ(used(), 0b1000000u);
}

TEST_F(Modes, AGpuMayHaveNoGreenContextsOrNoRoomForOne) {
  Environment none = mode("mps"), full = none;
  none["SLUICE_SOFT_SM_GROUP"] = "0";
  full["SLUICE_SOFT_GREEN"] = "fail";
  {
    Contender a(path_, none);
    ASSERT_GT(a.ask('i'), 0);
    EXPECT_EQ(a.ask('0'), -801) << "CUDA_ERROR_NOT_SUPPORTED";
    EXPECT_EQ(a.ask('m'), 0b1111);
  }
  ::unlink(path_.c_str());
  Contender b(path_, full);
  ASSERT_GT(b.ask('i'), 0);
  EXPECT_EQ(b.ask('0'), -2) << "CUDA_ERROR_OUT_OF_MEMORY";
  EXPECT_EQ(b.ask('m'), 0b1111);
}

TEST_F(Modes, WhoFillsTheGpuAndDiesOrStopsLeavesItsRoom) {
  Environment settings = mode("mps");
  settings["SLUICE_SOFT_STALL_MS"] = "100";
  Contender a(path_, settings), b(path_, settings), c(path_, settings);
  const auto ta = static_cast<uint32_t>(a.ask('i')), tb = static_cast<uint32_t>(b.ask('i'));
  ASSERT_GT(c.ask('i'), 0);
  ASSERT_EQ(a.ask('S'), 0);
  while (state().claims[channel(ta).process][3].load() >> 48 != 4) ::usleep(200);
  c.tell('k');
  while (state().starved.load() == 0) ::usleep(200);
  a.stop();
  EXPECT_EQ(c.answer(), 0) << "a stands still";
  EXPECT_EQ(channel(ta).ejected, 1u);
  a.go_on();
  EXPECT_EQ(a.ask('r'), 0) << "and goes on where it was";
  ASSERT_EQ(b.ask('S'), 0);
  while (state().claims[channel(tb).process][3].load() >> 48 != 4) ::usleep(200);
  c.tell('k');
  while (state().starved.load() == 0) ::usleep(200);
  b.kill();
  EXPECT_EQ(c.answer(), 0) << "b is dead";
}

// At each look two that find no room ring one another, and neither ever waits in silence.
TEST_F(Modes, WhoFillsTheGpuAndDiesLeavesItsRoomToTwoThatWait) {
  for (int round = 0; round < 4; ++round) {
    Contender a(path_, mode("mps")), b(path_, mode("mps")), c(path_, mode("mps"));
    const auto ta = static_cast<uint32_t>(a.ask('i'));
    const uint32_t waiting[] = {static_cast<uint32_t>(b.ask('i')),
                                static_cast<uint32_t>(c.ask('i'))};
    ASSERT_EQ(a.ask('S'), 0);
    while (state().claims[channel(ta).process][3].load() >> 48 != 4) ::usleep(200);
    ASSERT_EQ(b.ask('S'), 0);
    ASSERT_EQ(c.ask('S'), 0);
    for (const uint32_t t : waiting)
      while ((state().starved.load() >> channel(t).process & 1) == 0) ::usleep(200);
    a.kill();
    EXPECT_EQ(b.ask('r'), 0);
    EXPECT_EQ(c.ask('r'), 0);
  }
}

TEST_F(Modes, AHolderThatStopsLosesTheEngineAndGoesOnAsANewcomer) {
  Environment settings = mode("fcfs");
  settings["SLUICE_SOFT_STALL_MS"] = "100";
  const long sum = undisturbed('c');
  Contender a(path_, settings), b(path_, settings);
  const auto ta = static_cast<uint32_t>(a.ask('i'));
  ASSERT_GT(b.ask('i'), 0);
  ASSERT_EQ(a.ask('c'), 0);
  ASSERT_EQ(a.ask('s'), 0);  // behind it, so that there is something to hold
  await_running(ta);
  a.stop();
  EXPECT_EQ(b.ask('k'), 0);
  EXPECT_GE(channel(ta).ejected, 1u);
  a.go_on();
  EXPECT_EQ(a.ask('r'), 0);
  EXPECT_EQ(a.ask('w'), sum) << "where it was interrupted";
}

TEST_F(Modes, RegistersAndLogTellTheSame) {
  Contender a(path_, mode("timeslice")), b(path_, mode("timeslice"));
  const auto ta = static_cast<uint32_t>(a.ask('i')), tb = static_cast<uint32_t>(b.ask('i'));
  auto registers = gpu::RegisterReader::open(path_);
  ASSERT_TRUE(registers.ok()) << registers.error().message;
  accounting::SwitchLog::Config config;
  config.interval_cost_ns = config.interval_cost_error_ns = 0;
  accounting::SwitchLog accounts(config);
  accounts.on_work(monotonic_ns(), 0, true);
  accounts.on_work(monotonic_ns(), 1, true);
  gpu();  // reads the log from here on
  ASSERT_EQ(a.ask('s'), 0);
  ASSERT_EQ(b.ask('s'), 0);
  struct Sample {
    uint64_t from_ns, to_ns;
    uint32_t status;
  };
  std::vector<Sample> samples;
  while (channel(ta).preempt_count < 8 || channel(tb).preempt_count < 8) {
    const uint64_t from = monotonic_ns();
    const uint32_t status = (*registers)->status0();
    samples.push_back({from, monotonic_ns(), status});
    ::usleep(100);
  }
  const uint64_t end = monotonic_ns();
  EXPECT_EQ(a.ask('r'), 0);
  EXPECT_EQ(b.ask('r'), 0);
  std::vector<gpu::SoftGpu::SwitchRecord> log;
  EXPECT_EQ(gpu().read_log(log), 0u);
  std::map<uint32_t, uint64_t> resident_ns;
  for (size_t i = 0; i < log.size(); ++i) {
    const gpu::SoftGpu::SwitchRecord& r = log[i];
    accounts.on_record({r.time_ns, r.seq, r.tsgid == ta ? 0u : 1u, r.start});
    if (!r.start && i > 0 && r.time_ns <= end)
      resident_ns[r.tsgid] += r.time_ns - log[i - 1].time_ns;
  }
  int compared = 0;
  std::map<uint32_t, int> states;
  for (const Sample& s : samples) {
    ++states[SLUICE_STATUS0_CTX_STATUS(s.status)];
    if (SLUICE_STATUS0_CTX_STATUS(s.status) != SLUICE_CTX_VALID || !SLUICE_STATUS0_BUSY(s.status))
      continue;
    bool resident = false;
    for (size_t i = 0; i < log.size() && !resident; ++i) {
      const uint64_t until = i + 1 < log.size() ? log[i + 1].time_ns + 32 : UINT64_MAX;
      resident = log[i].start && log[i].tsgid == SLUICE_STATUS0_TSGID(s.status) &&
                 log[i].time_ns <= s.to_ns && s.from_ns <= until;
    }
    EXPECT_TRUE(resident) << "the register shows " << SLUICE_STATUS0_TSGID(s.status);
    ++compared;
  }
  EXPECT_GT(compared, 10);
  // The estimator makes of the records what the records say.
  const uint64_t last = std::prev(log.end(), 1)->time_ns;
  accounts.settle(std::min(end, last));
  EXPECT_EQ(accounts.gaps(), 0u);
  EXPECT_GE(accounts.totals(0).intervals, 8u);
  EXPECT_GE(accounts.totals(0).resident_ns, resident_ns[ta]);
  EXPECT_GE(accounts.totals(1).resident_ns, resident_ns[tb]);
}

TEST_F(Modes, AReaderThatFallsBehindKnowsWhatItHasLost) {
  Config config;
  config.gpu_file = path_;
  auto mine = *SharedGpu::open(config);
  const unsigned slots[] = {*mine->join(), *mine->join()};
  constexpr uint64_t kTurns = SLUICE_SOFT_LOG_RECORDS;  // two records each, but for the first
  accounting::SwitchLog accounts({});
  std::vector<gpu::SoftGpu::SwitchRecord> log;
  const auto turn = [&](uint64_t i) {
    const unsigned slot = slots[i % 2];
    mine->request(slot);
    ASSERT_TRUE(mine->try_acquire(slot));
    mine->begin_switch(slot);
    mine->show_running(slot);
    mine->release(slot);
  };
  gpu();
  turn(0);
  turn(1);
  EXPECT_EQ(gpu().read_log(log), 0u);
  ASSERT_EQ(log.size(), 3u) << "start, end, start: the last one stays, idle";
  EXPECT_EQ(log[0].tsgid, SharedGpu::tsgid(slots[0]));
  EXPECT_TRUE(log[0].start && !log[1].start && log[2].start);
  for (uint64_t i = 2; i < 2 + kTurns; ++i) turn(i);
  EXPECT_EQ(gpu().read_log(log), 2 * kTurns - SLUICE_SOFT_LOG_RECORDS);
  EXPECT_EQ(log.size(), 3 + SLUICE_SOFT_LOG_RECORDS);
  EXPECT_EQ(gpu().read_log(log), 0u);
  for (const auto& r : log) accounts.on_record({r.time_ns, r.seq, r.tsgid, r.start});
  EXPECT_EQ(accounts.gaps(), 1u);
}

}  // namespace
}  // namespace sluice::softgpu
