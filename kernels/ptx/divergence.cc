// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/divergence.h"

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_set>

#include "kernels/ptx/registers.h"

namespace sluice::ptx {

namespace {

// Blocks in all divergent regions together, 4 bytes each. The largest real kernel (33,000
// instructions, some 2,000 blocks) needs about 10^6.
constexpr std::uint64_t kMaxRegionBlocks = 16'000'000;

// Special registers with the same value in all threads of a block.
bool is_uniform_special(std::string_view name) {
  static const std::unordered_set<std::string_view> kUniform = {"%ntid",
                                                                "%ctaid",
                                                                "%nctaid",
                                                                "%gridid",
                                                                "%nsmid",
                                                                "%dynamic_smem_size",
                                                                "%total_smem_size",
                                                                "%aggr_smem_size",
                                                                "%nwarpid",
                                                                "%clusterid",
                                                                "%nclusterid",
                                                                "%cluster_ctaid",
                                                                "%cluster_nctaid",
                                                                "%cluster_ctarank",
                                                                "%cluster_nctarank",
                                                                "%is_explicit_cluster"};
  const std::string_view base = name.substr(0, name.find('.'));
  return kUniform.count(base) != 0 || base.starts_with("%envreg");
}

// Registers of each instruction, numbered, in flat arrays.
class DataFlow {
 public:
  explicit DataFlow(const Function& f) : function_(f), table_(f) {
    for (const Variable& p : f.params)
      if (p.space == Space::kParam && f.is_entry) parameters_.insert(p.name);
    // What a call returns may stand in a variable that hides a parameter in its scope.
    for (const Variable& v : f.variables)
      if (v.space == Space::kParam) parameters_.erase(v.name);
    for (const Variable& p : f.params)
      if (const std::uint32_t n = table_.number(p.name); n != RegisterTable::kNone)
        parameter_registers_.push_back(n + 1);
    uses_begin_.push_back(0);
    defs_begin_.push_back(0);
    for (const Statement& s : f.statements) {
      source_.push_back(s.kind == StatementKind::kInstruction && add(s));
      uses_begin_.push_back(static_cast<std::uint32_t>(uses_.size()));
      defs_begin_.push_back(static_cast<std::uint32_t>(defs_.size()));
    }
    def_count_.assign(registers(), 0);
    for (std::uint32_t r : defs_) ++def_count_[r];
    // Readers of each register.
    readers_begin_.assign(registers() + 1, 0);
    for (std::uint32_t r : uses_) ++readers_begin_[r + 1];
    for (std::uint32_t r = 0; r < registers(); ++r) readers_begin_[r + 1] += readers_begin_[r];
    readers_.resize(uses_.size());
    std::vector<std::uint32_t> fill(readers_begin_.begin(), readers_begin_.end() - 1);
    for (std::uint32_t i = 0; i < f.statements.size(); ++i)
      for (std::uint32_t r : uses(i)) readers_[fill[r]++] = i;
  }

  std::uint32_t registers() const { return table_.size() + 1; }  // and the carry flag
  // The statement's result differs between threads whatever its inputs.
  bool source(std::uint32_t statement) const { return source_[statement]; }
  bool uniform(std::uint32_t statement) const {
    return effect_of(function_.statements[statement]) == Effect::kUniform;
  }
  std::span<const std::uint32_t> uses(std::uint32_t i) const {
    return {uses_.data() + uses_begin_[i], uses_begin_[i + 1] - uses_begin_[i]};
  }
  std::span<const std::uint32_t> defs(std::uint32_t i) const {
    return {defs_.data() + defs_begin_[i], defs_begin_[i + 1] - defs_begin_[i]};
  }
  std::span<const std::uint32_t> readers(std::uint32_t r) const {
    return {readers_.data() + readers_begin_[r], readers_begin_[r + 1] - readers_begin_[r]};
  }
  std::uint32_t def_count(std::uint32_t r) const { return def_count_[r]; }
  std::uint32_t guard(const Statement& s) { return table_.number(s.guard, s); }
  const std::vector<std::uint32_t>& parameter_registers() const { return parameter_registers_; }

 private:
  static constexpr std::uint32_t kCarry = 0;  // table numbers are shifted by one

  // Records defs and uses; true if the instruction is a source of divergence.
  bool add(const Statement& s) {
    bool source = false;
    if (!s.guard.empty()) use(s, s.guard, source);
    const Effect effect = effect_of(s);
    const bool call = base_opcode(s.opcode) == "call";
    for (std::size_t k = 0; k < s.operands.size(); ++k) {
      const bool destination =
          effect == Effect::kUnknown || call || (k == 0 && effect != Effect::kNone);
      bool special = false;
      std::size_t at = 0;
      for (;;) {
        const std::string_view name = next_identifier(s.operands[k], at);
        if (name.empty()) break;
        if (destination) {
          const std::uint32_t n = table_.number(name, s);
          if (n != RegisterTable::kNone) defs_.push_back(n + 1);
        }
        if (!destination || effect == Effect::kUnknown) use(s, name, special);
      }
      source |= special;
    }
    if (has_modifier(s.opcode, "cc")) defs_.push_back(kCarry);
    const std::string_view base = base_opcode(s.opcode);
    if (base == "addc" || base == "subc" || base == "madc") uses_.push_back(kCarry);
    switch (effect) {
      case Effect::kUnknown:
      case Effect::kOpaque:
        return true;
      case Effect::kLoad:
        return source || !uniform_load(s);
      case Effect::kUniform:
      case Effect::kNone:
        return false;
      case Effect::kPure:
        return source;
    }
    return true;
  }

  void use(const Statement& s, std::string_view name, bool& source) {
    const std::uint32_t n = table_.number(name, s);
    if (n != RegisterTable::kNone) {
      uses_.push_back(n + 1);
    } else if (name[0] == '%' && !is_uniform_special(name)) {
      source = true;
    }
  }

  // Parameters of the kernel and constants: the same for all threads at the same address.
  bool uniform_load(const Statement& s) {
    if (has_modifier(s.opcode, "const")) return true;
    if (!has_modifier(s.opcode, "param") || s.operands.size() < 2) return false;
    std::size_t at = 0;
    const std::string_view base = next_identifier(s.operands[1], at);
    return parameters_.count(base) != 0;
  }

  const Function& function_;
  RegisterTable table_;
  std::unordered_set<std::string_view> parameters_;
  std::vector<std::uint32_t> uses_, defs_, uses_begin_, defs_begin_;
  std::vector<std::uint32_t> readers_, readers_begin_;
  std::vector<std::uint32_t> def_count_, parameter_registers_;
  std::vector<bool> source_;
};

// By register: written in one place, but read where that has not always been passed: in a loop a
// thread that goes round it keeps what an earlier turn wrote. Compilers do not write so.
Result<std::vector<bool>> kept_values(const Cfg& cfg, const DataFlow& flow) {
  const auto dominators = Dominators::build(cfg);
  if (!dominators) return dominators.error();
  std::vector<bool> kept(flow.registers());
  for (std::uint32_t i = 0; i < cfg.function().statements.size(); ++i) {
    const std::uint32_t b = cfg.block_of(i);
    for (std::uint32_t r : flow.defs(i)) {
      if (flow.def_count(r) != 1) continue;
      for (std::uint32_t reader : flow.readers(r)) {
        const std::uint32_t at = cfg.block_of(reader);
        if (cfg.reachable(at) && (at == b ? reader <= i : !dominators->dominates(b, at)))
          kept[r] = true;
      }
    }
  }
  return kept;
}

// Taint that flows through registers until nothing changes.
class Taint {
 public:
  // `reached`: whether a statement can run behind one that taints; nothing flows back in time.
  Taint(const DataFlow& flow, bool through_reductions,
        const std::function<bool(std::uint32_t)>& reached)
      : flow_(flow),
        through_reductions_(through_reductions),
        reached_(reached),
        tainted_(flow.registers()) {}
  void mark(std::uint32_t r) {
    if (tainted_[r]) return;
    tainted_[r] = true;
    work_.push_back(r);
  }
  void mark_results(std::uint32_t statement) {
    for (std::uint32_t r : flow_.defs(statement)) mark(r);
  }
  bool operator[](std::uint32_t r) const { return tainted_[r]; }
  bool any_use(std::uint32_t statement) const {
    if (!reached_(statement)) return false;
    const auto uses = flow_.uses(statement);
    return std::any_of(uses.begin(), uses.end(), [&](std::uint32_t r) { return tainted_[r]; });
  }
  void settle() {
    while (!work_.empty()) {
      const std::uint32_t r = work_.back();
      work_.pop_back();
      for (std::uint32_t statement : flow_.readers(r))
        if (reached_(statement) && (through_reductions_ || !flow_.uniform(statement)))
          mark_results(statement);
    }
  }

 private:
  const DataFlow& flow_;
  bool through_reductions_;
  std::function<bool(std::uint32_t)> reached_;
  std::vector<bool> tainted_;
  std::vector<std::uint32_t> work_;
};

// By block: whether it can run behind one of the statements.
std::vector<bool> blocks_behind(const Cfg& cfg, const std::vector<std::uint32_t>& statements) {
  std::vector<bool> behind(cfg.blocks().size());
  std::vector<std::uint32_t> work;
  for (std::uint32_t i : statements) work.push_back(cfg.block_of(i));
  while (!work.empty()) {
    const std::uint32_t b = work.back();
    work.pop_back();
    if (b >= behind.size() || behind[b]) continue;
    behind[b] = true;
    const auto& next = cfg.blocks()[b].successors;
    work.insert(work.end(), next.begin(), next.end());
  }
  return behind;
}

// Marks what is written inside the regions of tainted branches, until nothing changes.
Result<void> find_branches(const Cfg& cfg, const PostDominators& post_dominators,
                           const DataFlow& flow, const std::vector<bool>& kept, Taint& taint,
                           std::vector<DivergentBranch>& branches, std::vector<bool>& in_region) {
  const auto& blocks = cfg.blocks();
  std::vector<bool> known(blocks.size());
  std::vector<std::uint32_t> seen(blocks.size(), kNoBlock);  // the branch that saw a block last
  std::uint64_t steps = 0;
  for (bool changed = true; changed;) {
    taint.settle();
    changed = false;
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      const std::uint32_t t = blocks[b].terminator;
      if (t == kNoStatement || known[b] || !cfg.reachable(b)) continue;
      // A guarded branch, return or trap, or an indexed branch; a lone target is no choice.
      if (!taint.any_use(t) || blocks[b].successors.size() + (blocks[b].traps ? 1 : 0) < 2)
        continue;
      known[b] = changed = true;
      DivergentBranch branch{b, post_dominators.immediate(b), {}};
      std::vector<std::uint32_t> work;
      const auto visit = [&](std::uint32_t next) {
        if (next == branch.reconvergence || next == cfg.exit() || seen[next] == b) return;
        seen[next] = b;
        work.push_back(next);
      };
      for (std::uint32_t next : blocks[b].successors) visit(next);
      while (!work.empty()) {
        const std::uint32_t at = work.back();
        work.pop_back();
        branch.region.push_back(at);
        if (++steps > kMaxRegionBlocks)
          return Error{0, "divergent regions are too large to analyse"};
        if (!in_region[at]) {
          for (std::uint32_t i = blocks[at].begin; i < blocks[at].end; ++i)
            for (std::uint32_t r : flow.defs(i))
              if (flow.def_count(r) > 1 || kept[r]) taint.mark(r);
        }
        in_region[at] = true;
        for (std::uint32_t next : blocks[at].successors) visit(next);
      }
      branches.push_back(std::move(branch));
    }
  }
  return {};
}

}  // namespace

Result<Divergence> Divergence::analyse(const Cfg& cfg, const PostDominators& post_dominators) {
  return run(cfg, post_dominators, nullptr, false);
}

Result<Divergence> Divergence::depending_on(const Cfg& cfg, const PostDominators& post_dominators,
                                            const std::vector<std::uint32_t>& sources) {
  return run(cfg, post_dominators, &sources, true);
}

Result<Divergence> Divergence::between_threads(const Cfg& cfg,
                                               const PostDominators& post_dominators,
                                               const std::vector<std::uint32_t>& sources) {
  return run(cfg, post_dominators, &sources, false);
}

Result<Divergence> Divergence::run(const Cfg& cfg, const PostDominators& post_dominators,
                                   const std::vector<std::uint32_t>* sources,
                                   bool through_reductions) {
  const Function& f = cfg.function();
  const auto& blocks = cfg.blocks();
  DataFlow flow(f);
  // Between threads what one of them does taints the others' past as well.
  std::vector<bool> behind(blocks.size(), true);
  if (sources && through_reductions) behind = blocks_behind(cfg, *sources);
  Taint taint(flow, through_reductions, [&](std::uint32_t i) { return behind[cfg.block_of(i)]; });
  if (sources) {
    for (std::uint32_t i : *sources) taint.mark_results(i);
  } else {
    // The arguments of a .func may differ between the threads that call it.
    for (std::uint32_t r : flow.parameter_registers()) taint.mark(r);
    for (std::uint32_t i = 0; i < f.statements.size(); ++i)
      if (flow.source(i)) taint.mark_results(i);
  }

  const auto kept = kept_values(cfg, flow);
  if (!kept) return kept.error();
  Divergence d;
  d.in_region_.assign(blocks.size(), false);
  if (auto done =
          find_branches(cfg, post_dominators, flow, *kept, taint, d.branches_, d.in_region_);
      !done)
    return done.error();
  d.operands_tainted_.assign(f.statements.size(), false);
  d.guard_tainted_.assign(f.statements.size(), false);
  d.reads_tainted_.assign(f.statements.size(), false);
  for (std::uint32_t i = 0; i < f.statements.size(); ++i) {
    const bool guarded = !f.statements[i].guard.empty();
    const std::uint32_t n = guarded ? flow.guard(f.statements[i]) : RegisterTable::kNone;
    const std::uint32_t guard = guarded ? n + 1 : RegisterTable::kNone;
    for (std::uint32_t r : flow.uses(i))
      if (r != guard && taint[r]) d.operands_tainted_[i] = true;
    if (!sources && flow.source(i)) d.operands_tainted_[i] = true;
    d.reads_tainted_[i] = taint.any_use(i);
    if (guarded)
      d.guard_tainted_[i] = n == RegisterTable::kNone ? sources == nullptr : taint[n + 1];
  }
  return d;
}

}  // namespace sluice::ptx
