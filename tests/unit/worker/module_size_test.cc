// SPDX-License-Identifier: Apache-2.0
// What a module's text says of the memory that it takes: never less than the driver will.
#include "mediator/worker/modules/size.h"

#include <gtest/gtest.h>

#include <string>

#include "mediator/worker/limits.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kGiB = 1ull << 30;

uint64_t size_of(const std::string& text) { return variable_bytes(text).value_or(~uint64_t{0}); }

TEST(ModuleSize, CountsVariablesOfBothSpaces) {
  EXPECT_EQ(size_of(".version 7.0\n.target sm_70\n.address_size 64\n"), 0u);
  EXPECT_EQ(size_of(".visible .global .align 4 .u32 counter = 7;"), 16u);
  EXPECT_EQ(size_of(".global .align 4 .b8 big[1073741824];"), kGiB);
  EXPECT_EQ(size_of(".const .align 8 .f64 table[4096];"), 32768u);
  EXPECT_EQ(size_of(".global .u32 a[256], b[2][16];"), 1024u + 128u);
  EXPECT_EQ(size_of(".global .align 4096 .b8 small[1];"), 4096u);
  EXPECT_EQ(size_of(".global .v4 .f32 v[1024];"), 16384u);
  EXPECT_EQ(size_of(".global .f16x2 h[1024];"), 4096u);
  EXPECT_EQ(size_of(".global .b128 h[1024];"), 16384u);
  EXPECT_EQ(size_of(".global .u32 n[] = {1, 2, 3, 4};") % 16, 0u);
  EXPECT_GE(size_of(".global .u32 n[] = {1, 2, 3, 4};"), 16u);
  EXPECT_GE(size_of(".global .attribute(.managed) .align 4 .b8 m[65536];"), 65536u);
  EXPECT_EQ(size_of(".extern .global .align 4 .b8 elsewhere[1073741824];"), 0u);
  EXPECT_EQ(size_of(".entry k(.param .u64 .ptr .global .align 8 p, .param .u32 q) { ret; }"), 0u);
}

TEST(ModuleSize, WhateverTheTextLooksLike) {
  EXPECT_EQ(size_of(".global/**/.b8/* .b8 no[5] */big[ 0x40000000 ] ; // .global .b8 no[9];"),
            kGiB);
  EXPECT_EQ(size_of(".global\n.b8\tbig\n[\n0x4000\n]\n[\n65536U\n]\n;"), kGiB);
  EXPECT_EQ(size_of(".global .b8 big[1024*1024*(512+512)];"), kGiB);
  EXPECT_EQ(size_of(".global .b8 big[0b100000000000000000000][02000];"), kGiB);
  EXPECT_GE(size_of(".entry k() { .global .b8 inside[1048576]; ret; }"), 1048576u);
  EXPECT_GE(size_of(".global .newtype64 t[1048576];"), 1048576u * 8);
  EXPECT_GE(size_of("# 1 \"file.cu\"\n.global .b8 big[1048576];"), 1048576u);
}

// Each of them was free of charge: what is in brackets ended early, what takes a word back was not
// seen, an array of none has as many elements as its initial value.
TEST(ModuleSize, NoWayToWriteAVariableIsFree) {
  for (const char* text : {
           ".global .attribute(.unified(19, 95)) .b8 big[1073741824];",
           ".global .attribute(.managed, .unified(19, 95)) .b8 big[1073741824];",
           ".global .attribute(()\n.managed) .b8 big[1073741824];",
           ".extern .visible .global .b8 big[1073741824];",
           ".extern .global .visible .b8 big[1073741824];",
           ".extern .global .b8 .weak big[1073741824];",
           ".global .b32 big[0][268435456] = {{}, {}};",
           ".const[1] .b8 big[1073741824];",
           ".b8 .global big[1073741824];",
           ".target sm_70.local.v4.global .b8 big[268435456];",
           ".local .v4 .global .b8 big[268435456];",
           ".entry k() { .global .b8 small[9] = 1 } .global .b8 big[1073741824];",
       }) {
    EXPECT_GE(size_of(text), kGiB) << text;
  }
}

TEST(ModuleSize, RefusesWhatItCannotTell) {
  for (const char* text : {
           ".global .b8 big[N];",
           ".global .b8 big[1 << 30];",
           ".global .b8 big[(1073741824];",
           ".global .b8 big[1073741824",
           ".global .b8 big[-1];",
           ".global .b8 big[99999999999999999999999];",
           ".global .b64 big[0x2000000000000000][16];",
           ".global .b64 a[0x1000000000000000]; .global .b64 b[0x1000000000000000];",
           ".global .align 0x40000000 .b8 a[1];",
           "#define BIG .global .b8 big[1073741824];\nBIG",
           "  #include \"other.ptx\"\n",
           "# 1 \"continued\\\n.global .b8 big[1073741824];",
           "/* .global .b8 big[4];",
           ".pragma \"open; .global .b8 big[4];",
           // Strings that others end elsewhere, or take for none; lines that others skip, or do
           // not.
           ".pragma \"nounroll \\\"; .global .b8 big[1073741824];",
           ".pragma \"\\\"\"; .global .b8 big[1073741824]; .pragma \"\\\"\";",
           ".section \" {} .global .b8 big[1073741824]; .section \" {}",
           ".pragma \"two\nlines\";",
           "@@DWARF /*\n.global .b8 big[1073741824];\n@@DWARF */",
           ".pragma # 1 ; .global .b8 big[1073741824];\n;",
           ".global .b32 many<1000000>;",
           ".global .b8 small[1] = {1}.global .b8 big[1073741824];",
           ".global .b8 [1073741824];",
       }) {
    EXPECT_FALSE(variable_bytes(text)) << text;
    EXPECT_FALSE(module_bytes(text).device) << text;
  }
  EXPECT_FALSE(variable_bytes(".global .b8 big[" + std::string(100000, '(') + "1"));
}

TEST(ModuleSize, InstructionsCostLittleMoreThanTheirText) {
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text +=
        "ld.global.u32 %r1, [%rd1+4];\nst.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};\n"
        "cp.async.ca.shared.global [%r1], [%rd1], 16;\nld.global.nc.L2::128B.u32 %r1, [%rd1];\n"
        "cvta.to.global.u64 %rd2, %rd1;\nld.const.u32 %r1, [table+4];\n";
  ASSERT_TRUE(variable_bytes(text));
  EXPECT_LE(*variable_bytes(text), 2 * text.size());
  EXPECT_EQ(module_bytes(text).device, *variable_bytes(text) + text.size());
}

// Of short texts that take much: each variable and each label. Not of what only looks like them.
TEST(ModuleSize, HostMemoryCountsVariablesAndLabels) {
  constexpr uint64_t kMany = 1000;
  std::string variables = ".global .u8 a", labels = ".entry k() {", values = ".const .u8 t[] = {0";
  for (uint64_t i = 0; i < kMany; ++i) {
    variables += ",a" + std::to_string(i);
    labels += "L" + std::to_string(i) + ":";
    values += ",0";
  }
  variables += ";", labels += "ret; }", values += "};";
  const auto beyond_text = [](const std::string& text) {
    return module_bytes(text).host - kModuleHostBytes - text.size() * kModuleHostFactor;
  };
  EXPECT_EQ(beyond_text(variables), (kMany + 1) * kVariableHostBytes);
  EXPECT_EQ(beyond_text(labels), kMany * kLabelHostBytes);
  EXPECT_EQ(beyond_text(values), kVariableHostBytes);
  EXPECT_EQ(beyond_text(".entry k(.param .u64 .ptr .global .align 8 p, .param .u32 q) {"
                        "ld.global.u32 r, [p]; }"),
            0u);
  EXPECT_EQ(beyond_text(".global .u8 open"), kVariableHostBytes);
  EXPECT_EQ(beyond_text(".visible.global .u8 a;"), kVariableHostBytes);
}

// Modules with variables are not kept twice (load.cc).
TEST(ModuleSize, SeesThatThereAreVariables) {
  for (const char* text : {".global .u8 a;", ".visible.global .u8 a;", "}.const .u8 a;"})
    EXPECT_TRUE(declares_variables(text)) << text;
  EXPECT_TRUE(declares_variables(std::string(1000, 'a') + ".global .u8 a;")) << "in doubt";
  EXPECT_FALSE(
      declares_variables("ld.global.u32 %r1, [p]; cp.async.ca.shared.global [q], [p], 4;"));
}

}  // namespace
}  // namespace sluice::worker
