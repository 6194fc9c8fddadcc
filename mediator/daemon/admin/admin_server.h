// SPDX-License-Identifier: Apache-2.0
// AdminServer: the admin socket: JSON-RPC, one request or batch per line, on a Unix stream socket.
// Owned by the Daemon, used from sluiced's one thread. Only root and the daemon's own user and
// group are served. Every connection is bounded in what it may send, ask at once and leave unread;
// one that goes over a bound gets an error and is closed; no other notices. Of the loop's time new
// connections have a share, and so have those of each user (turns.h). Some connections are kept for
// root and the daemon's own user.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "mediator/base/result.h"
#include "mediator/base/unix_socket.h"
#include "mediator/daemon/admin/json_rpc.h"
#include "mediator/daemon/admin/turns.h"
#include "mediator/io/peers/listener.h"

namespace sluice {

// Whether a process with these credentials may administer: root, our own effective user, and
// members of our own effective group. `groups`: those that it has beside its first one.
bool may_administer(const PeerCredentials& peer, const std::vector<gid_t>& groups, uid_t our_uid,
                    gid_t our_gid);

class AdminServer {
 public:
  // `dispatcher` outlives the server.
  static Result<std::unique_ptr<AdminServer>> open(boost::asio::io_context& io,
                                                   const std::string& path, unsigned mode,
                                                   const RpcDispatcher& dispatcher);
  ~AdminServer();

 private:
  class Connection;
  AdminServer(boost::asio::io_context& io, const RpcDispatcher& dispatcher);
  void on_connection(Fd socket, const PeerCredentials& peer);
  bool is_full(const PeerCredentials& peer) const;
  std::shared_ptr<AdminUser> user(uid_t uid);
  void drop(uint64_t id);

  boost::asio::io_context& io_;
  const RpcDispatcher& dispatcher_;
  std::shared_ptr<io::PeerThread> peers_;  // closes what clients leave behind
  std::unique_ptr<io::Listener> listener_;
  io::LoopBudgets budgets_;
  std::map<uid_t, std::shared_ptr<AdminUser>> users_;
  AdminTurns turns_;
  std::map<uint64_t, std::shared_ptr<Connection>> connections_;
  // Of those, the ones that only read why they are refused, the oldest first. They take no place
  // that others need: the oldest goes when there are too many.
  std::deque<uint64_t> refused_;
  uint64_t next_id_ = 1;
};

}  // namespace sluice
