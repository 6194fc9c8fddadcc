// SPDX-License-Identifier: Apache-2.0
// JobQueue: driver calls that may take long, in the order in which they were posted. The session's
// job thread alone takes them; any thread posts.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "mediator/base/clock.h"
#include "mediator/ring/wait.h"

namespace sluice::worker {

class JobQueue {
 public:
  using Job = std::function<void()>;

  void post(Job job) {
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
      waiting_.store(jobs_.size(), std::memory_order_release);
    }
    ready_.notify_one();
  }

  // The oldest job; waits for one for `most`. It spins first, since a program that makes such calls
  // one after another waits for each, and waking up takes longer than most of them.
  std::optional<Job> take(Spinner& spinner, std::chrono::nanoseconds most) {
    const bool there =
        spinner.spin([this] { return waiting_.load(std::memory_order_acquire) != 0; });
    std::unique_lock lock(mutex_);
    if (!there) {
      const uint64_t from_ns = monotonic_ns();
      ready_.wait_for(lock, most, [this] { return !jobs_.empty(); });
      spinner.slept(monotonic_ns() - from_ns);
    }
    if (jobs_.empty()) return std::nullopt;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    waiting_.store(jobs_.size(), std::memory_order_relaxed);
    return job;
  }

  // `most` jobs or more are waiting. Then `then` is called before any can be taken.
  template <class Then>
  bool full(size_t most, Then then) {
    // Called before each record, so it takes no lock where there is room.
    if (waiting_.load(std::memory_order_acquire) < most) return false;
    std::lock_guard lock(mutex_);
    if (jobs_.size() < most) return false;
    then();
    return true;
  }

 private:
  std::atomic<size_t> waiting_{0};  // what is in jobs_
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_;
};

}  // namespace sluice::worker
