// SPDX-License-Identifier: Apache-2.0
// Clones on the interpreter, block by block: the kernels, a launch with its control block, and what
// must hold after every physical launch (abi/preempt.h). For clone_run_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "abi/preempt.h"
#include "kernels/exec/block/block.h"
#include "kernels/passes/rewrite.h"
#include "mediator/base/magic_divisor.h"

namespace sluice::passes {

// out[ticket] counts the runs of each task; where[ticket] is the index that it saw. One kernel each
// with a plain body, with threads that return early (one of them the leader), with barriers and
// dynamic shared memory, without any use of the index.
const char* const kKernels = R"(
.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 dynamic_memory[];

.visible .entry count(.param .u64 out, .param .u64 where)
{
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ctaid.y;
	mov.u32 %r3, %ctaid.z;
	mov.u32 %r4, %nctaid.x;
	mov.u32 %r5, %nctaid.y;
	mad.lo.u32 %r6, %r3, %r5, %r2;
	mad.lo.u32 %r6, %r6, %r4, %r1;
	ld.param.u64 %rd1, [out];
	mul.wide.u32 %rd2, %r6, 4;
	add.s64 %rd3, %rd1, %rd2;
	atom.global.add.u32 %r7, [%rd3], 1;
	ld.param.u64 %rd4, [where];
	mul.wide.u32 %rd5, %r6, 16;
	add.s64 %rd6, %rd4, %rd5;
	mov.u32 %r8, %nctaid.z;
	st.global.v4.u32 [%rd6], {%r1, %r2, %r3, %r8};
	ret;
}

.visible .entry early(.param .u64 out, .param .u64 where)
{
	.reg .pred %p<4>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	mov.u32 %r1, %tid.x;
	and.b32 %r2, %r1, 3;
	setp.eq.u32 %p1, %r2, 0;
	@%p1 ret;
	setp.lt.u32 %p2, %r1, 40;
	@%p2 bra SHORT;
	mov.u32 %r3, 0;
AGAIN:
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p3, %r3, %r1;
	@%p3 bra AGAIN;
	exit;
SHORT:
	ld.param.u64 %rd1, [out];
	mov.u32 %r6, %ctaid.x;
	mul.wide.u32 %rd2, %r6, 4;
	add.s64 %rd3, %rd1, %rd2;
	atom.global.add.u32 %r7, [%rd3], 1;
	ret;
}

.visible .entry shared(.param .u64 out, .param .u64 where)
{
	.reg .pred %p<2>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	mov.u32 %r1, %tid.x;
	mov.u32 %r6, %ctaid.x;
	mov.u32 %r2, dynamic_memory;
	shl.b32 %r3, %r1, 2;
	add.u32 %r4, %r2, %r3;
	st.shared.u32 [%r4], %r6;
	bar.sync 0;
	mov.u32 %r8, 252;
	sub.u32 %r8, %r8, %r3;
	add.u32 %r8, %r2, %r8;
	ld.shared.u32 %r9, [%r8];
	bar.sync 0;
	// Another task's value here would count for the wrong one.
	ld.param.u64 %rd1, [out];
	mul.wide.u32 %rd2, %r9, 4;
	add.s64 %rd3, %rd1, %rd2;
	atom.global.add.u32 %r7, [%rd3], 1;
	ret;
}

.visible .entry blind(.param .u64 out, .param .u64 where)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [out];
	atom.global.add.u32 %r1, [%rd1], 1;
	ret;
}
)";

class StillWorld : public exec::Environment {
 public:
  std::uint64_t global_timer_ns() override { return ++now_; }
  void print(std::string_view) override {}

 private:
  std::uint64_t now_ = 1000;
};

struct Setting {
  const char* kernel = "count";
  exec::Dim3 grid{3, 2, 2};
  std::uint32_t threads = 64;
  std::uint32_t workers = 3;  // without the proxy
  std::uint16_t chunk = 2;
  std::uint16_t chunk_max = 2;
  std::uint8_t batch_shift = 1;
  std::uint32_t target_clocks = 1000;
  bool proxy = false;
  bool first_tickets = false;
  std::uint32_t runs_per_task = 64;  // what out[ticket] must end as
  std::uint32_t seed = 1;
};

class CloneRun : public testing::Test {
 protected:
  struct alignas(128) Device {
    sluice_launch_control control;
    sluice_launch_control predecessor;
    sluice_launch_record record;
    alignas(128) sluice_evict_word signal;
    alignas(128) struct {
      std::uint32_t sm_workers[SLUICE_LEFT_SMS];
      std::uint64_t slot[16];
    } left;
    std::uint32_t out[64];
    struct alignas(16) {
      std::uint32_t x, y, z, grid_z;
    } where[64];
  };

  static void SetUpTestSuite() {
    auto rewritten = rewrite_module(std::string(kKernels));
    ASSERT_TRUE(rewritten) << rewritten.error().message;
    reports_ = rewritten->kernels;
    auto program = exec::decode_text(rewritten->text);
    ASSERT_TRUE(program) << program.error().message;
    auto image = exec::Image::make(*program, {});
    ASSERT_TRUE(image) << image.error().message;
    image_ = *image;
  }

  void SetUp() override {
    device_ = std::make_unique<Device>();
    std::memset(device_.get(), 0, sizeof *device_);
    ASSERT_TRUE(map_.add(address(device_.get()), sizeof *device_));
  }

  template <class T>
  static std::uint64_t address(T* p) {
    return reinterpret_cast<std::uint64_t>(p);
  }

  void begin(const Setting& s) {
    std::memset(device_.get(), 0, sizeof *device_);
    generation_ = 0;
    physical_ = 0;
    flags_ = 0;
    first_tickets_ = 0;
    if (s.first_tickets) {
      first_tickets_ = std::min(s.workers, static_cast<std::uint32_t>(s.grid.count()));
    }
    random_.seed(s.seed);
  }

  // One physical launch. After `evict_after` turns of blocks (negative: never) the evict word is
  // set for SMs [lo, hi); worker i stands on SM i % 2. Returns the turns that it took.
  int launch(const Setting& s, int evict_after, std::uint16_t lo = 0, std::uint16_t hi = 0xffff,
             bool after_predecessor = false) {
    const KernelReport* report = nullptr;
    for (const KernelReport& r : reports_)
      if (r.name == s.kernel) report = &r;
    EXPECT_TRUE(report && report->evictable);
    sluice_preempt_params p{};
    p.control = address(&device_->control);
    p.signal = address(&device_->signal);
    p.record = address(&device_->record);
    p.pred = after_predecessor ? address(&device_->predecessor) : 0;
    p.grid_x = s.grid.x;
    p.grid_y = s.grid.y;
    p.grid_z = s.grid.z;
    p.generation = ++generation_;
    p.chunk = s.chunk;
    p.flags = static_cast<std::uint16_t>((s.proxy ? SLUICE_LAUNCH_PROXY : 0) | flags_ |
                                         (physical_++ == 0 ? 0 : SLUICE_LAUNCH_RESUME));
    p.left = address(&device_->left);
    p.left_slots = 16;
    p.tasks = static_cast<std::uint32_t>(s.grid.count());
    p.target_clocks = s.target_clocks;
    p.chunk_max = s.chunk_max;
    p.batch_shift = s.batch_shift;
    p.tail_shift = 1;
    p.first_tickets = first_tickets_;
    p.sm_hi = only_sm_0_ ? 1 : 0xffff;
    p.sm_quota = quota_;
    p.place = place_;
    const MagicDivisor x = magic_divisor(s.grid.x), y = magic_divisor(s.grid.y);
    p.magic_x = x.magic;
    p.shift_x1 = x.shift1;
    p.shift_x2 = x.shift2;
    p.magic_y = y.magic;
    p.shift_y1 = y.shift1;
    p.shift_y2 = y.shift2;
    std::vector<std::byte> params(report->param_offset_of_block + sizeof p);
    const std::uint64_t arguments[] = {address(device_->out), address(device_->where)};
    std::memcpy(params.data(), arguments, sizeof arguments);
    std::memcpy(params.data() + report->param_offset_of_block, &p, sizeof p);

    exec::LaunchShape shape;
    shape.grid = {s.workers + (s.proxy ? 1 : 0), 1, 1};
    shape.block = {s.threads, 1, 1};
    shape.dynamic_shared_bytes =
        report->slot == SlotPlace::kDynamicEnd ? s.threads * 4 + SLUICE_PREEMPT_DYNAMIC_BYTES : 0;
    std::vector<std::unique_ptr<exec::Block>> blocks;
    for (std::uint32_t i = 0; i < shape.grid.x; ++i) {
      auto block = exec::Block::make(image_, std::string(s.kernel) + SLUICE_CLONE_SUFFIX, shape,
                                     params, map_, world_);
      EXPECT_TRUE(block) << block.error().message;
      if (!block) return -1;
      (*block)->start({i, 0, 0}, {i % 2, 2});
      blocks.push_back(std::move(*block));
    }
    // Blocks that come to SM 1 before any has come to SM 0.
    for (int i = 0; i < away_first_; ++i)
      for (std::size_t k = 1; k < blocks.size(); k += 2)
        if (blocks[k] && blocks[k]->run(25).state == exec::RunState::kDone)
          blocks[k].reset(), ++left_first_;
    std::erase(blocks, nullptr);
    int turns = 0;
    while (!blocks.empty()) {
      if (turns == evict_after) device_->signal = SLUICE_EVICT_WORD(generation_, lo, hi);
      const std::size_t k = random_() % blocks.size();
      const exec::RunResult result = blocks[k]->run(1 + random_() % 25);
      if (result.state == exec::RunState::kFault) {
        ADD_FAILURE() << blocks[k]->fault().describe();
        return -1;
      }
      if (result.state == exec::RunState::kDone)
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(k));
      if (++turns > 1000000) {
        ADD_FAILURE() << "launch does not end";
        return -1;
      }
    }
    return turns;
  }

  // What must hold after every physical launch, evicted or not.
  void check_left(const Setting& s, std::uint32_t physical) {
    const sluice_launch_control& c = device_->control;
    const sluice_launch_record& r = device_->record;
    const std::uint32_t total = static_cast<std::uint32_t>(s.grid.count());
    EXPECT_EQ(c.exited[0], 0u);
    EXPECT_EQ(c.physical, physical);
    // What was fetched has run or stands on the list.
    std::uint32_t left = 0, slots = 0;
    for (std::uint64_t slot : device_->left.slot) {
      if (slot == 0) continue;
      const auto begin = static_cast<std::uint32_t>(slot);
      const auto end = static_cast<std::uint32_t>(slot >> 32);
      EXPECT_LT(begin, end);
      EXPECT_LE(end, total);
      left += end - begin;
      ++slots;
    }
    const std::uint32_t fetched = std::min(c.next_ticket + first_tickets_, total);
    EXPECT_EQ(c.finished + left, fetched);
    EXPECT_EQ(c.left_count, slots);
    left_seen_ += slots;
    for (std::uint32_t workers : device_->left.sm_workers) EXPECT_EQ(workers, 0u);
    EXPECT_EQ(r.tasks_fetched, fetched);
    EXPECT_EQ(c.done, c.finished == total ? 1u : 0u);
    EXPECT_EQ(r.tasks_done, c.finished);
    EXPECT_EQ(r.generation, generation_);
    EXPECT_EQ(r.state,
              static_cast<std::uint32_t>(c.done ? SLUICE_LAUNCH_DONE : SLUICE_LAUNCH_TOEVICT));
    EXPECT_NE(r.left_ns, 0u);
    EXPECT_TRUE(r.start_ns != 0 || c.done == 0);
  }

  void check_results(const Setting& s) {
    const std::uint32_t total = static_cast<std::uint32_t>(s.grid.count());
    EXPECT_EQ(device_->control.done, 1u);
    for (std::uint32_t t = 0; t < total; ++t)
      ASSERT_EQ(device_->out[t], s.runs_per_task) << "task " << t;
    if (std::string(s.kernel) != "count") return;
    for (std::uint32_t t = 0; t < total; ++t) {
      EXPECT_EQ(device_->where[t].x, t % s.grid.x);
      EXPECT_EQ(device_->where[t].y, t / s.grid.x % s.grid.y);
      EXPECT_EQ(device_->where[t].z, t / s.grid.x / s.grid.y);
      EXPECT_EQ(device_->where[t].grid_z, s.grid.z);
    }
  }

  // Evicts at every `step`th turn of the undisturbed schedule, then each relaunch again after as
  // many turns, until the launch is done.
  // Returns how often it was evicted.
  int evict_everywhere(Setting s, int step) {
    begin(s);
    const int turns = launch(s, -1);
    check_left(s, 1);
    check_results(s);
    int evictions = 0;
    for (int at = 0; at <= turns && !HasFailure(); at += step) {
      begin(s);
      std::uint32_t physical = 0;
      do {
        // From the third launch on it may go through, so that eviction at turn 0 comes to an end.
        launch(s, physical < 3 ? at : -1);
        check_left(s, ++physical);
        evictions += device_->record.state == SLUICE_LAUNCH_TOEVICT;
        EXPECT_LT(physical, 10u);
      } while (device_->record.state != SLUICE_LAUNCH_DONE && !HasFailure());
      check_results(s);
    }
    return evictions;
  }

  inline static std::vector<KernelReport> reports_;
  inline static std::shared_ptr<const exec::Image> image_;
  std::unique_ptr<Device> device_;
  exec::MemoryMap map_;
  StillWorld world_;
  std::mt19937 random_;
  std::uint32_t generation_ = 0;
  int physical_ = 0;
  std::uint16_t flags_ = 0;
  std::uint16_t quota_ = 0;
  std::uint32_t place_ = 0;
  bool only_sm_0_ = false;
  int away_first_ = 0, left_first_ = 0;
  std::uint32_t first_tickets_ = 0;
  std::uint64_t left_seen_ = 0;  // rests found on the list, over the whole test
};

}  // namespace sluice::passes
