// SPDX-License-Identifier: Apache-2.0
// Hazards of barriers in memory (mbarrier) and of copies without threads: what a task leaves behind
// in its block's shared memory. The interpreter calls it a fault when an object is made where a
// valid one is.
#include <iterator>

#include "tests/unit/passes/hazards.h"

namespace sluice::tool::hazards {

namespace {
const Hazard kAsyncHazards[] = {
    // The next task would make its object where the last one's is still valid.
    {"mbarrier_made_again",
     "plain",
     {19, 1, 1},
     {96, 1, 1},
     0,
     0,
     ".shared .align 8 .b64 ma; .shared .align 4 .b8 mad[384];",
     R"(
	setp.ne.u32 %p1, %r0, 0;
	mov.u32 %r10, ma;
	@%p1 bra $MADE;
	mbarrier.init.shared.b64 [%r10], 96;
$MADE:
	bar.sync 0;
	mov.u32 %r11, mad;
	shl.b32 %r12, %r0, 2;
	add.u32 %r12, %r11, %r12;
	mov.u32 %r13, 0;
	mov.u32 %r14, %r5;
$AGAIN:
	st.shared.u32 [%r12], %r14;
	mbarrier.arrive.shared.b64 %rd10, [%r10];
$WAIT:
	mbarrier.test_wait.shared.b64 %p2, [%r10], %rd10;
	@!%p2 bra $WAIT;
	add.u32 %r15, %r0, 17;
	rem.u32 %r15, %r15, 96;
	shl.b32 %r15, %r15, 2;
	add.u32 %r15, %r11, %r15;
	ld.shared.u32 %r16, [%r15];
	mad.lo.u32 %r14, %r14, 69069, %r16;
	mbarrier.arrive.shared.b64 %rd10, [%r10];
$WAIT2:
	mbarrier.try_wait.shared.b64 %p2, [%r10], %rd10;
	@!%p2 bra $WAIT2;
	add.u32 %r13, %r13, 1;
	setp.lt.u32 %p3, %r13, 3;
	@%p3 bra $AGAIN;
	st.global.u32 [%rd2], %r14;
	ret;)"},
    // Some tasks make an object, some do not; by a guard; at the end of dynamic shared memory.
    {"mbarrier_made_sometimes",
     "plain",
     {23, 1, 1},
     {64, 1, 1},
     64,
     0,
     ".extern .shared .align 16 .b8 mb[];",
     R"(
	and.b32 %r10, %r1, 3;
	setp.eq.u32 %p1, %r10, 1;
	mov.u32 %r14, %r5;
	@%p1 bra $NONE;
	setp.eq.u32 %p2, %r0, 0;
	@%p2 mbarrier.init.shared.b64 [mb+8], 64;
	bar.sync 0;
	mbarrier.arrive.shared.b64 %rd10, [mb+8];
$WAIT:
	mbarrier.test_wait.shared.b64 %p3, [mb+8], %rd10;
	@!%p3 bra $WAIT;
	mul.lo.u32 %r14, %r14, 77;
$NONE:
	st.global.u32 [%rd2], %r14;
	ret;)"},
    // The kernel itself invalidates one of its two objects.
    {"mbarrier_gone_already",
     "plain",
     {17, 1, 1},
     {64, 1, 1},
     0,
     0,
     ".shared .align 8 .b8 mg[16];",
     R"(
	setp.eq.u32 %p2, %r0, 0;
	mov.u32 %r10, mg;
	cvt.u64.u32 %rd11, %r10;
	cvta.shared.u64 %rd11, %rd11;
	@%p2 mbarrier.init.b64 [%rd11], 64;
	@%p2 mbarrier.init.shared.b64 [%r10+8], 64;
	bar.sync 0;
	mbarrier.arrive.shared.b64 %rd10, [%r10];
$WAIT:
	mbarrier.test_wait.shared.b64 %p3, [%r10], %rd10;
	@!%p3 bra $WAIT;
	mbarrier.arrive.shared.b64 %rd10, [%r10+8];
$WAIT2:
	mbarrier.test_wait.shared.b64 %p3, [%r10+8], %rd10;
	@!%p3 bra $WAIT2;
	bar.sync 0;
	and.b32 %r11, %r1, 1;
	setp.eq.and.u32 %p4, %r11, 0, %p2;
	@%p4 mbarrier.inval.shared.b64 [%r10];
	st.global.u32 [%rd2], %r5;
	ret;)"},
    // Copies in bulk to shared memory and back, with an object and with groups.
    {"bulk_copies",
     "plain",
     {29, 1, 1},
     {128, 1, 1},
     0,
     0,
     ".shared .align 8 .b64 mc; .shared .align 16 .b8 mcd[512];",
     R"(
	setp.ne.u32 %p1, %r0, 0;
	mov.u32 %r10, mc;
	mov.u32 %r11, mcd;
	@%p1 bra $MADE;
	mbarrier.init.shared.b64 [%r10], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.shared.b64 %rd10, [%r10], 512;
	and.b32 %r12, %r1, 7;
	mul.wide.u32 %rd11, %r12, 512;
	add.s64 %rd11, %rd1, %rd11;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd11], 512, [%r10];
$MADE:
	bar.sync 0;
	mov.u32 %r13, 0;
$WAIT:
	mbarrier.try_wait.parity.shared.b64 %p2, [%r10], %r13;
	@!%p2 bra $WAIT;
	shl.b32 %r14, %r0, 2;
	add.u32 %r14, %r11, %r14;
	ld.shared.u32 %r15, [%r14];
	mad.lo.u32 %r15, %r15, 5, %r1;
	st.shared.u32 [%r14], %r15;
	fence.proxy.async.shared::cta;
	bar.sync 0;
	@%p1 bra $END;
	mul.wide.u32 %rd12, %r1, 512;
	add.s64 %rd12, %rd0, %rd12;
	cp.async.bulk.global.shared::cta.bulk_group [%rd12], [%r11], 512;
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group.read 0;
$END:
	ret;)"},
    // A warp that copies and warps that work, two stages with two objects each.
    {"bulk_pipeline",
     "plain",
     {21, 1, 1},
     {96, 1, 1},
     0,
     0,
     ".shared .align 8 .b8 mp[32]; .shared .align 16 .b8 mpd[512];",
     R"(
	setp.ne.u32 %p1, %r0, 0;
	mov.u32 %r10, mp;
	mov.u32 %r11, mpd;
	@%p1 bra $MADE;
	mbarrier.init.shared::cta.b64 [%r10], 1;
	mbarrier.init.shared::cta.b64 [%r10+8], 1;
	mbarrier.init.shared::cta.b64 [%r10+16], 64;
	mbarrier.init.shared::cta.b64 [%r10+24], 64;
	fence.mbarrier_init.release.cluster;
$MADE:
	bar.sync 0;
	mov.u32 %r20, 0;
	setp.ge.u32 %p2, %r0, 32;
	@%p2 bra $WORK;
	@%p1 bra $END;
$FILL:
	and.b32 %r21, %r20, 1;
	shl.b32 %r22, %r21, 3;
	add.u32 %r22, %r10, %r22;
	shr.u32 %r23, %r20, 1;
	and.b32 %r23, %r23, 1;
	xor.b32 %r23, %r23, 1;
	setp.lt.u32 %p3, %r20, 2;
	@%p3 bra $FREE;
$FULL:
	mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r22+16], %r23;
	@!%p4 bra $FULL;
$FREE:
	mbarrier.arrive.expect_tx.shared::cta.b64 %rd10, [%r22], 256;
	add.u32 %r24, %r1, %r20;
	and.b32 %r24, %r24, 15;
	mul.wide.u32 %rd11, %r24, 256;
	add.s64 %rd11, %rd1, %rd11;
	shl.b32 %r25, %r21, 8;
	add.u32 %r25, %r11, %r25;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r25], [%rd11], 256, [%r22];
	add.u32 %r20, %r20, 1;
	setp.lt.u32 %p3, %r20, 7;
	@%p3 bra $FILL;
	bra $END;
$WORK:
	mov.u32 %r30, %r5;
	sub.u32 %r31, %r0, 32;
	shl.b32 %r31, %r31, 2;
$TAKE:
	and.b32 %r21, %r20, 1;
	shl.b32 %r22, %r21, 3;
	add.u32 %r22, %r10, %r22;
	shr.u32 %r23, %r20, 1;
	and.b32 %r23, %r23, 1;
$EMPTY:
	mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r22], %r23;
	@!%p4 bra $EMPTY;
	shl.b32 %r25, %r21, 8;
	add.u32 %r25, %r11, %r25;
	add.u32 %r25, %r25, %r31;
	ld.shared.u32 %r26, [%r25];
	mad.lo.u32 %r30, %r30, 69069, %r26;
	mbarrier.arrive.shared::cta.b64 %rd12, [%r22+16];
	add.u32 %r20, %r20, 1;
	setp.lt.u32 %p3, %r20, 7;
	@%p3 bra $TAKE;
	st.global.u32 [%rd2], %r30;
$END:
	ret;)"},
    // Copies of threads that arrive at an object.
    {"copies_arrive",
     "plain",
     {19, 1, 1},
     {64, 1, 1},
     0,
     0,
     ".shared .align 8 .b64 mr; .shared .align 256 .b8 mrd[256];",
     R"(
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared.b64 [mr], 64;
	bar.sync 0;
	mov.u32 %r10, mrd;
	shl.b32 %r11, %r0, 2;
	add.u32 %r11, %r10, %r11;
	cp.async.ca.shared.global [%r11], [%rd3], 4;
	cp.async.mbarrier.arrive.noinc.shared.b64 [mr];
	mov.u32 %r12, 0;
$WAIT:
	mbarrier.try_wait.parity.shared.b64 %p2, [mr], %r12;
	@!%p2 bra $WAIT;
	xor.b32 %r13, %r11, 128;
	ld.shared.u32 %r14, [%r13];
	st.global.u32 [%rd2], %r14;
	ret;)"},
    // Copies that no wait follows: the arrival may come when the object is gone.
    {"copies_not_waited_for",
     "prologue",
     {19, 1, 1},
     {64, 1, 1},
     0,
     0,
     ".shared .align 8 .b64 mn; .shared .align 16 .b8 mnd[256];",
     R"(
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared.b64 [mn], 64;
	bar.sync 0;
	mov.u32 %r10, mnd;
	shl.b32 %r11, %r0, 2;
	add.u32 %r11, %r10, %r11;
	mov.u32 %r12, 0;
	and.b32 %r13, %r1, 1;
	cp.async.ca.shared.global [%r11], [%rd3], 4;
	cp.async.mbarrier.arrive.noinc.shared.b64 [mn];
	setp.eq.u32 %p3, %r13, 0;
	@%p3 bra $OUT;
$WAIT:
	mbarrier.try_wait.parity.shared.b64 %p2, [mn], %r12;
	@!%p2 bra $WAIT;
	ld.shared.u32 %r12, [%r11];
$OUT:
	st.global.u32 [%rd2], %r12;
	ret;)"},
    // Each warp has an object of its own, made in one statement.
    {"mbarrier_of_each_warp",
     "prologue",
     {19, 1, 1},
     {64, 1, 1},
     0,
     0,
     ".shared .align 8 .b8 mw[16];",
     R"(
	shr.u32 %r10, %r0, 5;
	shl.b32 %r10, %r10, 3;
	mov.u32 %r11, mw;
	add.u32 %r11, %r11, %r10;
	and.b32 %r12, %r0, 31;
	setp.eq.u32 %p1, %r12, 0;
	@%p1 mbarrier.init.shared.b64 [%r11], 32;
	bar.sync 0;
	mbarrier.arrive.shared.b64 %rd10, [%r11];
$WAIT:
	mbarrier.test_wait.shared.b64 %p2, [%r11], %rd10;
	@!%p2 bra $WAIT;
	st.global.u32 [%rd2], %r5;
	ret;)"},
    // Two objects by one statement in a loop.
    {"mbarrier_made_in_loop",
     "prologue",
     {19, 1, 1},
     {64, 1, 1},
     0,
     0,
     ".shared .align 8 .b8 ml[16];",
     R"(
	setp.ne.u32 %p1, %r0, 0;
	mov.u32 %r11, ml;
	mov.u32 %r12, 0;
	@%p1 bra $MADE;
$MAKE:
	mbarrier.init.shared.b64 [%r11], 64;
	add.u32 %r11, %r11, 8;
	add.u32 %r12, %r12, 1;
	setp.lt.u32 %p3, %r12, 2;
	@%p3 bra $MAKE;
$MADE:
	bar.sync 0;
	mbarrier.arrive.shared.b64 %rd10, [ml+8];
$WAIT:
	mbarrier.test_wait.shared.b64 %p2, [ml+8], %rd10;
	@!%p2 bra $WAIT;
	st.global.u32 [%rd2], %r5;
	ret;)"},
    // Early returns beside an object: returned threads come to barriers, and to the end of the
    // task.
    {"mbarrier_and_returns",
     "unified",
     {19, 1, 1},
     {96, 1, 1},
     0,
     1500,
     ".shared .align 8 .b64 me; .shared .align 8 .b8 med[384];",
     R"(
	setp.ne.u32 %p1, %r0, 0;
	mov.u32 %r10, me;
	@%p1 bra $MADE;
	mbarrier.init.shared.b64 [%r10], 64;
$MADE:
	bar.sync 0;
	setp.ge.u32 %p4, %r0, 64;
	@%p4 ret;
	mov.u32 %r11, med;
	shl.b32 %r12, %r0, 2;
	add.u32 %r12, %r11, %r12;
	st.shared.u32 [%r12], %r5;
	mbarrier.arrive.shared.b64 %rd10, [%r10];
$WAIT:
	mbarrier.test_wait.shared.b64 %p2, [%r10], %rd10;
	@!%p2 bra $WAIT;
	xor.b32 %r12, %r12, 4;
	ld.shared.u32 %r13, [%r12];
	setp.ge.u32 %p5, %r3, %r4;
	@%p5 ret;
	bar.sync 0;
	st.shared.u32 [%r12], %r13;
	bar.sync 0;
	ld.shared.u32 %r14, [%r12];
	st.global.u32 [%rd2], %r14;
	ret;)"},
    // Warpgroups that hand registers over, more of them in every other block: the next task's
    // numbers
    // would stand for the opposite of what they are for.
    {"registers_handed_over",
     "plain",
     {19, 1, 1},
     {256, 1, 1},
     0,
     0,
     ".shared .align 4 .b8 ho[512];",
     R"(
	and.b32 %r10, %r1, 1;
	setp.eq.u32 %p1, %r10, 0;
	setp.ge.u32 %p2, %r0, 128;
	and.b32 %r11, %r0, 127;
	shl.b32 %r11, %r11, 2;
	mov.u32 %r12, ho;
	add.u32 %r12, %r12, %r11;
	@%p2 bra $TAKES;
	@%p1 bra $GIVES_MANY;
	setmaxnreg.dec.sync.aligned.u32 104;
	bra $GAVE;
$GIVES_MANY:
	setmaxnreg.dec.sync.aligned.u32 40;
$GAVE:
	st.shared.u32 [%r12], %r5;
	bra $BOTH;
$TAKES:
	@%p1 bra $TAKES_MANY;
	setmaxnreg.inc.sync.aligned.u32 144;
	bra $TOOK;
$TAKES_MANY:
	setmaxnreg.inc.sync.aligned.u32 208;
$TOOK:
	add.u32 %r5, %r5, 1;
$BOTH:
	bar.sync 0;
	ld.shared.u32 %r13, [%r12];
	add.u32 %r13, %r13, %r5;
	st.global.u32 [%rd2], %r13;
	ret;)",
     ".maxnreg 128",
     "sm_90a"},
};
}  // namespace

std::vector<Hazard> async_hazards() { return {std::begin(kAsyncHazards), std::end(kAsyncHazards)}; }

}  // namespace sluice::tool::hazards
