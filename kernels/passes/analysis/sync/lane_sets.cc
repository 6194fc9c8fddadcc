// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/sync/lane_sets.h"

#include <algorithm>
#include <map>
#include <set>

namespace sluice::passes {

namespace {

using ptx::kNoBlock;
using Set = std::vector<std::uint32_t>;  // guards, ascending

bool contains(const Set& outer, const Set& inner) {
  return std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}
bool has(const Set& set, std::uint32_t element) {
  return std::binary_search(set.begin(), set.end(), element);
}

// Beyond these a kernel gets no lane masks; real ones have some ten.
constexpr std::size_t kMaxGuards = 64;
constexpr std::size_t kMaxContexts = 256;

class Analysis {
 public:
  Analysis(const ptx::Cfg& cfg, const ptx::Divergence& divergence, const Set& uses,
           const ptx::PostDominators& post_dominators, const std::vector<bool>& barrier_follows)
      : cfg_(cfg), blocks_(cfg.blocks()) {
    find_guards(divergence, uses, post_dominators, barrier_follows);
  }

  LaneSets run() {
    if (!out_.why_not) check_shapes();
    if (!out_.why_not) number_contexts();
    if (!out_.why_not) find_changes();
    if (!out_.why_not) check_assigned();
    return std::move(out_);
  }

 private:
  void refuse(const std::string& why) { out_.why_not.add("collective", why); }

  void find_guards(const ptx::Divergence& divergence, const Set& uses, const ptx::PostDominators&,
                   const std::vector<bool>& barrier_follows) {
    const auto& branches = divergence.branches();
    std::vector<bool> matters(blocks_.size());
    for (std::uint32_t use : uses) matters[cfg_.block_of(use)] = true;
    std::vector<bool> chosen(branches.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t k = 0; k < branches.size(); ++k) {
        const ptx::DivergentBranch& b = branches[k];
        if (chosen[k] || blocks_[b.block].successors.size() < 2) continue;
        if (b.reconvergence != kNoBlock && barrier_follows[b.reconvergence]) continue;
        if (std::none_of(b.region.begin(), b.region.end(),
                         [&](std::uint32_t at) { return matters[at]; }))
          continue;
        chosen[k] = changed = matters[b.block] = true;
      }
    }
    sets_.resize(blocks_.size());
    for (std::size_t k = 0; k < branches.size(); ++k) {
      if (!chosen[k]) continue;
      const std::uint32_t guard = branches[k].block;
      guards_.push_back({guard, branches[k].reconvergence, {}});
      guards_.back().region = leading_on(branches[k].region, matters);
      is_guard_.insert(guard);
      const ptx::Statement& last = cfg_.function().statements[blocks_[guard].terminator];
      if (blocks_[guard].successors.size() != 2 || last.guard.empty() ||
          ptx::base_opcode(last.opcode) == "brx")
        refuse("has an indexed branch that separates lanes with warp collectives to come");
      for (std::uint32_t at : guards_.back().region) sets_[at].push_back(guard);
    }
    for (Set& s : sets_) std::sort(s.begin(), s.end());
    if (guards_.size() > kMaxGuards) refuse("has too many branches around its warp collectives");
  }

  // Of a region, the blocks from which something that needs a mask can still come within it. The
  // others are as good as outside: whoever gets there is only asked for again behind the region,
  // where the outer context's mask holds. So ways may join there as they like.
  std::vector<std::uint32_t> leading_on(const std::vector<std::uint32_t>& region,
                                        const std::vector<bool>& matters) const {
    std::vector<bool> inside(blocks_.size()), leads(blocks_.size());
    std::vector<std::uint32_t> work;
    for (std::uint32_t at : region) inside[at] = true;
    for (std::uint32_t at : region) {
      if (!matters[at]) continue;
      leads[at] = true;
      work.push_back(at);
    }
    while (!work.empty()) {
      const std::uint32_t at = work.back();
      work.pop_back();
      for (std::uint32_t before : blocks_[at].predecessors) {
        if (!inside[before] || leads[before]) continue;
        leads[before] = true;
        work.push_back(before);
      }
    }
    std::vector<std::uint32_t> kept;
    for (std::uint32_t at : region)
      if (leads[at]) kept.push_back(at);
    return kept;
  }

  // No block of a guard's region may be reached both ways without passing the guard again. And
  // where one way comes back to the guard, lanes that go the other way do so one after another:
  // nothing that asks for them may stand there, because each would only know those that went with
  // it.
  void check_shapes() {
    for (const ptx::DivergentBranch& g : guards_) {
      std::vector<bool> inside(blocks_.size());
      for (std::uint32_t at : g.region) inside[at] = true;
      std::vector<std::uint8_t> reached(blocks_.size());
      std::uint8_t side = 1, comes_back = 0, leads_on = 0;
      for (std::uint32_t first : blocks_[g.block].successors) {
        std::vector<std::uint32_t> work;
        const auto visit = [&](std::uint32_t at) {
          if (at == g.block) comes_back |= side;
          if (!inside[at] || at == g.block || (reached[at] & side) != 0) return;
          leads_on |= side;
          reached[at] |= side;
          work.push_back(at);
        };
        visit(first);
        while (!work.empty()) {
          const std::uint32_t at = work.back();
          work.pop_back();
          if (reached[at] == 3) {
            refuse("has warp collectives that lanes reach in different ways (line " +
                   std::to_string(line_of(at)) + ")");
            return;
          }
          for (std::uint32_t next : blocks_[at].successors) visit(next);
        }
        side = 2;
      }
      if (comes_back == 3 || (comes_back != 0 && (leads_on & ~comes_back) != 0)) {
        refuse("has warp collectives that lanes reach one after another (line " +
               std::to_string(line_of(g.block)) + ")");
        return;
      }
    }
  }

  std::uint32_t line_of(std::uint32_t block) const {
    const auto& statements = cfg_.function().statements;
    return blocks_[block].begin < statements.size() ? statements[blocks_[block].begin].line : 0;
  }

  void number_contexts() {
    std::map<Set, std::uint32_t> numbers;
    numbers.emplace(Set{}, LaneSets::kAll);
    contexts_.push_back({});
    out_.context_of.assign(blocks_.size(), LaneSets::kAll);
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      const auto [it, fresh] =
          numbers.emplace(sets_[b], static_cast<std::uint32_t>(contexts_.size()));
      if (fresh) contexts_.push_back(sets_[b]);
      out_.context_of[b] = it->second;
    }
    out_.contexts = static_cast<std::uint32_t>(contexts_.size());
    if (contexts_.size() > kMaxContexts)
      refuse("has too many branches around its warp collectives");
  }

  // Contexts X with low < X <= high; with `and_low`, low <= X.
  Set between(const Set& low, const Set& high, bool and_low) const {
    Set found;
    for (std::uint32_t c = 1; c < contexts_.size(); ++c)
      if (contains(contexts_[c], low) && contains(high, contexts_[c]) &&
          (and_low || contexts_[c] != low))
        found.push_back(c);
    return found;
  }

  void find_changes() {
    for (std::uint32_t u = 0; u < blocks_.size() && !out_.why_not; ++u) {
      if (!cfg_.reachable(u)) continue;
      LaneSets::Change change;
      change.block = u;
      change.ballot = is_guard_.count(u) != 0;
      bool first = true;
      for (std::uint32_t v : blocks_[u].successors)
        if (!add_edge(u, v, change, first)) return;
      std::sort(change.copies.begin(), change.copies.end());
      change.copies.erase(std::unique(change.copies.begin(), change.copies.end()),
                          change.copies.end());
      if (!change.copies.empty() || !change.if_taken.empty() || !change.if_not_taken.empty())
        out_.changes.push_back(std::move(change));
    }
  }

  bool refuse_at(std::uint32_t block) {
    refuse("has warp collectives between branches that are not nested (line " +
           std::to_string(line_of(block)) + ")");
    return false;
  }

  // What changes on the way from u to v. False: refused. `first`: no edge of u has copied yet.
  bool add_edge(std::uint32_t u, std::uint32_t v, LaneSets::Change& change, bool& first) {
    const Set &from = sets_[u], &to = sets_[v];
    const bool guard = change.ballot;
    std::uint32_t source = out_.context_of[u];
    Set contexts;
    if (contains(to, from)) {
      // With its own guard inside the context, a loop's lanes become fewer. A guard that v lies
      // outside of has let all lanes through.
      contexts = between(from, to, guard && has(from, u));
    } else {
      Set common;
      std::set_intersection(from.begin(), from.end(), to.begin(), to.end(),
                            std::back_inserter(common));
      contexts = between(common, to, false);
      if (!contexts.empty()) {
        const auto it = std::find(contexts_.begin(), contexts_.end(), common);
        if (guard || it == contexts_.end()) return refuse_at(v);
        source = static_cast<std::uint32_t>(it - contexts_.begin());
      }
    }
    assigned_[{u, v}] = contexts;
    if (guard && !has(to, u) && !contexts.empty()) {
      // Past the guard's region straight into a loop: all lanes of u's context come there.
      const std::uint32_t other = blocks_[u].successors[v == blocks_[u].successors[0] ? 1 : 0];
      if (std::any_of(contexts.begin(), contexts.end(),
                      [&](std::uint32_t c) { return contains(sets_[other], contexts_[c]); }))
        return refuse_at(v);
      change.from = source;
      change.copies = contexts;
      return true;
    }
    if (guard) {
      (v == u + 1 ? change.if_not_taken : change.if_taken) = contexts;
      return true;
    }
    if (contexts.empty()) return true;
    if (!first && change.from != source) return refuse_at(v);
    first = false;
    change.from = source;
    change.copies.insert(change.copies.end(), contexts.begin(), contexts.end());
    return true;
  }

  // On every path to a block its context has been set since it was entered.
  void check_assigned() {
    const std::size_t n = blocks_.size();
    std::vector<std::set<std::uint32_t>> valid(n);
    std::vector<bool> known(n);
    known[cfg_.entry()] = true;
    valid[cfg_.entry()].insert(LaneSets::kAll);
    std::vector<std::uint32_t> work{cfg_.entry()};
    while (!work.empty()) {
      const std::uint32_t u = work.back();
      work.pop_back();
      for (std::uint32_t v : blocks_[u].successors) {
        std::set<std::uint32_t> out;
        for (std::uint32_t c : valid[u])
          if (contains(sets_[v], contexts_[c])) out.insert(c);
        for (std::uint32_t c : assigned_[{u, v}]) out.insert(c);
        if (!known[v]) {
          known[v] = true;
          valid[v] = std::move(out);
          work.push_back(v);
          continue;
        }
        std::set<std::uint32_t> meet;
        std::set_intersection(out.begin(), out.end(), valid[v].begin(), valid[v].end(),
                              std::inserter(meet, meet.begin()));
        if (meet.size() == valid[v].size()) continue;
        valid[v] = std::move(meet);
        work.push_back(v);
      }
    }
    for (std::uint32_t b = 0; b < n; ++b) {
      if (known[b] && b != cfg_.exit() && valid[b].count(out_.context_of[b]) == 0) {
        refuse("has warp collectives that lanes reach in different ways (line " +
               std::to_string(line_of(b)) + ")");
        return;
      }
    }
  }

  const ptx::Cfg& cfg_;
  const std::vector<ptx::Block>& blocks_;
  std::vector<ptx::DivergentBranch> guards_;
  std::set<std::uint32_t> is_guard_;
  std::vector<Set> sets_;                                            // by block
  std::vector<Set> contexts_;                                        // by number
  std::map<std::pair<std::uint32_t, std::uint32_t>, Set> assigned_;  // by edge
  LaneSets out_;
};

}  // namespace

LaneSets LaneSets::analyse(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators,
                           const ptx::Divergence& divergence,
                           const std::vector<std::uint32_t>& uses,
                           const std::vector<bool>& barrier_follows) {
  return Analysis(cfg, divergence, uses, post_dominators, barrier_follows).run();
}

}  // namespace sluice::passes
