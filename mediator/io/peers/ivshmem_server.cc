// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/peers/ivshmem_server.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <functional>

#include "abi/channel.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"
#include "mediator/io/mapping.h"

namespace sluice::io {
namespace {

constexpr uint64_t kTooManyUnderWayMs = 100;
constexpr int64_t kProtocolVersion = 0;
constexpr int64_t kMemoryFollows = -1;
// Notifications, of a QEMU with our patches only.
constexpr int64_t kDeviceReset = -2;
constexpr int64_t kDeviceClosed = -3;
constexpr int64_t kHost = SLUICE_IVSHMEM_HOST_PEER;
constexpr int64_t kGuest = SLUICE_IVSHMEM_GUEST_PEER;
static_assert(kHost == 0 && kGuest == 1);

Result<Fd> make_refused_page(const std::string& reason) {
  auto memory = make_memfd("sluice-refused", 4096);
  if (!memory) return memory.error();
  sluice_channel_header header{};
  header.magic = SLUICE_CHANNEL_MAGIC;
  header.version = SLUICE_CHANNEL_VERSION;
  header.oldest = SLUICE_CHANNEL_OLDEST;
  header.state = SLUICE_CHANNEL_REFUSED;
  header.region_bytes = 4096;
  std::strncpy(header.reason, reason.c_str(), sizeof header.reason - 1);
  if (::pwrite(memory->get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    return Error::from_errno("write the refused page");
  if (auto sealed = seal(memory->get(), 0); !sealed) return sealed.error();
  return memory;
}

}  // namespace

// One connection: sends its messages as fast as the peer takes them, then waits for its end.
class IvshmemServer::Peer {
 public:
  Peer(boost::asio::io_context& io, IvshmemServer& server, Fd socket)
      : server_(server), socket_(std::move(socket)), retry_(io) {
    watch_ = FdWatch(
        io, socket_.get(), Pace{limits::kIdleWakesPerSecond, limits::kIdleWakeBurst},
        [this] { on_readable(); }, server.loop_time_);
  }
  ~Peer() {
    watch_.stop();
    server_.peers_->close(std::move(socket_));
  }

  int socket() const { return socket_.get(); }
  bool settled() const { return outgoing_.empty(); }
  // Gone, though no event has said so yet.
  bool is_over() const { return muted_ && (poisoned_ || has_hung_up(socket_.get())); }

  bool make_keepable() {
    if (!settled() || poisoned_) return false;
    if (kernel_refuses_descriptors(socket_.get())) return true;
    if (!muted_) {
      muted_ = true;
      watch_.stop();  // the end of what it says is an event for ever
      ::shutdown(socket_.get(), SHUT_RD);
    }
    for (size_t i = 0; i < limits::kForgottenPieces; ++i) {
      std::byte piece[256];
      const auto got = receive_plain(socket_.get(), piece, sizeof piece);
      if (!got && got.error().code == kPassedDescriptors) poisoned_ = true;
      if (!got || got->bytes == 0) return !poisoned_;
    }
    return false;
  }

  // Appends a message; `fd` (or -1) is duplicated.
  Result<void> queue(int64_t value, int fd) {
    Fd copy;
    if (fd >= 0) {
      copy.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
      if (!copy) return Error::from_errno("dup");
    }
    outgoing_.push_back({value, std::move(copy)});
    return {};
  }

  void flush() {
    while (!outgoing_.empty()) {
      Outgoing& o = outgoing_.front();
      // Little-endian like all that we run on. Eight bytes never go out in part: a Unix stream
      // socket takes a message of this size whole or not at all.
      const int fd = o.fd.get();
      auto sent = send_with_fds(socket_.get(), &o.value, sizeof o.value,
                                fd >= 0 ? std::span<const int>(&fd, 1) : std::span<const int>(),
                                MSG_DONTWAIT);
      if (!sent) {
        if (sent.error().code == EAGAIN) return watch_.when_writable([this] { flush(); });
        // Too many descriptors are under way, of all that this user has sent. The socket itself is
        // writable all the time.
        if (sent.error().code == ETOOMANYREFS)
          return retry_.after_ms(kTooManyUnderWayMs, [this] { flush(); });
        return;  // it is gone; its end of file is read next
      }
      outgoing_.pop_front();
    }
  }

  // It is read at its pace, as all that the peer says.
  void forget_notifications() {
    int unread = 0;
    if (::ioctl(socket_.get(), SIOCINQ, &unread) == 0)
      forgotten_bytes_ = static_cast<size_t>(unread);
  }

 private:
  enum class Incoming { kOther, kReset, kEnd };
  struct Outgoing {
    int64_t value;
    Fd fd;
  };

  void on_readable() {
    // A stock QEMU has nothing to say. What comes is read, so that the peer's end is seen; with
    // descriptors it is the end.
    // Who has gone holds its place no longer, however much noise it left behind.
    if (!has_hung_up(socket_.get())) {
      const Incoming incoming = receive();
      if (incoming != Incoming::kEnd) {
        if (incoming == Incoming::kReset) server_.on_notified(this);
        return;
      }
    }
    watch_.stop();
    server_.on_gone(this);  // destroys this
  }

  // Takes a bounded piece of what has come, if anything; several notifications in it are one. What
  // is forgotten, and numbers that mean nothing to us, are dropped.
  Incoming receive() {
    std::byte piece[256];
    auto got = receive_plain(socket_.get(), piece, sizeof piece);
    if (!got) return got.error().code == EAGAIN ? Incoming::kOther : Incoming::kEnd;
    if (got->bytes == 0) return Incoming::kEnd;
    Incoming result = Incoming::kOther;
    for (size_t i = 0; i < got->bytes; ++i) {
      const bool forgotten = forgotten_bytes_ > 0;
      forgotten_bytes_ -= forgotten;
      message_[message_bytes_++] = piece[i];
      if (message_bytes_ < message_.size()) continue;
      message_bytes_ = 0;
      int64_t value;
      std::memcpy(&value, message_.data(), sizeof value);
      if (!forgotten && (value == kDeviceReset || value == kDeviceClosed))
        result = Incoming::kReset;
    }
    return result;
  }

  IvshmemServer& server_;
  Fd socket_;
  FdWatch watch_;
  Timer retry_;
  std::deque<Outgoing> outgoing_;
  std::array<std::byte, sizeof(int64_t)> message_{};  // the one that has come in part
  size_t message_bytes_ = 0;
  size_t forgotten_bytes_ = 0;  // of what is read next
  bool muted_ = false;          // make_keepable()
  bool poisoned_ = false;       // descriptors of its are in the queue
};

Result<std::unique_ptr<IvshmemServer>> IvshmemServer::open(
    boost::asio::io_context& io, const std::string& path, ListenOptions options,
    std::shared_ptr<PeerThread> peers, std::shared_ptr<LoopBudget> loop_time, Owner& owner) {
  std::unique_ptr<IvshmemServer> s(new IvshmemServer(io, peers, loop_time, owner));
  options.type = SOCK_STREAM;
  auto listener = Listener::open(
      io, path, options, peers, std::bind_front(&IvshmemServer::on_connection, s.get()), loop_time);
  if (!listener) return listener.error();
  s->listener_ = std::move(*listener);
  return s;
}

IvshmemServer::IvshmemServer(boost::asio::io_context& io, std::shared_ptr<PeerThread> peers,
                             std::shared_ptr<LoopBudget> loop_time, Owner& owner)
    : io_(io), peers_(std::move(peers)), loop_time_(std::move(loop_time)), owner_(owner) {}
IvshmemServer::~IvshmemServer() = default;

void IvshmemServer::on_connection(Fd socket, const PeerCredentials& peer) {
  check_peer();
  auto groups = peer_groups(socket.get());
  if (!groups) return refuse(std::move(socket), peer, groups.error().message);
  groups->push_back(peer.gid);
  if (auto may = owner_.may_connect(peer, *groups); !may)
    return refuse(std::move(socket), peer, may.error().message);
  if (live_)
    return refuse(std::move(socket), peer, "another virtual machine is connected to this vGPU");
  auto memory = owner_.on_peer_connected(peer);
  if (!memory) return refuse(std::move(socket), peer, memory.error().message);

  live_ = std::make_unique<Peer>(io_, *this, std::move(socket));
  auto queue_all = [&]() -> Result<void> {
    if (auto r = live_->queue(kProtocolVersion, -1); !r) return r;
    if (auto r = live_->queue(kGuest, -1); !r) return r;
    if (auto r = live_->queue(kMemoryFollows, memory->region_fd); !r) return r;
    // The host is a peer like any other, "connected" before the guest.
    for (int fd : memory->host_bells)
      if (auto r = live_->queue(kHost, fd); !r) return r;
    for (int fd : memory->guest_bells)
      if (auto r = live_->queue(kGuest, fd); !r) return r;
    return {};
  };
  if (auto queued = queue_all(); !queued) {
    // Out of descriptors, in the middle: what is queued goes out, and QEMU finds fewer vectors.
    log::error("{}: handshake cut short: {}", path(), queued.error().message);
  }
  live_->flush();
}

void IvshmemServer::refuse(Fd socket, const PeerCredentials& peer, const std::string& reason) {
  log::warning("{}: refused process {} (uid {}): {}", path(), peer.pid, peer.uid, reason);
  if (refused_.size() >= limits::kMaxRefusedPeers)  // a flood, not a virtual machine
    return peers_->close(std::move(socket));
  auto page = make_refused_page(reason);
  if (!page) {
    log::error("{}: {}", path(), page.error().message);
    return peers_->close(std::move(socket));
  }
  auto refused = std::make_unique<Peer>(io_, *this, std::move(socket));
  for (auto [value, fd] :
       {std::pair{kProtocolVersion, -1}, {kGuest, -1}, {kMemoryFollows, page->get()}})
    if (auto r = refused->queue(value, fd); !r)
      return log::error("{}: {}", path(), r.error().message);
  refused->flush();
  refused_.push_back(std::move(refused));
}

bool IvshmemServer::has_live_peer() const { return live_ && !live_->is_over(); }

bool IvshmemServer::make_keepable() { return live_ && live_->make_keepable(); }

void IvshmemServer::check_peer() {
  if (live_ && live_->is_over()) on_gone(live_.get());
}

int IvshmemServer::settled_peer() const { return live_ && live_->settled() ? live_->socket() : -1; }

void IvshmemServer::adopt(Fd socket) {
  live_ = std::make_unique<Peer>(io_, *this, std::move(socket));
}

void IvshmemServer::forget_notifications() {
  if (live_) live_->forget_notifications();
}

void IvshmemServer::on_notified(Peer* peer) {
  if (live_.get() == peer) owner_.on_peer_reset();
}

void IvshmemServer::on_gone(Peer* peer) {
  if (live_.get() == peer) {
    live_.reset();
    owner_.on_peer_gone();
    return;
  }
  refused_.remove_if([&](const std::unique_ptr<Peer>& p) { return p.get() == peer; });
}

}  // namespace sluice::io
