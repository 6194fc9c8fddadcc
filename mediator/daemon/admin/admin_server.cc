// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/admin/admin_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"

namespace sluice {

bool may_administer(const PeerCredentials& peer, const std::vector<gid_t>& groups, uid_t our_uid,
                    gid_t our_gid) {
  return peer.uid == 0 || peer.uid == our_uid || peer.gid == our_gid ||
         std::find(groups.begin(), groups.end(), our_gid) != groups.end();
}

namespace {

constexpr io::Pace kClientPace{limits::kAdminWakesPerSecond, limits::kAdminWakeBurst};

io::LoopShares admin_shares() {
  io::LoopShares shares;
  shares.each = limits::kAdminLoopShare;
  shares.all = limits::kAllAdminLoopShare;
  shares.burst_ns = shares.all_burst_ns = limits::kAdminLoopBurstMs * 1'000'000;
  return shares;
}

}  // namespace

class AdminServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(AdminServer& server, uint64_t id, Fd socket, std::shared_ptr<AdminUser> user)
      : server_(server),
        peers_(server.peers_),
        id_(id),
        socket_(std::move(socket)),
        user_(std::move(user)) {
    ++user_->connections;
  }
  ~Connection() {
    --user_->connections;
    watch_.stop();
    peers_->close(std::move(socket_));
  }

  void start() {
    watch_ = io::FdWatch(
        server_.io_, socket_.get(), kClientPace, [this] { on_readable(); }, user_->loop_time);
  }

  // The last words on this connection; it is closed when they are out.
  void finish_with(std::string line) {
    closing_ = true;
    if (!watch_) start();
    send(std::move(line));
  }

  void send(std::string line) {
    if (gone_ || line.empty()) return;
    outgoing_ += line;
    outgoing_ += '\n';
    if (outgoing_.size() - sent_ > limits::kMaxAdminBacklogBytes) {
      log::warning("admin socket: a client reads nothing; connection closed");
      return drop();
    }
    flush();
  }

 private:
  void on_readable() {
    // One request at a time, and before more is read: of a client that sends many the rest waits in
    // its socket, which is not looked at until then.
    if (waits_ && !closing_) {
      if (!waiting_) watch_.stop();
      return;
    }
    char buffer[4096];
    auto got = receive_plain(socket_.get(), buffer, sizeof buffer);
    if (!got && got.error().code == EAGAIN) return;
    if (!got || got->bytes == 0) return drop();
    if (closing_) return;  // nothing it says matters any more
    incoming_.append(buffer, got->bytes);
    take_next();
  }

  // Has the next line handled in a turn of its own.
  void take_next() {
    while (!gone_ && !closing_ && !waits_) {
      const size_t end = incoming_.find('\n', scanned_);
      scanned_ = end == std::string::npos ? incoming_.size() : 0;
      if (std::min(end, incoming_.size()) > limits::kMaxAdminRequestBytes) return too_long();
      if (end == std::string::npos) break;
      std::string line = incoming_.substr(0, end);
      incoming_.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      in_a_turn([this, line = std::move(line)] { handle(line); });
    }
    if (!gone_ && !waits_ && !watch_) start();
  }

  void handle(const std::string& line) {
    if (++unanswered_ > limits::kMaxAdminUnanswered)
      return finish_with(
          rpc_error_line(kRpcRefused, "more than " + std::to_string(limits::kMaxAdminUnanswered) +
                                          " requests of this connection wait for their answers"));
    server_.dispatcher_.handle(
        line,
        [weak = weak_from_this()](std::string answer) {
          auto c = weak.lock();
          if (!c) return;
          --c->unanswered_;
          c->send(std::move(answer));
        },
        // A batch: what follows it waits until all of it has begun.
        [this](std::function<void()> step) { in_a_turn(std::move(step)); });
  }

  // `what` may end us, or ask for another turn.
  void in_a_turn(std::function<void()> what) {
    waits_ = true;
    server_.turns_.add(user_, [self = weak_from_this(), what = std::move(what)] {
      const auto alive = self.lock();
      if (!alive || alive->gone_) return;
      alive->waits_ = false;
      what();
      alive->take_next();
    });
  }

  void too_long() {
    finish_with(rpc_error_line(
        kRpcInvalidRequest,
        "a request has at most " + std::to_string(limits::kMaxAdminRequestBytes) + " bytes"));
  }

  void flush() {
    if (waiting_) return;
    while (sent_ < outgoing_.size()) {
      ssize_t n = ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {
        waiting_ = true;
        if (!watch_) start();
        watch_.when_writable([this] {
          waiting_ = false;
          flush();
        });
        return;
      }
      if (n < 0) return drop();
      sent_ += static_cast<size_t>(n);
    }
    outgoing_.clear();
    sent_ = 0;
    if (closing_) {
      // The peer may still be sending: closing now would reset the connection and lose our words.
      ::shutdown(socket_.get(), SHUT_WR);
    }
  }

  void drop() {
    if (gone_) return;
    gone_ = true;
    watch_.stop();
    server_.drop(id_);
  }

  AdminServer& server_;
  std::shared_ptr<io::PeerThread> peers_;
  uint64_t id_;
  Fd socket_;
  std::shared_ptr<AdminUser> user_;
  io::FdWatch watch_;
  std::string incoming_, outgoing_;
  size_t scanned_ = 0, sent_ = 0;
  size_t unanswered_ = 0;
  bool waits_ = false;  // for a turn
  bool waiting_ = false, closing_ = false, gone_ = false;
};

AdminServer::AdminServer(boost::asio::io_context& io, const RpcDispatcher& dispatcher)
    : io_(io),
      dispatcher_(dispatcher),
      peers_(std::make_shared<io::PeerThread>(io)),
      budgets_(admin_shares()),
      turns_(io) {}
AdminServer::~AdminServer() = default;

Result<std::unique_ptr<AdminServer>> AdminServer::open(boost::asio::io_context& io,
                                                       const std::string& path, unsigned mode,
                                                       const RpcDispatcher& dispatcher) {
  std::unique_ptr<AdminServer> s(new AdminServer(io, dispatcher));
  ListenOptions options;
  options.type = SOCK_STREAM;
  options.mode = mode;
  auto listener = io::Listener::open(
      io, path, options, s->peers_,
      [p = s.get()](Fd socket, const PeerCredentials& peer) {
        p->on_connection(std::move(socket), peer);
      },
      s->budgets_.make());
  if (!listener) return listener.error();
  s->listener_ = std::move(*listener);
  return s;
}

void AdminServer::on_connection(Fd socket, const PeerCredentials& peer) {
  const auto groups = peer_groups(socket.get());
  const bool permitted =
      may_administer(peer, groups ? *groups : std::vector<gid_t>(), ::geteuid(), ::getegid());
  const bool full = is_full(peer);
  const uint64_t id = next_id_++;
  auto c = std::make_shared<Connection>(*this, id, std::move(socket), user(peer.uid));
  connections_[id] = c;
  c->start();
  if (!permitted) {
    refused_.push_back(id);
    log::warning("admin socket: process {} of uid {} turned away", peer.pid, peer.uid);
    c->finish_with(rpc_error_line(
        kRpcNotPermitted, "only root and the daemon's own user and group may use this socket"));
  } else if (full) {
    refused_.push_back(id);
    c->finish_with(rpc_error_line(kRpcRefused, "too many admin connections"));
  }
  if (refused_.size() > limits::kMaxRefusedAdmin) drop(refused_.front());
}

bool AdminServer::is_full(const PeerCredentials& peer) const {
  const size_t kept =
      peer.uid == 0 || peer.uid == ::geteuid() ? 0 : limits::kAdminConnectionsForRoot;
  return connections_.size() - refused_.size() + kept >= limits::kMaxAdminConnections;
}

std::shared_ptr<AdminUser> AdminServer::user(uid_t uid) {
  if (users_.size() >= limits::kRememberedAdminUsers)
    std::erase_if(users_, [](const auto& u) { return u.second->connections == 0; });
  std::shared_ptr<AdminUser>& user = users_[uid];
  if (!user) {
    user = std::make_shared<AdminUser>();
    user->loop_time = budgets_.make();
  }
  return user;
}

void AdminServer::drop(uint64_t id) {
  connections_.erase(id);
  std::erase(refused_, id);
}

}  // namespace sluice
