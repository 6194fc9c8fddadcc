// SPDX-License-Identifier: Apache-2.0
// The families of single instructions: integers, floats, conversions, warps, memory. The narrower
// formats are in instructions_narrow.cc.
#include "tests/conformance/builder.h"

namespace sluice::conformance {
namespace {

struct IntegerType {
  const char* name;
  Kind kind, divisor;
};
const IntegerType kIntegers[] = {
    {"u16", Kind::kB16, Kind::kDivisor16}, {"s16", Kind::kB16, Kind::kDivisor16},
    {"u32", Kind::kB32, Kind::kDivisor},   {"s32", Kind::kB32, Kind::kDivisor},
    {"u64", Kind::kB64, Kind::kDivisor64}, {"s64", Kind::kB64, Kind::kDivisor64}};
}  // namespace

void integer_cases(Builder& b) {
  for (const IntegerType& t : kIntegers) {
    const std::string n = std::string(".") + t.name;
    for (const char* op : {"add", "sub", "mul.lo", "mul.hi", "min", "max"})
      b.binary(op + n, t.kind, t.kind, t.kind);
    b.binary("div" + n, t.kind, t.kind, t.divisor);
    b.binary("rem" + n, t.kind, t.kind, t.divisor);
    for (const char* op : {"mad.lo", "mad.hi"}) b.ternary(op + n, t.kind, t.kind, t.kind, t.kind);
    b.ternary("sad" + n, t.kind, t.kind, t.kind, t.kind);
    if (t.name[0] == 's') {
      b.unary("abs" + n, t.kind, t.kind);
      b.unary("neg" + n, t.kind, t.kind);
    }
    for (const char* cmp : {"eq", "ne", "lt", "le", "gt", "ge"})
      b.binary(std::string("setp.") + cmp + n, Kind::kPred, t.kind, t.kind);
    b.binary("shr" + n, t.kind, t.kind, Kind::kShift);
    if (t.kind != Kind::kB64) {
      const Kind wide = t.kind == Kind::kB16 ? Kind::kB32 : Kind::kB64;
      b.binary("mul.wide" + n, wide, t.kind, t.kind);
      b.ternary("mad.wide" + n, wide, t.kind, t.kind, wide);
    }
    if (t.kind != Kind::kB16) {
      b.ternary("bfe" + n, t.kind, t.kind, Kind::kShift, Kind::kShift);
      b.unary("bfind" + n, Kind::kB32, t.kind);
      b.unary("bfind.shiftamt" + n, Kind::kB32, t.kind);
    }
  }
  for (const char* n : {"u32", "s32"}) {
    for (const char* op : {"mul24.lo.", "mul24.hi."})
      b.binary(std::string(op) + n, Kind::kB32, Kind::kB32, Kind::kB32);
    for (const char* op : {"mad24.lo.", "mad24.hi."})
      b.ternary(std::string(op) + n, Kind::kB32, Kind::kB32, Kind::kB32, Kind::kB32);
    for (const char* mode : {"clamp", "wrap"}) {
      b.binary(std::string("szext.") + mode + "." + n, Kind::kB32, Kind::kB32, Kind::kShift);
    }
    for (const char* m : {"u32", "s32"}) {
      b.ternary(std::string("dp4a.") + n + "." + m, Kind::kB32, Kind::kB32, Kind::kB32, Kind::kB32);
      b.ternary(std::string("dp2a.lo.") + n + "." + m, Kind::kB32, Kind::kB32, Kind::kB32,
                Kind::kB32);
      b.ternary(std::string("dp2a.hi.") + n + "." + m, Kind::kB32, Kind::kB32, Kind::kB32,
                Kind::kB32);
    }
  }
  b.binary("bmsk.clamp.b32", Kind::kB32, Kind::kShift, Kind::kShift);
  b.binary("bmsk.wrap.b32", Kind::kB32, Kind::kShift, Kind::kShift);
  b.binary("add.sat.s32", Kind::kB32, Kind::kB32, Kind::kB32);
  b.binary("sub.sat.s32", Kind::kB32, Kind::kB32, Kind::kB32);
  b.ternary("mad.hi.sat.s32", Kind::kB32, Kind::kB32, Kind::kB32, Kind::kB32);
  for (const Kind k : {Kind::kB16, Kind::kB32, Kind::kB64}) {
    const std::string n = k == Kind::kB16 ? ".b16" : k == Kind::kB32 ? ".b32" : ".b64";
    for (const char* op : {"and", "or", "xor"}) b.binary(op + n, k, k, k);
    b.unary("not" + n, k, k);
    b.unary("cnot" + n, k, k);
    b.binary("shl" + n, k, k, Kind::kShift);
    b.add("selp" + n + " $d, $a, $b, $c;", k, k, k, Kind::kPred);
    b.ternary("slct" + n + ".s32", k, k, k, Kind::kB32);
    b.ternary("slct" + n + ".f32", k, k, k, Kind::kF32);
    if (k == Kind::kB16) continue;
    b.unary("popc" + n, Kind::kB32, k);
    b.unary("clz" + n, Kind::kB32, k);
    b.unary("brev" + n, k, k);
    b.add("bfi" + n + " $d, $a, $b, $c, $e;", k, k, k, Kind::kShift, Kind::kShift);
  }
  for (const char* mode : {"l.wrap", "l.clamp", "r.wrap", "r.clamp"})
    b.ternary(std::string("shf.") + mode + ".b32", Kind::kB32, Kind::kB32, Kind::kB32,
              Kind::kShift);
  for (const char* mode : {"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"})
    b.ternary(std::string("prmt.b32") + mode, Kind::kB32, Kind::kB32, Kind::kB32, Kind::kB32);
  for (const int table : {0x96, 0xe8, 0xca, 0x1b, 0x80, 0xfe, 0x35})
    b.add("lop3.b32 $d, $a, $b, $c, " + std::to_string(table) + ";", Kind::kB32, Kind::kB32,
          Kind::kB32, Kind::kB32);
  // The base must be a lane; large offsets find nothing.
  b.add("and.b32 %r20, $b, 31; shr.s32 %r21, $c, 24; fns.b32 $d, $a, %r20, %r21;", Kind::kB32,
        Kind::kB32, Kind::kB32, Kind::kB32);
  // Carry chains: the high word shows the carry.
  b.add("add.cc.u32 $d, $a, $b; addc.cc.u32 $d, $c, $e; addc.u32 $d, $d, 0;", Kind::kB32,
        Kind::kB32, Kind::kB32, Kind::kB32, Kind::kB32);
  b.add("sub.cc.u32 $d, $a, $b; subc.cc.u32 $d, $c, $e; subc.u32 $d, $d, 0;", Kind::kB32,
        Kind::kB32, Kind::kB32, Kind::kB32, Kind::kB32);
  b.add("add.cc.u64 $d, $a, $b; addc.u64 $d, $c, $e;", Kind::kB64, Kind::kB64, Kind::kB64,
        Kind::kB64, Kind::kB64);
  b.add("sub.cc.u64 $d, $a, $b; subc.u64 $d, $c, $e;", Kind::kB64, Kind::kB64, Kind::kB64,
        Kind::kB64, Kind::kB64);
  b.add("mad.lo.cc.u32 $d, $a, $b, $c; madc.hi.u32 $d, $a, $b, $e;", Kind::kB32, Kind::kB32,
        Kind::kB32, Kind::kB32, Kind::kB32);
  b.add("mad.hi.cc.s32 $d, $a, $b, $c; madc.lo.s32 $d, $a, $b, $e;", Kind::kB32, Kind::kB32,
        Kind::kB32, Kind::kB32, Kind::kB32);
  b.add("setp.lt.and.s32 %p0, $a, $b, $c; selp.u32 $d, 7, 9, %p0;", Kind::kB32, Kind::kB32,
        Kind::kB32, Kind::kPred);
  b.add("setp.lt.or.s32 %p0|%p1, $a, $b, $c; selp.u32 $d, 1, 0, %p0; @%p1 add.u32 $d, $d, 2;",
        Kind::kB32, Kind::kB32, Kind::kB32, Kind::kPred);
  b.add("setp.ge.xor.u32 %p0|%p1, $a, $b, !$c; selp.u32 $d, 1, 0, %p0; @%p1 add.u32 $d, $d, 2;",
        Kind::kB32, Kind::kB32, Kind::kB32, Kind::kPred);
  b.binary("set.lt.u32.s32", Kind::kB32, Kind::kB32, Kind::kB32);
  b.binary("set.gt.f32.f32", Kind::kF32, Kind::kF32, Kind::kF32);
  for (const char* op : {"and", "or", "xor"})
    b.binary(std::string(op) + ".pred", Kind::kPred, Kind::kPred, Kind::kPred);
  b.unary("not.pred", Kind::kPred, Kind::kPred);
  // Vector moves.
  b.add("mov.b64 {%r20, %r21}, $a; mov.b64 $d, {%r21, %r20};", Kind::kB64, Kind::kB64);
  b.add("mov.b32 {%h20, %h21}, $a; mov.b32 $d, {%h21, %h20};", Kind::kB32, Kind::kB32);
  b.add("mov.b64 {%h20, %h21, %h22, %h23}, $a; mov.b64 $d, {%h23, %h20, %h22, %h21};", Kind::kB64,
        Kind::kB64);
}

void float_cases(Builder& b) {
  const char* const compares[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                  "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  for (const char* op : {"add", "sub", "mul", "div"}) {
    for (const char* round : {".rn", ".rz", ".rm", ".rp"}) {
      b.binary(std::string(op) + round + ".f32", Kind::kF32, Kind::kF32, Kind::kF32);
      b.binary(std::string(op) + round + ".f64", Kind::kF64, Kind::kF64, Kind::kF64);
    }
    b.binary(std::string(op) + ".rn.ftz.f32", Kind::kF32, Kind::kF32, Kind::kF32);
    if (op[0] != 'd') {
      b.binary(std::string(op) + ".rn.sat.f32", Kind::kF32, Kind::kF32, Kind::kF32);
      b.binary(std::string(op) + ".rz.ftz.sat.f32", Kind::kF32, Kind::kF32, Kind::kF32);
    }
  }
  for (const char* round : {".rn", ".rz", ".rm", ".rp"}) {
    b.ternary(std::string("fma") + round + ".f32", Kind::kF32, Kind::kF32, Kind::kF32, Kind::kF32);
    b.ternary(std::string("fma") + round + ".f64", Kind::kF64, Kind::kF64, Kind::kF64, Kind::kF64);
    for (const char* op : {"rcp", "sqrt"}) {
      b.unary(std::string(op) + round + ".f32", Kind::kF32, Kind::kF32);
      b.unary(std::string(op) + round + ".f64", Kind::kF64, Kind::kF64);
    }
  }
  b.ternary("fma.rn.ftz.f32", Kind::kF32, Kind::kF32, Kind::kF32, Kind::kF32);
  b.ternary("fma.rn.sat.f32", Kind::kF32, Kind::kF32, Kind::kF32, Kind::kF32);
  for (const char* op : {"min", "max"}) {
    for (const char* mode : {".f32", ".ftz.f32", ".NaN.f32", ".xorsign.abs.f32"})
      b.binary(std::string(op) + mode, Kind::kF32, Kind::kF32, Kind::kF32);
    b.binary(std::string(op) + ".f64", Kind::kF64, Kind::kF64, Kind::kF64);
    b.binary(std::string(op) + ".f16", Kind::kF16, Kind::kF16, Kind::kF16);
    b.binary(std::string(op) + ".f16x2", Kind::kF16x2, Kind::kF16x2, Kind::kF16x2);
    b.binary(std::string(op) + ".bf16", Kind::kBf16, Kind::kBf16, Kind::kBf16);
    b.binary(std::string(op) + ".bf16x2", Kind::kBf16x2, Kind::kBf16x2, Kind::kBf16x2);
  }
  for (const char* op : {"abs", "neg"}) {
    for (const char* mode : {".f32", ".ftz.f32"})
      b.unary(std::string(op) + mode, Kind::kF32, Kind::kF32);
    b.unary(std::string(op) + ".f64", Kind::kF64, Kind::kF64);
    b.unary(std::string(op) + ".f16", Kind::kF16, Kind::kF16);
    b.unary(std::string(op) + ".f16x2", Kind::kF16x2, Kind::kF16x2);
    b.unary(std::string(op) + ".bf16", Kind::kBf16, Kind::kBf16);
    b.unary(std::string(op) + ".bf16x2", Kind::kBf16x2, Kind::kBf16x2);
  }
  b.binary("copysign.f32", Kind::kF32, Kind::kF32, Kind::kF32);
  b.binary("copysign.f64", Kind::kF64, Kind::kF64, Kind::kF64);
  for (const char* property :
       {"finite", "infinite", "number", "notanumber", "normal", "subnormal"}) {
    b.unary(std::string("testp.") + property + ".f32", Kind::kPred, Kind::kF32);
    b.unary(std::string("testp.") + property + ".f64", Kind::kPred, Kind::kF64);
  }
  for (const char* cmp : compares) {
    b.binary(std::string("setp.") + cmp + ".f32", Kind::kPred, Kind::kF32, Kind::kF32);
    b.binary(std::string("setp.") + cmp + ".ftz.f32", Kind::kPred, Kind::kF32, Kind::kF32);
    b.binary(std::string("setp.") + cmp + ".f64", Kind::kPred, Kind::kF64, Kind::kF64);
    b.binary(std::string("setp.") + cmp + ".f16", Kind::kPred, Kind::kF16, Kind::kF16);
    b.binary(std::string("setp.") + cmp + ".bf16", Kind::kPred, Kind::kBf16, Kind::kBf16);
  }
  for (const char* op : {"add", "sub", "mul"}) {
    b.binary(std::string(op) + ".f16", Kind::kF16, Kind::kF16, Kind::kF16);
    b.binary(std::string(op) + ".sat.f16", Kind::kF16, Kind::kF16, Kind::kF16);
    b.binary(std::string(op) + ".f16x2", Kind::kF16x2, Kind::kF16x2, Kind::kF16x2);
    b.binary(std::string(op) + ".bf16", Kind::kBf16, Kind::kBf16, Kind::kBf16);
    b.binary(std::string(op) + ".bf16x2", Kind::kBf16x2, Kind::kBf16x2, Kind::kBf16x2);
  }
  b.ternary("fma.rn.f16", Kind::kF16, Kind::kF16, Kind::kF16, Kind::kF16);
  b.ternary("fma.rn.sat.f16", Kind::kF16, Kind::kF16, Kind::kF16, Kind::kF16);
  b.ternary("fma.rn.relu.f16", Kind::kF16, Kind::kF16, Kind::kF16, Kind::kF16);
  b.ternary("fma.rn.f16x2", Kind::kF16x2, Kind::kF16x2, Kind::kF16x2, Kind::kF16x2);
  b.ternary("fma.rn.bf16", Kind::kBf16, Kind::kBf16, Kind::kBf16, Kind::kBf16);
  b.ternary("fma.rn.relu.bf16", Kind::kBf16, Kind::kBf16, Kind::kBf16, Kind::kBf16);
  b.ternary("fma.rn.bf16x2", Kind::kBf16x2, Kind::kBf16x2, Kind::kBf16x2, Kind::kBf16x2);
  // Approximations: twice the manual's bound, for both sides err.
  b.unary("rcp.approx.f32", Kind::kF32, Kind::kPositive, 0x1p-22, 0x1p-149);
  b.unary("rcp.approx.ftz.f32", Kind::kF32, Kind::kPositive, 0x1p-22, 0x1p-126);
  b.unary("sqrt.approx.f32", Kind::kF32, Kind::kPositive, 0x1p-21);
  b.unary("rsqrt.approx.f32", Kind::kF32, Kind::kPositive, 0x1p-21);
  b.unary("rsqrt.approx.ftz.f32", Kind::kF32, Kind::kF32, 0x1p-21);
  b.unary("sin.approx.f32", Kind::kF32, Kind::kUnit, 0, 0x1p-19);
  b.unary("cos.approx.f32", Kind::kF32, Kind::kUnit, 0, 0x1p-19);
  b.unary("ex2.approx.f32", Kind::kF32, Kind::kUnit, 0x1p-21);
  b.unary("ex2.approx.ftz.f32", Kind::kF32, Kind::kF32, 0x1p-21, 0x1p-126);
  b.unary("lg2.approx.f32", Kind::kF32, Kind::kPositive, 0x1p-21, 0x1p-21);
  b.unary("tanh.approx.f32", Kind::kF32, Kind::kUnit, 0x1p-9);
  b.binary("div.approx.f32", Kind::kF32, Kind::kUnit, Kind::kUnit, 0x1p-21);
  b.binary("div.full.f32", Kind::kF32, Kind::kUnit, Kind::kUnit, 0x1p-21);
}

void convert_cases(Builder& b) {
  struct Type {
    const char* name;
    Kind kind;
    bool is_float;
  };
  const Type types[] = {
      {"u8", Kind::kB16, false},  {"s8", Kind::kB16, false},  {"u16", Kind::kB16, false},
      {"s16", Kind::kB16, false}, {"u32", Kind::kB32, false}, {"s32", Kind::kB32, false},
      {"u64", Kind::kB64, false}, {"s64", Kind::kB64, false}, {"f16", Kind::kF16, true},
      {"f32", Kind::kF32, true},  {"f64", Kind::kF64, true},  {"bf16", Kind::kBf16, true}};
  for (const Type& to : types) {
    for (const Type& from : types) {
      const std::string names = std::string(".") + to.name + "." + from.name;
      const bool bf16 = to.kind == Kind::kBf16 || from.kind == Kind::kBf16;
      if (bf16 && !(to.is_float && from.is_float)) continue;
      if (bf16 && (to.kind != Kind::kF32 || from.kind != Kind::kBf16) &&
          (to.kind != Kind::kBf16 || from.kind != Kind::kF32))
        continue;
      if (!to.is_float && !from.is_float) {
        b.unary("cvt" + names, to.kind, from.kind);
        // .sat is allowed only where something can be clamped.
        const auto bits = [](const Type& t) { return std::stoi(t.name + 1); };
        const bool fits = to.name[0] == from.name[0] ? bits(to) >= bits(from)
                          : from.name[0] == 'u'      ? bits(to) > bits(from)
                                                     : false;
        if (!fits) b.unary("cvt.sat" + names, to.kind, from.kind);
      } else if (!to.is_float) {
        for (const char* round : {"rni", "rzi", "rmi", "rpi"})
          b.unary(std::string("cvt.") + round + names, to.kind, from.kind);
        if (from.kind == Kind::kF32) b.unary("cvt.rzi.ftz" + names, to.kind, from.kind);
      } else if (!from.is_float) {
        for (const char* round : {"rn", "rz", "rm", "rp"})
          b.unary(std::string("cvt.") + round + names, to.kind, from.kind);
      } else if (width(to.kind) < width(from.kind)) {
        for (const char* round : {"rn", "rz"})
          b.unary(std::string("cvt.") + round + names, to.kind, from.kind);
        if (!bf16)
          for (const char* round : {"rm", "rp"})
            b.unary(std::string("cvt.") + round + names, to.kind, from.kind);
        if (to.kind == Kind::kF32) b.unary("cvt.rn.ftz.sat" + names, to.kind, from.kind);
        if (bf16 || (to.kind == Kind::kF16 && from.kind == Kind::kF32))
          b.unary("cvt.rn.relu" + names, to.kind, from.kind);
      } else if (&to == &from) {
        if (bf16) continue;
        for (const char* round : {"rni", "rzi", "rmi", "rpi"})
          b.unary(std::string("cvt.") + round + names, to.kind, from.kind);
        if (to.kind == Kind::kF32) {
          b.unary("cvt.sat" + names, to.kind, from.kind);
          b.unary("cvt.ftz" + names, to.kind, from.kind);
        }
      } else {
        b.unary("cvt" + names, to.kind, from.kind);
        if (!bf16) b.unary("cvt.sat" + names, to.kind, from.kind);
      }
    }
  }
  b.binary("cvt.rn.f16x2.f32", Kind::kF16x2, Kind::kF32, Kind::kF32);
  b.binary("cvt.rn.bf16x2.f32", Kind::kBf16x2, Kind::kF32, Kind::kF32);
  b.binary("cvt.rn.relu.f16x2.f32", Kind::kF16x2, Kind::kF32, Kind::kF32);
  b.unary("cvt.rna.tf32.f32", Kind::kB32, Kind::kF32);
}

void warp_cases(Builder& b) {
  for (const char* mode : {"up", "down", "bfly", "idx"}) {
    // A lane offset and a segment mask of every kind; the predicate doubles the result.
    b.add(
        std::string("shfl.sync.") + mode + ".b32 $d|%p0, $a, $b, $c, -1; @%p0 add.u32 $d, $d, $d;",
        Kind::kB32, Kind::kB32, Kind::kShift, Kind::kB32);
    b.add(std::string("shfl.sync.") + mode + ".b32 $d|%p0, $a, 3, 31, -1; @%p0 add.u32 $d, $d, $d;",
          Kind::kB32, Kind::kB32);
  }
  b.add("vote.sync.ballot.b32 $d, $a, -1;", Kind::kB32, Kind::kPred);
  b.add("vote.sync.any.pred $d, $a, -1;", Kind::kPred, Kind::kPred);
  b.add("vote.sync.all.pred $d, $a, -1;", Kind::kPred, Kind::kPred);
  b.add("vote.sync.uni.pred $d, $a, -1;", Kind::kPred, Kind::kPred);
  b.add("and.b32 %r20, $a, 3; match.any.sync.b32 $d, %r20, -1;", Kind::kB32, Kind::kB32);
  b.add("and.b64 %rd20, $a, 1; match.any.sync.b64 $d, %rd20, -1;", Kind::kB32, Kind::kB64);
  b.add("shr.u32 %r20, $a, 31; match.all.sync.b32 $d|%p0, %r20, -1; @%p0 not.b32 $d, $d;",
        Kind::kB32, Kind::kB32);
  for (const char* op :
       {"add.s32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"})
    b.add(std::string("redux.sync.") + op + " $d, $a, -1;", Kind::kB32, Kind::kB32);
  b.add("elect.sync $d|%p0, -1; @%p0 add.u32 $d, $d, $a;", Kind::kB32, Kind::kB32);
  b.add("barrier.cta.red.popc.u32 $d, 0, $a;", Kind::kB32, Kind::kPred);
  b.add("setp.ne.u32 %p0, $a, 77; barrier.cta.red.and.pred $d, 1, %p0;", Kind::kPred, Kind::kB32);
  b.add("barrier.cta.red.or.pred $d, 2, $a;", Kind::kPred, Kind::kPred);
  // Half of the lanes on the other side of a branch, and each side on its own.
  b.add(
      "setp.lt.s32 %p0, $a, 0; @%p0 bra N1; redux.sync.add.s32 $d, $b, -1; bra E1; N1: "
      "redux.sync.add.s32 $d, $c, -1; E1:",
      Kind::kB32, Kind::kB32, Kind::kB32, Kind::kB32);
  b.add(
      "setp.lt.s32 %p0, $a, 0; vote.sync.ballot.b32 %r20, %p0, -1; @%p0 bra N2; not.b32 %r20, "
      "%r20; redux.sync.xor.b32 $d, $b, %r20; bra E2; "
      "N2: redux.sync.and.b32 $d, $b, %r20; E2: add.u32 $d, $d, %r20;",
      Kind::kB32, Kind::kB32, Kind::kB32);
  for (const char* reg : {"%laneid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt",
                          "%lanemask_ge", "%tid.x", "%ntid.x", "%nctaid.x", "%ctaid.y"})
    b.add(std::string("mov.u32 $d, ") + reg + "; xor.b32 $d, $d, $a;", Kind::kB32, Kind::kB32);
}

// Each thread's own result word serves as its memory: %rd4 is its address.
void memory_cases(Builder& b) {
  const auto atomic32 = [&b](const std::string& op, Kind kind) {
    b.add("st.volatile.global.b32 [%rd4], $a; atom." + op +
              " %r20, [%rd4], %r22; ld.volatile.global.b32 %r21, [%rd4]; mov.b64 $d, {%r20, %r21};",
          Kind::kB64, kind, kind);
    // The second operand under a fixed name, whatever class it is of.
    std::string& text = b.cases.back().text;
    text = "mov.b32 %r22, $b; " + text;
  };
  for (const char* op : {"global.add.u32", "add.s32", "min.u32", "global.max.u32", "global.min.s32",
                         "max.s32", "global.and.b32", "global.or.b32", "xor.b32", "global.exch.b32",
                         "global.inc.u32", "global.dec.u32", "acq_rel.gpu.global.add.u32"})
    atomic32(op, Kind::kB32);
  const auto with_float = [&b](const char* space, const char* declare, const char* address) {
    b.add(std::string(declare) + "st.volatile." + space + ".b32 [" + address + "], $a; atom." +
              space + ".add.f32 %f20, [" + address + "], $b; ld.volatile." + space +
              ".b32 %r21, [" + address + "]; mov.b32 %r20, %f20; mov.b64 $d, {%r20, %r21};",
          Kind::kB64, Kind::kF32, Kind::kF32);
  };
  with_float("global", "", "%rd4");
  with_float("shared",
             ".shared .align 4 .b8 sm[1024]; mov.u32 %r24, %tid.x; shl.b32 %r24, %r24, 2; mov.u32 "
             "%r25, sm; add.u32 %r24, %r24, %r25; ",
             "%r24");
  b.add(
      "st.volatile.global.b32 [%rd4], $a; red.global.add.f32 [%rd4], $b; ld.volatile.global.b32 "
      "$d, [%rd4];",
      Kind::kB32, Kind::kF32, Kind::kF32);
  b.add(
      "st.volatile.global.b32 [%rd4], $a; atom.global.add.noftz.f16x2 %r20, [%rd4], $b; "
      "ld.volatile.global.b32 %r21, [%rd4]; mov.b64 $d, {%r20, %r21};",
      Kind::kB64, Kind::kF16x2, Kind::kF16x2);
  b.add(
      "st.volatile.global.b32 [%rd4], $a; atom.global.add.noftz.bf16x2 %r20, [%rd4], $b; "
      "ld.volatile.global.b32 %r21, [%rd4]; mov.b64 $d, {%r20, %r21};",
      Kind::kB64, Kind::kBf16x2, Kind::kBf16x2);
  for (const char* op : {"add.u64", "min.u64", "max.u64", "min.s64", "max.s64", "and.b64", "or.b64",
                         "xor.b64", "exch.b64"})
    b.add(std::string("st.volatile.global.b64 [%rd4], $a; atom.global.") + op +
              " %rd20, [%rd4], $b; ld.volatile.global.b64 %rd21, [%rd4]; "
              "mad.lo.u64 $d, %rd20, 3, %rd21;",
          Kind::kB64, Kind::kB64, Kind::kB64);
  b.add(
      "st.volatile.global.f64 [%rd4], $a; atom.global.add.f64 %fd20, [%rd4], $b; "
      "ld.volatile.global.f64 $d, [%rd4];",
      Kind::kF64, Kind::kF64, Kind::kF64);
  b.add(
      "and.b32 %r22, $a, 1; and.b32 %r23, $b, 1; st.volatile.global.b32 [%rd4], %r22; "
      "atom.global.cas.b32 %r20, [%rd4], %r23, $c; "
      "ld.volatile.global.b32 %r21, [%rd4]; mov.b64 $d, {%r20, %r21};",
      Kind::kB64, Kind::kB32, Kind::kB32, Kind::kB32);
  b.add(
      "and.b64 %rd22, $a, 1; and.b64 %rd23, $b, 1; st.volatile.global.b64 [%rd4], %rd22; "
      "atom.global.cas.b64 %rd20, [%rd4], %rd23, $c; "
      "ld.volatile.global.b64 %rd21, [%rd4]; mad.lo.u64 $d, %rd20, 3, %rd21;",
      Kind::kB64, Kind::kB64, Kind::kB64, Kind::kB64);
  // Loads of every type, into registers of its width and wider.
  for (const char* type : {"u8", "s8", "b8", "u16", "s16", "u32", "s32", "b32"}) {
    const std::string t(type);
    const std::string offset = t.size() == 2 ? "3" : t[1] == '1' ? "6" : "4";
    const std::string store = "st.global.b64 [%rd4], $a; ";
    b.add(store + "ld.volatile.global." + t + " $d, [%rd4+" + offset + "];", Kind::kB32,
          Kind::kB64);
    b.add(store + "ld.volatile.global." + t + " $d, [%rd4+" + offset + "];", Kind::kB64,
          Kind::kB64);
    if (offset != "4")
      b.add(store + "ld.volatile.global." + t + " $d, [%rd4+" + offset + "];", Kind::kB16,
            Kind::kB64);
  }
  b.add(
      "st.global.b64 [%rd4], $a; ld.volatile.global.v2.u32 {%r20, %r21}, [%rd4]; sub.u32 $d, %r20, "
      "%r21;",
      Kind::kB32, Kind::kB64);
  b.add(
      "st.global.b64 [%rd4], $a; ld.volatile.global.v4.u16 {%h20, %h21, %h22, %h23}, [%rd4]; "
      "mov.b64 $d, {%h23, %h21, %h22, %h20};",
      Kind::kB64, Kind::kB64);
  b.add(
      "st.global.b64 [%rd4], $a; ld.volatile.global.v4.s8 {%r20, %r21, %r22, %r23}, [%rd4+4]; "
      "mad.lo.s32 $d, %r20, 7, %r21; mad.lo.s32 $d, $d, 7, %r22; mad.lo.s32 $d, $d, 7, %r23;",
      Kind::kB32, Kind::kB64);
  b.add(
      "mov.b64 {%r20, %r21}, $a; st.global.v2.b32 [%rd4], {%r21, %r20}; st.global.u8 [%rd4+1], "
      "%r20; st.global.u16 [%rd4+6], %r21; ld.volatile.global.b64 $d, [%rd4];",
      Kind::kB64, Kind::kB64);
  b.add(
      "st.global.b64 [%rd4], $a; st.global.u8 [%rd4+2], $b; st.global.u16 [%rd4+4], $b; "
      "ld.volatile.global.b64 $d, [%rd4];",
      Kind::kB64, Kind::kB64, Kind::kB64);
  b.add(
      ".local .align 8 .b8 lm[64]; mov.u64 %rd20, lm; and.b64 %rd21, $b, 7; shl.b64 %rd21, %rd21, "
      "3; add.u64 %rd22, %rd20, %rd21; st.local.b64 [lm], 5; "
      "st.local.b64 [%rd22], $a; cvta.local.u64 %rd23, %rd20; ld.b64 %rd24, [%rd23]; "
      "isspacep.local %p0, %rd23; isspacep.global %p1, %rd4; "
      "selp.u64 %rd25, 100, 0, %p0; @%p1 add.u64 %rd25, %rd25, 1000; add.u64 $d, %rd24, %rd25;",
      Kind::kB64, Kind::kB64, Kind::kB64);
}

std::vector<Case> all_cases() {
  Builder b;
  integer_cases(b);
  float_cases(b);
  convert_cases(b);
  warp_cases(b);
  memory_cases(b);
  half_cases(b);
  narrow_cases(b);
  video_cases(b);
  return b.cases;
}

}  // namespace sluice::conformance
