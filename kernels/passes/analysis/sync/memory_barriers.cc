// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/sync/memory_barriers.h"

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

namespace {

class Search {
 public:
  Search(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
         const ptx::Divergence& divergence)
      : cfg_(cfg),
        post_dominators_(post_dominators),
        divergence_(divergence),
        statements_(cfg.function().statements),
        waits_(cfg.blocks().size()) {}

  MemoryBarriers run() {
    gather();
    out_.any |= completes_;
    if (!out_.any && !out_.bulk) return out_;
    if (out_.any && out_.init.empty()) refuse("uses mbarrier objects that it does not make itself");
    if (out_.init.size() > SLUICE_PREEMPT_OBJECTS)
      refuse("makes more than " + std::to_string(SLUICE_PREEMPT_OBJECTS) + " mbarrier objects");
    if (completes_ && !any_wait_) refuse("has copies that it never waits for");
    check_objects();
    check_arrivals();
    return out_;
  }

 private:
  void refuse(std::string why) { out_.no_loop.add("mbarrier", std::move(why)); }

  void gather() {
    for (std::uint32_t i = 0; i < statements_.size(); ++i) {
      const Statement& s = statements_[i];
      if (!is_asynchronous(s)) continue;
      if (is_copy(s)) {
        gather_copy(i);
        continue;
      }
      out_.any = true;
      if (is_wait(s)) waits_[cfg_.block_of(i)] = any_wait_ = true;
      if (is_mbarrier(s, "inval")) out_.inval.push_back(i);
      if (is_mbarrier(s, "init")) out_.init.push_back(i);
    }
  }

  void gather_copy(std::uint32_t i) {
    const Statement& s = statements_[i];
    if (has_modifier(s.opcode, "prefetch")) return;  // touches no shared memory
    if (has_modifier(s.opcode, "multicast::cluster") || has_modifier(s.opcode, "cta_group::2"))
      out_.no_loop.add("bulk-copy",
                       at_line(s.line, "copies into the shared memory of several blocks"));
    if (has_modifier(s.opcode, "mbarrier")) {
      out_.any = true;
      arrivals_.push_back(i);
    } else {
      out_.bulk = true;
      completes_ |= s.opcode.find("mbarrier::complete_tx") != s.opcode.npos;
    }
  }

  // One statement must make one object in a task.
  void check_objects() {
    const auto& blocks = cfg_.blocks();
    std::vector<std::uint32_t> members(blocks.size());
    const std::vector<std::uint32_t> component = ptx::strong_components(cfg_);
    for (std::uint32_t c : component) ++members[c];
    for (std::uint32_t i : out_.init) {
      const std::uint32_t b = cfg_.block_of(i);
      const auto& next = blocks[b].successors;
      if (members[component[b]] > 1 || std::find(next.begin(), next.end(), b) != next.end())
        refuse(at_line(statements_[i].line, "makes mbarrier objects in a loop"));
      if (divergence_.operands_tainted(i))
        refuse(at_line(statements_[i].line,
                       "makes mbarrier objects at addresses that may differ between threads"));
    }
  }

  // Copies of threads may outlive the task (they end with the tail's wait), but then their arrival
  // would come to an object that is gone: some wait must follow.
  void check_arrivals() {
    for (std::uint32_t i : arrivals_)
      if (!wait_follows(i))
        refuse(at_line(statements_[i].line,
                       "has copies arrive at an mbarrier object that not every way from there "
                       "waits for"));
  }
  bool wait_follows(std::uint32_t i) const {
    std::uint32_t b = cfg_.block_of(i);
    for (std::uint32_t k = i; k < cfg_.blocks()[b].end; ++k)
      if (is_wait(statements_[k])) return true;
    while ((b = post_dominators_.immediate(b)) != ptx::kNoBlock)
      if (waits_[b]) return true;
    return false;
  }

  const ptx::Cfg& cfg_;
  const ptx::PostDominators& post_dominators_;
  const ptx::Divergence& divergence_;
  const std::vector<Statement>& statements_;
  MemoryBarriers out_;
  std::vector<bool> waits_;              // by block
  std::vector<std::uint32_t> arrivals_;  // that copies make
  bool any_wait_ = false, completes_ = false;
};

}  // namespace

MemoryBarriers find_memory_barriers(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                                    const ptx::Divergence& divergence) {
  return Search(cfg, post_dominators, divergence).run();
}

}  // namespace sluice::passes
