// SPDX-License-Identifier: Apache-2.0
#include "mediator/base/listen_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace sluice {
namespace {

FileId id_of(const struct stat& st) {
  return {st.st_dev, st.st_ino,
          static_cast<uint64_t>(st.st_ctim.tv_sec) * 1'000'000'000 +
              static_cast<uint64_t>(st.st_ctim.tv_nsec)};
}

// Whether a socket is bound there. Only a refused connection says no: a full backlog, another type
// of socket or missing permission are somebody's too.
bool is_live(const sockaddr_un& address, int type) {
  Fd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return true;
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return true;
  return errno != ECONNREFUSED && errno != ENOENT;
}

// Takes away the dead socket that an earlier run of ours left at `path`; nothing else.
Result<void> make_room(const std::string& path, const sockaddr_un& address,
                       const ListenOptions& options) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0)
    return errno == ENOENT ? Result<void>() : Error::from_errno("stat " + path);
  if (!S_ISSOCK(st.st_mode)) return Error{EEXIST, path + " exists and is no socket"};
  if (st.st_uid != ::geteuid())
    return Error{EEXIST, path + " is a socket of uid " + std::to_string(st.st_uid)};
  if (is_live(address, options.type))
    return Error{EADDRINUSE, path + " is a socket that another program listens on"};
  const FileId dead = id_of(st);
  if (options.may_replace && !options.may_replace(dead))
    return Error{EEXIST, path +
                             " is a socket file that this program did not make; remove it if "
                             "nobody needs it"};
  // Moved away first: if another file has come to that path meanwhile, it is moved back.
  const std::string away = path + ".old." + std::to_string(::getpid());
  if (::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, away.c_str(), RENAME_NOREPLACE) != 0)
    return Error::from_errno("rename " + path + " to " + away);
  struct stat moved;
  // Its ctime changes with its name.
  if (::lstat(away.c_str(), &moved) != 0 || moved.st_ino != st.st_ino ||
      moved.st_dev != st.st_dev) {
    (void)::renameat2(AT_FDCWD, away.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE);
    return Error{EADDRINUSE, path + " was made by another program meanwhile"};
  }
  if (::unlink(away.c_str()) != 0) return Error::from_errno("remove " + away);
  return {};
}

}  // namespace

std::optional<FileId> file_id(const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return std::nullopt;
  return id_of(st);
}

void remove_socket_file(const std::string& path, const FileId& file) {
  const auto now = file_id(path);
  if (now && now->same_inode(file)) ::unlink(path.c_str());
}

Result<ListeningSocket> listen_at(const std::string& path, const ListenOptions& options) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{ENAMETOOLONG, "socket path is longer than 107 bytes: " + path};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);

  if (auto room = make_room(path, address, options); !room) return room.error();
  ListeningSocket made;
  made.socket = Fd(::socket(AF_UNIX, options.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.socket) return Error::from_errno("socket");
  // Linux takes the file's mode from the socket's. Nobody else's until all is set.
  if (::fchmod(made.socket.get(), 0600) != 0) return Error::from_errno("fchmod of a socket");
  if (::bind(made.socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Error::from_errno("bind " + path);  // EADDRINUSE: somebody was faster

  // By descriptor: in a folder that others may write, the path may name something else by now.
  Fd file(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat st;
  if (!file || ::fstat(file.get(), &st) != 0) return Error::from_errno("open " + path);
  if (!S_ISSOCK(st.st_mode) || st.st_uid != ::geteuid())
    return Error{EADDRINUSE, path + " was replaced by another program"};
  const std::string by_fd = "/proc/self/fd/" + std::to_string(file.get());
  auto prepare = [&]() -> Result<void> {
    if (options.group &&
        ::fchownat(file.get(), "", static_cast<uid_t>(-1), *options.group, AT_EMPTY_PATH) != 0)
      return Error::from_errno("give " + path + " to group " + std::to_string(*options.group));
    if (::chmod(by_fd.c_str(), options.mode) != 0) return Error::from_errno("chmod " + path);
    if (::listen(made.socket.get(), options.backlog) != 0)
      return Error::from_errno("listen on " + path);
    return {};
  };
  auto prepared = prepare();
  if (::fstat(file.get(), &st) == 0) made.file = id_of(st);
  if (!prepared) {
    remove_socket_file(path, made.file);
    return prepared.error();
  }
  return made;
}

}  // namespace sluice
