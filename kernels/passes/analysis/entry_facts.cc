// SPDX-License-Identifier: Apache-2.0
// The facts of a kernel: its own and those of the functions that it calls. See facts.h.
//
// EntryFacts walks the calls from the entry. A function is visited again when a call on the way to
// it is divergent or hazardous for the first time, because its barriers and collectives then are.
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/passes/analysis/facts.h"
#include "kernels/passes/analysis/waits/spin.h"
#include "kernels/ptx/known_functions.h"

namespace sluice::passes {

using ptx::Function;
using ptx::Variable;

namespace {

// Walking the calls of all entries of a module; real modules need some thousand steps.
constexpr std::uint64_t kMaxCallSteps = 4'000'000;

// What a launch from the device needs (CUDA Programming Guide, "CUDA Dynamic Parallelism"): rule
// device-launches.
bool launches_kernels(std::string_view name) {
  return name.starts_with("cudaLaunchDevice") || name.starts_with("cudaGetParameterBuffer") ||
         name.starts_with("__cudaCDP");
}
// Cooperative groups over grids and several GPUs.
bool synchronises_grid(std::string_view name) { return name.starts_with("cudaCG"); }

}  // namespace

void BlockSync::add(const BlockSync& called) {
  barrier |= called.barrier;
  reduction |= called.reduction;
  collective |= called.collective;
  cp_async |= called.cp_async;
  numbers |= called.numbers;
  threads_depend |= called.threads_depend;
}

void BlockWaits::add(const BlockWaits& called) {
  for_lower_tasks |= called.for_lower_tasks;
  one_row |= called.one_row;
  strides_by_grid |= called.strides_by_grid;
  fetches_work |= called.fetches_work;
  touches_global |= called.touches_global;
}

void SharedUse::add(const SharedUse& called) {
  given |= called.given;
  reads_dynamic_size |= called.reads_dynamic_size;
  static_bytes += called.static_bytes;
  if (dynamic.empty()) dynamic = called.dynamic;
  of_module.insert(called.of_module.begin(), called.of_module.end());
}

class EntryFacts {
 public:
  EntryFacts(ModuleFacts& module, const Function& entry) : module_(module), entry_(entry) {}

  KernelFacts gather() {
    start_from_entry();
    follow_calls();
    if (out_.waits.for_lower_tasks)  // a lower task that has left would be waited for for ever
      out_.author.why_not.add("author-waits", "its blocks wait for one another");
    module_.add_index_functions(entry_, out_);
    for (std::string_view name : out_.shared.of_module) {
      const Variable& v = *module_.shared_.at(name);
      out_.shared.static_bytes += v.bytes + v.align;
    }
    return std::move(out_);
  }

 private:
  struct Visit {
    const Function* function;
    // Whether some call on the way to it was.
    bool divergent, hazardous;
  };
  enum Known : int { kDivergent = 1, kHazardous = 2, kSeen = 4 };

  // What only the entry's own text decides.
  void start_from_entry() {
    const FunctionFacts& own = module_.of(entry_);
    out_.opaque = own.opaque;
    out_.no_loop = own.no_loop;
    out_.divergent_barrier = own.divergent_barrier;
    out_.divergent_collective = own.divergent_collective;
    out_.grid = own.grid;
    out_.has_divergent_branch = own.has_divergent_branch;
    out_.author = own.author;
    out_.memory_barriers = own.memory_barriers;
    out_.register_pool = own.register_pool;
  }

  void follow_calls() {
    work_.push_back({&entry_, false, false});
    while (!work_.empty()) {
      const Visit visit = work_.back();
      work_.pop_back();
      const int bits =
          kSeen | (visit.divergent ? kDivergent : 0) | (visit.hazardous ? kHazardous : 0);
      int& known = visited_[visit.function];
      if ((known & bits) == bits) continue;
      const bool first = known == 0;
      known |= bits;
      const FunctionFacts& facts = module_.of(*visit.function);
      module_.call_steps_ += 1 + facts.calls.size();
      if (module_.call_steps_ > kMaxCallSteps) {
        out_.opaque.add("calls", "has too many calls to be analysed");
        return;
      }
      if (first) add(facts);
      if (visit.function != &entry_) add_called(visit, facts);
      for (const FunctionFacts::Call& call : facts.calls) {
        if (call.callee.empty())
          call_by_pointer(visit, call);
        else
          call_by_name(visit, call);
      }
    }
  }

  // What any function of the kernel may add.
  void add(const FunctionFacts& facts) {
    out_.sync.add(facts.sync);
    out_.waits.add(facts.waits);
    out_.shared.add(facts.shared);
  }

  // What a called function does to the kernel.
  void add_called(const Visit& visit, const FunctionFacts& facts) {
    out_.function_reads_dynamic_size |= facts.shared.reads_dynamic_size;
    out_.calls_touch_global |= facts.waits.touches_global;
    const std::string calls = "calls " + std::string(visit.function->name) + ", which ";
    if (facts.opaque) out_.opaque.add(facts.opaque.code, calls + facts.opaque.text);
    if (facts.no_loop) out_.no_loop.add(facts.no_loop.code, calls + facts.no_loop.text);
    out_.author.any |= facts.author.any;
    if (facts.author.any)
      out_.author.why_not.add("author-function",
                              calls + "asks or leaves: it must be inlined (__forceinline__)");
    if (facts.has_exit) out_.author.why_not.add("author-function", calls + "may end its thread");
    if (facts.has_exit)  // rule returns
      out_.no_loop.add("exit-in-function",
                       calls + "may end its thread (line " + std::to_string(facts.exit_line) + ")");
    if (facts.sync.barrier && (visit.divergent || facts.divergent_barrier))
      out_.no_loop.add("barrier-in-function",
                       calls + "has a barrier that not all threads may reach");
    if (facts.sync.collective && (visit.hazardous || facts.divergent_collective))
      out_.no_loop.add("collective-in-function",
                       calls + "has a warp collective that lanes may have returned before");
    if (facts.sync.barrier && out_.divergent_barrier)
      out_.no_loop.add("barrier-in-function",
                       calls + "has a barrier, while others may not be reached by all threads");
  }

  void call(const Visit& from, const FunctionFacts::Call& call, const Function* callee) {
    work_.push_back({callee, from.divergent || call.divergent, from.hazardous || call.hazardous});
  }

  // Any function whose address this module takes, unless others may come in by linking. Where it
  // takes none, a runtime's call of what it is handed is never come to; a kernel's own pointer may
  // be another module's.
  void call_by_pointer(const Visit& from, const FunctionFacts::Call& through) {
    if (module_.links_ || (module_.address_taken_.empty() && from.function == &entry_))
      out_.opaque.add(
          "call-unknown",
          at_line(through.line, "calls a function through a pointer or in another module"));
    for (const Function* callee : module_.address_taken_) {
      if (module_.of(*callee).grid.any())  // rule index-in-calls
        out_.opaque.add("index-by-pointer",
                        "may call " + std::string(callee->name) +
                            " through a pointer, which reads the block's index or the grid's size");
      call(from, through, callee);
    }
  }

  void call_by_name(const Visit& from, const FunctionFacts::Call& named) {
    const Function* callee = module_.by_name_.at(named.callee);
    if (callee->has_body) return call(from, named, callee);
    if (launches_kernels(named.callee))
      out_.opaque.add("device-launch", at_line(named.line, "launches kernels from the GPU"));
    else if (synchronises_grid(named.callee))
      out_.opaque.add("cooperative", at_line(named.line, "uses cooperative grid synchronisation"));
    else if (ptx::known_function(named.callee) == nullptr)
      out_.opaque.add("call-unknown", at_line(named.line, "calls " + std::string(named.callee) +
                                                              ", which is in another module"));
  }

  ModuleFacts& module_;
  const Function& entry_;
  KernelFacts out_;
  std::vector<Visit> work_;
  std::unordered_map<const Function*, int> visited_;  // Known
};

KernelFacts ModuleFacts::of_kernel(const Function& entry) {
  return EntryFacts(*this, entry).gather();
}

}  // namespace sluice::passes
