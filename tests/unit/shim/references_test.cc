// SPDX-License-Identifier: Apache-2.0
// Texture references in a module's text: which are lifted, and that a text with one that cannot be
// stays as it is; which modules run from their text because machine code has such things in the
// driver's own way. What the calls answer: tests/conformance/driver/reference_cases.cc.
#include <gtest/gtest.h>

#include <string>

#include "guest-agent/shim/modules/module_text.h"
#include "guest-agent/shim/modules/texture_references.h"

namespace sluice::guest {
namespace {

const std::string kHead = ".version 7.0\n.target sm_70\n.address_size 64\n";

std::string kernel(const std::string& body) {
  return ".visible .entry k(.param .u64 out)\n{\n .reg .b64 %d<3>;\n .reg .f32 %f<5>;\n"
         " .reg .b32 %r<2>;\n" +
         body + " ret;\n}\n";
}
const std::string kFetch = kernel(" tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [t, {%r1}];\n");

TEST(ModuleCode, MachineCodeOfTheDriversOwnWayIsNotUsed) {
  const auto machine_for = [](const std::string& ptx) {
    return make_text({.text = ptx, .machine = "machine code", .lazy = true})->machine;
  };
  EXPECT_EQ(machine_for(kHead + kernel("")), "machine code");
  EXPECT_EQ(machine_for(kHead + ".global .texref t;\n" + kFetch), "");
  EXPECT_EQ(
      machine_for(kHead + ".visible .global .attribute(.managed) .align 4 .u32 m;\n" + kernel("")),
      "");
  // A graph's condition is set by a function that only NVIDIA's driver knows the handles of.
  EXPECT_EQ(
      machine_for(kHead + ".extern .func cudaGraphSetConditional(.param .b64 a, .param .b32 b);\n" +
                  kernel("")),
      "");
}

TEST(References, AreCellsInTheText) {
  std::string text = kHead + ".global .texref t;\n.visible .global .surfref s;\n" + kFetch;
  const auto names = lift_references(&text);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].name, "t");
  EXPECT_FALSE(names[0].surface);
  EXPECT_EQ(names[1].name, "s");
  EXPECT_TRUE(names[1].surface);
  EXPECT_EQ(text.find("ref t"), std::string::npos);
  EXPECT_EQ(text.find(".surfref"), std::string::npos);
  EXPECT_NE(text.find(".visible .global .align 8 .u64 sluice_reference_1;"), std::string::npos);
  EXPECT_NE(text.find("[%sluice_reference_0, {%r1}]"), std::string::npos) << text;
}

TEST(References, WithoutAnyTheTextStays) {
  for (const std::string& body : {kHead + kernel(""), std::string(), std::string(".texref"),
                                  kHead + "// .texref in a comment\n" + kernel("")}) {
    std::string text = body;
    EXPECT_TRUE(lift_references(&text).empty());
    EXPECT_EQ(text, body);
  }
}

TEST(References, OddOnesLeaveTheText) {
  for (const char* declared :
       {".global .texref t[3];\n", ".extern .global .texref t;\n", ".global .texref t, u;\n",
        ".global .texref t = {width = 4};\n", ".global .texref t",
        ".global .texref t;\n.global .u64 p = t;\n",
        ".global .texref t;\n.global .texref t;\n.global .u64 q[2] = {0, t};\n"}) {
    const std::string before = kHead + declared + kFetch;
    std::string text = before;
    EXPECT_TRUE(lift_references(&text).empty()) << declared;
    EXPECT_EQ(text, before) << declared;
  }
  // A sum of an address that is none.
  const std::string before = kHead + ".global .texref t;\n" + kernel(" add.u64 %d1, t+8, %d2;\n");
  std::string text = before;
  EXPECT_TRUE(lift_references(&text).empty());
  EXPECT_EQ(text, before);
}

TEST(References, CutTextsAreTaken) {
  const std::string whole = kHead + ".global .texref t;\n.global .surfref s;\n" + kFetch;
  for (size_t n = 0; n < whole.size(); ++n) {
    std::string text = whole.substr(0, n);
    const size_t names = lift_references(&text).size();
    EXPECT_LE(names, 2u);
    EXPECT_TRUE(names != 0 || text == whole.substr(0, n));
  }
}

TEST(References, ManyAreTaken) {
  std::string text = kHead;
  constexpr size_t kMany = 20000;
  for (size_t n = 0; n < kMany; ++n) text += ".global .texref t" + std::to_string(n) + ";\n";
  text += kernel(" mov.u64 %d1, t7;\n");
  EXPECT_EQ(lift_references(&text).size(), kMany);
}

}  // namespace
}  // namespace sluice::guest
