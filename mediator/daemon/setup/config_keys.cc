// SPDX-License-Identifier: Apache-2.0
// parse_config(): every key of the configuration as one row of a table, and what reads a row.
//
// A new key is a member of its table's struct (config.h), a row here and its lines in
// debian/sluice.toml. A key that goes leaves its row, as Gone.
// Rows of one TOML table stand together. The first row that finds a mistake names the error, and a
// check of several keys is a row behind the last of them.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <variant>

#include "mediator/base/limits.h"
#include "mediator/core/spawner_protocol.h"
#include "mediator/daemon/setup/config.h"
#include "mediator/daemon/setup/config_reader.h"

namespace sluice {
namespace {

template <class T>
using Member = T Config::*;

// What a key may be, and the member that it goes to. Numbers are in the unit that ends the key's
// name, sizes in bytes.
struct Path {
  Member<std::string> to;
};
struct Library {
  Member<std::string> to;
};
struct Permissions {
  Member<unsigned> to;
};
struct Boolean {
  Member<bool> to;
};
struct OptionalBoolean {
  Member<std::optional<bool>> to;
};
template <class T>  // uint32_t, or int, or either as an optional
struct Number {
  Member<T> to;
  int64_t low, high;
};
template <class T, class Part>
Number(T Part::*, int64_t, int64_t) -> Number<T>;
enum class Bytes { kExtents, kPowerOfTwo };
template <class T>  // uint64_t, or that as an optional
struct Size {
  Member<T> to;
  uint64_t low, high;
  Bytes form = Bytes::kExtents;
};
template <class T, class Part>
Size(T Part::*, uint64_t, uint64_t) -> Size<T>;
template <class T, class Part>
Size(T Part::*, uint64_t, uint64_t, Bytes) -> Size<T>;
struct Name {
  Member<std::string> to;
};
struct Names {
  Member<std::vector<std::string>> to;
};
struct Word {
  bool (*take)(Config&, const std::string& word);  // false: not one of `words`
  const char* words;
};
struct Words {
  bool (*take)(Config&, const std::string& word, size_t index);
  const char* words;
};
struct Environment {
  Member<std::map<std::string, std::string>> to;
};
// A key of an earlier release that does nothing any more. It is left standing in the files of hosts
// that are upgraded.
struct Gone {};
// Not a key of its own: an empty text, or what is wrong with this key beside others.
struct Check {
  std::string (*wrong)(const Config&);
};

void read(ConfigReader& r, const char* key, const Path& k, Config& c) { r.path(key, c.*k.to); }
void read(ConfigReader& r, const char* key, const Library& k, Config& c) {
  r.library(key, c.*k.to);
}
void read(ConfigReader& r, const char* key, const Permissions& k, Config& c) {
  r.mode(key, c.*k.to);
}
void read(ConfigReader& r, const char* key, const Boolean& k, Config& c) {
  if (auto yes = r.boolean(key)) c.*k.to = *yes;
}
void read(ConfigReader& r, const char* key, const OptionalBoolean& k, Config& c) {
  if (auto yes = r.boolean(key)) c.*k.to = *yes;
}
template <class T>
void read(ConfigReader& r, const char* key, const Number<T>& k, Config& c) {
  // Rows have ranges that their members hold.
  if (auto n = r.number(key, k.low, k.high)) c.*k.to = static_cast<uint32_t>(*n);
}
void read(ConfigReader& r, const char* key, const Number<int>& k, Config& c) {
  if (auto n = r.number(key, k.low, k.high)) c.*k.to = static_cast<int>(*n);
}
template <class T>
void read(ConfigReader& r, const char* key, const Size<T>& k, Config& c) {
  if (auto n = r.size(key, k.low, k.high, k.form == Bytes::kPowerOfTwo)) c.*k.to = *n;
}
void read(ConfigReader& r, const char* key, const Name& k, Config& c) { r.name(key, c.*k.to); }
void read(ConfigReader& r, const char* key, const Names& k, Config& c) { r.names(key, c.*k.to); }
void read(ConfigReader& r, const char* key, const Word& k, Config& c) {
  r.word(key, k.words, [&](const std::string& word) { return k.take(c, word); });
}
void read(ConfigReader& r, const char* key, const Words& k, Config& c) {
  r.words(key, k.words, [&](const std::string& word, size_t i) { return k.take(c, word, i); });
}
void read(ConfigReader& r, const char*, const Environment& k, Config& c) { r.environment(c.*k.to); }
void read(ConfigReader& r, const char* key, const Gone&, Config& c) {
  if (auto remark = r.gone(key)) c.remarks.push_back(*remark);
}
void read(ConfigReader& r, const char* key, const Check& k, Config& c) {
  if (std::string what = k.wrong(c); !what.empty()) r.fail_key(key, what);
}

// Words, one function each.

bool take_log_level(Config& c, const std::string& word) {
  return log::parse_level(word, c.log_level);
}

bool take_device(Config& c, const std::string& word) {
  if (word == "auto")
    c.device = DeviceKind::kAuto;
  else if (word == "soft")
    c.device = DeviceKind::kSoft;
  else if (word == "nvidia")
    c.device = DeviceKind::kNvidia;
  else
    return false;
  return true;
}

bool take_signal(Config& c, const std::string& word) {
  using worker_protocol::kSignalNames;
  c.signal.reset();
  if (word == "auto") return true;
  const auto* name = std::find(std::begin(kSignalNames), std::end(kSignalNames), word);
  if (name == std::end(kSignalNames)) return false;
  c.signal = static_cast<worker_protocol::Signal>(name - std::begin(kSignalNames));
  return true;
}

bool take_worker_uids(Config& c, const std::string& word) {
  c.worker_uids = word;
  return spawner_protocol::parse_uids(word).has_value();
}

bool take_worker_path(Config& c, const std::string& word, size_t) {
  c.worker_paths.push_back(word);
  return word.size() > 1 && word[0] == '/';
}

bool take_latency(Config& c, const std::string& word) {
  if (word == "low")
    c.latency = policy::LatencyClass::kLow;
  else if (word == "normal")
    c.latency = policy::LatencyClass::kNormal;
  else if (word == "batch")
    c.latency = policy::LatencyClass::kBatch;
  else
    return false;
  return true;
}

// sluiced looks the name up in the registry when it makes the policy.
bool take_policy(Config& c, const std::string& word) {
  c.policy = word;
  return !word.empty();
}

bool take_mode(Config& c, const std::string& word) {
  if (word == "shared") c.mode = Mode::kShared;
  if (word == "strict") c.mode = Mode::kStrict;
  return c.mode.has_value();
}

bool take_turns(Config& c, const std::string& word) {
  c.turns_given = true;
  c.turns_by_priority = word == "priority";
  return word == "priority" || word == "eviction";
}

bool take_clones(Config& c, const std::string& word) {
  c.clones.reset();
  if (word == "eager") c.clones = Clones::kEager;
  if (word == "lazy") c.clones = Clones::kLazy;
  if (word == "none") c.clones = Clones::kNone;
  return c.clones || word == "auto";
}

// The first word says whether the list is a choice or "auto", which is all sources.
bool take_source(Config& c, const std::string& word, size_t index) {
  if (index == 0) c.by_registers = c.by_switch_log = c.by_words = word == "auto";
  if (word == "registers")
    c.by_registers = true;
  else if (word == "switch_log")
    c.by_switch_log = true;
  else if (word == "words")
    c.by_words = true;
  else
    return word == "clock" || word == "auto";
  return true;
}

// Checks of several keys, one function each.

std::string region_too_small(const Config& c) {
  const uint64_t slots_end = SLUICE_SLOT_OFFSET + uint64_t{c.slots} * SLUICE_SLOT_STRIDE;
  if (slots_end + SLUICE_EXTENT_BYTES + c.staging_bytes <= c.region_bytes) return "";
  return fmt::format("vgpu.region of {}M has no room for {} slots and one session's staging of {}M",
                     c.region_bytes >> 20, c.slots, c.staging_bytes >> 20);
}

std::string quanta_crossed(const Config& c) {
  if (c.least_quantum_us() <= c.quantum_max_us) return "";
  return "scheduler.quantum_min_us is more than scheduler.quantum_max_us";
}

std::string mode_crossed(const Config& c) {
  if (c.mode == Mode::kStrict && c.side_by_side())
    return "scheduler.mode \"strict\" keeps contexts apart; scheduler.spatial and "
           "scheduler.turns = \"priority\" have them side by side, in mode \"shared\"";
  if (c.slices_wanted == true && c.mode == Mode::kShared)
    return "scheduler.slices is of mode \"strict\"; unset it, or the other ways of sharing";
  if (c.mode == Mode::kShared && c.turns_given && !c.side_by_side())
    return "scheduler.mode \"shared\" goes by scheduler.turns = \"priority\" or "
           "scheduler.spatial; evictions keep contexts apart, in mode \"strict\"";
  return "";
}

std::string evict_deadlines_crossed(const Config& c) {
  if (c.evict_warn_ms <= c.evict_end_for(false)) return "";
  return "deadlines.evict_warn_ms is more than deadlines.evict_end_ms";
}

using Form =
    std::variant<Path, Library, Permissions, Boolean, OptionalBoolean, Number<uint32_t>,
                 Number<int>, Number<std::optional<uint32_t>>, Size<uint64_t>,
                 Size<std::optional<uint64_t>>, Name, Names, Word, Words, Environment, Gone, Check>;

struct Row {
  const char* table;
  const char* key;
  Form form;
};

constexpr uint64_t kMiB = 1ull << 20, kGiB = 1ull << 30, kTiB = 1ull << 40;

constexpr Row kRows[] = {
    {"", "runtime_dir", Path{&Config::runtime_dir}},
    {"", "state_dir", Path{&Config::state_dir}},
    {"", "worker", Path{&Config::worker}},
    {"", "log_level", Word{take_log_level, "\"debug\", \"info\", \"warning\", \"error\""}},
    {"", "nice", Number{&Config::nice, -20, 0}},
    {"", "real_time", Boolean{&Config::real_time}},

    {"daemon", "user", Name{&Config::daemon_user}},
    {"daemon", "group", Name{&Config::daemon_group}},

    {"admin", "socket", Path{&Config::admin_socket}},
    {"admin", "mode", Permissions{&Config::admin_mode}},

    {"device", "kind", Word{take_device, "\"auto\", \"soft\", \"nvidia\""}},
    {"device", "nvidia_library", Library{&Config::nvidia_library}},
    {"device", "nvidia_sms", Number{&Config::nvidia_sms, 0, 256}},
    {"device", "mps_pipes", Path{&Config::mps_pipes}},
    {"device", "sm_unit", Number{&Config::sm_unit, 0, 256}},
    {"device", "soft_library", Library{&Config::soft_library}},
    {"device", "soft_file", Path{&Config::soft_file}},
    {"device", "soft_sms", Number{&Config::soft_sms, 1, 256}},
    {"device", "soft_memory", Size{&Config::soft_memory_bytes, 64 * kMiB, kTiB}},
    {"device", "soft_threads", Number{&Config::soft_threads, 0, 256}},
    {"device", "signal",
     Word{take_signal, "\"auto\", \"proxy\", \"host\", \"stream-write\", \"copy\""}},
    {"device", "signal_chunk", Number{&Config::signal_chunk, 0, 1024}},
    {"device", "admission_us", Number{&Config::admission_us, 0, 1'000'000'000}},
    {"device", "clones", Word{take_clones, "\"auto\", \"lazy\", \"eager\" or \"none\""}},
    {"device", "window_us", Number{&Config::window_us, 0, 1'000'000'000}},
    {"device", "fault_stall_ms", Number{&Config::fault_stall_ms, 0, 400}},
    {"device", "exception_stall_ms", Number{&Config::exception_stall_ms, 0, 400}},
    {"device", "context_stall_ms", Number{&Config::context_stall_ms, 0, 400}},
    {"device", "module_stall_ms", Number{&Config::module_stall_ms, 0, 400}},
    {"device", "kernel_log", Path{&Config::kernel_log}},
    {"device", "context_memory", Size{&Config::context_memory_bytes, 0, 16 * kGiB}},

    {"worker_environment", "", Environment{&Config::worker_environment}},

    {"workers", "spawner", Path{&Config::spawner}},
    {"workers", "uids", Word{take_worker_uids, "a range of user ids, \"FIRST-LAST\", without 0"}},
    {"workers", "require", Boolean{&Config::require_walls}},
    {"workers", "spin_us", Number{&Config::spin_us, 0, 100'000}},
    {"workers", "spin_low_us", Number{&Config::spin_low_us, 0, 100'000}},
    {"workers", "spin_processors", Number{&Config::spin_processors, 0, 4096}},
    {"workers", "paths", Words{take_worker_path, "absolute paths"}},
    {"workers", "code_cache", Size{&Config::code_cache_bytes, 0, 16 * kGiB}},

    {"vgpu", "region",
     Size{&Config::region_bytes, limits::kMinRegionBytes, limits::kMaxRegionBytes,
          Bytes::kPowerOfTwo}},
    {"vgpu", "staging",
     Size{&Config::staging_bytes, limits::kMinStagingBytes, limits::kMaxStagingBytes}},
    {"vgpu", "host_memory", Size{&Config::host_memory_bytes, 16 * kMiB, kTiB}},
    {"vgpu", "slots", Number{&Config::slots, 1, SLUICE_MAX_SLOTS}},
    {"vgpu", "weight", Number{&Config::weight, limits::kMinWeight, limits::kMaxWeight}},
    {"vgpu", "latency", Word{take_latency, "low, normal or batch"}},
    {"vgpu", "back_off", Boolean{&Config::back_off}},
    {"vgpu", "socket_mode", Permissions{&Config::socket_mode}},
    {"vgpu", "socket_group", Name{&Config::socket_group}},
    {"vgpu", "socket_users", Names{&Config::socket_users}},
    {"vgpu", "socket_groups", Names{&Config::socket_groups}},
    {"vgpu", "local_socket_mode", Permissions{&Config::local_socket_mode}},
    {"vgpu", "region", Check{region_too_small}},

    {"scheduler", "policy", Word{take_policy, "the names that `sluicectl policies` lists"}},
    {"scheduler", "mode", Word{take_mode, "\"strict\" or \"shared\""}},
    {"scheduler", "spatial", Boolean{&Config::spatial}},
    {"scheduler", "green_contexts", Boolean{&Config::green_contexts}},
    {"scheduler", "set_change_us", Number{&Config::set_change_us, 0, 1'000'000}},
    {"scheduler", "slices", OptionalBoolean{&Config::slices_wanted}},
    {"scheduler", "turns", Word{take_turns, "\"eviction\" or \"priority\""}},
    {"scheduler", "mode", Check{mode_crossed}},
    {"scheduler", "turn_whole_us", Number{&Config::turn_whole_us, 0, 1'000'000}},
    {"scheduler", "turn_window_us", Number{&Config::turn_window_us, 0, 1'000'000}},
    {"scheduler", "quantum_min_us", Number{&Config::quantum_min_us, 100, 10'000'000}},
    {"scheduler", "quantum_max_us", Number{&Config::quantum_max_us, 100, 10'000'000}},
    {"scheduler", "quantum_min_us", Check{quanta_crossed}},
    {"scheduler", "turn_fill", Gone{}},
    {"scheduler", "latency_target_us", Number{&Config::latency_target_us, 100, 10'000'000}},
    {"scheduler", "short_gap_us", Number{&Config::short_gap_us, 0, 10'000'000}},
    {"scheduler", "handover_loss_percent", Number{&Config::handover_loss_percent, 1, 50}},
    {"scheduler", "max_lead_turns", Number{&Config::max_lead_turns, 0, 1000}},
    {"scheduler", "chunk_target_us", Number{&Config::chunk_target_us, 0, 1'000'000}},
    {"scheduler", "trace", Path{&Config::trace}},
    {"scheduler", "trace_limit", Size{&Config::trace_limit_bytes, 2 * kMiB, kTiB}},

    {"accounting", "sources",
     Words{take_source,
           "\"auto\", or some of \"clock\", \"registers\", \"switch_log\", \"words\""}},
    {"accounting", "cpu_percent", Number{&Config::accounting_cpu_percent, 1, 20}},
    {"accounting", "registers_file", Path{&Config::registers_file}},

    {"deadlines", "join_ms", Number{&Config::join_ms, 1, 600'000}},
    {"deadlines", "worker_start_ms", Number{&Config::worker_start_ms, 1, 600'000}},
    {"deadlines", "session_end_ms", Number{&Config::session_end_ms, 1, 600'000}},
    {"deadlines", "evict_warn_ms", Number{&Config::evict_warn_ms, 1, 600'000}},
    {"deadlines", "evict_end_ms", Number{&Config::evict_end_ms, 1, 600'000}},
    {"deadlines", "evict_end_least_ms", Number{&Config::evict_end_least_ms, 1, 600'000}},
    {"deadlines", "evict_warn_ms", Check{evict_deadlines_crossed}},
};

}  // namespace

Result<Config> parse_config(std::string_view text, const std::string& file) {
  toml::table root;
  try {  // the only way that Debian's build of the library reports errors
    root = toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& e) {
    return Error{EINVAL, fmt::format("{}:{}: {}", file, e.source().begin.line, e.description())};
  }
  Config c;
  ConfigReader r(root, file);
  const Row* previous = nullptr;
  for (const Row& row : kRows) {
    if (!previous || std::string_view(previous->table) != row.table) {
      if (previous) r.end_table();
      r.table(row.table);
    }
    previous = &row;
    std::visit([&](const auto& form) { read(r, row.key, form, c); }, row.form);
  }
  r.end_table();
  r.end_file();
  if (r.error()) return *r.error();
  if (c.mode == Mode::kShared && !c.spatial) c.turns_by_priority = true;
  c.slices = c.slices_wanted.value_or(false);
  return c;
}

}  // namespace sluice
