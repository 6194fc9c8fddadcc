// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/spawner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "mediator/base/log.h"
#include "mediator/spawner/limits.h"
#include "mediator/spawner/receive.h"
#include "mediator/spawner/send_kill.h"

namespace sluice::spawner {

using spawner_protocol::Packet;
using spawner_protocol::Type;

namespace {

// Which runtime directory a cgroup belongs to: a number, as the name has no slashes.
std::string tag_of(const std::string& path) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string cgroup_name(uint64_t vgpu, uint32_t slot) {
  const std::string worker = "w" + std::to_string(slot);
  return vgpu == 0 ? worker : "v" + std::to_string(vgpu) + "/" + worker;
}

// Records name processes by the numbers of the host's first pid namespace, whose file the kernel
// has given one number for ever.
bool in_first_pid_namespace(int proc) {
  constexpr ino_t kFirst = 0xeffffffc;
  struct stat ns {};
  return ::fstatat(proc, "self/ns/pid", &ns, 0) == 0 && ns.st_ino == kFirst;
}

bool absolute(const std::string& path) { return !path.empty() && path[0] == '/'; }

}  // namespace

int Spawner::run() {
  if (auto ready = set_up(); !ready) {
    log::error("spawner: {}", ready.error().message);
    Packet hello;
    hello.header.type = Type::kHello;
    hello.header.code = ready.error().code ? ready.error().code : EIO;
    hello.add("error", ready.error().message);
    (void)send(hello);
    return 1;
  }
  auto served = serve();
  const size_t left = workers_.size();
  end_all();
  if (served.error().code == EPIPE) {
    if (left) log::warning("spawner: sluiced is gone: {} workers ended", left);
    return 0;
  }
  log::error("spawner: {}", served.error().message);
  return 1;
}

Result<void> Spawner::set_up() {
  proc_.reset(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc_) return Error::from_errno("open /proc");
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGCHLD);

  auto read = read_setup();
  if (!read) return read.error();
  PrisonSpec spec = std::move(*read);
  std::string no_cgroups;
  if (auto ended = end_earlier_workers(spec.runtime_dir, &no_cgroups); !ended) return ended;

  // While all that the host shows is there.
  const std::string no_log = open_kernel_log();
  const auto uids = spec.uids;
  start_switch_recorder();
  prison_ = Prison::prepare(std::move(spec), no_cgroups);
  Fd probe;
  if (cgroups_)
    if (auto made = cgroups_->make("probe"); made) probe = std::move(*made);
  prison_->rehearse(probe.get());
  probe.reset();
  const bool counts_starved = cgroups_ && cgroups_->starved_ns("probe");
  if (cgroups_) cgroups_->remove("probe");
  if (cgroups_ && !prison_->has(Wall::kCgroup)) {
    cgroups_->end();
    cgroups_.reset();
  }
  open_code_caches(uids);

  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  signals_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return Error::from_errno("signalfd");
  return send_hello(no_log, counts_starved);
}

Result<void> Spawner::send_hello(const std::string& no_log, bool counts_starved) {
  Packet hello;
  hello.header.type = Type::kHello;
  hello.header.id = file_->ended();
  for (const auto& [wall, why] : prison_->missing())
    hello.add("missing",
              std::string(spawner_protocol::kWallNames[static_cast<size_t>(wall)]) + ": " + why);
  if (cgroups_)
    for (const std::string& why : cgroups_->missing_limits()) hello.add("no-limit", why);
  if (!kernel_log_) hello.add("no-kernel-log", no_log);
  if (!cgroups_)
    hello.add("no-pressure", "workers have no cgroups");
  else if (!counts_starved)
    hello.add("no-pressure", "the kernel does not count it (psi=1 on its command line)");
  if (!no_code_cache_.empty()) hello.add("no-code-cache", no_code_cache_);
  if (!switch_recorder_) {
    hello.add("no-switch-log", no_switch_log_);
    return send(hello);
  }
  const int log[] = {switch_recorder_->ring(), switch_recorder_->control()};
  auto sent = send(hello, log);
  switch_recorder_->hand_over();
  return sent;
}

// A process that sees other numbers than the kernel's own cannot tell whose a record is.
void Spawner::start_switch_recorder() {
  if ((setup_.header.flag & spawner_protocol::kSwitchLog) == 0) {
    no_switch_log_ = "not asked for";
    return;
  }
  if (!in_first_pid_namespace(proc_.get())) {
    no_switch_log_ = "sluiced is in a pid namespace of its own; the log has the host's numbers";
    return;
  }
  auto recorder = SwitchRecorder::start(gpu::system_driver_device());
  if (recorder)
    switch_recorder_.emplace(std::move(*recorder));
  else
    no_switch_log_ = recorder.error().message;
}

Result<PrisonSpec> Spawner::read_setup() {
  const Packet& setup = setup_;
  auto uids = spawner_protocol::parse_uids(setup.one("uids"));
  PrisonSpec spec;
  spec.runtime_dir = setup.one("runtime");
  spec.worker = setup.one("worker");
  spec.library = setup.one("library");
  spec.see = setup.all("see");
  spec.environment = setup.all("env");
  spec.mps = setup.one("mps");
  spec.nvidia = (setup.header.flag & spawner_protocol::kNvidia) != 0;
  worker_memory_ = std::strtoull(setup.one("memory").c_str(), nullptr, 10);
  if (!uids || !absolute(spec.runtime_dir) || !absolute(spec.worker) || spec.library.empty())
    return Error{EPROTO, "the Setup is not one of this version"};
  spec.uids = *uids;
  slots_ = static_cast<uint32_t>(std::min<uint64_t>(uids->count(), limits::kWorkers));
  return spec;
}

Result<void> Spawner::end_earlier_workers(const std::string& runtime_dir, std::string* no_cgroups) {
  auto file = RunningFile::take(runtime_dir, proc_.get(), sluiced_);
  if (!file) return file.error();
  file_ = std::move(*file);
  if (auto cgroups = Cgroups::open(tag_of(runtime_dir)); cgroups) {
    cgroups_ = std::move(*cgroups);
    file_->add_ended(cgroups_->end_all());
    file_->set_cgroups(cgroups_->path());
  } else {
    *no_cgroups = cgroups.error().message;
  }
  if (file_->ended() || file_->stuck())
    log::warning("spawner: an earlier sluiced left workers: {} ended, {} do not end",
                 file_->ended(), file_->stuck());
  return {};
}

std::string Spawner::open_kernel_log() {
  const std::string path = setup_.one("kernel-log");
  if (path.empty()) return "not asked for";
  auto log = KernelLog::open(path);
  if (!log) return log.error().message;
  kernel_log_ = std::move(*log);
  return {};
}

// The last ids of the range are for them, so that no worker of another vGPU has one.
void Spawner::open_code_caches(const spawner_protocol::UidRange& uids) {
  const uint32_t ids = uids.count() / limits::kIdsToCode;
  const uint64_t bytes = std::strtoull(setup_.one("code-cache").c_str(), nullptr, 10);
  auto opened = ids == 0 ? Error{EINVAL, "workers.uids are too few"}
                         : prison_->open_code_caches(bytes, {uids.last - ids + 1, uids.last});
  if (opened)
    slots_ = std::min(slots_, uids.count() - ids);
  else
    no_code_cache_ = opened.error().message;
}

// Before exits are reported: a fault comes before the end of its worker.
Result<void> Spawner::read_kernel_log() {
  if (!kernel_log_) return {};
  Result<void> sent;
  const bool good = kernel_log_->read([&](const Xid& xid) {
    const auto worker = workers_.find(xid.pid);
    if (worker == workers_.end() || !sent) return;
    Packet packet;
    packet.header.type = Type::kXid;
    packet.header.id = worker->second.id;
    packet.header.code = xid.number;
    sent = send(packet);
  });
  if (!good) {
    log::warning("spawner: the kernel's log is lost: faults of workers are not seen any more");
    kernel_log_.reset();
    Packet packet;
    packet.header.type = Type::kNoXids;
    sent = send(packet);
  }
  return sent;
}

Result<void> Spawner::serve() {
  for (;;) {
    pollfd wait[] = {{control_.get(), POLLIN, 0},
                     {signals_.get(), POLLIN, 0},
                     {kernel_log_ ? kernel_log_->fd() : -1, POLLIN, 0}};
    if (::poll(wait, 3, dying_.empty() ? -1 : 20) < 0 && errno != EINTR)
      return Error::from_errno("poll");
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == ssize_t{sizeof info}) {
    }
    if (auto r = read_kernel_log(); !r) return r;
    // Always: several children make one signal.
    if (auto r = reap(); !r) return r;
    if (cgroups_) std::erase_if(dying_, [&](const Dying& d) { return cgroups_->remove(d.cgroup); });
    if (wait[0].revents)
      if (auto r = on_packet(); !r) return r;
  }
}

Result<void> Spawner::on_packet() {
  auto in = receive(control_.get());
  if (!in) return in.error();
  const spawner_protocol::Header& h = in->packet.header;
  if (!in->packet.lines.empty()) return Error{EPROTO, "sluiced sent a malformed message"};
  if (h.type == Type::kSpawn && in->lost_fds)
    return send_failed(h.id, EMFILE, "the spawner has no descriptors left for it");
  if (h.type == Type::kSpawn && in->fds.size() == 2)
    return spawn(h, in->fds[0].get(), in->fds[1].get());
  if (h.type == Type::kKill && in->fds.empty()) {
    // One that is not there has ended just now: its Exited is on the way.
    for (auto& [pid, worker] : workers_)
      if (worker.id == h.id) kill(pid, worker);
    return {};
  }
  if (h.type == Type::kAskStarved && in->fds.empty()) return answer_starved(h.id);
  if (h.type == Type::kForget && in->fds.empty()) {
    if (CodeCaches* codes = prison_->code_caches()) codes->forget(h.id);
    return {};
  }
  return Error{EPROTO, "sluiced sent a message of no known kind"};
}

// Read here, because the kernel may have the reader wait for a thread of its own, which has no
// processor either.
Result<void> Spawner::answer_starved(uint64_t id) {
  Packet starved;
  starved.header.type = Type::kStarved;
  starved.header.id = id;
  for (const auto& [pid, worker] : workers_)
    if (worker.id == id && cgroups_)
      starved.header.ns = cgroups_->starved_ns(worker.cgroup).value_or(0);
  return send(starved);
}

// Uids go round, so that one is used again as late as can be.
std::optional<uint32_t> Spawner::free_slot() {
  for (uint32_t i = 0; i < slots_; ++i) {
    const uint32_t slot = (next_slot_ + i) % slots_;
    const bool used =
        std::any_of(workers_.begin(), workers_.end(),
                    [&](const auto& w) { return w.second.slot == slot; }) ||
        std::any_of(dying_.begin(), dying_.end(), [&](const Dying& d) { return d.slot == slot; });
    if (used) continue;
    next_slot_ = (slot + 1) % slots_;
    return slot;
  }
  return std::nullopt;
}

CgroupLimits Spawner::limits_of(uint32_t shared_mib) const {
  const uint64_t shared = std::min<uint64_t>(shared_mib, limits::kSharedMib) << 20;
  return {worker_memory_ ? worker_memory_ + shared : 0, limits::kThreads};
}

// None where there are none, or no room for one: it costs the worker time, not its place.
std::optional<CodeCaches::Place> Spawner::take_code_cache(uint64_t vgpu) {
  CodeCaches* codes = prison_->code_caches();
  if (!codes || vgpu == 0) return std::nullopt;
  auto place = codes->take(vgpu);
  if (place) return std::move(*place);
  log::warning("spawner: a worker has no cache of machine code: {}", place.error().message);
  return std::nullopt;
}

void Spawner::leave_code_cache(const Worker& worker) {
  if (worker.code) prison_->code_caches()->leave(*worker.code);
}

Result<void> Spawner::spawn(const spawner_protocol::Header& asked, int control, int output) {
  const uint64_t id = asked.id;
  for (const auto& [pid, worker] : workers_)
    if (worker.id == id) return Error{EPROTO, "sluiced used a worker's id twice"};
  const auto slot = free_slot();
  if (!slot) return send_failed(id, EAGAIN, "all user ids of workers.uids are in use");
  Worker worker{id, *slot, cgroup_name(asked.vgpu, *slot), {}, {}};
  Fd cgroup;
  if (cgroups_) {
    auto made = cgroups_->make(worker.cgroup, limits_of(asked.flag));
    if (!made) return send_failed(id, made.error().code, made.error().message);
    cgroup = std::move(*made);
  }
  const auto code = take_code_cache(asked.vgpu);
  if (code) worker.code = code->folder;
  auto started = prison_->start(*slot, control, output, cgroup.get(), code ? &*code : nullptr);
  if (!started) {
    leave_code_cache(worker);
    if (cgroups_) cgroups_->remove(worker.cgroup);
    return send_failed(id, started.error().code, "start a worker: " + started.error().message);
  }
  // First it stands in the file, then it may run.
  const pid_t pid = started->pid;
  file_->set_worker(*slot, mark_of(proc_.get(), pid));
  worker.process = std::move(*started);
  Packet spawned;
  spawned.header.type = Type::kSpawned;
  spawned.header.id = id;
  spawned.header.pid = pid;
  const int pidfd = worker.process.pidfd.get();
  Worker& kept = workers_[pid] = std::move(worker);
  if (auto sent = send(spawned, {&pidfd, 1}); !sent) return sent;
  [[maybe_unused]] auto n = ::write(kept.process.go.get(), "", 1);
  kept.process.go.reset();
  return {};
}

void Spawner::kill(pid_t pid, Worker& worker) {
  if (cgroups_) cgroups_->kill(worker.cgroup);
  if (!send_kill(proc_.get(), pid, worker.process.pidfd.get()) && !cgroups_)
    log::error("spawner: worker {} may not be signalled: it takes CAP_KILL, CAP_SETUID or a cgroup",
               pid);
}

Result<void> Spawner::reap() {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return {};
    auto found = workers_.find(info.si_pid);
    if (found == workers_.end()) continue;
    Worker worker = std::move(found->second);
    workers_.erase(found);
    leave_code_cache(worker);
    file_->set_worker(worker.slot, {});
    if (cgroups_) {
      cgroups_->kill(worker.cgroup);  // whatever it made
      if (!cgroups_->remove(worker.cgroup)) dying_.push_back({worker.slot, worker.cgroup});
    }
    Prison::Failure failure;
    if (::read(worker.process.failed.get(), &failure, sizeof failure) == ssize_t{sizeof failure}) {
      failure.what[sizeof failure.what - 1] = 0;
      if (auto r = send_failed(worker.id, failure.code,
                               std::string(failure.what) + ": " + ::strerror(failure.code));
          !r)
        return r;
      continue;
    }
    Packet exited;
    exited.header.type = Type::kExited;
    exited.header.id = worker.id;
    exited.header.flag = info.si_code != CLD_EXITED;
    exited.header.code = info.si_status;
    if (auto r = send(exited); !r) return r;
  }
}

void Spawner::end_all() {
  for (auto& [pid, worker] : workers_) kill(pid, worker);
  for (auto& [pid, worker] : workers_) {
    pollfd exit{worker.process.pidfd.get(), POLLIN, 0};
    if (::poll(&exit, 1, limits::kEndMs) != 1) continue;  // its mark stays in the file
    ::waitpid(pid, nullptr, 0);
    if (file_) file_->set_worker(worker.slot, {});
  }
  workers_.clear();
  if (cgroups_) cgroups_->end();
}

Result<void> Spawner::send(const Packet& packet, std::span<const int> fds) {
  const std::string bytes = spawner_protocol::encode(packet);
  for (;;) {
    auto sent = send_with_fds(control_.get(), bytes.data(), bytes.size(), fds);
    if (sent || !spawner_protocol::passes(sent.error().code)) return sent;
    ::poll(nullptr, 0, limits::kSendAgainMs);
  }
}

Result<void> Spawner::send_failed(uint64_t id, int code, const std::string& why) {
  Packet failed;
  failed.header.type = Type::kFailed;
  failed.header.id = id;
  failed.header.code = code;
  failed.lines.push_back(why);
  return send(failed);
}

}  // namespace sluice::spawner
