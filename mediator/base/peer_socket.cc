// SPDX-License-Identifier: Apache-2.0
#include "mediator/base/peer_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // asm-generic; Linux 6.16
#endif

namespace sluice {
namespace {

std::atomic<bool> forget_passrights{false};

// Rings that wait in a socket; with the least send buffer no more than six fit in.
constexpr int kWakesAtOnce = 8;

ssize_t receive_retrying(int socket, msghdr* msg, int flags) {
  ssize_t n;
  do {
    n = ::recvmsg(socket, msg, flags | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n;
}

bool kernel_refuses() {
  static const bool knows = [] {
    Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int no = 0;
    return ::setsockopt(socket.get(), SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no) == 0;
  }();
  return knows && !forget_passrights;
}

}  // namespace

void forget_passrights_for_test(bool forget) { forget_passrights = forget; }

void refuse_descriptors(int socket) {
  const int no = 0, yes = 1;
  if (!forget_passrights) ::setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
  // An urgent byte would be skipped by a look and dropped by the read behind it, descriptors
  // included.
  ::setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes);
}

bool kernel_refuses_descriptors(int socket) {
  int passes = 1;
  socklen_t bytes = sizeof passes;
  return !forget_passrights &&
         ::getsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &passes, &bytes) == 0 && passes == 0;
}

Result<PlainMessage> receive_plain(int socket, void* data, size_t bytes) {
  iovec iov{data, bytes};
  msghdr look{};  // without room for descriptors: none is installed by looking
  look.msg_iov = &iov;
  look.msg_iovlen = 1;
  ssize_t n = receive_retrying(socket, &look, MSG_PEEK);
  if (n < 0) return Error::from_errno("recvmsg");
  if (look.msg_flags & MSG_CTRUNC)
    return Error{kPassedDescriptors, "it passed descriptors where none are expected"};
  // Of a stream only what was peeked at: what has come since may carry some.
  iov.iov_len = static_cast<size_t>(n);
  if (look.msg_flags & MSG_TRUNC) iov.iov_len = bytes;
  msghdr take{};
  take.msg_iov = &iov;
  take.msg_iovlen = 1;
  ssize_t taken = receive_retrying(socket, &take, 0);
  if (taken < 0) return Error::from_errno("recvmsg");
  return PlainMessage{static_cast<size_t>(taken), (look.msg_flags & MSG_TRUNC) != 0};
}

bool has_hung_up(int socket) {
  pollfd p{socket, 0, 0};
  return ::poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

Result<WakePair> make_wake_pair() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return Error::from_errno("socketpair");
  WakePair made{Fd(pair[0]), Fd(pair[1])};
  const int least = 1;  // the kernel raises it to its least
  for (int fd : pair) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  refuse_descriptors(made.ours.get());
  return made;
}

void ring_wake(int socket) {
  const char ring = 1;
  while (::send(socket, &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

Drained drain_wake(int socket) {
  if (kernel_refuses()) {
    char dropped[kWakesAtOnce];
    if (::recv(socket, dropped, sizeof dropped, MSG_DONTWAIT) < 0) return Drained::kNothing;
    drain_trusted_wake(socket);
    return Drained::kRung;
  }
  for (int i = 0; i < kWakesAtOnce; ++i) {
    char dropped;
    auto got = receive_plain(socket, &dropped, sizeof dropped);
    if (got) continue;
    if (got.error().code == kPassedDescriptors) return Drained::kDescriptors;
    return i == 0 ? Drained::kNothing : Drained::kRung;
  }
  return Drained::kRung;
}

void drain_trusted_wake(int socket) {
  char dropped;
  for (int i = 0; i < kWakesAtOnce; ++i)
    if (::recv(socket, &dropped, sizeof dropped, MSG_DONTWAIT) < 0) return;
}

}  // namespace sluice
