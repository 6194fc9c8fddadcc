// SPDX-License-Identifier: Apache-2.0
// LaunchPlanner: how a launch will run. It chooses the clone of its kernel, the form (loop, one
// task a block, windows) and the geometry for the GPU or a part of it, and learns from the times of
// launches that ended.
//
//   plan()            when the program launches: for the whole GPU
//   fit_to()          when it is first issued on a green context: for that many SMs
//   observe()         when it is done: its time, for the next plans
//   observe_piece()   when it was evicted the first time: that of a part, where nothing is known
//   original_ended()  its time for the next originals and for sluiced; one that took much longer
//                     than expected is timed again
//
// A launch whose plan is not evictable runs as the original. Where turns are priorities its length
// is learnt whatever its kernel is: by it sluiced knows how long others wait, and the engine how
// many may be in flight. On time slices, too: the ends of short ones are queried together.
//
// Owned by CudaStreams, used under the session's lock. Times are ns of the GPU.
#pragma once

#include <cstdint>

#include "mediator/worker/launch/launch_services.h"

namespace sluice::worker {

class LaunchPlanner {
 public:
  explicit LaunchPlanner(LaunchServices& services) : all_(services) {}

  // sluiced may give parts of the GPU: clones take every grid, however small.
  void expect_parts() { parts_ = true; }
  // Turns are priorities (SLUICE_GRANT_LEVEL): windows are no slower to leave than other forms.
  void expect_turns() { turns_ = true; }
  // Contexts share by time slices: launches run as originals.
  void expect_slices() { slices_ = true; }

  // Fills plan, and what it holds from now on, of `w`, whose request is checked. Asks the driver
  // once per shape. `contended`: others wait for the GPU; it is then not launched in windows, which
  // take longer to leave (docs/notes/2026-11-22-benchmarks.md).
  void plan(LaunchWork& w, bool contended);
  // Plans the next submission for so many SMs. False: it needs more.
  bool fit_to(LaunchWork& w, uint32_t sms);
  // Whether the original may run on this many SMs alone.
  bool may_confine_original(LaunchWork& w, uint32_t sms);

  void observe(LaunchWork& w, uint64_t ns);
  void observe_piece(LaunchWork& w, uint32_t tasks, uint64_t ns);
  void original_ended(LaunchWork& w, bool contended, uint64_t from_ns, uint64_t took_ns);

  // What launches of the same kernel and size take as the original; 0: not known.
  uint64_t original_ns(const LaunchWork& w) const;
  // Whether original_ended() learns anything.
  bool learns_originals() const { return turns_ || slices_; }
  // Launches of kernels that have clones for which the original was planned, whole, and those
  // without clones because of SLUICE_LAUNCHED_AT_ONCE.
  uint64_t whole() const { return whole_; }

  // The launch is planned as the original, because its kernel has no clones, and those before took
  // so long (scheduler.turn_whole_us) that turns should be able to interrupt it. Or it might be
  // faster in a form that its program has not made yet, and its kernel has run long enough to be
  // worth that.
  bool wants_clones(const LaunchWork& w) const;
  // The kernel has got them: for the shapes that are known. Its context is current.
  void take_other_forms(FunctionObject& f);
  // Its blocks stay on their SMs until they are evicted, where turns are priorities.
  bool stays_on_sms(const LaunchWork& w) const { return turns_ && w.plan.form == FormKind::kLoop; }

 private:
  // Of LaunchVariant::seems_long. Fewer: launches wait for clones that they do not need; more: long
  // ones cannot be interrupted for longer.
  static constexpr uint32_t kCertainlyLong = 16;
  // GPU time of a kernel in its first form before the others are made: about what making them may
  // take (assembling them, where NVIDIA's driver has not seen them before).
  static constexpr uint64_t kWorthOtherFormsNs = 50'000'000;
  void see_length(LaunchVariant& v, uint64_t takes_ns, bool contended) const;
  uint32_t variant_of(const LaunchWork& w);
  void take_other_forms(const FunctionObject& f, LaunchVariant& v);
  bool may_gain_by_other_forms(const LaunchWork& w, const LaunchVariant& v) const;
  WindowPlan take_form(LaunchWork& w, LaunchVariant& v, uint32_t sms, bool windows_may) const;
  bool runs_whole(LaunchWork& w, const LaunchVariant& v);
  void expect_whole(LaunchWork& w);
  void take_opaque_record(LaunchWork& w);
  WindowPlan take_turn_form(LaunchWork& w, const LaunchVariant& v) const;
  Geometry form_geometry(LaunchWork& w, LaunchVariant& v, uint32_t sms);
  void take_windows(LaunchWork& w, LaunchVariant& v, const WindowPlan& windows, uint32_t sms,
                    bool timed);
  void plan_for_parts(LaunchWork& w);

  LaunchServices& all_;
  bool parts_ = false, turns_ = false, slices_ = false;
  uint64_t whole_ = 0;
};

}  // namespace sluice::worker
