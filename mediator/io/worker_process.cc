#include "mediator/io/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstring>

#include "mediator/base/limits.h"
#include "mediator/base/unix_socket.h"

namespace sluice::io {

using worker_protocol::Message;
using worker_protocol::Start;
using worker_protocol::Type;

namespace {

// What may come from a worker, and so is let through to the session.
bool from_worker(Type type) {
  switch (type) {
    case Type::kReady:
    case Type::kLeaseRequest:
    case Type::kLeaseReturn:
    case Type::kExtentRequest:
    case Type::kExtentReturn:
    case Type::kEnded:
      return true;
    default:
      return false;
  }
}

class SpawnAttributes {
 public:
  SpawnAttributes() {
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawn_file_actions_init(&actions_);
  }
  ~SpawnAttributes() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  int spawn(pid_t& pid, const std::string& path, int control, std::vector<std::string> environment) {
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    // A session of its own: Ctrl-C in our terminal is ours to turn into an orderly end.
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    ::posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions_, 1, "/dev/null", O_WRONLY, 0);
    // dup2 onto itself would keep close-on-exec; glibc clears it in that case too (2.29).
    ::posix_spawn_file_actions_adddup2(&actions_, control, worker_protocol::kControlFd);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, worker_protocol::kControlFd + 1);
    std::string name = "sluice-worker";
    char* arguments[] = {name.data(), nullptr};
    std::vector<char*> variables;
    for (std::string& v : environment) variables.push_back(v.data());
    variables.push_back(nullptr);
    return ::posix_spawn(&pid, path.c_str(), &actions_, &attributes_, arguments, variables.data());
  }

 private:
  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t actions_;
};

}  // namespace

std::string WorkerExit::text() const {
  if (!signaled) return "exited with status " + std::to_string(value);
  const char* name = ::sigdescr_np(value);
  return "died of signal " + std::to_string(value) + " (" + (name ? name : "unknown") + ")";
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::spawn(boost::asio::io_context& io,
                                                            const WorkerSpec& spec, Owner& owner) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return Error::from_errno("socketpair");
  Fd ours(pair[0]), theirs(pair[1]);
  // The worker decides for itself whether its end blocks.
  ::fcntl(theirs.get(), F_SETFL, 0);

  std::unique_ptr<WorkerProcess> w(new WorkerProcess(owner));
  SpawnAttributes attributes;
  if (int e = attributes.spawn(w->pid_, spec.path, theirs.get(), spec.environment); e != 0) {
    w->reaped_ = true;
    return Error::from_errno("start " + spec.path, e);
  }
  theirs.reset();
  // Nobody else reaps our children, so the number still means this process.
  w->pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, w->pid_, 0)));
  if (!w->pidfd_) return Error::from_errno("pidfd_open");
  w->socket_ = std::move(ours);

  struct {
    Message message;
    Start start;
  } packet{{}, spec.start};
  static_assert(sizeof packet == sizeof(Message) + sizeof(Start));
  packet.message.type = Type::kStart;
  if (auto sent = send_with_fds(w->socket_.get(), &packet, sizeof packet, spec.fds); !sent)
    return Error(sent.error()).with_context("start message to the worker");

  w->socket_watch_ = FdWatch(io, w->socket_.get(), [p = w.get()] { p->on_socket(false); });
  w->exit_watch_ = FdWatch(io, w->pidfd_.get(), [p = w.get()] { p->on_exit(); });
  return w;
}

WorkerProcess::~WorkerProcess() {
  if (reaped_) return;
  kill();
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
  }
}

Result<void> WorkerProcess::send(const Message& message) {
  if (!socket_) return Error{EPIPE, "the worker's socket is closed"};
  return send_with_fds(socket_.get(), &message, sizeof message, {});
}

void WorkerProcess::kill() {
  if (reaped_) return;
  if (pidfd_)
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  else
    ::kill(pid_, SIGKILL);
}

void WorkerProcess::on_socket(bool exited) {
  FdWatch* watch = &socket_watch_;  // the owner may stop it, but keeps this object
  for (size_t i = 0; i < limits::kWorkerBurst; ++i) {
    Message message;
    auto received = receive_with_fds(socket_.get(), &message, sizeof message, MSG_DONTWAIT);
    if (!received) {
      if (received.error().code == EAGAIN || received.error().code == EWOULDBLOCK) return;
      watch->stop();
      if (!exited) owner_.on_worker_bad(received.error().message);
      return;
    }
    if (received->bytes == 0) {
      watch->stop();
      if (!exited) owner_.on_worker_hangup();
      return;
    }
    if (received->bytes != sizeof message || received->truncated || !received->fds.empty() ||
        !from_worker(message.type)) {
      watch->stop();
      return owner_.on_worker_bad("it sent a malformed control message");
    }
    message.text[sizeof message.text - 1] = '\0';
    owner_.on_worker_message(message);
    if (!*watch) return;  // stopped by what the owner did
  }
}

void WorkerProcess::on_exit() {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return;
  // Its last words may still lie in the socket: the reason of its end is worth more than our guess.
  if (socket_watch_) on_socket(true);
  reaped_ = true;
  socket_watch_.stop();
  exit_watch_.stop();
  WorkerExit exit;
  exit.signaled = info.si_code != CLD_EXITED;
  exit.value = info.si_status;
  owner_.on_worker_exit(exit);
}

}  // namespace sluice::io
