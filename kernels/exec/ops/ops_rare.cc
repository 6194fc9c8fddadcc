// SPDX-License-Identifier: Apache-2.0
// See ops_rare.h. Semantics: PTX ISA 9.0, "Video Instructions", "atom".
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/ops/lane_memory.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/rare.h"

namespace sluice::exec::detail {
namespace {

uint32_t* target32(Warp& w, uint32_t operand) {
  return reinterpret_cast<uint32_t*>(w.regs + operand);
}
template <class F>
void each_lane(const Warp& w, F f) {
  for (uint32_t m = w.exec; m != 0; m &= m - 1) f(static_cast<uint32_t>(__builtin_ctz(m)));
}

Flow flush_f64(Warp& w, const Inst& in) {
  auto* d = reinterpret_cast<uint64_t*>(w.regs + in.d);
  each_lane(w, [&](uint32_t lane) {
    const uint64_t a = lane_u64(w, in.a, lane);
    d[lane] = (a & 0x7ff0000000000000ull) == 0 ? a & 0x8000000000000000ull : a;
  });
  return Flow::kNext;
}

// min and max of halves by their bits: the order of sign and magnitude is that of the numbers.
uint32_t min_max_half(uint32_t a, uint32_t b, bool is_max, uint32_t infinity) {
  const bool a_nan = (a & 0x7fff) > infinity, b_nan = (b & 0x7fff) > infinity;
  if (a_nan || b_nan) return a_nan && b_nan ? 0x7fff : a_nan ? b : a;
  const auto key = [](uint32_t v) {
    return (v & 0x8000) != 0 ? -static_cast<int32_t>(v & 0x7fff) - 1 : static_cast<int32_t>(v);
  };
  return (key(a) < key(b)) == is_max ? b : a;
}
// A byte, a half or all of a word, extended by its type.
int64_t part(uint32_t word, uint32_t selector, bool is_signed) {
  if (selector >= kSelectHalf) {
    const uint32_t v = word >> (selector - kSelectHalf) * 16 & 0xffff;
    return is_signed ? int64_t{static_cast<int16_t>(v)} : int64_t{v};
  }
  if (selector >= kSelectByte) {
    const uint32_t v = word >> (selector - kSelectByte) * 8 & 0xff;
    return is_signed ? int64_t{static_cast<int8_t>(v)} : int64_t{v};
  }
  return is_signed ? int64_t{static_cast<int32_t>(word)} : int64_t{word};
}
int64_t saturate(int64_t v, uint32_t bits, bool is_signed) {
  const int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t high = is_signed ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
  return std::clamp(v, low, high);
}
bool compare(int64_t a, int64_t b, uint32_t how) {
  switch (how) {
    case 0:
      return a == b;
    case 1:
      return a != b;
    case 2:
      return a < b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    default:
      return a >= b;
  }
}
int64_t operate(VideoOp op, int64_t a, int64_t b, uint32_t how) {
  switch (op) {
    case VideoOp::kAdd:
      return a + b;
    case VideoOp::kSub:
      return a - b;
    case VideoOp::kAbsDiff:
      return a < b ? b - a : a - b;
    case VideoOp::kMin:
      return std::min(a, b);
    case VideoOp::kMax:
      return std::max(a, b);
    case VideoOp::kAverage:  // halves are rounded away from zero above it, down below
      return a + b >= 0 ? (a + b + 1) >> 1 : (a + b) >> 1;
    case VideoOp::kSet:
      return compare(a, b, how) ? 1 : 0;
    case VideoOp::kShl:
    case VideoOp::kShr: {
      const int64_t n = how != 0 ? b & 31 : std::min<int64_t>(b, 32);
      return op == VideoOp::kShl ? static_cast<int64_t>(static_cast<uint64_t>(a) << n) : a >> n;
    }
  }
  return 0;
}

// aux: VideoForm, a word each.
Flow video(Warp& w, const Inst& in) {
  VideoForm f;
  std::memcpy(static_cast<void*>(&f), w.block->aux + in.aux, sizeof f);
  each_lane(w, [&](uint32_t lane) {
    const int64_t a = part(lane_u32(w, in.a, lane), f.a_select, f.a_signed != 0);
    const int64_t b = part(lane_u32(w, in.b, lane), f.b_select, f.b_signed != 0);
    const uint32_t c = in.c == kNoOperand ? 0 : lane_u32(w, in.c, lane);
    int64_t r = operate(static_cast<VideoOp>(f.op), a, b, f.how);
    const uint32_t bits = f.d_select >= kSelectHalf ? 16 : f.d_select >= kSelectByte ? 8 : 32;
    if (f.saturate != 0) r = saturate(r, bits, f.d_signed != 0);
    uint32_t v = static_cast<uint32_t>(r);
    if (f.second == kSecondAdd) v += c;
    if (f.second == kSecondMin || f.second == kSecondMax) {
      const bool less = f.d_signed != 0 ? static_cast<int32_t>(v) < static_cast<int32_t>(c) : v < c;
      v = less == (f.second == kSecondMin) ? v : c;
    }
    if (f.d_select != kSelectAll) {
      const uint32_t shift = f.d_select >= kSelectHalf ? (f.d_select - kSelectHalf) * 16
                                                       : (f.d_select - kSelectByte) * 8;
      const uint32_t mask = (bits == 16 ? 0xffffu : 0xffu) << shift;
      v = (v << shift & mask) | (c & ~mask);
    }
    target32(w, in.d)[lane] = v;
  });
  return Flow::kNext;
}

// Two halves or four bytes at once; a_select and b_select: a nibble per element, d_select: a mask.
Flow video_simd(Warp& w, const Inst& in) {
  VideoForm f;
  std::memcpy(static_cast<void*>(&f), w.block->aux + in.aux, sizeof f);
  const uint32_t elements = f.elements, bits = 32 / elements, ones = bits == 16 ? 0xffff : 0xff;
  each_lane(w, [&](uint32_t lane) {
    const uint64_t both = uint64_t{lane_u32(w, in.b, lane)} << 32 | lane_u32(w, in.a, lane);
    const uint32_t c = lane_u32(w, in.c, lane);
    const auto element = [&](uint32_t select, uint32_t k, bool is_signed) {
      const auto v = static_cast<uint32_t>(both >> (select >> 4 * k & 15) * bits) & ones;
      return part(v, bits == 16 ? kSelectHalf : kSelectByte, is_signed);
    };
    uint32_t r = f.second == kSecondAdd ? c : 0;
    for (uint32_t k = 0; k < elements; ++k) {
      const uint32_t shift = k * bits;
      if ((f.d_select >> k & 1) == 0) {
        if (f.second != kSecondAdd) r |= c & ones << shift;
        continue;
      }
      int64_t t = operate(static_cast<VideoOp>(f.op), element(f.a_select, k, f.a_signed != 0),
                          element(f.b_select, k, f.b_signed != 0), f.how);
      if (f.saturate != 0) t = saturate(t, bits, f.d_signed != 0);
      if (f.second == kSecondAdd)
        r += static_cast<uint32_t>(t);
      else
        r |= (static_cast<uint32_t>(t) & ones) << shift;
    }
    target32(w, in.d)[lane] = r;
  });
  return Flow::kNext;
}

Flow video_mad(Warp& w, const Inst& in) {
  VideoForm f;
  std::memcpy(static_cast<void*>(&f), w.block->aux + in.aux, sizeof f);
  __extension__ typedef __int128 Wide;
  each_lane(w, [&](uint32_t lane) {
    const int64_t a = part(lane_u32(w, in.a, lane), f.a_select, f.a_signed != 0);
    const int64_t b = part(lane_u32(w, in.b, lane), f.b_select, f.b_signed != 0);
    const uint32_t word = lane_u32(w, in.c, lane);
    const bool negate_product = (f.how & kMadNegateProduct) != 0,
               negate_c = (f.how & kMadNegateC) != 0;
    // c has the sign of the intermediate result.
    const bool middle_signed = f.a_signed != 0 || f.b_signed != 0 || negate_product;
    const bool is_signed = middle_signed || negate_c;
    Wide product = Wide{a} * b;
    if (negate_product) product = -product;
    Wide c = middle_signed ? Wide{static_cast<int32_t>(word)} : Wide{word};
    if (negate_c) c = -c;
    Wide sum = product + c + ((f.how & kMadPlusOne) != 0 ? 1 : 0);
    sum >>= (f.how & kMadShift7) != 0 ? 7 : (f.how & kMadShift15) != 0 ? 15 : 0;
    if (f.saturate != 0) {
      const Wide low = is_signed ? -(Wide{1} << 31) : 0;
      const Wide high = is_signed ? (Wide{1} << 31) - 1 : (Wide{1} << 32) - 1;
      sum = std::clamp(sum, low, high);
    }
    target32(w, in.d)[lane] = static_cast<uint32_t>(sum);
  });
  return Flow::kNext;
}

// Halves as numbers, for atomics: exact one way, rounded to nearest even the other.
double half_value(uint32_t bits, bool bf16) {
  if (bf16) {
    const uint32_t word = bits << 16;
    float f;
    std::memcpy(static_cast<void*>(&f), &word, 4);
    return f;
  }
  const uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  double v;
  if (exponent == 31)
    v = fraction != 0 ? std::nan("") : HUGE_VAL;
  else if (exponent == 0)
    v = std::ldexp(static_cast<double>(fraction), -24);
  else
    v = std::ldexp(static_cast<double>(fraction | 0x400), static_cast<int>(exponent) - 25);
  return (bits & 0x8000) != 0 ? -v : v;
}
uint32_t half_bits(double v, bool bf16) {
  if (std::isnan(v)) return 0x7fff;
  const uint32_t sign = std::signbit(v) ? 0x8000 : 0;
  v = std::fabs(v);
  const int fraction_bits = bf16 ? 7 : 10, least = bf16 ? -126 : -14, most = bf16 ? 127 : 15;
  const uint32_t infinity = bf16 ? 0x7f80 : 0x7c00;
  if (v == 0) return sign;
  if (std::isinf(v)) return sign | infinity;
  int exponent;
  std::frexp(v, &exponent);
  exponent = std::max(exponent - 1, least);
  // In units of the last place; nearbyint rounds to even.
  const double units = std::nearbyint(std::ldexp(v, fraction_bits - exponent));
  const auto n = static_cast<uint32_t>(units);
  const uint32_t one = 1u << fraction_bits;
  const uint32_t r =
      n < one ? n  // subnormal; it may round up to the least normal number
              : (static_cast<uint32_t>(exponent - least + 1) << fraction_bits) + (n - one);
  return sign | (exponent > most || r >= infinity ? infinity : r);
}

uint32_t combine_halves(uint32_t a, uint32_t b, const AtomVectorForm& f) {
  const bool bf16 = f.element == kElementBf16;
  if (f.op == 0) return half_bits(half_value(a, bf16) + half_value(b, bf16), bf16);
  return min_max_half(a, b, f.op == 2, bf16 ? 0x7f80 : 0x7c00);
}

// The sum as atom.add.f32 has it: subnormals are flushed in global memory.
uint32_t add_singles(uint32_t a, uint32_t b) {
  const auto flush = [](uint32_t v) { return (v & 0x7f800000u) == 0 ? v & 0x80000000u : v; };
  float x, y;
  const uint32_t xb = flush(a), yb = flush(b);
  std::memcpy(&x, &xb, 4);
  std::memcpy(&y, &yb, 4);
  const float sum = x + y;
  uint32_t bits;
  std::memcpy(&bits, &sum, 4);
  return sum != sum ? 0x7fffffffu : flush(bits);
}

uint32_t combine_element(uint32_t a, uint32_t b, const AtomVectorForm& f) {
  if (f.element == kElementF32) return add_singles(a, b);
  if (f.pairs != 0)
    return combine_halves(a & 0xffff, b & 0xffff, f) | combine_halves(a >> 16, b >> 16, f) << 16;
  return combine_halves(a, b & 0xffff, f);
}

// Returns what was there.
template <class T>
uint32_t update_element(uint64_t host, uint32_t k, uint32_t value, const AtomVectorForm& f) {
  T* const at = reinterpret_cast<T*>(host) + k;
  T old = __atomic_load_n(at, __ATOMIC_RELAXED), next;
  do next = static_cast<T>(combine_element(old, value, f));
  while (!__atomic_compare_exchange_n(at, &old, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return old;
}

// One element after the other: PTX promises atomicity of each, not of the vector. aux:
// AtomVectorForm, then the sources, then the destinations or none.
Flow atomic_vector(Warp& w, const Inst& in) {
  AtomVectorForm f;
  const uint32_t* aux = w.block->aux + in.aux;
  std::memcpy(static_cast<void*>(&f), aux, sizeof f);
  aux += sizeof f / 4;
  const uint32_t width = f.element == kElementF32 || f.pairs != 0 ? 4 : 2;
  const LaneAccess access{static_cast<uint32_t>(in.mod & kSpaceMask), width * f.count,
                          width * f.count, true};
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    const uint64_t address =
        ((in.mod & kModAddress32) != 0
             ? uint64_t{static_cast<uint32_t>(lane_u32(w, in.a, lane) + in.imm)}
             : lane_u64(w, in.a, lane) + static_cast<uint64_t>(in.imm));
    const uint64_t host = resolve_lane_access(w, access, address, lane);
    if (host == 0) return Flow::kFault;
    for (uint32_t k = 0; k < f.count; ++k) {
      const uint32_t value = lane_u32(w, aux[k], lane);
      const uint32_t old = width == 4 ? update_element<uint32_t>(host, k, value, f)
                                      : update_element<uint16_t>(host, k, value, f);
      if (f.returns != 0 && aux[f.count + k] != kNoOperand)
        target32(w, aux[f.count + k])[lane] = old;
    }
  }
  return Flow::kNext;
}

// exch and cas of 128 bits. They take a lock of ours: nothing else is atomic on 128 bits, and what
// mixes widths on one variable has no promise from PTX. aux: low and high of b, of c, of d.
Flow atomic_128(Warp& w, const Inst& in) {
  static std::atomic_flag lock = ATOMIC_FLAG_INIT;
  const uint32_t* aux = w.block->aux + in.aux;
  const LaneAccess access{static_cast<uint32_t>(in.mod & kSpaceMask), 16, 16, true};
  bool changes = false;
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    const uint64_t address = (in.mod & kModAddress32) != 0
                                 ? uint64_t{static_cast<uint32_t>(lane_u32(w, in.a, lane) + in.imm)}
                                 : lane_u64(w, in.a, lane) + static_cast<uint64_t>(in.imm);
    const uint64_t host = resolve_lane_access(w, access, address, lane);
    if (host == 0) return Flow::kFault;
    const bool cas = aux[2] != kNoOperand;
    const uint64_t b[2] = {lane_u64(w, aux[0], lane), lane_u64(w, aux[1], lane)};
    uint64_t next[2] = {b[0], b[1]}, old[2];
    if (cas) {
      next[0] = lane_u64(w, aux[2], lane);
      next[1] = lane_u64(w, aux[3], lane);
    }
    auto* at = reinterpret_cast<uint64_t*>(host);
    while (lock.test_and_set(std::memory_order_acquire)) {
    }
    for (int k = 0; k < 2; ++k) old[k] = __atomic_load_n(at + k, __ATOMIC_RELAXED);
    if (!cas || (old[0] == b[0] && old[1] == b[1])) {
      changes = changes || old[0] != next[0] || old[1] != next[1];
      for (int k = 0; k < 2; ++k) __atomic_store_n(at + k, next[k], __ATOMIC_RELAXED);
    }
    lock.clear(std::memory_order_release);
    for (int k = 0; k < 2; ++k)
      if (aux[4 + k] != kNoOperand) reinterpret_cast<uint64_t*>(w.regs + aux[4 + k])[lane] = old[k];
  }
  if (!changes) ++w.spin;
  return Flow::kNext;
}

// PTX ISA, "setmaxnreg": `.dec` reduces a warp's count to the number, `.inc` increases it (imm &
// 1). How many there are at the launch is not modelled: the first is always right.
Flow set_max_registers(Warp& w, const Inst& in) {
  const uint32_t to = static_cast<uint32_t>(in.imm) / 2;
  const bool more = (in.imm & 1) != 0;
  if (w.registers != 0 && (more ? to < w.registers : to > w.registers))
    return w.fault(FaultKind::kBadRegisters, static_cast<uint32_t>(__builtin_ctz(w.exec)), to, 0);
  w.registers = to;
  return Flow::kNext;
}

// isspacep.const (imm 1) and .global (imm 0): the module's constants lie among global addresses.
Flow is_const(Warp& w, const Inst& in) {
  uint32_t mask = 0;
  each_lane(w, [&](uint32_t lane) {
    const uint64_t address = lane_u64(w, in.a, lane);
    bool constant = false;
    for (const CachedRange& range : *w.block->constants)
      constant = constant || address - range.base < range.bytes;
    const bool yes = in.imm != 0 ? constant : address < kSharedWindow && !constant;
    mask |= static_cast<uint32_t>(yes) << lane;
  });
  w.set_pred(in.d, mask);
  return Flow::kNext;
}

// isspacep.shared::cta: shared memory of this block, by either of its addresses.
Flow is_own_shared(Warp& w, const Inst& in) {
  uint32_t mask = 0;
  each_lane(w, [&](uint32_t lane) {
    const uint64_t address = lane_u64(w, in.a, lane);
    const bool yes = (address & ~(kWindowBytes - 1)) == kSharedWindow &&
                     owner_of(*w.block, address & (kWindowBytes - 1)) == w.block;
    mask |= static_cast<uint32_t>(yes) << lane;
  });
  w.set_pred(in.d, mask);
  return Flow::kNext;
}

// mapa: what lies at `a` in this block's shared memory, in that of the block with rank b. imm: bit
// 0: the addresses are generic, bit 1: they are 64 bits wide. Where no such block is, the address
// is one that no access may use.
Flow map_address(Warp& w, const Inst& in) {
  constexpr uint64_t kNobody = 0xff;
  const bool generic = (in.imm & 1) != 0, wide = (in.imm & 2) != 0;
  each_lane(w, [&](uint32_t lane) {
    const uint64_t a = lane_address(w, in.a, !wide, lane);
    const uint64_t rank = lane_u32(w, in.b, lane);
    const uint64_t place = (rank < w.block->shape.cluster.count() ? rank + 1 : kNobody)
                           << kRankShift;
    const uint64_t inside = (a & (kRankStride - 1)) | place;
    if (wide)
      set_lane_u64(w, in.d, lane, generic ? kSharedWindow | inside : inside);
    else
      target32(w, in.d)[lane] = static_cast<uint32_t>(inside);
  });
  return Flow::kNext;
}
// getctarank: imm as above.
Flow rank_of_address(Warp& w, const Inst& in) {
  each_lane(w, [&](uint32_t lane) {
    const uint64_t a = lane_address(w, in.a, (in.imm & 2) == 0, lane);
    const auto place = static_cast<uint32_t>((a & (kWindowBytes - 1)) >> kRankShift);
    target32(w, in.d)[lane] = place == 0 ? w.block->rank : place - 1;
  });
  return Flow::kNext;
}

}  // namespace

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void fill_rare(Handler* table) { SLUICE_EXEC_RARE_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
