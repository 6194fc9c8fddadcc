// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/worker_output.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"

namespace sluice::io {
namespace {
constexpr uint64_t kPauseMs = 250;
constexpr Pace kPace{limits::kWorkerOutputsPerSecond, limits::kWorkerOutputBurst};
}  // namespace

WorkerOutput::~WorkerOutput() {
  watch_.stop();
  if (peers_) peers_->close(std::move(socket_));
}

Result<Fd> WorkerOutput::open(boost::asio::io_context& io, std::shared_ptr<PeerThread> peers) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::from_errno("socketpair");
  peers_ = std::move(peers);
  socket_.reset(ends[0]);
  Fd theirs(ends[1]);
  refuse_descriptors(socket_.get());
  credit_at_ns_ = monotonic_ns();
  pause_ = std::make_unique<Timer>(io);
  watch(io);
  return theirs;
}

void WorkerOutput::watch(boost::asio::io_context& io) {
  watch_ = FdWatch(io, socket_.get(), kPace, [this, &io] {
    const bool more = read_some();
    if (more && credit_ >= 1) return;
    watch_.stop();
    // One that says more than is logged waits for room in the socket, and we do not spin.
    if (more) pause_->after_ms(kPauseMs, [this, &io] { watch(io); });
  });
}

bool WorkerOutput::read_some() {
  char text[4096];
  auto got = receive_plain(socket_.get(), text, sizeof text);
  if (got) take(text, got->bytes);
  return got ? true : got.error().code == EAGAIN;
}

void WorkerOutput::drain() {
  watch_.stop();
  pause_.reset();
  const uint64_t most_dropped = dropped_ + limits::kWorkerLastDropped;
  for (int i = 0; i < 256 && socket_ && dropped_ < most_dropped; ++i) {
    char text[4096];
    auto got = receive_plain(socket_.get(), text, sizeof text);
    if (!got) break;
    take(text, got->bytes);
  }
  if (!line_.empty()) line();
  if (dropped_) log::warning("{}: {} lines of its output were dropped", name_, dropped_);
  dropped_ = 0;
}

void WorkerOutput::take(const char* text, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (text[i] == '\n') {
      line();
    } else if (line_.size() < limits::kWorkerLineBytes) {
      // Events are JSON, and a terminal shows them: no bytes that are no text, no control sequence.
      line_ += text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    } else {
      cut_ = true;
    }
  }
}

void WorkerOutput::line() {
  const uint64_t now = monotonic_ns();
  credit_ =
      std::min(limits::kWorkerLineBurst, credit_ + limits::kWorkerLinesPerSecond * 1e-9 *
                                                       static_cast<double>(now - credit_at_ns_));
  credit_at_ns_ = now;
  if (credit_ >= 1) {
    credit_ -= 1;
    if (dropped_) log::warning("{}: {} lines of its output were dropped", name_, dropped_);
    dropped_ = 0;
    log::info("{}: {}{}", name_, line_, cut_ ? "..." : "");
  } else {
    ++dropped_;
  }
  line_.clear();
  cut_ = false;
}

}  // namespace sluice::io
