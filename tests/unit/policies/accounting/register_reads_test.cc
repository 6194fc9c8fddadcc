// SPDX-License-Identifier: Apache-2.0
// RegisterReads: what single reads say of a hold, and what they leave open.
#include "policies/accounting/register_reads.h"

#include <gtest/gtest.h>

namespace sluice::accounting {
namespace {

constexpr uint64_t kRead = 1'000'000;  // what one stands for

// So many reads, of which each fourth sees the vGPU at work; halves in turn, ten to a batch.
RegisterReads a_quarter(uint32_t reads) {
  RegisterReads r;
  for (uint32_t k = 0; k < reads; ++k) {
    r.add(k % 2, kRead, k % 4 == 0 ? 1 : 0);
    if (k % 10 == 9) r.end_batch();
  }
  return r;
}

TEST(RegisterReads, WithoutAReadItIsHalfAndNobodyKnows) {
  const Estimate e = RegisterReads().outside_phases(10 * kRead, 0, 0);
  EXPECT_EQ(e.used_ns, 5 * kRead);
  EXPECT_EQ(e.error_ns, 5 * kRead + 1);
}

TEST(RegisterReads, ThePartOfTheReadsThatSawItRunning) {
  const Estimate e = a_quarter(400).outside_phases(400 * kRead, 0, 0);
  EXPECT_EQ(e.used_ns, 100 * kRead);
  EXPECT_GT(e.error_ns, 6 * kRead);  // ln(1000) reads' worth at least
  EXPECT_LT(e.error_ns, 100 * kRead);
  EXPECT_GT(a_quarter(40).outside_phases(400 * kRead, 0, 0).error_ns, 2 * e.error_ns);
}

TEST(RegisterReads, ReadsThatAllAgreeDoNotProveAll) {
  RegisterReads r;
  for (int k = 0; k < 100; ++k) r.add(0, kRead, 1);
  const Estimate e = r.outside_phases(100 * kRead, 0, 0);
  EXPECT_EQ(e.used_ns, 100 * kRead);
  EXPECT_NEAR(static_cast<double>(e.error_ns), 6.9 * kRead, 2);
}

TEST(RegisterReads, BlindTimeMayHaveBeenAnything) {
  RegisterReads r = a_quarter(400);
  const Estimate seen = r.outside_phases(400 * kRead, 0, 0);
  r.add_blind(100 * kRead);
  const Estimate e = r.outside_phases(500 * kRead, 0, 0);
  EXPECT_EQ(e.used_ns, 125 * kRead);                  // as what was seen ...
  EXPECT_GE(e.error_ns, seen.error_ns + 75 * kRead);  // ... or all of it
}

TEST(RegisterReads, TimeSinceTheLastReadIsOpen) {
  const RegisterReads r = a_quarter(400);
  EXPECT_EQ(r.outside_phases(400 * kRead, 0, kRead).error_ns,
            r.outside_phases(400 * kRead, 0, 0).error_ns + kRead);
}

TEST(RegisterReads, WhatIsHeldInPhasesIsNotEstimated) {
  RegisterReads r;
  r.begin_phase(2 * kRead);
  EXPECT_EQ(r.in_phase_ns(5 * kRead), 3 * kRead);
  r.add_blind(kRead);
  EXPECT_EQ(r.in_phase_ns(5 * kRead), 2 * kRead);
  EXPECT_EQ(r.outside_phases(5 * kRead, r.in_phase_ns(5 * kRead), 0).used_ns, 3 * kRead / 2);
  r.end_phase(5 * kRead);
  r.add_dense(kRead);
  EXPECT_EQ(r.outside_phases(5 * kRead, 0, 0).used_ns, kRead);
}

TEST(RegisterReads, AfterARestartNothingIsLeft) {
  RegisterReads r = a_quarter(400);
  r.add_blind(kRead);
  r.restart(7 * kRead);
  EXPECT_EQ(r.stood_ns(), 0);
  EXPECT_EQ(r.in_phase_ns(8 * kRead), kRead);
  EXPECT_EQ(r.outside_phases(10 * kRead, 0, 0).used_ns, 5 * kRead);
}

}  // namespace
}  // namespace sluice::accounting
