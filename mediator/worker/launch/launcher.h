// SPDX-License-Identifier: Apache-2.0
// Launcher: submits a launch to the driver, once or several times, and reads how each submission
// ended.
//   plan      LaunchPlanner, when the program launches
//   confine   SmConfinement, before each submission: the lane
//   launch    a submission: windows, a clone, or the original
//   more, narrow, grow    while it runs
//   end       done, or evicted and to be launched again
//
// How far a launch came is known from its windows, else from its record, a hint that the kernel
// wrote, else from its control block. A kernel that forges either damages its own work only.
//
// Owned by CudaStreams, used under the session's lock. Errors are the driver's.
#pragma once

#include <cstdint>

#include "mediator/worker/launch/lanes.h"
#include "mediator/worker/launch/launch_services.h"
#include "mediator/worker/launch/plan/planner.h"
#include "mediator/worker/launch/sms/block_confinement.h"
#include "mediator/worker/launch/sms/confinement.h"
#include "mediator/worker/launch/windows.h"

namespace sluice::worker {

class Launcher {
 public:
  Launcher(LaunchServices& services, Lanes& lanes)
      : planner(services),
        confinement(services, lanes, planner),
        blocks(services, lanes),
        windows(services, lanes),
        all_(services),
        lanes_(lanes) {}

  LaunchPlanner planner;
  SmConfinement confinement;
  BlockConfinement blocks;
  WindowedLaunches windows;

  // In the lane that SmConfinement chose, or, where that refuses it, in the stream's own.
  CUresult launch(StreamObject& stream, LaunchWork& w, const Grant& grant, const Work* pred,
                  bool again, uint64_t now_ns);
  CUresult launch_whole(StreamObject& stream, LaunchWork& w, uint64_t now_ns);
  CUresult grow(StreamObject& stream, LaunchWork& w, const Grant& grant, uint64_t now_ns);
  LaunchEnd end(LaunchWork& w);

 private:
  struct Reached {
    uint32_t tasks = 0;
    bool done = false;
    RecordPool::Snapshot record{};
  };
  bool read_record(const LaunchWork& w, Reached& at);
  bool read_control(const LaunchWork& w, Reached& at);
  CUresult launch_in_lane(StreamObject& s, LaunchWork& w, const Grant& grant, const Work* pred,
                          uint64_t now_ns);
  sluice_preempt_params params_of(const StreamObject& s, const LaunchWork& w,
                                  const Grant& grant) const;
  void learn(LaunchWork& w, const RecordPool::Snapshot* record, uint32_t tasks_done);

  // launch() in w.submission.lane. What cannot be launched in a green context's stream, for
  // whatever reason, is in the guest's own; one in windows may have begun there.
  template <class Launch>
  CUresult on_lane(StreamObject& s, LaunchWork& w, Launch launch) {
    CUresult there = lanes_.move_to(s, *w.submission.lane);
    if (there == CUDA_SUCCESS) there = launch();
    if (there == CUDA_SUCCESS || w.submission.confined_sms == 0 || is_sticky(there) ||
        w.plan.form == FormKind::kWindows)
      return there;
    w.submission.lane = &s;
    w.submission.confined_sms = 0;
    CUresult here = lanes_.move_to(s, s);
    if (here == CUDA_SUCCESS) here = launch();
    if (here == CUDA_SUCCESS) s.context->pools.greens->refuse("a launch: " + gpu::describe(there));
    return here;
  }

  LaunchServices& all_;
  Lanes& lanes_;
};

}  // namespace sluice::worker
