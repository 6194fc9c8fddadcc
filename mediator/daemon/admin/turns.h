// SPDX-License-Identifier: Apache-2.0
// AdminTurns: what admin clients have asked for, one request after another, whoever asked. After
// each the loop does other work, of vGPUs first of all, for as long as the request took of the
// processor: many clients at once wait for each other, and nobody else for more than one of them.
// Owned by the AdminServer, used from sluiced's one thread. A client has at most one turn waiting.
#pragma once

#include <deque>
#include <functional>

#include "mediator/io/fd_watch.h"

namespace sluice {

class AdminTurns {
 public:
  explicit AdminTurns(boost::asio::io_context& io) : timer_(io) {}
  // Never from within this call.
  void add(std::function<void()> turn);

 private:
  void serve();

  std::deque<std::function<void()>> waiting_;
  uint64_t next_ns_ = 0;  // not before
  io::Timer timer_;
};

}  // namespace sluice
