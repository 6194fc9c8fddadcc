// SPDX-License-Identifier: Apache-2.0
// Launches in windows of their grid (kernels/passes/steps/window.cc); the rest of the driver is in
// launch/cuda_streams.cc.
//
// Windows go into the stream and a second one in turn, so that while one runs the next waits in the
// hardware and takes every place that becomes free. Two are queued at once; each further one when
// the one before the newest has ended and the newest is about to (WindowPace), so that an eviction
// finds at most LoopSettings::window_lead_us and a whole window before it. The stream goes on
// behind the last window of both streams. An eviction is that no window follows: what is queued
// runs to its end.
//
// So the worker knows by itself how far a launch has come, if the launch before it was done. Its
// blocks check only while that is not known, and at its two ends where the GPU's own times are
// wanted (FormChoice::timed).
#include <algorithm>

#include "mediator/base/check.h"
#include "mediator/worker/launch/cuda_streams.h"

namespace sluice::worker {

// A lane's second stream, and what goes with it.
CUresult CudaStreams::make_second(Lane& lane) {
  if (lane.second) return CUDA_SUCCESS;
  CUresult r = CUDA_SUCCESS;
  for (CUevent* event : {&lane.joined, &lane.forked, &lane.ended[0], &lane.ended[1]})
    if (r == CUDA_SUCCESS && !*event) r = api_.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  if (r != CUDA_SUCCESS) return r;
  return lane.green
             ? api_.cuGreenCtxStreamCreate(&lane.second, lane.green, CU_STREAM_NON_BLOCKING,
                                           lane.priority)
             : api_.cuStreamCreateWithPriority(&lane.second, CU_STREAM_NON_BLOCKING, lane.priority);
}

bool CudaStreams::comes_in_pieces(const Work& work) const {
  return static_cast<const LaunchWork&>(work).plan.form == FormKind::kWindows;
}

CUresult CudaStreams::launch_windows(StreamObject& s, LaunchWork& w, CUdeviceptr pred) {
  Lane& lane = *w.submission.lane;
  if (CUresult r = make_second(lane); r != CUDA_SUCCESS) return r;
  // Behind what is in the stream, both.
  if (CUresult r = api_.cuEventRecord(lane.forked, lane.cu); r != CUDA_SUCCESS) return r;
  if (CUresult r = api_.cuStreamWaitEvent(lane.second, lane.forked, 0); r != CUDA_SUCCESS) return r;
  w.windows.rest = GridWindows(w.request.grid, w.plan.window_plan.tasks, w.progress.tasks_before);
  w.windows.pace = WindowPace(w.plan.window_plan);
  w.windows.newest = sluice_window_params{};
  w.windows.newest.pred = pred;
  w.windows.passed = pred == 0;
  records_.set_fetched(w.record, 0);
  w.windows.open = lane.open = true;
  CUresult r = queue_window(s, w);
  const bool begun = r == CUDA_SUCCESS;
  if (begun && w.windows.rest.left()) r = queue_window(s, w);
  if (r != CUDA_SUCCESS || !w.windows.rest.left()) {
    const CUresult joined = close_windows(w);
    if (r == CUDA_SUCCESS) r = joined;
    // A window runs: the launch has not failed as one that the driver refused.
    return r == CUDA_SUCCESS || is_sticky(r) || !begun ? r : CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_SUCCESS;
}

CUresult CudaStreams::queue_window(StreamObject& s, LaunchWork& w) {
  const CUdeviceptr pred = w.windows.newest.pred;
  uint32_t grid[3];
  w.windows.newest = w.windows.rest.next(grid);
  w.windows.newest.control = w.control.address;
  w.windows.newest.record = record_address(*s.context, w);
  w.windows.newest.pred = pred;
  w.windows.newest.checks = pred != 0 || (w.windows.newest.checks != 0 && w.plan.timed) ? 1 : 0;
  w.windows.newest.generation = w.submission.generation;
  const int at = w.windows.rest.stream();
  const CUstream to = at == 0 ? w.submission.lane->cu : w.submission.lane->second;
  if (CUresult r =
          launch_form(to, w, w.plan.clone, &w.windows.newest, grid, w.request.dynamic_shared);
      r != CUDA_SUCCESS)
    return r;
  w.windows.pace.queued();
  if (!w.windows.rest.left()) return CUDA_SUCCESS;
  const CUresult r = api_.cuEventRecord(w.submission.lane->ended[at], to);
  return r == CUDA_SUCCESS || is_sticky(r) ? r : CUDA_ERROR_LAUNCH_FAILED;  // it runs
}

CUresult CudaStreams::close_windows(LaunchWork& w) {
  Lane& lane = *w.submission.lane;
  w.windows.open = lane.open = false;
  if (CUresult r = api_.cuEventRecord(lane.joined, lane.second); r != CUDA_SUCCESS) return r;
  return api_.cuStreamWaitEvent(lane.cu, lane.joined, 0);
}

CUresult CudaStreams::more(StreamId stream, Work& work, bool stop, uint64_t now_ns, bool* whole) {
  auto& w = static_cast<LaunchWork&>(work);
  StreamObject& s = *streams_.at(stream);
  *whole = true;
  if (!w.windows.open) return CUDA_SUCCESS;
  if (CUresult r = make_current(api_, s.context->cu); r != CUDA_SUCCESS) return r;
  if (!stop && !w.windows.pace.ended() && evicted() < w.submission.generation) {
    // The window before the newest.
    const CUresult r = api_.cuEventQuery(w.submission.lane->ended[1 - w.windows.rest.stream()]);
    if (r == CUDA_SUCCESS) {
      w.windows.pace.ended(now_ns);
      // If not, it went home, as the launch before was not done. A kernel that forges this only
      // spoils its own results.
      if (!w.windows.passed)
        w.windows.passed = records_.fetched(w.record) > w.progress.tasks_before;
      stop = !w.windows.passed;
      w.windows.newest.pred = 0;
      if (!stop) {
        records_.set_fetched(w.record, w.windows.rest.end() - w.windows.rest.newest());
        records_.set_state(w.record, SLUICE_LAUNCH_RUNNING);
      }
    } else if (r != CUDA_ERROR_NOT_READY) {
      w.windows.open = w.submission.lane->open = false;
      return r;
    }
  }
  stop |= evicted() >= w.submission.generation;
  // One each time, so that the session's lock is not kept for a whole grid.
  if (!stop && w.windows.pace.due(now_ns))
    if (CUresult r = queue_window(s, w); r != CUDA_SUCCESS) return r;
  if (stop || !w.windows.rest.left()) return close_windows(w);
  *whole = false;
  return CUDA_SUCCESS;
}

}  // namespace sluice::worker
