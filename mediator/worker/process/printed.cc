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
namespace {

// `stderr` line by line.
struct Errors {
  std::mutex mutex;
  std::string line;        // not whole yet
  std::string assertions;  // whole lines
};
Errors& errors() {
  static auto* const made = new Errors;  // the driver may write until the process has ended
  return *made;
}

bool is_assertion(std::string_view line) {
  const size_t block = line.find(": block: ["), thread = line.find("], thread: [");
  return block < thread && line.find("] Assertion `") > thread && line.ends_with("` failed.\n");
}

ssize_t take_errors(void*, const char* text, size_t bytes) {
  Errors& e = errors();
  std::lock_guard lock(e.mutex);
  for (size_t k = 0; k < bytes; ++k) {
    e.line += text[k];
    if (text[k] != '\n' && e.line.size() < Printed::kMostAssertionBytes) continue;
    if (!is_assertion(e.line))
      (void)!::write(STDERR_FILENO, e.line.data(), e.line.size());
    else if (e.assertions.size() + e.line.size() <= Printed::kMostAssertionBytes)
      e.assertions += e.line;
    e.line.clear();
  }
  return static_cast<ssize_t>(bytes);
}

}  // namespace

Result<Fd> Printed::capture() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("pipe");
  Fd read(ends[0]), write(ends[1]);
  // Only the end that is read: a kernel that prints waits for room.
  if (::fcntl(read.get(), F_SETFL, O_NONBLOCK) != 0 || ::dup2(write.get(), STDOUT_FILENO) < 0)
    return Error::from_errno("standard output");
  // NVIDIA's driver prints by the C library, which would keep what goes to a pipe.
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  cookie_io_functions_t by_lines{};
  by_lines.write = take_errors;
  std::FILE* const stream = ::fopencookie(nullptr, "w", by_lines);
  if (stream == nullptr) return Error::from_errno("standard error");
  std::setvbuf(stream, nullptr, _IONBF, 0);
  stderr = stream;
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

std::string Printed::take_assertions() {
  std::lock_guard lock(errors().mutex);
  return std::exchange(errors().assertions, {});
}

}  // namespace sluice::worker
