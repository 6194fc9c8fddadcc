#include "mediator/worker/session.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/wait.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {
constexpr uint64_t kForever = std::numeric_limits<uint64_t>::max();
// How often completions are looked for: soon after something happened, then ever less.
constexpr uint64_t kPollFirstNs = 5'000;
constexpr uint64_t kPollWaitedNs = 50'000;  // while somebody waits, or sluiced wants the GPU back
constexpr uint64_t kPollNs = 200'000;
// While the gate is closed only to see whether sluiced still lives.
constexpr uint64_t kPollGateNs = 250'000'000;
// Records decoded in a row before ends of launches are looked for, and looks for a record between two
// looks for ends: an event query costs some 0.1 us, on a real GPU up to 1 us.
constexpr uint32_t kRecordsPerLook = 16;
constexpr uint32_t kLooksPerDrive = 8;
// With more queued than this, the end of what somebody waits for is not near, and naps keep the driver's
// queue filled: a thread that looks on would only take the software GPU's processor.
constexpr size_t kNearOperations = 8;
// What the shortest nap and waking for it add on a virtual machine, where a timer is slow.
constexpr uint64_t kNapCostNs = 80'000;

Fd wake_fd() {
  auto fd = make_eventfd();
  SLUICE_CHECK(fd.ok());
  return std::move(*fd);
}

void signal_fd(int fd) {
  const uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

void sleep_on(pollfd* fds, nfds_t n, uint64_t ns) {
  timespec ts{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::ppoll(fds, n, ns == kForever ? nullptr : &ts, nullptr);
}
}  // namespace

Session::Session(SessionParts parts, SessionLimits limits)
    : p_(std::move(parts)),
      limits_(limits),
      api_(p_.api),
      region_(static_cast<uint8_t*>(p_.region)),
      slot_(reinterpret_cast<sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET +
                                                  uint64_t{p_.start.slot} * SLUICE_SLOT_STRIDE)),
      submit_(submit_ring(p_.region, p_.start.slot),
              Bell::for_eventfd(p_.fds[wp::kWakeFd].get())),
      replies_(RingProducer(complete_ring(p_.region, p_.start.slot),
                            Bell::for_eventfd(p_.fds[wp::kWakeFd].get()))),
      decoder_wake_(wake_fd()),
      engine_wake_(wake_fd()),
      gate_(p_.host, p_.signal, &p_.report->header, monotonic_ns(),
            [fd = p_.fds[wp::kRingFd].get()] { signal_fd(fd); }),
      streams_(api_, p_.start.nvidia != 0, p_.start.chunk_target_us, p_.signal, p_.report,
               {[this](uint64_t token, CUresult status) { on_complete(token, status); },
                [this](uint64_t token) { on_complete(token, CUDA_SUCCESS); },
                [this](CUresult status) { replies_.send(0, 0, status); }}),
      engine_(streams_, gate_) {
  p_.report->header.pid = static_cast<uint32_t>(::getpid());
  // A vGPU without a limit has what the device has.
  if (p_.start.memory_limit_bytes == 0) p_.start.memory_limit_bytes = kForever;
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
  signal_fd(p_.fds[wp::kWakeFd].get());
  if (!asked) {
    log::warning("session of vgpu {} slot {} ends: {}", p_.start.vgpu, p_.start.slot, reason);
    wp::Message m{};
    m.type = wp::Type::kEnded;
    m.code = code;
    std::memcpy(m.text, reason.data(), std::min(reason.size(), sizeof m.text - 1));
    send(m);
  }
  // Contexts, memory and running kernels go with the process: the driver frees them in its own order,
  // also when a kernel never returns.
  ::_exit(0);
}

// --- threads ---

void Session::decoder_loop() {
  RecordBuffer record;
  Spinner records, ends;
  const int bell = p_.fds[wp::kBellFd].get();
  for (uint32_t n = 1;; ++n) {
    if (const char* why = replies_.failure()) violation(why);
    if (decoder_must_wait()) {
      set_decoder_awake(false);
      pollfd fds[] = {{decoder_wake_.get(), POLLIN, 0}};
      sleep_on(fds, 1, kForever);
      drain_eventfd(decoder_wake_.get());
      set_decoder_awake(true);
      continue;
    }
    switch (submit_.pop(record)) {
      case Pop::kRecord:
        decode(record.record(), record.body());
        // A program that never pauses must not keep its own launches from being refilled.
        if (n % kRecordsPerLook == 0) {
          if (replies_.waiting()) replies_.flush();
          drive_engine();
        }
        break;
      case Pop::kBroken:
        violation(submit_.broken_reason());
      case Pop::kEmpty: {
        if (replies_.waiting()) replies_.flush();
        if (look_out(records, ends)) break;
        if (!submit_.arm()) break;
        replies_.arm();
        set_decoder_awake(false);
        pollfd fds[] = {{bell, POLLIN, 0}, {decoder_wake_.get(), POLLIN, 0}};
        const uint64_t from = monotonic_ns();
        sleep_on(fds, 2, kForever);
        const uint64_t slept_ns = monotonic_ns() - from;
        records.slept(slept_ns);
        ends.found_after(slept_ns - std::min(slept_ns, kNapCostNs));
        replies_.disarm();
        submit_.disarm();
        set_decoder_awake(true);
        drain_eventfd(bell);
        drain_eventfd(decoder_wake_.get());
        break;
      }
    }
  }
}

bool Session::look_out(Spinner& records, Spinner& ends) {
  uint32_t looks = 0;
  const auto look = [&] {
    if (submit_.readable()) return true;
    if (++looks % kLooksPerDrive == 0) drive_engine();
    return false;
  };
  if (records.spin(look)) return true;
  // The end that somebody waits for is found here sooner than by the engine thread.
  while (end_is_near_.load(std::memory_order_relaxed)) {
    bool got_on = false;
    if (!ends.spin([&] { return submit_.readable() || (got_on |= drive_engine()); })) return false;
    if (submit_.readable()) return true;
  }
  return false;
}

bool Session::drive_engine() {
  if (!in_flight_.load(std::memory_order_relaxed)) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;  // the engine thread is at it
  const size_t before = engine_.queued();
  engine_.poll(monotonic_ns());
  after_engine();
  return engine_.queued() != before;
}

void Session::set_decoder_awake(bool awake) {
  std::lock_guard lock(mutex_);
  decoder_awake_ = awake;
  if (!awake) after_engine();
}

// Whether the guest has queued as much as it may. Its records then stay in its ring.
bool Session::decoder_must_wait() {
  {
    std::lock_guard lock(mutex_);
    const size_t queued = engine_.queued();
    if (queued >= limits_.hard_operations || parked_.size() >= limits_.parked_calls)
      violation("too many operations and calls wait");
    // What a host function waits for may stand behind these records: then they have to be read.
    if (queued >= limits_.queued_operations && !engine_.waits_for_program()) {
      decoder_waits_.store(true);
      return true;
    }
  }
  std::lock_guard lock(job_mutex_);
  if (jobs_.size() < limits_.jobs) return false;
  decoder_waits_.store(true);
  return true;
}

void Session::wake_decoder() {
  if (decoder_waits_.exchange(false)) signal_fd(decoder_wake_.get());
}

void Session::post(std::function<void()> job) {
  {
    std::lock_guard lock(job_mutex_);
    jobs_.push_back(std::move(job));
  }
  job_ready_.notify_one();
}

void Session::job_loop() {
  ::prctl(PR_SET_NAME, "sluice-jobs");
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(job_mutex_);
      job_ready_.wait(lock, [this] { return !jobs_.empty(); });
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
    wake_decoder();
  }
}

void Session::after_engine() {
  if (engine_.error() != CUDA_SUCCESS && sticky_.load() == 0) {
    sticky_.store(engine_.error());
    __atomic_store_n(&p_.report->header.error, static_cast<uint64_t>(engine_.error()),
                     __ATOMIC_RELAXED);
    log::warning("vgpu {} slot {}: {}", p_.start.vgpu, p_.start.slot,
                 gpu::describe(engine_.error()));
  }
  const auto& c = engine_.counters();
  sluice_report_header& h = p_.report->header;
  __atomic_store_n(&h.launches, c.launches, __ATOMIC_RELAXED);
  __atomic_store_n(&h.launches_done, c.launches_done, __ATOMIC_RELAXED);
  __atomic_store_n(&h.evictions, c.evictions, __ATOMIC_RELAXED);
  __atomic_store_n(&h.relaunches, c.relaunches, __ATOMIC_RELAXED);
  __atomic_store_n(&h.opaque_launches, c.opaque, __ATOMIC_RELAXED);

  in_flight_.store(engine_.in_flight(), std::memory_order_relaxed);
  end_is_near_.store(
      engine_.in_flight() && !parked_.empty() && engine_.queued() <= kNearOperations,
      std::memory_order_relaxed);
  if (engine_kicked_) return;
  const bool too_long =
      engine_.in_flight()
          ? !decoder_awake_ && engine_sleep_ns_ > (parked_.empty() ? kPollGateNs - 1 : kPollWaitedNs)
          : engine_.held_by_gate() && engine_sleep_ns_ == kForever;
  if (too_long) {
    engine_kicked_ = true;
    signal_fd(engine_wake_.get());
  }
}

void Session::engine_loop() {
  ::prctl(PR_SET_NAME, "sluice-engine");
  ::prctl(PR_SET_TIMERSLACK, 1000);
  uint64_t nap = kPollFirstNs, seen = 0;
  for (;;) {
    uint64_t sleep = kForever;
    {
      std::lock_guard lock(mutex_);
      const uint64_t now = monotonic_ns();
      engine_.poll(now);
      const uint64_t progress =
          engine_.counters().launches_done + engine_.counters().relaunches + next_token_ +
          engine_.queued();
      if (engine_.in_flight() && decoder_awake_) {
        nap = kPollFirstNs;  // asleep until the decoder hands over, see after_engine()
      } else if (engine_.in_flight()) {
        const bool urgent = !parked_.empty() || !gate_.open(now);
        nap = progress != seen ? kPollFirstNs
                               : std::min(nap * 2, urgent ? kPollWaitedNs : kPollNs);
        sleep = nap;
      } else if (engine_.held_by_gate()) {
        sleep = kPollGateNs;
      }
      seen = progress;
      engine_sleep_ns_ = sleep;
      engine_kicked_ = false;
      after_engine();
      if (engine_.queued() < limits_.queued_operations || engine_.waits_for_program())
        wake_decoder();
    }
    pollfd fds[] = {{p_.fds[wp::kGateFd].get(), POLLIN, 0},
                    {engine_wake_.get(), POLLIN, 0},
                    {sluiced_gone_ ? -1 : p_.control.get(), POLLIN, 0}};
    sleep_on(fds, 3, sleep);
    if (fds[0].revents) {
      drain_eventfd(fds[0].fd);
      nap = kPollFirstNs;
    }
    if (fds[1].revents) {
      drain_eventfd(fds[1].fd);
      nap = kPollFirstNs;
    }
    if (fds[2].revents) on_control();
  }
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
        end(static_cast<CUresult>(m.code), m.text, true);
      default:
        log::warning("unexpected message {} from sluiced", static_cast<uint32_t>(m.type));
    }
  }
}

void Session::ask_lease(uint64_t lacking, std::function<void(bool)> then) {
  const uint64_t request = next_request_++;
  wp::Message m{};
  m.type = wp::Type::kLeaseRequest;
  m.request = request;
  m.bytes = QuotaLease::request_for(lacking);
  if (sluiced_gone_) {
    post([then = std::move(then)] { then(false); });
    return;
  }
  lease_waiters_[request] = {m.bytes, lacking, std::move(then)};
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
      again.request = next_request_++;
      again.bytes = waiter.lacking;
      waiter.asked = waiter.lacking;
      lease_waiters_[again.request] = std::move(waiter);
      send(again);
      return;
    }
    if (m.code == 0) quota_.leased(waiter.asked);
    then = std::move(waiter.then);
  }
  then(m.code == 0);
}

void Session::return_lease(uint64_t charged) {
  wp::Message m{};
  m.type = wp::Type::kLeaseReturn;
  m.bytes = quota_.release(charged);
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

void Session::answer(const Call& call, CUresult status, std::span<const std::byte> body) {
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
  if (allocations_.contains(guest_address, guest_bytes)) return true;
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
