// SPDX-License-Identifier: Apache-2.0
// The arithmetic of random kernels: PTX on the left, what it means on the right. Written from the
// PTX manual, one value at a time, with nothing of kernels/exec: f32 and f64 by the host's own
// arithmetic in the wanted rounding mode, f16 by exact integers (random_half.h).
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/random/random_half.h"
#include "tests/support/random/random_kernel.h"
#include "tests/support/random/random_program.h"

namespace sluice::random_kernels {
namespace {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
__extension__ using s128 = __int128;
__extension__ using u128 = unsigned __int128;

u32 U(u64 v) { return static_cast<u32>(v); }
s32 S(u64 v) { return static_cast<s32>(v); }
s64 L(u64 v) { return static_cast<s64>(v); }
u16 H(u64 v) { return static_cast<u16>(v); }
s16 I(u64 v) { return static_cast<s16>(v); }
float F(u64 v) { return std::bit_cast<float>(U(v)); }
double D(u64 v) { return std::bit_cast<double>(v); }
u64 R(s64 v) { return static_cast<u32>(v); }  // to a b32 register
u64 H16(s64 v) { return static_cast<u16>(v); }
u64 f_bits(float v) { return std::isnan(v) ? 0x7fffffffu : std::bit_cast<u32>(v); }
u64 d_bits(double v) { return std::isnan(v) ? 0x7ff8000000000000ull : std::bit_cast<u64>(v); }
float flush(float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.f, v) : v; }
float saturate(float v) { return std::isnan(v) || v <= 0 ? 0.f : v > 1 ? 1.f : v; }

// In another rounding mode; the volatile operands keep the compiler from doing it beforehand.
template <class T, class Function>
T rounded(int mode, T a, T b, T c, Function function) {
  volatile T va = a, vb = b, vc = c;
  const int before = std::fegetround();
  std::fesetround(mode);
  volatile T result = function(va, vb, vc);
  std::fesetround(before);
  return result;
}

float minimum(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
float maximum(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class T>
T clamp_float(double v) {
  if (std::isnan(v)) return 0;
  if (v <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (v >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(v);
}
double in_mode(int mode, float v) {
  return rounded<double>(mode, v, 0, 0, [](double a, double, double) { return std::nearbyint(a); });
}

u64 bit_reverse(u64 v, int bits) {
  u64 r = 0;
  for (int i = 0; i < bits; ++i) r |= ((v >> i) & 1) << (bits - 1 - i);
  return r;
}
u64 population(u64 v) {
  u64 n = 0;
  for (; v != 0; v &= v - 1) ++n;
  return n;
}
u64 leading(u64 v, int bits) {
  for (int i = 0; i < bits; ++i)
    if (((v >> (bits - 1 - i)) & 1) != 0) return static_cast<u64>(i);
  return static_cast<u64>(bits);
}
// PTX ISA, bfe: the sign bit is at min(pos + len - 1, msb); bits above the operand are copies of
// it.
u64 extract(u64 a, u64 b, u64 c, int bits, bool is_signed) {
  const int msb = bits - 1;
  const int pos = static_cast<int>(b & 0xff), len = static_cast<int>(c & 0xff);
  const bool sign = is_signed && len != 0 && ((a >> std::min(pos + len - 1, msb)) & 1) != 0;
  u64 d = 0;
  for (int i = 0; i <= msb; ++i) {
    const bool from_a = i < len && pos + i <= msb;
    const u64 bit = from_a ? (a >> (pos + i)) & 1 : static_cast<u64>(sign);
    d |= bit << i;
  }
  return d;
}
u64 insert(u64 a, u64 b, u32 at, u32 count, int bits) {
  const int pos = static_cast<int>(at & 0xff), len = static_cast<int>(count & 0xff);
  u64 d = b;
  for (int i = 0; i < len && pos + i < bits; ++i)
    d = (d & ~(u64{1} << (pos + i))) | (((a >> i) & 1) << (pos + i));
  return d;
}
u64 permute(u64 a, u64 b, u64 c) {
  const u64 bytes = (b & 0xffffffff) << 32 | (a & 0xffffffff);
  u64 d = 0;
  for (int i = 0; i < 4; ++i) {
    const u64 selector = (c >> (4 * i)) & 15;
    u64 byte = (bytes >> (8 * (selector & 7))) & 0xff;
    if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    d |= byte << (8 * i);
  }
  return d;
}
template <class A, class B>
u64 dot4(u64 a, u64 b, u64 c) {
  s64 sum = 0;
  for (int i = 0; i < 4; ++i)
    sum += s64{static_cast<A>(a >> (8 * i))} * s64{static_cast<B>(b >> (8 * i))};
  return R(static_cast<s64>(c) + sum);
}
u64 logic(u64 a, u64 b, u64 c, u32 table) {
  u64 d = 0;
  for (int i = 0; i < 32; ++i) {
    const u64 row = ((a >> i) & 1) << 2 | ((b >> i) & 1) << 1 | ((c >> i) & 1);
    d |= u64{(table >> row) & 1} << i;
  }
  return d;
}

#define E(...)                     \
  [](u64 a, u64 b, u64 c) -> u64 { \
    (void)a;                       \
    (void)b;                       \
    (void)c;                       \
    return __VA_ARGS__;            \
  }
#define NAN32 "setp.nan.f32 %pt, $0, $0; selp.f32 $0, 0f7FFFFFFF, $0, %pt;"
#define NAN64 "setp.nan.f64 %pt, $0, $0; selp.f64 $0, 0d7FF8000000000000, $0, %pt;"
#define F32_MODE(name, mode, expression)                                          \
  E(f_bits(rounded<float>(mode, F(a), F(b), F(c), [](float x, float y, float z) { \
    (void)y;                                                                      \
    (void)z;                                                                      \
    return expression;                                                            \
  })))
#define F64_MODE(mode, expression)                                                    \
  E(d_bits(rounded<double>(mode, D(a), D(b), D(c), [](double x, double y, double z) { \
    (void)y;                                                                          \
    (void)z;                                                                          \
    return expression;                                                                \
  })))
#define COMPARE(type, sig, X)                                                          \
  {"setp.eq." type, sig, E(X(a) == X(b))}, {"setp.ne." type, sig, E(X(a) != X(b))},    \
      {"setp.lt." type, sig, E(X(a) < X(b))}, {"setp.le." type, sig, E(X(a) <= X(b))}, \
      {"setp.gt." type, sig, E(X(a) > X(b))}, {                                        \
    "setp.ge." type, sig, E(X(a) >= X(b))                                              \
  }
#define COMPARE_FLOAT(type, sig, X)                                                                \
  {"setp.eq." type, sig, E(X(a) == X(b)), true},                                                   \
      {"setp.ne." type, sig, E(X(a) < X(b) || X(a) > X(b)), true},                                 \
      {"setp.lt." type, sig, E(X(a) < X(b)), true}, {"setp.le." type, sig, E(X(a) <= X(b)), true}, \
      {"setp.equ." type, sig, E(!(X(a) < X(b) || X(a) > X(b))), true},                             \
      {"setp.neu." type, sig, E(!(X(a) == X(b))), true},                                           \
      {"setp.ltu." type, sig, E(!(X(a) >= X(b))), true},                                           \
      {"setp.geu." type, sig, E(!(X(a) < X(b))), true},                                            \
      {"setp.gtu." type, sig, E(!(X(a) <= X(b))), true},                                           \
      {"setp.num." type, sig, E(!std::isnan(X(a)) && !std::isnan(X(b))), true}, {                  \
    "setp.nan." type, sig, E(std::isnan(X(a)) || std::isnan(X(b))), true                           \
  }

const OpRow kRows[] = {
    // 32 bits
    {"mov.u32", "rr", E(a)},
    {"add.u32", "rrr", E(R(L(a + b)))},
    {"add.s32", "rrr", E(R(L(a + b)))},
    {"sub.u32", "rrr", E(R(L(a - b)))},
    {"add.sat.s32", "rrr",
     E(R(std::min<s64>(std::max<s64>(s64{S(a)} + S(b), INT32_MIN), INT32_MAX)))},
    {"sub.sat.s32", "rrr",
     E(R(std::min<s64>(std::max<s64>(s64{S(a)} - S(b), INT32_MIN), INT32_MAX)))},
    {"mul.lo.u32", "rrr", E(R(L(u64{U(a)} * U(b))))},
    {"mul.lo.s32", "rrr", E(R(L(u64{U(a)} * U(b))))},
    {"mul.hi.u32", "rrr", E((u64{U(a)} * U(b)) >> 32)},
    {"mul.hi.s32", "rrr", E(R((s64{S(a)} * S(b)) >> 32))},
    {"mad.lo.u32", "rrrr", E(R(L(u64{U(a)} * U(b) + c)))},
    {"mad.hi.s32", "rrrr", E(R(((s64{S(a)} * S(b)) >> 32) + S(c)))},
    {"mad.hi.u32", "rrrr", E(R(L(((u64{U(a)} * U(b)) >> 32) + c)))},
    {"mul24.lo.u32", "rrr", E(R(L((a & 0xffffff) * (b & 0xffffff))))},
    {"mul24.lo.s32", "rrr", E(R(s64{S(a << 8) >> 8} * (S(b << 8) >> 8)))},
    {"mad24.lo.u32", "rrrr", E(R(L((a & 0xffffff) * (b & 0xffffff) + c)))},
    {"sad.u32", "rrrr", E(R(L(c + (U(a) < U(b) ? U(b) - U(a) : U(a) - U(b)))))},
    {"sad.s32", "rrrr", E(R(L(c) + (S(a) < S(b) ? s64{S(b)} - S(a) : s64{S(a)} - S(b))))},
    {"or.b32 %rt, $2, 1; div.u32 $0, $1, %rt;", "rrr", E(U(a) / (U(b) | 1))},
    {"or.b32 %rt, $2, 1; rem.u32 $0, $1, %rt;", "rrr", E(U(a) % (U(b) | 1))},
    {"and.b32 %rt, $2, 65535; add.u32 %rt, %rt, 2; div.s32 $0, $1, %rt;", "rrr",
     E(R(S(a) / (S(b & 65535) + 2)))},
    {"and.b32 %rt, $2, 65535; sub.s32 %rt, -2, %rt; rem.s32 $0, $1, %rt;", "rrr",
     E(R(S(a) % (-2 - S(b & 65535))))},
    {"abs.s32", "rr", E(S(a) < 0 ? R(-s64{S(a)}) : a)},
    {"neg.s32", "rr", E(R(-s64{S(a)}))},
    {"min.u32", "rrr", E(std::min(U(a), U(b)))},
    {"min.s32", "rrr", E(R(std::min(S(a), S(b))))},
    {"max.u32", "rrr", E(std::max(U(a), U(b)))},
    {"max.s32", "rrr", E(R(std::max(S(a), S(b))))},
    {"and.b32", "rrr", E(a& b)},
    {"or.b32", "rrr", E(a | b)},
    {"xor.b32", "rrr", E(a ^ b)},
    {"not.b32", "rr", E(R(L(~a)))},
    {"cnot.b32", "rr", E(a == 0)},
    {"shl.b32", "rrr", E(b > 31 ? 0 : R(L(a << b)))},
    {"shr.u32", "rrr", E(b > 31 ? 0 : a >> b)},
    {"shr.s32", "rrr", E(R(S(a) >> std::min<u64>(b, 31)))},
    {"shf.l.wrap.b32", "rrrr", E(R(L(((b << 32 | a) << (c & 31)) >> 32)))},
    {"shf.r.wrap.b32", "rrrr", E(R(L((b << 32 | a) >> (c & 31))))},
    {"shf.l.clamp.b32", "rrrr", E(R(L(((b << 32 | a) << std::min<u64>(c, 32)) >> 32)))},
    {"shf.r.clamp.b32", "rrrr", E(R(L((b << 32 | a) >> std::min<u64>(c, 32))))},
    // Beyond 255 the manual says "modulo 256" and the hardware saturates, so they stay below.
    {"and.b32 %rt, $2, 255; bfe.u32 $0, $1, %rt, 9;", "rrr", E(extract(a, b, 9, 32, false))},
    {"and.b32 %rt, $2, 255; bfe.s32 $0, $1, 7, %rt;", "rrr", E(extract(a, 7, b, 32, true))},
    {"bfi.b32 $0, $1, $2, $3, 9;", "rrrr", E(insert(a, b, U(c), 9, 32))},
    {"and.b32 %rt, $3, 127; bfi.b64 $0, $1, $2, %rt, 21;", "qqqr",
     E(insert(a, b, U(c & 127), 21, 64))},
    {"brev.b32", "rr", E(bit_reverse(a, 32))},
    {"clz.b32", "rr", E(leading(a, 32))},
    {"popc.b32", "rr", E(population(a))},
    {"bfind.u32", "rr", E(a == 0 ? 0xffffffffu : 31 - leading(a, 32))},
    {"bfind.s32", "rr", E([](u64 v) {
       return v == 0 ? u64{0xffffffffu} : 31 - leading(v, 32);
     }(S(a) < 0 ? R(L(~a)) : a))},
    {"bfind.shiftamt.u32", "rr", E(a == 0 ? 0xffffffffu : leading(a, 32))},
    {"prmt.b32", "rrrr", E(permute(a, b, c))},
    {"lop3.b32 $0, $1, $2, $3, 0x96;", "rrrr", E(logic(a, b, c, 0x96))},
    {"lop3.b32 $0, $1, $2, $3, 0xca;", "rrrr", E(logic(a, b, c, 0xca))},
    {"lop3.b32 $0, $1, $2, $3, 0x1b;", "rrrr", E(logic(a, b, c, 0x1b))},
    {"dp4a.u32.u32", "rrrr", E(dot4<u8, u8>(a, b, c))},
    {"dp4a.s32.s32", "rrrr", E(dot4<s8, s8>(a, b, c))},
    {"dp4a.s32.u32", "rrrr", E(dot4<s8, u8>(a, b, c))},
    {"selp.b32", "rrrp", E((c & 1) != 0 ? a : b)},
    {"slct.u32.s32", "rrrr", E(S(c) >= 0 ? a : b)},
    {"set.lt.u32.s32", "rrr", E(S(a) < S(b) ? 0xffffffffu : 0)},
    {"set.ne.u32.u32", "rrr", E(a != b ? 0xffffffffu : 0)},
    {"add.cc.u32 %rt, $1, $2; addc.u32 $0, $3, 0;", "rrrr", E(R(L(c + ((a + b) >> 32))))},
    {"sub.cc.u32 %rt, $1, $2; subc.u32 $0, $3, 0;", "rrrr", E(R(L(c - (a < b))))},
    {"mad.lo.cc.u32 %rt, $1, $2, $3; madc.hi.u32 $0, $1, $2, 0;", "rrrr",
     E((u64{U(a)} * U(b) + c) >> 32)},
    {"cvt.s32.s8", "rr", E(R(static_cast<s8>(a)))},
    {"cvt.u32.u8", "rr", E(a & 0xff)},
    {"cvt.s32.s16 $0, $1;", "rh", E(R(I(a)))},
    {"cvt.u32.u16 $0, $1;", "rh", E(a & 0xffff)},
    {"cvt.sat.s8.s32", "rr", E(R(std::min(std::max(S(a), -128), 127)))},
    {"cvt.sat.u8.s32", "rr", E(R(std::min(std::max(S(a), 0), 255)))},
    {"cvt.sat.u16.u32 %ht, $1; cvt.u32.u16 $0, %ht;", "rr", E(std::min(U(a), 65535u))},
    {"cvt.u32.u64", "rq", E(a & 0xffffffff)},
    {"cvt.sat.s32.s64", "rq", E(R(std::min<s64>(std::max<s64>(L(a), INT32_MIN), INT32_MAX)))},
    {"mov.b64 {%rt, $0}, $1;", "rq", E(a >> 32)},
    {"mov.b32 $0, {$1, $2};", "rhh", E((a & 0xffff) | (b & 0xffff) << 16)},
    {"selp.u32 $0, 1, 0, $1;", "rp", E(a & 1)},
    // 64 bits
    {"mov.u64", "qq", E(a)},
    {"add.s64", "qqq", E(a + b)},
    {"sub.s64", "qqq", E(a - b)},
    {"mul.lo.s64", "qqq", E(a* b)},
    {"mul.hi.u64", "qqq", E(static_cast<u64>((u128{a} * b) >> 64))},
    {"mul.hi.s64", "qqq", E(static_cast<u64>((s128{L(a)} * L(b)) >> 64))},
    {"mad.lo.u64", "qqqq", E(a* b + c)},
    {"mul.wide.u32", "qrr", E(u64{U(a)} * U(b))},
    {"mul.wide.s32", "qrr", E(static_cast<u64>(s64{S(a)} * S(b)))},
    {"mad.wide.u32", "qrrq", E(u64{U(a)} * U(b) + c)},
    {"mad.wide.s32", "qrrq", E(static_cast<u64>(s64{S(a)} * S(b)) + c)},
    {"or.b64 %qt, $2, 1; div.u64 $0, $1, %qt;", "qqq", E(a / (b | 1))},
    {"or.b64 %qt, $2, 1; rem.u64 $0, $1, %qt;", "qqq", E(a % (b | 1))},
    {"and.b64", "qqq", E(a& b)},
    {"or.b64", "qqq", E(a | b)},
    {"xor.b64", "qqq", E(a ^ b)},
    {"not.b64", "qq", E(~a)},
    {"neg.s64", "qq", E(0 - a)},
    {"abs.s64", "qq", E(L(a) < 0 ? 0 - a : a)},
    {"min.s64", "qqq", E(static_cast<u64>(std::min(L(a), L(b))))},
    {"max.u64", "qqq", E(std::max(a, b))},
    {"shl.b64", "qqr", E(b > 63 ? 0 : a << b)},
    {"shr.u64", "qqr", E(b > 63 ? 0 : a >> b)},
    {"shr.s64", "qqr", E(static_cast<u64>(L(a) >> std::min<u64>(b, 63)))},
    {"and.b32 %rt, $2, 255; bfe.u64 $0, $1, %rt, 23;", "qqr", E(extract(a, b, 23, 64, false))},
    {"and.b32 %rt, $2, 255; bfe.s64 $0, $1, 11, %rt;", "qqr", E(extract(a, 11, b, 64, true))},
    {"popc.b64", "rq", E(population(a))},
    {"clz.b64", "rq", E(leading(a, 64))},
    {"brev.b64", "qq", E(bit_reverse(a, 64))},
    {"selp.b64", "qqqp", E((c & 1) != 0 ? a : b)},
    {"cvt.u64.u32", "qr", E(a)},
    {"cvt.s64.s32", "qr", E(static_cast<u64>(s64{S(a)}))},
    {"mov.b64 $0, {$1, $2};", "qrr", E(a | b << 32)},
    // 16 bits
    {"add.u16", "hhh", E(H16(L(a + b)))},
    {"sub.s16", "hhh", E(H16(L(a - b)))},
    {"mul.lo.u16", "hhh", E(H16(L(a* b)))},
    {"mul.hi.s16", "hhh", E(H16((s64{I(a)} * I(b)) >> 16))},
    {"mad.lo.u16", "hhhh", E(H16(L(a* b + c)))},
    {"mul.wide.s16", "rhh", E(R(s64{I(a)} * I(b)))},
    {"mul.wide.u16", "rhh", E(R(s64{H(a)} * H(b)))},
    {"mad.wide.u16", "rhhr", E(R(L(u64{H(a)} * H(b) + c)))},
    {"min.s16", "hhh", E(H16(std::min(I(a), I(b))))},
    {"max.u16", "hhh", E(std::max(H(a), H(b)))},
    {"neg.s16", "hh", E(H16(-s64{I(a)}))},
    {"and.b16", "hhh", E(a& b)},
    {"xor.b16", "hhh", E(a ^ b)},
    {"not.b16", "hh", E(H16(L(~a)))},
    {"shl.b16", "hhr", E(b > 15 ? 0 : H16(L(a << b)))},
    {"shr.u16", "hhr", E(b > 15 ? 0 : H(a) >> b)},
    {"shr.s16", "hhr", E(H16(I(a) >> std::min<u64>(b, 15)))},
    {"cvt.u16.u32", "hr", E(a & 0xffff)},
    {"selp.b16", "hhhp", E((c & 1) != 0 ? a : b)},
    // predicates
    COMPARE("u32", "prr", U),
    COMPARE("s32", "prr", S),
    COMPARE("s64", "pqq", L),
    COMPARE("s16", "phh", I),
    {"setp.lt.and.s32 $0, $1, $2, $3;", "prrp", E(S(a) < S(b) && (c & 1) != 0)},
    {"setp.ge.or.u32 $0, $1, $2, $3;", "prrp", E(U(a) >= U(b) || (c & 1) != 0)},
    {"setp.ne.xor.u32 $0, $1, $2, !$3;", "prrp", E((U(a) != U(b)) != ((c & 1) == 0))},
    {"setp.lo.u32", "prr", E(U(a) < U(b))},
    {"setp.hs.u32", "prr", E(U(a) >= U(b))},
    {"and.pred", "ppp", E(a& b & 1)},
    {"or.pred", "ppp", E((a | b) & 1)},
    {"xor.pred", "ppp", E((a ^ b) & 1)},
    {"not.pred", "pp", E(~a & 1)},
    {"mov.pred", "pp", E(a & 1)},
    // f32
    {"mov.f32", "ff", E(a), true},
    {"mov.b32", "fr", E(a), true},
    {"mov.b32", "rf", E(a), true},
    {"add.f32", "fff", F32_MODE(add, FE_TONEAREST, x + y), true},
    {"add.rz.f32", "fff", F32_MODE(add, FE_TOWARDZERO, x + y), true},
    {"add.rm.f32", "fff", F32_MODE(add, FE_DOWNWARD, x + y), true},
    {"sub.rp.f32", "fff", F32_MODE(sub, FE_UPWARD, x - y), true},
    {"sub.f32", "fff", F32_MODE(sub, FE_TONEAREST, x - y), true},
    {"mul.f32", "fff", F32_MODE(mul, FE_TONEAREST, x* y), true},
    {"mul.rz.f32", "fff", F32_MODE(mul, FE_TOWARDZERO, x* y), true},
    {"mul.rp.f32", "fff", F32_MODE(mul, FE_UPWARD, x* y), true},
    {"fma.rn.f32", "ffff", F32_MODE(fma, FE_TONEAREST, std::fma(x, y, z)), true},
    {"fma.rm.f32", "ffff", F32_MODE(fma, FE_DOWNWARD, std::fma(x, y, z)), true},
    {"fma.rz.f32", "ffff", F32_MODE(fma, FE_TOWARDZERO, std::fma(x, y, z)), true},
    {"add.ftz.f32", "fff", E(f_bits(flush(flush(F(a)) + flush(F(b))))), true},
    {"mul.ftz.f32", "fff", E(f_bits(flush(flush(F(a)) * flush(F(b))))), true},
    {"add.sat.f32", "fff", E(f_bits(saturate(F(a) + F(b)))), true},
    {"fma.rn.sat.f32", "ffff", E(f_bits(saturate(std::fma(F(a), F(b), F(c))))), true},
    {"div.rn.f32", "fff", E(f_bits(F(a) / F(b))), true},
    {"div.rz.f32", "fff", F32_MODE(div, FE_TOWARDZERO, x / y), true},
    {"rcp.rn.f32", "ff", E(f_bits(1.f / F(a))), true},
    {"sqrt.rn.f32", "ff", E(f_bits(std::sqrt(F(a)))), true},
    {"sqrt.rp.f32", "ff", F32_MODE(sqrt, FE_UPWARD, std::sqrt(x)), true},
    {"abs.f32 $0, $1;" NAN32, "ff", E(f_bits(std::fabs(F(a)))), true},
    {"neg.f32 $0, $1;" NAN32, "ff", E(f_bits(-F(a))), true},
    {"min.f32", "fff", E(f_bits(minimum(F(a), F(b)))), true},
    {"max.f32", "fff", E(f_bits(maximum(F(a), F(b)))), true},
    {"min.NaN.f32", "fff",
     E(f_bits(std::isnan(F(a)) || std::isnan(F(b)) ? NAN : minimum(F(a), F(b)))), true},
    {"copysign.f32", "fff", E((b & 0x7fffffff) | (a & 0x80000000)), true},
    {"selp.f32", "fffp", E((c & 1) != 0 ? a : b), true},
    {"slct.f32.s32", "fffr", E(S(c) >= 0 ? a : b), true},
    {"testp.subnormal.f32", "pf", E(std::fpclassify(F(a)) == FP_SUBNORMAL), true},
    {"testp.finite.f32", "pf", E(std::isfinite(F(a))), true},
    COMPARE_FLOAT("f32", "pff", F),
    {"cvt.rn.f32.s32", "fr", E(f_bits(static_cast<float>(S(a)))), true},
    {"cvt.rn.f32.u32", "fr", E(f_bits(static_cast<float>(U(a)))), true},
    {"cvt.rz.f32.s32", "fr",
     E(f_bits(rounded<float>(FE_TOWARDZERO, 0, 0, 0,
                             [v = S(a)](float, float, float) {
                               volatile s32 x = v;
                               return static_cast<float>(x);
                             }))),
     true},
    {"cvt.rn.f32.s64", "fq", E(f_bits(static_cast<float>(L(a)))), true},
    {"cvt.rn.f32.u64", "fq", E(f_bits(static_cast<float>(a))), true},
    {"cvt.rni.s32.f32", "rf", E(R(clamp_float<s32>(in_mode(FE_TONEAREST, F(a))))), true},
    {"cvt.rzi.s32.f32", "rf", E(R(clamp_float<s32>(in_mode(FE_TOWARDZERO, F(a))))), true},
    {"cvt.rmi.s32.f32", "rf", E(R(clamp_float<s32>(in_mode(FE_DOWNWARD, F(a))))), true},
    {"cvt.rzi.u32.f32", "rf", E(clamp_float<u32>(in_mode(FE_TOWARDZERO, F(a)))), true},
    {"cvt.rpi.u32.f32", "rf", E(clamp_float<u32>(in_mode(FE_UPWARD, F(a)))), true},
    {"cvt.rni.f32.f32", "ff", E(f_bits(static_cast<float>(in_mode(FE_TONEAREST, F(a))))), true},
    {"cvt.rzi.f32.f32", "ff", E(f_bits(static_cast<float>(in_mode(FE_TOWARDZERO, F(a))))), true},
    {"cvt.sat.f32.f32", "ff", E(f_bits(saturate(F(a)))), true},
    // f16 and bf16
    {"add.f16", "hhh", E(half_add(H(a), H(b))), true},
    {"sub.f16", "hhh", E(half_nan(H(b)) ? u16{0x7fff} : half_add(H(a), half_negate(H(b)))), true},
    {"mul.f16", "hhh", E(half_fma(H(a), H(b), 0, false)), true},
    {"fma.rn.f16", "hhhh", E(half_fma(H(a), H(b), H(c), true)), true},
    {"add.f16x2", "rrr", E(half_pair(a, b, 0, [](u16 x, u16 y, u16) { return half_add(x, y); })),
     true},
    {"mul.f16x2", "rrr",
     E(half_pair(a, b, 0, [](u16 x, u16 y, u16) { return half_fma(x, y, 0, false); })), true},
    {"fma.rn.f16x2", "rrrr",
     E(half_pair(a, b, c, [](u16 x, u16 y, u16 z) { return half_fma(x, y, z, true); })), true},
    {"setp.lt.f16", "phh", E(float_of_half(H(a)) < float_of_half(H(b))), true},
    {"setp.neu.f16", "phh", E(!(float_of_half(H(a)) == float_of_half(H(b)))), true},
    {"cvt.rn.f16.f32", "hf", E(half_of_float(F(a))), true},
    {"cvt.f32.f16 $0, $1;" NAN32, "fh", E(f_bits(float_of_half(H(a)))), true},
    {"cvt.rn.bf16.f32", "hf", E(bf16_of_float(F(a))), true},
    {"cvt.rn.f16x2.f32", "rff", E(u64{half_of_float(F(a))} << 16 | half_of_float(F(b))), true},
    // f64: a NaN's payload, and what it converts to, is the machine's, so it is made canonical
    {"add.f64 $0, $1, $2;" NAN64, "ddd", F64_MODE(FE_TONEAREST, x + y), true},
    {"sub.rz.f64 $0, $1, $2;" NAN64, "ddd", F64_MODE(FE_TOWARDZERO, x - y), true},
    {"mul.f64 $0, $1, $2;" NAN64, "ddd", F64_MODE(FE_TONEAREST, x* y), true},
    {"mul.rm.f64 $0, $1, $2;" NAN64, "ddd", F64_MODE(FE_DOWNWARD, x* y), true},
    {"fma.rn.f64 $0, $1, $2, $3;" NAN64, "dddd", F64_MODE(FE_TONEAREST, std::fma(x, y, z)), true},
    {"fma.rp.f64 $0, $1, $2, $3;" NAN64, "dddd", F64_MODE(FE_UPWARD, std::fma(x, y, z)), true},
    {"div.rn.f64 $0, $1, $2;" NAN64, "ddd", F64_MODE(FE_TONEAREST, x / y), true},
    {"sqrt.rn.f64 $0, $1;" NAN64, "dd", F64_MODE(FE_TONEAREST, std::sqrt(x)), true},
    {"selp.f64", "dddp", E((c & 1) != 0 ? a : b), true},
    COMPARE_FLOAT("f64", "pdd", D),
    {"cvt.f64.f32 $0, $1;" NAN64, "df", E(d_bits(static_cast<double>(F(a)))), true},
    {"cvt.rn.f64.s64", "dq", E(d_bits(static_cast<double>(L(a)))), true},
    {"cvt.rn.f64.u64", "dq", E(d_bits(static_cast<double>(a))), true},
    {"cvt.rn.f64.s32", "dr", E(d_bits(static_cast<double>(S(a)))), true},
    {"cvt.rn.f32.f64 $0, $1;" NAN32, "fd", E(f_bits(static_cast<float>(D(a)))), true},
    {"cvt.rzi.s32.f64 $0, $1; setp.nan.f64 %pt, $1, $1; selp.b32 $0, 0, $0, %pt;", "rd",
     E(R(clamp_float<s32>(std::trunc(D(a))))), true},
    {"mov.b64", "dq", E(a), true},
    {"mov.b64 %qt, $1; xor.b64 $0, %qt, 1;", "qd", E(a ^ 1), true},
};

u64 commutative_float(u64 memory, u64 value) { return f_bits(F(memory) + F(value)); }

const AtomicRow kAtomics[] = {
    {"add.u32", 'r', 4, [](u64 m, u64 v) { return R(L(m + v)); }},
    {"add.u64", 'q', 8, [](u64 m, u64 v) { return m + v; }},
    {"min.u32", 'r', 4, [](u64 m, u64 v) { return std::min(m, v); }},
    {"max.s32", 'r', 4, [](u64 m, u64 v) { return R(std::max(S(m), S(v))); }},
    {"and.b32", 'r', 4, [](u64 m, u64 v) { return m & v; }},
    {"or.b32", 'r', 4, [](u64 m, u64 v) { return m | v; }},
    {"xor.b32", 'r', 4, [](u64 m, u64 v) { return m ^ v; }},
    {"max.u64", 'q', 8, [](u64 m, u64 v) { return std::max(m, v); }},
    {"min.s64", 'q', 8, [](u64 m, u64 v) { return static_cast<u64>(std::min(L(m), L(v))); }},
    {"xor.b64", 'q', 8, [](u64 m, u64 v) { return m ^ v; }},
    // The generator gives small whole numbers, whose sums are exact in any order.
    {"add.f32", 'f', 4, commutative_float},
    // All with the bound 1000: the result is their number modulo 1001.
    {"inc.u32", 'r', 4, [](u64 m, u64) { return m >= 1000 ? u64{0} : m + 1; }},
};

}  // namespace

uint32_t class_index(char c) {
  for (uint32_t k = 0; k < kClassCount; ++k)
    if (kClasses[k] == c) return k;
  return 0;
}

std::span<const OpRow> op_rows() { return kRows; }
uint32_t operation_count() { return static_cast<uint32_t>(std::size(kRows)); }
const char* operation_text(uint32_t operation) { return kRows[operation].ptx; }
std::span<const AtomicRow> atomic_rows() { return kAtomics; }

}  // namespace sluice::random_kernels
