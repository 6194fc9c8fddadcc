// SPDX-License-Identifier: Apache-2.0
// Pieces of kernels for the tests of launches under parts of the GPU: `p_rounds` times out[i] =
// out[i] * 3 + p_k, one thread an element, in blocks of 64. A kernel is kHead, what a test adds,
// kBody, and an end of its own (at least "ret; }").
#pragma once

#include "tests/support/worker_process.h"

namespace sluice::test {

inline constexpr char kHead[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 p_out, .param .u32 p_n, .param .u32 p_k, .param .u32 p_rounds)
{
  .reg .pred %p<10>;
  .reg .b32 %r<32>;
  .reg .b64 %rd<24>;
  ld.param.u64 %rd1, [p_out];
  ld.param.u32 %r4, [p_k];
  ld.param.u32 %r5, [p_rounds];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2;
)";
inline constexpr char kBody[] = R"(
  ld.global.u32 %r6, [%rd1];
AGAIN:
  mul.lo.u32 %r6, %r6, 3;
  add.u32 %r6, %r6, %r4;
  sub.u32 %r5, %r5, 1;
  setp.ne.u32 %p2, %r5, 0;
  @%p2 bra AGAIN;
  st.global.u32 [%rd1], %r6;
)";
// Named barriers that parts of the block meet at: what makes it the prologue form.
inline constexpr char kHalvesMeet[] = R"(
  setp.lt.u32 %p1, %r3, 32;
  @%p1 bra FIRST;
  barrier.sync 1, 64;
  bra GO;
FIRST:
  barrier.arrive 1, 64;
GO:
)";

}  // namespace sluice::test
