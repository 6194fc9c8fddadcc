// SPDX-License-Identifier: Apache-2.0
// What is known only when a whole body is decoded: branch targets, reconvergence points and the
// registers' slots.
//
// Reconvergence: the immediate post-dominator of each branch that can diverge
// (kernels/ptx/dominators.h, on the reversed graph). Blocks from which no return can be reached
// (endless loops, traps, exits) cannot keep the others apart: edges to them count for nothing.
// Those that reach an exit have an end and meeting places of their own. Slots: register_slots.h.
#include <algorithm>

#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/decode/flow_graph.h"
#include "kernels/exec/decode/register_slots.h"
#include "kernels/ptx/dominators.h"

namespace sluice::exec::detail {
namespace {

constexpr uint32_t kNone = 0xffffffffu;

// Immediate post-dominator of each block; g.size() stands for the end; kNone: not known.
Result<std::vector<uint32_t>> post_dominators(const Graph& g, const std::vector<Inst>& code) {
  const uint32_t n = g.size(), end = n;
  std::vector<std::vector<uint32_t>> from(n);
  for (uint32_t b = 0; b < n; ++b)
    for (const uint32_t to : g.out[b]) from[to].push_back(b);
  // The `ret` that decoding appends counts only if something falls into it.
  std::vector<bool> reachable(n, false);
  std::vector<uint32_t> work = {0};
  reachable[0] = true;
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    for (const uint32_t to : g.out[b]) {
      if (!reachable[to]) work.push_back(to);
      reachable[to] = true;
    }
  }
  // How each block ends at last: by a return if it can reach one, else by an exit; kNowhere: by
  // neither, or nothing leads to it.
  enum : uint8_t { kNowhere, kByReturn, kByExit };
  std::vector<uint8_t> ends(n, kNowhere);
  std::vector<bool> to_end(n, false);
  const auto mark = [&](Op op, uint8_t how) {
    for (uint32_t b = 0; b < n; ++b) {
      if (!reachable[b] || ends[b] != kNowhere || !is(code[g.begin[b + 1] - 1], op)) continue;
      to_end[b] = true;
      work.push_back(b);
    }
    for (const uint32_t b : work) ends[b] = how;
    while (!work.empty()) {
      const uint32_t b = work.back();
      work.pop_back();
      for (const uint32_t before : from[b]) {
        if (ends[before] != kNowhere) continue;
        ends[before] = how;
        work.push_back(before);
      }
    }
  };
  mark(Op::k_ret, kByReturn);
  mark(Op::k_exit, kByExit);
  std::vector<std::vector<uint32_t>> in(n + 1), out(n + 1);
  for (uint32_t b = 0; b < n; ++b) {
    for (const uint32_t to : g.out[b])
      if (ends[to] == ends[b]) in[to].push_back(b);
    if (to_end[b]) in[end].push_back(b);
  }

  for (uint32_t b = 0; b < n; ++b) {
    for (const uint32_t to : g.out[b])
      if (ends[to] == ends[b]) out[b].push_back(to);
    if (to_end[b]) out[b].push_back(end);
  }
  return ptx::immediate_dominators(n + 1, end, in, out);
}

}  // namespace

bool Decoder::resolve_labels() {
  std::vector<uint32_t>& aux = module_.program->code.aux;
  for (const LabelUse& use : label_uses_) {
    const uint32_t position = label_position_[use.label];
    if (use.in_aux)
      aux[use.aux] = position;
    else
      code_[use.inst].imm = position;
  }
  return true;
}

bool Decoder::place_joins() {
  std::vector<uint32_t>& aux = module_.program->code.aux;
  const Graph g = make_graph(code_, aux);
  auto found = post_dominators(g, code_);
  if (!found) return absent(found.error().message);
  const std::vector<uint32_t>& idom = *found;
  std::vector<uint32_t> meet(code_.size(),
                             kNoTarget);  // per branch: instruction where its sides meet
  std::vector<bool> join_before(code_.size() + 1, false);
  for (uint32_t b = 0; b < g.size(); ++b) {
    const uint32_t last = g.begin[b + 1] - 1;
    const Inst& in = code_[last];
    const bool branches = (is(in, Op::k_bra) && in.guard != kPredTrue) || is(in, Op::k_brx);
    if (!branches || uniform_[last] || idom[b] == kNone || idom[b] == g.size()) continue;
    const uint32_t at = g.begin[idom[b]];
    // Nothing is gained by meeting in order to leave; and who leaves frees those at barriers.
    if (is(code_[at], Op::k_ret) || is(code_[at], Op::k_exit)) continue;
    meet[last] = at;
    join_before[at] = true;
  }
  std::vector<uint32_t> moved(code_.size() + 1);  // where what was at k begins: at its join, if any
  uint32_t shift = 0;
  for (size_t k = 0; k <= code_.size(); ++k) {
    moved[k] = static_cast<uint32_t>(k) + shift;
    if (join_before[k]) ++shift;
  }
  std::vector<Inst> code;
  std::vector<uint32_t> lines;
  code.reserve(code_.size() + shift);
  for (size_t k = 0; k < code_.size(); ++k) {
    if (join_before[k]) {
      Inst join;
      join.op = static_cast<uint16_t>(Op::k_join);
      code.push_back(join);
      lines.push_back(lines_[k]);
    }
    Inst in = code_[k];
    if (is(in, Op::k_bra)) in.imm = moved[static_cast<size_t>(in.imm)];
    if (is(in, Op::k_brx))
      for (uint32_t t = 1; t <= aux[in.aux]; ++t) aux[in.aux + t] = moved[aux[in.aux + t]];
    if (is(in, Op::k_bra) || is(in, Op::k_brx))
      in.e = meet[k] == kNoTarget ? kNoTarget : moved[meet[k]];
    code.push_back(in);
    lines.push_back(lines_[k]);
  }
  for (Reference& r : references_) r.inst = moved[r.inst] + (join_before[r.inst] ? 1 : 0);
  code_ = std::move(code);
  lines_ = std::move(lines);
  return true;
}

// Returns the bytes that the function's registers take, all functions before it included.
uint32_t Decoder::allocate_registers(uint32_t base, std::vector<uint32_t>& slots) {
  Code& program = module_.program->code;
  const Graph g = make_graph(code_, program.aux);
  RegisterSlots registers(g, code_, references_, vreg_width_);
  const uint32_t top = registers.assign(base, slots);
  for (const Reference& r : references_) {
    Inst& in = code_[r.inst];
    uint32_t* fields[5] = {&in.d, &in.a, &in.b, &in.c, &in.e};
    (r.field < 5 ? *fields[r.field] : program.aux[r.field - 5]) = registers.slot_of(r);
  }
  return top;
}

}  // namespace sluice::exec::detail
