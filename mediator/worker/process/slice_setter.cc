// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/process/slice_setter.h"

#include <pthread.h>

#include <utility>

namespace sluice::worker {

SliceSetter::~SliceSetter() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SliceSetter::want(uint64_t ns) {
  {
    std::lock_guard lock(mutex_);
    wanted_ = ns;
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_one();
}

void SliceSetter::run() {
  ::pthread_setname_np(::pthread_self(), "sluice-slices");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return over_ || wanted_; });
    if (over_) return;
    const uint64_t ns = *std::exchange(wanted_, std::nullopt);
    lock.unlock();
    set_(ns);
    lock.lock();
  }
}

}  // namespace sluice::worker
