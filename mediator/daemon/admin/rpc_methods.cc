// SPDX-License-Identifier: Apache-2.0
// The methods of the admin socket: what operators ask, out of the Daemon's objects into JSON. Runs
// in sluiced's one thread. docs: `sluicectl --help` mirrors them one to one.
#include <unistd.h>

#include <boost/json/array.hpp>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/daemon/admin/metrics.h"
#include "mediator/daemon/daemon.h"
#include "mediator/io/loop_meter.h"
#include "policies/policy.h"

namespace sluice {

namespace json = boost::json;

namespace {

constexpr uint64_t kDefaultTopWindowMs = 5000;

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

json::object describe(Daemon& d, VgpuServer& v) {
  const VgpuSpec& s = v.spec();
  const policy::ShareFigures kept = d.executor().scheduler().share_figures(v.id());
  return {{"name", s.name},
          {"state", v.closing()         ? "deleting"
                    : v.has_live_peer() ? "connected"
                                        : "waiting"},
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

json::object usage(const GrantExecutor& executor, VgpuServer& v,
                   const GrantExecutor::Figures& figures);
json::object launches(GrantExecutor& executor, VgpuServer& v,
                      const GrantExecutor::Figures& figures);

double milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

// `holds`: programs that ask for a session wait for `opens_in_ms`; `waiting`: so many do, for
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
                            {"silent", v.agent().agent_epoch() != 0 && v.agent().silent(now)}};
  o["memory_by_kind"] = memory_by_kind(v);
  o["sessions_started"] = v.sessions_started();
  o["faults"] = v.penalty().faults();
  o["fault_stall_ms"] = milliseconds(v.penalty().fault_stall_ns());
  o["driver_stall_ms"] = milliseconds(v.stall_budget().spent_ns());
  o["forced_ends"] = v.penalty().forced_ends();
  o["back_off"] = back_off(v, now);
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
  o["session_list"] = std::move(sessions);
  return o;
}

// Microseconds.
json::object latency(const accounting::LatencyHistogram& h) {
  return {{"count", h.count()},
          {"p50", static_cast<double>(h.quantile_ns(0.5)) / 1e3},
          {"p99", static_cast<double>(h.quantile_ns(0.99)) / 1e3},
          {"max", static_cast<double>(h.max_ns()) / 1e3}};
}

// Of launches under way: what their records say, which is hearsay (core/progress.h).
json::object progress(const core::ProgressSums& p) {
  return {{"launches", p.launches},
          {"tasks", p.tasks_total},
          {"tasks_fetched", p.tasks_fetched},
          {"tasks_done", p.tasks_done},
          {"predicted_launches", p.predicted},
          {"remaining_ms", static_cast<double>(p.remaining_ns) / 1e6},
          {"evict_cost_us", static_cast<double>(p.preempt_ns) / 1e3}};
}

// What is queued at its gate and on the GPU, and what the policy was told of it (0: nothing, or it
// goes by other things).
json::object launches(GrantExecutor& executor, VgpuServer& v, const GrantExecutor::Figures& s) {
  const core::Progress& learnt = executor.learnt(v.id());
  return {{"queued", s.guest_queued},
          {"all", s.guest_launches},
          {"opaque", s.guest_opaque},
          {"progress", progress(executor.progress(v.id()))},
          {"told_ms", static_cast<double>(s.queued_sm_ns) / 1e6 / executor.sm_count()},
          {"kernels_known", learnt.learnt()},
          {"kernels_with_evict_cost", learnt.evicted()}};
}

// What each source says by itself, since the sources in use changed last.
json::object by_source(const accounting::UsageMeter::Reading& usage) {
  constexpr const char* kNames[accounting::kSources] = {"clock", "registers", "switch_log",
                                                        "words"};
  json::object o;
  for (size_t i = 0; i < accounting::kSources; ++i)
    if (usage.by[i])
      o[kNames[i]] =
          json::object{{"used_ns", usage.by[i]->used_ns}, {"error_ns", usage.by[i]->error_ns}};
  return o;
}

json::object usage(const GrantExecutor& executor, VgpuServer& v, const GrantExecutor::Figures& s) {
  return {{"source", executor.accounting().source()},
          {"used_ns", s.usage.used.used_ns},
          {"error_ns", s.usage.used.error_ns},
          {"held_ns", s.usage.held_ns},
          {"ungranted_ns", s.usage.ungranted_ns},
          {"charged_sm_ns", s.charged_sm_ns},
          {"refunded_sm_ns", s.refunded_sm_ns},
          {"contradictions", s.usage.contradictions},
          {"words_lie", executor.accounting().words_lie(v.id())},
          {"by", by_source(s.usage)}};
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
          {"meaning",
           "gpu_ns goes by this source, within gpu_error_ns; charged is the time held, less "
           "context switches, "
           "plus use without a grant"},
          {"sources", std::move(sources)}};
}

// Cumulative counters: two of these, subtracted, describe the time between.
json::object counters(GrantExecutor& executor, VgpuServer& v) {
  const GrantExecutor::Figures s = executor.stats(v.id());
  return {{"name", v.spec().name},
          {"weight", s.share.weight},
          {"sessions", s.sessions},
          {"busy", s.busy},
          {"holds", s.holds},
          {"sms", sms_text(s.sms)},
          {"contended", s.contended},
          {"gpu_ns", s.usage.used.used_ns},
          {"gpu_error_ns", s.usage.used.error_ns},
          {"usage", usage(executor, v, s)},
          {"contended_gpu_ns", s.shares.all_gpu_ns},
          {"own_contended_ns", s.shares.own_contended_ns},
          {"own_contended_gpu_ns", s.shares.own_gpu_ns},
          {"own_contended_rivals_gpu_ns", s.shares.own_rivals_gpu_ns},
          {"own_contended_owed_ns", s.shares.own_owed_ns},
          {"grants", s.grants},
          {"evictions", s.evictions},
          {"overdue_evictions", s.overdue},
          {"sessions_ended_by_scheduler", s.ended},
          {"faults", v.penalty().faults()},
          {"fault_stall_ms", milliseconds(v.penalty().fault_stall_ns())},
          {"forced_ends", v.penalty().forced_ends()},
          {"report_violations", s.report_violations},
          {"launches", s.guest_launches},
          {"launches_done", s.guest_launches_done},
          {"opaque_launches", s.guest_opaque},
          {"physical_evictions", s.guest_relaunched},
          {"set_changes", s.set_changes},
          {"launches_kept", s.guest_narrowed},
          {"second_grids", s.guest_grown},
          {"green_launches", s.guest_green_launches},
          {"part_launches", s.guest_part_launches},
          {"green_contexts", s.guest_green_contexts},
          {"resumes", executor.relaunches(v.id())},
          {"progress", progress(executor.progress(v.id()))},
          {"memory_bytes", v.memory_used_bytes()},
          {"evict_latency_us", latency(executor.eviction_latency(v.id()))}};
}

// `contended_ns` and the vGPUs' `contended_gpu_ns` are about the intervals in which all vGPUs (two
// or more) had work; the `own_` figures about those in which the one and at least one other had.
json::object stats(Daemon& d) {
  json::array rows;
  accounting::LatencyHistogram all;
  for (const auto& [name, v] : d.vgpus()) {
    rows.push_back(counters(d.executor(), *v));
    all.merge(d.executor().eviction_latency(v->id()));
  }
  return {{"now_ns", monotonic_ns()},
          {"contended_ns", d.executor().all_contended_ns()},
          {"evict_latency_us", latency(all)},
          {"device", d.nvidia() ? "nvidia" : "soft"},
          {"policy", d.executor().policy_name()},
          {"vgpus", std::move(rows)}};
}

double ratio(uint64_t part, uint64_t whole) {
  return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// Estimates may also fall as more is known.
uint64_t grown(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

// One row of `top`: the window's differences, and what is now.
json::object top_row(GrantExecutor& executor, VgpuServer& v, const GrantExecutor::Sample* then,
                     uint64_t window_ns) {
  const GrantExecutor::Figures now = executor.stats(v.id());
  GrantExecutor::Figures before;
  if (then && v.id() < then->present.size() && then->present[v.id()]) before = then->vgpus[v.id()];
  const auto& a = before.shares;
  const auto& b = now.shares;
  const uint64_t held = b.own_gpu_ns - a.own_gpu_ns;
  const uint64_t all_held = held + (b.own_rivals_gpu_ns - a.own_rivals_gpu_ns);
  return {
      {"name", v.spec().name},
      {"weight", now.share.weight},
      {"share_asked", ratio(b.own_owed_ns - a.own_owed_ns, all_held)},
      {"share_got", ratio(held, all_held)},
      {"contended_ms", (b.own_contended_ns - a.own_contended_ns) / 1'000'000},
      {"gpu_fraction", ratio(grown(now.usage.used.used_ns, before.usage.used.used_ns), window_ns)},
      {"gpu_fraction_error",
       ratio(grown(now.usage.used.error_ns, before.usage.used.error_ns), window_ns)},
      {"ungranted_ms", grown(now.usage.ungranted_ns, before.usage.ungranted_ns) / 1'000'000},
      {"launches", now.guest_launches - before.guest_launches},
      {"launches_total", now.guest_launches},
      {"evictions", now.evictions - before.evictions},
      {"evictions_total", now.evictions},
      {"evict_latency_us", latency(executor.eviction_latency(v.id()))},
      {"faults", v.penalty().faults()},
      {"fault_stall_ms", milliseconds(v.penalty().fault_stall_ns())},
      {"busy", now.busy},
      {"holds", now.holds},
      {"sms", sms_text(now.sms)},
      {"sessions", v.sessions().size()},
      {"memory_used_bytes", v.memory_used_bytes()}};
}

json::object top(Daemon& d, uint64_t window_ms) {
  const GrantExecutor::Sample* then = d.executor().sample_before(window_ms * 1'000'000);
  const uint64_t now = monotonic_ns();
  const uint64_t since = then ? then->at_ns : d.started_ns();
  json::array rows;
  for (const auto& [name, v] : d.vgpus())
    rows.push_back(top_row(d.executor(), *v, then, now - since));
  return {{"window_ms", (now - since) / 1'000'000},
          {"policy", d.executor().policy_name()},
          {"quantum_us", d.executor().quantum_ns() / 1000},
          {"accounting", d.executor().accounting().source()},
          {"vgpus", std::move(rows)}};
}

// The walls around workers that this host does not allow, "WALL: why" each.
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
          {"busiest", stall(f.busiest)}};
}

json::object workers_info(const io::Spawner& s) {
  json::array missing;
  for (const std::string& m : s.missing()) missing.push_back(json::string(m));
  return {{"spawner_pid", s.pid()},
          {"uids", std::to_string(s.uids().first) + "-" + std::to_string(s.uids().last)},
          {"missing_walls", std::move(missing)},
          {"sees_xids", s.sees_xids()},
          {"no_kernel_log", s.no_kernel_log()},
          {"ended_at_start", s.ended_at_start()}};
}

json::object info(Daemon& d) {
  json::object device{{"kind", d.nvidia() ? "nvidia" : "soft"}, {"library", d.library()}};
  if (!d.nvidia()) device["soft_gpu_file"] = d.config().soft_gpu_path();
  device["signal"] =
      worker_protocol::kSignalNames[static_cast<size_t>(d.config().signal_for(d.nvidia()))];
  device["signal_chunk"] = d.config().signal_chunk;
  device["admission_us"] = d.config().admission_us;
  device["window_us"] = d.config().window_us;
  device["chunk_target_us"] = d.config().chunk_target_for(d.nvidia());
  return {{"version", SLUICE_VERSION},
          {"channel_version", SLUICE_CHANNEL_VERSION},
          {"pid", ::getpid()},
          {"uid", ::geteuid()},
          {"capabilities", own_capabilities()},
          {"uptime_ms", (monotonic_ns() - d.started_ns()) / 1'000'000},
          {"device", std::move(device)},
          {"policy", d.executor().policy_name()},
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
          {"vgpus", d.vgpus().size()}};
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

json::object describe_group(const std::string& name, const Daemon::Group& g) {
  return {{"name", name},
          {"parent", g.parent},
          {"weight", g.share.weight},
          {"priority", g.share.priority},
          {"min_permille", g.share.min_permille},
          {"max_permille", g.share.max_permille}};
}

void set_group(Daemon& d, const json::object& params, const RpcReply& reply) {
  RpcParams p(params);
  const std::string name = p.required_text("name");
  const auto known = d.groups().find(name);
  Daemon::Group g = known != d.groups().end() ? known->second : Daemon::Group{};
  if (auto parent = p.text("parent")) g.parent = *parent;
  const auto number = [&](const char* key, uint64_t least, uint64_t most, uint32_t& value) {
    if (auto n = p.number(key, least, most)) value = static_cast<uint32_t>(*n);
  };
  number("weight", limits::kMinWeight, limits::kMaxWeight, g.share.weight);
  number("priority", limits::kMinPriority, limits::kMaxPriority, g.share.priority);
  number("min_permille", 0, policy::kWholePermille, g.share.min_permille);
  number("max_permille", 0, policy::kWholePermille, g.share.max_permille);
  if (auto bad = p.finish()) return reply.error(*bad);
  if (auto set = d.set_group(name, g); !set) return reply.error(set.error());
  reply.value(describe_group(name, d.groups().at(name)));
}

void create(Daemon& d, const json::object& params, const RpcReply& reply) {
  RpcParams p(params);
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
  r.slots = static_cast<uint32_t>(p.number("slots", 1, SLUICE_MAX_SLOTS).value_or(0));
  r.region_bytes = p.size("region_bytes").value_or(0);
  const uint64_t b = r.region_bytes;
  if (auto bad = p.finish()) return reply.error(*bad);
  if (b && (b < limits::kMinRegionBytes || b > limits::kMaxRegionBytes || (b & (b - 1))))
    return reply.error(
        RpcError{kRpcInvalidParams, "region_bytes must be a power of two from 32M to 16G"});
  if (!said) return reply.error(said.error());
  auto vgpu = d.create(r);
  if (!vgpu) return reply.error(vgpu.error());
  reply.value(describe(d, **vgpu));
}

void set(Daemon& d, const json::object& params, const RpcReply& reply) {
  RpcParams p(params);
  const std::string name = p.required_text("name");
  auto weight = p.number("weight", limits::kMinWeight, limits::kMaxWeight);
  auto priority = p.number("priority", limits::kMinPriority, limits::kMaxPriority);
  auto memory = p.size("memory_bytes");
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
  reply.value(describe(d, *v));
}

void events(Daemon& d, const json::object& params, const RpcReply& reply) {
  RpcParams p(params);
  const uint64_t after = p.number("after", 0, UINT64_MAX).value_or(0);
  const uint64_t limit = p.number("limit", 1, limits::kMaxEvents).value_or(limits::kMaxEvents);
  if (auto bad = p.finish()) return reply.error(*bad);
  json::array list;
  const auto& all = d.events().events();
  // The youngest `limit` of those after `after`.
  size_t first = 0;
  while (first < all.size() && (all[first].number <= after || all.size() - first > limit)) ++first;
  for (size_t i = first; i < all.size(); ++i)
    list.push_back({{"number", all[i].number},
                    {"unix_ms", all[i].unix_ms},
                    {"level", log::level_name(all[i].level)},
                    {"text", all[i].text}});
  reply.value(json::object{{"last", d.events().last()}, {"events", std::move(list)}});
}

}  // namespace

void add_rpc_methods(RpcDispatcher& dispatcher, Daemon& d) {
  auto no_params = [](auto make) {
    return [make](const json::object& params, const RpcReply& reply) {
      RpcParams p(params);
      if (auto bad = p.finish()) return reply.error(*bad);
      reply.value(make());
    };
  };
  dispatcher.add("version", no_params([] {
                   return json::object{{"name", "sluiced"},
                                       {"version", SLUICE_VERSION},
                                       {"channel_version", SLUICE_CHANNEL_VERSION}};
                 }));
  dispatcher.add("info", no_params([&d] { return info(d); }));
  dispatcher.add("policies", no_params([&d] {
                   json::array rows;
                   const auto kind = d.config().slices ? policy::PreemptorKind::kProportional
                                                       : policy::PreemptorKind::kExclusive;
                   for (const policy::Registration& r : policy::registry())
                     if (core::Scheduler::runs(r, kind))
                       rows.push_back({{"name", r.name}, {"summary", r.summary}});
                   return rows;
                 }));
  dispatcher.add("group.list", no_params([&d] {
                   json::array rows;
                   for (const auto& [name, g] : d.groups()) rows.push_back(describe_group(name, g));
                   return rows;
                 }));
  dispatcher.add("group.set", [&d](const json::object& params, const RpcReply& reply) {
    set_group(d, params, reply);
  });
  dispatcher.add("vgpu.list", no_params([&d] {
                   json::array rows;
                   for (const auto& [name, v] : d.vgpus()) rows.push_back(describe(d, *v));
                   return rows;
                 }));
  dispatcher.add("stats", no_params([&d] { return stats(d); }));
  dispatcher.add("metrics", no_params([&d] { return json::string(metrics_text(d)); }));
  dispatcher.add("top", [&d](const json::object& params, const RpcReply& reply) {
    RpcParams p(params);
    const uint64_t window_ms = p.number("window_ms", 100, 120'000).value_or(kDefaultTopWindowMs);
    if (auto bad = p.finish()) return reply.error(*bad);
    reply.value(top(d, window_ms));
  });
  dispatcher.add("vgpu.create", [&d](const json::object& params, const RpcReply& reply) {
    create(d, params, reply);
  });
  dispatcher.add("vgpu.set", [&d](const json::object& params, const RpcReply& reply) {
    set(d, params, reply);
  });
  dispatcher.add("vgpu.show", [&d](const json::object& params, const RpcReply& reply) {
    RpcParams p(params);
    const std::string name = p.required_text("name");
    if (auto bad = p.finish()) return reply.error(*bad);
    VgpuServer* v = d.find(name);
    if (!v) return reply.error(Error{ENOENT, "there is no vGPU '" + name + "'"});
    reply.value(describe_fully(d, d.executor(), *v, monotonic_ns()));
  });
  dispatcher.add("vgpu.delete", [&d](const json::object& params, const RpcReply& reply) {
    RpcParams p(params);
    const std::string name = p.required_text("name");
    if (auto bad = p.finish()) return reply.error(*bad);
    auto removed = d.remove(name, [reply, name] { reply.value(json::object{{"deleted", name}}); });
    if (!removed) reply.error(removed.error());
  });
  dispatcher.add("events", [&d](const json::object& params, const RpcReply& reply) {
    events(d, params, reply);
  });
}

}  // namespace sluice
