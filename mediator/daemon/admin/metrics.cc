// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/admin/metrics.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/daemon/daemon.h"

namespace sluice {
namespace {

std::string seconds(uint64_t ns) {
  return fmt::format("{}.{:09}", ns / 1'000'000'000, ns % 1'000'000'000);
}

std::string quoted(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

// What is known of a vGPU at the time of asking.
struct Row {
  std::string label;  // vgpu="NAME"
  VgpuServer* vgpu = nullptr;
  GrantExecutor::Figures figures;
  core::ProgressSums progress;
  const accounting::LatencyHistogram* latency = nullptr;
};

class Writer {
 public:
  void family(const char* name, const char* type, const char* help) {
    name_ = std::string("sluice_") + name;
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name_, help, name_,
                   type);
  }
  void sample(const std::string& labels, const std::string& value, const char* suffix = "") {
    fmt::format_to(std::back_inserter(text_), "{}{}{}{}{} {}\n", name_, suffix,
                   labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}", value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_, name_;
};

struct Family {
  const char* name;
  const char* type;
  const char* help;
  std::string (*value)(const Row&);
};
std::string number(uint64_t n) { return std::to_string(n); }

// One row for each metric of a vGPU, but the latencies.
constexpr Family kFamilies[] = {
    {"vgpu_weight", "gauge", "Its weight.",
     [](const Row& r) { return number(r.figures.share.weight); }},
    {"vgpu_priority", "gauge", "Its priority.",
     [](const Row& r) { return number(r.figures.share.priority); }},
    {"vgpu_min_permille", "gauge", "Part of the GPU that is reserved for it; 0: none.",
     [](const Row& r) { return number(r.figures.share.min_permille); }},
    {"vgpu_max_permille", "gauge", "Part of the GPU that it may have; 0: no cap.",
     [](const Row& r) { return number(r.figures.share.max_permille); }},
    {"vgpu_served_in_time_total", "counter", "Waits within its target of latency.",
     [](const Row& r) { return number(r.figures.kept.in_time); }},
    {"vgpu_served_late_total", "counter", "Waits beyond its target of latency.",
     [](const Row& r) { return number(r.figures.kept.late); }},
    {"vgpu_throttled_total", "counter", "Times that its cap stopped it.",
     [](const Row& r) { return number(r.figures.kept.throttled); }},
    {"vgpu_reserved_total", "counter", "Times that its minimum put it before higher priorities.",
     [](const Row& r) { return number(r.figures.kept.reserved); }},
    {"vgpu_sessions", "gauge", "Guest processes that use it.",
     [](const Row& r) { return number(r.figures.sessions); }},
    {"vgpu_busy", "gauge", "1: it has work queued or running.",
     [](const Row& r) { return number(r.figures.busy); }},
    {"vgpu_holds", "gauge", "1: it holds the GPU, or SMs of it.",
     [](const Row& r) { return number(r.figures.holds); }},
    {"vgpu_sms", "gauge", "SMs that it holds where the GPU is shared in space.",
     [](const Row& r) { return number(r.figures.sms.count()); }},
    {"vgpu_gpu_held_seconds_total", "counter",
     "Time for which it held the GPU and had work, by sluiced's clock (in space by SMs).",
     [](const Row& r) { return seconds(r.figures.gpu_ns); }},
    {"vgpu_gpu_used_seconds", "gauge",
     "Time for which it used the GPU, by all sources; may fall as more is known.",
     [](const Row& r) { return seconds(r.figures.usage.used.used_ns); }},
    {"vgpu_gpu_used_error_seconds", "gauge", "The truth is within this of vgpu_gpu_used_seconds.",
     [](const Row& r) { return seconds(r.figures.usage.used.error_ns); }},
    {"vgpu_gpu_ungranted_seconds", "gauge",
     "Time for which it was seen on the GPU without a grant.",
     [](const Row& r) { return seconds(r.figures.usage.ungranted_ns); }},
    {"vgpu_contended_seconds_total", "counter", "Time in which it and at least one other had work.",
     [](const Row& r) { return seconds(r.figures.shares.own_contended_ns); }},
    {"vgpu_contended_gpu_seconds_total", "counter", "GPU time that it had in that time.",
     [](const Row& r) { return seconds(r.figures.shares.own_gpu_ns); }},
    {"vgpu_contended_owed_seconds_total", "counter",
     "GPU time that weights, groups, minima and maxima entitled it to in that time.",
     [](const Row& r) { return seconds(r.figures.shares.own_entitled_ns); }},
    {"vgpu_grants_total", "counter", "Times that it was given the GPU.",
     [](const Row& r) { return number(r.figures.grants); }},
    {"vgpu_evictions_total", "counter", "Times that the GPU was taken from it while work remained.",
     [](const Row& r) { return number(r.figures.evictions); }},
    {"vgpu_overdue_evictions_total", "counter",
     "Evictions that took longer than deadlines.evict_warn_ms.",
     [](const Row& r) { return number(r.figures.overdue); }},
    {"vgpu_sessions_ended_total", "counter", "Sessions that were ended for not leaving the GPU.",
     [](const Row& r) { return number(r.figures.ended); }},
    {"vgpu_faults_total", "counter", "Kernels of it that faulted, by session.",
     [](const Row& r) { return number(r.vgpu->penalty().faults()); }},
    {"vgpu_fault_stall_seconds_total", "counter",
     "For how long these have stopped the GPU for all.",
     [](const Row& r) { return seconds(r.vgpu->penalty().fault_stall_ns()); }},
    {"vgpu_forced_ends_total", "counter",
     "Sessions that did not leave, broke the protocol, or whose worker died.",
     [](const Row& r) { return number(r.vgpu->penalty().forced_ends()); }},
    {"vgpu_back_off_seconds", "gauge",
     "For how long programs that ask for a session now wait; 0: not at all.",
     [](const Row& r) { return seconds(r.vgpu->back_off_ns()); }},
    {"vgpu_report_violations_total", "counter", "Reports of its workers that cannot be.",
     [](const Row& r) { return number(r.figures.report_violations); }},
    {"vgpu_launches_queued", "gauge", "Launches that are not done, as its workers report.",
     [](const Row& r) { return number(r.figures.guest_queued); }},
    {"vgpu_launches_predicted", "gauge", "Of these, launches whose length is predicted.",
     [](const Row& r) { return number(r.progress.predicted); }},
    {"vgpu_launches_predicted_seconds", "gauge", "What is predicted that these will still run.",
     [](const Row& r) { return seconds(r.progress.remaining_ns); }},
    {"vgpu_launches_total", "counter", "Launches that its workers report.",
     [](const Row& r) { return number(r.figures.guest.launches); }},
    {"vgpu_launches_done_total", "counter", "Launches that its workers report as done.",
     [](const Row& r) { return number(r.figures.guest.launches_done); }},
    {"vgpu_memory_bytes", "gauge", "Device memory that its programs have.",
     [](const Row& r) { return number(r.vgpu->memory_used_bytes()); }},
    {"vgpu_memory_limit_bytes", "gauge", "Device memory that they may have; 0: no limit.",
     [](const Row& r) { return number(r.vgpu->spec().memory_bytes); }},
};

}  // namespace

std::string metrics_text(Daemon& d) {
  std::vector<Row> rows;
  for (const auto& [name, v] : d.vgpus())
    rows.push_back({.label = "vgpu=" + quoted(name),
                    .vgpu = v.get(),
                    .figures = d.executor().stats(v->id()),
                    .progress = d.executor().progress(v->id()),
                    .latency = &d.executor().eviction_latency(v->id())});
  Writer w;
  w.family("info", "gauge", "Always 1; what sluiced is and goes by.");
  w.sample(fmt::format("version={},device={},policy={},accounting={}", quoted(SLUICE_VERSION),
                       quoted(d.nvidia() ? "nvidia" : "soft"), quoted(d.executor().policy_name()),
                       quoted(d.executor().accounting().source())),
           "1");
  w.family("uptime_seconds", "gauge", "Since sluiced was started.");
  w.sample("", seconds(monotonic_ns() - d.started_ns()));
  w.family("quantum_seconds", "gauge", "The policy's quantum now.");
  w.sample("", seconds(d.executor().quantum_ns()));
  w.family("contended_seconds_total", "counter", "Time in which all vGPUs, two or more, had work.");
  w.sample("", seconds(d.executor().all_contended_ns()));
  for (const Family& f : kFamilies) {
    w.family(f.name, f.type, f.help);
    for (const Row& r : rows) w.sample(r.label, f.value(r));
  }
  w.family("vgpu_eviction_seconds", "summary",
           "From telling it to leave the GPU until it had left, with work in flight.");
  for (const Row& r : rows) {
    for (const double q : {0.5, 0.99, 1.0})
      w.sample(fmt::format("{},quantile=\"{}\"", r.label, q), seconds(r.latency->quantile_ns(q)));
    w.sample(r.label, seconds(r.latency->sum_ns()), "_sum");
    w.sample(r.label, number(r.latency->count()), "_count");
  }
  return w.take();
}

}  // namespace sluice
