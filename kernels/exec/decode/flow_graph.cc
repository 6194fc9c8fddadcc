// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/decode/flow_graph.h"

namespace sluice::exec::detail {
namespace {

bool ends_block(const Inst& in) {
  return is(in, Op::k_bra) || is(in, Op::k_brx) || is(in, Op::k_ret) || is(in, Op::k_exit) ||
         is(in, Op::k_trap);
}
bool falls_through(const Inst& in) { return !ends_block(in) || in.guard != kPredTrue; }

}  // namespace

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

}  // namespace sluice::exec::detail
