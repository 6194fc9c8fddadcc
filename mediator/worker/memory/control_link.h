// SPDX-License-Identifier: Apache-2.0
// ControlLink: what a session asks of sluiced over its control socket: leases of device memory and
// of host memory, and extents of the region.
//
//   ask_lease()   -> kLeaseRequest;   the reply calls `then` with whether it was granted
//   ask_extent()  -> kExtentRequest;  likewise, with the range
//   ask_shared()  -> kShareRequest, kOpenRequest; likewise, with the reply and its file
//   release_*()   -> kLeaseReturn, when more is unused than the session keeps
//
// A whole chunk is asked for first; if sluiced refuses, just what is lacking. Once the link is lost
// every request is refused: a quota never fails open. What the socket does not take now waits here:
// sluiced reads a flood slowly, and a request that was lost would never be answered.
//
// Owned by the WorkerSession, used under its lock, but for send(), lost() and receive(). The
// messages are sluiced's and trusted; their ranges are checked all the same. A reply that nobody
// waits for is ignored.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "abi/wire.h"
#include "mediator/base/fd.h"
#include "mediator/core/quota_lease.h"
#include "mediator/core/worker_protocol.h"

namespace sluice::worker {

class ControlLink {
 public:
  using LeaseThen = std::function<void(bool granted)>;
  using ExtentThen = std::function<void(std::optional<sluice_bulk>)>;
  // The reply, or null: none came. The file that came with it, or -1; the callee's from then on.
  using SharedThen =
      std::function<void(const worker_protocol::Message* reply, std::shared_ptr<Fd> file)>;
  using Ready = std::function<void()>;  // to be called without the session's lock

  // `on_full`: something waits that the socket has not taken, so flush() when it is writable. Any
  // thread.
  ControlLink(Fd socket, const worker_protocol::Start& start, std::function<void()> on_full);

  int socket() const { return socket_.get(); }
  bool lost() const { return lost_.load(); }
  void send(const worker_protocol::Message& message);  // any thread; does not wait
  bool full() const { return full_.load(); }
  void flush();
  // One message, if there is one. Not lost() and no message: nothing is there now.
  enum class Received { kMessage, kMalformed, kNothing, kLost };
  // A file that came with it goes to `file`, or is closed.
  Received receive(worker_protocol::Message* message, Fd* file = nullptr);

  QuotaLease& quota(worker_protocol::Resource resource) {
    switch (resource) {
      case worker_protocol::kHostMemory:
        return host_;
      case worker_protocol::kContextOpenings:
        return openings_;
      case worker_protocol::kModuleLoads:
        return loads_;
      case worker_protocol::kContextPlaces:
        return places_;
      default:
        return device_;
    }
  }
  QuotaLease& device() { return device_; }
  QuotaLease& host() { return host_; }
  void release_device(uint64_t charged, ChargeKind kind);
  void release_host(uint64_t charged);
  void release_places(uint64_t count);
  // Memory that other programs may have: it is freed here, and charged to others if they do.
  void end_share(const worker_protocol::ShareKey& shared, uint64_t charged);
  void end_import(const worker_protocol::ShareKey& shared);

  // Requests that wait for a reply. Their number is the guest's doing: the owner bounds it.
  size_t leases_waiting() const { return leases_.size(); }
  size_t extents_waiting() const { return extents_.size(); }
  size_t shared_waiting() const { return shared_.size(); }
  // Not once the link is lost().
  void ask_lease(worker_protocol::Resource resource, uint64_t lacking, LeaseThen then);
  void ask_extent(uint64_t bytes, ExtentThen then);
  void ask_shared(worker_protocol::Message question, SharedThen then);
  // The callback to run now; empty: none.
  Ready on_lease_reply(const worker_protocol::Message& reply);
  Ready on_extent_reply(const worker_protocol::Message& reply);
  Ready on_shared_reply(const worker_protocol::Message& reply, Fd file);
  // The link is lost: refusals for all that wait.
  std::vector<Ready> refuse_all();

 private:
  struct Lease {
    worker_protocol::Resource resource = worker_protocol::kDeviceMemory;
    uint64_t asked = 0, lacking = 0;
    LeaseThen then;
  };
  void send_request(Lease lease);
  void give_back(worker_protocol::Resource resource, uint64_t bytes);

  bool put(const worker_protocol::Message& message);  // with outbox_mutex_ held

  Fd socket_;
  std::atomic<bool> lost_{false}, full_{false};
  const std::function<void()> on_full_;
  std::mutex outbox_mutex_;
  std::deque<worker_protocol::Message> outbox_;  // as many as requests and extents, at most
  uint64_t region_bytes_;
  QuotaLease device_, host_;
  QuotaLease openings_{1}, loads_{1};  // leave, one at a time
  QuotaLease places_{1};
  std::unordered_map<uint64_t, Lease> leases_;
  std::unordered_map<uint64_t, ExtentThen> extents_;
  std::unordered_map<uint64_t, SharedThen> shared_;
  uint64_t next_request_ = 1;
};

}  // namespace sluice::worker
