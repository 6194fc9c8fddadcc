// SPDX-License-Identifier: Apache-2.0
// Rule register-pool; see register_pool.h.
#include "kernels/passes/analysis/register_pool.h"

#include <string>

#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

namespace {

// An SM's registers lie in four parts, each for a quarter of its warps, and go out 8 a thread at a
// time (CUDA C++ Programming Guide, "Compute Capability 9.0"; the occupancy calculator).
constexpr std::uint32_t kPartOfFile = 16384, kParts = 4, kWarp = 32, kUnit = 8;
// The least and the most that setmaxnreg names; 248 is the most of an entry.
constexpr std::uint32_t kLeast = 24, kMost = 240;

std::uint64_t threads_of(const std::array<std::uint32_t, 3>& n) {
  return std::uint64_t{n[0]} * n[1] * n[2];
}

// 0: not known.
std::uint32_t registers_at_launch(const ptx::Function& f) {
  if (f.maxnreg != 0) return f.maxnreg;
  const std::uint64_t threads = threads_of(f.reqntid[0] != 0 ? f.reqntid : f.maxntid);
  if (threads == 0 || threads > 1024 || f.minnctapersm == 0 || f.minnctapersm > 32) return 0;
  const auto warps = static_cast<std::uint32_t>((threads + kWarp - 1) / kWarp) * f.minnctapersm;
  const std::uint32_t in_part = (warps + kParts - 1) / kParts;
  return kPartOfFile / (kWarp * in_part) / kUnit * kUnit;
}

}  // namespace

RegisterPool find_register_pool(const ptx::Function& f) {
  RegisterPool out;
  for (std::uint32_t i = 0; i < f.statements.size(); ++i) {
    const ptx::Statement& s = f.statements[i];
    if (s.kind != ptx::StatementKind::kInstruction || ptx::base_opcode(s.opcode) != "setmaxnreg")
      continue;
    out.any = true;
    std::uint64_t registers = 0;
    if (s.operands.size() != 1 || !ptx::parse_integer(s.operands[0], registers) || registers > 256)
      out.no_loop.add("setmaxnreg", "hands registers between warps in an unusual way (line " +
                                        std::to_string(s.line) + ")");
    out.hand_overs.push_back({i, static_cast<std::uint32_t>(registers)});
  }
  if (!out.any) return out;
  out.at_launch = registers_at_launch(f);
  if (out.at_launch < kLeast || out.at_launch > kMost || out.at_launch % kUnit != 0)
    out.no_loop.add(
        "setmaxnreg",
        "hands registers between warps (setmaxnreg), while it is not known how many they "
        "begin with: that takes .maxnreg, or launch bounds with a number of blocks");
  return out;
}

Finding give_registers_back(Clone& clone) {
  const RegisterPool& pool = clone.in.facts.register_pool;
  const std::string at_launch = std::to_string(pool.at_launch);
  const ptx::Function& f = clone.in.entry;
  // The loop's own needs must not change what the assembler makes of the bounds.
  if (f.maxnreg == 0) clone.edits.insert(f.body_range.begin, ".maxnreg " + at_launch + "\n");
  // 0: as at the launch, 1: fewer, 2: more. The same in all threads of a warpgroup, because its
  // warps all execute the same setmaxnreg.
  clone.start.line(".reg .b32 \t%~pool;").line("mov.u32 \t%~pool, 0;");
  for (const RegisterPool::HandOver& h : pool.hand_overs) {
    const ptx::Statement& s = f.statements[h.statement];
    const char* now = h.registers < pool.at_launch ? "1" : h.registers > pool.at_launch ? "2" : "0";
    clone.edits.insert(s.range.end, "\n\t" + Clone::guard_of(s) +
                                        clone.name(std::string("mov.u32 \t%~pool, ") + now + ";"));
  }
  auto& lines = clone.options.release;
  lines.push_back("setp.ne.u32 \t%~p, %~pool, 2;");
  lines.push_back("@%~p bra \t~KEPT;");
  lines.push_back("setmaxnreg.dec.sync.aligned.u32 \t" + at_launch + ";");
  lines.push_back("~KEPT:");
  lines.push_back("setp.ne.u32 \t%~p, %~pool, 1;");
  lines.push_back("@%~p bra \t~BACK;");
  lines.push_back("setmaxnreg.inc.sync.aligned.u32 \t" + at_launch + ";");
  lines.push_back("~BACK:");
  lines.push_back("mov.u32 \t%~pool, 0;");
  return {};
}

}  // namespace sluice::passes
