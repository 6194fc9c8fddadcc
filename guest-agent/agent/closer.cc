// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/agent/closer.h"

#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace sluice::guest {

namespace {
// That hang at once. Each is one that a program of this VM holds up; more, and the rest waits open.
constexpr size_t kMostThreads = 16;
}  // namespace

struct Closer::State {
  std::mutex lock;
  std::deque<Fd> waiting;
  size_t threads = 0, closing = 0;

  void work() {
    for (std::unique_lock locked(lock);;) {
      if (waiting.empty()) {
        --threads;
        return;
      }
      Fd next = std::move(waiting.front());
      waiting.pop_front();
      ++closing;
      locked.unlock();
      next.reset();
      locked.lock();
      --closing;
    }
  }
};

Closer::Closer() : state_(std::make_shared<State>()) {}
Closer::~Closer() = default;

void Closer::close(Fd socket) {
  if (!socket) return;
  const std::lock_guard locked(state_->lock);
  state_->waiting.push_back(std::move(socket));
  // One that hangs in a close takes none.
  const size_t ready = state_->threads - state_->closing;
  if (ready >= state_->waiting.size() || state_->threads >= kMostThreads) return;
  try {
    std::thread([state = state_] { state->work(); }).detach();
    ++state_->threads;
  } catch (const std::system_error&) {
    // The next one tries again.
  }
}

size_t Closer::open() const {
  const std::lock_guard locked(state_->lock);
  return state_->waiting.size() + state_->closing;
}

}  // namespace sluice::guest
