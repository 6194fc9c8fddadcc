// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/doctor/host_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <sstream>

#include "mediator/base/fd.h"
#include "mediator/cli/doctor/limits.h"

namespace sluice::cli {
namespace {

// The last `most` bytes. Non-blocking: /dev/kmsg waits for the next record at its end, and answers
// EPIPE once where records were overwritten meanwhile.
std::optional<std::string> read_end(const std::string& path, size_t most) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return std::nullopt;
  std::string text;
  char piece[16384];  // a record of /dev/kmsg is read whole or not at all
  for (;;) {
    const ssize_t n = ::read(fd.get(), piece, sizeof piece);
    if (n < 0 && (errno == EINTR || errno == EPIPE)) continue;
    if (n < 0 && errno != EAGAIN && text.empty()) return std::nullopt;
    if (n <= 0) return text;
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > 2 * most) text.erase(0, text.size() - most);
  }
}

std::vector<std::string> split(const std::string& line, char at) {
  std::vector<std::string> parts;
  std::istringstream in(line);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

std::optional<unsigned> to_number(const std::string& text) {
  unsigned n = 0;
  auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (bad != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

// Lines of etc/passwd or etc/group that have at least `least` fields.
std::vector<std::vector<std::string>> table(const std::optional<std::string>& text, size_t least) {
  std::vector<std::vector<std::string>> rows;
  if (!text) return rows;
  for (const std::string& line : split(*text, '\n'))
    if (auto fields = split(line, ':'); fields.size() >= least) rows.push_back(std::move(fields));
  return rows;
}

unsigned bits_for(const Account& who, const struct stat& s) {
  if (who.uid == 0) return 7;
  if (who.uid == s.st_uid) return (s.st_mode >> 6) & 7;
  return who.groups.contains(s.st_gid) ? (s.st_mode >> 3) & 7 : s.st_mode & 7;
}

}  // namespace

std::optional<std::string> HostFiles::read(const std::string& path) const {
  Fd fd(::open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return std::nullopt;
  std::string text;
  char piece[4096];
  while (text.size() < doctor_limits::kMaxFileBytes) {
    const ssize_t n = ::read(fd.get(), piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    text.append(piece, static_cast<size_t>(n));
  }
  return text;
}

std::optional<std::string> HostFiles::read_log(const std::string& path) const {
  return read_end(root_ + path, doctor_limits::kMaxLogBytes);
}

std::optional<struct stat> HostFiles::status(const std::string& path) const {
  struct stat s {};
  if (::stat((root_ + path).c_str(), &s) != 0) return std::nullopt;
  return s;
}

std::vector<std::string> HostFiles::names(const std::string& folder) const {
  std::vector<std::string> all;
  if (DIR* dir = ::opendir((root_ + folder).c_str())) {
    while (const dirent* entry = ::readdir(dir))
      if (entry->d_name[0] != '.') all.emplace_back(entry->d_name);
    ::closedir(dir);
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string HostFiles::link(const std::string& path) const {
  char to[4096];
  const ssize_t n = ::readlink((root_ + path).c_str(), to, sizeof to);
  if (n <= 0) return {};
  const std::string whole(to, static_cast<size_t>(n));
  return whole.substr(whole.rfind('/') + 1);
}

std::optional<uint64_t> HostFiles::free_bytes(const std::string& path) const {
  struct statvfs s {};
  if (::statvfs((root_ + path).c_str(), &s) != 0) return std::nullopt;
  return uint64_t{s.f_bavail} * s.f_frsize;
}

std::optional<Account> HostFiles::account(const std::string& name) const {
  for (const auto& row : table(read("/etc/passwd"), 4)) {
    if (row[0] != name) continue;
    const auto uid = to_number(row[2]), gid = to_number(row[3]);
    if (!uid || !gid) return std::nullopt;
    Account a{name, *uid, {*gid}};
    for (const auto& group : table(read("/etc/group"), 3)) {
      if (group.size() < 4) continue;  // without members
      const auto members = split(group[3], ',');
      if (std::find(members.begin(), members.end(), name) == members.end()) continue;
      if (const auto id = to_number(group[2])) a.groups.insert(*id);
    }
    return a;
  }
  return std::nullopt;
}

std::string HostFiles::group_name(gid_t gid) const {
  for (const auto& group : table(read("/etc/group"), 3))
    if (to_number(group[2]) == gid) return group[0];
  return std::to_string(gid);
}

bool HostFiles::may_use(const Account& who, const std::string& path, unsigned bits) const {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    const auto folder = status(path.substr(0, at));
    if (!folder || !(bits_for(who, *folder) & 1)) return false;
  }
  const auto file = status(path);
  return file && (bits_for(who, *file) & bits) == bits;
}

bool HostFiles::runs(const std::string& program) const {
  for (const std::string& pid : names("/proc")) {
    if (!to_number(pid)) continue;
    const auto line = read("/proc/" + pid + "/cmdline");
    if (!line) continue;
    const std::string first = line->substr(0, line->find('\0'));
    if (first.substr(first.rfind('/') + 1) == program) return true;
  }
  return false;
}

}  // namespace sluice::cli
