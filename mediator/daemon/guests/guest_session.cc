// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/guest_session.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
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

// "Unavailable", where its vGPU has used up what its faults may cost others.
constexpr int kCudaErrorDeviceUnavailable = 46;
// As kCudaErrorUnknown, where a session did not leave the GPU: "launch timeout", as a watchdog's
// victim gets from NVIDIA's driver.
constexpr int kCudaErrorLaunchTimeout = 702;

// How often a session that waits for leave checks again.
constexpr uint64_t kLeaveLookMs = 1000;

}  // namespace

std::optional<uint64_t> StallCosts::of_xid(int number) const {
  switch (number) {
    case 31:
      return fault_ns;  // an address that is not mapped
    case 13:
      return exception_ns;  // an exception of an SM
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> StallCosts::of(uint64_t cuda_error) const {
  switch (cuda_error) {
    case 700:
      return fault_ns;  // illegal address
    case 710:
      return 0;  // assert
    case 714:    // stack
    case 715:    // illegal instruction
    case 716:    // misaligned address
    case 717:    // address space
    case 718:    // program counter
    case 719:    // launch failed: a trap, or an address beyond shared memory
      return exception_ns;
    default:
      return std::nullopt;
  }
}

uint32_t DenseIds::take() {
  size_t id = 0;
  while (id < taken_.size() && taken_[id]) ++id;
  if (id == taken_.size()) taken_.push_back(false);
  taken_[id] = true;
  return static_cast<uint32_t>(id);
}

GuestSession::GuestSession(SessionServices& services, Request request, Owner& owner)
    : services_(services),
      executor_(services.executor),
      settings_(services.settings),
      request_(std::move(request)),
      owner_(owner),
      started_ns_(monotonic_ns()),
      ledger_id_(services.ids.take()),
      deadline_(services.io),
      leave_timer_(services.io) {
  services_.memory.add_session(request_.vgpu_id, ledger_id_);
  services_.host_memory.add_session(request_.vgpu_id, ledger_id_);
}

GuestSession::~GuestSession() {
  worker_.reset();  // kills and reaps a worker that still runs: only when the daemon itself ends
  if (spins_) --services_.spinners;
  release();
}

Result<std::unique_ptr<GuestSession>> GuestSession::start(SessionServices& services,
                                                          Request request, Owner& owner) {
  std::unique_ptr<GuestSession> s(new GuestSession(services, std::move(request), owner));
  if (auto prepared = s->prepare(); !prepared) return prepared.error();
  return s;
}

Result<void> GuestSession::prepare() {
  if (!settings_.mps_pipes.empty())
    if (std::string why = mps_missing(settings_.mps_pipes); !why.empty())
      return Error{ENODEV, std::move(why)};
  auto staging = take_slot();
  if (!staging) return staging.error();
  if (auto made = make_wake_ups(); !made) return made;
  take_spin_seat();
  io::WorkerSpec spec;
  spec.start = start_message(*staging);
  spec.fds = worker_fds();
  spec.peers = request_.peers;
  spec.loop_time = request_.loop_time;
  spec.vgpu = request_.machine_code;
  auto soft_gpu = io::open_soft_gpu(settings_.soft_gpu_file);
  if (!soft_gpu) return soft_gpu.error();
  spec.soft_gpu = std::move(*soft_gpu);
  auto worker = io::WorkerProcess::spawn(services_.io, *services_.spawner, std::move(spec), *this);
  if (!worker) return worker.error();
  worker_ = std::move(*worker);
  end_error_.reset();
  deadline_.after_ms(settings_.worker_start_ms, [this] {
    end(kCudaErrorUnknown,
        "its worker did not start within " + std::to_string(settings_.worker_start_ms) + " ms",
        true);
  });
  return {};
}

// A slot of the channel with its staging buffer.
Result<ExtentRange> GuestSession::take_slot() {
  Channel& channel = *request_.channel;
  auto slot = channel.take_slot();
  if (!slot)
    return Error{
        EBUSY, "all " + std::to_string(channel.geometry().slots) + " slots of the vGPU are in use"};
  slot_ = *slot;
  has_slot_ = true;
  end_error_ = kCudaErrorUnknown;  // until the worker runs, failing is what ends it
  auto staging = channel.allocate(slot_, settings_.staging_bytes);
  if (!staging) return staging.error();
  auto epoch = channel.prepare_slot(slot_, *staging);
  if (!epoch) return epoch.error();
  epoch_ = *epoch;
  return *staging;
}

// The pages that sluiced and the worker share, and all by which the one wakes the other.
Result<void> GuestSession::make_wake_ups() {
  auto pages = io::StubPages::make();
  if (!pages) return pages.error();
  pages_ = std::move(*pages);
  // A heartbeat from the start: a worker that checks before the next beat must not find it stale.
  pages_->beat(monotonic_ns());

  bell_ = request_.channel->host_bell(slot_ + 1);
  wake_ = request_.channel->guest_bell(slot_ + 1);
  for (WakePair* pair : {&gate_, &ring_}) {
    auto made = make_wake_pair();
    if (!made) return made.error();
    *pair = std::move(*made);
  }
  return {};
}

// A worker with a seat may spin for long; seats are given back by the destructor.
void GuestSession::take_spin_seat() {
  spins_ = services_.spinners < settings_.spin_processors;
  if (spins_) ++services_.spinners;
}

worker_protocol::Start GuestSession::start_message(const ExtentRange& staging) const {
  worker_protocol::Start start;
  start.slot = slot_;
  start.epoch = epoch_;
  start.region_bytes = request_.channel->geometry().region_bytes;
  start.staging_offset = staging.offset;
  start.staging_bytes = staging.bytes;
  start.memory_limit_bytes = services_.memory.limit(request_.vgpu_id);
  start.host_memory_bytes = services_.host_memory.limit(request_.vgpu_id);
  start.context_bytes = settings_.context_bytes;
  start.nvidia = settings_.nvidia;
  start.chunk_target_us = settings_.chunk_target_us;
  start.signal = settings_.signal;
  start.fixed_chunk = settings_.signal_chunk;
  start.admission_us = settings_.admission_us;
  start.window_us = settings_.window_us;
  start.paced = (settings_.context_stall_ns ? worker_protocol::kPacedContexts : 0) |
                (settings_.module_stall_ns ? worker_protocol::kPacedModules : 0);
  start.spatial_sms = settings_.spatial_sms;
  if (spins_) start.spin_us = settings_.spin_us;
  start.turns_by_priority = settings_.turns_by_priority;
  start.time_slices = settings_.time_slices;
  start.turn_whole_us = settings_.turn_whole_us;
  start.green_contexts = settings_.green_contexts;
  copy_text(start.library, sizeof start.library, settings_.library);
  copy_text(start.soft_gpu_file, sizeof start.soft_gpu_file, settings_.soft_gpu_file);
  copy_text(start.vgpu, sizeof start.vgpu, request_.vgpu);
  return start;
}

std::vector<int> GuestSession::worker_fds() const {
  using enum worker_protocol::StartFd;
  std::vector<int> fds(kStartFdCount);
  fds[kRegionFd] = request_.channel->region_fd();
  fds[kBellFd] = bell_;
  fds[kWakeFd] = wake_;
  fds[kHostFd] = pages_->host_fd();
  fds[kSignalFd] = pages_->signal_fd();
  fds[kReportFd] = pages_->report_fd();
  fds[kRecordsFd] = pages_->records_fd();
  fds[kGateFd] = gate_.theirs.get();
  fds[kRingFd] = ring_.theirs.get();
  return fds;
}

void GuestSession::end(int cuda_error, const std::string& reason, bool now) {
  if (!end_error_) {
    end_error_ = cuda_error;
    end_reason_ = reason;
  }
  const bool first = state_ != State::kEnding;
  state_ = State::kEnding;
  if (scheduler_id_) executor_.mark_ending(*scheduler_id_);
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
    deadline_.after_ms(settings_.session_end_ms, [this] {
      log::warning("vgpu {}: slot {}: worker {} did not end in time; killed", request_.vgpu, slot_,
                   worker_->pid());
      worker_->kill();
    });
  }
}

void GuestSession::expel(const std::string& reason) {
  expelled_ = true;
  end(kCudaErrorDeviceUnavailable, reason, true);
}

std::array<uint64_t, kChargeKinds> GuestSession::leased_by_kind() const {
  std::array<uint64_t, kChargeKinds> kinds{};
  uint64_t left = leased_bytes();
  for (size_t i = 0; pages_ && i < kinds.size(); ++i) {
    kinds[i] = std::min(left, __atomic_load_n(&pages_->report().memory[i], __ATOMIC_RELAXED));
    left -= kinds[i];
  }
  return kinds;
}

// ---- what it costs others ----

// Where a source shows how long the GPU stood still for this worker, that counts; else what its
// error usually costs.
void GuestSession::note_fault(uint64_t stall_ns) {
  if (fault_reported_ && stall_ns <= stall_reported_ns_) return;
  const bool more = std::exchange(fault_reported_, true);
  const uint64_t before = std::exchange(stall_reported_ns_, stall_ns);
  executor_.charge_stall(request_.vgpu_id, stall_ns - before);
  owner_.on_session_offence(*this, core::Offence::kFault, stall_ns - before, more);
}

// Its worker reports a sticky error while the session goes on.
void GuestSession::on_error(uint64_t guest_error) {
  const auto usual = settings_.stalls.of(guest_error);
  if (usual && settings_.faults_are_shared()) {
    log::warning(
        "vgpu {}: slot {}: '{}' has CUDA error {}: a kernel has faulted, its own or that "
        "of another client of the MPS server",
        request_.vgpu, slot_, request_.program, guest_error);
    return;
  }
  if (usual) note_fault(executor_.fault_stall_ns(worker_->pid(), started_ns_).value_or(*usual));
}

// It cannot hide that. Its error, if it reports one, counts for no more than this does.
void GuestSession::on_worker_xid(int number) {
  const auto usual = settings_.stalls.of_xid(number);
  if (usual && settings_.faults_are_shared() &&
      services_.neighbours.may_be_hit(request_.vgpu_id, monotonic_ns())) {
    log::warning(
        "vgpu {}: slot {}: '{}' has faulted (Xid {}) as another client of the MPS server was ended "
        "whose work did not leave the GPU; it is not charged for that",
        request_.vgpu, slot_, request_.program, number);
    return;
  }
  if (usual) note_fault(executor_.fault_stall_ns(worker_->pid(), started_ns_).value_or(*usual));
}

bool GuestSession::sees_xids() const { return services_.spawner->sees_xids(); }

// The worker is gone: whatever it did, it has done.
void GuestSession::settle_offences(bool died_of_signal) {
  if (!pages_ || !worker_) return;
  const sluice_report_header& h = pages_->report();
  const auto error = static_cast<uint64_t>(end_error_.value_or(0));
  const bool shared = settings_.faults_are_shared();
  std::optional<uint64_t> usual;
  if (!shared) usual = settings_.stalls.of(__atomic_load_n(&h.error, __ATOMIC_RELAXED));
  if (!shared && !usual && !force_reported_ && !expelled_) usual = settings_.stalls.of(error);
  const auto measured = executor_.fault_stall_ns(worker_->pid(), started_ns_);
  if (usual || measured.value_or(0) > 0) return note_fault(measured.value_or(usual.value_or(0)));
  if (force_reported_ || expelled_) return;
  // Nobody has seen how what was on the GPU ended, and nothing measures it: it may have faulted.
  const bool unseen =
      !shared && !measured && !sees_xids() && __atomic_load_n(&h.in_flight, __ATOMIC_SEQ_CST) > 0;
  if (unseen || died_of_signal || broke_protocol_)
    owner_.on_session_offence(*this, core::Offence::kForcedEnd,
                              unseen ? settings_.stalls.worst_ns() : 0, false);
}

core::QuotaLedger* GuestSession::ledger_of(int32_t resource) {
  switch (resource) {
    case worker_protocol::kDeviceMemory:
      return &services_.memory;
    case worker_protocol::kHostMemory:
      return &services_.host_memory;
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
        if (leave_requests_.size() >= limits::kMaxWaitingExtentRequests)
          return answer(m, Type::kLeaseReply, ENOMEM);
        leave_requests_.push_back(m);
        return give_leave();
      }
      core::QuotaLedger* ledger = ledger_of(m.code);
      if (!ledger) return on_worker_bad("asked for a resource that there is not");
      auto leased = ledger->lease(ledger_id_, m.bytes);
      if (!leased) log::debug("vgpu {}: slot {}: {}", request_.vgpu, slot_, leased.error().message);
      return answer(m, Type::kLeaseReply, leased ? 0 : ENOMEM, {0, leased ? m.bytes : 0});
    }
    case Type::kLeaseReturn:
      if (core::QuotaLedger* ledger = ledger_of(m.code); !ledger)
        on_worker_bad("gave back a resource that there is not");
      else if (auto given = ledger->give_back(ledger_id_, m.bytes); !given)
        on_worker_bad(given.error().message);
      return;
    case Type::kExtentRequest:
      if (extent_requests_.size() >= limits::kMaxWaitingExtentRequests)
        return answer(m, Type::kExtentReply, ENOMEM);
      extent_requests_.push_back(m);
      return look_for_extents();
    case Type::kExtentReturn:
      if (auto given = request_.channel->give_back(slot_, m.offset, m.bytes); !given)
        return on_worker_bad("it " + given.error().message);
      return;
    case Type::kShareRequest:
    case Type::kShareEnd:
    case Type::kOpenRequest:
    case Type::kOpenEnd:
      return on_sharing(m);
    case Type::kEnded: {
      std::string text = clean_text(m.text, sizeof m.text);
      if (!end_error_) {
        end_error_ = m.code;
        end_reason_ = std::move(text);
      }
      if (state_ != State::kEnding) {
        state_ = State::kEnding;
        if (scheduler_id_) executor_.mark_ending(*scheduler_id_);
        deadline_.after_ms(settings_.session_end_ms, [this] { worker_->kill(); });
      }
      return;
    }
    default:
      return;  // WorkerProcess lets nothing else through
  }
}

// Its memory, or another session's, in several programs.
void GuestSession::on_sharing(const Message& m) {
  worker_protocol::SharedMemory of;
  std::memcpy(static_cast<void*>(&of), m.text, sizeof of);
  core::Shares::Token token;
  std::copy(std::begin(of.token), std::end(of.token), token.begin());
  switch (m.type) {
    case Type::kShareRequest:
      return share(m);
    case Type::kShareEnd:
      if (auto given = request_.shares->give_up(token, ledger_id_, m.bytes); !given)
        on_worker_bad(given.error().message);
      return;
    case Type::kOpenRequest:
      return answer_share(m, Type::kOpenReply, token, request_.shares->open(token, ledger_id_));
    default:
      return request_.shares->close(token, ledger_id_);
  }
}

void GuestSession::share(const Message& m) {
  core::Shares::Share share;
  share.exporter = ledger_id_;
  share.bytes = m.bytes;
  worker_protocol::SharedMemory of;
  std::memcpy(static_cast<void*>(&of), m.text, sizeof of);
  std::copy(std::begin(of.handle), std::end(of.handle), share.handle.begin());
  core::Shares::Token token{};
  bool made = m.bytes != 0 && m.bytes <= leased_bytes() &&
              ::getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size());
  if (made && !settings_.nvidia) {
    auto file = make_memfd("sluice-shared", m.bytes);
    made = file.ok();
    if (made) share.file = std::move(*file);
  }
  answer_share(m, Type::kShareReply, token,
               made ? request_.shares->add(token, std::move(share)) : nullptr);
}

void GuestSession::answer_share(const Message& question, Type type,
                                const core::Shares::Token& token,
                                const core::Shares::Share* share) {
  Message reply{};
  reply.type = type;
  reply.request = question.request;
  reply.code = share ? 0 : type == Type::kShareReply ? ENOMEM : ENOENT;
  worker_protocol::SharedMemory of;
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
    owner_.on_session_stalls(m.code == worker_protocol::kModuleLoads ? settings_.module_stall_ns
                                                                     : settings_.context_stall_ns);
    answer(m, Type::kLeaseReply, 0, {0, 1});
  }
}

// In order. What a program has just given back is handed out again once it is punched out.
void GuestSession::look_for_extents() {
  while (state_ != State::kEnding && !extent_requests_.empty()) {
    const Message m = extent_requests_.front();
    auto range = request_.channel->allocate(slot_, m.bytes);
    if (!range && request_.channel->scrubbing()) return;
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
                 slot_, request_.program, text, m.code);
    return end(m.code, text.empty() ? "the worker could not start" : text);
  }
  auto id = executor_.add_session(
      request_.vgpu_id, *pages_, gate_.ours.get(), ring_.ours.get(), worker_->pid(),
      [this](core::EndReason reason) {
        if (reason != core::EndReason::kGenerationsSpent &&
            reason != core::EndReason::kPassedDescriptors) {
          force_reported_ = true;
          owner_.on_session_offence(*this, core::Offence::kDidNotLeave,
                                    executor_.evict_end_ns(request_.vgpu_id), false);
        }
        end(kCudaErrorLaunchTimeout, "ended by the host: " + std::string(core::to_string(reason)),
            true);
      },
      [this](uint64_t slice_ns) {
        Message slice{};
        slice.type = worker_protocol::Type::kTimeSlice;
        slice.bytes = slice_ns;
        if (auto sent = worker_->send(slice); !sent)
          log::warning("vgpu {} slot {}: its worker is not told its time slice: {}", request_.vgpu,
                       slot_, sent.error().message);
      });
  if (!id) return end(kCudaErrorUnknown, id.error().message);
  scheduler_id_ = *id;
  gate_.theirs.reset();  // the worker has them
  ring_.theirs.reset();
  executor_.watch_errors(*id, [this](uint64_t guest_error) { on_error(guest_error); });
  deadline_.cancel();
  if (state_ == State::kEnding) return;  // the scheduler's first look can end it
  state_ = State::kOpen;
  was_open_ = true;
  request_.channel->open_slot(slot_);
  log::info("vgpu {}: slot {}: '{}' is on (worker {})", request_.vgpu, slot_, request_.program,
            worker_->pid());
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
  log::warning("vgpu {}: slot {}: worker {} is killed: {}", request_.vgpu, slot_, worker_->pid(),
               why);
  broke_protocol_ = true;
  end(kCudaErrorUnknown, "its worker broke the protocol: " + why, true);
}

void GuestSession::on_worker_hangup() {
  // Its exit normally follows at once and says more.
  if (state_ == State::kEnding) return;
  state_ = State::kEnding;
  if (scheduler_id_) executor_.mark_ending(*scheduler_id_);
  deadline_.after_ms(settings_.session_end_ms, [this] { worker_->kill(); });
}

void GuestSession::on_worker_exit(const io::WorkerExit& exit) {
  const bool own_death = exit.signaled && !end_error_;
  if (!end_error_) {
    end_error_ = kCudaErrorUnknown;
    end_reason_ = "its worker " + exit.text();
  }
  if (exit.start_error.code) end_status_ = exit.start_error.code;
  if (*end_error_ != 0 || exit.signaled)
    log::warning("vgpu {}: slot {}: '{}' is over: {} (error {}; worker {} {})", request_.vgpu,
                 slot_, request_.program, end_reason_, *end_error_, worker_->pid(), exit.text());
  else
    log::info("vgpu {}: slot {}: '{}' is over: {}", request_.vgpu, slot_, request_.program,
              end_reason_);
  settle_offences(own_death);
  release();
  owner_.on_session_over(*this);  // destroys this
}

void GuestSession::release() {
  deadline_.cancel();
  leave_timer_.cancel();
  if (scheduler_id_) executor_.remove_session(*scheduler_id_);
  scheduler_id_.reset();
  for (WakePair* pair : {&gate_, &ring_}) request_.peers->close(std::move(pair->ours));
  if (has_ledger_id_) {
    request_.shares->session_ends(ledger_id_);
    services_.memory.remove_session(ledger_id_);
    services_.host_memory.remove_session(ledger_id_);
    services_.ids.give_back(ledger_id_);
    has_ledger_id_ = false;
  }
  if (!has_slot_) return;
  has_slot_ = false;
  request_.channel->end_slot(slot_, end_error_.value_or(0), end_reason_);
  // A program that sleeps finds the slot's state.
  request_.channel->guest_ringer(slot_ + 1).ring();
}

}  // namespace sluice
