// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/divergence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/ptx/registers.h"

namespace sluice::ptx {

namespace {

// Blocks in all divergent regions together, 4 bytes each. The largest real kernel (33,000
// instructions, some 2,000 blocks) needs about 10^6.
constexpr std::uint64_t kMaxRegionBlocks = 16'000'000;

// Taint that flows through registers until nothing changes.
class Taint {
 public:
  // `behind`: the blocks that can run behind one that taints; nothing flows back in time.
  Taint(const Cfg& cfg, const ValueFlow& flow, bool through_reductions, std::vector<bool> behind)
      : cfg_(cfg),
        flow_(flow),
        through_reductions_(through_reductions),
        behind_(std::move(behind)),
        tainted_(flow.registers()) {}
  void mark(std::uint32_t r) {
    if (tainted_[r]) return;
    tainted_[r] = true;
    work_.push_back(r);
  }
  void mark_results(std::uint32_t statement) {
    for (std::uint32_t r : flow_.defs(statement)) mark(r);
  }
  bool operator[](std::uint32_t r) const { return tainted_[r]; }
  bool any_use(std::uint32_t statement) const {
    if (!reached(statement)) return false;
    const auto uses = flow_.uses(statement);
    return std::any_of(uses.begin(), uses.end(), [&](std::uint32_t r) { return tainted_[r]; });
  }
  void settle() {
    while (!work_.empty()) {
      const std::uint32_t r = work_.back();
      work_.pop_back();
      for (std::uint32_t statement : flow_.readers(r))
        if (reached(statement) && (through_reductions_ || !flow_.uniform(statement)))
          mark_results(statement);
    }
  }

 private:
  bool reached(std::uint32_t statement) const { return behind_[cfg_.block_of(statement)]; }

  const Cfg& cfg_;
  const ValueFlow& flow_;
  bool through_reductions_;
  std::vector<bool> behind_;
  std::vector<bool> tainted_;
  std::vector<std::uint32_t> work_;
};

// By block: whether it can run behind one of the statements.
std::vector<bool> blocks_behind(const Cfg& cfg, const std::vector<std::uint32_t>& statements) {
  std::vector<bool> behind(cfg.blocks().size());
  std::vector<std::uint32_t> work;
  for (std::uint32_t i : statements) work.push_back(cfg.block_of(i));
  while (!work.empty()) {
    const std::uint32_t b = work.back();
    work.pop_back();
    if (b >= behind.size() || behind[b]) continue;
    behind[b] = true;
    const auto& next = cfg.blocks()[b].successors;
    work.insert(work.end(), next.begin(), next.end());
  }
  return behind;
}

// Marks what is written inside the regions of tainted branches, until nothing changes.
Result<void> find_branches(const Cfg& cfg, const PostDominators& post_dominators,
                           const ValueFlow& flow, Taint& taint,
                           std::vector<DivergentBranch>& branches, std::vector<bool>& in_region) {
  const auto& blocks = cfg.blocks();
  std::vector<bool> known(blocks.size());
  std::vector<std::uint32_t> seen(blocks.size(), kNoBlock);  // the branch that saw a block last
  std::uint64_t steps = 0;
  for (bool changed = true; changed;) {
    taint.settle();
    changed = false;
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      const std::uint32_t t = blocks[b].terminator;
      if (t == kNoStatement || known[b] || !cfg.reachable(b)) continue;
      // A guarded branch, return or trap, or an indexed branch; a lone target is no choice.
      if (!taint.any_use(t) || blocks[b].successors.size() + (blocks[b].traps ? 1 : 0) < 2)
        continue;
      known[b] = changed = true;
      DivergentBranch branch{b, post_dominators.immediate(b), {}};
      std::vector<std::uint32_t> work;
      const auto visit = [&](std::uint32_t next) {
        if (next == branch.reconvergence || next == cfg.exit() || seen[next] == b) return;
        seen[next] = b;
        work.push_back(next);
      };
      for (std::uint32_t next : blocks[b].successors) visit(next);
      while (!work.empty()) {
        const std::uint32_t at = work.back();
        work.pop_back();
        branch.region.push_back(at);
        if (++steps > kMaxRegionBlocks)
          return Error{0, "divergent regions are too large to analyse"};
        if (!in_region[at]) {
          for (std::uint32_t i = blocks[at].begin; i < blocks[at].end; ++i)
            for (std::uint32_t r : flow.defs(i))
              if (flow.def_count(r) > 1 || flow.kept(r)) taint.mark(r);
        }
        in_region[at] = true;
        for (std::uint32_t next : blocks[at].successors) visit(next);
      }
      branches.push_back(std::move(branch));
    }
  }
  return {};
}

}  // namespace

Result<Divergence> Divergence::analyse(const Cfg& cfg, const PostDominators& post_dominators) {
  const auto flow = ValueFlow::of(cfg);
  if (!flow) return flow.error();
  return analyse(cfg, post_dominators, *flow);
}

Result<Divergence> Divergence::analyse(const Cfg& cfg, const PostDominators& post_dominators,
                                       const ValueFlow& flow) {
  return run(cfg, post_dominators, flow, nullptr, false);
}

Result<Divergence> Divergence::depending_on(const Cfg& cfg, const PostDominators& post_dominators,
                                            const ValueFlow& flow,
                                            const std::vector<std::uint32_t>& sources) {
  return run(cfg, post_dominators, flow, &sources, true);
}

Result<Divergence> Divergence::between_threads(const Cfg& cfg,
                                               const PostDominators& post_dominators,
                                               const std::vector<std::uint32_t>& sources) {
  const auto flow = ValueFlow::of(cfg);
  if (!flow) return flow.error();
  return run(cfg, post_dominators, *flow, &sources, false);
}

Result<Divergence> Divergence::run(const Cfg& cfg, const PostDominators& post_dominators,
                                   const ValueFlow& flow, const std::vector<std::uint32_t>* sources,
                                   bool through_reductions) {
  const Function& f = cfg.function();
  const auto& blocks = cfg.blocks();
  // Between threads what one of them does taints the others' past as well.
  std::vector<bool> behind(blocks.size(), true);
  if (sources && through_reductions) behind = blocks_behind(cfg, *sources);
  Taint taint(cfg, flow, through_reductions, std::move(behind));
  if (sources) {
    for (std::uint32_t i : *sources) taint.mark_results(i);
  } else {
    // The arguments of a .func may differ between the threads that call it.
    for (std::uint32_t r : flow.parameter_registers()) taint.mark(r);
    for (std::uint32_t i = 0; i < f.statements.size(); ++i)
      if (flow.source(i)) taint.mark_results(i);
  }

  Divergence d;
  d.in_region_.assign(blocks.size(), false);
  if (auto done = find_branches(cfg, post_dominators, flow, taint, d.branches_, d.in_region_);
      !done)
    return done.error();
  d.operands_tainted_.assign(f.statements.size(), false);
  d.guard_tainted_.assign(f.statements.size(), false);
  d.reads_tainted_.assign(f.statements.size(), false);
  for (std::uint32_t i = 0; i < f.statements.size(); ++i) {
    const std::uint32_t guard = flow.guard(i);
    for (std::uint32_t r : flow.uses(i))
      if (r != guard && taint[r]) d.operands_tainted_[i] = true;
    if (!sources && flow.source(i)) d.operands_tainted_[i] = true;
    d.reads_tainted_[i] = taint.any_use(i);
    if (!f.statements[i].guard.empty())
      d.guard_tainted_[i] = guard == RegisterTable::kNone ? sources == nullptr : taint[guard];
  }
  return d;
}

}  // namespace sluice::ptx
