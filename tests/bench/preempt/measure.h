// SPDX-License-Identifier: Apache-2.0
// The benchmark's measurements; each prints its rows as lines of JSON (run.py reads them).
#pragma once

#include "tests/bench/preempt/cases.h"
#include "tests/bench/preempt/gpu.h"

namespace sluice::bench {

struct MeasureOptions {
  double scale = 1;
  int rounds = 7;     // ratio: alternating runs of each form
  int samples = 200;  // latency
  int seeds = 4;      // equality: runs of each case and signal
  int batch_shift = 1;
  std::uint32_t target_us = 20;
  std::vector<std::string> only;  // parts of cases' names, one of which must be there; empty: all
  std::vector<std::string>
      variants;         // ratio: more settings to compare, "NAME:key=value,..." (README.md)
  std::string cccl;     // folder of the recorded CUB programs; empty: without them
  bool clamp = true;    // equality: with the third form of clones
  bool papers = false;  // ratio: also EffiSha's stages and FLEP's factors
  bool slicing = false;
};

// Whether the case is among those asked for.
inline bool wanted(const MeasureOptions& options, const std::string& name) {
  for (const std::string& part : options.only)
    if (name.find(part) != std::string::npos) return true;
  return options.only.empty();
}

// All cases asked for.
std::vector<CaseMaker> cases_of(const MeasureOptions& options);

void measure_ratio(Gpu& gpu, const MeasureOptions& options);    // run time, never evicted
void measure_latency(Gpu& gpu, const MeasureOptions& options);  // host's store to last block out
void measure_forms(Gpu& gpu, const MeasureOptions& options);
void measure_leave(Gpu& gpu,
                   const MeasureOptions& options);  // grids with one task a block, shut out
void measure_loss(Gpu& gpu, const MeasureOptions& options);   // per eviction and resumption
int check_equality(Gpu& gpu, const MeasureOptions& options);  // how many runs differ

}  // namespace sluice::bench
