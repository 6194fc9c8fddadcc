// SPDX-License-Identifier: Apache-2.0
// StartQueue: programs that wait for a session of one vGPU, in order: because it starts sessions
// faster than the limits allow, because of its back-off, or because memory is being scrubbed.
//
//   may start when                                      tried again
//   the back-off is over, or nobody else is there       after BackOff::kPollMs at the latest
//   a start is left: kSessionsPerSecond, kSessionBurst  when there is one
//   the owner can start it                              serve(), when memory has become free
//
// Owned by a VgpuServer; sluiced's one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mediator/daemon/guests/guest_session.h"

namespace sluice {

class StartQueue {
 public:
  struct Request {
    GuestSession::Origin origin;
    std::string program;
    uint32_t guest_pid = 0;
  };
  class Owner {
   public:
    // For how long the back-off lasts; 0: not at all.
    virtual uint64_t back_off_ns() const = 0;
    virtual void on_start_waits(const Request& first) = 0;  // for the back-off; once each time
    // False: not now, but once memory that is being scrubbed is free.
    virtual bool start_session(const Request& request) = 0;

   protected:
    ~Owner() = default;
  };

  StartQueue(boost::asio::io_context& io, Owner& owner);

  void add(Request request) { waiting_.push_back(std::move(request)); }
  // Starts those that may start now.
  void serve();
  template <class Which>
  void remove_if(Which which) {
    std::erase_if(waiting_, which);
  }
  // Takes out all, and serves no more by itself.
  std::vector<Request> close();
  size_t size() const { return waiting_.size(); }

 private:
  Owner& owner_;
  std::vector<Request> waiting_;
  double credit_;  // starts that are left
  uint64_t credit_at_ns_;
  io::Timer timer_;
  bool waits_for_back_off_ = false;
};

}  // namespace sluice
