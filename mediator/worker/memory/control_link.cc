// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/memory/control_link.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "abi/channel.h"
#include "mediator/base/log.h"
#include "mediator/base/unix_socket.h"

namespace sluice::worker {

namespace wp = worker_protocol;

ControlLink::ControlLink(Fd socket, const wp::Start& start, std::function<void()> on_full)
    : socket_(std::move(socket)),
      on_full_(std::move(on_full)),
      region_bytes_(start.region_bytes),
      device_(QuotaLease::chunk_for(start.memory_limit_bytes ? start.memory_limit_bytes
                                                             : ~uint64_t{0})),
      host_(QuotaLease::chunk_for(start.host_memory_bytes)) {}

// False: not now.
bool ControlLink::put(const wp::Message& message) {
  if (::send(socket_.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
    return true;
  if (errno == EAGAIN) return false;
  log::warning("cannot send to sluiced: {}", std::strerror(errno));
  return true;
}

void ControlLink::send(const wp::Message& message) {
  if (lost_) return;
  {
    std::lock_guard lock(outbox_mutex_);
    if (outbox_.empty() && put(message)) return;
    // Frees without end are one message.
    const bool same = !outbox_.empty() && message.type == wp::Type::kLeaseReturn &&
                      outbox_.back().type == message.type && outbox_.back().code == message.code;
    if (same)
      outbox_.back().bytes += message.bytes;
    else
      outbox_.push_back(message);
    if (full_.exchange(true)) return;
  }
  on_full_();
}

void ControlLink::flush() {
  std::lock_guard lock(outbox_mutex_);
  while (!outbox_.empty() && !lost_ && put(outbox_.front())) outbox_.pop_front();
  if (lost_) outbox_.clear();
  full_ = !outbox_.empty();
}

ControlLink::Received ControlLink::receive(wp::Message* message, Fd* file) {
  *message = {};
  auto got = receive_with_fds(socket_.get(), message, sizeof *message, MSG_DONTWAIT);
  if (!got && got.error().code == EAGAIN) return Received::kNothing;
  if (!got || got->bytes == 0) {
    lost_ = true;
    return Received::kLost;
  }
  if (got->bytes != sizeof *message) return Received::kMalformed;
  if (file && !got->fds.empty()) *file = std::move(got->fds[0]);
  message->text[sizeof message->text - 1] = 0;
  return Received::kMessage;
}

void ControlLink::give_back(wp::Resource resource, uint64_t bytes) {
  if (bytes == 0) return;
  wp::Message m{};
  m.type = wp::Type::kLeaseReturn;
  m.code = resource;
  m.bytes = bytes;
  send(m);
}

void ControlLink::release_device(uint64_t charged, ChargeKind kind) {
  give_back(wp::kDeviceMemory, device_.release(charged, kind));
}

void ControlLink::release_host(uint64_t charged) {
  give_back(wp::kHostMemory, host_.release(charged, ChargeKind::kModules));
}

void ControlLink::release_places(uint64_t count) {
  give_back(wp::kContextPlaces, places_.release(count, ChargeKind::kContexts));
}

void ControlLink::end_share(const wp::ShareKey& shared, uint64_t charged) {
  device_.hand_over(charged);
  wp::Message m{};
  m.type = wp::Type::kShareEnd;
  m.bytes = charged;
  std::memcpy(m.text, &shared, sizeof shared);
  send(m);
}

void ControlLink::end_import(const wp::ShareKey& shared) {
  wp::Message m{};
  m.type = wp::Type::kOpenEnd;
  std::memcpy(m.text, &shared, sizeof shared);
  send(m);
}

void ControlLink::send_request(Lease lease) {
  wp::Message m{};
  m.type = wp::Type::kLeaseRequest;
  m.code = lease.resource;
  m.request = next_request_++;
  m.bytes = lease.asked;
  leases_[m.request] = std::move(lease);
  send(m);
}

void ControlLink::ask_lease(wp::Resource resource, uint64_t lacking, LeaseThen then) {
  send_request({resource, quota(resource).request_for(lacking), lacking, std::move(then)});
}

ControlLink::Ready ControlLink::on_lease_reply(const wp::Message& reply) {
  const auto it = leases_.find(reply.request);
  if (it == leases_.end()) return {};
  Lease lease = std::move(it->second);
  leases_.erase(it);
  const bool granted = reply.code == 0;
  if (!granted && lease.asked > lease.lacking) {
    lease.asked = lease.lacking;
    send_request(std::move(lease));
    return {};
  }
  if (granted) quota(lease.resource).leased(lease.asked);
  return [then = std::move(lease.then), granted] { then(granted); };
}

void ControlLink::ask_extent(uint64_t bytes, ExtentThen then) {
  wp::Message m{};
  m.type = wp::Type::kExtentRequest;
  m.request = next_request_++;
  m.bytes = bytes;
  extents_[m.request] = std::move(then);
  send(m);
}

ControlLink::Ready ControlLink::on_extent_reply(const wp::Message& reply) {
  const auto it = extents_.find(reply.request);
  if (it == extents_.end()) return {};
  ExtentThen then = std::move(it->second);
  extents_.erase(it);
  std::optional<sluice_bulk> range;
  if (reply.code == 0 && reply.bytes != 0 && reply.offset % SLUICE_EXTENT_BYTES == 0 &&
      reply.offset < region_bytes_ && reply.bytes <= region_bytes_ - reply.offset) {
    range = sluice_bulk{reply.offset, reply.bytes};
  }
  return [then = std::move(then), range] { then(range); };
}

void ControlLink::ask_shared(wp::Message question, SharedThen then) {
  question.request = next_request_++;
  shared_[question.request] = std::move(then);
  send(question);
}

ControlLink::Ready ControlLink::on_shared_reply(const wp::Message& reply, Fd file) {
  const auto it = shared_.find(reply.request);
  if (it == shared_.end()) return {};
  SharedThen then = std::move(it->second);
  shared_.erase(it);
  return [then = std::move(then), reply, file = std::make_shared<Fd>(std::move(file))] {
    then(&reply, file);
  };
}

std::vector<ControlLink::Ready> ControlLink::refuse_all() {
  std::vector<Ready> refusals;
  for (auto& [id, lease] : leases_)
    refusals.push_back([then = std::move(lease.then)] { then(false); });
  for (auto& [id, then] : extents_)
    refusals.push_back([refuse = std::move(then)] { refuse(std::nullopt); });
  for (auto& [id, then] : shared_)
    refusals.push_back([refuse = std::move(then)] { refuse(nullptr, nullptr); });
  leases_.clear();
  extents_.clear();
  shared_.clear();
  return refusals;
}

}  // namespace sluice::worker
