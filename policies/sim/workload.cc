// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/workload.h"

namespace sluice::policy::sim {
namespace {

std::string named(const char* kind, size_t i, const std::string& name) {
  return std::string(kind) + " " + std::to_string(i) + (name.empty() ? "" : " (" + name + ")");
}

std::string check_gpu_and_counts(const Workload& w) {
  if (w.gpu.sm_count == 0 || w.gpu.sm_count > kMaxSms)
    return "the number of SMs must be 1 to " + std::to_string(kMaxSms);
  if (w.gpu.sm_unit == 0 || w.gpu.sm_unit > w.gpu.sm_count)
    return "a unit of SMs must have 1 to all of them";
  for (uint64_t t : {w.gpu.signal_ns, w.gpu.start_ns, w.gpu.switch_ns, w.gpu.change_ns,
                     w.gpu.copy_part_ns, w.horizon_ns, w.share_window_ns})
    if (t > kMaxTimeNs) return "a time of the GPU, the horizon or the window is too long";
  if (w.share_window_ns == 0) return "the window of the share error must be longer than 0";
  if (w.vgpus.empty() || w.vgpus.size() > kMaxVgpus)
    return "there must be 1 to " + std::to_string(kMaxVgpus) + " vGPUs";
  if (w.programs.empty() || w.programs.size() > kMaxPrograms)
    return "there must be 1 to " + std::to_string(kMaxPrograms) + " programs";
  if (w.kernels.empty() || w.kernels.size() > kMaxKernels)
    return "there must be 1 to " + std::to_string(kMaxKernels) + " kernels";
  if (w.groups.size() >= kMaxGroups)
    return "there may be " + std::to_string(kMaxGroups - 1) + " groups";
  return {};
}

std::string check_group(const Workload& w, size_t i) {
  const GroupShare& s = w.groups[i].share;
  if (s.parent > i) return "its parent must stand before it";
  if (s.weight < 1 || s.weight > kMaxWeight || s.priority >= kPriorityLevels)
    return "weight or priority out of range";
  if (s.min_permille > kWholePermille || s.max_permille > kWholePermille)
    return "a share is more than the GPU";
  return {};
}

std::string check_vgpu(const Workload& w, const SimulatedVgpu& v) {
  const auto good_share = [&](const VgpuShare& s) {
    return s.weight >= 1 && s.weight <= kMaxWeight && s.priority < kPriorityLevels &&
           s.group <= w.groups.size() && s.min_permille <= kWholePermille &&
           s.max_permille <= kWholePermille;
  };
  if (!good_share(v.share)) return "weight or priority out of range";
  uint64_t last = 0;
  for (const ShareChange& c : v.changes) {
    if (!good_share(c.share)) return "weight or priority of a change out of range";
    if (c.at_ns < last || c.at_ns > kMaxTimeNs) return "changes are not in the order of time";
    last = c.at_ns;
  }
  return {};
}

std::string check_kernel(const Kernel& k) {
  if (k.alone_ns == 0 || k.alone_ns > kMaxKernelNs) return "its time alone must be 1 ns to 1000 s";
  for (uint64_t t : {k.task_ns, k.drain_ns, k.save_ns, k.restore_ns, k.relaunch_ns})
    if (t > kMaxKernelNs) return "one of its times is longer than 1000 s";
  if (k.tasks == 0 || k.blocks_per_sm == 0) return "tasks and blocks per SM must not be 0";
  if (k.width_sms > kMaxSms) return "width out of range";
  if (!(k.alone_cv >= 0 && k.alone_cv <= 10)) return "variation must be 0 to 10";
  if (!(k.bandwidth >= 0 && k.bandwidth <= 100)) return "bandwidth must be 0 to 100";
  if (!(k.form_factor >= 0.1 && k.form_factor <= 100)) return "form factor must be 0.1 to 100";
  return {};
}

std::string check_arrivals(const Program& p) {
  for (uint64_t t : {p.first_ns, p.period_ns, p.think_ns})
    if (t > kMaxTimeNs) return "a time out of range";
  uint64_t last = 0;
  for (uint64_t t : p.offsets_ns) {
    if (t < last || t > kMaxTimeNs) return "offsets are not in the order of time";
    last = t;
  }
  if (!p.offset_alone_ns.empty() && p.offset_alone_ns.size() != p.offsets_ns.size())
    return "as many alone times as offsets are needed";
  for (uint64_t t : p.offset_alone_ns)
    if (t == 0 || t > kMaxKernelNs) return "an alone time out of range";
  if ((p.arrival == ArrivalKind::kPeriodic || p.arrival == ArrivalKind::kPoisson) &&
      p.period_ns == 0)
    return "its period is 0";
  return {};
}

std::string check_program(const Workload& w, const Program& p) {
  if (p.vgpu >= w.vgpus.size()) return "no such vGPU";
  if (p.steps.empty()) return "it has no kernel and no steps";
  for (const Step& s : p.steps) {
    if (s.kernel >= w.kernels.size()) return "no such kernel";
    if (s.copy_ns > kMaxKernelNs) return "a copy is longer than 1000 s";
    if (s.launches == 0) return "a step without launches";
    if (s.host_ns > kMaxTimeNs) return "host time out of range";
  }
  if (std::string wrong = check_arrivals(p); !wrong.empty()) return wrong;
  if (p.queue_depth == 0) return "its queue depth is 0";
  if (p.priority_lo > p.priority_hi || p.priority_hi >= kPriorityLevels)
    return "its range of priorities is wrong";
  if (!(p.prediction_factor >= 0 && p.prediction_factor <= 1e6))
    return "its prediction factor must be 0 to 1000000";
  return {};
}

std::string check_ends(const Workload& w) {
  bool ends = w.horizon_ns > 0 || w.replay_runs > 0;
  for (const Program& p : w.programs) ends |= p.arrival == ArrivalKind::kOffsets || p.runs > 0;
  if (!ends) return "nothing ends it: give a horizon, a number of replays or runs";
  if (w.high_program >= static_cast<int32_t>(w.programs.size())) return "no such high program";
  if (!(w.prediction_cv >= 0 && w.prediction_cv <= 10)) return "prediction error must be 0 to 10";
  return {};
}

// The first thing that is wrong in a list, with the name of its element.
template <class Element, class Check>
std::string check_each(const char* kind, const std::vector<Element>& list, const Check& check) {
  for (size_t i = 0; i < list.size(); ++i)
    if (std::string wrong = check(i); !wrong.empty())
      return named(kind, i, list[i].name) + ": " + wrong;
  return {};
}

}  // namespace

std::string check_workload(const Workload& w) {
  std::string wrong = check_gpu_and_counts(w);
  const auto then = [&](const auto& check) {
    if (wrong.empty()) wrong = check();
  };
  then([&] { return check_each("group", w.groups, [&](size_t i) { return check_group(w, i); }); });
  then([&] {
    return check_each("vGPU", w.vgpus, [&](size_t i) { return check_vgpu(w, w.vgpus[i]); });
  });
  then([&] {
    return check_each("kernel", w.kernels, [&](size_t i) { return check_kernel(w.kernels[i]); });
  });
  then([&] {
    return check_each("program", w.programs,
                      [&](size_t i) { return check_program(w, w.programs[i]); });
  });
  then([&] { return check_ends(w); });
  return wrong;
}

}  // namespace sluice::policy::sim
