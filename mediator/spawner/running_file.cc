// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/running_file.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "mediator/spawner/limits.h"
#include "mediator/spawner/send_kill.h"
#include "mediator/spawner/walls/cgroups.h"

namespace sluice::spawner {
namespace {

constexpr uint64_t kMagic = 0x736c776f726b7331;  // another layout gets another number

struct FileHeader {
  uint64_t magic = 0;
  char boot[40] = {};
  ProcessMark sluiced, spawner;
  char cgroups[512] = {};
};

struct File {
  FileHeader header;
  ProcessMark workers[limits::kWorkers];
};

std::string read_text(int folder, const char* name) {
  Fd fd(::openat(folder, name, O_RDONLY | O_CLOEXEC));
  char text[4096];
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text) : 0;
  return std::string(text, n > 0 ? static_cast<size_t>(n) : 0);
}

bool same_process(int proc, const ProcessMark& mark) {
  return mark.pid > 1 && mark_of(proc, static_cast<pid_t>(mark.pid)) == mark;
}

enum class End { kNone, kEnded, kStuck };

// Kills exactly this process, if it runs, and waits until it has gone.
End end_process(int proc, const ProcessMark& mark) {
  if (mark.pid <= 1) return End::kNone;
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(mark.pid), 0)));
  if (!pidfd || !same_process(proc, mark)) return End::kNone;
  pollfd exit{pidfd.get(), POLLIN, 0};
  if (::poll(&exit, 1, 0) == 1) return End::kNone;  // dead, and not yet waited for
  if (!send_kill(proc, static_cast<pid_t>(mark.pid), pidfd.get())) return End::kStuck;
  return ::poll(&exit, 1, limits::kEndMs) == 1 ? End::kEnded : End::kStuck;
}

bool lock(int fd, int ms) {
  for (;; ms -= 10) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (ms <= 0) return false;
    ::poll(nullptr, 0, 10);
  }
}

}  // namespace

ProcessMark mark_of(int proc, pid_t pid) {
  const std::string stat = read_text(proc, (std::to_string(pid) + "/stat").c_str());
  const size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return {};
  const char* at = stat.c_str() + name_end + 1;
  for (int field = 3; field <= 22; ++field) {  // each begins with a space
    at = std::strchr(field == 3 ? at : at + 1, ' ');
    if (!at) return {};
  }
  return {pid, std::strtoull(at, nullptr, 10)};
}

Result<RunningFile> RunningFile::take(const std::string& runtime_dir, int proc, pid_t sluiced) {
  RunningFile f;
  const std::string name = runtime_dir + "/workers";
  f.fd_.reset(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat st;
  if (!f.fd_ || ::fstat(f.fd_.get(), &st) != 0) return Error::from_errno(name);
  if (!S_ISREG(st.st_mode) || st.st_uid != ::geteuid()) return Error{EPERM, name + " is not ours"};
  const std::string boot = read_text(proc, "sys/kernel/random/boot_id").substr(0, 36);

  const bool locked = lock(f.fd_.get(), 0);
  File old;
  const bool readable = ::pread(f.fd_.get(), &old, sizeof old, 0) == ssize_t{sizeof old} &&
                        old.header.magic == kMagic && std::string_view(old.header.boot, 36) == boot;
  if (!readable) old = {};
  if (!locked && same_process(proc, old.header.sluiced) && old.header.sluiced.pid != sluiced)
    return Error{EBUSY, "sluiced runs already with runtime_dir " + runtime_dir + " (process " +
                            std::to_string(old.header.sluiced.pid) + ")"};
  if (!locked) lock(f.fd_.get(), 1000);  // an earlier spawner that is ending its workers
  for (const ProcessMark& w : old.workers) {
    const End end = end_process(proc, w);
    f.ended_ += end == End::kEnded;
    f.stuck_ += end == End::kStuck;
  }
  end_process(proc, old.header.spawner);
  old.header.cgroups[sizeof old.header.cgroups - 1] = 0;
  if (old.header.cgroups[0]) f.ended_ += end_cgroups_at(old.header.cgroups);
  if (!locked && !lock(f.fd_.get(), limits::kEndMs)) return Error{EBUSY, name + " is in use"};

  File fresh;
  fresh.header.magic = kMagic;
  std::memcpy(fresh.header.boot, boot.data(), std::min(boot.size(), sizeof fresh.header.boot - 1));
  fresh.header.sluiced = mark_of(proc, sluiced);
  fresh.header.spawner = mark_of(proc, ::getpid());
  if (::pwrite(f.fd_.get(), &fresh, sizeof fresh, 0) != ssize_t{sizeof fresh})
    return Error::from_errno("write " + name);
  return f;
}

void RunningFile::set_cgroups(const std::string& path) {
  char text[sizeof(FileHeader::cgroups)] = {};
  if (path.size() >= sizeof text) return;
  std::memcpy(text, path.data(), path.size());
  [[maybe_unused]] auto n = ::pwrite(fd_.get(), text, sizeof text, offsetof(FileHeader, cgroups));
}

void RunningFile::set_worker(size_t slot, const ProcessMark& mark) {
  if (slot >= limits::kWorkers) return;
  [[maybe_unused]] auto n =
      ::pwrite(fd_.get(), &mark, sizeof mark,
               static_cast<off_t>(offsetof(File, workers) + slot * sizeof mark));
}

}  // namespace sluice::spawner
