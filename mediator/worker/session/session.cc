#include "mediator/worker/session/session.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/wait.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {

Fd wake_fd() {
  auto fd = make_eventfd();
  SLUICE_CHECK(fd.ok());
  return std::move(*fd);
}

}  // namespace

namespace {
LoopSettings loop_settings(const wp::Start& start) {
  LoopSettings s;
  s.target_us = start.chunk_target_us;
  s.fixed_chunk = static_cast<uint16_t>(start.fixed_chunk);
  s.admission_us = start.admission_us;
  s.window_us = start.window_us;
  if (start.nvidia == 0) s.leave_ps = kSoftwareLeavePs;
  return s;
}
}  // namespace

Session::Session(SessionParts parts, SessionLimits limits)
    : p_(std::move(parts)),
      limits_(limits),
      api_(p_.api),
      region_(static_cast<uint8_t*>(p_.region)),
      slot_(reinterpret_cast<sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET +
                                                  uint64_t{p_.start.slot} * SLUICE_SLOT_STRIDE)),
      submit_(submit_ring(p_.region, p_.start.slot), Bell::for_eventfd(p_.fds[wp::kWakeFd].get())),
      replies_(RingProducer(complete_ring(p_.region, p_.start.slot),
                            Bell::for_eventfd(p_.fds[wp::kWakeFd].get()))),
      printed_(std::move(p_.printed)),
      decoder_wake_(wake_fd()),
      engine_wake_(wake_fd()),
      gate_(p_.host, p_.signal, p_.report, monotonic_ns(),
            [fd = p_.fds[wp::kRingFd].get()] { ring_wake(fd); }),
      forwarder_(api_, p_.start.signal, p_.signal),
      streams_(api_, p_.start.signal == wp::Signal::kProxy, loop_settings(p_.start), p_.signal,
               p_.records,
               {[this](uint64_t token, CUresult status) { on_complete(token, status); },
                [this](uint64_t token) { on_complete(token, CUDA_SUCCESS); },
                [this](CUresult status) { replies_.send(0, 0, status); }}),
      engine_(streams_, gate_),
      quota_(QuotaLease::chunk_for(p_.start.memory_limit_bytes ? p_.start.memory_limit_bytes
                                                               : ~uint64_t{0})),
      host_quota_(QuotaLease::chunk_for(p_.start.host_memory_bytes)) {
  if (p_.start.spatial_sms != 0) streams_.expect_parts();
  streams_.make_green = [this](std::shared_ptr<ContextObject> c) {
    post([this, c] { make_green_context(c); });
  };
  static_assert(kChargeKinds == SLUICE_MEMORY_KINDS);
  quota_.show_in(p_.report->memory);
  p_.report->pid = p_.start.host_pid ? p_.start.host_pid : static_cast<uint32_t>(::getpid());
  // A vGPU without a limit has what the device has.
  if (p_.start.memory_limit_bytes == 0)
    p_.start.memory_limit_bytes = std::numeric_limits<uint64_t>::max();
  if (p_.start.staging_bytes != 0) extents_[p_.start.staging_offset] = p_.start.staging_bytes;
}

void Session::run() {
  engine_thread_ = std::thread([this] { engine_loop(); });
  job_thread_ = std::thread([this] { job_loop(); });
  decoder_loop();
}

void Session::end(CUresult code, const std::string& reason, bool asked) {
  if (ended_.exchange(true)) {
    for (;;) ::pause();  // another thread is ending the process
  }
  std::memset(slot_->reason, 0, sizeof slot_->reason);
  std::memcpy(slot_->reason, reason.data(), std::min(reason.size(), sizeof slot_->reason - 1));
  __atomic_store_n(&slot_->error, static_cast<int32_t>(code), __ATOMIC_RELAXED);
  __atomic_store_n(&slot_->state, uint32_t{SLUICE_SLOT_ENDED}, __ATOMIC_RELEASE);
  signal_eventfd(p_.fds[wp::kWakeFd].get());
  if (!asked) {
    log::warning("session of vgpu {} slot {} ends: {}", p_.start.vgpu, p_.start.slot, reason);
    wp::Message m{};
    m.type = wp::Type::kEnded;
    m.code = code;
    std::memcpy(m.text, reason.data(), std::min(reason.size(), sizeof m.text - 1));
    send(m);
  }
  // Contexts, memory and running kernels go with the process: the driver frees them in its own
  // order, also when a kernel never returns.
  ::_exit(0);
}

// --- control socket ---

void Session::send(wp::Message message) {
  if (sluiced_gone_) return;
  // A full socket means that sluiced does not read: as good as gone for what we ask.
  if (::send(p_.control.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    log::warning("cannot send to sluiced: {}", std::strerror(errno));
}

void Session::on_control() {
  for (int i = 0; i < 16; ++i) {
    wp::Message m{};
    auto got = receive_with_fds(p_.control.get(), &m, sizeof m, MSG_DONTWAIT);
    if (!got) {
      if (got.error().code == EAGAIN) return;
      got = Received{};
    }
    if (got->bytes == 0) {
      // sluiced is gone. We go on: when its heartbeat is stale the gate counts as open. What would
      // have to be leased is refused: quotas never fail open.
      log::warning("sluiced has closed the control socket");
      sluiced_gone_ = true;
      std::unordered_map<uint64_t, LeaseWaiter> leases;
      std::unordered_map<uint64_t, Call> extents;
      {
        std::lock_guard lock(mutex_);
        leases.swap(lease_waiters_);
        extents.swap(extent_waiters_);
      }
      for (auto& [id, waiter] : leases) waiter.then(false);
      for (auto& [id, call] : extents) answer(call, CUDA_ERROR_OUT_OF_MEMORY);
      return;
    }
    if (got->bytes != sizeof m) continue;
    m.text[sizeof m.text - 1] = 0;
    switch (m.type) {
      case wp::Type::kLeaseReply:
        on_lease_reply(m);
        break;
      case wp::Type::kExtentReply:
        on_extent_reply(m);
        break;
      case wp::Type::kEnd:
        see_out();
        end(static_cast<CUresult>(m.code), m.text, true);
      default:
        log::warning("unexpected message {} from sluiced", static_cast<uint32_t>(m.type));
    }
  }
}

// Nothing new is launched; what is on the GPU is seen to its end, if that is soon, and a fault of
// it is reported.
void Session::see_out() {
  const uint64_t until_ns = monotonic_ns() + limits_.see_out_ms * 1'000'000;
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      gate_.shut();
      engine_.poll(monotonic_ns());
      after_engine();
      if (!engine_.in_flight() || sticky_.load() != 0 || monotonic_ns() >= until_ns) return;
    }
    ::usleep(200);
  }
}

void Session::ask_lease(uint64_t lacking, std::function<void(bool)> then, wp::Resource resource) {
  const uint64_t request = next_request_++;
  wp::Message m{};
  m.type = wp::Type::kLeaseRequest;
  m.code = resource;
  m.request = request;
  m.bytes = (resource == wp::kHostMemory ? host_quota_ : quota_).request_for(lacking);
  if (sluiced_gone_) {
    post([then = std::move(then)] { then(false); });
    return;
  }
  if (lease_waiters_.size() >= limits_.parked_calls) violation("too many calls wait for memory");
  lease_waiters_[request] = {resource, m.bytes, lacking, std::move(then)};
  send(m);
}

void Session::on_lease_reply(const wp::Message& m) {
  std::function<void(bool)> then;
  {
    std::lock_guard lock(mutex_);
    auto it = lease_waiters_.find(m.request);
    if (it == lease_waiters_.end()) return;
    LeaseWaiter waiter = std::move(it->second);
    lease_waiters_.erase(it);
    if (m.code != 0 && waiter.asked > waiter.lacking) {
      // Not a whole chunk; perhaps just what is needed.
      wp::Message again{};
      again.type = wp::Type::kLeaseRequest;
      again.code = waiter.resource;
      again.request = next_request_++;
      again.bytes = waiter.lacking;
      waiter.asked = waiter.lacking;
      lease_waiters_[again.request] = std::move(waiter);
      send(again);
      return;
    }
    if (m.code == 0)
      (waiter.resource == wp::kHostMemory ? host_quota_ : quota_).leased(waiter.asked);
    then = std::move(waiter.then);
  }
  then(m.code == 0);
}

void Session::return_lease(uint64_t charged, ChargeKind kind) {
  wp::Message m{};
  m.type = wp::Type::kLeaseReturn;
  m.code = wp::kDeviceMemory;
  m.bytes = quota_.release(charged, kind);
  if (m.bytes != 0) send(m);
}

void Session::return_host_memory(uint64_t charged) {
  wp::Message m{};
  m.type = wp::Type::kLeaseReturn;
  m.code = wp::kHostMemory;
  m.bytes = host_quota_.release(charged, ChargeKind::kModules);
  if (m.bytes != 0) send(m);
}

void Session::on_extent_reply(const wp::Message& m) {
  Call call;
  {
    std::lock_guard lock(mutex_);
    auto it = extent_waiters_.find(m.request);
    if (it == extent_waiters_.end()) return;
    call = it->second;
    extent_waiters_.erase(it);
    const bool sound = m.bytes != 0 && m.offset % SLUICE_EXTENT_BYTES == 0 &&
                       m.offset < p_.start.region_bytes &&
                       m.bytes <= p_.start.region_bytes - m.offset;
    if (m.code == 0 && sound) extents_[m.offset] = m.bytes;
    if (m.code != 0 || !sound) {
      answer(call, CUDA_ERROR_OUT_OF_MEMORY);
      return;
    }
  }
  post([this, call, range = sluice_bulk{m.offset, m.bytes}] {
    register_region(range.offset, range.bytes);
    answer(call, CUDA_SUCCESS, std::as_bytes(std::span(&range, 1)));
  });
}

// --- helpers ---

// Before each answer, of whatever call, so that no call that CUDA prints at is forgotten.
void Session::send_printed(const Call& call) {
  // NVIDIA's driver prints when it is asked to wait for something; this stream has nothing in it.
  // These two answer with the session's lock held.
  const bool waited = call.opcode == SLUICE_CALL_SYNCHRONIZE || call.opcode == SLUICE_CALL_COPY;
  if (p_.start.nvidia != 0 && waited && call.context && !call.context->closed &&
      sticky_.load() == 0 && make_current(api_, call.context->cu) == CUDA_SUCCESS)
    (void)api_.cuStreamSynchronize(call.context->transfers);
  std::lock_guard lock(printed_mutex_);
  const std::string text = printed_.take();
  for (size_t at = 0; at < text.size(); at += SLUICE_PRINTED_MAX_BYTES) {
    std::byte piece[sizeof(sluice_printed) + SLUICE_PRINTED_MAX_BYTES];
    const sluice_printed header{
        static_cast<uint32_t>(std::min<size_t>(text.size() - at, SLUICE_PRINTED_MAX_BYTES)), 0};
    std::memcpy(piece, &header, sizeof header);
    std::memcpy(piece + sizeof header, text.data() + at, header.bytes);
    replies_.send(0, SLUICE_CALL_PRINTED, CUDA_SUCCESS,
                  std::span(piece).first(sizeof header + header.bytes));
  }
}

void Session::answer(const Call& call, CUresult status, std::span<const std::byte> body) {
  if (printed_.started() && (call.flags & SLUICE_RECORD_NO_REPLY) == 0) send_printed(call);
  if (call.flags & SLUICE_RECORD_NO_REPLY) {
    if (status != CUDA_SUCCESS) replies_.send(0, call.opcode, status);
  } else {
    replies_.send(call.call_id, call.opcode, status, body);
  }
  if (const char* why = replies_.failure()) violation(why);
}

uint64_t Session::park(std::function<void(CUresult)> then) {
  const uint64_t token = next_token_++;
  parked_.emplace(token, std::move(then));
  return token;
}

void Session::on_complete(uint64_t token, CUresult status) {
  auto it = parked_.find(token);
  if (it == parked_.end()) return;  // a host function that was reached and then failed
  auto then = std::move(it->second);
  parked_.erase(it);
  then(status);
}

void Session::post_after_sync(const std::shared_ptr<ContextObject>& context,
                              std::function<void()> job) {
  // Also after a fault: then nothing runs any more.
  const uint64_t token =
      park([this, job = std::move(job)](CUresult) mutable { post(std::move(job)); });
  engine_.notify_context(context->id, token, monotonic_ns());
}

void Session::post_after_sync_all(std::function<void()> job) {
  auto left = std::make_shared<uint32_t>(1);
  auto one_done = [this, left, job = std::move(job)](CUresult) {
    if (--*left == 0) post(job);
  };
  std::vector<ContextId> ids;
  handles_.for_each(SLUICE_HANDLE_CONTEXT, [&](uint64_t, const auto& object) {
    ids.push_back(static_cast<ContextObject&>(*object).id);
  });
  for (ContextId id : ids) {
    ++*left;
    engine_.notify_context(id, park(one_done), monotonic_ns());
  }
  one_done(CUDA_SUCCESS);
}

std::shared_ptr<StreamObject> Session::find_stream(const Call& call, uint64_t guest_stream,
                                                   CUresult* error) const {
  *error = CUDA_SUCCESS;
  if (guest_stream <= 2) {
    if (!call.context || call.context->closed) {
      *error = CUDA_ERROR_INVALID_CONTEXT;
      return nullptr;
    }
    return guest_stream == 2 ? call.context->per_thread : call.context->legacy;
  }
  auto stream = handles_.find<StreamObject>(SLUICE_HANDLE_STREAM, guest_stream);
  if (!stream) *error = CUDA_ERROR_INVALID_HANDLE;
  return stream;
}

bool Session::owns_region(uint64_t guest_offset, uint64_t guest_bytes) const {
  auto it = extents_.upper_bound(guest_offset);
  if (it == extents_.begin()) return false;
  --it;
  const uint64_t into = guest_offset - it->first;
  return into < it->second && guest_bytes <= it->second - into;
}

bool Session::owns_range(uint64_t guest_address, uint64_t guest_bytes) const {
  if (allocations_.contains(guest_address, guest_bytes) ||
      virtual_.contains(guest_address, guest_bytes))
    return true;
  // Pinned memory of the program has the same address everywhere.
  return guest_address >= SLUICE_WINDOW_ADDRESS &&
         owns_region(guest_address - SLUICE_WINDOW_ADDRESS, guest_bytes);
}

bool Session::owns_device_rows(uint64_t address, uint64_t width, uint64_t pitch,
                               uint64_t rows) const {
  auto span = rows_span(width, pitch, rows);
  return span && owns_range(address, *span);
}

}  // namespace sluice::worker
