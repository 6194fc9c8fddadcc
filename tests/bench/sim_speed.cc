// How many events a second the simulator handles, by workload and policy. By hand; one process, one core.
//
//     sim_speed [WORKLOAD [POLICY...]]      default: two-to-one and mixed under wfq, fcfs, rr, dss
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "policies/sim/engine.h"

using namespace sluice::policy;
using namespace sluice::policy::sim;

int main(int argc, char** argv) {
  std::vector<std::string> names = {"two-to-one", "mixed"}, policies = {"wfq", "fcfs", "rr", "dss"};
  if (argc > 1) names = {argv[1]};
  if (argc > 2) policies.assign(argv + 2, argv + argc);
  for (const std::string& name : names) {
    const WorkloadRow* row = find_workload(name);
    if (!row) return std::fprintf(stderr, "sim_speed: no workload %s\n", name.c_str()), 1;
    const Workload w = row->make(0, 1);
    for (const std::string& policy : policies) {
      const Registration* p = find_policy(policy);
      if (!p) return std::fprintf(stderr, "sim_speed: no policy %s\n", policy.c_str()), 1;
      uint64_t events = 0, seed = 0;
      double seconds = 0;
      while (seconds < 1) {
        const auto object = p->make(engine_config(w));
        const auto begin = std::chrono::steady_clock::now();
        events += simulate(w, *object, {.seed = ++seed, .preempts = p->preempts}).events;
        seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      }
      std::printf("%-16s %-8s %8.2f million events/s\n", name.c_str(), policy.c_str(),
                  static_cast<double>(events) / seconds / 1e6);
    }
  }
  return 0;
}
