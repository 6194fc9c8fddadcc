// SPDX-License-Identifier: Apache-2.0
// Handles, allocations, leases and launch arithmetic of a worker.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "mediator/base/grid_windows.h"
#include "mediator/base/magic_divisor.h"
#include "mediator/core/allocations.h"
#include "mediator/core/handles.h"
#include "mediator/core/quota_lease.h"
#include "mediator/worker/launch/plan/geometry.h"
#include "mediator/worker/launch/plan/whole_times.h"
#include "mediator/worker/memory/memory_table.h"
#include "tests/support/rounds.h"

namespace sluice {
namespace {

struct Object : HandleObject {
  explicit Object(int n) : number(n) {}
  int number;
};

TEST(HandleTable, FindsWhatWasAddedByItsKindOnly) {
  HandleTable t;
  uint64_t h = t.add(SLUICE_HANDLE_STREAM, std::make_shared<Object>(7));
  ASSERT_NE(h, 0u);
  EXPECT_EQ(SLUICE_HANDLE_KIND(h), static_cast<uint32_t>(SLUICE_HANDLE_STREAM));
  EXPECT_EQ(t.find<Object>(SLUICE_HANDLE_STREAM, h)->number, 7);
  EXPECT_FALSE(t.find(SLUICE_HANDLE_EVENT, h));
  EXPECT_FALSE(t.find(
      SLUICE_HANDLE_EVENT,
      SLUICE_HANDLE(SLUICE_HANDLE_EVENT, SLUICE_HANDLE_GENERATION(h), SLUICE_HANDLE_INDEX(h))));
  EXPECT_FALSE(t.find(SLUICE_HANDLE_STREAM, 0));
}

TEST(HandleTable, AnEndedHandleNeverComesBack) {
  HandleTable t;
  uint64_t first = t.add(SLUICE_HANDLE_EVENT, std::make_shared<Object>(1));
  std::set<uint64_t> seen{first};
  EXPECT_TRUE(t.remove(SLUICE_HANDLE_EVENT, first));
  EXPECT_FALSE(t.remove(SLUICE_HANDLE_EVENT, first));
  for (int i = 0; i < 1000; ++i) {
    uint64_t h = t.add(SLUICE_HANDLE_EVENT, std::make_shared<Object>(i));
    EXPECT_TRUE(seen.insert(h).second);
    EXPECT_FALSE(t.find(SLUICE_HANDLE_EVENT, first));
    t.remove(SLUICE_HANDLE_EVENT, h);
  }
  EXPECT_EQ(t.live(SLUICE_HANDLE_EVENT), 0u);
}

TEST(HandleTable, GuessedHandlesFindNothing) {
  HandleTable t;
  for (int i = 0; i < 10; ++i) t.add(SLUICE_HANDLE_MODULE, std::make_shared<Object>(i));
  std::mt19937_64 rng(1);
  for (int i = 0; i < 100000; ++i) {
    uint64_t h = rng();
    if (SLUICE_HANDLE_INDEX(h) < 10 && SLUICE_HANDLE_GENERATION(h) == 1) continue;
    for (int kind = 1; kind < 8; ++kind)
      ASSERT_FALSE(t.find(static_cast<sluice_handle_kind>(kind), h));
  }
}

TEST(HandleTable, IsBounded) {
  HandleTable t;
  for (uint32_t i = 0; i < HandleTable::kMaxObjects; ++i)
    ASSERT_NE(t.add(SLUICE_HANDLE_EVENT, std::make_shared<Object>(0)), 0u);
  EXPECT_FALSE(t.has_room(SLUICE_HANDLE_EVENT));
  EXPECT_EQ(t.add(SLUICE_HANDLE_EVENT, std::make_shared<Object>(0)), 0u);
  EXPECT_TRUE(t.has_room(SLUICE_HANDLE_STREAM));
}

TEST(HandleTable, APlaceIsGivenUpWhenItsGenerationsAreUsed) {
  EXPECT_EQ(HandleTable::kMaxGeneration, SLUICE_HANDLE_GENERATION(~uint64_t{0}));
  constexpr uint32_t kGenerations = 1000;
  HandleTable t(kGenerations);
  const std::shared_ptr<Object> object = std::make_shared<Object>(0);
  uint64_t last = 0;
  for (uint32_t i = 0; i < kGenerations; ++i) {
    last = t.add(SLUICE_HANDLE_EVENT, object);
    t.remove(SLUICE_HANDLE_EVENT, last);
  }
  EXPECT_EQ(SLUICE_HANDLE_GENERATION(last), kGenerations);
  uint64_t next = t.add(SLUICE_HANDLE_EVENT, std::make_shared<Object>(0));
  EXPECT_NE(SLUICE_HANDLE_INDEX(next), SLUICE_HANDLE_INDEX(last));
}

TEST(AllocationMap, EdgesAndGaps) {
  AllocationMap m;
  EXPECT_TRUE(m.add({0x1000, 0x100, 1, 512}));
  EXPECT_TRUE(m.add({0x1100, 0x100, 1, 512}));  // adjacent, another allocation
  EXPECT_FALSE(m.add({0x10ff, 2, 1, 512}));
  EXPECT_FALSE(m.add({0xff0, 0x20, 1, 512}));
  EXPECT_FALSE(m.add({0x1000, 0x100, 1, 512}));
  EXPECT_FALSE(m.add({0x0, 0x5000, 1, 512}));
  EXPECT_FALSE(m.add({0x9000, 0, 1, 512}));
  EXPECT_FALSE(m.add({~0ull - 5, 100, 1, 512}));
  EXPECT_TRUE(m.contains(0x1000, 0x100));
  EXPECT_TRUE(m.contains(0x10ff, 1));
  EXPECT_FALSE(m.contains(0x10ff, 2)) << "reaches into another allocation";
  EXPECT_FALSE(m.contains(0xfff, 1));
  EXPECT_TRUE(m.contains(0x1000, 0));
  EXPECT_FALSE(m.contains(0x1200, 0));
  EXPECT_FALSE(m.contains(0x1001, ~0ull));
  EXPECT_FALSE(m.remove(0x1001));
  EXPECT_EQ(m.charged_bytes(), 1024u);
  EXPECT_EQ(m.remove(0x1000)->bytes, 0x100u);
  EXPECT_FALSE(m.contains(0x1000, 1));
  EXPECT_EQ(m.charged_bytes(), 512u);
}

TEST(AllocationMap, VariablesBelongToTheirModule) {
  AllocationMap m;
  EXPECT_TRUE(m.add({0x2000, 16, 9, 0}));
  EXPECT_TRUE(m.add({0x2000, 16, 9, 0})) << "looked up again";
  EXPECT_FALSE(m.add({0x2000, 16, 8, 0}));
  EXPECT_FALSE(m.remove(0x2000)) << "not cuMemFree's";
  EXPECT_EQ(m.remove_owner(9).size(), 1u);
  EXPECT_FALSE(m.contains(0x2000, 1));
}

TEST(AllocationMap, IsBounded) {
  AllocationMap m;
  for (uint64_t i = 0; i < AllocationMap::kMost; ++i)
    ASSERT_TRUE(m.add({(i + 1) * 512, 1, 1, 512}));
  EXPECT_FALSE(m.add({1, 1, 1, 512}));
  EXPECT_EQ(m.charged_bytes(), AllocationMap::kMost * 512);
  EXPECT_TRUE(m.remove(512));
  EXPECT_TRUE(m.add({1, 1, 1, 512}));
}

TEST(AllocationMap, RowsDoNotOverflow) {
  worker::MemoryTable m;
  m.allocations.add({0x10000, 0x1000, 1, 0x1000});
  EXPECT_TRUE(m.owns_rows(0x10000, 0x80, 0x100, 16));
  EXPECT_TRUE(m.owns_rows(0x10080, 0x80, 0x100, 16));
  EXPECT_FALSE(m.owns_rows(0x10081, 0x80, 0x100, 16));
  EXPECT_FALSE(m.owns_rows(0x10000, 0x80, 0x100, 17));
  EXPECT_FALSE(m.owns_rows(0x10000, 0x101, 0x100, 2)) << "rows overlap";
  EXPECT_FALSE(m.owns_rows(0x10000, 1, ~0ull / 2, 4));
  EXPECT_FALSE(m.owns_rows(0x10000, 1, 1, ~0ull));
  EXPECT_TRUE(m.owns_rows(0x10000, 0x1000, 0, 1)) << "one row has no pitch";
}

TEST(MemoryTable, TheInputOfALaunchIsWhatItsParametersPointInto) {
  worker::MemoryTable m;
  m.allocations.add({0x7f0000000000, 0x1000, 1, 0x1000});
  m.allocations.add({0x7f0000100000, 0x20000, 1, 0x20000});
  const auto behind = [&](std::vector<uint64_t> words, size_t bytes) {
    return m.bytes_behind(std::as_bytes(std::span(words)).first(bytes));
  };
  EXPECT_EQ(behind({0x7f0000000ff8, 77, 0x7f0000100000}, 24), 0x21000u);
  EXPECT_EQ(behind({0x7f0000001000, 0x7f00000fffff, 0, ~0ull}, 32), 0u) << "beside them";
  EXPECT_EQ(behind({0x7f0000000000, 0x7f0000100000}, 15), 0x1000u) << "half a word is none";
  EXPECT_EQ(behind({}, 0), 0u);
  const std::vector<uint64_t> many(512, 0x7f0000100000);
  EXPECT_EQ(behind(many, 4096), worker::MemoryTable::kParamWords * 0x20000);
}

TEST(AllocationMap, AgreesWithALinearSearch) {
  AllocationMap m;
  std::vector<Allocation> all;
  std::mt19937 rng(5);
  for (int i = 0; i < 4000; ++i) {
    uint64_t address = rng() % 4096, bytes = 1 + rng() % 64;
    switch (rng() % 3) {
      case 0: {
        bool overlaps = false;
        for (const auto& a : all)
          overlaps |= a.address < address + bytes && address < a.address + a.bytes;
        ASSERT_EQ(m.add({address, bytes, 1, 1}), !overlaps);
        if (!overlaps) all.push_back({address, bytes, 1, 1});
        break;
      }
      case 1: {
        bool inside = false;
        for (const auto& a : all)
          inside |= address >= a.address && address + bytes <= a.address + a.bytes;
        ASSERT_EQ(m.contains(address, bytes), inside);
        break;
      }
      case 2:
        if (!all.empty()) {
          size_t k = rng() % all.size();
          ASSERT_TRUE(m.remove(all[k].address));
          all.erase(all.begin() + static_cast<long>(k));
        }
    }
  }
}

TEST(QuotaLease, KnowsWhatItIsChargedForAndHasChunksThatSuitTheLimit) {
  constexpr uint64_t kMiB = 1u << 20;
  EXPECT_EQ(QuotaLease::chunk_for(64 * kMiB), kMiB);
  EXPECT_EQ(QuotaLease::chunk_for(0), kMiB);
  EXPECT_EQ(QuotaLease::chunk_for(1024 * kMiB), 16 * kMiB);
  EXPECT_EQ(QuotaLease::chunk_for(~uint64_t{0}), QuotaLease::kChunkBytes);
  QuotaLease q(kMiB);
  EXPECT_EQ(q.request_for(1), kMiB);
  q.leased(4 * kMiB);
  EXPECT_TRUE(q.charge(kMiB));
  EXPECT_TRUE(q.charge(2 * kMiB, ChargeKind::kModules));
  EXPECT_FALSE(q.charge(2 * kMiB, ChargeKind::kContexts));
  EXPECT_EQ(q.used_bytes(), 3 * kMiB);
  EXPECT_EQ(q.used_bytes(ChargeKind::kModules), 2 * kMiB);
  EXPECT_EQ(q.used_bytes(ChargeKind::kContexts), 0u);
  EXPECT_EQ(q.release(2 * kMiB, ChargeKind::kModules), 2 * kMiB + kMiB / 2)
      << "all but half a chunk";
  EXPECT_EQ(q.used_bytes(ChargeKind::kModules), 0u);
}

TEST(QuotaLease, AsksInChunksAndGivesBack) {
  QuotaLease q;
  EXPECT_FALSE(q.charge(1024));
  EXPECT_EQ(q.lacking(1024), 1024u);
  EXPECT_EQ(q.request_for(1024), QuotaLease::kChunkBytes);
  q.leased(QuotaLease::kChunkBytes);
  EXPECT_TRUE(q.charge(1024));
  EXPECT_TRUE(q.charge(QuotaLease::kChunkBytes - 1024));
  EXPECT_FALSE(q.charge(1));
  q.leased(3 * QuotaLease::kChunkBytes);
  EXPECT_TRUE(q.charge(3 * QuotaLease::kChunkBytes));
  EXPECT_EQ(q.release(QuotaLease::kChunkBytes), 0u) << "one chunk is kept";
  EXPECT_EQ(q.release(3 * QuotaLease::kChunkBytes), 7 * QuotaLease::kChunkBytes / 2);
  EXPECT_EQ(q.used_bytes(), 0u);
  EXPECT_EQ(q.leased_bytes(), QuotaLease::kChunkBytes / 2);
  EXPECT_EQ(QuotaLease::charge_for(~0ull), 0u);
  EXPECT_EQ(QuotaLease::charge_for(1), 512u);
  EXPECT_EQ(q.request_for(~0ull - 3), ~0ull - 3);
}

// A message each would fill the control socket, and what does not fit is lost.
TEST(QuotaLease, ManySmallReleasesAreFewMessages) {
  constexpr uint64_t kMiB = 1u << 20;
  QuotaLease q(kMiB);
  q.leased(8 * kMiB);
  ASSERT_TRUE(q.charge(8 * kMiB));
  int messages = 0;
  for (uint64_t freed = 0; freed < 8 * kMiB; freed += QuotaLease::kUnitBytes)
    messages += q.release(QuotaLease::kUnitBytes) != 0;
  EXPECT_LE(messages, 16);
  EXPECT_LE(q.leased_bytes(), kMiB);
}

}  // namespace

namespace worker {
namespace {

TEST(MagicDivisor, ExhaustiveForSmallDivisors) {
  for (uint32_t d = 1; d <= 600; ++d) {
    if (d > 32 && !runs(d + d / 5)) continue;
    MagicDivisor m = magic_divisor(d);
    for (uint32_t n = 0; n < 70000; ++n) ASSERT_EQ(divide(n, m), n / d) << n << "/" << d;
    for (uint32_t k = 1; k < 2000; ++k) {
      uint64_t edge = (uint64_t{0xffffffff} / d - k) * d;
      for (uint32_t n : {static_cast<uint32_t>(edge - 1), static_cast<uint32_t>(edge),
                         static_cast<uint32_t>(edge + 1)})
        ASSERT_EQ(divide(n, m), n / d) << n << "/" << d;
    }
  }
}

TEST(MagicDivisor, RandomAndExtremeDivisors) {
  std::mt19937 rng(3);
  std::vector<uint32_t> divisors = {0xffffffff, 0xfffffffe, 0x80000000, 0x80000001, 0x7fffffff};
  for (int i = 0; i < 31; ++i)
    for (int off : {-1, 0, 1}) divisors.push_back(std::max(1, static_cast<int>(1u << i) + off));
  for (int i = 0; i < 20000; ++i) divisors.push_back(std::max<uint32_t>(1, rng() >> (rng() % 32)));
  for (uint32_t d : divisors) {
    MagicDivisor m = magic_divisor(d);
    std::vector<uint32_t> ns = {0, 1, d - 1, d, d + 1, 0x7fffffff, 0x80000000, 0xffffffff};
    for (int i = 0; i < 20; ++i) ns.push_back(rng());
    for (uint32_t n : ns) ASSERT_EQ(divide(n, m), n / d) << n << "/" << d;
  }
}

TEST(TaskCount, Bounds) {
  EXPECT_EQ(task_count(3, 4, 5), 60u);
  EXPECT_EQ(task_count(0x7fffffff, 1, 1), 0x7fffffffu);
  EXPECT_EQ(task_count(0x80000000, 1, 1), 0u);
  EXPECT_EQ(task_count(65536, 65536, 1), 0u);
  EXPECT_EQ(task_count(0xffffffff, 0xffffffff, 0xffffffff), 0u);
  EXPECT_EQ(task_count(0, 5, 5), 0u);
}

TEST(PlanLaunch, Cases) {
  LoopSettings settings;
  settings.chunk_max = 1024;
  const auto plan = [&](uint32_t tasks, uint32_t resident, uint32_t chunk, bool proxy,
                        CloneForm form = {}) {
    return plan_launch(tasks, resident, chunk, proxy, settings, form);
  };
  EXPECT_FALSE(plan(16, 16, 1, false).evictable) << "fits at once";
  EXPECT_FALSE(plan(0, 16, 1, false).evictable);
  EXPECT_FALSE(plan(100, 0, 1, false).evictable) << "does not fit at all";
  EXPECT_FALSE(plan(100, 1, 1, true).evictable) << "room for the proxy only";
  Geometry g = plan(1000, 16, 1, false);
  EXPECT_TRUE(g.evictable);
  EXPECT_EQ(g.blocks, 16u);
  g = plan(1000, 16, 1, true);
  EXPECT_EQ(g.blocks, 16u) << "the proxy is counted within what is resident";
  g = plan(17, 16, 100, false);
  EXPECT_EQ(g.chunk, 1u) << "a short grid is not split into few long chunks";
  g = plan(1 << 30, 16, 5000, false);
  EXPECT_EQ(g.chunk, kMaxChunk);
  g = plan(6400, 16, 5000, false);
  EXPECT_EQ(g.tail_shift, 4u) << "a chunk for each of 16 workers at the least";
  EXPECT_EQ(g.chunk, 400u);
  EXPECT_EQ(g.blocks, 16u);
  g = plan(6400, 17, 5000, true);
  EXPECT_EQ(g.tail_shift, 4u);
  g = plan(1 << 30, 16, 5000, false, {.in_order = true, .once = false});
  EXPECT_EQ(g.chunk, 1u) << "a ticket that nobody runs would stop the others";
  g = plan(1000, 16, 5000, true, {.in_order = false, .once = true});
  EXPECT_EQ(g.blocks, 1001u) << "a block for each task, and the proxy";
  g = plan(5, 16, 1, true, {.resumable = true});
  EXPECT_TRUE(g.evictable) << "it leaves in mid-work, also where it fits at once";
  EXPECT_EQ(g.blocks, 5u) << "no proxy, for which there might be no room";
  EXPECT_FALSE(plan(5, 0, 1, true, {.resumable = true}).evictable);
  settings.fixed_chunk = 7;
  g = plan(1000, 16, 5000, true);
  EXPECT_EQ(g.chunk, 7u);
}

TEST(PlanLaunch, Parameters) {
  LoopSettings settings;
  settings.clock_khz = 1980000;
  const uint32_t grid[3] = {7, 3, 2};
  sluice_preempt_params p = make_params(grid, 42, {true, 10, 2, 5, 9}, settings);
  EXPECT_EQ(p.tasks, 42u);
  EXPECT_EQ(p.target_clocks, 29700u) << "15 us at 1.98 GHz";
  EXPECT_EQ(p.batch_shift, 1u);
  EXPECT_EQ(p.flags, 0u);
  EXPECT_EQ(p.first_tickets, 9u);
  const uint32_t row[3] = {42, 1, 1};
  EXPECT_EQ(make_params(row, 42, {true, 10, 2, 5, 9}, settings).flags, SLUICE_LAUNCH_ONE_ROW);
  settings.fixed_chunk = 4;
  p = make_params(grid, 42, {true, 10, 4, 5, 0}, settings);
  EXPECT_EQ(p.flags, SLUICE_LAUNCH_FIXED);
  EXPECT_EQ(p.batch_shift, 0u) << "a batch is the whole chunk";
}

TEST(FormChoice, IsAllowedWhereTheRestOfTheGridLeavesSoon) {
  LoopSettings settings;  // 40 us, 750 ps a block
  EXPECT_TRUE(FormChoice::allowed(53'333, 511, 5000, false, settings));
  EXPECT_FALSE(FormChoice::allowed(53'334, 32, 5000, false, settings));
  EXPECT_TRUE(FormChoice::allowed(13'333, 1024, 5000, false, settings));
  EXPECT_FALSE(FormChoice::allowed(13'334, 1024, 5000, false, settings))
      << "large blocks come and go more slowly";
  EXPECT_FALSE(FormChoice::allowed(1000, 32, 2999, false, settings))
      << "short tasks pay more for asking";
  EXPECT_FALSE(FormChoice::allowed(1000, 32, 0, false, settings)) << "not known yet";
  EXPECT_TRUE(FormChoice::allowed(1000, 32, 0, true, settings));
  settings.admission_us = 0;
  EXPECT_FALSE(FormChoice::allowed(1, 32, 0, true, settings));
  settings.admission_us = 1'000'000'000;
  settings.leave_ps = kSoftwareLeavePs;
  EXPECT_TRUE(FormChoice::allowed((1u << 31) / 128, 32, 5000, false, settings));
}

TEST(FormChoice, WindowsHoldMoreThanTheGpuAndLessThanTheGrid) {
  LoopSettings settings;
  settings.window_us = 24;
  const auto window_tasks = [](uint32_t blocks, uint32_t resident, uint64_t task_ns,
                               const LoopSettings& its) {
    const uint32_t grid[3] = {blocks, 1, 1};
    return FormChoice::windows(grid, resident, task_ns, its).tasks;
  };
  EXPECT_EQ(window_tasks(100'000, 1000, 2000, settings), 12'000u);
  EXPECT_EQ(window_tasks(100'000, 1000, 24'000, settings), 1000u);
  EXPECT_EQ(window_tasks(100'000, 1000, 24'001, settings), 1000u) << "what is resident";
  EXPECT_EQ(window_tasks(100'000, 1000, 96'000, settings), 1000u);
  EXPECT_EQ(window_tasks(100'000, 1000, 96'001, settings), 0u) << "for too long";
  EXPECT_EQ(window_tasks(36'000, 1000, 2000, settings), 12'000u);
  EXPECT_EQ(window_tasks(35'999, 1000, 2000, settings), 11'999u) << "shorter ones";
  EXPECT_EQ(window_tasks(2999, 1000, 2000, settings), 0u) << "too small to cut";
  EXPECT_EQ(window_tasks(100'000, 1000, 0, settings), 0u) << "not known yet";
  EXPECT_EQ(window_tasks(100'000, 0, 2000, settings), 0u);
  // Windows are whole rows, which may be longer than a window.
  const uint32_t rows[3] = {12'000, 100, 1}, long_rows[3] = {12'001, 100, 1},
                 planes[3] = {200, 60, 100};
  EXPECT_EQ(FormChoice::windows(rows, 1000, 2000, settings).tasks, 12'000u);
  EXPECT_EQ(FormChoice::windows(long_rows, 1000, 2000, settings).tasks, 0u);
  EXPECT_EQ(FormChoice::windows(planes, 1000, 2000, settings).tasks, 12'000u);
  settings.window_lead_us = 12;
  const WindowPlan plan = FormChoice::windows(planes, 1000, 2000, settings);
  EXPECT_EQ(plan.window_ns, 24'000u);
  EXPECT_EQ(plan.early_ns, 14'000u) << "window_lead_us and a task";
  settings.window_us = 0;
  EXPECT_EQ(window_tasks(100'000, 1000, 2000, settings), 0u);
}

TEST(FormChoice, TakesTheFastestAndTriesTheOthersNowAndThen) {
  const auto bit = [](FormKind form) { return 1u << static_cast<int>(form); };
  const auto kinds = {FormKind::kLoop, FormKind::kOneTask, FormKind::kWindows};
  for (bool in_order : {false, true}) {
    const FormKind first = in_order ? FormKind::kOneTask : FormKind::kLoop;
    const FormKind second = in_order ? FormKind::kLoop : FormKind::kOneTask;
    const unsigned may = bit(FormKind::kOneTask);
    FormChoice c;
    EXPECT_EQ(c.next(may, in_order), first);
    c.observe(first, 1000, 1'000'000);
    EXPECT_EQ(c.next(may, in_order), second) << "has never been tried";
    // What is queued before it has ended.
    uint32_t seconds = 0;
    for (uint32_t i = 1; i < 3 * FormChoice::kUnknownAgain; ++i)
      seconds += c.next(may, in_order) != first;
    EXPECT_EQ(seconds, 2u) << "as when the first was evicted, and says nothing";
    c.observe(second, 1000, 1'100'000);
    uint32_t others = 0;
    for (uint32_t i = 0; i < 2 * FormChoice::kAgain; ++i) others += c.next(may, in_order) != first;
    EXPECT_EQ(others, 2u);
    // The slower one has become the faster one: by its own launches, of any size.
    for (int i = 0; i < 30; ++i) c.observe(second, 5000, 4'000'000);
    others = 0;
    for (uint32_t i = 0; i < 10; ++i) others += c.next(may, in_order) != first;
    EXPECT_EQ(others, 10u);
    c.observe(first, 0, 0);  // says nothing
    EXPECT_EQ(c.next(may, in_order), second);
    EXPECT_EQ(c.next(0, in_order), FormKind::kLoop) << "nothing else is there";
  }
  FormChoice c;
  const unsigned all = bit(FormKind::kOneTask) | bit(FormKind::kWindows);
  uint64_t ns = 1'200'000;
  for (FormKind form : kinds) {
    EXPECT_EQ(c.next(all, false), form);
    c.observe(form, 1000, ns -= 100'000);
  }
  uint32_t taken[kForms] = {};
  for (uint32_t i = 0; i < 2 * FormChoice::kAgain; ++i)
    ++taken[static_cast<int>(c.next(all, false))];
  EXPECT_EQ(taken[0], 2u);
  EXPECT_EQ(taken[1], 2u);
  EXPECT_EQ(taken[2], 2 * FormChoice::kAgain - 4);
}

TEST(FormChoice, TimesTheFirstOfAFormAndNowAndThenOne) {
  FormChoice c;
  const unsigned may = 1u << static_cast<int>(FormKind::kWindows);
  EXPECT_TRUE(c.timed());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(c.next(may, false), FormKind::kLoop);
    EXPECT_TRUE(c.timed()) << "nothing is known of it";
  }
  c.observe(FormKind::kLoop, 1000, 2'000'000);
  EXPECT_EQ(c.next(may, false), FormKind::kWindows);
  EXPECT_TRUE(c.timed());
  c.observe(FormKind::kWindows, 1000, 1'000'000);
  uint32_t timed = 0;
  for (uint32_t i = 0; i < 10 * FormChoice::kTimed; ++i) {
    c.next(may, false);
    timed += c.timed();
  }
  EXPECT_EQ(timed, 10u);
  // Whenever the other one is tried again.
  for (uint32_t i = 0; i < FormChoice::kAgain; ++i) {
    const FormKind form = c.next(may, false);
    EXPECT_TRUE(c.timed() || form == FormKind::kWindows);
  }
}

TEST(GridWindows, CoverTheGridOnceInItsOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    uint32_t grid[3] = {1 + static_cast<uint32_t>(random() % 9), 1, 1};
    if (random() % 3 != 0) grid[1] = 1 + static_cast<uint32_t>(random() % 7);
    if (random() % 3 == 0) grid[2] = 1 + static_cast<uint32_t>(random() % 5);
    const uint32_t tasks = grid[0] * grid[1] * grid[2];
    const uint32_t size = 1 + static_cast<uint32_t>(random() % tasks);
    uint32_t task = 0;
    int stream = 0;
    GridWindows windows(grid, size);
    ASSERT_EQ(windows.tasks(), tasks);
    while (windows.left()) {
      // One that was evicted goes on where it was.
      if (random() % 4 == 0) {
        windows = GridWindows(grid, size, windows.end());
        stream = 0;
      }
      uint32_t its[3];
      const sluice_window_params p = windows.next(its);
      EXPECT_EQ(windows.stream(), stream);
      EXPECT_EQ(windows.newest(), its[0] * its[1] * its[2]);
      for (uint32_t z = 0; z < its[2]; ++z)
        for (uint32_t y = 0; y < its[1]; ++y)
          for (uint32_t x = 0; x < its[0]; ++x, ++task)
            EXPECT_EQ(((p.first_z + z) * grid[1] + p.first_y + y) * grid[0] + p.first_x + x, task);
      EXPECT_EQ(windows.end(), task);
      stream = 1 - stream;
    }
    EXPECT_EQ(task, tasks);
    EXPECT_EQ(windows.end(), tasks);
  }
}

TEST(WindowPace, QueuesTheNextWindowShortlyBeforeTheNewestIsOver) {
  WindowPlan plan;
  plan.tasks = 100;
  plan.window_ns = 24'000;
  plan.early_ns = 14'000;
  WindowPace pace(plan);
  EXPECT_FALSE(pace.due(1'000'000)) << "two are there";
  pace.ended(1'000'000);
  EXPECT_TRUE(pace.ended());
  EXPECT_FALSE(pace.due(1'009'999));
  EXPECT_TRUE(pace.due(1'010'000));
  pace.queued();
  EXPECT_FALSE(pace.ended());
  EXPECT_FALSE(pace.due(2'000'000));
  // Windows turn out shorter than they were thought to be.
  pace.ended(1'020'000);
  EXPECT_FALSE(pace.due(1'025'999));
  EXPECT_TRUE(pace.due(1'026'000));
  pace.queued();
  // A gap does not make them longer again.
  pace.ended(1'090'000);
  EXPECT_TRUE(pace.due(1'096'000));
  pace.queued();
  // Where there is no time to lose, at once.
  pace.ended(1'100'000);
  EXPECT_TRUE(pace.due(1'100'000));
}

TEST(WholeTimes, AreKnownByPowersOfTwoOfTheBlocks) {
  WholeTimes times;
  EXPECT_EQ(times.expected_ns(100), 0u);
  times.observe(100, 5000, false);
  EXPECT_EQ(times.expected_ns(100), 5000u);
  EXPECT_EQ(times.expected_ns(127), 5000u);
  EXPECT_EQ(times.expected_ns(128), 0u);
  times.observe(~0u, 9000, false);
  EXPECT_EQ(times.expected_ns(~0u), 9000u);
}

TEST(WholeTimes, WhileOthersWaitTheShortestCounts) {
  WholeTimes times;
  for (const uint64_t ns : {50'000u, 20'000u, 90'000u, 70'000u}) times.observe(8, ns, true);
  EXPECT_GE(times.expected_ns(8), 20'000u);
  EXPECT_LE(times.expected_ns(8), 21'000u);
  // A kernel that has become longer.
  for (int i = 0; i < 100; ++i) times.observe(8, 60'000, true);
  EXPECT_EQ(times.expected_ns(8), 60'000u);
}

// The end before it was seen late, so that it seems to have begun late: a launch of 1 ms that is
// believed to take 50 us is queued eight at a time.
TEST(WholeTimes, WhileOthersWaitOneThatSeemsShortDoesNotCount) {
  WholeTimes times;
  for (int i = 0; i < 4; ++i) times.observe(8, 1'000'000, true);
  times.observe(8, 1'950'000, true);
  times.observe(8, 50'000, true);
  EXPECT_GE(times.expected_ns(8), 1'000'000u);
  times.observe(8, 1'000'000, true);
  EXPECT_GE(times.expected_ns(8), 1'000'000u);
  // A kernel that has become shorter.
  for (int i = 0; i < 2; ++i) times.observe(8, 50'000, true);
  EXPECT_EQ(times.expected_ns(8), 50'000u);
}

TEST(WholeTimes, WhatWaitedForOthersAtFirstIsForgottenAtOnce) {
  WholeTimes times;
  times.observe(8, 100'000'000, true);
  times.observe(8, 1'000'000, true);
  EXPECT_EQ(times.expected_ns(8), 1'000'000u);
}

TEST(WholeTimes, AloneTheMeanOfTheLastOnesCounts) {
  WholeTimes times;
  times.observe(8, 50'000, true);
  for (int i = 0; i < 30; ++i) times.observe(8, i % 2 ? 10'000 : 20'000, false);
  EXPECT_GE(times.expected_ns(8), 12'000u);
  EXPECT_LE(times.expected_ns(8), 18'000u);
  for (int i = 0; i < 30; ++i) times.observe(8, 15'000, false);
  times.observe(8, 90'000, false);
  EXPECT_LE(times.expected_ns(8), 18'000u) << "others may have run beside it until just now";
  for (int i = 0; i < 30; ++i) times.observe(8, 90'000, false);
  EXPECT_GE(times.expected_ns(8), 80'000u) << "it has become longer";
  times.observe(8, ~uint64_t{0}, false);
  EXPECT_GT(times.expected_ns(8), 0u) << "no time makes it unknown";
}

TEST(ChunkModel, FollowsTheTaskTime) {
  ChunkModel m(200);
  EXPECT_EQ(m.chunk(), 1u);
  m.observe(1000, 10, 1'000'000);  // 10 us a task
  EXPECT_EQ(m.task_ns(), 10'000u);
  EXPECT_EQ(m.chunk(), 20u);
  for (int i = 0; i < 30; ++i) m.observe(1000, 10, 100'000'000);  // 1 ms a task
  EXPECT_EQ(m.chunk(), 1u);
  for (int i = 0; i < 60; ++i) m.observe(1 << 30, 16, 1'000'000);
  EXPECT_EQ(m.chunk(), kMaxChunk);
}

}  // namespace
}  // namespace worker
}  // namespace sluice
