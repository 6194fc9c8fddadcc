// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/waiting.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::cli {
namespace {

// Answers come within milliseconds. Less would speak of each busy host; more leaves people before a
// silent terminal.
constexpr std::chrono::seconds kSaidAfterSeconds{3};

struct Scope {
  std::string what;
  bool said = false;
};

class Watcher {
 public:
  explicit Watcher(const char* program) : program_(program) {
    std::thread([this] { watch(); }).detach();
  }

  void begin(std::string what) {
    const std::lock_guard lock(mutex_);
    scopes_.push_back({std::move(what)});
    changed();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    scopes_.pop_back();
    changed();
  }

 private:
  void changed() {
    ++turn_;
    condition_.notify_one();
  }
  bool waits() const { return !scopes_.empty() && !scopes_.back().said; }

  [[noreturn]] void watch() {
    std::unique_lock lock(mutex_);
    for (;;) {
      condition_.wait(lock, [this] { return waits(); });
      const uint64_t turn = turn_;
      if (condition_.wait_for(lock, kSaidAfterSeconds, [&] { return turn_ != turn; })) continue;
      scopes_.back().said = true;
      std::fprintf(stderr, "%s: waiting for %s\n", program_, scopes_.back().what.c_str());
    }
  }

  const char* const program_;
  std::mutex mutex_;
  std::condition_variable condition_;
  std::vector<Scope> scopes_;
  uint64_t turn_ = 0;  // of the scopes' changes
};

// Never deleted: its thread outlives main().
Watcher* watcher = nullptr;

}  // namespace

void Waiting::say_as(const char* program) { watcher = new Watcher(program); }

Waiting::Waiting(std::string what) {
  if (watcher) watcher->begin(std::move(what));
}

Waiting::~Waiting() {
  if (watcher) watcher->end();
}

}  // namespace sluice::cli
