// preempt_bench: how well rewritten kernels run and leave, on whatever CUDA driver is named.
//   preempt_bench --library libcuda.so.1 ratio latency loss equality
// One line of JSON for each figure; run.py beside this calls it and draws.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/bench/preempt/measure.h"

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
    if (a == "--library") library = value();
    else if (a == "--scale") options.scale = std::atof(value());
    else if (a == "--rounds") options.rounds = std::atoi(value());
    else if (a == "--samples") options.samples = std::atoi(value());
    else if (a == "--seeds") options.seeds = std::atoi(value());
    else if (a == "--batch-shift") options.batch_shift = std::atoi(value());
    else if (a == "--target-us") options.target_us = static_cast<std::uint32_t>(std::atoi(value()));
    else if (a == "--only") options.only = value();
    else if (a == "--papers") options.papers = true;
    else if (a == "--slicing") options.slicing = true;
    else if (a[0] != '-') what.push_back(a);
    else die("unknown option " + a + "; see tests/bench/README.md");
  }
  Gpu gpu(library);
  std::printf("{\"gpu\":\"%s\",\"sms\":%d,\"clock_khz\":%d,\"batch_shift\":%d,\"target_us\":%u}\n", gpu.name.c_str(), gpu.sms,
              gpu.clock_khz, options.batch_shift, options.target_us);
  int wrong = 0;
  for (const std::string& w : what) {
    if (w == "ratio") measure_ratio(gpu, options);
    else if (w == "latency") measure_latency(gpu, options);
    else if (w == "loss") measure_loss(gpu, options);
    else if (w == "equality") wrong += check_equality(gpu, options);
    else die("what is " + w + "?");
  }
  return wrong == 0 ? 0 : 1;
}
