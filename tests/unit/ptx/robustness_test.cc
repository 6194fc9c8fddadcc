// SPDX-License-Identifier: Apache-2.0
// Hostile PTX: truncated, with bytes flipped, statements shuffled and repeated. Nothing may crash,
// hang or lose a byte; a text is either an error with its place, or comes back as it was, and what
// the rewriter makes of it is a module again. Seeded, so a failure repeats.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <tuple>

#include "kernels/passes/rewrite.h"
#include "kernels/ptx/edit.h"
#include "kernels/ptx/print.h"
#include "tests/support/rounds.h"

namespace sluice::passes {
namespace {

std::string read(const std::string& name) {
  std::ifstream file(std::string(SLUICE_SOURCE_ROOT) + "/tests/golden/" + name, std::ios::binary);
  std::stringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

// The file with all but one or two neighbouring kernels taken out: what a mutant does not touch
// need not be rewritten once more for it. One text for each kernel, in turn with and without its
// neighbour.
std::vector<std::string> cut(const std::string& text) {
  const auto module = ptx::Module::parse(text);
  std::vector<ptx::Range> entries;
  if (module)
    for (const ptx::Function& f : module->functions())
      if (f.is_entry) entries.push_back(f.range);
  std::vector<std::string> out;
  for (std::size_t k = 0; k < entries.size(); ++k) {
    ptx::Edits without;
    for (std::size_t other = 0; other < entries.size(); ++other)
      if (other < k || other > k + k % 2) without.remove(entries[other]);
    out.push_back(without.apply(text, {0, static_cast<std::uint32_t>(text.size())}));
  }
  return out;
}

// Where all of a text is understood, its declarations alone are the same.
void check_declarations(const ptx::Module& whole) {
  for (const ptx::Function& f : whole.functions())
    if (!f.not_understood.empty()) return;
  const auto declared = ptx::Module::parse_declarations(whole.text());
  ASSERT_TRUE(declared) << declared.error().message << "\n" << whole.text();
  ASSERT_EQ(declared->functions().size(), whole.functions().size()) << whole.text();
  EXPECT_EQ(declared->variables().size(), whole.variables().size()) << whole.text();
  EXPECT_EQ(declared->directives().size(), whole.directives().size()) << whole.text();
  for (std::size_t i = 0; i < whole.functions().size(); ++i) {
    const ptx::Function &f = whole.functions()[i], &d = declared->functions()[i];
    EXPECT_EQ(declared->text_of(d.range), whole.text_of(f.range));
    EXPECT_EQ(declared->text_of(d.body_range), whole.text_of(f.body_range));
    EXPECT_EQ(std::make_tuple(d.name, d.line, d.is_entry, d.has_body, d.params.size()),
              std::make_tuple(f.name, f.line, f.is_entry, f.has_body, f.params.size()));
  }
}

// 1: accepted, 0: refused.
int check(const std::string& text) {
  auto module = ptx::Module::parse(text);
  if (!module) {
    EXPECT_TRUE(module.error().message.starts_with("line ")) << module.error().message;
    return 0;
  }
  check_declarations(*module);
  auto printed = ptx::print(*module);
  EXPECT_TRUE(printed) << printed.error().message << "\n" << text;
  EXPECT_TRUE(printed && *printed == text) << text;
  const Rewritten rewritten = rewrite_module(*module);
  auto again = ptx::Module::parse(rewritten.text);
  EXPECT_TRUE(again) << again.error().message << "\n" << text;
  for (const KernelReport& k : rewritten.kernels)
    EXPECT_EQ(k.evictable && !k.once, k.reason.empty()) << k.name << ": " << k.reason;
  return 1;
}

class Robustness : public testing::TestWithParam<const char*> {};

TEST_P(Robustness, Truncated) {
  const std::string text = read(GetParam());
  ASSERT_FALSE(text.empty());
  const std::size_t step = std::max<std::size_t>(1, text.size() / 300);
  for (std::size_t n = 0; n < text.size(); n += step) check(text.substr(0, n));
}

TEST_P(Robustness, BytesFlipped) {
  const std::vector<std::string> texts = cut(read(GetParam()));
  ASSERT_FALSE(texts.empty());
  std::mt19937 random(20);
  const std::string bytes = ";{}()[],.@:\"/*%\n $<>0x=+!a\\#";
  int accepted = 0;
  for (int round = 0; round < rounds(500); ++round) {
    std::string mutant = texts[static_cast<std::size_t>(round) % texts.size()];
    for (int k = 0; k <= round % 4; ++k) {
      char& c = mutant[random() % mutant.size()];
      c = random() % 3 == 0 ? static_cast<char>(random()) : bytes[random() % bytes.size()];
    }
    accepted += check(mutant);
  }
  EXPECT_GT(accepted, 0);  // otherwise nothing behind the parser was tried
}

TEST_P(Robustness, LinesMoved) {
  std::vector<std::vector<std::string>> texts;
  for (const std::string& text : cut(read(GetParam()))) {
    std::istringstream in(text);
    texts.emplace_back();
    for (std::string line; std::getline(in, line);) texts.back().push_back(line);
  }
  ASSERT_FALSE(texts.empty());
  std::mt19937 random(21);
  int accepted = 0;
  for (int round = 0; round < rounds(300); ++round) {
    auto mutant = texts[static_cast<std::size_t>(round) % texts.size()];
    for (int k = 0; k <= round % 6; ++k) {
      const std::size_t a = random() % mutant.size(), b = random() % mutant.size();
      switch (random() % 3) {
        case 0:
          std::swap(mutant[a], mutant[b]);
          break;
        case 1:
          mutant[a] = mutant[b];
          break;
        default:
          mutant.erase(mutant.begin() + static_cast<std::ptrdiff_t>(a));
      }
    }
    std::string joined;
    for (const std::string& line : mutant) joined += line + "\n";
    accepted += check(joined);
  }
  EXPECT_GT(accepted, 0);
}

INSTANTIATE_TEST_SUITE_P(Files, Robustness,
                         testing::Values("tiers.ptx", "shapes.ptx", "odd_text.ptx"),
                         [](const auto& test) {
                           const std::string name = test.param;
                           return name.substr(0, name.find('.'));
                         });

// Texts made to be slow: each must come to an end without effort.
TEST(Robustness, LargeAndPathological) {
  const std::string head = ".version 8.0\n.target sm_90\n.address_size 64\n";
  std::string many_labels = head + ".entry k() {\n.reg .pred p; .reg .b32 x; mov.u32 x, %tid.x;\n";
  const int labels = rounds(1000);
  for (int i = 0; i < labels; ++i) {
    const std::string n = std::to_string(i);
    many_labels += "L" + n + ": setp.eq.u32 p, x, " + n + "; @p bra L" +
                   std::to_string((i * 7919) % labels) + ";\n";
  }
  check(many_labels + "ret; }");
  std::string chain = head;
  for (int i = 0; i < rounds(250); ++i)
    chain += ".func f" + std::to_string(i) + "() { " +
             (i == 0 ? std::string("bar.sync 0;") : "call f" + std::to_string(i - 1) + ";") +
             " ret; }\n.entry k" + std::to_string(i) + "() { call f" + std::to_string(i) +
             "; ret; }\n";
  check(chain);
  check(head + std::string(rounds(200000), '.'));
  check(head + ".entry k() { " + std::string(rounds(200000), ';') + "}");
  check(head + ".entry k() { mov " + std::string(rounds(200000), ',') + "; }");
  std::string calls = head + ".func f() { call f; ret; } .entry k() { call f; ret; }";
  check(calls);
  std::string dots = "x";
  for (int i = 0; i < rounds(100000); ++i) dots += ".x";
  check(head + ".entry k() { mov.u32 %r1, %" + dots + "; ret; }");
  std::string words = head;
  for (int i = 0; i < rounds(2000); ++i)
    words += "// sluice999999999999 sluice" + std::to_string(i) + "_\n";
  check(words + ".entry k() { ret; }");
}

}  // namespace
}  // namespace sluice::passes
