#include "kernels/passes/analysis/facts.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_set>

#include "kernels/passes/analysis/persistent.h"
#include "kernels/passes/analysis/spin.h"
#include "kernels/passes/analysis/synchronisation.h"
#include "kernels/ptx/dominators.h"
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

struct Forbidden {
  const char* code;
  const char* what;
  bool in_any_form;  // otherwise only in a loop
};

// Instructions that not every form bears, by their first word.
const std::unordered_map<std::string_view, Forbidden>& forbidden_opcodes() {
  static const std::unordered_map<std::string_view, Forbidden> kMap = {
      {"mapa", {"cluster", "uses thread-block clusters", true}},                            // R13
      {"getctarank", {"cluster", "uses thread-block clusters", true}},                      // R13
      {"clusterlaunchcontrol",
       {"work-fetch", "fetches work from the hardware's block launcher", true}},
      {"tcgen05", {"tensor-memory", "uses tensor memory", false}},          // R27
      {"alloca", {"alloca", "allocates stack memory at run time", false}},  // R27
      {"stacksave", {"alloca", "allocates stack memory at run time", false}},
      {"stackrestore", {"alloca", "allocates stack memory at run time", false}}};
  return kMap;
}

// Special registers whose value the clone would change, or that need such a launch.
const Forbidden* forbidden_special(std::string_view name) {
  static const Forbidden kGrid{"cooperative", "uses cooperative grid synchronisation", true};
  static const Forbidden kCluster{"cluster", "uses thread-block clusters", true};
  static const Forbidden kShared{"shared-size", "reads the size of its shared memory", true};
  if (name.starts_with("%envreg")) return &kGrid;  // R13
  if (name.starts_with("%cluster") || name.starts_with("%nclusterid") ||
      name == "%is_explicit_cluster")
    return &kCluster;                                                            // R13
  if (name == "%total_smem_size" || name == "%aggr_smem_size") return &kShared;  // R33
  return nullptr;
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

bool any_of_grid(const std::array<bool, 3>& reads) { return reads[0] || reads[1] || reads[2]; }

struct Barrier {
  Finding no_loop;     // R24: arrivals may outlive the task, numbers must be written out
  bool named = false;  // another number than 0, or a count
  std::uint32_t number = 0;
};

Barrier barrier_of(const Statement& s) {
  Barrier b;
  const bool reduces = has_modifier(s.opcode, "red");
  const std::size_t id = reduces ? 1 : 0;
  std::uint64_t number = 0;
  if (has_modifier(s.opcode, "arrive")) {
    b.no_loop = {"barrier-arrive", "arrives at a barrier without waiting for it"};
  } else if (s.operands.size() <= id) {
    b.no_loop = {"barrier-number", "has a barrier that is not understood"};
  } else if (!ptx::parse_integer(s.operands[id], number) || number > 15) {
    b.no_loop = {"barrier-number", "computes the number of a barrier"};
    number = 0;  // there are sixteen: 512 is none, and whoever shifts by it is undone
  }
  b.number = static_cast<std::uint32_t>(number);
  b.named = number != 0 || s.operands.size() > (reduces ? 3u : 1u);
  return b;
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
  polling_ = functions_that(may_poll);
  reading_ = functions_that(may_read);
  ordering_ = functions_that(orders_memory);
}

const FunctionFacts& ModuleFacts::of(const Function& function) {
  const auto it = cache_.find(&function);
  if (it != cache_.end()) return it->second;
  return cache_.emplace(&function, gather(function)).first->second;
}

FunctionFacts ModuleFacts::gather(const Function& f) const {
  FunctionFacts out;
  const auto opaque = [&](std::uint32_t line, std::string_view code, const std::string& what) {
    if (!out.opaque) out.opaque.add(code, at_line(line, what));
  };
  const auto no_loop = [&](std::uint32_t line, std::string_view code, const std::string& what) {
    if (!out.no_loop) out.no_loop.add(code, at_line(line, what));
  };
  const auto forbid = [&](std::uint32_t line, const Forbidden& what) {
    what.in_any_form ? opaque(line, what.code, what.what) : no_loop(line, what.code, what.what);
  };
  // R1: a directive that is not known may change how the kernel is launched.
  static const std::unordered_set<std::string_view> kKnownHeaders = {
      ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".pragma", ".noreturn"};
  for (const ptx::HeaderDirective& d : f.directives) {
    if (kKnownHeaders.count(d.name) != 0) continue;
    const bool cluster = d.name == ".reqnctapercluster" || d.name == ".explicitcluster" ||
                         d.name == ".blocksareclusters" || d.name == ".maxclusterrank";
    if (cluster)
      opaque(f.line, "cluster", "uses thread-block clusters");
    else
      opaque(f.line, "directive", "has the unknown directive " + std::string(d.name));
  }
  const auto shared_use = [&](const Variable& v) {
    out.shares_in_block = true;
    const bool unsized = v.bytes == 0;
    if (v.linkage == ".extern" && !unsized) {
      opaque(v.line, "linked", "uses shared memory of another module");
    } else if (unsized) {
      out.dynamic_shared = v.name;
    } else {
      out.static_shared_bytes += v.bytes + v.align;
    }
  };
  for (const Variable& v : f.variables) {
    if (v.space == Space::kShared) shared_use(v);
    if (v.space == Space::kReg && is_shadowing(v.name))
      opaque(v.line, "shadowing", "declares a register named like a special register");
    // A clone would have one of its own.
    if (v.space == Space::kGlobal || v.space == Space::kConst || v.space == Space::kTex)
      opaque(v.line, "linked", "declares a variable of the module in its body");
  }

  struct Sync {
    std::uint32_t statement;
    bool barrier, named;
  };
  std::vector<Sync> syncs;
  bool asynchronous = false;
  std::vector<std::uint32_t> call_statements;
  std::optional<ptx::RegisterTable> registers;  // where there are calls
  std::unordered_set<std::string_view> used_shared;
  const auto& statements = f.statements;
  for (std::uint32_t i = 0; i < statements.size(); ++i) {
    const Statement& s = statements[i];
    if (s.kind == StatementKind::kDirective) {
      static const std::unordered_set<std::string_view> kKnown = {
          ".loc", ".pragma", ".branchtargets", ".calltargets", ".callprototype", ";"};
      if (kKnown.count(s.opcode) == 0)
        no_loop(s.line, "directive", "has the unknown directive " + std::string(s.opcode));
    }
    if (s.kind != StatementKind::kInstruction) continue;
    const std::string_view base = base_opcode(s.opcode);
    out.touches_global |= may_touch(s);
    if (s.opcode.find_first_of(" \t\r\n/") != s.opcode.npos)
      opaque(s.line, "spelling", "has an instruction with space inside its name");
    const auto forbidden = forbidden_opcodes().find(base);
    if (forbidden != forbidden_opcodes().end()) forbid(s.line, forbidden->second);
    // Asking whether an address is another block's needs no cluster: without optimisation
    // cuda::barrier does so everywhere.
    if (s.opcode.find("::cluster") != s.opcode.npos && base != "cp" && base != "isspacep")
      opaque(s.line, "cluster", "uses thread-block clusters");
    if (base == "setmaxnreg") {
      out.shares_in_block = true;
      if (!f.is_entry)
        no_loop(s.line, "setmaxnreg", "hands registers between warps (setmaxnreg)");
    }
    if (is_asynchronous(s)) {
      out.shares_in_block = true;
      out.has_cp_async |= base == "cp" && has_modifier(s.opcode, "mbarrier");
      if (f.is_entry) {
        asynchronous = true;
      } else if (base == "cp" && !has_modifier(s.opcode, "mbarrier")) {
        no_loop(s.line, "bulk-copy", "copies in bulk without its threads (TMA)");
      } else {
        no_loop(s.line, "mbarrier", "uses mbarrier objects in shared memory");
      }
    } else if (base == "cp") {
      out.has_cp_async = out.shares_in_block = true;
    } else if ((base == "red" || base == "st") && has_modifier(s.opcode, "async")) {
      no_loop(s.line, "mbarrier", "uses mbarrier objects in shared memory");
    } else if (is_collective(s)) {
      out.has_collective = out.shares_in_block = true;
      syncs.push_back({i, false, false});
    } else if (base == "bar" || base == "barrier") {
      if (has_modifier(s.opcode, "cluster")) {
        opaque(s.line, "cluster", "uses thread-block clusters");
      } else {
        const Barrier barrier = barrier_of(s);
        if (barrier.no_loop) no_loop(s.line, barrier.no_loop.code, barrier.no_loop.text);
        out.has_barrier = out.shares_in_block = true;
        out.has_barrier_reduction |= has_modifier(s.opcode, "red");
        out.barrier_numbers |= 1u << barrier.number;
        syncs.push_back({i, true, barrier.named});
      }
    } else if (base == "activemask" || has_modifier(s.opcode, "shared") ||
               s.opcode.find("shared::cta") != s.opcode.npos) {
      out.shares_in_block = true;
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
        if (by_name_.count(name) != 0) {
          call.callee = name;
          if (!registers) registers.emplace(f);
          if (registers->number(name, s) != ptx::RegisterTable::kNone)
            opaque(s.line, "shadowing", "calls through a register named like a function");
        }
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
          out.shares_in_block = true;
          if (it->second->bytes == 0 || it->second->linkage == ".extern") {
            shared_use(*it->second);
          } else {
            out.module_shared.push_back(name);
          }
          continue;
        }
        if (const Forbidden* why = forbidden_special(name)) forbid(s.line, *why);
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
    opaque(f.line, "control-flow", cfg.error().message);
    return out;
  }
  auto post_dominators = ptx::PostDominators::build(*cfg);
  if (!post_dominators) {
    opaque(f.line, "control-flow", post_dominators.error().message);
    return out;
  }
  if (cfg->has_endless_loop()) opaque(f.line, "endless", "has a loop that never ends");  // R31
  const Waiting waiting =
      find_waiting(*cfg, *post_dominators,
                   {std::cref(polling_), std::cref(reading_), std::cref(ordering_),
                    [this](std::string_view name) { return constants_.count(name) != 0; }});
  out.spins = waiting.spins;
  out.one_row = waiting.one_row;
  out.fetches_work = waiting.fetches_work;
  out.strides_by_grid = any_of_grid(out.reads_nctaid) && strides_by_grid(*cfg);
  out.author = find_author_points(*cfg, *post_dominators);
  if (waiting.spins == SpinLoops::kUnknown) out.opaque.add("waits", waiting.why);
  auto divergence = ptx::Divergence::analyse(*cfg, *post_dominators);
  if (!divergence) {
    no_loop(f.line, "control-flow", divergence.error().message);
    return out;
  }
  out.has_divergent_branch = !divergence->branches().empty();
  if (f.is_entry) {  // R28
    out.register_pool = find_register_pool(f);
    if (const Finding& why = out.register_pool.no_loop) out.no_loop.add(why.code, why.text);
  }
  if (asynchronous) {  // R27
    out.memory_barriers = find_memory_barriers(*cfg, *post_dominators, *divergence);
    if (const Finding& why = out.memory_barriers.no_loop) out.no_loop.add(why.code, why.text);
  }

  // Blocks where a collective can miss lanes that would have exited in the original but are parked
  // at the loop's barrier in the clone. Where a block-wide barrier follows the region on every path
  // to the end, the original's lanes are parked there too, so the clone adds no hazard.
  const std::vector<bool> followed = barrier_follows(*cfg, *post_dominators);
  std::vector<bool> hazard_block(cfg->blocks().size());
  for (const ptx::DivergentBranch& branch : divergence->branches()) {
    if (branch.reconvergence != ptx::kNoBlock && followed[branch.reconvergence]) continue;
    for (std::uint32_t b : branch.region) hazard_block[b] = true;
  }

  for (const Sync& sync : syncs) {
    const Statement& s = statements[sync.statement];
    const std::uint32_t b = cfg->block_of(sync.statement);
    const bool tainted = divergence->guard_tainted(sync.statement);
    if (sync.barrier) {
      if (!tainted && !divergence->in_divergent_region(b)) continue;
      if (sync.named) {  // R24
        no_loop(s.line, "barrier-named",
                "has a named or counted barrier that only some threads may reach");
      } else {
        out.divergent_barrier.add("barrier-divergent",
                                  at_line(s.line, "has a barrier that not all threads may reach"));
      }
    } else if (tainted || hazard_block[b]) {
      out.divergent_collective.add(
          "collective", at_line(s.line, "has the warp collective " + std::string(s.opcode) +
                                            " that lanes of its mask may have returned before"));
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

}  // namespace sluice::passes
