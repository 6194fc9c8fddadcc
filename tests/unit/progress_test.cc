// What sluiced makes of launch records (mediator/core/progress.h), honest and forged.
#include "mediator/core/progress.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

namespace sluice::core {
namespace {

struct Report {
  std::unique_ptr<sluice_report_area> area = std::make_unique<sluice_report_area>();
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
sluice_launch_record running(uint64_t id, uint32_t kernel, uint32_t tasks, uint32_t fetched, uint32_t ran) {
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
  report[3] = running(4, 6, 50, 0, 0);
  report[3].state = SLUICE_LAUNCH_PREP;
  Progress p;
  ProgressSums sums;
  p.add(*report.area, &sums);
  EXPECT_EQ(sums.launches, 2u);
  EXPECT_EQ(sums.tasks_total, 150u);
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

TEST(Progress, ForgedRecordsAreBounded) {
  Report report;
  Progress p;
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    auto* words = reinterpret_cast<uint64_t*>(report.area->records);
    for (size_t i = 0; i < sizeof report.area->records / 8; ++i)
      words[i] = random() % 4 == 0 ? ~uint64_t{0} >> random() % 64 : random();
    for (auto& r : report.area->records) r.state = static_cast<uint32_t>(random() % 8);
    p.learn(static_cast<uint32_t>(random() % 3), *report.area);
    ProgressSums sums;
    p.add(*report.area, &sums);
    EXPECT_LE(sums.launches, SLUICE_REPORT_RECORDS);
    EXPECT_LE(sums.tasks_done, sums.tasks_fetched);
    EXPECT_LE(sums.tasks_fetched, sums.tasks_total);
    EXPECT_LE(sums.remaining_ns, SLUICE_REPORT_RECORDS * 3'600'000'000'000);
  }
  EXPECT_LE(p.learnt(), kMaxKernelsLearnt);
}

}  // namespace
}  // namespace sluice::core
