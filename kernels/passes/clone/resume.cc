// SPDX-License-Identifier: Apache-2.0
// Tasks that leave in mid-work and are resumed (author_points.h): how a block finds one that has
// left, what the author's points become, and how a block that ended differs from one that left. The
// rest of the clone is the prologue form's (loop_head.h): a hardware block runs one task.
//
// A block ends as the original does, thread by thread; no barrier is put where the original has
// none. Each thread counts itself out in shared memory, and the last one does the accounts: all
// threads have left: the task goes on the stack of tasks that have left; none has: it is finished.
// Some of both: then the author has broken the rule that all leave together, nothing could put the
// result right, and the kernel traps.
//
// Whoever resumes a task in the same physical launch (on an SM that was not to be left) sees what
// its threads wrote before: each fences before it counts itself out, the last one fences before it
// publishes the task, and the one who takes it fences before its block's barrier.
#include "kernels/passes/clone/loop_fields.h"
#include "kernels/passes/clone/loop_head.h"

namespace sluice::passes {

namespace {

// In the block's shared memory: {task, 1 if it is resumed}, and how many threads have ended (low
// half) and left (high half). The leader's fields of other forms stand there.
constexpr unsigned kTask = kRange;
constexpr unsigned kEnded = kMeasured + 4;

}  // namespace

// %~word: the evict word, for a thread; `only`: a predicate, the thread that takes its turn (empty:
// every thread that comes). Registers %~a, %~exited, %~record and %~p, %~q are lost; %~control
// holds.
void LoopHead::write_duty(const std::string& only) {
  test_flag(SLUICE_LAUNCH_DUTY);
  out_.line("{LD_GPU}.global.u64 \t%~word, " + CONTROL("control", looked_ns) + ";")
      .line("mov.u64 \t%~record, %globaltimer;")
      .line("sub.s64 \t%~exited, %~record, %~word;")
      .line("setp.ge.and.u64 \t%~q, %~exited, " + number(SLUICE_DUTY_NS) + ", %~p;");
  if (!only.empty()) out_.line("and.pred \t%~q, %~q, " + only + ";");
  out_.line("add.s64 \t%~a, %~control, " + number(offsetof(sluice_launch_control, looked_ns)) + ";")
      .line("mov.u64 \t%~exited, %~record;")
      .line("@%~q atom.global.cas.b64 \t%~exited, [%~a], %~word, %~record;")
      .line("setp.eq.and.u64 \t%~q, %~exited, %~word, %~q;")
      // Who has the turn, or everybody where nobody copies, reads the signal itself.
      .line("ld.param.u64 \t%~a, " + PARAM(signal) + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("add.s64 \t%~exited, %~control, " + number(offsetof(sluice_launch_control, evict)) +
            ";")
      .line("not.pred \t%~p, %~p;")
      .line("or.pred \t%~p, %~p, %~q;")
      .line("selp.b64 \t%~a, %~a, %~exited, %~p;")
      .line("{LD_SYS}.global.u64 \t%~word, [%~a];")
      .line("@%~q {ST_GPU}.global.u64 \t[%~exited], %~word;");
}

// Takes a task that has left, to ~TAKE; falls through where there is none.
void LoopHead::write_pop() {
  out_.line("{LD_GPU}.global.u64 \t%~word, " + CONTROL("control", left_head) + ";");
  out_.label("~POP");
  share_wide("%~word");
  out_.line("mov.b64 \t{%~r0, %~r1}, %~word;")
      .line("setp.eq.u32 \t%~p, %~r0, 0;")
      .line("@%~p bra \t~POPPED;")
      .line("sub.u32 \t%~next, %~r0, 1;")
      .line("ld.param.u64 \t%~a, " + PARAM(state) + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("ld.param.u32 \t%~r2, " + PARAM(state_stride) + ";")
      .line("mul.wide.u32 \t%~record, %~next, %~r2;")
      .line("add.s64 \t%~a, %~a, %~record;")
      .line("{LD_GPU}.global.u32 \t%~r3, [%~a];")
      .line("add.u32 \t%~r1, %~r1, 1;")
      .line("mov.b64 \t%~record, {%~r3, %~r1};")
      .line("add.s64 \t%~a, %~control, " + number(offsetof(sluice_launch_control, left_head)) + ";")
      .line("mov.u64 \t%~exited, %~word;")
      .line("@%~lead atom.global.cas.b64 \t%~exited, [%~a], %~word, %~record;");
  share_wide("%~exited");
  out_.line("setp.eq.u64 \t%~p, %~exited, %~word;")
      .line("mov.u64 \t%~word, %~exited;")
      .line("@!%~p bra \t~POP;")
      .line("{FENCE_GPU};")
      .line("@%~lead red.global.add.u32 \t" + CONTROL("control", left_count) + ", 4294967295;")
      .line("mov.u32 \t%~r0, 1;")
      .line("st.shared.v2.u32 \t" + shared(kTask) + ", {%~next, %~r0};")
      .line("bra \t~TAKE;");
  out_.label("~POPPED");
}

// Task %~next begins anew.
void LoopHead::write_fresh() {
  out_.line("mov.u32 \t%~r0, 0;").line("st.shared.v2.u32 \t" + shared(kTask) + ", {%~next, %~r0};");
}

// Behind the body: where its threads return (~ENDED) or leave (~LEFT).
void LoopHead::write_end() {
  out_.label("~ENDED").line("mov.u32 \t%~r1, 1;").line("bra \t~COUNT;");
  out_.label("~LEFT").line("{FENCE_GPU};").line("mov.u32 \t%~r1, 65537;");
  out_.label("~COUNT");
  load_base();
  out_.line("atom.shared.add.u32 \t%~r2, " + shared(kEnded) + ", %~r1;")
      .line("add.u32 \t%~r2, %~r2, %~r1;")
      .line("and.b32 \t%~r3, %~r2, 65535;")
      .line("shr.u32 \t%~r2, %~r2, 16;");
  out_.line("mov.u32 \t%~r4, %ntid.x;")
      .line("mov.u32 \t%~r5, %ntid.y;")
      .line("mul.lo.u32 \t%~r4, %~r4, %~r5;")
      .line("mov.u32 \t%~r5, %ntid.z;")
      .line("mul.lo.u32 \t%~r4, %~r4, %~r5;")
      .line("setp.ne.u32 \t%~p, %~r3, %~r4;")
      .line("@%~p ret;");
  // The last thread, alone.
  load_control();
  out_.line("setp.eq.u32 \t%~lead, %~r3, %~r4;")
      .line("mov.u32 \t%~r7, 1;")
      .line("setp.eq.u32 \t%~p, %~r2, 0;")
      .line("@%~p bra \t~ACCOUNT;")
      .line("setp.eq.u32 \t%~p, %~r2, %~r4;")
      .line("@%~p bra \t~STACK;")
      .line("trap;");
  out_.label("~STACK")
      .line("ld.shared.u32 \t%~r0, " + shared(kPlace) + ";")
      .line("or.b32 \t%~r0, %~r0, " + number(kEvicted) + ";")
      .line("st.shared.u32 \t" + shared(kPlace) + ", %~r0;")
      .line("ld.shared.u32 \t%~next, " + shared(kTask) + ";")
      .line("ld.param.u64 \t%~a, " + PARAM(state) + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("ld.param.u32 \t%~r2, " + PARAM(state_stride) + ";")
      .line("mul.wide.u32 \t%~record, %~next, %~r2;")
      .line("add.s64 \t%~a, %~a, %~record;")
      .line("add.u32 \t%~next, %~next, 1;")
      .line("{LD_GPU}.global.u64 \t%~word, " + CONTROL("control", left_head) + ";");
  out_.label("~PUSH_AGAIN")
      .line("mov.b64 \t{%~r0, %~r1}, %~word;")
      .line("{ST_GPU}.global.u32 \t[%~a], %~r0;")
      .line("{FENCE_GPU};")
      .line("add.u32 \t%~r1, %~r1, 1;")
      .line("mov.b64 \t%~record, {%~next, %~r1};")
      .line("atom.global.cas.b64 \t%~exited, " + CONTROL("control", left_head) +
            ", %~word, %~record;")
      .line("setp.eq.u64 \t%~p, %~exited, %~word;")
      .line("mov.u64 \t%~word, %~exited;")
      .line("@!%~p bra \t~PUSH_AGAIN;")
      .line("red.global.add.u32 \t" + CONTROL("control", left_count) + ", 1;")
      .line("mov.u32 \t%~r7, 0;");
  out_.label("~ACCOUNT");
  alone_ = true;
  write_account({}, "~ENDED_");
  alone_ = false;
}

// %~a: where this thread's state stands; %~r1: 1 if the task is resumed. %~p, %~r0, %~r2, %~base
// and
// %~word are lost.
void LoopHead::write_state_address(std::uint64_t bytes) {
  load_base();
  out_.line("mov.u32 \t%~r0, %tid.z;")
      .line("mov.u32 \t%~r1, %ntid.y;")
      .line("mov.u32 \t%~r2, %tid.y;")
      .line("mad.lo.u32 \t%~r0, %~r0, %~r1, %~r2;")
      .line("mov.u32 \t%~r1, %ntid.x;")
      .line("mov.u32 \t%~r2, %tid.x;")
      .line("mad.lo.u32 \t%~r2, %~r0, %~r1, %~r2;")
      .line("ld.shared.v2.u32 \t{%~r0, %~r1}, " + shared(kTask) + ";")
      .line("ld.param.u64 \t%~a, " + PARAM(state) + ";")
      .line("mul.wide.u32 \t%~word, %~r2, " + number(bytes) + ";")
      .line("add.s64 \t%~a, %~a, %~word;")
      .line("ld.param.u32 \t%~r2, " + PARAM(state_stride) + ";")
      .line("mul.wide.u32 \t%~word, %~r0, %~r2;")
      .line("add.s64 \t%~a, %~a, %~word;")
      .line("add.s64 \t%~a, %~a, " + number(SLUICE_RESUME_HEADER_BYTES) + ";");
}

void LoopHead::write_author_point(const Marker& marker) {
  const std::string to(marker.destination);
  switch (marker.point) {
    case AuthorPoint::kAsk:
      load_control();
      write_duty({});
      out_.line("mov.b64 \t{%~r0, %~r1}, %~word;")
          .line("ld.param.u32 \t%~r2, " + PARAM(generation) + ";")
          .line("setp.ge.u32 \t%~p, %~r0, %~r2;")
          .line("and.b32 \t%~r2, %~r1, 65535;")
          .line("shr.u32 \t%~r1, %~r1, 16;")
          .line("mov.u32 \t%~r0, %smid;")
          .line("setp.ge.and.u32 \t%~p, %~r0, %~r2, %~p;")
          .line("setp.lt.and.u32 \t%~p, %~r0, %~r1, %~p;")
          .line("selp.u32 \t" + to + ", 1, 0, %~p;");
      return;
    case AuthorPoint::kResume:
      write_state_address(marker.bytes);
      out_.line("setp.ne.u32 \t%~p, %~r1, 0;").line("selp.b64 \t" + to + ", %~a, 0, %~p;");
      return;
    case AuthorPoint::kSave:
      write_state_address(marker.bytes);
      out_.line("mov.u64 \t" + to + ", %~a;");
      return;
    case AuthorPoint::kLeave:
      out_.line("bra \t~LEFT;");
      return;
  }
}

}  // namespace sluice::passes
