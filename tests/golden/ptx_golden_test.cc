// SPDX-License-Identifier: Apache-2.0
// Golden files of the rewriter. NAME.expected holds what rewriting NAME.ptx changes, and no more:
//
//   == KERNEL: TIER, ...     the report, then for each form that was tried
//   -- FORM PASS             the lines that this pass took away (-) and added (+), each run of them
//                            behind the line before it
//   -- FORM PASS, as KERNEL's FORM PASS
//                            the same, but as a difference to what that pass did to that kernel
//                            (reference_of): the loop's 700 lines are checked in once
//   == text                  what the rewritten text has beside the clones
//
// So every byte of the result is compared, and a change of one pass changes its lines only. After
// an intended change: UPDATE_GOLDEN=1 meson test ptx_golden, and read the difference before
// committing.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <unordered_map>

#include "kernels/passes/plan.h"
#include "kernels/passes/rewrite.h"

namespace sluice::passes {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

std::vector<fs::path> inputs() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(SLUICE_GOLDEN_DIR))
    if (entry.path().extension() == ".ptx") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Lines as numbers, equal where the lines are: quick to compare.
class Numbers {
 public:
  std::vector<std::uint32_t> of(std::span<const std::string> lines) {
    std::vector<std::uint32_t> out;
    for (const std::string& line : lines)
      out.push_back(
          known_.try_emplace(line, static_cast<std::uint32_t>(known_.size())).first->second);
    return out;
  }

 private:
  std::unordered_map<std::string_view, std::uint32_t> known_;
};

// No more than lead from one text to the other, in whatever order their lines are.
std::size_t fewest_changes(const Lines& from, const Lines& to) {
  Numbers numbers;
  auto a = numbers.of(from), b = numbers.of(to);
  std::ranges::sort(a);
  std::ranges::sort(b);
  std::vector<std::uint32_t> only_in_one;
  std::ranges::set_symmetric_difference(a, b, std::back_inserter(only_in_one));
  return only_in_one.size();
}

// What leads from one text to the other, as the file's opening says. Empty: nothing.
Lines changes(const Lines& all_from, const Lines& all_to) {
  // What both begin or end with costs nothing so.
  std::size_t same = 0;
  while (same < std::min(all_from.size(), all_to.size()) &&
         all_from[all_from.size() - same - 1] == all_to[all_to.size() - same - 1])
    ++same;
  const std::span from(all_from.data(), all_from.size() - same);
  const std::span to(all_to.data(), all_to.size() - same);
  std::size_t first = 0;
  while (first < std::min(from.size(), to.size()) && from[first] == to[first]) ++first;
  Numbers numbers;
  const auto a = numbers.of(from), b = numbers.of(to);
  // Longest common subsequence of the suffixes that begin at (first + i, first + j).
  const std::size_t width = to.size() - first + 1;
  std::vector<std::uint32_t> table((from.size() - first + 1) * width);
  const auto common = [&](std::size_t i, std::size_t j) {
    return table[(i - first) * width + j - first];
  };
  for (std::size_t i = from.size(); i-- > first;) {
    std::uint32_t* const row = table.data() + (i - first) * width;
    const std::uint32_t* const below = row + width;
    for (std::size_t j = to.size() - first; j-- > 0;) {
      if (a[i] == b[first + j])
        row[j] = below[j + 1] + 1;
      else
        row[j] = below[j] > row[j + 1] ? below[j] : row[j + 1];
    }
  }
  Lines out;
  const std::string* before = first ? &from[first - 1] : nullptr;
  const auto put = [&](char sign, const std::string& line) {
    if (before) out.push_back(" " + *before);
    before = nullptr;
    out.push_back(sign + line);
  };
  for (std::size_t i = first, j = first; i < from.size() || j < to.size();) {
    if (i < from.size() && j < to.size() && a[i] == b[j]) {
      before = &from[i++];
      ++j;
    } else if (j == to.size() || (i < from.size() && common(i + 1, j) >= common(i, j + 1))) {
      put('-', from[i++]);
    } else {
      put('+', to[j++]);
    }
  }
  return out;
}

std::string report_line(const KernelReport& k) {
  std::string out = "== " + k.name + ": " + tier_name(k.tier) + (k.evictable ? ", evictable" : "");
  if (!k.reason.empty()) out += ": " + k.reason;
  return out + "; parameters " + std::to_string(k.param_bytes_original) + ", block at " +
         std::to_string(k.param_offset_of_block) + ", slot " +
         std::to_string(static_cast<int>(k.slot)) +
         (k.uses_dynamic_shared ? ", dynamic shared" : "") + "\n";
}

// Names that the rewriter made look alike in every file: their prefix has a number that is free.
std::string plain_names(const std::string& clone) {
  static const std::regex kPrefix("sluice[0-9]+_");
  return std::regex_replace(clone, kPrefix, "~");
}

// What one pass did to one kernel.
struct Did {
  std::string kernel, pass;
  int form = 0;  // the how manieth that was tried
  Lines lines;
  std::string given_up;
};

struct Dump {
  Rewritten rewritten;
  std::vector<Did> did;
  std::string rest;  // the result, with a line in each clone's place
};

Dump dump(const std::string& input) {
  Dump d;
  auto module = ptx::Module::parse(input);
  if (!module) return d;
  std::string text;                                         // the clone so far
  std::vector<std::pair<std::string, std::string>> clones;  // and who they are
  std::unordered_map<std::string, std::string> starts;      // the original, or calls in place
  RewriteOptions options;
  options.after_each = [&](std::string_view kernel, std::string_view pass, const std::string& clone,
                           const Finding& given_up) {
    const std::string name(kernel);
    Did did{name, std::string(pass), 0, {}, {}};
    const Did* last = d.did.empty() || d.did.back().kernel != name ? nullptr : &d.did.back();
    did.form = (last ? last->form : 0) + (pass == "form" || pass == "inline" ? 1 : 0);
    if (starts.find(name) == starts.end())
      starts[name] = std::string(module->text_of(module->find_function(name)->range));
    if (pass == "form" || pass == "inline") {
      text = starts[name];
      if (pass == "form") clones.emplace_back("", name + " " + std::to_string(did.form));
    }
    if (given_up)
      did.given_up = given_up.text;
    else
      did.lines = changes(lines_of(plain_names(text)), lines_of(plain_names(clone))), text = clone;
    if (pass == "inline")
      starts[name] = clone;
    else
      clones.back().first = given_up ? "" : text;
    d.did.push_back(std::move(did));
  };
  d.rewritten = rewrite_module(*module, options);
  d.rest = d.rewritten.text;
  // The last attempt first: one that a better one replaced is no longer there.
  for (auto clone = clones.rbegin(); clone != clones.rend(); ++clone) {
    if (clone->first.empty()) continue;
    if (const std::size_t at = d.rest.find(clone->first); at != std::string::npos)
      d.rest.replace(at, clone->first.size(), "(clone of " + clone->second + ")");
  }
  return d;
}

// What adds a whole loop or its like is in full in this file, once. Elsewhere, and behind it there,
// it is a difference to what some pass did to a kernel of this file: to the most similar.
constexpr const char* kReferenceFile = "passes.ptx";
constexpr std::size_t kLongChange = 40;

struct Reference {
  std::string name;
  Lines changes;
};

// Nothing, if `did` is the first of its kind.
std::optional<Reference> reference_of(const Did& did, bool is_reference) {
  static const Dump all = dump(read(fs::path(SLUICE_GOLDEN_DIR) / kReferenceFile));
  std::optional<Reference> best;
  for (const Did& other : all.did) {
    if (is_reference && other.kernel == did.kernel && other.form == did.form) break;
    if (other.lines.size() <= kLongChange) continue;
    const std::size_t most = best ? best->changes.size() : did.lines.size();
    if (fewest_changes(other.lines, did.lines) >= most) continue;
    Lines its = changes(other.lines, did.lines);
    if (its.size() >= most) continue;
    best = {other.kernel + "'s " + std::to_string(other.form) + " " + other.pass, std::move(its)};
  }
  return best;
}

std::string expected_form(const std::string& input, bool is_reference, Rewritten* rewritten) {
  const Dump d = dump(input);
  *rewritten = d.rewritten;
  std::string out;
  const auto append = [&](const Lines& lines) {
    for (const std::string& line : lines) out += line + "\n";
  };
  for (const KernelReport& k : d.rewritten.kernels) {
    out += report_line(k);
    for (const Did& did : d.did) {
      if (did.kernel != k.name || (did.lines.empty() && did.given_up.empty())) continue;
      out += "-- " + std::to_string(did.form) + " " + did.pass;
      if (!did.given_up.empty()) {
        out += ": given up, " + did.given_up + "\n";
        continue;
      }
      std::optional<Reference> reference;
      if (did.lines.size() > kLongChange) reference = reference_of(did, is_reference);
      out += reference ? ", as " + reference->name + "\n" : "\n";
      append(reference ? reference->changes : did.lines);
    }
  }
  out += "== text\n";
  append(changes(lines_of(input), lines_of(d.rest)));
  return out;
}

// The first lines that differ, with what stands before them.
std::string difference(const std::string& expected, const std::string& actual) {
  std::istringstream a(expected), b(actual);
  std::string line_a, line_b, before;
  for (int number = 1;; ++number) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a));
    const bool more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) return "only the end of the last line differs";
    if (more_a && more_b && line_a == line_b) {
      before = line_a;
      continue;
    }
    return "line " + std::to_string(number) + ", after: " + before +
           "\n  expected: " + (more_a ? line_a : "(end of file)") +
           "\n  is:       " + (more_b ? line_b : "(end of file)");
  }
}

class Golden : public testing::TestWithParam<fs::path> {};

TEST_P(Golden, RewritesToTheExpectedText) {
  const std::string input = read(GetParam());
  ASSERT_TRUE(rewrite_module(input));
  Rewritten rewritten;
  const std::string actual =
      expected_form(input, GetParam().filename() == kReferenceFile, &rewritten);
  fs::path expected_path = GetParam();
  expected_path.replace_extension(".expected");
  if (std::getenv("UPDATE_GOLDEN")) {
    std::ofstream(expected_path, std::ios::binary) << actual;
    GTEST_SKIP() << "wrote " << expected_path;
  }
  const std::string expected = read(expected_path);
  EXPECT_TRUE(expected == actual) << expected_path << " differs at "
                                  << difference(expected, actual);
  // Deterministic, and the result is a module again, in which every original is left as it was.
  EXPECT_EQ(rewrite_module(input)->text, rewritten.text);
  auto again = ptx::Module::parse(rewritten.text);
  ASSERT_TRUE(again) << again.error().message;
  auto original = ptx::Module::parse(input);
  for (const ptx::Function& f : original->functions()) {
    const ptx::Function* kept = again->find_function(f.name);
    ASSERT_NE(kept, nullptr) << f.name;
    EXPECT_EQ(original->text_of(f.range), again->text_of(kept->range)) << f.name;
  }
}

TEST_P(Golden, IsAcceptedByTheAssembler) {
  const char* assembler = SLUICE_PTXAS;
  if (*assembler == '\0') GTEST_SKIP() << "no ptxas on this machine";
  auto rewritten = rewrite_module(read(GetParam()));
  ASSERT_TRUE(rewritten);
  const fs::path text =
      fs::temp_directory_path() / ("sluice_golden_" + std::to_string(::getpid()) + ".ptx");
  const fs::path log = fs::path(text).replace_extension(".log");
  std::ofstream(text, std::ios::binary) << rewritten->text;
  const std::string command = std::string(assembler) + " -c -arch=sm_90a -o /dev/null " +
                              text.string() + " > " + log.string() + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read(log);
  fs::remove(text);
  fs::remove(log);
}

// A pass that no kernel here needs could change unseen.
TEST(GoldenFiles, HaveAKernelForEachPass) {
  std::set<std::string> missing;
  for (const Form form : {Form::kResumable, Form::kLoop, Form::kOneTask, Form::kWindow})
    for (const Step& step : steps_of(form)) missing.insert(step.name);
  for (const fs::path& path : inputs())
    for (const Did& did : dump(read(path)).did)
      if (did.given_up.empty()) missing.erase(did.pass);
  EXPECT_EQ(missing, std::set<std::string>());
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(inputs()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace sluice::passes
