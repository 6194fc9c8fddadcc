// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/setup/socket_access.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>

#include "mediator/base/log.h"

namespace sluice {
namespace {

constexpr const char* kNoteSuffix = ".made";

template <class Id>
std::optional<Id> as_number(const std::string& text) {
  Id id = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

// Whether this process may give a file to the group.
bool can_give_to(gid_t group) {
  if (::geteuid() == 0 || ::getegid() == group) return true;
  std::vector<gid_t> mine(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int n = ::getgroups(static_cast<int>(mine.size()), mine.data());
  mine.resize(static_cast<size_t>(std::max(0, n)));
  return std::find(mine.begin(), mine.end(), group) != mine.end();
}

std::string note_text(const std::string& path, const FileId& file) {
  return path + "\n" + std::to_string(file.device) + " " + std::to_string(file.inode) + " " +
         std::to_string(file.changed_ns) + "\n";
}

std::string read_note(const std::string& note) {
  char text[512];
  Fd fd(::open(note.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text) : -1;
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : std::string();
}

}  // namespace

std::optional<gid_t> find_group(const std::string& name) {
  if (auto id = as_number<gid_t>(name)) return id;
  const group* g = ::getgrnam(name.c_str());
  return g ? std::optional(g->gr_gid) : std::nullopt;
}

std::optional<uid_t> find_user(const std::string& name) {
  if (auto id = as_number<uid_t>(name)) return id;
  const passwd* p = ::getpwnam(name.c_str());
  return p ? std::optional(p->pw_uid) : std::nullopt;
}

Result<SocketAccess> SocketAccess::make(const Config& config) {
  SocketAccess a;
  if (!config.socket_group.empty()) {
    a.group = find_group(config.socket_group);
    if (!a.group)
      return Error{ENOENT, "vgpu.socket_group: there is no group '" + config.socket_group + "'"};
  } else {
    for (const char* name : kQemuGroups) {
      const auto found = find_group(name);
      if (!found || !can_give_to(*found)) continue;
      a.group = found;
      break;
    }
    if (!a.group && ::geteuid() == 0)
      log::warning(
          "none of libvirt's groups (libvirt-qemu, qemu, kvm) is here: only root's QEMU can "
          "connect "
          "to vGPUs; set vgpu.socket_group to the group of libvirt's QEMU");
  }
  for (const std::string& name : config.socket_users) {
    const auto user = find_user(name);
    if (!user) return Error{ENOENT, "vgpu.socket_users: there is no user '" + name + "'"};
    a.users.push_back(*user);
  }
  if (config.socket_users.empty())
    for (const char* name : kQemuUsers)
      if (const auto user = find_user(name)) a.users.push_back(*user);
  for (const std::string& name : config.socket_groups) {
    const auto member = find_group(name);
    if (!member) return Error{ENOENT, "vgpu.socket_groups: there is no group '" + name + "'"};
    a.groups.push_back(*member);
  }
  if (config.socket_groups.empty() && a.group) a.groups.push_back(*a.group);
  return a;
}

Result<void> SocketAccess::may_connect(const PeerCredentials& peer,
                                       const std::vector<gid_t>& member_of) const {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return {};
  if (std::find(users.begin(), users.end(), peer.uid) != users.end()) return {};
  for (gid_t group_id : groups)
    if (std::find(member_of.begin(), member_of.end(), group_id) != member_of.end()) return {};
  return Error{EPERM, "uid " + std::to_string(peer.uid) +
                          " may not use this vGPU: vgpu.socket_users and vgpu.socket_groups of "
                          "sluice.toml say who may"};
}

Result<SocketNote> SocketNote::write(const std::string& folder, const std::string& vgpu,
                                     const std::string& path, const FileId& file) {
  SocketNote n;
  n.note_ = folder + "/" + vgpu + kNoteSuffix;
  ::unlink(n.note_.c_str());
  Fd fd(::open(n.note_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const std::string text = note_text(path, file);
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return Error::from_errno("write " + n.note_);
  return n;
}

bool SocketNote::exists(const std::string& folder, const std::string& path, const FileId& file) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), ::closedir);
  if (!dir) return false;
  const std::string wanted = note_text(path, file);
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name.ends_with(kNoteSuffix) && read_note(folder + "/" + name) == wanted) return true;
  }
  return false;
}

SocketNote::~SocketNote() {
  if (!note_.empty()) ::unlink(note_.c_str());
}

}  // namespace sluice
