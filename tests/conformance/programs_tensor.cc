// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: mma of every shape and type, wmma with its loads and stores, ldmatrix,
// stmatrix, movmatrix. A block is one warp with random matrices of its own; five flavours of
// numbers, because what a tensor core's adder does shows only where exponents differ.
#include "tests/conformance/builder.h"
#include "tests/conformance/programs.h"

namespace sluice::conformance {
namespace {

enum class Element : std::uint8_t { kF16, kBf16, kTf32, kF32, kF64, kE4m3, kE5m2, kInteger };

struct Format {
  int bits, exponent, mantissa;
};
Format format_of(Element e) {
  switch (e) {
    case Element::kF16:
      return {16, 5, 10};
    case Element::kBf16:
      return {16, 8, 7};
    case Element::kTf32:
    case Element::kF32:
      return {32, 8, 23};
    case Element::kF64:
      return {64, 11, 52};
    case Element::kE4m3:
      return {8, 4, 3};
    case Element::kE5m2:
      return {8, 5, 2};
    default:
      return {32, 0, 0};
  }
}

// One number. `spread`: exponents around one, half the range on each side.
std::uint64_t number(Random& r, Element e, unsigned flavour, bool addend) {
  const std::uint64_t bits = r.next(), choice = r.next();
  if (e == Element::kInteger) return addend && flavour % 2 == 0 ? bits & 0xffff : bits & 0xffffffff;
  const Format f = format_of(e);
  const std::uint64_t sign = (bits & 1) << (f.bits - 1);
  const std::uint64_t mantissa = (bits >> 8) & ((1ull << f.mantissa) - 1);
  const std::int64_t bias = (1ll << (f.exponent - 1)) - 1, top = (1ll << f.exponent) - 1;
  std::int64_t spread = 3;
  switch (flavour) {
    case 0:
      spread = addend ? 6 : 3;
      break;
    case 1:
      spread = addend ? 24 : 8;
      break;
    case 2:
      spread = addend ? 60 : 20;
      break;
    case 3:  // what is special: zeros, subnormals, infinities and NaNs are rare enough to matter
      if (choice % 24 == 0) return sign;
      if (choice % 24 == 1) return sign | mantissa;
      if (choice % 97 == 2) return sign | static_cast<std::uint64_t>(top) << f.mantissa;
      if (choice % 97 == 3) return sign | static_cast<std::uint64_t>(top) << f.mantissa | mantissa;
      spread = bias;
      break;
    default:  // few terms
      if (choice % 4 != 0) return choice % 8 == 1 ? sign : 0;
      spread = addend ? 40 : 14;
      break;
  }
  if (spread > bias - 1) spread = bias - 1;
  const std::int64_t exponent =
      bias - spread +
      static_cast<std::int64_t>((bits >> 40) % static_cast<std::uint64_t>(2 * spread + 1));
  return sign | static_cast<std::uint64_t>(exponent) << f.mantissa | mantissa;
}

// `count` numbers, packed.
void append(std::vector<std::uint8_t>& to, Random& r, Element e, std::size_t count,
            unsigned flavour, bool addend) {
  const std::size_t bytes = static_cast<std::size_t>(format_of(e).bits) / 8;
  for (std::size_t k = 0; k < count; ++k) {
    const std::uint64_t v = number(r, e, flavour, addend);
    for (std::size_t i = 0; i < bytes; ++i) to.push_back(static_cast<std::uint8_t>(v >> (8 * i)));
  }
}

std::string list(const char* prefix, unsigned first, unsigned count) {
  std::string s = "{";
  for (unsigned k = 0; k < count; ++k)
    s += (k == 0 ? "" : ", ") + std::string(prefix) + std::to_string(first + k);
  return s + "}";
}

std::string clean(const std::string& text) {
  std::string s;
  for (const char ch : text) s += std::isalnum(static_cast<unsigned char>(ch)) != 0 ? ch : '_';
  return s;
}

const char kHead[] =
    "(.param .u64 out, .param .u64 in)\n{\n.reg .pred %p<16>; .reg .b16 %h<32>; .reg .b32 %r<64>; "
    ".reg .b64 %rd<32>; .reg .f32 %f<64>; .reg .f64 %fd<32>;\n"
    "ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];\nmov.u32 %r1, %tid.x; mov.u32 %r2, "
    "%ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;\n";

// A fragment's registers are loaded from memory that holds them thread by thread.
struct Fragment {
  Element element;
  unsigned registers;  // 32-bit, or 64-bit for f64
};

void mma(std::vector<Program>& all, unsigned scale, const std::string& op, Fragment d, Fragment a,
         Fragment b, Fragment c) {
  const bool wide = a.element == Element::kF64;
  const unsigned word = wide ? 8 : 4;
  const char* reg = wide ? "%fd" : "%r";
  const unsigned first = wide ? 1 : 10;
  const unsigned inputs = a.registers + b.registers + c.registers;
  Program p;
  p.name = clean(op);
  p.blocks = 5 * scale;
  p.text = ".visible .entry " + p.name + kHead;
  p.text += "mul.wide.u32 %rd3, %r4, " + std::to_string(inputs * word) +
            "; add.u64 %rd2, %rd2, %rd3; mul.wide.u32 %rd3, %r4, " +
            std::to_string(d.registers * word) + "; add.u64 %rd1, %rd1, %rd3;\n";
  for (unsigned k = 0; k < inputs; ++k)
    p.text += std::string("ld.global.") + (wide ? "f64 " : "b32 ") + reg +
              std::to_string(first + k) + ", [%rd2+" + std::to_string(k * word) + "];\n";
  const auto operand = [&](unsigned at, unsigned count) { return list(reg, first + at, count); };
  p.text += op + " " + operand(inputs, d.registers) + ", " + operand(0, a.registers) + ", " +
            operand(a.registers, b.registers) + ", " +
            operand(a.registers + b.registers, c.registers) + ";\n";
  for (unsigned k = 0; k < d.registers; ++k)
    p.text += std::string("st.global.") + (wide ? "f64 " : "b32 ") + "[%rd1+" +
              std::to_string(k * word) + "], " + reg + std::to_string(first + inputs + k) + ";\n";
  p.text += "ret;\n}\n";
  Random r{hash(p.name)};
  for (unsigned block = 0; block < p.blocks; ++block) {
    const unsigned flavour = block % 5;
    for (unsigned thread = 0; thread < 32; ++thread) {
      for (const Fragment* f : {&a, &b, &c}) {
        const std::size_t per = static_cast<std::size_t>(word) * 8 /
                                static_cast<std::size_t>(format_of(f->element).bits);
        append(p.input, r, f->element, f->registers * per, flavour, f == &c);
      }
    }
  }
  p.output_bytes = std::size_t{p.blocks} * 32 * d.registers * word;
  all.push_back(std::move(p));
}

// wmma: matrices in global memory, loaded and stored by the instructions themselves. Strides are
// larger than the rows.
void wmma(std::vector<Program>& all, unsigned scale, const std::string& shape, unsigned m,
          unsigned n, unsigned k, const std::string& type, Element element, const std::string& d,
          const std::string& c, const std::string& layouts, unsigned a_regs, unsigned b_regs,
          const std::string& suffix = "") {
  const bool f64 = element == Element::kF64;
  const bool packed = element == Element::kInteger;
  const unsigned bytes = packed ? 1 : static_cast<unsigned>(format_of(element).bits) / 8;
  const auto acc_bytes = [](const std::string& t) {
    return t == "f16" ? 2u : t == "f64" ? 8u : 4u;
  };
  const auto acc_regs = [&](const std::string& t) { return m * n / 32 / (t == "f16" ? 2u : 1u); };
  const std::string a_layout = layouts.substr(0, 3), b_layout = layouts.substr(4, 3);
  const unsigned pad = 16 / bytes;
  const unsigned lda = (a_layout == "row" ? k : m) + pad, ldb = (b_layout == "row" ? n : k) + pad;
  const unsigned ldc = n + 16 / acc_bytes(c), ldd = m + 16 / acc_bytes(d);
  const unsigned a_count = lda * (a_layout == "row" ? m : k);
  const unsigned b_count = ldb * (b_layout == "row" ? k : n);
  const unsigned c_count = ldc * m, d_count = ldd * n;
  const unsigned a_at = 0, b_at = a_count * bytes, c_at = b_at + b_count * bytes;
  const unsigned all_bytes = (c_at + c_count * acc_bytes(c) + 31) / 32 * 32;
  Program p;
  const std::string layout_words = "." + a_layout + "." + b_layout;
  const bool floats = element == Element::kF16;
  const std::string op =
      "wmma.mma.sync.aligned" + layout_words + "." + shape +
      (floats ? "." + d + "." + c : "." + d + "." + type + "." + type + "." + c) + suffix;
  p.name = clean(op);
  p.blocks = 5 * scale;
  p.text = ".visible .entry " + p.name + kHead;
  p.text += "mul.wide.u32 %rd3, %r2, " + std::to_string(all_bytes) +
            "; add.u64 %rd2, %rd2, %rd3; mul.wide.u32 %rd3, %r2, " +
            std::to_string(d_count * acc_bytes(d)) + "; add.u64 %rd1, %rd1, %rd3;\n";
  const auto regs = [&](unsigned first, unsigned count, const std::string& t) {
    return list(t == "f32" ? "%f" : f64 ? "%fd" : "%r", first, count);
  };
  const std::string a_list = regs(10, a_regs, type), b_list = regs(20, b_regs, type);
  const auto load = [&](const char* which, const std::string& layout, const std::string& list,
                        unsigned at, unsigned stride, const std::string& t) {
    p.text += std::string("add.u64 %rd5, %rd2, ") + std::to_string(at) + "; mov.u32 %r5, " +
              std::to_string(stride) + "; wmma.load." + which + ".sync.aligned." + layout + "." +
              shape + ".global." + t + " " + list + ", [%rd5], %r5;\n";
  };
  load("a", a_layout, a_list, a_at, lda, type);
  load("b", b_layout, b_list, b_at, ldb, type);
  const std::string c_list = regs(f64 ? 24 : 30, acc_regs(c), c);
  load("c", "row", c_list, c_at, ldc, c);
  const std::string d_list = regs(f64 ? 28 : 48, acc_regs(d), d);
  p.text += op + " " + d_list + ", " + a_list + ", " + b_list + ", " + c_list + ";\n";
  p.text += "mov.u32 %r5, " + std::to_string(ldd) + "; wmma.store.d.sync.aligned.col." + shape +
            ".global." + d + " [%rd1], " + d_list + ", %r5;\nret;\n}\n";
  Random r{hash(p.name)};
  const Element acc_element = c == "f16"   ? Element::kF16
                              : c == "f32" ? Element::kF32
                              : c == "f64" ? Element::kF64
                                           : Element::kInteger;
  for (unsigned block = 0; block < p.blocks; ++block) {
    const std::size_t begin = p.input.size();
    append(p.input, r, element, packed ? a_count / 4 : a_count, block % 5, false);
    append(p.input, r, element, packed ? b_count / 4 : b_count, block % 5, false);
    append(p.input, r, acc_element, c_count, block % 5, true);
    p.input.resize(begin + all_bytes);
  }
  p.output_bytes = std::size_t{p.blocks} * d_count * acc_bytes(d);
  all.push_back(std::move(p));
}

// Every lane writes its part of shared memory, then matrices are loaded from rows in an odd order.
void matrix_moves(std::vector<Program>& all) {
  for (const std::string trans : {"", ".trans"}) {
    for (const unsigned x : {1u, 2u, 4u}) {
      for (const bool store : {false, true}) {
        Program p;
        const std::string op = std::string(store ? "stmatrix" : "ldmatrix") +
                               ".sync.aligned.m8n8.x" + std::to_string(x) + trans + ".shared.b16";
        p.name = clean(op);
        p.text = ".visible .entry " + p.name + kHead;
        p.text +=
            ".shared .align 16 .b8 sm_" + p.name + "[512];\nmov.u32 %r5, sm_" + p.name +
            "; shl.b32 %r6, %r1, 4; add.u32 %r6, %r5, %r6;\nmul.wide.u32 %rd3, %r1, 16; add.u64 "
            "%rd2, %rd2, %rd3; add.u64 %rd1, %rd1, %rd3;\nld.global.v4.b32 {%r10, %r11, %r12, "
            "%r13}, [%rd2];\n";
        // Row of lane i: (i * 5 + 3) mod 32.
        p.text +=
            "mad.lo.u32 %r7, %r1, 5, 3; and.b32 %r7, %r7, 31; shl.b32 %r7, %r7, 4; add.u32 %r7, "
            "%r5, %r7;\n";
        if (store) {
          p.text += "st.shared.v4.b32 [%r6], {%r1, %r1, %r1, %r1}; bar.warp.sync -1;\n" + op +
                    " [%r7], " + list("%r", 10, x) +
                    ";\nbar.warp.sync -1; ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r6];\n";
        } else {
          p.text +=
              "mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;\n"
              "st.shared.v4.b32 [%r6], {%r10, %r11, %r12, %r13}; bar.warp.sync -1;\n" +
              op + " " + list("%r", 20, x) + ", [%r7];\n";
        }
        p.text += "st.global.v4.b32 [%rd1], {%r20, %r21, %r22, %r23};\nret;\n}\n";
        Random r{hash(p.name)};
        append(p.input, r, Element::kInteger, 128, 1, false);
        p.output_bytes = 512;
        all.push_back(std::move(p));
      }
    }
  }
  Program p;
  p.name = "movmatrix";
  p.text = ".visible .entry " + p.name + kHead +
           "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd2, %rd2, %rd3; add.u64 %rd1, %rd1, %rd3;\n"
           "ld.global.b32 %r10, [%rd2]; movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r10;\n"
           "st.global.b32 [%rd1], %r10;\nret;\n}\n";
  Random r{hash(p.name)};
  append(p.input, r, Element::kInteger, 32, 1, false);
  p.output_bytes = 128;
  all.push_back(std::move(p));
}

}  // namespace

void tensor_programs(std::vector<Program>& all, unsigned scale) {
  using E = Element;
  const std::string head = "mma.sync.aligned.";
  mma(all, scale, head + "m16n8k8.row.col.f32.f16.f16.f32", {E::kF32, 4}, {E::kF16, 2},
      {E::kF16, 1}, {E::kF32, 4});
  mma(all, scale, head + "m16n8k8.row.col.f16.f16.f16.f16", {E::kF16, 2}, {E::kF16, 2},
      {E::kF16, 1}, {E::kF16, 2});
  mma(all, scale, head + "m16n8k16.row.col.f32.f16.f16.f32", {E::kF32, 4}, {E::kF16, 4},
      {E::kF16, 2}, {E::kF32, 4});
  mma(all, scale, head + "m16n8k16.row.col.f16.f16.f16.f16", {E::kF16, 2}, {E::kF16, 4},
      {E::kF16, 2}, {E::kF16, 2});
  mma(all, scale, head + "m16n8k8.row.col.f32.bf16.bf16.f32", {E::kF32, 4}, {E::kBf16, 2},
      {E::kBf16, 1}, {E::kF32, 4});
  mma(all, scale, head + "m16n8k16.row.col.f32.bf16.bf16.f32", {E::kF32, 4}, {E::kBf16, 4},
      {E::kBf16, 2}, {E::kF32, 4});
  mma(all, scale, head + "m16n8k4.row.col.f32.tf32.tf32.f32", {E::kF32, 4}, {E::kTf32, 2},
      {E::kTf32, 1}, {E::kF32, 4});
  mma(all, scale, head + "m16n8k8.row.col.f32.tf32.tf32.f32", {E::kF32, 4}, {E::kTf32, 4},
      {E::kTf32, 2}, {E::kF32, 4});
  for (const std::string a : {"e4m3", "e5m2"})
    for (const std::string b : {"e4m3", "e5m2"})
      mma(all, scale, head + "m16n8k32.row.col.f32." + a + "." + b + ".f32", {E::kF32, 4},
          {a == "e4m3" ? E::kE4m3 : E::kE5m2, 4}, {b == "e4m3" ? E::kE4m3 : E::kE5m2, 2},
          {E::kF32, 4});
  mma(all, scale, head + "m8n8k4.row.col.f64.f64.f64.f64", {E::kF64, 2}, {E::kF64, 1}, {E::kF64, 1},
      {E::kF64, 2});
  for (const unsigned k : {4u, 8u, 16u})
    mma(all, scale, head + "m16n8k" + std::to_string(k) + ".row.col.f64.f64.f64.f64", {E::kF64, 4},
        {E::kF64, k / 2}, {E::kF64, k / 4}, {E::kF64, 4});
  const Fragment i1{E::kInteger, 1}, i2{E::kInteger, 2}, i4{E::kInteger, 4};
  for (const std::string sat : {"", ".satfinite"}) {
    for (const std::string types : {"u8.u8", "u8.s8", "s8.u8", "s8.s8"}) {
      const std::string tail = ".row.col" + sat + ".s32." + types + ".s32";
      mma(all, 1, head + "m8n8k16" + tail, i2, i1, i1, i2);
      mma(all, 1, head + "m16n8k16" + tail, i4, i2, i1, i4);
      mma(all, 1, head + "m16n8k32" + tail, i4, i4, i2, i4);
    }
    for (const std::string types : {"u4.u4", "s4.u4", "s4.s4"}) {
      const std::string tail = ".row.col" + sat + ".s32." + types + ".s32";
      mma(all, 1, head + "m8n8k32" + tail, i2, i1, i1, i2);
      mma(all, 1, head + "m16n8k32" + tail, i4, i2, i1, i4);
      mma(all, 1, head + "m16n8k64" + tail, i4, i4, i2, i4);
    }
  }
  for (const std::string op : {"xor", "and"}) {
    const std::string tail = ".row.col.s32.b1.b1.s32." + op + ".popc";
    mma(all, 1, head + "m8n8k128" + tail, i2, i1, i1, i2);
    mma(all, 1, head + "m16n8k128" + tail, i4, i2, i1, i4);
    mma(all, 1, head + "m16n8k256" + tail, i4, i4, i2, i4);
  }
  struct Shape {
    const char* name;
    unsigned m, n;
  };
  for (const Shape& s :
       {Shape{"m16n16k16", 16, 16}, Shape{"m32n8k16", 32, 8}, Shape{"m8n32k16", 8, 32}}) {
    for (const std::string layouts : {"row.col", "col.row"})
      wmma(all, scale, s.name, s.m, s.n, 16, "f16", E::kF16, "f32", "f32", layouts, 8, 8);
    wmma(all, scale, s.name, s.m, s.n, 16, "f16", E::kF16, "f16", "f16", "row.row", 8, 8);
    wmma(all, scale, s.name, s.m, s.n, 16, "f16", E::kF16, "f16", "f32", "col.col", 8, 8);
    wmma(all, scale, s.name, s.m, s.n, 16, "f16", E::kF16, "f32", "f16", "row.col", 8, 8);
    const unsigned a = s.m / 4, b = s.n / 4;  // 32-bit registers of bf16
    wmma(all, scale, s.name, s.m, s.n, 16, "bf16", E::kBf16, "f32", "f32", "row.col", a, b);
    wmma(all, scale, s.name, s.m, s.n, 16, "bf16", E::kBf16, "f32", "f32", "col.row", a, b);
    for (const std::string type : {"u8", "s8"})
      for (const std::string sat : {"", ".satfinite"})
        wmma(all, 1, s.name, s.m, s.n, 16, type, E::kInteger, "s32", "s32", "row.col", a / 2, b / 2,
             sat);
    wmma(all, 1, s.name, s.m, s.n, 16, "s8", E::kInteger, "s32", "s32", "col.row", a / 2, b / 2);
  }
  wmma(all, scale, "m16n16k8", 16, 16, 8, "tf32", E::kTf32, "f32", "f32", "row.col", 4, 4);
  wmma(all, scale, "m16n16k8", 16, 16, 8, "tf32", E::kTf32, "f32", "f32", "col.row", 4, 4);
  wmma(all, scale, "m8n8k4", 8, 8, 4, "f64", E::kF64, "f64", "f64", "row.col", 1, 1);
  wmma(all, scale, "m8n8k4", 8, 8, 4, "f64", E::kF64, "f64", "f64", "col.row", 1, 1);
  matrix_moves(all);
}

}  // namespace sluice::conformance
