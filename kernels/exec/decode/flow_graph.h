// SPDX-License-Identifier: Apache-2.0
// The blocks of a decoded body and the edges between them, for what is known only at its end:
// reconvergence points (decoder_flow.cc) and registers' slots (register_slots.cc).
//
// A value; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/ops.h"

namespace sluice::exec::detail {

inline bool is(const Inst& in, Op op) { return in.op == static_cast<uint16_t>(op); }

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

Graph make_graph(const std::vector<Inst>& code, const std::vector<uint32_t>& aux);

}  // namespace sluice::exec::detail
