// SPDX-License-Identifier: Apache-2.0
// BlockConfinement: launches whose own blocks keep to the SMs of a grant (sm_part.h has the
// arithmetic). For drivers without green contexts, and while one is being made.
//
//   first_grid()   a submission's parameters under a part: its range, its quota, what is barred
//   narrow()       SMs were lost: the blocks there leave, the launch stays on the others
//   second_grid()  SMs were gained: another grid of the same launch begins there
//
// What a stream's launches leave behind, and which SMs are barred to them, is in the stream's
// left-over list in device memory (sluice_launch_left), written in stream order.
//
// Owned by CudaStreams, used under the session's lock. Errors are the driver's; NOT_SUPPORTED: this
// launch cannot stay, and is evicted whole.
#pragma once

#include <cstdint>
#include <span>

#include "mediator/worker/launch/lanes.h"
#include "mediator/worker/launch/launch_services.h"

namespace sluice::worker {

class BlockConfinement {
 public:
  BlockConfinement(LaunchServices& services, Lanes& lanes) : all_(services), lanes_(lanes) {}

  // Sets what of `p` says where blocks may be, and how many of them to launch.
  CUresult first_grid(StreamObject& stream, LaunchWork& w, const SmSet& granted,
                      sluice_preempt_params* p, uint32_t* blocks);
  // `p`: the parameters of any submission of `w` under `grant`.
  CUresult second_grid(StreamObject& stream, LaunchWork& w, const Grant& grant,
                       sluice_preempt_params p, uint64_t now_ns);

  struct Running {
    StreamObject* stream;
    LaunchWork* work;
  };
  // *left: no block of these launches is on one of `lost`, and none that comes there begins a task.
  // Called again until it is so.
  CUresult narrow(std::span<const Running> running, const SmSet& lost, bool* left);

 private:
  CUresult bar(const StreamObject& s, CUstream in, const SmSet& sms, uint32_t value);
  CUresult check_sms(ContextObject& c, std::span<const Running> running, const SmSet& lost,
                     bool* left);

  LaunchServices& all_;
  Lanes& lanes_;
  uint64_t left_once_ = 0;  // evict word after which narrow() found everything left, once
};

}  // namespace sluice::worker
