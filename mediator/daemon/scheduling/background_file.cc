// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/background_file.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace sluice {
namespace {

Result<void> write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error::from_errno("write");
    text.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace

struct BackgroundFile::Shared {
  explicit Shared(Fd f) : file(std::move(f)) {}

  void run() {
    ::pthread_setname_np(::pthread_self(), "trace");
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return !waiting.empty() || closing; });
      if (waiting.empty() || failed) return;
      const std::string text = std::exchange(waiting, {});
      writing = true;
      lock.unlock();
      const auto written = write_all(file.get(), text);
      lock.lock();
      writing = false;
      if (!written) failed = written.error();
      changed.notify_all();
      if (failed) return;
    }
  }

  const Fd file;
  std::mutex mutex;
  std::condition_variable changed;
  std::string waiting;
  bool started = false, writing = false, closing = false;
  std::optional<Error> failed;
};

BackgroundFile::BackgroundFile(Fd file) : shared_(std::make_shared<Shared>(std::move(file))) {}

BackgroundFile::~BackgroundFile() {
  std::unique_lock lock(shared_->mutex);
  shared_->closing = true;
  shared_->changed.notify_all();
  if (!shared_->started) return;
  shared_->changed.wait_for(lock, std::chrono::milliseconds(kFinishMs), [&] {
    return shared_->failed || (shared_->waiting.empty() && !shared_->writing);
  });
}

Result<void> BackgroundFile::append(std::string_view text) {
  std::lock_guard lock(shared_->mutex);
  if (shared_->failed) return *shared_->failed;
  if (shared_->waiting.size() + text.size() > kMostWaitingBytes)
    return Error{EAGAIN, std::to_string(shared_->waiting.size() >> 20) +
                             " MiB wait for the disk, which is too slow"};
  shared_->waiting += text;
  shared_->changed.notify_all();
  if (shared_->started) return {};
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([shared = shared_] { shared->run(); }).detach();
    shared_->started = true;
  } catch (const std::system_error&) {  // the next text tries again
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

}  // namespace sluice
