// SPDX-License-Identifier: Apache-2.0
// Hazards behind calls: what a called function does to its whole block, which the loop's passes
// only understand in the entry itself (kernels/passes/clone/inline.h).
#include <iterator>

#include "tests/unit/passes/hazards.h"

namespace sluice::tool::hazards {

namespace {

// Adds up what the block's threads bring; `%out` is shared memory of the function's own.
constexpr const char* kSumInFunction = R"(
.func (.param .b32 back) sum(.param .b32 value)
{
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	.shared .align 4 .b8 total[4];
	ld.param.u32 %r1, [value];
	mov.u32 %r2, %tid.x;
	setp.ne.u32 %p1, %r2, 0;
	@%p1 bra $CLEARED;
	mov.u32 %r3, 0;
	st.shared.u32 [total], %r3;
$CLEARED:
	bar.sync 0;
	atom.shared.add.u32 %r4, [total], %r1;
	bar.sync 0;
	ld.shared.u32 %r5, [total];
	bar.sync 0;
	st.param.b32 [back], %r5;
	ret;
})";

const Hazard kCallHazards[] = {
    // An assertion that holds, and behind its call a loop that is never come to (Kokkos).
    {"endless_behind_assertion",
     "unified",
     {9, 1, 1},
     {96, 1, 1},
     0,
     600,
     ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 c,\n"
     ".param .b64 s);",
     R"(
	setp.ge.u32 %p1, %r3, %r4;
	@%p1 ret;
	setp.lt.u32 %p2, %r0, 96;
	@%p2 bra $HOLDS;
	{
	.param .b64 m, f, c, s;
	.param .b32 l;
	st.param.b64 [m], %rd0;
	st.param.b64 [f], %rd0;
	st.param.b32 [l], %r0;
	st.param.b64 [c], %rd0;
	st.param.b64 [s], %rd0;
	call.uni __assertfail, (m, f, l, c, s);
	}
$STUCK:
	bra.uni $STUCK;
$HOLDS:
	bar.sync 0;
	st.global.u32 [%rd2], %r3;
	ret;)"},
    // What a call returns stands in a variable that hides a parameter, which is the same for all
    // threads.
    {"result_hides_a_parameter",
     "unified",
     {9, 1, 1},
     {96, 1, 1},
     0,
     600,
     ".func (.param .b32 back) same(.param .b32 value) { .reg .b32 %r<2>;\n"
     "ld.param.u32 %r1, [value]; st.param.b32 [back], %r1; ret; }",
     R"(
	{
	.param .b32 n, value;
	st.param.b32 [value], %r0;
	call.uni (n), same, (value);
	ld.param.u32 %r10, [n];
	}
	setp.gt.u32 %p1, %r10, 40;
	@%p1 ret;
	bar.sync 0;
	st.global.u32 [%rd2], %r3;
	ret;)"},
    // Threads that have returned are missing at the function's barriers.
    {"barrier_in_function", "unified", {9, 1, 1}, {96, 1, 1}, 0, 600, kSumInFunction, R"(
	setp.eq.u32 %p1, %r0, 0;
	@%p1 bra $STAY;
	setp.ge.u32 %p2, %r3, %r4;
	@%p2 ret;
$STAY:
	{
	.param .b32 v;
	.param .b32 b;
	st.param.b32 [v], %r5;
	call.uni (b), sum, (v);
	ld.param.b32 %r10, [b];
	}
	{
	.param .b32 v;
	.param .b32 b;
	st.param.b32 [v], %r10;
	call.uni (b), sum, (v);
	ld.param.b32 %r11, [b];
	}
	st.global.u32 [%rd2], %r11;
	ret;)"},
    // Integers of 8 and 16 bits are passed in 32, whose other bits say nothing.
    {"narrow_arguments",
     "unified",
     {9, 1, 1},
     {96, 1, 1},
     0,
     600,
     R"(
.func (.param .b32 back) narrow(.param .b32 a, .param .b32 b, .param .b32 c, .param .b32 d)
{
	.reg .b16 %h<4>;
	.reg .b32 %r<8>;
	ld.param.s8 %h1, [a];
	ld.param.u8 %h2, [b];
	ld.param.u16 %h3, [c];
	ld.param.s16 %r1, [d];
	bar.sync 0;
	cvt.s32.s16 %r2, %h1;
	cvt.s32.s16 %r3, %h2;
	cvt.u32.u16 %r4, %h3;
	mad.lo.u32 %r1, %r1, 3, %r2;
	mad.lo.u32 %r1, %r1, 5, %r3;
	mad.lo.u32 %r1, %r1, 7, %r4;
	st.param.b32 [back], %r1;
	ret;
})",
     R"(
	setp.ge.u32 %p1, %r3, %r4;
	@%p1 ret;
	{
	.param .b32 a, b, c, d, e;
	st.param.b32 [a], %r5;
	st.param.b32 [b], %r5;
	st.param.b32 [c], %r5;
	st.param.b32 [d], %r5;
	call.uni (e), narrow, (a, b, c, d);
	ld.param.b32 %r10, [e];
	}
	st.global.u32 [%rd2], %r10;
	ret;)"},
    // Lanes that have returned are named by the function's shuffles.
    {"collective_in_function",
     "lane-masks",
     {9, 1, 1},
     {64, 1, 1},
     0,
     0,
     R"(
.func (.param .b32 back) everybody(.param .b32 value)
{
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	ld.param.u32 %r1, [value];
	and.b32 %r2, %r1, 1;
	setp.ne.u32 %p1, %r2, 0;
	vote.sync.ballot.b32 %r3, %p1, -1;
	st.param.b32 [back], %r3;
	ret;
})",
     R"(
	and.b32 %r10, %r5, 7;
	setp.eq.u32 %p1, %r10, 3;
	@%p1 ret;
	{
	.param .b32 v;
	.param .b32 b;
	st.param.b32 [v], %r5;
	call.uni (b), everybody, (v);
	ld.param.b32 %r11, [b];
	}
	st.global.u32 [%rd2], %r11;
	ret;)"},
    // A thread that ends inside a function inside a function, before the others' barrier; and a
    // structure
    // that is passed by value.
    {"exit_before_barrier",
     "unified",
     {9, 1, 1},
     {96, 1, 1},
     0,
     300,
     R"(
.shared .align 4 .b8 eb[384];
.func leave(.param .align 4 .b8 pair[8])
{
	.reg .pred %p;
	.reg .b32 %r<3>;
	ld.param.v2.u32 {%r0, %r1}, [pair];
	setp.ge.u32 %p, %r0, %r1;
	@%p exit;
	ret;
}
.func (.param .b32 back) left(.param .b32 a, .param .b32 most)
{
	.reg .b32 %r<4>;
	ld.param.u32 %r1, [a];
	ld.param.u32 %r2, [most];
	{
	.param .align 4 .b8 two[8];
	st.param.b32 [two], %r1;
	st.param.b32 [two+4], %r2;
	call.uni leave, (two);
	}
	sub.u32 %r1, %r2, %r1;
	st.param.b32 [back], %r1;
	ret;
})",
     R"(
	and.b32 %r10, %r5, 511;
	setp.ne.u32 %p1, %r0, 5;
	{
	.param .b32 a;
	.param .b32 m;
	.param .b32 b;
	st.param.b32 [a], %r10;
	st.param.b32 [m], %r4;
	mov.u32 %r11, 0;
	@!%p1 bra $STAYS;
	call (b), left, (a, m);
	ld.param.b32 %r11, [b];
	}
$STAYS:
	mov.u32 %r12, eb;
	shl.b32 %r13, %r0, 2;
	add.u32 %r12, %r12, %r13;
	st.shared.u32 [%r12], %r11;
	bar.sync 0;
	st.global.u32 [%rd2], %r11;
	ret;)"},
    // Functions behind pointers that read the block's index, which a call cannot hand them.
    {"index_by_pointer",
     "plain",
     {5, 3, 1},
     {64, 1, 1},
     0,
     0,
     R"(
.func (.param .b32 back) across(.param .b64 there, .param .b32 by)
{
	.reg .b32 %r<4>;
	ld.param.u32 %r1, [by];
	mov.u32 %r2, %ctaid.x;
	mad.lo.u32 %r1, %r2, 3, %r1;
	st.param.b32 [back], %r1;
	ret;
}
.func (.param .b32 back) down(.param .b64 there, .param .b32 by)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [there];
	ld.u32 %r1, [%rd1];
	mov.u32 %r2, %ctaid.y;
	mov.u32 %r3, %nctaid.x;
	mad.lo.u32 %r1, %r2, %r3, %r1;
	st.param.b32 [back], %r1;
	ret;
}
.global .align 8 .u64 ways[2] = {across, down};)",
     R"(
	and.b32 %r10, %r5, 1;
	mul.wide.u32 %rd4, %r10, 8;
	mov.u64 %rd5, ways;
	add.s64 %rd5, %rd5, %rd4;
	ld.global.u64 %rd6, [%rd5];
	{
	.param .b64 t;
	.param .b32 v;
	.param .b32 b;
	st.param.b64 [t], %rd3;
	st.param.b32 [v], %r0;
	$WAY: .callprototype (.param .b32 _) _ (.param .b64 _, .param .b32 _);
	call (b), %rd6, (t, v), $WAY;
	ld.param.b32 %r11, [b];
	}
	mov.u32 %r12, %ctaid.y;
	mad.lo.u32 %r12, %r12, 5, %r1;
	shl.b32 %r12, %r12, 6;
	add.u32 %r12, %r12, %r0;
	mul.wide.u32 %rd7, %r12, 4;
	add.s64 %rd7, %rd0, %rd7;
	st.global.u32 [%rd7], %r11;
	ret;)"},
    // An object in shared memory that a function makes.
    {"mbarrier_in_function",
     "plain",
     {19, 1, 1},
     {64, 1, 1},
     0,
     0,
     R"(
.shared .align 8 .b64 mf;
.shared .align 4 .b8 mfd[256];
.func meet(.param .b32 threads)
{
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u32 %r1, [threads];
	mov.u32 %r2, %tid.x;
	setp.ne.u32 %p1, %r2, 0;
	mov.u32 %r3, mf;
	@%p1 bra $MADE;
	mbarrier.init.shared.b64 [%r3], %r1;
$MADE:
	bar.sync 0;
	mbarrier.arrive.shared.b64 %rd1, [%r3];
$WAIT:
	mbarrier.test_wait.shared.b64 %p1, [%r3], %rd1;
	@!%p1 bra $WAIT;
	ret;
})",
     R"(
	mov.u32 %r10, mfd;
	shl.b32 %r11, %r0, 2;
	add.u32 %r11, %r10, %r11;
	st.shared.u32 [%r11], %r5;
	{
	.param .b32 t;
	st.param.b32 [t], %r2;
	call.uni meet, (t);
	}
	xor.b32 %r11, %r11, 4;
	ld.shared.u32 %r12, [%r11];
	st.global.u32 [%rd2], %r12;
	ret;)"},
    // A barrier's number that only the caller knows.
    {"barrier_number_in_function",
     "unified",
     {9, 1, 1},
     {96, 1, 1},
     0,
     600,
     R"(
.shared .align 4 .b8 bn[384];
.func meet(.param .b32 number)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [number];
	mov.b32 %r2, %r1;
	barrier.sync %r2;
	ret;
})",
     R"(
	mov.u32 %r10, bn;
	shl.b32 %r11, %r0, 2;
	add.u32 %r11, %r10, %r11;
	st.shared.u32 [%r11], %r5;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 bra $STAY;
	setp.ge.u32 %p2, %r3, %r4;
	@%p2 ret;
$STAY:
	{
	.param .b32 nr;
	st.param.b32 [nr], 0;
	call.uni meet, (nr);
	}
	ld.shared.u32 %r12, [bn];
	add.u32 %r12, %r12, %r5;
	st.global.u32 [%rd2], %r12;
	ret;)"},
    // What calls itself cannot be written in place.
    {"exit_in_recursion",
     "prologue",
     {9, 1, 1},
     {64, 1, 1},
     0,
     0,
     R"(
.func count_down(.param .b32 from)
{
	.reg .pred %p<2>;
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [from];
	setp.eq.u32 %p1, %r1, 0;
	@%p1 exit;
	setp.eq.u32 %p1, %r1, 8;
	@%p1 ret;
	sub.u32 %r1, %r1, 1;
	{
	.param .b32 a;
	st.param.b32 [a], %r1;
	call count_down, (a);
	}
	ret;
})",
     R"(
	and.b32 %r10, %r5, 15;
	{
	.param .b32 a;
	st.param.b32 [a], %r10;
	call count_down, (a);
	}
	st.global.u32 [%rd2], %r10;
	ret;)"},
};

}  // namespace

std::vector<Hazard> call_hazards() { return {std::begin(kCallHazards), std::end(kCallHazards)}; }

}  // namespace sluice::tool::hazards
