// SPDX-License-Identifier: Apache-2.0
// SoftGpu: the software GPU as its controller sees it, through the shared file of
// abi/soft_gpu.h: its context-switch log, its channels, and the words that control them. On a real
// GPU the same comes from the driver (FECS event buffer, channel-group controls).
//
// Owned by sluiced (and tests); one thread. The file's other users are the workers: what is read
// from it is bounded and may be anything. The software GPU need not run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "abi/soft_gpu.h"
#include "mediator/base/process/bus_guard.h"
#include "mediator/base/result.h"

namespace sluice::gpu {

class SoftGpu {
 public:
  // With `control` the file is mapped writable. Error: not a software GPU's file of this version
  // (also: nobody has made it yet).
  static Result<std::unique_ptr<SoftGpu>> open(const std::string& path, bool control);
  ~SoftGpu();
  SoftGpu(const SoftGpu&) = delete;
  SoftGpu& operator=(const SoftGpu&) = delete;

  const sluice_soft_info& info() const { return info_; }
  // Whether the file is still what it was at open: not cut short (zeros are read where it ended),
  // not overwritten. Cheap; to be asked now and then.
  bool intact() const;
  // A copy of the channel's words, each read once. TSGIDs out of range: zeros.
  sluice_soft_channel channel(uint32_t tsgid) const;

  // A context starts or ends on the compute engine. What accounting::SwitchLog eats, once the
  // channel group is mapped to its vGPU.
  struct SwitchRecord {
    uint64_t time_ns = 0;
    uint32_t seq = 0;
    uint32_t tsgid = 0;
    uint32_t pid = 0;
    bool start = false;
  };
  // Appends the records that have come since the last call (at first: since open). Returns how many
  // were lost in between: overwritten because they were not read in time, or never finished by a
  // process that died. After a loss `seq` jumps as well.
  uint64_t read_log(std::vector<SwitchRecord>& records);
  uint64_t lost_records() const { return lost_; }
  // Records were begun that had not come at the last call: what is stamped since may be among them.
  bool records_pending() const { return pending_; }

  // For how long faults of the process `pid` (sluice_soft_channel::pid) since `since_ns` have
  // stopped the GPU, as far as their records are still there. Each is at most what the GPU was made
  // with.
  uint64_t fault_stall_ns(uint32_t pid, uint64_t since_ns) const;

  // Controls; they do nothing without `control` or for a TSGID out of range. The change is seen
  // within a slice of the blocks that run.
  void set_timeslice(uint32_t tsgid, uint32_t us);
  // The SMs that the context's blocks may use: bit n of word n / 64. None: all.
  void set_sms(uint32_t tsgid, const uint64_t (&set)[SLUICE_SOFT_MAX_SMS / 64]);
  // The SMs that the context's blocks have come to since the last call, whatever %smid says; a
  // block that went before and ended since may be missing, one that comes just now may count twice.
  std::array<uint64_t, SLUICE_SOFT_MAX_SMS / 64> take_sms_used(uint32_t tsgid);
  // Takes the context off the engine; it stands in line again.
  void preempt(uint32_t tsgid);

 private:
  SoftGpu() = default;
  sluice_soft_channel* control_of(uint32_t tsgid);
  void call_attention(const sluice_soft_channel& channel);

  std::byte* mapping_ = nullptr;
  size_t bytes_ = 0;
  BusGuard guard_;
  bool control_ = false;
  sluice_soft_info info_{};
  uint64_t next_ = 0;     // number of the first record not read
  uint64_t missing_ = 0;  // 1 + number of one that was begun and not there at the last call
  uint64_t lost_ = 0;
  bool pending_ = false;
};

}  // namespace sluice::gpu
