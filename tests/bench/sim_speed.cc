// SPDX-License-Identifier: Apache-2.0
// How many events a second of processor time the simulator handles, by workload and policy. By
// hand; one process, one core.
//
//     sim_speed [WORKLOAD[/RUN] [POLICY...]]      default: two-to-one and mixed under wfq, fcfs,
//     rr, dss
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "policies/sim/simulation.h"

using namespace sluice::policy;
using namespace sluice::policy::sim;

int main(int argc, char** argv) {
  std::vector<std::string> names = {"two-to-one", "mixed"}, policies = {"wfq", "fcfs", "rr", "dss"};
  if (argc > 1) names = {argv[1]};
  if (argc > 2) policies.assign(argv + 2, argv + argc);
  for (const std::string& name : names) {
    const size_t slash = name.find('/');
    const WorkloadRow* row = find_workload(name.substr(0, slash));
    if (!row) return std::fprintf(stderr, "sim_speed: no workload %s\n", name.c_str()), 1;
    const auto run = slash == std::string::npos
                         ? 0u
                         : static_cast<uint32_t>(std::atoi(name.c_str() + slash + 1));
    Workload w = row->make(run, 1);
    w.max_events = 2'000'000;
    for (const std::string& policy : policies) {
      const Registration* p = find_policy(policy);
      if (!p) return std::fprintf(stderr, "sim_speed: no policy %s\n", policy.c_str()), 1;
      uint64_t events = 0, seed = 0;
      double seconds = 0;
      while (seconds < 1) {
        const auto object = p->make(engine_config(w));
        const std::clock_t begin = std::clock();
        events += simulate(w, *object, {.seed = ++seed, .preempts = p->preempts}).events;
        seconds += static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      }
      std::printf("%-16s %-8s %8.2f million events/s\n", name.c_str(), policy.c_str(),
                  static_cast<double>(events) / seconds / 1e6);
    }
  }
  return 0;
}
