// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/files/trace.h"

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <map>

namespace json = boost::json;

namespace sluice::policy::sim {
namespace {

// A trace does not say where its kernels could have left: tasks of this length are assumed.
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

namespace {

// One line of a trace: a JSON object.
class Line {
 public:
  // What is wrong with it, or nothing.
  std::string parse(std::string_view text) {
    json::error_code error;
    value_ = json::parse(json::string_view(text.data(), text.size()), error);
    if (error) return "not JSON: " + error.message();
    return value_.is_object() ? "" : "not a JSON object";
  }
  const json::value* find(std::string_view key) const {
    return value_.get_object().if_contains(key);
  }
  bool whole(std::string_view key, uint64_t& out) const {
    const json::value* v = find(key);
    if (!v || !v->is_int64() || v->get_int64() < 0) return false;
    out = static_cast<uint64_t>(v->get_int64());
    return true;
  }
  bool text(std::string_view key, std::string& out) const {
    const json::value* v = find(key);
    if (!v || !v->is_string()) return false;
    out.assign(v->get_string().data(), v->get_string().size());
    return true;
  }

 private:
  json::value value_;
};

// Makes a workload of a trace: a program for each vGPU, whose runs are its busy intervals. Each
// step returns what is wrong, or nothing.
class TraceReader {
 public:
  TraceReader() {
    workload_.name = "trace";
    workload_.max_events = kFileEvents;
  }

  std::string header(const Line& line) {
    std::string format;
    uint64_t version = 0, sms = 0;
    if (!line.text("trace", format) || format != "sluice" || !line.whole("version", version) ||
        version != 1)
      return "the first line must be {\"trace\":\"sluice\",\"version\":1,\"sms\":N}";
    if (!line.whole("sms", sms) || sms == 0 || sms > kMaxSms)
      return "'sms' is missing or out of range";
    workload_.gpu.sm_count = static_cast<uint32_t>(sms);
    Kernel k;
    k.name = "traced";
    k.tasks = 1'000'000;
    k.task_ns = kTraceTaskNs;
    workload_.kernels.push_back(k);
    return {};
  }

  std::string event(const Line& line) {
    uint64_t t = 0;
    std::string event, name;
    if (!line.whole("t", t) || t > kMaxTimeNs) return "'t' is missing or not a time in ns";
    if (t < now_) return "time goes backwards";
    now_ = t;
    if (!line.text("event", event) || !line.text("vgpu", name))
      return "'event' or 'vgpu' is missing";
    const bool first = !ids_.contains(name);
    if (first && ids_.size() >= kMaxVgpus) return "too many vGPUs";
    if (first) add_vgpu(name);
    const VgpuId v = ids_.find(name)->second;
    if (event == "share") return share(line, v, first);
    if (event == "arrival") return arrival(states_[v]);
    if (event == "idle") return idle(v);
    if (event == "grant" || event == "left") return sms(line, states_[v], event == "grant");
    for (const char* known : {"evict", "launch", "done", "slice", "used"})
      if (event == known) return {};
    return "unknown event '" + event.substr(0, 40) + "'";
  }

  Workload take() {
    for (VgpuId v = 0; v < states_.size(); ++v)
      if (states_[v].busy) end_busy(v);
    return std::move(workload_);
  }

 private:
  struct State {
    bool busy = false;
    uint64_t busy_since = 0;
    uint64_t held = 0;  // SMs
    uint64_t last = 0;
    double sm_ns = 0;  // used in the interval that goes on
  };

  void add_vgpu(const std::string& name) {
    const auto v = static_cast<VgpuId>(ids_.size());
    ids_.emplace(name, v);
    states_.emplace_back();
    workload_.vgpus.push_back({name, {}, {}});
    Program p;
    p.name = name;
    p.vgpu = v;
    p.steps = {{.kernel = 0}};
    p.arrival = ArrivalKind::kOffsets;
    workload_.programs.push_back(p);
  }

  std::string share(const Line& line, VgpuId v, bool first) {
    uint64_t weight = 0, priority = 0;
    if (!line.whole("weight", weight) || weight < 1 || weight > kMaxWeight)
      return "'weight' is out of range";
    if (!line.whole("priority", priority) || priority >= kPriorityLevels)
      return "'priority' is out of range";
    const VgpuShare share{static_cast<uint32_t>(weight), static_cast<uint32_t>(priority)};
    if (now_ == 0 || first)
      workload_.vgpus[v].share = share;
    else
      workload_.vgpus[v].changes.push_back({now_, share});
    return {};
  }

  std::string arrival(State& s) {
    if (s.busy) return "arrival at a vGPU that has work";
    s.busy = true;
    s.busy_since = s.last = now_;
    return {};
  }

  std::string idle(VgpuId v) {
    if (!states_[v].busy) return "a vGPU without work turns idle";
    end_busy(v);
    return {};
  }

  std::string sms(const Line& line, State& s, bool grant) {
    const uint64_t all = workload_.gpu.sm_count;
    uint64_t count = all;
    if (const json::value* sms = line.find("sms")) {
      if (!sms->is_array() || sms->get_array().size() != 2 || !sms->get_array()[0].is_int64() ||
          !sms->get_array()[1].is_int64())
        return "'sms' must be [lo, hi]";
      const int64_t lo = sms->get_array()[0].get_int64(), hi = sms->get_array()[1].get_int64();
      if (lo < 0 || hi <= lo || hi > static_cast<int64_t>(all)) return "'sms' is out of range";
      count = static_cast<uint64_t>(hi - lo);
    }
    settle(s);
    if (grant && s.held + count > all) return "more SMs granted than there are";
    if (!grant && count > s.held) return "more SMs left than were granted";
    s.held = grant ? s.held + count : s.held - count;
    return {};
  }

  // Counts what was used since the last event.
  void settle(State& s) {
    if (s.busy) s.sm_ns += static_cast<double>(now_ - s.last) * static_cast<double>(s.held);
    s.last = now_;
  }

  void end_busy(VgpuId v) {
    State& s = states_[v];
    settle(s);
    s.busy = false;
    Program& p = workload_.programs[v];
    const double alone = s.sm_ns / workload_.gpu.sm_count;
    p.offsets_ns.push_back(s.busy_since);
    p.offset_alone_ns.push_back(
        std::clamp<uint64_t>(static_cast<uint64_t>(std::min(alone, 1e18)), 1, kMaxKernelNs));
    s.sm_ns = 0;
  }

  Workload workload_;
  std::map<std::string, VgpuId, std::less<>> ids_;
  std::vector<State> states_;
  uint64_t now_ = 0;
};

}  // namespace

sluice::Result<Workload> parse_trace(std::string_view text) {
  TraceReader reader;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++number;
    if (part.empty()) continue;
    Line line;
    std::string wrong = line.parse(part);
    if (wrong.empty()) wrong = number == 1 ? reader.header(line) : reader.event(line);
    if (!wrong.empty()) return Error{0, "trace, line " + std::to_string(number) + ": " + wrong};
  }
  if (number == 0) return Error{0, "trace, line 0: empty"};
  Workload w = reader.take();
  if (const std::string wrong = check_workload(w); !wrong.empty())
    return Error{0, "trace: " + wrong};
  return w;
}

}  // namespace sluice::policy::sim
