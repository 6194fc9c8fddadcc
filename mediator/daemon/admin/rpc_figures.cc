// SPDX-License-Identifier: Apache-2.0
// stats, top: what was measured of each vGPU, since its start and over a window.
#include "mediator/daemon/admin/rpc_methods.h"

#include <boost/json/array.hpp>
#include <utility>

#include "mediator/base/clock.h"

namespace sluice::rpc {
namespace {

constexpr uint64_t kDefaultTopWindowMs = 5000;

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

// What each source reports by itself, since the sources in use changed last.
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
          {"own_contended_owed_ns", s.shares.own_entitled_ns},
          {"grants", s.grants},
          {"evictions", s.evictions},
          {"overdue_evictions", s.overdue},
          {"sessions_ended_by_scheduler", s.ended},
          {"faults", v.penalty().faults()},
          {"fault_stall_ms", milliseconds(v.penalty().fault_stall_ns())},
          {"forced_ends", v.penalty().forced_ends()},
          {"report_violations", s.report_violations},
          {"launches", s.guest.launches},
          {"launches_done", s.guest.launches_done},
          {"opaque_launches", s.guest.opaque},
          {"whole_launches", s.guest.whole},
          {"physical_evictions", s.guest.relaunched},
          {"set_changes", s.set_changes},
          {"unasked", s.unasked},
          {"launches_kept", s.guest_narrowed},
          {"second_grids", s.guest_grown},
          {"green_launches", s.guest.green_launches},
          {"part_launches", s.guest.part_launches},
          {"green_contexts", s.guest.green_contexts},
          {"resumes", executor.relaunches(v.id())},
          {"progress", progress(executor.progress(v.id()))},
          {"memory_bytes", v.memory_used_bytes()},
          {"evict_latency_us", latency(executor.eviction_latency(v.id()))}};
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
      {"share_asked", ratio(b.own_entitled_ns - a.own_entitled_ns, all_held)},
      {"share_got", ratio(held, all_held)},
      {"contended_ms", (b.own_contended_ns - a.own_contended_ns) / 1'000'000},
      {"gpu_fraction", ratio(grown(now.usage.used.used_ns, before.usage.used.used_ns), window_ns)},
      {"gpu_fraction_error",
       ratio(grown(now.usage.used.error_ns, before.usage.used.error_ns), window_ns)},
      {"ungranted_ms", grown(now.usage.ungranted_ns, before.usage.ungranted_ns) / 1'000'000},
      {"launches", now.guest.launches - before.guest.launches},
      {"launches_total", now.guest.launches},
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

}  // namespace

// What is queued at its gate and on the GPU, and the length that the policy was given (0: none, or
// it goes by other things).
json::object launches(GrantExecutor& executor, VgpuServer& v, const GrantExecutor::Figures& s) {
  const core::Progress& learnt = executor.learnt(v.id());
  return {{"queued", s.guest_queued},
          {"all", s.guest.launches},
          {"opaque", s.guest.opaque},
          {"whole", s.guest.whole},
          {"progress", progress(executor.progress(v.id()))},
          {"told_ms", static_cast<double>(s.queued_sm_ns) / 1e6 / executor.sm_count()},
          {"kernels_known", learnt.learnt()},
          {"kernels_with_evict_cost", learnt.evicted()}};
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

// `contended_ns` and the vGPUs' `contended_gpu_ns` are about the intervals in which all vGPUs (two
// or more) had work; the `own_` figures about those in which the one and at least one other had.
json::value stats(Daemon& d) {
  json::array rows;
  accounting::LatencyHistogram all;
  for (const auto& [name, v] : d.vgpus()) {
    rows.push_back(counters(d.executor(), *v));
    all.merge(d.executor().eviction_latency(v->id()));
  }
  return json::object{{"now_ns", monotonic_ns()},
                      {"contended_ns", d.executor().all_contended_ns()},
                      {"evict_latency_us", latency(all)},
                      {"device", d.nvidia() ? "nvidia" : "soft"},
                      {"policy", d.executor().policy_name()},
                      {"vgpus", std::move(rows)}};
}

void top(Daemon& d, RpcParams& p, const RpcReply& reply) {
  const uint64_t window_ms = p.number("window_ms", 100, 120'000).value_or(kDefaultTopWindowMs);
  if (auto bad = p.finish()) return reply.error(*bad);
  const GrantExecutor::Sample* then = d.executor().sample_before(window_ms * 1'000'000);
  const uint64_t now = monotonic_ns();
  const uint64_t since = then ? then->at_ns : d.started_ns();
  json::array rows;
  for (const auto& [name, v] : d.vgpus())
    rows.push_back(top_row(d.executor(), *v, then, now - since));
  reply.value(json::object{{"window_ms", (now - since) / 1'000'000},
                           {"policy", d.executor().policy_name()},
                           {"quantum_us", d.executor().quantum_ns() / 1000},
                           {"accounting", d.executor().accounting().source()},
                           {"vgpus", std::move(rows)}});
}

}  // namespace sluice::rpc
