// SPDX-License-Identifier: Apache-2.0
// mbarrier and cp.async.bulk; see ops_async.h for the list.
//
// An mbarrier is what the PTX manual describes (section "mbarrier"), in one 64-bit word of ours:
// the phase's parity, the expected and the pending count of arrivals, and the bytes that are still
// to come (negative: bytes that came before they were expected). Programs may not look into it.
// Copies happen at once, when they are issued, so that waiting for them is no work; that is one of
// the orders the manual allows. A cluster's shared memory belongs to one host thread: no atomics.
#include "kernels/exec/program/ops_async.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/ops/bulk.h"
#include "kernels/exec/ops/lane_memory.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/plain_ops.h"

namespace sluice::exec::detail {
namespace {

#include "kernels/exec/ops/lanes.inc"

#include "kernels/exec/ops/half.inc"

constexpr u64 kCountMask = (1u << 20) - 1;
constexpr u64 kBytesMask = (1u << 22) - 1;

struct MemoryBarrier {
  u64 phase;     // parity
  u64 expected;  // arrivals of a phase
  u64 pending;   // of this one
  s64 bytes;

  static MemoryBarrier unpack(u64 word) {
    const s64 bytes = static_cast<s64>(word << 42) >> 42;
    return {word >> 63, word >> 42 & kCountMask, word >> 22 & kCountMask, bytes};
  }
  u64 pack() const {
    return phase << 63 | (expected & kCountMask) << 42 | (pending & kCountMask) << 22 |
           (static_cast<u64>(bytes) & kBytesMask);
  }
  void complete_if_done() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = expected;
  }
  void arrive(u64 count) {
    pending = count > pending ? 0 : pending - count;
    complete_if_done();
  }
};

MemoryBarrier load_barrier(u64 host) {
  u64 word;
  std::memcpy(&word, reinterpret_cast<const void*>(host), 8);
  return MemoryBarrier::unpack(word);
}
void store_barrier(u64 host, const MemoryBarrier& b) {
  const u64 word = b.pack();
  std::memcpy(reinterpret_cast<void*>(host), &word, 8);
}

s64 signed_offset(u32 word) { return static_cast<s32>(word); }

// Keeps count of the objects that are valid; false: this operation is undefined (strict only).
bool may_change(BlockState& block, u64 host, MbarrierKind kind) {
  std::vector<u64>& valid = block.valid_barriers;
  const auto it = std::find(valid.begin(), valid.end(), host);
  if (kind == MbarrierKind::kInit) {
    if (it != valid.end()) return false;
    valid.push_back(host);
  } else if (kind == MbarrierKind::kInvalidate) {
    if (it == valid.end()) return false;
    valid.erase(it);
  }
  return true;
}

// What an operation other than init and the waits does to the barrier.
void change(MemoryBarrier& b, MbarrierKind kind, u32 count) {
  switch (kind) {
    case MbarrierKind::kArriveDrop:
      b.expected -= count;
      [[fallthrough]];
    case MbarrierKind::kArrive:
      b.arrive(count);
      break;
    case MbarrierKind::kArriveDropExpect:
      b.expected -= 1;
      [[fallthrough]];
    case MbarrierKind::kArriveExpect:
      b.bytes += count;
      b.arrive(1);
      break;
    case MbarrierKind::kExpect:
      b.bytes += count;
      break;
    case MbarrierKind::kComplete:
      b.bytes -= count;
      b.complete_if_done();
      break;
    default:  // kInvalidate: any value
      break;
  }
}

Flow barrier_operation(Warp& w, const Inst& in) {
  const auto kind = static_cast<MbarrierKind>(in.imm);
  const bool narrow = (in.mod & kModAddress32) != 0;
  const u64 offset = static_cast<u64>(signed_offset(w.block->aux[in.aux]));
  const LaneAccess access{static_cast<u32>(in.mod & kSpaceMask), 8, 8, true};
  u32 yes = 0;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const u64 address = lane_address(w, in.a, narrow, lane) + offset;
    const u64 host =
        resolve_lane_access(w, access, narrow ? static_cast<u32>(address) : address, lane);
    if (host == 0) return Flow::kFault;
    if (w.block->environment->strict && !may_change(*w.block, host, kind))
      return w.fault(FaultKind::kBadBarrier, lane, address, 8);
    if (kind == MbarrierKind::kInit) {
      const u64 count = lane_u32(w, in.b, lane) & kCountMask;
      store_barrier(host, {0, count, count, 0});
      continue;
    }
    MemoryBarrier b = load_barrier(host);
    if (kind == MbarrierKind::kWait || kind == MbarrierKind::kWaitParity) {
      // A phase is over when the current one has the other parity.
      const u64 phase =
          kind == MbarrierKind::kWait ? lane_u64(w, in.b, lane) >> 63 : lane_u32(w, in.b, lane) & 1;
      yes |= static_cast<u32>(b.phase != phase) << lane;
      continue;
    }
    if (in.d != kNoOperand) set_lane_u64(w, in.d, lane, b.pack());
    change(b, kind, in.b == kNoOperand ? 1 : lane_u32(w, in.b, lane));
    store_barrier(host, b);
  }
  if (kind == MbarrierKind::kWait || kind == MbarrierKind::kWaitParity) {
    if (in.d != kNoOperand) w.set_pred(in.d, yes);
    if (yes == 0) ++w.spin;
  }
  return Flow::kNext;
}

Flow pending_count(Warp& w, const Inst& in) {
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    set_lane_u32(w, in.d, lane,
                 static_cast<u32>(MemoryBarrier::unpack(lane_u64(w, in.a, lane)).pending));
  }
  return Flow::kNext;
}

template <class T>
T reduced_integer(BulkReduction op, T a, T b) {
  switch (op) {
    case BulkReduction::kAdd: {
      using U = std::make_unsigned_t<T>;  // it wraps round
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    }
    case BulkReduction::kMin:
      return a < b ? a : b;
    case BulkReduction::kMax:
      return a > b ? a : b;
    case BulkReduction::kInc:
      return a >= b ? T{0} : static_cast<T>(a + 1);
    case BulkReduction::kDec:
      return a == 0 || a > b ? b : static_cast<T>(a - 1);
    case BulkReduction::kAnd:
      return static_cast<T>(a & b);
    case BulkReduction::kOr:
      return static_cast<T>(a | b);
    default:
      return static_cast<T>(a ^ b);
  }
}
template <class H>
u16 reduced_half(BulkReduction op, u16 a, u16 b) {
  const f32 x = to_f32(H{a}), y = to_f32(H{b});
  if (op == BulkReduction::kAdd) return half_add(H{a}, H{b}).bits;
  if (x != x && y != y) return 0x7fff;
  const bool first = y != y || (x == y ? ((a >> 15) != 0) == (op == BulkReduction::kMin)
                                       : (x < y) == (op == BulkReduction::kMin));
  return x != x ? b : first ? a : b;
}
u32 reduced_f32(u32 a, u32 b) {
  const f32 r = bit_cast_to<f32>(a) + bit_cast_to<f32>(b);
  return r != r ? 0x7fffffffu : bit_cast_to<u32>(r);
}

// Other blocks may be at the same global words.
template <class U, class F>
void reduce_words(u64 to, const u8* from, u32 bytes, F f) {
  for (u32 k = 0; k < bytes; k += sizeof(U)) {
    U value;
    std::memcpy(&value, from + k, sizeof(U));
    U* p = reinterpret_cast<U*>(to + k);
    U old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, static_cast<U>(f(old, value)), true,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
  }
}

}  // namespace

void reduce_bytes(BulkReduction op, BulkType type, u64 to, const u8* from, u32 bytes) {
  switch (type) {
    case BulkType::kU32:
      return reduce_words<u32>(to, from, bytes,
                               [op](u32 a, u32 b) { return reduced_integer<u32>(op, a, b); });
    case BulkType::kS32:
      return reduce_words<u32>(to, from, bytes, [op](u32 a, u32 b) {
        return reduced_integer<s32>(op, static_cast<s32>(a), static_cast<s32>(b));
      });
    case BulkType::kU64:
      return reduce_words<u64>(to, from, bytes,
                               [op](u64 a, u64 b) { return reduced_integer<u64>(op, a, b); });
    case BulkType::kS64:
      return reduce_words<u64>(to, from, bytes, [op](u64 a, u64 b) {
        return reduced_integer<s64>(op, static_cast<s64>(a), static_cast<s64>(b));
      });
    case BulkType::kF16:
      return reduce_words<u16>(to, from, bytes,
                               [op](u16 a, u16 b) { return reduced_half<f16>(op, a, b); });
    case BulkType::kBf16:
      return reduce_words<u16>(to, from, bytes,
                               [op](u16 a, u16 b) { return reduced_half<bf16>(op, a, b); });
    case BulkType::kF32:
      return reduce_words<u32>(to, from, bytes, [](u32 a, u32 b) { return reduced_f32(a, b); });
    case BulkType::kF64:
      return reduce_words<u64>(to, from, bytes, [](u64 a, u64 b) {
        return bit_cast_to<u64>(bit_cast_to<f64>(a) + bit_cast_to<f64>(b));
      });
  }
}

void complete_bytes(u64 host, u32 bytes) {
  MemoryBarrier b = load_barrier(host);
  b.bytes -= bytes;
  b.complete_if_done();
  store_barrier(host, b);
}

namespace {

// a = destination, b = source, c = bytes, e = mbarrier or none; aux: the offsets of the three
// addresses, bits: which of the address registers are 32 bits wide, then which blocks of the
// cluster are copied to, each at the same place with its own mbarrier (multicast; or none). imm:
// destination's space | source's << 4 | reduction << 8 | type << 12.
Flow bulk_copy(Warp& w, const Inst& in) {
  const u32* aux = w.block->aux + in.aux;
  const auto op = static_cast<BulkReduction>(in.imm >> 8 & 15);
  const auto type = static_cast<BulkType>(in.imm >> 12 & 15);
  const auto address_of = [&](u32 operand, u32 which, u32 lane) {
    const bool narrow = (aux[3] >> which & 1) != 0;
    const u64 address =
        lane_address(w, operand, narrow, lane) + static_cast<u64>(signed_offset(aux[which]));
    return narrow ? static_cast<u32>(address) : address;
  };
  // One destination: `place` is or-ed to where its addresses are in a block.
  const auto copy = [&](u32 lane, u32 bytes, u64 inside, u64 place) {
    if (bytes != 0) {
      const u64 to = resolve_lane_access(w, {static_cast<u32>(in.imm & 15), bytes, 16, true},
                                         (address_of(in.a, 0, lane) & inside) | place, lane);
      if (to == 0) return false;
      const u64 from =
          resolve_lane_access(w, {static_cast<u32>(in.imm >> 4 & 15), bytes, 16, false},
                              address_of(in.b, 1, lane), lane);
      if (from == 0) return false;
      if (op == BulkReduction::kNone)
        std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
      else
        reduce_bytes(op, type, to, reinterpret_cast<const u8*>(from), bytes);
    }
    if (in.e == kNoOperand) return true;
    const u64 host = resolve_lane_access(w, {kSpaceCluster, 8, 8, true},
                                         (address_of(in.e, 2, lane) & inside) | place, lane);
    if (host == 0) return false;
    complete_bytes(host, bytes);
    return true;
  };
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const u32 bytes = lane_u32(w, in.c, lane);
    if ((bytes & 15) != 0) return w.fault(FaultKind::kMisaligned, lane, bytes, bytes);
    if (aux[4] == kNoOperand) {
      if (!copy(lane, bytes, ~u64{0}, 0)) return Flow::kFault;
      continue;
    }
    for (u32 blocks = lane_u32(w, aux[4], lane) & 0xffff; blocks != 0; blocks &= blocks - 1) {
      const u64 rank = static_cast<u64>(__builtin_ctz(blocks));
      if (!copy(lane, bytes, kRankStride - 1, (rank + 1) << kRankShift)) return Flow::kFault;
    }
  }
  return Flow::kNext;
}

// a = destination, b = mbarrier, both of a block of the cluster. aux: their offsets, bits: which of
// the address registers are 32 bits wide, bytes of an element, elements, the elements. imm:
// reduction | type << 4.
Flow store_async(Warp& w, const Inst& in) {
  const u32* aux = w.block->aux + in.aux;
  const auto op = static_cast<BulkReduction>(in.imm & 15);
  const auto type = static_cast<BulkType>(in.imm >> 4 & 15);
  const u32 size = aux[3], bytes = size * aux[4];
  const auto resolve = [&](u32 operand, u32 which, u32 length, u32 lane) {
    const bool narrow = (aux[2] >> which & 1) != 0;
    const u64 address =
        lane_address(w, operand, narrow, lane) + static_cast<u64>(signed_offset(aux[which]));
    return resolve_lane_access(w, {kSpaceCluster, length, length, true},
                               narrow ? static_cast<u32>(address) : address, lane);
  };
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const u64 to = resolve(in.a, 0, bytes, lane);
    if (to == 0) return Flow::kFault;
    const u64 host = resolve(in.b, 1, 8, lane);
    if (host == 0) return Flow::kFault;
    u8 values[32];
    for (u32 k = 0; k < aux[4]; ++k) {
      const u64 value = size == 8 ? lane_u64(w, aux[5 + k], lane) : lane_u32(w, aux[5 + k], lane);
      std::memcpy(values + k * size, &value, size);
    }
    if (op == BulkReduction::kNone)
      std::memcpy(reinterpret_cast<void*>(to), values, bytes);
    else
      reduce_bytes(op, type, to, values, bytes);
    complete_bytes(host, bytes);
  }
  return Flow::kNext;
}

}  // namespace

void fill_async(Handler* table) { SLUICE_EXEC_ASYNC_OPS(SLUICE_EXEC_FILL_PLAIN) }

}  // namespace sluice::exec::detail
