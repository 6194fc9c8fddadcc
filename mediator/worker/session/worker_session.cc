// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/session/worker_session.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/ring/wait.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {
// A vGPU without a limit has what the device has.
uint64_t device_bytes(const wp::Start& start) {
  return start.memory_limit_bytes != 0 ? start.memory_limit_bytes
                                       : std::numeric_limits<uint64_t>::max();
}
}  // namespace

WorkerSession::WorkerSession(SessionSetup session_setup, Decoder::Decode decode)
    : setup(std::move(session_setup)),
      api(setup.api),
      slot(setup.slot(), setup.fds[wp::kWakeFd].get()),
      answers(RingProducer(complete_ring(setup.region, setup.start.slot),
                           Bell::for_eventfd(setup.fds[wp::kWakeFd].get())),
              std::move(setup.printed)),
      pinned(api, setup.signal, setup.records, setup.region),
      control(std::move(setup.control), setup.start, [this] { pollers.engine_thread.wake(); }),
      work(setup, answers),
      charges(*this, {mutex, control, handles, memory},
              {device_bytes(setup.start), setup.start.host_memory_bytes,
               (setup.start.paced & wp::kPacedModules) != 0, setup.limits.parked_calls}),
      decoder(*this, setup, decode),
      engine_thread(*this, setup) {
  wp::Start& start = setup.start;
  work.streams.confinement().make_green = [this](std::shared_ptr<ContextObject> c) {
    jobs.post([this, c] { make_green_context(c); });
  };
  static_assert(kChargeKinds == SLUICE_MEMORY_KINDS);
  control.device().show_in(setup.report->memory);
  setup.report->pid = start.host_pid ? start.host_pid : static_cast<uint32_t>(::getpid());
  start.memory_limit_bytes = device_bytes(start);
  if (start.staging_bytes != 0) memory.add_extent(start.staging_offset, start.staging_bytes);
}

void WorkerSession::run() {
  std::thread engine([this] { engine_thread.loop(); });
  std::thread job_thread([this] { job_loop(); });
  decoder.loop();
}

void WorkerSession::job_loop() {
  ::prctl(PR_SET_NAME, "sluice-jobs");
  uint32_t spin_us = setup.start.spin_us;
  Spinner spinner(Spinner::may_spin_for_long() ? spin_us : 0);
  uint64_t polled_ns = monotonic_ns();
  for (;;) {
    if (const uint32_t us = job_spin_us_.load(std::memory_order_relaxed); us != spin_us) {
      spin_us = us;
      if (Spinner::may_spin_for_long()) spinner.set_budget(us);
    }
    bool keeps = false;
    {
      std::lock_guard lock(mutex);
      keeps = !memory.freed.empty();
    }
    const auto patience = keeps ? std::chrono::nanoseconds(FreedMemory::kKeptNs)
                                : std::chrono::nanoseconds(std::chrono::hours(1));
    if (const auto job = jobs.take(spinner, patience)) (*job)();
    wake_decoder_if_stopped();
    if (const uint64_t now_ns = monotonic_ns(); now_ns - polled_ns >= FreedMemory::kKeptNs) {
      polled_ns = now_ns;
      if (keeps) release_old_memory(now_ns);
    }
  }
}

void WorkerSession::end(CUresult code, const std::string& reason, bool asked) {
  if (!slot.end(code, reason)) {
    for (;;) ::pause();  // another thread is ending the process
  }
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
  answers.send_output();
}

void WorkerSession::answer(const Call& call, CUresult status, std::span<const std::byte> body) {
  const bool replies = (call.flags & SLUICE_RECORD_NO_REPLY) == 0;
  if (answers.printed.started() && replies) send_printed(call);
  if (status == CUDA_ERROR_ASSERT) answers.send_assertions();
  if (replies)
    answers.replies.send(call.call_id, call.opcode, status, body);
  else if (status != CUDA_SUCCESS)
    answers.replies.send(0, call.opcode, status);
  if (const char* why = answers.replies.failure()) violation(why);
}

void WorkerSession::submit_work(const Call& call, const StreamObject& stream,
                                std::shared_ptr<StreamCall> operation, bool wait) {
  const uint64_t token =
      wait ? work.waiting.add([this, call](CUresult status) { answer(call, status); }) : 0;
  work.submit(stream, std::move(operation), token);
  after_engine();
  if (!wait) answer(call, CUDA_SUCCESS);
}

// A program that prints has its text before its wait ends. Each wait may put a word into the
// driver's queue, which must not fill up.
uint64_t WorkerSession::end_word() const {
  constexpr size_t kMostWaits = 8;
  if (answers.printed.started() || work.waiting.calls() >= kMostWaits ||
      !pinned.has_extent(setup.start.staging_offset))
    return 0;
  return decoder.end_word();
}

void WorkerSession::post_after_sync(const std::shared_ptr<ContextObject>& context,
                                    std::function<void()> job) {
  // Also after a fault: then nothing runs any more.
  work.when_done(*context,
                 [this, job = std::move(job)](CUresult) mutable { jobs.post(std::move(job)); });
}

void WorkerSession::post_after_sync_all(std::function<void()> job) {
  auto left = std::make_shared<uint32_t>(1);
  auto one_done = [this, left, job = std::move(job)](CUresult) {
    if (--*left == 0) jobs.post(job);
  };
  std::vector<std::shared_ptr<ContextObject>> open;
  handles.for_each(SLUICE_HANDLE_CONTEXT, [&](uint64_t, const auto& object) {
    open.push_back(std::static_pointer_cast<ContextObject>(object));
  });
  for (const auto& context : open) {
    ++*left;
    work.when_done(*context, one_done);
  }
  one_done(CUDA_SUCCESS);
}

void WorkerSession::after_engine() {
  const StreamEngine& engine = work.engine;
  if (engine.error() != CUDA_SUCCESS && sticky.load() == 0) on_fault(engine.error());
  work.publish_counters(*setup.report);
  // The decoder may not stop: what it would leave in the ring may be the host function's end. So
  // the program is asked to stop, well before the bound that ends the session.
  if (const auto holds = work.queued.follow_hold(queued_now())) slot.hold(*holds);
  work.follow();
  if (engine.in_flight())
    pollers.wake_from(work.longest_sleep_ns());
  else if (engine.held_by_gate())
    pollers.engine_thread.wake_from(kForeverNs - 1);
}

void WorkerSession::on_fault(CUresult error) {
  sticky.store(error);
  __atomic_store_n(&setup.report->error, static_cast<uint64_t>(error), __ATOMIC_RELAXED);
  log::warning("vgpu {} slot {}: {}", setup.start.vgpu, setup.start.slot, gpu::describe(error));
  signal_eventfd(setup.fds[wp::kRingFd].get());
  // What its other contexts have on the GPU would go on, and each may stop the GPU once more.
  if (contexts.open > 1)
    end(error, "a kernel of it failed (" + gpu::describe(error) + "); it had several contexts");
}

QueueBounds::Queued WorkerSession::queued_now() const {
  return {work.engine.queued(), work.engine.waits_for_program(), charges.held_is_refused()};
}

void WorkerSession::charge_held() {
  charges.charge_held(work.engine.queued(), work.queued.bytes.load());
}

// Refused: what is queued may be more than it may be now. The decoder checks that before the next
// record, but a program that is held sends none.
void WorkerSession::on_held_answered(bool granted) {
  if (granted) {
    charge_held();
    wake_decoder_if_stopped();
  } else {
    (void)work.queued.resume_decoder();
    pollers.decoder.wake();
  }
}

void WorkerSession::wake_decoder_if_stopped() {
  if (work.queued.resume_decoder()) pollers.decoder.wake();
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
