// SPDX-License-Identifier: Apache-2.0
// The facts of an entry: its own and those of what it calls. See facts.h.
#include <algorithm>
#include <unordered_set>

#include "kernels/passes/analysis/facts.h"
#include "kernels/passes/analysis/spin.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::Function;
using ptx::StatementKind;
using ptx::Variable;

namespace {

// Walking the calls of all entries of a module; real modules need some thousand steps.
constexpr std::uint64_t kMaxCallSteps = 4'000'000;

}  // namespace

const Function* ModuleFacts::definition(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

bool ModuleFacts::declared_before(const Function& function, const Function& user) const {
  return named_from_.at(function.name) < user.range.begin;
}

void ModuleFacts::find_address_taken() {
  std::unordered_set<std::string_view> functions;
  for (const Function& f : module_.functions()) {
    if (f.is_entry) continue;
    functions.insert(f.name);
  }
  if (functions.empty()) return;
  std::unordered_set<const Function*> seen;
  const auto look = [&](std::string_view text) {
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(text, at); !name.empty();
         name = ptx::next_identifier(text, at)) {
      if (functions.count(name) == 0) continue;
      const Function* f = by_name_.at(name);
      if (!f->has_body) {
        links_ = true;
      } else if (seen.insert(f).second) {
        address_taken_.push_back(f);
      }
    }
  };
  for (const Variable& v : module_.variables()) {
    if (v.linkage == ".extern" && v.space != ptx::Space::kShared) links_ = true;
    if (!v.initializer.empty()) look(v.initializer);
  }
  for (const Function& f : module_.functions()) {
    if (!f.not_understood.empty()) look(module_.text_of(f.range));
    for (const ptx::Statement& s : f.statements) {
      if (s.kind != StatementKind::kInstruction) continue;
      const bool call = ptx::base_opcode(s.opcode) == "call";
      const std::size_t callee = call && !s.operands.empty() && s.operands[0].starts_with('(');
      for (std::size_t k = 0; k < s.operands.size(); ++k) {
        if (call && k == callee) continue;
        if (s.operands[k].find_first_not_of("%0123456789") == std::string_view::npos) continue;
        if (s.operands[k].front() == '%') continue;  // registers: most operands
        look(s.operands[k]);
      }
    }
  }
}

// What other modules cannot name, or have the same of (statics of inline functions), and this one
// never writes nor takes the address of.
void ModuleFacts::find_constants() {
  for (const Variable& v : module_.variables())
    if (v.space == ptx::Space::kGlobal &&
        (v.linkage.empty() || (v.linkage == ".weak" && !v.initializer.empty())))
      constants_.insert(v.name);
  if (constants_.empty()) return;
  const auto drop = [&](std::string_view text) {
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(text, at); !name.empty();
         name = ptx::next_identifier(text, at))
      if (name[0] != '%') constants_.erase(name);
  };
  for (const Variable& v : module_.variables()) drop(v.initializer);
  for (const ptx::ModuleDirective& d : module_.directives())
    if (d.name != ".section") drop(module_.text_of(d.range));
  for (const Function& f : module_.functions()) {
    if (!f.not_understood.empty()) drop(module_.text_of(f.range));
    for (const ptx::Statement& s : f.statements) {
      if (s.kind != StatementKind::kInstruction) continue;
      const bool load = ptx::base_opcode(s.opcode) == "ld" && s.operands.size() == 2;
      for (std::size_t k = 0; k < s.operands.size(); ++k)
        if (!(load && k == 1) && !s.operands[k].starts_with('%')) drop(s.operands[k]);
    }
  }
}

// Text only, before any function is analysed: loops of the callers ask for it.
ModuleFacts::Reach ModuleFacts::functions_that(bool (*does)(const ptx::Statement&)) const {
  Reach out;
  out.module = this;
  std::unordered_map<std::string_view, std::vector<std::string_view>> callers;
  std::vector<std::string_view> work;
  for (const Function& f : module_.functions()) {
    if (f.is_entry) continue;
    bool found = !f.not_understood.empty();
    for (const ptx::Statement& s : f.statements) {
      if (s.kind != StatementKind::kInstruction) continue;
      found |= does(s);
      if (ptx::base_opcode(s.opcode) != "call" || s.operands.empty()) continue;
      const std::size_t callee = s.operands[0].starts_with('(');
      if (callee < s.operands.size()) callers[s.operands[callee]].push_back(f.name);
    }
    if (found && out.functions.insert(f.name).second) work.push_back(f.name);
  }
  // A call through a register passes on what any function may do whose address is taken.
  const auto reach = [&] {
    while (!work.empty()) {
      const std::string_view name = work.back();
      work.pop_back();
      for (std::string_view caller : callers[name])
        if (out.functions.insert(caller).second) work.push_back(caller);
    }
  };
  reach();
  for (const auto& [name, means] : module_.aliases())
    if (out.functions.count(means) != 0 && out.functions.insert(name).second) work.push_back(name);
  reach();
  out.by_pointer =
      std::any_of(address_taken_.begin(), address_taken_.end(),
                  [&](const Function* f) { return out.functions.count(f->name) != 0; });
  if (!out.by_pointer) return out;
  for (const auto& [callee, by] : callers)
    if (by_name_.count(callee) == 0)
      for (std::string_view caller : by)
        if (out.functions.insert(caller).second) work.push_back(caller);
  reach();
  return out;
}

// Rule index-in-calls: the transitive callers, within reach of the entry, of what reads the index.
void ModuleFacts::add_index_functions(const Function& entry, KernelFacts& out) {
  std::vector<const Function*> reached{&entry};
  std::unordered_set<const Function*> seen{&entry};
  for (std::size_t k = 0; k < reached.size(); ++k) {
    for (const FunctionFacts::Call& call : of(*reached[k]).calls) {
      if (call.callee.empty()) continue;
      const Function* callee = by_name_.at(call.callee);
      if (callee->has_body && seen.insert(callee).second) reached.push_back(callee);
    }
  }
  std::unordered_set<const Function*> need;
  const auto any = [](const std::array<bool, 3>& a) { return a[0] || a[1] || a[2]; };
  for (bool changed = true; changed;) {
    changed = false;
    for (const Function* f : reached) {
      if (f == &entry || need.count(f) != 0) continue;
      const FunctionFacts& facts = of(*f);
      bool needs = any(facts.reads_ctaid) || any(facts.reads_nctaid);
      if (needs)
        for (std::size_t d = 0; d < 3; ++d) out.reads_ctaid[d] = true;
      for (const FunctionFacts::Call& call : facts.calls)
        needs |= !call.callee.empty() && need.count(by_name_.at(call.callee)) != 0;
      if (needs) changed = need.insert(f).second;
    }
  }
  if (need.empty()) return;
  for (const Function& f : module_.functions())
    if (need.count(&f) != 0) out.index_functions.push_back(&f);
}

KernelFacts ModuleFacts::of_entry(const Function& entry) {
  // Functions that other modules provide and that neither return early nor look at the grid.
  static const std::unordered_set<std::string_view> kKnownExternals = {
      "vprintf", "malloc", "free", "__assertfail", "__assert_fail"};
  const FunctionFacts& own = of(entry);
  KernelFacts out;
  out.opaque = own.opaque;
  out.no_loop = own.no_loop;
  out.divergent_barrier = own.divergent_barrier;
  out.divergent_collective = own.divergent_collective;
  out.reads_ctaid = own.reads_ctaid;
  out.reads_nctaid = own.reads_nctaid;
  out.has_divergent_branch = own.has_divergent_branch;
  out.author = own.author;
  out.memory_barriers = own.memory_barriers;
  out.register_pool = own.register_pool;

  // Functions that a launch from the device needs (CUDA Programming Guide, "CUDA Dynamic
  // Parallelism"): rule device-launches.
  const auto launches = [](std::string_view name) {
    return name.starts_with("cudaLaunchDevice") || name.starts_with("cudaGetParameterBuffer") ||
           name.starts_with("__cudaCDP");
  };
  const auto grid_handle = [](std::string_view name) {
    return name.starts_with("cudaCG");  // cooperative groups over grids and several GPUs
  };
  std::unordered_set<std::string_view> shared;
  std::unordered_set<const Function*> seen{&entry};
  // A function together with whether some call on the way to it was divergent or hazardous: those
  // that are must be looked at again.
  struct Visit {
    const Function* function;
    bool divergent, hazardous;
  };
  std::vector<Visit> work{{&entry, false, false}};
  std::unordered_map<const Function*, int> visited;  // bit 0 divergent, bit 1 hazardous, bit 2 seen
  while (!work.empty()) {
    const Visit visit = work.back();
    work.pop_back();
    const int bits = 4 | (visit.divergent ? 1 : 0) | (visit.hazardous ? 2 : 0);
    int& known = visited[visit.function];
    if ((known & bits) == bits) continue;
    const bool first = known == 0;
    known |= bits;
    const FunctionFacts& facts = of(*visit.function);
    call_steps_ += 1 + facts.calls.size();
    if (call_steps_ > kMaxCallSteps) {
      out.opaque.add("calls", "has too many calls to be analysed");
      break;
    }
    const std::string name(visit.function->name);
    if (first) {
      out.has_cp_async |= facts.has_cp_async;
      out.has_barrier_reduction |= facts.has_barrier_reduction;
      out.barrier_numbers |= facts.barrier_numbers;
      out.waits_for_lower_tasks |= facts.spins == SpinLoops::kLowerTasks;
      out.one_row |= facts.one_row;
      out.fetches_work |= facts.fetches_work;
      out.strides_by_grid |= facts.strides_by_grid;
      out.shares_in_block |= facts.shares_in_block;
      out.reads_dynamic_smem_size |= facts.reads_dynamic_smem_size;
      out.static_shared_bytes += facts.static_shared_bytes;
      if (out.dynamic_shared.empty()) out.dynamic_shared = facts.dynamic_shared;
      shared.insert(facts.module_shared.begin(), facts.module_shared.end());
    }
    if (visit.function != &entry) {
      out.function_reads_dynamic_size |= facts.reads_dynamic_smem_size;
      out.calls_touch_global |= facts.touches_global;
      const std::string calls = "calls " + name + ", which ";
      if (facts.opaque) out.opaque.add(facts.opaque.code, calls + facts.opaque.text);
      if (facts.no_loop) out.no_loop.add(facts.no_loop.code, calls + facts.no_loop.text);
      out.author.any |= facts.author.any;
      if (facts.author.any)
        out.author.why_not.add("author-function",
                               calls + "asks or leaves: it must be inlined (__forceinline__)");
      if (facts.has_exit) out.author.why_not.add("author-function", calls + "may end its thread");
      if (facts.has_exit)  // rule returns
        out.no_loop.add("exit-in-function", calls + "may end its thread (line " +
                                                std::to_string(facts.exit_line) + ")");
      if (facts.has_barrier && (visit.divergent || facts.divergent_barrier))
        out.no_loop.add("barrier-in-function",
                        calls + "has a barrier that not all threads may reach");
      if (facts.has_collective && (visit.hazardous || facts.divergent_collective))
        out.no_loop.add("collective-in-function",
                        calls + "has a warp collective that lanes may have returned before");
      if (facts.has_barrier && out.divergent_barrier)
        out.no_loop.add("barrier-in-function",
                        calls + "has a barrier, while others may not be reached by all threads");
    }
    for (const FunctionFacts::Call& call : facts.calls) {
      if (call.callee.empty()) {
        // Any function whose address this module takes, unless others may come in by linking.
        if (links_ || address_taken_.empty())
          out.opaque.add(
              "call-unknown",
              at_line(call.line, "calls a function through a pointer or in another module"));
        for (const Function* callee : address_taken_) {
          const FunctionFacts& target = of(*callee);
          const auto any = [](const std::array<bool, 3>& a) { return a[0] || a[1] || a[2]; };
          if (any(target.reads_ctaid) || any(target.reads_nctaid))  // rule index-in-calls
            out.opaque.add(
                "index-by-pointer",
                "may call " + std::string(callee->name) +
                    " through a pointer, which reads the block's index or the grid's size");
          work.push_back(
              {callee, visit.divergent || call.divergent, visit.hazardous || call.hazardous});
        }
        continue;
      }
      const Function* callee = by_name_.at(call.callee);
      if (!callee->has_body) {
        if (launches(call.callee))
          out.opaque.add("device-launch", at_line(call.line, "launches kernels from the GPU"));
        else if (grid_handle(call.callee))
          out.opaque.add("cooperative",
                         at_line(call.line, "uses cooperative grid synchronisation"));
        else if (kKnownExternals.count(call.callee) == 0)
          out.opaque.add("call-unknown", at_line(call.line, "calls " + std::string(call.callee) +
                                                                ", which is in another module"));
        continue;
      }
      work.push_back(
          {callee, visit.divergent || call.divergent, visit.hazardous || call.hazardous});
    }
  }
  if (out.waits_for_lower_tasks)  // a lower task that has left would be waited for for ever
    out.author.why_not.add("author-waits", "its blocks wait for one another");
  add_index_functions(entry, out);
  for (std::string_view name : shared) {
    const Variable& v = *shared_.at(name);
    out.static_shared_bytes += v.bytes + v.align;
  }
  return out;
}

}  // namespace sluice::passes
