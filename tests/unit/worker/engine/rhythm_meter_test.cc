// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/streams/rhythm_meter.h"

#include <gtest/gtest.h>

#include "mediator/worker/streams/gate.h"

namespace sluice::worker {
namespace {

TEST(RhythmMeter, MeansOfTheLastOnes) {
  constexpr uint64_t kUs = 1'000, kMs = 1'000'000;
  RhythmMeter r;
  uint64_t now = kMs;
  const auto come_and_go = [&](int times, uint64_t burst_ns, uint64_t gap_ns) {
    for (int i = 0; i < times; ++i) {
      r.begin(now);
      now += burst_ns;
      r.end(now);
      now += gap_ns;
    }
  };
  come_and_go(1, 60 * kUs, 5 * kMs);
  EXPECT_EQ(r.burst_ns(), 60 * kUs);
  EXPECT_EQ(r.gap_ns(), 0u) << "not known yet";
  come_and_go(40, 60 * kUs, 5 * kMs);
  EXPECT_EQ(r.burst_ns(), 60 * kUs);
  EXPECT_EQ(r.gap_ns(), 5 * kMs);
  come_and_go(40, 20 * kMs, 10 * kUs);
  EXPECT_GT(r.burst_ns(), 19 * kMs) << "another program now";
  EXPECT_LT(r.gap_ns(), 100 * kUs);
  come_and_go(100, 3'600'000 * kMs, 0);
  EXPECT_LE(r.burst_ns(), RhythmMeter::kLongestNs);
  EXPECT_GT(r.gap_ns(), 0u);
}

TEST(RhythmMeter, IsInTheReport) {
  constexpr uint64_t kMs = 1'000'000;
  sluice_host_page host{};
  sluice_signal_page signal{};
  sluice_report_header report{};
  Gate gate(&host, &signal, &report, 0, [] {});
  gate.set_demand(1, 10 * kMs);
  EXPECT_EQ(report.demand_changed_ns, 10 * kMs);
  gate.set_demand(2, 11 * kMs);
  EXPECT_EQ(report.demand_changed_ns, 10 * kMs);
  gate.set_demand(0, 12 * kMs);
  EXPECT_EQ(report.demand_changed_ns, 12 * kMs);
  EXPECT_EQ(report.burst_ns, 2 * kMs);
  EXPECT_EQ(report.idles, 1u);
  gate.set_demand(1, 15 * kMs);
  EXPECT_EQ(report.gap_ns, 3 * kMs);
}

}  // namespace
}  // namespace sluice::worker
