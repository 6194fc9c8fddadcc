// SPDX-License-Identifier: Apache-2.0
// The PTX library: cutting text into statements, declarations and their layout, printing back.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/ptx/edit.h"
#include "kernels/ptx/module.h"
#include "kernels/ptx/print.h"

namespace sluice::ptx {
namespace {

Module parse(const std::string& text) {
  auto module = Module::parse(text);
  EXPECT_TRUE(module) << module.error().message << "\nin: " << text;
  if (!module) return *Module::parse("");
  return std::move(*module);
}

std::string error_of(const std::string& text) {
  auto module = Module::parse(text);
  if (!module) return module.error().message;
  for (const Function& f : module->functions())
    if (!f.not_understood.empty()) return f.not_understood;
  return "no error";
}

// A kernel around `body`.
std::string kernel(const std::string& body, const std::string& parameters = "") {
  return ".version 8.0\n.target sm_90a, debug\n.address_size 64\n.visible .entry k(" + parameters +
         ")\n{\n" + body + "\n}\n";
}

TEST(PtxScanner, HeaderIsUnderstood) {
  const Module m = parse(kernel("ret;"));
  EXPECT_EQ(m.version(), (Module::Version{8, 0}));
  EXPECT_EQ(m.text_of(m.version_range()), "8.0");
  EXPECT_EQ(m.target(), "sm_90a");
  EXPECT_EQ(m.sm(), 90u);
  EXPECT_EQ(m.targets().size(), 2u);
  EXPECT_EQ(m.address_size(), 64u);
  ASSERT_EQ(m.functions().size(), 1u);
  EXPECT_TRUE(m.functions()[0].is_entry);
  EXPECT_EQ(m.functions()[0].linkage, ".visible");
}

TEST(PtxScanner, InstructionsHaveGuardOpcodeAndOperands) {
  const Module m =
      parse(kernel("@%p1 ld.global.v4.f32 {%f1, %f2,%f3 , %f4}, [%rd1 + 4];\n"
                   "@! %p2 shfl.sync.down.b32 %r1|%p3, %r2, 16, 31, -1;\n"
                   "call.uni (retval0), f, (a, b), proto;\nret;"));
  const Function& f = m.functions()[0];
  ASSERT_EQ(f.statements.size(), 4u);
  const Statement& load = f.statements[0];
  EXPECT_EQ(load.kind, StatementKind::kInstruction);
  EXPECT_EQ(load.guard, "%p1");
  EXPECT_FALSE(load.guard_negated);
  EXPECT_EQ(load.opcode, "ld.global.v4.f32");
  EXPECT_EQ(load.line, 6u);
  ASSERT_EQ(load.operands.size(), 2u);
  EXPECT_EQ(load.operands[0], "{%f1, %f2,%f3 , %f4}");
  EXPECT_EQ(load.operands[1], "[%rd1 + 4]");
  const Statement& shuffle = f.statements[1];
  EXPECT_TRUE(shuffle.guard_negated);
  EXPECT_EQ(shuffle.guard, "%p2");
  EXPECT_EQ(shuffle.operands[0], "%r1|%p3");
  EXPECT_EQ(shuffle.operands.size(), 5u);
  EXPECT_EQ(f.statements[2].operands[2], "(a, b)");
  EXPECT_EQ(f.statements[3].operands.size(), 0u);
  EXPECT_TRUE(has_modifier(load.opcode, "v4"));
  EXPECT_FALSE(has_modifier(load.opcode, "ld"));
  EXPECT_EQ(base_opcode(load.opcode), "ld");
}

TEST(PtxScanner, CommentsAndStringsHideStructure) {
  const Module m = parse(
      "// } ; {\n/* \" ; */ .version 8.0\n.target sm_90\n"
      ".pragma \"a ; } // /* \\\" b\";\n.entry k() { /* } */ mov.u32 /* ; , */ "
      "%r1, // }\n 5 /* , */; ret; }");
  const Function& f = m.functions()[0];
  ASSERT_EQ(f.statements.size(), 2u);
  ASSERT_EQ(f.statements[0].operands.size(), 2u);
  EXPECT_EQ(f.statements[0].operands[0], "%r1");
  EXPECT_EQ(f.statements[0].operands[1], "5");
  EXPECT_EQ(m.directives().back().name, ".pragma");
}

TEST(PtxScanner, ScopesLabelsAndDirectives) {
  const Module m =
      parse(kernel("{ .reg .b32 x; { L: bra L; } }\n.loc 1 2 3, function_name F + 4, "
                   "inlined_at 1 5 6\n.pragma \"nounroll\";\nT: .branchtargets A, B;\n"
                   "A: B: brx.idx %r1, T;"));
  const Function& f = m.functions()[0];
  ASSERT_EQ(f.scopes.size(), 3u);
  EXPECT_EQ(f.scopes[2].parent, 1u);
  EXPECT_EQ(f.scopes[2].depth, 2u);
  EXPECT_EQ(f.statements[f.scopes[2].open].kind, StatementKind::kScopeOpen);
  EXPECT_EQ(f.statements[f.scopes[2].close].kind, StatementKind::kScopeClose);
  std::vector<std::string> seen;
  for (const Statement& s : f.statements) seen.emplace_back(s.opcode);
  const std::vector<std::string> expected = {
      "",  ".reg",           "",  "L", "bra",    "", "", ".loc", ".pragma",
      "T", ".branchtargets", "A", "B", "brx.idx"};
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(f.statements[10].operands.size(), 2u);
  EXPECT_EQ(f.statements[3].scope, 2u);
}

TEST(PtxScanner, DeclarationsHaveLayout) {
  const Module m = parse(
      ".version 8.0 .target sm_90 .address_size 64\n"
      ".visible .global .align 16 .v4 .f32 g[3][2] = {{1.0, 2.0}, {3.0}};\n"
      ".extern .shared .align 128 .b8 dyn[];\n.const .b8 a = 1, b[4];\n.global .texref t;\n"
      ".entry k() { .reg .b32 %r<5>, x; .reg .pred %p<2>; .local .align 8 .b8 depot[24]; }");
  ASSERT_EQ(m.variables().size(), 5u);
  const Variable& g = m.variables()[0];
  EXPECT_EQ(g.linkage, ".visible");
  EXPECT_EQ(g.bytes, 96u);
  EXPECT_EQ(g.align, 16u);
  EXPECT_EQ(g.vector_width, 4u);
  EXPECT_EQ(g.initializer, "{{1.0, 2.0}, {3.0}}");
  EXPECT_EQ(g.dimensions, (std::vector<std::uint64_t>{3, 2}));
  EXPECT_EQ(m.variables()[1].space, Space::kShared);
  EXPECT_EQ(m.variables()[1].bytes, 0u);
  EXPECT_EQ(m.variables()[1].align, 128u);
  EXPECT_EQ(m.variables()[2].initializer, "1");
  EXPECT_EQ(m.variables()[3].name, "b");
  EXPECT_EQ(m.variables()[3].bytes, 4u);
  EXPECT_EQ(m.variables()[4].type, "texref");
  const Function& f = m.functions()[0];
  ASSERT_EQ(f.variables.size(), 4u);
  EXPECT_EQ(f.variables[0].name, "%r");
  EXPECT_EQ(f.variables[0].register_count, 5u);
  EXPECT_EQ(f.variables[1].register_count, 0u);
  EXPECT_EQ(f.variables[2].type, "pred");
  EXPECT_EQ(f.variables[3].bytes, 24u);
}

TEST(PtxScanner, ParametersHaveOffsets) {
  const Module m =
      parse(kernel("ret;",
                   ".param .u8 a, .param .u64 .ptr .global .align 32 b, .param .u16 c,\n"
                   ".param .align 16 .b8 d[20], .param .f32 e"));
  const Function& f = m.functions()[0];
  ASSERT_EQ(f.params.size(), 5u);
  const std::uint64_t offsets[] = {0, 8, 16, 32, 52};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(f.params[i].offset, offsets[i]) << i;
  EXPECT_TRUE(f.params[1].is_pointer);
  EXPECT_EQ(f.params[1].align, 8u);  // 32 is the alignment of what it points to
  EXPECT_EQ(f.param_bytes, 56u);
}

TEST(PtxScanner, PerformanceDirectives) {
  const Module m = parse(
      ".version 8.0 .target sm_90\n.entry k(.param .u32 n)\n.maxntid 128, 2\n"
      ".minnctapersm 3 .maxnreg 40\n.pragma \"x\";\n.newone 1, two\n{ ret; }\n"
      ".func (.reg .u32 r) f (.reg .u32 x) { ret; }\n.extern .func g;\n");
  const Function& k = m.functions()[0];
  EXPECT_EQ(k.maxntid, (std::array<std::uint32_t, 3>{128, 2, 1}));
  EXPECT_EQ(k.minnctapersm, 3u);
  EXPECT_EQ(k.maxnreg, 40u);
  ASSERT_EQ(k.directives.size(), 5u);
  EXPECT_EQ(k.directives[4].name, ".newone");
  EXPECT_EQ(k.directives[4].arguments[1], "two");
  EXPECT_EQ(m.functions()[1].returns.size(), 1u);
  EXPECT_FALSE(m.functions()[2].has_body);
  EXPECT_EQ(m.find_function("g"), &m.functions()[2]);
  EXPECT_EQ(m.find_function("h"), nullptr);
}

TEST(PtxScanner, UnknownThingsAreKept) {
  const std::string text =
      ".version 99.1\n.target sm_200x\n.newthing a, b;\n.newblock { anything ; } \n"
      ".entry k() { .newdirective x, y; brandnew.op.x1 %r1, {a, b}, <3>; .reg .b32 weird(3); }\n";
  const Module m = parse(text);
  EXPECT_EQ(m.functions()[0].statements.size(), 3u);
  EXPECT_EQ(m.functions()[0].statements[2].kind, StatementKind::kDirective);
  auto printed = print(m);
  ASSERT_TRUE(printed) << printed.error().message;
  EXPECT_EQ(*printed, text);
}

// The debug information of ISA versions before 2.0 ends with its line.
TEST(PtxScanner, OldDebugInformationIsKept) {
  const std::string text =
      ".version 1.4\n@@DWARF .section .debug_info,\"\",@progbits {\n\t@@DWARF .byte 1\n.entry k() "
      "{ ret; }";
  const Module m = parse(text);
  EXPECT_EQ(m.directives().size(), 3u);
  EXPECT_EQ(m.directives().back().line, 3u);
  EXPECT_EQ(m.functions().size(), 1u);
  EXPECT_EQ(*print(m), text);
}

TEST(PtxScanner, ErrorsNameTheirPlace) {
  EXPECT_EQ(error_of(".version 8.0\n  mov"), "line 2, column 3: expected a directive");
  EXPECT_EQ(error_of(".version x"), "line 1, column 10: expected a version number such as 9.0");
  EXPECT_EQ(error_of(".entry k() { add.u32 a, b, c }"),
            "line 1, column 30: `}` where a statement should end with `;`");
  EXPECT_EQ(error_of(".entry k() {\n ret;"), "line 1, column 13: function's body is not closed");
  EXPECT_EQ(error_of("/* "), "line 1, column 1: comment is not closed");
  EXPECT_EQ(error_of(".entry k() { mov [a, b); }"), "line 1, column 23: brackets do not match");
  EXPECT_EQ(error_of(".pragma \"x"), "line 1, column 9: string is not closed");
  EXPECT_EQ(error_of(std::string("a\0b", 3)), "line 1, column 2: a NUL byte inside the text");
  EXPECT_EQ(error_of(".entry k() { @ ; }"), "line 1, column 16: expected a predicate after `@`");
}

TEST(PtxScanner, NestingIsBounded) {
  const std::string scopes(kMaxScopeDepth + 1, '{');
  EXPECT_NE(error_of(kernel(scopes)).find("scopes nest too deep"), std::string::npos);
  std::string deep(kMaxScopeDepth - 1, '{');
  deep += std::string(kMaxScopeDepth - 1, '}');
  parse(kernel(deep));
  const std::string brackets(kMaxBracketDepth + 1, '(');
  EXPECT_NE(error_of(kernel("mov " + brackets + ";")).find("brackets nest too deep"),
            std::string::npos);
  EXPECT_NE(error_of(".x " + brackets).find("brackets nest too deep"), std::string::npos);
  // Sizes that overflow make no variable of a wrong size.
  const Module m = parse(".global .b64 a[4294967296][4294967296][4294967296];");
  EXPECT_TRUE(m.variables().empty());
  EXPECT_EQ(m.directives().size(), 1u);
}

TEST(PtxScanner, Integers) {
  std::uint64_t v = 0;
  EXPECT_TRUE(parse_integer("0x1Fu", v));
  EXPECT_EQ(v, 31u);
  EXPECT_TRUE(parse_integer("017", v));
  EXPECT_EQ(v, 15u);
  EXPECT_TRUE(parse_integer("0b101", v));
  EXPECT_EQ(v, 5u);
  EXPECT_TRUE(parse_integer("18446744073709551615", v));
  EXPECT_FALSE(parse_integer("18446744073709551616", v));
  for (const char* bad : {"", "0x", "08", "1a", "-1", "0b2", "U"})
    EXPECT_FALSE(parse_integer(bad, v)) << bad;
}

TEST(PtxEdits, ApplyInOrder) {
  Edits edits;
  edits.replace({2, 4}, "XY");
  edits.insert(2, "a");
  edits.insert(2, "b");
  edits.remove({5, 6});
  EXPECT_EQ(edits.apply("0123456789", {1, 8}), "1abXY467");
}

// Every PTX file of the project comes back byte for byte, through its statements.
class RoundTrip : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(RoundTrip, IsLossless) {
  std::ifstream file(GetParam(), std::ios::binary);
  std::stringstream contents;
  contents << file.rdbuf();
  auto module = Module::parse(contents.str());
  ASSERT_TRUE(module) << module.error().message;
  auto printed = print(*module);
  ASSERT_TRUE(printed) << printed.error().message;
  EXPECT_TRUE(*printed == contents.str());
}

std::vector<std::filesystem::path> ptx_files() {
  std::vector<std::filesystem::path> paths;
  for (const char* folder : {"/tests/golden", "/kernels/suite/ptx", "/kernels/suite/ptx/papers",
                             "/kernels/suite/ptx/scans"})
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(SLUICE_SOURCE_ROOT) + folder))
      if (entry.path().extension() == ".ptx") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Files, RoundTrip, testing::ValuesIn(ptx_files()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace sluice::ptx
