// SPDX-License-Identifier: Apache-2.0
// What hostile programs, and workers that were taken over, cost their neighbours on an NVIDIA GPU
// in time slices: of what honest ones leave them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/sim/hosts/slices_host.h"

namespace sluice::sim::hostile {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr SlicesProgram kSaturates{.launch_ns = kMs, .queued = 8, .start_ns = 10 * kMs};

// What each of four that saturate the GPU, and one of class low that hardly uses it, have of it
// beside `rival`, and what that has. `meddle`: called each ms, with the rival.
std::vector<double> parts_beside(
    const SlicesProgram& rival,
    const std::function<void(SlicesHost&, core::VgpuId)>& meddle = nullptr) {
  SlicesHost host(SlicesHost::nvidia(), {});
  std::vector<core::VgpuId> all;
  for (int i = 0; i < 4; ++i) all.push_back(host.add({}, kSaturates));
  all.push_back(host.add({.latency = policy::LatencyClass::kLow},
                         {.launch_ns = 50 * kUs, .pause_ns = 5 * kMs, .random = true}));
  all.push_back(host.add({}, rival));
  const auto run_for = [&](uint64_t ns) {
    for (const uint64_t end_ns = host.now_ns() + ns; host.now_ns() < end_ns;) {
      if (meddle) meddle(host, all.back());
      host.run_until(host.now_ns() + kMs);
    }
  };
  run_for(kSecond / 2);
  std::vector<double> parts;
  for (const core::VgpuId v : all) parts.push_back(-static_cast<double>(host.ran_ns(v)));
  run_for(4.0 * kSecond);
  for (size_t i = 0; i < all.size(); ++i)
    parts[i] = (parts[i] + static_cast<double>(host.ran_ns(all[i]))) / (4.0 * kSecond);
  return parts;
}

// By how much the victim that has least of it has of what it has beside another.
double least_kept(const std::vector<double>& parts, const std::vector<double>& fair) {
  double least = 9;
  for (size_t i = 0; i + 1 < parts.size(); ++i) least = std::min(least, parts[i] / fair[i]);
  return least;
}

TEST(SlicesHostile, WorkThatThereIsNotTakesNothing) {
  const std::vector<double> fair = parts_beside(kSaturates);
  for (const uint64_t claim_us : {50u, 1'000u, 50'000u, 1'000'000u})
    for (const uint64_t pause_us : {10u, 1'000u})
      for (const uint64_t says_waits_ns : {uint64_t{0}, kMs}) {
        const SlicesProgram rival{.pause_ns = pause_us * kUs,
                                  .start_ns = 20 * kMs,
                                  .claim_ns = claim_us * kUs,
                                  .says_waits_ns = says_waits_ns};
        EXPECT_GT(least_kept(parts_beside(rival), fair), 0.97)
            << claim_us << " " << pause_us << " " << says_waits_ns;
      }
}

TEST(SlicesHostile, SettingsThatChangeWithoutEndTakeNothing) {
  const std::vector<double> fair = parts_beside(kSaturates);
  int times = 0;
  EXPECT_GT(least_kept(parts_beside(kSaturates,
                                    [&](SlicesHost& host, core::VgpuId v) {
                                      host.set(v, {.latency = policy::LatencyClass(++times % 3)});
                                    }),
                       fair),
            0.95);
}

// Waits are counted so that who waits while sluiced does not look is known as one that visits.
TEST(SlicesHostile, WhoDoesNotCountItsWaitsGainsNothing) {
  for (const uint64_t launch_us : {50u, 1'000u, 5'000u})
    for (const uint64_t pause_us : {0u, 300u}) {
      SlicesProgram rival{
          .launch_ns = launch_us * kUs, .pause_ns = pause_us * kUs, .start_ns = 20 * kMs};
      const std::vector<double> counted = parts_beside(rival);
      rival.hides_waits = true;
      const std::vector<double> hidden = parts_beside(rival);
      EXPECT_GT(least_kept(hidden, counted), 0.95) << launch_us << " " << pause_us;
      EXPECT_LT(hidden.back(), 1.05 * counted.back()) << launch_us << " " << pause_us;
    }
}

// Who has its share visits nobody, whatever its worker says.
TEST(SlicesHostile, WhoSaysThatItWaitsGainsNothing) {
  for (const uint64_t launch_us : {50u, 1'000u, 5'000u}) {
    SlicesProgram rival{.launch_ns = launch_us * kUs, .queued = 8, .start_ns = 20 * kMs};
    const std::vector<double> fair = parts_beside(rival);
    rival.says_waits_ns = kMs;
    EXPECT_GT(least_kept(parts_beside(rival), fair), 0.95) << launch_us;
  }
}

// What a newcomer that saturates the GPU has of it beside a vGPU that had it alone, with launches
// of `launch_ns` in so many programs.
double newcomer_beside(int programs, uint64_t launch_ns) {
  SlicesHost host(SlicesHost::nvidia(), {});
  const SlicesProgram program{.launch_ns = launch_ns, .queued = 1};
  const core::VgpuId first = host.add({}, program);
  const core::VgpuId newcomer = host.add({}, {.launch_ns = kMs, .queued = 8, .start_ns = kSecond});
  for (int i = 1; i < programs; ++i) host.add_session(first, program);
  host.run_until(2 * kSecond);
  const uint64_t before_ns = host.ran_ns(newcomer);
  host.run_until(6 * kSecond);
  return static_cast<double>(host.ran_ns(newcomer) - before_ns) / (4.0 * kSecond);
}

// No gate stops what they had begun, and each has a slice and a switch in every round.
TEST(SlicesHostile, ManyKernelsWithoutEndTakeNoMoreThanTheirShare) {
  const double fair = newcomer_beside(1, kMs);
  EXPECT_GT(fair, 0.4);
  for (const int programs : {1, 4, 6, 16, 40})
    EXPECT_GT(newcomer_beside(programs, 1'000'000 * kSecond), 0.95 * fair) << programs;
}

}  // namespace
}  // namespace sluice::sim::hostile
