// SPDX-License-Identifier: Apache-2.0
// sluice-sim: policies in virtual time. Reads the command line and files, prints reports. No
// privileges, no network; everything it knows is in the library beside it.
#include <unistd.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "policies/sim/files/json_workload.h"
#include "policies/sim/files/svg_plot.h"
#include "policies/sim/files/trace.h"
#include "policies/sim/metrics.h"

namespace json = boost::json;
using namespace sluice::policy;
using namespace sluice::policy::sim;

namespace {

// Of a file that is read: some ten million lines of a trace.
constexpr size_t kMaxFileBytes = 1024u << 20;

struct Chosen {
  const WorkloadRow* row = nullptr;  // built in; otherwise:
  FileWorkload file;
};

// All of a file. Bounded, since the name may lead to a device that never ends.
sluice::Result<std::string> read_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return sluice::Error{0, path + ": is a directory; give a file"};
  std::ifstream in(path, std::ios::binary);
  if (!in) return sluice::Error::from_errno(path);
  std::string text;
  char block[65536];
  while (in.read(block, sizeof block), in.gcount() > 0) {
    text.append(block, static_cast<size_t>(in.gcount()));
    if (text.size() > kMaxFileBytes)
      return sluice::Error{
          0, path + ": is larger than " + std::to_string(kMaxFileBytes >> 20) + " MiB"};
  }
  if (in.bad()) return sluice::Error::from_errno(path);
  return text;
}

sluice::Result<Chosen> choose(const std::string& name) {
  Chosen c;
  if ((c.row = find_workload(name))) return c;
  const bool is_trace = name.ends_with(".jsonl");
  if (!is_trace && !name.ends_with(".json"))
    return sluice::Error{
        0, "there is no workload '" + name + "' (see --list; files end in .json or .jsonl)"};
  auto text = read_file(name);
  if (!text) return text.error();
  if (is_trace) {
    auto w = parse_trace(*text);
    if (!w) return std::move(w).error().with_context(name);
    c.file.workload = std::move(*w);
  } else {
    auto w = parse_workload(*text);
    if (!w) return std::move(w).error().with_context(name);
    c.file = std::move(*w);
  }
  return c;
}

// JSON knows no infinity; nothing here should be one, and a figure that is says null.
json::value number(double d) { return std::isfinite(d) ? json::value(d) : json::value(nullptr); }

json::object quantiles_json(const Quantiles& q) {
  return {{"p50", number(q.p50)}, {"p99", number(q.p99)}, {"max", number(q.max)}};
}

json::object ntt_json(const Metrics& m) {
  json::object ntt;
  for (const auto& [name, value] : m.ntt)
    ntt[name] = value > 0 ? number(value) : json::value(nullptr);
  return ntt;
}

json::object response_json(const Metrics& m) {
  json::object response;
  for (const auto& [name, q] : m.response_us)
    response[name] = {{"p50", number(q.p50)}, {"p99", number(q.p99)}, {"p999", number(q.p999)}};
  return response;
}

json::object vgpu_json(const VgpuMetrics& v) {
  return {{"name", v.name},
          {"part", number(v.part)},
          {"kept", number(v.kept)},
          {"owed_ms", number(v.owed_ms)},
          {"got_of_owed", number(v.got_of_owed)},
          {"got_of_owed_window", number(v.got_of_owed_window)},
          {"lacked_window_ms", number(v.lacked_window_ms)},
          {"behind_ms", number(v.behind_ms)},
          {"slowdown", number(v.slowdown)},
          {"slows_others", number(v.slows_others)},
          {"worked_part", number(v.worked_part)},
          {"to_device_ms", number(v.to_device_ms)},
          {"to_host_ms", number(v.to_host_ms)},
          {"copy_slowdown", number(v.copy_slowdown)},
          {"in_time", v.figures.in_time},
          {"late", v.figures.late},
          {"throttled", v.figures.throttled},
          {"reserved", v.figures.reserved}};
}

json::object run_json(const Metrics& run) {
  json::array vgpus, evictions;
  for (const VgpuMetrics& v : run.vgpus) vgpus.push_back(vgpu_json(v));
  for (uint32_t level = 0; level < run.evictions_by_priority.size(); ++level)
    if (run.evictions_by_priority[level] > 0)
      evictions.push_back({{"priority", level}, {"evictions", run.evictions_by_priority[level]}});
  return {{"vgpus", run.vgpu_share.size()},
          {"antt", number(run.antt)},
          {"ntt", ntt_json(run)},
          {"speedup_high", number(run.against_baseline.speedup_high)},
          {"share_error_max", number(run.share_error.max)},
          {"share_error_settled", number(run.share_error.settled)},
          {"share_points_max", number(run.share_error.points_max)},
          {"got_of_owed_min", number(run.fluid.got_of_owed_min)},
          {"got_of_owed_window_min", number(run.fluid.got_of_owed_window_min)},
          {"behind_max_ms", number(run.fluid.behind_max_ms)},
          {"throughput", number(run.throughput)},
          {"evict_latency_us", quantiles_json(run.evict_latency_us)},
          {"evictions_by_priority", std::move(evictions)},
          {"by_vgpu", std::move(vgpus)},
          {"response_us", response_json(run)}};
}

std::string as_json(const Report& r, uint64_t seed) {
  const Metrics& m = r.mean;
  json::array shares(m.vgpu_share.begin(), m.vgpu_share.end()), by_run;
  for (const Metrics& run : r.runs) by_run.push_back(run_json(run));
  json::object o{{"workload", r.workload},
                 {"policy", r.policy},
                 {"seed", seed},
                 {"runs", r.runs.size()},
                 {"antt", number(m.antt)},
                 {"stp", number(m.stp)},
                 {"dntt", number(m.dntt)},
                 {"fairness", number(m.fairness)},
                 {"share_error_max", number(m.share_error.max)},
                 {"share_error_settled", number(m.share_error.settled)},
                 {"share_points_max", number(m.share_error.points_max)},
                 {"share_error_total", number(m.share_error.total)},
                 {"got_of_owed_min", number(m.fluid.got_of_owed_min)},
                 {"got_of_owed_window_min", number(m.fluid.got_of_owed_window_min)},
                 {"behind_max_ms", number(m.fluid.behind_max_ms)},
                 {"jain", number(m.jain)},
                 {"lag_max_ms", number(m.lag_max_ms)},
                 {"longest_wait_ms", number(m.longest_wait_ms)},
                 {"evictions", number(m.evictions)},
                 {"set_changes_per_s", number(m.set_changes_per_s)},
                 {"speedup_high", number(m.against_baseline.speedup_high)},
                 {"antt_improvement", number(m.against_baseline.antt_improvement)},
                 {"stp_degradation", number(m.against_baseline.stp_degradation)},
                 {"throughput", number(m.throughput)},
                 {"work_conservation", number(m.conservation)},
                 {"evict_latency_us", quantiles_json(m.evict_latency_us)},
                 {"wait_us", quantiles_json(m.wait_us)},
                 {"end_ms", number(m.end_ms)},
                 {"events", m.ending.events},
                 {"unfinished_runs", m.ending.unfinished_runs},
                 {"violations", m.ending.violations},
                 {"stuck", m.ending.stuck},
                 {"cut", m.ending.cut},
                 {"vgpu_share", std::move(shares)},
                 {"ntt", ntt_json(m)},
                 {"by_run", std::move(by_run)}};
  return json::serialize(o);
}

void print(const std::vector<Report>& reports, uint64_t seed) {
  fmt::print("workload {}, {} run(s), seed {}\n\n", reports[0].workload, reports[0].runs.size(),
             seed);
  fmt::print("{:<8}{:>10}{:>8}{:>10}{:>9}{:>10}{:>8}{:>8}{:>10}{:>10}{:>9}{:>8}{:>9}{:>16}\n",
             "policy", "ANTT", "STP", "DNTT", "fairness", "share err", "points", "Jain", "lag ms",
             "wait ms", "evicted", "high x", "useful", "evict us p50/99");
  for (const Report& r : reports) {
    const Metrics& m = r.mean;
    fmt::print(
        "{:<8}{:>10.2f}{:>8.2f}{:>10.2f}{:>9.3f}{:>9.2f}%{:>8.3f}{:>8.4f}{:>10.2f}{:>10.2f}{:>9.1f}"
        "{:>8}{:>8.1f}%"
        "{:>16}\n",
        r.policy, m.antt, m.stp, m.dntt, m.fairness, 100 * m.share_error.max,
        100 * m.share_error.points_max, m.jain, m.lag_max_ms, m.longest_wait_ms, m.evictions,
        m.against_baseline.speedup_high > 0 ? fmt::format("{:.2f}", m.against_baseline.speedup_high)
                                            : "-",
        100 * m.throughput,
        fmt::format("{:.0f}/{:.0f}", m.evict_latency_us.p50, m.evict_latency_us.p99));
  }
  fmt::print("\nNTT\n{:<20}", "program");
  for (const Report& r : reports) fmt::print("{:>10}", r.policy);
  fmt::print("\n");
  for (size_t i = 0; i < reports[0].mean.ntt.size(); ++i) {
    fmt::print("{:<20}", reports[0].mean.ntt[i].first);
    for (const Report& r : reports) {
      const double ntt = r.mean.ntt[i].second;
      fmt::print("{:>10}", ntt > 0 ? fmt::format("{:.2f}", ntt) : "-");
    }
    fmt::print("\n");
  }
  for (const Report& r : reports) {
    if (r.mean.ending.violations)
      fmt::print("{} broke the contract {} times, first {}\n", r.policy, r.mean.ending.violations,
                 r.mean.ending.violation);
    if (r.mean.ending.stuck) fmt::print("{}: work remained for ever\n", r.policy);
    if (r.mean.ending.cut)
      fmt::print(
          "{}: cut off at the largest number of events; what is above is of the time until then\n",
          r.policy);
  }
}

void list(bool as_json_too) {
  if (as_json_too) {
    json::array w, p;
    for (const WorkloadRow& row : workloads())
      w.push_back({{"name", row.name},
                   {"summary", row.summary},
                   {"runs", row.runs},
                   {"baseline", row.baseline}});
    for (const Registration& row : registry())
      p.push_back({{"name", row.name},
                   {"summary", row.summary},
                   {"exclusive", row.exclusive},
                   {"proportional", row.proportional},
                   {"preempts", row.preempts},
                   {"starvation_free", row.starvation_free},
                   {"follows_weights", row.follows_weights},
                   {"tree", row.tree}});
    fmt::print("{}\n", json::serialize(
                           json::object{{"workloads", std::move(w)}, {"policies", std::move(p)}}));
    return;
  }
  fmt::print("workloads (or a file: .json a workload, .jsonl a trace)\n");
  for (const WorkloadRow& row : workloads())
    fmt::print("  {:<24} {} ({} runs)\n", row.name, row.summary, row.runs);
  fmt::print("\npolicies\n");
  for (const Registration& row : registry())
    fmt::print(
        "  {:<8} {}{}{}\n", row.name, row.summary,
        row.proportional ? row.exclusive ? " [exclusive, proportional]" : " [proportional]" : "",
        row.tree ? "" : " [ignores groups and limits]");
}

bool write_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.flush();
  if (out) return true;
  fmt::print(stderr, "sluice-sim: {}: cannot be written: {}\n", path, std::strerror(errno));
  return false;
}

// A file that is not there is a model that knows nothing.
sluice::Result<void> read_model(const std::string& path, sluice::policy::DurationModel& model) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  auto text = read_file(path);
  if (!text) return text.error();
  auto read = model.restore(*text);
  if (!read) return std::move(read).error().with_context(path);
  return {};
}

// Run 0 once more with a recorder.
std::string record(const Chosen& c, const std::string& policy, uint64_t seed, uint64_t max_events) {
  const Workload w = c.row ? c.row->make(0, seed) : c.file.workload;
  const Registration* row = find_policy(policy);  // exists: it has just been simulated
  TraceRecorder recorder(w);
  const auto object = row->make(engine_config(w));
  (void)simulate(
      w, *object,
      {.seed = seed, .preempts = row->preempts, .max_events = max_events, .observer = &recorder});
  if (recorder.full())
    fmt::print(
        stderr,
        "sluice-sim: the trace ends after {} MiB, before the simulation (--max-events cuts both)\n",
        kMaxTraceBytes >> 20);
  return recorder.text();
}

// CLI11 would take -1 as 2^64 - 1, and larger numbers too.
std::string whole_number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return {};
  return "'" + text + "' is no whole number from 0 to 2^64 - 1";
}

struct ToolOptions {
  std::string workload, plot, trace, model_file;
  std::vector<std::string> policies;
  uint64_t seed = 1, max_events = 0;
  uint32_t runs = 0;
  double horizon_ms = 0, warm_up_ms = 0, handover_us = 0;
  bool json = false, list = false;
};

void add_options(CLI::App& app, ToolOptions& o) {
  app.add_option("--workload,-w", o.workload, "a built-in workload or a file (.json, .jsonl)");
  app.add_option("--policy,-p", o.policies,
                 "policies to compare (default wfq); 'all': all that fit");
  app.add_option("--seed", o.seed, "of the first run; run i has seed + i")
      ->capture_default_str()
      ->check(CLI::Validator(whole_number, "0 to 2^64 - 1"));
  app.add_option("--runs", o.runs, "instead of the workload's own number")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--max-events", o.max_events,
                 "cut each simulation off after so many events (the workload's max_events)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000'000'000}));
  app.add_option("--horizon", o.horizon_ms, "end each simulation then, ms (the workload's horizon)")
      ->check(CLI::Range(0.001, 1e9));
  app.add_option("--warm-up", o.warm_up_ms,
                 "leave runs that arrived before out of responses and NTT, ms")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--handover", o.handover_us, "each hand-over takes so long, us (the workload's)")
      ->check(CLI::Range(0.1, 1e6));
  app.add_flag("--json", o.json, "one JSON object a line for each policy");
  app.add_option("--plot", o.plot, "write bars as SVG to this file");
  app.add_option("--trace", o.trace,
                 "write what happened in run 0 under the first policy to this file (.jsonl)");
  app.add_option("--model", o.model_file,
                 "what kernels were learnt to take (predictor 'model'): read if it is there, "
                 "written afterwards");
  app.add_flag("--list", o.list, "names of workloads and policies");
}

int fail(const sluice::Error& e) {
  fmt::print(stderr, "sluice-sim: {}\n", e.message);
  return 1;
}

// What is wrong with the options beyond what the parser checked.
sluice::Result<void> check_options(const CLI::App& app, const ToolOptions& o) {
  for (const auto& [option, path] :
       {std::pair{"--plot", &o.plot}, {"--trace", &o.trace}, {"--model", &o.model_file}})
    if (app.count(option) && path->empty())
      return sluice::Error{0, std::string(option) + ": which file?"};
  if (o.workload.empty())
    return sluice::Error{0, "which workload? (--workload NAME; --list shows them)"};
  if (o.policies.size() > 1 &&
      std::find(o.policies.begin(), o.policies.end(), "all") != o.policies.end())
    return sluice::Error{0, "--policy all stands alone"};
  return {};
}

std::vector<std::string> policies_for(const Workload& w, const std::vector<std::string>& asked) {
  if (asked.empty()) return {"wfq"};
  if (asked[0] != "all") return asked;
  std::vector<std::string> all;
  for (const Registration& row : registry())
    if (w.gpu.preemptor == PreemptorKind::kExclusive ? row.exclusive : row.proportional)
      all.emplace_back(row.name);
  return all;
}

sluice::Result<std::vector<Report>> simulate(const Chosen& chosen, const Workload& first,
                                             const ToolOptions& o,
                                             sluice::policy::DurationModel* kept) {
  // For people who wait; a file or a program that reads standard error gets nothing.
  bool printed = false;
  Progress progress;
  if (::isatty(STDERR_FILENO))
    progress = [&](uint32_t run, uint32_t of, std::string_view policy) {
      printed = true;
      fmt::print(stderr, "\rrun {} of {}: {}\x1b[K", run + 1, of, policy);
    };
  const Overrides overrides{.max_events = o.max_events,
                            .horizon_ns = static_cast<uint64_t>(o.horizon_ms * 1e6),
                            .warm_up_ns = static_cast<uint64_t>(o.warm_up_ms * 1e6),
                            .handover_ns = static_cast<uint64_t>(o.handover_us * 1e3)};
  auto reports =
      chosen.row ? evaluate_all(*chosen.row, o.policies, o.seed, o.runs, overrides, kept, progress)
                 : evaluate_all(first, o.policies, o.seed, o.runs, chosen.file.baseline, overrides,
                                kept, progress);
  if (printed) fmt::print(stderr, "\r\x1b[K");
  return reports;
}

int run(int argc, char** argv) {
  CLI::App app{"sluice-sim: runs scheduling policies on a simulated GPU"};
  ToolOptions o;
  add_options(app, o);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 1;  // 0: --help
  }
  if (o.list) {
    list(o.json);
    return 0;
  }
  if (auto good = check_options(app, o); !good) return fail(good.error());
  auto chosen = choose(o.workload);
  if (!chosen) return fail(chosen.error());
  const Workload first = chosen->row ? chosen->row->make(0, o.seed) : chosen->file.workload;
  o.policies = policies_for(first, o.policies);
  sluice::policy::DurationModel model;
  if (!o.model_file.empty()) {
    if (first.predictor != Predictor::kModel)
      return fail({0, "--model: workload '" + first.name + "' does not predict by the model"});
    if (auto read = read_model(o.model_file, model); !read) return fail(read.error());
  }
  auto* const kept = o.model_file.empty() ? nullptr : &model;
  const auto reports = simulate(*chosen, first, o, kept);
  if (!reports) return fail(reports.error());
  if (kept && !write_file(o.model_file, model.save())) return 1;
  if (o.json) {
    for (const Report& r : *reports) fmt::print("{}\n", as_json(r, o.seed));
  } else {
    print(*reports, o.seed);
  }
  if (!o.plot.empty() && !write_file(o.plot, svg_of_reports(*reports))) return 1;
  if (!o.trace.empty() &&
      !write_file(o.trace, record(*chosen, o.policies[0], o.seed, o.max_events)))
    return 1;
  for (const Report& r : *reports)
    if (r.mean.ending.violations || r.mean.ending.stuck) return 2;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int status = 1;
  errno = 0;
  try {
    status = run(argc, argv);
    if (std::fflush(stdout) == 0) return status;
    fmt::print(stderr, "sluice-sim: the output cannot be written: {}\n", std::strerror(errno));
  } catch (const std::bad_alloc&) {
    fmt::print(
        stderr,
        "sluice-sim: not enough memory; fewer policies at a time, or --max-events, need less\n");
  } catch (const std::exception& e) {  // fmt's, where the output is full
    fmt::print(stderr, "sluice-sim: {}\n", e.what());
  }
  return 1;
}
