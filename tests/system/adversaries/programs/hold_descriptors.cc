// SPDX-License-Identifier: Apache-2.0
// A peer that makes what it shares with sluiced wait, or sends without end.
//
//   hold-descriptors wake LOCAL     joins, lets writes to its wake descriptor wait, and leaves; 20
//   times hold-descriptors bells SOCK     plays QEMU: every bell waits; then a new agent without
//   end hold-descriptors linger PATH    passes sockets whose last close waits, to a stream or a
//   packet socket hold-descriptors talk LOCAL     joins, and goes on sending
// Prints "ready" when it has done its worst; what repeats goes on until it is killed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "abi/channel.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  for (int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const int s = ::socket(AF_UNIX, type, 0);
    if (::connect(s, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return s;
    ::close(s);
  }
  fail("connect");
}

// One message; its descriptors are appended.
ssize_t receive(int socket, void* data, size_t bytes, std::vector<int>* fds) {
  iovec iov{data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  msghdr msg{};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  msg.msg_control = control;
  msg.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(socket, &msg, 0);
  for (cmsghdr* c = n > 0 ? CMSG_FIRSTHDR(&msg) : nullptr; c; c = CMSG_NXTHDR(&msg, c))
    for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      fds->push_back(fd);
    }
  return n;
}

bool pass(int socket, int fd, int flags) {
  char data[1] = {};
  iovec iov{data, sizeof data};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr msg{};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  msg.msg_control = control;
  msg.msg_controllen = sizeof control;
  cmsghdr* c = CMSG_FIRSTHDR(&msg);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  return ::sendmsg(socket, &msg, flags | MSG_NOSIGNAL) >= 0;
}

void let_wait(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK); }
void fill(int eventfd) {
  uint64_t count;
  ::fcntl(eventfd, F_SETFL, O_NONBLOCK);
  (void)!::read(eventfd, &count, sizeof count);
  count = UINT64_MAX - 1;
  (void)!::write(eventfd, &count, sizeof count);
  let_wait(eventfd);
}

int join(const std::string& path, std::vector<int>* fds) {
  const int socket = connect_to(path);
  sluice_join question{};
  question.magic = SLUICE_JOIN_MAGIC;
  question.version = SLUICE_CHANNEL_VERSION;
  std::strcpy(question.program, "hold-descriptors");
  if (::send(socket, &question, sizeof question, 0) < 0) fail("join");
  sluice_joined answer{};
  if (receive(socket, &answer, sizeof answer, fds) != sizeof answer) fail("answer");
  if (answer.status != 0) {
    std::printf("refused %s\n", answer.reason);
    std::exit(1);
  }
  return socket;
}

int lingering() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  ::bind(listener, any, length);
  ::listen(listener, 1);
  ::getsockname(listener, any, &length);
  const int s = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(s, any, length) != 0) fail("connect to ourselves");
  ::accept(listener, nullptr, nullptr);  // and never read
  ::close(listener);
  const linger hour{1, 3600};
  ::setsockopt(s, SOL_SOCKET, SO_LINGER, &hour, sizeof hour);
  std::vector<char> bytes(1 << 20);
  while (::send(s, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  return s;
}

void ready() {
  std::printf("ready\n");
  std::fflush(stdout);
}

[[noreturn]] void stay() {
  for (;;) ::pause();
}

void wake(const std::string& path) {
  for (int i = 0; i < 20; ++i) {
    std::vector<int> fds;
    const int socket = join(path, &fds);
    fill(fds.at(2));
    ::close(socket);
  }
  ready();
  stay();
}

void bells(const std::string& path) {
  const int socket = connect_to(path);
  std::vector<int> fds;
  int64_t value;
  pollfd more{socket, POLLIN, 0};
  while (::poll(&more, 1, fds.empty() ? -1 : 1000) > 0 &&
         receive(socket, &value, sizeof value, &fds) > 0) {
  }
  auto* header = static_cast<sluice_channel_header*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds.at(0), 0));
  if (header == MAP_FAILED) fail("mmap");
  const size_t vectors = (fds.size() - 1) / 2;
  for (size_t i = 0; i < 2 * vectors; ++i)
    if (i < vectors)
      let_wait(fds[1 + i]);
    else
      fill(fds[1 + i]);
  ready();
  const int host_bell = ::fcntl(fds[1], F_DUPFD, 0);
  for (uint64_t epoch = 1;; ++epoch) {
    __atomic_store_n(&header->agent_epoch, epoch, __ATOMIC_SEQ_CST);
    const uint64_t one = 1;
    (void)!::write(host_bell, &one, sizeof one);
  }
}

void pass_lingering(const std::string& path) {
  for (int i = 0; i < 4; ++i) {
    for (int flags : {0, static_cast<int>(MSG_OOB)}) {
      const int socket = connect_to(path);
      const int fd = lingering();
      // Where the kernel lets it through, sluiced has the last reference. Closing ours would wait
      // for ourselves otherwise.
      if (pass(socket, fd, flags)) ::close(fd);
      if (flags) ::send(socket, "x", 1, MSG_NOSIGNAL);
      ::close(socket);
    }
  }
  ready();
  stay();
}

void talk(const std::string& path) {
  std::vector<int> fds;
  const int socket = join(path, &fds);
  ready();
  char message[64] = {};
  while (::send(socket, message, sizeof message, MSG_NOSIGNAL) > 0) {
  }
  stay();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string what = argv[1];
  if (what == "wake") wake(argv[2]);
  if (what == "bells") bells(argv[2]);
  if (what == "linger") pass_lingering(argv[2]);
  if (what == "talk") talk(argv[2]);
  return 2;
}
