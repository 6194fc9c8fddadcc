// SPDX-License-Identifier: Apache-2.0
// The module of small kernels that the software GPU's tests use. Written by hand; tests only.
#pragma once

namespace sluice {

// iota(out, n, first): out[i] = first + i.
// add(out, n, c): out[i] += c, with c an 8-bit parameter that makes the layout uneven.
// poke(address, value): one store.
// spin(flag): until the word at flag is not 0.
// append(log, value): log[1 + log[0]++] = value.
// where(out): out[block] = SM.
// shared(out, n): out[i] = i by way of dynamic shared memory, backwards, one block.
// churn(out, rounds): out[thread] = what is left of a number per thread after so many rounds
// through shared memory, barriers and divergent branches, by blocks of 128. trapped(), empty().
inline constexpr char kTestPtx[] = R"(
.version 8.0
.target sm_80
.address_size 64

.visible .global .align 4 .u32 table[4] = {10, 20, 30, 40};
.visible .const .align 8 .f64 factor = 0d4000000000000000;
.extern .shared .align 16 .b8 dynamic[];

.visible .entry iota(.param .u64 out, .param .u32 n, .param .u32 first)
{
  .reg .pred %p;
  .reg .b32 %r<7>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [first];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r3, %r3, %r4, %r5;
  setp.ge.u32 %p, %r3, %r1;
  @%p bra END;
  add.u32 %r2, %r2, %r3;
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r2;
END:
  ret;
}

.visible .entry add(.param .u8 c, .param .u64 out, .param .u16 unused, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<7>;
  .reg .b64 %rd<4>;
  ld.param.u8 %r6, [c];
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r3, %r3, %r4, %r5;
  setp.ge.u32 %p, %r3, %r1;
  @%p bra END;
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd1, %rd1, %rd2;
  ld.global.u32 %r2, [%rd1];
  add.u32 %r2, %r2, %r6;
  st.global.u32 [%rd1], %r2;
END:
  ret;
}

.visible .entry poke(.param .u64 address, .param .u32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [address];
  ld.param.u32 %r1, [value];
  st.global.u32 [%rd1], %r1;
  ret;
}

.visible .entry spin(.param .u64 flag)
{
  .reg .pred %p;
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [flag];
AGAIN:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p, %r1, 0;
  @%p bra AGAIN;
  ret;
}

.visible .entry append(.param .u64 log, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [log];
  ld.param.u32 %r1, [value];
  ld.global.u32 %r2, [%rd1];
  add.u32 %r2, %r2, 1;
  st.global.u32 [%rd1], %r2;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}

.visible .entry where(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %smid;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2;
  ret;
}

.visible .entry shared(.param .u64 out, .param .u32 n)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  sub.u32 %r3, %r1, %r2;
  sub.u32 %r3, %r3, 1;
  mov.u32 %r4, dynamic;
  shl.b32 %r5, %r3, 2;
  add.u32 %r5, %r4, %r5;
  st.shared.u32 [%r5], %r3;
  bar.sync 0;
  shl.b32 %r6, %r2, 2;
  add.u32 %r6, %r4, %r6;
  ld.shared.u32 %r7, [%r6];
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r7;
  ret;
}

.visible .entry churn(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p, %q;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  .shared .align 4 .b8 cells[512];
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mad.lo.s32 %r4, %r3, 128, %r2;
  mul.lo.u32 %r5, %r4, 0x9e3779b1;
  shl.b32 %r6, %r2, 2;
  mov.u32 %r7, cells;
  add.u32 %r6, %r7, %r6;
  add.u32 %r8, %r2, 1;
  and.b32 %r8, %r8, 127;
  shl.b32 %r8, %r8, 2;
  add.u32 %r8, %r7, %r8;
ROUND:
  st.shared.u32 [%r6], %r5;
  bar.sync 0;
  ld.shared.u32 %r9, [%r8];
  bar.sync 0;
  mad.lo.u32 %r5, %r5, 1664525, %r9;
  and.b32 %r10, %r5, 3;
WALK:
  setp.eq.u32 %q, %r10, 0;
  @%q bra WALKED;
  shr.u32 %r11, %r5, 7;
  xor.b32 %r5, %r5, %r11;
  sub.u32 %r10, %r10, 1;
  bra WALK;
WALKED:
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra ROUND;
  mul.wide.u32 %rd2, %r4, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r5;
  ret;
}

.visible .entry trapped()
{
  trap;
}

.visible .entry empty()
{
  ret;
}
)";

}  // namespace sluice
