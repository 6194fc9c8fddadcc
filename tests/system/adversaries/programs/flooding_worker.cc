// SPDX-License-Identifier: Apache-2.0
// A worker that a guest has taken over, and that floods sluiced over what it shares with it. It
// enters the sandbox as a worker does, says Ready, and does what its vGPU is called, without end:
//
//   lines        short lines to standard error that are no text, thousands in a message
//   endless      one line to standard error that never ends
//   descriptors  descriptors over each socket that it has, as many at once as the kernel takes
//   asks         requests over the control link, whose answers it reads
//   requests     the same, and reads nothing
//   rings        rings, with a report that says each time that it has work, or none
//
// Workers of vGPUs of other names become the real program (SLUICE_EVIL_REAL).
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "abi/stub.h"
#include "mediator/base/peer_socket.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/worker/process/sandbox.h"

using namespace sluice;
using namespace sluice::worker_protocol;

namespace {

constexpr size_t kMostDescriptors = 253;  // the kernel's SCM_MAX_FD

// Waits where the socket is full: sluiced decides how fast this goes.
[[noreturn]] void write_without_end(const std::string& text) {
  for (;;) (void)!::write(STDERR_FILENO, text.data(), text.size());
}

void pass_many(int socket, int fd) {
  Message message{};  // of no type: whoever reads it ends this worker
  iovec iov{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr packet{};
  packet.msg_iov = &iov;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  cmsghdr* c = CMSG_FIRSTHDR(&packet);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(kMostDescriptors * sizeof(int));
  for (size_t i = 0; i < kMostDescriptors; ++i)
    std::memcpy(CMSG_DATA(c) + i * sizeof fd, &fd, sizeof fd);
  ::sendmsg(socket, &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
}

[[noreturn]] void pass_without_end(const std::vector<Fd>& start_fds) {
  const int sockets[] = {kControlFd, STDERR_FILENO, start_fds[kGateFd].get(),
                         start_fds[kRingFd].get()};
  for (;;)
    for (int socket : sockets) pass_many(socket, start_fds[kRegionFd].get());
}

[[noreturn]] void ask_without_end(bool reads_answers) {
  Message ask{}, answer{};
  ask.bytes = 1;
  for (uint64_t i = 0;; ++i) {
    ask.type = i % 2 ? Type::kLeaseReturn : Type::kLeaseRequest;
    ::send(kControlFd, &ask, sizeof ask, MSG_NOSIGNAL);
    if (!reads_answers || i % 2) continue;
    ::recv(kControlFd, &answer, sizeof answer, 0);
  }
}

[[noreturn]] void ring_without_end(const std::vector<Fd>& start_fds, sluice_report_header& report) {
  for (uint32_t i = 0;; ++i) {
    __atomic_store_n(&report.demand, i & 1, __ATOMIC_SEQ_CST);
    ring_wake(start_fds[kRingFd].get());
  }
}

}  // namespace

int main() {
  struct {
    Message message;
    Start start;
  } packet{};
  if (::recv(kControlFd, &packet, sizeof packet, MSG_PEEK) != ssize_t{sizeof packet}) return 90;
  const std::string what = packet.start.vgpu;
  if (what.size() < 2) {
    ::execl(std::getenv("SLUICE_EVIL_REAL"), "sluice-worker", nullptr);
    return 91;
  }
  auto start = receive_with_fds(kControlFd, &packet, sizeof packet);
  if (!start || start->fds.size() < kStartFdCount) return 92;
  void* report = ::mmap(nullptr, SLUICE_REPORT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                        start->fds[kReportFd].get(), 0);
  if (report == MAP_FAILED) return 95;
  if (auto r = worker::enter_sandbox(false); !r) return 93;
  Message ready{};
  ready.type = Type::kReady;
  if (!send_with_fds(kControlFd, &ready, sizeof ready, {})) return 94;

  std::string text(64 << 10, '\n');
  if (what == "endless") text.assign(text.size(), 'x');
  for (size_t i = 0; what == "lines" && i + 1 < text.size(); i += 16) text[i] = '\xff';
  if (what == "lines" || what == "endless") write_without_end(text);
  if (what == "descriptors") pass_without_end(start->fds);
  if (what == "rings") ring_without_end(start->fds, *static_cast<sluice_report_header*>(report));
  ask_without_end(what == "asks");
}
