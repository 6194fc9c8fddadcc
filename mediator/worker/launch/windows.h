// SPDX-License-Identifier: Apache-2.0
// WindowedLaunches: launches that are queued a window of their grid at a time
// (kernels/passes/steps/window.cc). A submission's windows (objects.h) go through these states:
//
//   state       what is queued                              moves on
//   kNone       nothing                                     begin(): kFeeding
//   kFeeding    some windows, more follow                   last one queued: kAllQueued
//   kAllQueued  all; the launch before it in its stream     it is: kClosed
//               is not known to be done
//   kClosed     what will be; the lane's first stream       resubmitted: begin(), kFeeding
//               waits for its second
//
// An eviction (or `stop`) closes from any state: what is queued runs to its end. So does a driver
// call that failed.
//
// Windows go into the lane's first stream and its second in turn: while one runs, the next waits in
// the hardware and takes every place that becomes free. Two are queued at once; each further one
// when the one before the newest has ended and the newest is about to (WindowPace), so an eviction
// finds at most LoopSettings::window_lead_us and a whole window before it.
//
// The worker therefore knows by itself how far a launch has come once the launch before it is done.
// Until that is known the blocks check it themselves. Where times are wanted (FormChoice::timed),
// two events around all windows take them.
//
// Owned by CudaStreams, used under the session's lock, the lane's context current. Errors are the
// driver's; CUDA_ERROR_LAUNCH_FAILED where a window runs and the next call was refused.
#pragma once

#include <cstdint>

#include "mediator/worker/launch/lanes.h"
#include "mediator/worker/launch/launch_services.h"

namespace sluice::worker {

// The address at which a launch behind `pred` in its stream reads whether `pred` is done. 0: it
// will be, or there is none.
CUdeviceptr address_of_done(const Work* pred);

class WindowedLaunches {
 public:
  WindowedLaunches(LaunchServices& services, Lanes& lanes) : all_(services), lanes_(lanes) {}

  // Queues the first windows of `w` in its lane.
  CUresult begin(LaunchWork& w, const Work* pred);
  // Queues the next window if it is due; with `stop` none. *whole: none will follow.
  CUresult advance(LaunchWork& w, bool stop, uint64_t now_ns, bool* whole);
  // What the windows took by the events around them; 0: not timed. Once for each launch.
  uint64_t measured_ns(LaunchWork& w);

 private:
  CUresult queue_one(LaunchWork& w);
  CUresult close(LaunchWork& w);

  LaunchServices& all_;
  Lanes& lanes_;
};

}  // namespace sluice::worker
