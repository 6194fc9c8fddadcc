// SPDX-License-Identifier: Apache-2.0
// UsageMeter in virtual time: a GPU's history that the test makes (who was granted, who ran, who
// switched), read by registers and log as sluiced would, against that history's truth.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "policies/accounting/adaptive_poller.h"
#include "policies/accounting/usage_meter.h"
#include "tests/unit/policies/policy_units.h"

namespace sluice::accounting {
namespace {

constexpr uint32_t kNobody = UsageMeter::kNobody;

// Exclusive turns on one GPU. Channel group of vGPU v: v + 1.
struct History {
  struct Word {
    uint64_t from_ns;
    uint32_t status0;
  };
  struct Edge {
    uint64_t at_ns;
    uint32_t vgpu;
    bool granted;
  };
  struct Record {
    uint64_t at_ns;
    uint32_t tsgid;
    bool start;
  };
  std::vector<Word> words{{0, SLUICE_STATUS0(0, SLUICE_CTX_INVALID, 0, 0)}};
  std::vector<Edge> edges;
  std::vector<Record> records;
  std::vector<uint64_t> ran, ran_ungranted, resident;
  uint64_t now = kMs;
  uint32_t on_engine = kNobody;

  explicit History(uint32_t n) : ran(n), ran_ungranted(n), resident(n) {}
  void word(uint32_t status0) { words.push_back({now, status0}); }
  void come(uint32_t v) {
    if (on_engine == v) return;
    if (on_engine != kNobody) records.push_back({now, on_engine + 1, false});
    if (on_engine != kNobody) {
      word(SLUICE_STATUS0(on_engine + 1, SLUICE_CTX_SWITCH, v + 1, 1));
      now += 82 * kUs;
    }
    records.push_back({now, v + 1, true});
    on_engine = v;
  }
  void run(uint32_t v, uint64_t ns, bool granted = true) {
    come(v);
    word(SLUICE_STATUS0(v + 1, SLUICE_CTX_VALID, 0, 1));
    now += ns;
    (granted ? ran : ran_ungranted)[v] += ns;
    word(SLUICE_STATUS0(v + 1, SLUICE_CTX_VALID, 0, 0));
  }
  // A turn: idle, kernels with gaps, idle. `overstays`: it says that it has left and runs on.
  void turn(uint32_t v, std::mt19937_64& r, uint64_t overstays = 0) {
    edges.push_back({now, v, true});
    const uint64_t begin = now;
    now += 20 * kUs + r() % (100 * kUs);
    const uint64_t quantum = 2 * kMs + r() % (6 * kMs);
    uint64_t came = 0;
    while (now < begin + quantum) {
      run(v, 100 * kUs + r() % (900 * kUs));
      if (!came) came = records.back().at_ns;
      now += 2 * kUs + r() % (30 * kUs);
    }
    resident[v] += now - std::max(came, begin);
    edges.push_back({now, v, false});
    if (overstays) run(v, overstays, false);
    now += 5 * kUs + r() % (20 * kUs);
  }
};

struct Use {
  bool registers = true, log = true;
  uint64_t seed = 1;
  uint64_t lose_record = 0;             // every so many-th; 0: none
  uint64_t deaf_from = 0, deaf_to = 0;  // registers are not read
  bool contended = true;
};

// What sluiced does with it, up to the history's end.
void read_all(History& h, UsageMeter& m, const Use& use,
              std::vector<UsageMeter::Correction>& corrections) {
  const auto n = static_cast<uint32_t>(h.ran.size());
  for (uint32_t v = 0; v < n; ++v) {
    m.add_vgpu(0, v);
    m.assign(v + 1, v);
    if (use.contended) m.on_busy(0, v, true);
  }
  m.set_usable(0, Source::kRegisters, use.registers);
  m.set_usable(0, Source::kSwitchLog, use.log);
  AdaptivePoller poller({.seed = use.seed});
  size_t edge = 0, record = 0, word = 0;
  uint64_t settled = 0;
  const auto until = [&](uint64_t t) {
    for (; edge < h.edges.size() && h.edges[edge].at_ns <= t; ++edge) {
      const auto& e = h.edges[edge];
      if (e.granted)
        m.on_granted(e.at_ns, e.vgpu);
      else
        m.on_left(e.at_ns, e.vgpu);
    }
    if (t < settled + 10 * kMs) return;
    settled = t;
    for (; record < h.records.size() && h.records[record].at_ns <= t; ++record) {
      if (use.lose_record && record % use.lose_record == use.lose_record - 1) continue;
      m.on_record(h.records[record].at_ns, static_cast<uint32_t>(record + 1),
                  h.records[record].tsgid, h.records[record].start);
    }
    m.settle_log(t);
    m.take_corrections(t, corrections);
  };
  const auto at = [&](uint64_t t) {
    while (word + 1 < h.words.size() && h.words[word + 1].from_ns <= t) ++word;
    return h.words[word].status0;
  };
  uint64_t now = 0;
  while (now < h.now) {
    const auto plan = poller.next(n, m.known());
    const bool deaf = now >= use.deaf_from && now < use.deaf_to;
    const uint64_t dense_end = std::min(now + plan.dense_ns, h.now),
                   end = std::min(dense_end + plan.pause_ns, h.now);
    uint64_t sparse = dense_end;
    if (!deaf) {
      m.begin_phase(now);
      for (uint64_t t = now; t <= dense_end; t += kUs) until(t), m.sample(t, at(t));
      m.end_phase(dense_end);
      const uint64_t follow_end = std::min(dense_end + plan.dense_ns / 4, end);
      for (; m.follows() && sparse < follow_end; sparse += kUs)
        until(sparse), m.follow(sparse, at(sparse));
    }
    for (uint64_t from = sparse; from < end;) {
      const uint64_t to = std::min(from + plan.stratum_ns, end),
                     t = std::min(poller.read_at(from, to - from), to);
      until(t);
      if (!deaf) m.point(t, at(t), from, to, t, poller.half());
      if (poller.batch_ends()) m.end_batch();
      from = to;
    }
    poller.observe(m.take_change());
    now = end;
  }
  settled = 0;
  until(h.now);
}

uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

TEST(UsageMeter, TheTruthLiesWithinTheBoundByEverySetOfSources) {
  uint32_t outside[4] = {}, all[4] = {};
  double width[4] = {};
  for (uint64_t seed = 1; seed <= 40; ++seed)
    for (int sources = 0; sources < 4; ++sources) {
      std::mt19937_64 r(seed);
      const uint32_t n = 2 + r() % 3;
      History h(n);
      while (h.now < 2 * kSecond) h.turn(r() % n, r);
      UsageMeter m;
      std::vector<UsageMeter::Correction> c;
      read_all(h, m, {.registers = (sources & 1) != 0, .log = (sources & 2) != 0, .seed = seed}, c);
      for (uint32_t v = 0; v < n; ++v) {
        const auto got = m.read(h.now, v);
        // By the log alone, "used" is residency while granted; by the clock alone it is what was
        // held.
        const uint64_t truth = sources & 1 ? h.ran[v] : sources == 2 ? h.resident[v] : got.held_ns;
        ++all[sources];
        // The log takes a constant off each interval that this history does not have.
        const uint64_t slack = sources == 2 ? m.log().totals(v).cost_ns : 0;
        outside[sources] += distance(got.used.used_ns, truth) > got.used.error_ns + slack;
        width[sources] += static_cast<double>(got.used.error_ns) / static_cast<double>(truth);
        EXPECT_LE(got.used.used_ns, got.held_ns);
        EXPECT_EQ(got.contradictions, 0u) << "seed " << seed;
        EXPECT_EQ(got.ungranted_ns, 0u) << "seed " << seed << ": nobody ran without a grant";
      }
    }
  for (int s = 0; s < 4; ++s) {
    EXPECT_LE(outside[s], all[s] / 100) << "sources " << s;
    RecordProperty("mean_bound_of_sources_" + std::to_string(s), std::to_string(width[s] / all[s]));
    EXPECT_LE(width[s] / all[s], 0.10) << "sources " << s;
  }
}

TEST(UsageMeter, RegistersBeatTheClockWhereKernelsHaveGaps) {
  std::mt19937_64 r(5);
  History h(2);
  while (h.now < 10 * kSecond) h.turn(r() % 2, r);
  UsageMeter m;
  std::vector<UsageMeter::Correction> c;
  read_all(h, m, {}, c);
  for (uint32_t v = 0; v < 2; ++v) {
    const auto got = m.read(h.now, v);
    const double truth = static_cast<double>(h.ran[v]);
    EXPECT_NEAR(static_cast<double>(got.used.used_ns) / truth, 1.0, 0.02);
    EXPECT_GT(static_cast<double>(got.held_ns) / truth, 1.03) << "or this test shows nothing";
  }
}

// It says it has left and runs on in others' time: it is charged for nearly all of it, they get it
// back.
TEST(UsageMeter, WhatRunsWithoutAGrantIsChargedAndRefunded) {
  for (const bool registers : {true, false}) {
    std::mt19937_64 r(9);
    History h(2);
    while (h.now < 5 * kSecond) {
      h.turn(0, r);
      h.edges.push_back({h.now, 0, true});
      // vGPU 1 starts a kernel in vGPU 0's turn: a change of contexts that the log has, too.
      h.run(0, kMs);
      h.run(1, 2 * kMs, false);
      h.run(0, kMs);
      h.edges.push_back({h.now, 0, false});
      h.turn(1, r, 500 * kUs);
    }
    UsageMeter m;
    std::vector<UsageMeter::Correction> c;
    read_all(h, m, {.registers = registers, .log = true}, c);
    uint64_t extra[2] = {}, refund[2] = {};
    for (const auto& x : c) extra[x.vgpu] += x.extra_ns, refund[x.vgpu] += x.refund_ns;
    EXPECT_EQ(extra[0], 0u);
    EXPECT_LE(extra[1], h.ran_ungranted[1]);
    EXPECT_GE(static_cast<double>(extra[1]),
              (registers ? 0.85 : 0.75) * static_cast<double>(h.ran_ungranted[1]));
    // To whom it was taken from, and what the switches took.
    EXPECT_GE(static_cast<double>(refund[0]), 0.95 * static_cast<double>(extra[1]));
    EXPECT_LE(refund[0], extra[1] + h.records.size() * 83 * kUs);
    EXPECT_EQ(m.read(h.now, 1).ungranted_ns, extra[1]);
  }
}

TEST(UsageMeter, LostRecordsAndDeafTimesWidenTheBoundAndNoMore) {
  uint32_t outside = 0, all = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 r(seed);
    History h(3);
    while (h.now < 2 * kSecond) h.turn(r() % 3, r);
    UsageMeter m;
    std::vector<UsageMeter::Correction> c;
    read_all(h, m, {.seed = seed, .lose_record = 7, .deaf_from = 500 * kMs, .deaf_to = 900 * kMs},
             c);
    EXPECT_GT(m.log().gaps(), 0u);
    for (uint32_t v = 0; v < 3; ++v) {
      const auto got = m.read(h.now, v);
      outside += distance(got.used.used_ns, h.ran[v]) > got.used.error_ns;
      ++all;
      EXPECT_GT(got.used.error_ns, 30 * kMs) << "some 200 ms of its time were not seen";
    }
  }
  EXPECT_LE(outside, 1u) << "of " << all;
}

TEST(UsageMeter, ASourceThatFailsIsReplacedAndWhatItMeasuredStays) {
  std::mt19937_64 r(3);
  History h(2);
  while (h.now < kSecond) h.turn(r() % 2, r);
  UsageMeter m;
  std::vector<UsageMeter::Correction> c;
  read_all(h, m, {}, c);
  const auto before = m.read(h.now, 0);
  EXPECT_EQ(m.source(), Source::kRegisters);
  m.set_usable(h.now, Source::kRegisters, false);
  EXPECT_EQ(m.source(), Source::kSwitchLog);
  m.set_usable(h.now, Source::kSwitchLog, false);
  EXPECT_EQ(m.source(), Source::kClock);
  auto after = m.read(h.now, 0);
  EXPECT_EQ(after.used.used_ns, before.used.used_ns);
  EXPECT_EQ(after.used.error_ns, before.used.error_ns);
  m.on_granted(h.now, 0);
  after = m.read(h.now + 3 * kMs, 0);
  EXPECT_EQ(after.used.used_ns, before.used.used_ns + 3 * kMs) << "by the clock";
  EXPECT_EQ(after.used.error_ns, before.used.error_ns);
  EXPECT_FALSE(after.by[static_cast<size_t>(Source::kRegisters)]);
}

TEST(UsageMeter, OneGroupForAllIsTheHoldersAndOfSeveralNobodyKnows) {
  UsageMeter m;
  m.share_group(0x800);
  for (uint32_t v : {0u, 1u}) m.add_vgpu(0, v), m.on_busy(0, v, true);
  m.set_usable(0, Source::kRegisters, true);
  const uint32_t busy = SLUICE_STATUS0(0x800, SLUICE_CTX_VALID, 0, 1),
                 idle = SLUICE_STATUS0(0x800, SLUICE_CTX_VALID, 0, 0);
  const auto dense = [&](uint64_t from, uint64_t to, uint32_t word) {
    m.begin_phase(from);
    for (uint64_t t = from; t <= to; t += 4 * kUs) m.sample(t, word);
    m.end_phase(to);
  };
  m.on_granted(0, 0);
  dense(0, 8 * kMs, busy);
  dense(8 * kMs, 10 * kMs, idle);
  m.on_left(10 * kMs, 0);
  m.on_granted(10 * kMs, 1);
  dense(10 * kMs, 20 * kMs, busy);
  auto a = m.read(20 * kMs, 0), b = m.read(20 * kMs, 1);
  EXPECT_NEAR(static_cast<double>(a.used.used_ns), 8e6, 3e4);
  EXPECT_NEAR(static_cast<double>(b.used.used_ns), 10e6, 3e4);
  EXPECT_LE(a.used.error_ns, 100 * kUs);
  // Side by side: anything from none to all.
  m.on_granted(20 * kMs, 0);
  dense(20 * kMs, 30 * kMs, busy);
  m.point(32 * kMs, busy, 30 * kMs, 40 * kMs);
  a = m.read(40 * kMs, 0), b = m.read(40 * kMs, 1);
  for (const auto& x : {a, b}) EXPECT_NEAR(static_cast<double>(x.used.error_ns), 10e6, 2e5);
  EXPECT_LE(a.used.used_ns - 10 * kMs, 18 * kMs);
}

TEST(UsageMeter, WordsRaiseWithinTheBoundAndNeverLower) {
  UsageMeter m;
  m.add_vgpu(0, 0);
  m.add_vgpu(0, 1);
  for (uint32_t v : {0u, 1u}) m.on_busy(0, v, true), m.assign(v + 1, v);
  m.set_usable(0, Source::kRegisters, true);
  m.on_granted(0, 0);
  m.begin_phase(0);
  for (uint64_t t = 0; t <= 10 * kMs; t += 4 * kUs)
    m.sample(t, SLUICE_STATUS0(1, SLUICE_CTX_VALID, 0, t < 8 * kMs ? 1 : 0));
  m.end_phase(10 * kMs);
  const auto without = m.read(10 * kMs, 0);
  m.on_launch_words(10 * kMs, 0, kMs, 2 * kMs);
  const auto low = m.read(10 * kMs, 0);
  EXPECT_EQ(low.used.used_ns, without.used.used_ns);
  EXPECT_TRUE(low.words_lie);
  m.on_launch_words(10 * kMs, 0, 2 * kMs, 500 * kMs);
  const auto high = m.read(10 * kMs, 0);
  EXPECT_GE(high.used.used_ns, without.used.used_ns);
  EXPECT_LE(high.used.used_ns, without.used.used_ns + without.used.error_ns);
  EXPECT_FALSE(high.words_lie);
}

TEST(UsageMeter, LearnsWhoseAChannelGroupIsByTheTurnsInWhichItRuns) {
  UsageMeter m;
  m.learn_groups(true);
  for (uint32_t v : {0u, 1u}) m.add_vgpu(0, v), m.on_busy(0, v, true);
  m.set_usable(0, Source::kRegisters, true);
  uint64_t now = kMs;
  // Groups 70 and 71 are the vGPUs'; 72 is somebody's who runs in everybody's turns.
  const auto turn = [&](uint32_t v) {
    m.on_granted(now, v);
    for (int i = 0; i < 20; ++i, now += 200 * kUs)
      m.point(now, SLUICE_STATUS0(i % 4 == 3 ? 72 : 70 + v, SLUICE_CTX_VALID, 0, 1),
              now - 200 * kUs, now);
    m.on_left(now, v);
  };
  for (int i = 0; i < 20; ++i) turn(0), turn(1);
  for (uint32_t v : {0u, 1u}) {
    const auto before = m.read(now, v);
    const uint64_t begin = now;
    turn(v);
    EXPECT_NEAR(static_cast<double>(m.read(now, v).used.used_ns - before.used.used_ns),
                0.75 * static_cast<double>(now - begin), static_cast<double>(400 * kUs));
  }
  std::vector<UsageMeter::Correction> c;
  m.take_corrections(now, c);
  EXPECT_TRUE(c.empty());
}

// vGPU 1 is late by 5 ms with a kernel of 0.1 ms. vGPU 0 holds the GPU and launches nothing, so
// that nobody displaces 1's context: the log has it resident for all of 0's hold.
TEST(UsageMeter, AnIdleContextThatNobodyDisplacesIsNoUseWithoutAGrant) {
  std::mt19937_64 r(5);
  History h(2);
  while (h.now < 5 * kSecond) {
    h.turn(1, r);
    h.edges.push_back({h.now, 0, true});
    h.run(0, kMs);
    h.now += 5 * kMs;
    h.run(1, 100 * kUs, false);
    h.now += 50 * kMs;
    h.edges.push_back({h.now, 0, false});
  }
  UsageMeter m;
  std::vector<UsageMeter::Correction> c;
  read_all(h, m, {.registers = true, .log = true}, c);
  uint64_t extra = 0;
  for (const auto& x : c) extra += x.vgpu == 1 ? x.extra_ns : 0;
  EXPECT_LE(extra, h.ran_ungranted[1]);
}

TEST(UsageMeter, ANumberUsedAgainStartsAfresh) {
  std::mt19937_64 r(4);
  History h(2);
  while (h.now < kSecond) h.turn(r() % 2, r, 400 * kUs);
  UsageMeter m;
  std::vector<UsageMeter::Correction> c;
  read_all(h, m, {}, c);
  EXPECT_GT(m.read(h.now, 1).ungranted_ns, 0u);
  m.remove_vgpu(h.now, 1);
  m.add_vgpu(h.now, 1);
  const auto got = m.read(h.now, 1);
  EXPECT_EQ(got.used.used_ns + got.used.error_ns + got.held_ns + got.ungranted_ns, 0u);
  c.clear();
  m.take_corrections(h.now, c);
  for (const auto& x : c) EXPECT_NE(x.vgpu, 1u);
}

// Whatever stands in registers and log: nothing breaks, nobody has used more than it held, and
// corrections stay within the time there was.
TEST(UsageMeter, Garbage) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 r(seed);
    UsageMeter m;
    std::vector<UsageMeter::Correction> c;
    uint64_t now = kSecond;
    const uint64_t begin = now;
    for (uint32_t v = 0; v < 3; ++v) m.add_vgpu(now, v), m.assign(v + 1, v);
    if (seed % 3 == 0) m.share_group(0x800);
    bool present[3] = {true, true, true};
    for (int i = 0; i < 3000; ++i) {
      now += r() % (200 * kUs);
      const uint32_t v = r() % 4,
                     word = r() % 2 ? static_cast<uint32_t>(r()) : SLUICE_STATUS0(r() % 4, 1, 0, 1);
      switch (r() % 14) {
        case 0:
          m.on_granted(now, v);
          break;
        case 1:
          m.on_left(now, v);
          break;
        case 2:
          m.on_busy(now, v, r() % 2);
          break;
        case 3:
          m.begin_phase(now);
          break;
        case 4:
        case 5:
          m.sample(now, word);
          break;
        case 6:
          m.end_phase(now);
          break;
        case 7:
        case 8:
          m.point(now, word, now - r() % kMs, now);
          break;
        case 9:
        case 10:
          m.on_record(r() % 5 ? now - r() % kMs : r(), static_cast<uint32_t>(r()), r() % 5,
                      r() % 2);
          break;
        case 11:
          m.settle_log(now - r() % kMs);
          break;
        case 12:
          m.set_usable(now, r() % 2 ? Source::kRegisters : Source::kSwitchLog, r() % 2);
          break;
        case 13:
          if (v < 3 && r() % 8 == 0) {
            present[v] ? m.remove_vgpu(now, v) : m.add_vgpu(now, v);
            present[v] = !present[v];
          }
          m.on_launch_words(now, v, r(), r());
          m.take_corrections(now, c);
          break;
      }
      const auto got = m.read(now, v);
      ASSERT_LE(got.used.used_ns, got.held_ns + got.used.error_ns);
      ASSERT_LE(got.held_ns, now - begin);
    }
    uint64_t extra = 0;
    for (const auto& x : c) extra += x.extra_ns;
    EXPECT_LE(extra, 4 * (now - begin))
        << "each stretch of time is charged to one at a time, by each source";
  }
}

}  // namespace
}  // namespace sluice::accounting
