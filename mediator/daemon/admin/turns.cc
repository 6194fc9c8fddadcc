// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/admin/turns.h"

#include <algorithm>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/process/processor_time.h"

namespace sluice {

void AdminTurns::add(const std::shared_ptr<AdminUser>& user, std::function<void()> turn) {
  user->waiting.push_back(std::move(turn));
  if (user->waiting.size() == 1) waiting_.push_back(user);
  arm();
}

void AdminTurns::arm() {
  if (waiting_.empty()) return;
  const auto first =
      std::min_element(waiting_.begin(), waiting_.end(),
                       [](const auto& a, const auto& b) { return a->next_ns < b->next_ns; });
  timer_.at_ns(std::max((*first)->next_ns, next_ns_), [this] { serve(); });
}

void AdminTurns::serve() {
  const uint64_t now_ns = monotonic_ns();
  const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const auto& u) { return u->next_ns <= now_ns; });
  if (it == waiting_.end()) return arm();
  const std::shared_ptr<AdminUser> user = *it;
  waiting_.erase(it);
  const auto turn = std::move(user->waiting.front());
  user->waiting.pop_front();
  if (!user->waiting.empty()) waiting_.push_back(user);
  const uint64_t began_ns = thread_cpu_ns();
  turn();
  const uint64_t cost_ns = thread_cpu_ns() - began_ns, done_ns = monotonic_ns();
  user->next_ns = done_ns + user->loop_time->take(done_ns, cost_ns);
  next_ns_ = done_ns + cost_ns;
  arm();  // what the turn has added has set the timer, for too early
}

}  // namespace sluice
