// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/passes/hazards.h"

#include <iterator>
#include <vector>

namespace sluice::tool::hazards {

namespace {

const Hazard kHazards[] = {
    // One broadcast slot with one barrier per task: warps that are still in their body read the
    // next task's index too late.
    {"slow_warp", "plain", {23, 1, 1}, {96, 1, 1}, 0, 0, "", R"(
	mov.u32 %r10, 0;
	and.b32 %r11, %r5, 63;
$AGAIN:
	add.u32 %r10, %r10, 1;
	setp.lt.u32 %p1, %r10, %r11;
	@%p1 bra $AGAIN;
	mov.u32 %r12, %ctaid.x;
	add.u32 %r12, %r12, %r10;
	st.global.u32 [%rd2], %r12;
	ret;)"},
    // Written in one place, but threads that pass it by keep what an earlier turn of the loop
    // wrote.
    {"value_of_an_earlier_turn", "unified", {9, 1, 1}, {70, 1, 1}, 0, 0, "", R"(
	mov.u32 %r10, 0;
$AGAIN:
	setp.gt.u32 %p1, %r10, 0;
	setp.gt.and.u32 %p1, %r0, 20, %p1;
	@%p1 bra $PAST;
	mov.u32 %r11, %r10;
$PAST:
	add.u32 %r10, %r10, 1;
	setp.lt.u32 %p2, %r10, 2;
	@%p2 bra $AGAIN;
	setp.eq.u32 %p3, %r11, 0;
	@%p3 ret;
	bar.sync 0;
	st.global.u32 [%rd2], %r3;
	ret;)"},
    // Threads behind the end of the data return before the first barrier.
    {"return_before_barrier",
     "unified",
     {9, 1, 1},
     {70, 1, 1},
     0,
     600,
     ".shared .align 4 .b8 rb[280];",
     R"(
	setp.ge.u32 %p1, %r3, %r4;
	@%p1 ret;
	mov.u32 %r10, rb;
	shl.b32 %r11, %r0, 2;
	add.u32 %r11, %r10, %r11;
	st.shared.u32 [%r11], %r5;
	bar.sync 0;
	ld.shared.u32 %r12, [rb];
	add.u32 %r12, %r12, %r5;
	st.global.u32 [%rd2], %r12;
	exit;)"},
    {"return_between_barriers",
     "unified",
     {7, 1, 1},
     {96, 1, 1},
     0,
     0,
     ".shared .align 4 .b8 bb[384];",
     R"(
	mov.u32 %r10, bb;
	shl.b32 %r11, %r0, 2;
	add.u32 %r11, %r10, %r11;
	st.shared.u32 [%r11], %r5;
	barrier.sync 0;
	and.b32 %r12, %r5, 3;
	setp.eq.u32 %p1, %r12, 0;
	@%p1 exit;
	xor.b32 %r13, %r11, 4;
	ld.shared.u32 %r14, [%r13];
	bar.sync 0;
	st.shared.u32 [%r11], %r14;
	bar.sync 0;
	ld.shared.u32 %r15, [%r11];
	st.global.u32 [%rd2], %r15;
	ret;)"},
    // Threads leave a loop with barriers at different times.
    {"return_in_loop", "unified", {5, 2, 1}, {64, 1, 1}, 0, 0, ".shared .align 4 .b8 rl[4];", R"(
	and.b32 %r10, %r5, 7;
	mov.u32 %r11, 0;
	mov.u32 %r12, 0;
	setp.ne.u32 %p2, %r0, 0;
	@%p2 bra $LOOP;
	st.shared.u32 [rl], %r12;
$LOOP:
	bar.sync 0;
	atom.shared.add.u32 %r13, [rl], 1;
	bar.sync 0;
	ld.shared.u32 %r14, [rl];
	atom.global.add.u32 %r15, [%rd2], %r14;
	add.u32 %r11, %r11, 1;
	setp.gt.u32 %p1, %r11, %r10;
	@%p1 ret;
	bra $LOOP;)"},
    // Reductions over a barrier count only those that have not returned.
    {"reductions_after_return", "two-phase", {6, 1, 1}, {80, 1, 1}, 0, 0, "", R"(
	and.b32 %r10, %r5, 7;
	setp.eq.u32 %p1, %r10, 1;
	@%p1 ret;
	and.b32 %r11, %r5, 1;
	setp.ne.u32 %p2, %r11, 0;
	setp.lt.u32 %p5, %r10, 8;
	bar.red.popc.u32 %r12, 0, %p2;
	bar.red.and.pred %p3, 0, %p5;
	barrier.red.or.pred %p4, 0, !%p5;
	bar.sync 0;
	selp.u32 %r13, 1000, 0, %p3;
	selp.u32 %r14, 100000, 0, %p4;
	add.u32 %r12, %r12, %r13;
	add.u32 %r12, %r12, %r14;
	st.global.u32 [%rd2], %r12;
	ret;)"},
    {"two_phase_with_numbers_in_use", "two-phase", {6, 1, 1}, {64, 1, 1}, 0, 0, "", R"(
	bar.sync 1;
	bar.sync 2, 64;
	and.b32 %r10, %r5, 3;
	setp.eq.u32 %p1, %r10, 1;
	@%p1 ret;
	and.b32 %r10, %r5, 8;
	setp.ne.u32 %p2, %r10, 0;
	barrier.red.popc.u32 %r12, 0, !%p2;
	st.global.u32 [%rd2], %r12;
	ret;)"},
    // A copy that nobody waits for would land in the next task's shared memory.
    {"copy_not_waited_for",
     "plain",
     {9, 1, 1},
     {32, 1, 1},
     0,
     0,
     ".shared .align 16 .b8 cp[512];",
     R"(
	mov.u32 %r10, cp;
	shl.b32 %r11, %r0, 4;
	add.u32 %r10, %r10, %r11;
	st.shared.u32 [%r10], %r5;
	bar.sync 0;
	ld.shared.u32 %r12, [%r10];
	st.global.u32 [%rd2], %r12;
	and.b32 %r13, %r0, 15;
	mul.wide.u32 %rd4, %r13, 16;
	add.s64 %rd4, %rd1, %rd4;
	cp.async.cg.shared.global [%r10], [%rd4], 16;
	cp.async.commit_group;
	ret;)"},
    // A thread that ends inside a function.
    {"exit_in_function",
     "plain",
     {9, 1, 1},
     {64, 1, 1},
     0,
     300,
     ".func leave(.param .b32 v) { .reg .pred %p; .reg .b32 %r; ld.param.b32 %r, [v]; "
     "setp.ge.u32 %p, %r, 300; @%p exit; ret; }",
     R"(
	{
	.param .b32 a;
	st.param.b32 [a], %r3;
	call.uni leave, (a);
	}
	st.global.u32 [%rd2], %r5;
	ret;)"},
    // Functions that read index and grid themselves, one through another.
    {"index_in_function",
     "plain",
     {3, 2, 2},
     {32, 1, 1},
     0,
     0,
     R"(
.func (.param .b32 r) place()
{
	.reg .b32 %r<8>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ctaid.y;
	mov.u32 %r3, %ctaid.z;
	mov.u32 %r4, %nctaid.x;
	mov.u32 %r5, %nctaid.y;
	mad.lo.u32 %r3, %r3, %r5, %r2;
	mad.lo.u32 %r3, %r3, %r4, %r1;
	st.param.b32 [r], %r3;
	ret;
}
.func (.param .b32 r) slot(.param .b32 t, .param .b32 n)
{
	.reg .b32 %r<8>;
	{
	.param .b32 p;
	call.uni (p), place, ();
	ld.param.b32 %r1, [p];
	}
	ld.param.b32 %r2, [t];
	ld.param.b32 %r3, [n];
	mad.lo.u32 %r1, %r1, %r3, %r2;
	st.param.b32 [r], %r1;
	ret;
})",
     R"(
	{
	.param .b32 s;
	.param .b32 t;
	.param .b32 kk;
	st.param.b32 [t], %r0;
	st.param.b32 [kk], %r2;
	call.uni (s), slot, (t, kk);
	ld.param.b32 %r10, [s];
	}
	mul.wide.u32 %rd4, %r10, 4;
	add.s64 %rd4, %rd0, %rd4;
	atom.global.add.u32 %r11, [%rd4], %r10;
	ret;)"},
    // The base of dynamic shared memory must not move, its size not change.
    {"dynamic_shared",
     "plain",
     {5, 1, 1},
     {32, 1, 1},
     200,
     0,
     ".extern .shared .align 128 .b8 dyn[];\n.shared .align 4 .b8 stat[4];",
     R"(
	mov.u32 %r10, dyn;
	mov.u32 %r11, %dynamic_smem_size;
	st.shared.u32 [stat], %r11;
	bar.sync 0;
	shl.b32 %r12, %r0, 2;
	add.u32 %r12, %r10, %r12;
	st.shared.u32 [%r12], %r1;
	bar.sync 0;
	ld.shared.u32 %r13, [dyn+196];
	shl.b32 %r10, %r10, 16;
	add.u32 %r11, %r11, %r10;
	st.global.u32 [%rd2], %r11;
	ld.shared.u32 %r14, [dyn+124];
	atom.global.add.u32 %r15, [%rd2], %r14;
	ret;)"},
    {"all_static_shared",
     "plain",
     {5, 1, 1},
     {32, 1, 1},
     0,
     0,
     ".shared .align 16 .b8 all[49152];",
     R"(
	mov.u32 %r10, all;
	mul.lo.u32 %r11, %r0, 1536;
	add.u32 %r10, %r10, %r11;
	st.shared.u32 [%r10+1532], %r3;
	st.shared.u32 [%r10], %r5;
	bar.sync 0;
	ld.shared.u32 %r12, [all+49148];
	ld.shared.u32 %r13, [%r10];
	add.u32 %r12, %r12, %r13;
	st.global.u32 [%rd2], %r12;
	ret;)"},
    // Every way to name the index; three dimensions; guarded and uniform returns.
    {"index_forms", "plain", {5, 4, 3}, {32, 1, 1}, 0, 0, "", R"(
	.reg .b32 %a, %b, %c;
	mov.u32 %a, %ctaid.x;
	mov.b32 %b, %ctaid.y;
	mov.u32 %c, %ctaid.z;
	mov.u16 %h1, %ctaid.y;
	cvt.u32.u16 %r10, %h1;
	mov.u32 %r11, %nctaid.x;
	mov.u32 %r16, %nctaid.y;
	mad.lo.u32 %r12, %c, %r16, %r10;
	mad.lo.u32 %r12, %r12, %r11, %a;
	mad.lo.u32 %r12, %r12, %r2, %r0;
	mul.wide.u32 %rd4, %r12, 4;
	add.s64 %rd4, %rd0, %rd4;
	and.b32 %r13, %a, 3;
	setp.eq.u32 %p1, %r13, 3;
	@%p1 ret.uni;
	and.b32 %r13, %r0, 1;
	setp.eq.u32 %p1, %r13, 0;
	@!%p1 ret;
	mad.lo.u32 %r14, %b, 1000, %c;
	st.global.u32 [%rd4], %r14;
	@%p1 exit;
	trap;)"},
    {"index_as_vector", "plain", {3, 4, 2}, {8, 2, 1}, 0, 0, "", R"(
	mov.v4.u32 {%r10, %r11, %r12, %r13}, %ctaid;
	mov.v4.u32 {%r14, %r15, %r16, %r17}, %nctaid;
	mov.v4.u32 {%r18, %r19, %r20, %r21}, %tid;
	mad.lo.u32 %r12, %r12, %r15, %r11;
	mad.lo.u32 %r12, %r12, %r14, %r10;
	shl.b32 %r12, %r12, 4;
	mad.lo.u32 %r12, %r19, 8, %r12;
	add.u32 %r12, %r12, %r18;
	mul.wide.u32 %rd4, %r12, 4;
	add.s64 %rd4, %rd0, %rd4;
	mad.lo.u32 %r16, %r16, 1000, %r10;
	st.global.u32 [%rd4], %r16;
	ret;)"},
    // Labels of one name in two scopes, and names that look like ours.
    {"names", "plain", {9, 1, 1}, {32, 1, 1}, 0, 0, ".global .u32 sluice1_TAIL;", R"(
	.reg .b32 %sluice2_x;
	mov.u32 %sluice2_x, 5;
	{
	setp.lt.u32 %p1, %r0, 16;
	@%p1 bra L;
	add.u32 %sluice2_x, %sluice2_x, 1;
L:
	}
	{
	.reg .b32 %r0;
	mov.u32 %r0, 7;
	setp.lt.u32 %p1, %r1, 4;
	@%p1 bra L;
	add.u32 %sluice2_x, %sluice2_x, %r0;
L:
	}
sluice3_HEAD:
	st.global.u32 [%rd2], %sluice2_x;
	ret;)"},
    // The last block sums up: it counts the grid, not the workers.
    {"last_block", "plain", {13, 1, 1}, {32, 1, 1}, 0, 0, ".global .u32 arrivals;", R"(
	st.global.u32 [%rd2], %r5;
	membar.gl;
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
	mov.u32 %r10, %nctaid.x;
	sub.u32 %r11, %r10, 1;
	atom.global.inc.u32 %r12, [arrivals], %r11;
	setp.ne.u32 %p2, %r12, %r11;
	@%p2 bra $END;
	membar.gl;
	mov.u32 %r13, 0;
	mov.u32 %r14, 0;
$SUM:
	mul.lo.u32 %r15, %r14, 32;
	mul.wide.u32 %rd4, %r15, 4;
	add.s64 %rd4, %rd0, %rd4;
	ld.volatile.global.u32 %r16, [%rd4];
	add.u32 %r13, %r13, %r16;
	add.u32 %r14, %r14, 1;
	setp.lt.u32 %p3, %r14, %r10;
	@%p3 bra $SUM;
	st.global.u32 [%rd0+16000], %r13;
$END:
	ret;)"},
    // Warps with parts of their own, and barriers for some of them.
    {"warp_roles", "prologue", {9, 1, 1}, {96, 1, 1}, 0, 0, ".shared .align 4 .b8 wr[4];", R"(
	setp.ge.u32 %p1, %r0, 64;
	@%p1 bra $OTHERS;
	setp.eq.u32 %p2, %r0, 0;
	@%p2 st.shared.u32 [wr], %r5;
	bar.sync 1, 64;
	ld.shared.u32 %r10, [wr];
	st.global.u32 [%rd2], %r10;
	ret;
$OTHERS:
	st.global.u32 [%rd2], %r3;
	ret;)"},
    {"producer_and_consumer",
     "prologue",
     {9, 1, 1},
     {64, 1, 1},
     0,
     0,
     ".shared .align 4 .b8 pc[4];",
     R"(
	setp.ge.u32 %p1, %r0, 32;
	@%p1 bra $CONSUMER;
	setp.eq.u32 %p2, %r0, 0;
	@%p2 st.shared.u32 [pc], %r5;
	bar.arrive 3, 64;
	ret;
$CONSUMER:
	bar.sync 3, 64;
	ld.shared.u32 %r10, [pc];
	st.global.u32 [%rd2], %r10;
	ret;)"},
    {"barrier_by_register",
     "prologue",
     {9, 1, 1},
     {64, 1, 1},
     0,
     0,
     ".shared .align 4 .b8 br[4];",
     R"(
	setp.eq.u32 %p2, %r0, 0;
	@%p2 st.shared.u32 [br], %r5;
	mov.u32 %r11, 5;
	bar.sync %r11, %r2;
	ld.shared.u32 %r10, [br];
	st.global.u32 [%rd2], %r10;
	ret;)"},
    // A parameter says where shared memory is that the kernel has no name for (OpenCL's local
    // pointers), behind what it has: nothing that a clone adds may lie there. GPUs keep the first
    // 1,024 bytes for themselves.
    {"shared_given",
     "plain",
     {23, 1, 1},
     {96, 1, 1},
     1536,
     1408,
     ".shared .align 16 .b8 own[1408];",
     R"(
	mov.u32 %r10, own;
	shl.b32 %r11, %r0, 2;
	add.u32 %r10, %r10, %r11;
	st.shared.u32 [%r10], %r5;
	shl.b32 %r12, %r0, 4;
	add.u32 %r13, %r4, %r12;
	st.shared.v4.u32 [%r13], {%r3, %r3, %r3, %r3};
	bar.sync 0;
	ld.shared.u32 %r14, [own];
	xor.b32 %r15, %r12, 16;
	add.u32 %r15, %r4, %r15;
	ld.shared.v4.u32 {%r16, %r17, %r18, %r19}, [%r15];
	add.u32 %r14, %r14, %r16;
	add.u32 %r14, %r14, %r17;
	add.u32 %r14, %r14, %r18;
	add.u32 %r14, %r14, %r19;
	st.global.u32 [%rd2], %r14;
	ret;)"},
    {"shared_given_and_returns",
     "unified",
     {23, 1, 1},
     {96, 1, 1},
     1536,
     1408,
     ".shared .align 16 .b8 own[1408];",
     R"(
	setp.gt.u32 %p1, %r0, 63;
	@%p1 ret;
	shl.b32 %r12, %r0, 4;
	add.u32 %r13, %r4, %r12;
	st.shared.v4.u32 [%r13], {%r3, %r5, %r3, %r3};
	st.shared.u32 [own], %r1;
	bar.sync 0;
	xor.b32 %r15, %r13, 16;
	ld.shared.v4.u32 {%r16, %r17, %r18, %r19}, [%r15];
	ld.shared.u32 %r14, [own];
	sub.u32 %r14, %r14, %r16;
	xor.b32 %r14, %r14, %r17;
	add.u32 %r14, %r14, %r18;
	xor.b32 %r14, %r14, %r19;
	st.global.u32 [%rd2], %r14;
	ret;)"},
};

}  // namespace

std::string text_of(const Hazard& h) {
  return std::string(".version 8.0\n.target ") + h.target + "\n.address_size 64\n" + h.before +
         "\n.visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n) " + h.directives +
         "\n{" + kStart + h.body + "\n}\n";
}

const std::vector<Hazard>& all() {
  static const std::vector<Hazard> kAll = [] {
    std::vector<Hazard> list(std::begin(kHazards), std::end(kHazards));
    for (const std::vector<Hazard>& more :
         {lane_hazards(), wait_hazards(), async_hazards(), call_hazards()})
      list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  return kAll;
}

}  // namespace sluice::tool::hazards
