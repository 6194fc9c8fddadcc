// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/daemon.h"

#include <unistd.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <cstring>
#include <thread>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/core/names.h"
#include "mediator/daemon/scheduling/sharing_checks.h"
#include "mediator/daemon/scheduling/side_by_side.h"
#include "mediator/daemon/scheduling/spatial.h"
#include "mediator/daemon/scheduling/time_slices.h"
#include "mediator/daemon/scheduling/worker_time_slices.h"
#include "mediator/daemon/setup/folders.h"
#include "mediator/io/loop_priority.h"
#include "mediator/io/peers/listener.h"

extern char** environ;

namespace sluice {
namespace {

// What a hand-over costs where the GPU is given whole, by eviction. It is also the most that is
// learnt of one (policies/wfq/turn_length.h).
constexpr uint64_t kEvictionNs = 100'000;

// `sms`: of a GPU that is shared in space, in units of `unit`; 0: it is given whole.
core::SchedulerConfig scheduler_config(const Config& c, bool nvidia, uint32_t sms, uint32_t unit) {
  core::SchedulerConfig s;
  s.policy = c.policy;
  s.policy_config.machine.spatial = sms != 0;
  if (sms) s.policy_config.machine.sm_count = sms;
  s.policy_config.machine.sm_unit = unit;
  if (sms) s.policy_config.machine.change_ns = uint64_t{c.set_change_us} * 1000;
  if (c.slices) s.policy_config.machine.preemptor = policy::PreemptorKind::kProportional;
  if (c.slices && nvidia) {
    s.policy_config.machine.handover_ns = kSliceSwitchNs;
    s.policy_config.machine.slice_floor_ns = kLeastSliceNs;
    s.policy_config.machine.slice_least_ns = kHardwareSliceNs;
    s.policy_config.machine.slices_are_free_alone = true;
  }
  s.turns_by_priority = c.turns_by_priority;
  if (c.turns_by_priority) {
    s.policy_config.machine.handover_ns = kTurnHandoverNs;
    s.policy_config.machine.preemption_ns = kTurnVisitNs;
  } else if (!c.slices && sms == 0) {
    s.policy_config.machine.handover_ns = kEvictionNs;
  }
  s.policy_config.min_quantum_ns = uint64_t{c.least_quantum_us()} * 1000;
  s.policy_config.max_quantum_ns = uint64_t{c.quantum_max_us} * 1000;
  s.policy_config.latency_target_ns = uint64_t{c.latency_target_us} * 1000;
  s.policy_config.short_gap_ns = uint64_t{c.short_gap_us} * 1000;
  s.policy_config.handover_loss = c.handover_loss_percent / 100.0;
  s.policy_config.max_lead_turns = c.max_lead_turns;
  s.evict_warn_ns = uint64_t{c.evict_warn_ms} * 1'000'000;
  s.evict_end_ns = uint64_t{c.evict_end_for(nvidia)} * 1'000'000;
  return s;
}

// The context-switch log of NVIDIA's driver. Contexts that run side by side are one to it.
bool reads_driver_log(const Config& c, bool nvidia) {
  return nvidia && c.by_switch_log && !c.side_by_side();
}

AccountingSettings accounting_settings(const Config& c, bool nvidia) {
  AccountingSettings s;
  s.registers = c.by_registers;
  s.switch_log = c.by_switch_log;
  s.words = c.by_words;
  s.faults = !nvidia && (c.by_registers || c.by_switch_log);
  // To registers and log those who run side by side are one, and words do not say on how many SMs:
  // the clock alone, from which each is charged by the SMs that it holds.
  if (c.side_by_side()) s.registers = s.switch_log = s.words = false;
  s.nvidia = nvidia;
  s.soft_gpu_file = nvidia ? "" : c.soft_gpu_path();
  s.registers_file = c.registers_file;
  s.cpu_budget = c.accounting_cpu_percent / 100.0;
  return s;
}

// How sessions are made of this configuration. `sms`: of a GPU shared in space; 0: it is not.
SessionSettings session_settings(const Config& config, bool nvidia, uint32_t sms,
                                 const std::vector<std::string>& environment) {
  constexpr uint64_t kMs = 1'000'000;
  SessionSettings s;
  worker_protocol::Start& start = s.start;
  start.nvidia = nvidia;
  start.context_bytes = config.context_bytes_for(nvidia);
  start.chunk_target_us = config.chunk_target_for(nvidia);
  start.signal = config.signal_for(nvidia);
  start.fixed_chunk = config.signal_chunk;
  start.admission_us = config.admission_us;
  start.window_us = config.turns_by_priority ? config.turn_window_us : config.window_us;
  start.spatial_sms = sms;
  start.turns_by_priority = config.turns_by_priority;
  start.time_slices = config.slices && nvidia;
  start.turn_whole_us = config.turn_whole_us;
  start.green_contexts = config.green_contexts;
  s.stalls = {.fault_ns = config.fault_stall_ms * kMs,
              .exception_ns = config.exception_stall_ms * kMs,
              .context_ns = config.context_stall_for(nvidia) * kMs,
              .module_ns = config.module_stall_ms * kMs};
  start.paced = (s.stalls.context_ns ? worker_protocol::kPacedContexts : 0) |
                (s.stalls.module_ns ? worker_protocol::kPacedModules : 0);
  s.soft_gpu_file = nvidia ? "" : config.soft_gpu_path();
  copy_text(start.library, sizeof start.library,
            nvidia ? config.nvidia_library : config.soft_library);
  copy_text(start.soft_gpu_file, sizeof start.soft_gpu_file, s.soft_gpu_file);
  if (nvidia && config.side_by_side()) s.mps_pipes = value_of(environment, kMpsPipes);
  s.clones = config.clones_for(nvidia);
  s.host_memory_bytes = config.host_memory_bytes;
  s.staging_bytes = config.staging_bytes;
  s.contexts = !nvidia                 ? SLUICE_SOFT_CHANNELS
               : config.side_by_side() ? limits::kMpsContexts
                                       : limits::kNvidiaContexts;
  s.spin = {.us = config.spin_us,
            .low_us = config.spin_low_us,
            .seats = config.spin_processors_for(std::thread::hardware_concurrency())};
  s.deadlines = {.worker_start_ms = config.worker_start_ms,
                 .session_end_ms = config.session_end_ms,
                 .evict_end_ns = config.evict_end_for(nvidia) * kMs,
                 .evict_end_least_ns = config.evict_end_least_ms * kMs};
  s.back_off = config.back_off;
  return s;
}

bool uses_nvidia(const Config& config) {
  return config.device == DeviceKind::kNvidia ||
         (config.device == DeviceKind::kAuto && nvidia_gpu_present());
}

// How the GPU is shared in space.
struct Space {
  uint32_t sms, unit;
};

// An error: the ways of sharing that the configuration asks for cannot be had here.
Result<Space> space_of(const Config& config, bool nvidia,
                       const std::vector<std::string>& environment) {
  if (auto can = check_turns(config, nvidia, environment); !can) return can.error();
  auto sms = spatial_sms(config, nvidia, environment);
  if (!sms) return sms.error();
  auto unit = spatial_unit(config, *sms);
  if (!unit) return unit.error();
  if (auto can = check_time_slices(config, nvidia, environment); !can) return can.error();
  return Space{*sms, *unit};
}

// Without these sluiced starts, and serves who administers it.
void warn_of_missing_files(const Config& config, bool nvidia) {
  const auto missing = [](const char* key, const std::string& what, const char* mend) {
    log::warning("no program of a guest can start: {}",
                 of_key(key, Error::from_errno(what), mend).message);
  };
  if (::access(config.worker.c_str(), X_OK) != 0)
    missing("worker", "execute " + config.worker, "set it to where sluice-worker is installed");
  // A name without a folder is looked for by the loader.
  const std::string& library = nvidia ? config.nvidia_library : config.soft_library;
  if (library.find('/') == std::string::npos || ::access(library.c_str(), R_OK) == 0) return;
  if (nvidia)
    missing("device.nvidia_library", "read " + library, "set it to the library of NVIDIA's driver");
  else
    missing("device.soft_library", "read " + library,
            "there is no NVIDIA GPU that can be used; the software GPU is in the package "
            "sluice-softgpu");
}

}  // namespace

bool nvidia_gpu_present() {
  return ::access("/dev/nvidiactl", R_OK | W_OK) == 0 && ::access("/dev/nvidia0", F_OK) == 0;
}

std::vector<std::string> worker_environment(const Config& config, bool nvidia) {
  std::map<std::string, std::string> variables;
  // Ours are passed on by name: nothing that happens to be set for the daemon (a preload, a library
  // path that leads to the guest's own libcuda) gets into workers unless the configuration says so.
  for (char** e = environ; *e; ++e) {
    const char* equals = std::strchr(*e, '=');
    if (!equals) continue;
    std::string name(*e, static_cast<size_t>(equals - *e));
    for (const char* wanted : {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"})
      if (name == wanted) variables[name] = equals + 1;
    for (const char* prefix : {"SLUICE_", "CUDA_", "ASAN_", "UBSAN_", "LSAN_"})
      if (name.rfind(prefix, 0) == 0) variables[name] = equals + 1;
  }
  if (!nvidia) {
    variables["SLUICE_SOFT_SMS"] = std::to_string(config.soft_sms);
    variables["SLUICE_SOFT_MEMORY"] = std::to_string(config.soft_memory_bytes);
    if (config.side_by_side()) variables.emplace("SLUICE_SOFT_MODE", "mps");
    if (config.slices) variables.emplace("SLUICE_SOFT_MODE", "timeslice");
    if (config.soft_threads) variables["SLUICE_SOFT_THREADS"] = std::to_string(config.soft_threads);
  }
  if (nvidia && config.side_by_side()) variables.emplace(kMpsPipes, config.mps_pipes);
  for (const auto& [name, value] : config.worker_environment) variables[name] = value;
  std::vector<std::string> list;
  for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
  return list;
}

namespace {

// From a reload to the end of a sluiced that no program uses. Less: systemd's reload command may
// still run, and systemd says that the reload has failed.
constexpr uint64_t kIdleWaitMs = 1000;

// Of an earlier sluiced, whose workers have been ended: it may be of another release, or was made
// by another configuration. A file that the configuration names may be others', too.
void forget_soft_gpu(const Config& config) {
  const std::string path = config.soft_gpu_path();
  if (config.soft_file.empty() && ::unlink(path.c_str()) != 0 && errno != ENOENT)
    log::warning("{}", Error::from_errno("remove " + path).message);
}

}  // namespace

Daemon::Daemon(boost::asio::io_context& io, const Config& config)
    : io_(io), config_(config), started_ns_(monotonic_ns()), beat_timer_(io), idle_timer_(io) {}

Daemon::~Daemon() {
  admin_.reset();
  vgpus_.clear();
  io::Listener::refuse_processes({});
  log::set_observer(nullptr);
}

Result<std::unique_ptr<Daemon>> Daemon::make(boost::asio::io_context& io, const Config& config,
                                             const std::optional<Identity>& identity,
                                             io::FdStore store) {
  std::unique_ptr<Daemon> d(new Daemon(io, config));
  d->store_ = std::move(store);
  if (auto started = d->start(identity); !started) return started.error();
  return d;
}

Result<void> Daemon::give_up_privileges(const Identity& identity) {
  std::vector<gid_t> more;
  if (access_.group) more.push_back(*access_.group);
  if (auto became = become(identity, more); !became)
    return Error(became.error()).with_context("becoming user " + identity.name);
  spawner_->gave_up_privileges([this] {
    log::error("sluiced ends: it may not start workers any more; start it anew as root");
    if (beyond_repair_) beyond_repair_();
  });
  log::info("sluiced runs as user {} (uid {}), without privileges", identity.name, identity.uid);
  return {};
}

Result<void> Daemon::check(const Config& config) {
  if (auto identity = Identity::wanted(config); !identity) return identity.error();
  if (!policy::find_policy(config.policy))
    return Error{EINVAL, "scheduler.policy '" + config.policy +
                             "': there is no such policy; there are: " +
                             policies_that([](const policy::Registration&) { return true; })};
  const bool nvidia = uses_nvidia(config);
  if (auto space = space_of(config, nvidia, worker_environment(config, nvidia)); !space)
    return space.error();
  if (auto access = SocketAccess::make(config); !access) return access.error();
  return {};
}

Result<void> Daemon::start(const std::optional<Identity>& identity) {
  record_events();
  const bool nvidia = uses_nvidia(config_);
  const std::vector<std::string> environment = worker_environment(config_, nvidia);
  const auto space = space_of(config_, nvidia, environment);
  if (!space) return space.error();
  if (auto made = make_folders(config_, identity); !made) return made;

  // First of all that is opened: it inherits nothing, and what an earlier sluiced left is ended.
  const std::string& library = nvidia ? config_.nvidia_library : config_.soft_library;
  if (auto started = start_spawner(nvidia, environment, library); !started) return started;
  if (!nvidia) forget_soft_gpu(config_);
  choose_slices(nvidia, environment);
  if (auto started = start_executor(nvidia, space->sms, space->unit); !started) return started;
  auto access = SocketAccess::make(config_);
  if (!access) return access.error();
  access_ = std::move(*access);
  if (identity)
    if (auto gave = give_up_privileges(*identity); !gave) return gave;

  SessionSettings settings = session_settings(config_, nvidia, space->sms, environment);
  if (settings.soft_gpu_file.size() >= sizeof(worker_protocol::Start::soft_gpu_file))
    return Error{ENAMETOOLONG, "device.soft_file is longer than 255 bytes"};
  executor_->ring_on_evict(worker_protocol::is_forwarded(settings.start.signal));
  executor_->expect_urgent_rings_within(settings.spin.low_us * 1000ull);
  warn_of_missing_files(config_, nvidia);
  load_groups();
  services_.reset(new SessionServices{.io = io_,
                                      .executor = *executor_,
                                      .settings = std::move(settings),
                                      .spawner = spawner_.get()});

  restore();
  add_rpc_methods(dispatcher_, *this);
  auto admin = AdminServer::open(io_, config_.admin_socket_path(), config_.admin_mode, dispatcher_);
  if (!admin) return Error(admin.error()).with_context("admin.socket");
  admin_ = std::move(*admin);
  log::info("sluiced " SLUICE_VERSION " serves on {}: device {} ({}), policy {}",
            config_.admin_socket_path(), nvidia ? "nvidia" : "soft", library, config_.policy);
  if (auto told = store_.ready(); !told) log::warning("{}", told.error().message);
  return {};
}

// What the configuration leaves open, now that it is known whether their use can be measured.
// Clients of an MPS server are one context to the GPU, which has one slice.
void Daemon::choose_slices(bool nvidia, const std::vector<std::string>& environment) {
  const auto can = [](const policy::Registration& row) { return row.proportional; };
  if (config_.slices_wanted || !policy_can(config_.policy, can)) return;
  if (!value_of(environment, kMpsPipes).empty()) return;
  const uint64_t now = monotonic_ns();
  config_.slices = config_.slices_for(nvidia, switch_log_ && switch_log_->usable(now));
  if (!config_.slices && switch_log_ && config_.slices_for(nvidia, true))
    log::warning("vGPUs share by evictions: what they use of time slices cannot be measured: {}",
                 switch_log_->why(now));
}

// Lines of the log are what the method `events` answers with.
void Daemon::record_events() {
  log::set_observer([this](log::Level level, std::string_view line) {
    using namespace std::chrono;
    const auto now = system_clock::now().time_since_epoch();
    events_.add(static_cast<uint64_t>(duration_cast<milliseconds>(now).count()), level, line);
  });
}

// The software GPU's slices are sluiced's own to set: it takes no witness.
std::unique_ptr<TimeSlices> Daemon::make_time_slices(bool nvidia) {
  if (!nvidia) return std::make_unique<SoftTimeSlices>(config_.soft_gpu_path());
  auto slices = std::make_unique<WorkerTimeSlices>(
      accounting::EngineUse::Config{.switch_ns = kSliceSwitchNs,
                                    .overrun_ns = config_.evict_end_for(nvidia) * 1'000'000ull},
      switch_log_);
  if (!switch_log_) return slices;
  GpuWitness::Settings witness;
  witness.library = config_.nvidia_library;
  witness.no_log = [log = switch_log_] { return log->why(monotonic_ns()); };
  witness.hear = [to = slices.get()](GpuWitness::Say say) { to->on_witness(say); };
  slices->set_witness(std::make_unique<GpuWitness>(io_, *spawner_, std::move(witness)));
  return slices;
}

Result<void> Daemon::start_executor(bool nvidia, uint32_t sms, uint32_t unit) {
  AccountingSettings accounting = accounting_settings(config_, nvidia);
  accounting.switch_log_feed = switch_log_;
  auto executor =
      GrantExecutor::make(io_, scheduler_config(config_, nvidia, sms, unit), accounting);
  if (!executor) return executor.error();
  executor_ = std::move(*executor);
  executor_->keep_learnt(config_.state_dir);
  if (config_.slices) executor_->set_time_slices(make_time_slices(nvidia));
  if (config_.trace.empty()) return {};
  // Where the GPU is given whole and its SMs are not known here, the trace counts it as one.
  const uint32_t traced_sms = sms                                   ? sms
                              : config_.device == DeviceKind::kSoft ? config_.soft_sms
                                                                    : 1;
  auto trace =
      TraceFile::open(config_.trace, traced_sms, config_.trace_limit_bytes, monotonic_ns());
  if (!trace)
    return of_key("scheduler.trace, or --trace", trace.error(),
                  "name a file in a folder that exists, and no link");
  executor_->set_trace(std::move(*trace));
  log::info("trace: {}", config_.trace);
  return {};
}

Result<void> Daemon::start_spawner(bool nvidia, const std::vector<std::string>& environment,
                                   const std::string& library) {
  io::SpawnerSpec spec;
  spec.path = config_.spawner;
  spec.runtime_dir = config_.runtime_dir;
  spec.worker = config_.worker;
  spec.library = library;
  spec.see = config_.worker_paths;
  spec.environment = environment;
  spec.nvidia = nvidia;
  spec.switch_log = reads_driver_log(config_, nvidia);
  spec.uids = config_.worker_uids;
  // The software GPU records faults itself; a log that is named is read all the same.
  if (nvidia || config_.kernel_log != Config().kernel_log) spec.kernel_log = config_.kernel_log;
  if (nvidia) spec.mps = value_of(environment, kMpsPipes);
  spec.worker_memory_bytes = config_.host_memory_bytes + limits::kWorkerOwnBytes +
                             (nvidia ? 0 : config_.soft_memory_bytes);
  spec.code_cache_bytes = config_.code_cache_for(nvidia);
  auto spawner = io::SpawnerLink::start(io_, std::move(spec));
  if (!spawner) return spawner.error();
  spawner_ = std::move(*spawner);
  if (reads_driver_log(config_, nvidia)) {
    switch_log_ = std::make_shared<SwitchLogFeed>();
    spawner_->on_switch_log([this](io::SpawnerLink::SwitchLog log) {
      if (log.ring)
        switch_log_->connect(std::move(log.ring), std::move(log.control), monotonic_ns());
      else
        switch_log_->refuse(log.why);
    });
  }
  const io::HostReport& host = spawner_->host();
  if (host.ended_workers)
    log::warning("{} workers that an earlier sluiced had left were ended", host.ended_workers);
  if (nvidia && !host.sees_xids())
    log::warning("faults of workers are not seen in the kernel's log: {}", host.no_kernel_log);
  if (config_.code_cache_for(nvidia) && !host.no_code_cache.empty())
    log::warning("programs of a vGPU share no cache of machine code: {}", host.no_code_cache);
  for (const std::string& m : host.missing_walls) log::warning("workers run without a wall: {}", m);
  for (const std::string& m : host.missing_limits)
    log::warning("workers run without a limit: {}", m);
  if (config_.require_walls && !host.missing_walls.empty())
    return Error{EPERM,
                 "workers.require is set and this host does not allow all walls around workers"};
  io::Listener::refuse_uids(spawner_->uids());
  if (host.lacks(spawner_protocol::Wall::kUser))
    io::Listener::refuse_processes([this](pid_t pid) { return spawner_->is_worker(pid); });
  else
    io::Listener::refuse_processes({});
  return {};
}

// Once a second as long as there is a vGPU: a guest's agent takes a silent host for a dead one.
void Daemon::beat() {
  call_if_idle();
  if (vgpus_.empty()) return;
  ++beats_;
  for (auto& [name, vgpu] : vgpus_) vgpu->beat(beats_);
  io::LoopPriority::on_beat();
  keep();
  beat_timer_.after_ms(limits::kChannelBeatMs, [this] { beat(); });
}

void Daemon::when_idle(std::function<void()> call) {
  idle_ = std::move(call);
  idle_timer_.after_ms(kIdleWaitMs, [this] { call_if_idle(); });
}

void Daemon::call_if_idle() {
  if (!idle_ || idle_timer_.pending() || shutting_down_) return;
  for (const auto& [name, vgpu] : vgpus_)
    if (!vgpu->sessions().empty()) return;
  boost::asio::post(io_, std::exchange(idle_, nullptr));
}

Result<void> Daemon::set_group(const std::string& name, const Group& group, GroupFile::Then kept) {
  if (auto added = add_group(name, group); !added) return added;
  save_groups(std::move(kept));
  return {};
}

void Daemon::save_groups(GroupFile::Then kept) {
  std::vector<GroupRow> rows;
  for (const auto& [each, g] : groups_)
    rows.push_back({.name = each, .parent = g.parent, .share = g.share});
  group_file_->save(rows, std::move(kept));
}

// Groups of an earlier life. What cannot be had again is said, and costs nothing else.
void Daemon::load_groups() {
  group_file_ = std::make_unique<GroupFile>(io_, config_.state_dir);
  auto read = group_file_->load();
  bool whole = read.ok();
  if (!whole)
    log::warning("{}/groups cannot be read, there are no groups: {}", config_.state_dir,
                 read.error().message);
  const GroupFile::Read groups = whole ? std::move(*read) : GroupFile::Read{};
  for (const std::string& why : groups.left_out) {
    log::warning("of {}/groups is left out: {}", config_.state_dir, why);
    whole = false;
  }
  for (const GroupRow& g : groups.rows)
    if (auto added = add_group(g.name, {.id = 0, .parent = g.parent, .share = g.share}); !added) {
      log::warning("group {} of {}/groups is left out: {}", g.name, config_.state_dir,
                   added.error().message);
      whole = false;
    }
  if (whole) return;
  if (auto aside = group_file_->set_aside(); !aside)
    return log::warning("{}/groups stays as it is until groups are made: {}", config_.state_dir,
                        aside.error().message);
  else
    log::warning("what was {}/groups is kept as {}", config_.state_dir, *aside);
  if (!groups_.empty()) save_groups();
}

Result<void> Daemon::add_group(const std::string& name, const Group& group) {
  if (!valid_vgpu_name(name))
    return Error{EINVAL, "a group's name has 1 to " + std::to_string(limits::kMaxVgpuNameBytes) +
                             " letters, digits, '.', '_', '-' and starts with a letter or digit"};
  const auto known = groups_.find(name);
  Group made = group;
  made.id =
      known != groups_.end() ? known->second.id : static_cast<policy::GroupId>(groups_.size() + 1);
  if (made.id >= policy::kMaxGroups)
    return Error{ENOSPC, "there are " + std::to_string(policy::kMaxGroups - 1) + " groups"};
  auto parent = group_id(group.parent);
  if (!parent) return parent.error();
  made.share.parent = *parent;
  if (auto why = executor_->scheduler().refuses_group(made.id, made.share); !why.empty())
    return Error{EINVAL, why};
  groups_[name] = made;
  executor_->set_group(made.id, made.share);
  return {};
}

Result<policy::GroupId> Daemon::group_id(const std::string& name) const {
  if (name.empty()) return policy::kRootGroup;
  const auto it = groups_.find(name);
  if (it == groups_.end())
    return Error{ENOENT, "there is no group '" + name + "' (sluicectl group makes one)"};
  return it->second.id;
}

std::string Daemon::group_name(policy::GroupId id) const {
  for (const auto& [name, group] : groups_)
    if (group.id == id) return name;
  return {};
}

Result<void> Daemon::check(const CreateRequest& r) const {
  if (shutting_down_) return Error{ESHUTDOWN, "sluiced is ending"};
  if (!valid_vgpu_name(r.name))
    return Error{EINVAL, "a vGPU's name has 1 to " + std::to_string(limits::kMaxVgpuNameBytes) +
                             " letters, digits, '.', '_', '-' and starts with a letter or digit"};
  if (!r.mode.empty() && r.mode != config_.mode_name())
    return Error{EINVAL, "vGPU '" + r.name + "' is to be " + r.mode +
                             ", and this host shares its " + "GPU in mode " + config_.mode_name() +
                             " (scheduler.mode)"};
  if (vgpus_.count(r.name)) return Error{EEXIST, "there is a vGPU '" + r.name + "' already"};
  if (vgpus_.size() >= limits::kMaxVgpus)
    return Error{ENOSPC, "there are " + std::to_string(limits::kMaxVgpus) + " vGPUs; no more fit"};
  if (r.owner.size() > kMaxOwnerBytes || clean_text(r.owner.data(), r.owner.size()) != r.owner)
    return Error{EINVAL, "owner must be printable ASCII of at most " +
                             std::to_string(kMaxOwnerBytes) + " bytes"};
  return {};
}

VgpuSpec Daemon::spec_of(const CreateRequest& r) const {
  VgpuSpec spec;
  spec.name = r.name;
  spec.owner = r.owner;
  spec.mode = r.mode;
  spec.share = r.limits;
  spec.share.weight = r.weight ? r.weight : config_.weight;
  spec.share.priority = r.priority;
  spec.memory_bytes = r.memory_bytes;
  spec.socket = r.socket.empty() ? config_.vgpu_dir() + "/" + r.name + ".sock" : r.socket;
  spec.local_socket = config_.vgpu_dir() + "/" + r.name + ".local";
  spec.geometry = {r.region_bytes ? r.region_bytes : config_.region_bytes,
                   r.slots ? r.slots : config_.slots};
  spec.socket_options.mode = config_.socket_mode;
  spec.socket_options.group = access_.group;
  spec.access = &access_;
  spec.local_socket_mode = config_.local_socket_mode;
  spec.join_ms = config_.join_ms;
  return spec;
}

Result<void> Daemon::check(const VgpuSpec& spec) const {
  if (auto why = executor_->scheduler().refuses(policy::kNoVgpu, spec.share); !why.empty())
    return Error{EINVAL, why};
  if (spec.socket.empty() || spec.socket[0] != '/')
    return Error{EINVAL, "socket must be an absolute path"};
  if (spec.socket == config_.admin_socket_path()) return Error{EEXIST, "that is the admin socket"};
  // Listening refuses these as well, but does not know whose they are.
  for (const auto& [name, v] : vgpus_)
    if (v->spec().socket == spec.socket || v->spec().local_socket == spec.socket)
      return Error{EEXIST, "socket " + spec.socket + " is vGPU '" + name + "'s"};
  if (spec.geometry.bulk_offset() + config_.staging_bytes > spec.geometry.region_bytes)
    return Error{EINVAL, "the region has no room for that many slots and one session's staging"};
  return {};
}

Result<VgpuServer*> Daemon::create(const CreateRequest& r,
                                   std::optional<VgpuServer::Connection> connection) {
  if (auto good = check(r); !good) return good.error();
  VgpuSpec spec = spec_of(r);
  if (auto good = check(spec); !good) return good.error();
  // In our own folder every dead socket is one that an earlier sluiced left. Elsewhere only those
  // are of which it left a note.
  const bool elsewhere = spec.socket.rfind('/') != config_.vgpu_dir().size() ||
                         spec.socket.compare(0, config_.vgpu_dir().size(), config_.vgpu_dir()) != 0;
  if (elsewhere)
    spec.socket_options.may_replace = [this, path = spec.socket](const FileId& file) {
      return SocketNote::exists(config_.vgpu_dir(), path, file);
    };
  auto vgpu = VgpuServer::make(*services_, spec, std::move(connection));
  if (!vgpu) return vgpu.error();
  if (elsewhere) {
    auto note = SocketNote::write(config_.vgpu_dir(), r.name, spec.socket, (*vgpu)->socket_file());
    if (!note) return note.error();
    (*vgpu)->keep(std::move(*note));
  }
  log::info("vgpu {}: created, weight {}, socket {}", r.name, spec.share.weight, spec.socket);
  VgpuServer* made = (vgpus_[r.name] = std::move(*vgpu)).get();
  if (const auto owed = debts_.find(r.name); owed != debts_.end() && owed->second.owner == r.owner)
    made->take_over_debts(owed->second.faults, owed->second.stalls);
  if (!beat_timer_.pending()) beat();
  return made;
}

// A tenant may start its domain or its pod again as often as it likes.
void Daemon::remember_debts(const VgpuServer& vgpu) {
  const uint64_t now = monotonic_ns();
  std::erase_if(debts_, [&](const auto& d) {
    return d.second.faults.debt_ns(now) == 0 && d.second.stalls.debt_ns(now) == 0;
  });
  const std::string& owner = vgpu.spec().owner;
  if (owner.empty() || debts_.size() >= limits::kMaxVgpus) return;
  debts_.insert_or_assign(vgpu.spec().name, Debts{owner, vgpu.penalty(), vgpu.stall_budget()});
}

Result<void> Daemon::remove(const std::string& name, std::function<void()> done) {
  VgpuServer* vgpu = find(name);
  if (!vgpu) return Error{ENOENT, "there is no vGPU '" + name + "'"};
  if (vgpu->closing()) return Error{EBUSY, "vGPU '" + name + "' is being deleted already"};
  vgpu->close("the vGPU was deleted", [this, name, done = std::move(done)] {
    if (const VgpuServer* gone = find(name)) remember_debts(*gone);
    vgpus_.erase(name);
    log::info("vgpu {}: deleted", name);
    keep();
    done();
  });
  return {};
}

VgpuServer* Daemon::find(const std::string& name) {
  auto it = vgpus_.find(name);
  return it == vgpus_.end() ? nullptr : it->second.get();
}

void Daemon::shut_down(std::function<void()> done) {
  if (shutting_down_) return;
  keep();
  shutting_down_ = true;
  admin_.reset();
  auto waiting = std::make_shared<size_t>(1);
  auto one_gone = [waiting, done = std::move(done)] {
    if (--*waiting == 0) done();
  };
  std::vector<std::string> names;
  for (const auto& [name, vgpu] : vgpus_) names.push_back(name);
  for (const std::string& name : names) {
    if (vgpus_.at(name)->closing()) continue;  // ours to destroy; its workers are waited for there
    ++*waiting;
    VgpuServer& v = *vgpus_.at(name);
    v.close("sluiced ends", one_gone, is_kept(v));
  }
  one_gone();
}

}  // namespace sluice
