// SPDX-License-Identifier: Apache-2.0
// WorkerTimeSlices: the time slices of an NVIDIA GPU. Its driver lets only a process itself set
// those of its contexts, so each worker is told (worker_protocol::kTimeSlice).
//
// What each has used is reckoned, not read: the hardware goes round among the contexts that have
// work, and each turn is a slice and the switch to it. So of the time between two looks each worker
// that had work when it began has the part that its turn is of all their turns. A context that has
// nothing to run for a part of its slice gives that away; over such moments the reckoning is wrong,
// towards equal parts of a turn each.
//
// Owned by the GrantExecutor, one thread. Believes its workers to set what they are told: one that
// was taken over can take longer turns, which nothing here sees.
#pragma once

#include <map>

#include "mediator/daemon/scheduling/time_slices.h"

namespace sluice {

// What an H100's hardware loses at each switch between two contexts that both have work, and the
// shortest slice that still leaves most of the time for work (decision 0013).
inline constexpr uint64_t kSliceSwitchNs = 200'000, kLeastSliceNs = 200'000;

class WorkerTimeSlices final : public TimeSlices {
 public:
  // `switch_ns`: what the hardware needs from one context to the next.
  explicit WorkerTimeSlices(uint64_t switch_ns) : switch_ns_(switch_ns) {}

  uint64_t set(pid_t worker, uint64_t slice_ns) override;
  void forget(pid_t worker) override { workers_.erase(worker); }
  void look(uint64_t now_ns, bool now, const Works& works, const Used& used) override;

 private:
  static constexpr uint64_t kLookNs = 20'000;
  // What the hardware takes: shorter ones leave it no time for work, longer ones nobody else.
  static constexpr uint64_t kLeastNs = 100'000, kMostNs = 10'000'000'000;
  struct Worker {
    uint64_t slice_ns = 0;
    bool works = false;  // at the last look
  };
  const uint64_t switch_ns_;
  std::map<pid_t, Worker> workers_;
  uint64_t looked_ns_ = 0;
};

}  // namespace sluice
