// SPDX-License-Identifier: Apache-2.0
// What it costs a running launch that its session's SMs change: it stays where it is but for the
// SMs that were lost and won ("keep"), or it is called back and issued again.
//
//   parts_cost [--library libcuda.so.1 | soft library] [--worker PATH] [--sms N] [--changes N]
//   [--pause US] [--tasks N]
//              [--rounds N] [--steps N]
//
// A real worker with this program as its sluiced; one long launch; its SMs go to and fro between
// two thirds and 60 % of the GPU at equal times in both forms, by turns. JSON: run times, and for
// each change the time until the worker said that the SMs were left. What a change cost: (time
// called back - time kept) / changes is what staying saves.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/worker_process.h"

namespace sluice::test {
namespace {

struct Settings {
  std::string library, worker;
  uint32_t sms = 132, changes = 40, pause_us = 500, tasks = 400'000, rounds = 5, steps = 6000;
};
Settings g_settings;

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

class PartsCost : public WorkerProcess {
 public:
  void TestBody() override {
    const Settings& s = g_settings;
    WorkerBench::Options o;
    o.nvidia = s.library.find("softcuda") == std::string::npos;
    o.signal = o.nvidia ? wp::Signal::kProxy : wp::Signal::kHost;
    o.spatial_sms = s.sms;
    o.open = false;
    o.environment = {"SLUICE_SOFT_SMS=" + std::to_string(s.sms), "SLUICE_SOFT_MEMORY=1G"};
    b = std::make_unique<WorkerBench>(s.worker.c_str(), s.library.c_str(), std::move(o));
    ASSERT_EQ(b->ready.code, 0) << b->ready.text;
    const SmSet large(0, s.sms * 2 / 3), small(0, s.sms * 3 / 5);
    b->grant_part(large);
    make_context();
    make_module();
    const uint32_t n = 64 * s.tasks;
    const uint64_t data = alloc(uint64_t{n} * 4).as<uint64_t>();
    std::vector<double> ms[3], shrink_us[2], grow_us[2];
    for (uint32_t round = 0; round < s.rounds; ++round) {
      for (int form : {0, 1, 2}) {  // kept, called back, left alone
        const uint64_t begin = monotonic_ns();
        b->post(SLUICE_CALL_LAUNCH, launch_body(add, s.tasks, 64, data, n, round, 0, s.steps),
                context, SLUICE_RECORD_NO_REPLY);
        uint32_t done = 0;
        ::usleep(1000);
        for (uint32_t i = 0; form != 2 && i < s.changes; ++i, ++done) {
          const bool shrinks = i % 2 == 0;
          const uint64_t from = monotonic_ns();
          const SmSet::Range leave = form == 1 ? SmSet::Range{0, 0xffff}
                                     : shrinks ? SmSet::Range{s.sms * 3 / 5, s.sms * 2 / 3}
                                               : SmSet::Range{0, 0};
          b->grant_part(shrinks ? small : large, true, form == 0, leave);
          ASSERT_TRUE(b->wait_moved());
          (shrinks ? shrink_us : grow_us)[form].push_back(
              static_cast<double>(monotonic_ns() - from) / 1000);
          while (monotonic_ns() < from + s.pause_us * 1000) {
          }
        }
        ASSERT_EQ(sync(120000).status, CUDA_SUCCESS);
        ms[form].push_back(static_cast<double>(monotonic_ns() - begin) / 1e6);
        if (done % 2 == 0) continue;
        b->grant_part(large, true);
        ASSERT_TRUE(b->wait_moved());
      }
    }
    const double each_us = 1000 * (median(ms[1]) - median(ms[0])) / s.changes;
    std::printf(
        "{\"changes\":%u,\"alone_ms\":%.3f,\"kept_ms\":%.3f,\"called_back_ms\":%.3f,\"saved_us_a_"
        "change\":%.2f,"
        "\"shrink_us\":{\"kept\":%.1f,\"called_back\":%.1f},\"grow_us\":{\"kept\":%.1f,\"called_"
        "back\":%.1f},"
        "\"changes_kept\":%lu,\"second_grids\":%lu,\"called_back_after_all\":%d,\"evictions\":%lu}"
        "\n",
        s.changes, median(ms[2]), median(ms[0]), median(ms[1]), each_us, median(shrink_us[0]),
        median(shrink_us[1]), median(grow_us[0]), median(grow_us[1]), b->report->header.narrowed,
        b->report->header.grown, b->called_back_whole, b->report->header.evictions);
  }
};

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) {
  using sluice::test::g_settings;
  testing::InitGoogleTest(&argc, argv);
  g_settings.library = SLUICE_TEST_SOFTCUDA;
  g_settings.worker = SLUICE_TEST_WORKER;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    const auto number = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    if (name == "--library")
      g_settings.library = value;
    else if (name == "--worker")
      g_settings.worker = value;
    else if (name == "--sms")
      g_settings.sms = number;
    else if (name == "--changes")
      g_settings.changes = number;
    else if (name == "--pause")
      g_settings.pause_us = number;
    else if (name == "--tasks")
      g_settings.tasks = number;
    else if (name == "--rounds")
      g_settings.rounds = number;
    else if (name == "--steps")
      g_settings.steps = number;
    else
      return std::fprintf(stderr, "parts_cost: no option %s\n", argv[i]), 2;
  }
  testing::RegisterTest(
      "Bench", "PartsCost", nullptr, nullptr, __FILE__, __LINE__,
      []() -> sluice::test::WorkerProcess* { return new sluice::test::PartsCost; });
  return RUN_ALL_TESTS();
}
