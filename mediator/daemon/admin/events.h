// SPDX-License-Identifier: Apache-2.0
// EventLog: the last log lines of sluiced, for `sluicectl events`. Owned by the Daemon, fed by the
// log's observer in the one thread. Bounded; older lines fall out, their numbers do not come back.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "mediator/base/limits.h"
#include "mediator/base/log.h"

namespace sluice {

struct Event {
  uint64_t number;  // from 1
  uint64_t unix_ms;
  log::Level level;
  std::string text;
};

class EventLog {
 public:
  void add(uint64_t unix_ms, log::Level level, std::string_view text) {
    events_.push_back({++last_, unix_ms, level, std::string(text)});
    if (events_.size() > limits::kMaxEvents) events_.pop_front();
  }
  const std::deque<Event>& events() const { return events_; }
  uint64_t last() const { return last_; }

 private:
  std::deque<Event> events_;
  uint64_t last_ = 0;
};

}  // namespace sluice
