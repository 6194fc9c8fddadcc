// SPDX-License-Identifier: Apache-2.0
#include "mediator/base/unix_socket.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "mediator/base/listen_socket.h"

namespace sluice {
namespace {

constexpr size_t kMaxFds = 64;

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un addr{};
  addr.sun_family = AF_UNIX;
  if (path.size() >= sizeof addr.sun_path)
    return Error{ENAMETOOLONG, "socket path is longer than 107 bytes: " + path};
  std::memcpy(addr.sun_path, path.c_str(), path.size() + 1);
  return addr;
}

}  // namespace

Result<Fd> connect_unix(const std::string& path, int type, int timeout_s) {
  auto addr = unix_address(path);
  if (!addr) return addr.error();
  Fd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd) return Error::from_errno("socket");
  const timeval timeout{timeout_s, 0};
  for (int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    if (timeout_s && ::setsockopt(fd.get(), SOL_SOCKET, option, &timeout, sizeof timeout) != 0)
      return Error::from_errno("set a time-out");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*addr), sizeof *addr) != 0)
    return Error::from_errno("connect to " + path);
  return fd;
}

Result<Fd> listen_unix(const std::string& path, int type, unsigned mode, int backlog) {
  ListenOptions options;
  options.type = type;
  options.mode = mode;
  options.backlog = backlog;
  auto made = listen_at(path, options);
  if (!made) return made.error();
  return std::move(made->socket);
}

Result<void> send_with_fds(int socket, const void* data, size_t bytes, std::span<const int> fds,
                           int flags) {
  if (fds.size() > kMaxFds) return Error{EINVAL, "too many descriptors in one message"};
  iovec iov{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr msg{};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  if (!fds.empty()) {
    msg.msg_control = control;
    msg.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t n;
  do {
    // A worker may send bytes, but no descriptor (worker/process/sandbox.h).
    n = fds.empty() ? ::send(socket, data, bytes, flags | MSG_NOSIGNAL)
                    : ::sendmsg(socket, &msg, flags | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return Error::from_errno("sendmsg");
  if (static_cast<size_t>(n) != bytes) return Error{EIO, "sendmsg: message was cut short"};
  return {};
}

Result<Received> receive_with_fds(int socket, void* data, size_t bytes, int flags) {
  iovec iov{data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr msg{};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  msg.msg_control = control;
  msg.msg_controllen = sizeof control;
  ssize_t n;
  do {
    n = ::recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return Error::from_errno("recvmsg");
  Received r;
  r.bytes = static_cast<size_t>(n);
  r.truncated = (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      r.fds.emplace_back(fd);
    }
  }
  return r;
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred cred;
  socklen_t len = sizeof cred;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
    return Error::from_errno("SO_PEERCRED");
  return PeerCredentials{cred.pid, cred.uid, cred.gid};
}

Result<std::vector<gid_t>> peer_groups(int socket) {
  std::vector<gid_t> groups(64);
  for (;;) {
    socklen_t len = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const bool ok = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &len) == 0;
    const size_t count = len / sizeof(gid_t);
    if (!ok && (errno != ERANGE || count <= groups.size()))
      return Error::from_errno("SO_PEERGROUPS");
    groups.resize(count);
    if (ok) return groups;
  }
}

Result<Fd> make_memfd(const std::string& name, size_t bytes) {
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Error::from_errno("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return Error::from_errno("ftruncate of memfd " + name);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return Error::from_errno("seal memfd " + name);
  return fd;
}

Result<Fd> make_eventfd() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return Error::from_errno("eventfd");
  return fd;
}

}  // namespace sluice
