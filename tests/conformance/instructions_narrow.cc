// The families of single instructions on narrow formats: half arithmetic with every modifier,
// conversions from and to fp8, halves and tf32, and packed 16-bit integers.
#include "tests/conformance/builder.h"

namespace sluice::conformance {
namespace {

// Half formats with their pairs.
struct Half {
  const char* name;
  Kind kind;
  bool bf16, pair;
};
const Half kHalves[] = {{"f16", Kind::kF16, false, false},
                        {"f16x2", Kind::kF16x2, false, true},
                        {"bf16", Kind::kBf16, true, false},
                        {"bf16x2", Kind::kBf16x2, true, true}};

}  // namespace

void half_cases(Builder& b) {
  for (const Half& h : kHalves) {
    const std::string n = std::string(".") + h.name;
    for (const std::string op : {"add", "sub", "mul"}) {
      b.binary(op + ".rn" + n, h.kind, h.kind, h.kind);
      if (h.bf16) continue;
      for (const char* mode : {".ftz", ".sat", ".ftz.sat"})
        b.binary(op + mode + n, h.kind, h.kind, h.kind);
    }
    for (const std::string mode : {"", ".ftz", ".sat", ".ftz.sat", ".relu", ".ftz.relu"}) {
      const bool f16_only = mode.find("ftz") != mode.npos || mode.find("sat") != mode.npos;
      if (h.bf16 && f16_only) continue;
      b.ternary("fma.rn" + mode + n, h.kind, h.kind, h.kind, h.kind);
    }
    for (const std::string op : {"min", "max"}) {
      for (const std::string mode :
           {"", ".ftz", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs", ".ftz.NaN.xorsign.abs"}) {
        if (h.bf16 && mode.find("ftz") != mode.npos) continue;
        b.binary(op + mode + n, h.kind, h.kind, h.kind);
      }
    }
    if (!h.bf16) {
      b.unary("neg.ftz" + n, h.kind, h.kind);
      b.unary("abs.ftz" + n, h.kind, h.kind);
    }
    b.unary("tanh.approx" + n, h.kind, h.kind, h.bf16 ? 0x1p-7 : 0x1p-9, h.bf16 ? 0 : 0x1p-9);
    const double two_ulp = h.bf16 ? 0x1p-6 : 0x1p-9;
    b.unary(std::string("ex2.approx") + (h.bf16 ? ".ftz" : "") + n, h.kind, h.kind, two_ulp,
            h.bf16 ? 0x1p-126 : 0x1p-23);
    const char* const compares[] = {"eq", "ne", "lt", "ge", "equ", "ltu", "geu", "num", "nan"};
    for (const std::string cmp : compares) {
      if (h.pair) {
        b.add(
            "setp." + cmp + n + " %p0|%p1, $a, $b; selp.u32 $d, 1, 0, %p0; @%p1 add.u32 $d, $d, 2;",
            Kind::kB32, h.kind, h.kind);
        b.binary("set." + cmp + n + n, h.kind, h.kind, h.kind);
        b.binary("set." + cmp + ".u32" + n, Kind::kB32, h.kind, h.kind);
      } else {
        b.binary("set." + cmp + n + n, h.kind, h.kind, h.kind);
        b.binary("set." + cmp + ".u32" + n, Kind::kB32, h.kind, h.kind);
        b.binary("set." + cmp + ".u16" + n, Kind::kB16, h.kind, h.kind);
      }
      if (!h.bf16 && !h.pair) b.binary("setp." + cmp + ".ftz" + n, Kind::kPred, h.kind, h.kind);
    }
    b.add("set.lt.and" + n + n + " $d, $a, $b, $c;", h.kind, h.kind, h.kind, Kind::kPred);
  }
  for (const std::string op : {"min", "max"})
    for (const char* mode : {".ftz.NaN", ".NaN.xorsign.abs", ".ftz.NaN.xorsign.abs"})
      b.binary(op + mode + ".f32", Kind::kF32, Kind::kF32, Kind::kF32);
  for (const std::string round : {".rn", ".rz", ".rm", ".rp"}) {
    b.binary("add" + round + ".ftz.sat.f32", Kind::kF32, Kind::kF32, Kind::kF32);
    b.binary("mul" + round + ".ftz.f32", Kind::kF32, Kind::kF32, Kind::kF32);
    b.ternary("fma" + round + ".ftz.sat.f32", Kind::kF32, Kind::kF32, Kind::kF32, Kind::kF32);
    b.unary("rcp" + round + ".ftz.f32", Kind::kF32, Kind::kF32);
    b.unary("sqrt" + round + ".ftz.f32", Kind::kF32, Kind::kF32);
    b.binary("div" + round + ".ftz.f32", Kind::kF32, Kind::kF32, Kind::kF32);
  }
}

void narrow_cases(Builder& b) {
  for (const std::string f8 : {"e4m3x2", "e5m2x2"}) {
    for (const std::string relu : {"", ".relu"}) {
      b.binary("cvt.rn.satfinite" + relu + "." + f8 + ".f32", Kind::kB16, Kind::kF32, Kind::kF32);
      b.unary("cvt.rn.satfinite" + relu + "." + f8 + ".f16x2", Kind::kB16, Kind::kF16x2);
      b.unary("cvt.rn" + relu + ".f16x2." + f8, Kind::kB32, Kind::kB16);
    }
  }
  for (const std::string round : {".rn", ".rz"}) {
    for (const std::string relu : {"", ".relu"}) {
      for (const std::string sat : {"", ".satfinite"}) {
        b.binary("cvt" + round + relu + sat + ".f16x2.f32", Kind::kF16x2, Kind::kF32, Kind::kF32);
        b.binary("cvt" + round + relu + sat + ".bf16x2.f32", Kind::kBf16x2, Kind::kF32, Kind::kF32);
        b.unary("cvt" + round + relu + sat + ".f16.f32", Kind::kF16, Kind::kF32);
        b.unary("cvt" + round + relu + sat + ".bf16.f32", Kind::kBf16, Kind::kF32);
      }
      b.unary("cvt" + round + relu + ".tf32.f32", Kind::kB32, Kind::kF32);
    }
  }
  b.unary("cvt.rna.satfinite.tf32.f32", Kind::kB32, Kind::kF32);
  // bf16 from and to everything.
  struct Type {
    const char* name;
    Kind kind;
  };
  const Type integers[] = {{"u8", Kind::kB16},  {"s8", Kind::kB16},  {"u16", Kind::kB16},
                           {"s16", Kind::kB16}, {"u32", Kind::kB32}, {"s32", Kind::kB32},
                           {"u64", Kind::kB64}, {"s64", Kind::kB64}};
  for (const Type& t : integers) {
    if (t.name[1] != '8') {  // ptxas knows no 8-bit integers beside bf16
      for (const std::string round : {".rni", ".rzi", ".rmi", ".rpi"})
        b.unary("cvt" + round + "." + t.name + ".bf16", t.kind, Kind::kBf16);
      for (const std::string round : {".rn", ".rz", ".rm", ".rp"})
        b.unary("cvt" + round + ".bf16." + t.name, Kind::kBf16, t.kind);
    }
    for (const std::string round : {".rni", ".rzi", ".rmi", ".rpi"})
      b.unary("cvt" + round + ".sat." + t.name + ".f32", t.kind, Kind::kF32);
    b.unary(std::string("cvt.rn.sat.f32.") + t.name, Kind::kF32, t.kind);
    b.unary(std::string("cvt.rn.sat.f64.") + t.name, Kind::kF64, t.kind);
    b.unary(std::string("cvt.rn.sat.f16.") + t.name, Kind::kF16, t.kind);
    for (const std::string round : {".rmi", ".rni"})
      b.unary("cvt" + round + ".ftz." + t.name + ".f32", t.kind, Kind::kF32);
  }
  for (const std::string round : {".rn", ".rz", ".rm", ".rp"}) {
    b.unary("cvt" + round + ".bf16.f16", Kind::kBf16, Kind::kF16);
    b.unary("cvt" + round + ".f16.bf16", Kind::kF16, Kind::kBf16);
    b.unary("cvt" + round + ".bf16.f64", Kind::kBf16, Kind::kF64);
    b.unary("cvt" + round + ".sat.f16.f32", Kind::kF16, Kind::kF32);
    b.unary("cvt" + round + ".ftz.f16.f32", Kind::kF16, Kind::kF32);
    b.unary("cvt" + round + ".ftz.f32.f64", Kind::kF32, Kind::kF64);
    b.unary("cvt" + round + ".sat.f32.f64", Kind::kF32, Kind::kF64);
    b.unary("cvt" + round + ".sat.f16.f64", Kind::kF16, Kind::kF64);
  }
  b.unary("cvt.f64.bf16", Kind::kF64, Kind::kBf16);
  b.unary("cvt.ftz.f32.f16", Kind::kF32, Kind::kF16);
  b.unary("cvt.ftz.f64.f32", Kind::kF64, Kind::kF32);
  b.unary("cvt.sat.f64.f32", Kind::kF64, Kind::kF32);
  for (const std::string round : {".rni", ".rzi", ".rmi", ".rpi"}) {
    b.unary("cvt" + round + ".bf16.bf16", Kind::kBf16, Kind::kBf16);
    b.unary("cvt" + round + ".sat.f32.f32", Kind::kF32, Kind::kF32);
    b.unary("cvt" + round + ".ftz.f32.f32", Kind::kF32, Kind::kF32);
    b.unary("cvt" + round + ".sat.f64.f64", Kind::kF64, Kind::kF64);
    b.unary("cvt" + round + ".sat.f16.f16", Kind::kF16, Kind::kF16);
  }
  b.binary("cvt.pack.sat.u16.s32", Kind::kB32, Kind::kB32, Kind::kB32);
  b.binary("cvt.pack.sat.s16.s32", Kind::kB32, Kind::kB32, Kind::kB32);
  for (const char* t : {"u8", "s8", "u4", "s4", "u2", "s2"})
    b.ternary(std::string("cvt.pack.sat.") + t + ".s32.b32", Kind::kB32, Kind::kB32, Kind::kB32,
              Kind::kB32);
  // Pairs of 16-bit integers.
  for (const std::string t : {"u16x2", "s16x2"}) {
    b.binary("add." + t, Kind::kB32, Kind::kB32, Kind::kB32);
    b.binary("min." + t, Kind::kB32, Kind::kB32, Kind::kB32);
    b.binary("max." + t, Kind::kB32, Kind::kB32, Kind::kB32);
  }
  for (const std::string op : {"min", "max"})
    for (const std::string t : {"s16x2", "s32"})
      b.binary(op + ".relu." + t, Kind::kB32, Kind::kB32, Kind::kB32);
}

}  // namespace sluice::conformance
