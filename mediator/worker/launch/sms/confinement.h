// SPDX-License-Identifier: Apache-2.0
// SmConfinement: what confines a launch to the SMs of its grant, and which lane it takes.
//
//   Confinement  the grant names  and                                              the launch goes
//   kHardware    a part           a green context of that set is ready, and the    its lane there
//                                 launch fits on it (LaunchPlanner)
//   kBlocks      any              a loop that can be evicted, else                 the stream's
//   kNone        any              every other launch                               the stream's
//
// A grant of a level above 0 takes the lane of that level instead of the stream's own.
//
// A stream of the guest's own green context has the share of the grant's SMs that this has of the
// GPU's, likewise where SMs are shared and the grant names none. Where they are not, its lanes are
// in that green context, and nothing is chosen here.
//
// A launch in a green context is planned for a GPU of as many SMs as its set has. Its blocks run
// nowhere else, so it has no quota, no SM is barred, and it may have any form. It stays there until
// it has ended: a change of the set evicts it.
//
// Owned by CudaStreams, used under the session's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "mediator/worker/launch/lanes.h"
#include "mediator/worker/launch/plan/planner.h"
#include "mediator/worker/launch/sms/green_contexts.h"

namespace sluice::worker {

class SmConfinement {
 public:
  SmConfinement(LaunchServices& services, Lanes& lanes, LaunchPlanner& planner)
      : all_(services), lanes_(lanes), planner_(planner) {}

  // A green context is due (GreenContexts::due()). Calls nothing of this.
  std::function<void(std::shared_ptr<ContextObject>)> make_green;
  GreenCounters green;  // GreenContexts' of all contexts

  // Sets the submission's lane, and its plan there.
  Confinement choose(StreamObject& stream, OpKind kind, LaunchWork& w, const Grant& grant,
                     uint64_t now_ns);
  // The set's green context is not there and will be soon.
  bool worth_waiting(StreamObject& stream, const Grant& grant, uint64_t now_ns);

 private:
  SmSet sms_for(const StreamObject& s, const Grant& grant) const;
  GreenContext* green_context(StreamObject& s, const SmSet& sms, uint64_t now_ns);

  LaunchServices& all_;
  Lanes& lanes_;
  LaunchPlanner& planner_;
};

}  // namespace sluice::worker
