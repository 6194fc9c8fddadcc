// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/session/worker_session.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "abi/end_word.h"
#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/wait.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {
// Of copies within the device and fills their bytes; of all else 0.
uint64_t bulk_bytes(const Work& work) {
  if (const auto* m = dynamic_cast<const MemsetWork*>(&work))
    return m->args.width * m->args.element_bytes * m->args.height;
  if (const auto* c = dynamic_cast<const CopyWork*>(&work))
    return c->copy.srcMemoryType != CU_MEMORYTYPE_HOST &&
                   c->copy.dstMemoryType != CU_MEMORYTYPE_HOST
               ? c->copy.WidthInBytes * c->copy.Height
               : 0;
  if (const auto* b = dynamic_cast<const BoxWork*>(&work))
    return b->copy.srcMemoryType != CU_MEMORYTYPE_HOST &&
                   b->copy.dstMemoryType != CU_MEMORYTYPE_HOST
               ? b->copy.WidthInBytes * b->copy.Height * b->copy.Depth
               : 0;
  return 0;
}

LoopSettings loop_settings(const wp::Start& start) {
  LoopSettings s;
  s.target_us = start.chunk_target_us;
  s.fixed_chunk = static_cast<uint16_t>(start.fixed_chunk);
  s.admission_us = start.admission_us;
  s.window_us = start.window_us;
  // An eviction does not wait for windows there, so the next one is queued as soon as it can be.
  if (start.turns_by_priority != 0) s.window_lead_us = start.window_us;
  s.whole_us = start.turn_whole_us;
  if (start.nvidia == 0) s.leave_ps = kSoftwareLeavePs;
  return s;
}

EngineLimits engine_limits(const wp::Start& start) {
  EngineLimits l;
  if (start.turns_by_priority != 0)
    l.opaque_contended_ns = kTurnOpaqueNs, l.opaque_lead_ns = kTurnLeadNs;
  l.slices = start.time_slices != 0;
  return l;
}
}  // namespace

WorkerSession::WorkerSession(SessionSetup session_setup, SessionLimits session_limits,
                             Decode decode)
    : setup(std::move(session_setup)),
      limits(session_limits),
      api(setup.api),
      region(static_cast<uint8_t*>(setup.region)),
      replies(RingProducer(complete_ring(setup.region, setup.start.slot),
                           Bell::for_eventfd(setup.fds[wp::kWakeFd].get()))),
      printed(std::move(setup.printed)),
      pinned(api, setup.signal, setup.records, region),
      forwarder(api, setup.start.signal, setup.signal),
      control(std::move(setup.control), setup.start, [this] { engine_thread_sleeper_.wake(); }),
      gate(setup.host, setup.signal, setup.report, monotonic_ns(),
           [fd = setup.fds[wp::kRingFd].get()] { ring_wake(fd); }),
      streams(api, setup.start.signal == wp::Signal::kProxy, loop_settings(setup.start),
              setup.signal, setup.records,
              {[this](uint64_t token, CUresult status) { waiting.complete(token, status); },
               [this](uint64_t token) { waiting.complete(token, CUDA_SUCCESS); },
               [this](CUresult status) { replies.send(0, 0, status); }}),
      engine(streams, gate, engine_limits(setup.start)),
      decode_(decode),
      slot_(reinterpret_cast<sluice_slot_header*>(region + SLUICE_SLOT_OFFSET +
                                                  uint64_t{setup.start.slot} * SLUICE_SLOT_STRIDE)),
      submit_(submit_ring(setup.region, setup.start.slot),
              Bell::for_eventfd(setup.fds[wp::kWakeFd].get()), true, GiveBack::kLate) {
  wp::Start& start = setup.start;
  if (start.spatial_sms != 0) streams.planner().expect_parts();
  if (start.turns_by_priority != 0) streams.planner().expect_turns();
  if (start.time_slices != 0) streams.planner().expect_slices();
  streams.confinement().make_green = [this](std::shared_ptr<ContextObject> c) {
    jobs.post([this, c] { make_green_context(c); });
  };
  static_assert(kChargeKinds == SLUICE_MEMORY_KINDS);
  control.device().show_in(setup.report->memory);
  setup.report->pid = start.host_pid ? start.host_pid : static_cast<uint32_t>(::getpid());
  // A vGPU without a limit has what the device has.
  if (start.memory_limit_bytes == 0)
    start.memory_limit_bytes = std::numeric_limits<uint64_t>::max();
  if (start.staging_bytes != 0) memory.add_extent(start.staging_offset, start.staging_bytes);
}

void WorkerSession::run() {
  engine_thread_ = std::thread([this] { engine_loop(); });
  job_thread_ = std::thread([this] { job_loop(); });
  decoder_loop();
}

void WorkerSession::end(CUresult code, const std::string& reason, bool asked) {
  if (ended_.exchange(true)) {
    for (;;) ::pause();  // another thread is ending the process
  }
  std::memset(slot_->reason, 0, sizeof slot_->reason);
  std::memcpy(slot_->reason, reason.data(), std::min(reason.size(), sizeof slot_->reason - 1));
  __atomic_store_n(&slot_->error, static_cast<int32_t>(code), __ATOMIC_RELAXED);
  __atomic_store_n(&slot_->state, uint32_t{SLUICE_SLOT_ENDED}, __ATOMIC_RELEASE);
  signal_eventfd(setup.fds[wp::kWakeFd].get());
  if (!asked) {
    log::warning("session of vgpu {} slot {} ends: {}", setup.start.vgpu, setup.start.slot, reason);
    wp::Message m{};
    m.type = wp::Type::kEnded;
    m.code = code;
    std::memcpy(m.text, reason.data(), std::min(reason.size(), sizeof m.text - 1));
    control.send(m);
  }
  // Contexts, memory and running kernels go with the process: the driver frees them in its own
  // order, also when a kernel never returns.
  ::_exit(0);
}

// Before each answer, of whatever call, so that no call that CUDA prints at is forgotten.
void WorkerSession::send_printed(const Call& call) {
  // NVIDIA's driver prints when it is asked to wait for something; this stream has nothing in it.
  // These two answer with the session's lock held.
  const bool waited = call.opcode == SLUICE_CALL_SYNCHRONIZE || call.opcode == SLUICE_CALL_COPY;
  if (setup.start.nvidia != 0 && waited && call.context && !call.context->closed &&
      sticky.load() == 0 && make_current(api, call.context->cu) == CUDA_SUCCESS)
    (void)api.cuStreamSynchronize(call.context->transfers);
  std::lock_guard lock(printed_mutex_);
  send_text(printed.take(), SLUICE_PRINTED_OUTPUT);
}

void WorkerSession::send_text(const std::string& text, sluice_printed_to to) {
  for (size_t at = 0; at < text.size(); at += SLUICE_PRINTED_MAX_BYTES) {
    std::byte piece[sizeof(sluice_printed) + SLUICE_PRINTED_MAX_BYTES];
    const sluice_printed header{
        static_cast<uint32_t>(std::min<size_t>(text.size() - at, SLUICE_PRINTED_MAX_BYTES)),
        static_cast<uint32_t>(to)};
    std::memcpy(piece, &header, sizeof header);
    std::memcpy(piece + sizeof header, text.data() + at, header.bytes);
    replies.send(0, SLUICE_CALL_PRINTED, CUDA_SUCCESS,
                 std::span(piece).first(sizeof header + header.bytes));
  }
}

void WorkerSession::answer(const Call& call, CUresult status, std::span<const std::byte> body) {
  if (printed.started() && (call.flags & SLUICE_RECORD_NO_REPLY) == 0) send_printed(call);
  if (status == CUDA_ERROR_ASSERT) {
    std::lock_guard lock(printed_mutex_);
    send_text(printed.take_assertions(), SLUICE_PRINTED_ERROR);
  }
  if (call.flags & SLUICE_RECORD_NO_REPLY) {
    if (status != CUDA_SUCCESS) replies.send(0, call.opcode, status);
  } else {
    replies.send(call.call_id, call.opcode, status, body);
  }
  if (const char* why = replies.failure()) violation(why);
}

void WorkerSession::submit_work(const Call& call, const StreamObject& stream,
                                std::shared_ptr<Work> work, bool wait) {
  const uint64_t token =
      wait ? waiting.add([this, call](CUresult status) { answer(call, status); }) : 0;
  const uint64_t now = monotonic_ns(), bytes = bulk_bytes(*work);
  const OpKind kind = bytes == 0 || free_bulk.take(now, bytes) ? OpKind::kWork : OpKind::kBulk;
  engine.submit(stream.id, kind, std::move(work), token, now);
  after_engine();
  if (!wait) answer(call, CUDA_SUCCESS);
}

// Of two that share a place one may have no clones for ever: then the other has its turn.
void WorkerSession::want_clones(uint64_t function) {
  constexpr uint32_t kTurn = 8;
  uint64_t& place = slot_->wanted_clones[function % SLUICE_WANTED_CLONES];
  const uint64_t there = load_shared(place);
  if (there != function && (there == 0 || ++wants_ % kTurn == 0)) store_shared(place, function);
}

// A program that prints has its text before its wait ends. Each wait may put a word into the
// driver's queue, which must not fill up.
uint64_t WorkerSession::end_word() const {
  constexpr size_t kMostWaits = 8;
  const wp::Start& start = setup.start;
  if (printed.started() || waiting.calls() >= kMostWaits ||
      !pinned.has_extent(start.staging_offset))
    return 0;
  const uint64_t at = sluice_end_word_offset(start.staging_offset, start.staging_bytes);
  return at != 0 ? reinterpret_cast<uint64_t>(region + at) : 0;
}

void WorkerSession::post_after_sync(const std::shared_ptr<ContextObject>& context,
                                    std::function<void()> job) {
  // Also after a fault: then nothing runs any more.
  const uint64_t token =
      waiting.add([this, job = std::move(job)](CUresult) mutable { jobs.post(std::move(job)); });
  engine.notify_context(context->id, token, monotonic_ns());
}

void WorkerSession::post_after_sync_all(std::function<void()> job) {
  auto left = std::make_shared<uint32_t>(1);
  auto one_done = [this, left, job = std::move(job)](CUresult) {
    if (--*left == 0) jobs.post(job);
  };
  std::vector<ContextId> ids;
  handles.for_each(SLUICE_HANDLE_CONTEXT, [&](uint64_t, const auto& object) {
    ids.push_back(static_cast<ContextObject&>(*object).id);
  });
  for (ContextId id : ids) {
    ++*left;
    engine.notify_context(id, waiting.add(one_done), monotonic_ns());
  }
  one_done(CUDA_SUCCESS);
}

std::shared_ptr<StreamObject> WorkerSession::find_stream(const Call& call, uint64_t guest_stream,
                                                         CUresult* error) const {
  *error = CUDA_SUCCESS;
  if (guest_stream <= 2) {
    if (!call.context || call.context->closed) {
      *error = CUDA_ERROR_INVALID_CONTEXT;
      return nullptr;
    }
    if (!call.green) return guest_stream == 2 ? call.context->per_thread : call.context->legacy;
    if (guest_stream != 2 && call.green->default_stream) return call.green->default_stream;
    *error = CUDA_ERROR_INVALID_HANDLE;
    return nullptr;
  }
  auto stream = handles.find<StreamObject>(SLUICE_HANDLE_STREAM, guest_stream);
  if (!stream) *error = CUDA_ERROR_INVALID_HANDLE;
  return stream;
}

}  // namespace sluice::worker
