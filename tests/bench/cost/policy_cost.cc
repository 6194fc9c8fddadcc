// SPDX-License-Identifier: Apache-2.0
// What one decision of a policy costs with 1,000 vGPUs and 10,000 launches waiting: every event
// that the simulator hands in is timed (less the cost of taking the time), and apart from them the
// reports of usage that come before each. A simulation is the same each time, so it is made REPEATS
// times and each decision counts with the least of its times: what the machine did beside it is
// left out, what the policy does is not. By hand; one core.
//
//     policy_cost [--vgpus N] [--each N] [--repeats N] [--groups N] [--limits] [--visitors]
//                 [--json] [--require] [POLICY...]   default: 1000, 10, 5, all policies
//
// --groups: the vGPUs are in N groups, and those in eight others, for policies that know groups.
// --limits: every fourth group has a maximum, every sixteenth vGPU a minimum. --visitors: every
// other vGPU comes for a launch of 50 us and stays away for 0.1 s, so that weights change all the
// time.
// An event may move many SMs: beside its whole cost stands that for each action that it ended with.
// --json: one object a policy and line. --require: fails if one policy's mean for an event, or 99th
// percentile for an action, is above 1 us.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "policies/sim/simulation.h"

using namespace sluice::policy;
using namespace sluice::policy::sim;
using Clock = std::chrono::steady_clock;

namespace {

uint64_t since(Clock::time_point t) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count());
}

class Timed final : public Policy {
 public:
  explicit Timed(std::unique_ptr<Policy> p) : p_(std::move(p)) {}
  std::string_view name() const override { return p_->name(); }
  void on_vgpu_added(uint64_t t, VgpuId v, const VgpuShare& s, Actions& o) override {
    p_->on_vgpu_added(t, v, s, o);
  }
  void on_vgpu_changed(uint64_t t, VgpuId v, const VgpuShare& s, Actions& o) override {
    p_->on_vgpu_changed(t, v, s, o);
  }
  void on_group(uint64_t t, GroupId g, const GroupShare& s, Actions& o) override {
    p_->on_group(t, g, s, o);
  }
  void on_vgpu_removed(uint64_t t, VgpuId v, Actions& o) override { p_->on_vgpu_removed(t, v, o); }
  void on_arrival(uint64_t t, VgpuId v, Actions& o) override {
    timed([&] { p_->on_arrival(t, v, o); }, o.size(), o);
  }
  void on_idle(uint64_t t, VgpuId v, Actions& o) override {
    timed([&] { p_->on_idle(t, v, o); }, o.size(), o);
  }
  void on_launch_queued(uint64_t t, const Launch& l, Actions& o) override {
    timed([&] { p_->on_launch_queued(t, l, o); }, o.size(), o);
  }
  void on_launch_done(uint64_t t, const Launch& l, Actions& o) override {
    timed([&] { p_->on_launch_done(t, l, o); }, o.size(), o);
  }
  void on_usage(uint64_t t, VgpuId v, const Usage& u) override {
    const VgpuUsage report{v, u};
    on_usages(t, {&report, 1});
  }
  void on_usages(uint64_t t, std::span<const VgpuUsage> reports) override {
    const auto begin = Clock::now();
    p_->on_usages(t, reports);
    usage_ns += static_cast<double>(since(begin));
    usages += reports.size();
    ++usage_calls;
  }
  bool reads_tasks() const override { return p_->reads_tasks(); }
  void on_left(uint64_t t, VgpuId v, LeftReason w, Actions& o) override {
    timed([&] { p_->on_left(t, v, w, o); }, o.size(), o);
  }
  void on_released(uint64_t t, VgpuId v, LaunchId l, SmRange s, LeftReason w, Actions& o) override {
    timed([&] { p_->on_released(t, v, l, s, w, o); }, o.size(), o);
  }
  void on_handover(uint64_t t, uint64_t c) override {
    Actions none;
    timed([&] { p_->on_handover(t, c); }, 0, none);
  }
  void on_wake(uint64_t t, Actions& o) override {
    timed([&] { p_->on_wake(t, o); }, o.size(), o);
  }

  std::vector<uint32_t> ns, actions;  // of each event
  double usage_ns = 0;
  uint64_t usages = 0, usage_calls = 0;

 private:
  template <class F>
  void timed(F&& call, size_t before, const Actions& out) {
    const auto begin = Clock::now();
    call();
    ns.push_back(static_cast<uint32_t>(std::min<uint64_t>(since(begin), 1'000'000'000)));
    actions.push_back(static_cast<uint32_t>(out.size() - before));
  }
  std::unique_ptr<Policy> p_;
};

struct Cost {
  double mean, p50, p99, max;  // ns an event
  double action_p99;           // ns for each action that it ended with, at least one
  size_t decisions;
  double report;  // ns for each vGPU that was reported, mean
};

Cost measure(const Registration& row, const Workload& w, int repeats, double clock_ns) {
  std::vector<uint32_t> least, actions;
  double report = 1e30;
  for (int i = 0; i < repeats; ++i) {
    Timed timed(row.make(engine_config(w)));
    timed.ns.reserve(1'000'000);
    (void)simulate(w, timed, {.preempts = row.preempts, .max_events = 200'000});
    const double calls_ns = clock_ns * static_cast<double>(timed.usage_calls);
    if (timed.usages)
      report = std::min(
          report, std::max(timed.usage_ns - calls_ns, 0.0) / static_cast<double>(timed.usages));
    if (i == 0) least = timed.ns, actions = timed.actions;
    if (timed.ns.size() != least.size())
      std::fprintf(stderr, "policy_cost: %s is not deterministic\n", row.name.data()), std::exit(1);
    for (size_t j = 0; j < least.size(); ++j) least[j] = std::min(least[j], timed.ns[j]);
  }
  Cost c{};
  c.decisions = least.size();
  if (least.empty()) return c;
  for (uint32_t t : least) c.mean += t;
  c.mean = std::max(c.mean / static_cast<double>(least.size()) - clock_ns, 0.0);
  std::vector<double> each(least.begin(), least.end());
  for (size_t i = 0; i < each.size(); ++i)
    each[i] = std::max(each[i] - clock_ns, 0.0) / std::max(actions[i], 1u);
  std::sort(least.begin(), least.end());
  std::sort(each.begin(), each.end());
  const auto place = [&](double q) {
    return static_cast<size_t>(q * static_cast<double>(least.size() - 1));
  };
  const auto at = [&](double q) { return std::max(least[place(q)] - clock_ns, 0.0); };
  c.action_p99 = each[place(0.99)];
  c.p50 = at(0.5), c.p99 = at(0.99), c.max = at(1);
  c.report = report < 1e30 ? report : 0;
  return c;
}

struct Tree {
  uint32_t groups = 0;
  bool limits = false, visitors = false;
};

constexpr uint32_t kTopGroups = 8;
void add_groups(Workload& w, const Tree& tree) {
  if (tree.groups == 0) return;
  for (uint32_t i = 0; i < kTopGroups; ++i) w.groups.push_back({"top" + std::to_string(i), {}});
  for (uint32_t i = 0; i < tree.groups; ++i) {
    GroupShare share{.parent = 1 + i % kTopGroups, .weight = 1 + i % 7};
    if (tree.limits && i % 4 == 0) share.max_permille = 300;
    w.groups.push_back({"g" + std::to_string(i), share});
  }
  for (uint32_t v = 0; v < w.vgpus.size(); ++v)
    w.vgpus[v].share.group = 1 + kTopGroups + v % tree.groups;
}

Workload tenants(uint32_t vgpus, uint32_t each, const Tree& tree) {
  Workload w;
  w.gpu.sm_count = 132;
  w.gpu.spatial = true;
  w.gpu.signal_ns = 3000;
  w.gpu.start_ns = 4000;
  Kernel k;
  k.name = "k";
  k.alone_ns = 1'000'000;
  k.alone_cv = 0.5;
  k.tasks = 10'000;
  k.blocks_per_sm = 8;
  w.kernels = {k, k};
  w.kernels[1].name = "visit";
  w.kernels[1].alone_ns = 50'000;
  for (uint32_t v = 0; v < vgpus; ++v) {
    w.vgpus.push_back({"v" + std::to_string(v), {.weight = 1 + v % 1000, .priority = v % 4}, {}});
    if (tree.limits && v % 16 == 0) w.vgpus[v].share.min_permille = 5;
    for (uint32_t i = 0; i < each; ++i) {
      Program p;
      p.name = std::to_string(v) + "." + std::to_string(i);
      p.vgpu = v;
      p.steps = {{.kernel = 0}};
      p.arrival = i % 2 ? ArrivalKind::kBacklog : ArrivalKind::kClosed;
      p.think_ns = i % 2 ? 0 : 100'000;
      p.runs = 0;
      p.queue_depth = 2;
      if (tree.visitors && v % 2) {
        p.steps = {{.kernel = 1}};
        p.arrival = ArrivalKind::kClosed;
        p.think_ns = 100'000'000;
        p.think_exponential = true;
        i = each;  // one launch at a time
      }
      w.programs.push_back(p);
    }
  }
  add_groups(w, tree);
  w.horizon_ns = 20'000'000'000;
  return w;
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t vgpus = 1000, each = 10;
  int repeats = 5;
  Tree tree;
  bool json = false, require = false;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::max(std::atoi(argv[++i]), 1) : 1; };
    if (a == "--vgpus")
      vgpus = static_cast<uint32_t>(number());
    else if (a == "--each")
      each = static_cast<uint32_t>(number());
    else if (a == "--repeats")
      repeats = number();
    else if (a == "--groups")
      tree.groups = static_cast<uint32_t>(number());
    else if (a == "--limits")
      tree.limits = true;
    else if (a == "--visitors")
      tree.visitors = true;
    else if (a == "--json")
      json = true;
    else if (a == "--require")
      require = true;
    else if (find_policy(a))
      names.push_back(a);
    else
      return std::fprintf(stderr, "policy_cost: no policy or option %s\n", a.c_str()), 1;
  }
  const Workload w = tenants(vgpus, each, tree);
  if (const std::string wrong = check_workload(w); !wrong.empty())
    return std::fprintf(stderr, "policy_cost: %s\n", wrong.c_str()), 1;

  std::vector<uint64_t> empty;  // what taking the time costs
  for (int i = 0; i < 10'000; ++i) {
    const auto begin = Clock::now();
    empty.push_back(since(begin));
  }
  std::nth_element(empty.begin(), empty.begin() + 5000, empty.end());
  const double clock_ns = static_cast<double>(empty[5000]);
  if (!json)
    std::printf("%u vGPUs, %u launches; %.0f ns for taking the time are taken off\n", vgpus,
                vgpus * each, clock_ns);
  bool met = true;
  for (const Registration& row : registry()) {
    if (!names.empty() && std::find(names.begin(), names.end(), row.name) == names.end()) continue;
    // wfq has three forms, one for each kind of preemptor.
    for (const char* form : {"space", "whole", "slices"}) {
      Workload x = w;
      const bool slices = std::strcmp(form, "slices") == 0;
      if (slices ? !row.proportional : !row.exclusive) continue;
      if ((tree.groups || tree.limits) && !row.tree) continue;
      if (std::strcmp(form, "whole") == 0 && row.name != "wfq") continue;
      x.gpu.spatial = std::strcmp(form, "space") == 0;
      if (slices) x.gpu.preemptor = PreemptorKind::kProportional;
      const Cost c = measure(row, x, repeats, clock_ns);
      met &= c.mean <= 1000 && c.action_p99 <= 1000;
      const char* line = json ? "{\"policy\": \"%s\", \"form\": \"%s\", \"mean_ns\": %.0f, "
                                "\"p50_ns\": %.0f, \"p99_ns\": %.0f, "
                                "\"max_ns\": %.0f, \"action_p99_ns\": %.0f, \"decisions\": %zu, "
                                "\"report_ns\": %.0f}\n"
                              : "%-6s %-6s mean %6.0f ns  p50 %6.0f  p99 %6.0f  max %8.0f  an "
                                "action p99 %6.0f  (%zu events; a report %.0f ns)\n";
      std::printf(line, row.name.data(), form, c.mean, c.p50, c.p99, c.max, c.action_p99,
                  c.decisions, c.report);
      std::fflush(stdout);
    }
  }
  return require && !met;
}
