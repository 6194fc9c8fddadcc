// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker on the software GPU: a launch that fits on the GPU at once leaves in
// mid-work, because its author says where (<sluice/preempt.cuh>), and is resumed until it is done.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/passes/rewrite.h"
#include "tests/authors/cases.h"
#include "tests/support/worker_process.h"

namespace sluice::test {
namespace {

using namespace calls;

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof value);
  std::memcpy(to.data() + at, &value, sizeof value);
}

class WorkerResume : public testing::Test {
 protected:
  void SetUp() override { start({}); }
  void start(WorkerBench::Options options) {
    options.environment.push_back("SLUICE_SOFT_MEMORY=256M");
    options.nvidia = kNvidia;
    b = std::make_unique<WorkerBench>(from_environment("SLUICE_TEST_WORKER", SLUICE_TEST_WORKER),
                                      from_environment("SLUICE_TEST_LIBRARY", SLUICE_TEST_SOFTCUDA),
                                      std::move(options));
    ASSERT_EQ(b->ready.code, 0) << b->ready.text;
    std::vector<std::byte> body;
    append(body, std::uint8_t{1});
    append(body, int{0});
    context = b->wait(b->post(kOpcode_cuDevicePrimaryCtxRetain, body, 0)).as<std::uint64_t>();
    auto rewritten = passes::rewrite_module(authors::text());
    ASSERT_TRUE(rewritten);
    reports = std::move(rewritten->kernels);
    rewritten_text = rewritten->text;
  }

  // The kernel in a module of its own: a module has one form of each.
  std::uint64_t function(const std::string& name, std::uint32_t flags, std::uint32_t state_bytes) {
    std::vector<std::byte> body;
    sluice_module_load m{};
    m.bulk = {kStaging, rewritten_text.size()};
    std::memcpy(b->bulk(kStaging), rewritten_text.data(), rewritten_text.size());
    append(body, m);
    const Answer module = b->wait(b->post(SLUICE_CALL_MODULE_LOAD, body, context));
    EXPECT_EQ(module.status, CUDA_SUCCESS);
    body.clear();
    sluice_function_get g{};
    g.module = module.as<std::uint64_t>();
    g.flags = flags;
    g.name_bytes = static_cast<std::uint32_t>(name.size());
    g.state_bytes = state_bytes;
    append(body, g);
    for (char c : name) body.push_back(static_cast<std::byte>(c));
    const Answer a = b->wait(b->post(SLUICE_CALL_FUNCTION_GET, body, context));
    EXPECT_EQ(a.status, CUDA_SUCCESS);
    return a.as<sluice_function_reply>().handle;
  }

  std::uint64_t alloc(std::uint64_t bytes) {
    std::vector<std::byte> body;
    append(body, std::uint8_t{1});
    append(body, bytes);
    return b->wait(b->post(kOpcode_cuMemAlloc_v2, body, context)).as<std::uint64_t>();
  }
  void upload(std::uint64_t device, std::uint64_t bytes, bool random) {
    std::mt19937 numbers(3);
    auto* words = reinterpret_cast<std::uint32_t*>(b->bulk(kStaging));
    for (std::uint64_t i = 0; i < bytes / 4; ++i) words[i] = random ? numbers() : 0;
    ASSERT_EQ(b->call(SLUICE_CALL_COPY, to_device(device, kStaging, bytes), context).status,
              CUDA_SUCCESS);
  }

  // Runs `one_wave` and returns what it wrote; evicts it as long as it runs.
  std::vector<std::byte> run(std::uint64_t f, bool evict, std::uint32_t blocks,
                             std::uint32_t steps) {
    const std::uint64_t out_bytes = blocks * 96ull * 8;
    const std::uint64_t in = alloc(4096), out = alloc(out_bytes);
    upload(in, 4096, true);
    upload(out, out_bytes, false);
    sluice_launch l{};
    l.function = f;
    l.grid[0] = blocks;
    l.grid[1] = l.grid[2] = 1;
    l.block[0] = 96;
    l.block[1] = l.block[2] = 1;
    l.param_bytes = 20;
    std::vector<std::byte> body;
    append(body, l);
    append(body, in);
    append(body, out);
    append(body, steps);
    b->post(SLUICE_CALL_LAUNCH, body, context, SLUICE_RECORD_NO_REPLY);
    const std::uint64_t done =
        b->post(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_CONTEXT, 0, 0}, context);
    const auto finished = __atomic_load_n(&b->report->header.launches_done, __ATOMIC_RELAXED) + 1;
    for (int k = 0; evict && k < 200; ++k) {
      if (__atomic_load_n(&b->report->header.launches_done, __ATOMIC_RELAXED) >= finished) break;
      ::usleep(500 + k * 13 % 1500);
      b->take_back();
      EXPECT_TRUE(b->wait_left());
      b->grant();
    }
    EXPECT_EQ(b->wait(done, 120000).status, CUDA_SUCCESS);
    EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_host(kStaging, out, out_bytes), context).status,
              CUDA_SUCCESS);
    return {b->bulk(kStaging), b->bulk(kStaging) + out_bytes};
  }

  std::unique_ptr<WorkerBench> b;
  std::uint64_t context = 0;
  std::string rewritten_text;
  std::vector<passes::KernelReport> reports;
};

constexpr std::uint32_t kFlags = SLUICE_FUNCTION_EVICTABLE | SLUICE_FUNCTION_RESUMABLE;

TEST_F(WorkerResume, AGridThatFitsAtOnceLeavesInMidWork) {
  std::uint32_t state = 0;
  for (const auto& k : reports)
    if (k.name == "one_wave") state = k.state_bytes;
  EXPECT_EQ(state, 16u);
  const auto expected = run(function("one_wave", 0, 0), false, 3, 6000);
  EXPECT_EQ(b->report->header.opaque_launches, 1u);
  const auto evicted = run(function("one_wave", kFlags, state), true, 3, 6000);
  EXPECT_TRUE(evicted == expected);
  EXPECT_EQ(b->report->header.opaque_launches, 1u);
  EXPECT_GT(b->report->header.evictions, 0u);
  EXPECT_GT(b->report->header.relaunches, 0u);
  EXPECT_EQ(b->report->header.demand, 0u);
  EXPECT_TRUE(b->async_errors.empty());
}

// More than a context has for it: the launch runs as it was written.
TEST_F(WorkerResume, TooMuchStateIsOpaque) {
  const std::uint64_t f = function("one_wave", kFlags, SLUICE_RESUME_MAX_BYTES);
  const auto small = run(f, false, 2, 3);
  EXPECT_EQ(b->report->header.opaque_launches, 0u);
  const auto large = run(f, false, 700, 3);
  EXPECT_EQ(b->report->header.opaque_launches, 1u);
  EXPECT_EQ(b->report->header.whole_launches, 0u);
  EXPECT_TRUE(std::equal(small.begin(), small.end(), large.begin()));
}

// A guest that says more than is possible has no clone.
TEST_F(WorkerResume, AForgedSizeIsOpaque) {
  const std::uint64_t f = function("one_wave", kFlags, 0xffffffff);
  run(f, false, 2, 3);
  EXPECT_EQ(b->report->header.opaque_launches, 1u);
}

// On a GPU that is shared in space, under each way to hear of an eviction: the proxy's is
// SLUICE_LAUNCH_DUTY here.
class WorkerResumeInSpace : public WorkerResume, public testing::WithParamInterface<wp::Signal> {
 protected:
  static constexpr std::uint32_t kSms = 8,
                                 kBlocks = 700;  // NVIDIA's: SM 65 counts as SM 1, and so on
  void SetUp() override {
    WorkerBench::Options options;
    options.signal = GetParam();
    options.spatial_sms = kNvidia ? 132 : kSms;
    options.open = false;
    options.environment = {"SLUICE_SOFT_SMS=" + std::to_string(kSms), "SLUICE_SOFT_THREADS=2"};
    start(std::move(options));
  }
  static SmSet set(std::initializer_list<std::uint32_t> sms) {
    SmSet s;
    for (std::uint32_t sm : sms) s.add(sm);
    return s;
  }
  // More blocks than any part holds at once, each of so many steps.
  void launch(std::uint32_t steps) {
    std::uint32_t state = 0;
    for (const auto& k : reports)
      if (k.name == "where") state = k.state_bytes;
    const std::uint64_t f = function("where", kFlags, state);
    out_ = alloc(kBlocks * 16);
    upload(out_, kBlocks * 16, false);
    sluice_launch l{};
    l.function = f;
    l.grid[0] = kBlocks;
    l.grid[1] = l.grid[2] = 1;
    l.block[0] = 64;
    l.block[1] = l.block[2] = 1;
    l.param_bytes = 12;
    std::vector<std::byte> body;
    append(body, l);
    append(body, out_);
    append(body, steps);
    b->post(SLUICE_CALL_LAUNCH, body, context, SLUICE_RECORD_NO_REPLY);
    done_ =
        b->post(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_CONTEXT, 0, 0}, context);
  }
  bool running() const {
    return __atomic_load_n(&b->report->header.launches_done, __ATOMIC_RELAXED) == 0;
  }
  // Every block has made all its steps, on SMs of `allowed`.
  void finish(std::uint32_t steps, const SmSet& allowed) {
    ASSERT_EQ(b->wait(done_, 120000).status, CUDA_SUCCESS);
    ASSERT_EQ(b->call(SLUICE_CALL_COPY, to_host(kStaging, out_, kBlocks * 16), context).status,
              CUDA_SUCCESS);
    const auto* words = reinterpret_cast<const std::uint64_t*>(b->bulk(kStaging));
    std::uint64_t seen = 0;
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      ASSERT_EQ(words[2 * block + 1], steps) << block;
      seen |= words[2 * block];
    }
    EXPECT_EQ(seen & ~allowed.word(0), 0u) << std::hex << seen;
    EXPECT_EQ(b->report->header.opaque_launches, 0u);
    EXPECT_EQ(b->report->header.unconfined, 0u);
    EXPECT_EQ(b->report->header.in_flight, 0u);
    EXPECT_TRUE(b->async_errors.empty());
  }
  std::uint64_t out_ = 0, done_ = 0;
};

TEST_P(WorkerResumeInSpace, BlocksStayOnTheirSmsAndComeInWaves) {
  b->grant_part(set({1, 2, 5}));
  launch(3);
  while (running()) ASSERT_EQ(__atomic_load_n(&b->report->header.unconfined, __ATOMIC_SEQ_CST), 0u);
  finish(3, set({1, 2, 5}));
  EXPECT_GT(b->report->header.relaunches, 0u);
  EXPECT_EQ(b->report->header.evictions, 0u) << "nobody asked it to leave";
}

TEST_P(WorkerResumeInSpace, BlocksFollowTheirSmsInMidWork) {
  SmSet allowed = set({0, 1, 2, 3});
  b->grant_part(allowed);
  const std::uint32_t kSteps = kNvidia ? 60'000 : 200;
  launch(kSteps);
  // Narrowed to some of its SMs, grown to others, evicted whole; SMs 6 and 7 are somebody else's
  // all the time.
  for (int i = 0; i < 12 && running(); ++i) {
    ::usleep(2000);
    const SmSet to = i % 3 == 0 ? set({0, 1}) : i % 3 == 1 ? set({0, 1, 4, 5}) : set({0, 1, 2, 3});
    allowed = allowed | to;
    if (i % 4 == 3) {
      b->take_back();
      ASSERT_TRUE(b->wait_left());
      b->grant_part(to);
      continue;
    }
    // It stays where what it has to leave is one range without SMs of the new set.
    const SmSet::Range leave = i % 3 == 0   ? SmSet::Range{2, 0xffff}
                               : i % 3 == 1 ? SmSet::Range{2, 4}
                                            : SmSet::Range{0, 0xffff};
    b->grant_part(to, true, i % 3 != 2, leave);
    ASSERT_TRUE(b->wait_moved());
  }
  finish(kSteps, allowed);
  std::printf(
      "%lu evictions, %lu relaunches, %lu times narrowed, %lu second grids, %d called back whole "
      "after all\n",
      b->report->header.evictions, b->report->header.relaunches, b->report->header.narrowed,
      b->report->header.grown, b->called_back_whole);
  EXPECT_GT(b->report->header.evictions, 0u);
  EXPECT_GT(b->report->header.narrowed, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, WorkerResumeInSpace,
                         testing::Values(wp::Signal::kHost, wp::Signal::kProxy));

}  // namespace
}  // namespace sluice::test
