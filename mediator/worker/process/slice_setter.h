// SPDX-License-Identifier: Apache-2.0
// SliceSetter: sets this process's time slices on a thread of its own (channel_groups.h).
//
// The call that sets one waits for a lock of NVIDIA's kernel module while another process makes or
// ends a context, or has faulted: for up to seconds. On the engine's thread its program's launches
// waited with it (an H100: 0.7 s beside a program that makes random calls).
//
// Any thread. Of slices that are wanted while one is being set only the last is set.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace sluice::worker {

class SliceSetter {
 public:
  using Set = std::function<void(uint64_t ns)>;
  // `set` is called on the thread, which begins with the first slice.
  explicit SliceSetter(Set set) : set_(std::move(set)) {}
  // Waits for a call that has begun; what is wanted beyond it is dropped.
  ~SliceSetter();
  SliceSetter(const SliceSetter&) = delete;
  SliceSetter& operator=(const SliceSetter&) = delete;

  // Does not wait.
  void want(uint64_t ns);

 private:
  void run();

  const Set set_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<uint64_t> wanted_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace sluice::worker
