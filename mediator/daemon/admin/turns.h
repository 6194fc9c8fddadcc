// SPDX-License-Identifier: Apache-2.0
// AdminTurns: what admin clients have asked for, one request after another, whoever asked. After
// each the loop does other work, of vGPUs first of all, for as long as the request took of the
// processor: many clients at once wait for each other, and nobody else for more than one of them.
//
// Users have their turns in a round. Each has a share of the loop's time for all its connections
// (limits::kAdminLoopShare); one that has used it up waits, and keeps nobody else.
//
// Owned by the AdminServer, used from sluiced's one thread. A client has at most one turn waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "mediator/io/fd_watch.h"
#include "mediator/io/loop_budget.h"

namespace sluice {

// All connections of one user id.
struct AdminUser {
  std::shared_ptr<io::LoopBudget> loop_time;  // drawn on by what it sends and by its turns
  size_t connections = 0;
  uint64_t next_ns = 0;  // no turn before
  std::deque<std::function<void()>> waiting;
};

class AdminTurns {
 public:
  explicit AdminTurns(boost::asio::io_context& io) : timer_(io) {}
  // Never from within this call.
  void add(const std::shared_ptr<AdminUser>& user, std::function<void()> turn);

 private:
  void serve();
  void arm();

  std::deque<std::shared_ptr<AdminUser>> waiting_;  // that have turns waiting, the next one first
  uint64_t next_ns_ = 0;                            // not before
  io::Timer timer_;
};

}  // namespace sluice
