// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/files/json_workload.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "policies/sim/files/strict_json.h"

namespace json = boost::json;

namespace sluice::policy::sim {
namespace {

// Thrown inside this file only, so that reading stays readable; parse_workload() makes it a Result.
struct Wrong {
  std::string message;
};
[[noreturn]] void wrong(const std::string& where, const std::string& what) {
  throw Wrong{where + ": " + what};
}

// One JSON object; keeps track of the keys that were read.
class Reader {
 public:
  Reader(const json::value& v, std::string where) : where_(std::move(where)) {
    if (!v.is_object()) wrong(where_, "must be an object");
    object_ = &v.get_object();
  }
  const json::value* find(std::string_view key) {
    read_.insert(std::string(key));
    return object_->if_contains(key);
  }
  std::string at(std::string_view key) const { return where_ + "." + std::string(key); }

  std::string text(std::string_view key, std::string otherwise = {}) {
    const json::value* v = find(key);
    if (!v) return otherwise;
    if (!v->is_string()) wrong(at(key), "must be a string");
    const auto& s = v->get_string();
    if (s.size() > 200) wrong(at(key), "is too long");
    return std::string(s.data(), s.size());
  }
  bool flag(std::string_view key, bool otherwise) {
    const json::value* v = find(key);
    if (!v) return otherwise;
    if (!v->is_bool()) wrong(at(key), "must be true or false");
    return v->get_bool();
  }
  double number(std::string_view key, double otherwise, double least, double most) {
    const json::value* v = find(key);
    return v ? number_of(*v, at(key), least, most) : otherwise;
  }
  template <class T>
  T whole(std::string_view key, T otherwise, double least, double most) {
    const double d = number(key, static_cast<double>(otherwise), least, most);
    if (d != std::floor(d)) wrong(at(key), "must be a whole number");
    return static_cast<T>(d);
  }
  // A time in a unit of `unit_ns`, as ns.
  uint64_t time(std::string_view key, uint64_t otherwise, double unit_ns) {
    const double d = number(key, static_cast<double>(otherwise) / unit_ns, 0,
                            static_cast<double>(kMaxTimeNs) / unit_ns);
    return static_cast<uint64_t>(d * unit_ns + 0.5);
  }
  template <class F>
  void each(std::string_view key, size_t most, F&& use) {
    const json::value* v = find(key);
    if (!v) return;
    if (!v->is_array()) wrong(at(key), "must be an array");
    if (v->get_array().size() > most)
      wrong(at(key), "has more than " + std::to_string(most) + " entries");
    size_t i = 0;
    for (const json::value& x : v->get_array()) use(x, at(key) + "[" + std::to_string(i++) + "]");
  }
  template <class T>
  T choice(std::string_view key, T otherwise,
           std::initializer_list<std::pair<std::string_view, T>> of) {
    if (!find(key)) return otherwise;
    const std::string word = text(key);
    std::string names;
    for (const auto& [name, value] : of) {
      if (word == name) return value;
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    wrong(at(key), "'" + word + "' is none of " + names);
  }
  void done() const {
    for (const auto& pair : *object_)
      if (!read_.contains(std::string(pair.key())))
        wrong(where_, "unknown key '" + std::string(pair.key()) + "'");
  }
  static double number_of(const json::value& v, const std::string& where, double least,
                          double most) {
    double d = 0;
    if (v.is_int64())
      d = static_cast<double>(v.get_int64());
    else if (v.is_uint64())
      d = static_cast<double>(v.get_uint64());
    else if (v.is_double())
      d = v.get_double();
    else
      wrong(where, "must be a number");
    if (!(d >= least && d <= most)) {
      char range[80];
      std::snprintf(range, sizeof range, "must be %.10g to %.10g", least, most);
      wrong(where, range);
    }
    return d;
  }

 private:
  const json::object* object_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
};

constexpr double kUs = 1e3, kMs = 1e6, kU32 = 4294967295.0;

Kernel kernel(const json::value& v, const std::string& where) {
  Reader r(v, where);
  Kernel k;
  k.name = r.text("name");
  if (k.name.empty()) wrong(where, "needs a name");
  k.alone_ns = r.time("alone_us", k.alone_ns, kUs);
  k.width_sms = r.whole("width_sms", k.width_sms, 0, kMaxSms);
  k.tasks = r.whole("tasks", k.tasks, 1, kU32);
  k.blocks_per_sm = r.whole("blocks_per_sm", k.blocks_per_sm, 1, 1024);
  k.task_ns = r.time("task_us", 0, kUs);
  k.alone_cv = r.number("alone_cv", 0, 0, 10);
  k.evictable = r.flag("evictable", true);
  k.form_factor = r.number("form_factor", 1, 0.1, 100);
  k.bandwidth = r.number("bandwidth", 0, 0, 100);
  k.drain_ns = r.time("drain_us", 0, kUs);
  k.save_ns = r.time("save_us", 0, kUs);
  k.restore_ns = r.time("restore_us", 0, kUs);
  k.relaunch_ns = r.time("relaunch_us", 0, kUs);
  k.grid_blocks = r.whole("grid_blocks", k.grid_blocks, 0, kU32);
  k.block_threads = r.whole("block_threads", k.block_threads, 0, 1024);
  k.shared_bytes = r.whole("shared_bytes", k.shared_bytes, 0, kU32);
  k.input_bytes = r.whole("input_bytes", k.input_bytes, 0, 1ull << 38);
  r.done();
  return k;
}

using Names = std::map<std::string, uint32_t, std::less<>>;

uint32_t by_name(Reader& r, std::string_view key, const Names& names, const char* what) {
  const std::string name = r.text(key);
  if (name.empty()) wrong(r.at(key), "is missing: the name of a " + std::string(what));
  const auto it = names.find(name);
  if (it == names.end()) wrong(r.at(key), "there is no " + std::string(what) + " '" + name + "'");
  return it->second;
}

// A part of the GPU, 0 to 1.
uint32_t permille(Reader& r, std::string_view key, uint32_t otherwise) {
  return static_cast<uint32_t>(std::lround(1000 * r.number(key, otherwise / 1000.0, 0, 1)));
}
VgpuShare share(Reader& r, VgpuShare otherwise, const Names& groups) {
  otherwise.weight = r.whole("weight", otherwise.weight, 1, kMaxWeight);
  otherwise.priority = r.whole("priority", otherwise.priority, 0, kPriorityLevels - 1);
  otherwise.latency = r.choice<LatencyClass>("latency", otherwise.latency,
                                             {{"normal", LatencyClass::kNormal},
                                              {"low", LatencyClass::kLow},
                                              {"batch", LatencyClass::kBatch}});
  otherwise.target_p99_us = r.whole("target_p99_us", otherwise.target_p99_us, 0, 1e9);
  otherwise.min_permille = permille(r, "min", otherwise.min_permille);
  otherwise.max_permille = permille(r, "max", otherwise.max_permille);
  if (r.find("group")) otherwise.group = by_name(r, "group", groups, "group") + 1;
  return otherwise;
}

Group group(const json::value& v, const std::string& where, const Names& groups) {
  Reader r(v, where);
  Group g;
  g.name = r.text("name");
  if (g.name.empty()) wrong(where, "needs a name");
  if (r.find("parent")) g.share.parent = by_name(r, "parent", groups, "group") + 1;
  g.share.weight = r.whole("weight", g.share.weight, 1, kMaxWeight);
  g.share.priority = r.whole("priority", g.share.priority, 0, kPriorityLevels - 1);
  g.share.min_permille = permille(r, "min", 0);
  g.share.max_permille = permille(r, "max", 0);
  r.done();
  return g;
}

SimulatedVgpu vgpu(const json::value& v, const std::string& where, const Names& groups) {
  Reader r(v, where);
  SimulatedVgpu g;
  g.name = r.text("name");
  if (g.name.empty()) wrong(where, "needs a name");
  g.share = share(r, {}, groups);
  g.compared = r.flag("compared", true);
  VgpuShare last = g.share;
  r.each("changes", 100'000, [&](const json::value& x, const std::string& place) {
    Reader c(x, place);
    const uint64_t at_ns = c.time("at_ms", 0, kMs);
    last = share(c, last, groups);
    c.done();
    g.changes.push_back({at_ns, last});
  });
  r.done();
  return g;
}

// When the program's runs begin.
void arrivals(Reader& r, Program& p) {
  p.arrival = r.choice<ArrivalKind>("arrival", ArrivalKind::kClosed,
                                    {{"closed", ArrivalKind::kClosed},
                                     {"periodic", ArrivalKind::kPeriodic},
                                     {"poisson", ArrivalKind::kPoisson},
                                     {"offsets", ArrivalKind::kOffsets},
                                     {"backlog", ArrivalKind::kBacklog}});
  p.first_ns = r.time("first_ms", 0, kMs);
  p.period_ns = r.time("period_ms", 0, kMs);
  p.think_ns = r.time("think_ms", 0, kMs);
  p.think_exponential = r.flag("think_exponential", false);
  r.each("offsets_ms", 10'000'000, [&](const json::value& x, const std::string& place) {
    p.offsets_ns.push_back(static_cast<uint64_t>(
        Reader::number_of(x, place, 0, static_cast<double>(kMaxTimeNs) / kMs) * kMs + 0.5));
  });
  if (p.arrival == ArrivalKind::kOffsets && p.offsets_ns.empty())
    wrong(r.at("offsets_ms"), "is missing or empty: when the runs of the arrival 'offsets' begin");
  if (p.arrival != ArrivalKind::kOffsets && !p.offsets_ns.empty())
    wrong(r.at("offsets_ms"), "is for the arrival 'offsets'");
}

Program program(const json::value& v, const std::string& where, const Names& vgpus,
                const Names& kernels) {
  Reader r(v, where);
  Program p;
  p.name = r.text("name");
  if (p.name.empty()) wrong(where, "needs a name");
  p.vgpu = by_name(r, "vgpu", vgpus, "vGPU");
  if (r.find("kernel")) {  // short for one step
    if (r.find("steps")) wrong(where, "has both 'kernel' and 'steps'");
    p.steps.push_back({.kernel = by_name(r, "kernel", kernels, "kernel")});
  }
  r.each("steps", 100'000, [&](const json::value& x, const std::string& place) {
    Reader s(x, place);
    Step step;
    step.copy_ns = s.time("copy_us", 0, kUs);
    if (step.copy_ns && s.find("kernel")) wrong(place, "has both 'kernel' and 'copy_us'");
    if (step.copy_ns == 0) step.kernel = by_name(s, "kernel", kernels, "kernel");
    step.way =
        s.choice<CopyWay>("way", CopyWay::kToDevice,
                          {{"to-device", CopyWay::kToDevice}, {"to-host", CopyWay::kToHost}});
    step.launches = s.whole("launches", 1u, 1, 1e9);
    step.host_ns = s.time("host_us", 0, kUs);
    step.sync = s.flag("sync", false);
    s.done();
    p.steps.push_back(step);
  });
  arrivals(r, p);
  p.runs = r.whole<uint64_t>("runs", 1, 0, 1e12);
  p.queue_depth = r.whole("queue_depth", 1u, 1, 1e6);
  p.stream_priority = r.whole("stream_priority", 0u, 0, 1000);
  p.opaque = r.flag("opaque", false);
  p.prediction_factor = r.number("prediction_factor", 1, 0, 1e6);
  uint32_t bounds[2] = {0, 0};
  size_t given = 0;
  r.each("priority_range", 2, [&](const json::value& x, const std::string& place) {
    const double level = Reader::number_of(x, place, 0, kPriorityLevels - 1);
    if (level != std::floor(level)) wrong(place, "must be a whole number");
    bounds[given++] = static_cast<uint32_t>(level);
  });
  if (given == 1) wrong(r.at("priority_range"), "needs two numbers");
  p.priority_lo = bounds[0];
  p.priority_hi = bounds[1];
  r.done();
  return p;
}

GpuModel gpu(const json::value& v, Config& config) {
  Reader r(v, "gpu");
  GpuModel g;
  g.sm_count = r.whole("sms", g.sm_count, 1, kMaxSms);
  g.preemptor = r.choice<PreemptorKind>(
      "preemptor", g.preemptor,
      {{"exclusive", PreemptorKind::kExclusive}, {"proportional", PreemptorKind::kProportional}});
  g.spatial = r.flag("spatial", false);
  g.sm_unit = r.whole("sm_unit", g.sm_unit, 1, g.sm_count);
  g.change_ns = r.time("change_us", 0, kUs);
  g.mechanism = r.choice<Mechanism>(
      "mechanism", g.mechanism,
      {{"drain", Mechanism::kDrain}, {"context-switch", Mechanism::kContextSwitch}});
  g.signal_ns = r.time("signal_us", 0, kUs);
  g.start_ns = r.time("start_us", 0, kUs);
  g.switch_ns = r.time("switch_us", 0, kUs);
  g.copy_part_ns = r.time("copy_part_us", 0, kUs);
  config.machine.handover_ns = r.time("handover_guess_us", config.machine.handover_ns, kUs);
  config.machine.slice_floor_ns = r.time("slice_floor_us", config.machine.slice_floor_ns, kUs);
  config.machine.slice_ceiling_ns =
      r.time("slice_ceiling_us", config.machine.slice_ceiling_ns, kUs);
  r.done();
  if (config.machine.slice_floor_ns == 0) wrong("gpu.slice_floor_us", "must be longer than 0");
  if (config.machine.slice_floor_ns > config.machine.slice_ceiling_ns)
    wrong("gpu", "slice_floor_us is above slice_ceiling_us");
  return g;
}

void read_config(const json::value& v, Config& c) {
  Reader r(v, "config");
  c.min_quantum_ns = r.time("min_quantum_ms", c.min_quantum_ns, kMs);
  c.max_quantum_ns = r.time("max_quantum_ms", c.max_quantum_ns, kMs);
  c.handover_loss = r.number("handover_loss", c.handover_loss, 0, 1);
  c.latency_target_ns = r.time("latency_target_ms", c.latency_target_ns, kMs);
  c.short_gap_ns = r.time("short_gap_ms", c.short_gap_ns, kMs);
  c.max_lead_turns = r.number("max_lead_turns", c.max_lead_turns, 0, 1000);
  c.quantum_ns = r.time("quantum_ms", c.quantum_ns, kMs);
  c.epoch_ns = r.time("epoch_ms", c.epoch_ns, kMs);
  c.max_overhead = r.number("max_overhead", c.max_overhead, 0, 1);
  r.done();
  if (c.min_quantum_ns > c.max_quantum_ns)
    wrong("config", "min_quantum_ms is above max_quantum_ms");
}

FileWorkload read(const json::value& v) {
  Reader r(v, "workload");
  FileWorkload file;
  Workload& w = file.workload;
  w.name = r.text("name", "unnamed");
  file.baseline = r.text("baseline", "fcfs");
  if (!find_policy(file.baseline))
    wrong(r.at("baseline"), "there is no policy '" + file.baseline + "'");
  for (const char* list : {"kernels", "vgpus", "programs"})
    if (!r.find(list)) wrong(r.at(list), "is missing: a workload has kernels, vgpus and programs");
  if (const json::value* g = r.find("gpu")) w.gpu = gpu(*g, w.config);
  if (const json::value* c = r.find("config")) read_config(*c, w.config);
  Names groups, kernels, vgpus, programs;
  const auto name = [](Names& names, const std::string& n, size_t index, const std::string& where) {
    if (!names.emplace(n, static_cast<uint32_t>(index)).second)
      wrong(where, "the name '" + n + "' is there twice");
  };
  r.each("kernels", kMaxKernels, [&](const json::value& x, const std::string& where) {
    w.kernels.push_back(kernel(x, where));
    name(kernels, w.kernels.back().name, w.kernels.size() - 1, where);
  });
  r.each("groups", kMaxGroups - 1, [&](const json::value& x, const std::string& where) {
    w.groups.push_back(group(x, where, groups));
    name(groups, w.groups.back().name, w.groups.size() - 1, where);
  });
  r.each("vgpus", kMaxVgpus, [&](const json::value& x, const std::string& where) {
    w.vgpus.push_back(vgpu(x, where, groups));
    name(vgpus, w.vgpus.back().name, w.vgpus.size() - 1, where);
  });
  r.each("programs", kMaxPrograms, [&](const json::value& x, const std::string& where) {
    w.programs.push_back(program(x, where, vgpus, kernels));
    name(programs, w.programs.back().name, w.programs.size() - 1, where);
  });
  w.horizon_ns = r.time("horizon_ms", 0, kMs);
  w.warm_up_ns = r.time("warm_up_ms", 0, kMs);
  w.replay_runs = r.whole("replay_runs", 0u, 0, 1e9);
  w.max_events = r.whole("max_events", kFileEvents, 1, 1e15);
  w.account = r.choice<ChargeBy>("account", w.account,
                                 {{"time", ChargeBy::kTime}, {"slowdown", ChargeBy::kSlowdown}});
  w.predictor = r.choice<Predictor>(
      "predictor", w.predictor,
      {{"oracle", Predictor::kOracle}, {"model", Predictor::kModel}, {"none", Predictor::kNone}});
  w.prediction_cv = r.number("prediction_cv", 0, 0, 10);
  w.original_form = r.flag("original_form", false);
  w.share_window_ns = r.time("share_window_ms", w.share_window_ns, kMs);
  if (r.find("high_program"))
    w.high_program = static_cast<int32_t>(by_name(r, "high_program", programs, "program"));
  r.done();
  if (const std::string bad = check_workload(w); !bad.empty()) throw Wrong{bad};
  return file;
}

}  // namespace

sluice::Result<FileWorkload> parse_workload(std::string_view text) {
  if (text.size() > kMaxWorkloadBytes) return Error{0, "the file is too large for a workload"};
  auto v = parse_strict(text);
  if (!v) return v.error();
  try {
    return read(*v);
  } catch (const Wrong& e) {
    return Error{0, e.message};
  }
}

}  // namespace sluice::policy::sim
