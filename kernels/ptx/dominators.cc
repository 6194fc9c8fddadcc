// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/dominators.h"

#include <utility>

namespace sluice::ptx {

namespace {
// A 30,000-block kernel of nested loops needs about 10^6 steps.
constexpr std::uint64_t kMaxSteps = 20'000'000;
}  // namespace

Result<std::vector<std::uint32_t>> immediate_dominators(
    std::uint32_t count, std::uint32_t root, const std::vector<std::vector<std::uint32_t>>& away,
    const std::vector<std::vector<std::uint32_t>>& towards,
    std::vector<std::uint32_t>* post_order) {
  std::vector<std::uint32_t> order, position(count, kNoBlock), next(count, 0), path{root};
  std::vector<bool> seen(count);
  seen[root] = true;
  while (!path.empty()) {
    const std::uint32_t b = path.back();
    if (next[b] < away[b].size()) {
      const std::uint32_t to = away[b][next[b]++];
      if (!seen[to]) path.push_back(to);
      seen[to] = true;
      continue;
    }
    path.pop_back();
    position[b] = static_cast<std::uint32_t>(order.size());
    order.push_back(b);
  }

  std::vector<std::uint32_t> idom(count, kNoBlock);
  idom[root] = root;
  std::uint64_t steps = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = order.rbegin() + 1; it != order.rend(); ++it) {
      std::uint32_t best = kNoBlock;
      for (std::uint32_t other : towards[*it]) {
        if (idom[other] == kNoBlock) continue;  // not seen yet, or not in the tree
        while (best != kNoBlock && best != other) {
          if (++steps > kMaxSteps) return Error{0, "control flow is too complex to analyse"};
          std::uint32_t& lower = position[best] < position[other] ? best : other;
          lower = idom[lower];
        }
        best = other;
      }
      changed |= idom[*it] != best;
      idom[*it] = best;
      if (++steps > kMaxSteps) return Error{0, "control flow is too complex to analyse"};
    }
  }
  if (post_order) *post_order = std::move(order);
  return idom;
}

Result<void> DominatorTree::find(const Cfg& cfg, std::uint32_t root, Edges away, Edges towards) {
  const auto& blocks = cfg.blocks();
  const auto n = static_cast<std::uint32_t>(blocks.size());
  std::vector<std::vector<std::uint32_t>> leaving(n), coming(n);
  for (std::uint32_t b = 0; b < n; ++b) {
    leaving[b] = blocks[b].*away;
    coming[b] = blocks[b].*towards;
  }
  std::vector<std::uint32_t> order;
  auto found = immediate_dominators(n, root, leaving, coming, &order);
  if (!found) return found.error();
  auto& idom = immediate_;
  idom = *std::move(found);

  // Children behind one another in their parent's interval; in post-order a block comes behind its
  // subtree.
  std::vector<std::uint32_t> size(n, 1), free(n, 0);
  begin_.assign(n, kNoBlock);
  end_.assign(n, 0);
  for (std::uint32_t b : order)
    if (b != root) size[idom[b]] += size[b];
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const std::uint32_t b = *it;
    begin_[b] = b == root ? 0 : free[idom[b]];
    if (b != root) free[idom[b]] += size[b];
    end_[b] = begin_[b] + size[b];
    free[b] = begin_[b] + 1;
  }
  idom[root] = kNoBlock;
  return {};
}

Result<Dominators> Dominators::build(const Cfg& cfg) {
  Dominators tree;
  if (auto found = tree.find(cfg, cfg.entry(), &Block::successors, &Block::predecessors); !found)
    return found.error();
  return tree;
}

Result<PostDominators> PostDominators::build(const Cfg& cfg) {
  PostDominators tree;
  if (auto found = tree.find(cfg, cfg.exit(), &Block::predecessors, &Block::successors); !found)
    return found.error();
  return tree;
}

}  // namespace sluice::ptx
