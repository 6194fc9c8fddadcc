// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/windows.h"

#include "mediator/worker/launch/driver_calls.h"

namespace sluice::worker {

namespace {
// Whether what is queued of it runs: the launch before it in its stream is done. What comes behind
// it is queued only then, and so needs no check.
bool has_passed(LaunchWork& w) {
  if (w.windows.pred && w.windows.pred->progress.done) w.windows.pred = nullptr;
  return !w.windows.pred;
}

void set_state(LaunchWork& w, WindowsState state) {
  w.windows.state = state;
  w.submission.lane->open = w.windows.open();
}

// After a window was queued: whether more follow.
void note_rest(LaunchWork& w) {
  if (!w.windows.rest.left()) set_state(w, WindowsState::kAllQueued);
}

bool is_complete(LaunchWork& w) {
  return w.windows.state == WindowsState::kAllQueued && has_passed(w);
}
}  // namespace

CUdeviceptr address_of_done(const Work* pred) {
  if (!pred) return 0;
  const auto& before = static_cast<const LaunchWork&>(*pred);
  // Nothing was put behind it before all of it was queued, or will not be.
  if (before.plan.form == FormKind::kWindows && !before.windows.pred && !before.windows.rest.left())
    return 0;
  return before.control.address;
}

CUresult WindowedLaunches::begin(LaunchWork& w, const Work* pred) {
  Lane& lane = *w.submission.lane;
  if (CUresult r = lanes_.make_second(lane); r != CUDA_SUCCESS) return r;
  // Behind what is in the stream, both.
  if (CUresult r = all_.api.cuEventRecord(lane.forked, lane.cu); r != CUDA_SUCCESS) return r;
  if (CUresult r = all_.api.cuStreamWaitEvent(lane.second, lane.forked, 0); r != CUDA_SUCCESS)
    return r;
  w.windows.rest = GridWindows(w.request.grid, w.plan.window_plan.tasks, w.progress.tasks_before);
  w.windows.pace = WindowPace(w.plan.window_plan);
  w.windows.pred = address_of_done(pred) == 0 ? nullptr : static_cast<const LaunchWork*>(pred);
  all_.records.set_fetched(w.record, 0);
  if (w.plan.timed && w.progress.tasks_before == 0) {
    lane.timed_launch = w.launch_id;
    if (CUresult r = all_.api.cuEventRecord(lane.began, lane.cu); r != CUDA_SUCCESS) return r;
  }
  set_state(w, WindowsState::kFeeding);
  CUresult r = queue_one(w);
  const bool begun = r == CUDA_SUCCESS;
  if (begun && w.windows.state == WindowsState::kFeeding) r = queue_one(w);
  if (r != CUDA_SUCCESS || is_complete(w)) {
    const CUresult joined = close(w);
    if (r == CUDA_SUCCESS) r = joined;
    // A window runs: the launch has not failed as one that the driver refused.
    return r == CUDA_SUCCESS || is_sticky(r) || !begun ? r : CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_SUCCESS;
}

CUresult WindowedLaunches::queue_one(LaunchWork& w) {
  uint32_t grid[3];
  sluice_window_params p = w.windows.rest.next(grid);
  note_rest(w);
  p.pred = has_passed(w) ? 0 : w.windows.pred->control.address;
  const int at = w.windows.rest.stream();
  const CUstream to = at == 0 ? w.submission.lane->cu : w.submission.lane->second;
  if (CUresult r = launch_kernel(all_.api, to, w, &p, grid, w.request.dynamic_shared);
      r != CUDA_SUCCESS)
    return r;
  w.windows.pace.queued();
  const CUresult r = all_.api.cuEventRecord(w.submission.lane->ended[at], to);
  return r == CUDA_SUCCESS || is_sticky(r) ? r : CUDA_ERROR_LAUNCH_FAILED;  // it runs
}

CUresult WindowedLaunches::close(LaunchWork& w) {
  Lane& lane = *w.submission.lane;
  set_state(w, WindowsState::kClosed);
  if (CUresult r = all_.api.cuEventRecord(lane.joined, lane.second); r != CUDA_SUCCESS) return r;
  CUresult r = all_.api.cuStreamWaitEvent(lane.cu, lane.joined, 0);
  if (r == CUDA_SUCCESS && lane.timed_launch == w.launch_id)
    r = all_.api.cuEventRecord(lane.over, lane.cu);
  return r;
}

CUresult WindowedLaunches::advance(LaunchWork& w, bool stop, uint64_t now_ns, bool* whole) {
  *whole = true;
  if (!w.windows.open()) return CUDA_SUCCESS;
  if (!stop && !w.windows.pace.ended() && all_.evicted() < w.submission.generation) {
    // The window before the newest.
    const CUresult r = all_.api.cuEventQuery(w.submission.lane->ended[1 - w.windows.rest.stream()]);
    if (r == CUDA_SUCCESS) {
      w.windows.pace.ended(now_ns);
      all_.records.set_fetched(w.record, w.windows.rest.end() - w.windows.rest.newest());
      all_.records.set_state(w.record, SLUICE_LAUNCH_RUNNING);
    } else if (r != CUDA_ERROR_NOT_READY) {
      set_state(w, WindowsState::kClosed);
      return r;
    }
  }
  stop |= all_.evicted() >= w.submission.generation;
  // One each time, so that the session's lock is not kept for a whole grid.
  if (!stop && w.windows.state == WindowsState::kFeeding && w.windows.pace.due(now_ns))
    if (CUresult r = queue_one(w); r != CUDA_SUCCESS) return r;
  if (stop || is_complete(w)) return close(w);
  *whole = false;
  return CUDA_SUCCESS;
}

uint64_t WindowedLaunches::measured_ns(LaunchWork& w) {
  Lane& lane = *w.submission.lane;
  if (lane.timed_launch != w.launch_id) return 0;
  lane.timed_launch = 0;
  float ms = 0;
  if (all_.api.cuEventElapsedTime(&ms, lane.began, lane.over) != CUDA_SUCCESS || ms <= 0) return 0;
  return static_cast<uint64_t>(static_cast<double>(ms) * 1e6);
}

}  // namespace sluice::worker
