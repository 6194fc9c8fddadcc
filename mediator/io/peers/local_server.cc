// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/peers/local_server.h"

#include <sys/socket.h>

#include <cstring>
#include <functional>

#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"
#include "mediator/core/names.h"

namespace sluice::io {

namespace {
constexpr Pace kIdlePace{limits::kIdleWakesPerSecond, limits::kIdleWakeBurst};
}  // namespace

struct LocalServer::Connection {
  Connection(boost::asio::io_context& io, PeerThread& t, Fd s, const PeerCredentials& p)
      : thread(t), socket(std::move(s)), peer(p), deadline(io) {}
  ~Connection() {
    watch.stop();
    thread.close(std::move(socket));
  }
  PeerThread& thread;
  Fd socket;
  PeerCredentials peer;
  FdWatch watch;
  Timer deadline;
  bool joined = false;
};

sluice_joined refused_join(int status, const std::string& reason) {
  sluice_joined joined{};
  joined.magic = SLUICE_JOIN_MAGIC;
  joined.status = static_cast<uint32_t>(status ? status : EIO);
  std::strncpy(joined.reason, reason.c_str(), sizeof joined.reason - 1);
  return joined;
}

Result<std::unique_ptr<LocalServer>> LocalServer::open(
    boost::asio::io_context& io, const std::string& path, ListenOptions options,
    uint32_t join_deadline_ms, std::shared_ptr<PeerThread> peers,
    std::shared_ptr<LoopBudget> loop_time, Owner& owner) {
  std::unique_ptr<LocalServer> s(new LocalServer(io, join_deadline_ms, peers, loop_time, owner));
  options.type = SOCK_SEQPACKET;
  auto listener = Listener::open(io, path, options, peers,
                                 std::bind_front(&LocalServer::on_connection, s.get()), loop_time);
  if (!listener) return listener.error();
  s->listener_ = std::move(*listener);
  return s;
}

LocalServer::LocalServer(boost::asio::io_context& io, uint32_t join_deadline_ms,
                         std::shared_ptr<PeerThread> peers, std::shared_ptr<LoopBudget> loop_time,
                         Owner& owner)
    : io_(io),
      join_deadline_ms_(join_deadline_ms),
      peers_(std::move(peers)),
      loop_time_(std::move(loop_time)),
      owner_(owner) {}
LocalServer::~LocalServer() = default;

void LocalServer::on_connection(Fd socket, const PeerCredentials& peer) {
  if (pending_ >= limits::kMaxPendingJoins) {
    log::warning("{}: process {} turned away: too many connections have not joined yet", path(),
                 peer.pid);
    return peers_->close(std::move(socket));
  }
  const ConnectionId id = next_id_++;
  auto c = std::make_unique<Connection>(io_, *peers_, std::move(socket), peer);
  c->watch = FdWatch(
      io_, c->socket.get(), kIdlePace, [this, id] { on_readable(id); }, loop_time_);
  c->deadline.after_ms(join_deadline_ms_, [this, id] { on_join_deadline(id); });
  connections_.emplace(id, std::move(c));
  ++pending_;
}

void LocalServer::on_readable(ConnectionId id) {
  Connection& c = *connections_.at(id);
  union {
    sluice_join join;
    char bytes[sizeof(sluice_join) + 1];  // a longer message shows
  } guest;
  // Who has gone holds its place no longer, however much it left unread.
  Result<PlainMessage> received = PlainMessage{};
  if (!has_hung_up(c.socket.get())) received = receive_plain(c.socket.get(), &guest, sizeof guest);
  if (!received && received.error().code == EAGAIN) return;
  if (!received || received->bytes == 0) {
    const bool joined = c.joined;
    close(id);
    if (joined) owner_.on_left(id);
    return;
  }
  if (c.joined) return;  // nothing is expected after the join; what comes is dropped
  if (received->bytes != sizeof guest.join || received->truncated ||
      guest.join.magic != SLUICE_JOIN_MAGIC)
    return refuse(id, EPROTO, "malformed join message");
  if (sluice_join_common(guest.join.version) == 0)
    return refuse(id, EPROTONOSUPPORT,
                  "the program's channel version " + std::to_string(guest.join.version & 0xffff) +
                      " is not ours (" + std::to_string(SLUICE_CHANNEL_VERSION) + ")");
  c.joined = true;
  c.deadline.cancel();
  --pending_;
  owner_.on_join(id, clean_text(guest.join.program, sizeof guest.join.program), c.peer);
}

// Where the loop had no processor, the message may lie there unread.
void LocalServer::on_join_deadline(ConnectionId id) {
  on_readable(id);
  const auto it = connections_.find(id);
  if (it != connections_.end() && !it->second->joined)
    refuse(id, ETIMEDOUT, "no join message came");
}

void LocalServer::refuse(ConnectionId id, int status, const std::string& reason) {
  log::warning("{}: process {}: {}", path(), connections_.at(id)->peer.pid, reason);
  reply(id, refused_join(status, reason), {});
}

void LocalServer::reply(ConnectionId id, const sluice_joined& joined, std::span<const int> fds) {
  auto it = connections_.find(id);
  if (it == connections_.end()) return;
  auto sent = send_with_fds(it->second->socket.get(), &joined, sizeof joined, fds, MSG_DONTWAIT);
  if (!sent)  // it is gone (its end of file is read next) or reads nothing: one message always fits
    log::debug("{}: answer to process {}: {}", path(), it->second->peer.pid, sent.error().message);
  if (joined.status != 0) close(id);
}

void LocalServer::hang_up(ConnectionId id) {
  auto it = connections_.find(id);
  if (it != connections_.end()) ::shutdown(it->second->socket.get(), SHUT_WR);
}

void LocalServer::close(ConnectionId id) {
  auto it = connections_.find(id);
  if (it == connections_.end()) return;
  if (!it->second->joined) --pending_;
  connections_.erase(it);
}

}  // namespace sluice::io
