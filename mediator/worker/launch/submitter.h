// SPDX-License-Identifier: Apache-2.0
// Submitter: a thread that makes the driver's calls of launches that follow one another closely.
// The driver's call takes several times as long as all that a worker does around it, so the decoder
// prepares the next launches meanwhile.
//
//   decoder                    this thread
//   push(item) ──────────▶ submit(item), in the order of the pushes
//   drain() ◀──────────── all that was pushed has been submitted, and what came of it is known
//
// Whole originals only. Whoever makes any other call about a stream, or lets go of a launch, drains
// first, so the driver sees the same order as without it.
//
// Owned by CudaStreams. push(): the decoder, with the session's lock; drain(): any thread. The
// thread is never joined: workers end by _exit. It spins while items come, then it sleeps.
#pragma once

#include <sched.h>
#include <sys/prctl.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "mediator/ring/fence.h"
#include "mediator/ring/wait.h"

namespace sluice::worker {

template <class Item>
class Submitter {
 public:
  explicit Submitter(void (*submit)(const Item&)) : submit_(submit) {}

  // Starts the thread. Without it nothing is taken.
  void start() {
    if (started_) return;
    started_ = true;
    std::thread([this] { run(); }).detach();
  }

  // False: not taken, since the thread sleeps (it is woken) or has enough; the caller drains, and
  // submits it itself.
  bool push(const Item& item) {
    if (!started_) return false;
    if (!awake_.load(std::memory_order_seq_cst)) {
      // Once for each of its sleeps.
      const uint32_t sleeps = sleeps_.load(std::memory_order_relaxed);
      if (woken_from_ != sleeps) wake();
      woken_from_ = sleeps;
      return false;
    }
    const uint64_t at = pushed_.load(std::memory_order_relaxed);
    if (at - done_.load(std::memory_order_acquire) == kPlaces) return false;
    items_[at % kPlaces] = item;
    pushed_.store(at + 1, std::memory_order_seq_cst);
    // It may have gone to sleep since: then it has not seen this one.
    if (!awake_.load(std::memory_order_seq_cst)) wake();
    return true;
  }

  void drain() const {
    const uint64_t until = pushed_.load(std::memory_order_acquire);
    for (uint32_t looks = 1; done_.load(std::memory_order_acquire) < until; ++looks) {
      cpu_relax();
      if (looks % kLooksPerYield == 0) ::sched_yield();
    }
  }

 private:
  // More than the stream engine has in flight of them (EngineLimits::opaque_depth).
  static constexpr uint64_t kPlaces = 64;
  // A driver's call ends within some microseconds, unless the thread has lost its processor.
  static constexpr uint32_t kLooksPerYield = 1024;

  void wake() {
    calls_.fetch_add(1, std::memory_order_seq_cst);
    calls_.notify_one();
  }
  void sleep(uint64_t at) {
    const uint32_t calls = calls_.load(std::memory_order_seq_cst);
    sleeps_.fetch_add(1, std::memory_order_relaxed);
    awake_.store(false, std::memory_order_seq_cst);
    if (pushed_.load(std::memory_order_seq_cst) == at) calls_.wait(calls);
    awake_.store(true, std::memory_order_seq_cst);
  }
  void run() {
    ::prctl(PR_SET_NAME, "sluice-submit");
    Spinner spinner(Spinner::longest_us());
    sleep(0);
    for (uint64_t at = 0;;) {
      if (!spinner.spin([&] { return pushed_.load(std::memory_order_acquire) != at; })) {
        sleep(at);
        spinner.found_after(0);  // what woke it is followed by more
        continue;
      }
      submit_(items_[at % kPlaces]);
      done_.store(++at, std::memory_order_release);
    }
  }

  void (*const submit_)(const Item&);
  bool started_ = false;
  uint32_t woken_from_ = 0;  // the pusher's
  Item items_[kPlaces];
  alignas(64) std::atomic<uint64_t> pushed_{0};
  std::atomic<uint32_t> calls_{0}, sleeps_{0};
  alignas(64) std::atomic<uint64_t> done_{0};
  std::atomic<bool> awake_{false};
};

}  // namespace sluice::worker
