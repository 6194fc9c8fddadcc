// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/ptx_property.h"

#include "kernels/exec/program/program.h"
#include "kernels/passes/rewrite.h"
#include "kernels/ptx/cfg.h"
#include "kernels/ptx/divergence.h"
#include "kernels/ptx/dominators.h"
#include "kernels/ptx/print.h"
#include "mediator/worker/modules/size.h"
#include "tests/fuzz/exec_property.h"
#include "tests/fuzz/targets.h"

namespace sluice::fuzz {
namespace {

// Small limits: a fuzzer should find what is wrong, not what is large.
exec::DecodeOptions small_limits() {
  exec::DecodeOptions options;
  options.max_instructions = 1u << 16;
  options.max_constant_bytes = 16u << 20;
  options.max_initialized_bytes = 1u << 20;
  return options;
}

void analyse(const ptx::Function& function) {
  auto cfg = ptx::Cfg::build(function);
  if (!cfg) return;
  for (std::uint32_t b = 0; b < cfg->blocks().size(); ++b)
    for (const std::uint32_t s : cfg->blocks()[b].successors)
      require(s < cfg->blocks().size(), "an edge leads to a block", std::string(function.name));
  (void)strong_components(*cfg);
  auto post = ptx::PostDominators::build(*cfg);
  if (!post) return;
  for (std::uint32_t b = 0; b < cfg->blocks().size(); ++b) {
    const std::uint32_t next = post->immediate(b);
    require(next == ptx::kNoBlock || post->dominates(next, b),
            "an immediate post-dominator post-dominates", std::string(function.name));
  }
  auto divergence = ptx::Divergence::analyse(*cfg, *post);
  if (!divergence) return;
  for (const ptx::DivergentBranch& branch : divergence->branches())
    for (const std::uint32_t b : branch.region)
      require(divergence->in_divergent_region(b), "a region's block is in a region",
              std::string(function.name));
}

// What a vGPU is charged before it loads the text holds all variables that the program has.
void check_charge(const std::string& text, const exec::Program& program) {
  const std::optional<std::uint64_t> charged = worker::variable_bytes(text);
  std::uint64_t taken = 0;
  for (const exec::SymbolInfo& symbol : program.symbols())
    if (!symbol.external) taken += symbol.bytes;
  require(!charged || taken <= *charged, "no variable is free of charge", text);
}

}  // namespace

PtxOutcome check_ptx_text(std::string text) {
  PtxOutcome outcome;
  auto module = ptx::Module::parse(text);
  if (!module) {
    require(module.error().message.starts_with("line "), "a parse error names its line",
            module.error().message);
    return outcome;
  }
  outcome.parsed = true;
  auto printed = ptx::print(*module);
  require(printed && *printed == text, "a module prints as it was read",
          printed ? "different bytes" : printed.error().message);
  for (const ptx::Function& function : module->functions()) {
    if (!function.has_body) continue;
    analyse(function);
    (void)ptx::list_statements(function);
  }
  const passes::Rewritten rewritten = passes::rewrite_module(*module);
  for (const passes::KernelReport& k : rewritten.kernels)
    require((k.evictable && !k.once) == k.reason.empty(), "a kernel has a loop or a reason",
            k.name);
  auto again = ptx::Module::parse(rewritten.text);
  require(static_cast<bool>(again), "a rewritten module is a module",
          again ? "" : again.error().message);
  require(passes::rewrite_module(*module).text == rewritten.text, "rewriting is deterministic", "");

  auto program = exec::decode(*module, small_limits());
  outcome.decoded = static_cast<bool>(program);
  if (!outcome.decoded) {
    require(!program.error().message.empty(), "a refusal has a reason", "");
    return outcome;
  }
  for (const exec::EntryInfo& entry : (*program)->entries())
    require((*program)->find_entry(entry.name) != nullptr, "an entry is found by its name",
            entry.name);
  for (const exec::SymbolInfo& symbol : (*program)->symbols())
    require(symbol.initial.size() <= symbol.bytes, "an initialiser fits its variable", symbol.name);
  check_charge(text, **program);
  run_entries(*program);
  return outcome;
}

bool check_ptx(std::string_view input) { return check_ptx_text(std::string(input)).decoded; }

}  // namespace sluice::fuzz
