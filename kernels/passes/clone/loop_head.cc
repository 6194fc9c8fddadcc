// SPDX-License-Identifier: Apache-2.0
// How a worker begins, and what the loop's other parts (loop_draw.cc, loop_exit.cc) use; see
// loop_head.h. Field offsets and meanings: abi/preempt.h. Sources: EffiSha (PPoPP'17) section 4,
// FLEP (ASPLOS'17) section 4; rules: kernels/passes/README.md.
#include "kernels/passes/clone/loop_head.h"

#include <cstddef>
#include <cstdint>

#include "kernels/passes/clone/loop_fields.h"

namespace sluice::passes {

// Whether a thread needs its task's index in this dimension to step to the next task.
bool LoopHead::steps(std::size_t dimension) const {
  for (std::size_t d = dimension; d < 3; ++d)
    if (options_.reads_ctaid[d]) return true;
  return false;
}

std::string LoopHead::shared(unsigned offset) const { return "[%~base+" + number(offset) + "]"; }

// Computed where it is needed: a register less across the body.
void LoopHead::load_base() {
  if (!dynamic()) {
    out_.line("mov.u32 \t%~base, ~slots;");
    return;
  }
  // Rule slot-place: static memory would move the base of dynamic memory, whose alignment kernels
  // rely on.
  out_.line("mov.u32 \t%~base, %dynamic_smem_size;")
      .line("mov.u32 \t%~r0, " + std::string(options_.dynamic_shared) + ";")
      .line("add.u32 \t%~base, %~base, %~r0;")
      .line("sub.u32 \t%~base, %~base, " + number(SLUICE_PREEMPT_DYNAMIC_BYTES - 15) + ";")
      .line("and.b32 \t%~base, %~base, -16;");
}

void LoopHead::load_control() {
  out_.line("ld.param.u64 \t%~control, " + PARAM(control) + ";")
      .line("cvta.to.global.u64 \t%~control, %~control;");
}

// `predicate`: the launch has one of these flags. %~h is lost.
void LoopHead::test_flag_into(const std::string& predicate, unsigned flags) {
  out_.line("ld.param.u16 \t%~h, " + PARAM(flags) + ";")
      .line("and.b16 \t%~h, %~h, " + number(flags) + ";")
      .line("setp.ne.u16 \t" + predicate + ", %~h, 0;");
}

// To `where` if the launch before this one in the stream was evicted: its successors must not
// run.
void LoopHead::test_predecessor(std::string_view where) {
  const std::string skip = std::string(where) + "_NOT";
  out_.line("ld.param.u64 \t%~a, " + PARAM(pred) + ";")
      .line("setp.eq.u64 \t%~p, %~a, 0;")
      .line("@%~p bra \t" + skip + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("{LD_GPU}.global.u32 \t%~r0, " + CONTROL("a", done) + ";");
  share("%~r0");
  out_.line("setp.eq.u32 \t%~p, %~r0, 0;")
      .line("@%~p bra \t" + std::string(where) + ";")
      .label(skip);
}

// Lanes that returned early come to the barrier before those that did not.
void LoopHead::barrier() {
  out_.line((options_.loose_lanes ? "barrier.sync \t" : "bar.sync \t") + number(options_.barrier) +
            ";");
}

// %~p: this thread is in its block's first warp; %~lead: it is its lane 0. %~rem begins with
// `begin`, and keeps the first of them from here on: nobody computes it again between two batches.
//
// The whole warp goes the leader's way, and only what must be done once is done by lane 0 alone,
// under a guard: a branch that lane 0 takes alone leaves the warp in two parts, and nothing makes
// them meet again before a barrier. With such a branch blocks hung on an H200 where the barrier was
// aligned, and where it was not, some results were wrong and kernels ran up to 2.4 times as long
// (see converge).
void LoopHead::find_leader(unsigned begin) {
  out_.line("mov.u32 \t%~r0, %tid.z;")
      .line("mov.u32 \t%~r1, %ntid.y;")
      .line("mov.u32 \t%~r2, %tid.y;")
      .line("mad.lo.u32 \t%~r0, %~r0, %~r1, %~r2;")
      .line("mov.u32 \t%~r1, %ntid.x;")
      .line("mov.u32 \t%~r2, %tid.x;")
      .line("mad.lo.u32 \t%~r0, %~r0, %~r1, %~r2;")
      .line("setp.eq.u32 \t%~lead, %~r0, 0;")
      .line("setp.lt.u32 \t%~p, %~r0, 32;")
      .line("selp.u32 \t%~rem, " + number(begin | kLeads) + ", " + number(begin) + ", %~p;");
}

// Lane 0's value for the whole warp; lanes that the block does not have are not waited for.
void LoopHead::share(const std::string& reg) {
  if (alone_) return;
  out_.line(options_.has_warp_sync ? "shfl.sync.idx.b32 \t" + reg + ", " + reg + ", 0, 31, -1;"
                                   : "shfl.idx.b32 \t" + reg + ", " + reg + ", 0, 31;");
}
// Behind what lane 0 has done alone: without this, or a shuffle in its place, lane 0 goes its own
// way through the whole body, which the warp then runs twice. (Seen on an H200: 1.6 times the
// original's time for blocks of one warp, 1.12 for blocks of eight.)
void LoopHead::converge() {
  if (options_.has_warp_sync) out_.line("bar.warp.sync \t-1;");
}
void LoopHead::share_wide(const std::string& reg) {
  out_.line("mov.b64 \t{%~s0, %~s1}, " + reg + ";");
  share("%~s0");
  share("%~s1");
  out_.line("mov.b64 \t" + reg + ", {%~s0, %~s1};");
}

// In front of the body. The common first task, the one of the worker's own number, is run at once:
// all threads compute its index, and the first ticket is drawn meanwhile. What is rarer stands
// behind the body (write_setup), so that a cold instruction cache has little to fetch.
void LoopHead::write_entry() {
  out_.line(".reg .pred \t%~p, %~q, %~lead;")
      .line(".reg .b16 \t%~h;")
      .line(".reg .b32 \t%~x, %~y, %~z, %~g<3>, %~rem, %~base, %~next, %~end, %~s0, %~s1, %~r<11>;")
      .line(".reg .b32 \t%~ticket;")
      .line(".reg .f32 \t%~f0, %~f1;")
      .line(".reg .b64 \t%~control, %~record, %~a, %~word, %~exited;");
  if (!dynamic())
    out_.line(".shared .align 16 .b8 ~slots[" + number(SLUICE_PREEMPT_SHARED_BYTES) + "];");
  test_flag(SLUICE_LAUNCH_PROXY);
  out_.line("mov.u32 \t%~next, %ctaid.x;")
      .line("setp.eq.and.u32 \t%~q, %~next, 0, %~p;")
      .line("@%~q bra \t~PROXY;");
  // What runs before each task, and what every thread sets to 0 where objects are released, relies
  // on a barrier before the first one (barriers.h, clean_up.cc).
  if (!chunked() || !options_.before_task.empty() || !options_.release.empty()) {
    out_.line("bra \t~SETUP;");
    return;
  }
  out_.line("@%~p sub.u32 \t%~next, %~next, 1;")
      .line("ld.param.u32 \t%~r0, " + PARAM(worker_base) + ";")
      .line("add.u32 \t%~next, %~next, %~r0;")
      .line("ld.param.u32 \t%~r0, " + PARAM(first_tickets) + ";")
      .line("setp.ge.u32 \t%~q, %~next, %~r0;");
  test_flag(SLUICE_LAUNCH_RESUME | SLUICE_LAUNCH_SPATIAL | SLUICE_LAUNCH_FIXED);
  out_.line("ld.param.u64 \t%~a, " + PARAM(pred) + ";")
      .line("setp.ne.or.u64 \t%~p, %~a, 0, %~p;")
      .line("or.pred \t%~p, %~p, %~q;")
      .line("@%~p bra \t~SETUP;");
  write_index();
  find_leader(kTaskLeft);
  out_.line("@!%~p bra \t~BODY;");
  load_base();
  out_.line("add.u32 \t%~end, %~next, 1;")
      .line("ld.param.u16 \t%~h, " + PARAM(chunk) + ";")
      .line("cvt.u32.u16 \t%~r6, %~h;")
      .line("mov.u32 \t%~r7, 1;")
      .line("st.shared.v4.u32 \t" + shared(kRange) + ", {%~end, %~end, %~r6, %~r7};")
      .line("mov.u32 \t%~r3, %clock;")
      .line("mov.u32 \t%~r0, 0;")
      .line("st.shared.v4.u32 \t" + shared(kMeasured) + ", {%~r3, %~r0, %~r0, %~r0};")
      .line("setp.ne.u32 \t%~p, %~next, 0;")
      .line("@%~p bra \t~BODY;");
  write_start("~STARTED_FIRST");
  converge();
}

// Task 0 begins: %~record, %~a, %~r0 and %~p are lost.
void LoopHead::write_start(const std::string& skip) {
  out_.line("ld.param.u64 \t%~record, " + PARAM(record) + ";")
      .line("setp.eq.u64 \t%~p, %~record, 0;")
      .line("@%~p bra \t" + skip + ";")
      .line("cvta.to.global.u64 \t%~record, %~record;")
      .line("mov.u64 \t%~a, %globaltimer;")
      .line("@%~lead {ST_SYS}.global.u64 \t" + RECORD("record", start_ns) + ", %~a;")
      .line("mov.u32 \t%~r0, " + number(SLUICE_LAUNCH_RUNNING) + ";")
      .line("@%~lead {ST_SYS}.global.u32 \t" + RECORD("record", state) + ", %~r0;");
  out_.label(skip);
}

void LoopHead::write_body_begin() {
  out_.label("~BODY");
  for (const std::string& line : options_.before_task) out_.line(line);
}

// How a worker begins that cannot run a task at once. The leader goes on at LEAD.
void LoopHead::write_setup() {
  out_.label("~SETUP");
  find_leader(kSecondSlot);
  out_.line("@!%~p bra \t~WAIT;");
  load_base();
  load_control();
  out_.line("mov.u32 \t%~next, 0;")
      .line("mov.u32 \t%~end, 0;")
      .line("ld.param.u16 \t%~h, " + PARAM(chunk) + ";")
      .line("cvt.u32.u16 \t%~r6, %~h;")
      .line("mov.u32 \t%~r7, 0;")
      .line("st.shared.v4.u32 \t" + shared(kRange) + ", {%~next, %~end, %~r6, %~r7};")
      .line("mov.u32 \t%~r3, %clock;")
      .line("st.shared.v4.u32 \t" + shared(kMeasured) + ", {%~r3, %~r7, %~r7, %~r7};");
  test_predecessor("~NONE");
  write_claim();
}

void LoopHead::write_claim() {
  write_place_on_sm();
  if (chunked())
    write_first_tickets();
  else
    out_.line("bra \t~LEAD;");
}

// SPATIAL: is this worker wanted on its SM?
void LoopHead::write_place_on_sm() {
  test_flag(SLUICE_LAUNCH_SPATIAL);
  out_.line("@!%~p bra \t~PLACED;").line("mov.u32 \t%~r0, %smid;");
  share("%~r0");
  out_.line("ld.param.u16 \t%~h, " + PARAM(sm_lo) + ";")
      .line("cvt.u32.u16 \t%~r1, %~h;")
      .line("setp.lt.u32 \t%~p, %~r0, %~r1;")
      .line("@%~p bra \t~AWAY;")
      .line("ld.param.u16 \t%~h, " + PARAM(sm_hi) + ";")
      .line("cvt.u32.u16 \t%~r1, %~h;")
      .line("setp.ge.u32 \t%~p, %~r0, %~r1;")
      .line("@%~p bra \t~AWAY;")
      .line("ld.param.u64 \t%~a, " + PARAM(left) + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("and.b32 \t%~r1, %~r0, " + number(SLUICE_LEFT_SMS - 1) + ";")
      .line("mul.wide.u32 \t%~word, %~r1, 4;")
      .line("add.s64 \t%~a, %~a, %~word;")
      .line("@%~lead atom.global.add.u32 \t%~r1, [%~a], 1;");
  share("%~r1");
  out_.line("ld.param.u16 \t%~h, " + PARAM(sm_quota) + ";")
      .line("cvt.u32.u16 \t%~r2, %~h;")
      .line("sub.u32 \t%~r2, %~r2, 1;")  // 0, no limit, becomes the largest number
      .line("setp.le.u32 \t%~p, %~r1, %~r2;")
      .line("not.pred \t%~q, %~p;")
      .line("and.pred \t%~q, %~q, %~lead;")
      .line("@%~q atom.global.add.u32 \t%~r1, [%~a], 4294967295;")
      .line("@!%~p bra \t~AWAY;")
      .line("add.u32 \t%~r0, %~r0, 1;")
      .line("st.shared.u32 \t" + shared(kPlace) + ", %~r0;");
  grid_address("%~a");
  out_.line("mov.u64 \t%~word, 1;")
      .line("@%~lead red.global.add.u64 \t" + CONTROL("a", placed) + ", %~word;");
  out_.label("~PLACED");
}

// The first tickets are the workers' own numbers: thousands of them would draw at once. RESUME: the
// rest that a worker of its number has left.
void LoopHead::write_first_tickets() {
  write_slot_address();
  test_flag(SLUICE_LAUNCH_RESUME);
  out_.line("@%~p bra \t~CLAIM;")
      .line("ld.param.u32 \t%~r1, " + PARAM(first_tickets) + ";")
      .line("setp.ge.u32 \t%~p, %~r0, %~r1;")
      .line("@%~p bra \t~LEAD;")
      .line("mov.u32 \t%~next, %~r0;")
      .line("add.u32 \t%~end, %~next, 1;")
      .line("bra \t~HOLDS;");
  out_.label("~CLAIM");
  out_.line("mov.u64 \t%~word, 0;").line("@%~lead atom.global.exch.b64 \t%~word, [%~a], %~word;");
  share_wide("%~word");
  out_.line("setp.eq.u64 \t%~p, %~word, 0;")
      .line("@%~p bra \t~LEAD;")
      .line("@%~lead red.global.add.u32 \t" + CONTROL("control", left_count) + ", 4294967295;")
      .line("mov.b64 \t{%~next, %~end}, %~word;");
  out_.label("~HOLDS");
  write_index();
  out_.line("bra \t~LEAD;");
}

// `reg`: the control block, and 8 bytes behind it for a second grid: where fields that each grid
// has are addressed from.
// %~r1 and %~h are lost.
void LoopHead::grid_address(const std::string& reg) {
  out_.line("ld.param.u16 \t%~h, " + PARAM(grid) + ";")
      .line("mul.wide.u16 \t%~r1, %~h, 8;")
      .line("cvt.u64.u32 \t" + reg + ", %~r1;")
      .line("add.s64 \t" + reg + ", " + reg + ", %~control;");
}

// %~r0: this worker's number; %~a: its left-over slot; %~r1 and %~p are lost.
void LoopHead::write_slot_address() {
  test_flag(SLUICE_LAUNCH_PROXY);
  out_.line("mov.u32 \t%~r0, %ctaid.x;")
      .line("@%~p sub.u32 \t%~r0, %~r0, 1;")
      .line("ld.param.u32 \t%~r1, " + PARAM(worker_base) + ";")
      .line("add.u32 \t%~r0, %~r0, %~r1;")
      .line("ld.param.u64 \t%~a, " + PARAM(left) + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("add.s64 \t%~a, %~a, " + number(offsetof(sluice_launch_left, slot)) + ";")
      .line("mul.wide.u32 \t%~word, %~r0, 8;")
      .line("add.s64 \t%~a, %~a, %~word;");
}

// quotient = dividend / d, by the round-up method (Granlund and Montgomery 1994, figure 4.1);
// %~r0 is lost. `shifts` holds the four shift counts, `at` the bit of the first one.
void LoopHead::divide(const std::string& quotient, const std::string& dividend,
                      const std::string& magic, int at) {
  const auto shift = [&](int bit) {
    return "bfe.u32 \t%~r0, %~r10, " + std::to_string(bit) + ", 8;";
  };
  out_.line("ld.param.u32 \t%~r0, " + magic + ";")
      .line("mul.hi.u32 \t%~r9, " + dividend + ", %~r0;")
      .line("sub.u32 \t" + quotient + ", " + dividend + ", %~r9;")
      .line(shift(at))
      .line("shr.u32 \t" + quotient + ", " + quotient + ", %~r0;")
      .line("add.u32 \t" + quotient + ", " + quotient + ", %~r9;")
      .line(shift(at + 8))
      .line("shr.u32 \t" + quotient + ", " + quotient + ", %~r0;");
}

// %~x, %~y, %~z of task %~next, as far as anybody asks; %~r0, %~r1, %~r9 and %~r10 are lost.
void LoopHead::write_index() {
  if (steps(0)) {
    constexpr std::size_t kShifts = offsetof(sluice_preempt_params, shift_x1);
    static_assert(kShifts % 4 == 0);
    out_.line("ld.param.u32 \t%~r10, " + field("launch", kShifts) + ";");
    divide("%~r1", "%~next", PARAM(magic_x), 0);
    subtract_product("%~x", "%~next", "%~r1", PARAM(grid_x));
  }
  if (steps(1)) {
    divide("%~z", "%~r1", PARAM(magic_y), 16);
    subtract_product("%~y", "%~r1", "%~z", PARAM(grid_y));
  }
}

// rest = dividend - quotient * divisor
void LoopHead::subtract_product(const std::string& rest, const std::string& dividend,
                                const std::string& quotient, const std::string& divisor) {
  out_.line("ld.param.u32 \t%~r0, " + divisor + ";")
      .line("mul.lo.u32 \t%~r0, " + quotient + ", %~r0;")
      .line("sub.u32 \t" + rest + ", " + dividend + ", %~r0;");
}

}  // namespace sluice::passes
