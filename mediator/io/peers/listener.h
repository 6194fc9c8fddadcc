// SPDX-License-Identifier: Apache-2.0
// Listener: a listening Unix socket whose connections are handed over as non-blocking descriptors
// with their peer's credentials. Owned by a server, used from the io_context's thread. Removes its
// socket file at the end, if it is still its own. When descriptors run out it pauses for a moment
// instead of spinning.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "mediator/base/fd.h"
#include "mediator/base/listen_socket.h"
#include "mediator/base/result.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/spawner_protocol.h"
#include "mediator/io/fd_watch.h"
#include "mediator/io/loop_budget.h"
#include "mediator/io/peers/peer_thread.h"

namespace sluice::io {

class Listener {
 public:
  using OnConnection = std::function<void(Fd, PeerCredentials)>;

  // `peers` closes what unaccepted connections hold; no connection is accepted while it is
  // saturated. Each draws on `loop_time`; null: strangers have no way to this socket, and it is
  // served as often as they connect.
  static Result<std::unique_ptr<Listener>> open(boost::asio::io_context& io,
                                                const std::string& path,
                                                const ListenOptions& options,
                                                std::shared_ptr<PeerThread> peers,
                                                OnConnection on_connection,
                                                std::shared_ptr<LoopBudget> loop_time = nullptr);
  ~Listener();
  // No listener of this process serves a peer with a user or group id of this range, whatever the
  // socket's mode: they are workers. To be called before any is opened.
  static void refuse_uids(const spawner_protocol::UidRange& range);
  // The same for processes: where workers have no user id of their own.
  static void refuse_processes(std::function<bool(pid_t)> is_worker);
  const std::string& path() const { return path_; }
  const FileId& file() const { return file_; }

 private:
  Listener(boost::asio::io_context& io, std::string path, std::shared_ptr<PeerThread> peers,
           OnConnection on_connection, std::shared_ptr<LoopBudget> loop_time)
      : io_(io),
        path_(std::move(path)),
        peers_(std::move(peers)),
        on_connection_(std::move(on_connection)),
        loop_time_(std::move(loop_time)),
        retry_(io) {}
  void accept();
  void watch();
  void pause();

  boost::asio::io_context& io_;
  std::string path_;
  std::shared_ptr<PeerThread> peers_;
  OnConnection on_connection_;
  std::shared_ptr<LoopBudget> loop_time_;
  Fd socket_;
  FileId file_;
  FdWatch watch_;
  Timer retry_;
};

}  // namespace sluice::io
