// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/fd_watch.h"

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/io/loop_budget.h"
#include "mediator/io/loop_meter.h"

namespace sluice::io {

namespace asio = boost::asio;

namespace {

// What one watch has left of its pace. Overdrawn, it rests until that is paid back.
class PaceCredit {
 public:
  explicit PaceCredit(const Pace& pace) : pace_(pace), credit_(pace.burst) {}
  // Takes one wake-up. For how long the watch has to rest; 0: not at all.
  uint64_t take(uint64_t now_ns) {
    if (at_ns_ != 0) {
      const double earned = pace_.per_second * 1e-9 * static_cast<double>(now_ns - at_ns_);
      credit_ = std::min(pace_.burst, credit_ + earned);
    }
    at_ns_ = now_ns;
    credit_ -= 1;
    return credit_ >= 0 ? 0 : static_cast<uint64_t>(1e9 * -credit_ / pace_.per_second);
  }

 private:
  Pace pace_;
  double credit_;
  uint64_t at_ns_ = 0;  // of credit_; 0: nothing was taken yet
};

}  // namespace

struct FdWatch::State : std::enable_shared_from_this<State> {
  using Descriptor = LoopBudget::Descriptor;

  State(asio::io_context& io, int watched, std::optional<PaceCredit> own,
        std::shared_ptr<LoopBudget> shared, Callback cb)
      : fd(watched),
        descriptor(io, watched),
        on_readable(std::move(cb)),
        own_credit(own),
        shared_budget(std::move(shared)),
        rest(io) {}

  Descriptor kind() const { return awaited ? Descriptor::kAwaited : Descriptor::kOrdinary; }
  // For how long the peer may not wake us again, after a call that took `cost_ns`.
  uint64_t rest_ns(uint64_t cost_ns) {
    if (!own_credit) return 0;
    const uint64_t now = monotonic_ns();
    const uint64_t own_ns = own_credit->take(now);
    if (!shared_budget) return own_ns;
    const uint64_t shared_ns = shared_budget->take(now, cost_ns, kind());
    rests_in_a_row = shared_ns != 0;
    return std::max(own_ns, shared_ns);
  }
  // What others of its vGPU have cost since.
  uint64_t rest_before_ns() {
    if (!shared_budget || rests_in_a_row >= LoopBudget::kMostRests) return 0;
    const uint64_t ns = shared_budget->rest_before_ns(monotonic_ns(), kind());
    rests_in_a_row += ns != 0;
    return ns;
  }
  void wait_later(uint64_t ns) {
    rests = true;
    take_out();
    rest.expires_after(std::chrono::nanoseconds(ns));
    rest.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && self->rests) self->end_rest();
    });
  }
  void end_rest() {
    rests = false;
    if (!stopped) wait();
  }
  void set_awaited(bool yes) {
    const bool was = std::exchange(awaited, yes);
    if (was || !yes || !rests || !shared_budget) return;
    wait_later(shared_budget->awaited_rest_ns(monotonic_ns()));
  }

  // Of epoll, while it rests: else each thing that its peer does wakes the loop, for nothing.
  void take_out() {
    if (descriptor.is_open() && !writes) descriptor.release();
  }
  // False: the kernel has no room for it now.
  bool put_in() {
    boost::system::error_code error;
    if (!descriptor.is_open()) descriptor.assign(fd, error);
    return !error;
  }
  void wait() {
    constexpr uint64_t kAgainNs = 100'000'000;
    if (!put_in()) return wait_later(kAgainNs);
    descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                          [self = shared_from_this()](const boost::system::error_code& error) {
                            if (!error && !self->stopped) self->serve();
                          });
  }
  void serve() {
    if (const uint64_t ns = rest_before_ns(); ns != 0) return wait_later(ns);
    uint64_t cost_ns = 0;
    {
      LoopMeter::Call call(on_readable.target_type(), &cost_ns);
      on_readable();
    }
    const uint64_t ns = rest_ns(cost_ns);  // also of a call that stopped it
    if (stopped) return;
    if (ns == 0) return wait();
    wait_later(ns);
  }
  void stop() {
    if (stopped) return;
    stopped = true;
    descriptor.release();  // cancels; the descriptor stays its owner's
    rest.cancel();
  }

  const int fd;
  asio::posix::stream_descriptor descriptor;  // open: in epoll
  Callback on_readable;
  bool stopped = false;
  bool writes = false;                   // somebody waits until it is writable
  std::optional<PaceCredit> own_credit;  // nothing: as often as it likes
  std::shared_ptr<LoopBudget> shared_budget;
  asio::steady_timer rest;
  bool rests = false;  // until `rest` is over
  bool awaited = false;
  unsigned rests_in_a_row = 0;  // for what its vGPU owes
};

FdWatch::FdWatch(asio::io_context& io, int fd, Callback on_readable)
    : state_(std::make_shared<State>(io, fd, std::nullopt, nullptr, std::move(on_readable))) {
  state_->wait();
}

FdWatch::FdWatch(asio::io_context& io, int fd, const Pace& pace, Callback on_readable,
                 std::shared_ptr<LoopBudget> shared)
    : state_(std::make_shared<State>(io, fd, PaceCredit(pace), std::move(shared),
                                     std::move(on_readable))) {
  state_->wait();
}

FdWatch& FdWatch::operator=(FdWatch&& other) noexcept {
  if (this != &other) {
    stop();
    state_ = std::move(other.state_);
  }
  return *this;
}

FdWatch::~FdWatch() { stop(); }

void FdWatch::stop() {
  if (state_) state_->stop();
  state_.reset();
}

void FdWatch::set_awaited(bool yes) {
  if (state_) state_->set_awaited(yes);
}

void FdWatch::when_writable(Callback on_writable) {
  state_->writes = state_->put_in();
  state_->descriptor.async_wait(
      asio::posix::stream_descriptor::wait_write,
      [self = state_, cb = std::move(on_writable)](const boost::system::error_code& error) {
        self->writes = false;
        if (error || self->stopped) return;
        if (self->rests) self->take_out();
        LoopMeter::Call call(cb.target_type());
        cb();
      });
}

struct Timer::State : std::enable_shared_from_this<State> {
  explicit State(asio::io_context& io) : timer(io) {}
  asio::steady_timer timer;
  uint64_t turn = 0;  // a cancelled wait may already be queued as a success
  bool pending = false;
};

Timer::Timer(asio::io_context& io) : state_(std::make_shared<State>(io)) {}
Timer::~Timer() { cancel(); }

void Timer::at_ns(uint64_t monotonic_ns, Callback callback) {
  // steady_clock is CLOCK_MONOTONIC with libstdc++ and libc++ on Linux.
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kFar = UINT64_C(1) << 62;
  if (monotonic_ns > kFar) monotonic_ns = kFar;
  state_->timer.expires_at(Clock::time_point(std::chrono::nanoseconds(monotonic_ns)));
  const uint64_t turn = ++state_->turn;
  state_->pending = true;
  state_->timer.async_wait(
      [self = state_, turn, cb = std::move(callback)](const boost::system::error_code& error) {
        if (error || turn != self->turn) return;
        self->pending = false;
        LoopMeter::Call call(cb.target_type());
        cb();
      });
}

void Timer::after_ms(uint64_t ms, Callback callback) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  at_ns(static_cast<uint64_t>(std::chrono::nanoseconds(now).count()) + ms * 1'000'000,
        std::move(callback));
}

void Timer::cancel() {
  if (!state_->pending) return;
  ++state_->turn;
  state_->pending = false;
  state_->timer.cancel();
}

bool Timer::pending() const { return state_->pending; }

}  // namespace sluice::io
