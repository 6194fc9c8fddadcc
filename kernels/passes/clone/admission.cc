// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/clone/admission.h"

#include <cstddef>

#include "kernels/passes/clone/loop_fields.h"

namespace sluice::passes {

namespace {

static_assert(offsetof(sluice_launch_control, admitted_generation) ==
              offsetof(sluice_launch_control, next_ticket) + 4);
static_assert(offsetof(sluice_launch_control, next_ticket) % 8 == 0);

}  // namespace

// %~p: the launch has a proxy; %~next: this block's task. Computed again at CHECK rather than kept.
void Admission::write_number() {
  test_flag(SLUICE_LAUNCH_PROXY);
  out_.line("mov.u32 \t%~next, %ctaid.x;")
      .line("@%~p sub.u32 \t%~next, %~next, 1;")
      .line("ld.param.u32 \t%~r0, " + PARAM(worker_base) + ";")
      .line("add.u32 \t%~next, %~next, %~r0;");
}

// Only what is guarded is the leader's, nothing branches, and no warp waits: what every warp
// executes for nothing costs less than parting them (an H200, docs/notes/2026-11-22-benchmarks.md).
void Admission::write_entry() {
  out_.line(".reg .pred \t%~p, %~q, %~lead;")
      .line(".reg .b16 \t%~h;")
      .line(".reg .b32 \t%~x, %~y, %~z, %~g<3>, %~rem, %~next, %~s0, %~s1, %~r<11>, %~may;")
      .line(".reg .b64 \t%~control, %~record, %~a, %~word, %~seen;");
  write_number();
  out_.line("mov.u32 \t%~r1, %ctaid.x;")
      .line("setp.eq.and.u32 \t%~q, %~r1, 0, %~p;")
      .line("@%~q bra \t~PROXY;")
      .line("not.pred \t%~q, %~p;");
  find_leader(0);
  load_control();
  out_.line("ld.param.u32 \t%~r3, " + PARAM(generation) + ";")
      .line("add.u32 \t%~r2, %~next, 1;")
      .line("mov.b64 \t%~word, {%~r2, %~r3};")
      .line("@%~lead atom.global.max.u64 \t%~word, " + CONTROL("control", next_ticket) +
            ", %~word;")
      // A launch behind one that was evicted must not run.
      .line("mov.u32 \t%~may, 1;")
      .line("ld.param.u64 \t%~a, " + PARAM(pred) + ";")
      .line("setp.ne.and.u64 \t%~p, %~a, 0, %~lead;")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("@%~p {LD_GPU}.global.u32 \t%~may, " + CONTROL("a", done) + ";")
      .line("@%~q bra \t~LOOK;");
  out_.label("~LOOKED");
  if (!steps(0)) return;
  // One row: the number is the index.
  out_.line("mov.u32 \t%~x, %~next;");
  if (steps(1)) out_.line("mov.u32 \t%~y, 0;").line("mov.u32 \t%~z, 0;");
  test_flag(SLUICE_LAUNCH_ONE_ROW);
  out_.line("@%~p bra \t~INDEXED;");
  write_index();
  out_.label("~INDEXED");
}

// The block returns at once if the word was closed, by this launch's generation, before it reached
// it.
void Admission::write_check() {
  write_number();
  out_.line("mov.b64 \t{%~r1, %~r2}, %~word;")
      .line("ld.param.u32 \t%~r3, " + PARAM(generation) + ";")
      .line("setp.eq.u32 \t%~q, %~r2, %~r3;")
      .line("setp.lt.and.s32 \t%~q, %~r1, 0, %~q;")
      .line("and.b32 \t%~r1, %~r1, " + number(SLUICE_ADMISSION_CLOSED - 1) + ";")
      .line("setp.ge.and.u32 \t%~q, %~next, %~r1, %~q;")
      .line("setp.eq.or.u32 \t%~q, %~may, 0, %~q;")
      .line("and.pred \t%~q, %~q, %~lead;")
      .line("bar.red.or.pred \t%~q, " + number(options_.barrier) + ", %~q;")
      .line("@%~q ret;")
      .line("ld.param.u32 \t%~r4, " + PARAM(tasks) + ";")
      .line("sub.u32 \t%~r4, %~r4, 1;")
      .line("setp.eq.u32 \t%~p, %~next, 0;")
      .line("setp.eq.or.u32 \t%~p, %~next, %~r4, %~p;")
      .line("@%~p bra \t~RARE;");
  out_.label("~CHECKED");
}

void Admission::write_rest() {
  out_.line("ret;");
  // Task 0, or the last one, whose number is %~r4, runs.
  out_.label("~RARE");
  load_control();
  out_.line("setp.ne.u32 \t%~p, %~next, 0;").line("@%~p bra \t~STARTED;");
  write_start("~STARTED");
  out_.line("setp.ne.u32 \t%~p, %~next, %~r4;")
      .line("@%~p bra \t~NOT_LAST;")
      .line("mov.u32 \t%~r0, 1;")
      .line("@%~lead {ST_GPU}.global.u32 \t" + CONTROL("control", done) + ", %~r0;")
      .line("add.u32 \t%~r5, %~r4, 1;");
  write_record(SLUICE_LAUNCH_DONE, "%~r5", "~NOT_LAST");
  out_.label("~NOT_LAST");
  converge();
  out_.line("bra \t~CHECKED;");
  // Without a proxy every leader polls the evict word. What this block was answered stands.
  out_.label("~LOOK")
      .line("ld.param.u64 \t%~a, " + PARAM(signal) + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("mov.u64 \t%~seen, 0;")
      .line("@%~lead {LD_SYS}.global.u64 \t%~seen, [%~a];")
      .line("mov.b64 \t{%~r2, %~r3}, %~seen;");
  share("%~r2");
  out_.line("ld.param.u32 \t%~r3, " + PARAM(generation) + ";")
      .line("setp.lt.u32 \t%~p, %~r2, %~r3;")
      .line("@%~p bra \t~LOOKED;")
      .line("mov.u64 \t%~seen, %~word;");
  write_close();
  converge();
  out_.line("mov.u64 \t%~word, %~seen;").line("bra \t~LOOKED;");
  write_proxy();
}

// Closes the admission word of this launch, and if nobody has and tasks are left, says so. Lost:
// %~r0,
// %~r3 to %~r6, %~word, %~record, %~a, %~p. Labels: for one place in a clone and prefix.
void Admission::write_close() {
  const std::string end = "~CLOSED_" + number(out_.text().size());
  out_.line("ld.param.u32 \t%~r3, " + PARAM(generation) + ";")
      .line("ld.param.u32 \t%~r5, " + PARAM(worker_base) + ";")
      .line("mov.b64 \t%~word, {%~r5, %~r3};")
      .line("@%~lead atom.global.max.u64 \t%~word, " + CONTROL("control", next_ticket) +
            ", %~word;")
      .line("mov.u64 \t%~word, " + number(SLUICE_ADMISSION_CLOSED) + ";")
      .line("@%~lead atom.global.or.b64 \t%~word, " + CONTROL("control", next_ticket) + ", %~word;")
      .line("mov.b64 \t{%~r5, %~r0}, %~word;");
  share("%~r5");
  out_.line("ld.param.u32 \t%~r4, " + PARAM(tasks) + ";")
      .line("setp.ge.u32 \t%~p, %~r5, %~r4;")  // also where it was closed: tasks < 2^31
      .line("@%~p bra \t" + end + ";");
  write_record(SLUICE_LAUNCH_TOEVICT, "%~r5", end);
  out_.label(end);
}

// %~r0, %~r3, %~r6, %~record, %~a and %~p are lost.
void Admission::write_record(unsigned state, const std::string& admitted, const std::string& skip) {
  out_.line("ld.param.u64 \t%~record, " + PARAM(record) + ";")
      .line("setp.eq.u64 \t%~p, %~record, 0;")
      .line("@%~p bra \t" + skip + ";")
      .line("cvta.to.global.u64 \t%~record, %~record;")
      .line("mov.u64 \t%~a, %globaltimer;")
      .line("@%~lead {ST_SYS}.global.u64 \t" + RECORD("record", left_ns) + ", %~a;")
      .line("@%~lead {ST_SYS}.global.u32 \t" + RECORD("record", tasks_fetched) + ", " + admitted +
            ";")
      .line("mov.u32 \t%~r0, " + number(state) + ";")
      .line("ld.param.u32 \t%~r3, " + PARAM(generation) + ";")
      .line("ld.param.u32 \t%~r6, " + PARAM(tasks) + ";")
      .line("@%~lead {ST_SYS}.global.v4.u32 \t[%~record], {%~r0, %~r3, %~r6, " + admitted + "};");
}

void Admission::write_proxy() {
  out_.label("~PROXY");
  find_leader(0);
  out_.line("@!%~p ret;");
  load_control();
  test_predecessor("~PROXY_OUT");
  out_.line("ld.param.u64 \t%~seen, " + PARAM(signal) + ";")
      .line("cvta.to.global.u64 \t%~seen, %~seen;")
      .line("ld.param.u32 \t%~r4, " + PARAM(tasks) + ";")
      .line("ld.param.u32 \t%~r3, " + PARAM(generation) + ";")
      .line("ld.param.u64 \t%~record, " + PARAM(record) + ";")
      .line("cvta.to.global.u64 \t%~a, %~record;")
      .line("mov.u32 \t%~r8, 0;");
  out_.label("~POLL")
      .line("{LD_SYS}.global.u64 \t%~word, [%~seen];")
      .line("mov.b64 \t{%~r0, %~r1}, %~word;")
      .line("{LD_GPU}.global.u64 \t%~word, " + CONTROL("control", next_ticket) + ";")
      .line("mov.b64 \t{%~r5, %~r6}, %~word;");
  for (const char* reg : {"%~r0", "%~r5", "%~r6"}) share(reg);
  out_.line("setp.ge.u32 \t%~p, %~r0, %~r3;")
      .line("@%~p bra \t~EVICTED;")
      .line("setp.ne.u32 \t%~p, %~r6, %~r3;")  // nobody of this physical launch yet
      .line("@%~p bra \t~POLL;")
      .line("setp.ge.u32 \t%~p, %~r5, %~r4;")  // everybody
      .line("@%~p bra \t~PROXY_OUT;")
      .line("add.u32 \t%~r8, %~r8, 1;")
      .line("and.b32 \t%~r0, %~r8, " + number(kReportInterval - 1) + ";")
      .line("setp.ne.u32 \t%~p, %~r0, 0;")
      .line("setp.eq.or.u64 \t%~p, %~record, 0, %~p;")
      .line("@%~p bra \t~POLL;")
      .line("@%~lead {ST_SYS}.global.u32 \t" + RECORD("a", tasks_fetched) + ", %~r5;")
      .line("bra \t~POLL;");
  out_.label("~EVICTED");
  write_close();
  out_.label("~PROXY_OUT").line("ret;");
}

}  // namespace sluice::passes
