// SPDX-License-Identifier: Apache-2.0
// What a kernel does that matters for rewriting: gathered once per function, joined per entry with
// the functions it calls.
//
// Owner: one rewrite_module(), one thread; refers to the module. It reports, passes decide.
// Findings name their rules (clusters, lane-masks, ...), which stand in kernels/passes/README.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/passes/analysis/author_points.h"
#include "kernels/passes/analysis/finding.h"
#include "kernels/passes/analysis/register_pool.h"
#include "kernels/passes/analysis/sync/memory_barriers.h"
#include "kernels/passes/analysis/waits/spin.h"
#include "kernels/ptx/cfg.h"
#include "kernels/ptx/divergence.h"
#include "kernels/ptx/dominators.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

// What is read of the block's index and of the grid's size: x, y, z.
struct GridReads {
  std::array<bool, 3> ctaid{}, nctaid{};
  static bool any(const std::array<bool, 3>& of) { return of[0] || of[1] || of[2]; }
  bool any() const { return any(ctaid) || any(nctaid); }
};

// How the threads of a block meet.
struct BlockSync {
  bool barrier = false;
  bool reduction = false;     // a barrier that reduces
  bool collective = false;    // shuffles, votes, matrix instructions, warp barriers
  bool cp_async = false;      // copies in the background
  std::uint32_t numbers = 0;  // bit n: barrier n is used
  // Threads of a block, or lanes of a warp, depend on one another: by any of these, by shared
  // memory, activemask or stack that is allocated. One task must have ended for all of them before
  // the next begins for any.
  bool threads_depend = false;
  void add(const BlockSync& called);
};

// How blocks depend on one another, and on the grid (waits/).
struct BlockWaits {
  bool for_lower_tasks = false;  // rule in-order
  bool one_row = false;          // ... in grids of one row (spin.h)
  bool strides_by_grid = false;  // persistent.h
  bool fetches_work = false;     // a loop whose end depends on a global counter that it advances
  bool touches_global = false;   // reads or swaps what other blocks may write
  void add(const BlockWaits& called);
};

// Shared memory that is used.
struct SharedUse {
  bool given = false;                              // shared_addresses.h; rule slot-place
  bool reads_dynamic_size = false;                 // %dynamic_smem_size
  std::uint64_t static_bytes = 0;                  // upper bound, padding included
  std::string_view dynamic;                        // name of an extern array; empty: none
  std::unordered_set<std::string_view> of_module;  // module-scope variables with a size
  void add(const SharedUse& called);
};

// Of one function's own body.
struct FunctionFacts {
  Finding opaque;   // no form can bear it
  Finding no_loop;  // a block can run it once, but not again and again (rules returns,
                    // numbered-barriers, clean-up, register-pool)
  // Synchronisation that only some threads of a block may reach while others can have returned.
  Finding divergent_barrier;     // Rule unified-barriers: needs unified synchronisation
  Finding divergent_collective;  // Rule lane-masks: needs lane masks
  GridReads grid;
  BlockSync sync;
  BlockWaits waits;
  SharedUse shared;  // static_bytes: declared in the body
  bool has_divergent_branch = false;
  bool has_exit = false;
  std::uint32_t exit_line = 0;
  AuthorPoints author;
  MemoryBarriers memory_barriers;
  RegisterPool register_pool;
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
  Finding opaque, no_loop;
  Finding divergent_barrier, divergent_collective;
  GridReads grid;
  BlockSync sync;
  BlockWaits waits;
  SharedUse shared;
  bool has_divergent_branch = false;
  // A function that it calls does: waits may show in one body only.
  bool calls_touch_global = false;
  bool function_reads_dynamic_size = false;  // one of the functions that it calls does
  MemoryBarriers memory_barriers;            // the entry's
  RegisterPool register_pool;                // the entry's
  AuthorPoints author;                       // the entry's; why_not also for what its calls do
  // Functions reached by direct calls that read the block's index or the grid's size, and those on
  // the way to them (rule index-in-calls), in the order of the text.
  std::vector<const ptx::Function*> index_functions;
};

class ModuleFacts {
 public:
  explicit ModuleFacts(const ptx::Module& module);
  // Its own facts and those of what it calls. entry_facts.cc.
  KernelFacts of_kernel(const ptx::Function& entry);

  // The function of this name, with its body where there is one; null: none.
  const ptx::Function* definition(std::string_view name) const;
  // Whether the text names `function` before `user` begins, so that `user` may name it.
  bool declared_before(const ptx::Function& function, const ptx::Function& user) const;
  // Whether the module itself has a variable or function of this name.
  bool at_module_scope(std::string_view name) const {
    return by_name_.count(name) != 0 || variables_.count(name) != 0;
  }
  // What a call through a pointer may reach, in the order in which addresses are taken.
  const std::vector<const ptx::Function*>& address_taken() const { return address_taken_; }
  bool links() const { return links_; }  // refers to other modules

 private:
  friend class EntryFacts;  // entry_facts.cc
  const FunctionFacts& of(const ptx::Function& function);
  FunctionFacts gather(const ptx::Function& function) const;
  void gather_waits(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                    const ptx::ValueFlow* flow, FunctionFacts& out) const;
  void find_address_taken();
  void find_constants();
  struct Reach {
    const ModuleFacts* module = nullptr;
    std::unordered_set<std::string_view> functions;
    bool by_pointer = false;  // one of those that a call through a pointer may reach
    bool operator()(std::string_view callee) const {
      return module->by_name_.count(callee) == 0 ? by_pointer : functions.count(callee) != 0;
    }
  };
  Reach functions_that(const std::function<bool(const ptx::Function&)>& does) const;
  bool is_shared(std::string_view name) const { return shared_.count(name) != 0; }
  void add_index_functions(const ptx::Function& entry, KernelFacts& out);

  const ptx::Module& module_;
  std::unordered_map<std::string_view, const ptx::Function*> by_name_;
  std::unordered_map<std::string_view, std::uint32_t>
      named_from_;  // functions: where first declared
  std::unordered_map<const ptx::Function*, FunctionFacts> cache_;
  std::unordered_map<std::string_view, const ptx::Variable*> shared_;  // module scope
  std::unordered_set<std::string_view> variables_;                     // module scope
  std::unordered_set<std::string_view> constants_;   // module scope: only ever read, by their names
  std::vector<const ptx::Function*> address_taken_;  // what a call through a pointer may reach
  bool links_ = false;                               // refers to other modules
  // Functions that do so themselves or by a call (spin.h).
  Reach polling_, reading_, ordering_;
  std::uint64_t call_steps_ = 0;
};

}  // namespace sluice::passes
