// SPDX-License-Identifier: Apache-2.0
// CudaStreams: the stream engine's driver, on the CUDA driver API: what each operation becomes as a
// call, control blocks and launch records, and what a launch that ended has done. Markers are a
// part of its own (markers.h).
//
// Owned by the session, used under its lock by whichever thread drives the engine; each thread that
// does makes the right context current first (make_current). `proxy`: block 0 of a clone polls the
// signal page for the others (worker_protocol::Signal).
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/green_contexts.h"
#include "mediator/worker/launch/markers.h"
#include "mediator/worker/launch/objects.h"
#include "mediator/worker/launch/record_pool.h"
#include "mediator/worker/streams/engine.h"

namespace sluice::worker {

// Makes a context (or none: null) the calling thread's, unless it is already.
CUresult make_current(const gpu::DriverApi& api, CUcontext context);
// After a driver call that may have changed it, or has destroyed a context: no thread's
// make_current() rests on what it knew.
void forget_current();

class CudaStreams : public EngineDriver {
 public:
  struct Callbacks {
    std::function<void(uint64_t token, CUresult)> complete;
    std::function<void(uint64_t token)> reached_host_func;
    std::function<void(CUresult)> async_error;
  };
  CudaStreams(const gpu::DriverApi& api, bool proxy, LoopSettings settings,
              const sluice_signal_page* signal, sluice_launch_records* records,
              Callbacks callbacks);

  // sluiced may give parts of the GPU: clones take every grid, however small.
  void expect_parts() { parts_ = true; }

  // Turns are priorities (SLUICE_GRANT_LEVEL): windows are no slower to leave than other forms.
  void expect_turns() { turns_ = true; }

  // A green context is due (GreenContexts::due()); called under the session's lock, calls
  // nothing of this.
  std::function<void(std::shared_ptr<ContextObject>)> make_green;
  GreenCounters green;  // GreenContexts' of all contexts

  // The engine's stream `id` is this stream object from now on, until drained().
  void add(StreamId id, std::shared_ptr<StreamObject> stream);

  // How a launch of this function will be done: fills geometry, tasks and variant of `work`, whose
  // function and shape are set and checked. Asks the driver once per shape. `contended`: others
  // wait for the GPU; it is then not launched in windows, which take longer to leave
  // (docs/notes/2026-11-22-benchmarks.md).
  void plan(LaunchWork& work, bool contended);

  // The context goes, and all that was made in it. No stream of it is left.
  void forget(const ContextObject& context);

  // EngineDriver
  Confinement confine(StreamId stream, OpKind kind, Work& work, const Grant& grant,
                      uint64_t now_ns) override;
  bool wait_for_hardware(StreamId stream, const Grant& grant, uint64_t now_ns) override;
  CUresult launch(StreamId stream, Work& work, const Grant& grant, const Work* pred, bool again,
                  uint64_t now_ns) override;
  bool comes_in_pieces(const Work& work) const override;
  CUresult more(StreamId stream, Work& work, bool stop, uint64_t now_ns, bool* whole) override;
  CUresult narrow(std::span<const Running> running, const SmSet& lost, bool* left) override;
  CUresult grow(StreamId stream, Work& work, const Grant& grant, uint64_t now_ns) override;
  CUresult issue(StreamId stream, OpKind kind, Work& work, uint64_t now_ns) override;
  CUresult mark(StreamId stream, uint64_t* marker) override;
  CUresult query(uint64_t marker) override;
  CUresult idle(StreamId stream) override;
  LaunchEnd launch_end(Work& work) override;
  void complete(uint64_t token, CUresult status) override { callbacks_.complete(token, status); }
  bool stays_on_sms(const Work& work) const override;
  uint64_t expected_ns(const Work& work) const override;
  uint64_t issued_ns(const Work& work) const override;
  void opaque_ended(Work& work, bool contended, uint64_t now_ns) override;
  void reached_host_func(uint64_t token) override { callbacks_.reached_host_func(token); }
  void async_error(CUresult status) override { callbacks_.async_error(status); }
  void drained(StreamId stream) override;

 private:
  uint32_t variant_of(FunctionObject& f, uint32_t block_threads, uint32_t dynamic_shared);
  void plan_for_parts(LaunchWork& work);
  uint32_t chunks_of(const LaunchWork& work) const;
  uint32_t proxies_of(const LaunchWork& work) const;
  CUresult keep_to_part(StreamObject& s, LaunchWork& w, const SmSet& granted,
                        sluice_preempt_params* p, uint32_t* blocks);
  sluice_preempt_params params_of(const StreamObject& s, const LaunchWork& w,
                                  const Grant& grant) const;
  static CUdeviceptr to_pass(const Work* pred);
  CUdeviceptr record_address(const ContextObject& c, const LaunchWork& w) const;
  uint32_t evicted() const {
    return static_cast<uint32_t>(__atomic_load_n(&signal_->evict, __ATOMIC_SEQ_CST));
  }
  static uint32_t held_by(const FunctionObject& f, uint32_t resident, uint32_t sms);
  WindowPlan take_form(LaunchWork& w, LaunchVariant& v, uint32_t sms, bool windows_may) const;
  bool runs_whole(LaunchWork& w, const LaunchVariant& v);
  WindowPlan take_turn_form(LaunchWork& w, const LaunchVariant& v) const;
  Geometry form_geometry(LaunchWork& w, LaunchVariant& v, uint32_t sms);
  void take_windows(LaunchWork& w, LaunchVariant& v, const WindowPlan& windows, uint32_t sms,
                    bool timed);
  uint64_t measured_ns(LaunchWork& w);
  GreenContext* green_context(StreamObject& s, const SmSet& sms, uint64_t now_ns);
  bool fit_to(LaunchWork& w, uint32_t sms);
  bool may_confine_original(LaunchWork& w, uint32_t sms);
  CUresult go_to(StreamObject& s, Lane& lane);
  // launch() in w.submission.lane. What cannot be launched in a green context's stream, for
  // whatever reason, is in the guest's own; one in windows may have begun there.
  template <class Launch>
  CUresult on_lane(StreamObject& s, LaunchWork& w, Launch launch) {
    CUresult there = go_to(s, *w.submission.lane);
    if (there == CUDA_SUCCESS) there = launch();
    if (there == CUDA_SUCCESS || w.submission.confined_sms == 0 || is_sticky(there) ||
        w.plan.form == FormKind::kWindows)
      return there;
    w.submission.lane = &s;
    w.submission.confined_sms = 0;
    CUresult here = go_to(s, s);
    if (here == CUDA_SUCCESS) here = launch();
    if (here == CUDA_SUCCESS) s.context->greens->refuse("a launch: " + gpu::describe(there));
    return here;
  }
  CUresult launch_there(StreamObject& s, LaunchWork& w, const Grant& grant, const Work* pred,
                        uint64_t now_ns);
  CUresult make_second(Lane& lane);
  Lane* lane_at(StreamObject& s, uint32_t level);
  void destroy(Lane& lane);
  CUresult launch_windows(StreamObject& s, LaunchWork& w, const Work* pred);
  static bool passed(LaunchWork& w);
  CUresult queue_window(StreamObject& s, LaunchWork& w);
  CUresult close_windows(LaunchWork& w);
  CUresult launch_form(CUstream to, LaunchWork& w, CUfunction clone, void* block,
                       const uint32_t grid[3], uint32_t shared);
  CUresult launch_clone(CUstream to, LaunchWork& w, const sluice_preempt_params& p,
                        uint32_t blocks);
  CUresult bar(const StreamObject& s, CUstream in, const SmSet& sms, uint32_t value);
  CUresult look_at_sms(ContextObject& c, std::span<const Running> running, const SmSet& lost,
                       bool* left);
  CUresult launch_original(LaunchWork& w, uint64_t now_ns);
  CUresult copy(StreamObject& s, const CUDA_MEMCPY2D& c);
  CUresult fill(StreamObject& s, const sluice_memset& m);
  void take_record(LaunchWork& w, bool early);
  void learn(LaunchWork& w, const RecordPool::Snapshot* record);

  const gpu::DriverApi& api_;
  bool proxy_;
  bool parts_ = false, turns_ = false;
  LoopSettings settings_;
  const sluice_signal_page* signal_;
  RecordPool records_;
  Callbacks callbacks_;
  std::unordered_map<StreamId, std::shared_ptr<StreamObject>> streams_;
  uint64_t left_once_ = 0;  // evict word after which narrow() found everything left, once
  Markers markers_;
  uint64_t next_launch_id_ = 1;
};

}  // namespace sluice::worker
