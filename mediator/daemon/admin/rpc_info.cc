// SPDX-License-Identifier: Apache-2.0
// info: what sluiced is, what it goes by, what it runs on.
#include "mediator/daemon/admin/rpc_methods.h"

#include <unistd.h>

#include <boost/json/array.hpp>
#include <string>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/io/loop_meter.h"
#include "mediator/io/loop_priority.h"

namespace sluice::rpc {
namespace {

// Who finds out that a worker keeps the GPU beyond its time slices.
std::string witness_info(const TimeSlices* slices) {
  const TimeSlices::Witness witness = slices ? slices->witness() : TimeSlices::Witness{};
  if (!witness.wanted) return "not needed";
  return witness.why.empty() ? "up" : "none: " + witness.why;
}

json::object accounting_info(const GrantExecutor& executor) {
  json::array sources;
  std::string in_use;
  for (const auto& s : executor.accounting().sources()) {
    sources.push_back({{"name", s.name}, {"state", s.state}, {"why", s.why}});
    if (s.state == "in use") in_use += (in_use.empty() ? "" : ", ") + s.name;
  }
  return {{"source", executor.accounting().source()},
          {"in_use", in_use},
          {"polling", executor.accounting().polling()},
          {"witness", witness_info(executor.time_slices())},
          {"meaning",
           "gpu_ns goes by this source, within gpu_error_ns; charged is the time held, less "
           "context switches, "
           "plus use without a grant"},
          {"sources", std::move(sources)}};
}

json::object stall(const io::LoopMeter::Stall& s) {
  return {{"ms", milliseconds(s.wall_ns)}, {"cpu_ms", milliseconds(s.cpu_ns)}, {"in", s.where()}};
}

// How long single calls have kept sluiced's one thread, since it started.
json::object loop_info() {
  const io::LoopMeter::Figures& f = io::LoopMeter::figures();
  return {{"calls", f.calls},
          {"over_10_ms", f.over_10_ms},
          {"over_50_ms", f.over_50_ms},
          {"longest", stall(f.longest)},
          {"busiest", stall(f.busiest)},
          {"priority", io::LoopPriority::kNames[static_cast<size_t>(io::LoopPriority::state())]},
          {"real_time_spent", io::LoopPriority::times_spent()},
          {"real_time_refused", io::LoopPriority::refusal()}};
}

// The walls around workers that this host does not allow, "WALL: why" each.
json::object workers_info(const io::SpawnerLink& s) {
  const io::HostReport& host = s.host();
  json::array missing, unlimited;
  for (const std::string& m : host.missing_limits) unlimited.push_back(json::string(m));
  for (const std::string& m : host.missing_walls) missing.push_back(json::string(m));
  return {{"spawner_pid", s.pid()},
          {"uids", std::to_string(s.uids().first) + "-" + std::to_string(s.uids().last)},
          {"missing_walls", std::move(missing)},
          {"missing_limits", std::move(unlimited)},
          {"sees_xids", host.sees_xids()},
          {"no_kernel_log", host.no_kernel_log},
          {"no_code_cache", host.no_code_cache},
          {"no_pressure", host.no_pressure},
          {"ended_at_start", host.ended_workers}};
}

}  // namespace

json::value info(Daemon& d) {
  json::object device{{"kind", d.nvidia() ? "nvidia" : "soft"}, {"library", d.library()}};
  if (!d.nvidia()) device["soft_gpu_file"] = d.config().soft_gpu_path();
  device["signal"] =
      worker_protocol::kSignalNames[static_cast<size_t>(d.config().signal_for(d.nvidia()))];
  device["signal_chunk"] = d.config().signal_chunk;
  device["admission_us"] = d.config().admission_us;
  device["window_us"] = d.config().window_us;
  device["chunk_target_us"] = d.config().chunk_target_for(d.nvidia());
  return json::object{
      {"version", SLUICE_VERSION},
      {"channel_version", SLUICE_CHANNEL_VERSION},
      {"pid", ::getpid()},
      {"uid", ::geteuid()},
      {"capabilities", own_capabilities()},
      {"uptime_ms", (monotonic_ns() - d.started_ns()) / 1'000'000},
      {"device", std::move(device)},
      {"policy", d.executor().policy_name()},
      {"mode", d.config().mode_name()},
      {"sharing", d.config().spatial             ? "sms"
                  : d.config().slices            ? "time slices"
                  : d.config().turns_by_priority ? "turns by priority"
                                                 : "turns"},
      {"quantum_us", d.executor().quantum_ns() / 1000},
      {"accounting", accounting_info(d.executor())},
      {"loop", loop_info()},
      {"workers", workers_info(d.spawner())},
      {"runtime_dir", d.config().runtime_dir},
      {"vgpu_defaults", json::object{{"weight", d.config().weight},
                                     {"region_bytes", d.config().region_bytes},
                                     {"latency", latency_name(d.config().latency)}}},
      {"ends_when_idle", d.awaits_idle()},
      {"vgpus", d.vgpus().size()}};
}

}  // namespace sluice::rpc
