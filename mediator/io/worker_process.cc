// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/worker_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include "mediator/base/limits.h"
#include "mediator/base/peer_socket.h"
#include "mediator/base/unix_socket.h"

namespace sluice::io {

using worker_protocol::Message;
using worker_protocol::Start;
using WorkerType = worker_protocol::Type;

namespace {

// At sluiced's own end: how long a killed worker may take.
constexpr int kWorkerEndMs = 10000;

// What may come from a process that is this, and so is let through to its owner.
bool may_say(WorkerType is, WorkerType type) {
  switch (type) {
    case WorkerType::kReady:
      return true;
    case WorkerType::kLeaseRequest:
    case WorkerType::kLeaseReturn:
    case WorkerType::kExtentRequest:
    case WorkerType::kExtentReturn:
    case WorkerType::kShareRequest:
    case WorkerType::kShareEnd:
    case WorkerType::kOpenRequest:
    case WorkerType::kOpenEnd:
    case WorkerType::kEnded:
      return is == WorkerType::kStart;
    case WorkerType::kTried:
    case WorkerType::kServed:
      return is == WorkerType::kWitness;
    default:
      return false;
  }
}

}  // namespace

Result<Fd> open_soft_gpu(const std::string& path) {
  if (path.empty()) return Fd();
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) return Error::from_errno("open " + path);
  return file;
}

std::string WorkerExit::text() const {
  if (start_error.code) return "could not be started: " + start_error.message;
  if (!signaled) return "exited with status " + std::to_string(value);
  const char* name = ::sigdescr_np(value);
  return "died of signal " + std::to_string(value) + " (" + (name ? name : "unknown") + ")";
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::spawn(boost::asio::io_context& io,
                                                            SpawnerLink& spawner, WorkerSpec spec,
                                                            Owner& owner) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return Error::from_errno("socketpair");
  Fd ours(pair[0]), theirs(pair[1]);
  refuse_descriptors(ours.get());
  // The worker decides for itself whether its end blocks.
  ::fcntl(theirs.get(), F_SETFL, 0);
  std::unique_ptr<WorkerProcess> w(new WorkerProcess(io, spawner, owner));
  auto output = w->output_.open(io, spec.peers);
  if (!output) return output.error();
  w->socket_ = std::move(ours);
  w->spec_ = std::move(spec);
  w->id_ = spawner.spawn(*w, w->spec_.start.region_bytes, w->spec_.vgpu, std::move(theirs),
                         std::move(*output));
  return w;
}

WorkerProcess::~WorkerProcess() {
  socket_watch_.stop();
  if (spec_.peers) spec_.peers->close(std::move(socket_));
  if (gone_) return;
  spawner_.forget(id_);  // which kills it
  pollfd exit{pidfd_.get(), POLLIN, 0};
  if (pidfd_) ::poll(&exit, 1, kWorkerEndMs);
}

void WorkerProcess::on_spawned(pid_t pid, Fd pidfd) {
  pid_ = pid;
  pidfd_ = std::move(pidfd);
  // Limited by what comes before the colon: by vGPU, as a guest has new workers without end.
  output_.set_name(spec_.is == WorkerType::kWitness
                       ? fmt::format("witness {}", pid)
                       : fmt::format("workers of {}: {}", spec_.start.vgpu, pid));
  spec_.start.host_pid = static_cast<uint32_t>(pid);
  struct {
    Message message;
    Start start;
  } packet{{}, spec_.start};
  static_assert(sizeof packet == sizeof(Message) + sizeof(Start));
  packet.message.type = spec_.is;
  if (spec_.soft_gpu) spec_.fds.push_back(spec_.soft_gpu.get());
  // Should this fail it is ended by the deadline of its start, or exits at once and is heard of.
  if (auto sent = send_with_fds(socket_.get(), &packet, sizeof packet, spec_.fds, MSG_DONTWAIT);
      !sent)
    kill();
  spec_.soft_gpu.reset();
  socket_watch_ = FdWatch(
      io_, socket_.get(), Pace{limits::kWorkerWakesPerSecond, limits::kWorkerWakeBurst},
      [this] { on_socket(false); }, std::move(spec_.loop_time));
}

void WorkerProcess::on_spawn_failed(const Error& error) {
  WorkerExit exit;
  exit.start_error = error;
  finish(exit);
}

void WorkerProcess::on_xid(int number) { owner_.on_worker_xid(number); }

void WorkerProcess::on_exited(bool signaled, int value) {
  WorkerExit exit;
  exit.signaled = signaled;
  exit.value = value;
  finish(exit);
}

// The kernel ends it (PR_SET_PDEATHSIG). What it held is given back only when it has gone.
void WorkerProcess::on_spawner_lost() {
  orphaned_ = true;
  auto over = [this] {
    WorkerExit exit;
    exit.start_error = Error{EIO, "its spawner died"};
    finish(exit);
  };
  if (pidfd_) {
    exit_watch_ = FdWatch(io_, pidfd_.get(), over);
    return;
  }
  // It had not begun and never will. Not from within the call: the owner destroys us.
  late_.after_ms(0, over);
}

Result<void> WorkerProcess::send(const Message& message, std::span<const int> fds) {
  if (!socket_) return Error{EPIPE, "the worker's socket is closed"};
  if (!fds.empty()) ++unread_files_;
  return send_with_fds(socket_.get(), &message, sizeof message, fds, MSG_DONTWAIT);
}

bool WorkerProcess::may_take_descriptors() {
  int unread = 0;
  if (socket_ && ::ioctl(socket_.get(), SIOCOUTQ, &unread) == 0 && unread == 0) unread_files_ = 0;
  return unread_files_ < limits::kMaxUnreadFiles;
}

void WorkerProcess::kill() {
  if (!gone_ && !orphaned_) spawner_.kill(id_);
}

void WorkerProcess::ask_starved() {
  if (!gone_ && !orphaned_) spawner_.ask_starved(id_);
}

void WorkerProcess::on_socket(bool exited) {
  FdWatch* watch = &socket_watch_;  // the owner may stop it, but keeps this object
  for (size_t i = 0; i < limits::kWorkerBurst; ++i) {
    Message message;
    auto received = receive_plain(socket_.get(), &message, sizeof message);
    if (!received) {
      if (received.error().code == EAGAIN) return;
      // It has gone and left something of ours unread, which the kernel tells once and first. What
      // it said before comes next.
      if (received.error().code == ECONNRESET) continue;
      watch->stop();
      if (!exited) owner_.on_worker_bad(received.error().message);
      return;
    }
    if (received->bytes == 0) {
      watch->stop();
      if (!exited) owner_.on_worker_hangup();
      return;
    }
    if (received->bytes != sizeof message || received->truncated ||
        !may_say(spec_.is, message.type)) {
      watch->stop();
      return owner_.on_worker_bad("it sent a malformed control message");
    }
    message.text[sizeof message.text - 1] = '\0';
    owner_.on_worker_message(message);
    if (!*watch) return;  // stopped by what the owner did
  }
}

void WorkerProcess::finish(const WorkerExit& exit) {
  // Its last words may still lie in the socket: the reason of its end is worth more than our guess.
  if (socket_watch_) on_socket(true);
  output_.drain();
  gone_ = true;
  socket_watch_.stop();
  exit_watch_.stop();
  owner_.on_worker_exit(exit);
}

}  // namespace sluice::io
