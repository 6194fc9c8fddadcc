// SPDX-License-Identifier: Apache-2.0
// TimeSlices: the time slices of the workers' contexts on a GPU that goes round among them, and
// what each worker has used of it (scheduler.slices).
//
//   SoftTimeSlices    the software GPU's, through its shared file
//   WorkerTimeSlices  NVIDIA's, set by each worker itself (worker_time_slices.h)
//
// Owned by the GrantExecutor, one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/daemon/setup/config.h"
#include "mediator/gpu/soft_gpu.h"

namespace sluice {

// Whether scheduler.slices can be: an error says why not and what to do. Asked once, when sluiced
// starts. `environment`: the workers', NAME=value each.
Result<void> check_time_slices(const Config& config, bool nvidia,
                               const std::vector<std::string>& environment);

class TimeSlices {
 public:
  // What a worker has of launches: none, some that its gate holds back, or some that could run.
  enum class Work : uint8_t { kNone, kWaits, kRuns };
  using Works = std::function<Work(pid_t worker)>;
  // `free`: while nobody else wanted the GPU; it makes no debt.
  using Used = std::function<void(pid_t worker, uint64_t used_ns, bool free)>;
  virtual ~TimeSlices() = default;

  // A worker of the vGPU has started. Before its first slice.
  virtual void add(pid_t, uint32_t /*vgpu*/) {}
  // Sets the slice of each context of `worker`, those it makes later included; at most what the
  // GPU takes. Returns the slice of which the worker needs a message, ns; 0: it needs none.
  virtual uint64_t set(pid_t worker, uint64_t slice_ns) = 0;
  virtual void forget(pid_t worker) = 0;
  // Tells for each worker what its contexts have used since the last read, or a little later.
  // Seldom, unless `now`.
  virtual void read_use(uint64_t now_ns, bool now, const Works& works, const Used& used) = 0;
  // What `worker` has from now on, at once: its gate has opened or closed. Until the next read it
  // would count as before.
  virtual void note_work(uint64_t /*now_ns*/, pid_t /*worker*/, Work) {}
  // Workers that are proved to have kept the GPU far beyond their slices, since the last call.
  virtual std::vector<pid_t> take_overruns() { return {}; }
  // Until now a fault, a new context or a module has stopped the GPU for so long.
  virtual void on_stall(uint64_t /*now_ns*/, uint64_t /*stall_ns*/) {}
  // Whether that takes a witness, and why there is none (empty: there is one).
  struct Witness {
    bool wanted = false;
    std::string why;
  };
  virtual Witness witness() const { return {}; }
};

// Everything in the file can be written by every worker: slices are put right at each read, use is
// bounded by the time that has gone by, and a file that is not what it was is opened anew. Used is
// what turns have that are over: all together at most the time since the last read and a turn.
class SoftTimeSlices final : public TimeSlices {
 public:
  explicit SoftTimeSlices(std::string soft_gpu_file) : file_(std::move(soft_gpu_file)) {}

  uint64_t set(pid_t worker, uint64_t slice_ns) override;
  void forget(pid_t worker) override;
  void read_use(uint64_t now_ns, bool now, const Works& works, const Used& used) override;

 private:
  static constexpr uint64_t kPollNs = 500'000, kReopenNs = 50'000'000;
  struct Group {
    uint32_t generation = 0;
    uint64_t engine_ns = 0;
  };
  bool open(uint64_t now_ns);

  std::string file_;
  std::unique_ptr<gpu::SoftGpu> gpu_;
  std::map<pid_t, uint32_t> slice_us_;
  std::map<pid_t, uint64_t> used_ns_;  // of one read
  std::vector<Group> groups_ = std::vector<Group>(SLUICE_SOFT_CHANNELS + 1);
  ino_t inode_ = 0;
  uint64_t polled_ns_ = 0, tried_ns_ = 0, checked_ns_ = 0;
};

}  // namespace sluice
