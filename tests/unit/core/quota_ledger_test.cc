// SPDX-License-Identifier: Apache-2.0
// QuotaLedger: what a worker may claim, and that everything comes back.
#include <gtest/gtest.h>

#include <random>

#include "mediator/core/quota.h"

namespace sluice::core {
namespace {

TEST(QuotaLedger, LimitsOfSessionVgpuAndGpu) {
  QuotaLedger q(1000);
  q.add_vgpu(0, 600), q.add_vgpu(1, 600);
  q.add_session(0, 5), q.add_session(0, 6), q.add_session(1, 7);
  EXPECT_TRUE(q.lease(5, 400));
  EXPECT_EQ(q.lease(6, 201).error().code, ENOMEM);
  EXPECT_TRUE(q.lease(6, 200));
  EXPECT_EQ(q.held_by_vgpu(0), 600u);
  EXPECT_EQ(q.lease(7, 401).error().code, ENOMEM) << "more than the GPU has left";
  EXPECT_TRUE(q.lease(7, 400));
  EXPECT_EQ(q.held(), 1000u);
  EXPECT_TRUE(q.give_back(6, 200));
  EXPECT_TRUE(q.lease(7, 200));
  EXPECT_EQ(q.remove_session(5), 400u);
  EXPECT_EQ(q.held_by_vgpu(0), 0u);
  q.set_limit(1, 100);  // below what it holds
  EXPECT_EQ(q.lease(7, 1).error().code, ENOMEM);
  EXPECT_EQ(q.held_by_session(7), 600u);
}

// One that asks for many at once, as a worker that was taken over may, gets no more so.
TEST(QuotaLedger, ARequestBeyondItsPartLeavesOthersTheirs) {
  QuotaLedger q(64, QuotaLedger::Rest::kParts);
  q.add_vgpu(0, UINT64_MAX), q.add_vgpu(1, UINT64_MAX);
  q.add_session(0, 0);
  EXPECT_TRUE(q.lease(0, 1));
  EXPECT_FALSE(q.lease(0, 63));
  EXPECT_FALSE(q.lease(0, 56));
  EXPECT_TRUE(q.lease(0, 55)) << "4 are its neighbour's, 4 a newcomer's";
  EXPECT_FALSE(q.lease(0, 1));
}

// Places that nobody has a limit for.
TEST(QuotaLedger, WhoTakesAllLeavesOthersTheirParts) {
  QuotaLedger q(64, QuotaLedger::Rest::kParts);
  uint32_t sessions = 0;
  const auto take_all = [&](uint32_t vgpu) {
    uint64_t taken = 0;
    q.add_session(vgpu, sessions);
    while (taken <= 64 && q.lease(sessions, 1)) ++taken;
    ++sessions;
    return taken;
  };
  q.add_vgpu(0, UINT64_MAX);
  EXPECT_EQ(take_all(0), 60u) << "the rest is the next vGPU's";
  q.add_vgpu(1, UINT64_MAX);
  EXPECT_EQ(take_all(0), 0u);
  EXPECT_EQ(take_all(1), 4u);
  q.add_vgpu(2, UINT64_MAX);
  EXPECT_EQ(q.remove_session(0), 60u);
  EXPECT_EQ(take_all(2), 52u) << "vGPU 0 has its part, and a newcomer";
  EXPECT_EQ(take_all(0), 4u);
  for (uint32_t v = 3; v < 64; ++v) q.add_vgpu(v, UINT64_MAX);
  EXPECT_EQ(take_all(3), 1u) << "of so many each has one";
  EXPECT_EQ(take_all(4), 1u);
}

TEST(QuotaLedger, WrongClaimsChangeNothing) {
  QuotaLedger q(1ull << 40);
  q.add_vgpu(0, 1ull << 30);
  q.add_session(0, 0);
  EXPECT_EQ(q.lease(0, 0).error().code, EINVAL);
  EXPECT_EQ(q.lease(9, 1).error().code, EINVAL);
  EXPECT_EQ(q.lease(0, ~0ull).error().code, ENOMEM);
  EXPECT_TRUE(q.lease(0, 100));
  EXPECT_EQ(q.lease(0, ~0ull - 50).error().code, ENOMEM) << "the sum must not wrap";
  EXPECT_EQ(q.give_back(0, 101).error().code, EINVAL);
  EXPECT_EQ(q.give_back(3, 1).error().code, EINVAL);
  EXPECT_EQ(q.held(), 100u);
  EXPECT_EQ(q.remove_session(3), 0u);
}

TEST(QuotaLedger, EverythingComesBack) {
  std::mt19937_64 r(1);
  QuotaLedger q(1ull << 30);
  for (uint32_t v = 0; v < 4; ++v) q.add_vgpu(v, 1ull << 29);
  for (uint32_t s = 0; s < 16; ++s) q.add_session(s % 4, s);
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t s = r() % 16;
    if (r() % 2)
      (void)q.lease(s, r() % (1u << 27));
    else
      (void)q.give_back(s, r() % (1u << 27));
    if (r() % 100 == 0) q.remove_session(s), q.add_session(s % 4, s);
    uint64_t sum = 0;
    for (uint32_t v = 0; v < 4; ++v) {
      EXPECT_LE(q.held_by_vgpu(v), 1ull << 29);
      sum += q.held_by_vgpu(v);
    }
    ASSERT_EQ(sum, q.held());
    ASSERT_LE(sum, q.total());
  }
  for (uint32_t s = 0; s < 16; ++s) q.remove_session(s);
  EXPECT_EQ(q.held(), 0u);
  for (uint32_t v = 0; v < 4; ++v) q.remove_vgpu(v);
}

}  // namespace
}  // namespace sluice::core
