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
// blocks check that only while it is not known. Where times are wanted (FormChoice::timed), two
// events around all windows take them.
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
  for (CUevent* event : {&lane.began, &lane.over})
    if (r == CUDA_SUCCESS && !*event) r = api_.cuEventCreate(event, CU_EVENT_DEFAULT);
  if (r != CUDA_SUCCESS) return r;
  return lane.green
             ? api_.cuGreenCtxStreamCreate(&lane.second, lane.green, CU_STREAM_NON_BLOCKING,
                                           lane.priority)
             : api_.cuStreamCreateWithPriority(&lane.second, CU_STREAM_NON_BLOCKING, lane.priority);
}

bool CudaStreams::comes_in_pieces(const Work& work) const {
  return static_cast<const LaunchWork&>(work).plan.form == FormKind::kWindows;
}

CUresult CudaStreams::launch_windows(StreamObject& s, LaunchWork& w, const Work* pred) {
  Lane& lane = *w.submission.lane;
  if (CUresult r = make_second(lane); r != CUDA_SUCCESS) return r;
  // Behind what is in the stream, both.
  if (CUresult r = api_.cuEventRecord(lane.forked, lane.cu); r != CUDA_SUCCESS) return r;
  if (CUresult r = api_.cuStreamWaitEvent(lane.second, lane.forked, 0); r != CUDA_SUCCESS) return r;
  w.windows.rest = GridWindows(w.request.grid, w.plan.window_plan.tasks, w.progress.tasks_before);
  w.windows.pace = WindowPace(w.plan.window_plan);
  w.windows.pred = to_pass(pred) == 0 ? nullptr : static_cast<const LaunchWork*>(pred);
  records_.set_fetched(w.record, 0);
  if (w.plan.timed && w.progress.tasks_before == 0) {
    lane.timed_launch = w.launch_id;
    if (CUresult r = api_.cuEventRecord(lane.began, lane.cu); r != CUDA_SUCCESS) return r;
  }
  w.windows.open = lane.open = true;
  CUresult r = queue_window(s, w);
  const bool begun = r == CUDA_SUCCESS;
  if (begun && w.windows.rest.left()) r = queue_window(s, w);
  if (r != CUDA_SUCCESS || (!w.windows.rest.left() && passed(w))) {
    const CUresult joined = close_windows(w);
    if (r == CUDA_SUCCESS) r = joined;
    // A window runs: the launch has not failed as one that the driver refused.
    return r == CUDA_SUCCESS || is_sticky(r) || !begun ? r : CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_SUCCESS;
}

// Whether what is queued of it runs: the launch before it in its stream is done. What comes behind
// `w` is queued only then, so it has nothing to ask.
bool CudaStreams::passed(LaunchWork& w) {
  if (w.windows.pred && w.windows.pred->progress.done) w.windows.pred = nullptr;
  return !w.windows.pred;
}

CUresult CudaStreams::queue_window(StreamObject& s, LaunchWork& w) {
  uint32_t grid[3];
  sluice_window_params p = w.windows.rest.next(grid);
  p.pred = passed(w) ? 0 : w.windows.pred->control.address;
  const int at = w.windows.rest.stream();
  const CUstream to = at == 0 ? w.submission.lane->cu : w.submission.lane->second;
  if (CUresult r = launch_form(to, w, w.plan.clone, &p, grid, w.request.dynamic_shared);
      r != CUDA_SUCCESS)
    return r;
  w.windows.pace.queued();
  const CUresult r = api_.cuEventRecord(w.submission.lane->ended[at], to);
  return r == CUDA_SUCCESS || is_sticky(r) ? r : CUDA_ERROR_LAUNCH_FAILED;  // it runs
}

CUresult CudaStreams::close_windows(LaunchWork& w) {
  Lane& lane = *w.submission.lane;
  w.windows.open = lane.open = false;
  if (CUresult r = api_.cuEventRecord(lane.joined, lane.second); r != CUDA_SUCCESS) return r;
  CUresult r = api_.cuStreamWaitEvent(lane.cu, lane.joined, 0);
  if (r == CUDA_SUCCESS && lane.timed_launch == w.launch_id)
    r = api_.cuEventRecord(lane.over, lane.cu);
  return r;
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
      records_.set_fetched(w.record, w.windows.rest.end() - w.windows.rest.newest());
      records_.set_state(w.record, SLUICE_LAUNCH_RUNNING);
    } else if (r != CUDA_ERROR_NOT_READY) {
      w.windows.open = w.submission.lane->open = false;
      return r;
    }
  }
  stop |= evicted() >= w.submission.generation;
  // One each time, so that the session's lock is not kept for a whole grid.
  if (!stop && w.windows.rest.left() && w.windows.pace.due(now_ns))
    if (CUresult r = queue_window(s, w); r != CUDA_SUCCESS) return r;
  if (stop || (!w.windows.rest.left() && passed(w))) return close_windows(w);
  *whole = false;
  return CUDA_SUCCESS;
}

}  // namespace sluice::worker
