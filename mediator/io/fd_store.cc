// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/fd_store.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sluice::io {
namespace {

constexpr int kFirstPassed = 3;  // SD_LISTEN_FDS_START
// A systemd that is reloaded reads nothing for seconds on a large host. Less: it would not hear
// that sluiced has started, and end it.
constexpr int kReadySeconds = 60;

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value ? value : "";
}

int number(const std::string& text) {
  int n = 0;
  auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), n);
  return bad == std::errc{} && end == text.data() + text.size() ? n : 0;
}

// As many as a message may have: send_with_fds() is for a few.
Result<void> send_parcel(int socket, const std::string& text, std::span<const int> fds) {
  iovec iov{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(FdStore::kMaxFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  if (::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
    return Error::from_errno("put a parcel into its socket");
  return {};
}

Result<FdStore::Parcel> peek_parcel(int socket) {
  FdStore::Parcel parcel;
  parcel.text.resize(FdStore::kMaxText);
  iovec iov{parcel.text.data(), parcel.text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(FdStore::kMaxFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return Error::from_errno("read a stored parcel");
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      parcel.fds.emplace_back(fd);
    }
  }
  if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
    return Error{EMSGSIZE, "a stored parcel is too large, or there are no descriptors left for it"};
  parcel.text.resize(static_cast<size_t>(got));
  return parcel;
}

}  // namespace

FdStore FdStore::from_environment() {
  FdStore store;
  store.notify_ = variable("NOTIFY_SOCKET");
  const int count =
      number(variable("LISTEN_PID")) == ::getpid() ? number(variable("LISTEN_FDS")) : 0;
  std::string names = variable("LISTEN_FDNAMES");
  for (const char* name : {"NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"})
    ::unsetenv(name);
  for (int i = 0; i < count; ++i) {
    Fd fd(kFirstPassed + i);
    const size_t end = names.find(':');
    const std::string name = names.substr(0, end);
    names = end == std::string::npos ? "" : names.substr(end + 1);
    if (::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) {
      (void)fd.release();  // systemd named a descriptor that there is not
      continue;
    }
    store.at_start_[name] = std::move(fd);
  }
  return store;
}

// `wait_s` 0: not at all.
Result<void> FdStore::notify(const std::string& text, int fd, int wait_s) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (notify_.size() >= sizeof address.sun_path)
    return Error{ENAMETOOLONG, "NOTIFY_SOCKET is too long"};
  std::memcpy(address.sun_path, notify_.data(), notify_.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + notify_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // of the abstract name space
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return Error::from_errno("socket");
  iovec iov{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = length;
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  const timeval patience{.tv_sec = wait_s, .tv_usec = 0};
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0)
    return Error::from_errno("set a timeout");
  const int flags = MSG_NOSIGNAL | (wait_s ? 0 : MSG_DONTWAIT);
  while (::sendmsg(socket.get(), &message, flags) < 0)
    if (errno != EINTR) return Error::from_errno("tell systemd by " + notify_);
  return {};
}

Result<void> FdStore::ready() const {
  return available() ? notify("READY=1\n", -1, kReadySeconds) : Result<void>();
}

Result<void> FdStore::put(const std::string& name, const std::string& text,
                          std::span<const int> fds) {
  if (!available()) return {};
  if (fds.size() > kMaxFds || text.size() > kMaxText || text.empty())
    return Error{EMSGSIZE, "too much for one parcel"};
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::from_errno("socketpair");
  Fd to(ends[0]), kept(ends[1]);
  if (auto sent = send_parcel(to.get(), text, fds); !sent) return sent;
  if (auto removed = remove(name); !removed) return removed;
  // FDPOLL=0: the other end is closed, and systemd would drop it for that.
  return notify("FDSTORE=1\nFDNAME=" + name + "\nFDPOLL=0\n", kept.get(), 0);
}

Result<void> FdStore::remove(const std::string& name) {
  if (!available()) return {};
  return notify("FDSTOREREMOVE=1\nFDNAME=" + name + "\n", -1, 0);
}

std::map<std::string, FdStore::Parcel> FdStore::take() {
  std::map<std::string, Parcel> parcels;
  for (auto& [name, fd] : at_start_)
    if (auto parcel = peek_parcel(fd.get())) parcels[name] = std::move(*parcel);
  at_start_.clear();
  return parcels;
}

}  // namespace sluice::io
