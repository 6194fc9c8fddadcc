// SPDX-License-Identifier: Apache-2.0
// The engine of the software GPU without its interpreter: blocks here are C++ functions (this file
// defines exec::Block::make), so that residency, order, waiting, faults and contention can be seen
// one by one.
#include "mediator/softgpu/grid/grid_runner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <set>

namespace sluice {
namespace {

// One slice of a block: says how the slice ended.
using Script = std::function<exec::RunState(uint64_t block, exec::SmPlace place, unsigned slice)>;
// Called with the launch's grid id as a block starts.
std::function<void(uint64_t grid_id)> g_on_start;
Script g_script;
// Of a cluster: where its block of this rank is.
std::function<void(uint64_t first, uint32_t rank, exec::SmPlace place)> g_on_move;

class FakeBlock : public exec::Block {
 public:
  explicit FakeBlock(const exec::LaunchShape& shape) : shape_(shape) {}
  void start(exec::Dim3 ctaid, exec::SmPlace place) override {
    index_ = ctaid.x + uint64_t{shape_.grid.x} * (ctaid.y + uint64_t{shape_.grid.y} * ctaid.z);
    place_ = place;
    slice_ = 0;
    if (g_on_start) g_on_start(shape_.grid_id);
  }
  exec::RunResult run(uint64_t) override {
    exec::RunResult result;
    result.state = g_script(index_, place_, slice_++);
    result.steps = 1;
    result.waiting = result.state == exec::RunState::kYielded;
    if (result.state == exec::RunState::kFault) {
      fault_.kind = exec::FaultKind::kTrap;
      fault_.block = {static_cast<uint32_t>(index_), 0, 0};
    }
    return result;
  }
  void move_rank(uint32_t rank, exec::SmPlace place) override {
    if (g_on_move) g_on_move(index_, rank, place);
  }
  const exec::Fault& fault() const override { return fault_; }

 private:
  exec::LaunchShape shape_;
  uint64_t index_ = 0;
  exec::SmPlace place_;
  unsigned slice_ = 0;
  exec::Fault fault_;
};

}  // namespace

Result<std::unique_ptr<exec::Block>> exec::Block::make(std::shared_ptr<const Image>,
                                                       std::string_view, const LaunchShape& shape,
                                                       std::span<const std::byte>, MemoryMap&,
                                                       Environment&) {
  return std::unique_ptr<Block>(new FakeBlock(shape));
}

namespace softgpu {
namespace {

using exec::RunState;

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sluice-gpu-XXXXXX";
    Fd fd(::mkstemp(name));
    ::unlink(name);
    config_.gpu_file = name;
    config_.sms = 4;
    config_.blocks_per_sm = 2;
  }
  void TearDown() override { ::unlink(config_.gpu_file.c_str()); }

  std::unique_ptr<SharedGpu> open() { return *SharedGpu::open(config_); }

  // A grid whose end can be waited for.
  struct Launch {
    std::shared_ptr<Grid> grid = std::make_shared<Grid>();
    std::promise<exec::Fault> promise;
    std::future<exec::Fault> end = promise.get_future();
  };
  std::unique_ptr<Launch> make(unsigned slot, uint32_t blocks, uint32_t threads = 32) {
    auto launch = std::make_unique<Launch>();
    launch->grid->shape.grid = {blocks, 1, 1};
    launch->grid->shape.block = {threads, 1, 1};
    launch->grid->needs = block_needs(gpu_models()[0].sm, threads, 32, 0);
    launch->grid->slot = slot;
    launch->grid->map = &map_;
    launch->grid->on_done = [l = launch.get()](const exec::Fault& fault) {
      l->promise.set_value(fault);
    };
    return launch;
  }

  // A grid's end is reported before the engine looks for more work and, finding none, leaves.
  static void wait_until_free(const SharedGpu& gpu) {
    while (!gpu.engine_free()) ::usleep(100);
  }

  Config config_;
  exec::MemoryMap map_;
};

TEST_F(EngineTest, RunsEachBlockOnceInOrderOfStartWithinResidency) {
  auto gpu = open();
  const unsigned slot = *gpu->join();
  std::mutex m;
  std::vector<uint64_t> started;
  std::multiset<uint32_t> on_sm;
  size_t most = 0;
  g_script = [&](uint64_t block, exec::SmPlace place, unsigned slice) {
    std::lock_guard lock(m);
    if (slice == 0) {
      started.push_back(block);
      on_sm.insert(place.smid);
      EXPECT_EQ(place.nsmid, 4u);
      most = std::max(most, on_sm.count(place.smid));
    }
    if (slice < 3) return RunState::kYielded;
    on_sm.erase(on_sm.find(place.smid));
    return RunState::kDone;
  };
  GridRunner runner(*gpu, 1);  // one thread, so that starts are seen in order
  auto launch = make(slot, 100);
  runner.submit(launch->grid);
  EXPECT_EQ(launch->end.get().kind, exec::FaultKind::kNone);
  ASSERT_EQ(started.size(), 100u);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(started[i], i);
  EXPECT_EQ(most, 2u);
  wait_until_free(*gpu);
}

// 4 SMs with room for 2 blocks each hold one cluster of 6, over all of them, and 2 blocks besides.
TEST_F(EngineTest, AClusterTakesRoomForEachOfItsBlocksAndStartsAsAWhole) {
  auto gpu = open();
  const unsigned slot = *gpu->join();
  std::mutex m;
  std::map<uint64_t, std::multiset<uint32_t>> sms;
  std::vector<uint64_t> started;
  size_t resident = 0, most = 0;
  g_on_move = [&](uint64_t first, uint32_t rank, exec::SmPlace place) {
    std::lock_guard lock(m);
    EXPECT_GE(rank, 1u);
    EXPECT_LT(rank, 6u);
    sms[first].insert(place.smid);
  };
  g_script = [&](uint64_t block, exec::SmPlace place, unsigned slice) {
    std::lock_guard lock(m);
    if (slice == 0) {
      started.push_back(block);
      sms[block].insert(place.smid);
      most = std::max(most, ++resident);
    }
    if (slice < 3) return RunState::kYielded;
    --resident;
    return RunState::kDone;
  };
  GridRunner runner(*gpu, 2);
  auto launch = make(slot, 24);
  launch->grid->shape.cluster = {6, 1, 1};
  runner.submit(launch->grid);
  EXPECT_EQ(launch->end.get().kind, exec::FaultKind::kNone);
  g_on_move = nullptr;
  EXPECT_EQ(started, (std::vector<uint64_t>{0, 6, 12, 18}));
  EXPECT_EQ(most, 1u);
  for (const auto& [first, on] : sms) {
    EXPECT_EQ(on.size(), 6u) << first;
    for (uint32_t sm = 0; sm < 4; ++sm) {
      EXPECT_GE(on.count(sm), 1u) << first;
      EXPECT_LE(on.count(sm), 2u) << first;
    }
  }
  wait_until_free(*gpu);
}

// Clusters of 2 x 1 x 3 in a grid of 4 x 2 x 6: the first blocks are at multiples.
TEST_F(EngineTest, ClustersAreCountedOverTheGridsThreeDimensions) {
  auto gpu = open();
  const unsigned slot = *gpu->join();
  std::mutex m;
  std::set<uint64_t> started;
  g_script = [&](uint64_t block, exec::SmPlace, unsigned) {
    std::lock_guard lock(m);
    started.insert(block);
    return RunState::kDone;
  };
  GridRunner runner(*gpu, 2);
  auto launch = make(slot, 1);
  launch->grid->shape.grid = {4, 2, 6};
  launch->grid->shape.cluster = {2, 1, 3};
  runner.submit(launch->grid);
  EXPECT_EQ(launch->end.get().kind, exec::FaultKind::kNone);
  // x + 4 * y + 8 * z with x of 0 and 2, y of 0 and 1, z of 0 and 3.
  EXPECT_EQ(started, (std::set<uint64_t>{0, 2, 4, 6, 24, 26, 28, 30}));
}

TEST_F(EngineTest, BlocksThatWaitForLaterResidentOnesGetOn) {
  auto gpu = open();
  const unsigned slot = *gpu->join();
  std::atomic<bool> released{false};
  g_script = [&](uint64_t block, exec::SmPlace, unsigned) {
    if (block == 7) released = true;  // the last that is resident at first
    return released ? RunState::kDone : RunState::kYielded;
  };
  GridRunner runner(*gpu, 2);
  auto launch = make(slot, 50);
  runner.submit(launch->grid);
  EXPECT_EQ(launch->end.get().kind, exec::FaultKind::kNone);
}

TEST_F(EngineTest, SmallGridsSpreadOverSms) {
  auto gpu = open();
  const unsigned slot = *gpu->join();
  std::mutex m;
  std::set<uint32_t> sms;
  g_script = [&](uint64_t, exec::SmPlace place, unsigned) {
    std::lock_guard lock(m);
    sms.insert(place.smid);
    return sms.size() == 4 ? RunState::kDone : RunState::kYielded;  // hangs if two share an SM
  };
  GridRunner runner(*gpu, 2);
  auto launch = make(slot, 4);
  runner.submit(launch->grid);
  launch->end.get();
  EXPECT_EQ(sms.size(), 4u);
}

TEST_F(EngineTest, AFaultEndsTheGridOnceAndTheNextOneRuns) {
  auto gpu = open();
  const unsigned slot = *gpu->join();
  std::atomic<int> ran{0};
  std::atomic<bool> faulty{true};
  g_script = [&](uint64_t block, exec::SmPlace, unsigned) {
    ++ran;
    if (!faulty) return RunState::kDone;
    return block == 3 ? RunState::kFault : RunState::kYielded;  // the others would never end
  };
  GridRunner runner(*gpu, 2);
  auto bad = make(slot, 1000);
  runner.submit(bad->grid);
  const exec::Fault fault = bad->end.get();
  EXPECT_EQ(fault.kind, exec::FaultKind::kTrap);
  EXPECT_EQ(fault.block.x, 3u);
  faulty = false;
  ran = 0;
  auto good = make(slot, 20);
  runner.submit(good->grid);
  EXPECT_EQ(good->end.get().kind, exec::FaultKind::kNone);
  EXPECT_EQ(ran, 20);
}

TEST_F(EngineTest, TwoProcessesTakeTurnsKernelByKernel) {
  auto gpu_a = open(), gpu_b = open();
  const unsigned slot_a = *gpu_a->join(), slot_b = *gpu_b->join();
  std::atomic<bool> go{false};
  std::atomic<int> inside{0};
  g_script = [&](uint64_t, exec::SmPlace, unsigned slice) {
    if (slice == 0) {
      EXPECT_EQ(inside.fetch_add(1), 0) << "contexts exclude one another";
      return RunState::kYielded;
    }
    if (!go) return RunState::kYielded;
    --inside;
    return RunState::kDone;
  };
  GridRunner a(*gpu_a, 1), b(*gpu_b, 1);
  std::mutex m;
  std::string order;
  g_on_start = [&](uint64_t name) {
    std::lock_guard lock(m);
    order.push_back(static_cast<char>(name));
  };
  std::vector<std::unique_ptr<Launch>> launches;
  const auto submit = [&](GridRunner& runner, unsigned slot, char name) {
    launches.push_back(make(slot, 1));
    launches.back()->grid->shape.grid_id = static_cast<uint64_t>(name);
    runner.submit(launches.back()->grid);
  };
  // The first kernel holds the GPU until both have queued up; from then on a kernel each.
  submit(a, slot_a, 'a');
  while (gpu_b->engine_free()) ::usleep(100);
  for (int i = 0; i < 4; ++i) submit(b, slot_b, 'b');
  // A kernel that was queued before anybody waited may run beside the first: queue a's others now.
  for (int i = 0; i < 3; ++i) submit(a, slot_a, 'a');
  go = true;
  for (auto& launch : launches) launch->end.wait();
  g_on_start = nullptr;
  EXPECT_EQ(order, "abababab");
  wait_until_free(*gpu_a);
}

TEST_F(EngineTest, PreemptedBlocksGoOnWhereTheyWere) {
  for (uint32_t mechanism : {SLUICE_SOFT_SAVE, SLUICE_SOFT_DRAIN}) {
    ::unlink(config_.gpu_file.c_str());
    config_.preemption = mechanism;
    auto gpu = open();
    const unsigned slot = *gpu->join();
    std::mutex m;
    std::map<uint64_t, unsigned> slices;  // of each block
    int starts = 0;
    sluice_soft_channel& channel = gpu->channel(slot);
    g_script = [&](uint64_t block, exec::SmPlace, unsigned slice) {
      std::lock_guard lock(m);
      EXPECT_EQ(slice, slices[block]++) << "block " << block;
      starts += slice == 0;
      // Somebody asks again and again, at any point.
      if (slice % 7 == block % 7) {
        SharedGpu::word(channel.preempt).fetch_add(1);
        gpu->attention().fetch_add(1);
      }
      return slice == 20 ? RunState::kDone : RunState::kYielded;
    };
    GridRunner runner(*gpu, 2);
    auto launch = make(slot, 40);
    runner.submit(launch->grid);
    EXPECT_EQ(launch->end.get().kind, exec::FaultKind::kNone);
    EXPECT_EQ(starts, 40);
    for (uint64_t block = 0; block < 40; ++block) EXPECT_EQ(slices[block], 21u);
    wait_until_free(*gpu);
    EXPECT_GE(SharedGpu::word(channel.preempt_count).load(), 1u);
    if (mechanism == SLUICE_SOFT_SAVE) {
      EXPECT_GE(SharedGpu::word(channel.saved_blocks).load(), 1u);
    } else {
      EXPECT_EQ(SharedGpu::word(channel.saved_blocks).load(), 0u);
    }
  }
}

TEST_F(EngineTest, StopsWithWorkOutstandingAndLeavesTheGpu) {
  auto gpu = open(), other = open();
  const unsigned slot = *gpu->join();
  g_script = [](uint64_t, exec::SmPlace, unsigned) { return RunState::kYielded; };
  {
    GridRunner runner(*gpu, 2);
    auto launch = make(slot, 100);
    runner.submit(launch->grid);
    while (other->engine_free()) ::usleep(100);
    runner.stop();
  }
  EXPECT_TRUE(other->engine_free());
}

}  // namespace
}  // namespace softgpu
}  // namespace sluice
