// SPDX-License-Identifier: Apache-2.0
// IvshmemServer: the server end of QEMU's ivshmem protocol (QEMU docs/specs/ivshmem-spec.txt) for
// one vGPU. Owned by the vGPU, used from sluiced's one thread. It gives the live peer the region
// and the event descriptors and tells its owner when that peer is gone. It does not look into the
// region.
//
// A QEMU with our patches (qemu-patches/README.md) may send notifications: its guest was reset, or
// let go of the device. They are a peer's words like any other, and end only its own sessions.
//
// Two facts about QEMU shape it: a server that closes in the handshake makes QEMU hang for ever,
// and one that answers late blocks QEMU's monitor. So every connection is answered at once and to
// the end; a peer that cannot be served gets a one-page memory marked SLUICE_CHANNEL_REFUSED with
// the reason, and stays connected until it goes by itself.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/base/unix_socket.h"
#include "mediator/io/fd_watch.h"
#include "mediator/io/loop_budget.h"
#include "mediator/io/peers/listener.h"
#include "mediator/io/peers/peer_thread.h"

namespace sluice::io {

// What a live peer gets. Borrowed for the length of the call only: the descriptors are duplicated.
struct IvshmemMemory {
  int region_fd = -1;
  std::vector<int> host_bells;   // vector i: the guest rings the host
  std::vector<int> guest_bells;  // vector i: the host rings the guest
};

class IvshmemServer {
 public:
  class Owner {
   public:
    // Whether this process, member of `groups`, may play the virtual machine. An error refuses it,
    // like one of on_peer_connected.
    virtual Result<void> may_connect(const PeerCredentials& peer,
                                     const std::vector<gid_t>& groups) = 0;
    // A peer for the live place. An error refuses it; the message becomes the reason.
    virtual Result<IvshmemMemory> on_peer_connected(const PeerCredentials& peer) = 0;
    // The live peer says that its guest has been reset or has let go of the device: of the programs
    // that it had there is none left.
    virtual void on_peer_reset() = 0;
    // The live peer's connection has ended (or it broke the protocol).
    virtual void on_peer_gone() = 0;

   protected:
    ~Owner() = default;
  };

  // All its descriptors draw on `loop_time`, the vGPU's.
  static Result<std::unique_ptr<IvshmemServer>> open(boost::asio::io_context& io,
                                                     const std::string& path, ListenOptions options,
                                                     std::shared_ptr<PeerThread> peers,
                                                     std::shared_ptr<LoopBudget> loop_time,
                                                     Owner& owner);
  ~IvshmemServer();

  bool has_live_peer() const;
  // The live peer's connection, once the handshake is over; -1: there is none. It stays ours.
  int settled_peer() const;
  // Before another process gets the connection as well, and may be the last to close it. Where the
  // kernel lets a peer pass descriptors, whose close may linger, the peer may say nothing more from
  // here on, and what it has said is forgotten. False: not now.
  bool make_keepable();
  // Once a second. A peer that may say nothing is seen to be gone here.
  void check_peer();
  // A connection whose handshake another process of ours has ended is the live peer. The owner is
  // not asked.
  void adopt(Fd socket);
  // What the live peer has sent so far, and is not read yet, ends nothing. For an owner that has
  // learnt of a new life of the guest by other means: a notification of its beginning that still
  // waits in the socket must not end what that life does later.
  void forget_notifications();
  const std::string& path() const { return listener_->path(); }
  const FileId& file() const { return listener_->file(); }

 private:
  class Peer;
  IvshmemServer(boost::asio::io_context& io, std::shared_ptr<PeerThread> peers,
                std::shared_ptr<LoopBudget> loop_time, Owner& owner);
  void on_connection(Fd socket, const PeerCredentials& peer);
  void refuse(Fd socket, const PeerCredentials& peer, const std::string& reason);
  void on_notified(Peer* peer);
  void on_gone(Peer* peer);

  boost::asio::io_context& io_;
  std::shared_ptr<PeerThread> peers_;
  std::shared_ptr<LoopBudget> loop_time_;
  Owner& owner_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Peer> live_;
  std::list<std::unique_ptr<Peer>> refused_;
};

}  // namespace sluice::io
