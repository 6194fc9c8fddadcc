#include "kernels/passes/facts.h"

#include <algorithm>
#include <unordered_set>

#include "kernels/passes/spin.h"
#include "kernels/ptx/post_dominators.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::Function;
using ptx::has_modifier;
using ptx::Space;
using ptx::Statement;
using ptx::StatementKind;
using ptx::Variable;

namespace {

// Walking the calls of all entries of a module; real modules need some thousand steps.
constexpr std::uint64_t kMaxCallSteps = 4'000'000;

std::string at_line(std::uint32_t line, const std::string& what) {
  return what + " (line " + std::to_string(line) + ")";
}

// Instructions that no persistent form bears, by their first word.
const std::unordered_map<std::string_view, const char*>& forbidden_opcodes() {
  static const std::unordered_map<std::string_view, const char*> kMap = {
      {"mbarrier", "uses mbarrier objects in shared memory"},        // R27
      {"setmaxnreg", "hands registers between warps (setmaxnreg)"},  // R28
      {"mapa", "uses thread-block clusters"},                        // R13
      {"getctarank", "uses thread-block clusters"},                  // R13
      {"clusterlaunchcontrol", "fetches work from the hardware's block launcher"},
      {"tcgen05", "uses tensor memory"},                 // R27
      {"tensormap", "uses tensor maps"},                 // R27
      {"alloca", "allocates stack memory at run time"},  // R27
      {"stacksave", "allocates stack memory at run time"},
      {"stackrestore", "allocates stack memory at run time"}};
  return kMap;
}

// Special registers whose value the persistent form would change, or that need such a launch.
const char* forbidden_special(std::string_view name) {
  if (name.starts_with("%envreg")) return "uses cooperative grid synchronisation";  // R13
  if (name.starts_with("%cluster") || name.starts_with("%nclusterid") ||
      name == "%is_explicit_cluster")
    return "uses thread-block clusters";  // R13
  if (name == "%total_smem_size" || name == "%aggr_smem_size")
    return "reads the size of its shared memory";  // R33
  return nullptr;
}

bool is_collective(const Statement& s, std::string_view base) {
  static const std::unordered_set<std::string_view> kNames = {
      "shfl", "vote",  "match",    "redux",    "elect",    "mma",
      "wmma", "wgmma", "ldmatrix", "stmatrix", "movmatrix"};
  return kNames.count(base) != 0 || (base == "bar" && has_modifier(s.opcode, "warp"));
}

bool is_shadowing(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {"%ctaid",
                                                              "%nctaid",
                                                              "%tid",
                                                              "%ntid",
                                                              "%smid",
                                                              "%laneid",
                                                              "%dynamic_smem_size",
                                                              "%total_smem_size",
                                                              "%aggr_smem_size",
                                                              "%globaltimer",
                                                              "%nsmid"};
  return kNames.count(name) != 0 || forbidden_special(name) != nullptr;
}

// R24: only barriers whose number is written out; arrivals may outlive the task.
std::string barrier_blocker(const Statement& s, bool* named) {
  if (has_modifier(s.opcode, "arrive")) return "arrives at a barrier without waiting for it";
  const bool reduces = has_modifier(s.opcode, "red");
  const std::size_t id = reduces ? 1 : 0;
  if (s.operands.size() <= id) return "has a barrier that is not understood";
  std::uint64_t number = 0;
  if (!ptx::parse_integer(s.operands[id], number)) return "computes the number of a barrier";
  const bool counted = s.operands.size() > (reduces ? 3u : 1u);
  *named = number != 0 || counted;
  return {};
}

}  // namespace

ModuleFacts::ModuleFacts(const ptx::Module& module) {
  for (const Function& f : module.functions()) {
    const auto [it, fresh] = by_name_.emplace(f.name, &f);
    if (!fresh && f.has_body) it->second = &f;
  }
  for (const Variable& v : module.variables())
    if (v.space == Space::kShared) shared_.emplace(v.name, &v);
}

const FunctionFacts& ModuleFacts::of(const Function& function) {
  const auto it = cache_.find(&function);
  if (it != cache_.end()) return it->second;
  return cache_.emplace(&function, gather(function)).first->second;
}

FunctionFacts ModuleFacts::gather(const Function& f) const {
  FunctionFacts out;
  const auto block = [&](std::uint32_t line, const std::string& what) {
    if (out.blocker.empty()) out.blocker = at_line(line, what);
  };
  // R1: a directive that is not known may change how the kernel is launched.
  static const std::unordered_set<std::string_view> kKnownHeaders = {
      ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".pragma", ".noreturn"};
  for (const ptx::HeaderDirective& d : f.directives) {
    if (kKnownHeaders.count(d.name) != 0) continue;
    const bool cluster = d.name == ".reqnctapercluster" || d.name == ".explicitcluster" ||
                         d.name == ".blocksareclusters" || d.name == ".maxclusterrank";
    block(f.line, cluster ? "uses thread-block clusters"
                          : "has the unknown directive " + std::string(d.name));
  }
  const auto shared_use = [&](const Variable& v) {
    const bool unsized = v.bytes == 0;
    if (v.linkage == ".extern" && !unsized) {
      block(v.line, "uses shared memory of another module");
    } else if (unsized) {
      out.dynamic_shared = v.name;
    } else {
      out.static_shared_bytes += v.bytes + v.align;
    }
  };
  for (const Variable& v : f.variables) {
    if (v.space == Space::kShared) shared_use(v);
    if (v.space == Space::kReg && is_shadowing(v.name))
      block(v.line, "declares a register named like a special register");
  }

  struct Sync {
    std::uint32_t statement;
    bool barrier, named;
  };
  std::vector<Sync> syncs;
  std::vector<std::uint32_t> call_statements;
  std::unordered_set<std::string_view> used_shared;
  const auto& statements = f.statements;
  for (std::uint32_t i = 0; i < statements.size(); ++i) {
    const Statement& s = statements[i];
    if (s.kind == StatementKind::kDirective) {
      static const std::unordered_set<std::string_view> kKnown = {
          ".loc", ".pragma", ".branchtargets", ".calltargets", ".callprototype", ";"};
      if (kKnown.count(s.opcode) == 0)
        block(s.line, "has the unknown directive " + std::string(s.opcode));
    }
    if (s.kind != StatementKind::kInstruction) continue;
    const std::string_view base = base_opcode(s.opcode);
    if (s.opcode.find_first_of(" \t\r\n/") != s.opcode.npos)
      block(s.line, "has an instruction with space inside its name");
    const auto forbidden = forbidden_opcodes().find(base);
    if (forbidden != forbidden_opcodes().end()) block(s.line, forbidden->second);
    if (s.opcode.find("::cluster") != s.opcode.npos && base != "cp")
      block(s.line, "uses thread-block clusters");
    if (base == "cp") {
      if (has_modifier(s.opcode, "bulk") || has_modifier(s.opcode, "reduce"))
        block(s.line, "copies in bulk without its threads (TMA)");
      else if (has_modifier(s.opcode, "mbarrier"))
        block(s.line, "uses mbarrier objects in shared memory");
      else
        out.has_cp_async = true;
    } else if ((base == "red" || base == "st") && has_modifier(s.opcode, "async")) {
      block(s.line, "uses mbarrier objects in shared memory");
    } else if (is_collective(s, base)) {
      out.has_collective = true;
      syncs.push_back({i, false, false});
    } else if (base == "bar" || base == "barrier") {
      if (has_modifier(s.opcode, "cluster")) {
        block(s.line, "uses thread-block clusters");
      } else {
        bool named = false;
        const std::string why = barrier_blocker(s, &named);
        if (!why.empty()) block(s.line, why);
        out.has_barrier = true;
        syncs.push_back({i, true, named});
      }
    } else if (base == "exit") {
      out.has_exit = true;
      out.exit_line = s.line;
    } else if (base == "call") {
      call_statements.push_back(i);
      FunctionFacts::Call call;
      call.line = s.line;
      const std::size_t k = !s.operands.empty() && s.operands[0].starts_with('(') ? 1 : 0;
      if (k < s.operands.size()) {
        const std::string_view name = s.operands[k];
        if (by_name_.count(name) != 0) call.callee = name;
      }
      out.calls.push_back(call);
    }
    for (std::string_view operand : s.operands) {
      if (shared_.empty() && operand.find('%') == operand.npos) continue;
      std::size_t at = 0;
      for (;;) {
        const std::string_view name = ptx::next_identifier(operand, at);
        if (name.empty()) break;
        if (name[0] != '%') {
          const auto it = shared_.empty() ? shared_.end() : shared_.find(name);
          if (it == shared_.end() || !used_shared.insert(name).second) continue;
          if (it->second->bytes == 0 || it->second->linkage == ".extern") {
            shared_use(*it->second);
          } else {
            out.module_shared.push_back(name);
          }
          continue;
        }
        if (const char* why = forbidden_special(name)) block(s.line, why);
        if (name == "%dynamic_smem_size") out.reads_dynamic_smem_size = true;
        const bool count = name.starts_with("%nctaid");
        if (!count && !name.starts_with("%ctaid")) continue;
        auto& reads = count ? out.reads_nctaid : out.reads_ctaid;
        const char dimension = name.back();
        if (name.size() == (count ? 7u : 6u)) {
          reads = {true, true, true};  // a vector move
        } else if (dimension >= 'x' && dimension <= 'z') {
          reads[static_cast<std::size_t>(dimension - 'x')] = true;
        }
      }
    }
  }

  auto cfg = ptx::Cfg::build(f);
  if (!cfg) {
    block(f.line, cfg.error().message);
    return out;
  }
  auto post_dominators = ptx::PostDominators::build(*cfg);
  if (!post_dominators) {
    block(f.line, post_dominators.error().message);
    return out;
  }
  if (cfg->has_endless_loop()) block(f.line, "has a loop that never ends");  // R31
  if (const std::string why = find_spin_loop(*cfg, *post_dominators); !why.empty())
    if (out.blocker.empty()) out.blocker = why;
  auto divergence = ptx::Divergence::analyse(*cfg, *post_dominators);
  if (!divergence) {
    block(f.line, divergence.error().message);
    return out;
  }
  out.has_divergent_branch = !divergence->branches().empty();

  // Blocks where a collective can miss lanes that would have exited in the original but are parked
  // at the loop's barrier in the clone. Where a block-wide barrier follows the region on every path
  // to the end, the original's lanes are parked there too, so the clone adds no hazard.
  std::vector<bool> barrier_block(cfg->blocks().size()), hazard_block(cfg->blocks().size());
  for (const Sync& sync : syncs)
    if (sync.barrier && !sync.named && statements[sync.statement].guard.empty())
      barrier_block[cfg->block_of(sync.statement)] = true;
  // Whether a barrier post-dominates each block (itself included), by walking the tree once.
  std::vector<std::uint8_t> settled(cfg->blocks().size(), 2);
  const auto barrier_follows = [&](std::uint32_t b) {
    std::vector<std::uint32_t> path;
    bool found = false;
    while (b != ptx::kNoBlock) {
      if (settled[b] != 2) {
        found = settled[b] == 1;
        break;
      }
      if (barrier_block[b]) {
        settled[b] = 1;
        found = true;
        break;
      }
      path.push_back(b);
      b = post_dominators->immediate(b);
    }
    for (std::uint32_t p : path) settled[p] = found ? 1 : 0;
    return found;
  };
  for (const ptx::DivergentBranch& branch : divergence->branches()) {
    if (barrier_follows(branch.reconvergence)) continue;
    for (std::uint32_t b : branch.region) hazard_block[b] = true;
  }

  for (const Sync& sync : syncs) {
    const Statement& s = statements[sync.statement];
    const std::uint32_t b = cfg->block_of(sync.statement);
    const bool tainted = divergence->guard_tainted(sync.statement);
    if (sync.barrier) {
      if (!tainted && !divergence->in_divergent_region(b)) continue;
      if (sync.named) {  // R24
        block(s.line, "has a named or counted barrier that only some threads may reach");
      } else if (out.divergent_barrier.empty()) {
        out.divergent_barrier =
            at_line(s.line,
                    "has a barrier that not all threads may reach; needs unified "
                    "synchronisation");
      }
    } else if ((tainted || hazard_block[b]) && out.divergent_collective.empty()) {
      out.divergent_collective =
          at_line(s.line, "has the warp collective " + std::string(s.opcode) +
                              " that lanes of its mask may have returned before; needs lane masks");
    }
  }
  for (std::size_t k = 0; k < call_statements.size(); ++k) {
    const std::uint32_t i = call_statements[k];
    const std::uint32_t b = cfg->block_of(i);
    out.calls[k].divergent = divergence->guard_tainted(i) || divergence->in_divergent_region(b);
    out.calls[k].hazardous = divergence->guard_tainted(i) || hazard_block[b];
  }
  return out;
}

KernelFacts ModuleFacts::of_entry(const Function& entry) {
  // Functions that other modules provide and that neither return early nor look at the grid.
  static const std::unordered_set<std::string_view> kKnownExternals = {
      "vprintf", "malloc", "free", "__assertfail", "__assert_fail"};
  const FunctionFacts& own = of(entry);
  KernelFacts out;
  out.blocker = own.blocker;
  out.divergent_barrier = own.divergent_barrier;
  out.divergent_collective = own.divergent_collective;
  out.reads_ctaid = own.reads_ctaid;
  out.reads_nctaid = own.reads_nctaid;
  out.has_divergent_branch = own.has_divergent_branch;

  const auto block = [&](const std::string& what) {
    if (out.blocker.empty()) out.blocker = what;
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
      block("has too many calls to be analysed");
      break;
    }
    const std::string name(visit.function->name);
    if (first) {
      out.has_cp_async |= facts.has_cp_async;
      out.reads_dynamic_smem_size |= facts.reads_dynamic_smem_size;
      out.static_shared_bytes += facts.static_shared_bytes;
      if (out.dynamic_shared.empty()) out.dynamic_shared = facts.dynamic_shared;
      shared.insert(facts.module_shared.begin(), facts.module_shared.end());
    }
    if (visit.function != &entry) {
      if (!facts.blocker.empty()) block("calls " + name + ", which " + facts.blocker);
      const auto any = [](const std::array<bool, 3>& a) { return a[0] || a[1] || a[2]; };
      if (any(facts.reads_ctaid) || any(facts.reads_nctaid))  // R11
        block("calls " + name + ", which reads the block's index or the grid's size itself");
      if (facts.has_exit)  // R17
        block("calls " + name + ", which may end its thread (line " +
              std::to_string(facts.exit_line) + ")");
      if (facts.has_barrier && (visit.divergent || !facts.divergent_barrier.empty()) &&
          out.divergent_barrier.empty())
        out.divergent_barrier = "calls " + name +
                                ", which has a barrier that not all threads may reach; needs "
                                "unified synchronisation";
      if (facts.has_collective && (visit.hazardous || !facts.divergent_collective.empty()) &&
          out.divergent_collective.empty())
        out.divergent_collective = "calls " + name +
                                   ", which has a warp collective that lanes may have returned "
                                   "before; needs lane masks";
    }
    for (const FunctionFacts::Call& call : facts.calls) {
      if (call.callee.empty()) {
        block(at_line(call.line, "calls a function through a pointer or in another module"));
        continue;
      }
      const Function* callee = by_name_.at(call.callee);
      if (!callee->has_body) {
        if (kKnownExternals.count(call.callee) == 0)
          block(at_line(call.line,
                        "calls " + std::string(call.callee) + ", which is in another module"));
        continue;
      }
      work.push_back(
          {callee, visit.divergent || call.divergent, visit.hazardous || call.hazardous});
    }
  }
  for (std::string_view name : shared) {
    const Variable& v = *shared_.at(name);
    out.static_shared_bytes += v.bytes + v.align;
  }
  return out;
}

}  // namespace sluice::passes
