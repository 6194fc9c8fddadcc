// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/setup/folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace sluice {
namespace {

constexpr const char* kRemedy = "set it to a folder that sluiced may make or that is its own";

Result<void> make_folder(const std::string& path) {
  // 0755: QEMU's user must be able to reach its socket; what may be done is the socket's mode.
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
    return Error::from_errno("mkdir " + path);
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return Error::from_errno("stat " + path);
  if (!S_ISDIR(st.st_mode)) return Error{ENOTDIR, path + " is not a directory"};
  if (st.st_uid != ::geteuid() || (st.st_mode & 0022))
    return Error{EPERM, path + " must be ours and not writable for others"};
  return {};
}

}  // namespace

Result<void> make_folders(const Config& config, const std::optional<Identity>& identity) {
  for (const std::string& path : {config.runtime_dir, config.vgpu_dir()})
    if (auto made = identity ? hand_over(path, *identity) : make_folder(path); !made)
      return of_key("runtime_dir", made.error(), kRemedy);
  if (!identity || config.state_dir.empty()) return {};
  if (auto made = hand_over(config.state_dir, *identity); !made)
    return of_key("state_dir", made.error(), kRemedy);
  return {};
}

}  // namespace sluice
