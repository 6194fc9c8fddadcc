// SPDX-License-Identifier: Apache-2.0
// Launches of a real sluice-worker under evictions: the fixture of eviction_test.cc and
// forms_test.cc.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/support/worker_process.h"

namespace sluice::test {

class WorkerEviction : public WorkerProcess {
 protected:
  // Launches of which each depends on the one before, evicted again and again while they run; so
  // many of them at a time until one has been. `learn`: so many before, one by one and left alone.
  void chain_under_evictions(WorkerBench::Options options, uint32_t launches, uint32_t flags = 0,
                             uint32_t learn = 0);
};

inline void WorkerEviction::chain_under_evictions(WorkerBench::Options options, uint32_t launches,
                                                  uint32_t flags, uint32_t learn) {
  start(std::move(options));
  make_context();
  make_module(flags);
  const uint32_t kN = 64 * kGrid;
  uint64_t d = alloc(kN * 4).as<uint64_t>();
  auto* data = reinterpret_cast<uint32_t*>(b->bulk(kStaging));
  std::vector<uint32_t> expected(kN);
  for (uint32_t i = 0; i < kN; ++i) data[i] = expected[i] = i;
  // Each step depends on the one before: order and exactly-once both show in the result.
  b->post(SLUICE_CALL_COPY, to_device(d, kStaging, kN * 4, 0), context, SLUICE_RECORD_NO_REPLY);
  std::vector<uint64_t> latencies_us;
  Answer a;
  for (uint32_t k = 0; k < learn; ++k) {
    launch(kGrid, 64, d, kN, k);
    for (auto& v : expected) v = advance(v, k, kRounds);
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
  }
  for (int batch = 0; batch < 50 && (batch == 0 || b->report->header.evictions == 0); ++batch) {
    for (uint32_t k = 0; k < launches; ++k) {
      launch(kGrid, 64, d, kN, k);
      if (k % 20 == 10) {  // a copy between launches
        b->post(SLUICE_CALL_COPY, to_host(kStaging + (8 << 20), d, kN * 4, 0), context,
                SLUICE_RECORD_NO_REPLY);
        b->post(SLUICE_CALL_COPY, to_device(d, kStaging + (8 << 20), kN * 4, 0), context,
                SLUICE_RECORD_NO_REPLY);
      }
    }
    uint64_t done =
        b->post(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_CONTEXT, 0, 0}, context);
    const uint64_t wanted = learn + launches * static_cast<uint64_t>(batch + 1);
    for (int i = 0; i < 400; ++i) {
      if (__atomic_load_n(&b->report->header.launches_done, __ATOMIC_RELAXED) >= wanted) break;
      ::usleep(static_cast<unsigned>(500 + i * 13 % 2000));
      const uint64_t from = monotonic_ns();
      b->take_back();
      ASSERT_TRUE(b->wait_left());
      latencies_us.push_back((monotonic_ns() - from) / 1000);
      b->grant();
    }
    a = b->wait(done, 120000);
    ASSERT_EQ(a.status, CUDA_SUCCESS);
    // Not between the launches: they would be done before the last is asked for.
    for (uint32_t k = 0; k < launches; ++k)
      for (auto& v : expected) v = advance(v, k, kRounds);
  }
  std::sort(latencies_us.begin(), latencies_us.end());
  // For people; nothing is asserted on time.
  std::printf("%zu evictions, %lu launches put back; until left: median %lu us, longest %lu us\n",
              latencies_us.size(), b->report->header.evictions,
              latencies_us.empty() ? 0 : latencies_us[latencies_us.size() / 2],
              latencies_us.empty() ? 0 : latencies_us.back());
  ASSERT_EQ(b->call(SLUICE_CALL_COPY, to_host(kStaging, d, kN * 4), context).status, 0);
  EXPECT_EQ(std::memcmp(data, expected.data(), kN * 4), 0);
  EXPECT_GT(b->report->header.evictions, 0u);
  EXPECT_GT(b->report->header.relaunches, 0u);
  EXPECT_EQ(b->report->header.opaque_launches, 0u);
  EXPECT_EQ(b->report->header.demand, 0u);
  EXPECT_EQ(b->report->header.in_flight, 0u);
  EXPECT_TRUE(b->async_errors.empty());
}

}  // namespace sluice::test
