// SPDX-License-Identifier: Apache-2.0
// Which lanes of a warp are still on the way to a place in the code: where a register must hold
// their mask, and where it changes.
//
// A *guard* is a branch that may send lanes of one warp different ways while one of the ways leads
// past a warp collective. A block's *context* is the set of guards between which and whose
// reconvergence it lies. Each context but the empty one has a mask; it is set where a context is
// entered, from a ballot at the guard over the mask of the context outside, and shrinks where a
// loop's own guard lets lanes out. Behind a guard's reconvergence the outer context's mask holds
// again, because by post-domination all its lanes come there.
//
// Every ballot names exactly the lanes that come to it, by induction over the contexts: lanes of
// one context are only separated by guards, or by branches without collectives inside, behind which
// they meet. Where the code's shape does not allow that (a block in a guard's region that both ways
// lead to, indexed branches, a context that is entered past its outside), analyse() finds so.
//
// Owner: the lane-mask pass; refers to the graph. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/passes/analysis/facts.h"
#include "kernels/ptx/cfg.h"
#include "kernels/ptx/divergence.h"
#include "kernels/ptx/dominators.h"

namespace sluice::passes {

struct LaneSets {
  static constexpr std::uint32_t kAll = 0;  // the empty context: all 32 lanes

  // In front of a block's last instruction (or behind a block without one).
  struct Change {
    std::uint32_t block = 0;
    bool ballot = false;  // it ends in a guard: a ballot over the block's own context
    std::vector<std::uint32_t> if_taken, if_not_taken;  // contexts that get that side's lanes
    std::vector<std::uint32_t> copies;                  // contexts that get all of `from`'s
    std::uint32_t from = 0;
  };
  std::vector<std::uint32_t> context_of;  // by block; kAll where no guard matters
  std::uint32_t contexts = 1;             // kAll included
  std::vector<Change> changes;
  Finding why_not;

  // `uses`: the statements with a mask that must be reduced.
  static LaneSets analyse(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                          const ptx::Divergence& divergence, const std::vector<std::uint32_t>& uses,
                          const std::vector<bool>& barrier_follows);
};

}  // namespace sluice::passes
