// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/commands.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

#include <boost/json/serialize.hpp>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>

#include "mediator/cli/answer.h"
#include "mediator/cli/domain_list.h"
#include "mediator/cli/domain_request.h"
#include "mediator/cli/table.h"
#include "mediator/cli/waiting.h"
#include "mediator/core/domain_xml.h"
#include "mediator/libvirt/api/domains.h"

namespace sluice::cli {

namespace json = boost::json;

namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }
void print_json(const json::value& value) { print(json::serialize(value) + "\n"); }

Result<std::string> read_file(const std::string& path) {
  std::unique_ptr<FILE, int (*)(FILE*)> f(
      path == "-" ? ::fdopen(::dup(0), "r") : std::fopen(path.c_str(), "re"), &std::fclose);
  if (!f) return Error::from_errno("open " + path);
  std::string content;
  char buffer[65536];
  while (size_t n = std::fread(buffer, 1, sizeof buffer, f.get())) {
    content.append(buffer, n);
    if (content.size() > (8u << 20)) return Error{E2BIG, path + " has more than 8 MiB"};
  }
  if (std::ferror(f.get())) return Error::from_errno("read " + path);
  return content;
}

// `domains`: null, or a vGPU's name and its domain's.
std::string vgpu_table(const json::array& rows,
                       const std::map<std::string, std::string>* domains = nullptr) {
  std::vector<Column> columns = {{"NAME"},          {"STATE"},        {"WEIGHT", true},
                                 {"PRIO", true},    {"MEMORY", true}, {"USED", true},
                                 {"SESSIONS", true}};
  if (domains) columns.push_back({"DOMAIN"});
  columns.push_back({"SOCKET"});
  std::vector<std::vector<std::string>> cells;
  for (const json::value& v : rows) {
    auto& row = cells.emplace_back(std::vector<std::string>{
        text(v, "name"), text(v, "state"), text(v, "weight"), text(v, "priority"),
        format_bytes(count(v, "memory_bytes"), "none"), format_bytes(count(v, "memory_used_bytes")),
        fmt::format("{}/{}", text(v, "sessions"), text(v, "slots"))});
    if (domains) {
      const auto domain = domains->find(text(v, "name"));
      row.push_back(domain == domains->end() ? "-" : domain->second);
    }
    row.push_back(text(v, "socket"));
  }
  return format_table(columns, cells);
}

std::string top_table(const json::value& top) {
  std::vector<std::vector<std::string>> cells;
  const json::value* vgpus = field(top, "vgpus");
  static const json::value kNone;
  for (const json::value& v : rows_of(vgpus ? *vgpus : kNone)) {
    const json::value* l = field(v, "evict_latency_us");
    const json::value& latency = l ? *l : kNone;
    const bool contended = count(v, "contended_ms") > 0;
    auto share = [&](const char* name) {
      return contended ? fmt::format("{:.1f}%", number(v, name) * 100) : std::string("-");
    };
    auto us = [&](const char* name) {
      return count(latency, "count") ? fmt::format("{:.0f}", number(latency, name))
                                     : std::string("-");
    };
    cells.push_back({text(v, "name"), text(v, "weight"), share("share_asked"), share("share_got"),
                     fmt::format("{:.1f}%", number(v, "gpu_fraction") * 100),
                     fmt::format("{:.1f}s", number(v, "contended_ms") / 1000), text(v, "launches"),
                     text(v, "evictions"), text(v, "evictions_total"), us("p50"), us("p99"),
                     text(v, "sessions"), format_bytes(count(v, "memory_used_bytes")),
                     !text(v, "sms").empty() ? "SM " + text(v, "sms")
                     : truth(v, "holds")     ? "gpu"
                     : truth(v, "busy")      ? "waits"
                                             : "idle"});
  }
  return fmt::format("policy {}, quantum {} us, last {:.1f} s\n", text(top, "policy"),
                     text(top, "quantum_us"), number(top, "window_ms") / 1000) +
         format_table({{"NAME"},
                       {"WEIGHT", true},
                       {"ASKED", true},
                       {"GOT", true},
                       {"GPU", true},
                       {"CONTENDED", true},
                       {"LAUNCHES", true},
                       {"EVICTED", true},
                       {"TOTAL", true},
                       {"P50us", true},
                       {"P99us", true},
                       {"SESS", true},
                       {"MEM", true},
                       {"NOW"}},
                      cells);
}

std::string event_line(const json::value& e) {
  const uint64_t ms = count(e, "unix_ms");
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03} {:7} {}\n", fmt::localtime(seconds), ms % 1000,
                     text(e, "level"), text(e, "text"));
}

void print_one(const json::value& vgpu) { print(vgpu_table(json::array{vgpu})); }

Result<void> print_answer(Result<json::value> answer, bool as_json,
                          void (*print_text)(const json::value&)) {
  if (!answer) return answer.error();
  if (as_json)
    print_json(*answer);
  else
    print_text(*answer);
  return {};
}

int64_t permille(double percent) { return std::llround(percent * 10); }
void add_limits(json::object& params, const LimitOptions& o) {
  if (o.latency) params["latency"] = *o.latency;
  if (o.target_p99_us) params["target_p99_us"] = *o.target_p99_us;
  if (o.min) params["min_permille"] = permille(*o.min);
  if (o.max) params["max_permille"] = permille(*o.max);
  if (o.group) params["group"] = *o.group;
}
std::string percent_or_none(const json::value& v, const char* name) {
  return count(v, name) ? fmt::format("{:.1f}%", static_cast<double>(count(v, name)) / 10) : "none";
}
void print_groups(const json::array& rows) {
  std::vector<std::vector<std::string>> cells;
  for (const json::value& v : rows)
    cells.push_back({text(v, "name"), text(v, "parent"), text(v, "weight"), text(v, "priority"),
                     percent_or_none(v, "min_permille"), percent_or_none(v, "max_permille")});
  print(format_table(
      {{"GROUP"}, {"IN"}, {"WEIGHT", true}, {"PRIO", true}, {"MIN", true}, {"MAX", true}}, cells));
}
}  // namespace

Result<void> set_group(AdminClient& client, const GroupOptions& o, bool as_json) {
  json::object params{{"name", o.name}};
  if (o.parent) params["parent"] = *o.parent;
  if (o.weight) params["weight"] = *o.weight;
  if (o.priority) params["priority"] = *o.priority;
  if (o.min) params["min_permille"] = permille(*o.min);
  if (o.max) params["max_permille"] = permille(*o.max);
  return print_answer(client.call("group.set", std::move(params)), as_json,
                      [](const json::value& v) { print_groups({v}); });
}

Result<void> groups(AdminClient& client, bool as_json) {
  return print_answer(client.call("group.list"), as_json,
                      [](const json::value& v) { print_groups(rows_of(v)); });
}

Result<void> create(AdminClient& client, const CreateOptions& o, bool as_json) {
  json::object params;
  if (!o.domain_xml.empty()) {
    auto xml = read_file(o.domain_xml);
    if (!xml) return xml.error();
    auto domain = parse_domain_xml(*xml);
    if (!domain) return Error(domain.error()).with_context(o.domain_xml);
    params = create_request(*domain);
  }
  // The command line goes before the XML.
  if (!o.name.empty()) params["name"] = o.name;
  if (o.weight) params["weight"] = *o.weight;
  if (o.memory) params["memory_bytes"] = *o.memory;
  if (o.mode) params["mode"] = *o.mode;
  if (o.priority) params["priority"] = *o.priority;
  add_limits(params, o.limits);
  if (o.socket) params["socket"] = *o.socket;
  if (o.slots) params["slots"] = *o.slots;
  if (o.region) params["region_bytes"] = *o.region;
  return print_answer(client.call("vgpu.create", std::move(params)), as_json, print_one);
}

Result<void> remove(AdminClient& client, const std::string& name, bool as_json) {
  return print_answer(client.call("vgpu.delete", {{"name", name}}), as_json,
                      [](const json::value& v) { print(text(v, "deleted") + " deleted\n"); });
}

namespace {
// libvirt's domains beside `vgpus`.
Result<DomainList> domains_beside(AdminClient& client, const json::value& vgpus,
                                  const std::string& uri) {
  auto info = client.call("info");
  if (!info) return info.error();
  const Waiting waiting(kLibvirtAwaited);
  auto domains = libvirt::list_domains(uri);
  if (!domains) return domains.error();
  return match_domains(rows_of(vgpus), *domains, text(*info, "runtime_dir") + "/vgpu");
}
}  // namespace

Result<void> list(AdminClient& client, const ListOptions& o, bool as_json) {
  auto vgpus = client.call("vgpu.list");
  if (!vgpus) return vgpus.error();
  if (!o.domains && (o.vgpus || as_json)) {
    as_json ? print_json(*vgpus) : print(vgpu_table(rows_of(*vgpus)));
    return {};
  }
  auto domains = domains_beside(client, *vgpus, o.uri);
  if (o.domains) {
    if (!domains) return domains.error();
    as_json ? print_json(domains_as_json(*domains)) : print(domain_table(*domains));
    return {};
  }
  print(vgpu_table(rows_of(*vgpus), domains ? &domains->by_vgpu : nullptr));
  if (domains && !domains->domains.empty()) print("\n" + domain_table(*domains));
  // ENOENT: there is no libvirt here, and so there are no domains.
  if (!domains && domains.error().code != ENOENT)
    std::fprintf(stderr, "sluicectl: domains are not shown: %s\n", domains.error().message.c_str());
  return {};
}

Result<void> set(AdminClient& client, const SetOptions& o, bool as_json) {
  json::object params{{"name", o.name}};
  if (o.weight) params["weight"] = *o.weight;
  if (o.memory) params["memory_bytes"] = *o.memory;
  if (o.priority) params["priority"] = *o.priority;
  add_limits(params, o.limits);
  return print_answer(client.call("vgpu.set", std::move(params)), as_json, print_one);
}

namespace {

void print_limits(const json::value& v) {
  print(fmt::format("latency {}, minimum {}, maximum {}, group {}\n", text(v, "latency"),
                    percent_or_none(v, "min_permille"), percent_or_none(v, "max_permille"),
                    text(v, "group").empty() ? "none" : text(v, "group")));
  if (count(v, "target_p99_us"))
    print(fmt::format("target {} us: {} waits within it, {} beyond\n", count(v, "target_p99_us"),
                      count(v, "served_in_time"), count(v, "served_late")));
}

void print_channel(const json::value& v) {
  if (const json::value* region = field(v, "region"))
    print(fmt::format("local socket {}\nregion {}, {} of {} in use\nsessions started {}\n",
                      text(v, "local_socket"), format_bytes(count(*region, "bytes")),
                      format_bytes(count(*region, "extent_bytes_used")),
                      format_bytes(count(*region, "extent_bytes")), text(v, "sessions_started")));
  if (const json::value* agent = field(v, "agent")) {
    const std::string release = text(*agent, "release");
    const char* state = count(*agent, "epoch") == 0 ? "not seen"
                        : truth(*agent, "silent")   ? "silent"
                                                    : "on";
    print(fmt::format("guest agent {}{}\n", state, release.empty() ? "" : ", release " + release));
  }
}

void print_launches(const json::value& v) {
  const std::string sms = text(v, "sms");
  print(fmt::format("GPU {}\n", !sms.empty()        ? "SM " + sms
                                : truth(v, "holds") ? "holds it"
                                : truth(v, "busy")  ? "waits for it"
                                                    : "idle"));
  const json::value* l = field(v, "launches");
  if (!l) return;
  static const json::value kNone;
  const json::value* p = field(*l, "progress");
  const json::value& progress = p ? *p : kNone;
  print(fmt::format(
      "launches queued {}, {} of them predicted to run {:.1f} ms more\n"
      "launches so far {}, {} of them opaque{}{}\n"
      "kernels known {}, {} of them by the cost of an eviction\n",
      text(*l, "queued"), text(progress, "predicted_launches"), number(progress, "remaining_ms"),
      text(*l, "all"), text(*l, "opaque"),
      count(*l, "whole") == 0
          ? ""
          : fmt::format(" ({} only because they were on the GPU at once, or are short)",
                        text(*l, "whole")),
      count(*l, "opaque") == count(*l, "whole")
          ? ""
          : ": not evictable; in the guest sluice-agent kernels PROGRAM says which and why",
      text(*l, "kernels_known"), text(*l, "kernels_with_evict_cost")));
}

void print_sessions(const json::value& v) {
  const json::value* sessions = field(v, "session_list");
  if (!sessions || rows_of(*sessions).empty()) return;
  std::vector<std::vector<std::string>> cells;
  for (const json::value& s : rows_of(*sessions))
    cells.push_back({text(s, "slot"), text(s, "program"), text(s, "origin"), text(s, "pid"),
                     text(s, "worker_pid"), text(s, "state"),
                     format_bytes(count(s, "memory_bytes")), format_bytes(count(s, "extent_bytes")),
                     fmt::format("{:.0f}s", number(s, "age_ms") / 1000)});
  print("\n");
  print(format_table({{"SLOT", true},
                      {"PROGRAM"},
                      {"FROM"},
                      {"PID", true},
                      {"WORKER", true},
                      {"STATE"},
                      {"MEMORY", true},
                      {"SHARED", true},
                      {"AGE", true}},
                     cells));
}

}  // namespace

Result<void> show(AdminClient& client, const std::string& name, bool as_json) {
  return print_answer(client.call("vgpu.show", {{"name", name}}), as_json,
                      [](const json::value& v) {
                        print_one(v);
                        print_limits(v);
                        print_channel(v);
                        print_launches(v);
                        print_sessions(v);
                      });
}

Result<void> top(AdminClient& client, double interval_s, uint64_t rounds, bool as_json) {
  const bool screen = ::isatty(1) && !as_json;
  const uint64_t window_ms =
      std::clamp<uint64_t>(static_cast<uint64_t>(interval_s * 1000), 1000, 120'000);
  for (uint64_t i = 0; rounds == 0 || i < rounds; ++i) {
    if (i) ::usleep(static_cast<useconds_t>(interval_s * 1e6));
    auto answer = client.call("top", {{"window_ms", window_ms}});
    if (!answer) return answer.error();
    if (as_json) {
      print_json(*answer);
    } else {
      if (screen) print("\033[H\033[2J");
      print(top_table(*answer));
    }
    if (auto written = all_written(); !written) return written;
  }
  return {};
}

Result<void> events(AdminClient& client, bool follow, uint64_t limit, bool as_json) {
  uint64_t after = 0;
  for (bool first = true;; first = false) {
    json::object params{{"after", after}};
    if (first) params["limit"] = limit;
    auto answer = client.call("events", std::move(params));
    if (!answer) return answer.error();
    after = count(*answer, "last");
    const json::value* list = field(*answer, "events");
    if (as_json && !follow) {
      print_json(*answer);
    } else if (list) {
      for (const json::value& e : rows_of(*list))
        if (as_json)
          print_json(e);
        else
          print(event_line(e));
    }
    if (!follow) return {};
    if (auto written = all_written(); !written) return written;
    ::usleep(500'000);
  }
}

Result<void> policies(AdminClient& client, bool as_json) {
  return print_answer(client.call("policies"), as_json, [](const json::value& v) {
    std::vector<std::vector<std::string>> cells;
    for (const json::value& p : rows_of(v)) cells.push_back({text(p, "name"), text(p, "summary")});
    print(format_table({{"NAME"}, {"SUMMARY"}}, cells));
  });
}

Result<void> info(AdminClient& client, bool as_json) {
  return print_answer(client.call("info"), as_json, [](const json::value& v) {
    static const json::value kNone;
    const json::value* d = field(v, "device");
    const json::value* a = field(v, "accounting");
    print(fmt::format(
        "sluiced {} (process {}), up {:.0f} s\ndevice {}: {}\nsignal {}, chunks of {} us\n"
        "policy {} by {}, quantum {} us\n"
        "accounting by {} (in use: {}): {}\nwitness of time slices: {}\n",
        text(v, "version"), text(v, "pid"), number(v, "uptime_ms") / 1000,
        text(d ? *d : kNone, "kind"), text(d ? *d : kNone, "library"),
        text(d ? *d : kNone, "signal"), text(d ? *d : kNone, "chunk_target_us"), text(v, "policy"),
        text(v, "sharing"), text(v, "quantum_us"), text(a ? *a : kNone, "source"),
        text(a ? *a : kNone, "in_use"), text(a ? *a : kNone, "meaning"),
        text(a ? *a : kNone, "witness")));
    if (text(v, "ends_when_idle") == "true")
      print("it is started anew as soon as no program uses the GPU\n");
  });
}

Result<void> metrics(AdminClient& client) {
  auto answer = client.call("metrics");
  if (!answer) return answer.error();
  if (!answer->is_string()) return Error{EPROTO, "sluiced answered no text"};
  print(std::string(answer->get_string()));
  return {};
}

Result<void> stats(AdminClient& client, bool) {
  return print_answer(client.call("stats"), true, print_json);
}

Result<void> all_written() {
  const bool lost = std::ferror(stdout) != 0;  // its reason went with the next calls
  if (std::fflush(stdout) != 0) return Error::from_errno("stdout");
  if (lost) return Error{EIO, "stdout: not all could be written; is the disk full?"};
  return {};
}

}  // namespace sluice::cli
