// SPDX-License-Identifier: Apache-2.0
// DriverQueue: how far the driver has come in one of its streams.
//
// Items are submitted in order and end in order. A marker covers all items before it; when the
// driver has reached it, they have ended. Owned by a Stream of the engine; no lock, no driver.
#pragma once

#include <cstdint>
#include <deque>

#include "mediator/base/check.h"

namespace sluice::worker {

class DriverQueue {
 public:
  // Place of a new item, from 0.
  uint64_t add() { return submitted_++; }
  uint64_t length() const { return submitted_ - ended_; }
  bool ended(uint64_t item) const { return item < ended_; }
  bool is_last(uint64_t item) const { return submitted_ == item + 1; }

  uint64_t unmarked() const { return submitted_ - marked_; }
  void mark(uint64_t marker) {
    marked_ = submitted_;
    markers_.push_back({marker, submitted_});
  }
  bool has_marker() const { return !markers_.empty(); }
  uint64_t oldest_marker() const { return markers_.front().id; }
  // The oldest marker was reached. Returns how many items have ended with it.
  uint64_t reach() {
    SLUICE_CHECK(has_marker());
    const uint64_t newly = markers_.front().items - ended_;
    ended_ = markers_.front().items;
    markers_.pop_front();
    return newly;
  }
  // After a failure: nobody polls for them any more.
  void forget_markers() { markers_.clear(); }

 private:
  struct Marker {
    uint64_t id;
    uint64_t items;
  };
  uint64_t submitted_ = 0, ended_ = 0, marked_ = 0;
  std::deque<Marker> markers_;
};

}  // namespace sluice::worker
