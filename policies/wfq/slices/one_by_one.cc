// SPDX-License-Identifier: Apache-2.0
#include "policies/wfq/slices/one_by_one.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace sluice::policy::slices {

bool OneByOne::applies(uint64_t now_ns, double round_ns, double weights) {
  find_rest(now_ns);
  // A rider among the rest that is too far ahead has its turn in no less than that.
  cycle_ns_ = 0;
  for (const VgpuId v : gpu_.rest)
    if (gpu_.rides(now_ns, v) &&
        gpu_.lead_among_rest(v) > gpu_.config.max_lead_turns * gpu_.quantum_ns(v))
      cycle_ns_ =
          std::max(cycle_ns_, gpu_.lengths.shortest_turn_ns() * weights / gpu_.share(v).weight);
  active_ = some_come_between_ && gpu_.config.max_lead_turns > 0 && gpu_.rest.size() > 1 &&
            cycle_ns_ < round_ns;
  return active_;
}

void OneByOne::find_rest(uint64_t now_ns) {
  const double handover_ns = gpu_.lengths.handover_ns();
  some_come_between_ = false;
  bursts_ns_ = 0;
  least_turn_ns_ = gpu_.lengths.shortest_turn_ns();
  gpu_.lead_of_rest = gpu_.weight_of_rest = 0;
  gpu_.rest.clear();
  for (const VgpuId v : gpu_.top) {
    if (gpu_.pauses(now_ns, v)) {
      const double burst_ns = gpu_.habit(v).burst_ns;
      some_come_between_ |= gpu_.comes_between(now_ns, v);
      bursts_ns_ += burst_ns + handover_ns;
      least_turn_ns_ = std::max(least_turn_ns_, kLeastOfBurst * burst_ns + handover_ns);
    } else {
      gpu_.lead_of_rest += gpu_[v].lead_ns;
      gpu_.weight_of_rest += gpu_.share(v).weight;
      gpu_.rest.push_back(v);
    }
  }
}

double OneByOne::begin_round(uint64_t now_ns) {
  const double handover_ns = gpu_.lengths.handover_ns();
  for (const VgpuId v : gpu_.top) {
    if (!gpu_.pauses(now_ns, v)) continue;
    gpu_[v].wanted_ns = gpu_.slice_for(v, gpu_[v].lead_ns);
    gpu_.gate(now_ns, v, gpu_[v].lead_ns > gpu_.habit(v).burst_ns / 2);
  }
  order_rest();
  double budget_ns = cycle_ns_ - bursts_ns_, ends_ns = 0;
  for (const VgpuId v : gpu_.rest) {
    SlicedVgpu& o = gpu_[v];
    const bool first = v == gpu_.rest.front(), goes_on = o.left_ns > 0;
    double turn = goes_on ? o.left_ns : static_cast<double>(o.wanted_ns) + handover_ns;
    if (first && !goes_on && budget_ns < turn) {  // as short as those that pause want it
      turn = std::min(turn, std::max(budget_ns, least_turn_ns_));
      o.wanted_ns = static_cast<uint64_t>(turn - handover_ns);
    }
    const bool due = goes_on || gpu_.lead_among_rest(v) + turn / 2 < gpu_.quantum_ns(v);
    const bool opens = first || (due && budget_ns > turn / 2);
    gpu_.gate(now_ns, v, !opens);
    o.left_ns = opens ? turn : 0;
    if (opens) budget_ns -= turn, ends_ns += turn;
  }
  return ends_ns + bursts_ns_;
}

// Whose turn goes on is before all others; of these the furthest behind is first.
void OneByOne::order_rest() {
  for (const VgpuId v : gpu_.rest) {
    SlicedVgpu& o = gpu_[v];
    const double lead_ns = gpu_.lead_among_rest(v);
    o.wanted_ns = gpu_.slice_for(v, lead_ns + gpu_.quantum_ns(v) / 2);
    const double turn = static_cast<double>(o.wanted_ns) + gpu_.lengths.handover_ns();
    if (o.gated || o.left_ns < kTurnIsOver * turn) o.left_ns = 0;
    o.lead_in_turn = (lead_ns + turn / 2) / gpu_.share(v).weight;
  }
  const auto key = [&](VgpuId v) {
    return std::tuple(gpu_[v].left_ns <= 0, gpu_[v].lead_in_turn, v);
  };
  std::sort(gpu_.rest.begin(), gpu_.rest.end(),
            [&](VgpuId a, VgpuId b) { return key(a) < key(b); });
}

}  // namespace sluice::policy::slices
