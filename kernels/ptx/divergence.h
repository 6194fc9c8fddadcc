// SPDX-License-Identifier: Apache-2.0
// Which branches may go different ways in different threads of a block: a taint analysis.
//
// Owner: an analysis pass, one thread; refers to the function and must not outlive its module.
// "Strict": besides %tid and its like, the results of atomics, shuffles, votes and calls, every
// loaded value counts as different between threads unless it is a parameter or a constant at a
// uniform address. Control dependence counts too: a register that is written in several places, one
// of them inside a divergent region, is tainted. Barrier reductions are uniform. So what is called
// uniform is uniform, and what is called divergent perhaps is not.
// A divergent region is what lies between a tainted branch and its immediate post-dominator.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ptx/cfg.h"
#include "kernels/ptx/dominators.h"
#include "kernels/ptx/value_flow.h"

namespace sluice::ptx {

struct DivergentBranch {
  std::uint32_t block = 0;                 // that ends in the branch
  std::uint32_t reconvergence = kNoBlock;  // its immediate post-dominator; kNoBlock: none
  std::vector<std::uint32_t> region;       // blocks in between
};

class Divergence {
 public:
  // An error where the function is too large to be analysed in reasonable time.
  static Result<Divergence> analyse(const Cfg& cfg, const PostDominators& post_dominators);
  static Result<Divergence> analyse(const Cfg& cfg, const PostDominators& post_dominators,
                                    const ValueFlow& flow);
  // The same flow from other sources: which branches depend, through registers or control, on what
  // the statements in `sources` (indices) write? For "does this loop's end wait for that load?"
  // Here what passes a barrier's reduction still depends. `flow` is the function's; who asks often
  // makes it once.
  static Result<Divergence> depending_on(const Cfg& cfg, const PostDominators& post_dominators,
                                         const ValueFlow& flow,
                                         const std::vector<std::uint32_t>& sources);
  // Divergence where only `sources` make a difference between threads.
  static Result<Divergence> between_threads(const Cfg& cfg, const PostDominators& post_dominators,
                                            const std::vector<std::uint32_t>& sources);

  const std::vector<DivergentBranch>& branches() const { return branches_; }
  // Whether only some threads of a block may come to this block (it lies in a divergent region).
  bool in_divergent_region(std::uint32_t block) const { return in_region_[block]; }
  // Whether the statement's guard may differ between threads; false without a guard.
  bool guard_tainted(std::uint32_t statement) const { return guard_tainted_[statement]; }
  // Whether a register that the statement reads, its guard too, is tainted.
  bool reads_tainted(std::uint32_t statement) const { return reads_tainted_[statement]; }
  // Whether one of the registers that the statement reads, its guard apart, may differ between
  // threads; true where it reads %tid and its like itself.
  bool operands_tainted(std::uint32_t statement) const { return operands_tainted_[statement]; }

 private:
  static Result<Divergence> run(const Cfg& cfg, const PostDominators& post_dominators,
                                const ValueFlow& flow, const std::vector<std::uint32_t>* sources,
                                bool through_reductions);

  std::vector<DivergentBranch> branches_;
  std::vector<bool> in_region_;
  std::vector<bool> guard_tainted_, reads_tainted_, operands_tainted_;
};

}  // namespace sluice::ptx
