// SPDX-License-Identifier: Apache-2.0
// The stream engine under eviction: programs of launches, copies, events and waits over several
// streams are evicted at every step, and at random; what ran, and in which order, is compared with
// what CUDA promises.
#include <random>

#include "tests/support/rounds.h"
#include "tests/unit/worker/engine/stream_engine_bench.h"

namespace sluice::worker {
namespace {

class EvictEverywhere : public testing::TestWithParam<int> {};

TEST_P(EvictEverywhere, OnceAtEachStep) {
  const Program& p = kChains[GetParam()];
  int steps = 0;
  run_with_evictions(p, {}, Back::kWhenLeft, 1, &steps);
  for (int i = 0; i <= steps; ++i) {
    for (int poll_every : {1, 3, 7}) {
      SCOPED_TRACE(testing::Message() << "step " << i << " poll " << poll_every);
      run_with_evictions(p, {i}, Back::kWhenLeft, poll_every);
      run_with_evictions(p, {i}, Back::kAtOnce, poll_every);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EvictEverywhere, TwiceAtEachPairOfSteps) {
  const Program& p = kChains[GetParam()];
  int steps = 0;
  run_with_evictions(p, {}, Back::kWhenLeft, 1, &steps);
  for (int i = 0; i <= steps; ++i) {
    for (int j = i + 1; j <= steps + 8; ++j) {
      SCOPED_TRACE(testing::Message() << "steps " << i << ", " << j);
      run_with_evictions(p, {i, j}, Back::kWhenLeft, 1);
      run_with_evictions(p, {i, j}, Back::kAtOnce, 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EvictEverywhere, AtEveryThirdStep) {
  std::set<int> all;
  for (int i = 0; i < 3000; i += 3) all.insert(i);
  run_with_evictions(kChains[GetParam()], all, Back::kWhenLeft, 1);
  run_with_evictions(kChains[GetParam()], all, Back::kAtOnce, 1);
}

INSTANTIATE_TEST_SUITE_P(Chains, EvictEverywhere, testing::Range(0, 4));

Program random_program(std::mt19937& rng) {
  auto pick = [&](int n) { return static_cast<int>(rng() % n); };
  Program p;
  p.streams = {kLegacy};
  for (int n = 1 + pick(3); n > 0; --n) p.streams.push_back(pick(2) ? kBlocking : kNonBlocking);
  const int length = 3 + pick(40);
  for (int i = 0; i < length; ++i) {
    const int stream = pick(static_cast<int>(p.streams.size()));
    switch (pick(12)) {
      case 0:
        p.steps.push_back({pick(2) ? P::kCopy : P::kBulk, stream, 1});
        break;
      case 1:
        p.steps.push_back({P::kOpaque, stream, 1 + pick(3)});
        break;
      case 2:
      case 3:
        p.steps.push_back({P::kRecord, stream, pick(3)});
        break;
      case 4:
      case 5:
        p.steps.push_back({P::kWait, stream, pick(3)});
        break;
      case 6:
        p.steps.push_back({P::kSync, stream});
        break;
      default:
        p.steps.push_back({P::kLaunch, stream, 1 + pick(4)});
        break;
    }
  }
  return p;
}

TEST(StreamEngine, RandomProgramsRandomSchedules) {
  for (uint32_t seed = 0; seed < rounds(6000u); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    EngineLimits limits;
    limits.stream_depth = 1 + rng() % 8;
    limits.marker_interval = 1 + rng() % 4;
    limits.opaque_depth = 1 + rng() % 3;
    Runner r(random_program(rng), limits);
    r.pieces = seed % 2 == 1;
    bool closed = false;
    for (int i = 0; i < 600; ++i) {
      switch (rng() % 8) {
        case 0:
        case 1:
          r.submit_one();
          break;
        case 2:
          r.b.poll();
          break;
        case 3:
          if (closed) {
            r.b.grant();
            closed = false;
          } else if (rng() % 2) {
            r.b.take();
            closed = true;
          }
          break;
        default:
          r.b.driver.step(r.streams[rng() % r.streams.size()]);
          break;
      }
    }
    if (closed) {
      do {
        r.b.poll();  // may queue a marker
      } while (r.device_step());
      ASSERT_TRUE(r.b.has_left());
      r.b.grant();
    }
    r.submit_all();
    r.finish();
    SCOPED_TRACE(to_text(r.p_));
    r.check();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

}  // namespace
}  // namespace sluice::worker
