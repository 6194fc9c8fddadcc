// SPDX-License-Identifier: Apache-2.0
// Hazards of warps: collectives after some of their lanes have returned. See hazards.h.
#include "tests/unit/passes/hazards.h"

namespace sluice::tool::hazards {

std::vector<Hazard> lane_hazards() {
  return {
      // Lanes that have returned are parked, not gone.
      {"shuffle_after_return", "lane-masks", {9, 1, 1}, {100, 1, 1}, 0, 777, "", R"(
	setp.ge.u32 %p1, %r3, %r4;
	@%p1 bra $END;
	shfl.sync.down.b32 %r10|%p2, %r5, 1, 31, -1;
	selp.u32 %r10, %r10, 0, %p2;
	vote.sync.ballot.b32 %r11, %p2, 0xffffffff;
	popc.b32 %r11, %r11;
	mov.u32 %r13, 4294967295;
	redux.sync.add.s32 %r12, %r11, %r13;
	bar.warp.sync %r13;
	match.any.sync.b32 %r14, %r12, %r13;
	popc.b32 %r14, %r14;
	add.u32 %r12, %r12, %r14;
	and.b32 %r15, %r0, 31;
	setp.eq.u32 %p3, %r15, 31;
	@%p3 mov.u32 %r10, 0;
	sub.u32 %r16, %r4, 1;
	setp.eq.u32 %p3, %r3, %r16;
	@%p3 mov.u32 %r10, 0;
	add.u32 %r12, %r12, %r10;
	st.global.u32 [%rd2], %r12;
$END:
	ret;)"},
      // The last warp of a block reduction, as everybody writes it.
      {"one_warp_reduces", "lane-masks", {8, 1, 1}, {96, 1, 1}, 0, 0, "", R"(
	setp.gt.u32 %p1, %r0, 31;
	@%p1 bra $END;
	mov.u32 %r10, %r5;
	shfl.sync.bfly.b32 %r11, %r10, 16, 31, -1;
	add.u32 %r10, %r10, %r11;
	shfl.sync.bfly.b32 %r11, %r10, 1, 31, -1;
	add.u32 %r10, %r10, %r11;
	setp.ne.u32 %p2, %r0, 0;
	@%p2 bra $END;
	st.global.u32 [%rd2], %r10;
$END:
	ret;)"},
      // Lanes drop out of a loop with a collective one after the other.
      {"shuffle_in_loop", "lane-masks", {9, 1, 1}, {64, 1, 1}, 0, 0, "", R"(
	and.b32 %r10, %r5, 15;
	mov.u32 %r11, 0;
	mov.u32 %r12, 0;
$LOOP:
	setp.gt.u32 %p1, %r11, %r10;
	@%p1 bra $OUT;
	vote.sync.ballot.b32 %r13, %p1, -1;
	activemask.b32 %r16;
	mov.pred %p3, -1;
	vote.sync.ballot.b32 %r14, %p3, -1;
	popc.b32 %r14, %r14;
	add.u32 %r12, %r12, %r14;
	add.u32 %r11, %r11, 1;
	bra $LOOP;
$OUT:
	st.global.u32 [%rd2], %r12;
	ret;)"},
      // A guard inside a loop, a loop inside a guard, and a return from the inner one.
      {"nested_lanes", "lane-masks", {9, 1, 1}, {64, 1, 1}, 0, 500, "", R"(
	setp.ge.u32 %p1, %r3, %r4;
	@%p1 ret;
	mov.u32 %r11, 0;
	mov.u32 %r12, 0;
	mov.pred %p6, -1;
$OUTER:
	and.b32 %r13, %r5, 1;
	setp.eq.u32 %p2, %r13, 0;
	vote.sync.ballot.b32 %r20, %p2, -1;
	not.b32 %r21, %r20;
	@%p2 bra $EVEN;
	vote.sync.ballot.b32 %r14, %p6, %r21;
	popc.b32 %r14, %r14;
	add.u32 %r12, %r12, %r14;
	bra $JOIN;
$EVEN:
	vote.sync.ballot.b32 %r15, %p6, %r20;
	popc.b32 %r15, %r15;
	shl.b32 %r15, %r15, 8;
	add.u32 %r12, %r12, %r15;
$JOIN:
	vote.sync.ballot.b32 %r16, %p6, -1;
	popc.b32 %r16, %r16;
	shl.b32 %r16, %r16, 16;
	add.u32 %r12, %r12, %r16;
	shr.u32 %r5, %r5, 1;
	add.u32 %r11, %r11, 1;
	and.b32 %r17, %r0, 3;
	setp.gt.u32 %p3, %r11, %r17;
	@!%p3 bra $OUTER;
	st.global.u32 [%rd2], %r12;
	ret;)"},
      {"barrier_and_shuffle",
       "lane-masks",
       {7, 1, 1},
       {96, 1, 1},
       0,
       640,
       ".shared .align 4 .b8 bs[12];",
       R"(
	setp.ge.u32 %p1, %r3, %r4;
	@%p1 ret;
	shr.u32 %r10, %r0, 5;
	shl.b32 %r10, %r10, 2;
	mov.u32 %r11, bs;
	add.u32 %r11, %r11, %r10;
	mov.pred %p6, -1;
	vote.sync.ballot.b32 %r12, %p6, -1;
	st.shared.u32 [%r11], %r12;
	bar.sync 0;
	ld.shared.u32 %r13, [bs];
	popc.b32 %r13, %r13;
	st.global.u32 [%rd2], %r13;
	ret;)"},
      // Lanes come to one collective from different sides.
      {"lanes_from_both_sides", "prologue", {5, 1, 1}, {64, 1, 1}, 0, 250, "", R"(
	setp.ge.u32 %p1, %r3, %r4;
	@%p1 bra $TAKE;
	and.b32 %r10, %r5, 1;
	setp.eq.u32 %p2, %r10, 0;
	@%p2 bra $TAKE;
	ret;
$TAKE:
	mov.pred %p6, -1;
	vote.sync.ballot.b32 %r12, %p6, -1;
	popc.b32 %r12, %r12;
	st.global.u32 [%rd2], %r12;
	ret;)"},
      // Ways that join inside a guard's region, but behind its last collective.
      {"lanes_join_behind_collectives", "lane-masks", {7, 1, 1}, {96, 1, 1}, 0, 500, "", R"(
	setp.ge.u32 %p1, %r3, %r4;
	@%p1 ret;
	ld.global.u32 %r10, [%rd1+64];
	and.b32 %r10, %r10, 1;
	xor.b32 %r11, %r1, %r10;
	and.b32 %r11, %r11, 1;
	setp.eq.u32 %p2, %r11, 0;
	mov.u32 %r12, 3;
	@%p2 bra $JOIN;
	setp.lt.u32 %p3, %r5, 0x80000000;
	vote.sync.ballot.b32 %r12, %p3, -1;
	shfl.sync.idx.b32 %r13, %r10, 0, 31, -1;
	setp.eq.u32 %p4, %r13, 1;
	@%p4 bra $JOIN;
	match.any.sync.b32 %r14, %r12, -1;
	popc.b32 %r14, %r14;
	add.u32 %r12, %r12, %r14;
	bra $END;
$JOIN:
	ld.global.u32 %r15, [%rd1+8];
	add.u32 %r12, %r12, %r15;
$END:
	st.global.u32 [%rd2], %r12;
	ret;)"},
      // Lanes leave a loop one after another, or return from inside it: those that meet behind it
      // cannot know beforehand who the others will be.
      {"lanes_leave_loop_or_return", "prologue", {9, 1, 1}, {64, 1, 1}, 0, 0, "", R"(
	and.b32 %r10, %r5, 7;
	mov.u32 %r11, 0;
$LOOP:
	setp.ge.u32 %p1, %r11, %r10;
	@%p1 bra $BEHIND;
	add.u32 %r12, %r11, %r0;
	and.b32 %r12, %r12, 15;
	setp.eq.u32 %p2, %r12, 13;
	@%p2 ret;
	add.u32 %r11, %r11, 1;
	bra $LOOP;
$BEHIND:
	mov.pred %p3, -1;
	vote.sync.ballot.b32 %r13, %p3, -1;
	popc.b32 %r13, %r13;
	st.global.u32 [%rd2], %r13;
	ret;)"},
      // Of the lanes under the guard some come by the list to where those come that it lets fall
      // through.
      {"lanes_return_by_a_guarded_list", "prologue", {9, 1, 1}, {64, 1, 1}, 0, 0, "", R"(
	and.b32 %r10, %r0, 1;
	setp.gt.u32 %p1, %r0, 9;
$LIST:
	.branchtargets $STAY, $RETURN;
	@%p1 brx.idx %r10, $LIST;
$STAY:
	shfl.sync.idx.b32 %r11, %r0, 0, 31, -1;
	st.global.u32 [%rd2], %r0;
	ret;
$RETURN:
	ret;)"},
  };
}

}  // namespace sluice::tool::hazards
