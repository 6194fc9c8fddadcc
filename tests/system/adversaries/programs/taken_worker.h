// SPDX-License-Identifier: Apache-2.0
// How a worker that a guest has taken over begins: with the first message of the control link, as
// any worker does. Its vGPU's name says what it is to do.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "abi/stub.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/worker/process/sandbox.h"

namespace sluice::adversary {

// Why a worker has ended before it could attack: its exit status.
enum Failed { kNoStart = 90, kNoRealWorker, kNotReceived, kNoSandbox, kNotReady, kNotMapped };

struct FirstPacket {
  worker_protocol::Message message;
  worker_protocol::Start start;
};

// What sluiced's first message says. The message stays in the socket, for the real worker.
inline FirstPacket peek_first_packet() {
  FirstPacket packet{};
  if (::recv(worker_protocol::kControlFd, &packet, sizeof packet, MSG_PEEK) !=
      ssize_t{sizeof packet})
    std::_Exit(kNoStart);
  return packet;
}

[[noreturn]] inline void become_the_real_worker() {
  if (const char* real = std::getenv("SLUICE_EVIL_REAL")) ::execl(real, "sluice-worker", nullptr);
  std::_Exit(kNoRealWorker);
}

// The descriptors of Start.
inline std::vector<Fd> receive_start() {
  FirstPacket packet{};
  auto start = receive_with_fds(worker_protocol::kControlFd, &packet, sizeof packet);
  if (!start || start->fds.size() < worker_protocol::kStartFdCount) std::_Exit(kNotReceived);
  return std::move(start->fds);
}

inline sluice_report_header& map_report(const std::vector<Fd>& start_fds) {
  void* report = ::mmap(nullptr, SLUICE_REPORT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                        start_fds[worker_protocol::kReportFd].get(), 0);
  if (report == MAP_FAILED) std::_Exit(kNotMapped);
  return *static_cast<sluice_report_header*>(report);
}

// Enters the sandbox and reports Ready, as the real worker does.
inline void enter_sandbox_and_report(bool nvidia) {
  if (auto r = worker::enter_sandbox(nvidia); !r) std::_Exit(kNoSandbox);
  worker_protocol::Message ready{};
  ready.type = worker_protocol::Type::kReady;
  if (!send_with_fds(worker_protocol::kControlFd, &ready, sizeof ready, {})) std::_Exit(kNotReady);
}

// A message that passes one descriptor `copies` times, for sendmsg(). Of no type of the control
// link's: who takes it for one of those ends this worker.
class PassedDescriptor {
 public:
  static constexpr size_t kMost = 253;  // the kernel's SCM_MAX_FD

  explicit PassedDescriptor(int fd, size_t copies = 1) {
    header_.msg_iov = &bytes_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_;
    header_.msg_controllen = CMSG_SPACE(copies * sizeof fd);
    cmsghdr* c = CMSG_FIRSTHDR(&header_);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(copies * sizeof fd);
    for (size_t i = 0; i < copies; ++i) std::memcpy(CMSG_DATA(c) + i * sizeof fd, &fd, sizeof fd);
  }
  PassedDescriptor(const PassedDescriptor&) = delete;
  PassedDescriptor& operator=(const PassedDescriptor&) = delete;

  const msghdr& header() const { return header_; }

 private:
  worker_protocol::Message message_{};
  iovec bytes_{&message_, sizeof message_};
  alignas(cmsghdr) char control_[CMSG_SPACE(kMost * sizeof(int))] = {};
  msghdr header_{};
};

}  // namespace sluice::adversary
