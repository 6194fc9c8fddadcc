// SPDX-License-Identifier: Apache-2.0
// The workloads of "Enabling Preemptive Multiprogramming on GPUs" (Tanasic et al.), section 4:
// random mixes of 2, 4, 6 and 8 of ten Parboil benchmarks with the kernels of Table 1, on 13 SMs,
// replayed until each has run 3 times; one of high priority (figures 5 and 6) or all equal (figures
// 7 and 8); SMs are emptied by draining or by saving the context.
//
// The paper simulates traces of whole programs; what it prints are their kernels. Assumed here:
//   - a program's processor and transfer phases come before its kernels and take one and a half
//     times as long. That is chosen so that ppq's gain with 8 processes is near the paper's;
//     docs/results/papers/ has the results for 1 and 2 times;
//   - a kernel reaches the GPU 1 us after the one before it has ended: "by the time it reaches the
//     execution engine, the ready, low-priority kernel will already be scheduled" (section 4.2);
//   - thread blocks last as long as Table 1's kernel times, block numbers and residency say
//     together. (Its column Time/TB is that over the number of SMs: 72.71 us for tpacf's 201
//     blocks, one to an SM, would make a kernel of 1.2 ms and not of 14.6.)
//   - restoring a context takes as long as saving it; a start costs nothing beyond the kernel's own
//   time;
//   - the order of mri-gridding's and histo's kernels within a run, which Table 1 does not have.
#include <algorithm>

#include "policies/sim/random.h"
#include "policies/sim/workloads/rows.h"

namespace sluice::policy::sim {
namespace {

constexpr uint32_t kSms = 13;
constexpr uint64_t kDispatchNs = 1'000;
constexpr uint64_t kHostPerMille = 1'500;
// Under policies that starve nobody the longest mix has its replays in two thirds of that; under
// the others it would never.
constexpr uint64_t kHorizonNs = 100'000'000'000;

// Table 1, in ns.
struct Entry {
  const char* name;
  uint64_t alone_ns;
  uint32_t blocks, blocks_per_sm;
  uint64_t save_ns;
};
enum Row : uint32_t {
  kLbm,
  kHistoFinal,
  kHistoPrescan,
  kHistoIntermediates,
  kHistoMain,
  kTpacf,
  kSpmv,
  kComputeQ,
  kComputePhiMag,
  kSad8,
  kSad16,
  kSadMb,
  kSgemm,
  kStencil,
  kCutcp,
  kBinning,
  kScanInter1,
  kScanL1,
  kUniformAdd,
  kReorder,
  kSplitSort,
  kGridding,
  kSplitRearrange,
  kScanInter2,
  kRows
};
constexpr Entry kTable[kRows] = {
    {"StreamCollide", 2'905'810, 18'000, 15, 16'200},
    {"final", 70'240, 42, 3, 14'590},
    {"prescan", 20'870, 64, 4, 10'240},
    {"intermediates", 77'880, 65, 4, 8'960},
    {"main", 372'580, 84, 1, 5'760},
    {"genhists", 14'615'330, 201, 1, 2'750},
    {"spmvjds", 42'380, 374, 16, 3'710},
    {"ComputeQ", 3'389'710, 1'024, 8, 10'750},
    {"ComputePhiMag", 4'700, 4, 4, 6'140},
    {"largersadcalc8", 8'174'210, 8'040, 16, 13'310},
    {"largersadcalc16", 1'529'380, 8'040, 16, 3'330},
    {"mbsadcalc", 15'446'020, 128'640, 7, 4'710},
    {"mysgemmNT", 3'717'180, 528, 14, 16'130},
    {"block2Dregtiling", 2'227'300, 256, 1, 10'500},
    {"lattice6overlap", 1'520'110, 121, 3, 3'270},
    {"binning", 2'021'410, 5'188, 4, 4'100},
    {"scaninter1", 7'590, 29, 16, 5'360},
    {"scanL1", 826'120, 2'084, 3, 7'730},
    {"uniformAdd", 127'300, 2'084, 4, 4'100},
    {"reorder", 2'535'300, 5'188, 4, 8'190},
    {"splitSort", 3'838'840, 2'594, 3, 8'520},
    {"griddingGPU", 208'398'470, 65'536, 10, 10'080},
    {"splitRearrange", 1'622'930, 2'594, 3, 5'200},
    {"scaninter2", 8'810, 29, 16, 5'360},
};

struct Step1 {
  Row row;
  uint32_t launches;
};
struct Application {
  const char* name;
  uint32_t rounds;  // times that `each` is done
  std::vector<Step1> before, each, after;
};
const std::vector<Application>& applications() {
  static const std::vector<Application> table = {
      {"lbm", 100, {}, {{kLbm, 1}}, {}},
      {"histo",
       20,
       {},
       {{kHistoPrescan, 1}, {kHistoIntermediates, 1}, {kHistoMain, 1}, {kHistoFinal, 1}},
       {}},
      {"tpacf", 1, {}, {{kTpacf, 1}}, {}},
      {"spmv", 50, {}, {{kSpmv, 1}}, {}},
      {"mri-q", 1, {{kComputePhiMag, 1}}, {{kComputeQ, 2}}, {}},
      {"sad", 1, {}, {{kSadMb, 1}, {kSad8, 1}, {kSad16, 1}}, {}},
      {"sgemm", 1, {}, {{kSgemm, 1}}, {}},
      {"stencil", 100, {}, {{kStencil, 1}}, {}},
      {"cutcp", 11, {}, {{kCutcp, 1}}, {}},
      {"mri-gridding",
       7,
       {{kBinning, 1}},
       {{kSplitSort, 1},
        {kScanL1, 1},
        {kScanInter1, 1},
        {kScanInter2, 1},
        {kUniformAdd, 1},
        {kSplitRearrange, 1}},
       {{kScanL1, 1},
        {kScanInter1, 2},
        {kScanInter2, 2},
        {kUniformAdd, 1},
        {kReorder, 1},
        {kGridding, 1}}},
  };
  return table;
}

void add(Workload& w, const Application& a, uint32_t index, uint32_t priority) {
  Program p;
  p.name = a.name;
  if (index > 0) p.name += "#" + std::to_string(index);
  p.vgpu = static_cast<uint32_t>(w.vgpus.size());
  uint64_t total_ns = 0;
  const auto append = [&](const std::vector<Step1>& steps) {
    for (const Step1& s : steps) {
      p.steps.push_back({.kernel = s.row, .launches = s.launches, .host_ns = kDispatchNs});
      total_ns += kTable[s.row].alone_ns * s.launches;
    }
  };
  append(a.before);
  for (uint32_t i = 0; i < a.rounds; ++i) append(a.each);
  append(a.after);
  p.steps.front().host_ns =
      total_ns / 1000 * kHostPerMille;  // the processor's phase; its first step is one launch
  p.runs = 0;
  w.vgpus.push_back({.name = p.name, .share = {.priority = priority}});
  w.programs.push_back(p);
}

// Printed: blocks are as short as column Time/TB says, which is the kernel's time x blocks per SM /
// blocks.
template <uint32_t kProcesses, Mechanism kMechanism, bool kPriority, bool kPrinted = false>
Workload mix(uint32_t run, uint64_t seed) {
  Workload w;
  w.gpu.sm_count = kSms;
  w.gpu.spatial = true;
  w.gpu.mechanism = kMechanism;
  for (const Entry& e : kTable) {
    Kernel k;
    k.name = e.name;
    k.alone_ns = e.alone_ns;
    k.tasks = e.blocks;
    k.blocks_per_sm = e.blocks_per_sm;
    k.width_sms = std::min((e.blocks + e.blocks_per_sm - 1) / e.blocks_per_sm, kSms);
    k.save_ns = k.restore_ns = e.save_ns;
    if (kPrinted) k.task_ns = std::max<uint64_t>(e.alone_ns * e.blocks_per_sm / e.blocks, 1);
    w.kernels.push_back(k);
  }
  w.config.machine.handover_ns = 20'000;
  // "All the benchmark applications appear the same number of times as the high-priority process."
  const auto& all = applications();
  Random random = Random::of(seed, run);
  std::vector<uint32_t> seen(all.size());
  const uint32_t high = run % static_cast<uint32_t>(all.size());
  add(w, all[high], seen[high]++, kPriority ? 1 : 0);
  for (uint32_t i = 1; i < kProcesses; ++i) {
    const uint32_t other = static_cast<uint32_t>(random.below(all.size()));
    add(w, all[other], seen[other]++, 0);
  }
  w.replay_runs = 3;
  w.high_program = kPriority ? 0 : -1;
  w.horizon_ns = kHorizonNs;
  return w;
}

template <Mechanism kM, bool kP, bool kPrinted = false>
void rows_of(std::vector<WorkloadRow>& rows, const char* const (&names)[4], const char* summary) {
  rows.push_back({names[0], summary, 30, mix<2, kM, kP, kPrinted>});
  rows.push_back({names[1], summary, 30, mix<4, kM, kP, kPrinted>});
  rows.push_back({names[2], summary, 30, mix<6, kM, kP, kPrinted>});
  rows.push_back({names[3], summary, 30, mix<8, kM, kP, kPrinted>});
}

}  // namespace

const std::vector<WorkloadRow>& preemptive_workloads() {
  static const std::vector<WorkloadRow> rows = [] {
    std::vector<WorkloadRow> all;
    rows_of<Mechanism::kContextSwitch, true>(all,
                                             {"preemptive-switch-2", "preemptive-switch-4",
                                              "preemptive-switch-6", "preemptive-switch-8"},
                                             "preemptive multiprogramming, figures 5 and 6: one "
                                             "process of high priority, context switch");
    rows_of<Mechanism::kDrain, true>(
        all,
        {"preemptive-drain-2", "preemptive-drain-4", "preemptive-drain-6", "preemptive-drain-8"},
        "preemptive multiprogramming, figures 5 and 6: one process of high priority, draining");
    rows_of<Mechanism::kContextSwitch, false>(
        all,
        {"preemptive-equal-switch-2", "preemptive-equal-switch-4", "preemptive-equal-switch-6",
         "preemptive-equal-switch-8"},
        "preemptive multiprogramming, figures 7 and 8: equal processes, context switch");
    rows_of<Mechanism::kDrain, false>(
        all,
        {"preemptive-equal-drain-2", "preemptive-equal-drain-4", "preemptive-equal-drain-6",
         "preemptive-equal-drain-8"},
        "preemptive multiprogramming, figures 7 and 8: equal processes, draining");
    rows_of<Mechanism::kDrain, true, true>(all,
                                           {"preemptive-printed-2", "preemptive-printed-4",
                                            "preemptive-printed-6", "preemptive-printed-8"},
                                           "the same with draining, if blocks were as short as "
                                           "Table 1's column Time/TB (docs/results/papers/)");
    rows_of<Mechanism::kDrain, false, true>(
        all,
        {"preemptive-equal-printed-2", "preemptive-equal-printed-4", "preemptive-equal-printed-6",
         "preemptive-equal-printed-8"},
        "figures 7 and 8 with draining and blocks as short as column Time/TB");
    return all;
  }();
  return rows;
}

}  // namespace sluice::policy::sim
