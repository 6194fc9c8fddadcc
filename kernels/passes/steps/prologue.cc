// SPDX-License-Identifier: Apache-2.0
// One task a hardware block: beside every loop (the launcher chooses,
// mediator/worker/launch/plan/geometry.h), and alone for kernels that one block cannot run again
// and again. See admission.h.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "kernels/passes/clone/admission.h"
#include "kernels/passes/clone/clone.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

namespace {

// Far enough for a tile's loads to travel with the question, near enough that a block which is sent
// home has not done much in vain.
constexpr std::size_t kMostAhead = 64;

// What a block that is sent home may have done: it leaves no trace but in registers.
bool leaves_no_trace(const ptx::Statement& s) {
  static constexpr std::array<std::string_view, 32> kPure = {
      "abs", "add",  "and",  "bfe", "bfi", "clz",   "cnot", "cvt", "cvta", "fma",  "lop3",
      "mad", "max",  "min",  "mov", "mul", "mul24", "neg",  "not", "or",   "popc", "prmt",
      "rcp", "selp", "setp", "shf", "shl", "shr",   "slct", "sub", "xor",  "ld"};
  // The carry holds in straight-line code only (PTX ISA, "Extended-Precision Integer Arithmetic"),
  // and the check has branches: a chain stays whole behind it.
  if (s.opcode.find(".cc") != s.opcode.npos) return false;
  const std::string_view base = ptx::base_opcode(s.opcode);
  if (std::find(kPure.begin(), kPure.end(), base) == kPure.end()) return false;
  if (base != "ld") return true;
  // Ordered or watched by others: stays behind the answer.
  for (const std::string_view word : {".volatile", ".relaxed", ".acquire", ".mmio"})
    if (s.opcode.find(word) != s.opcode.npos) return false;
  return true;
}

// Whether an address is made of what memory holds. A block behind a launch that was evicted asks in
// vain, and what that launch would have written, it finds unwritten: such an address may be any.
class LoadedValues {
 public:
  // In the order of the text; false: a load through a loaded value, or under one as its guard.
  bool pass(const ptx::Statement& s) {
    bool loaded = made_of(s.guard);
    for (std::size_t k = 1; k < s.operands.size(); ++k) loaded |= made_of(s.operands[k]);
    const bool load = ptx::base_opcode(s.opcode) == "ld" && !ptx::has_modifier(s.opcode, "param");
    if (load && loaded) return false;
    if (!load && !loaded) return true;
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(s.operands[0], at); !name.empty();
         name = ptx::next_identifier(s.operands[0], at))
      names_.insert(name.substr(0, name.find('.')));
    return true;
  }

 private:
  bool made_of(std::string_view operand) const {
    std::size_t at = 0;
    for (std::string_view name = ptx::next_identifier(operand, at); !name.empty();
         name = ptx::next_identifier(operand, at))
      if (names_.count(name.substr(0, name.find('.'))) != 0) return true;
    return false;
  }
  std::unordered_set<std::string_view>
      names_;  // registers; what they hold later may be another value
};

// Up to here every thread comes, and together.
std::uint32_t where_to_check(const ptx::Function& entry) {
  std::uint32_t at = entry.body_range.begin + 1;
  std::size_t ahead = 0;
  LoadedValues loaded;
  for (const ptx::Statement& s : entry.statements) {
    if (s.scope != 0) break;
    if (s.kind == ptx::StatementKind::kDeclaration || s.opcode == ".loc") {
      at = s.range.end;
      continue;
    }
    if (s.kind != ptx::StatementKind::kInstruction || s.operands.empty() || !leaves_no_trace(s) ||
        !loaded.pass(s) || ++ahead > kMostAhead)
      break;
    at = s.range.end;
  }
  return at;
}

}  // namespace

Finding run_one_task(Clone& clone) {
  if (clone.in.module.sm() >= kLeastSm && clone.in.module.sm() < 32)
    return {"target", "is for a GPU without 64-bit atomics"};
  Admission(clone.options, clone.head).write_entry();
  if (const std::uint32_t at = where_to_check(clone.in.entry);
      at != clone.in.entry.body_range.begin + 1) {
    Emitter check(clone.in.module, clone.in.prefix);
    Admission(clone.options, check).write_check();
    clone.edits.insert(at, std::string("\n").append(check.text()));
  } else {
    Admission(clone.options, clone.head).write_check();  // behind ENTRY at the same place
  }
  Admission(clone.options, clone.tail).write_rest();
  return {};
}

}  // namespace sluice::passes
