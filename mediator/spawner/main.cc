// SPDX-License-Identifier: Apache-2.0
// sluice-spawner: starts and ends workers for sluiced, and does nothing else. Of the programs of
// the host it is the one that needs privileges, so it is small and reads no byte of a guest or a
// worker. Two processes: the keeper, whose link to sluiced is descriptor 3, and the spawner that it
// forks.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mediator/base/log.h"
#include "mediator/spawner/keeper.h"

int main() {
  using namespace sluice;
  log::init("sluice-spawner", log::Level::kInfo);
  ::signal(SIGPIPE, SIG_IGN);
  ::umask(022);
  if (::fcntl(spawner_protocol::kControlFd, F_SETFD, FD_CLOEXEC) != 0) {
    log::error("sluice-spawner is started by sluiced; there is no socket as descriptor 3");
    return 2;
  }
  ::close_range(spawner_protocol::kControlFd + 1, ~0u, 0);
  return spawner::Keeper(Fd(spawner_protocol::kControlFd)).run();
}
