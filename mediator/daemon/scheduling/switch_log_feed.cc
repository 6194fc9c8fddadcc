// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/switch_log_feed.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "mediator/core/spawner_protocol.h"

namespace sluice {

void SwitchLogFeed::connect(Fd ring, Fd control, uint64_t now_ns) {
  auto reader = gpu::SwitchRingReader::open(ring.get());
  if (!reader) return refuse(reader.error().message);
  ring_ = std::move(*reader);
  control_ = std::move(control);
  state_ = State::kRests;
  since_ns_ = now_ns;
  ++number_;
}

void SwitchLogFeed::refuse(const std::string& why) {
  ring_.reset();
  control_.reset();
  state_ = State::kNone;
  why_ = why;
  ++number_;
}

void SwitchLogFeed::hurry(bool yes, uint64_t now_ns) {
  const State wanted = yes ? State::kHurries : State::kRests;
  if (state_ == State::kNone || state_ == wanted) return;
  state_ = wanted;
  since_ns_ = now_ns;
  const char byte = yes ? spawner_protocol::kSwitchLogGoOn : spawner_protocol::kSwitchLogRest;
  // A recorder that has gone is found by its silence.
  (void)::send(control_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool SwitchLogFeed::usable(uint64_t now_ns) const {
  if (state_ == State::kNone || ring_->failed() != 0) return false;
  const uint64_t last_ns = std::max(ring_->known_ns(), since_ns_);
  return now_ns - std::min(now_ns, last_ns) <
         (state_ == State::kHurries ? kHurryLateNs : kRestLateNs);
}

std::string SwitchLogFeed::why(uint64_t now_ns) const {
  if (state_ == State::kNone) return why_;
  if (const int error = ring_->failed(); error != 0)
    return std::string("NVIDIA's driver does not go on with it: ") + std::strerror(error);
  return usable(now_ns) ? "" : "its recorder (a child of sluice-spawner) is silent";
}

std::unique_ptr<gpu::SwitchRingReader> SwitchLogFeed::reader() const {
  if (!ring_) return nullptr;
  auto reader = ring_->again();
  return reader ? std::move(*reader) : nullptr;
}

}  // namespace sluice
