// The table of policies: one row each, the default first.
#include "policies/policy.h"

namespace sluice::policy {

const std::vector<Registration>& registry() {
  static const std::vector<Registration> rows = {
      {"wfq", "start-time weighted fair queuing over measured GPU time (after LoGA and NEON)", make_wfq,
       /*exclusive=*/true, /*proportional=*/true, /*preempts=*/true, /*starvation_free=*/true,
       /*launches=*/true, /*follows_weights=*/true, /*parts=*/true},
      {"wfq-srt", "wfq with the shortest known work first, as far as it leads nobody by more than a longest quantum", make_wfq_srt,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/true, /*starvation_free=*/true,
       /*launches=*/true, /*follows_weights=*/true},
      {"fcfs", "first come, first served, as GPUs do by themselves; nobody is evicted", make_fcfs,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/false},
      {"npq", "nonpreemptive priority queues (preemptive multiprogramming, section 4.2)", make_npq,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/false},
      {"ppq", "preemptive priority queues (preemptive multiprogramming, section 4.2)", make_ppq,
       /*exclusive=*/true, /*proportional=*/false},
      {"dss", "dynamic spatial sharing by tokens (preemptive multiprogramming, section 3.4)", make_dss,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/true, /*starvation_free=*/false,
       /*launches=*/false, /*follows_weights=*/false, /*parts=*/true},
      {"piv", "priority-based immediate eviction (EffiSha, section 7)", make_piv,
       /*exclusive=*/true, /*proportional=*/false},
      {"dprr", "dynamic priority-based round robin (EffiSha, section 7)", make_dprr,
       /*exclusive=*/true, /*proportional=*/false},
      {"hpf", "highest priority first, shortest remaining time within one (FLEP, section 5.2.1)",
       make_hpf, /*exclusive=*/true, /*proportional=*/false, /*preempts=*/true, /*starvation_free=*/false,
       /*launches=*/true},
      {"ffs", "weighted rounds, epochs from an overhead constraint (FLEP, section 5.2.2)", make_ffs,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/true, /*starvation_free=*/true,
       /*launches=*/false, /*follows_weights=*/true},
      {"rr", "round robin with a fixed quantum (FRS paper, section IV-C)", make_rr,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/true, /*starvation_free=*/true},
      {"sjf", "preemptive shortest job first (FRS paper, section IV-A)", make_sjf,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/true, /*starvation_free=*/false,
       /*launches=*/true},
      {"srt", "shortest remaining time (FRS paper, section IV-B)", make_srt,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/true, /*starvation_free=*/false,
       /*launches=*/true},
      {"cfs", "epoch shared by the active kernels (FRS paper, section IV-D)", make_cfs,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/true, /*starvation_free=*/true},
      {"frs", "Fair and Responsive Scheduler: balances slowdowns (FRS paper, section IV-E)", make_frs,
       /*exclusive=*/true, /*proportional=*/false, /*preempts=*/true, /*starvation_free=*/true,
       /*launches=*/true},
      {"loga", "disengaged fair queuing over sampled GPU time (LoGA sections 3.3, 3.4; NEON)", make_loga,
       /*exclusive=*/false, /*proportional=*/true, /*preempts=*/true, /*starvation_free=*/true,
       /*launches=*/false, /*follows_weights=*/true},
  };
  return rows;
}

const Registration* find_policy(std::string_view name) {
  for (const Registration& row : registry())
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace sluice::policy
