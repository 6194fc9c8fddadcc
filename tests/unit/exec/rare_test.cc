// SPDX-License-Identifier: Apache-2.0
// Seldom instructions of kernels/exec against a plain evaluation: video instructions, vector and
// 128-bit atomics, logic with predicates, spaces of addresses.
#include <bit>
#include <cmath>
#include <random>

#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

class ExecRare : public ExecTest {
 protected:
  // Runs `instruction` with %r1, %r2, %r3 = a, b, c for each of many words; the results in %r4.
  std::vector<uint32_t> results(const std::string& instruction) {
    const std::string text = kernel(
        "mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x; mad.lo.u32 %r0, %r9, 32, %r0; mul.wide.u32 "
        "%rd9, %r0, 4;\n"
        "add.s64 %rd10, %rd0, %rd9; add.s64 %rd11, %rd1, %rd9; add.s64 %rd12, %rd2, %rd9; add.s64 "
        "%rd13, %rd3, %rd9;\n"
        "ld.global.u32 %r1, [%rd10]; ld.global.u32 %r2, [%rd11]; ld.global.u32 %r3, [%rd12];\n" +
        instruction + "\nst.global.u32 [%rd13], %r4;");
    EXPECT_TRUE(load(text)) << instruction << ": " << error_;
    if (!program_) return {};
    if (a_.empty()) {
      std::mt19937 random(7);
      const uint32_t edges[] = {0,          1,          0x7fffffff, 0x80000000, 0xffffffff,
                                0x7fff8000, 0x00ff0080, 0x80007fff, 0x7f808001, 0x0000ffff};
      for (uint32_t k = 0; k < 512; ++k) {
        a_.push_back(k < 100 ? edges[k % 10] : random());
        b_.push_back(k < 100 ? edges[k / 10] : random());
        c_.push_back(k % 3 == 0 ? edges[k % 10] : random());
      }
      out_.resize(a_.size());
      bases_ = {share(a_), share(b_), share(c_), share(out_)};
    }
    EXPECT_EQ(launch({static_cast<uint32_t>(a_.size() / 32)}, {32}, bases_), RunState::kDone)
        << fault_.describe();
    return out_;
  }
  template <class F>
  void expect(const std::string& instruction, F f) {
    const std::vector<uint32_t> got = results(instruction);
    for (size_t k = 0; k < got.size(); ++k)
      ASSERT_EQ(got[k], f(a_[k], b_[k], c_[k]))
          << instruction << std::hex << " of " << a_[k] << " " << b_[k] << " " << c_[k];
  }
  std::vector<uint32_t> a_, b_, c_, out_;
  std::vector<uint64_t> bases_;
};

int64_t clamp(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }
int32_t s16(uint32_t v) { return static_cast<int16_t>(v); }
int32_t s8(uint32_t v) { return static_cast<int8_t>(v); }

TEST_F(ExecRare, ScalarVideo) {
  expect("vadd.s32.u32.s32.sat %r4, %r1.b1, %r2.h1;", [](uint32_t a, uint32_t b, uint32_t) {
    return static_cast<uint32_t>(int32_t((a >> 8) & 0xff) + s16(b >> 16));
  });
  expect("vsub.u32.u32.u32.sat %r4, %r1, %r2;",
         [](uint32_t a, uint32_t b, uint32_t) { return a > b ? a - b : 0u; });
  expect("vabsdiff.s32.s32.s32.sat.add %r4, %r1, %r2, %r3;",
         [](uint32_t a, uint32_t b, uint32_t c) {
           const int64_t x = int32_t(a), y = int32_t(b);
           return static_cast<uint32_t>(clamp(x < y ? y - x : x - y, INT32_MIN, INT32_MAX)) + c;
         });
  expect("vmin.s32.s32.u32 %r4.h1, %r1.h0, %r2.b3, %r3;", [](uint32_t a, uint32_t b, uint32_t c) {
    const int32_t m = std::min(s16(a), int32_t(b >> 24));
    return (static_cast<uint32_t>(m) << 16) | (c & 0xffff);
  });
  expect("vmax.u32.s32.s32 %r4.b2, %r1, %r2, %r3;", [](uint32_t a, uint32_t b, uint32_t c) {
    const auto m = static_cast<uint32_t>(std::max(int32_t(a), int32_t(b)));
    return ((m & 0xff) << 16) | (c & 0xff00ffffu);
  });
  expect("vset.s32.u32.lt.add %r4, %r1, %r2, %r3;", [](uint32_t a, uint32_t b, uint32_t c) {
    return (int64_t{int32_t(a)} < int64_t{b} ? 1 : 0) + c;
  });
  expect("vshl.u32.u32.u32.clamp %r4, %r1, %r2.b0;", [](uint32_t a, uint32_t b, uint32_t) {
    const uint32_t n = std::min(b & 0xff, 32u);
    return n == 32 ? 0 : a << n;
  });
  expect("vshr.s32.s32.u32.wrap.min %r4, %r1, %r2, %r3;", [](uint32_t a, uint32_t b, uint32_t c) {
    return static_cast<uint32_t>(std::min(int32_t(a) >> (b & 31), int32_t(c)));
  });
  expect("vmad.s32.s32.s32.sat.shr7 %r4, %r1.h1, -%r2, %r3;",
         [](uint32_t a, uint32_t b, uint32_t c) {
           const int64_t sum = -(int64_t{s16(a >> 16)} * int64_t{int32_t(b)}) + int32_t(c);
           return static_cast<uint32_t>(clamp(sum >> 7, INT32_MIN, INT32_MAX));
         });
  expect("vmad.u32.u32.u32.po %r4, %r1.b0, %r2.b1, %r3;",
         [](uint32_t a, uint32_t b, uint32_t c) { return (a & 0xff) * ((b >> 8) & 0xff) + c + 1; });
}

TEST_F(ExecRare, SimdVideo) {
  expect("vadd2.s32.s32.s32.sat %r4, %r1, %r2, %r3;", [](uint32_t a, uint32_t b, uint32_t) {
    const auto low = static_cast<uint32_t>(clamp(s16(a) + s16(b), -32768, 32767)) & 0xffff;
    const auto high = static_cast<uint32_t>(clamp(s16(a >> 16) + s16(b >> 16), -32768, 32767));
    return high << 16 | low;
  });
  expect("vabsdiff4.u32.u32.u32.add %r4, %r1, %r2, %r3;", [](uint32_t a, uint32_t b, uint32_t c) {
    for (int k = 0; k < 32; k += 8)
      c += static_cast<uint32_t>(std::abs(int((a >> k) & 0xff) - int((b >> k) & 0xff)));
    return c;
  });
  expect("vmax4.s32.s32.s32 %r4.b20, %r1.b0123, %r2.b7654, %r3;",
         [](uint32_t a, uint32_t b, uint32_t c) {
           const auto zero = static_cast<uint32_t>(std::max(s8(a >> 24), s8(b))) & 0xff;
           const auto two = static_cast<uint32_t>(std::max(s8(a >> 8), s8(b >> 16))) & 0xff;
           return (c & 0xff00ff00u) | two << 16 | zero;
         });
  expect("vavrg2.u32.u32.u32 %r4, %r1, %r2, %r3;", [](uint32_t a, uint32_t b, uint32_t) {
    return ((a >> 16) + (b >> 16) + 1) / 2 << 16 | ((a & 0xffff) + (b & 0xffff) + 1) / 2;
  });
  expect("vset4.u32.s32.ge %r4, %r1, %r2, %r3;", [](uint32_t a, uint32_t b, uint32_t) {
    uint32_t r = 0;
    for (int k = 0; k < 32; k += 8)
      r |= static_cast<uint32_t>(int((a >> k) & 0xff) >= s8(b >> k)) << k;
    return r;
  });
}

TEST_F(ExecRare, LogicWithPredicate) {
  expect(
      "setp.lt.u32 %p1, %r1, %r2; lop3.xor.b32 %r4|%p2, %r1, %r2, %r3, 0x96, %p1; @%p2 add.u32 "
      "%r4, %r4, 1;",
      [](uint32_t a, uint32_t b, uint32_t c) {
        const uint32_t d = a ^ b ^ c;
        return d + ((d != 0) != (a < b) ? 1 : 0);
      });
}

TEST_F(ExecRare, PackedIntegers) {
  expect("add.s16x2 %r4, %r1, %r2;", [](uint32_t a, uint32_t b, uint32_t) {
    return (((a >> 16) + (b >> 16)) << 16) | ((a + b) & 0xffff);
  });
  for (const char* text : {"min.relu.s16x2 %r4, %r1, %r2;", "min.s16x2.relu %r4, %r1, %r2;"})
    expect(text, [](uint32_t a, uint32_t b, uint32_t) {
      const auto half = [](uint32_t x, uint32_t y) {
        return static_cast<uint32_t>(std::max(std::min(s16(x), s16(y)), 0));
      };
      return half(a >> 16, b >> 16) << 16 | half(a, b);
    });
  expect("max.u16x2 %r4, %r1, %r2;", [](uint32_t a, uint32_t b, uint32_t) {
    return std::max(a >> 16, b >> 16) << 16 | std::max(a & 0xffff, b & 0xffff);
  });
  // As the manual has it, and as CUDA's headers do.
  for (const char* text : {"max.relu.s32 %r4, %r1, %r2;", "max.s32.relu %r4, %r1, %r2;"})
    expect(text, [](uint32_t a, uint32_t b, uint32_t) {
      return static_cast<uint32_t>(std::max({int32_t(a), int32_t(b), 0}));
    });
}

TEST_F(ExecRare, HalvesWithModifiers) {
  const auto nan = [](uint32_t v) { return (v & 0x7fff) > 0x7c00; };
  const auto flush = [](uint32_t v) { return (v & 0x7c00) == 0 ? v & 0x8000 : v; };
  expect(
      "mov.b32 {%rs1, %rs3}, %r1; mov.b32 {%rs2, %rs4}, %r2; min.ftz.NaN.f16 %rs5, %rs1, %rs2; "
      "cvt.u32.u16 %r4, %rs5;",
      [&](uint32_t a, uint32_t b, uint32_t) {
        a = flush(a & 0xffff), b = flush(b & 0xffff);
        if (nan(a) || nan(b)) return 0x7fffu;
        const auto key = [](uint32_t v) { return (v & 0x8000) ? -int(v & 0x7fff) - 1 : int(v); };
        return key(a) < key(b) ? a : b;
      });
  expect("max.xorsign.abs.bf16x2 %r4, %r1, %r2;", [](uint32_t a, uint32_t b, uint32_t) {
    uint32_t r = 0;
    for (int k = 0; k < 32; k += 16) {
      const uint32_t x = a >> k & 0xffff, y = b >> k & 0xffff;
      const bool x_nan = (x & 0x7fff) > 0x7f80, y_nan = (y & 0x7fff) > 0x7f80;
      const uint32_t sign = (x ^ y) & 0x8000;
      r |= (x_nan && y_nan ? 0x7fff
            : x_nan        ? (y & 0x7fff) | sign
            : y_nan        ? (x & 0x7fff) | sign
                           : std::max(x & 0x7fff, y & 0x7fff) | sign)
           << k;
    }
    return r;
  });
  // Subnormals are zeros before and after: the least normal times a half is zero.
  expect(
      "and.b32 %r1, %r1, 0x03ff03ff; mov.b32 %r2, 0x38003800; mov.b32 %r5, 0x04000400; "
      "fma.rn.ftz.f16x2 %r4, %r5, %r2, %r1;",
      [](uint32_t, uint32_t, uint32_t) { return 0u; });
}

TEST_F(ExecRare, VectorAtomics) {
  std::vector<float> sums(4);
  std::vector<uint16_t> halves(8);
  std::vector<float> old(32);
  ASSERT_TRUE(load(kernel(R"(
    mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %f1, %r0; add.f32 %f2, %f1, 1.0;
    atom.global.add.v2.f32 {%f3, %f4}, [%rd0+8], {%f1, %f2};
    mul.wide.u32 %rd9, %r0, 4; add.s64 %rd9, %rd9, %rd2; st.global.f32 [%rd9], %f4;
    red.relaxed.gpu.global.add.noftz.v4.f16x2 [%rd1], {%r1, %r1, %r2, %r1};)")))
      << error_;
  const uint64_t sum_base = share(sums), half_base = share(halves), old_base = share(old);
  // %r1 and %r2 begin undefined: set them by a kernel of their own values instead.
  ASSERT_TRUE(load(kernel(R"(
    mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %f1, %r0; add.f32 %f2, %f1, 1.0;
    mov.b32 %r1, 0x3c003800; mov.b32 %r2, 0xbc000001;
    atom.global.add.v2.f32 {%f3, %f4}, [%rd0+8], {%f1, %f2};
    mul.wide.u32 %rd9, %r0, 4; add.s64 %rd9, %rd9, %rd2; st.global.f32 [%rd9], %f4;
    red.relaxed.gpu.global.add.noftz.v4.f16x2 [%rd1], {%r1, %r1, %r2, %r1};)")))
      << error_;
  ASSERT_EQ(launch({1}, {32}, {sum_base, half_base, old_base}), RunState::kDone)
      << fault_.describe();
  EXPECT_EQ(sums, (std::vector<float>{0, 0, 496, 528}));
  EXPECT_EQ(old[31], 528 - 32) << "in the order of the lanes";
  // 32 halves, 32 ones, 32 of the least subnormal, 32 of minus one.
  EXPECT_EQ(halves,
            (std::vector<uint16_t>{0x4c00, 0x5000, 0x4c00, 0x5000, 32, 0xd000, 0x4c00, 0x5000}));
  ASSERT_EQ(launch({1}, {32}, {sum_base + 4, half_base, old_base}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kMisaligned);
}

TEST_F(ExecRare, Atomics128) {
  alignas(16) static uint64_t cell[2];
  cell[0] = 5, cell[1] = 7;
  ASSERT_TRUE(map_.add(reinterpret_cast<uint64_t>(cell), 16));
  ASSERT_TRUE(load(kernel(R"(
    .reg .b128 %q<6>;
    ld.global.b128 %q0, [%rd0];
  AGAIN: mov.b128 {%rd6, %rd7}, %q0; add.u64 %rd6, %rd6, 1; add.u64 %rd7, %rd7, %rd6;
  mov.b128 %q1, {%rd6, %rd7};
    atom.relaxed.gpu.global.cas.b128 %q2, [%rd0], %q0, %q1;
    mov.b128 {%rd8, %rd9}, %q2; mov.b128 {%rd10, %rd11}, %q0;
    setp.ne.u64 %p1, %rd8, %rd10; setp.ne.or.u64 %p1, %rd9, %rd11, %p1; mov.b128 %q0, %q2;
    @%p1 bra AGAIN;)")))
      << error_;
  ASSERT_EQ(launch({2}, {40}, {reinterpret_cast<uint64_t>(cell)}), RunState::kDone)
      << fault_.describe();
  EXPECT_EQ(cell[0], 85u);
  EXPECT_EQ(cell[1], 7u + 80 * 5 + 80 * 81 / 2);
}

TEST_F(ExecRare, SpacesOfAddresses) {
  ASSERT_TRUE(load(kernel(R"(
    .shared .align 4 .b8 box[16]; .local .align 4 .b8 mine[16];
    mov.u64 %rd6, box; cvta.shared.u64 %rd6, %rd6; mov.u64 %rd7, mine; cvta.local.u64 %rd7, %rd7;
    mov.u64 %rd8, k1; cvta.const.u64 %rd8, %rd8; mov.u64 %rd9, p1; cvta.param.u64 %rd9, %rd9;
    mov.u32 %r1, 0; mov.u64 %rd10, %rd0;
    .reg .b64 %a; mov.u32 %r2, 0;
  L: setp.eq.u32 %p1, %r2, 0; selp.b64 %a, %rd6, %rd0, %p1; setp.eq.u32 %p1, %r2, 1;
  selp.b64 %a, %rd7, %a, %p1;
    setp.eq.u32 %p1, %r2, 2; selp.b64 %a, %rd8, %a, %p1; setp.eq.u32 %p1, %r2, 3;
    selp.b64 %a, %rd9, %a, %p1;
    mov.u32 %r3, 0;
    isspacep.shared %p1, %a; @%p1 or.b32 %r3, %r3, 1; isspacep.local %p1, %a;
    @%p1 or.b32 %r3, %r3, 2;
    isspacep.const %p1, %a; @%p1 or.b32 %r3, %r3, 4; isspacep.param %p1, %a;
    @%p1 or.b32 %r3, %r3, 8;
    isspacep.global %p1, %a; @%p1 or.b32 %r3, %r3, 16;
    st.global.u32 [%rd10], %r3; add.u64 %rd10, %rd10, 4; add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 5; @%p1 bra L;)",
                          ".const .align 4 .u32 k1 = 3;\n")))
      << error_;
  std::vector<uint32_t> out(5);
  ASSERT_EQ(launch({1}, {1}, {share(out)}), RunState::kDone) << fault_.describe();
  EXPECT_EQ(out, (std::vector<uint32_t>{1, 2, 4, 8, 16}));
}

// A subtraction carries where it does not borrow, so addc counts that: clang's and NVCC's division
// of 128-bit numbers does.
TEST_F(ExecRare, SubtractionsCarryWhereTheyDoNotBorrow) {
  expect("sub.cc.u32 %r5, %r1, %r2; addc.u32 %r4, %r3, 0;",
         [](uint32_t a, uint32_t b, uint32_t c) { return c + (a >= b); });
  expect("add.cc.u32 %r5, %r1, %r2; subc.cc.u32 %r5, %r3, 0; addc.u32 %r4, %r5, 0;",
         [](uint32_t a, uint32_t b, uint32_t c) {
           const uint32_t borrow = uint64_t{a} + b <= UINT32_MAX;
           return c - borrow + (c >= borrow);
         });
}

TEST_F(ExecRare, MatricesOfDoublesNameTheirRounding) {
  const auto product = [this](const std::string& rounding) {
    return results(
        "cvt.rn.f64.u32 %fd0, %r1; cvt.rn.f64.u32 %fd1, %r2; cvt.rn.f64.u32 %fd2, %r3;\n"
        "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64" +
        rounding +
        " {%fd3, %fd4}, {%fd0}, {%fd1}, {%fd2, %fd2};\n"
        "add.f64 %fd3, %fd3, %fd4; mov.b64 {%r5, %r6}, %fd3; xor.b32 %r4, %r5, %r6;");
  };
  const std::vector<uint32_t> plain = product("");
  EXPECT_EQ(product(".rn"), plain);
  EXPECT_NE(plain, std::vector<uint32_t>(plain.size()));
}

// Elements of less than a byte: rows of A and columns of B as they lie in memory, 128 bits each.
TEST_F(ExecRare, MatricesOfBitsAndHalfBytes) {
  std::vector<uint32_t> memory(64 + 3 * 64);
  for (uint32_t k = 0; k < 64; ++k) memory[k] = k * 2654435761u;
  const uint64_t base = share(memory);
  std::string body =
      ".reg .b32 %a<2>, %d<2>; mov.u32 %r9, 0; add.u64 %rd1, %rd0, 128; add.u64 %rd2, %rd0, 256;\n";
  const auto product = [&body](const char* shape, const char* type, const char* how) {
    const std::string ending = std::string(shape) + ".global." + type + " ";
    const auto number = std::to_string(shape[4] == 'k' && shape[5] == '1' ? 128 : 32);
    body += "wmma.load.a.sync.aligned.row." + ending + "{%a0}, [%rd0], " + number +
            ";\nwmma.load.b.sync.aligned.col." + ending + "{%a1}, [%rd1], " + number +
            ";\nwmma.mma." + how + "sync.aligned.row.col." + shape + ".s32." + type + "." + type +
            ".s32 {%d0, %d1}, {%a0}, {%a1}, {%r9, %r9};\nwmma.store.d.sync.aligned.row." + shape +
            ".global.s32 [%rd2], {%d0, %d1}, 8;\nadd.u64 %rd2, %rd2, 256;\n";
  };
  product("m8n8k128", "b1", "xor.popc.");
  product("m8n8k128", "b1", "and.popc.");
  product("m8n8k32", "s4", "");
  ASSERT_TRUE(load(kernel(body))) << error_;
  ASSERT_EQ(launch({1}, {32}, {base}), RunState::kDone) << fault_.describe();
  const auto half_byte = [&memory](uint32_t word, uint32_t k) {
    return static_cast<int32_t>(memory[word] << (28 - 4 * k)) >> 28;
  };
  for (uint32_t m = 0; m < 8; ++m) {
    for (uint32_t n = 0; n < 8; ++n) {
      uint32_t differ = 0, both = 0, sum = 0;
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t a = memory[m * 4 + k], b = memory[32 + n * 4 + k];
        differ += static_cast<uint32_t>(std::popcount(a ^ b));
        both += static_cast<uint32_t>(std::popcount(a & b));
        for (uint32_t i = 0; i < 8; ++i)
          sum += static_cast<uint32_t>(half_byte(m * 4 + k, i) * half_byte(32 + n * 4 + k, i));
      }
      EXPECT_EQ(memory[64 + m * 8 + n], differ);
      EXPECT_EQ(memory[128 + m * 8 + n], both);
      EXPECT_EQ(memory[192 + m * 8 + n], sum);
    }
  }
  EXPECT_FALSE(load(kernel("wmma.load.a.sync.aligned.col.m8n8k32.global.u4 {%r1}, [%rd0];")));
}

}  // namespace
}  // namespace sluice::exec
