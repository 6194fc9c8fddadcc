#include "kernels/ptx/post_dominators.h"

#include <algorithm>

namespace sluice::ptx {

namespace {
// A 30,000-block kernel of nested loops needs about 10^6 steps.
constexpr std::uint64_t kMaxSteps = 20'000'000;
}  // namespace

Result<PostDominators> PostDominators::build(const Cfg& cfg) {
  const auto& blocks = cfg.blocks();
  const auto n = static_cast<std::uint32_t>(blocks.size());
  // Post-order of the reversed graph, from the exit.
  std::vector<std::uint32_t> order, position(n, kNoBlock), next(n, 0), path{cfg.exit()};
  std::vector<bool> seen(n);
  seen[cfg.exit()] = true;
  while (!path.empty()) {
    const std::uint32_t b = path.back();
    if (next[b] < blocks[b].predecessors.size()) {
      const std::uint32_t p = blocks[b].predecessors[next[b]++];
      if (!seen[p]) {
        seen[p] = true;
        path.push_back(p);
      }
      continue;
    }
    path.pop_back();
    position[b] = static_cast<std::uint32_t>(order.size());
    order.push_back(b);
  }

  PostDominators result;
  auto& idom = result.immediate_;
  idom.assign(n, kNoBlock);
  idom[cfg.exit()] = cfg.exit();
  std::uint64_t steps = 0;
  bool changed = true;
  while (changed) {
    changed = false;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const std::uint32_t b = *it;
      if (b == cfg.exit()) continue;
      std::uint32_t best = kNoBlock;
      for (std::uint32_t s : blocks[b].successors) {
        if (idom[s] == kNoBlock) continue;  // not seen yet, or never reaches the exit
        if (best == kNoBlock) {
          best = s;
          continue;
        }
        std::uint32_t other = s;
        while (best != other) {
          if (++steps > kMaxSteps) return Error{0, "control flow is too complex to analyse"};
          if (position[best] < position[other]) {
            best = idom[best];
          } else {
            other = idom[other];
          }
        }
      }
      if (best != idom[b]) {
        idom[b] = best;
        changed = true;
      }
      if (++steps > kMaxSteps) return Error{0, "control flow is too complex to analyse"};
    }
  }
  idom[cfg.exit()] = kNoBlock;
  return result;
}

bool PostDominators::dominates(std::uint32_t a, std::uint32_t b) const {
  while (b != kNoBlock && b != a) b = immediate_[b];
  return b == a;
}

}  // namespace sluice::ptx
