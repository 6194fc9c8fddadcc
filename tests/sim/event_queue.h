// SPDX-License-Identifier: Apache-2.0
// EventQueue: what happens when, in virtual time. Events of one time come in the order in which
// they were put in. For the hosts of this folder; one thread. Times in ns.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace sluice::sim {

class EventQueue {
 public:
  using What = std::function<void()>;

  void at(uint64_t time_ns, What what) { events_.push({time_ns, order_++, std::move(what)}); }

  // All that is due by `until_ns`, also what is put in meanwhile: `run` gets its time, and it.
  template <class Run>
  void run_until(uint64_t until_ns, Run&& run) {
    while (!events_.empty() && events_.top().time_ns <= until_ns) {
      const Event event = events_.top();
      events_.pop();
      run(event.time_ns, event.what);
    }
  }

 private:
  struct Event {
    uint64_t time_ns, order;
    What what;
    bool operator<(const Event& o) const {
      return time_ns != o.time_ns ? time_ns > o.time_ns : order > o.order;
    }
  };
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
};

}  // namespace sluice::sim
