// SPDX-License-Identifier: Apache-2.0
// WorkerTimeSlices: the time slices of an NVIDIA GPU. Its driver lets only a process itself set
// those of its contexts, so each worker gets a message
// (worker_protocol::kTimeSlice).
//
// What each has used comes from the GPU's own context-switch log, where that can be had
// (switch_log_feed.h); policies/accounting/engine_use.h says who is charged for what, and what lies
// gain. A worker that was taken over and sets itself longer slices is charged for them. It is ended
// once the witness (gpu_witness.h) has proved that it kept the GPU beyond its slices for longer
// than the deadline of evictions; without a witness it is charged only. What others say of their
// waiting ends nobody: by it the witness is asked.
//
// Without the log it is reckoned: the hardware goes round among the contexts that have work, and
// each turn is a slice and the switch to it. So each has the part that its turn is of all their
// turns. A context that has nothing to run for a part of its slice gives that away; over such
// moments the reckoning is wrong, towards equal parts of a turn each. Longer slices are not seen.
//
// Owned by the GrantExecutor, one thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "mediator/daemon/scheduling/gpu_witness.h"
#include "mediator/daemon/scheduling/switch_log_feed.h"
#include "mediator/daemon/scheduling/time_slices.h"
#include "policies/accounting/engine_use.h"

namespace sluice {

// What an H100's hardware loses at each switch between two contexts that both have work, and the
// shortest slice that still leaves most of the time for work (decision 0013). The hardware takes
// shorter ones.
inline constexpr uint64_t kSliceSwitchNs = 200'000, kLeastSliceNs = 200'000,
                          kHardwareSliceNs = 100'000;

class WorkerTimeSlices final : public TimeSlices {
 public:
  // `log` may be null. See accounting::EngineUse for `config`.
  explicit WorkerTimeSlices(const accounting::EngineUse::Config& config,
                            std::shared_ptr<SwitchLogFeed> log = nullptr)
      : use_(config), log_(std::move(log)) {}

  // Without one nobody is ended. Its `hear` is on_witness().
  void set_witness(std::unique_ptr<GpuWitness> witness) { witness_ = std::move(witness); }
  void on_witness(GpuWitness::Say say);

  void add(pid_t worker, uint32_t vgpu) override;
  uint64_t set(pid_t worker, uint64_t slice_ns) override;
  void forget(pid_t worker) override;
  void read_use(uint64_t now_ns, bool now, const Works& works, const Used& used) override;
  void note_work(uint64_t now_ns, pid_t worker, Work work) override;
  std::vector<pid_t> take_overruns() override;
  void on_stall(uint64_t now_ns, uint64_t stall_ns) override { use_.on_stall(now_ns, stall_ns); }
  Witness witness() const override;

 private:
  static constexpr uint64_t kPollNs = 20'000;
  // What is worth a line of the log, and how often.
  static constexpr uint64_t kLeastLoggedNs = 50'000'000, kLogEachNs = 1'000'000'000;
  // What the hardware takes: shorter ones leave it no time for work, longer ones nobody else.
  static constexpr uint64_t kLeastNs = 100'000, kMostNs = 10'000'000'000;
  struct Worker {
    uint64_t slice_ns = 0;
    Work work = Work::kNone;  // as noted last
  };
  void settle(uint64_t now_ns);
  void note(uint64_t now_ns, pid_t pid, Worker& worker, Work work);
  void log_excess(uint64_t now_ns);

  accounting::EngineUse use_;
  std::shared_ptr<SwitchLogFeed> log_;
  std::unique_ptr<gpu::SwitchRingReader> ring_;
  uint64_t ring_number_ = 0;
  std::vector<gpu::SwitchEvent> events_;
  std::vector<accounting::EngineUse::Used> used_;
  std::map<pid_t, Worker> workers_;
  uint64_t polled_ns_ = 0, logged_ns_ = 0;
  std::unique_ptr<GpuWitness> witness_;  // last: it calls us
};

}  // namespace sluice
