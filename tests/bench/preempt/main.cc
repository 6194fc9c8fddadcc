// SPDX-License-Identifier: Apache-2.0
// preempt_bench: how well rewritten kernels run and leave, on whatever CUDA driver is named.
//   preempt_bench --library libcuda.so.1 ratio latency loss equality
// One line of JSON for each figure; run.py beside this calls it and draws.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tests/bench/preempt/cccl_cases.h"
#include "tests/bench/preempt/measure.h"

namespace sluice::bench {

std::vector<CaseMaker> cases_of(const MeasureOptions& options) {
  std::vector<CaseMaker> cases = all_cases(options.scale);
  if (!options.cccl.empty()) {
    std::vector<CaseMaker> more = cccl_cases(options.cccl);
    cases.insert(cases.end(), more.begin(), more.end());
  }
  // Gigabytes each: only where they are asked for.
  std::erase_if(cases, [&](const CaseMaker& c) {
    return !wanted(options, c.name) || (options.only.empty() && c.name.ends_with("_long"));
  });
  return cases;
}

}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  MeasureOptions options;
  std::string library = "libcuda.so.1";
  std::vector<std::string> what;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&] {
      if (i + 1 >= argc) die(a + " needs a value");
      return argv[++i];
    };
    if (a == "--library")
      library = value();
    else if (a == "--scale")
      options.scale = std::atof(value());
    else if (a == "--rounds")
      options.rounds = std::atoi(value());
    else if (a == "--samples")
      options.samples = std::atoi(value());
    else if (a == "--seeds")
      options.seeds = std::atoi(value());
    else if (a == "--batch-shift")
      options.batch_shift = std::atoi(value());
    else if (a == "--target-us")
      options.target_us = static_cast<std::uint32_t>(std::atoi(value()));
    else if (a == "--only") {
      std::stringstream parts(value());
      for (std::string part; std::getline(parts, part, ',');) options.only.push_back(part);
    } else if (a == "--variant")
      options.variants.push_back(value());
    else if (a == "--cccl")
      options.cccl = value();
    else if (a == "--no-clamp")
      options.clamp = false;
    else if (a == "--papers")
      options.papers = true;
    else if (a == "--slicing")
      options.slicing = true;
    else if (a[0] != '-')
      what.push_back(a);
    else
      die("unknown option " + a + "; see tests/bench/README.md");
  }
  Gpu gpu(library);
  std::printf("{\"gpu\":\"%s\",\"sms\":%d,\"clock_khz\":%d,\"batch_shift\":%d,\"target_us\":%u}\n",
              gpu.name.c_str(), gpu.sms, gpu.clock_khz, options.batch_shift, options.target_us);
  int wrong = 0;
  for (const std::string& w : what) {
    if (w == "ratio")
      measure_ratio(gpu, options);
    else if (w == "latency")
      measure_latency(gpu, options);
    else if (w == "leave")
      measure_leave(gpu, options);
    else if (w == "forms")
      measure_forms(gpu, options);
    else if (w == "loss")
      measure_loss(gpu, options);
    else if (w == "equality")
      wrong += check_equality(gpu, options);
    else
      die("what is " + w + "?");
  }
  return wrong == 0 ? 0 : 1;
}
