// SPDX-License-Identifier: Apache-2.0
// Text of other origin than nvcc, and of later versions: what is not understood costs the kernel
// that it stands in, never its neighbours.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/passes/rewrite.h"
#include "kernels/ptx/print.h"
#include "tests/support/rounds.h"

namespace sluice::passes {
namespace {

const char* const kModernHead = ".version 8.6\n.target sm_90\n.address_size 64\n";

std::string storing(const std::string& name, const std::string& extra = "") {
  return ".visible .entry " + name +
         "(.param .u64 out)\n{\n.reg .b32 %r<3>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [out];\n" +
         extra + "\nmov.u32 %r1, %ctaid.x;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
}

std::map<std::string, KernelReport> reports(const std::string& text) {
  std::map<std::string, KernelReport> out;
  auto module = ptx::Module::parse(text);
  EXPECT_TRUE(module) << module.error().message << "\n" << text;
  if (!module) return out;
  auto printed = ptx::print(*module);
  EXPECT_TRUE(printed) << printed.error().message;
  EXPECT_TRUE(printed && *printed == text);
  Rewritten rewritten = rewrite_module(*module);
  EXPECT_TRUE(ptx::Module::parse(rewritten.text));
  for (KernelReport& k : rewritten.kernels) out.emplace(k.name, std::move(k));
  return out;
}

// CUDA 13.1's Triton.
TEST(PtxOtherCompilers, HiddenParametersAreParameters) {
  auto k = reports(std::string(kModernHead) +
                   ".visible .entry k(.param .u64 a, .hidden .param .u64 .ptr .global .align 1 b)"
                   "{ ret; }")["k"];
  EXPECT_TRUE(k.evictable) << k.reason;
  EXPECT_EQ(k.param_bytes_original, 16u);
}

// OpenCL by clang: a parameter says where shared memory is. A clone's own stands behind all of it.
TEST(PtxOtherCompilers, SharedMemoryOfParametersIsNotMoved) {
  const std::string start =
      ".reg .u64 %at; .reg .u32 %v; .shared .u64 own; ld.param.u64 %at, [out];";
  const auto slot = [&](const std::string& use) {
    return reports(kModernHead + storing("k", start + use))["k"].slot;
  };
  for (const char* told : {"st.shared.u64 [%at], %at;", "ld.shared.u32 %v, [16];",
                           "cvta.shared.u64 %at, %at; st.u64 [%at], %at;",
                           "ld.shared.u64 %at, [own]; st.shared.u64 [%at], %at;",
                           "cp.async.ca.shared.global [%at], [%at], 4;"}) {
    SCOPED_TRACE(told);
    EXPECT_EQ(slot(told), SlotPlace::kDynamicEnd);
  }
  for (const char* counted : {"st.shared.u64 [own+4], %at;",
                              "mov.u64 %at, own; add.u64 %at, %at, 8; st.shared.u64 [%at], %at;",
                              "mov.u32 %v, own; cp.async.ca.shared.global [%v], [%at], 4;"}) {
    SCOPED_TRACE(counted);
    EXPECT_EQ(slot(counted), SlotPlace::kStatic);
  }
}

// Lines that no version of PTX has had so far. None of them may reach a neighbour.
TEST(PtxOtherCompilers, WhatIsNotUnderstoodCostsItsOwnKernel) {
  const char* const lines[] = {
      ".novelty %r1, 7;",
      "frobnicate.sync.v9 {%r1, %r2}, [%rd1], #3;",
      "mov.u32 %r1, %novelty;",
      "@#p ret;",
      "#line 7",
      "= 5;",
      "%r1 := 7;",
      ".loc one two three",
      ".loc 1 2 3, novelty 4",
      "call frobnicate, (%r1);",
      ".global .novelty 5;",
      "{ .novelty { 1; 2; } }",
  };
  for (const char* line : lines) {
    SCOPED_TRACE(line);
    auto found = reports(kModernHead + storing("first") + storing("odd", line) + storing("last"));
    ASSERT_EQ(found.size(), 3u);
    EXPECT_TRUE(found["first"].evictable) << found["first"].reason;
    EXPECT_TRUE(found["last"].evictable) << found["last"].reason;
    EXPECT_TRUE(found["odd"].evictable || !found["odd"].reason.empty());
  }
}

TEST(PtxOtherCompilers, HeadsThatAreNotUnderstoodCostTheirOwnKernel) {
  const char* const heads[] = {
      ".visible .entry odd(.param .novelty .f128x9 .wide p) { ret; }\n",
      ".visible .entry odd(.param .u64 p, ...) { ret; }\n",
      ".visible .entry odd(.param .u64 p) .novelty 5 { ret; }\n",
      ".visible .entry odd(.param .u64 p) novelty { ret; }\n",
      ".visible .entry odd(.param .u64 p) .pragma \"x { y\"; novelty { ret; }\n",
      ".visible .entry (.param .u64 p) { ret; }\n",
      ".novel linkage .visible .entry odd() { ret; }\n",
      ".language \"cutile\"\n",
      ".hidden .func odd() { ret; }\n",
      ".func (.param .b32 = r) odd(.param .b32 ?) { ret; }\n",
  };
  for (const char* head : heads) {
    SCOPED_TRACE(head);
    auto found = reports(kModernHead + storing("first") + head + storing("last"));
    EXPECT_TRUE(found["first"].evictable) << found["first"].reason;
    EXPECT_TRUE(found["last"].evictable) << found["last"].reason;
  }
}

// Any bytes in one kernel, as long as its brackets, strings and comments are closed.
TEST(PtxOtherCompilers, RandomTextCostsItsOwnKernel) {
  std::mt19937 random(17);
  const char* const words[] = {".reg",   ".b32",   "%r1", ",",     ";", ":", "@",   "!",  "#",
                               ".x",     "=",      "ld",  "7",     "$", "|", "ret", "<",  ">",
                               "[%rd1]", "(a, b)", "{ }", "\"s\"", "-", "+", "?",   "\n", "::"};
  int not_understood = 0;
  for (int round = 0; round < rounds(600); ++round) {
    std::string text;
    for (std::uint32_t n = random() % 12; n-- != 0;)
      text += std::string(words[random() % std::size(words)]) + " ";
    SCOPED_TRACE(text);
    auto found = reports(kModernHead + storing("first") + storing("odd", text) + storing("last"));
    ASSERT_TRUE(found["first"].evictable && found["last"].evictable);
    not_understood += found["odd"].code == "not-understood";
  }
  EXPECT_GT(not_understood, rounds(600) / 12);
}

// A function that is not understood may do anything; who calls it is opaque, and so may be who
// reads what it could write.
TEST(PtxOtherCompilers, FunctionsThatAreNotUnderstoodAreNotCalled) {
  const std::string odd = ".global .u32 flag;\n.func odd()\n{\n= flag;\n}\n";
  auto found = reports(kModernHead + odd + storing("calls", "call odd;") + storing("stays_away") +
                       storing("polls",
                               ".reg .pred %p;\n$L: ld.global.u32 %r1, [flag];\n"
                               "setp.eq.u32 %p, %r1, 0;\n@%p bra $L;"));
  EXPECT_EQ(found["calls"].code, "not-understood");
  EXPECT_TRUE(found["stays_away"].evictable);
  EXPECT_EQ(found["polls"].code, "waits");
}

TEST(PtxOtherCompilers, EndlessLoopsBehindFailedAssertionsEndNothing) {
  const std::string assertion =
      ".reg .pred %p;\nsetp.eq.u32 %p, %r1, 0;\n@%p bra $OK;\n"
      "call.uni __assertfail, (%rd1, %rd1, %r1, %rd1, %rd1);\n$STUCK:\nbra.uni $STUCK;\n$OK:";
  const std::string declared =
      ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, "
      ".param .b64 e)";
  for (const char* ends : {";\n", " .noreturn;\n"}) {
    auto k = reports(kModernHead + declared + ends + storing("k", assertion))["k"];
    EXPECT_EQ(k.code, "") << k.reason;
    EXPECT_TRUE(k.evictable);
  }
  // One of the module's own may return, whatever its name is; others may say that they do not.
  std::string own = kModernHead + declared.substr(8) + " { ret; }\n" + storing("k", assertion);
  EXPECT_EQ(reports(own)["k"].code, "endless");
  std::string says_so =
      kModernHead + declared.substr(8) + " .noreturn { trap; }\n" + storing("k", assertion);
  EXPECT_EQ(reports(says_so)["k"].code, "");
  // And where a guard lets threads pass, the loop is reached.
  std::string guarded = assertion;
  guarded.replace(guarded.find("call.uni"), 8, "@%p call.uni");
  EXPECT_EQ(reports(kModernHead + declared + ";\n" + storing("k", guarded))["k"].code, "endless");
}

// Each costs its own length, however many there are.
TEST(PtxOtherCompilers, ManyAreReadInLinearTime) {
  std::string text = kModernHead;
  const int many = rounds(5000);
  for (int i = 0; i < many; ++i) text += ".entry k" + std::to_string(i) + "() { = ; } ";
  text += storing("last");
  auto found = reports(text);
  EXPECT_EQ(found.size(), many + 1u);
  EXPECT_TRUE(found["last"].evictable);
}

}  // namespace
}  // namespace sluice::passes
