// SPDX-License-Identifier: Apache-2.0
// HoldTimes: which vGPU had the GPU when, where one has it at a time; and which pays for time in
// which one of them kept it from the others.
//
// Owned by a strategy, one thread. Of a vGPU's holds only the last one is kept, which is enough for
// a stall that has just ended.
#pragma once

#include <cstdint>
#include <vector>

#include "mediator/core/sharing/state.h"

namespace sluice::core {

struct Sharing;

class HoldTimes {
 public:
  explicit HoldTimes(Sharing& sharing) : sharing_(sharing) {}

  void on_vgpu_added(VgpuId v) { reset_record(granted_ns_, v); }
  void on_granted(uint64_t now_ns, VgpuId v) { granted_ns_[v] = now_ns; }

  // v has kept the whole GPU from everybody for `stall_ns`, until now. Holders were charged by the
  // clock meanwhile: others get that back, and v pays for the rest.
  void charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns);

 private:
  uint64_t held_since(VgpuId v, uint64_t from_ns, uint64_t now_ns) const;

  Sharing& sharing_;
  std::vector<uint64_t> granted_ns_;  // by VgpuId: the begin of the last hold
};

}  // namespace sluice::core
