// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/author_points.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>
#include <vector>

#include "abi/preempt.h"
#include "kernels/ptx/divergence.h"
#include "kernels/ptx/registers.h"
#include "mediator/base/find_text.h"

namespace sluice::passes {

using ptx::Statement;
using ptx::StatementKind;

namespace {

constexpr std::string_view kLeaveName = "sluice_leave";

// Special registers that tell threads of a block apart.
bool is_thread_number(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "%tid",         "%laneid",      "%warpid",      "%lanemask_eq",
      "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt"};
  return kNames.count(name.substr(0, name.find('.'))) != 0;
}

// What surely differs between threads. A value from memory does not count, unless its address does:
// blocks hand decisions round through shared memory, and what comes of one that is not the same for
// all is caught when it happens (resume.cc).
bool differs(const Statement& s) {
  if (s.kind != StatementKind::kInstruction) return false;
  if (ptx::base_opcode(s.opcode) == "atom") return true;
  if (ptx::base_opcode(s.opcode) == "ld" && ptx::has_modifier(s.opcode, "local")) return true;
  for (std::string_view operand : s.operands) {
    std::size_t at = 0;
    for (;;) {
      const std::string_view name = ptx::next_identifier(operand, at);
      if (name.empty()) break;
      if (is_thread_number(name)) return true;
    }
  }
  return false;
}

// Whether `to` can be reached from the entry without passing a statement of `guards`.
bool reachable_without(const ptx::Cfg& cfg, const std::vector<std::uint32_t>& guards,
                       std::uint32_t to) {
  const auto guarded_before = [&](std::uint32_t block, std::uint32_t end) {
    for (std::uint32_t g : guards)
      if (cfg.block_of(g) == block && g < end) return true;
    return false;
  };
  std::vector<bool> seen(cfg.blocks().size());
  std::vector<std::uint32_t> work{cfg.entry()};
  seen[cfg.entry()] = true;
  while (!work.empty()) {
    const std::uint32_t b = work.back();
    work.pop_back();
    if (b == cfg.block_of(to) && !guarded_before(b, to)) return true;
    if (guarded_before(b, ptx::kNoStatement)) continue;
    for (std::uint32_t next : cfg.blocks()[b].successors) {
      if (seen[next]) continue;
      seen[next] = true;
      work.push_back(next);
    }
  }
  return false;
}

}  // namespace

bool may_have_author_points(std::string_view text) {
  return find_text(text, kLeaveName) != text.npos;
}

bool may_name_author_points(std::string_view text) {
  return find_text(text, "sluice_") != text.npos;
}

std::optional<Marker> author_marker(const Statement& s) {
  struct Name {
    std::string_view name, opcode;
    AuthorPoint point;
  };
  static constexpr std::array<Name, 4> kNames{
      {{"sluice_should_leave", "mov.b32", AuthorPoint::kAsk},
       {"sluice_resume_at", "and.b64", AuthorPoint::kResume},
       {"sluice_save_at", "and.b64", AuthorPoint::kSave},
       {kLeaveName, "and.b32", AuthorPoint::kLeave}}};
  if (s.kind != StatementKind::kInstruction || s.operands.empty()) return {};
  for (const Name& n : kNames) {
    if (s.operands[0] != n.name) continue;
    Marker m{n.point, n.name};
    const std::size_t operands = n.point == AuthorPoint::kAsk ? 2 : 3;
    m.understood =
        s.guard.empty() && s.opcode == n.opcode && s.operands.size() == operands &&
        s.operands.back() == "0" &&
        (operands == 2 || s.operands[1] == "0" || ptx::parse_integer(s.operands[1], m.bytes));
    return m;
  }
  return {};
}

namespace {

// The statements of each kind, and what makes threads differ.
struct Found {
  std::array<std::vector<std::uint32_t>, 4> points;
  std::vector<std::uint32_t> sources;

  const std::vector<std::uint32_t>& at(AuthorPoint point) const {
    return points[static_cast<std::size_t>(point)];
  }
};

Found find_points(const std::vector<Statement>& statements, AuthorPoints& out) {
  Found found;
  bool sized = false;
  for (std::uint32_t i = 0; i < statements.size(); ++i) {
    const Statement& s = statements[i];
    const auto marker = author_marker(s);
    if (!marker) {
      if (differs(s)) found.sources.push_back(i);
      continue;
    }
    out.any = true;
    found.points[static_cast<std::size_t>(marker->point)].push_back(i);
    if (!marker->understood) {
      out.why_not.add("author-form", at_line(s.line,
                                             "has a point to leave at that is not written as "
                                             "<sluice/preempt.cuh> writes it"));
    }
    if (marker->point == AuthorPoint::kAsk) {
      // Threads that ask get answers of their own: they must agree on one.
      found.sources.push_back(i);
      continue;
    }
    if (marker->bytes > SLUICE_RESUME_MAX_BYTES)
      out.why_not.add(
          "author-state",
          at_line(s.line, "saves " + std::to_string(marker->bytes) +
                              " bytes for each thread when it leaves, of which " +
                              std::to_string(SLUICE_RESUME_MAX_BYTES) + " are possible"));
    if (sized && marker->bytes != out.state_bytes)
      out.why_not.add(
          "author-state",
          at_line(s.line, "leaves and resumes with states of " + std::to_string(out.state_bytes) +
                              " and of " + std::to_string(marker->bytes) + " bytes"));
    out.state_bytes = marker->bytes;
    sized = true;
  }
  return found;
}

// A kernel with points must leave somewhere, and ask before.
Finding check_complete(const std::vector<Statement>& statements, const Found& found) {
  const auto& leaves = found.at(AuthorPoint::kLeave);
  if (leaves.empty()) {
    const auto first = std::min_element(
        found.points.begin(), found.points.end(),
        [](const auto& a, const auto& b) { return !a.empty() && (b.empty() || a[0] < b[0]); });
    return {"author-no-leave",
            at_line(statements[(*first)[0]].line, "never calls sluice::leave()")};
  }
  if (found.at(AuthorPoint::kAsk).empty())
    return {"author-no-leave",
            at_line(statements[leaves[0]].line, "leaves without asking sluice::should_leave()")};
  return {};
}

}  // namespace

AuthorPoints find_author_points(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators) {
  AuthorPoints out;
  const auto& statements = cfg.function().statements;
  const Found found = find_points(statements, out);
  if (!out.any || out.why_not) return out;
  out.why_not = check_complete(statements, found);
  if (out.why_not) return out;
  const auto& leaves = found.at(AuthorPoint::kLeave);
  if (out.state_bytes != 0) {
    for (std::uint32_t i : leaves)
      if (reachable_without(cfg, found.at(AuthorPoint::kResume), i))
        out.why_not.add("author-resume",
                        at_line(statements[i].line,
                                "leaves with a state that not every way to there has "
                                "asked for by sluice::resume()"));
  }
  const auto divergence = ptx::Divergence::between_threads(cfg, post_dominators, found.sources);
  if (!divergence) {
    out.why_not.add("control-flow", divergence.error().message);
    return out;
  }
  for (std::uint32_t i : leaves)
    if (divergence->in_divergent_region(cfg.block_of(i)))
      out.why_not.add("author-divergent",
                      at_line(statements[i].line,
                              "leaves where only some threads of a block may come: by "
                              "an answer of their own, or after some have returned"));
  return out;
}

}  // namespace sluice::passes
