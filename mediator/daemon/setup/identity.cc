// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/setup/identity.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "mediator/base/fd.h"
#include "mediator/base/log.h"
#include "mediator/daemon/setup/socket_access.h"

namespace sluice {
namespace {

// The spawner's file of what runs (mediator/spawner/running_file.h) stays root's.
constexpr std::string_view kSpawnersFile = "workers";

std::vector<gid_t> groups_of(const std::string& name, gid_t gid) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  while (::getgrouplist(name.c_str(), gid, groups.data(), &count) < 0)
    groups.resize(static_cast<size_t>(count));
  groups.resize(static_cast<size_t>(count));
  return groups;
}

}  // namespace

Result<std::optional<Identity>> Identity::wanted(const Config& config) {
  if (::geteuid() != 0) {
    if (!config.daemon_user.empty() || !config.daemon_group.empty())
      log::info("daemon.user is not used: sluiced was not started as root");
    return std::optional<Identity>();
  }
  const bool named = !config.daemon_user.empty();
  const std::string& user = named ? config.daemon_user : kOwnUser;
  const auto uid = find_user(user);
  if (!uid && named) return Error{ENOENT, "daemon.user: there is no user '" + user + "'"};
  if (!uid) {
    log::warning("sluiced stays root: this host has no user '{}' and daemon.user is not set", user);
    return std::optional<Identity>();
  }
  if (*uid == 0) return std::optional<Identity>();
  Identity identity;
  identity.uid = *uid;
  const passwd* entry = ::getpwuid(*uid);  // a number may have no entry
  identity.name = entry ? entry->pw_name : user;
  identity.gid = entry ? entry->pw_gid : *uid;
  if (!config.daemon_group.empty()) {
    const auto gid = find_group(config.daemon_group);
    if (!gid) return Error{ENOENT, "daemon.group: there is no group '" + config.daemon_group + "'"};
    identity.gid = *gid;
  }
  if (entry) identity.groups = groups_of(identity.name, identity.gid);
  return std::optional(identity);
}

Result<void> hand_over(const std::string& path, const Identity& identity) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
    return Error::from_errno("mkdir " + path);
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st;
  if (!folder || ::fstat(folder.get(), &st) != 0) return Error::from_errno("open " + path);
  if (st.st_uid == identity.uid) return {};
  if (st.st_uid != 0 || (st.st_mode & 0022))
    return Error{EPERM, path + " must be root's or user " + identity.name +
                            "'s, and not writable for others"};
  const int copy = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return Error::from_errno("open " + path);
  std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(copy), &::closedir);
  while (const dirent* e = entries ? ::readdir(entries.get()) : nullptr) {
    struct stat file;
    if (e->d_name == kSpawnersFile ||
        ::fstatat(folder.get(), e->d_name, &file, AT_SYMLINK_NOFOLLOW) != 0 || file.st_uid != 0 ||
        file.st_nlink != 1 || !(S_ISREG(file.st_mode) || S_ISSOCK(file.st_mode)))
      continue;
    if (::fchownat(folder.get(), e->d_name, identity.uid, identity.gid, AT_SYMLINK_NOFOLLOW) != 0)
      return Error::from_errno("chown " + path + "/" + e->d_name);
  }
  // Last: from here on the user may put something there.
  if (::fchown(folder.get(), identity.uid, identity.gid) != 0)
    return Error::from_errno("chown " + path);
  return {};
}

Result<void> become(const Identity& identity, const std::vector<gid_t>& more) {
  std::vector<gid_t> groups = identity.groups;
  groups.insert(groups.end(), more.begin(), more.end());
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Error::from_errno("no_new_privs");
  for (int capability = 0; capability < 64; ++capability)
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) break;
  if (::setgroups(groups.size(), groups.data()) != 0) return Error::from_errno("setgroups");
  if (::setresgid(identity.gid, identity.gid, identity.gid) != 0)
    return Error::from_errno("setresgid");
  if (::setresuid(identity.uid, identity.uid, identity.uid) != 0)
    return Error::from_errno("setresuid");
  // The change of user has taken all that is effective; inheritable ones stay without this.
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (::syscall(SYS_capset, &header, none) != 0) return Error::from_errno("capset");
  if (own_capabilities() != 0 || ::setresuid(0, 0, 0) == 0)
    return Error{EPERM, "privileges could not be given up"};
  return {};
}

uint64_t own_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return ~uint64_t{0};
  return data[0].permitted | uint64_t{data[1].permitted} << 32;
}

}  // namespace sluice
