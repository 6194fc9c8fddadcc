// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/cfg.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace sluice::ptx {

namespace {

enum class Transfer { kNone, kBranch, kIndexed, kLeave, kTrap };

Transfer transfer_of(const Statement& s) {
  if (s.kind != StatementKind::kInstruction) return Transfer::kNone;
  const std::string_view base = base_opcode(s.opcode);
  if (base == "bra") return Transfer::kBranch;
  if (base == "brx") return Transfer::kIndexed;
  if (base == "ret" || base == "exit") return Transfer::kLeave;
  if (base == "trap" || s.never_returns) return Transfer::kTrap;
  return Transfer::kNone;
}

// Labels are local to the scope that they stand in; an inner scope sees the outer ones.
class Labels {
 public:
  explicit Labels(const Function& f) : f_(f) {
    for (std::uint32_t i = 0; i < f.statements.size(); ++i) {
      const Statement& s = f.statements[i];
      if (s.kind == StatementKind::kLabel) map_[s.opcode].push_back({s.scope, i});
    }
  }
  std::optional<std::uint32_t> find(std::string_view name, std::uint32_t scope) const {
    const auto it = map_.find(name);
    if (it == map_.end()) return std::nullopt;
    for (;;) {
      // Entries are in order of statements, not of scopes, but there are few with one name.
      for (const Entry& e : it->second)
        if (e.scope == scope) return e.statement;
      if (scope == 0) return std::nullopt;
      scope = f_.scopes[scope].parent;
    }
  }
  // One name in thousands of scopes would make find() slow; nobody writes that.
  bool crowded() const {
    return std::any_of(map_.begin(), map_.end(),
                       [](const auto& entry) { return entry.second.size() > 4096; });
  }

 private:
  struct Entry {
    std::uint32_t scope;
    std::uint32_t statement;
  };
  const Function& f_;
  std::unordered_map<std::string_view, std::vector<Entry>> map_;
};

Error at(const Statement& s, const std::string& what) {
  return {0, "line " + std::to_string(s.line) + ": " + what};
}

std::vector<bool> flood(const std::vector<Block>& blocks, std::vector<std::uint32_t> from,
                        bool forward) {
  std::vector<bool> seen(blocks.size());
  for (std::uint32_t b : from) seen[b] = true;
  while (!from.empty()) {
    const std::uint32_t b = from.back();
    from.pop_back();
    for (std::uint32_t next : forward ? blocks[b].successors : blocks[b].predecessors) {
      if (seen[next]) continue;
      seen[next] = true;
      from.push_back(next);
    }
  }
  return seen;
}

// Blocks begin at labels and after instructions that move control. The last one is the exit.
std::vector<Block> blocks_of(const std::vector<Statement>& statements,
                             std::vector<std::uint32_t>& block_of) {
  std::vector<Block> blocks;
  const auto count = static_cast<std::uint32_t>(statements.size());
  block_of.resize(count);
  bool start = true;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (start || statements[i].kind == StatementKind::kLabel) {
      blocks.push_back({});
      blocks.back().begin = i;
    }
    Block& block = blocks.back();
    block.end = i + 1;
    block_of[i] = static_cast<std::uint32_t>(blocks.size() - 1);
    start = transfer_of(statements[i]) != Transfer::kNone;
    if (start) block.terminator = i;
  }
  if (blocks.empty()) blocks.push_back({});
  blocks.push_back({});
  blocks.back().begin = blocks.back().end = count;
  return blocks;
}

// The statements that `s`, the last one of a block, may go to other than the next; none for
// leaving.
Result<std::vector<std::uint32_t>> targets_of(const Statement& s, const Labels& labels,
                                              const std::vector<Statement>& statements) {
  if (transfer_of(s) == Transfer::kBranch) {
    if (s.operands.size() != 1) return at(s, "branch without one target");
    const auto target = labels.find(s.operands[0], s.scope);
    if (!target) return at(s, "branch to an unknown label");
    return std::vector{*target};
  }
  std::vector<std::uint32_t> targets;
  if (transfer_of(s) != Transfer::kIndexed) return targets;
  // brx.idx INDEX, LIST;   LIST: .branchtargets A, B, ...;
  const auto list =
      s.operands.size() == 2 ? labels.find(s.operands[1], s.scope) : std::optional<std::uint32_t>();
  const std::size_t directive = list ? std::size_t{*list} + 1 : statements.size();
  if (directive >= statements.size() || statements[directive].opcode != ".branchtargets")
    return at(s, "brx.idx without its list of targets");
  for (std::string_view name : statements[directive].operands) {
    const auto target = labels.find(name, statements[directive].scope);
    if (!target) return at(statements[directive], "unknown label in .branchtargets");
    targets.push_back(*target);
  }
  return targets;
}

}  // namespace

Result<Cfg> Cfg::build(const Function& function) {
  Cfg cfg;
  cfg.function_ = &function;
  const auto& statements = function.statements;
  const Labels labels(function);
  if (labels.crowded()) return Error{0, "one label name stands in too many scopes"};
  cfg.blocks_ = blocks_of(statements, cfg.block_of_);
  const std::uint32_t exit = cfg.exit();

  for (std::uint32_t b = 0; b < exit; ++b) {
    Block& block = cfg.blocks_[b];
    bool falls_through = true;
    if (block.terminator != kNoStatement) {
      const Statement& s = statements[block.terminator];
      falls_through = !s.guard.empty();
      const auto targets = targets_of(s, labels, statements);
      if (!targets) return targets.error();
      for (std::uint32_t target : *targets) block.successors.push_back(cfg.block_of_[target]);
      if (transfer_of(s) == Transfer::kLeave) block.successors.push_back(exit);
      block.traps = transfer_of(s) == Transfer::kTrap;
    }
    if (falls_through) block.successors.push_back(b + 1);
    std::sort(block.successors.begin(), block.successors.end());
    block.successors.erase(std::unique(block.successors.begin(), block.successors.end()),
                           block.successors.end());
  }
  for (std::uint32_t b = 0; b < cfg.blocks_.size(); ++b)
    for (std::uint32_t next : cfg.blocks_[b].successors)
      cfg.blocks_[next].predecessors.push_back(b);

  cfg.reachable_ = flood(cfg.blocks_, {cfg.entry()}, true);
  std::vector<std::uint32_t> ends{exit};
  for (std::uint32_t b = 0; b < exit; ++b)
    if (cfg.blocks_[b].traps) ends.push_back(b);
  const std::vector<bool> ending = flood(cfg.blocks_, std::move(ends), false);
  for (std::uint32_t b = 0; b < cfg.blocks_.size(); ++b)
    if (cfg.reachable_[b] && !ending[b]) cfg.endless_ = true;
  return cfg;
}

std::vector<const Statement*> instructions_of(const Cfg& cfg,
                                              const std::vector<std::uint32_t>& blocks,
                                              std::size_t most) {
  const auto& statements = cfg.function().statements;
  std::vector<const Statement*> out;
  for (std::uint32_t b : blocks)
    for (std::uint32_t i = cfg.blocks()[b].begin; i < cfg.blocks()[b].end; ++i) {
      if (out.size() > most) return out;
      if (statements[i].kind == StatementKind::kInstruction) out.push_back(&statements[i]);
    }
  return out;
}

std::vector<std::uint32_t> strong_components(
    const Cfg& cfg, const std::function<bool(std::uint32_t, std::uint32_t)>& edge) {
  const auto& blocks = cfg.blocks();
  const auto n = static_cast<std::uint32_t>(blocks.size());
  constexpr std::uint32_t kUnseen = 0xffffffff;
  std::vector<std::uint32_t> component(n, kUnseen), index(n, kUnseen), low(n, 0), next(n, 0);
  std::vector<std::uint32_t> stack, path;
  std::uint32_t counter = 0, components = 0;
  for (std::uint32_t root = 0; root < n; ++root) {
    if (index[root] != kUnseen) continue;
    path.push_back(root);
    while (!path.empty()) {
      const std::uint32_t b = path.back();
      if (index[b] == kUnseen) {
        index[b] = low[b] = counter++;
        stack.push_back(b);
      }
      if (next[b] < blocks[b].successors.size()) {
        const std::uint32_t s = blocks[b].successors[next[b]++];
        if (edge && !edge(b, s)) continue;
        if (index[s] == kUnseen) {
          path.push_back(s);
        } else if (component[s] == kUnseen) {
          low[b] = std::min(low[b], index[s]);
        }
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[b]);
      if (low[b] != index[b]) continue;
      std::uint32_t member = 0;
      do {
        member = stack.back();
        stack.pop_back();
        component[member] = components;
      } while (member != b);
      ++components;
    }
  }
  return component;
}

Result<std::vector<LoopLevel>> loop_levels(const Cfg& cfg) {
  // Blocks in loops, counted once for each level; compilers' nests need a few times their size.
  constexpr std::uint64_t kMaxVisits = 20'000'000;
  const auto& blocks = cfg.blocks();
  const auto n = static_cast<std::uint32_t>(blocks.size());
  std::vector<LoopLevel> out;
  std::vector<bool> entry(n);  // of a loop of this level or one further out: edges to it are cut
  std::uint64_t visits = 0;
  for (;;) {
    const auto edge = [&](std::uint32_t from, std::uint32_t to) {
      return out.empty() || (out.back().in_loop[from] && out.back().in_loop[to] &&
                             out.back().loop[from] == out.back().loop[to] && !entry[to]);
    };
    LoopLevel level;
    level.loop = strong_components(cfg, edge);
    level.in_loop.resize(n);
    std::vector<std::uint32_t> members(n);
    for (std::uint32_t c : level.loop) ++members[c];
    bool any = false;
    for (std::uint32_t b = 0; b < n; ++b) {
      const auto& next = blocks[b].successors;
      level.in_loop[b] = members[level.loop[b]] > 1 ||
                         (std::find(next.begin(), next.end(), b) != next.end() && edge(b, b));
      any |= level.in_loop[b];
    }
    if (!any && !out.empty()) return out;
    out.push_back(std::move(level));
    if (!any) return out;
    visits += n;
    if (visits > kMaxVisits) return Error{0, "has loops that are nested too deep to be analysed"};
    const LoopLevel& now = out.back();
    std::vector<bool> entered(n);  // by loop
    for (std::uint32_t b = 0; b < n; ++b) {
      if (!now.in_loop[b]) continue;
      bool from_outside = b == cfg.entry();
      for (std::uint32_t p : blocks[b].predecessors)
        from_outside |= cfg.reachable(p) && (!now.in_loop[p] || now.loop[p] != now.loop[b]);
      if (from_outside) entry[b] = entered[now.loop[b]] = true;
    }
    // What no path enters from outside: any block will do.
    for (std::uint32_t b = 0; b < n; ++b)
      if (now.in_loop[b] && !entered[now.loop[b]]) entry[b] = entered[now.loop[b]] = true;
  }
}

std::vector<LoopLevel> ways_round(const Cfg& cfg, const LoopLevel& level, std::uint64_t& budget) {
  constexpr std::size_t kMostWays = 8;  // of one loop
  const auto& blocks = cfg.blocks();
  const auto n = static_cast<std::uint32_t>(blocks.size());
  std::vector<LoopLevel> out;
  std::vector<std::uint32_t> size(n), entries(n);   // by loop
  std::vector<std::vector<std::uint32_t>> back(n);  // by block: where edges of its loop come from
  for (std::uint32_t b = 0; b < n; ++b) {
    if (!level.in_loop[b]) continue;
    ++size[level.loop[b]];
    bool from_outside = b == cfg.entry();
    for (std::uint32_t p : blocks[b].predecessors) {
      const bool inside = level.in_loop[p] && level.loop[p] == level.loop[b];
      from_outside |= cfg.reachable(p) && !inside;
      if (inside) back[b].push_back(p);
    }
    entries[level.loop[b]] += from_outside;
    if (!from_outside) back[b].clear();
  }
  for (std::uint32_t entry = 0; entry < n; ++entry) {
    const std::uint32_t loop = level.loop[entry];
    if (back[entry].size() < 2 || back[entry].size() > kMostWays || entries[loop] != 1) continue;
    std::size_t ways = 0;
    for (std::uint32_t from : back[entry]) {
      if (budget < size[loop]) return out;
      budget -= size[loop];
      // Whatever leads to this edge without coming by the entry again.
      std::vector<std::uint32_t> way{entry}, work{from};
      std::unordered_set<std::uint32_t> seen{entry};
      while (!work.empty()) {
        const std::uint32_t b = work.back();
        work.pop_back();
        if (!seen.insert(b).second) continue;
        way.push_back(b);
        for (std::uint32_t p : blocks[b].predecessors)
          if (level.in_loop[p] && level.loop[p] == loop) work.push_back(p);
      }
      if (way.size() == size[loop]) continue;
      if (ways == out.size()) out.push_back({level.loop, std::vector<bool>(n)});
      for (std::uint32_t b : way) out[ways].in_loop[b] = true;
      ++ways;
    }
  }
  return out;
}

}  // namespace sluice::ptx
