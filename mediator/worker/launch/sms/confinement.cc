// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/sms/confinement.h"

#include <algorithm>

#include "mediator/worker/launch/driver_calls.h"
#include "mediator/worker/launch/sms/sm_part.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

Confinement SmConfinement::choose(StreamObject& s, OpKind kind, LaunchWork& w, const Grant& grant,
                                  uint64_t now_ns) {
  w.submission.lane = &s;
  w.submission.confined_sms = 0;
  w.submission.fill = grant.fill;
  // The level of visits is for short launches: a long one that nobody can evict would keep it.
  const bool keeps_level = kind == OpKind::kOpaque && w.plan.expected_ns > kVisitNs;
  const uint32_t level = keeps_level ? std::min(grant.level, 1u) : grant.level;
  if (level != 0)
    if (Lane* lane = lanes_.at_level(s, level)) w.submission.lane = lane;
  if (grant.part || (s.of && s.context->pools.greens)) {
    if (grant.part) ++green.parts;
    const SmSet sms = sms_for(s, grant);
    const uint32_t count = sms.count();
    // What the guest's own green context holds at once, it wants there.
    const bool as_wanted = s.of && count >= s.of->sms.count();
    GreenContext* g = green_context(s, sms, now_ns);
    if (Lane* lane = g ? s.context->pools.greens->lane(*g, s) : nullptr;
        lane && (kind == OpKind::kLaunch ? planner_.fit_to(w, count)
                                         : as_wanted || planner_.may_confine_original(w, count))) {
      w.submission.lane = lane;
      w.submission.confined_sms = count;
      if (grant.part) ++green.launches;
      return Confinement::kHardware;
    }
  }
  // In the prologue form a block's task is its own number: one that returns because its
  // SM is another vGPU's would take the task with it. A resumable clone's blocks draw theirs when
  // they have come to an SM that is theirs. One that has begun in another form in a green context
  // goes on in that.
  const bool by_blocks =
      kind == OpKind::kLaunch && !w.plan.one_task && w.plan.form == FormKind::kLoop;
  return by_blocks ? Confinement::kBlocks : Confinement::kNone;
}

// Where the set's is not there yet, it is made meanwhile. Launches that went without would be kept
// to SMs by numbers that say nothing of whose they are (docs/decisions/0008-green-contexts.md), and
// what of them finds no room beside others' launches cannot leave either.
bool SmConfinement::worth_waiting(StreamObject& s, const Grant& grant, uint64_t now_ns) {
  if (!s.context->pools.greens || (!grant.part && !s.of)) return false;
  const SmSet sms = sms_for(s, grant);
  return !green_context(s, sms, now_ns) && s.context->pools.greens->worth_waiting(sms, now_ns);
}

// The grant's SMs; of a stream of the guest's own green context its share of them.
SmSet SmConfinement::sms_for(const StreamObject& s, const Grant& grant) const {
  const auto gpu_sms = static_cast<uint32_t>(s.context->shape.multiprocessors);
  const SmSet all(0, gpu_sms), granted = grant.part ? grant.sms & all : all;
  return s.of ? share_of(s.of->sms, granted, gpu_sms) : granted;
}

GreenContext* SmConfinement::green_context(StreamObject& s, const SmSet& sms, uint64_t now_ns) {
  ContextObject& c = *s.context;
  if (!c.pools.greens || make_current(all_.api, c.cu) != CUDA_SUCCESS) return nullptr;
  GreenContext* g = c.pools.greens->find(sms, now_ns);
  if (!g && c.pools.greens->due(now_ns)) make_green(s.context);
  return g;
}

}  // namespace sluice::worker
