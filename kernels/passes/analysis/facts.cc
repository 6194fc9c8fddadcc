// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/facts.h"

#include <algorithm>
#include <functional>

#include "kernels/passes/analysis/detectors.h"
#include "kernels/passes/analysis/shared_addresses.h"
#include "kernels/passes/analysis/sync/synchronisation.h"
#include "kernels/passes/analysis/waits/persistent.h"
#include "kernels/passes/analysis/waits/polled_values.h"
#include "kernels/passes/analysis/waits/spin.h"
#include "kernels/ptx/dominators.h"

namespace sluice::passes {

using ptx::Function;
using ptx::Space;
using ptx::Statement;
using ptx::Variable;

namespace {

// Whether a function has such an instruction.
auto some(bool (*does)(const Statement&)) {
  return [does](const Function& f) {
    return std::any_of(f.statements.begin(), f.statements.end(), [does](const Statement& s) {
      return s.kind == ptx::StatementKind::kInstruction && does(s);
    });
  };
}

// Blocks where a collective can miss lanes that would have exited in the original but are parked at
// the loop's barrier in the clone. Where a block-wide barrier follows the region on every path to
// the end, the original's lanes are parked there too, so the clone adds no hazard.
std::vector<bool> hazard_blocks(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                                const ptx::Divergence& divergence) {
  const std::vector<bool> followed = barrier_follows(cfg, post_dominators);
  std::vector<bool> hazards(cfg.blocks().size());
  for (const ptx::DivergentBranch& branch : divergence.branches()) {
    if (branch.reconvergence != ptx::kNoBlock && followed[branch.reconvergence]) continue;
    for (std::uint32_t b : branch.region) hazards[b] = true;
  }
  return hazards;
}

// Barriers that only some threads may reach, and collectives of which lanes may have returned.
void judge_syncs(Examined& e, const ptx::Cfg& cfg, const ptx::Divergence& divergence,
                 const std::vector<bool>& hazards) {
  for (const Examined::Sync& sync : e.syncs) {
    const Statement& s = e.function.statements[sync.statement];
    const std::uint32_t b = cfg.block_of(sync.statement);
    const bool tainted = divergence.guard_tainted(sync.statement);
    if (!sync.barrier) {
      if (tainted || hazards[b])
        e.out.divergent_collective.add(
            "collective", at_line(s.line, "has the warp collective " + std::string(s.opcode) +
                                              " that lanes of its mask may have returned before"));
      continue;
    }
    if (!tainted && !divergence.in_divergent_region(b)) continue;
    if (sync.named)
      e.no_loop(s.line, "barrier-named",
                "has a named or counted barrier that only some threads may reach");
    else
      e.out.divergent_barrier.add("barrier-divergent",
                                  at_line(s.line, "has a barrier that not all threads may reach"));
  }
}

void judge_calls(Examined& e, const ptx::Cfg& cfg, const ptx::Divergence& divergence,
                 const std::vector<bool>& hazards) {
  for (std::size_t k = 0; k < e.call_statements.size(); ++k) {
    const std::uint32_t i = e.call_statements[k];
    const std::uint32_t b = cfg.block_of(i);
    const bool tainted = divergence.guard_tainted(i);
    e.out.calls[k].divergent = tainted || divergence.in_divergent_region(b);
    e.out.calls[k].hazardous = tainted || hazards[b];
  }
}

}  // namespace

ModuleFacts::ModuleFacts(const ptx::Module& module) : module_(module) {
  for (const Function& f : module.functions()) {
    named_from_.emplace(f.name, f.range.begin);
    const auto [it, fresh] = by_name_.emplace(f.name, &f);
    if (!fresh && f.has_body) it->second = &f;
  }
  for (const auto& [name, means] : module.aliases()) {
    const Function* function = definition(means);
    if (function != nullptr && function->has_body) by_name_[name] = function;
  }
  for (const Variable& v : module.variables()) {
    variables_.insert(v.name);
    if (v.space == Space::kShared) shared_.emplace(v.name, &v);
  }
  find_address_taken();
  find_constants();
  polling_ = functions_that([this](const Function& f) {
    return hands_on_polled(f, [this](std::string_view name) { return is_shared(name); });
  });
  reading_ = functions_that(some(may_read));
  ordering_ = functions_that(some(orders_memory));
}

const FunctionFacts& ModuleFacts::of(const Function& function) {
  const auto it = cache_.find(&function);
  if (it != cache_.end()) return it->second;
  return cache_.emplace(&function, gather(function)).first->second;
}

FunctionFacts ModuleFacts::gather(const Function& f) const {
  FunctionFacts out;
  const ModuleNames names{by_name_, shared_};
  Examined e(f, names, out);
  if (!f.not_understood.empty()) {
    out.opaque.add("not-understood", "is not understood: " + f.not_understood);
    return out;
  }
  examine(e);
  out.shared.given =
      uses_given_shared_addresses(f, [this](std::string_view name) { return is_shared(name); });
  auto cfg = ptx::Cfg::build(f);
  if (!cfg) {
    e.opaque(f.line, "control-flow", cfg.error().message);
    return out;
  }
  auto post_dominators = ptx::PostDominators::build(*cfg);
  if (!post_dominators) {
    e.opaque(f.line, "control-flow", post_dominators.error().message);
    return out;
  }
  if (cfg->has_endless_loop()) e.opaque(f.line, "endless", "has a loop that never ends");
  const auto flow = ptx::ValueFlow::of(*cfg);
  gather_waits(*cfg, *post_dominators, flow ? &*flow : nullptr, out);
  if (may_name_author_points(module_.text_of(f.range)))
    out.author = find_author_points(*cfg, *post_dominators);
  auto divergence = flow ? ptx::Divergence::analyse(*cfg, *post_dominators, *flow)
                         : Result<ptx::Divergence>(flow.error());
  if (!divergence) {
    e.no_loop(f.line, "control-flow", divergence.error().message);
    return out;
  }
  out.has_divergent_branch = !divergence->branches().empty();
  if (f.is_entry) {
    out.register_pool = find_register_pool(f);
    if (const Finding& why = out.register_pool.no_loop) out.no_loop.add(why.code, why.text);
  }
  if (e.asynchronous) {
    out.memory_barriers = find_memory_barriers(*cfg, *post_dominators, *divergence);
    if (const Finding& why = out.memory_barriers.no_loop) out.no_loop.add(why.code, why.text);
  }
  const std::vector<bool> hazards = hazard_blocks(*cfg, *post_dominators, *divergence);
  judge_syncs(e, *cfg, *divergence, hazards);
  judge_calls(e, *cfg, *divergence, hazards);
  return out;
}

void ModuleFacts::gather_waits(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                               const ptx::ValueFlow* flow, FunctionFacts& out) const {
  const Callees callees{std::cref(polling_), std::cref(reading_), std::cref(ordering_),
                        [this](std::string_view name) { return constants_.count(name) != 0; }};
  Waiting waiting;
  const FollowedText text(cfg.function(),
                          [this](std::string_view name) { return is_shared(name); });
  if (text.differs()) {
    const auto its_cfg = ptx::Cfg::build(text.function());
    if (!its_cfg) return out.opaque.add("waits", its_cfg.error().message);
    const auto its_ends = ptx::PostDominators::build(*its_cfg);
    if (!its_ends) return out.opaque.add("waits", its_ends.error().message);
    waiting = find_waiting(*its_cfg, *its_ends, callees);
  } else {
    waiting = find_waiting(cfg, post_dominators, callees, flow);
  }
  out.waits.for_lower_tasks = waiting.spins == SpinLoops::kLowerTasks;
  out.waits.one_row = waiting.one_row;
  out.waits.fetches_work = waiting.fetches_work;
  out.waits.strides_by_grid = GridReads::any(out.grid.nctaid) && strides_by_grid(cfg);
  if (waiting.spins == SpinLoops::kUnknown) out.opaque.add("waits", waiting.why);
}

}  // namespace sluice::passes
