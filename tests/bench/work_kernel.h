// SPDX-License-Identifier: Apache-2.0
// The kernel that benchmarks keep a GPU busy with: a loop of integers whose length is a parameter.
// Each block counts itself, so that one that ran twice or never shows.
#pragma once

namespace sluice::bench {

// The loop. Before: `steps` in %r1. After: %p2 is set in thread 0, and %r4 is what its block adds
// to its count: 1, or 2 where the loop's value is one that it hardly ever is. That use keeps an
// assembler from dropping the loop. Takes %r1 to %r4, %p1 to %p3 and the label LOOP.
#define SLUICE_BENCH_LOOP                         \
  "  mov.u32 %r2, %tid.x;\n"                      \
  "  mov.u32 %r3, %r2;\n"                         \
  "LOOP:\n"                                       \
  "  mad.lo.u32 %r3, %r3, 1664525, 1013904223;\n" \
  "  sub.u32 %r1, %r1, 1;\n"                      \
  "  setp.ne.u32 %p1, %r1, 0;\n"                  \
  "  @%p1 bra LOOP;\n"                            \
  "  setp.eq.u32 %p2, %r2, 0;\n"                  \
  "  setp.eq.and.u32 %p3, %r3, 12345, %p2;\n"     \
  "  selp.u32 %r4, 2, 1, %p3;\n"

// work(out, steps, first): block k counts in out[first + k].
inline constexpr char kWorkPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 out, .param .u32 steps, .param .u32 first)
{
  .reg .u64 %rd<4>; .reg .u32 %r<7>; .reg .pred %p<4>;
  ld.param.u32 %r1, [steps];
)" SLUICE_BENCH_LOOP R"(
  @!%p2 bra DONE;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r5, %ctaid.x;
  ld.param.u32 %r6, [first];
  add.u32 %r5, %r5, %r6;
  mul.wide.u32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  red.global.add.u32 [%rd3], %r4;
DONE:
  ret;
}
)";

// Whether a block that `launches` launches had has run in each of them.
constexpr bool has_run(unsigned count, unsigned launches) {
  return count == launches || count == 2 * launches;
}

}  // namespace sluice::bench
