// SPDX-License-Identifier: Apache-2.0
// What is rare: evicted workers, left-overs, how a worker leaves, and the proxy; see loop_head.h.
#include "kernels/passes/clone/loop_fields.h"
#include "kernels/passes/clone/loop_head.h"

namespace sluice::passes {

// Evicted: what this worker has in hand goes on the left-over list, also a chunk that was
// just drawn.
void LoopHead::write_push() {
  out_.label("~PUSH")
      .line("setp.lt.u32 \t%~p, %~next, %~end;")
      .line("@%~p bra \t~HAS;")
      .line("setp.eq.u32 \t%~p, %~r8, 0;")
      .line("@%~p bra \t~NONE;");
  write_resolve();
  out_.line("setp.ge.u32 \t%~p, %~next, %~end;").line("@%~p bra \t~NONE;");
  out_.label("~HAS");
  write_slot_address();
  out_.line("mov.b64 \t%~word, {%~next, %~end};")
      .line("@%~lead {ST_GPU}.global.u64 \t[%~a], %~word;")
      .line("@%~lead red.global.add.u32 \t" + CONTROL("control", left_count) + ", 1;")
      .line("bra \t~NONE;");
}

// No ticket is left: takes up what others have left, those of an SM that had to go or workers that
// a smaller relaunch does not have.
void LoopHead::write_scan() {
  // Nobody has left anything where this is the first physical launch and the evict word is not for
  // it.
  out_.label("~SCAN").line("mov.b64 \t{%~r0, %~r1}, %~word;");
  share("%~r0");
  test_flag(SLUICE_LAUNCH_RESUME | SLUICE_LAUNCH_SPATIAL);
  out_.line("ld.param.u32 \t%~r2, " + PARAM(generation) + ";")
      .line("setp.ge.or.u32 \t%~p, %~r0, %~r2, %~p;")
      .line("@!%~p bra \t~NONE;")
      .line("{LD_GPU}.global.u32 \t%~r0, " + CONTROL("control", left_count) + ";");
  share("%~r0");
  out_.line("setp.eq.u32 \t%~p, %~r0, 0;").line("@%~p bra \t~NONE;");
  write_slot_address();
  out_.line("ld.param.u64 \t%~record, " + PARAM(left) + ";")
      .line("cvta.to.global.u64 \t%~record, %~record;")
      .line("add.s64 \t%~record, %~record, " + number(offsetof(sluice_launch_left, slot)) + ";")
      .line("ld.param.u32 \t%~r9, " + PARAM(left_slots) + ";")
      .line("mov.u32 \t%~r10, 0;");
  out_.label("~SEEK")
      .line("setp.ge.u32 \t%~p, %~r10, %~r9;")
      .line("@%~p bra \t~NONE;")
      .line("add.u32 \t%~r10, %~r10, 1;")
      .line("add.u32 \t%~r0, %~r0, 1;")
      .line("setp.ge.u32 \t%~p, %~r0, %~r9;")
      .line("@%~p mov.u32 \t%~r0, 0;")
      .line("mul.wide.u32 \t%~a, %~r0, 8;")
      .line("add.s64 \t%~a, %~a, %~record;")
      .line("{LD_GPU}.global.u64 \t%~word, [%~a];");
  share_wide("%~word");
  out_.line("setp.eq.u64 \t%~p, %~word, 0;")
      .line("@%~p bra \t~SEEK;")
      .line("mov.u64 \t%~word, 0;")
      .line("@%~lead atom.global.exch.b64 \t%~word, [%~a], %~word;");
  share_wide("%~word");
  out_.line("setp.eq.u64 \t%~p, %~word, 0;")
      .line("@%~p bra \t~SEEK;")
      .line("@%~lead red.global.add.u32 \t" + CONTROL("control", left_count) + ", 4294967295;")
      .line("mov.b64 \t{%~next, %~end}, %~word;")
      .line("bra \t~TAKE;");
}

// Rare or last: behind the body and the head.
void LoopHead::write_leave() {
  if (!options_.resumable) {
    out_.label("~ZERO");
    write_start("~STARTED");
    out_.line("bra \t~BEGIN;");
  }
  // Not wanted on this SM (abi/preempt.h, `place`).
  out_.label("~AWAY")
      .line("ld.param.u32 \t%~r2, " + PARAM(place) + ";")
      .line("setp.eq.u32 \t%~p, %~r2, 0;")
      .line("@%~p bra \t~NONE;")
      .line("cvt.u64.u32 \t%~exited, %~r2;");
  grid_address("%~record");
  out_.label("~AWAIT")
      .line("mov.u64 \t%~a, %globaltimer;")
      .line("{LD_GPU}.global.u64 \t%~word, " + CONTROL("record", placing_ns) + ";")
      .line("setp.eq.u64 \t%~p, %~word, 0;")
      .line("and.pred \t%~q, %~p, %~lead;")
      .line("@%~q atom.global.cas.b64 \t%~word, " + CONTROL("record", placing_ns) +
            ", %~word, %~a;")
      .line("selp.b64 \t%~word, %~a, %~word, %~p;")
      .line("sub.s64 \t%~a, %~a, %~word;");
  share_wide("%~a");
  out_.line("{LD_GPU}.global.u64 \t%~word, " + CONTROL("record", placed) + ";");
  share_wide("%~word");
  out_.line("setp.ge.s64 \t%~q, %~a, " + number(SLUICE_PLACE_NS) + ";")
      .line("setp.ge.or.u64 \t%~p, %~word, %~exited, %~q;")
      .line("@!%~p bra \t~AWAIT;");
  // Nothing is left to do here: the others learn it from a batch of no tasks.
  out_.label("~NONE")
      .line("mov.u32 \t%~r0, 0;")
      .line("and.b32 \t%~r1, %~rem, 1;")
      .line("shl.b32 \t%~r1, %~r1, 4;")
      .line("add.u32 \t%~r1, %~r1, %~base;")
      .line("st.shared.v4.u32 \t[%~r1], {%~r0, %~r0, %~r0, %~r0};");
  if (options_.resumable) {
    out_.line("mov.u32 \t%~r7, 0;");
    write_account("~WAIT");
    out_.label("~ZERO");
    write_start("~STARTED");
    out_.line("bra \t~BEGIN;");
  } else {
    barrier();
    write_account({});
  }
  write_seen(chunked() ? "~PUSH" : "~NONE");
  if (chunked()) {
    write_push();
    write_scan();
  }
  write_setup();
}

// A block leaves, having run %~r7 tasks. `labels`: what the names of its labels begin with. `end`:
// where to go on; empty: the thread returns. %~base and
// %~control hold.
void LoopHead::write_account(std::string_view end, const std::string& labels) {
  const std::string exit = labels + "EXIT";
  const std::string over = end.empty() ? "ret;" : "bra \t" + std::string(end) + ";";
  out_.line("ld.shared.u32 \t%~r0, " + shared(kPlace) + ";")
      .line("and.b32 \t%~r1, %~r0, " + number(kEvicted - 1) + ";")
      .line("setp.eq.u32 \t%~p, %~r1, 0;")
      .line("@%~p bra \t" + exit + ";")
      .line("ld.param.u64 \t%~a, " + PARAM(left) + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("sub.u32 \t%~r1, %~r1, 1;")
      .line("and.b32 \t%~r1, %~r1, " + number(SLUICE_LEFT_SMS - 1) + ";")
      .line("mul.wide.u32 \t%~word, %~r1, 4;")
      .line("add.s64 \t%~a, %~a, %~word;")
      .line("@%~lead atom.global.add.u32 \t%~r1, [%~a], 4294967295;");
  share("%~r1");
  out_.line("setp.eq.u32 \t%~p, %~r1, 1;")
      .line("setp.ge.and.u32 \t%~p, %~r0, " + number(kEvicted) + ", %~p;")
      .line("@!%~p bra \t" + exit + ";")
      // FLEP: the last one out of an SM says so at once; another kernel may start there.
      .line("@%~lead atom.global.add.u32 \t%~r0, " + CONTROL("control", sms_left) + ", 1;")
      .line("ld.param.u64 \t%~record, " + PARAM(record) + ";")
      .line("setp.eq.u64 \t%~p, %~record, 0;")
      .line("@%~p bra \t" + exit + ";")
      .line("cvta.to.global.u64 \t%~record, %~record;")
      .line("add.u32 \t%~r0, %~r0, 1;")
      .line("@%~lead {ST_SYS}.global.u32 \t" + RECORD("record", sms_left) + ", %~r0;");
  out_.label(exit);
  write_exit(over, labels + "LAST");
}

// Counts the block out; the last one of the physical launch writes the record. `over` ends the
// thread's way, also under a guard.
void LoopHead::write_exit(const std::string& over, const std::string& label) {
  count_out(over, label);
  reset_counts();
  write_record(over, label);
}

// `%~p` on the way out: whether others of this physical launch are still here.
void LoopHead::count_out(const std::string& over, const std::string& label) {
  // {finished, exited} of the first grid in one addition. No fence: who reads what the tasks wrote
  // comes after the end of the grid.
  static_assert(offsetof(sluice_launch_control, exited) ==
                offsetof(sluice_launch_control, finished) + 4);
  static_assert(offsetof(sluice_launch_control, finished) % 8 == 0);
  out_.line("ld.param.u32 \t%~r4, " + PARAM(tasks) + ";")
      .line("mov.u32 \t%~r5, %nctaid.x;")
      .line("ld.param.u16 \t%~h, " + PARAM(grid) + ";")
      .line("setp.ne.u16 \t%~p, %~h, 0;")
      .line("@%~p bra \t" + label + "_SECOND;")
      .line("mov.u32 \t%~r1, 1;")
      .line("mov.b64 \t%~word, {%~r7, %~r1};")
      .line("@%~lead atom.global.add.u64 \t%~word, " + CONTROL("control", finished) + ", %~word;")
      .line("mov.b64 \t{%~r0, %~r1}, %~word;")
      .line("bra \t" + label + "_COUNTED;");
  out_.label(label + "_SECOND")
      .line("@%~lead atom.global.add.u32 \t%~r0, " + CONTROL("control", finished) + ", %~r7;")
      .line("@%~lead atom.global.add.u32 \t%~r1, " + CONTROL("control", exited[1]) + ", 1;");
  out_.label(label + "_COUNTED");
  share("%~r0");
  share("%~r1");
  out_.line("add.u32 \t%~r0, %~r0, %~r7;")
      .line("setp.ne.u32 \t%~p, %~r0, %~r4;")
      .line("setp.eq.or.u32 \t%~p, %~r7, 0, %~p;")
      .line("mov.u32 \t%~r2, 1;")
      .line("not.pred \t%~q, %~p;")
      .line("and.pred \t%~q, %~q, %~lead;")
      .line("@%~q {ST_GPU}.global.u32 \t" + CONTROL("control", done) + ", %~r2;")
      .line("add.u32 \t%~r1, %~r1, 1;")
      .line("setp.ne.u32 \t%~p, %~r1, %~r5;")
      .line("@%~p " + over);
}

// The last block: a relaunch finds the counts clean.
void LoopHead::reset_counts() {
  out_.line("setp.ne.u16 \t%~p, %~h, 0;")
      .line("mov.u32 \t%~r1, 0;")
      .line("sub.u32 \t%~r5, %~r1, %~r5;")
      .line("and.pred \t%~q, %~p, %~lead;")
      .line("@%~q red.global.add.u32 \t" + CONTROL("control", exited[1]) + ", %~r5;")
      .line("not.pred \t%~q, %~p;")
      .line("and.pred \t%~q, %~q, %~lead;")
      .line("@%~q red.global.add.u32 \t" + CONTROL("control", exited[0]) + ", %~r5;")
      .line("mul.wide.u16 \t%~r1, %~h, 8;")
      .line("cvt.u64.u32 \t%~word, %~r1;")
      .line("add.s64 \t%~a, %~control, %~word;")
      .line("mov.u64 \t%~word, 0;")
      .line("@%~lead st.global.u64 \t" + CONTROL("a", placed) + ", %~word;")
      .line("@%~lead st.global.u64 \t" + CONTROL("a", placing_ns) + ", %~word;")
      .line("@%~lead red.global.add.u32 \t" + CONTROL("control", physical) + ", 1;");
}

// The last block: whoever asks finds the record.
void LoopHead::write_record(const std::string& over, const std::string& label) {
  out_.line("ld.param.u64 \t%~record, " + PARAM(record) + ";")
      .line("setp.eq.u64 \t%~p, %~record, 0;")
      .line("@%~p " + over)
      .line("cvta.to.global.u64 \t%~record, %~record;")
      .line("mov.u64 \t%~word, %globaltimer;")
      .line("@%~lead {ST_SYS}.global.u64 \t" + RECORD("record", left_ns) + ", %~word;")
      .line("mov.u32 \t%~r1, %~r4;")
      .line("mov.u32 \t%~r2, " + number(SLUICE_LAUNCH_DONE) + ";")
      .line("setp.eq.u32 \t%~p, %~r0, %~r4;")
      .line("@%~p bra \t" + label + "_WHOLE;")
      .line("mov.u32 \t%~r2, " + number(SLUICE_LAUNCH_TOEVICT) + ";")
      .line("{LD_GPU}.global.u32 \t%~r1, " + CONTROL("control", next_ticket) + ";")
      .line("ld.param.u32 \t%~r3, " + PARAM(first_tickets) + ";")
      .line("add.u32 \t%~r1, %~r1, %~r3;")
      .line("min.u32 \t%~r1, %~r1, %~r4;");
  out_.label(label + "_WHOLE")
      .line("@%~lead {ST_SYS}.global.u32 \t" + RECORD("record", tasks_fetched) + ", %~r1;")
      // State, generation, total and done in one store, last.
      .line("ld.param.u32 \t%~r3, " + PARAM(generation) + ";")
      .line("@%~lead {ST_SYS}.global.v4.u32 \t[%~record], {%~r2, %~r3, %~r4, %~r0};")
      .line(over);
  static_assert(offsetof(sluice_launch_record, state) == 0);
  static_assert(offsetof(sluice_launch_record, generation) == 4);
  static_assert(offsetof(sluice_launch_record, tasks_total) == 8);
  static_assert(offsetof(sluice_launch_record, tasks_done) == 12);
}

void LoopHead::write_proxy() {
  out_.label("~PROXY");
  find_leader(0);
  out_.line("@!%~p ret;");
  load_control();
  test_predecessor("~PROXY_OUT");
  out_.line("ld.param.u64 \t%~a, " + PARAM(signal) + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("ld.param.u32 \t%~r4, " + PARAM(tasks) + ";")
      .line("mov.u64 \t%~record, 0;")  // the word that was copied last
      .line("mov.u32 \t%~r5, %nctaid.x;")
      .line("sub.u32 \t%~r5, %~r5, 1;")
      .line("mov.u32 \t%~r8, 0;")
      .line("ld.param.u16 \t%~h, " + PARAM(grid) + ";")
      .line("mul.wide.u16 \t%~r0, %~h, 4;")
      .line("cvt.u64.u32 \t%~exited, %~r0;")
      .line("add.s64 \t%~exited, %~exited, %~control;")
      .line("ld.param.u32 \t%~next, " + PARAM(first_tickets) + ";");
  write_poll();
  report_progress();
  out_.label("~QUIET")
      .line("setp.ge.u32 \t%~p, %~r6, %~r4;")
      .line("setp.eq.and.u32 \t%~p, %~r7, 0, %~p;")
      .line("@%~p bra \t~PROXY_OUT;")
      // All workers have left, each from its own SM.
      .line("setp.lt.u32 \t%~p, %~r3, %~r5;")
      .line("@%~p bra \t~POLL;");
  out_.label("~PROXY_OUT").line("mov.u32 \t%~r7, 0;");
  write_exit("ret;", "~PROXY_LAST");
}

// Reads the evict word and the counts, and copies a word that is new.
void LoopHead::write_poll() {
  out_.label("~POLL")
      .line("{LD_SYS}.global.u64 \t%~word, [%~a];")
      .line("{LD_GPU}.global.u32 \t%~r6, " + CONTROL("control", next_ticket) + ";")
      .line("{LD_GPU}.global.u32 \t%~r7, " + CONTROL("control", left_count) + ";")
      .line("{LD_GPU}.global.u32 \t%~r3, " + CONTROL("exited", exited) + ";")
      .line("add.u32 \t%~r6, %~r6, %~next;");
  share_wide("%~word");
  for (const char* reg : {"%~r3", "%~r6", "%~r7"}) share(reg);
  out_.line("setp.eq.u64 \t%~p, %~word, %~record;")
      .line("@%~p bra \t~SAME;")
      .line("mov.u64 \t%~record, %~word;")
      .line("@%~lead {ST_GPU}.global.u64 \t" + CONTROL("control", evict) + ", %~word;");
  out_.label("~SAME")
      .line("mov.b64 \t{%~r0, %~r1}, %~word;")
      .line("ld.param.u32 \t%~r2, " + PARAM(generation) + ";")
      .line("setp.lt.u32 \t%~p, %~r0, %~r2;")
      .line("@%~p bra \t~MORE;")
      // Evicted from all SMs: nobody is left to copy for.
      .line("and.b32 \t%~r2, %~r1, 65535;")
      .line("shr.u32 \t%~r1, %~r1, 16;")
      .line("mov.u32 \t%~r0, %nsmid;")
      .line("setp.eq.u32 \t%~p, %~r2, 0;")
      .line("setp.ge.and.u32 \t%~p, %~r1, %~r0, %~p;")
      .line("@%~p bra \t~PROXY_OUT;");
}

// Now and then: how many tasks have been fetched.
void LoopHead::report_progress() {
  out_.label("~MORE")
      .line("add.u32 \t%~r8, %~r8, 1;")
      .line("and.b32 \t%~r0, %~r8, " + number(kReportInterval - 1) + ";")
      .line("setp.ne.u32 \t%~p, %~r0, 0;")
      .line("@%~p bra \t~QUIET;")
      .line("ld.param.u64 \t%~word, " + PARAM(record) + ";")
      .line("setp.eq.u64 \t%~p, %~word, 0;")
      .line("@%~p bra \t~QUIET;")
      .line("cvta.to.global.u64 \t%~word, %~word;")
      .line("min.u32 \t%~r0, %~r6, %~r4;")
      .line("@%~lead {ST_SYS}.global.u32 \t" + RECORD("word", tasks_fetched) + ", %~r0;");
}

}  // namespace sluice::passes
