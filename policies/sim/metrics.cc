// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::policy::sim {

Quantiles quantiles(std::vector<uint64_t> values) {
  if (values.empty()) return {};
  const auto at = [&](double q) {
    const auto n = static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n), values.end());
    return static_cast<double>(values[n]);
  };
  return {at(0.5), at(0.99), at(0.999), at(1)};
}

double turnaround_ns_of(const std::vector<RunRecord>& runs) {
  double sum = 0;
  for (const RunRecord& r : runs) sum += static_cast<double>(r.ended_ns - r.arrived_ns);
  return runs.empty() ? 0 : sum / static_cast<double>(runs.size());
}

double turnaround_ns(const Outcome& r, uint32_t p) { return turnaround_ns_of(r.programs[p].runs); }

int32_t high_program(const Workload& w) {
  if (w.high_program >= 0) return w.high_program;
  int32_t best = -1;
  bool alone = false;
  for (size_t i = 0; i < w.programs.size(); ++i) {
    const uint32_t p = w.vgpus[w.programs[i].vgpu].share.priority;
    const uint32_t top =
        best < 0 ? 0 : w.vgpus[w.programs[static_cast<size_t>(best)].vgpu].share.priority;
    if (best < 0 || p > top) {
      best = static_cast<int32_t>(i);
      alone = true;
    } else if (p == top) {
      alone = false;
    }
  }
  return alone && w.programs.size() > 1 ? best : -1;
}

namespace {
// ANTT, DNTT, STP and fairness of the NTTs; programs without a run do not count.
void from_ntt(Metrics& m) {
  double sum = 0, squares = 0, least = 0, most = 0, n = 0;
  m.stp = 0;
  for (const auto& [name, ntt] : m.ntt) {
    if (ntt <= 0) continue;
    n += 1;
    sum += ntt;
    squares += ntt * ntt;
    m.stp += 1 / ntt;
    least = least > 0 ? std::min(least, ntt) : ntt;
    most = std::max(most, ntt);
  }
  if (n == 0) return;
  m.antt = sum / n;
  m.dntt = std::sqrt(std::max(0.0, squares / n - m.antt * m.antt));
  m.fairness = least / most;
}

// Of a vGPU's windows the worst, of those in which it was entitled to `least` or more.
struct WorstWindow {
  double got_of_owed = 1;
  double lacked_sm_ns = 0;
};
// What was held ahead of the reference may be given back without being held short, so a lag counts
// as far as it rises above 0.
WorstWindow worst_window(const VgpuResult& v, double least) {
  WorstWindow worst;
  double held = 0, fluid = 0;
  for (size_t i = 0; i < v.fluid_at_mark.size(); ++i) {
    const double before = std::max(0.0, fluid - held), entitled = v.fluid_at_mark[i] - fluid;
    held = v.held_at_mark[i];
    fluid = v.fluid_at_mark[i];
    if (entitled < least) continue;
    const double lacked = std::max(0.0, fluid - held - before);
    worst.got_of_owed = std::min(worst.got_of_owed, 1 - lacked / entitled);
    worst.lacked_sm_ns = std::max(worst.lacked_sm_ns, lacked);
  }
  return worst;
}
double most_behind(const VgpuResult& v) {
  double most = 0;
  for (size_t i = 0; i < v.fluid_as_came_at_mark.size(); ++i)
    most = std::max(most, v.fluid_as_came_at_mark[i] - v.held_at_mark[i]);
  return most;
}
void measure_programs(const Workload& w, const Outcome& r, const std::vector<double>& alone_ns,
                      Metrics& m) {
  for (uint32_t i = 0; i < w.programs.size(); ++i) {
    std::vector<RunRecord> runs = r.programs[i].runs;
    std::erase_if(runs, [&](const RunRecord& run) { return run.arrived_ns < w.warm_up_ns; });
    const double t = turnaround_ns_of(runs);
    const double ntt = alone_ns[i] > 0 ? t / alone_ns[i] : 0;
    m.ntt.emplace_back(w.programs[i].name.empty() ? std::to_string(i) : w.programs[i].name, ntt);
    std::vector<uint64_t> response_ns;
    for (const RunRecord& run : runs) response_ns.push_back(run.ended_ns - run.arrived_ns);
    Quantiles q = quantiles(std::move(response_ns));
    for (double Quantiles::*x :
         {&Quantiles::p50, &Quantiles::p99, &Quantiles::p999, &Quantiles::max})
      q.*x /= 1e3;
    m.response_us.emplace_back(m.ntt.back().first, q);
    m.ending.unfinished_runs += r.programs[i].unfinished_runs;
  }
}

void measure_shares(const Workload& w, const Outcome& r, Metrics& m) {
  for (size_t i = 0; i < r.windows.size(); ++i) {
    const Window& window = r.windows[i];
    m.share_error.max = std::max(m.share_error.max, window.worst_error);
    if (i >= kWindowParts)
      m.share_error.settled = std::max(m.share_error.settled, window.worst_error);
    m.share_error.points_max = std::max(m.share_error.points_max, window.worst_points);
  }
  // In less than a tenth of a window a share means nothing: one turn decides it.
  const bool meant = r.all_contended_ns >= w.share_window_ns / 10;
  m.share_error.total = meant ? r.all_contended_error : 0;
  m.jain = meant ? r.all_contended_jain : 1;
  if (r.windows.empty()) m.share_error.max = m.share_error.total;  // what there was of one
  double got = 0, all = 0;
  for (const VgpuResult& v : r.vgpus) {
    got += v.got_sm_ns;
    all += static_cast<double>(v.sm_ns);
  }
  for (const VgpuResult& v : r.vgpus)
    m.vgpu_share.push_back(got > 0   ? v.got_sm_ns / got
                           : all > 0 ? static_cast<double>(v.sm_ns) / all
                                     : 0);
}

// The worst of all vGPUs.
void measure_worst(const Workload& w, const Outcome& r, Metrics& m) {
  const double least = static_cast<double>(w.share_window_ns) / 100 * w.gpu.sm_count;
  for (const VgpuResult& v : r.vgpus) {
    if (v.entitled_sm_ns >= least)
      m.got_of_instant_min = std::min(m.got_of_instant_min, v.got_sm_ns / v.entitled_sm_ns);
    if (v.fluid_sm_ns >= least)
      m.fluid.got_of_owed_min =
          std::min(m.fluid.got_of_owed_min, static_cast<double>(v.sm_ns) / v.fluid_sm_ns);
    m.fluid.got_of_owed_window_min =
        std::min(m.fluid.got_of_owed_window_min, worst_window(v, least).got_of_owed);
    m.fluid.behind_max_ms = std::max(m.fluid.behind_max_ms, most_behind(v) / w.gpu.sm_count / 1e6);
    m.lag_max_ms = std::max(m.lag_max_ms, v.lag_max_sm_ns / w.gpu.sm_count / 1e6);
    m.longest_wait_ms = std::max(m.longest_wait_ms, static_cast<double>(v.longest_wait_ns) / 1e6);
    if (r.end_ns)
      m.set_changes_per_s += static_cast<double>(v.changes) * 1e9 / static_cast<double>(r.end_ns);
  }
  if (!r.has_reference)
    m.fluid.got_of_owed_min = m.fluid.got_of_owed_window_min = m.fluid.behind_max_ms =
        std::numeric_limits<double>::quiet_NaN();
}

void measure_vgpus(const Workload& w, const Outcome& r, Metrics& m) {
  const double whole_ns = static_cast<double>(std::max<uint64_t>(r.end_ns, 1)) * w.gpu.sm_count;
  const double least = static_cast<double>(w.share_window_ns) / 100 * w.gpu.sm_count;
  m.evictions_by_priority.resize(kPriorityLevels);
  for (size_t i = 0; i < r.vgpus.size(); ++i) {
    const VgpuResult& v = r.vgpus[i];
    const WorstWindow worst = worst_window(v, least);
    m.evictions_by_priority[w.vgpus[i].share.priority] += static_cast<double>(v.evictions);
    m.vgpus.push_back(
        {.name = w.vgpus[i].name,
         .part = static_cast<double>(v.sm_ns) / whole_ns,
         .kept = static_cast<double>(v.kept_sm_ns) / whole_ns,
         .owed_ms = v.fluid_sm_ns / w.gpu.sm_count / 1e6,
         .got_of_owed = v.fluid_sm_ns > 0 ? static_cast<double>(v.sm_ns) / v.fluid_sm_ns : 1,
         .got_of_owed_window = worst.got_of_owed,
         .lacked_window_ms = worst.lacked_sm_ns / w.gpu.sm_count / 1e6,
         .behind_ms = most_behind(v) / w.gpu.sm_count / 1e6,
         .slowdown = v.worked_sm_ns > 0 ? 1 + v.slowed_sm_ns / v.worked_sm_ns : 1,
         .slows_others = v.sm_ns > 0 ? v.slows_sm_ns / static_cast<double>(v.sm_ns) : 0,
         .worked_part = v.worked_sm_ns / whole_ns,
         .to_device_ms = static_cast<double>(v.copied_ns[0]) / 1e6,
         .to_host_ms = static_cast<double>(v.copied_ns[1]) / 1e6,
         .copy_slowdown = v.copies_alone_ns > 0 ? static_cast<double>(v.copies_took_ns) /
                                                      static_cast<double>(v.copies_alone_ns)
                                                : 1,
         .figures = v.figures});
    VgpuMetrics& made = m.vgpus.back();
    if (!r.has_reference)
      made.owed_ms = made.got_of_owed = made.got_of_owed_window = made.lacked_window_ms =
          made.behind_ms = std::numeric_limits<double>::quiet_NaN();
  }
}

void measure_whole(const Workload& w, const Outcome& r, Metrics& m) {
  m.evictions = static_cast<double>(r.evictions);
  const double some = static_cast<double>(r.some_work_ns);
  if (some > 0) {
    m.throughput = r.useful_sm_ns / (some * w.gpu.sm_count);
    m.conservation = 1 - static_cast<double>(r.idle_with_work_ns) / some;
  }
  m.end_ms = static_cast<double>(r.end_ns) / 1e6;
  const auto us = [](Quantiles q) { return Quantiles{q.p50 / 1e3, q.p99 / 1e3, q.max / 1e3}; };
  m.evict_latency_us = us(quantiles(r.evict_latency_ns));
  m.wait_us = us(quantiles(r.wait_ns));
  m.ending.events = r.events;
  m.ending.violations = r.violations;
  m.ending.violation = r.violation;
  m.ending.stuck = r.stuck;
  m.ending.cut = r.cut;
}
}  // namespace

Metrics measure(const Workload& w, const Outcome& r, const std::vector<double>& alone_ns) {
  Metrics m;
  measure_programs(w, r, alone_ns, m);
  from_ntt(m);
  measure_shares(w, r, m);
  measure_worst(w, r, m);
  measure_vgpus(w, r, m);
  measure_whole(w, r, m);
  return m;
}

namespace {

// Means of the programs' turnaround over the runs in which they ended, by name.
std::vector<std::pair<std::string, double>> mean_ntt(const std::vector<Metrics>& runs) {
  std::vector<std::pair<std::string, double>> mean;
  std::vector<double> counts;
  for (const Metrics& m : runs) {
    for (const auto& [name, ntt] : m.ntt) {
      size_t at = 0;
      while (at < mean.size() && mean[at].first != name) ++at;
      if (at == mean.size()) {
        mean.emplace_back(name, 0);
        counts.push_back(0);
      }
      if (ntt <= 0) continue;
      mean[at].second += ntt;
      counts[at] += 1;
    }
  }
  for (size_t i = 0; i < mean.size(); ++i)
    if (counts[i] > 0) mean[i].second /= counts[i];
  return mean;
}

// None where runs have different numbers of vGPUs.
std::vector<double> mean_vgpu_share(const std::vector<Metrics>& runs) {
  std::vector<double> mean(runs[0].vgpu_share.size());
  for (const Metrics& m : runs) {
    if (m.vgpu_share.size() != mean.size()) return {};
    for (size_t i = 0; i < mean.size(); ++i)
      mean[i] += m.vgpu_share[i] / static_cast<double>(runs.size());
  }
  return mean;
}

// Adds one of `n` runs to the figures that are numbers.
void add_run(Metrics& mean, const Metrics& m, double n) {
  for (double Metrics::*x : {&Metrics::antt, &Metrics::stp, &Metrics::dntt, &Metrics::fairness,
                             &Metrics::evictions, &Metrics::set_changes_per_s, &Metrics::throughput,
                             &Metrics::conservation, &Metrics::end_ms})
    mean.*x += m.*x / n;
  for (double AgainstBaseline::*x :
       {&AgainstBaseline::speedup_high, &AgainstBaseline::antt_improvement,
        &AgainstBaseline::stp_degradation})
    mean.against_baseline.*x += m.against_baseline.*x / n;
  for (double ShareErrors::*x :
       {&ShareErrors::max, &ShareErrors::settled, &ShareErrors::total, &ShareErrors::points_max})
    mean.share_error.*x = std::max(mean.share_error.*x, m.share_error.*x);
  for (double Metrics::*x : {&Metrics::lag_max_ms, &Metrics::longest_wait_ms})
    mean.*x = std::max(mean.*x, m.*x);
  mean.jain = std::min(mean.jain, m.jain);
  mean.got_of_instant_min = std::min(mean.got_of_instant_min, m.got_of_instant_min);
  for (double FluidFigures::*x :
       {&FluidFigures::got_of_owed_min, &FluidFigures::got_of_owed_window_min})
    if (std::isnan(m.fluid.*x) || m.fluid.*x < mean.fluid.*x) mean.fluid.*x = m.fluid.*x;
  const double behind_ms = m.fluid.behind_max_ms;
  if (std::isnan(behind_ms) || behind_ms > mean.fluid.behind_max_ms)
    mean.fluid.behind_max_ms = behind_ms;
  for (Quantiles Metrics::*q : {&Metrics::evict_latency_us, &Metrics::wait_us}) {
    (mean.*q).p50 += (m.*q).p50 / n;
    (mean.*q).p99 += (m.*q).p99 / n;
    (mean.*q).max = std::max((mean.*q).max, (m.*q).max);
  }
  mean.ending.events += m.ending.events;
  mean.ending.unfinished_runs += m.ending.unfinished_runs;
  if (mean.ending.violations == 0) mean.ending.violation = m.ending.violation;
  mean.ending.violations += m.ending.violations;
  mean.ending.stuck |= m.ending.stuck;
  mean.ending.cut |= m.ending.cut;
}

}  // namespace

Metrics mean_of(const std::vector<Metrics>& runs) {
  Metrics mean;
  if (runs.empty()) return mean;
  mean.jain = 1;
  mean.ntt = mean_ntt(runs);
  mean.vgpu_share = mean_vgpu_share(runs);
  for (const Metrics& m : runs) add_run(mean, m, static_cast<double>(runs.size()));
  return mean;
}

namespace {

sluice::Result<const Registration*> registered(std::string_view policy) {
  if (const Registration* row = find_policy(policy)) return row;
  return Error{0, "there is no policy '" + std::string(policy) + "' (see --list)"};
}

bool works(const Registration& row, const Workload& w) {
  return w.gpu.preemptor == PreemptorKind::kExclusive ? row.exclusive : row.proportional;
}

// One simulation of w under each of `rows`, with what they are compared with.
sluice::Result<std::vector<Metrics>> one_run(const Workload& w,
                                             const std::vector<const Registration*>& rows,
                                             const Registration& baseline, uint64_t seed,
                                             std::vector<DurationModel>& models,
                                             const std::function<void(std::string_view)>& begins) {
  if (const std::string wrong = check_workload(w); !wrong.empty())
    return Error{0, "workload '" + w.name + "': " + wrong};
  for (const Registration* row : rows)
    if (!works(*row, w))
      return Error{0, "policy '" + std::string(row->name) + "' does not work on " +
                          (w.gpu.preemptor == PreemptorKind::kExclusive ? "an exclusive"
                                                                        : "a proportional") +
                          " preemptor"};
  const auto alone = alone_times(w, seed);
  const int32_t high = high_program(w);
  const auto under = [&](const Registration& row, DurationModel* model, bool reference) {
    const auto policy = row.make(engine_config(w));
    return simulate(
        w, *policy,
        {.seed = seed, .preempts = row.preempts, .model = model, .reference = reference});
  };
  Metrics base;
  double base_high = 0;
  const bool compared = works(baseline, w);
  if (compared) {
    const bool reported = models.empty() && std::ranges::count(rows, &baseline) > 0;
    const Outcome r = under(baseline, nullptr, reported);
    base = measure(w, r, alone);
    if (high >= 0) base_high = turnaround_ns(r, static_cast<uint32_t>(high));
  }
  std::vector<Metrics> all;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Registration* row = rows[i];
    Metrics m;
    double mine = base_high;
    if (compared && row == &baseline && models.empty()) {
      m = base;
    } else {
      begins(row->name);
      const Outcome r = under(*row, models.empty() ? nullptr : &models[i], true);
      m = measure(w, r, alone);
      if (high >= 0) mine = turnaround_ns(r, static_cast<uint32_t>(high));
    }
    if (mine > 0) m.against_baseline.speedup_high = base_high / mine;
    if (m.antt > 0) m.against_baseline.antt_improvement = base.antt / m.antt;
    if (base.stp > 0) m.against_baseline.stp_degradation = 1 - m.stp / base.stp;
    all.push_back(std::move(m));
  }
  return all;
}

void set_handover(Workload& w, uint64_t ns) {
  w.gpu.signal_ns = 0;
  w.gpu.start_ns = std::min(w.gpu.start_ns, ns / 2);
  w.gpu.switch_ns = ns;
  w.config.machine.handover_ns = ns;
  for (Kernel& k : w.kernels) {
    k.drain_ns = ns - w.gpu.start_ns;
    k.save_ns = k.restore_ns = k.drain_ns / 2;
  }
}

// `make(i)` is run i.
template <class Make>
sluice::Result<std::vector<Report>> evaluate_runs(const std::string& name, Make&& make,
                                                  const std::vector<std::string>& policies,
                                                  uint64_t seed, uint32_t runs,
                                                  std::string_view baseline,
                                                  const Overrides& overrides, bool by_program,
                                                  DurationModel* model, const Progress& progress) {
  std::vector<const Registration*> rows;
  for (const std::string& policy : policies) {
    auto row = registered(policy);
    if (!row) return row.error();
    rows.push_back(*row);
  }
  auto base = registered(baseline);
  if (!base) return base.error();
  std::vector<Report> reports(rows.size());
  std::vector<DurationModel> models;
  if (model) models.assign(rows.size(), *model);
  for (uint32_t i = 0; i < runs; ++i) {
    Workload w = make(i);
    if (overrides.max_events) w.max_events = overrides.max_events;
    if (overrides.horizon_ns) w.horizon_ns = overrides.horizon_ns;
    if (overrides.warm_up_ns) w.warm_up_ns = overrides.warm_up_ns;
    if (overrides.handover_ns) set_handover(w, overrides.handover_ns);
    auto metrics = one_run(w, rows, **base, seed + i, models, [&](std::string_view policy) {
      if (progress) progress(i, runs, policy);
    });
    if (!metrics) return metrics.error();
    for (size_t j = 0; j < rows.size(); ++j) reports[j].runs.push_back(std::move((*metrics)[j]));
  }
  for (size_t j = 0; j < rows.size(); ++j) {
    reports[j].workload = name;
    reports[j].policy = policies[j];
    reports[j].mean = mean_of(reports[j].runs);
    if (by_program) from_ntt(reports[j].mean);
  }
  if (!models.empty()) *model = std::move(models.front());
  return reports;
}

sluice::Result<Report> only(sluice::Result<std::vector<Report>> reports) {
  if (!reports) return reports.error();
  return std::move(reports->front());
}

}  // namespace

sluice::Result<std::vector<Report>> evaluate_all(const WorkloadRow& row,
                                                 const std::vector<std::string>& policies,
                                                 uint64_t seed, uint32_t runs,
                                                 const Overrides& overrides, DurationModel* model,
                                                 const Progress& progress) {
  const auto make = [&](uint32_t i) {
    Workload w = row.make(i, seed);
    if (w.name.empty()) w.name = row.name;
    return w;
  };
  return evaluate_runs(std::string(row.name), make, policies, seed, runs ? runs : row.runs,
                       row.baseline, overrides, row.by_program, model, progress);
}

sluice::Result<std::vector<Report>> evaluate_all(const Workload& w,
                                                 const std::vector<std::string>& policies,
                                                 uint64_t seed, uint32_t runs,
                                                 std::string_view baseline,
                                                 const Overrides& overrides, DurationModel* model,
                                                 const Progress& progress) {
  return evaluate_runs(
      w.name, [&](uint32_t) { return w; }, policies, seed, std::max(runs, 1u), baseline, overrides,
      /*by_program=*/false, model, progress);
}

sluice::Result<Report> evaluate(const WorkloadRow& row, std::string_view policy, uint64_t seed,
                                uint32_t runs) {
  return only(evaluate_all(row, {std::string(policy)}, seed, runs));
}

sluice::Result<Report> evaluate(const Workload& w, std::string_view policy, uint64_t seed,
                                uint32_t runs, std::string_view baseline) {
  return only(evaluate_all(w, {std::string(policy)}, seed, runs, baseline));
}

}  // namespace sluice::policy::sim
