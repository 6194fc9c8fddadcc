// SPDX-License-Identifier: Apache-2.0
// Control flow, post-dominators and divergence on small functions.
#include <gtest/gtest.h>

#include <random>

#include "kernels/ptx/cfg.h"
#include "kernels/ptx/divergence.h"
#include "kernels/ptx/dominators.h"
#include "kernels/ptx/registers.h"

namespace sluice::ptx {
namespace {

// One kernel with the usual registers, and everything known about it.
struct Analysed {
  explicit Analysed(const std::string& body)
      : module(*Module::parse(".version 8.0\n.target sm_90\n.const .b32 c;\n"
                              ".visible .entry k(.param .u32 n, .param .u64 p)\n{\n"
                              ".reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %rd<9>;\n" +
                              body + "\n}\n")),
        cfg(*Cfg::build(module.functions()[0])),
        post(*PostDominators::build(cfg)),
        divergence(*Divergence::analyse(cfg, post)) {}

  // The block that holds the statement with this opcode or label.
  std::uint32_t block(std::string_view opcode) const {
    const auto& statements = module.functions()[0].statements;
    for (std::uint32_t i = 0; i < statements.size(); ++i)
      if (statements[i].opcode == opcode) return cfg.block_of(i);
    ADD_FAILURE() << "no " << opcode;
    return kNoBlock;
  }
  bool divergent(std::string_view opcode) const {
    return divergence.in_divergent_region(block(opcode));
  }

  Module module;
  Cfg cfg;
  PostDominators post;
  Divergence divergence;
};

std::string build_error(const std::string& body) {
  auto module = Module::parse(".entry k() {" + body + "}");
  if (!module) return module.error().message;
  auto cfg = Cfg::build(module->functions()[0]);
  return cfg ? "no error" : cfg.error().message;
}

TEST(RegisterTable, ANameMeansOneRegister) {
  const auto m = Module::parse(
      ".version 8.0\n.target sm_90\n.visible .entry k(.reg .b32 %param)\n{\n"
      ".reg .b32 %r<19>; .reg .b32 %q1<5>; .reg .b32 %q<12>; .reg .b32 %own, %r5; .reg .b32 "
      "%v<3>;\n"
      "add.u32 %r1, %r5, %q11;\n"
      "{ .reg .b32 %r<4>; add.u32 %r1, %r3, %r4; }\n"
      "add.u32 %late1, %own, 1;\n.reg .b32 %late<2>;\nadd.u32 %late1, %r19, %r007;\n}\n");
  ASSERT_TRUE(m) << m.error().message;
  const Function& f = m->functions()[0];
  RegisterTable table(f);
  std::vector<const Statement*> s;
  for (const Statement& statement : f.statements)
    if (statement.kind == StatementKind::kInstruction) s.push_back(&statement);
  ASSERT_EQ(s.size(), 4u);
  const std::uint32_t none = RegisterTable::kNone;
  const std::uint32_t r1 = table.number("%r1", *s[0]);
  EXPECT_EQ(r1, 0u);
  EXPECT_EQ(table.number("%r1", *s[0]), r1);
  EXPECT_EQ(table.number("%r1"), r1);
  EXPECT_EQ(table.number("%q11", *s[0]), 1u) << "of two sets";
  EXPECT_EQ(table.number("%q13", *s[0]), 2u);
  EXPECT_EQ(table.number("%q11"), 1u);
  EXPECT_EQ(table.number("%r1", *s[1]), 3u) << "the inner scope's";
  EXPECT_EQ(table.number("%r4", *s[1]), 4u) << "the outer scope's";
  EXPECT_EQ(table.number("%r4"), 4u);
  EXPECT_EQ(table.number("%late1", *s[2]), 5u) << "the outermost scope's are there from the start";
  EXPECT_EQ(table.number("%own", *s[2]), 6u);
  for (const char* name : {"%r19", "%r007", "%r", "%tid.x", "%q15", "LABEL", "%r99999999999"})
    EXPECT_EQ(table.number(name, *s[3]), none) << name;
  EXPECT_EQ(table.number("%param"), 7u);
  EXPECT_EQ(table.number("%v1.x"), 8u);
  EXPECT_EQ(table.number("%v1"), 8u) << "its whole";
  EXPECT_EQ(table.size(), 9u);
}

TEST(PtxCfg, BranchesReturnsAndTheEnd) {
  const Analysed a("@%p1 bra A; @%p2 ret; bra B; A: trap; B: exit; C: ret;");
  EXPECT_EQ(a.cfg.blocks()[a.cfg.entry()].successors,
            (std::vector<std::uint32_t>{1, a.block("A")}));
  EXPECT_EQ(a.cfg.blocks()[1].successors, (std::vector<std::uint32_t>{2, a.cfg.exit()}));
  EXPECT_EQ(a.cfg.blocks()[2].successors, (std::vector<std::uint32_t>{a.block("B")}));
  EXPECT_TRUE(a.cfg.blocks()[a.block("A")].successors.empty());
  EXPECT_TRUE(a.cfg.blocks()[a.block("A")].traps);
  EXPECT_FALSE(a.cfg.reachable(a.block("C")));
  EXPECT_FALSE(a.cfg.has_endless_loop());
}

TEST(PtxCfg, IndexedBranchesAndScopedLabels) {
  const Analysed a(
      "{ L: @%p1 bra L; } { L: @%p2 bra L; } T: .branchtargets X, Y, X;\n"
      "brx.idx %r1, T; X: ret; Y: ret;");
  EXPECT_EQ(a.cfg.blocks()[a.block("brx.idx")].successors,
            (std::vector<std::uint32_t>{a.block("X"), a.block("Y")}));
  int loops = 0;
  for (std::uint32_t b = 0; b < a.cfg.blocks().size(); ++b)
    for (std::uint32_t s : a.cfg.blocks()[b].successors) loops += s == b;
  EXPECT_EQ(loops, 2);  // each inner label is its own
}

TEST(PtxCfg, UnknownTargetsAreErrors) {
  EXPECT_EQ(build_error("\nbra NOWHERE;"), "line 2: branch to an unknown label");
  EXPECT_EQ(build_error("{ L: ret; } bra L;"), "line 1: branch to an unknown label");
  EXPECT_EQ(build_error("brx.idx %r1, L; L: ret;"), "line 1: brx.idx without its list of targets");
  EXPECT_EQ(build_error(""), "no error");
}

TEST(PtxCfg, EndlessLoopsAreSeen) {
  EXPECT_TRUE(Analysed("@%p1 bra L; ret; L: bra L;").cfg.has_endless_loop());
  EXPECT_FALSE(Analysed("L: @%p1 trap; bra L;").cfg.has_endless_loop());
  EXPECT_FALSE(Analysed("ret; L: bra L;").cfg.has_endless_loop());  // unreachable
}

TEST(PtxCfg, StrongComponents) {
  const Analysed a("A: @%p1 bra C; B: @%p2 bra A; bra D; C: add.u32 %r1, %r1, 1; D: ret;");
  const auto component = strong_components(a.cfg);
  EXPECT_EQ(component[a.block("A")], component[a.block("B")]);
  EXPECT_NE(component[a.block("A")], component[a.block("C")]);
  EXPECT_NE(component[a.block("C")], component[a.block("D")]);
}

TEST(PtxCfg, LoopsInsideLoops) {
  const Analysed a(
      "A: add.u32 %r1, %r1, 1; B: @%p1 bra B; C: sub.u32 %r1, %r1, 1; D: @%p2 bra C; @%p3 bra A;\n"
      "E: ret;");
  const auto levels = loop_levels(a.cfg);
  ASSERT_TRUE(levels);
  ASSERT_EQ(levels->size(), 2u);
  const auto same = [&](int level, std::string_view x, std::string_view y) {
    return (*levels)[level].loop[a.block(x)] == (*levels)[level].loop[a.block(y)];
  };
  EXPECT_TRUE(same(0, "A", "B") && same(0, "B", "C") && same(0, "C", "D"));
  EXPECT_FALSE((*levels)[0].in_loop[a.block("E")]);
  EXPECT_FALSE((*levels)[1].in_loop[a.block("A")]);
  EXPECT_TRUE((*levels)[1].in_loop[a.block("B")]);
  EXPECT_TRUE(same(1, "C", "D"));
  EXPECT_FALSE(same(1, "B", "C"));
  // Two entries, neither of which is before the other: one loop, and none inside it.
  const Analysed twice("@%p1 bra Y; X: add.u32 %r1, %r1, 1; Y: @%p2 bra X; ret;");
  EXPECT_EQ(loop_levels(twice.cfg)->size(), 1u);
  EXPECT_EQ(loop_levels(Analysed("ret;").cfg)->size(), 1u);
}

TEST(PtxPostDominators, DiamondLoopAndTrap) {
  const Analysed a(
      "@%p1 bra R; L: add.u32 %r1, %r1, 1; bra J; R: sub.u32 %r1, %r1, 1;\n"
      "J: @%p2 bra J; @%p3 bra BAD; ret; BAD: trap;");
  EXPECT_EQ(a.post.immediate(a.cfg.entry()), a.block("J"));
  EXPECT_EQ(a.post.immediate(a.block("R")), a.block("J"));
  EXPECT_TRUE(a.post.dominates(a.block("J"), a.cfg.entry()));
  EXPECT_FALSE(a.post.dominates(a.block("L"), a.cfg.entry()));
  // The trap ends the grid: it takes no part.
  EXPECT_EQ(a.post.immediate(a.block("BAD")), kNoBlock);
  EXPECT_EQ(a.post.immediate(a.block("ret")), a.cfg.exit());
  EXPECT_TRUE(a.post.dominates(a.block("ret"), a.block("J")));
}

TEST(PtxPostDominators, EarlyReturnLeavesNothingBehindIt) {
  const Analysed a("@%p1 ret; add.u32 %r1, %r1, 1; @%p2 bra E; sub.u32 %r1, %r1, 1; E: ret;");
  EXPECT_EQ(a.post.immediate(a.cfg.entry()), a.cfg.exit());
  EXPECT_EQ(a.post.immediate(a.block("add.u32")), a.block("E"));
}

// Against the definition: without a dominator the block cannot be reached from the root.
TEST(PtxDominators, AgreeWithTheDefinitionInBothDirections) {
  std::mt19937 random(11);
  int found = 0;
  for (int graph = 0; graph < 60; ++graph) {
    std::string body;
    for (int i = 0; i < 9; ++i) {
      body += "L" + std::to_string(i) + ": add.u32 %r1, %r1, 1; @%p1 bra L" +
              std::to_string(random() % 9) + ";\n";
      if (random() % 5 == 0) body += random() % 2 == 0 ? "trap;\n" : "@%p2 ret;\n";
      if (random() % 3 == 0) body += "bra L" + std::to_string(random() % 9) + ";\n";
    }
    const Analysed a(body);
    const auto check = [&](const DominatorTree& tree, std::uint32_t root,
                           std::vector<std::uint32_t> Block::*away) {
      const auto& blocks = a.cfg.blocks();
      const auto reached = [&](std::uint32_t without) {
        std::vector<bool> seen(blocks.size());
        std::vector<std::uint32_t> work;
        const auto visit = [&](std::uint32_t b) {
          if (b != without && !seen[b]) work.push_back(b), seen[b] = true;
        };
        visit(root);
        while (!work.empty()) {
          const std::uint32_t b = work.back();
          work.pop_back();
          for (std::uint32_t to : blocks[b].*away) visit(to);
        }
        return seen;
      };
      const std::vector<bool> in_tree = reached(kNoBlock);
      std::vector<int> above(blocks.size());  // dominators other than itself
      for (std::uint32_t x = 0; x < blocks.size(); ++x) {
        const std::vector<bool> seen = reached(x);
        for (std::uint32_t b = 0; b < blocks.size(); ++b) {
          ASSERT_EQ(tree.dominates(x, b), x == b || (in_tree[x] && in_tree[b] && !seen[b]))
              << x << " " << b << body;
          above[b] += x != b && tree.dominates(x, b);
        }
      }
      for (std::uint32_t b = 0; b < blocks.size(); ++b) {
        const std::uint32_t up = tree.immediate(b);
        ASSERT_EQ(up == kNoBlock, above[b] == 0) << b << "\n" << body;
        if (up == kNoBlock) continue;
        ASSERT_TRUE(tree.dominates(up, b)) << b << "\n" << body;
        ASSERT_EQ(above[up] + 1, above[b]) << "not the nearest: " << b << "\n" << body;
        ++found;
      }
    };
    check(*Dominators::build(a.cfg), a.cfg.entry(), &Block::successors);
    check(a.post, a.cfg.exit(), &Block::predecessors);
  }
  EXPECT_GT(found, 500);
}

TEST(PtxDivergence, ThreadIndexTaintsThroughArithmetic) {
  const Analysed a(
      "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; setp.lt.u32 %p1, %r2, 64;\n"
      "@%p1 bra E; bar.sync 0; E: ret;");
  EXPECT_TRUE(a.divergent("bar.sync"));
  EXPECT_FALSE(a.divergent("E"));
}

TEST(PtxDivergence, ParametersConstantsAndBlockIndexAreUniform) {
  const Analysed a(
      "ld.param.u32 %r1, [n]; mov.u32 %r2, %ctaid.x; ld.const.u32 %r3, [c];\n"
      "add.u32 %r4, %r1, %r2; mad.lo.u32 %r5, %r4, %r3, %ntid.x;\n"
      "setp.lt.u32 %p1, %r5, 64; @%p1 bra E; bar.sync 0; E: ret;");
  EXPECT_TRUE(a.divergence.branches().empty());
}

TEST(PtxDivergence, LoadsAtomicsShufflesAndCallsAreNot) {
  for (const char* source :
       {"ld.global.u32 %r1, [%rd1];", "ld.shared.u32 %r1, [%r9];",
        "atom.global.add.u32 %r1, [%rd1], 1;", "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;",
        "call.uni (%r1), f, (%r2);", "brandnew.u32 %r1, %r2;", "mov.u32 %r1, %laneid;",
        "mov.u32 %r1, %futureregister;", "{ .param .b32 q; ld.param.b32 %r1, [q]; }"}) {
    const Analysed a(std::string(source) +
                     " setp.lt.u32 %p1, %r1, 64; @%p1 bra E; bar.sync 0; E: ret;");
    EXPECT_TRUE(a.divergent("bar.sync")) << source;
  }
}

TEST(PtxDivergence, BarrierReductionsAreUniformAgain) {
  const Analysed a(
      "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 64;\n"
      "bar.red.or.pred %p2, 0, %p1; @%p2 bra E; bar.sync 0; E: ret;");
  EXPECT_FALSE(a.divergent("bar.sync"));
}

TEST(PtxDivergence, ControlDependenceTaintsWhatIsWrittenTwice) {
  const Analysed a(
      "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 64; mov.u32 %r2, 0;\n"
      "@%p1 bra J; mov.u32 %r2, 1; J: setp.eq.u32 %p2, %r2, 0;\n"
      "@%p2 bra E; bar.sync 0; E: ret;");
  EXPECT_TRUE(a.divergent("bar.sync"));
}

TEST(PtxDivergence, LoopCounterOfADivergentLoop) {
  // Threads leave the loop after different numbers of rounds, so the counter differs behind it.
  const Analysed a(
      "mov.u32 %r1, %tid.x; mov.u32 %r2, 0;\n"
      "L: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1; @%p1 bra L;\n"
      "setp.eq.u32 %p2, %r2, 3; @%p2 bra E; bar.sync 0; E: ret;");
  EXPECT_TRUE(a.divergent("bar.sync"));
  const Analysed b(
      "ld.param.u32 %r1, [n]; mov.u32 %r2, 0;\n"
      "L: add.u32 %r2, %r2, 1; bar.sync 0; setp.lt.u32 %p1, %r2, %r1; @%p1 bra L; ret;");
  EXPECT_FALSE(b.divergent("bar.sync"));
}

TEST(PtxDivergence, GuardsAndTheCarryFlag) {
  const Analysed a(
      "mov.u32 %r1, %tid.x; mov.u32 %r2, 5; add.cc.u32 %r3, %r1, 1;\n"
      "addc.u32 %r4, %r2, 0; setp.eq.u32 %p1, %r4, 0; @%p1 bar.sync 0; ret;");
  const auto& statements = a.module.functions()[0].statements;
  for (std::uint32_t i = 0; i < statements.size(); ++i) {
    EXPECT_EQ(a.divergence.guard_tainted(i), statements[i].opcode == "bar.sync") << i;
  }
  // A write under a guard that differs makes the result differ.
  const Analysed b(
      "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0;\n"
      "@%p1 mov.u32 %r2, 1; setp.eq.u32 %p2, %r2, 0; @%p2 bra E; bar.sync 0; E: ret;");
  EXPECT_TRUE(b.divergent("bar.sync"));
}

TEST(PtxDivergence, DependenceOnChosenStatements) {
  const auto dependent_branches = [](const Analysed& a, std::string_view source) {
    std::vector<std::uint32_t> sources;
    const auto& statements = a.module.functions()[0].statements;
    for (std::uint32_t i = 0; i < statements.size(); ++i)
      if (statements[i].opcode == source) sources.push_back(i);
    EXPECT_FALSE(sources.empty());
    const auto flow = ValueFlow::of(a.cfg);
    EXPECT_TRUE(flow);
    if (!flow) return std::size_t{99};
    // One flow answers several questions, and no question changes the next one's answer.
    EXPECT_TRUE(Divergence::depending_on(a.cfg, a.post, *flow, {}));
    const auto dependence = Divergence::depending_on(a.cfg, a.post, *flow, sources);
    const auto none = Divergence::depending_on(a.cfg, a.post, *flow, {});
    EXPECT_TRUE(dependence && none);
    if (!dependence || !none) return std::size_t{99};
    EXPECT_EQ(none->branches().size(), 0u);
    return dependence->branches().size();
  };
  const Analysed waits(
      "L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;");
  EXPECT_EQ(dependent_branches(waits, "ld.volatile.global.u32"), 1u);
  const Analysed counts(
      "mov.u32 %r2, %tid.x; L: ld.volatile.global.u32 %r1, [%rd1];\n"
      "sub.u32 %r2, %r2, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra L; ret;");
  EXPECT_EQ(dependent_branches(counts, "ld.volatile.global.u32"), 0u);
  EXPECT_EQ(dependent_branches(counts, "mov.u32"), 1u);
}

}  // namespace
}  // namespace sluice::ptx
