// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/setup/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "mediator/base/limits.h"
#include "mediator/core/domain_xml.h"
#include "mediator/core/spawner_protocol.h"

namespace sluice {
namespace {

// Reads a file's tables key by key and remembers the first error and the keys that were asked for,
// so that whatever is left over can be called unknown.
class Reader {
 public:
  Reader(const toml::table& root, std::string file) : root_(root), file_(std::move(file)) {}

  // The following calls read this table; it may be missing. Empty: the keys before any table.
  void table(const char* name) {
    keys_.clear();
    name_ = name;
    table_ = name_.empty() ? &root_ : nullptr;
    if (table_) return;
    tables_.insert(name);
    const toml::node* node = root_.get(name);
    if (!node) return;
    table_ = node->as_table();
    if (!table_) fail(*node, fmt::format("'{}' must be a table: [{}]", name, name));
  }

  void path(const char* key, std::string& to) {
    const toml::node* n = get(key);
    if (!n) return;
    auto text = n->value_exact<std::string>();
    if (!text || text->empty() || (*text)[0] != '/')
      return fail(*n, fmt::format("{} must be an absolute path in quotes", full(key)));
    to = *text;
  }
  // A library: an absolute path, or a soname that the loader looks up.
  void library(const char* key, std::string& to) {
    const toml::node* n = get(key);
    if (!n) return;
    auto text = n->value_exact<std::string>();
    if (!text || text->empty() || text->size() > 255)
      return fail(*n, fmt::format("{} must be a path or a library's name in quotes, of at most 255 "
                                  "bytes",
                                  full(key)));
    to = *text;
  }
  // File modes are strings, because TOML's 0666 is not a number and 666 would be the wrong one.
  void mode(const char* key, unsigned& to) {
    const toml::node* n = get(key);
    if (!n) return;
    auto text = n->value_exact<std::string>();
    unsigned value = 0;
    bool good = text && !text->empty() && text->size() <= 5;
    if (good)
      for (char c : *text) {
        good = good && c >= '0' && c <= '7';
        value = value * 8 + static_cast<unsigned>(c - '0');
      }
    if (!good || value > 0777)
      return fail(*n,
                  fmt::format("{} must be a file mode in quotes, for example \"0660\"", full(key)));
    to = value;
  }
  void number(const char* key, uint32_t& to, uint32_t low, uint32_t high) {
    const toml::node* n = get(key);
    if (!n) return;
    auto value = n->value_exact<int64_t>();
    if (!value || *value < low || *value > high)
      return fail(*n, fmt::format("{} must be a whole number from {} to {}", full(key), low, high));
    to = static_cast<uint32_t>(*value);
  }
  void boolean(const char* key, bool& to) {
    const toml::node* n = get(key);
    if (!n) return;
    auto value = n->value_exact<bool>();
    if (!value) return fail(*n, fmt::format("{} must be true or false", full(key)));
    to = *value;
  }
  void integer(const char* key, int& to, int low, int high) {
    const toml::node* n = get(key);
    if (!n) return;
    auto value = n->value_exact<int64_t>();
    if (!value || *value < low || *value > high)
      return fail(*n, fmt::format("{} must be a whole number from {} to {}", full(key), low, high));
    to = static_cast<int>(*value);
  }
  void size(const char* key, uint64_t& to, uint64_t low, uint64_t high, bool power_of_two) {
    const toml::node* n = get(key);
    if (!n) return;
    auto text = n->value_exact<std::string>();
    auto bytes = text ? parse_byte_size(*text) : Result<uint64_t>(Error{EINVAL, ""});
    if (!bytes || *bytes < low || *bytes > high || *bytes % SLUICE_EXTENT_BYTES ||
        (power_of_two && !std::has_single_bit(*bytes)))
      return fail(*n, fmt::format("{} must be a size in quotes from \"{}M\" to \"{}M\", {}",
                                  full(key), low >> 20, high >> 20,
                                  power_of_two ? "a power of two" : "a multiple of 2M"));
    to = *bytes;
  }
  // `choose(text)` takes a word; false: none that it knows.
  template <class F>
  void word(const char* key, const char* words, F choose) {
    const toml::node* n = get(key);
    if (!n) return;
    auto text = n->value_exact<std::string>();
    if (!text || !choose(*text)) fail(*n, fmt::format("{} must be one of {}", full(key), words));
  }
  // A list of words; `choose(text)` as above.
  template <class F>
  void words(const char* key, const char* words, F choose) {
    const toml::node* n = get(key);
    if (!n) return;
    const toml::array* list = n->as_array();
    bool good = list && !list->empty();
    if (good)
      for (const toml::node& item : *list) {
        auto text = item.value_exact<std::string>();
        good = good && text && choose(*text);
      }
    if (!good) fail(*n, fmt::format("{} must be a list, [\"...\"], of {}", full(key), words));
  }
  // Users or groups: a name or a number, or (`one` false) a list of them.
  template <class F>
  void names(const char* key, F take, bool one = false) {
    const toml::node* n = get(key);
    if (!n) return;
    auto good = [](const std::optional<std::string>& text) {
      return text && !text->empty() && text->size() <= 255;
    };
    if (one) {
      auto text = n->value_exact<std::string>();
      if (!good(text)) return fail(*n, fmt::format("{} must be a name in quotes", full(key)));
      return take(*text);
    }
    const toml::array* list = n->as_array();
    if (!list || list->empty())
      return fail(*n, fmt::format("{} must be a list of names, [\"...\"]", full(key)));
    for (const toml::node& item : *list) {
      auto text = item.value_exact<std::string>();
      if (!good(text))
        return fail(item, fmt::format("{} must be a list of names, [\"...\"]", full(key)));
      take(*text);
    }
  }
  // A table whose keys are variables: none is unknown.
  void environment(const char* name, std::map<std::string, std::string>& to) {
    table(name);
    if (!table_) return;
    const toml::table* t = std::exchange(table_, nullptr);
    for (const auto& [k, v] : *t) {
      std::string variable(k.str());
      auto text = v.value_exact<std::string>();
      if (!text || variable.empty() || variable.find('=') != std::string::npos ||
          text->find('\0') != std::string::npos)
        return fail(v, fmt::format("environment variable '{}' must be a string", variable));
      to[variable] = *text;
    }
  }

  // After the last key of a table.
  void end_table() {
    if (name_.empty()) {
      tables_.insert(keys_.begin(), keys_.end());  // end_file looks at all that stands there
      return;
    }
    if (!table_) return;
    for (const auto& [k, v] : *table_)
      if (!keys_.count(std::string(k.str())))
        fail(v, fmt::format("unknown key '{}' in [{}]", k.str(), name_));
  }
  void end_file() {
    for (const auto& [k, v] : root_)
      if (!tables_.count(std::string(k.str())))
        fail(v, v.is_table() ? fmt::format("unknown table [{}]", k.str())
                             : fmt::format("unknown key '{}'", k.str()));
  }
  void fail_key(const char* key, const std::string& what) {
    if (const toml::node* n = table_ ? table_->get(key) : nullptr)
      fail(*n, what);
    else if (!error_)
      error_ = Error{EINVAL, file_ + ": " + what};
  }
  bool failed() const { return static_cast<bool>(error_); }
  Error error() const { return *error_; }

 private:
  const toml::node* get(const char* key) {
    keys_.insert(key);
    return table_ ? table_->get(key) : nullptr;
  }
  std::string full(const char* key) const {
    return name_.empty() ? std::string(key) : fmt::format("{}.{}", name_, key);
  }
  void fail(const toml::node& node, const std::string& what) {
    if (!error_)
      error_ = Error{EINVAL, fmt::format("{}:{}: {}", file_, node.source().begin.line, what)};
  }

  const toml::table& root_;
  std::string file_;
  std::string name_;
  const toml::table* table_ = nullptr;
  std::set<std::string> keys_, tables_;  // asked for: of this table, of the file
  std::optional<Error> error_;
};

}  // namespace

worker_protocol::Signal Config::signal_for(bool nvidia) const {
  // Measured (docs/notes/2026-11-22-benchmarks.md): the proxy tells an H200 soonest. The software
  // GPU's blocks read the host's memory as fast as any other.
  return signal.value_or(nvidia ? worker_protocol::Signal::kProxy : worker_protocol::Signal::kHost);
}
// On NVIDIA's GPUs a guess for those of some 130 SMs; on the software GPU what it takes itself
// (SLUICE_SOFT_CONTEXT_BYTES) and what the worker has there of its own.
uint64_t Config::context_bytes_for(bool nvidia) const {
  return context_memory_bytes.value_or(nvidia ? 528ull << 20 : 8ull << 20);
}

// What a first kernel that spins costs its neighbours. On the software GPU workers may have to wait
// for a processor for as long as on no GPU.
// On a small machine others need the processors more.
uint32_t Config::spin_processors_for(uint32_t processors) const {
  return spin_processors.value_or(processors < 8 ? 0 : processors / 4);
}

uint32_t Config::evict_end_for(bool nvidia) const {
  return evict_end_ms.value_or(nvidia ? std::max(500u, evict_warn_ms) : 2000u);
}

uint32_t Config::chunk_target_for(bool nvidia) const {
  if (chunk_target_us != 0) return chunk_target_us;
  // 20 us as measured on an H200 (docs/notes/2026-11-22-benchmarks.md). A task of the interpreter
  // often takes longer than that, and then each would be a chunk of its own.
  return nvidia ? 20 : 200;
}

std::string Config::admin_socket_path() const {
  return admin_socket.empty() ? runtime_dir + "/admin.sock" : admin_socket;
}
std::string Config::soft_gpu_path() const {
  return soft_file.empty() ? runtime_dir + "/softgpu" : soft_file;
}

Result<Config> parse_config(std::string_view text, const std::string& file) {
  toml::table root;
  try {  // the only way that Debian's build of the library reports errors
    root = toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& e) {
    return Error{EINVAL, fmt::format("{}:{}: {}", file, e.source().begin.line, e.description())};
  }
  Config c;
  Reader r(root, file);

  r.table("");
  r.path("runtime_dir", c.runtime_dir);
  r.path("state_dir", c.state_dir);
  r.path("worker", c.worker);
  r.word("log_level", "\"debug\", \"info\", \"warning\", \"error\"",
         [&](const std::string& w) { return log::parse_level(w, c.log_level); });
  r.integer("nice", c.nice, -20, 0);
  r.end_table();

  r.table("daemon");
  r.names(
      "user", [&](const std::string& w) { c.daemon_user = w; }, true);
  r.names(
      "group", [&](const std::string& w) { c.daemon_group = w; }, true);
  r.end_table();

  r.table("admin");
  r.path("socket", c.admin_socket);
  r.mode("mode", c.admin_mode);
  r.end_table();

  r.table("device");
  r.word("kind", "\"auto\", \"soft\", \"nvidia\"", [&](const std::string& w) {
    if (w == "auto")
      c.device = DeviceKind::kAuto;
    else if (w == "soft")
      c.device = DeviceKind::kSoft;
    else if (w == "nvidia")
      c.device = DeviceKind::kNvidia;
    else
      return false;
    return true;
  });
  r.library("nvidia_library", c.nvidia_library);
  r.number("nvidia_sms", c.nvidia_sms, 0, 256);
  r.number("sm_unit", c.sm_unit, 0, 256);
  r.library("soft_library", c.soft_library);
  r.path("soft_file", c.soft_file);
  r.number("soft_sms", c.soft_sms, 1, 256);
  r.size("soft_memory", c.soft_memory_bytes, 64ull << 20, 1ull << 40, false);
  r.number("soft_threads", c.soft_threads, 0, 256);
  r.word("signal", "\"auto\", \"proxy\", \"host\", \"stream-write\", \"copy\"",
         [&](const std::string& w) {
           c.signal.reset();
           if (w == "auto") return true;
           const auto* name = std::find(std::begin(worker_protocol::kSignalNames),
                                        std::end(worker_protocol::kSignalNames), w);
           if (name == std::end(worker_protocol::kSignalNames)) return false;
           c.signal = static_cast<worker_protocol::Signal>(
               name - std::begin(worker_protocol::kSignalNames));
           return true;
         });
  r.number("signal_chunk", c.signal_chunk, 0, 1024);
  r.number("admission_us", c.admission_us, 0, 1'000'000'000);
  r.number("window_us", c.window_us, 0, 1'000'000'000);
  r.number("fault_stall_ms", c.fault_stall_ms, 0, 400);
  r.number("exception_stall_ms", c.exception_stall_ms, 0, 400);
  uint32_t context_stall_ms = UINT32_MAX;
  r.number("context_stall_ms", context_stall_ms, 0, 400);
  if (context_stall_ms != UINT32_MAX) c.context_stall_ms = context_stall_ms;
  r.number("module_stall_ms", c.module_stall_ms, 0, 400);
  r.path("kernel_log", c.kernel_log);
  uint64_t context_memory = UINT64_MAX;
  r.size("context_memory", context_memory, 0, 16ull << 30, false);
  if (context_memory != UINT64_MAX) c.context_memory_bytes = context_memory;
  r.end_table();

  r.environment("worker_environment", c.worker_environment);

  r.table("workers");
  r.path("spawner", c.spawner);
  r.word("uids", "a range of user ids, \"FIRST-LAST\", without 0", [&](const std::string& w) {
    c.worker_uids = w;
    return spawner_protocol::parse_uids(w).has_value();
  });
  r.boolean("require", c.require_walls);
  r.number("spin_us", c.spin_us, 0, 100'000);
  uint32_t spin_processors = UINT32_MAX;
  r.number("spin_processors", spin_processors, 0, 4096);
  if (spin_processors != UINT32_MAX) c.spin_processors = spin_processors;
  r.words("paths", "absolute paths", [&](const std::string& w) {
    c.worker_paths.push_back(w);
    return w.size() > 1 && w[0] == '/';
  });
  r.end_table();

  r.table("vgpu");
  r.size("region", c.region_bytes, limits::kMinRegionBytes, limits::kMaxRegionBytes, true);
  r.size("staging", c.staging_bytes, limits::kMinStagingBytes, limits::kMaxStagingBytes, false);
  r.size("host_memory", c.host_memory_bytes, 16ull << 20, 1ull << 40, false);
  r.number("slots", c.slots, 1, SLUICE_MAX_SLOTS);
  r.number("weight", c.weight, limits::kMinWeight, limits::kMaxWeight);
  r.word("latency", "low, normal or batch", [&](const std::string& w) {
    c.latency = w == "low"     ? policy::LatencyClass::kLow
                : w == "batch" ? policy::LatencyClass::kBatch
                               : policy::LatencyClass::kNormal;
    return w == "low" || w == "normal" || w == "batch";
  });
  r.boolean("back_off", c.back_off);
  r.mode("socket_mode", c.socket_mode);
  r.names(
      "socket_group", [&](const std::string& w) { c.socket_group = w; }, true);
  r.names("socket_users", [&](const std::string& w) { c.socket_users.push_back(w); });
  r.names("socket_groups", [&](const std::string& w) { c.socket_groups.push_back(w); });
  r.mode("local_socket_mode", c.local_socket_mode);
  uint64_t slots_end = SLUICE_SLOT_OFFSET + uint64_t{c.slots} * SLUICE_SLOT_STRIDE;
  if (slots_end + SLUICE_EXTENT_BYTES + c.staging_bytes > c.region_bytes)
    r.fail_key("region",
               fmt::format("vgpu.region of {}M has no room for {} slots and one session's "
                           "staging of {}M",
                           c.region_bytes >> 20, c.slots, c.staging_bytes >> 20));
  r.end_table();

  r.table("scheduler");
  r.word("policy", "the names that `sluicectl policies` lists", [&](const std::string& w) {
    c.policy = w;  // sluiced looks it up in the registry when it makes the policy
    return !w.empty();
  });
  r.boolean("spatial", c.spatial);
  r.boolean("green_contexts", c.green_contexts);
  r.number("set_change_us", c.set_change_us, 0, 1'000'000);
  r.boolean("slices", c.slices);
  r.word("turns", "\"eviction\" or \"priority\"", [&](const std::string& w) {
    c.turns_by_priority = w == "priority";
    return w == "priority" || w == "eviction";
  });
  r.number("turn_whole_us", c.turn_whole_us, 0, 1'000'000);
  r.number("turn_window_us", c.turn_window_us, 0, 1'000'000);
  r.number("quantum_min_us", c.quantum_min_us, 100, 10'000'000);
  r.number("quantum_max_us", c.quantum_max_us, 100, 10'000'000);
  if (c.quantum_min_us > c.quantum_max_us)
    r.fail_key("quantum_min_us", "scheduler.quantum_min_us is more than scheduler.quantum_max_us");
  r.number("latency_target_us", c.latency_target_us, 100, 10'000'000);
  r.number("short_gap_us", c.short_gap_us, 0, 10'000'000);
  r.number("handover_loss_percent", c.handover_loss_percent, 1, 50);
  r.number("max_lead_turns", c.max_lead_turns, 0, 1000);
  r.number("chunk_target_us", c.chunk_target_us, 0, 1'000'000);
  r.path("trace", c.trace);
  r.size("trace_limit", c.trace_limit_bytes, 2ull << 20, 1ull << 40, false);
  r.end_table();

  r.table("accounting");
  bool first = true;
  r.words("sources", "\"auto\", or some of \"clock\", \"registers\", \"switch_log\", \"words\"",
          [&](const std::string& w) {
            if (std::exchange(first, false))
              c.by_registers = c.by_switch_log = c.by_words = w == "auto";
            if (w == "registers")
              c.by_registers = true;
            else if (w == "switch_log")
              c.by_switch_log = true;
            else if (w == "words")
              c.by_words = true;
            else
              return w == "clock" || w == "auto";
            return true;
          });
  r.number("cpu_percent", c.accounting_cpu_percent, 1, 20);
  r.path("registers_file", c.registers_file);
  r.end_table();

  r.table("deadlines");
  r.number("join_ms", c.join_ms, 1, 600'000);
  r.number("worker_start_ms", c.worker_start_ms, 1, 600'000);
  r.number("session_end_ms", c.session_end_ms, 1, 600'000);
  r.number("evict_warn_ms", c.evict_warn_ms, 1, 600'000);
  uint32_t evict_end_ms = 0;
  r.number("evict_end_ms", evict_end_ms, 1, 600'000);
  if (evict_end_ms != 0) c.evict_end_ms = evict_end_ms;
  r.number("evict_end_least_ms", c.evict_end_least_ms, 1, 600'000);
  if (c.evict_warn_ms > c.evict_end_for(false))
    r.fail_key("evict_warn_ms", "deadlines.evict_warn_ms is more than deadlines.evict_end_ms");
  r.end_table();

  r.end_file();
  if (r.failed()) return r.error();
  return c;
}

Result<Config> load_config(const std::string& path) {
  std::unique_ptr<FILE, int (*)(FILE*)> f(std::fopen(path.c_str(), "re"), &std::fclose);
  if (!f) return Error::from_errno("open " + path);
  std::string text;
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof buffer, f.get())) {
    text.append(buffer, n);
    if (text.size() > (1u << 20)) return Error{E2BIG, path + " has more than 1 MiB"};
  }
  if (std::ferror(f.get())) return Error::from_errno("read " + path);
  return parse_config(text, path);
}

}  // namespace sluice
