// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/random_workload.h"

#include "policies/sim/random.h"

namespace sluice::policy::sim {

Workload random_workload(uint64_t seed, Shape shape, PreemptorKind preemptor) {
  constexpr uint64_t kUs = 1000, kMs = 1'000'000;
  Random r = Random::of(seed, 77);
  Workload w;
  w.name = "random " + std::to_string(seed);
  w.gpu.sm_count = static_cast<uint32_t>(r.between(1, 16));
  w.gpu.preemptor = preemptor;
  w.gpu.spatial = preemptor == PreemptorKind::kExclusive && r.below(2);
  w.gpu.mechanism = r.below(2) ? Mechanism::kDrain : Mechanism::kContextSwitch;
  w.gpu.signal_ns = r.below(2) ? 0 : r.between(1, 20 * kUs);
  w.gpu.start_ns = r.below(2) ? 0 : r.between(1, 20 * kUs);
  w.gpu.switch_ns = preemptor == PreemptorKind::kProportional ? r.below(200 * kUs) : 0;
  if (w.gpu.spatial) {  // drawn by another generator: a seed's other figures stay what they were
    Random parts = Random::of(seed, 78);
    w.gpu.sm_unit = parts.below(2) ? 1 : static_cast<uint32_t>(parts.between(1, w.gpu.sm_count));
    w.gpu.change_ns = parts.below(2) ? 0 : parts.between(1, 400 * kUs);
  }
  const auto kernels = r.between(1, 5);
  for (uint64_t i = 0; i < kernels; ++i) {
    Kernel k;
    k.name = "k" + std::to_string(i);
    k.alone_ns = r.below(3) ? r.between(kUs, 2 * kMs) : r.between(kMs, 20 * kMs);
    k.width_sms = r.below(3) ? 0 : static_cast<uint32_t>(r.between(1, 20));
    k.tasks = static_cast<uint32_t>(r.between(1, 10'000));
    k.blocks_per_sm = static_cast<uint32_t>(r.between(1, 16));
    k.alone_cv = r.below(2) ? 0 : r.unit();
    k.evictable = r.below(5) > 0;
    k.form_factor = 1 + r.unit() / 5;
    k.drain_ns = r.below(3) ? 0 : r.between(1, 300 * kUs);
    k.save_ns = r.below(50 * kUs);
    k.restore_ns = r.below(50 * kUs);
    k.relaunch_ns = r.below(20 * kUs);
    w.kernels.push_back(k);
  }
  const auto vgpus = r.between(1, 6);
  for (uint64_t v = 0; v < vgpus; ++v) {
    SimulatedVgpu g;
    g.name = "v" + std::to_string(v);
    g.share.weight = static_cast<uint32_t>(r.below(3) ? r.between(50, 400) : r.between(1, 1000));
    g.share.priority = shape == Shape::kFinite ? static_cast<uint32_t>(r.below(4)) : 0;
    if (shape == Shape::kFinite && !r.below(4))
      g.changes.push_back(
          {r.between(1, 20 * kMs),
           {static_cast<uint32_t>(r.between(1, 1000)), static_cast<uint32_t>(r.below(4))}});
    const bool backlogged = shape == Shape::kBacklogged && (v < 2 || r.below(2));
    g.compared = backlogged;
    w.vgpus.push_back(g);
    const auto programs = r.below(3) ? 1 : r.between(1, 3);
    for (uint64_t i = 0; i < programs; ++i) {
      Program p;
      p.name = g.name + "p" + std::to_string(i);
      p.vgpu = static_cast<uint32_t>(v);
      const auto steps = r.between(1, 3);
      for (uint64_t s = 0; s < steps; ++s)
        p.steps.push_back({.kernel = static_cast<uint32_t>(r.below(kernels)),
                           .launches = static_cast<uint32_t>(r.between(1, 3)),
                           .host_ns = r.below(2) ? 0 : r.below(200 * kUs),
                           .sync = r.below(3) == 0});
      p.queue_depth = static_cast<uint32_t>(r.between(1, 4));
      p.stream_priority = static_cast<uint32_t>(r.below(3));
      p.first_ns = r.below(2) ? 0 : r.below(5 * kMs);
      p.period_ns = r.between(100 * kUs, 5 * kMs);
      p.think_ns = r.below(2) ? 0 : r.below(3 * kMs);
      p.think_exponential = r.below(2);
      p.prediction_factor = r.below(4) ? 1 : r.below(2) ? 0.01 : 100;
      p.runs = r.between(1, 6);
      switch (r.below(4)) {
        case 0:
          p.arrival = ArrivalKind::kPeriodic;
          break;
        case 1:
          p.arrival = ArrivalKind::kPoisson;
          break;
        case 2:
          p.arrival = ArrivalKind::kBacklog;
          break;
        default:
          p.arrival = ArrivalKind::kClosed;
          break;
      }
      if (shape == Shape::kBacklogged) {
        p.runs = 0;
        p.opaque = false;
        if (backlogged) {
          p.arrival = ArrivalKind::kBacklog;
          p.first_ns = 0;
          p.queue_depth = 3;
          for (Step& s : p.steps) s.host_ns = 0, s.sync = false;
        } else {
          p.arrival = ArrivalKind::kClosed;
          p.think_ns += 100 * kUs;
        }
      } else if (!r.below(4)) {
        p.opaque = true;
      }
      w.programs.push_back(p);
    }
  }
  switch (r.below(3)) {
    case 0:
      w.predictor = Predictor::kNone;
      break;
    case 1:
      w.predictor = Predictor::kModel;
      break;
    default:
      w.prediction_cv = r.unit();
      break;
  }
  if (shape == Shape::kBacklogged) w.horizon_ns = 1'500 * kMs;
  return w;
}

}  // namespace sluice::policy::sim
