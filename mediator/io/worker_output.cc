#include "mediator/io/worker_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"

namespace sluice::io {
namespace {
constexpr uint64_t kPauseMs = 250;
}  // namespace

Result<Fd> WorkerOutput::open(boost::asio::io_context& io) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("pipe");
  pipe_.reset(ends[0]);
  Fd theirs(ends[1]);
  // Each end has an open file description of its own: the worker cannot make ours block.
  if (::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK) != 0) return Error::from_errno("pipe");
  credit_at_ns_ = monotonic_ns();
  pause_ = std::make_unique<Timer>(io);
  watch(io);
  return theirs;
}

void WorkerOutput::watch(boost::asio::io_context& io) {
  watch_ = FdWatch(io, pipe_.get(), [this, &io] {
    const bool more = read_some();
    if (more && credit_ >= 1) return;
    watch_.stop();
    // One that says more than is logged waits for room in the pipe, and we do not spin.
    if (more) pause_->after_ms(kPauseMs, [this, &io] { watch(io); });
  });
}

bool WorkerOutput::read_some() {
  char text[4096];
  const ssize_t n = ::read(pipe_.get(), text, sizeof text);
  if (n > 0) take(text, static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

void WorkerOutput::drain() {
  watch_.stop();
  pause_.reset();
  for (int i = 0; i < 16 && pipe_; ++i) {
    char text[4096];
    const ssize_t n = ::read(pipe_.get(), text, sizeof text);
    if (n <= 0) break;
    take(text, static_cast<size_t>(n));
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
      line_ += text[i];
    } else {
      cut_ = true;
    }
  }
}

void WorkerOutput::line() {
  const uint64_t now = monotonic_ns();
  credit_ = std::min(limits::kWorkerLineBurst,
                     credit_ + limits::kWorkerLinesPerSecond * 1e-9 * static_cast<double>(now - credit_at_ns_));
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
