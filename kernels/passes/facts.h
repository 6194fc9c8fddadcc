// What a kernel does that matters for rewriting: gathered once per function, joined per entry with
// the functions it calls.
//
// Owner: one rewrite_module(), one thread; refers to the module. It reports, passes decide.
// Findings name their rules (R13, R25, ..), which stand in kernels/passes/README.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/ptx/cfg.h"
#include "kernels/ptx/divergence.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

// Of one function's own body.
struct FunctionFacts {
  // The first thing found that no persistent form can bear, with its line; empty: none.
  std::string blocker;
  // Synchronisation that only some threads of a block may reach while others can have returned.
  std::string divergent_barrier;                      // R22: needs unified synchronisation
  std::string divergent_collective;                   // R25: needs lane masks
  std::array<bool, 3> reads_ctaid{}, reads_nctaid{};  // x, y, z
  bool has_barrier = false;
  bool has_collective = false;  // shuffles, votes, matrix instructions, warp barriers
  bool has_divergent_branch = false;
  bool has_cp_async = false;
  bool has_exit = false;
  std::uint32_t exit_line = 0;
  bool reads_dynamic_smem_size = false;
  std::uint64_t static_shared_bytes = 0;        // declared in the body
  std::string_view dynamic_shared;              // name of an extern shared array that it uses
  std::vector<std::string_view> module_shared;  // module-scope shared variables with a size
  struct Call {
    std::string_view callee;  // empty: indirect
    std::uint32_t line = 0;
    bool divergent = false;  // in a divergent region, or under a tainted guard
    bool hazardous = false;  // as a collective would be (see divergent_collective)
  };
  std::vector<Call> calls;
};

// Of an entry with everything that it calls.
struct KernelFacts {
  std::string blocker;
  std::string divergent_barrier;
  std::string divergent_collective;
  std::array<bool, 3> reads_ctaid{}, reads_nctaid{};
  bool has_divergent_branch = false;
  bool has_cp_async = false;
  std::string_view dynamic_shared;  // empty: none
  bool reads_dynamic_smem_size = false;
  std::uint64_t static_shared_bytes = 0;  // upper bound, padding included
};

class ModuleFacts {
 public:
  explicit ModuleFacts(const ptx::Module& module);
  KernelFacts of_entry(const ptx::Function& entry);

 private:
  const FunctionFacts& of(const ptx::Function& function);
  FunctionFacts gather(const ptx::Function& function) const;

  std::unordered_map<std::string_view, const ptx::Function*> by_name_;
  std::unordered_map<const ptx::Function*, FunctionFacts> cache_;
  std::unordered_map<std::string_view, const ptx::Variable*> shared_;  // module scope
  std::uint64_t call_steps_ = 0;
};

}  // namespace sluice::passes
