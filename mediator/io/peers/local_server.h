// SPDX-License-Identifier: Apache-2.0
// LocalServer: the local transport's door for one vGPU, a SOCK_SEQPACKET socket that speaks
// sluice_join and sluice_joined (abi/channel.h). Owned by the vGPU, used from sluiced's one thread.
// It checks the join, holds the connection, and reports its end; sessions are its owner's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "abi/channel.h"
#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/base/unix_socket.h"
#include "mediator/io/fd_watch.h"
#include "mediator/io/loop_budget.h"
#include "mediator/io/peers/listener.h"
#include "mediator/io/peers/peer_thread.h"

namespace sluice::io {

class LocalServer {
 public:
  using ConnectionId = uint64_t;  // never reused

  class Owner {
   public:
    // A program asks for a slot. Answer with reply(), now or later.
    virtual void on_join(ConnectionId connection, const std::string& program,
                         const PeerCredentials& peer) = 0;
    // A connection that had joined has ended. Nothing more can be sent to it.
    virtual void on_left(ConnectionId connection) = 0;

   protected:
    ~Owner() = default;
  };

  // All its descriptors draw on `loop_time`, the vGPU's.
  static Result<std::unique_ptr<LocalServer>> open(boost::asio::io_context& io,
                                                   const std::string& path, ListenOptions options,
                                                   uint32_t join_deadline_ms,
                                                   std::shared_ptr<PeerThread> peers,
                                                   std::shared_ptr<LoopBudget> loop_time,
                                                   Owner& owner);
  ~LocalServer();

  // Sends the answer; with joined.status != 0 the connection is closed behind it. No effect on a
  // connection that has gone meanwhile.
  void reply(ConnectionId connection, const sluice_joined& joined, std::span<const int> fds);
  // The program sees end of file; its own end is still waited for, and reported by on_left.
  void hang_up(ConnectionId connection);
  // Ends a connection: the program sees end of file. on_left is not called.
  void close(ConnectionId connection);
  const std::string& path() const { return listener_->path(); }

 private:
  struct Connection;
  LocalServer(boost::asio::io_context& io, uint32_t join_deadline_ms,
              std::shared_ptr<PeerThread> peers, std::shared_ptr<LoopBudget> loop_time,
              Owner& owner);
  void on_connection(Fd socket, const PeerCredentials& peer);
  void on_readable(ConnectionId id);
  void on_join_deadline(ConnectionId id);
  void refuse(ConnectionId id, int status, const std::string& reason);

  boost::asio::io_context& io_;
  uint32_t join_deadline_ms_;
  std::shared_ptr<PeerThread> peers_;
  std::shared_ptr<LoopBudget> loop_time_;
  Owner& owner_;
  std::unique_ptr<Listener> listener_;
  std::map<ConnectionId, std::unique_ptr<Connection>> connections_;
  ConnectionId next_id_ = 1;
  size_t pending_ = 0;  // connected, not yet joined
};

// An answer that says no.
sluice_joined refused_join(int status, const std::string& reason);

}  // namespace sluice::io
