// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/admin/turns.h"

#include <time.h>

#include <utility>

#include "mediator/base/clock.h"

namespace sluice {
namespace {

// A thread that others keep from the processor has taken nothing of the loop.
uint64_t processor_ns() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

void AdminTurns::add(std::function<void()> turn) {
  waiting_.push_back(std::move(turn));
  if (!timer_.pending()) timer_.at_ns(next_ns_, [this] { serve(); });
}

void AdminTurns::serve() {
  const auto turn = std::move(waiting_.front());
  waiting_.pop_front();
  const uint64_t began_ns = processor_ns();
  turn();
  next_ns_ = monotonic_ns() + (processor_ns() - began_ns);
  // What the turn has added has set the timer, for too early.
  if (!waiting_.empty()) timer_.at_ns(next_ns_, [this] { serve(); });
}

}  // namespace sluice
