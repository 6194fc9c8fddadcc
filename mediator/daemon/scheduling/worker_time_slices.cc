// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/worker_time_slices.h"

#include <algorithm>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"

namespace sluice {

void WorkerTimeSlices::add(pid_t worker, uint32_t vgpu) {
  workers_[worker];
  use_.add(static_cast<uint32_t>(worker), vgpu);
}

uint64_t WorkerTimeSlices::set(pid_t worker, uint64_t slice_ns) {
  const uint64_t slice = std::clamp(slice_ns, kLeastNs, kMostNs);
  uint64_t& known = workers_[worker].slice_ns;
  if (known == slice) return 0;
  use_.set_slice(static_cast<uint32_t>(worker), slice);
  return known = slice;
}

void WorkerTimeSlices::forget(pid_t worker) {
  workers_.erase(worker);
  use_.remove(static_cast<uint32_t>(worker));
}

void WorkerTimeSlices::settle(uint64_t now_ns) {
  if (log_ && ring_number_ != log_->number()) {
    ring_number_ = log_->number();
    ring_ = log_->reader();
  }
  if (!ring_ || !log_->usable(now_ns)) return use_.settle_without_log(now_ns, used_);
  events_.clear();
  const auto news = ring_->read(events_);
  if (news.lost) use_.on_lost(use_.settled_ns());
  for (const gpu::SwitchEvent& e : events_) use_.on_record(e.time_ns, e.pid, e.start != 0);
  use_.settle(std::min(news.known_ns, now_ns), used_);
}

void WorkerTimeSlices::read_use(uint64_t now_ns, bool now, const Works& works, const Used& used) {
  if (now || polled_ns_ == 0 || now_ns - polled_ns_ >= kPollNs) {
    polled_ns_ = now_ns;
    used_.clear();
    settle(now_ns);
    for (const auto& u : used_) used(static_cast<pid_t>(u.worker), u.ns, u.free);
    if (witness_ && use_.suspects()) witness_->ask(now_ns);
    log_excess(now_ns);
  }
  // Always: a program that was away for 10 us would count as idle until its next report.
  for (auto& [pid, w] : workers_) note(now_ns, pid, w, works(pid));
}

void WorkerTimeSlices::note_work(uint64_t now_ns, pid_t worker, Work work) {
  if (const auto w = workers_.find(worker); w != workers_.end())
    note(now_ns, worker, w->second, work);
}

void WorkerTimeSlices::note(uint64_t now_ns, pid_t pid, Worker& worker, Work work) {
  if (std::exchange(worker.work, work) == work) return;
  use_.on_claim(now_ns, static_cast<uint32_t>(pid), work == Work::kRuns, work != Work::kNone);
}

void WorkerTimeSlices::on_witness(GpuWitness::Say say) {
  if (say == GpuWitness::Say::kGone) return use_.set_witness(witness_ ? witness_->process() : 0);
  use_.on_witness(monotonic_ns(), say);
}

void WorkerTimeSlices::log_excess(uint64_t now_ns) {
  if (!witness_ || now_ns < logged_ns_ + kLogEachNs) return;
  logged_ns_ = now_ns;
  for (const auto& [pid, w] : workers_) {
    const uint64_t ns = use_.excess_ns(static_cast<uint32_t>(pid));
    if (ns < kLeastLoggedNs) continue;
    log::info("worker {}: {} ms beyond its time slices while the witness waited", pid,
              ns / 1'000'000);
  }
}

TimeSlices::Witness WorkerTimeSlices::witness() const {
  if (!witness_) return {.wanted = false, .why = {}};
  return {.wanted = true, .why = witness_->why()};
}

std::vector<pid_t> WorkerTimeSlices::take_overruns() {
  const auto overruns = use_.take_overruns();
  return {overruns.begin(), overruns.end()};
}

}  // namespace sluice
