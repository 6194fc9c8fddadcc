// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/sync/synchronisation.h"

#include <unordered_set>

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;

bool is_collective(const Statement& s) {
  static const std::unordered_set<std::string_view> kNames = {
      "shfl", "vote",  "match",    "redux",    "elect",    "mma",
      "wmma", "wgmma", "ldmatrix", "stmatrix", "movmatrix"};
  const std::string_view base = base_opcode(s.opcode);
  return kNames.count(base) != 0 || (base == "bar" && has_modifier(s.opcode, "warp")) ||
         (base == "tensormap" && has_modifier(s.opcode, "sync"));
}

bool is_block_barrier(const Statement& s, bool guarded) {
  const std::string_view base = base_opcode(s.opcode);
  if (s.kind != ptx::StatementKind::kInstruction || (base != "bar" && base != "barrier") ||
      (!guarded && !s.guard.empty()) || has_modifier(s.opcode, "warp") ||
      has_modifier(s.opcode, "arrive") || has_modifier(s.opcode, "cluster"))
    return false;
  const bool reduces = has_modifier(s.opcode, "red");
  const std::size_t id = reduces ? 1 : 0;
  std::uint64_t number = 0;
  return s.operands.size() == (reduces ? 3u : 1u) && ptx::parse_integer(s.operands[id], number) &&
         number == 0;
}

std::vector<bool> barrier_follows(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators) {
  const auto& blocks = cfg.blocks();
  const auto& statements = cfg.function().statements;
  std::vector<bool> here(blocks.size());
  for (std::uint32_t b = 0; b < blocks.size(); ++b)
    for (std::uint32_t i = blocks[b].begin; i < blocks[b].end; ++i)
      if (is_block_barrier(statements[i])) here[b] = true;
  // The tree of immediate post-dominators, walked once.
  enum : std::uint8_t { kNo, kYes, kOpen };
  std::vector<std::uint8_t> settled(blocks.size(), kOpen);
  std::vector<bool> out(blocks.size());
  for (std::uint32_t start = 0; start < blocks.size(); ++start) {
    std::vector<std::uint32_t> path;
    bool found = false;
    for (std::uint32_t b = start; b != ptx::kNoBlock; b = post_dominators.immediate(b)) {
      if (settled[b] != kOpen) {
        found = settled[b] == kYes;
        break;
      }
      path.push_back(b);
      if (here[b]) {
        found = true;
        break;
      }
    }
    // Everything on the path before the barrier, and its own block, has it ahead.
    for (std::uint32_t p : path) settled[p] = found ? kYes : kNo;
    out[start] = found;
  }
  return out;
}

}  // namespace sluice::passes
