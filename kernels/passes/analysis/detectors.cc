// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/detectors.h"

#include <algorithm>

#include "kernels/passes/analysis/sync/synchronisation.h"
#include "kernels/passes/analysis/waits/spin.h"

namespace sluice::passes {

using ptx::base_opcode;
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
      {"mapa", {"cluster", "uses thread-block clusters", true}},        // rule clusters
      {"getctarank", {"cluster", "uses thread-block clusters", true}},  // rule clusters
      {"clusterlaunchcontrol",
       {"work-fetch", "fetches work from the hardware's block launcher", true}},
      {"tcgen05", {"tensor-memory", "uses tensor memory", false}},          // rule clean-up
      {"alloca", {"alloca", "allocates stack memory at run time", false}},  // rule clean-up
      {"stacksave", {"alloca", "allocates stack memory at run time", false}},
      {"stackrestore", {"alloca", "allocates stack memory at run time", false}}};
  return kMap;
}

// Special registers whose value the clone would change, or that need such a launch.
const Forbidden* forbidden_special(std::string_view name) {
  static const Forbidden kGrid{"cooperative", "uses cooperative grid synchronisation", true};
  static const Forbidden kCluster{"cluster", "uses thread-block clusters", true};
  static const Forbidden kShared{"shared-size", "reads the size of its shared memory", true};
  if (name.starts_with("%envreg")) return &kGrid;  // rule clusters
  if (name.starts_with("%cluster") || name.starts_with("%nclusterid") ||
      name == "%is_explicit_cluster")
    return &kCluster;                                                            // rule clusters
  if (name == "%total_smem_size" || name == "%aggr_smem_size") return &kShared;  // rule slot-place
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

struct Barrier {
  Finding no_loop;     // Rule numbered-barriers: arrivals may outlive the task, numbers must be
                       // written out
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

void forbid(Examined& e, std::uint32_t line, const Forbidden& what) {
  what.in_any_form ? e.opaque(line, what.code, what.what) : e.no_loop(line, what.code, what.what);
}

// A directive that is not known may change how the kernel is launched.
void examine_header(Examined& e) {
  static const std::unordered_set<std::string_view> kKnown = {
      ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".pragma", ".noreturn"};
  static const std::unordered_set<std::string_view> kClusters = {
      ".reqnctapercluster", ".explicitcluster", ".blocksareclusters", ".maxclusterrank"};
  for (const ptx::HeaderDirective& d : e.function.directives) {
    if (kKnown.count(d.name) != 0) continue;
    if (kClusters.count(d.name) != 0)
      e.opaque(e.function.line, "cluster", "uses thread-block clusters");
    else
      e.opaque(e.function.line, "directive", "has the unknown directive " + std::string(d.name));
  }
}

void examine_declarations(Examined& e) {
  for (const Variable& v : e.function.variables) {
    if (v.space == Space::kShared) e.uses_shared(v);
    if (v.space == Space::kReg && is_shadowing(v.name))
      e.opaque(v.line, "shadowing", "declares a register named like a special register");
    // A clone would have one of its own.
    if (v.space == Space::kGlobal || v.space == Space::kConst || v.space == Space::kTex)
      e.opaque(v.line, "linked", "declares a variable of the module in its body");
  }
}

void unknown_directive(Examined& e, std::uint32_t i) {
  static const std::unordered_set<std::string_view> kKnown = {
      ".loc", ".pragma", ".branchtargets", ".calltargets", ".callprototype", ";"};
  const Statement& s = e.function.statements[i];
  if (kKnown.count(s.opcode) == 0)
    e.no_loop(s.line, "directive", "has the unknown directive " + std::string(s.opcode));
}

void global_memory(Examined& e, std::uint32_t i) {
  e.out.waits.touches_global |= may_touch(e.function.statements[i]);
}

void spelling(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  if (s.opcode.find_first_of(" \t\r\n/") != s.opcode.npos)
    e.opaque(s.line, "spelling", "has an instruction with space inside its name");
}

void forbidden_instruction(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  const auto forbidden = forbidden_opcodes().find(base_opcode(s.opcode));
  if (forbidden != forbidden_opcodes().end()) forbid(e, s.line, forbidden->second);
}

// Asking whether an address is another block's needs no cluster: without optimisation cuda::barrier
// does so everywhere.
void cluster_memory(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  const std::string_view base = base_opcode(s.opcode);
  if (s.opcode.find("::cluster") != s.opcode.npos && base != "cp" && base != "isspacep")
    e.opaque(s.line, "cluster", "uses thread-block clusters");
}

void register_hand_over(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  if (base_opcode(s.opcode) != "setmaxnreg") return;
  e.out.sync.threads_depend = true;
  if (!e.function.is_entry)
    e.no_loop(s.line, "setmaxnreg", "hands registers between warps (setmaxnreg)");
}

void asynchronous_copy(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  const std::string_view base = base_opcode(s.opcode);
  const bool by_mbarrier = base == "cp" && has_modifier(s.opcode, "mbarrier");
  if (is_asynchronous(s)) {
    e.out.sync.threads_depend = true;
    e.out.sync.cp_async |= by_mbarrier;
    if (e.function.is_entry)
      e.asynchronous = true;
    else if (base == "cp" && !by_mbarrier)
      e.no_loop(s.line, "bulk-copy", "copies in bulk without its threads (TMA)");
    else
      e.no_loop(s.line, "mbarrier", "uses mbarrier objects in shared memory");
  } else if (base == "cp") {
    e.out.sync.cp_async = e.out.sync.threads_depend = true;
  } else if ((base == "red" || base == "st") && has_modifier(s.opcode, "async")) {
    e.no_loop(s.line, "mbarrier", "uses mbarrier objects in shared memory");
  }
}

void collective(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  if (is_asynchronous(s) || !is_collective(s)) return;
  e.out.sync.collective = e.out.sync.threads_depend = true;
  e.syncs.push_back({i, false, false});
}

void block_barrier(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  const std::string_view base = base_opcode(s.opcode);
  if ((base != "bar" && base != "barrier") || is_collective(s)) return;
  if (has_modifier(s.opcode, "cluster")) {
    e.opaque(s.line, "cluster", "uses thread-block clusters");
    return;
  }
  const Barrier barrier = barrier_of(s);
  if (barrier.no_loop) e.no_loop(s.line, barrier.no_loop.code, barrier.no_loop.text);
  e.out.sync.barrier = e.out.sync.threads_depend = true;
  e.out.sync.reduction |= has_modifier(s.opcode, "red");
  e.out.sync.numbers |= 1u << barrier.number;
  e.syncs.push_back({i, true, barrier.named});
}

void shared_state(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  e.out.sync.threads_depend |= base_opcode(s.opcode) == "activemask" ||
                               has_modifier(s.opcode, "shared") ||
                               s.opcode.find("shared::cta") != s.opcode.npos;
}

void thread_exit(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  if (base_opcode(s.opcode) != "exit") return;
  e.out.has_exit = true;
  e.out.exit_line = s.line;
}

void call(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  if (base_opcode(s.opcode) != "call") return;
  e.call_statements.push_back(i);
  FunctionFacts::Call its;
  its.line = s.line;
  const std::size_t k = !s.operands.empty() && s.operands[0].starts_with('(') ? 1 : 0;
  if (k < s.operands.size() && e.names_of_module.functions.count(s.operands[k]) != 0) {
    its.callee = s.operands[k];
    if (e.registers().number(its.callee, s) != ptx::RegisterTable::kNone)
      e.opaque(s.line, "shadowing", "calls through a register named like a function");
  } else if (k < s.operands.size() && !s.operands[k].starts_with('%') &&
             e.registers().number(s.operands[k], s) == ptx::RegisterTable::kNone) {
    e.opaque(s.line, "call-unknown",
             "calls " + std::string(s.operands[k]) + ", which this text does not declare");
  }
  e.out.calls.push_back(its);
}

// A shared variable of the module.
void shared_name(Examined& e, std::string_view name) {
  const auto& shared = e.names_of_module.shared;
  const auto it = shared.find(name);
  if (it == shared.end() || !e.used_shared.insert(name).second) return;
  e.out.sync.threads_depend = true;
  if (it->second->bytes == 0 || it->second->linkage == ".extern")
    e.uses_shared(*it->second);
  else
    e.out.shared.of_module.insert(name);
}

void special_register(Examined& e, const Statement& s, std::string_view name) {
  if (const Forbidden* why = forbidden_special(name)) forbid(e, s.line, *why);
  if (name == "%dynamic_smem_size") e.out.shared.reads_dynamic_size = true;
  const bool count = name.starts_with("%nctaid");
  if (!count && !name.starts_with("%ctaid")) return;
  auto& reads = count ? e.out.grid.nctaid : e.out.grid.ctaid;
  const char dimension = name.back();
  if (name.size() == (count ? 7u : 6u))
    reads = {true, true, true};  // a vector move
  else if (dimension >= 'x' && dimension <= 'z')
    reads[static_cast<std::size_t>(dimension - 'x')] = true;
}

void operand_names(Examined& e, std::uint32_t i) {
  const Statement& s = e.function.statements[i];
  const bool any_shared = !e.names_of_module.shared.empty();
  for (std::string_view operand : s.operands) {
    if (!any_shared && operand.find('%') == operand.npos) continue;
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(operand, at); !name.empty();
         name = ptx::next_identifier(operand, at))
      name[0] == '%' ? special_register(e, s, name) : shared_name(e, name);
  }
}

constexpr Detector kDetectors[] = {
    {"unknown-directive", StatementKind::kDirective, unknown_directive},
    {"global-memory", StatementKind::kInstruction, global_memory},
    {"spelling", StatementKind::kInstruction, spelling},
    {"forbidden-instruction", StatementKind::kInstruction, forbidden_instruction},
    {"cluster-memory", StatementKind::kInstruction, cluster_memory},
    {"register-hand-over", StatementKind::kInstruction, register_hand_over},
    {"asynchronous-copy", StatementKind::kInstruction, asynchronous_copy},
    {"collective", StatementKind::kInstruction, collective},
    {"block-barrier", StatementKind::kInstruction, block_barrier},
    {"shared-state", StatementKind::kInstruction, shared_state},
    {"thread-exit", StatementKind::kInstruction, thread_exit},
    {"call", StatementKind::kInstruction, call},
    {"operand-names", StatementKind::kInstruction, operand_names},
};

}  // namespace

void Examined::opaque(std::uint32_t line, std::string_view code, const std::string& what) {
  if (!out.opaque) out.opaque.add(code, at_line(line, what));
}

void Examined::no_loop(std::uint32_t line, std::string_view code, const std::string& what) {
  if (!out.no_loop) out.no_loop.add(code, at_line(line, what));
}

void Examined::uses_shared(const Variable& v) {
  out.sync.threads_depend = true;
  const bool unsized = v.bytes == 0;
  if (v.linkage == ".extern" && !unsized)
    opaque(v.line, "linked", "uses shared memory of another module");
  else if (unsized)
    out.shared.dynamic = v.name;
  else
    out.shared.static_bytes += v.bytes + v.align;
}

ptx::RegisterTable& Examined::registers() {
  if (!registers_) registers_.emplace(function);
  return *registers_;
}

std::span<const Detector> detectors() { return kDetectors; }

void examine(Examined& e) {
  examine_header(e);
  examine_declarations(e);
  for (std::uint32_t i = 0; i < e.function.statements.size(); ++i)
    for (const Detector& d : kDetectors)
      if (d.kind == e.function.statements[i].kind) d.examine(e, i);
}

}  // namespace sluice::passes
