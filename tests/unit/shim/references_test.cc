// SPDX-License-Identifier: Apache-2.0
// Texture references in a module's text: which are lifted, and that a text with one that cannot be
// stays as it is; which modules run from their text because machine code has such things in the
// driver's own way. What the calls answer: tests/conformance/driver/reference_cases.cc.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "guest-agent/shim/modules/module_text.h"
#include "guest-agent/shim/modules/texture_references.h"
#include "tests/support/cubins.h"

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
    return make_text({.text = ptx, .machine = {.code = "machine code"}, .lazy = true})->machine;
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

// A fat binary of two entries, not compressed: machine code for 9.0, and PTX.
std::string fat_binary(const std::string& machine, const std::string& ptx) {
  std::string entries;
  const auto entry = [&](uint16_t kind, uint32_t sm, std::string payload) {
    payload.resize((payload.size() + 8) / 8 * 8);
    std::string e(64, '\0');
    const auto put = [&](size_t at, auto value) { std::memcpy(&e[at], &value, sizeof value); };
    put(0, kind), put(4, uint32_t{64}), put(8, uint64_t{payload.size()}), put(28, sm);
    entries += e + payload;
  };
  entry(2, 90, machine), entry(1, 70, ptx);
  std::string head(16, '\0');
  const uint32_t magic = 0xba55ed50, version = 16 << 16 | 1;
  const uint64_t bytes = entries.size();
  std::memcpy(&head[0], &magic, 4), std::memcpy(&head[4], &version, 4);
  std::memcpy(&head[8], &bytes, 8);
  return head + entries;
}

TEST(ModuleCode, PtxStaysPackedWhereMachineCodeWillDo) {
  const auto will_do = [](const test::CubinBuilder& cubin, ModuleCode* code) {
    const std::string image = fat_binary(cubin.image(), kHead + kernel(""));
    return machine_code_will_do(image.data(), image.size(), 90, code);
  };
  const auto plain = [] { return test::CubinBuilder().kernel("k", {{0, 8}}, {32, 1, 1}); };
  ModuleCode code;
  code.originals = true;
  ASSERT_TRUE(will_do(plain().symbol("vprintf", STT_FUNC, 0, 0), &code));
  const auto text = make_text(std::move(code));
  EXPECT_EQ(text->machine.substr(1, 3), "ELF");
  EXPECT_TRUE(text->original.empty());
  EXPECT_EQ(text->entries, std::vector<std::string>{"k"});
  EXPECT_EQ(text->required_blocks.at("k")[0], 32u);
  ASSERT_TRUE(text->packed.unpack());
  EXPECT_EQ(*text->packed.unpack(), kHead + kernel(""));

  // What we do in the text instead of the driver.
  for (auto& odd : {plain().symbol("m", STT_OBJECT, 4, 3), plain().symbol("t", 10, 0, 0),
                    plain().symbol("cudaGraphSetConditional", STT_FUNC, 0, 0)}) {
    ModuleCode other;
    EXPECT_FALSE(will_do(odd, &other));
    EXPECT_TRUE(other.machine.code.empty());
  }
  // No fat binary.
  ModuleCode other;
  EXPECT_FALSE(machine_code_will_do(kHead.data(), kHead.size(), 90, &other));
  EXPECT_FALSE(machine_code_will_do("", 0, 90, &other));
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
