// What is known only when a whole body is decoded: branch targets, reconvergence points and the
// registers' slots.
//
// Reconvergence: the immediate post-dominator of each branch that can diverge (Cooper, Harvey and
// Kennedy, "A simple, fast dominance algorithm", 2001, on the reversed graph). Blocks from which no
// return can be reached (endless loops, traps, exits) cannot keep the others apart: edges to them
// count for nothing. Those that reach an exit have an end and meeting places of their own.
// Slots: linear scan (Poletto and Sarkar, 1999) over live intervals from a liveness analysis.
#include <algorithm>

#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {
namespace {

bool is(const Inst& in, Op op) { return in.op == static_cast<uint16_t>(op); }
bool ends_block(const Inst& in) {
  return is(in, Op::k_bra) || is(in, Op::k_brx) || is(in, Op::k_ret) || is(in, Op::k_exit) ||
         is(in, Op::k_trap);
}
bool falls_through(const Inst& in) { return !ends_block(in) || in.guard != kPredTrue; }

struct Graph {
  std::vector<uint32_t> begin;             // first instruction of each block; one more: the end
  std::vector<std::vector<uint32_t>> out;  // successors
  uint32_t block_of(uint32_t inst) const {
    return static_cast<uint32_t>(std::upper_bound(begin.begin(), begin.end(), inst) -
                                 begin.begin()) -
           1;
  }
  uint32_t size() const { return static_cast<uint32_t>(out.size()); }
};

Graph make_graph(const std::vector<Inst>& code, const std::vector<uint32_t>& aux) {
  Graph g;
  std::vector<bool> leader(code.size() + 1, false);
  leader[0] = leader[code.size()] = true;
  const auto targets = [&aux](const Inst& in, auto visit) {
    if (is(in, Op::k_bra)) visit(static_cast<uint32_t>(in.imm));
    if (is(in, Op::k_brx))
      for (uint32_t t = 1; t <= aux[in.aux]; ++t) visit(aux[in.aux + t]);
  };
  for (size_t k = 0; k < code.size(); ++k) {
    targets(code[k], [&leader](uint32_t to) { leader[to] = true; });
    if (ends_block(code[k])) leader[k + 1] = true;
  }
  for (size_t k = 0; k <= code.size(); ++k)
    if (leader[k]) g.begin.push_back(static_cast<uint32_t>(k));
  g.out.resize(g.begin.size() - 1);
  for (uint32_t b = 0; b < g.size(); ++b) {
    const uint32_t last = g.begin[b + 1] - 1;
    targets(code[last], [&](uint32_t to) { g.out[b].push_back(g.block_of(to)); });
    if (falls_through(code[last]) && b + 1 < g.size()) g.out[b].push_back(b + 1);
    std::sort(g.out[b].begin(), g.out[b].end());
    g.out[b].erase(std::unique(g.out[b].begin(), g.out[b].end()), g.out[b].end());
  }
  return g;
}

constexpr uint32_t kNone = 0xffffffffu;
// 64-bit words of one set of the liveness analysis: registers / 64 x blocks. Real kernels of 30,000
// instructions need a tenth of it; beyond, registers are not shared.
constexpr size_t kMaxLivenessWords = 4u << 20;

// Immediate post-dominator of each block; g.size() stands for the end; kNone: not known.
std::vector<uint32_t> post_dominators(const Graph& g, const std::vector<Inst>& code) {
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
  std::vector<std::vector<uint32_t>> in(n + 1);
  for (uint32_t b = 0; b < n; ++b) {
    for (const uint32_t to : g.out[b])
      if (ends[to] == ends[b]) in[to].push_back(b);
    if (to_end[b]) in[end].push_back(b);
  }

  // Reverse postorder of the reversed graph from the end.
  std::vector<uint32_t> order, number(n + 1, kNone), next(n + 1, 0);
  std::vector<uint32_t> stack = {end};
  std::vector<bool> seen(n + 1, false);
  seen[end] = true;
  while (!stack.empty()) {
    const uint32_t b = stack.back();
    if (next[b] < in[b].size()) {
      const uint32_t before = in[b][next[b]++];
      if (!seen[before]) {
        seen[before] = true;
        stack.push_back(before);
      }
    } else {
      number[b] = static_cast<uint32_t>(order.size());
      order.push_back(b);
      stack.pop_back();
    }
  }
  std::vector<uint32_t> idom(n + 1, kNone);
  idom[end] = end;
  const auto intersect = [&](uint32_t a, uint32_t b) {
    while (a != b) {
      while (number[a] < number[b]) a = idom[a];
      while (number[b] < number[a]) b = idom[b];
    }
    return a;
  };
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t k = order.size() - 1; k-- > 0;) {
      const uint32_t b = order[k];
      uint32_t best = to_end[b] ? end : kNone;
      for (const uint32_t to : g.out[b])
        if (idom[to] != kNone && ends[to] == ends[b]) best = best == kNone ? to : intersect(best, to);
      if (best != idom[b]) {
        idom[b] = best;
        changed = true;
      }
    }
  }
  return idom;
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
  const std::vector<uint32_t> idom = post_dominators(g, code_);
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

// Returns the bytes that the function's registers take, all functions before it included. A slot is
// always of one width: lanes that have diverged may use the same slot for different registers, each
// its own lanes of it, which are at other places in a slot of another width.
uint32_t Decoder::allocate_registers(uint32_t base, std::vector<uint32_t>& slots) {
  Code& program = module_.program->code;
  const Graph g = make_graph(code_, program.aux);
  // Only registers that are mentioned count.
  std::vector<uint32_t> dense(vreg_width_.size(), kNone);
  std::vector<uint8_t> width;
  for (Reference& r : references_) {
    if (dense[r.vreg] == kNone) {
      dense[r.vreg] = static_cast<uint32_t>(width.size());
      width.push_back(vreg_width_[r.vreg]);
    }
    r.vreg = dense[r.vreg];
  }
  const uint32_t count = static_cast<uint32_t>(width.size());
  std::stable_sort(references_.begin(), references_.end(),
                   [](const Reference& a, const Reference& b) { return a.inst < b.inst; });
  std::vector<uint32_t> first_reference(code_.size() + 1, 0);
  {
    size_t r = 0;
    for (size_t k = 0; k <= code_.size(); ++k) {
      while (r < references_.size() && references_[r].inst < k) ++r;
      first_reference[k] = static_cast<uint32_t>(r);
    }
  }
  // Which registers live in one block only? Those need no bit sets (most of nvcc's do not).
  std::vector<uint32_t> home(count, kNone);
  std::vector<uint32_t> global_number(count, kNone);
  uint32_t globals = 0;
  for (const Reference& r : references_) {
    const uint32_t b = g.block_of(r.inst);
    if (home[r.vreg] == kNone) {
      home[r.vreg] = b;
      // Read, or written only under a guard, before anything else in its only block: it could come
      // round a loop.
      if ((!r.def || code_[r.inst].guard != kPredTrue) && global_number[r.vreg] == kNone)
        global_number[r.vreg] = globals++;
    } else if (home[r.vreg] != b && global_number[r.vreg] == kNone) {
      global_number[r.vreg] = globals++;
    }
  }
  // A text made to be costly: every such register keeps a slot of its own.
  const bool analyse = (size_t{globals} + 63) / 64 * g.size() <= kMaxLivenessWords;
  const size_t words = analyse ? (globals + 63) / 64 : 0;
  std::vector<uint64_t> uses(words * g.size()), kills(words * g.size()), live_in(words * g.size()),
      live_out(words * g.size());
  for (uint32_t b = 0; b < g.size(); ++b) {
    uint64_t* use = uses.data() + words * b;
    uint64_t* kill = kills.data() + words * b;
    for (uint32_t k = g.begin[b]; k < g.begin[b + 1]; ++k) {
      for (const bool defs : {false, true}) {
        for (uint32_t r = first_reference[k]; r < first_reference[k + 1]; ++r) {
          const Reference& ref = references_[r];
          const uint32_t v = global_number[ref.vreg];
          if (v == kNone || !analyse || ref.def != defs) continue;
          const uint64_t bit = 1ull << (v % 64);
          const bool whole = ref.def && code_[k].guard == kPredTrue;
          if (whole)
            kill[v / 64] |= bit;
          else if ((kill[v / 64] & bit) == 0)
            use[v / 64] |= bit;
        }
      }
    }
  }
  bool changed = words != 0;
  while (changed) {
    changed = false;
    for (uint32_t b = g.size(); b-- > 0;) {
      uint64_t* out = live_out.data() + words * b;
      uint64_t* into = live_in.data() + words * b;
      for (const uint32_t to : g.out[b])
        for (size_t w = 0; w < words; ++w) out[w] |= live_in[words * to + w];
      for (size_t w = 0; w < words; ++w) {
        const uint64_t value = uses[words * b + w] | (out[w] & ~kills[words * b + w]);
        if (value != into[w]) {
          into[w] = value;
          changed = true;
        }
      }
    }
  }
  // Intervals over the order of the code.
  std::vector<uint32_t> begin(count, kNone), end(count, 0);
  const auto touch = [&](uint32_t v, uint32_t at) {
    begin[v] = std::min(begin[v], at);
    end[v] = std::max(end[v], at);
  };
  for (const Reference& r : references_) touch(r.vreg, r.inst);
  for (uint32_t v = 0; v < count; ++v) {
    const uint32_t n = global_number[v];
    if (n == kNone) continue;
    if (!analyse) {
      touch(v, 0);
      touch(v, static_cast<uint32_t>(code_.size()));
      continue;
    }
    for (uint32_t b = 0; b < g.size(); ++b) {
      if ((live_in[words * b + n / 64] >> (n % 64) & 1) != 0) touch(v, g.begin[b]);
      if ((live_out[words * b + n / 64] >> (n % 64) & 1) != 0) touch(v, g.begin[b + 1] - 1);
    }
  }
  // Slots. An interval ends after its last use: an instruction's result never shares a slot with
  // its operands, whose lanes may be of another width.
  std::vector<uint32_t> order(count);
  for (uint32_t v = 0; v < count; ++v) order[v] = v;
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return begin[a] < begin[b]; });
  std::vector<uint32_t> slot(count, 0);
  std::vector<std::pair<uint32_t, uint32_t>>
      active;  // end, register: a heap, the nearest end on top
  const auto later = [](const auto& a, const auto& b) { return a.first > b.first; };
  std::vector<uint32_t> free4, free8;
  uint32_t top = base;
  for (const uint32_t v : order) {
    while (!active.empty() && active.front().first < begin[v]) {
      std::pop_heap(active.begin(), active.end(), later);
      const uint32_t done = active.back().second;
      active.pop_back();
      (width[done] == 8 ? free8 : free4).push_back(slot[done]);
    }
    std::vector<uint32_t>& pool = width[v] == 8 ? free8 : free4;
    if (!pool.empty()) {
      slot[v] = pool.back();
      pool.pop_back();
    } else {
      slot[v] = top;
      slots.push_back(top | (width[v] == 8 ? kWideSlot : 0));
      top += width[v] == 8 ? 2 * kSlotBytes : kSlotBytes;
    }
    active.emplace_back(end[v], v);
    std::push_heap(active.begin(), active.end(), later);
  }
  for (const Reference& r : references_) {
    Inst& in = code_[r.inst];
    uint32_t* fields[5] = {&in.d, &in.a, &in.b, &in.c, &in.e};
    if (r.field < 5)
      *fields[r.field] = slot[r.vreg];
    else
      program.aux[r.field - 5] = slot[r.vreg];
  }
  return top;
}

}  // namespace sluice::exec::detail
