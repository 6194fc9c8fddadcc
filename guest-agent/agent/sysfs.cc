// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/agent/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace sluice::guest {

Error problem(DeviceProblem kind, std::string message) {
  return Error{static_cast<int>(kind), std::move(message)};
}
Error problem_errno(DeviceProblem kind, const std::string& what) {
  return problem(kind, Error::from_errno(what).message);
}

std::string read_line(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text) : -1;
  if (n <= 0) return {};
  std::string line(text, static_cast<size_t>(n));
  return line.substr(0, line.find('\n'));
}

Result<void> write_line(const std::string& path, const std::string& text) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return problem_errno(DeviceProblem::kOther, "write " + text + " to " + path);
  return {};
}

std::string link_name(const std::string& path) {
  char to[512];
  const ssize_t n = ::readlink(path.c_str(), to, sizeof to - 1);
  if (n <= 0) return {};
  const std::string whole(to, static_cast<size_t>(n));
  return whole.substr(whole.rfind('/') + 1);
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  if (DIR* dir = ::opendir(folder.c_str())) {
    while (const dirent* entry = ::readdir(dir))
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    ::closedir(dir);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string device_folder(const std::string& sysfs, const std::string& address) {
  return sysfs + "/bus/pci/devices/" + address;
}

}  // namespace sluice::guest
