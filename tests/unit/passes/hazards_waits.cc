// SPDX-License-Identifier: Apache-2.0
// Hazards of waiting: for lower tasks, for work, and for what no block may ever write. See
// hazards.h.
#include <deque>
#include <string>

#include "tests/unit/passes/hazards.h"

namespace sluice::tool::hazards {
namespace {

// A reduction over teams as OpenMP has it. A round lets in `ahead` teams; `before_count` stands
// before a team counts itself; the last of a round counts `counted` at once.
Hazard teams(const char* name, const char* tier, const std::string& ahead,
             const std::string& before_count, const std::string& counted) {
  static std::deque<std::string> bodies;  // what hazards refer to
  bodies.push_back(R"(
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
	mov.u32 %r12, %nctaid.x;
$WAIT:
	atom.global.or.b32 %r10, [count], 0;
	add.u32 %r11, %r10, )" +
                   ahead + R"(;
	setp.ge.u32 %p2, %r1, %r11;
	@%p2 bra $WAIT;
	and.b32 %r13, %r1, 3;
	mul.wide.u32 %rd4, %r13, 4;
	mov.u64 %rd5, slots;
	add.s64 %rd5, %rd5, %rd4;
	mov.u32 %r14, 0;
	setp.lt.u32 %p3, %r1, 4;
	@%p3 bra $PUT;
	ld.volatile.global.u32 %r14, [%rd5];
$PUT:
	and.b32 %r18, %r5, 255;
	add.u32 %r14, %r14, %r18;
	st.volatile.global.u32 [%rd5], %r14;
	membar.gl;
)" + before_count + R"(	atom.global.inc.u32 %r15, [arrived], 3;
	sub.u32 %r16, %r12, %r10;
	sub.u32 %r16, %r16, 1;
	setp.ne.u32 %p4, %r15, %r16;
	@%p4 bra $NEXT;
	membar.gl;
	ld.volatile.global.v4.u32 {%r20, %r21, %r22, %r23}, [slots];
	add.u32 %r20, %r20, %r21;
	add.u32 %r20, %r20, %r22;
	add.u32 %r20, %r20, %r23;
	st.global.u32 [%rd0], %r20;
	mov.u32 %r24, 0;
	st.global.u32 [count], %r24;
	st.global.u32 [arrived], %r24;
	bra.uni $END;
$NEXT:
	setp.ne.u32 %p5, %r15, 3;
	@%p5 bra $END;
	atom.global.add.u32 %r17, [count], )" +
                   counted + R"(;
$END:
	ret;)");
  return {name,
          tier,
          {31, 1, 1},
          {32, 1, 1},
          0,
          0,
          ".global .u32 count, arrived;\n.global .align 16 .u32 slots[4];",
          bodies.back().c_str()};
}

}  // namespace

std::vector<Hazard> wait_hazards() {
  return {
      // Each task waits for the one before it: chained scan.
      {"chained_scan", "in-order", {31, 1, 1}, {32, 1, 1}, 0, 0, "", R"(
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
	mul.wide.u32 %rd4, %r1, 8;
	add.s64 %rd4, %rd0, %rd4;
	mov.u32 %r11, 0;
	setp.eq.u32 %p2, %r1, 0;
	@%p2 bra $PUBLISH;
	add.s32 %r13, %r1, -1;
	mul.wide.s32 %rd5, %r13, 8;
	add.s64 %rd5, %rd0, %rd5;
$WAIT:
	ld.relaxed.gpu.global.v2.u32 {%r10, %r11}, [%rd5];
	setp.eq.u32 %p3, %r10, 0;
	@%p3 bra $WAIT;
$PUBLISH:
	and.b32 %r5, %r5, 255;
	add.u32 %r11, %r11, %r5;
	mov.u32 %r12, 1;
	st.relaxed.gpu.global.v2.u32 [%rd4], {%r12, %r11};
$END:
	ret;)"},
      // Values that are their own locks: -1 while somebody changes one. Few threads: what they
      // spend waiting grows with the square of their number.
      {"value_lock", "plain", {8, 1, 1}, {8, 1, 1}, 0, 0, "", R"(
	and.b32 %r10, %r5, 15;
	mul.wide.u32 %rd4, %r10, 4;
	add.s64 %rd5, %rd0, %rd4;
$READ:
	ld.volatile.global.u32 %r11, [%rd5];
	setp.eq.s32 %p1, %r11, -1;
	@%p1 bra $READ;
	atom.global.cas.b32 %r12, [%rd5], %r11, -1;
	setp.ne.s32 %p2, %r12, %r11;
	@%p2 bra $READ;
	shr.u32 %r13, %r5, 20;
	add.s32 %r14, %r11, %r13;
	membar.gl;
	st.volatile.global.u32 [%rd5], %r14;
	ret;)"},
      // A chained scan with numbers that the blocks draw themselves and hand round in shared
      // memory.
      {"drawn_scan",
       "in-order",
       {31, 1, 1},
       {32, 1, 1},
       0,
       0,
       ".global .u32 drawn;\n.shared .align 4 .b8 mine[4];",
       R"(
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $MEET;
	atom.global.add.u32 %r10, [drawn], 1;
	st.shared.u32 [mine], %r10;
$MEET:
	bar.sync 0;
	ld.shared.u32 %r1, [mine];
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
	mul.wide.u32 %rd4, %r1, 4;
	add.s64 %rd4, %rd0, %rd4;
	mov.u32 %r11, 1;
	setp.eq.u32 %p2, %r1, 0;
	@%p2 bra $PUBLISH;
$WAIT:
	ld.volatile.global.u32 %r11, [%rd4+-4];
	setp.eq.u32 %p3, %r11, 0;
	@%p3 bra $WAIT;
	add.u32 %r11, %r11, 3;
$PUBLISH:
	st.volatile.global.u32 [%rd4], %r11;
$END:
	ret;)"},
      // Already persistent: fewer blocks than work.
      {"work_queue", "plain", {3, 1, 1}, {32, 1, 1}, 0, 40, ".global .u32 queue;", R"(
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
$NEXT:
	atom.global.add.u32 %r10, [queue], 1;
	setp.ge.u32 %p2, %r10, %r4;
	@%p2 bra $END;
	mul.wide.u32 %rd4, %r10, 4;
	add.s64 %rd4, %rd0, %rd4;
	atom.global.add.u32 %r11, [%rd4], %r10;
	bra $NEXT;
$END:
	ret;)"},
      // One element for each thread of the block, drawn by one of them.
      {"work_queue_by_block_size",
       "unified",
       {3, 1, 1},
       {40, 1, 1},
       0,
       999,
       ".global .u32 queue;\n.shared .align 4 .b8 mine[4];",
       R"(
	setp.ne.u32 %p1, %r0, 0;
$NEXT:
	@%p1 bra $MEET;
	atom.global.add.u32 %r10, [queue], %r2;
	st.shared.u32 [mine], %r10;
$MEET:
	bar.sync 0;
	ld.shared.u32 %r10, [mine];
	bar.sync 0;
	setp.ge.u32 %p2, %r10, %r4;
	@%p2 bra $END;
	add.u32 %r10, %r10, %r0;
	mul.wide.u32 %rd4, %r10, 4;
	add.s64 %rd4, %rd0, %rd4;
	atom.global.add.u32 %r11, [%rd4], %r10;
	bra $NEXT;
$END:
	ret;)"},
      // As clang writes it without optimisation: counter and address in the stack frame, by generic
      // addresses, beside a fence.
      {"counts_in_the_frame", "plain", {7, 1, 1}, {40, 1, 1}, 0, 9, "", R"(
	.local .align 8 .b8 frame[24];
	.reg .b64 %SP;
	.reg .b64 %SPL;
	mov.u64 %SPL, frame;
	cvta.local.u64 %SP, %SPL;
	cvta.global.u64 %rd2, %rd2;
	st.u64 [%SP+0], %rd2;
	st.u32 [%SP+8], %r4;
	mov.u32 %r10, 0;
	st.u32 [%SP+12], %r10;
$AGAIN:
	ld.u32 %r10, [%SP+12];
	ld.u32 %r11, [%SP+8];
	setp.ge.u32 %p1, %r10, %r11;
	@%p1 bra $END;
	ld.u64 %rd4, [%SP+0];
	ld.u32 %r12, [%rd4];
	add.u32 %r12, %r12, %r10;
	st.u32 [%rd4], %r12;
	membar.gl;
	ld.u32 %r13, [%SP+12];
	add.u32 %r13, %r13, 1;
	st.u32 [%SP+12], %r13;
	bra.uni $AGAIN;
$END:
	ret;)"},
      // Waits until it is the block's own turn, and passes it on: serial split-K.
      {"waits_for_its_turn", "in-order", {3, 2, 4}, {64, 1, 1}, 0, 0, "", R"(
	mov.u32 %r20, %ctaid.z;
	mov.u32 %r21, %ctaid.y;
	mov.u32 %r22, %nctaid.x;
	mad.lo.u32 %r21, %r21, %r22, %r1;
	mul.wide.u32 %rd4, %r21, 4;
	add.s64 %rd4, %rd0, %rd4;
	mad.lo.u32 %r23, %r21, %r2, %r0;
	mul.wide.u32 %rd5, %r23, 4;
	add.s64 %rd5, %rd0, %rd5;
	setp.ne.u32 %p4, %r0, 0;
	mov.u32 %r11, -1;
	bra $ASK;
$LOOK:
	ld.acquire.gpu.global.u32 %r11, [%rd4];
$ASK:
	setp.ne.u32 %p3, %r11, %r20;
	bar.red.and.pred %p2, 0, %p3;
	@!%p2 bra $MINE;
	@%p4 bra $ASK;
	bra $LOOK;
$MINE:
	bar.sync 0;
	ld.global.u32 %r10, [%rd5+4096];
	mad.lo.u32 %r10, %r10, 3, %r20;
	st.global.u32 [%rd5+4096], %r10;
	bar.sync 0;
	@%p4 bra $END;
	add.u32 %r24, %r20, 1;
	st.release.gpu.global.u32 [%rd4], %r24;
$END:
	ret;)"},
      // Takes the first of a list. What stands behind it is only put in its place.
      {"takes_first",
       "plain",
       {8, 1, 1},
       {32, 1, 1},
       0,
       0,
       ".global .u32 head = 1;\n.global .u32 next[9] = {0, 2, 3, 4, 5, 6, 7, 8, 0};",
       R"(
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
	mov.u64 %rd5, next;
	ld.volatile.global.u32 %r10, [head];
$TRY:
	setp.eq.u32 %p2, %r10, 0;
	@%p2 bra $END;
	mul.wide.u32 %rd4, %r10, 4;
	add.s64 %rd6, %rd5, %rd4;
	ld.volatile.global.u32 %r11, [%rd6];
	atom.global.cas.b32 %r12, [head], %r10, %r11;
	setp.eq.u32 %p3, %r12, %r10;
	@%p3 bra $GOT;
	mov.u32 %r10, %r12;
	bra.uni $TRY;
$GOT:
	add.s64 %rd7, %rd0, %rd4;
	atom.global.add.u32 %r13, [%rd7], 1;
$END:
	ret;)"},
      // The same list, but it goes on only where there is another behind the first.
      {"takes_first_if_second",
       "opaque",
       {8, 1, 1},
       {32, 1, 1},
       0,
       0,
       ".global .u32 head = 1;\n.global .u32 next[9] = {0, 2, 3, 4, 5, 6, 7, 8, 0};",
       R"(
	mov.u64 %rd5, next;
$TRY:
	ld.volatile.global.u32 %r10, [head];
	mul.wide.u32 %rd4, %r10, 4;
	add.s64 %rd6, %rd5, %rd4;
	ld.volatile.global.u32 %r11, [%rd6];
	setp.eq.u32 %p2, %r11, 0;
	@%p2 bra $TRY;
	atom.global.cas.b32 %r12, [head], %r10, %r11;
	setp.ne.u32 %p3, %r12, %r10;
	@%p3 bra $TRY;
	st.global.u32 [%rd2], %r5;
	ret;)"},
      // Searches for a free bit.
      {"finds_free_bit", "plain", {32, 1, 1}, {32, 1, 1}, 0, 0, ".global .u32 taken;", R"(
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
	mov.u32 %r10, 0;
$TRY:
	not.b32 %r11, %r10;
	bfind.u32 %r12, %r11;
	mov.u32 %r13, 1;
	shl.b32 %r13, %r13, %r12;
	atom.global.or.b32 %r14, [taken], %r13;
	or.b32 %r10, %r14, %r13;
	and.b32 %r15, %r14, %r13;
	setp.ne.u32 %p2, %r15, 0;
	@%p2 bra $TRY;
	mul.wide.u32 %rd4, %r12, 4;
	add.s64 %rd4, %rd0, %rd4;
	st.global.u32 [%rd4], %r12;
$END:
	ret;)"},
      // Sets its own bit of a word and waits for the neighbour's in it.
      {"waits_for_bit", "opaque", {4, 1, 1}, {32, 1, 1}, 0, 0, ".global .u32 came;", R"(
	mov.u32 %r10, 1;
	shl.b32 %r10, %r10, %r1;
	add.u32 %r11, %r10, %r10;
$WAIT:
	atom.global.or.b32 %r12, [came], %r10;
	and.b32 %r13, %r12, %r11;
	setp.eq.u32 %p1, %r13, 0;
	@%p1 bra $WAIT;
	st.global.u32 [%rd2], %r5;
	ret;)"},
      // Draws as much work at a time as the launch says.
      {"work_queue_by_parameter", "plain", {3, 1, 1}, {32, 1, 1}, 0, 4, ".global .u32 drawn;", R"(
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
$DRAW:
	atom.global.add.u32 %r10, [drawn], %r4;
	setp.ge.u32 %p2, %r10, 60;
	@%p2 bra $END;
	mul.wide.u32 %rd4, %r10, 4;
	add.s64 %rd5, %rd1, %rd4;
	add.s64 %rd6, %rd0, %rd4;
	ld.global.u32 %r11, [%rd5];
	st.global.u32 [%rd6], %r11;
	bra.uni $DRAW;
$END:
	ret;)"},
      // The launch may say 0, and nothing is done with what it finds but to ask whether it is
      // enough.
      {"work_queue_of_nothing", "opaque", {3, 1, 1}, {32, 1, 1}, 0, 0, ".global .u32 drawn;", R"(
$WAIT:
	atom.global.add.u32 %r10, [drawn], %r4;
	setp.lt.u32 %p2, %r10, 60;
	@%p2 bra $WAIT;
	st.global.u32 [%rd2], %r5;
	ret;)"},
      // Not optimised: every address is generic. The bounds of the loop are read again and again,
      // beside a minimum that others lower, too; neither is in memory of the block.
      {"bounds_by_generic_addresses", "plain", {9, 1, 1}, {32, 1, 1}, 0, 0, "", R"(
	ld.param.u64 %rd10, [in];
	ld.param.u64 %rd11, [out];
	and.b32 %r10, %r3, 7;
	mul.wide.u32 %rd4, %r10, 4;
	add.s64 %rd12, %rd11, %rd4;
	mov.u32 %r20, 0;
$NEXT:
	ld.u32 %r11, [%rd10+8];
	and.b32 %r11, %r11, 15;
	setp.gt.u32 %p1, %r20, %r11;
	@%p1 bra $END;
	add.u32 %r20, %r20, 1;
	add.u32 %r13, %r20, %r5;
	atom.max.u32 %r12, [%rd12], %r13;
	setp.ge.u32 %p2, %r12, %r13;
	@%p2 bra $NEXT;
	mov.u32 %r14, 1;
	st.u32 [%rd11+64], %r14;
	bra.uni $NEXT;
$END:
	ret;)"},
      // The same, but what it waits for is in global memory.
      {"flag_by_generic_address", "opaque", {9, 1, 1}, {32, 1, 1}, 0, 0, "", R"(
	ld.param.u64 %rd10, [in];
$WAIT:
	ld.volatile.u32 %r11, [%rd10+8];
	setp.eq.u32 %p1, %r11, 0;
	@%p1 bra $WAIT;
	st.global.u32 [%rd2], %r5;
	ret;)"},
      // A flag of the block's own, by its generic address.
      {"own_flag_by_generic_address",
       "plain",
       {9, 1, 1},
       {64, 1, 1},
       0,
       0,
       ".shared .align 4 .u32 flag;",
       R"(
	mov.u64 %rd10, flag;
	cvta.shared.u64 %rd11, %rd10;
	mov.u32 %r10, 0;
	st.volatile.u32 [%rd11], %r10;
	bar.sync 0;
	setp.ne.u32 %p1, %r0, 33;
	@%p1 bra $WAIT;
	mov.u32 %r10, 1;
	st.volatile.u32 [%rd11], %r10;
$WAIT:
	ld.volatile.u32 %r11, [%rd11];
	setp.eq.u32 %p2, %r11, 0;
	@%p2 bra $WAIT;
	st.global.u32 [%rd2], %r5;
	ret;)"},
      // Waits in one of its states, and has a loop in the other.
      {"waits_in_one_state", "opaque", {4, 1, 1}, {32, 1, 1}, 0, 3, "", R"(
	mov.u32 %r20, 0;
	mov.u32 %r21, 0;
$TURN:
	setp.ne.u32 %p1, %r20, 0;
	@%p1 bra $WORK;
	ld.volatile.global.u32 %r11, [%rd0];
	setp.eq.u32 %p2, %r11, 0;
	@%p2 bra $TURN;
	mov.u32 %r20, 1;
	bra.uni $TURN;
$WORK:
	mov.u32 %r22, 0;
$STEP:
	mad.lo.u32 %r5, %r5, 3, %r22;
	add.u32 %r22, %r22, 1;
	setp.lt.u32 %p3, %r22, %r4;
	@%p3 bra $STEP;
	add.u32 %r21, %r21, 1;
	setp.lt.u32 %p4, %r21, 10;
	@%p4 bra $TURN;
	st.global.u32 [%rd2], %r5;
	ret;)"},
      // OpenMP's teams reduce into four slots, and take a slot again when a round has passed.
      teams("teams_reduce", "in-order", "4", "", "4"),
      // The same where a round may not come: it counts for fewer than it lets in; the data decides
      // which teams count in it; the team's own number is waited for.
      teams("teams_count_few", "opaque", "4", "", "2"),
      teams("teams_may_not_count", "opaque", "4", R"(	mov.u32 %r15, 0;
	setp.eq.u32 %p6, %r14, 0;
	@%p6 bra $END;
)",
            "4"),
      teams("teams_wait_for_themselves", "opaque", "0", "", "4"),
      // As many as stand before the block have to have counted themselves.
      {"counts_those_before", "in-order", {31, 1, 1}, {32, 1, 1}, 0, 0, ".global .u32 count;", R"(
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
$WAIT:
	ld.volatile.global.u32 %r10, [count];
	setp.lt.u32 %p2, %r10, %r1;
	@%p2 bra $WAIT;
	ld.volatile.global.u32 %r11, [%rd0];
	mad.lo.u32 %r11, %r11, 5, %r5;
	st.volatile.global.u32 [%rd0], %r11;
	membar.gl;
	atom.global.add.u32 %r12, [count], 1;
$END:
	ret;)"},
      // The same with the turn in the stack frame, as it is without optimisation.
      {"waits_for_its_turn_in_the_frame",
       "in-order",
       {9, 1, 1},
       {32, 1, 1},
       0,
       0,
       ".global .u32 next, serving;",
       R"(
	.local .align 8 .b8 frame[16];
	mov.u64 %rd10, frame;
	cvta.local.u64 %rd11, %rd10;
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $END;
	atom.global.add.u32 %r10, [next], 1;
	st.u32 [%rd11+4], %r10;
$WAIT:
	ld.volatile.global.u32 %r11, [serving];
	ld.u32 %r12, [%rd11+4];
	setp.ne.u32 %p2, %r11, %r12;
	@%p2 bra $WAIT;
	ld.volatile.global.u32 %r13, [%rd0];
	add.u32 %r13, %r13, %r12;
	st.volatile.global.u32 [%rd0], %r13;
	membar.gl;
	ld.u32 %r14, [%rd11+4];
	add.u32 %r15, %r14, 1;
	st.volatile.global.u32 [serving], %r15;
$END:
	ret;)"},
      // The last block deals the turns out.
      {"waits_for_the_dealer", "opaque", {4, 1, 1}, {32, 1, 1}, 0, 0, "", R"(
	mov.u32 %r12, %nctaid.x;
	sub.u32 %r12, %r12, 1;
	setp.eq.u32 %p1, %r1, %r12;
	@%p1 bra $DEAL;
$WAIT:
	ld.volatile.global.u32 %r11, [%rd0];
	setp.ne.u32 %p2, %r11, %r1;
	@%p2 bra $WAIT;
	atom.global.add.u32 %r10, [%rd1], 1;
	ret;
$DEAL:
	st.volatile.global.u32 [%rd0], %r12;
	sub.u32 %r12, %r12, 1;
$DONE:
	ld.volatile.global.u32 %r11, [%rd1];
	setp.eq.u32 %p2, %r11, 0;
	@%p2 bra $DONE;
	setp.ne.u32 %p2, %r12, 0;
	@%p2 bra $DEAL;
	ret;)"},
      // Waiting that never ends once blocks leave.
      {"grid_barrier", "opaque", {4, 1, 1}, {32, 1, 1}, 0, 0, ".global .u32 came;", R"(
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $MEET;
	membar.gl;
	atom.global.add.u32 %r10, [came], 1;
	mov.u32 %r12, %nctaid.x;
$WAIT:
	ld.volatile.global.u32 %r11, [came];
	setp.lt.u32 %p2, %r11, %r12;
	@%p2 bra $WAIT;
$MEET:
	bar.sync 0;
	st.global.u32 [%rd2], %r5;
	ret;)"},
      // The same once a round: the loop of the rounds ends by itself, the one inside it does not.
      {"grid_barrier_every_round", "opaque", {4, 1, 1}, {32, 1, 1}, 0, 3, ".global .u32 came;", R"(
	mov.u32 %r12, %nctaid.x;
	mov.u32 %r20, 0;
$ROUND:
	mad.lo.u32 %r21, %r20, %r12, %r12;
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $MEET;
	atom.global.add.u32 %r10, [came], 1;
$WAIT:
	ld.volatile.global.u32 %r11, [came];
	setp.lt.u32 %p2, %r11, %r21;
	@%p2 bra $WAIT;
$MEET:
	bar.sync 0;
	add.u32 %r20, %r20, 1;
	setp.lt.u32 %p3, %r20, %r4;
	@%p3 bra $ROUND;
	st.global.u32 [%rd2], %r5;
	ret;)"},
      // The block before, but of the first one that is the last: nobody's turn comes by itself.
      {"ring_of_blocks", "opaque", {4, 1, 1}, {32, 1, 1}, 0, 3, "", R"(
	mov.u32 %r12, %nctaid.x;
	add.u32 %r10, %r1, %r12;
	add.s32 %r10, %r10, -1;
	rem.u32 %r10, %r10, %r12;
	mul.wide.u32 %rd5, %r10, 4;
	add.s64 %rd5, %rd0, %rd5;
	mul.wide.u32 %rd4, %r1, 4;
	add.s64 %rd4, %rd0, %rd4;
	setp.ne.u32 %p1, %r1, 0;
	selp.u32 %r13, 1, 0, %p1;
	mov.u32 %r20, 0;
$ROUND:
	add.u32 %r21, %r20, %r13;
$WAIT:
	ld.volatile.global.u32 %r11, [%rd5];
	setp.lt.u32 %p2, %r11, %r21;
	@%p2 bra $WAIT;
	add.u32 %r20, %r20, 1;
	st.volatile.global.u32 [%rd4], %r20;
	setp.lt.u32 %p3, %r20, %r4;
	@%p3 bra $ROUND;
	ret;)"},
      // A plain load, which the barrier makes the thread read again, passed on in shared memory.
      {"waits_plainly",
       "opaque",
       {4, 1, 1},
       {64, 1, 1},
       0,
       0,
       ".shared .align 4 .b8 passed[4];",
       R"(
	setp.eq.u32 %p4, %r0, 0;
$WAIT:
	@%p4 ld.global.u32 %r11, [%rd1];
	@%p4 st.shared.u32 [passed], %r11;
	bar.sync 0;
	ld.shared.u32 %r10, [passed];
	bar.sync 0;
	setp.eq.u32 %p3, %r10, 0;
	@%p3 bra $WAIT;
	ret;)"},
      {"waits_for_neighbours", "opaque", {4, 1, 1}, {32, 1, 1}, 0, 0, "", R"(
	mul.wide.u32 %rd4, %r1, 4;
	add.s64 %rd4, %rd0, %rd4;
	st.volatile.global.u32 [%rd4], 1;
	add.u32 %r10, %r1, 1;
	and.b32 %r10, %r10, 3;
	mul.wide.u32 %rd5, %r10, 4;
	add.s64 %rd5, %rd0, %rd5;
$WAIT:
	ld.volatile.global.u32 %r11, [%rd5];
	setp.eq.u32 %p2, %r11, 0;
	@%p2 bra $WAIT;
	ret;)"},
      {"waits_for_host", "opaque", {4, 1, 1}, {32, 1, 1}, 0, 0, "", R"(
$WAIT:
	ld.volatile.global.u32 %r11, [%rd1];
	setp.eq.u32 %p2, %r11, 0;
	@%p2 bra $WAIT;
	ret;)"},
      // One thread polls for the block and tells the others in shared memory: Triton's look-back.
      {"chained_scan_by_shared",
       "in-order",
       {19, 1, 1},
       {64, 1, 1},
       0,
       0,
       ".shared .align 8 .b8 passed[8];",
       R"(
	mov.u32 %r11, 0;
	setp.eq.u32 %p4, %r0, 0;
	mul.wide.u32 %rd4, %r1, 8;
	add.s64 %rd4, %rd0, %rd4;
	setp.eq.u32 %p2, %r1, 0;
	@%p2 bra $PUBLISH;
	mov.u32 %r20, %r1;
$WAIT:
	bar.sync 0;
	mov.u64 %rd6, 0x0;
	@%p4 ld.global.gpu.relaxed.b64 %rd6, [ %rd4 + -8 ];
	@%p4 st.shared.b64 [passed], %rd6;
	bar.sync 0;
	ld.shared.b64 %rd7, [passed];
	cvt.u32.u64 %r10, %rd7;
	setp.eq.u32 %p3, %r10, 0;
	@%p3 bra $WAIT;
	shr.u64 %rd7, %rd7, 32;
	cvt.u32.u64 %r11, %rd7;
$PUBLISH:
	add.u32 %r11, %r11, 5;
	cvt.u64.u32 %rd8, %r11;
	shl.b64 %rd8, %rd8, 32;
	or.b64 %rd8, %rd8, 1;
	mov.u64 %rd9, 0x0;
	@%p4 atom.global.gpu.relaxed.exch.b64 %rd9, [ %rd4 + 0 ], %rd8;
	ret;)"},
      // The same, polled with an atomic that adds nothing and a barrier's reduction that tells.
      {"chained_scan_by_adding_nothing", "in-order", {19, 1, 1}, {64, 1, 1}, 0, 0, "", R"(
	mov.u32 %r11, 0;
	setp.eq.u32 %p4, %r0, 0;
	mul.wide.u32 %rd4, %r1, 4;
	add.s64 %rd4, %rd0, %rd4;
	setp.eq.u32 %p2, %r1, 0;
	@%p2 bra $PUBLISH;
	add.s64 %rd5, %rd4, -4;
	mov.b32 %r12, 0;
$WAIT:
	mov.u32 %r11, 0;
	@%p4 atom.global.gpu.acq_rel.add.u32 %r11, [ %rd5 + 0 ], %r12;
	setp.ne.u32 %p3, %r11, 0;
	bar.red.or.pred %p3, 0, %p3;
	@!%p3 bra $WAIT;
$PUBLISH:
	add.u32 %r11, %r11, 7;
	@%p4 atom.global.gpu.acq_rel.exch.b32 %r13, [ %rd4 + 0 ], %r11;
	ret;)"},
      // A poll of anything else, passed on in shared memory.
      {"waits_for_host_by_shared",
       "opaque",
       {4, 1, 1},
       {64, 1, 1},
       0,
       0,
       ".shared .align 4 .b8 passed[4];",
       R"(
	setp.ne.u32 %p4, %r0, 0;
$WAIT:
	@%p4 bra $MEET;
	mov.u32 %r12, 0;
	ld.volatile.global.u32 %r11, [%rd1];
	setp.eq.u32 %p2, %r11, 0;
	@%p2 bra $TELL;
	mov.u32 %r12, 1;
$TELL:
	st.shared.u32 [passed], %r12;
$MEET:
	bar.sync 0;
	ld.shared.u32 %r10, [passed];
	bar.sync 0;
	setp.eq.u32 %p3, %r10, 0;
	@%p3 bra $WAIT;
	ret;)"},
      // And through a function, and the stack, as compilers without optimisation do it.
      {"waits_in_function",
       "opaque",
       {4, 1, 1},
       {32, 1, 1},
       0,
       0,
       R"(.func (.param .b32 got) look(.param .b64 at)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.b64 %rd0, [at];
	ld.acquire.gpu.global.u32 %r0, [%rd0];
	st.param.b32 [got], %r0;
	ret;
}
.func (.param .b32 got) look_twice(.param .b64 at)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.b64 %rd0, [at];
	{
	.param .b64 to;
	.param .b32 back;
	st.param.b64 [to], %rd0;
	call (back), look, (to);
	ld.param.b32 %r0, [back];
	}
	st.param.b32 [got], %r0;
	ret;
})",
       R"(
	.local .align 4 .b8 depot[4];
$WAIT:
	{
	.param .b64 to;
	.param .b32 back;
	st.param.b64 [to], %rd1;
	call (back), look_twice, (to);
	ld.param.b32 %r11, [back];
	}
	st.local.u32 [depot], %r11;
	ld.local.u32 %r12, [depot];
	setp.eq.u32 %p2, %r12, 0;
	@%p2 bra $WAIT;
	ret;)"},
      // Not waiting: what is drawn, and passed on in shared memory, only ever grows.
      {"work_queue_by_shared",
       "unified",
       {3, 1, 1},
       {64, 1, 1},
       0,
       40,
       ".global .u32 queue;\n.shared .align 4 .b8 passed[4];",
       R"(
$NEXT:
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra $MEET;
	atom.global.add.u32 %r10, [queue], 1;
	st.shared.u32 [passed], %r10;
$MEET:
	bar.sync 0;
	ld.shared.u32 %r10, [passed];
	bar.sync 0;
	setp.ge.u32 %p2, %r10, %r4;
	@%p2 bra $END;
	mul.wide.u32 %rd4, %r10, 4;
	add.s64 %rd4, %rd0, %rd4;
	atom.global.add.u32 %r11, [%rd4], %r10;
	bra $NEXT;
$END:
	ret;)"},
  };
}

}  // namespace sluice::tool::hazards
