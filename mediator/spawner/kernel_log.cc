// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/kernel_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "mediator/spawner/limits.h"

namespace sluice::spawner {
namespace {

constexpr char kDevice[] = "/dev/kmsg";
// The kernel gives the first pid namespace this number (PROC_PID_INIT_INO).
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;

// Takes `text` off the beginning; false: it does not stand there.
bool skip(std::string_view& from, std::string_view text) {
  if (!from.starts_with(text)) return false;
  from.remove_prefix(text.size());
  return true;
}
std::optional<int> number(std::string_view& from) {
  int value = 0;
  const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  from.remove_prefix(static_cast<size_t>(end - from.data()));
  return value;
}

}  // namespace

std::optional<Xid> parse_xid(std::string_view record) {
  const auto priority = number(record);
  if (!priority || *priority >> 3 != 0) return std::nullopt;  // not the kernel's
  const size_t text = record.find(';');
  if (text == std::string_view::npos) return std::nullopt;
  record.remove_prefix(text + 1);
  if (!skip(record, "NVRM: Xid (PCI:")) return std::nullopt;
  const size_t end = record.find("): ");
  if (end == std::string_view::npos || end > 32) return std::nullopt;
  record.remove_prefix(end + 3);
  const auto n = number(record);
  if (!n || !skip(record, ", pid=")) return std::nullopt;
  skip(record, "'");
  const auto pid = number(record);
  if (!pid || *pid < 2) return std::nullopt;
  return Xid{*n, *pid};
}

Result<KernelLog> KernelLog::open(const std::string& path) {
  struct stat ours;
  if (path == kDevice &&
      (::stat("/proc/self/ns/pid", &ours) != 0 || ours.st_ino != kFirstPidNamespace))
    return Error{EPERM, path + " has other process ids than this pid namespace"};
  KernelLog log;
  // A pipe, in tests, is opened for both so that it never ends.
  struct stat file;
  const bool pipe = ::stat(path.c_str(), &file) == 0 && S_ISFIFO(file.st_mode);
  log.fd_.reset(::open(path.c_str(), (pipe ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC));
  if (!log.fd_) return Error::from_errno("open " + path);
  if (::fstat(log.fd_.get(), &file) != 0 || S_ISREG(file.st_mode) || S_ISDIR(file.st_mode))
    return Error{EINVAL, path + " is no kernel log"};
  if (!pipe && ::lseek(log.fd_.get(), 0, SEEK_END) < 0) return Error::from_errno("seek in " + path);
  return log;
}

bool KernelLog::read(const std::function<void(const Xid&)>& on_xid) {
  char bytes[8192];  // more than the kernel's longest record
  for (int i = 0; i < limits::kKernelLogBurst; ++i) {
    const ssize_t n = ::read(fd_.get(), bytes, sizeof bytes);
    if (n < 0 && errno == EAGAIN) return true;
    if (n < 0 && (errno == EINTR || errno == EPIPE)) continue;  // EPIPE: records were overwritten
    if (n <= 0) return false;
    rest_.append(bytes, static_cast<size_t>(n));
    size_t at = 0;
    for (size_t end; (end = rest_.find('\n', at)) != std::string::npos; at = end + 1)
      if (const auto xid = parse_xid(std::string_view(rest_).substr(at, end - at))) on_xid(*xid);
    rest_.erase(0, at);
    if (rest_.size() > sizeof bytes) rest_.clear();  // no record is that long
  }
  return true;
}

}  // namespace sluice::spawner
