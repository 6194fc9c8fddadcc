// SPDX-License-Identifier: Apache-2.0
// TimeSlices: the time slices of the workers' contexts on a GPU that goes round among them, and
// what each worker has used of it (scheduler.slices). The software GPU's, through its shared file;
// NVIDIA's driver lets only a process itself set its slices, and no worker of this version does.
//
// Owned by the GrantExecutor, one thread. Everything in the file can be written by every worker:
// slices are put right at each look, use is bounded by the time that has gone by, and a file that
// is not what it was is opened anew.
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
  explicit TimeSlices(std::string soft_gpu_file) : file_(std::move(soft_gpu_file)) {}

  // Each context of `worker` from now on; at most what the GPU takes.
  void set(pid_t worker, uint64_t slice_ns);
  void forget(pid_t worker);
  // Puts slices right and tells for each worker what its contexts have used since the last look:
  // turns that have ended, so all together at most the time since then and a turn. At most every
  // kLookNs, unless `now`.
  void look(uint64_t now_ns, bool now,
            const std::function<void(pid_t worker, uint64_t used_ns)>& used);

 private:
  static constexpr uint64_t kLookNs = 500'000, kReopenNs = 50'000'000;
  struct Group {
    uint32_t generation = 0;
    uint64_t engine_ns = 0;
  };
  bool open(uint64_t now_ns);

  std::string file_;
  std::unique_ptr<gpu::SoftGpu> gpu_;
  std::map<pid_t, uint32_t> slice_us_;
  std::map<pid_t, uint64_t> used_ns_;  // of one look
  std::vector<Group> groups_ = std::vector<Group>(SLUICE_SOFT_CHANNELS + 1);
  ino_t inode_ = 0;
  uint64_t looked_ns_ = 0, tried_ns_ = 0, checked_ns_ = 0;
};

}  // namespace sluice
