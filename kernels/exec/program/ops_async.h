// SPDX-License-Identifier: Apache-2.0
// Barriers in memory and bulk copies: X(name, (handler)); see plain_ops.h.
#pragma once

#include <cstdint>

#define SLUICE_EXEC_ASYNC_OPS(X)   \
  X(mbarrier, (barrier_operation)) \
  X(mbarpending, (pending_count)) X(cpbulk, (bulk_copy)) X(stasync, (store_async))

namespace sluice::exec::detail {

// Inst::imm of mbarrier. a = address (offset in aux[0]), b = count, bytes, state or parity, d =
// state (a register) or the result of a wait (a predicate).
enum class MbarrierKind : uint8_t {
  kInit,
  kInvalidate,
  kArrive,
  kArriveDrop,
  kArriveExpect,
  kArriveDropExpect,
  kExpect,
  kComplete,
  kWait,
  kWaitParity,
};

// Inst::imm of cpbulk: spaces of destination and source (kSpace...), then the reduction.
enum class BulkReduction : uint8_t { kNone, kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };
enum class BulkType : uint8_t { kU32, kS32, kU64, kS64, kF16, kBf16, kF32, kF64 };

}  // namespace sluice::exec::detail
