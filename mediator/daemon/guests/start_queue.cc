// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/start_queue.h"

#include <algorithm>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/daemon/guests/back_off.h"

namespace sluice {

StartQueue::StartQueue(boost::asio::io_context& io, Owner& owner)
    : owner_(owner), credit_(limits::kSessionBurst), credit_at_ns_(monotonic_ns()), timer_(io) {}

void StartQueue::serve() {
  const uint64_t now = monotonic_ns();
  if (const uint64_t left_ns = waiting_.empty() ? 0 : owner_.back_off_ns(); left_ns != 0) {
    if (!std::exchange(waits_for_back_off_, true)) owner_.on_start_waits(waiting_.front());
    // Others may go meanwhile.
    timer_.after_ms(std::min<uint64_t>(left_ns / 1'000'000 + 1, BackOff::kPollMs),
                    [this] { serve(); });
    return;
  }
  waits_for_back_off_ = false;
  credit_ = std::min(limits::kSessionBurst, credit_ + limits::kSessionsPerSecond * 1e-9 *
                                                          static_cast<double>(now - credit_at_ns_));
  credit_at_ns_ = now;
  while (!waiting_.empty() && credit_ >= 1) {
    Request request = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    credit_ -= 1;
    if (owner_.start_session(request)) continue;
    waiting_.insert(waiting_.begin(), std::move(request));
    credit_ += 1;
    return;
  }
  if (!waiting_.empty() && !timer_.pending())
    timer_.after_ms(static_cast<uint64_t>(1000 / limits::kSessionsPerSecond) + 1,
                    [this] { serve(); });
}

std::vector<StartQueue::Request> StartQueue::close() {
  timer_.cancel();
  return std::exchange(waiting_, {});
}

}  // namespace sluice
