// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/trace.h"

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <map>

namespace json = boost::json;

namespace sluice::policy::sim {
namespace {

// A trace does not tell where its kernels could have left; tasks of this length are assumed.
constexpr uint64_t kTraceTaskNs = 100'000;

std::string quoted(const std::string& s) { return json::serialize(json::value(s)); }

std::string range(LaunchId l, SmRange sms) {
  return ",\"sms\":[" + std::to_string(sms.lo) + "," + std::to_string(sms.hi) + "]" +
         (l ? ",\"launch\":" + std::to_string(l) : "");
}

}  // namespace

TraceRecorder::TraceRecorder(const Workload& w) {
  const auto name = [](const std::string& n, size_t i) {
    return quoted(n.empty() ? std::to_string(i) : n);
  };
  for (size_t i = 0; i < w.vgpus.size(); ++i) vgpus_.push_back(name(w.vgpus[i].name, i));
  for (size_t i = 0; i < w.programs.size(); ++i) programs_.push_back(name(w.programs[i].name, i));
  for (size_t i = 0; i < w.kernels.size(); ++i) kernels_.push_back(name(w.kernels[i].name, i));
  text_ = "{\"trace\":\"sluice\",\"version\":1,\"sms\":" + std::to_string(w.gpu.sm_count) + "}\n";
}

void TraceRecorder::line(uint64_t now_ns, std::string_view event, VgpuId v,
                         const std::string& rest) {
  if (full_) return;
  if (text_.size() > kMaxTraceBytes) {
    full_ = true;
    return;
  }
  text_ += "{\"t\":" + std::to_string(now_ns) + ",\"event\":\"" + std::string(event) +
           "\",\"vgpu\":" + vgpus_[v] + rest + "}\n";
}
void TraceRecorder::on_busy(uint64_t now_ns, VgpuId v) { line(now_ns, "arrival", v); }
void TraceRecorder::on_idle(uint64_t now_ns, VgpuId v) { line(now_ns, "idle", v); }
void TraceRecorder::on_grant(uint64_t now_ns, VgpuId v, LaunchId l, SmRange sms) {
  line(now_ns, "grant", v, range(l, sms));
}
void TraceRecorder::on_evict(uint64_t now_ns, VgpuId v, LaunchId l, SmRange sms) {
  line(now_ns, "evict", v, range(l, sms));
}
void TraceRecorder::on_left(uint64_t now_ns, VgpuId v, LaunchId l, SmRange sms, LeftReason why) {
  line(now_ns, "left", v,
       range(l, sms) + ",\"why\":\"" +
           (why == LeftReason::kEvicted ? "evicted"
            : why == LeftReason::kIdle  ? "idle"
                                        : "gone") +
           "\"");
}
void TraceRecorder::on_launch(uint64_t now_ns, const Launch& l, uint32_t program, uint32_t kernel) {
  if (l.id >= vgpu_of_launch_.size()) vgpu_of_launch_.resize(l.id + 1, 0);
  vgpu_of_launch_[l.id] = l.vgpu;
  line(now_ns, "launch", l.vgpu,
       ",\"launch\":" + std::to_string(l.id) + ",\"program\":" + programs_[program] +
           ",\"kernel\":" + kernels_[kernel] + ",\"tasks\":" + std::to_string(l.tasks_total));
}
void TraceRecorder::on_done(uint64_t now_ns, LaunchId l) {
  line(now_ns, "done", vgpu_of_launch_[l], ",\"launch\":" + std::to_string(l));
}
void TraceRecorder::on_share(uint64_t now_ns, VgpuId v, const VgpuShare& s) {
  line(now_ns, "share", v,
       ",\"weight\":" + std::to_string(s.weight) + ",\"priority\":" + std::to_string(s.priority));
}

sluice::Result<Workload> parse_trace(std::string_view text) {
  Workload w;
  w.name = "trace";
  w.max_events = kFileEvents;
  struct State {
    bool busy = false;
    uint64_t busy_since = 0;
    uint64_t held = 0;  // SMs
    uint64_t last = 0;
    double sm_ns = 0;  // used in the interval that goes on
  };
  std::map<std::string, VgpuId, std::less<>> ids;
  std::vector<State> states;
  size_t number = 0;
  uint64_t now = 0;
  const auto fail = [&](const std::string& what) {
    return Error{0, "trace, line " + std::to_string(number) + ": " + what};
  };
  const auto settle = [&](State& s) {
    if (s.busy) s.sm_ns += static_cast<double>(now - s.last) * static_cast<double>(s.held);
    s.last = now;
  };
  const auto end_busy = [&](VgpuId v) {
    State& s = states[v];
    settle(s);
    s.busy = false;
    Program& p = w.programs[v];
    const double alone = s.sm_ns / w.gpu.sm_count;
    p.offsets_ns.push_back(s.busy_since);
    p.offset_alone_ns.push_back(
        std::clamp<uint64_t>(static_cast<uint64_t>(std::min(alone, 1e18)), 1, kMaxKernelNs));
    s.sm_ns = 0;
  };
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++number;
    if (line.empty()) continue;
    json::error_code error;
    const json::value value = json::parse(json::string_view(line.data(), line.size()), error);
    if (error) return fail("not JSON: " + error.message());
    if (!value.is_object()) return fail("not a JSON object");
    const json::object& o = value.get_object();
    const auto whole = [&](std::string_view key, uint64_t& out) {
      const json::value* v = o.if_contains(key);
      if (!v || !v->is_int64() || v->get_int64() < 0) return false;
      out = static_cast<uint64_t>(v->get_int64());
      return true;
    };
    const auto text_of = [&](std::string_view key, std::string& out) {
      const json::value* v = o.if_contains(key);
      if (!v || !v->is_string()) return false;
      out.assign(v->get_string().data(), v->get_string().size());
      return true;
    };
    if (number == 1) {
      std::string format;
      uint64_t version = 0, sms = 0;
      if (!text_of("trace", format) || format != "sluice" || !whole("version", version) ||
          version != 1)
        return fail("the first line must be {\"trace\":\"sluice\",\"version\":1,\"sms\":N}");
      if (!whole("sms", sms) || sms == 0 || sms > kMaxSms)
        return fail("'sms' is missing or out of range");
      w.gpu.sm_count = static_cast<uint32_t>(sms);
      Kernel k;
      k.name = "traced";
      k.tasks = 1'000'000;
      k.task_ns = kTraceTaskNs;
      w.kernels.push_back(k);
      continue;
    }
    uint64_t t = 0;
    std::string event, name;
    if (!whole("t", t) || t > kMaxTimeNs) return fail("'t' is missing or not a time in ns");
    if (t < now) return fail("time goes backwards");
    now = t;
    if (!text_of("event", event) || !text_of("vgpu", name))
      return fail("'event' or 'vgpu' is missing");
    auto it = ids.find(name);
    const bool first = it == ids.end();
    if (first) {
      if (ids.size() >= kMaxVgpus) return fail("too many vGPUs");
      it = ids.emplace(name, static_cast<VgpuId>(ids.size())).first;
      states.emplace_back();
      w.vgpus.push_back({name, {}, {}});
      Program p;
      p.name = name;
      p.vgpu = it->second;
      p.steps = {{.kernel = 0}};
      p.arrival = ArrivalKind::kOffsets;
      w.programs.push_back(p);
    }
    const VgpuId v = it->second;
    State& s = states[v];
    if (event == "share") {
      uint64_t weight = 0, priority = 0;
      if (!whole("weight", weight) || weight < 1 || weight > kMaxWeight)
        return fail("'weight' is out of range");
      if (!whole("priority", priority) || priority >= kPriorityLevels)
        return fail("'priority' is out of range");
      const VgpuShare share{static_cast<uint32_t>(weight), static_cast<uint32_t>(priority)};
      if (now == 0 || first)
        w.vgpus[v].share = share;
      else
        w.vgpus[v].changes.push_back({now, share});
    } else if (event == "arrival") {
      if (s.busy) return fail("arrival at a vGPU that has work");
      s.busy = true;
      s.busy_since = s.last = now;
    } else if (event == "idle") {
      if (!s.busy) return fail("a vGPU without work turns idle");
      end_busy(v);
    } else if (event == "grant" || event == "left") {
      const json::value* sms = o.if_contains("sms");
      uint64_t count = w.gpu.sm_count;
      if (sms) {
        if (!sms->is_array() || sms->get_array().size() != 2 || !sms->get_array()[0].is_int64() ||
            !sms->get_array()[1].is_int64())
          return fail("'sms' must be [lo, hi]");
        const int64_t lo = sms->get_array()[0].get_int64(), hi = sms->get_array()[1].get_int64();
        if (lo < 0 || hi <= lo || hi > static_cast<int64_t>(w.gpu.sm_count))
          return fail("'sms' is out of range");
        count = static_cast<uint64_t>(hi - lo);
      }
      settle(s);
      if (event == "grant") {
        if (s.held + count > w.gpu.sm_count) return fail("more SMs granted than there are");
        s.held += count;
      } else {
        if (count > s.held) return fail("more SMs left than were granted");
        s.held -= count;
      }
    } else if (event != "evict" && event != "launch" && event != "done" && event != "slice" &&
               event != "used") {
      return fail("unknown event '" + event.substr(0, 40) + "'");
    }
  }
  if (number == 0) return fail("empty");
  for (VgpuId v = 0; v < states.size(); ++v)
    if (states[v].busy) end_busy(v);
  if (const std::string wrong = check_workload(w); !wrong.empty())
    return Error{0, "trace: " + wrong};
  return w;
}

}  // namespace sluice::policy::sim
