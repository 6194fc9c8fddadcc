// SPDX-License-Identifier: Apache-2.0
// WorkerOutput: what a worker writes to its standard error, as lines of sluiced's log. Owned by a
// WorkerProcess, used from sluiced's one thread.
//
// The worker has one end of a pair of datagram sockets (of a pipe it could hold the lock by a write
// that faults; and a worker that outlives sluiced gets an error for its lines, not a signal).
// sluiced's own standard error is a file or pipe that a worker taken over could fill, cut short or
// forge lines in. Lines are cut at a length and limited in number; what is beyond is counted and
// dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mediator/base/fd.h"
#include "mediator/base/limits.h"
#include "mediator/base/result.h"
#include "mediator/io/fd_watch.h"
#include "mediator/io/peers/peer_thread.h"

namespace sluice::io {

class WorkerOutput {
 public:
  // Begins; returns the worker's end.
  Result<Fd> open(boost::asio::io_context& io, std::shared_ptr<PeerThread> peers);
  ~WorkerOutput();
  void set_name(std::string name) { name_ = std::move(name); }
  // What still lies in the socket, of a worker that is gone. Bounded.
  void drain();

 private:
  void watch(boost::asio::io_context& io);
  bool read_some();
  void take(const char* text, size_t bytes);
  void line();

  std::string name_ = "worker", line_;
  std::shared_ptr<PeerThread> peers_;  // closes it
  Fd socket_;
  FdWatch watch_;
  std::unique_ptr<Timer> pause_;
  double credit_ = limits::kWorkerLineBurst;
  uint64_t credit_at_ns_ = 0, dropped_ = 0;
  bool cut_ = false;
};

}  // namespace sluice::io
