// SPDX-License-Identifier: Apache-2.0
// Kernels taken out of their module: what a kernel's own text has, and what makes a module
// inseparable.
#include "kernels/ptx/separate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/passes/rewrite.h"

namespace sluice::ptx {
namespace {

constexpr char kHeader[] = ".version 7.8\n.target sm_70\n.address_size 64\n";

const std::string kModule = std::string(kHeader) + R"(
.global .align 4 .u32 count;
.visible .global .align 8 .b8 table[64];
.global .align 4 .u32 unused = 7;
.extern .shared .align 16 .b8 pool[];
.func (.param .b32 out) step(.param .b32 in);
.func (.param .b32 out) step(.param .b32 in)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r0, [in];
  ld.global.u32 %r1, [count];
  add.u32 %r2, %r0, %r1;
  st.param.b32 [out], %r2;
  ret;
}
.visible .entry scan(.param .u64 to)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [to];
  mov.u64 %rd1, table+16;
  mov.u64 %rd2, table;
  ld.global.u32 %r0, [table+8];
  {
  .param .b32 a;
  .param .b32 b;
  st.param.b32 [a], %r0;
  call (b), step, (a);
  ld.param.b32 %r1, [b];
  }
  st.global.u32 [%rd0], %r1;
  ret;
}
.visible .entry alone(.param .u64 to)
{
  .reg .b64 %rd<2>;
  ld.param.u64 %rd0, [to];
  st.shared.u64 [pool], %rd0;
  ret;
}
)";

std::string why_not(const std::string& body) {
  const auto parsed = SeparableModule::parse(kHeader + body);
  return parsed ? "" : parsed.error().message;
}

TEST(SeparableModule, AKernelsTextHasWhatItReachesAndNoMore) {
  const auto m = SeparableModule::parse(kModule);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(m->entries(), (std::vector<std::string>{"scan", "alone"}));
  auto names = m->variables_of(m->reached_from("scan"));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"count", "table"}));
  EXPECT_TRUE(m->variables_of(m->reached_from("alone")).empty());

  const auto scan = m->kernel_text(m->reached_from("scan"), {"table", "count"});
  ASSERT_TRUE(scan) << scan.error().message;
  EXPECT_EQ(scan->find(".global .align"), scan->npos) << *scan;  // no variable of its own
  EXPECT_EQ(scan->find("alone"), scan->npos);
  EXPECT_EQ(scan->find("pool"), scan->npos);
  EXPECT_NE(scan->find("add.s64 %rd1, %sluice_variable_"), scan->npos) << *scan;
  const auto again = Module::parse(*scan);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(again->variables().empty());
  EXPECT_NE(again->find_function("step"), nullptr);
  const auto rewritten = passes::rewrite_module(*scan);
  ASSERT_TRUE(rewritten);
  ASSERT_EQ(rewritten->kernels.size(), 1u);
  EXPECT_TRUE(rewritten->kernels[0].evictable) << rewritten->kernels[0].reason;

  // Each use of either, in the original and in every form, reads it from the array.
  const auto read = addresses_from_array(rewritten->text, 2);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_NE(read->find(".visible .const .align 8 .b64 sluice_addresses[2];"), read->npos);
  EXPECT_EQ(read->find("0x7e534c55"), read->npos) << *read;
  const auto loads = [&](const std::string& of) {
    size_t n = 0;
    for (size_t at = 0; (at = read->find("[sluice_addresses+" + of + "]", at)) != read->npos; ++at)
      ++n;
    return n;
  };
  const size_t bodies = 4;  // the original and its forms
  EXPECT_EQ(loads("0"), 3 * bodies) << *read;
  EXPECT_GE(loads("8"), 1u);
  const auto loaded = Module::parse(*read);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_NE(loaded->find_function("scan" SLUICE_CLONE_SUFFIX), nullptr);

  const auto alone = m->kernel_text(m->reached_from("alone"), {});
  ASSERT_TRUE(alone);
  EXPECT_NE(alone->find(".extern .shared .align 16 .b8 pool[];"), alone->npos);
  EXPECT_EQ(alone->find("step"), alone->npos);
}

TEST(SeparableModule, AStringWithoutAnAddressIsCopied) {
  const auto m = SeparableModule::parse(std::string(kHeader) + R"(
.global .align 1 .b8 $str[3] = {104, 105, 0};
.global .align 4 .b8 table[4] = {1, 2, 3, 4};
.visible .entry k() {
  .reg .b64 %rd<3>;
  mov.u64 %rd1, $str;
  mov.u64 %rd2, table;
  ret;
}
)");
  ASSERT_TRUE(m) << m.error().message;
  const auto copied = m->kernel_text(m->reached_from("k"), {"table"});
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_NE(copied->find(".global .align 1 .b8 $str[3] = {104, 105, 0};"), copied->npos);
  EXPECT_EQ(copied->find("table"), copied->npos);
  const auto reached = m->kernel_text(m->reached_from("k"), {"table", "$str"});
  ASSERT_TRUE(reached);
  EXPECT_EQ(reached->find("$str"), reached->npos);
  EXPECT_FALSE(m->kernel_text(m->reached_from("k"), {"$str"})) << "a table may be written";
}

TEST(SeparableModule, AnAddressThatIsMissingIsAnError) {
  const auto m = SeparableModule::parse(kModule);
  ASSERT_TRUE(m);
  EXPECT_FALSE(m->kernel_text(m->reached_from("scan"), {"count"}));
}

// The guest's own text must not be taken for ours, nor ours for another place's.
TEST(SeparableModule, WhatStandsForAddressesIsOursAlone) {
  EXPECT_NE(why_not(".visible .entry k() { .reg .b64 %r; mov.b64 %r, 0x7e534c5500000000; ret; }"),
            "");
  EXPECT_NE(why_not(".global .b64 sluice_addresses[1];\n.visible .entry k() { ret; }"), "");
  const std::string begin = std::string(kHeader) + ".entry k() { .reg .b64 %r; ";
  EXPECT_TRUE(addresses_from_array(begin + "mov.b64 %r, 0x7e534c5500000000; }", 1));
  for (const char* const other :
       {"mov.b64 %r, 0x7e534c5500000001; }", "add.s64 %r, %r, 0x7e534c5500000000; }",
        "mov.b64 %r, 0x7e534c5500000000", "mov.b64 %r, 0x7e534c55000000005; }",
        "mov.b64 %r, 0; ld.global.b64 %r, [0x7e534c5500000000]; }"})
    EXPECT_FALSE(addresses_from_array(begin + other, 1)) << other;
  EXPECT_FALSE(addresses_from_array("mov.b64 %r, 0x7e534c5500000000;", 1)) << "no header";
}

TEST(SeparableModule, MoreVariablesThanAnArrayHoldsAreRefused) {
  std::string text = kHeader, body;
  std::vector<std::string> names;
  for (size_t i = 0; i <= kMaxAddresses; ++i) {
    names.push_back("v" + std::to_string(i));
    text += ".global .u32 " + names.back() + ";\n";
    body += "mov.u64 %rd1, " + names.back() + ";\n";
  }
  const auto m = SeparableModule::parse(text + ".visible .entry k() {\n.reg .b64 %rd<2>;\n" + body +
                                        "ret;\n}\n");
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_FALSE(m->kernel_text(m->reached_from("k"), names));
  names.pop_back();
  EXPECT_FALSE(m->kernel_text(m->reached_from("k"), names)) << "one has no address";
}

TEST(SeparableModule, WhatBelongsToItsModuleIsRefused) {
  const char* const entry = ".visible .entry k() { ret; }\n";
  for (const char* const declared :
       {".extern .const .align 4 .u32 c;\n", ".extern .global .u32 elsewhere;\n",
        ".common .global .u32 shared_by_name;\n", ".global .texref t;\n", ".tex .u64 t;\n",
        ".section .debug_str { .b8 0 }\n"})
    EXPECT_NE(why_not(std::string(declared) + entry), "") << declared;
  EXPECT_EQ(why_not(entry), "");
  EXPECT_EQ(why_not(std::string(entry) + ".file 1 \"a.cu\"\n"), "");
}

TEST(SeparableModule, UsesWithoutAnotherFormAreRefused) {
  const auto with = [](const std::string& body) {
    return why_not(
        ".global .align 4 .u32 x;\n.global .align 4 .u32 y;\n"
        ".func f() { ret; }\n.visible .entry k(.param .u64 p) {\n"
        ".reg .b64 %rd<3>;\n.reg .b32 %r<3>;\n" +
        body + "ret;\n}\n");
  };
  EXPECT_EQ(with("mov.u64 %rd1, x;\nld.global.u32 %r1, [y+4];\ncall f;\n"), "");
  EXPECT_NE(with("cvta.global.u64 %rd1, x+4;\n"), "");
  EXPECT_NE(with("mov.u64 %rd1, x+y;\n"), "");
  EXPECT_NE(with("mov.u64 %rd1, f;\n"), "");
  EXPECT_NE(with("mov.u64 %rd1, %rd2;\ncall %rd1, (), prototype;\n"), "");
  EXPECT_NE(with(".shared .u32 x;\n"), "");            // hides the module's
  EXPECT_NE(with(".global .u32 of_the_body;\n"), "");  // a variable of the module all the same
}

TEST(SeparableModule, ConstantsAreReadFromTheModules) {
  const auto m = SeparableModule::parse(std::string(kHeader) + R"(
.const .align 4 .f32 scale = 0f3F800000;
.const .align 16 .b8 table[64];
.visible .entry k(.param .u64 to) {
  .reg .pred %p<2>;
  .reg .f32 %f<8>;
  .reg .b64 %rd<9>;
  ld.param.u64 %rd0, [to];
  ld.const.f32 %f0, [scale];
  mov.u64 %rd1, table;
  add.s64 %rd2, %rd1, %rd0;
  add.s64 %rd3, %rd1, 64;
  setp.ne.s64 %p1, %rd2, %rd3;
  ld.const.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2+16];
  cvta.const.u64 %rd4, %rd1;
  cvta.to.const.u64 %rd5, %rd4;
  ld.const.f32 %f5, [%rd5];
  st.global.u64 [%rd0], %rd4;
  ret;
}
)");
  ASSERT_TRUE(m) << m.error().message;
  const auto reached = m->reached_from("k");
  EXPECT_EQ(m->variables_of(reached), (std::vector<std::string>{"scale", "table"}));
  const auto text = m->kernel_text(reached, {"scale", "table"});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_NE(text->find("ld.const.f32 %f5, [%rd5]"), text->npos) << "what passes make of it";
  EXPECT_EQ(text->find("\n.const"), text->npos);
  const auto loadable = m->loadable(*text, 2);
  ASSERT_TRUE(loadable) << loadable.error().message;
  for (const char* const one :
       {"ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2+16]", "ld.global.nc.f32 %f5, [%rd5]",
        "cvta.global.u64 %rd4, %rd1", "cvta.to.global.u64 %rd5, %rd4", "ld.global.nc.f32 %f0, ["})
    EXPECT_NE(loadable->find(one), loadable->npos) << one;
  // What is left of their space is the array.
  for (size_t at = 0; (at = loadable->find("ld.const", at)) != loadable->npos; ++at)
    EXPECT_EQ(loadable->compare(at, 13, "ld.const.b64 "), 0) << *loadable;
}

TEST(SeparableModule, AddressesOfConstantsThatGoFurtherAreRefused) {
  const auto with = [](const std::string& body, const char* target = "sm_70") {
    const auto parsed = SeparableModule::parse(
        std::string(".version 7.8\n.target ") + target +
        "\n.address_size 64\n.const .align 4 .b8 c[64];\n.global .align 8 .u64 kept;\n"
        ".visible .entry k(.param .u64 p) {\n.reg .b64 %rd<9>;\n.reg .b32 %r<9>;\n"
        ".reg .pred %p<3>;\nld.param.u64 %rd7, [p];\n" +
        body + "ret;\n}\n");
    return parsed ? "" : parsed.error().message;
  };
  EXPECT_EQ(with("mov.u64 %rd1, c+4;\nld.const.u32 %r1, [%rd1];\n"), "");
  EXPECT_NE(with("mov.u64 %rd1, c+4;\nld.const.u32 %r1, [%rd1];\n", "sm_30"), "");
  EXPECT_EQ(with("mov.u64 %rd1, c;\nselp.b64 %rd2, %rd1, %rd1, %p1;\n"
                 "mad.lo.s64 %rd3, %rd7, 4, %rd2;\nld.const.u32 %r1, [%rd3+8];\n"),
            "");
  // Uses before their definitions, round a loop.
  EXPECT_EQ(with("mov.u64 %rd1, c;\nL: ld.const.u32 %r1, [%rd1];\nadd.s64 %rd2, %rd1, 4;\n"
                 "mov.u64 %rd1, %rd2;\n@%p1 bra L;\n"),
            "");
  for (const char* const body :
       {"mov.u64 %rd1, c;\nst.global.u64 [%rd7], %rd1;\n",           // another kernel's ld.const
        "ld.global.u64 %rd1, [kept];\nld.const.u32 %r1, [%rd1];\n",  // ... and this one
        "ld.const.u32 %r1, [16];\n", "ld.const.u32 %r1, [%rd7];\n",
        "mov.u64 %rd1, c;\nsetp.eq.s64 %p1, %rd1, 0;\n",
        "mov.u64 %rd1, c;\nand.b64 %rd2, %rd1, 15;\n",
        "mov.u64 %rd1, c;\nadd.s64 %rd2, %rd1, %rd1;\n",
        "mov.u64 %rd1, c;\nmov.u64 %rd1, %rd7;\nld.const.u32 %r1, [%rd1];\n",
        "mov.u64 %rd1, c;\nld.global.u32 %r1, [%rd1];\n",
        "mov.u64 %rd1, c;\ncvt.u32.u64 %r1, %rd1;\n", "mov.u32 %r1, c;\n",
        "mov.u64 %rd1, c;\nisspacep.const %p1, %rd7;\n", "isspacep.const %p1, %rd7;\n",
        "ld.const.u64 %rd1, [c+%rd7];\n", "ld.global.u32 %r1, [c];\n", "ld .const.u32 %r1, [c];\n",
        "ld.const[2].u32 %r1, [c];\n"})
    EXPECT_NE(with(body), "") << body;
}

TEST(SeparableModule, AParameterThatHidesAVariableIsRefused) {
  EXPECT_NE(why_not(".global .u32 x;\n.visible .entry k(.param .u64 x) {\n.reg .b64 %rd<2>;\n"
                    "ld.param.u64 %rd1, [x];\nret;\n}\n"),
            "");
}

}  // namespace
}  // namespace sluice::ptx
