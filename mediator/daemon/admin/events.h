// SPDX-License-Identifier: Apache-2.0
// EventLog: the last log lines of sluiced, for `sluicectl events`. Owned by the Daemon, fed by the
// log's observer in the one thread. Bounded: when it is full, the oldest falls out of those that
// begin alike (base/log_beginning.h) and are the most, so that a vGPU of which there is much to say
// does not push out what was said of others. Numbers do not come back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/log_beginning.h"

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
    ++beginnings_[std::string(log::beginning(text))];
    if (events_.size() > limits::kMaxEvents) drop_one();
  }
  const std::deque<Event>& events() const { return events_; }  // by number
  uint64_t last() const { return last_; }

 private:
  void drop_one() {
    const auto most =
        std::max_element(beginnings_.begin(), beginnings_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    events_.erase(std::find_if(events_.begin(), events_.end(), [&](const Event& e) {
      return log::beginning(e.text) == most->first;
    }));
    if (--most->second == 0) beginnings_.erase(most);
  }

  std::deque<Event> events_;
  std::map<std::string, size_t, std::less<>> beginnings_;  // how many of each
  uint64_t last_ = 0;
};

}  // namespace sluice
