// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/peers/listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"

namespace sluice::io {
namespace {
// How long to wait after accept failed for want of descriptors or memory.
constexpr uint64_t kRetryMs = 100;
constexpr Pace kConnectionPace{limits::kConnectionsPerSecond, limits::kConnectionBurst};
spawner_protocol::UidRange refused{1, 0};
std::function<bool(pid_t)> refused_process;
}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(boost::asio::io_context& io,
                                                 const std::string& path,
                                                 const ListenOptions& options,
                                                 std::shared_ptr<PeerThread> peers,
                                                 OnConnection on_connection,
                                                 std::shared_ptr<LoopBudget> loop_time) {
  auto made = listen_at(path, options);
  if (!made) return made.error();
  std::unique_ptr<Listener> l(
      new Listener(io, path, std::move(peers), std::move(on_connection), std::move(loop_time)));
  l->socket_ = std::move(made->socket);
  l->file_ = made->file;
  refuse_descriptors(l->socket_.get());
  l->watch();
  return l;
}

void Listener::refuse_uids(const spawner_protocol::UidRange& range) { refused = range; }

void Listener::refuse_processes(std::function<bool(pid_t)> is_worker) {
  refused_process = std::move(is_worker);
}

Listener::~Listener() {
  if (socket_) remove_socket_file(path_, file_);
  watch_.stop();
  peers_->close(std::move(socket_));
}

void Listener::watch() {
  watch_ = loop_time_ ? FdWatch(
                            io_, socket_.get(), kConnectionPace, [this] { accept(); }, loop_time_)
                      : FdWatch(io_, socket_.get(), [this] { accept(); });
}

void Listener::pause() {
  watch_.stop();
  retry_.after_ms(kRetryMs, [this] { watch(); });
}

void Listener::accept() {
  if (peers_->saturated()) return pause();
  // One per turn: a flood of connections does not keep the loop from the gates.
  Fd connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    log::warning("{}", Error::from_errno("accept on " + path_).message);
    return pause();
  }
  auto peer = peer_credentials(connection.get());
  if (!peer) {
    log::warning("{}: {}", path_, peer.error().message);
    return peers_->close(std::move(connection));
  }
  if (refused.contains(peer->uid) || refused.contains(peer->gid) ||
      (refused_process && refused_process(peer->pid))) {
    log::warning("{}: a worker (process {}, user id {}) turned away", path_, peer->pid, peer->uid);
    return peers_->close(std::move(connection));
  }
  refuse_descriptors(connection.get());
  on_connection_(std::move(connection), *peer);
}

}  // namespace sluice::io
