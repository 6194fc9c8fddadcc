// SPDX-License-Identifier: Apache-2.0
// The time slices of a software GPU's contexts, and what is believed of their counters
// (mediator/daemon/scheduling/time_slices.h).
#include "mediator/daemon/scheduling/time_slices.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <map>
#include <random>
#include <set>

#include "mediator/base/fd.h"
#include "mediator/daemon/scheduling/worker_time_slices.h"
#include "mediator/softgpu/shared/shared_gpu.h"

namespace sluice {
namespace {

constexpr uint64_t kMs = 1'000'000;

class TimeSlicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/sluice-slices-XXXXXX";
    Fd made(::mkstemp(name.data()));
    path_ = name;
    ::unlink(name.c_str());
    make();
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  void make() {
    softgpu::Config config;
    config.gpu_file = path_;
    config.memory_bytes = 64 << 20;
    auto gpu = softgpu::SharedGpu::open(config);
    ASSERT_TRUE(gpu.ok()) << gpu.error().message;
    gpu_ = std::move(*gpu);
    fd_.reset(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  }
  template <class T>
  void put(uint32_t tsgid, size_t offset, T value) {
    const off_t at = static_cast<off_t>(SLUICE_SOFT_CHANNELS_OFFSET +
                                        size_t{tsgid - 1} * SLUICE_SOFT_CHANNEL_BYTES + offset);
    ASSERT_EQ(::pwrite(fd_.get(), &value, sizeof value, at), static_cast<ssize_t>(sizeof value));
  }
  void context(uint32_t tsgid, uint32_t generation, uint32_t pid, uint64_t engine_ns) {
    put(tsgid, offsetof(sluice_soft_channel, generation), generation);
    put(tsgid, offsetof(sluice_soft_channel, pid), pid);
    put(tsgid, offsetof(sluice_soft_channel, engine_ns), engine_ns);
  }
  uint32_t slice_us(uint32_t tsgid) {
    auto gpu = gpu::SoftGpu::open(path_, false);
    return gpu.ok() ? (*gpu)->channel(tsgid).timeslice_us : 0;
  }
  std::map<pid_t, uint64_t> read_use(TimeSlices& slices, uint64_t now_ns) {
    std::map<pid_t, uint64_t> used;
    slices.read_use(
        now_ns, true, [](pid_t) { return TimeSlices::Work::kRuns; },
        [&](pid_t worker, uint64_t ns, bool) { used[worker] += ns; });
    return used;
  }

  std::string path_;
  std::unique_ptr<softgpu::SharedGpu> gpu_;
  Fd fd_;
};

TEST_F(TimeSlicesTest, SetsThemAndTellsWhatWasUsed) {
  SoftTimeSlices slices(path_);
  context(3, 1, 70, 5 * kMs), context(4, 1, 70, 0), context(9, 1, 71, 0), context(10, 1, 72, 0);
  slices.set(70, 4 * kMs), slices.set(71, 1);
  EXPECT_EQ(read_use(slices, 100 * kMs).size(), 1u);  // from here on; and the slices are set
  EXPECT_EQ(slice_us(3), 4000u);
  EXPECT_EQ(slice_us(4), 4000u);
  EXPECT_EQ(slice_us(9), 50u) << "the least there is";
  const uint32_t others = slice_us(10);
  context(3, 1, 70, 8 * kMs), context(4, 1, 70, 2 * kMs), context(9, 1, 71, kMs),
      context(10, 1, 72, kMs);
  auto used = read_use(slices, 110 * kMs);
  EXPECT_EQ(used, (std::map<pid_t, uint64_t>{{70, 5 * kMs}, {71, kMs}}));
  EXPECT_EQ(slice_us(10), others) << "nobody's";
  // Another context in the place of the first begins at nothing.
  context(3, 2, 71, kMs);
  EXPECT_EQ(read_use(slices, 120 * kMs), (std::map<pid_t, uint64_t>{{71, kMs}}));
  EXPECT_EQ(slice_us(3), 50u);
  slices.forget(71);
  context(9, 1, 71, 3 * kMs);
  EXPECT_TRUE(read_use(slices, 130 * kMs).empty());
}

TEST_F(TimeSlicesTest, WhatAWorkerWritesBuysAndCostsLittle) {
  SoftTimeSlices slices(path_);
  context(1, 1, 70, 0), context(2, 1, 71, 0);
  slices.set(70, 2 * kMs), slices.set(71, 2 * kMs);
  read_use(slices, 100 * kMs);
  put(1, offsetof(sluice_soft_channel, timeslice_us), 9'000'000u);  // a longer turn for itself
  put(2, offsetof(sluice_soft_channel, engine_ns), ~0ull);          // and years for another
  const auto used = read_use(slices, 110 * kMs);
  EXPECT_EQ(slice_us(1), 2000u);
  EXPECT_LE(used.at(71), (10 + 2 * 2) * kMs);
  put(2, offsetof(sluice_soft_channel, engine_ns), 0ull);  // back again
  EXPECT_TRUE(read_use(slices, 120 * kMs).empty());
  std::mt19937_64 random(1);
  for (int i = 1; i < 200; ++i) {
    for (uint32_t tsgid = 1; tsgid <= 4; ++tsgid)
      context(tsgid, static_cast<uint32_t>(random() % 3), 70 + static_cast<uint32_t>(random() % 3),
              random() >> random() % 64);
    for (const auto& [worker, ns] : read_use(slices, 120 * kMs + i * kMs)) {
      EXPECT_TRUE(worker == 70 || worker == 71);
      EXPECT_LE(ns, (1 + 2 * 2) * kMs) << "however many contexts are said to be its";
    }
  }
}

TEST_F(TimeSlicesTest, AFileThatGoesIsOpenedAgainWhenItIsThere) {
  SoftTimeSlices slices(path_);
  context(1, 1, 70, 0);
  slices.set(70, 2 * kMs);
  read_use(slices, 100 * kMs);
  gpu_.reset();
  ASSERT_EQ(::ftruncate(fd_.get(), 0), 0);
  EXPECT_TRUE(read_use(slices, 110 * kMs).empty());
  slices.set(70, 3 * kMs);
  ::unlink(path_.c_str());
  EXPECT_TRUE(read_use(slices, 300 * kMs).empty());
  make();
  context(1, 1, 70, kMs);
  read_use(slices, 1000 * kMs);
  EXPECT_EQ(slice_us(1), 3000u);
  context(1, 1, 70, 3 * kMs);
  EXPECT_EQ(read_use(slices, 1010 * kMs).at(70), 2 * kMs);
  // Removed by the operator while it was in use: the next worker makes another.
  ::unlink(path_.c_str());
  make();
  context(1, 1, 70, 0);
  read_use(slices, 2000 * kMs);
  EXPECT_EQ(slice_us(1), 3000u);
}

// ---- NVIDIA's, which workers set themselves ----

class WorkerTimeSlicesTest : public ::testing::Test {
 protected:
  std::map<pid_t, uint64_t> read_use(uint64_t now_ns, bool now = true) {
    std::map<pid_t, uint64_t> used;
    slices_.read_use(
        now_ns, now,
        [&](pid_t worker) {
          return working_.contains(worker) ? TimeSlices::Work::kRuns : TimeSlices::Work::kNone;
        },
        [&](pid_t worker, uint64_t ns, bool) { used[worker] += ns; });
    return used;
  }
  WorkerTimeSlices slices_{{.switch_ns = kMs}};
  std::set<pid_t> working_;
};

// A gate that opens or closes counts from then on, not from the next read: on an H200 a holder's
// first 5 ms of 10 were nobody's.
TEST_F(WorkerTimeSlicesTest, WhatIsNotedCountsAtOnce) {
  slices_.add(70, 1), slices_.add(71, 2);
  slices_.set(70, 7 * kMs), slices_.set(71, 7 * kMs);
  working_ = {71};
  EXPECT_TRUE(read_use(100 * kMs).empty());
  slices_.note_work(102 * kMs, 71, TimeSlices::Work::kWaits);
  slices_.note_work(104 * kMs, 70, TimeSlices::Work::kRuns);
  slices_.note_work(104 * kMs, 72, TimeSlices::Work::kRuns);  // which is not there
  working_ = {70};
  EXPECT_EQ(read_use(110 * kMs), (std::map<pid_t, uint64_t>{{70, 6 * kMs}, {71, 2 * kMs}}));
}

TEST_F(WorkerTimeSlicesTest, AWorkerIsToldWhatIsNewAndTheHardwareTakes) {
  EXPECT_EQ(slices_.set(70, 4 * kMs), 4 * kMs);
  EXPECT_EQ(slices_.set(70, 4 * kMs), 0u);
  EXPECT_EQ(slices_.set(70, 1), 100'000u);
  EXPECT_EQ(slices_.set(70, 2), 0u);
  EXPECT_EQ(slices_.set(70, UINT64_MAX), 10'000 * kMs);
  slices_.forget(70);
  EXPECT_EQ(slices_.set(70, UINT64_MAX), 10'000 * kMs) << "another process of that number";
}

TEST_F(WorkerTimeSlicesTest, WhoHadWorkHasItsTurnsPartOfTheTime) {
  slices_.add(70, 1), slices_.add(71, 2);
  slices_.set(70, 7 * kMs), slices_.set(71, 3 * kMs);  // turns of 8 and 4 ms
  EXPECT_TRUE(read_use(100 * kMs).empty());
  working_ = {70};
  EXPECT_TRUE(read_use(110 * kMs).empty()) << "it had none when that time began";
  EXPECT_EQ(read_use(120 * kMs), (std::map<pid_t, uint64_t>{{70, 10 * kMs}}));
  working_ = {70, 71};
  EXPECT_EQ(read_use(130 * kMs), (std::map<pid_t, uint64_t>{{70, 10 * kMs}}));
  EXPECT_EQ(read_use(142 * kMs), (std::map<pid_t, uint64_t>{{70, 8 * kMs}, {71, 4 * kMs}}));
  slices_.set(71, 7 * kMs);
  EXPECT_EQ(read_use(150 * kMs), (std::map<pid_t, uint64_t>{{70, 4 * kMs}, {71, 4 * kMs}}));
  slices_.forget(70);
  EXPECT_EQ(read_use(160 * kMs), (std::map<pid_t, uint64_t>{{71, 10 * kMs}}));
}

// Taken for idle until its next report, it had the GPU for free (an H100: 2:1 waiting was 64.6 %).
TEST_F(WorkerTimeSlicesTest, WhoIsBackAfterTenMicrosecondsIsSeen) {
  slices_.add(70, 1), slices_.set(70, kMs);
  working_ = {70};
  read_use(100 * kMs);
  working_ = {};
  read_use(101 * kMs, false);
  working_ = {70};
  read_use(101 * kMs + 10'000, false);
  EXPECT_NEAR(static_cast<double>(read_use(111 * kMs)[70]), 10e6, 20e3);
}

TEST_F(WorkerTimeSlicesTest, LooksThatComeTooSoonLoseNothing) {
  slices_.set(70, kMs);
  working_ = {70};
  read_use(100 * kMs);
  EXPECT_TRUE(read_use(100 * kMs + 1000, false).empty());
  EXPECT_EQ(read_use(101 * kMs, false), (std::map<pid_t, uint64_t>{{70, kMs}}));
}

}  // namespace
}  // namespace sluice
