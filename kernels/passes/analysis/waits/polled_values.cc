// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/waits/polled_values.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/passes/analysis/waits/spin.h"
#include "kernels/ptx/divergence.h"
#include "kernels/ptx/dominators.h"

namespace sluice::passes {

using ptx::Statement;
using ptx::StatementKind;

bool hands_on_polled(const ptx::Function& function,
                     const std::function<bool(std::string_view)>& shared) {
  const auto polls = [](const Statement& s) {
    return s.kind == StatementKind::kInstruction && may_poll(s);
  };
  if (!function.not_understood.empty()) return true;
  if (std::none_of(function.statements.begin(), function.statements.end(), polls)) return false;
  const FollowedText text(function, shared);
  const std::vector<Statement>& statements = text.function().statements;
  std::vector<std::uint32_t> polled;
  for (std::uint32_t i = 0; i < statements.size(); ++i)
    if (polls(statements[i])) polled.push_back(i);
  if (polled.empty()) return false;
  // Results in registers are not followed.
  if (std::any_of(function.returns.begin(), function.returns.end(),
                  [](const ptx::Variable& v) { return v.space == ptx::Space::kReg; }))
    return true;
  const auto cfg = ptx::Cfg::build(text.function());
  if (!cfg) return true;
  const auto post_dominators = ptx::PostDominators::build(*cfg);
  if (!post_dominators) return true;
  const auto flow = ptx::ValueFlow::of(*cfg);
  if (!flow) return true;
  const auto dependence = ptx::Divergence::depending_on(*cfg, *post_dominators, *flow, polled);
  if (!dependence) return true;
  for (std::uint32_t i = 0; i < statements.size(); ++i) {
    const Statement& s = statements[i];
    if (s.kind != StatementKind::kInstruction ||
        !(hands_on(s) || ptx::base_opcode(s.opcode) == "call"))
      continue;
    if (dependence->reads_tainted(i) || dependence->in_divergent_region(cfg->block_of(i)))
      return true;
  }
  return false;
}

}  // namespace sluice::passes
