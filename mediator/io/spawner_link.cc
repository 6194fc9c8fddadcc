// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/spawner_link.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/unix_socket.h"

namespace sluice::io {

using spawner_protocol::Packet;
using SpawnerType = spawner_protocol::Type;

namespace {

// Not sooner after the last one: a spawner that dies at once must not keep the host busy.
constexpr uint64_t kAgainMs = 1000;
// After an error that passes.
constexpr uint64_t kSendAgainMs = 10;
// At the end: from closing its connection, when it ends all workers, to killing it.
constexpr int kKeeperEndMs = 15000;

// `environment`: that of workers. Nothing that happens to be set for us, a library path for one.
int start_program(pid_t& pid, const std::string& path, int control,
                  std::vector<std::string> environment) {
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_init(&actions);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  // A session of its own: Ctrl-C in our terminal is ours to turn into an orderly end.
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  // dup2 onto itself would keep close-on-exec; glibc clears it in that case too (2.29).
  ::posix_spawn_file_actions_adddup2(&actions, control, spawner_protocol::kControlFd);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, spawner_protocol::kControlFd + 1);
  std::string name = "sluice-spawner";
  char* arguments[] = {name.data(), nullptr};
  std::vector<char*> variables;
  for (std::string& v : environment) variables.push_back(v.data());
  variables.push_back(nullptr);
  const int error =
      ::posix_spawn(&pid, path.c_str(), &actions, &attributes, arguments, variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return error;
}

// The key that names the program comes first.
Error bad_program(int code, const std::string& path, const std::string& what) {
  return {code, "workers.spawner: " + path + " " + what};
}

// Waits until something can be read, or the deadline.
Result<void> readable(int fd, uint64_t end_ns, const std::string& program) {
  for (;;) {
    const uint64_t now = monotonic_ns();
    if (now >= end_ns) return bad_program(ETIMEDOUT, program, "does not begin");
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>((end_ns - now) / 1'000'000 + 1)) == 1) return {};
  }
}

}  // namespace

SpawnerLink::SpawnerLink(boost::asio::io_context& io, SpawnerSpec spec)
    : io_(io), spec_(std::move(spec)), again_(io), send_again_(io) {}

Result<std::unique_ptr<SpawnerLink>> SpawnerLink::start(boost::asio::io_context& io,
                                                        SpawnerSpec spec) {
  auto uids = spawner_protocol::parse_uids(spec.uids);
  if (!uids) return Error{EINVAL, "workers.uids is no range of user ids: " + spec.uids};
  std::unique_ptr<SpawnerLink> s(new SpawnerLink(io, std::move(spec)));
  s->uids_ = *uids;
  const uint64_t end = monotonic_ns() + uint64_t{s->spec_.hello_ms} * 1'000'000;
  if (auto launched = s->launch(); !launched) return launched.error();
  if (auto launched = s->wait_for_launched(end); !launched) return launched.error();
  if (auto ready = s->wait_for_hello(end); !ready) return ready.error();
  return s;
}

Result<void> SpawnerLink::start_keeper() {
  Packet setup;
  setup.header.type = SpawnerType::kSetup;
  setup.header.flag = spec_.nvidia ? static_cast<uint32_t>(spawner_protocol::kNvidia) : 0u;
  if (spec_.switch_log) setup.header.flag |= spawner_protocol::kSwitchLog;
  setup.add("runtime", spec_.runtime_dir);
  setup.add("worker", spec_.worker);
  setup.add("library", spec_.library);
  setup.add("uids", spec_.uids);
  for (const std::string& s : spec_.see) setup.add("see", s);
  for (const std::string& e : spec_.environment) setup.add("env", e);
  if (!spec_.mps.empty()) setup.add("mps", spec_.mps);
  if (!spec_.kernel_log.empty()) setup.add("kernel-log", spec_.kernel_log);
  if (spec_.worker_memory_bytes) setup.add("memory", std::to_string(spec_.worker_memory_bytes));
  if (spec_.code_cache_bytes) setup.add("code-cache", std::to_string(spec_.code_cache_bytes));
  const std::string bytes = spawner_protocol::encode(setup);
  if (bytes.size() > spawner_protocol::kMaxBytes)
    return Error{E2BIG, "the environment of workers is too large"};
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return Error::from_errno("socketpair");
  Fd ours(pair[0]), theirs(pair[1]);
  if (int e = start_program(keeper_, spec_.path, theirs.get(), spec_.environment); e != 0) {
    keeper_ = -1;
    return bad_program(e, spec_.path,
                       std::string("cannot be started: ") + std::strerror(e) +
                           "; set it to where sluice-spawner is installed");
  }
  theirs.reset();
  link_ = std::move(ours);
  link_watch_ = FdWatch(io_, link_.get(), [this] { on_link(); });
  return send_to_keeper(bytes);
}

Result<void> SpawnerLink::send_to_keeper(const std::string& bytes) {
  auto sent = send_with_fds(link_.get(), bytes.data(), bytes.size(), {}, MSG_DONTWAIT);
  if (!sent && (sent.error().code == EPIPE || sent.error().code == ECONNRESET))
    return bad_program(EPIPE, spec_.path, "ended at once");
  return sent;
}

// Asks for a spawner. It is there with take_launched().
Result<void> SpawnerLink::launch() {
  launched_ns_ = monotonic_ns();
  said_hello_ = false;
  if (!link_)
    if (auto started = start_keeper(); !started) return started;
  Packet packet;
  packet.header.type = SpawnerType::kLaunch;
  return send_to_keeper(spawner_protocol::encode(packet));
}

Result<void> SpawnerLink::take_launched() {
  std::string bytes(spawner_protocol::kMaxBytes, '\0');
  auto got = receive_with_fds(link_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (!got && got.error().code != ECONNRESET) return got.error();
  if (!got || got->bytes == 0) return bad_program(EPIPE, spec_.path, "ended at once");
  auto packet = spawner_protocol::decode(std::string_view(bytes.data(), got->bytes));
  if (!packet || got->truncated || packet->header.type != SpawnerType::kLaunched ||
      got->fds.size() != 1 || packet->header.pid <= 0)
    return bad_program(EPROTO, spec_.path, "is of another version");
  pid_ = static_cast<pid_t>(packet->header.pid);
  socket_ = std::move(got->fds[0]);
  watch_ = FdWatch(io_, socket_.get(), [this] { on_readable(); });
  flush();
  return {};
}

Result<void> SpawnerLink::wait_for_launched(uint64_t end_ns) {
  for (;;) {
    if (auto in = readable(link_.get(), end_ns, spec_.path); !in) return in;
    auto taken = take_launched();
    if (taken || taken.error().code != EAGAIN) return taken;
  }
}

Result<void> SpawnerLink::wait_for_hello(uint64_t end_ns) {
  for (;;) {
    if (auto in = readable(socket_.get(), end_ns, spec_.path); !in) return in;
    std::string bytes(spawner_protocol::kMaxBytes, '\0');
    auto got = receive_with_fds(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (!got && got.error().code == EAGAIN) continue;
    if (!got) return got.error();
    if (got->bytes == 0) return bad_program(EPIPE, spec_.path, "ended at once");
    auto packet = spawner_protocol::decode(std::string_view(bytes.data(), got->bytes));
    if (!packet || got->truncated || packet->header.type != SpawnerType::kHello)
      return bad_program(EPROTO, spec_.path, "is of another version");
    auto ready = on_hello(*packet, std::move(got->fds));
    return ready ? ready : std::move(ready).error().with_context("spawner");
  }
}

void SpawnerLink::on_link() {
  auto taken = take_launched();
  if (taken || taken.error().code == EAGAIN) return;
  log::error("the spawner's keeper (process {}) is lost: {}", keeper_, taken.error().message);
  close_keeper();
  // A spawner that still serves goes on; without one another keeper is started.
  if (!socket_ && !again_.pending()) again();
}

// A keeper has ended when its link has: nothing else holds the other end.
void SpawnerLink::close_keeper() {
  link_watch_.stop();
  link_.reset();
  if (keeper_ > 0 && ::kill(keeper_, SIGKILL) == 0)
    while (::waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
    }
  else
    reap();
  keeper_ = -1;
}

Result<void> SpawnerLink::on_hello(const Packet& packet, std::vector<Fd> fds) {
  if (packet.header.code != 0) return Error{packet.header.code, packet.one("error")};
  said_hello_ = true;
  host_ = HostReport::from(packet);
  switch_log_ = {};
  switch_log_.why = packet.one("no-switch-log");
  if (fds.size() == 2)
    switch_log_.ring = std::move(fds[0]), switch_log_.control = std::move(fds[1]);
  if (on_switch_log_) on_switch_log_(std::exchange(switch_log_, {}));
  return {};
}

void SpawnerLink::on_switch_log(std::function<void(SwitchLog)> call) {
  on_switch_log_ = std::move(call);
  if (said_hello_) on_switch_log_(std::exchange(switch_log_, {}));
}

SpawnerLink::~SpawnerLink() {
  watch_.stop();
  link_watch_.stop();
  socket_.reset();
  link_.reset();
  for (int ms = 0; keeper_ >= 0 && ms < kKeeperEndMs; ms += 5) {
    reap();
    if (keeper_ >= 0) ::poll(nullptr, 0, 5);
  }
  // Without our privileges of old we may not end it; it ends when its workers have.
  if (keeper_ < 0 || ::kill(keeper_, SIGKILL) != 0) return;
  while (::waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void SpawnerLink::reap() {
  const pid_t r = ::waitpid(keeper_, nullptr, WNOHANG);
  if (r == keeper_ || (r < 0 && errno == ECHILD)) keeper_ = -1;
}

bool SpawnerLink::is_worker(pid_t pid) const {
  return std::find(pids_.begin(), pids_.end(), pid) != pids_.end();
}

uint64_t SpawnerLink::spawn(Client& client, uint64_t region_bytes, uint64_t vgpu, Fd control,
                            Fd output) {
  const uint64_t id = next_id_++;
  clients_[id] = &client;
  Packet p;
  p.header.type = SpawnerType::kSpawn;
  p.header.id = id;
  p.header.flag = static_cast<uint32_t>(region_bytes >> 20);
  p.header.vgpu = vgpu;
  std::vector<Fd> fds;
  fds.push_back(std::move(control));
  fds.push_back(std::move(output));
  send(p, std::move(fds));
  return id;
}

void SpawnerLink::kill(uint64_t id) { send(SpawnerType::kKill, id); }

void SpawnerLink::ask_starved(uint64_t id) { send(SpawnerType::kAskStarved, id); }

// A spawner that was started anew does not know the vGPU and ignores this.
void SpawnerLink::forget_vgpu(uint64_t number) { send(SpawnerType::kForget, number); }

void SpawnerLink::forget(uint64_t id) {
  if (clients_.erase(id)) kill(id);
}

void SpawnerLink::send(SpawnerType type, uint64_t id) {
  Packet p;
  p.header.type = type;
  p.header.id = id;
  send(p, {});
}

void SpawnerLink::send(const Packet& packet, std::vector<Fd> fds) {
  outgoing_.push_back({spawner_protocol::encode(packet), std::move(fds)});
  flush();
}

void SpawnerLink::flush() {
  while (socket_ && !waits_to_write_ && !outgoing_.empty()) {
    const Outgoing& next = outgoing_.front();
    int fds[2];
    for (size_t i = 0; i < next.fds.size(); ++i) fds[i] = next.fds[i].get();
    auto sent = send_with_fds(socket_.get(), next.bytes.data(), next.bytes.size(),
                              {fds, next.fds.size()}, MSG_DONTWAIT);
    if (!sent && (sent.error().code == EAGAIN || sent.error().code == EWOULDBLOCK)) {
      waits_to_write_ = true;
      watch_.when_writable([this] {
        waits_to_write_ = false;
        flush();
      });
      return;
    }
    if (!sent && spawner_protocol::passes(sent.error().code))
      return send_again_.after_ms(kSendAgainMs, [this] { flush(); });
    if (!sent) return;  // it has died: reading will tell
    outgoing_.pop_front();
  }
}

void SpawnerLink::on_readable() {
  for (size_t i = 0; i < limits::kWorkerBurst && socket_; ++i) {
    std::string bytes(spawner_protocol::kMaxBytes + 1, '\0');  // a longer packet shows
    auto got = receive_with_fds(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (!got && (got.error().code == EAGAIN || got.error().code == EWOULDBLOCK)) return;
    if (!got) return lost(got.error().message);
    if (got->bytes == 0) return lost("it has died");
    auto packet = spawner_protocol::decode(std::string_view(bytes.data(), got->bytes));
    if (!packet) return lost("it sent a malformed message");
    on_packet(*packet, std::move(got->fds), got->truncated);  // its descriptors did not fit
  }
}

// A worker whose pidfd found no room here. Only it ends: a vGPU may have taken the descriptors.
void SpawnerLink::give_up(uint64_t id) {
  kill(id);
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client* client = found->second;
  clients_.erase(found);
  client->on_spawn_failed(Error{EMFILE, "sluiced has no descriptor left for it"});
}

void SpawnerLink::on_packet(const Packet& packet, std::vector<Fd> fds, bool lost_fds) {
  const spawner_protocol::Header& h = packet.header;
  if (h.type == SpawnerType::kHello) {  // of one that was started anew
    if (said_hello_) return lost("it sent a message out of turn");
    if (auto r = on_hello(packet, std::move(fds)); !r) return lost(r.error().message);
    log::info("spawner: process {} serves", pid_);
    return;
  }
  auto found = clients_.find(h.id);
  Client* client = found == clients_.end() ? nullptr : found->second;
  switch (h.type) {
    case SpawnerType::kSpawned:
      if (h.pid <= 0 || (fds.size() != 1 && !lost_fds)) return lost("it sent a malformed message");
      pids_.push_back(static_cast<pid_t>(h.pid));
      if (pids_.size() > limits::kRememberedWorkers) pids_.pop_front();
      if (fds.empty()) return give_up(h.id);
      if (client) client->on_spawned(static_cast<pid_t>(h.pid), std::move(fds[0]));
      return;
    case SpawnerType::kFailed:
      if (!client) return;
      clients_.erase(found);
      return client->on_spawn_failed(
          Error{h.code ? h.code : EIO,
                packet.lines.empty() ? "the worker cannot be started" : packet.lines[0]});
    case SpawnerType::kXid:
      // Of one that is over: what it did was settled with its end.
      if (client) client->on_xid(h.code);
      return;
    case SpawnerType::kStarved:
      if (client) client->on_starved(h.ns);
      return;
    case SpawnerType::kNoXids:
      host_.no_kernel_log = "it could not be read any more";
      return;
    case SpawnerType::kExited:
      if (!client) return;
      clients_.erase(found);
      return client->on_exited(h.flag != 0, h.code);
    default:
      return lost("it sent a message of no known kind");
  }
}

void SpawnerLink::lost(const std::string& why) {
  log::error("the spawner (process {}) is lost: {}; its workers end, and a new one is started",
             pid_, why);
  watch_.stop();
  socket_.reset();
  waits_to_write_ = false;
  outgoing_.clear();
  pid_ = -1;
  again();
  auto clients = std::exchange(clients_, {});
  for (auto& [id, client] : clients) client->on_spawner_lost();
}

// Spawns meanwhile wait in `outgoing_`.
void SpawnerLink::again() {
  const uint64_t since_ms = (monotonic_ns() - launched_ns_) / 1'000'000;
  again_.after_ms(since_ms >= kAgainMs ? 0 : kAgainMs - since_ms, [this] {
    if (!link_ && beyond_repair_) return beyond_repair_();
    const auto launched = launch();
    if (launched) return;
    log::error("the spawner cannot be started: {}", launched.error().message);
    close_keeper();
    again();
  });
}

}  // namespace sluice::io
