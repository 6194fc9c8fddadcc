// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/time_slices.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "mediator/daemon/scheduling/sharing_checks.h"

namespace sluice {

namespace {

Error refuse_slices(const std::string& why) { return Error{EINVAL, "scheduler.slices: " + why}; }

}  // namespace

Result<void> check_time_slices(const Config& c, bool nvidia,
                               const std::vector<std::string>& environment) {
  if (!c.slices) return {};
  if (c.spatial)
    return refuse_slices(
        "vGPUs share the GPU by SMs (scheduler.spatial) or by time slices, not by both");
  const auto can = [](const policy::Registration& row) { return row.proportional; };
  if (!policy_can(c.policy, can))
    return refuse_slices("policy " + c.policy +
                         " sets no time slices; those that do are: " + policies_that(can));
  if (nvidia) return {};
  if (const std::string mode = value_of(environment, "SLUICE_SOFT_MODE"); mode != "timeslice")
    return refuse_slices(
        "SLUICE_SOFT_MODE is \"" + mode +
        "\" in the workers' environment; contexts have time slices only in \"timeslice\"");
  if (c.soft_file.empty() || ::access(c.soft_file.c_str(), F_OK) != 0) return {};
  auto gpu = gpu::SoftGpu::open(c.soft_file, false);
  if (!gpu) return refuse_slices(gpu.error().message);
  if ((*gpu)->info().mode != SLUICE_SOFT_TIMESLICE)
    return refuse_slices(
        c.soft_file + " is a software GPU without time slices; remove it, and a new one is made");
  return {};
}

bool SoftTimeSlices::open(uint64_t now_ns) {
  struct stat st;
  // Cut short, overwritten, or another file by that name now: the next worker's GPU is that one.
  const bool check = gpu_ && now_ns - checked_ns_ >= kReopenNs;
  if (check) checked_ns_ = now_ns;
  if (gpu_ && gpu_->intact() &&
      (!check || (::stat(file_.c_str(), &st) == 0 && st.st_ino == inode_)))
    return true;
  gpu_.reset();
  if (tried_ns_ != 0 && now_ns - tried_ns_ < kReopenNs) return false;
  tried_ns_ = now_ns;
  auto gpu = gpu::SoftGpu::open(file_, true);
  if (!gpu) return false;  // the first worker's context makes it
  gpu_ = std::move(*gpu);
  inode_ = ::stat(file_.c_str(), &st) == 0 ? st.st_ino : 0;
  checked_ns_ = now_ns;
  for (Group& g : groups_) g = {};
  polled_ns_ = now_ns;
  return true;
}

uint64_t SoftTimeSlices::set(pid_t worker, uint64_t slice_ns) {
  // Bounds of the software GPU (docs/operating/software-gpu.md): 50 us to 10 s.
  slice_us_[worker] = static_cast<uint32_t>(std::clamp<uint64_t>(slice_ns / 1000, 50, 10'000'000));
  if (!gpu_ || !gpu_->intact()) return 0;
  for (uint32_t tsgid = 1; tsgid <= SLUICE_SOFT_CHANNELS; ++tsgid)
    if (gpu_->channel(tsgid).pid == static_cast<uint32_t>(worker))
      gpu_->set_timeslice(tsgid, slice_us_[worker]);
  return 0;
}

void SoftTimeSlices::forget(pid_t worker) { slice_us_.erase(worker); }

void SoftTimeSlices::read_use(uint64_t now_ns, bool now, const Works&, const Used& used) {
  if (!open(now_ns) || (!now && now_ns - polled_ns_ < kPollNs)) return;
  const uint64_t elapsed_ns = now_ns - polled_ns_;
  polled_ns_ = now_ns;
  used_ns_.clear();
  for (uint32_t tsgid = 1; tsgid <= SLUICE_SOFT_CHANNELS; ++tsgid) {
    const sluice_soft_channel c = gpu_->channel(tsgid);
    Group& known = groups_[tsgid];
    if (c.generation != known.generation) known = {.generation = c.generation, .engine_ns = 0};
    const auto slice = slice_us_.find(static_cast<pid_t>(c.pid));
    if (slice == slice_us_.end()) continue;
    if (c.timeslice_us != slice->second) gpu_->set_timeslice(tsgid, slice->second);
    const uint64_t grown = c.engine_ns - std::min(known.engine_ns, c.engine_ns);
    known.engine_ns = c.engine_ns;
    if (grown == 0) continue;
    // A turn that ended just now may have begun before the last poll; nobody's was longer than
    // twice a slice. All contexts of a worker together: one has the engine at a time, and any
    // worker can write that a context is this one's.
    uint64_t& used_ns = used_ns_[slice->first];
    const uint64_t most_ns = elapsed_ns + slice->second * 2000ull;
    used_ns += std::min(grown, most_ns - std::min(most_ns, used_ns));
  }
  for (const auto& [worker, ns] : used_ns_) used(worker, ns, false);
}

}  // namespace sluice
