// SPDX-License-Identifier: Apache-2.0
// KineticTournament against a look at everybody.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "policies/parts/kinetic_tournament.h"
#include "tests/support/rounds.h"

namespace sluice::policy {
namespace {

template <bool kHighest>
void against_everybody(uint64_t seed) {
  struct Line {
    double slope, offset;
  };
  std::mt19937_64 random(seed);
  const auto draw = [&](uint64_t n) { return random() % n; };
  KineticTournament<kHighest> tournament;
  std::map<uint32_t, Line> lines;
  double now = 0;
  EXPECT_EQ(tournament.best(now), tournament.kNobody);
  for (int i = 0; i < 3000; ++i) {
    now += static_cast<double>(draw(1000));
    const auto id = static_cast<uint32_t>(draw(70));
    if (draw(3)) {
      // Positive slopes and offsets of either sign, as slowdowns have them.
      const Line l{1.0 / static_cast<double>(1 + draw(100'000)),
                   static_cast<double>(draw(100'000)) - now};
      lines[id] = l;
      tournament.set(now, id, l.slope, l.offset, id);
    } else {
      lines.erase(id);
      tournament.remove(now, id);
    }
    now += static_cast<double>(draw(1000));
    const uint32_t best = tournament.best(now);
    if (lines.empty()) {
      EXPECT_EQ(best, tournament.kNobody);
      continue;
    }
    ASSERT_TRUE(lines.count(best)) << "who is not there won";
    const auto value = [&](const Line& l) { return l.slope * (now + l.offset); };
    for (const auto& [other, line] : lines) {
      const double lead =
          kHighest ? value(lines[best]) - value(line) : value(line) - value(lines[best]);
      ASSERT_GE(lead, -1e-9) << "seed " << seed << ", step " << i << ": " << other << " is before "
                             << best;
    }
  }
}

TEST(KineticTournament, FindsTheHighest) {
  for (uint64_t seed = 1; seed <= rounds<uint64_t>(20); ++seed) against_everybody<true>(seed);
}
TEST(KineticTournament, FindsTheLowest) {
  for (uint64_t seed = 1; seed <= rounds<uint64_t>(20); ++seed) against_everybody<false>(seed);
}
TEST(KineticTournament, EqualValuesGoByRankAndThenById) {
  KineticTournament<true> t;
  for (const uint32_t id : {3u, 1u, 2u}) t.set(0, id, 1, 5, id == 2 ? 0 : 7);
  EXPECT_EQ(t.best(10), 2u);
  t.remove(10, 2);
  EXPECT_EQ(t.best(10), 1u);
}

}  // namespace
}  // namespace sluice::policy
