// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/admin/turns.h"

#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/processor_time.h"

namespace sluice {

void AdminTurns::add(std::function<void()> turn) {
  waiting_.push_back(std::move(turn));
  if (!timer_.pending()) timer_.at_ns(next_ns_, [this] { serve(); });
}

void AdminTurns::serve() {
  const auto turn = std::move(waiting_.front());
  waiting_.pop_front();
  const uint64_t began_ns = thread_cpu_ns();
  turn();
  next_ns_ = monotonic_ns() + (thread_cpu_ns() - began_ns);
  // What the turn has added has set the timer, for too early.
  if (!waiting_.empty()) timer_.at_ns(next_ns_, [this] { serve(); });
}

}  // namespace sluice
