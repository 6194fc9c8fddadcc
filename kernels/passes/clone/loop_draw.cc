// SPDX-License-Identifier: Apache-2.0
// Between two batches of tasks: the leader polls the evict word, takes the next tasks and
// publishes them; see loop_head.h.
//
// For kernels of short tasks every instruction here counts: on an H200 a loop of 41 more
// instructions for each warp and task of 247 took 1.09 times the original's time. So what is rare
// stands elsewhere (loop_exit.cc), the other warps do next to nothing, and measuring happens while
// the ticket and the evict word are on their way.
#include <cstddef>

#include "kernels/passes/clone/loop_fields.h"
#include "kernels/passes/clone/loop_head.h"

namespace sluice::passes {

// %~a: where this launch's workers find the evict word; %~word and %~p are lost.
void LoopHead::evict_address() {
  test_flag(SLUICE_LAUNCH_PROXY);
  out_.line("add.s64 \t%~a, %~control, " + number(offsetof(sluice_launch_control, evict)) + ";")
      .line("ld.param.u64 \t%~word, " + PARAM(signal) + ";")
      .line("cvta.to.global.u64 \t%~word, %~word;")
      .line("selp.b64 \t%~a, %~a, %~word, %~p;");
}

void LoopHead::load_evict_word() {
  if (options_.resumable) return write_duty("%~lead");
  evict_address();
  out_.line("{LD_SYS}.global.u64 \t%~word, [%~a];");
}

// Goes on at STAY, or, if the evict word is for this launch, at SEEN. Lost: %~r0 to %~r2, %~p.
void LoopHead::write_evict_test() {
  out_.line("mov.b64 \t{%~r0, %~r1}, %~word;");
  share("%~r0");
  out_.line("ld.param.u32 \t%~r2, " + PARAM(generation) + ";")
      .line("setp.ge.u32 \t%~p, %~r0, %~r2;")
      .line("@%~p bra \t~SEEN;");
  out_.label("~STAY");
}

// %~r1 holds {sm_lo | sm_hi << 16}: a word of 0 has an empty range of SMs.
void LoopHead::write_seen(std::string_view evicted) {
  out_.label("~SEEN");
  share("%~r1");
  out_.line("and.b32 \t%~r2, %~r1, 65535;")
      .line("shr.u32 \t%~r1, %~r1, 16;")
      .line("mov.u32 \t%~r0, %smid;");
  share("%~r0");
  out_.line("setp.ge.u32 \t%~p, %~r0, %~r2;")
      .line("setp.lt.and.u32 \t%~p, %~r0, %~r1, %~p;")
      .line("@!%~p bra \t~STAY;")
      .line("ld.shared.u32 \t%~r0, " + shared(kPlace) + ";")
      .line("or.b32 \t%~r0, %~r0, " + number(kEvicted) + ";")
      .line("st.shared.u32 \t" + shared(kPlace) + ", %~r0;")
      .line("bra \t" + std::string(evicted) + ";");
}

// Draws so many tickets as %~r6 says, but towards the end of the grid what is left is shared out:
// %~ticket is under way, %~r8 says how many. Lost: %~r0, %~r1, %~p.
void LoopHead::write_draw() {
  if (chunked()) {
    out_.line("ld.param.u32 \t%~r0, " + PARAM(tasks) + ";")
        .line("sub.u32 \t%~r0, %~r0, %~end;")
        .line("ld.param.u8 \t%~h, " + PARAM(tail_shift) + ";")
        .line("cvt.u32.u16 \t%~r1, %~h;")
        .line("shr.u32 \t%~r0, %~r0, %~r1;")
        .line("min.u32 \t%~r8, %~r6, %~r0;")
        .line("max.u32 \t%~r8, %~r8, 1;");
    test_flag(SLUICE_LAUNCH_FIXED);
    out_.line("@%~p mov.u32 \t%~r8, %~r6;");
  } else {
    out_.line("mov.u32 \t%~r8, 1;");
  }
  out_.line("@%~lead atom.global.add.u32 \t%~ticket, " + CONTROL("control", next_ticket) +
            ", %~r8;");
}

// [%~next, %~end): the %~r8 tickets that were drawn; empty when there are none.
void LoopHead::write_resolve() {
  share("%~ticket");
  out_.line("ld.param.u32 \t%~r1, " + PARAM(first_tickets) + ";")
      .line("add.u32 \t%~next, %~ticket, %~r1;")
      .line("ld.param.u32 \t%~r1, " + PARAM(tasks) + ";")
      .line("add.u32 \t%~end, %~next, %~r8;")
      .line("min.u32 \t%~end, %~end, %~r1;");
}

// %~r6: how many tickets take the target time, by those that have run since the last time. Lost:
// %~r0 to
// %~r4, %~f0, %~f1, %~p.
void LoopHead::write_measure() {
  test_flag(SLUICE_LAUNCH_FIXED);
  out_.line("@%~p bra \t~MEASURED;")
      .line("ld.shared.v2.u32 \t{%~r3, %~r4}, " + shared(kMeasured) + ";")
      .line("mov.u32 \t%~r2, %clock;");
  share("%~r2");
  out_.line("sub.u32 \t%~r1, %~r7, %~r4;")
      .line("setp.eq.u32 \t%~p, %~r1, 0;")
      .line("@%~p bra \t~MEASURED;")
      .line("st.shared.v2.u32 \t" + shared(kMeasured) + ", {%~r2, %~r7};")
      .line("sub.u32 \t%~r0, %~r2, %~r3;")
      .line("max.u32 \t%~r0, %~r0, 1;")
      .line("cvt.rn.f32.u32 \t%~f1, %~r0;")
      .line("rcp.approx.f32 \t%~f1, %~f1;")
      .line("ld.param.u32 \t%~r0, " + PARAM(target_clocks) + ";")
      .line("mul.lo.u32 \t%~r1, %~r1, %~r0;")
      .line("cvt.rn.f32.u32 \t%~f0, %~r1;")
      .line("mul.f32 \t%~f0, %~f0, %~f1;")
      .line("cvt.rzi.u32.f32 \t%~r0, %~f0;")
      // At most 16 times as many as it was.
      .line("shl.b32 \t%~r6, %~r6, 4;")
      .line("min.u32 \t%~r6, %~r6, %~r0;")
      .line("ld.param.u16 \t%~h, " + PARAM(chunk_max) + ";")
      .line("cvt.u32.u16 \t%~r0, %~h;")
      .line("min.u32 \t%~r6, %~r6, %~r0;")
      .line("max.u32 \t%~r6, %~r6, 1;");
  out_.label("~MEASURED");
}

void LoopHead::write_head() {
  if (!options_.resumable) {
    out_.label("~HEAD")
        .line("xor.b32 \t%~rem, %~rem, " + number(kSecondSlot) + ";")
        .line("and.b32 \t%~r0, %~rem, " + number(kLeads) + ";")
        .line("setp.eq.u32 \t%~p, %~r0, 0;")
        .line("@%~p bra \t~WAIT;")
        .line("mov.u32 \t%~r0, %laneid;")
        .line("setp.eq.u32 \t%~lead, %~r0, 0;");
    load_base();
    load_control();
    out_.line("ld.shared.v4.u32 \t{%~next, %~end, %~r6, %~r7}, " + shared(kRange) + ";");
  }
  // SETUP comes here with an empty range, or one and its first task's index.
  out_.label("~LEAD");
  load_evict_word();
  if (chunked()) {
    out_.line("mov.u32 \t%~r8, 0;")
        .line("setp.lt.u32 \t%~p, %~next, %~end;")
        .line("@%~p bra \t~HELD;");
    // Used up: the ticket and the evict word travel together, and what comes of both is known
    // together.
    write_draw();
    write_measure();
    out_.label("~HELD");
    write_evict_test();
    out_.line("setp.eq.u32 \t%~p, %~r8, 0;").line("@%~p bra \t~BATCH;");
  } else {
    write_evict_test();  // Rule left-over: polled before a ticket is drawn
    if (options_.resumable) write_pop();
    write_draw();
  }
  write_resolve();
  out_.line("setp.ge.u32 \t%~p, %~next, %~end;")
      .line(std::string("@%~p bra \t") + (chunked() ? "~SCAN;" : "~NONE;"));
  if (options_.resumable) write_fresh();
  out_.label("~TAKE");
  write_index();
  write_batch();
  write_wait();
}

// A batch from the front of [%~next, %~end), whose first task's index is known, into the slot.
void LoopHead::write_batch() {
  out_.label("~BATCH").line("setp.eq.u32 \t%~p, %~next, 0;").line("@%~p bra \t~ZERO;");
  out_.label("~BEGIN");
  if (chunked()) {
    out_.line("ld.param.u8 \t%~h, " + PARAM(batch_shift) + ";")
        .line("cvt.u32.u16 \t%~r0, %~h;")
        .line("shr.u32 \t%~r5, %~r6, %~r0;")
        .line("add.u32 \t%~r5, %~r5, 1;")
        .line("sub.u32 \t%~r0, %~end, %~next;")
        .line("min.u32 \t%~r5, %~r5, %~r0;");
  } else {
    out_.line("mov.u32 \t%~r5, 1;");
  }
  const auto element = [&](std::size_t d, const char* reg) {
    return std::string(steps(d) ? reg : "%~r5");
  };
  out_.line("and.b32 \t%~r0, %~rem, " + number(kSecondSlot) + ";")
      .line("shl.b32 \t%~r0, %~r0, 4;")
      .line("add.u32 \t%~r0, %~r0, %~base;")
      .line("st.shared.v4.u32 \t[%~r0], {" + element(0, "%~x") + ", " + element(1, "%~y") + ", " +
            element(2, "%~z") + ", %~r5};");
  if (options_.resumable) {
    out_.line("bra \t~WAIT;");
    return;
  }
  barrier();
  // From here on nobody waits for the leader.
  out_.line("add.u32 \t%~next, %~next, %~r5;")
      .line("add.u32 \t%~r7, %~r7, %~r5;")
      .line("st.shared.v4.u32 \t" + shared(kRange) + ", {%~next, %~end, %~r6, %~r7};");
  if (chunked()) out_.line("mad.lo.u32 \t%~rem, %~r5, " + number(kTaskLeft) + ", %~rem;");
  out_.line("bra \t~BODY;");
}

// Everybody but the leader.
void LoopHead::write_wait() {
  out_.label("~WAIT");
  barrier();
  load_base();
  out_.line("and.b32 \t%~r0, %~rem, " + number(kSecondSlot) + ";")
      .line("shl.b32 \t%~r0, %~r0, 4;")
      .line("add.u32 \t%~r0, %~r0, %~base;")
      .line("ld.shared.v4.u32 \t{%~x, %~y, %~z, %~r0}, [%~r0];")
      .line("setp.eq.u32 \t%~p, %~r0, 0;")
      .line("@%~p ret;");
  if (chunked()) out_.line("mad.lo.u32 \t%~rem, %~r0, " + number(kTaskLeft) + ", %~rem;");
  out_.line("bra \t~BODY;");
}

// Behind the body: to the batch's next task, or to the head.
void LoopHead::write_tail() {
  out_.label("~TAIL");
  for (const std::string& line : options_.clean_up) out_.line(line);
  if (!options_.release.empty()) {
    barrier();
    out_.line("and.b32 \t%~r0, %~rem, " + number(kLeads) + ";")
        .line("setp.ne.u32 \t%~p, %~r0, 0;")
        .line("mov.u32 \t%~r0, %laneid;")
        .line("setp.eq.and.u32 \t%~lead, %~r0, 0, %~p;");
    for (const std::string& line : options_.release) out_.line(line);
  }
  if (!chunked()) return;
  if (steps(0)) {
    out_.line("add.u32 \t%~x, %~x, 1;")
        .line("ld.param.u32 \t%~r0, " + PARAM(grid_x) + ";")
        .line("setp.eq.u32 \t%~p, %~x, %~r0;")
        .line("@%~p mov.u32 \t%~x, 0;");
  }
  if (steps(1)) out_.line("@%~p add.u32 \t%~y, %~y, 1;");
  if (steps(2)) {
    out_.line("ld.param.u32 \t%~r0, " + PARAM(grid_y) + ";")
        .line("setp.eq.and.u32 \t%~q, %~y, %~r0, %~p;")
        .line("@%~q mov.u32 \t%~y, 0;")
        .line("@%~q add.u32 \t%~z, %~z, 1;");
  }
  out_.line("sub.u32 \t%~rem, %~rem, " + number(kTaskLeft) + ";")
      .line("setp.lt.u32 \t%~p, %~rem, " + number(kTaskLeft) + ";")
      .line("@%~p bra \t~HEAD;");
  if (options_.separate) barrier();
  out_.line("bra \t~BODY;");
}

}  // namespace sluice::passes
