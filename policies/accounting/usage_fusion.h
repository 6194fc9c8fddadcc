// SPDX-License-Identifier: Apache-2.0
// UsageFusion: one charge per vGPU out of what several sources say about the same stretch of time.
// Pure; one thread.
//
// Trusted sources (the hardware's switch log, its status register, the mediator's own
// grant-to-release clock) give an estimate and a bound on its error; the truth lies in the
// intersection of their intervals, and the charge is the estimate of the sharpest, moved into it.
// The clock of an exclusive preemptor is an upper bound by itself: nobody runs without a grant.
// Words that a guest could have forged enter on one side only: they may raise the charge (up to
// what the trusted sources allow), never lower it. So a lie does not pay: claiming less changes
// nothing and is counted, claiming more is paid for. Where the clock is the only trusted source,
// all of it is charged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>

namespace sluice::accounting {

struct Estimate {
  uint64_t used_ns = 0;
  uint64_t error_ns = 0;  // the truth is within used_ns +- error_ns
};

struct Fused {
  uint64_t charge_ns = 0;
  uint64_t error_ns =
      0;  // the truth is within charge_ns +- error_ns if the trusted sources' bounds hold
  bool contradiction = false;  // trusted sources exclude each other: one's bound is wrong
  bool disagrees = false;      // the guest's words claim less than the trusted sources allow
};

// `clock_ns`: grant to release, for exclusive preemptors; nullopt on proportional ones, where it
// bounds nothing. `guest_words_ns`: WordSource's.
inline Fused fuse(std::optional<uint64_t> clock_ns,
                  std::initializer_list<std::optional<Estimate>> trusted,
                  std::optional<uint64_t> guest_words_ns) {
  uint64_t lo = 0, hi = clock_ns.value_or(~0ull);
  uint64_t all_lo = ~0ull, all_hi = 0;
  std::optional<Estimate> sharpest;
  for (const auto& e : trusted) {
    if (!e) continue;
    const uint64_t e_lo = e->used_ns - std::min(e->used_ns, e->error_ns);
    const uint64_t e_hi = e->used_ns > ~0ull - e->error_ns ? ~0ull : e->used_ns + e->error_ns;
    lo = std::max(lo, e_lo);
    hi = std::min(hi, e_hi);
    all_lo = std::min(all_lo, e_lo);
    all_hi = std::max(all_hi, e_hi);
    if (!sharpest || e->error_ns < sharpest->error_ns) sharpest = e;
  }
  Fused f;
  if (lo > hi) {
    // Better to be openly unsure than sharply wrong: everything that any of them allows, within the
    // clock.
    f.contradiction = true;
    lo = std::min(all_lo, clock_ns.value_or(all_lo));
    hi = std::min(all_hi, clock_ns.value_or(all_hi));
  }
  if (hi == ~0ull) {  // no trusted source at all: there is nothing to charge by but the words
    f.charge_ns = guest_words_ns.value_or(0);
    f.error_ns = ~0ull;
    return f;
  }
  f.charge_ns = sharpest ? std::clamp(sharpest->used_ns, lo, hi) : hi;
  if (guest_words_ns) {
    f.disagrees = *guest_words_ns < lo;
    if (*guest_words_ns > f.charge_ns) f.charge_ns = std::min(*guest_words_ns, hi);
  }
  f.error_ns = std::max(hi - f.charge_ns, f.charge_ns - lo);
  return f;
}

}  // namespace sluice::accounting
