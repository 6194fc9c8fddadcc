// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/value_flow.h"

#include <string_view>
#include <unordered_set>

#include "kernels/ptx/dominators.h"
#include "kernels/ptx/registers.h"

namespace sluice::ptx {

namespace {

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

}  // namespace

// Reads the statements of one function into a flow.
class ValueFlow::Reader {
 public:
  Reader(const Function& f, ValueFlow& flow) : flow_(flow), table_(f) {
    for (const Variable& p : f.params)
      if (p.space == Space::kParam && f.is_entry) parameters_.insert(p.name);
    // What a call returns may stand in a variable that hides a parameter in its scope.
    for (const Variable& v : f.variables)
      if (v.space == Space::kParam) parameters_.erase(v.name);
    for (const Variable& p : f.params)
      if (const std::uint32_t n = table_.number(p.name); n != RegisterTable::kNone)
        flow_.parameter_registers_.push_back(n + 1);
    flow_.uses_begin_.push_back(0);
    flow_.defs_begin_.push_back(0);
    for (const Statement& s : f.statements) {
      const bool instruction = s.kind == StatementKind::kInstruction;
      const Effect effect = instruction ? effect_of(s) : Effect::kNone;
      flow_.source_.push_back(instruction && add(s, effect));
      flow_.uniform_.push_back(effect == Effect::kUniform);
      flow_.uses_begin_.push_back(static_cast<std::uint32_t>(flow_.uses_.size()));
      flow_.defs_begin_.push_back(static_cast<std::uint32_t>(flow_.defs_.size()));
      const std::uint32_t n = s.guard.empty() ? RegisterTable::kNone : table_.number(s.guard, s);
      flow_.guards_.push_back(n == RegisterTable::kNone ? n : n + 1);
    }
    flow_.count_registers(table_.size() + 1);
  }

 private:
  static constexpr std::uint32_t kCarry = 0;  // table numbers are shifted by one

  // Records defs and uses; true if the instruction is a source of divergence.
  bool add(const Statement& s, Effect effect) {
    bool source = false;
    if (!s.guard.empty()) use(s, s.guard, source);
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
          if (n != RegisterTable::kNone) flow_.defs_.push_back(n + 1);
        }
        if (!destination || effect == Effect::kUnknown) use(s, name, special);
      }
      source |= special;
    }
    if (has_modifier(s.opcode, "cc")) flow_.defs_.push_back(kCarry);
    const std::string_view base = base_opcode(s.opcode);
    if (base == "addc" || base == "subc" || base == "madc") flow_.uses_.push_back(kCarry);
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
      flow_.uses_.push_back(n + 1);
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

  ValueFlow& flow_;
  RegisterTable table_;
  std::unordered_set<std::string_view> parameters_;
};

void ValueFlow::count_registers(std::uint32_t registers) {
  def_count_.assign(registers, 0);
  for (std::uint32_t r : defs_) ++def_count_[r];
  readers_begin_.assign(registers + 1, 0);
  for (std::uint32_t r : uses_) ++readers_begin_[r + 1];
  for (std::uint32_t r = 0; r < registers; ++r) readers_begin_[r + 1] += readers_begin_[r];
  readers_.resize(uses_.size());
  std::vector<std::uint32_t> fill(readers_begin_.begin(), readers_begin_.end() - 1);
  for (std::uint32_t i = 0; i < source_.size(); ++i)
    for (std::uint32_t r : uses(i)) readers_[fill[r]++] = i;
}

Result<void> ValueFlow::find_kept(const Cfg& cfg) {
  const auto dominators = Dominators::build(cfg);
  if (!dominators) return dominators.error();
  kept_.assign(registers(), false);
  for (std::uint32_t i = 0; i < source_.size(); ++i) {
    const std::uint32_t b = cfg.block_of(i);
    for (std::uint32_t r : defs(i)) {
      if (def_count(r) != 1) continue;
      for (std::uint32_t reader : readers(r)) {
        const std::uint32_t at = cfg.block_of(reader);
        if (cfg.reachable(at) && (at == b ? reader <= i : !dominators->dominates(b, at)))
          kept_[r] = true;
      }
    }
  }
  return {};
}

Result<ValueFlow> ValueFlow::of(const Cfg& cfg) {
  ValueFlow flow;
  Reader(cfg.function(), flow);
  if (auto found = flow.find_kept(cfg); !found) return found.error();
  return flow;
}

}  // namespace sluice::ptx
