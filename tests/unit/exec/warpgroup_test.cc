// SPDX-License-Identifier: Apache-2.0
// wgmma: products of four warps with whole numbers, whose sums are exact whatever the order, from
// shared memory in each layout of the manual and from registers, of each type, and with a sparse
// A. And mma.sp.
#include <random>

#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

// How the bytes of an element code a small whole number.
uint32_t code(const std::string& type, int value) {
  const uint32_t sign = value < 0;
  const auto magnitude = static_cast<uint32_t>(value < 0 ? -value : value);
  if (type == "s8" || type == "u8" || type == "s4" || type == "u4")
    return static_cast<uint8_t>(value);
  if (type == "b1") return magnitude & 1;
  const int exponent_bits = type == "f16" || type == "e5m2" ? 5 : type == "e4m3" ? 4 : 8;
  const int mantissa_bits = type == "f16"    ? 10
                            : type == "bf16" ? 7
                            : type == "e4m3" ? 3
                            : type == "e5m2" ? 2
                                             : 23;
  uint32_t bits = 0;
  if (magnitude != 0) {
    const int top = 31 - __builtin_clz(magnitude);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    bits = static_cast<uint32_t>(top + bias) << mantissa_bits | (magnitude ^ 1u << top)
                                                                    << (mantissa_bits - top);
  }
  return bits | sign << (exponent_bits + mantissa_bits);
}
uint32_t bits_of(const std::string& type) {
  return type == "b1" ? 1 : type == "f16" || type == "bf16" ? 16 : type == "tf32" ? 32 : 8;
}

// A matrix of `count` rows (A) or columns (B) by K, in shared memory as a descriptor says.
struct Layout {
  uint32_t swizzle;  // log2 of chunks
  bool mn_major;
  uint32_t leading, stride;
};

struct Case {
  uint32_t n;
  std::string d, a, b;
  Layout a_layout, b_layout;
  bool registers = false;
  int scale_a = 1, scale_b = 1;
  bool add = true;
  bool saturate = false;
  int selector = -1;  // not negative: sparse
};

class ExecWarpgroup : public ExecTest {
 protected:
  ExecWarpgroup() : memory_(65536), out_(64 * 256) {
    base_ = share(memory_);
    out_base_ = share(out_);
  }

  // Element (row, k) of a matrix at `start` of memory_, in chunks of 16 bytes as the manual draws
  // them.
  void put(const Layout& layout, uint32_t start, uint32_t bits, uint32_t row, uint32_t k,
           uint32_t value) {
    const uint32_t per = 128 / bits, width = 1u << layout.swizzle;
    uint32_t chunk, inside;
    if (layout.mn_major) {
      const uint32_t unit = row / per;
      inside = row % per;
      chunk = layout.swizzle == 0 ? unit * layout.stride + k % 8 * 16 + k / 8 * layout.leading
                                  : unit % width * 16 + unit / width * layout.leading +
                                        k % 8 * width * 16 + k / 8 * layout.stride;
    } else {
      inside = k % per;
      chunk =
          row / 8 * layout.stride + (layout.swizzle == 0 ? row % 8 * 16 + k / per * layout.leading
                                                         : row % 8 * width * 16 + k / per * 16);
    }
    chunk ^= (chunk / 128 & (width - 1)) * 16;
    const uint32_t bit = (start + chunk) * 8 + inside * bits;
    if (bits < 8)
      memory_[bit / 8] = static_cast<uint8_t>(memory_[bit / 8] | value << bit % 8);
    else
      std::memcpy(&memory_[bit / 8], &value, bits / 8);
  }
  // Where element k of a row of a sparse A stands in the whole matrix: the second or the first of
  // its places. Its choice goes to the metadata.
  uint32_t choose(uint32_t bits, uint32_t row, uint32_t k, uint32_t selector, uint32_t second,
                  uint32_t metadata) {
    const uint32_t inside = row % 16, lane = row / 16 * 32 + inside % 8 * 4;
    const uint32_t choice = bits == 32 ? second : second + k % 2 * 2;
    const auto put_word = [&](uint32_t thread, uint32_t value) {
      uint32_t word;
      std::memcpy(&word, &memory_[metadata + thread * 4], 4);
      word |= value;
      std::memcpy(&memory_[metadata + thread * 4], &word, 4);
    };
    const uint32_t half = inside < 8 ? 0 : 16;
    if (bits == 32)
      put_word(lane + selector * 2 + k / 4, (choice != 0 ? 0b1110u : 0b0100u)
                                                << (k % 4 * 4 + half));
    else if (bits == 16)
      put_word(lane + selector * 2 + k / 8, choice << (k % 8 * 2 + half));
    else
      put_word(lane + k / 16 * 2 + inside / 8, choice << (k % 16 * 2));
    return bits == 32 ? k * 2 + choice : k / 2 * 4 + choice;
  }
  static std::string descriptor(uint32_t start, const Layout& layout) {
    static constexpr uint64_t kModes[] = {0, 3, 2, 1};
    const uint64_t value = start >> 4 | uint64_t{layout.leading >> 4} << 16 |
                           uint64_t{layout.stride >> 4} << 32 | kModes[layout.swizzle] << 62;
    return std::to_string(static_cast<int64_t>(value));
  }

  void check(const Case& c) {
    SCOPED_TRACE(c.d + "." + c.a + "." + c.b + " n" + std::to_string(c.n));
    // Of shared memory: B, A's registers, the metadata.
    constexpr uint32_t kB = 32768, kA = 49152, kMetadata = 51200;
    const bool sparse = c.selector >= 0;
    const uint32_t bits = bits_of(c.a), a_depth = 256 / bits,
                   depth = sparse ? 2 * a_depth : a_depth;
    std::mt19937 random(c.n * 7 + depth);
    std::vector<int> a(64 * depth), b(c.n * depth);
    std::fill(memory_.begin(), memory_.end(), 0);
    const bool bytes = c.d == "s32" && bits == 8;
    const auto number = [&](const std::string& type) {
      const int v = static_cast<int>(random());
      if (type == "b1") return v & 1;
      if (type == "u8") return v & 255;
      return bytes ? static_cast<int>(static_cast<int8_t>(v)) : (v & 7) - 3;
    };
    for (uint32_t row = 0; row < 64; ++row) {
      for (uint32_t k = 0; k < a_depth; ++k) {
        const uint32_t column = sparse ? choose(bits, row, k, static_cast<uint32_t>(c.selector),
                                                random() & 1, kMetadata)
                                       : k;
        const int v = a[row * depth + column] = number(c.a);
        if (!c.registers) {
          put(c.a_layout, 0, bits, row, k, code(c.a, v));
          continue;
        }
        // Register r of a lane: row group (+ 8), consecutive elements of place (+ 4 runs).
        const uint32_t per = 32 / bits, run = k / per % 4, half = k / per / 4;
        const uint32_t lane = row % 8 * 4 + run, reg = row / 8 % 2 + 2 * half;
        const uint32_t thread = row / 16 * 32 + lane;
        uint32_t word;
        uint8_t* const at = &memory_[kA + (thread * 4 + reg) * 4];
        std::memcpy(&word, at, 4);
        word |= code(c.a, v) << (k % per * bits);
        std::memcpy(at, &word, 4);
      }
    }
    for (uint32_t column = 0; column < c.n; ++column)
      for (uint32_t k = 0; k < depth; ++k)
        put(c.b_layout, kB, bits, column, k, code(c.b, b[column * depth + k] = number(c.b)));
    const bool halves = c.d == "f16";
    const uint32_t registers = halves ? c.n / 4 : c.n / 2;
    const std::string kind = c.d == "f32" ? "%d" : "%e";
    std::string list;
    std::string body =
        ".shared .align 1024 .b8 s[53248]; .reg .f32 %d<128>; .reg .b32 %e<128>;\n"
        "mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; cvt.u64.u32 %rd9, %r1; add.u64 %rd8, %rd0, %rd9;"
        "\nmov.u32 %r2, s; add.u32 %r2, %r2, %r1;\n"
        "C: ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd8]; st.shared.v4.u32 [%r2], {%r3, %r4, %r5, "
        "%r6};\nadd.u64 %rd8, %rd8, 2048; add.u32 %r2, %r2, 2048; add.u32 %r1, %r1, 2048;\n"
        "setp.lt.u32 %p1, %r1, 53248; @%p1 bra C;\n"
        "mov.u32 %r2, s; mad.lo.u32 %r2, %r0, 16, %r2;\n"
        "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r2+" +
        std::to_string(kA) + "];\nmad.lo.u32 %r2, %r0, -12, %r2; ld.shared.u32 %r14, [%r2+" +
        std::to_string(kMetadata) + "];\nfence.proxy.async.shared::cta; bar.sync 0;\n";
    const int first = c.saturate ? 0x7fffff00 : 5;
    for (uint32_t k = 0; k < registers; ++k) {
      list += (k == 0 ? "" : ", ") + kind + std::to_string(k);
      const uint32_t start = c.d == "s32"   ? static_cast<uint32_t>(first)
                             : c.d == "f32" ? code("tf32", first)
                                            : code("f16", first) * 0x10001u;
      body += "mov.b32 " + kind + std::to_string(k) + ", " + std::to_string(start) + ";\n";
    }
    body += "wgmma.fence.sync.aligned;\nmov.b64 %rd10, " + descriptor(0, c.a_layout) +
            "; mov.b64 %rd11, " + descriptor(kB, c.b_layout) + ";\nsetp.eq.u32 %p2, 1, " +
            (c.add ? "1" : "0") + ";\nwgmma.mma_async" + (sparse ? ".sp" : "") +
            ".sync.aligned.m64n" + std::to_string(c.n) + "k" + std::to_string(depth) + "." + c.d +
            "." + c.a + "." + c.b + (c.saturate ? ".satfinite" : "") +
            (c.a == "b1" ? ".and.popc" : "") + " {" + list + "}, " +
            (c.registers ? "{%r10, %r11, %r12, %r13}" : "%rd10") + ", %rd11" +
            (sparse ? ", %r14, " + std::to_string(c.selector) : "") + ", %p2";
    if (c.d != "s32") body += ", " + std::to_string(c.scale_a) + ", " + std::to_string(c.scale_b);
    if (bits == 16) {
      if (!c.registers) body += c.a_layout.mn_major ? ", 1" : ", 0";
      body += c.b_layout.mn_major ? ", 1" : ", 0";
    }
    body +=
        ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
        "mad.lo.u32 %r1, %r0, " +
        std::to_string(registers * 4) + ", 0; cvt.u64.u32 %rd9, %r1; add.u64 %rd8, %rd1, %rd9;\n";
    for (uint32_t k = 0; k < registers; ++k)
      body +=
          "st.global.b32 [%rd8+" + std::to_string(k * 4) + "], " + kind + std::to_string(k) + ";\n";
    ASSERT_TRUE(load(kernel(body))) << error_;
    ASSERT_EQ(launch({1, 1, 1}, {128, 1, 1}, {base_, out_base_}), RunState::kDone)
        << fault_.describe();
    for (uint32_t row = 0; row < 64; ++row) {
      for (uint32_t column = 0; column < c.n; ++column) {
        int64_t sum = 0;
        for (uint32_t k = 0; k < depth; ++k) sum += a[row * depth + k] * b[column * depth + k];
        sum = sum * c.scale_a * c.scale_b + (c.add ? first : 0);
        if (c.saturate) sum = std::min<int64_t>(sum, 0x7fffffff);
        const uint32_t thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
        const uint32_t slot = column / 8 * 4 + row / 8 % 2 * 2 + column % 2;
        const uint32_t word = out_[thread * registers + (halves ? slot / 2 : slot)];
        const auto whole = static_cast<int>(sum);
        if (halves)
          ASSERT_EQ(word >> (slot & 1) * 16 & 0xffff, code("f16", whole)) << row << " " << column;
        else
          ASSERT_EQ(word, c.d == "f32" ? code("tf32", whole) : static_cast<uint32_t>(whole))
              << row << " " << column;
      }
    }
  }

  std::vector<uint8_t> memory_;
  std::vector<uint32_t> out_;
  uint64_t base_ = 0, out_base_ = 0;
};

// Rows of A one behind the other, by the width of the swizzle.
constexpr Layout kPlain{0, false, 128, 256};
Layout k_major(uint32_t swizzle) { return {swizzle, false, 16, 128u << swizzle}; }
// `atoms` of the other direction between neighbours along M or N.
Layout mn_major(uint32_t swizzle) {
  return swizzle == 0 ? Layout{0, true, 128, 256}
                      : Layout{swizzle, true, 256u << swizzle, 128u << swizzle};
}

TEST_F(ExecWarpgroup, HalvesInEachLayout) {
  for (const uint32_t swizzle : {0u, 1u, 2u, 3u}) {
    const Layout k = swizzle == 0 ? kPlain : k_major(swizzle), mn = mn_major(swizzle);
    check({8, "f32", "f16", "f16", k, k});
    check({64, "f32", "bf16", "bf16", mn, k, false, -1, 1});
    check({136, "f16", "f16", "f16", k, mn, false, -1, -1});
    check({256, "f32", "f16", "f16", mn, mn, false, 1, 1, false});
  }
  check({40, "f32", "bf16", "bf16", kPlain, mn_major(3), true});
  check({72, "f16", "f16", "f16", kPlain, kPlain, true, 1, -1, false});
}
TEST_F(ExecWarpgroup, OtherElements) {
  check({8, "f32", "tf32", "tf32", kPlain, kPlain});
  check({24, "f32", "tf32", "tf32", k_major(3), k_major(3), true, -1, 1});
  for (const char* a : {"e4m3", "e5m2"})
    for (const char* b : {"e4m3", "e5m2"}) check({32, "f32", a, b, k_major(2), kPlain});
  check({16, "f16", "e4m3", "e5m2", kPlain, kPlain, true});
  for (const char* a : {"s8", "u8"})
    for (const char* b : {"s8", "u8"}) check({48, "s32", a, b, k_major(1), k_major(3)});
  check({24, "s32", "u8", "u8", kPlain, kPlain, true, 1, 1, true, true});
  check({256, "s32", "s8", "s8", kPlain, kPlain, false, 1, 1, false});
  check({8, "s32", "b1", "b1", kPlain, kPlain});
  check({96, "s32", "b1", "b1", k_major(3), kPlain, true});
}

TEST_F(ExecWarpgroup, Sparse) {
  const auto sparse = [this](Case c, int selector) {
    c.selector = selector;
    check(c);
  };
  constexpr Layout kWide{0, false, 128, 512};  // four chunks to a row
  const Layout k = k_major(2);
  sparse({8, "f32", "f16", "f16", kPlain, kWide}, 0);
  sparse({64, "f16", "f16", "f16", k, k, true}, 1);
  sparse({24, "f32", "bf16", "bf16", mn_major(3), {3, true, 2048, 1024}, false, -1, 1}, 1);
  sparse({16, "f32", "tf32", "tf32", k, kWide, true}, 0);
  sparse({40, "f32", "tf32", "tf32", k_major(1), k_major(3), false}, 1);
  sparse({32, "f32", "e4m3", "e5m2", kPlain, k_major(3), true}, 0);
  sparse({48, "s32", "s8", "u8", k, kWide, false}, 0);
  sparse({8, "s32", "u8", "s8", kPlain, k, true, 1, 1, false}, 0);
}

// fp8 keeps 13 bits below the largest term, and in the sum.
TEST_F(ExecWarpgroup, NarrowSumsOfFp8) {
  const std::string body =
      ".shared .align 1024 .b8 s[4096]; .reg .f32 %d<4>;\nmov.u32 %r0, %tid.x; mov.u32 %r2, s; "
      "mad.lo.u32 %r2, %r0, 32, %r2;\nmov.b64 %rd8, 0x3838383838383838;\n"
      "st.shared.u64 [%r2], %rd8; st.shared.u64 [%r2+8], %rd8; st.shared.u64 [%r2+16], %rd8;\n"
      "st.shared.u64 [%r2+24], %rd8; bar.sync 0;\n"
      "mov.f32 %d0, 0f46000000; mov.f32 %d1, 0f46000400; mov.f32 %d2, 0f3f800001; mov.f32 %d3, "
      "0fc6fffe00;\nmov.b64 %rd10, " +
      descriptor(0, kPlain) +
      ";\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%d0, %d1, %d2, %d3}, %rd10, %rd10, 1, "
      "1, 1;\nshl.b32 %r1, %r0, 4; cvt.u64.u32 %rd9, %r1; add.u64 %rd8, %rd1, %rd9;\n"
      "st.global.v4.f32 [%rd8], {%d0, %d1, %d2, %d3};\n";
  ASSERT_TRUE(load(kernel(body))) << error_;
  ASSERT_EQ(launch({1, 1, 1}, {128, 1, 1}, {base_, out_base_}), RunState::kDone);
  std::vector<float> got(4);
  std::memcpy(got.data(), out_.data(), 16);
  // 32 ones each. Steps are of 1 at 8192, and of 2 at 32766.
  EXPECT_EQ(got, (std::vector<float>{8224, 8225, 33, -32766}));
}

TEST_F(ExecWarpgroup, WhatTheManualDoesNotHaveIsRefused) {
  for (const char* text :
       {"m64n12k16.f32.f16.f16 {%f0, %f1, %f2, %f3, %f4, %f5}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "m64n8k32.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "m64n8k16.f32.f16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "m64n8k16.f16.bf16.bf16 {%r0, %r1}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "m64n8k16.f32.f16.f16 {%f0, %f1, %f2}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 1, 2, 1, 0, 0;",
        "m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 1, 1, 1, 0;",
        "m64n8k8.f32.tf32.tf32 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "m64n40k32.s32.s8.s8 {%r0, %r1, %r2, %r3}, %rd1, %rd2, 1;",
        "m64n8k256.s32.b1.b1.xor.popc {%r0, %r1, %r2, %r3}, %rd1, %rd2, 1;",
        "m64n8k16.f32.f16.f16;"})
    EXPECT_FALSE(load(kernel(std::string("wgmma.mma_async.sync.aligned.") + text))) << text;
  for (const char* text :
       {"m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %r1, 0, 1, 1, 1, 0, 0;",
        "m64n8k32.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %r1, 2, 1, 1, 1, 0, 0;",
        "m64n8k32.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "m64n8k64.s32.s8.s8 {%r0, %r1, %r2, %r3}, %rd1, %rd2, %r4, 1, 1;",
        "m64n8k512.s32.b1.b1.and.popc {%r0, %r1, %r2, %r3}, %rd1, %rd2, %r4, 0, 1;"})
    EXPECT_FALSE(load(kernel(std::string("wgmma.mma_async.sp.sync.aligned.") + text))) << text;
}

// Sparse A, whose metadata is in one or two threads of each four.
class ExecSparse : public ExecTest {
 protected:
  ExecSparse() : memory_(32 * 16), out_(32 * 4) {
    base_ = share(memory_);
    out_base_ = share(out_);
  }
  void check(const std::string& type, uint32_t depth, uint32_t selector) {
    SCOPED_TRACE(type + " k" + std::to_string(depth) + " " + std::to_string(selector));
    const bool wide = type == "tf32";
    const uint32_t per = wide ? 1 : 2, count = depth / 4 / per;  // registers of A, and of B
    const uint32_t columns = wide ? 8 : 16;                      // of one thread's metadata
    std::mt19937 random(depth + selector);
    std::vector<int> a(16 * depth), b(8 * depth);
    std::fill(memory_.begin(), memory_.end(), 0);
    // 32-bit words of a thread: A, B from 4, the metadata at 8.
    const auto put = [&](uint32_t thread, uint32_t reg, uint32_t part, int value) {
      memory_[thread * 16 + reg] |= code(type, value) << (part * 16);
    };
    for (uint32_t row = 0; row < 16; ++row) {
      for (uint32_t q = 0; q < depth / 2; ++q) {
        const uint32_t first = q * 2 / 4 * 4, thread = q * 2 / columns;
        uint32_t column, bits;
        if (wide) {
          const uint32_t choice = random() & 1;
          column = q * 2 + choice;
          bits = (choice != 0 ? 0b1110u : 0b0100u) << (q % 4 * 4);
        } else {  // the first of a pair is 0 or 1, the second 2 or 3
          const uint32_t choice = (random() & 1) + q % 2 * 2;
          column = first + choice;
          bits = choice << (q % 8 * 2);
        }
        const int value = a[row * depth + column] = static_cast<int>(random() & 7) - 3;
        put(row % 8 * 4 + q / per % 4, row / 8 + q / per / 4 * 2, q % per, value);
        const uint32_t lane = row % 8 * 4 + selector * (depth / columns) + thread;
        memory_[lane * 16 + 8] |= bits << (row < 8 ? 0 : 16);
      }
    }
    for (uint32_t column = 0; column < 8; ++column)
      for (uint32_t k = 0; k < depth; ++k)
        put(column * 4 + k / per % 4, 4 + k / per / 4, k % per,
            b[column * depth + k] = static_cast<int>(random() & 7) - 3);
    const auto list = [](uint32_t from, uint32_t n) {
      std::string text;
      for (uint32_t k = 0; k < n; ++k) text += (k == 0 ? "{%r" : ", %r") + std::to_string(from + k);
      return text + "}";
    };
    const std::string body =
        "mov.u32 %r1, %tid.x; mul.wide.u32 %rd8, %r1, 64; add.u64 %rd8, %rd8, %rd0;\n"
        "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd8];\n"
        "ld.global.v4.u32 {%r14, %r15, %r16, %r17}, [%rd8+16]; ld.global.u32 %r18, [%rd8+32];\n"
        "mov.f32 %f0, 0f40000000;\nmma.sp.sync.aligned.m16n8k" +
        std::to_string(depth) + ".row.col.f32." + type + "." + type +
        ".f32 {%f1, %f2, %f3, %f4}, " + list(10, count) + ", " + list(14, count) +
        ", {%f0, %f0, %f0, %f0}, %r18, " + std::to_string(selector) +
        ";\nmul.wide.u32 %rd8, %r1, 16; add.u64 %rd8, %rd8, %rd1;\n"
        "st.global.v4.f32 [%rd8], {%f1, %f2, %f3, %f4};\n";
    ASSERT_TRUE(load(kernel(body))) << error_;
    ASSERT_EQ(launch({1}, {32}, {base_, out_base_}), RunState::kDone) << fault_.describe();
    for (uint32_t row = 0; row < 16; ++row) {
      for (uint32_t column = 0; column < 8; ++column) {
        int sum = 2;
        for (uint32_t k = 0; k < depth; ++k) sum += a[row * depth + k] * b[column * depth + k];
        ASSERT_EQ(out_[(row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2],
                  static_cast<float>(sum))
            << row << " " << column;
      }
    }
  }
  // Integers and fp8. A word of metadata is 16 choices of a row; 4 bits are chosen in pairs.
  void check_narrow(const std::string& a_type, const std::string& b_type, uint32_t depth,
                    uint32_t selector) {
    SCOPED_TRACE(a_type + " k" + std::to_string(depth) + " " + std::to_string(selector));
    const bool integer = a_type[0] != 'e';
    const bool small = a_type == "s4" || a_type == "u4";
    const uint32_t bits = small ? 4 : 8, per = 32 / bits, run = small ? 2 : 1;
    const uint32_t count = depth / 4 / per, mask = (1u << bits) - 1;
    std::mt19937 random(depth + selector);
    const auto number = [&](const std::string& type) {
      return static_cast<int>(random() & 7) - (type[0] == 'u' ? 0 : 3);
    };
    std::vector<int> a(16 * depth), b(8 * depth);
    std::fill(memory_.begin(), memory_.end(), 0);
    const auto put = [&](uint32_t thread, uint32_t reg, uint32_t part, uint32_t value) {
      memory_[thread * 16 + reg] |= (value & mask) << (part * bits);
    };
    for (uint32_t row = 0; row < 16; ++row) {
      for (uint32_t q = 0; q < depth / 2; q += run) {
        const uint32_t nth = q / run, choice = (random() & 1) + nth % 2 * 2;
        const uint32_t word = selector * 2 + row / 8 + nth / 16 * 2;
        memory_[(row % 8 * 4 + word) * 16 + 8] |= choice << (nth % 16 * 2);
        for (uint32_t k = q; k < q + run; ++k) {
          const int value = a[row * depth + (nth / 2 * 4 + choice) * run + k - q] = number(a_type);
          put(row % 8 * 4 + k / per % 4, row / 8 + k / per / 4 * 2, k % per, code(a_type, value));
        }
      }
    }
    for (uint32_t column = 0; column < 8; ++column)
      for (uint32_t k = 0; k < depth; ++k)
        put(column * 4 + k / per % 4, 4 + k / per / 4, k % per,
            code(b_type, b[column * depth + k] = number(b_type)));
    run_narrow(a_type, b_type, depth, selector, count, integer);
    for (uint32_t row = 0; row < 16; ++row) {
      for (uint32_t column = 0; column < 8; ++column) {
        int sum = 2;
        for (uint32_t k = 0; k < depth; ++k) sum += a[row * depth + k] * b[column * depth + k];
        ASSERT_EQ(out_[(row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2],
                  static_cast<float>(sum))
            << row << " " << column;
      }
    }
  }
  // Multiplies, with 2 in each element of C.
  void run_narrow(const std::string& a_type, const std::string& b_type, uint32_t depth,
                  uint32_t selector, uint32_t count, bool integer) {
    const std::string sum = integer ? "s32" : "f32", r = integer ? "%r2" : "%f";
    const auto list = [](const std::string& name, uint32_t from, uint32_t n) {
      std::string text;
      for (uint32_t k = 0; k < n; ++k)
        text += (k == 0 ? "{" : ", ") + name + std::to_string(from + k);
      return text + "}";
    };
    std::string body =
        "mov.u32 %r1, %tid.x; mul.wide.u32 %rd8, %r1, 64; add.u64 %rd8, %rd8, %rd0;\n"
        "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd8];\n"
        "ld.global.v4.u32 {%r14, %r15, %r16, %r17}, [%rd8+16]; ld.global.u32 %r18, [%rd8+32];\n"
        "mov.u32 %r20, 2; mov.f32 %f0, 0f40000000;\n"
        "mma.sp::ordered_metadata.sync.aligned.m16n8k" +
        std::to_string(depth) + ".row.col." + (integer ? "satfinite." : "") + sum + "." + a_type +
        "." + b_type + "." + sum + " " + list(r, 1, 4) + ", " + list("%r", 10, count) + ", " +
        list("%r", 14, count) + ", {" + r + "0, " + r + "0, " + r + "0, " + r + "0}, %r18, " +
        std::to_string(selector) + ";\n";
    for (int k = 1; integer && k < 5; ++k)
      body += "cvt.rn.f32.s32 %f" + std::to_string(k) + ", %r2" + std::to_string(k) + ";\n";
    body +=
        "mul.wide.u32 %rd8, %r1, 16; add.u64 %rd8, %rd8, %rd1;\n"
        "st.global.v4.f32 [%rd8], {%f1, %f2, %f3, %f4};\n";
    ASSERT_TRUE(load(kernel(body))) << error_;
    ASSERT_EQ(launch({1}, {32}, {base_, out_base_}), RunState::kDone) << fault_.describe();
  }
  std::vector<uint32_t> memory_;
  std::vector<float> out_;
  uint64_t base_ = 0, out_base_ = 0;
};

TEST_F(ExecSparse, ProductsOfHalfOfAMatrixOfBytesAndLess) {
  for (const uint32_t selector : {0u, 1u}) {
    check_narrow("s8", "u8", 32, selector);
    check_narrow("u4", "s4", 64, selector);
  }
  check_narrow("u8", "s8", 64, 0);
  check_narrow("s4", "s4", 128, 0);
  check_narrow("e4m3", "e5m2", 64, 0);
  check_narrow("e5m2", "e5m2", 64, 0);
  EXPECT_FALSE(load(kernel(
      "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {%r0, %r1, %r2, %r3}, {%r0, %r1, %r2, "
      "%r3}, {%r0, %r1, %r2, %r3}, {%r0, %r1, %r2, %r3}, %r4, 1;")));
}

TEST_F(ExecSparse, ProductsOfHalfOfAMatrix) {
  for (const uint32_t selector : {0u, 1u, 2u, 3u}) {
    check("f16", 16, selector);
    check("tf32", 8, selector);
    if (selector > 1) continue;
    check("bf16", 32, selector);
    check("tf32", 16, selector);
  }
  EXPECT_FALSE(load(kernel(
      "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, "
      "%r2, %r3}, {%r0, %r1, %r2, %r3}, {%f0, %f1, %f2, %f3}, %r4, 2;")));
  EXPECT_FALSE(load(kernel("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32;")));
}

}  // namespace
}  // namespace sluice::exec
