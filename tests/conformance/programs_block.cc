// SPDX-License-Identifier: Apache-2.0
// Programs of a whole block: named barriers, collectives of parts of a warp, divergence, shared
// memory, atomics whose result does not depend on their order.
#include "tests/conformance/builder.h"
#include "tests/conformance/programs.h"

namespace sluice::conformance {
namespace {

// One word in and out per thread; %r10 is the input and, at the end, the output.
void add(std::vector<Program>& all, const std::string& name, unsigned blocks, unsigned threads,
         const std::string& body) {
  add_program(
      all, name, blocks, threads, 1, 1,
      ".shared .align 16 .b8 sm_" + name +
          "[8192];\nld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];\nmov.u32 %r1, %tid.x; "
          "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1; mov.u32 "
          "%r5, %laneid; mov.u32 %r6, sm_" +
          name +
          ";\nshl.b32 %r7, %r1, 2; add.u32 %r7, %r6, %r7; mul.wide.u32 %rd3, %r4, 4; add.u64 "
          "%rd2, %rd2, %rd3; add.u64 %rd4, %rd1, %rd3; ld.global.b32 %r10, [%rd2];\n" +
          body + "\nst.global.b32 [%rd4], %r10;\nret;\n");
}

}  // namespace

void block_programs(std::vector<Program>& all) {
  // Producers arrive, consumers wait; then the other way round.
  add(all, "named_barriers", 2, 128,
      "setp.lt.u32 %p1, %r1, 64; mov.u32 %r20, 0;\nL: @!%p1 bra C;\nmad.lo.u32 %r10, %r10, "
      "1664525, %r20; st.shared.b32 [%r7], %r10; barrier.cta.arrive 1, 128; barrier.cta.sync 2, "
      "128; bra N;\nC: barrier.cta.sync 1, 128; ld.shared.b32 %r11, [%r7+-256]; xor.b32 %r10, "
      "%r10, %r11; barrier.cta.arrive 2, 128;\nN: add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 5; "
      "@%p2 bra L;");
  // One warp leaves early: barriers count those that are left.
  add(all, "barrier_after_exit", 1, 128,
      "st.shared.b32 [%r7], %r10; setp.ge.u32 %p1, %r1, 96; @%p1 st.global.b32 [%rd4], %r10; "
      "bar.sync 0;\n@%p1 exit;\nxor.b32 %r11, %r1, 32; shl.b32 %r11, %r11, 2; add.u32 %r11, %r6, "
      "%r11; ld.shared.b32 %r12, [%r11]; bar.sync 0; add.u32 %r10, %r10, %r12;");
  add(all, "barrier_reductions", 1, 160,
      "and.b32 %r11, %r10, 3; setp.eq.u32 %p1, %r11, 0; bar.red.popc.u32 %r12, 0, %p1; setp.ne.u32 "
      "%p2, %r11, 9; bar.red.and.pred %p3, 0, %p2; setp.eq.u32 %p4, %r1, 77; bar.red.or.pred %p5, "
      "3, %p4; selp.u32 %r13, 1000, 0, %p3; selp.u32 %r14, 5000, 0, %p5; add.u32 %r10, %r12, "
      "%r13; add.u32 %r10, %r10, %r14;");
  // Loops of different length per lane (steps of the Collatz sequence of 12 bits).
  add(all, "divergent_loop", 4, 96,
      "and.b32 %r11, %r10, 0xfff; or.b32 %r11, %r11, 1; mov.u32 %r12, 0;\nL: setp.le.u32 %p1, "
      "%r11, 1; @%p1 bra E; and.b32 %r13, %r11, 1; setp.eq.u32 %p2, %r13, 0; @%p2 bra H; "
      "mad.lo.u32 %r11, %r11, 3, 1; bra N;\nH: shr.u32 %r11, %r11, 1;\nN: add.u32 %r12, %r12, 1; "
      "setp.lt.u32 %p3, %r12, 300; @%p3 bra L;\nE: mad.lo.u32 %r10, %r11, 1000, %r12;");
  add(all, "branch_table", 2, 64,
      "and.b32 %r11, %r10, 3; TS: .branchtargets T0, T1, T2, T3; brx.idx %r11, TS;\nT0: add.u32 "
      "%r10, %r10, 1; bra E;\nT1: xor.b32 %r10, %r10, 0xffff; bra E;\nT2: shl.b32 %r10, %r10, "
      "3;\nT3: not.b32 %r10, %r10;\nE: shfl.sync.bfly.b32 %r12, %r10, 1, 31, -1; add.u32 %r10, "
      "%r10, %r12;");
  // Tiles of eight and of odd lanes.
  add(all, "tile_collectives", 2, 64,
      "and.b32 %r11, %r5, 24; mov.u32 %r12, 255; shl.b32 %r12, %r12, %r11; shfl.sync.down.b32 "
      "%r13, %r10, 3, 0x181f, %r12; setp.lt.s32 %p1, %r10, 0; vote.sync.ballot.b32 %r14, %p1, "
      "%r12; and.b32 %r15, %r10, 1; match.any.sync.b32 %r16, %r15, %r12; redux.sync.max.s32 %r17, "
      "%r10, %r12; vote.sync.all.pred %p2, %p1, %r12; selp.u32 %r18, 1, 0, %p2; xor.b32 %r10, "
      "%r13, %r14; add.u32 %r10, %r10, %r16; xor.b32 %r10, %r10, %r17; add.u32 %r10, %r10, %r18;");
  add(all, "collectives_in_branches", 2, 64,
      "setp.lt.s32 %p1, %r10, 0; vote.sync.ballot.b32 %r11, %p1, -1; @%p1 bra N;\nnot.b32 %r11, "
      "%r11; redux.sync.add.u32 %r12, %r10, %r11; match.any.sync.b32 %r13, %r11, %r11; bra E;\nN: "
      "redux.sync.min.u32 %r12, %r10, %r11; and.b32 %r14, %r10, 6; match.any.sync.b32 %r13, %r14, "
      "%r11;\nE: bar.warp.sync -1; activemask.b32 %r15; add.u32 %r10, %r12, %r13; popc.b32 %r15, "
      "%r15; add.u32 %r10, %r10, %r15;");
  // A lock taken by every lane of a warp in turn.
  add(all, "lock_in_a_warp", 1, 64,
      "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.v2.b32 [%r6], {0, 0}; bar.sync 0; mov.u32 %r20, "
      "0;\nL: atom.shared.cas.b32 %r11, [%r6], 0, 1; setp.ne.u32 %p2, %r11, 0; @%p2 bra L; "
      "ld.volatile.shared.b32 %r12, [%r6+4]; add.u32 %r12, %r12, %r1; st.volatile.shared.b32 "
      "[%r6+4], %r12; membar.cta; atom.shared.exch.b32 %r11, [%r6], 0; bar.sync 0; "
      "ld.volatile.shared.b32 %r10, [%r6+4];");
  add(all, "shared_histogram", 2, 256,
      "st.shared.b32 [%r7], 0; bar.sync 0; and.b32 %r11, %r10, 63; shl.b32 %r11, %r11, 2; add.u32 "
      "%r11, %r6, %r11; atom.shared.add.u32 %r12, [%r11], 1; red.shared.max.u32 [%r11+512], %r10; "
      "red.shared.xor.b32 [%r11+256], %r10; bar.sync 0; ld.shared.b32 %r10, [%r7];");
  add(all, "global_reductions", 4, 128,
      "and.b32 %r11, %r10, 127; mul.wide.u32 %rd5, %r11, 4; and.b32 %r12, %r2, 3; shl.b32 %r12, "
      "%r12, 9; cvt.u64.u32 %rd6, %r12; add.u64 %rd5, %rd5, %rd6; add.u64 %rd5, %rd1, %rd5; "
      "red.global.add.u32 [%rd5], %r10; membar.gl; bar.sync 0; ld.volatile.global.b32 %r10, "
      "[%rd4]; bar.sync 0;");
  add(all, "prefix_sum", 2, 256,
      "mov.u32 %r20, 1; and.b32 %r10, %r10, 0xffff;\nL: st.shared.b32 [%r7], %r10; bar.sync 0; "
      "setp.ge.u32 %p1, %r1, %r20; shl.b32 %r11, %r20, 2; sub.u32 %r11, %r7, %r11; mov.u32 %r12, "
      "0; @%p1 ld.shared.b32 %r12, [%r11]; bar.sync 0; add.u32 %r10, %r10, %r12; shl.b32 %r20, "
      "%r20, 1; setp.lt.u32 %p2, %r20, 256; @%p2 bra L;");
  add(all, "local_array", 2, 64,
      ".local .align 16 .b8 lm[64];\nmov.u64 %rd10, lm; and.b32 %r11, %r10, 15; mul.wide.u32 "
      "%rd11, "
      "%r11, 4; add.u64 %rd11, %rd10, %rd11; st.local.v4.b32 [lm], {%r1, %r10, %r5, %r4}; "
      "st.local.v4.b32 [lm+16], {%r10, %r1, %r4, %r5}; st.local.v4.b32 [lm+32], {1, 2, 3, 4}; "
      "st.local.v2.b64 [lm+48], {%rd3, %rd3}; st.local.b32 [%rd11], %r4; ld.local.v4.b32 {%r12, "
      "%r13, %r14, %r15}, [lm+16]; ld.local.b32 %r16, [%rd11]; ld.local.u8 %r17, [lm+49]; add.u32 "
      "%r10, %r12, %r13; xor.b32 %r10, %r10, %r14; add.u32 %r10, %r10, %r15; "
      "add.u32 %r10, %r10, %r16; add.u32 %r10, %r10, %r17;");
  add(all, "predicated_shuffles", 2, 64,
      "and.b32 %r11, %r5, 1; setp.eq.u32 %p1, %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0;\n@%p1 "
      "shfl.sync.idx.b32 %r12, %r10, 6, 31, 0x55555555;\n@!%p1 shfl.sync.up.b32 %r13, %r10, 2, 0, "
      "0xaaaaaaaa;\nadd.u32 %r10, %r12, %r13;");
}

}  // namespace sluice::conformance
