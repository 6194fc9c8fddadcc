// SPDX-License-Identifier: Apache-2.0
// vgpu.*: vGPUs described, created, changed and deleted.
#include "mediator/daemon/admin/rpc_methods.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <cerrno>
#include <string>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"

namespace sluice::rpc {
namespace {

const char* state_name(GuestSession::State state) {
  switch (state) {
    case GuestSession::State::kStarting:
      return "starting";
    case GuestSession::State::kOpen:
      return "open";
    case GuestSession::State::kEnding:
      return "ending";
  }
  return "?";
}

json::object describe(Daemon& d, VgpuServer& v) {
  const VgpuSpec& s = v.spec();
  const policy::ShareFigures kept = d.executor().scheduler().share_figures(v.id());
  return {{"name", s.name},
          {"state", v.closing()         ? "deleting"
                    : v.has_live_peer() ? "connected"
                                        : "waiting"},
          {"paused", v.paused()},
          {"weight", s.share.weight},
          {"priority", s.share.priority},
          {"latency", latency_name(s.share.latency)},
          {"target_p99_us", s.share.target_p99_us},
          {"min_permille", s.share.min_permille},
          {"max_permille", s.share.max_permille},
          {"group", d.group_name(s.share.group)},
          {"served_in_time", kept.in_time},
          {"served_late", kept.late},
          {"throttled", kept.throttled},
          {"reserved", kept.reserved},
          {"memory_bytes", s.memory_bytes},
          {"memory_used_bytes", v.memory_used_bytes()},
          {"host_memory_used_bytes", v.host_memory_used_bytes()},
          {"sessions", v.sessions().size()},
          {"slots", s.geometry.slots},
          {"socket", s.socket},
          {"local_socket", s.local_socket},
          {"owner", s.owner}};
}

// `holds`: programs that ask for a session wait for `opens_in_ms`; `waiting`: this many do, for
// whatever reason.
json::object back_off(const VgpuServer& v, uint64_t now) {
  const uint64_t left_ns = v.back_off_ns();
  return {{"state", core::to_string(v.penalty().state(now))},
          {"holds", left_ns > 0},
          {"opens_in_ms", milliseconds(left_ns)},
          {"debt_ms", milliseconds(v.penalty().debt_ns(now))},
          {"waiting", v.waiting_programs()}};
}

// What its sessions hold of the device by kind, "unused": leased in advance; and of the host.
json::object memory_by_kind(const VgpuServer& v) {
  std::array<uint64_t, kChargeKinds> sums{};
  for (const auto& s : v.sessions()) {
    const auto kinds = s->leased_by_kind();
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += kinds[i];
  }
  json::object o;
  uint64_t all = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    o[kChargeKindNames[i]] = sums[i];
    all += sums[i];
  }
  o["unused"] = v.memory_used_bytes() - std::min(v.memory_used_bytes(), all);
  o["host"] = v.host_memory_used_bytes();
  return o;
}

json::array session_list(const VgpuServer& v, uint64_t now) {
  json::array sessions;
  for (const auto& s : v.sessions())
    sessions.push_back({{"slot", s->slot()},
                        {"program", s->program()},
                        {"origin", s->origin().local ? "local" : "guest"},
                        {"pid", s->guest_pid()},
                        {"worker_pid", s->worker_pid()},
                        {"state", state_name(s->state())},
                        {"memory_bytes", s->leased_bytes()},
                        {"extent_bytes", s->channel().extent_bytes(s->slot())},
                        {"age_ms", (now - s->started_ns()) / 1'000'000}});
  return sessions;
}

json::object describe_fully(Daemon& d, GrantExecutor& executor, VgpuServer& v, uint64_t now) {
  json::object o = describe(d, v);
  const GrantExecutor::Figures figures = executor.stats(v.id());
  o["usage"] = usage(executor, v, figures);
  o["busy"] = figures.busy;
  o["holds"] = figures.holds;
  o["sms"] = sms_text(figures.sms);
  o["launches"] = launches(executor, v, figures);
  o["region"] = json::object{{"bytes", v.spec().geometry.region_bytes},
                             {"extent_bytes", v.shared_memory().limit_bytes},
                             {"extent_bytes_used", v.shared_memory().used_bytes},
                             {"slots_ended", v.slots_in(SlotState::kEnded)}};
  o["agent"] = json::object{{"epoch", v.agent().agent_epoch()},
                            {"release", v.agent().agent_release()},
                            {"silent", v.agent().agent_epoch() != 0 && v.agent().silent(now)}};
  o["memory_by_kind"] = memory_by_kind(v);
  o["sessions_started"] = v.sessions_started();
  o["faults"] = v.penalty().faults();
  o["fault_stall_ms"] = milliseconds(v.penalty().fault_stall_ns());
  o["driver_stall_ms"] = milliseconds(v.stall_budget().spent_ns());
  o["forced_ends"] = v.penalty().forced_ends();
  o["back_off"] = back_off(v, now);
  o["session_list"] = session_list(v, now);
  return o;
}

// What a request says of latency, minimum, maximum and group, on top of `share`. True: it says
// some.
Result<bool> read_limits(Daemon& d, RpcParams& p, policy::VgpuShare& share) {
  bool any = false;
  if (auto word = p.text("latency")) {
    any = true;
    if (*word == "low")
      share.latency = policy::LatencyClass::kLow;
    else if (*word == "normal")
      share.latency = policy::LatencyClass::kNormal;
    else if (*word == "batch")
      share.latency = policy::LatencyClass::kBatch;
    else
      return Error{EINVAL, "latency must be low, normal or batch"};
  }
  const auto number = [&](const char* name, uint64_t most, uint32_t& value) {
    if (auto n = p.number(name, 0, most)) any = true, value = static_cast<uint32_t>(*n);
  };
  number("target_p99_us", limits::kMaxTargetUs, share.target_p99_us);
  number("min_permille", policy::kWholePermille, share.min_permille);
  number("max_permille", policy::kWholePermille, share.max_permille);
  if (auto name = p.text("group")) {
    auto id = d.group_id(*name);
    if (!id) return id.error();
    share.group = *id;
    any = true;
  }
  return any;
}

}  // namespace

// "0-2,5"; empty: none, or the GPU is not shared by SMs.
std::string sms_text(const SmSet& sms) {
  std::string text;
  for (SmSet::Range r = sms.next_range(); r.lo < r.hi; r = sms.next_range(r.hi)) {
    text += (text.empty() ? "" : ",") + std::to_string(r.lo);
    if (r.hi - r.lo > 1) text += "-" + std::to_string(r.hi - 1);
  }
  return text;
}

const char* latency_name(policy::LatencyClass c) {
  return c == policy::LatencyClass::kLow     ? "low"
         : c == policy::LatencyClass::kBatch ? "batch"
                                             : "normal";
}

json::value vgpu_list(Daemon& d) {
  json::array rows;
  for (const auto& [name, v] : d.vgpus()) rows.push_back(describe(d, *v));
  return rows;
}

void vgpu_show(Daemon& d, RpcParams& p, const RpcReply& reply) {
  const std::string name = p.required_text("name");
  if (auto bad = p.finish()) return reply.error(*bad);
  VgpuServer* v = d.find(name);
  if (!v) return reply.error(Error{ENOENT, "there is no vGPU '" + name + "'"});
  reply.value(describe_fully(d, d.executor(), *v, monotonic_ns()));
}

void vgpu_create(Daemon& d, RpcParams& p, const RpcReply& reply) {
  Daemon::CreateRequest r;
  r.name = p.required_text("name");
  r.weight =
      static_cast<uint32_t>(p.number("weight", limits::kMinWeight, limits::kMaxWeight).value_or(0));
  r.memory_bytes = p.size("memory_bytes").value_or(0);
  r.priority = static_cast<uint32_t>(
      p.number("priority", limits::kMinPriority, limits::kMaxPriority).value_or(0));
  r.limits.latency = d.config().latency;
  const auto said = read_limits(d, p, r.limits);
  r.socket = p.text("socket").value_or("");
  r.owner = p.text("owner").value_or("");
  r.mode = p.text("mode").value_or("");
  r.slots = static_cast<uint32_t>(p.number("slots", 1, SLUICE_MAX_SLOTS).value_or(0));
  r.region_bytes = p.size("region_bytes").value_or(0);
  const uint64_t b = r.region_bytes;
  if (auto bad = p.finish()) return reply.error(*bad);
  if (b && (b < limits::kMinRegionBytes || b > limits::kMaxRegionBytes || (b & (b - 1))))
    return reply.error(
        RpcError{kRpcInvalidParams, "region_bytes must be a power of two from 32M to 16G"});
  if (!said) return reply.error(said.error());
  if (!r.mode.empty() && r.mode != "strict" && r.mode != "shared")
    return reply.error(Error{EINVAL, "mode must be strict or shared"});
  auto vgpu = d.create(r);
  if (!vgpu) return reply.error(vgpu.error());
  reply.value(describe(d, **vgpu));
}

void vgpu_set(Daemon& d, RpcParams& p, const RpcReply& reply) {
  const std::string name = p.required_text("name");
  auto weight = p.number("weight", limits::kMinWeight, limits::kMaxWeight);
  auto priority = p.number("priority", limits::kMinPriority, limits::kMaxPriority);
  auto memory = p.size("memory_bytes");
  const auto paused = p.number("paused", 0, 1);
  policy::VgpuShare said;
  VgpuServer* v = d.find(name);
  if (v) said = v->spec().share;
  const auto limited = read_limits(d, p, said);
  if (auto bad = p.finish()) return reply.error(*bad);
  if (!v || v->closing()) return reply.error(Error{ENOENT, "there is no vGPU '" + name + "'"});
  if (!limited) return reply.error(limited.error());
  policy::VgpuShare share = said;
  if (weight) share.weight = static_cast<uint32_t>(*weight);
  if (priority) share.priority = static_cast<uint32_t>(*priority);
  if (auto why = d.executor().scheduler().refuses(v->id(), share); !why.empty())
    return reply.error(Error{EINVAL, why});
  if (weight || priority || *limited) v->set_share(share);
  if (memory) v->set_memory_limit(*memory);
  if (paused) v->set_paused(*paused != 0);
  reply.value(describe(d, *v));
}

void vgpu_delete(Daemon& d, RpcParams& p, const RpcReply& reply) {
  const std::string name = p.required_text("name");
  if (auto bad = p.finish()) return reply.error(*bad);
  auto removed = d.remove(name, [reply, name] { reply.value(json::object{{"deleted", name}}); });
  if (!removed) reply.error(removed.error());
}

}  // namespace sluice::rpc
