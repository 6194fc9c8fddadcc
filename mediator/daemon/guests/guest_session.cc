// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/guest_session.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/names.h"
#include "mediator/daemon/scheduling/side_by_side.h"
#include "mediator/ring/ring.h"

namespace sluice {

using worker_protocol::Message;
using worker_protocol::Type;

namespace {

// How often a session that waits for leave checks again.
constexpr uint64_t kLeaveLookMs = 1000;
// From a worker's last message to its exit, which is the next thing that an honest one does. Less:
// more of them are said to have died of a signal.
constexpr uint32_t kGoneMs = 200;

}  // namespace

GuestSession::GuestSession(SessionServices& services, Request request, Owner& owner)
    : services_(services),
      request_(std::move(request)),
      owner_(owner),
      started_ns_(monotonic_ns()),
      slot_(request_.channel),
      ledger_(services, request_.vgpu_id, request_.shares),
      deadline_(services.io),
      leave_timer_(services.io) {}

GuestSession::~GuestSession() {
  worker_.reset();  // kills and reaps a worker that still runs: only when the daemon itself ends
  std::erase(services_.spinners, this);
  release();
}

Result<std::unique_ptr<GuestSession>> GuestSession::start(SessionServices& services,
                                                          Request request, Owner& owner) {
  std::unique_ptr<GuestSession> s(new GuestSession(services, std::move(request), owner));
  if (auto prepared = s->prepare(); !prepared) return prepared.error();
  return s;
}

Result<void> GuestSession::prepare() {
  if (!settings().mps_pipes.empty())
    if (std::string why = mps_missing(settings().mps_pipes); !why.empty())
      return Error{ENODEV, std::move(why)};
  if (auto placed = services_.contexts.lease(ledger_.id(), 1); !placed)
    return Error{EBUSY, "no place for another program's context: " + placed.error().message};
  auto staging = slot_.take(settings().staging_bytes);
  if (slot_.taken()) end_.expect_failed_start();
  if (!staging) return staging.error();
  if (auto made = pages_.make(slot_.channel(), slot_.number()); !made) return made;
  take_spin_seat();
  io::WorkerSpec spec;
  spec.start = start_message(*staging);
  spec.fds = pages_.for_worker(slot_.channel());
  spec.peers = request_.peers;
  spec.loop_time = request_.loop_time;
  spec.vgpu = request_.spawner_vgpu;
  auto soft_gpu = io::open_soft_gpu(settings().soft_gpu_file);
  if (!soft_gpu) return soft_gpu.error();
  spec.soft_gpu = std::move(*soft_gpu);
  auto worker = io::WorkerProcess::spawn(services_.io, *services_.spawner, std::move(spec), *this);
  if (!worker) return worker.error();
  worker_ = std::move(*worker);
  end_.started();
  deadline_.after_ms(settings().deadlines.worker_start_ms, [this] {
    end(kCudaErrorUnknown,
        "its worker did not start within " + std::to_string(settings().deadlines.worker_start_ms) +
            " ms",
        true);
  });
  return {};
}

// A worker with a seat may spin for long; seats are given back by the destructor. A vGPU with many
// sessions keeps no seat that one with fewer wants.
void GuestSession::take_spin_seat() {
  auto& seated = services_.spinners;
  if (seated.size() >= settings().spin.seats) {
    GuestSession* giver = who_gives_a_seat();
    if (!giver) return;
    giver->give_up_spin_seat();
  }
  spins_ = true;
  seated.push_back(this);
  call_spin_us_ = call_spin_us(request_.urgent);
}

// The newest of the vGPU with the most seats, if that has two more than its own. (With one more the
// two would take it from each other.)
GuestSession* GuestSession::who_gives_a_seat() const {
  std::map<core::VgpuId, uint32_t> seats;
  GuestSession* giver = nullptr;
  for (GuestSession* s : services_.spinners) {
    const uint32_t n = ++seats[s->request_.vgpu_id];
    if (!giver || n >= seats[giver->request_.vgpu_id]) giver = s;
  }
  const bool may = giver && seats[giver->request_.vgpu_id] >= seats[request_.vgpu_id] + 2;
  return may ? giver : nullptr;
}

void GuestSession::give_up_spin_seat() {
  spins_ = false;
  std::erase(services_.spinners, this);
  call_spin_us_ = worker_protocol::Start{}.call_spin_us;
  send_spin();
}

uint32_t GuestSession::call_spin_us(bool urgent) const {
  return urgent ? settings().spin.low_us : settings().spin.us;
}

void GuestSession::set_urgent(bool urgent) {
  if (!spins_ || call_spin_us(urgent) == call_spin_us_) return;
  call_spin_us_ = call_spin_us(urgent);
  send_spin();
}

void GuestSession::send_spin() {
  if (!worker_) return;
  Message spin{};
  spin.type = Type::kSpin;
  spin.bytes = call_spin_us_;
  spin.offset = spins_ ? settings().spin.us : worker_protocol::Start{}.spin_us;
  (void)worker_->send(spin);  // one that does not read is ended for that
}

worker_protocol::Start GuestSession::start_message(const ExtentRange& staging) const {
  worker_protocol::Start start = settings().start;
  start.slot = slot_.number();
  start.epoch = slot_.epoch();
  start.region_bytes = slot_.channel().geometry().region_bytes;
  start.staging_offset = staging.offset;
  start.staging_bytes = staging.bytes;
  start.memory_limit_bytes = services_.memory.limit(request_.vgpu_id);
  start.host_memory_bytes = services_.host_memory.limit(request_.vgpu_id);
  if (spins_) start.spin_us = settings().spin.us, start.call_spin_us = call_spin_us_;
  copy_text(start.vgpu, sizeof start.vgpu, request_.vgpu);
  return start;
}

void GuestSession::end(int cuda_error, const std::string& reason, bool now) {
  end_.set(cuda_error, reason);
  const bool first = state_ != State::kEnding;
  state_ = State::kEnding;
  if (scheduler_id_) executor().mark_ending(*scheduler_id_);
  if (first && !now) {
    Message message{};
    message.type = Type::kEnd;
    message.code = cuda_error;
    copy_text(message.text, sizeof message.text, reason);
    now = !worker_->send(message).ok();  // it does not read, or hung up already
  }
  if (now) {
    deadline_.cancel();
    worker_->kill();
  } else if (first) {
    deadline_.after_ms(settings().deadlines.session_end_ms, [this] {
      log::warning("vgpu {}: slot {}: worker {} did not end in time; killed", request_.vgpu,
                   slot_.number(), worker_->pid());
      worker_->kill();
    });
  }
}

void GuestSession::expel(const std::string& reason) {
  offences_.on_expelled();
  end(kCudaErrorDeviceUnavailable, reason, true);
}

std::array<uint64_t, kChargeKinds> GuestSession::leased_by_kind() const {
  std::array<uint64_t, kChargeKinds> kinds{};
  uint64_t left = leased_bytes();
  for (size_t i = 0; pages_.made() && i < kinds.size(); ++i) {
    kinds[i] =
        std::min(left, __atomic_load_n(&pages_.stubs().report().memory[i], __ATOMIC_RELAXED));
    left -= kinds[i];
  }
  return kinds;
}

// ---- what it costs others ----

// Where a source shows how long the GPU stood still for this worker, that counts; else what its
// error usually costs.
void GuestSession::note_fault(uint64_t stall_ns) {
  const auto fault = offences_.on_fault(stall_ns);
  if (!fault) return;
  executor().charge_stall(request_.vgpu_id, fault->stall_ns);
  owner_.on_session_offence(*this, core::Offence::kFault, fault->stall_ns, fault->more);
}

// Its worker reports a sticky error while the session goes on.
void GuestSession::on_error(uint64_t guest_error) {
  const auto usual = settings().stalls.of(guest_error);
  if (usual && settings().faults_are_shared()) {
    log::warning(
        "vgpu {}: slot {}: '{}' has CUDA error {}: a kernel has faulted, its own or that "
        "of another client of the MPS server",
        request_.vgpu, slot_.number(), request_.program, guest_error);
    return;
  }
  if (usual) note_fault(executor().fault_stall_ns(worker_->pid(), started_ns_).value_or(*usual));
}

// It cannot hide that. Its error, if it reports one, counts for no more than this does.
void GuestSession::on_worker_xid(int number) {
  const auto usual = settings().stalls.of_xid(number);
  if (usual && settings().faults_are_shared() &&
      services_.neighbours.may_be_hit(request_.vgpu_id, monotonic_ns())) {
    log::warning(
        "vgpu {}: slot {}: '{}' has faulted (Xid {}) as another client of the MPS server was ended "
        "whose work did not leave the GPU; it is not charged for that",
        request_.vgpu, slot_.number(), request_.program, number);
    return;
  }
  if (usual) note_fault(executor().fault_stall_ns(worker_->pid(), started_ns_).value_or(*usual));
}

void GuestSession::on_worker_starved(uint64_t ns) {
  if (scheduler_id_) executor().on_starved(*scheduler_id_, ns);
}

// The worker is gone: whatever it did, it has done.
void GuestSession::settle_offences(bool died_of_signal) {
  if (!pages_.made() || !worker_) return;
  if (const uint64_t ns = scheduler_id_ ? executor().take_stay_ns(*scheduler_id_) : 0)
    owner_.on_session_offence(*this, core::Offence::kDidNotLeave, ns, false);
  const sluice_report_header& h = pages_.stubs().report();
  OffenceRecord::Evidence e;
  e.measured_ns = executor().fault_stall_ns(worker_->pid(), started_ns_);
  e.died_of_signal = died_of_signal;
  e.worst_ns = settings().stalls.worst_ns();
  if (!settings().faults_are_shared()) {
    e.worker_error_ns = settings().stalls.of(__atomic_load_n(&h.error, __ATOMIC_RELAXED));
    e.end_error_ns = settings().stalls.of(static_cast<uint64_t>(end_.error()));
    e.in_flight_unseen = !services_.spawner->host().sees_xids() &&
                         __atomic_load_n(&h.in_flight, __ATOMIC_SEQ_CST) > 0;
  }
  const auto [verdict, stall_ns] = offences_.settle(e);
  if (verdict == OffenceRecord::Verdict::kFault) note_fault(stall_ns);
  if (verdict == OffenceRecord::Verdict::kForcedEnd)
    owner_.on_session_offence(*this, core::Offence::kForcedEnd, stall_ns, false);
}

core::QuotaLedger* GuestSession::ledger_of(int32_t resource) {
  switch (resource) {
    case worker_protocol::kDeviceMemory:
      return &services_.memory;
    case worker_protocol::kHostMemory:
      return &services_.host_memory;
    case worker_protocol::kContextPlaces:
      return &services_.contexts;
    default:
      return nullptr;
  }
}

void GuestSession::on_worker_message(const Message& m) {
  switch (m.type) {
    case Type::kReady:
      return on_ready(m);
    case Type::kLeaseRequest: {
      if (m.code == worker_protocol::kContextOpenings || m.code == worker_protocol::kModuleLoads) {
        if (m.bytes != 1) return on_worker_bad("asked for more than one at a time");
        if (may_wait(leave_requests_, m, Type::kLeaseReply)) give_leave();
        return;
      }
      core::QuotaLedger* ledger = ledger_of(m.code);
      if (!ledger) return on_worker_bad("asked for a resource that there is not");
      auto leased = ledger->lease(ledger_.id(), m.bytes);
      if (!leased)
        log::debug("vgpu {}: slot {}: {}", request_.vgpu, slot_.number(), leased.error().message);
      return answer(m, Type::kLeaseReply, leased ? 0 : ENOMEM, {0, leased ? m.bytes : 0});
    }
    case Type::kLeaseReturn:
      if (core::QuotaLedger* ledger = ledger_of(m.code); !ledger)
        on_worker_bad("gave back a resource that there is not");
      else if (ledger == &services_.contexts && m.bytes >= ledger->held_by_session(ledger_.id()))
        on_worker_bad("gave back the place that its session has");
      else if (auto given = ledger->give_back(ledger_.id(), m.bytes); !given)
        on_worker_bad(given.error().message);
      return;
    case Type::kExtentRequest:
      if (may_wait(extent_requests_, m, Type::kExtentReply)) grant_extents();
      return;
    case Type::kExtentReturn:
      if (auto given = slot_.channel().give_back(slot_.number(), m.offset, m.bytes); !given)
        return on_worker_bad("it " + given.error().message);
      return;
    case Type::kShareRequest:
    case Type::kShareEnd:
    case Type::kOpenRequest:
    case Type::kOpenEnd:
      return on_sharing(m);
    case Type::kEnded: {
      end_.set(m.code, clean_text(m.text, sizeof m.text));
      if (state_ != State::kEnding) {
        state_ = State::kEnding;
        if (scheduler_id_) executor().mark_ending(*scheduler_id_);
        deadline_.after_ms(std::min(settings().deadlines.session_end_ms, kGoneMs),
                           [this] { worker_->kill(); });
      }
      return;
    }
    default:
      return;  // WorkerProcess lets nothing else through
  }
}

bool GuestSession::may_wait(std::deque<Message>& requests, const Message& m, Type reply) {
  if (requests.size() < limits::kMaxWaitingExtentRequests) {
    requests.push_back(m);
    return true;
  }
  answer(m, reply, ENOMEM);
  return false;
}

// Its memory, or another session's, in several programs.
void GuestSession::on_sharing(const Message& m) {
  worker_protocol::ShareKey of;
  std::memcpy(static_cast<void*>(&of), m.text, sizeof of);
  core::Shares::Token token;
  std::copy(std::begin(of.token), std::end(of.token), token.begin());
  switch (m.type) {
    case Type::kShareRequest:
      return share(m);
    case Type::kShareEnd:
      if (auto given = request_.shares->give_up(token, ledger_.id(), m.bytes); !given)
        on_worker_bad(given.error().message);
      return;
    case Type::kOpenRequest:
      if (!worker_->may_take_descriptors())
        return answer_share(m, Type::kOpenReply, token, nullptr);
      return answer_share(m, Type::kOpenReply, token, request_.shares->open(token, ledger_.id()));
    default:
      return request_.shares->close(token, ledger_.id());
  }
}

void GuestSession::share(const Message& m) {
  core::Shares::Share share;
  share.exporter = ledger_.id();
  share.bytes = m.bytes;
  worker_protocol::ShareKey of;
  std::memcpy(static_cast<void*>(&of), m.text, sizeof of);
  std::copy(std::begin(of.handle), std::end(of.handle), share.handle.begin());
  const uint64_t most = core::Shares::most_bytes(services_.memory.limit(request_.vgpu_id));
  core::Shares::Token token{};
  bool made = m.bytes != 0 && m.bytes <= leased_bytes() && worker_->may_take_descriptors() &&
              ::getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size());
  if (made && !settings().nvidia()) {
    auto file = make_memfd("sluice-shared", m.bytes);
    made = file.ok();
    if (made) share.file = std::move(*file);
  }
  answer_share(m, Type::kShareReply, token,
               made ? request_.shares->add(token, std::move(share), most) : nullptr);
}

void GuestSession::answer_share(const Message& question, Type type,
                                const core::Shares::Token& token,
                                const core::Shares::Share* share) {
  Message reply{};
  reply.type = type;
  reply.request = question.request;
  reply.code = share ? 0 : type == Type::kShareReply ? ENOMEM : ENOENT;
  worker_protocol::ShareKey of;
  std::copy(token.begin(), token.end(), of.token);
  std::vector<int> fds;
  if (share) {
    reply.bytes = share->bytes;
    std::copy(share->handle.begin(), share->handle.end(), of.handle);
    if (share->file) fds.push_back(share->file.get());
  }
  std::memcpy(reply.text, &of, sizeof of);
  if (auto sent = worker_->send(reply, fds); !sent)
    end(kCudaErrorUnknown, "its worker does not read its answers: " + sent.error().message, true);
}

// In order.
void GuestSession::give_leave() {
  while (state_ != State::kEnding && !leave_requests_.empty()) {
    if (const uint64_t wait_ns = owner_.stall_wait_ns(); wait_ns != 0) {
      // Other sessions of the vGPU may be first, and neighbours may go.
      leave_timer_.after_ms(std::min<uint64_t>(wait_ns / 1'000'000 + 1, kLeaveLookMs),
                            [this] { give_leave(); });
      return;
    }
    const Message m = leave_requests_.front();
    leave_requests_.pop_front();
    owner_.on_session_stalls(m.code == worker_protocol::kModuleLoads
                                 ? settings().stalls.module_ns
                                 : settings().stalls.context_ns);
    answer(m, Type::kLeaseReply, 0, {0, 1});
  }
}

// In order. What a program has just given back is handed out again once it is punched out.
void GuestSession::grant_extents() {
  while (state_ != State::kEnding && !extent_requests_.empty()) {
    const Message m = extent_requests_.front();
    auto range = slot_.channel().allocate(slot_.number(), m.bytes);
    if (!range && slot_.channel().scrubbing()) return;
    extent_requests_.pop_front();
    answer(m, Type::kExtentReply, range ? 0 : ENOMEM, range ? *range : ExtentRange{});
  }
}

void GuestSession::on_ready(const Message& m) {
  if (state_ == State::kEnding) return;
  if (state_ != State::kStarting) return on_worker_bad("it said twice that it is ready");
  if (m.code != 0) {
    const std::string text = clean_text(m.text, sizeof m.text);
    log::warning("vgpu {}: slot {}: the worker cannot serve '{}': {} (code {})", request_.vgpu,
                 slot_.number(), request_.program, text, m.code);
    return end(m.code, text.empty() ? "the worker could not start" : text);
  }
  auto id = executor().add_session(
      request_.vgpu_id, pages_.stubs(), pages_.gate_fd(), pages_.ring_fd(), worker_->pid(),
      [this](core::EndReason reason) {
        if (reason != core::EndReason::kGenerationsSpent &&
            reason != core::EndReason::kPassedDescriptors) {
          offences_.on_forced_end();
          owner_.on_session_offence(
              *this, core::Offence::kDidNotLeave,
              executor().overstay_ns(scheduler_id_.value_or(core::kNoSession), reason), false);
        }
        end(kCudaErrorLaunchTimeout, "ended by the host: " + std::string(core::to_string(reason)),
            true);
      },
      [this](uint64_t slice_ns) {
        Message slice{};
        slice.type = worker_protocol::Type::kTimeSlice;
        slice.bytes = slice_ns;
        if (auto sent = worker_->send(slice); !sent)
          log::warning("vgpu {}: slot {}: its worker does not get its time slice: {}",
                       request_.vgpu, slot_.number(), sent.error().message);
      },
      [this] { worker_->ask_starved(); });
  if (!id) return end(kCudaErrorUnknown, id.error().message);
  scheduler_id_ = *id;
  pages_.worker_has_them();
  executor().watch_errors(*id, [this](uint64_t guest_error) { on_error(guest_error); });
  deadline_.cancel();
  if (state_ == State::kEnding) return;  // the scheduler's first look can end it
  state_ = State::kOpen;
  was_open_ = true;
  slot_.open();
  log::info("vgpu {}: slot {}: '{}' is on (worker {})", request_.vgpu, slot_.number(),
            request_.program, worker_->pid());
  owner_.on_session_open(*this);
}

void GuestSession::answer(const Message& question, Type type, int code, ExtentRange range) {
  Message reply{};
  reply.type = type;
  reply.code = code;
  reply.request = question.request;
  reply.offset = range.offset;
  reply.bytes = range.bytes;
  if (auto sent = worker_->send(reply); !sent)
    end(kCudaErrorUnknown, "its worker does not read its answers: " + sent.error().message, true);
}

void GuestSession::on_worker_bad(const std::string& why) {
  log::warning("vgpu {}: slot {}: worker {} is killed: {}", request_.vgpu, slot_.number(),
               worker_->pid(), why);
  offences_.on_broken_protocol();
  end(kCudaErrorUnknown, "its worker broke the protocol: " + why, true);
}

// An honest worker hangs up by its exit: to that its end by force adds nothing, and how it exits
// stays. Any other would run on, and nobody could tell it to leave the GPU.
void GuestSession::on_worker_hangup() {
  state_ = State::kEnding;
  if (scheduler_id_) executor().mark_ending(*scheduler_id_);
  deadline_.cancel();
  worker_->kill();
}

void GuestSession::on_worker_exit(const io::WorkerExit& exit) {
  const bool own_death = exit.signaled && !end_.is_set();
  end_.set(kCudaErrorUnknown, "its worker " + exit.text());
  if (exit.start_error.code) end_.set_status(exit.start_error.code);
  if (end_.error() != 0 || exit.signaled)
    log::warning("vgpu {}: slot {}: '{}' is over: {} (error {}; worker {} {})", request_.vgpu,
                 slot_.number(), request_.program, end_.reason(), end_.error(), worker_->pid(),
                 exit.text());
  else
    log::info("vgpu {}: slot {}: '{}' is over: {}", request_.vgpu, slot_.number(), request_.program,
              end_.reason());
  settle_offences(own_death);
  release();
  owner_.on_session_over(*this);  // destroys this
}

void GuestSession::release() {
  deadline_.cancel();
  leave_timer_.cancel();
  if (scheduler_id_) executor().remove_session(*scheduler_id_);
  scheduler_id_.reset();
  pages_.close(*request_.peers);
  ledger_.end();
  slot_.end(end_.error(), end_.reason());
}

}  // namespace sluice
