// SPDX-License-Identifier: Apache-2.0
// Each detector of kernels/passes/analysis/detectors.cc: one line, and the fact that it gives.
#include "kernels/passes/analysis/detectors.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace sluice::passes {
namespace {

struct Case {
  const char* detector;
  const char* line;
  std::function<bool(const Examined&)> found;
  bool in_function = false;  // in a .func instead of the entry
};

bool opaque(const Examined& e, std::string_view code) { return e.out.opaque.code == code; }
bool no_loop(const Examined& e, std::string_view code) { return e.out.no_loop.code == code; }

const Case kCases[] = {
    {"unknown-directive", ".novelty 3;", [](auto& e) { return no_loop(e, "directive"); }},
    {"global-memory", "ld.volatile.global.u32 %r1, [%rd1];",
     [](auto& e) { return e.out.waits.touches_global; }},
    {"spelling", "ld .global.u32 %r1, [%rd1];", [](auto& e) { return opaque(e, "spelling"); }},
    {"forbidden-instruction", "tcgen05.fence::before_thread_sync;",
     [](auto& e) { return no_loop(e, "tensor-memory"); }},
    {"forbidden-instruction", "mapa.u64 %rd1, %rd1, 0;",
     [](auto& e) { return opaque(e, "cluster"); }},
    {"cluster-memory", "ld.shared::cluster.u32 %r1, [%r2];",
     [](auto& e) { return opaque(e, "cluster"); }},
    {"register-hand-over", "setmaxnreg.dec.sync.aligned.u32 40;",
     [](auto& e) { return e.out.sync.threads_depend && !e.out.no_loop; }},
    {"register-hand-over", "setmaxnreg.dec.sync.aligned.u32 40;",
     [](auto& e) { return no_loop(e, "setmaxnreg"); }, true},
    {"asynchronous-copy", "cp.async.ca.shared.global [%r1], [%rd1], 4;",
     [](auto& e) { return e.out.sync.cp_async; }},
    {"asynchronous-copy", "mbarrier.init.shared.b64 [%r1], 1;",
     [](auto& e) { return e.asynchronous; }},
    {"asynchronous-copy", "mbarrier.init.shared.b64 [%r1], 1;",
     [](auto& e) { return no_loop(e, "mbarrier"); }, true},
    {"collective", "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;",
     [](auto& e) { return e.out.sync.collective && e.syncs.size() == 1 && !e.syncs[0].barrier; }},
    {"collective", "bar.warp.sync -1;", [](auto& e) { return e.out.sync.collective; }},
    {"block-barrier", "bar.sync 0;",
     [](auto& e) { return e.out.sync.barrier && e.syncs.size() == 1 && !e.syncs[0].named; }},
    {"block-barrier", "barrier.red.popc.u32 %r1, 3, %p1;",
     [](auto& e) { return e.out.sync.reduction && e.out.sync.numbers == 8; }},
    {"block-barrier", "bar.sync %r1;", [](auto& e) { return no_loop(e, "barrier-number"); }},
    {"block-barrier", "bar.arrive 1, 64;", [](auto& e) { return no_loop(e, "barrier-arrive"); }},
    {"block-barrier", "barrier.cluster.arrive;", [](auto& e) { return opaque(e, "cluster"); }},
    {"shared-state", "activemask.b32 %r1;", [](auto& e) { return e.out.sync.threads_depend; }},
    {"shared-state", "ld.shared.u32 %r1, [%r2];",
     [](auto& e) { return e.out.sync.threads_depend; }},
    {"thread-exit", "exit;", [](auto& e) { return e.out.has_exit && e.out.exit_line != 0; }},
    {"call", "call known, ();",
     [](auto& e) { return e.out.calls.size() == 1 && e.out.calls[0].callee == "known"; }},
    {"call", "call %rd1, (), $prototype;",
     [](auto& e) { return e.out.calls.size() == 1 && e.out.calls[0].callee.empty(); }},
    {"operand-names", "mov.u32 %r1, %ctaid.y;",
     [](auto& e) {
       return e.out.grid.ctaid == std::array{false, true, false};
     }},
    {"operand-names", "mov.v4.u32 {%r1, %r2, %r1, _}, %nctaid;",
     [](auto& e) {
       return e.out.grid.nctaid == std::array{true, true, true};
     }},
    {"operand-names", "mov.u32 %r1, %dynamic_smem_size;",
     [](auto& e) { return e.out.shared.reads_dynamic_size; }},
    {"operand-names", "mov.u32 %r1, %envreg1;", [](auto& e) { return opaque(e, "cooperative"); }},
    {"operand-names", "mov.u32 %r1, of_the_module;",
     [](auto& e) { return e.out.shared.of_module.size() == 1 && e.out.sync.threads_depend; }},
};

// Runs one detector, or all where `name` is empty, on a function with this line, and asks `found`.
bool detects(const Case& c, std::string_view only) {
  std::string text =
      ".version 8.6\n.target sm_100a\n.address_size 64\n.shared .align 4 .b8 of_the_module[8];\n"
      ".func known();\n";
  text += c.in_function ? ".func examined()\n" : ".visible .entry examined()\n";
  text += "{\n.reg .pred %p<2>;\n.reg .b32 %r<3>;\n.reg .b64 %rd<2>;\n" + std::string(c.line) +
          "\nret;\n}\n";
  auto module = ptx::Module::parse(text);
  EXPECT_TRUE(module) << c.line;
  if (!module) return false;
  const ptx::Function& f = *module->find_function("examined");
  const std::unordered_map<std::string_view, const ptx::Function*> functions{
      {"known", module->find_function("known")}, {"examined", &f}};
  const std::unordered_map<std::string_view, const ptx::Variable*> shared{
      {"of_the_module", &module->variables()[0]}};
  const ModuleNames names{functions, shared};
  FunctionFacts facts;
  Examined e(f, names, facts);
  for (std::uint32_t i = 0; i < f.statements.size(); ++i)
    for (const Detector& d : detectors())
      if (d.kind == f.statements[i].kind && (only.empty() || d.name == only)) d.examine(e, i);
  return c.found(e);
}

TEST(PtxDetectors, FindWhatTheyAreFor) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.line);
    EXPECT_TRUE(detects(c, c.detector)) << c.detector << " by itself";
    EXPECT_TRUE(detects(c, "")) << "all together";
    Case nothing = c;
    nothing.line = "mov.u32 %r1, %r2;";
    // Nothing is found where nothing is.
    EXPECT_FALSE(detects(nothing, c.detector)) << "in a plain move";
  }
}

TEST(PtxDetectors, HaveACaseEach) {
  for (const Detector& d : detectors()) {
    bool has = false;
    for (const Case& c : kCases) has |= c.detector == std::string_view(d.name);
    EXPECT_TRUE(has) << d.name;
  }
}

}  // namespace
}  // namespace sluice::passes
