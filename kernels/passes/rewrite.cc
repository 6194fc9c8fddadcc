#include "kernels/passes/rewrite.h"

#include <algorithm>
#include <unordered_set>

#include "abi/preempt.h"
#include "kernels/ptx/edit.h"

namespace sluice::passes {

namespace {

// In this order; the first that makes a clone wins.
constexpr Pass kPasses[] = {run_plain, run_opaque};

// "sluiceN_" with the lowest N above every number that follows "sluice" in the text: one walk, and
// no identifier of any scope, comment or string contains it (R3).
std::string fresh_prefix(std::string_view text) {
  constexpr std::string_view kWord = "sluice";
  std::uint64_t highest = 0;
  for (std::size_t at = text.find(kWord); at != text.npos; at = text.find(kWord, at + 1)) {
    std::uint64_t number = 0;
    std::size_t digits = 0;
    for (std::size_t i = at + kWord.size(); i < text.size() && digits <= 9; ++i, ++digits) {
      if (text[i] < '0' || text[i] > '9') break;
      number = number * 10 + static_cast<std::uint64_t>(text[i] - '0');
    }
    // Ten digits and more are longer than any number that we come to use.
    if (digits <= 9) highest = std::max(highest, number);
  }
  return std::string(kWord) + std::to_string(highest + 1) + "_";
}

}  // namespace

const char* tier_name(Tier tier) { return tier == Tier::kPlain ? "plain" : "opaque"; }

Rewritten rewrite_module(const ptx::Module& module) {
  const std::string prefix = fresh_prefix(module.text());
  ModuleFacts module_facts(module);
  std::unordered_set<std::string> taken;  // names at module scope
  for (const ptx::Function& f : module.functions()) taken.emplace(f.name);
  for (const ptx::Variable& v : module.variables()) taken.emplace(v.name);

  Rewritten out;
  ptx::Edits clones;
  for (const ptx::Function& f : module.functions()) {
    if (!f.is_entry || !f.has_body) continue;
    KernelReport report;
    report.name = f.name;
    report.param_bytes_original = f.param_bytes;
    const KernelFacts facts = module_facts.of_entry(f);
    report.uses_dynamic_shared = !facts.dynamic_shared.empty();
    Outcome outcome;
    if (f.name.ends_with(SLUICE_CLONE_SUFFIX)) {
      outcome.reason = "has a name that is kept for clones";
    } else if (taken.count(report.name + SLUICE_CLONE_SUFFIX) != 0) {
      outcome.reason = "the name of its clone is taken";
    } else {
      std::string reason;
      for (Pass pass : kPasses) {
        outcome = pass({module, f, facts, prefix});
        if (!outcome.clone.empty()) break;
        // The reason of the first pass that would have made a clone is what a person wants to know.
        if (reason.empty()) reason = outcome.reason;
      }
      outcome.reason = outcome.clone.empty() ? reason : std::string();
    }
    report.tier = outcome.tier;
    report.evictable = !outcome.clone.empty();
    report.reason = std::move(outcome.reason);
    if (report.evictable) {
      report.slot = outcome.slot;
      constexpr std::uint64_t kAlign = SLUICE_PREEMPT_PARAMS_ALIGN;
      report.param_offset_of_block = (f.param_bytes + kAlign - 1) / kAlign * kAlign;
      clones.insert(f.range.end, std::string("\n\n").append(outcome.clone));
    }
    out.kernels.push_back(std::move(report));
  }
  out.text = clones.apply(module.text(), {0, static_cast<std::uint32_t>(module.text().size())});
  return out;
}

Result<Rewritten> rewrite_module(std::string text) {
  auto module = ptx::Module::parse(std::move(text));
  if (!module) return std::move(module).error();
  return rewrite_module(*module);
}

}  // namespace sluice::passes
