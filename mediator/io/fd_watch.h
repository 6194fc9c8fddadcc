// SPDX-License-Identifier: Apache-2.0
// FdWatch and Timer: the two things that wake sluiced's one thread. Thin over Boost.Asio, with the
// property that makes owners simple: after the object is destroyed its callback is never called,
// and a callback may destroy the object that called it. A Pace bounds how often a hostile peer
// wakes it by one descriptor, a LoopBudget (loop_budget.h) how much of its time those of one vGPU
// take.
//
// Used from the io_context's thread only. Neither owns the descriptor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

// Its own header costs every user a second of compiling.
namespace boost::asio {
class io_context;
}

namespace sluice::io {

class LoopBudget;

// How often a hostile peer may wake the loop: `burst` times at once, `per_second` on average.
// Beyond that its descriptor is out of epoll for a moment, and what it sends waits.
struct Pace {
  double per_second;
  double burst;
};

class FdWatch {
 public:
  using Callback = std::function<void()>;

  FdWatch() = default;
  // `on_readable` is called once per loop turn as long as `fd` is readable (level triggered), so it
  // may leave something for the next turn. `fd` must be of a kind that epoll takes and must stay
  // open as long as this object.
  FdWatch(boost::asio::io_context& io, int fd, Callback on_readable);
  // `shared`: a budget that others draw on, too. Null: there is none.
  FdWatch(boost::asio::io_context& io, int fd, const Pace& pace, Callback on_readable,
          std::shared_ptr<LoopBudget> shared = nullptr);
  FdWatch(FdWatch&&) noexcept = default;
  FdWatch& operator=(FdWatch&&) noexcept;
  ~FdWatch();

  // Calls `on_writable` once, when `fd` is writable. One at a time.
  void when_writable(Callback on_writable);
  // Whether other vGPUs wait for what this descriptor will say. As long as they do, it rests for
  // its own pace, and no longer than awaited descriptors have to, whatever its vGPU owes.
  void set_awaited(bool yes);
  void stop();
  explicit operator bool() const { return static_cast<bool>(state_); }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// One-shot timer on CLOCK_MONOTONIC. Setting it again replaces the earlier time.
class Timer {
 public:
  using Callback = std::function<void()>;

  explicit Timer(boost::asio::io_context& io);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void at_ns(uint64_t monotonic_ns, Callback callback);
  void after_ms(uint64_t ms, Callback callback);
  void cancel();
  bool pending() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sluice::io
