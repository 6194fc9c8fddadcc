// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/keeper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "mediator/base/log.h"
#include "mediator/spawner/receive.h"
#include "mediator/spawner/spawner.h"

namespace sluice::spawner {

using spawner_protocol::Packet;
using spawner_protocol::Type;

namespace {

// The exit status; -1: there was nothing to wait for.
int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int Keeper::run() {
  const auto served = serve();
  const bool in_order = served.error().code == EPIPE;
  if (!in_order) log::error("spawner: {}", served.error().message);
  link_.reset();
  if (!in_order) return 1;  // the kernel ends the spawner, and with it its workers
  // Its own connection to sluiced has closed, too: it ends all workers and itself.
  return spawner_ > 0 ? wait_for(spawner_) : 0;
}

Result<void> Keeper::serve() {
  auto first = receive(link_.get());
  if (!first) return first.error();
  if (first->packet.header.type != Type::kSetup || !first->fds.empty())
    return Error{EPROTO, "the first message is not a Setup of this version"};
  setup_ = std::move(first->packet);
  for (;;) {
    auto next = receive(link_.get());
    if (!next) return next.error();
    if (next->packet.header.type != Type::kLaunch || !next->packet.lines.empty() ||
        !next->fds.empty())
      return Error{EPROTO, "sluiced sent a message of no known kind"};
    if (auto launched = launch(); !launched) return launched;
  }
}

Result<void> Keeper::launch() {
  if (spawner_ > 0) {
    ::kill(spawner_, SIGKILL);
    wait_for(spawner_);
    spawner_ = -1;
  }
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return Error::from_errno("socketpair");
  Fd sluiceds(pair[0]), spawners(pair[1]);
  const pid_t sluiced = ::getppid(), keeper = ::getpid();
  spawner_ = ::fork();
  if (spawner_ < 0) return Error::from_errno("fork");
  if (spawner_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != keeper) ::_exit(1);
    sluiceds.reset();
    link_.reset();
    ::_exit(Spawner(std::move(spawners), setup_, sluiced).run());
  }
  Packet launched;
  launched.header.type = Type::kLaunched;
  launched.header.pid = spawner_;
  const std::string bytes = spawner_protocol::encode(launched);
  const int fd = sluiceds.get();
  return send_with_fds(link_.get(), bytes.data(), bytes.size(), std::span<const int>(&fd, 1));
}

}  // namespace sluice::spawner
