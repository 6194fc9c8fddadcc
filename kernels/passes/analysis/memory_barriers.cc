// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/memory_barriers.h"

#include <algorithm>
#include <string>

#include "abi/preempt.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::has_modifier;
using ptx::Statement;
using ptx::StatementKind;

namespace {

bool is_mbarrier(const Statement& s, std::string_view what) {
  return base_opcode(s.opcode) == "mbarrier" && has_modifier(s.opcode, what);
}
bool is_wait(const Statement& s) {
  return is_mbarrier(s, "test_wait") || is_mbarrier(s, "try_wait");
}
bool is_copy(const Statement& s) { return base_opcode(s.opcode) == "cp"; }

}  // namespace

bool is_asynchronous(const Statement& s) {
  if (s.kind != StatementKind::kInstruction) return false;
  if (base_opcode(s.opcode) == "mbarrier") return true;
  return is_copy(s) && (has_modifier(s.opcode, "bulk") || has_modifier(s.opcode, "mbarrier"));
}

MemoryBarriers find_memory_barriers(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                                    const ptx::Divergence& divergence) {
  MemoryBarriers out;
  const auto& blocks = cfg.blocks();
  const auto& statements = cfg.function().statements;
  std::vector<bool> waits(blocks.size());
  std::vector<std::uint32_t> arrivals;  // that copies make
  bool any_wait = false, completes = false;
  for (std::uint32_t i = 0; i < statements.size(); ++i) {
    const Statement& s = statements[i];
    if (!is_asynchronous(s)) continue;
    if (is_copy(s)) {
      if (has_modifier(s.opcode, "prefetch")) continue;  // touches no shared memory
      if (has_modifier(s.opcode, "multicast::cluster") || has_modifier(s.opcode, "cta_group::2"))
        out.no_loop.add("bulk-copy",
                        at_line(s.line, "copies into the shared memory of several blocks"));
      if (has_modifier(s.opcode, "mbarrier")) {
        out.any = true;
        arrivals.push_back(i);
      } else {
        out.bulk = true;
        completes |= s.opcode.find("mbarrier::complete_tx") != s.opcode.npos;
      }
      continue;
    }
    out.any = true;
    if (is_wait(s)) waits[cfg.block_of(i)] = any_wait = true;
    if (is_mbarrier(s, "inval")) out.inval.push_back(i);
    if (is_mbarrier(s, "init")) out.init.push_back(i);
  }
  out.any |= completes;
  if (!out.any && !out.bulk) return out;
  if (out.any && out.init.empty())
    out.no_loop.add("mbarrier", "uses mbarrier objects that it does not make itself");
  if (out.init.size() > SLUICE_PREEMPT_OBJECTS)
    out.no_loop.add("mbarrier", "makes more than " + std::to_string(SLUICE_PREEMPT_OBJECTS) +
                                    " mbarrier objects");
  if (completes && !any_wait) out.no_loop.add("mbarrier", "has copies that it never waits for");

  std::vector<std::uint32_t> members(blocks.size());
  const std::vector<std::uint32_t> component = ptx::strong_components(cfg);
  for (std::uint32_t c : component) ++members[c];
  for (std::uint32_t i : out.init) {
    const std::uint32_t b = cfg.block_of(i);
    const auto& next = blocks[b].successors;
    if (members[component[b]] > 1 || std::find(next.begin(), next.end(), b) != next.end())
      out.no_loop.add("mbarrier", at_line(statements[i].line, "makes mbarrier objects in a loop"));
    if (divergence.operands_tainted(i))
      out.no_loop.add("mbarrier", at_line(statements[i].line,
                                          "makes mbarrier objects at addresses that may differ "
                                          "between threads"));
  }
  // Copies of threads may outlive the task (they end with the tail's wait), but then their arrival
  // would come to an object that is gone: some wait must follow.
  for (std::uint32_t i : arrivals) {
    std::uint32_t b = cfg.block_of(i);
    bool followed = false;
    for (std::uint32_t k = i; k < blocks[b].end && !followed; ++k)
      followed = is_wait(statements[k]);
    for (b = post_dominators.immediate(b); b != ptx::kNoBlock && !followed;
         b = post_dominators.immediate(b))
      followed = waits[b];
    if (!followed)
      out.no_loop.add("mbarrier", at_line(statements[i].line,
                                          "has copies arrive at an mbarrier object that not every "
                                          "way from there waits for"));
  }
  return out;
}

}  // namespace sluice::passes
