// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/send_kill.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "mediator/base/fd.h"

namespace sluice::spawner {
namespace {

bool signal_it(int pidfd) {
  return ::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0) == 0;
}

std::optional<uid_t> real_uid_of(int proc, pid_t pid) {
  const std::string name = std::to_string(pid) + "/status";
  Fd fd(::openat(proc, name.c_str(), O_RDONLY | O_CLOEXEC));
  char text[4096];
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text - 1) : 0;
  if (n <= 0) return std::nullopt;
  text[n] = 0;
  const char* line = std::strstr(text, "\nUid:\t");  // a process's name cannot hold a line's end
  if (!line) return std::nullopt;
  return static_cast<uid_t>(std::strtoul(line + 6, nullptr, 10));
}

// In the child. The worker may signal it from here on, so it holds nothing: no socket, no lock.
[[noreturn]] void signal_as(uid_t uid, int pidfd) {
  if (pidfd > 0) ::syscall(SYS_close_range, 0u, static_cast<unsigned>(pidfd) - 1, 0u);
  ::syscall(SYS_close_range, static_cast<unsigned>(pidfd) + 1, ~0u, 0u);
  // The real uid is enough. The effective one stays, so the worker may not trace this process.
  if (::syscall(SYS_setresuid, uid, -1, -1) != 0) ::_exit(1);
  ::_exit(signal_it(pidfd) ? 0 : 1);
}

}  // namespace

bool send_kill(int proc, pid_t pid, int pidfd) {
  if (signal_it(pidfd) || errno == ESRCH) return true;
  const auto uid = real_uid_of(proc, pid);
  // Root has CAP_KILL or was denied it on purpose: nobody becomes root for this.
  if (!uid || *uid == 0) return false;
  const pid_t child = ::fork();
  if (child == 0) signal_as(*uid, pidfd);
  return child > 0;
}

}  // namespace sluice::spawner
