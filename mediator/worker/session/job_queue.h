// SPDX-License-Identifier: Apache-2.0
// JobQueue: driver calls that may take long, in the order in which they were posted. The session's
// job thread takes them; any thread posts.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace sluice::worker {

class JobQueue {
 public:
  using Job = std::function<void()>;

  void post(Job job) {
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    ready_.notify_one();
  }

  // The oldest job; waits until there is one.
  Job take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !jobs_.empty(); });
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

  // `most` jobs or more are waiting. Then `then` is called before any can be taken.
  template <class Then>
  bool full(size_t most, Then then) {
    std::lock_guard lock(mutex_);
    if (jobs_.size() < most) return false;
    then();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_;
};

}  // namespace sluice::worker
