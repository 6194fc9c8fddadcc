// SPDX-License-Identifier: Apache-2.0
// The table of handlers of checked blocks: the usual one, but what touches memory tells the block's
// checker. Blocks choose their table when they run, so those without a checker pay nothing.
#include <array>
#include <cstdlib>
#include <string_view>

#include "kernels/exec/checker/checker_block.h"
#include "kernels/exec/program/ops.h"

namespace sluice::exec::detail {
namespace {

MemoryOp describe(std::string_view name) {
  MemoryOp op;
  if (name == "cpasync") {
    op.kind = MemoryOp::kCopyAsync;
    return op;
  }
  if (name == "fence") {
    op.kind = MemoryOp::kFence;
    return op;
  }
  if (name == "mbarrier" || name == "cpbulk" || name == "stasync" || name == "tensorload" ||
      name == "tensorstore") {
    op.kind = name == "mbarrier" ? MemoryOp::kMbarrier : MemoryOp::kBulk;
    return op;
  }
  if (name == "ldmatrix" || name == "stmatrix" || name == "wmmaload" || name == "wmmastore" ||
      name == "wgmma" || name == "tensormap") {
    op.kind = MemoryOp::kLanes;
    return op;
  }
  const size_t cut = name.find('_');
  if (cut == name.npos) return op;
  const std::string_view head = name.substr(0, cut);
  // The width stands at the end of the last word: "u16", "b64", "f16x2".
  std::string_view type = name.substr(name.rfind('_') + 1);
  if (head == "ld" || head == "ldv2" || head == "ldv4") {
    op.kind = MemoryOp::kLoad;
  } else if (head == "st" || head == "stv2" || head == "stv4") {
    op.kind = MemoryOp::kStore;
  } else if (head == "atom") {
    op.kind = name.starts_with("atom_cas") ? MemoryOp::kExchange : MemoryOp::kAtomic;
  } else {
    return op;
  }
  if (head.ends_with("v2")) op.count = 2;
  if (head.ends_with("v4")) op.count = 4;
  uint32_t bits = 0, times = 1;
  while (!type.empty() && (type[0] < '0' || type[0] > '9')) type.remove_prefix(1);
  while (!type.empty() && type[0] >= '0' && type[0] <= '9') {
    bits = bits * 10 + static_cast<uint32_t>(type[0] - '0');
    type.remove_prefix(1);
  }
  if (type == "x2") times = 2;
  op.bytes = static_cast<uint8_t>(bits * times / 8);
  if (op.bytes == 0) op.kind = MemoryOp::kNone;
  return op;
}

struct MemoryOps {
  std::array<MemoryOp, kOpCount> ops;
  MemoryOps() {
    for (uint16_t k = 0; k < kOpCount; ++k) ops[k] = describe(kOpNames[k]);
  }
};

Flow checked(Warp& w, const Inst& in) {
  return w.block->checker->execute(w, in, handlers()[in.op]);
}

struct CheckedTable {
  std::array<Handler, kOpCount> handlers;
  // `values`: all instructions, to follow what they do with undefined values.
  explicit CheckedTable(bool values) {
    for (uint16_t k = 0; k < kOpCount; ++k)
      handlers[k] = memory_op(k).kind == MemoryOp::kNone && !values
                        ? sluice::exec::detail::handlers()[k]
                        : &checked;
  }
};

}  // namespace

const MemoryOp& memory_op(uint16_t op) {
  static const MemoryOps table;
  return table.ops[op];
}

const Handler* BlockChecker::handlers() const {
  static const CheckedTable memory(false), values(true);
  return (checker_.options().uninit ? values : memory).handlers.data();
}

}  // namespace sluice::exec::detail
