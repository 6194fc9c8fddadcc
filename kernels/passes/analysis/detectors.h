// SPDX-License-Identifier: Apache-2.0
// Facts that show in one place of a function's text: one detector each, run in the order of a
// table. What needs the control flow is gathered behind them (facts.cc).
//
// Owner: one ModuleFacts::gather(), one thread; refers to the module. A detector adds a finding and
// never takes one back; the first finding of a kind stays.
#pragma once

#include <optional>
#include <span>

#include "kernels/passes/analysis/facts.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

// Names of the module that a function may refer to.
struct ModuleNames {
  const std::unordered_map<std::string_view, const ptx::Function*>& functions;
  const std::unordered_map<std::string_view, const ptx::Variable*>& shared;  // at module scope
};

// A function under examination.
class Examined {
 public:
  Examined(const ptx::Function& f, const ModuleNames& names, FunctionFacts& facts)
      : function(f), names_of_module(names), out(facts) {}

  // No form can bear it.
  void opaque(std::uint32_t line, std::string_view code, const std::string& what);
  // A block can run it once, but not again and again.
  void no_loop(std::uint32_t line, std::string_view code, const std::string& what);
  // Refers to shared memory of its own or of the module.
  void uses_shared(const ptx::Variable& v);
  ptx::RegisterTable& registers();

  const ptx::Function& function;
  const ModuleNames& names_of_module;
  FunctionFacts& out;

  // What the control flow decides about.
  struct Sync {
    std::uint32_t statement;
    bool barrier;  // of the block; otherwise a warp's collective
    bool named;    // with another number than 0, or a count
  };
  std::vector<Sync> syncs;
  std::vector<std::uint32_t> call_statements;  // as out.calls
  bool asynchronous = false;                   // copies whose end mbarriers or groups tell
  std::unordered_set<std::string_view> used_shared;

 private:
  std::optional<ptx::RegisterTable> registers_;
};

// Runs on each statement of its kind, by number.
struct Detector {
  const char* name;
  ptx::StatementKind kind;
  void (*examine)(Examined& e, std::uint32_t statement);
};
std::span<const Detector> detectors();

// Header directives and declarations, then the table on each statement.
void examine(Examined& e);

}  // namespace sluice::passes
