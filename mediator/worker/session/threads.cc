// The session's three threads: who waits for what, for how long, and who looks for ends of
// launches.
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"
#include "mediator/ring/wait.h"
#include "mediator/worker/limits.h"
#include "mediator/worker/session/session.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {
constexpr uint64_t kForever = std::numeric_limits<uint64_t>::max();
// How often completions are looked for: soon after something happened, then ever less.
constexpr uint64_t kPaceNs =
    2'000;  // a launch's next window follows within some microseconds (launch/windows.cc)
constexpr uint64_t kPollFirstNs = 5'000;
constexpr uint64_t kPollWaitedNs = 50'000;  // while somebody waits, or sluiced wants the GPU back
constexpr uint64_t kPollNs = 200'000;
// While the gate is closed only to see whether sluiced still lives.
constexpr uint64_t kPollGateNs = 250'000'000;
// Without sluiced: how often it is looked whether the program still asks for anything.
constexpr uint64_t kOrphanLookNs = 500'000'000;
// Records decoded in a row before ends of launches are looked for, and looks for a record between
// two looks for ends: an event query costs some 0.1 us, on a real GPU up to 1 us.
constexpr uint32_t kRecordsPerLook = 16;
constexpr uint32_t kLooksPerDrive = 8;
// With more queued than this, the end of what somebody waits for is not near, and naps keep the
// driver's queue filled: a thread that looks on would only take the software GPU's processor.
constexpr size_t kNearOperations = 8;
// What the shortest nap and waking for it add on a virtual machine, where a timer is slow.
constexpr uint64_t kNapCostNs = 80'000;

void sleep_on(pollfd* fds, nfds_t n, uint64_t ns) {
  timespec ts{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::ppoll(fds, n, ns == kForever ? nullptr : &ts, nullptr);
}
}  // namespace

void Session::decoder_loop() {
  // A nap's length is given to the microsecond; the default slack would add 50.
  ::prctl(PR_SET_TIMERSLACK, 1000);
  RecordBuffer record;
  Spinner records, ends;
  for (uint32_t n = 1;; ++n) {
    if (const char* why = replies_.failure()) violation(why);
    if (decoder_must_wait()) {
      set_decoder(false, kForever);
      pollfd fds[] = {{decoder_wake_.get(), POLLIN, 0}};
      sleep_on(fds, 1, kForever);
      drain_eventfd(decoder_wake_.get());
      set_decoder(true, 0);
      continue;
    }
    switch (submit_.pop(record)) {
      case Pop::kRecord:
        records_.store(records_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
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
        const uint64_t slept_ns = decoder_sleep();
        records.slept(slept_ns);
        ends.found_after(slept_ns - std::min(slept_ns, kNapCostNs));
        replies_.disarm();
        submit_.disarm();
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

uint64_t Session::decoder_sleep() {
  pollfd fds[] = {{p_.fds[wp::kBellFd].get(), POLLIN, 0}, {decoder_wake_.get(), POLLIN, 0}};
  const uint64_t from = monotonic_ns();
  uint64_t nap_ns = 0;
  bool got_on = true;
  while ((fds[0].revents | fds[1].revents) == 0) {
    if (in_flight_.load(std::memory_order_relaxed)) {
      {
        std::lock_guard lock(mutex_);
        nap_ns = next_nap(nap_ns, got_on);
      }
      set_decoder(true, nap_ns);
      sleep_on(fds, 2, nap_ns);
      set_decoder(true, 0);
      got_on = drive_engine();
    } else {
      set_decoder(false, kForever);
      sleep_on(fds, 2, kForever);
      set_decoder(true, 0);
      break;
    }
  }
  const uint64_t slept_ns = monotonic_ns() - from;
  drain_eventfd(fds[0].fd);
  drain_eventfd(fds[1].fd);
  return slept_ns;
}

void Session::set_decoder(bool drives, uint64_t sleep_ns) {
  std::lock_guard lock(mutex_);
  decoder_drives_ = drives;
  decoder_sleep_ns_ = sleep_ns;
  decoder_kicked_ = false;
  if (sleep_ns != 0) after_engine();
}

uint64_t Session::next_nap(uint64_t nap_ns, bool got_on) const {
  if (engine_.pacing()) return kPaceNs;
  const bool urgent = !parked_.empty() || !gate_.open(monotonic_ns()) || gate_.calling_back();
  if (got_on) return urgent ? kPollFirstNs : kPollWaitedNs;
  return std::min(nap_ns * 2, urgent ? kPollWaitedNs : kPollNs);
}

// Whether the guest has queued as much as it may. Its records then stay in its ring.
bool Session::decoder_must_wait() {
  {
    std::lock_guard lock(mutex_);
    const size_t queued = engine_.queued();
    if (queued >= limits_.hard_operations || parked_.size() >= limits_.parked_calls ||
        queued_bytes_ >= kMostParameterBytes)
      violation("too many operations and calls wait");
    // What a host function waits for may stand behind these records: then they have to be read.
    if ((queued >= limits_.queued_operations || queued_bytes_ >= kQueuedParameterBytes) &&
        !engine_.waits_for_program()) {
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
  if (decoder_waits_.exchange(false)) signal_eventfd(decoder_wake_.get());
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
    __atomic_store_n(&p_.report->error, static_cast<uint64_t>(engine_.error()), __ATOMIC_RELAXED);
    log::warning("vgpu {} slot {}: {}", p_.start.vgpu, p_.start.slot,
                 gpu::describe(engine_.error()));
    signal_eventfd(p_.fds[wp::kRingFd].get());
    // What its other contexts have on the GPU would go on, and each may stop the GPU once more.
    if (contexts_open_ > 1)
      end(engine_.error(), "a kernel of it failed (" + gpu::describe(engine_.error()) +
                               "); it had several contexts");
  }
  const auto& c = engine_.counters();
  sluice_report_header& h = *p_.report;
  __atomic_store_n(&h.launches, c.launches, __ATOMIC_RELAXED);
  __atomic_store_n(&h.launches_done, c.launches_done, __ATOMIC_RELAXED);
  __atomic_store_n(&h.evictions, c.evictions, __ATOMIC_RELAXED);
  __atomic_store_n(&h.relaunches, c.relaunches, __ATOMIC_RELAXED);
  __atomic_store_n(&h.opaque_launches, c.opaque, __ATOMIC_RELAXED);
  __atomic_store_n(&h.narrowed, c.narrowed, __ATOMIC_RELAXED);
  __atomic_store_n(&h.grown, c.grown, __ATOMIC_RELAXED);
  __atomic_store_n(&h.green_launches, streams_.green.launches, __ATOMIC_RELAXED);
  __atomic_store_n(&h.green_contexts, streams_.green.made, __ATOMIC_RELAXED);
  __atomic_store_n(&h.part_launches, streams_.green.parts, __ATOMIC_RELAXED);

  in_flight_.store(engine_.in_flight(), std::memory_order_relaxed);
  end_is_near_.store(engine_.in_flight() && !parked_.empty() && engine_.queued() <= kNearOperations,
                     std::memory_order_relaxed);
  if (engine_.in_flight()) {
    const uint64_t longest = engine_.pacing()  ? kPaceNs
                             : parked_.empty() ? kPollGateNs - 1
                                               : kPollWaitedNs;
    if (decoder_drives_ && decoder_sleep_ns_ > longest && !decoder_kicked_) {
      decoder_kicked_ = true;
      signal_eventfd(decoder_wake_.get());
    }
    if (decoder_drives_ || engine_sleep_ns_ <= longest) return;
  } else if (!engine_.held_by_gate() || engine_sleep_ns_ != kForever) {
    return;
  }
  if (engine_kicked_) return;
  engine_kicked_ = true;
  signal_eventfd(engine_wake_.get());
}

void Session::engine_loop() {
  ::prctl(PR_SET_NAME, "sluice-engine");
  ::prctl(PR_SET_TIMERSLACK, 1000);
  uint64_t nap = kPollFirstNs, seen = 0;
  uint64_t quiet_records = 0, quiet_since_ns = 0;  // once sluiced is gone
  bool gate_moved = false;
  for (;;) {
    uint64_t sleep = kForever;
    bool busy = false;
    forwarder_.forward();
    {
      std::lock_guard lock(mutex_);
      engine_.poll(monotonic_ns());
      const uint64_t progress = engine_.counters().launches_done + engine_.counters().relaunches +
                                next_token_ + engine_.queued();
      if (engine_.in_flight() && decoder_drives_) {
        // The gate has moved, perhaps to evict what is in flight: its end is due.
        if (gate_moved && decoder_sleep_ns_ > kPollFirstNs && !decoder_kicked_) {
          decoder_kicked_ = true;
          signal_eventfd(decoder_wake_.get());
        }
      } else if (engine_.in_flight()) {
        sleep = nap = next_nap(nap, progress != seen);
      } else if (engine_.held_by_gate()) {
        sleep = kPollGateNs;
      }
      seen = progress;
      busy = engine_.queued() != 0;
      if (sluiced_gone_) sleep = std::min(sleep, kOrphanLookNs);
      engine_sleep_ns_ = sleep;
      engine_kicked_ = false;
      after_engine();
      if ((engine_.queued() < limits_.queued_operations && queued_bytes_ < kQueuedParameterBytes) ||
          engine_.waits_for_program())
        wake_decoder();
    }
    if (sluiced_gone_) {
      const uint64_t records = records_.load(std::memory_order_relaxed), now = monotonic_ns();
      if (busy || records != quiet_records || quiet_since_ns == 0) {
        quiet_records = records;
        quiet_since_ns = now;
      } else if (now - quiet_since_ns > limits_.orphan_ms * 1'000'000) {
        end(CUDA_ERROR_DEVICE_UNAVAILABLE, "sluiced is gone, and the program asks for nothing");
      }
    }
    pollfd fds[] = {{p_.fds[wp::kGateFd].get(), POLLIN, 0},
                    {engine_wake_.get(), POLLIN, 0},
                    {sluiced_gone_ ? -1 : p_.control.get(), POLLIN, 0}};
    sleep_on(fds, 3, sleep);
    gate_moved = fds[0].revents != 0;
    if (gate_moved) {
      drain_trusted_wake(fds[0].fd);
      nap = kPollFirstNs;
    }
    if (fds[1].revents) {
      drain_eventfd(fds[1].fd);
      nap = kPollFirstNs;
    }
    if (fds[2].revents) on_control();
  }
}

}  // namespace sluice::worker
