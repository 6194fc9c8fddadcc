// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/workload.h"

namespace sluice::policy::sim {
namespace {

std::string named(const char* kind, size_t i, const std::string& name) {
  return std::string(kind) + " " + std::to_string(i) + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace

std::string check_workload(const Workload& w) {
  if (w.gpu.sm_count == 0 || w.gpu.sm_count > kMaxSms)
    return "the number of SMs must be 1 to " + std::to_string(kMaxSms);
  if (w.gpu.sm_unit == 0 || w.gpu.sm_unit > w.gpu.sm_count)
    return "a unit of SMs must have 1 to all of them";
  for (uint64_t t : {w.gpu.signal_ns, w.gpu.start_ns, w.gpu.switch_ns, w.gpu.change_ns,
                     w.horizon_ns, w.share_window_ns})
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
  for (size_t i = 0; i < w.groups.size(); ++i) {
    const GroupShare& s = w.groups[i].share;
    const std::string me = named("group", i, w.groups[i].name);
    if (s.parent > i) return me + ": its parent must stand before it";
    if (s.weight < 1 || s.weight > kMaxWeight || s.priority >= kPriorityLevels)
      return me + ": weight or priority out of range";
    if (s.min_permille > kWholePermille || s.max_permille > kWholePermille)
      return me + ": a share is more than the GPU";
  }
  const auto good_share = [&](const VgpuShare& s) {
    return s.weight >= 1 && s.weight <= kMaxWeight && s.priority < kPriorityLevels &&
           s.group <= w.groups.size() && s.min_permille <= kWholePermille &&
           s.max_permille <= kWholePermille;
  };
  for (size_t i = 0; i < w.vgpus.size(); ++i) {
    const Vgpu& v = w.vgpus[i];
    const std::string me = named("vGPU", i, v.name);
    if (!good_share(v.share)) return me + ": weight or priority out of range";
    uint64_t last = 0;
    for (const ShareChange& c : v.changes) {
      if (!good_share(c.share)) return me + ": weight or priority of a change out of range";
      if (c.at_ns < last || c.at_ns > kMaxTimeNs)
        return me + ": changes are not in the order of time";
      last = c.at_ns;
    }
  }
  for (size_t i = 0; i < w.kernels.size(); ++i) {
    const Kernel& k = w.kernels[i];
    const std::string me = named("kernel", i, k.name);
    if (k.alone_ns == 0 || k.alone_ns > kMaxKernelNs)
      return me + ": its time alone must be 1 ns to 1000 s";
    for (uint64_t t : {k.task_ns, k.drain_ns, k.save_ns, k.restore_ns, k.relaunch_ns})
      if (t > kMaxKernelNs) return me + ": one of its times is longer than 1000 s";
    if (k.tasks == 0 || k.blocks_per_sm == 0) return me + ": tasks and blocks per SM must not be 0";
    if (k.width_sms > kMaxSms) return me + ": width out of range";
    if (!(k.alone_cv >= 0 && k.alone_cv <= 10)) return me + ": variation must be 0 to 10";
    if (!(k.bandwidth >= 0 && k.bandwidth <= 100)) return me + ": bandwidth must be 0 to 100";
    if (!(k.form_factor >= 0.1 && k.form_factor <= 100))
      return me + ": form factor must be 0.1 to 100";
  }
  bool ends = w.horizon_ns > 0 || w.replay_runs > 0;
  for (size_t i = 0; i < w.programs.size(); ++i) {
    const Program& p = w.programs[i];
    const std::string me = named("program", i, p.name);
    if (p.vgpu >= w.vgpus.size()) return me + ": no such vGPU";
    if (p.steps.empty()) return me + ": it has no kernel and no steps";
    for (const Step& s : p.steps) {
      if (s.kernel >= w.kernels.size()) return me + ": no such kernel";
      if (s.launches == 0) return me + ": a step without launches";
      if (s.host_ns > kMaxTimeNs) return me + ": host time out of range";
    }
    for (uint64_t t : {p.first_ns, p.period_ns, p.think_ns})
      if (t > kMaxTimeNs) return me + ": a time out of range";
    uint64_t last = 0;
    for (uint64_t t : p.offsets_ns) {
      if (t < last || t > kMaxTimeNs) return me + ": offsets are not in the order of time";
      last = t;
    }
    if (!p.offset_alone_ns.empty() && p.offset_alone_ns.size() != p.offsets_ns.size())
      return me + ": as many alone times as offsets are needed";
    for (uint64_t t : p.offset_alone_ns)
      if (t == 0 || t > kMaxKernelNs) return me + ": an alone time out of range";
    if ((p.arrival == ArrivalKind::kPeriodic || p.arrival == ArrivalKind::kPoisson) &&
        p.period_ns == 0)
      return me + ": its period is 0";
    if (p.queue_depth == 0) return me + ": its queue depth is 0";
    if (p.priority_lo > p.priority_hi || p.priority_hi >= kPriorityLevels)
      return me + ": its range of priorities is wrong";
    if (!(p.prediction_factor >= 0 && p.prediction_factor <= 1e6))
      return me + ": its prediction factor must be 0 to 1000000";
    ends |= p.arrival == ArrivalKind::kOffsets || p.runs > 0;
  }
  if (!ends) return "nothing ends it: give a horizon, a number of replays or runs";
  if (w.high_program >= static_cast<int32_t>(w.programs.size())) return "no such high program";
  if (!(w.prediction_cv >= 0 && w.prediction_cv <= 10)) return "prediction error must be 0 to 10";
  return {};
}

}  // namespace sluice::policy::sim
