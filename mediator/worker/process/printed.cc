// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/process/printed.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

namespace sluice::worker {

Result<Fd> Printed::capture() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("pipe");
  Fd read(ends[0]), write(ends[1]);
  // Only the end that is read: a kernel that prints waits for room.
  if (::fcntl(read.get(), F_SETFL, O_NONBLOCK) != 0 || ::dup2(write.get(), STDOUT_FILENO) < 0)
    return Error::from_errno("standard output");
  // NVIDIA's driver prints by the C library, which would keep what goes to a pipe.
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  return read;
}

Printed::Printed(Fd pipe) : buffer_(std::make_shared<Buffer>()) { buffer_->pipe = std::move(pipe); }

void Printed::Buffer::drain() {
  char piece[4096];
  for (ssize_t n; (n = ::read(pipe.get(), piece, sizeof piece)) > 0;) {
    const size_t room = kMostBytes - text.size(), kept = std::min(room, static_cast<size_t>(n));
    text.append(piece, kept);
    lost += static_cast<size_t>(n) - kept;
  }
}

void Printed::start() {
  if (!buffer_->pipe || started_.exchange(true, std::memory_order_acq_rel)) return;
  // It polls without taking, so that take() finds all there is.
  std::thread([buffer = buffer_] {
    for (;;) {
      pollfd wait{buffer->pipe.get(), POLLIN, 0};
      if (::poll(&wait, 1, -1) != 1) continue;
      if ((wait.revents & POLLIN) == 0) return;  // nobody has the other end any more
      std::lock_guard lock(buffer->mutex);
      buffer->drain();
    }
  }).detach();
}

std::string Printed::take() {
  if (!started()) return {};
  std::lock_guard lock(buffer_->mutex);
  buffer_->drain();
  std::string text = std::exchange(buffer_->text, {});
  if (const size_t lost = std::exchange(buffer_->lost, 0))
    text += "\n[sluice: " + std::to_string(lost) + " bytes that kernels printed are lost]\n";
  return text;
}

}  // namespace sluice::worker
