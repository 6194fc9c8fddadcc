// SPDX-License-Identifier: Apache-2.0
// WorkerPages: what sluiced shares with the worker of one session: the stub pages, and all by which
// worker, program and sluiced wake each other.
//
//   bell   the program rings the worker     gate   sluiced wakes the worker
//   wake   the worker rings the program     ring   the worker wakes sluiced
//
// Owned by a GuestSession; one thread.
#pragma once

#include <optional>
#include <vector>

#include "mediator/base/peer_socket.h"
#include "mediator/base/result.h"
#include "mediator/daemon/guests/channel.h"
#include "mediator/io/peers/peer_thread.h"
#include "mediator/io/stub_pages.h"

namespace sluice {

class WorkerPages {
 public:
  // Of the slot of the channel, which outlives this.
  Result<void> make(const Channel& channel, uint32_t slot);
  bool made() const { return pages_.has_value(); }
  // Descriptors for the worker, by worker_protocol::StartFd.
  std::vector<int> for_worker(const Channel& channel) const;
  // The worker has its ends.
  void worker_has_them();
  // Where closing may take long.
  void close(io::PeerThread& peers);

  io::StubPages& stubs() { return *pages_; }
  const io::StubPages& stubs() const { return *pages_; }
  int gate_fd() const { return gate_.ours.get(); }
  int ring_fd() const { return ring_.ours.get(); }
  int bell_fd() const { return bell_; }
  int wake_fd() const { return wake_; }

 private:
  std::optional<io::StubPages> pages_;
  WakePair gate_, ring_;
  int bell_ = -1, wake_ = -1;  // the channel's
};

}  // namespace sluice
