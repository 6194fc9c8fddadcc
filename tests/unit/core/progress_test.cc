// SPDX-License-Identifier: Apache-2.0
// What sluiced makes of launch records (mediator/core/progress.h), honest and forged.
#include "mediator/core/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

namespace sluice::core {
namespace {

struct Report {
  std::unique_ptr<sluice_launch_records> area = std::make_unique<sluice_launch_records>();
  sluice_launch_record& operator[](int i) { return area->records[i]; }
};

sluice_launch_record done(uint64_t id, uint32_t kernel, uint32_t tasks, uint64_t ns) {
  sluice_launch_record r{};
  r.state = SLUICE_LAUNCH_DONE;
  r.tasks_total = r.tasks_done = r.tasks_fetched = tasks;
  r.launch_id = id;
  r.start_ns = 1'000'000;
  r.left_ns = r.start_ns + ns;
  r.opaque = kernel << 1;
  return r;
}
sluice_launch_record running(uint64_t id, uint32_t kernel, uint32_t tasks, uint32_t fetched,
                             uint32_t ran) {
  sluice_launch_record r{};
  r.state = SLUICE_LAUNCH_RUNNING;
  r.tasks_total = tasks;
  r.tasks_fetched = fetched;
  r.tasks_done = ran;
  r.launch_id = id;
  r.opaque = kernel << 1;
  return r;
}

TEST(Progress, AddsUpWhatIsUnderWay) {
  Report report;
  report[0] = running(1, 5, 100, 40, 30);
  report[1] = done(2, 5, 100, 1000);
  report[2] = running(3, 6, 50, 0, 20);
  report[2].state = SLUICE_LAUNCH_READY;  // evicted, waits for the next grant
  report[3] = running(4, 6, 70, 0, 0);
  report[3].state = SLUICE_LAUNCH_PREP;  // waits behind the others, or for its first grant
  report[4] = running(5, 6, 50, 0, 0);
  report[4].state = SLUICE_LAUNCH_FREE;
  Progress p;
  ProgressSums sums;
  p.add(*report.area, &sums);
  EXPECT_EQ(sums.launches, 3u);
  EXPECT_EQ(sums.tasks_total, 220u);
  EXPECT_EQ(sums.tasks_done, 50u);
  EXPECT_EQ(sums.tasks_fetched, 60u) << "what is done was fetched";
  EXPECT_EQ(sums.predicted, 0u);
  EXPECT_EQ(sums.remaining_ns, 0u);
}

TEST(Progress, PredictsFromLaunchesThatNobodyEvicted) {
  Report report;
  Progress p;
  uint64_t id = 0;
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t tasks = 1000u * static_cast<uint32_t>(1 + i);
      report[i] = done(++id, 7, tasks, uint64_t{tasks} * 500);
    }
    report[4] = done(++id, 7, 1000, 1'000'000'000);
    report[4].evictions = 1;
    report[5] = done(++id, 7, 1000, 1'000'000'000);
    report[5].start_ns = 0;  // no block said so
    p.learn(1, *report.area);
    p.learn(1, *report.area);  // the same records: nothing new
  }
  EXPECT_EQ(p.learnt(), 1u);
  std::memset(report.area.get(), 0, sizeof *report.area);
  report[0] = running(++id, 7, 2000, 1000, 500);
  report[1] = running(++id, 8, 2000, 1000, 500);
  ProgressSums sums;
  p.add(*report.area, &sums);
  EXPECT_EQ(sums.launches, 2u);
  EXPECT_EQ(sums.predicted, 1u);
  EXPECT_NEAR(static_cast<double>(sums.remaining_ns), 500'000, 50'000);
}

// FLEP's four features: of two launches with as many blocks the shape says which is the longer.
TEST(Progress, LearnsByBlockSharedMemoryAndInput) {
  const auto truth_ns = [](const sluice_launch_shape& s, uint32_t tasks) {
    return 20'000 + uint64_t{tasks} * s.block_threads + 4 * uint64_t{s.shared_bytes} +
           s.input_bytes / 256;
  };
  std::mt19937 rng(3);
  const auto drawn = [&] {
    return sluice_launch_shape{.block_threads = 32 * (1 + static_cast<uint32_t>(rng() % 32)),
                               .shared_bytes = 1024 * static_cast<uint32_t>(rng() % 48),
                               .input_bytes = uint64_t{1 + rng() % 512} << 20};
  };
  Report report;
  Progress p;
  uint64_t id = 0;
  for (int round = 0; round < 300; ++round) {
    const sluice_launch_shape s = report.area->shapes[0] = drawn();
    const uint32_t tasks = 500 + static_cast<uint32_t>(rng() % 2000);
    report[0] = done(++id, 7, tasks, truth_ns(s, tasks));
    p.learn(1, *report.area);
  }
  double error = 0, error_of_blocks = 0;
  for (int i = 0; i < 100; ++i) {
    const sluice_launch_shape s = report.area->shapes[0] = drawn();
    report[0] = running(++id, 7, 1000, 0, 0);
    ProgressSums sums;
    p.add(*report.area, &sums);
    const auto truth = static_cast<double>(truth_ns(s, 1000));
    error += std::abs(static_cast<double>(sums.remaining_ns) / truth - 1) / 100;
    report.area->shapes[0] = {.block_threads = 528, .shared_bytes = 24'064, .input_bytes = 1 << 28};
    ProgressSums mean;
    p.add(*report.area, &mean);
    error_of_blocks += std::abs(static_cast<double>(mean.remaining_ns) / truth - 1) / 100;
  }
  EXPECT_LT(error, 0.05);
  EXPECT_GT(error_of_blocks, 0.2) << "by the blocks alone";
}

TEST(Progress, SessionsHaveNumbersOfTheirOwn) {
  Report a, b;
  Progress p;
  a[0] = done(100, 1, 10, 1000);
  b[0] = done(1, 2, 10, 1000);
  p.learn(1, *a.area);
  p.learn(2, *b.area);
  EXPECT_EQ(p.learnt(), 2u);
  p.forget(1);
  a[0] = done(1, 3, 10, 1000);  // another session with that number
  p.learn(1, *a.area);
  EXPECT_EQ(p.learnt(), 3u);
}

// What sluiced measured an eviction to take belongs to the kernels whose records say that they were
// evicted.
TEST(Progress, EvictionsCostWhatSluicedMeasured) {
  Report report;
  Progress p;
  const auto evict_cost = [&](uint32_t kernel) {
    Report r;
    r[0] = running(99, kernel, 10, 0, 0);
    ProgressSums sums;
    p.add(*r.area, &sums);
    return sums.preempt_ns;
  };
  report[0] = running(1, 5, 100, 40, 30);
  p.learn(1, *report.area);
  p.learn_evictions(0, 0);
  EXPECT_EQ(evict_cost(5), 0u);
  report[0].evictions = 2;
  p.learn(1, *report.area);
  p.learn_evictions(2, 600);
  EXPECT_EQ(evict_cost(5), 300u);
  p.learn(1, *report.area);  // nothing new of it
  report[1] = running(2, 6, 100, 40, 30);
  report[1].evictions = 1;
  p.learn(1, *report.area);
  p.learn_evictions(1, 100);
  EXPECT_EQ(evict_cost(5), 300u);
  EXPECT_EQ(evict_cost(6), 100u);
  // The worker counts it a moment later: the next look finds it ...
  p.learn(1, *report.area);
  p.learn_evictions(1, 500);
  report[1].evictions = 2;
  p.learn(1, *report.area);
  p.learn_evictions(0, 0);
  EXPECT_EQ(evict_cost(6), 300u);
  // ... and no later one: that eviction met a kernel without records.
  p.learn(1, *report.area);
  p.learn_evictions(1, 900);
  p.learn_evictions(0, 0);
  report[1].evictions = 3;
  p.learn(1, *report.area);
  p.learn_evictions(0, 0);
  EXPECT_EQ(evict_cost(6), 300u);
  EXPECT_EQ(p.evicted(), 2u);

  Progress again;
  ASSERT_TRUE(again.restore(p.save()).ok());
  EXPECT_EQ(again.save(), p.save());
  EXPECT_EQ(again.evicted(), 2u);
  const std::string good = p.save();
  for (const char* bad : {"7\n", "7 1\n", "7 0 5\n", "7 1 -5\n", "7 1 5 5\n", "5 1 5\n", "x 1 5\n",
                          "99999999999 1 5\n", "7 1 99999999999999\n", "\n", "7  1 5\n"}) {
    EXPECT_FALSE(again.restore(good + bad).ok()) << bad;
    EXPECT_EQ(again.save(), good);
  }
}

// A kernel that never ran to its end in one piece is predicted by what its tasks took until it was
// evicted (FRS, IV-E).
TEST(Progress, PredictsByTasksUntilALaunchHasEnded) {
  Report report;
  Progress p;
  report[0] = running(1, 5, 1000, 100, 100);
  report[0].state = SLUICE_LAUNCH_READY;
  report[0].evictions = 1;
  report[0].start_ns = 1'000, report[0].left_ns = 201'000;  // 2 us a task
  p.learn(1, *report.area);
  ProgressSums sums;
  p.add(*report.area, &sums);
  EXPECT_EQ(sums.predicted, 1u);
  EXPECT_NEAR(static_cast<double>(sums.remaining_ns), 900 * 2e3, 1e3);
}

TEST(Progress, LooksNoFurtherThanForWhatIsQueued) {
  Report report;
  Progress p;
  uint64_t id = 0;
  for (int i = 0; i < 20; ++i) {
    report[i] = done(++id, 7, 100, 50'000);
    p.learn(1, *report.area);
  }
  std::memset(report.area.get(), 0, sizeof *report.area);
  for (const int first : {300, 200}) {  // from where it found the last ones, and round
    report[first] = running(++id, 7, 100, 0, 0);
    report[first].state = SLUICE_LAUNCH_PREP;
    report[first + 1] = running(++id, 8, 100, 0, 0);  // never seen before
    report[(first + 2) % SLUICE_REPORT_RECORDS] = running(++id, 7, 100, 50, 50);
    const LaunchHints all = p.read(1, *report.area, 3);
    EXPECT_EQ(all.predicted, 2u);
    EXPECT_NEAR(static_cast<double>(all.remaining_ns), 75'000, 2'000);
    EXPECT_EQ(p.read(1, *report.area, 1).predicted, 1u);
    EXPECT_EQ(p.read(1, *report.area, 0).predicted, 0u);
    std::memset(report.area.get(), 0, sizeof *report.area);
  }
}

// A guest's kernels write records: each names another kernel.
TEST(Progress, KernelsWithoutEndAreNotKept) {
  Report report;
  Progress p;
  uint64_t id = 0;
  const auto launch = [&](uint32_t evictions) {
    ++id;
    sluice_launch_record r = done(id, static_cast<uint32_t>(id), 100, 50'000);
    r.evictions = evictions;
    if (evictions == 0) return r;
    r.state = SLUICE_LAUNCH_READY;
    r.tasks_done = r.tasks_fetched = 50;
    return r;
  };
  const auto learn = [&](uint32_t evictions) {
    for (int i = 0; i < SLUICE_REPORT_RECORDS; ++i) report[i] = launch(evictions);
    p.learn(1, *report.area);
  };
  const auto predicted = [&] {
    ProgressSums sums;
    p.add(*report.area, &sums);
    return sums.predicted;
  };
  constexpr int kLooks = 3 * kMaxKernelsLearnt / SLUICE_REPORT_RECORDS;
  learn(1);
  EXPECT_EQ(predicted(), SLUICE_REPORT_RECORDS) << "from what they did before they were evicted";
  p.learn_evictions(SLUICE_REPORT_RECORDS, 1'000'000);
  EXPECT_EQ(p.evicted(), kMaxKernelsEvicted) << "of one look";
  for (int i = 1; i < kLooks; ++i) learn(1);
  EXPECT_EQ(predicted(), 0u) << "what came last";
  for (int i = 0; i < kLooks; ++i) learn(0);
  EXPECT_EQ(p.learnt(), kMaxKernelsLearnt);
}

TEST(Progress, ForgedRecordsAreBounded) {
  Report report;
  Progress p;
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    auto* words = reinterpret_cast<uint64_t*>(report.area.get());
    for (size_t i = 0; i < sizeof *report.area / 8; ++i)
      words[i] = random() % 4 == 0 ? ~uint64_t{0} >> random() % 64 : random();
    for (auto& r : report.area->records) r.state = static_cast<uint32_t>(random() % 8);
    p.learn(static_cast<uint32_t>(random() % 3), *report.area);
    ProgressSums sums;
    p.add(*report.area, &sums);
    EXPECT_LE(sums.launches, SLUICE_REPORT_RECORDS);
    EXPECT_LE(sums.tasks_done, sums.tasks_fetched);
    EXPECT_LE(sums.tasks_fetched, sums.tasks_total);
    EXPECT_LE(sums.remaining_ns, SLUICE_REPORT_RECORDS * 3'600'000'000'000);
    const LaunchHints hints = p.read(1, *report.area, static_cast<uint32_t>(random()));
    EXPECT_LE(hints.predicted, kMaxLaunchesRead);
    EXPECT_LE(hints.remaining_ns, SLUICE_REPORT_RECORDS * 3'600'000'000'000);
    p.learn_evictions(random() % 3, random());
    EXPECT_LE(p.evicted(), kMaxKernelsLearnt);
  }
  EXPECT_LE(p.learnt(), kMaxKernelsLearnt);
}

}  // namespace
}  // namespace sluice::core
