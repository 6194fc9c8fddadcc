// The persistent loop's own code; see loop_head.h. Field offsets and meanings: abi/preempt.h.
// Sources: EffiSha (PPoPP'17) section 4, FLEP (ASPLOS'17) section 4; rules:
// kernels/passes/README.md.
#include "kernels/passes/loop_head.h"

#include <cstddef>
#include <cstdint>

#include "kernels/passes/loop_fields.h"

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
  // R33: static memory would move the base of dynamic memory, whose alignment kernels rely on.
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

// %~p: the launch has this flag.
void LoopHead::test_flag(unsigned flag) {
  out_.line("ld.param.u16 \t%~h, " + PARAM(flags) + ";")
      .line("and.b16 \t%~h, %~h, " + number(flag) + ";")
      .line("setp.ne.u16 \t%~p, %~h, 0;");
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

// %~p: this thread is in its block's first warp; %~lead: it is its lane 0.
//
// The whole warp goes the leader's way, and only what must be done once is done by lane 0 alone, under
// a guard: a branch that lane 0 takes alone leaves the warp in two parts, and nothing makes them meet
// again before a barrier. With such a branch blocks hung on an H200 where the barrier was aligned, and
// where it was not, some results were wrong and kernels ran up to 2.4 times as long; without it neither
// was seen again. The mechanism is not understood (docs/benchmarks.md).
void LoopHead::find_leader() {
  out_.line("mov.u32 \t%~r0, %tid.z;")
      .line("mov.u32 \t%~r1, %ntid.y;")
      .line("mov.u32 \t%~r2, %tid.y;")
      .line("mad.lo.u32 \t%~r0, %~r0, %~r1, %~r2;")
      .line("mov.u32 \t%~r1, %ntid.x;")
      .line("mov.u32 \t%~r2, %tid.x;")
      .line("mad.lo.u32 \t%~r0, %~r0, %~r1, %~r2;")
      .line("setp.eq.u32 \t%~lead, %~r0, 0;")
      .line("setp.lt.u32 \t%~p, %~r0, 32;");
}

// Lane 0's value for the whole warp; lanes that the block does not have are not waited for.
void LoopHead::share(const std::string& reg) {
  if (alone_) return;
  out_.line(options_.has_warp_sync ? "shfl.sync.idx.b32 \t" + reg + ", " + reg + ", 0, 31, -1;"
                                   : "shfl.idx.b32 \t" + reg + ", " + reg + ", 0, 31;");
}
void LoopHead::share_wide(const std::string& reg) {
  out_.line("mov.b64 \t{%~s0, %~s1}, " + reg + ";");
  share("%~s0");
  share("%~s1");
  out_.line("mov.b64 \t" + reg + ", {%~s0, %~s1};");
}

void LoopHead::write_entry() {
  out_.line(".reg .pred \t%~p, %~q, %~lead;")
      .line(".reg .b16 \t%~h;")
      .line(".reg .b32 \t%~x, %~y, %~z, %~g<3>, %~rem, %~base, %~next, %~end, %~s0, %~s1, %~r<9>;")
      .line(".reg .f32 \t%~f0, %~f1;")
      .line(".reg .b64 \t%~control, %~record, %~a, %~word, %~exited;");
  if (!dynamic())
    out_.line(".shared .align 16 .b8 ~slots[" + number(SLUICE_PREEMPT_SHARED_BYTES) + "];");
  out_.line("mov.u32 \t%~rem, 0;");
  test_flag(SLUICE_LAUNCH_PROXY);
  out_.line("mov.u32 \t%~r0, %ctaid.x;")
      .line("setp.eq.and.u32 \t%~p, %~r0, 0, %~p;")
      .line("@%~p bra \t~PROXY;");
  find_leader();
  out_.line("@!%~p bra \t~WAIT;");
  load_base();
  load_control();
  out_.line("mov.u32 \t%~next, 0;")
      .line("mov.u32 \t%~end, 0;")
      .line("ld.param.u16 \t%~h, " + PARAM(chunk) + ";")
      .line("cvt.u32.u16 \t%~r6, %~h;")
      .line("mov.u32 \t%~r7, 0;")
      .line("st.shared.v4.u32 \t" + shared(kRange) + ", {%~next, %~end, %~r6, %~r7};")
      .line("mov.u32 \t%~r1, %clock;")
      .line("st.shared.v4.u32 \t" + shared(kFetched) + ", {%~r1, %~r7, %~r7, %~r7};");
  test_predecessor("~NONE");
  write_claim();
  out_.line("bra \t~DRAW;");
}

// SPATIAL: is this worker wanted on its SM? RESUME: the rest that a worker of its number has left.
void LoopHead::write_claim() {
  test_flag(SLUICE_LAUNCH_SPATIAL);
  out_.line("@!%~p bra \t~PLACED;")
      .line("mov.u32 \t%~r0, %smid;");
  share("%~r0");
  out_.line("ld.param.u16 \t%~h, " + PARAM(sm_lo) + ";")
      .line("cvt.u32.u16 \t%~r1, %~h;")
      .line("setp.lt.u32 \t%~p, %~r0, %~r1;")
      .line("@%~p bra \t~NONE;")
      .line("ld.param.u16 \t%~h, " + PARAM(sm_hi) + ";")
      .line("cvt.u32.u16 \t%~r1, %~h;")
      .line("setp.ge.u32 \t%~p, %~r0, %~r1;")
      .line("@%~p bra \t~NONE;")
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
      .line("@!%~p bra \t~NONE;")
      .line("add.u32 \t%~r0, %~r0, 1;")
      .line("st.shared.u32 \t" + shared(kPlace) + ", %~r0;");
  out_.label("~PLACED");
  if (!chunked()) return;
  // The first tickets are the workers' own numbers: thousands of them would draw at once.
  write_slot_address();
  test_flag(SLUICE_LAUNCH_RESUME);
  out_.line("@%~p bra \t~CLAIM;")
      .line("ld.param.u32 \t%~r1, " + PARAM(first_tickets) + ";")
      .line("setp.ge.u32 \t%~p, %~r0, %~r1;")
      .line("@%~p bra \t~DRAW;")
      .line("mov.u32 \t%~next, %~r0;")
      .line("add.u32 \t%~end, %~next, 1;")
      .line("mov.u32 \t%~r1, 1;")
      .line("st.shared.u32 \t" + shared(kFetched + 4) + ", %~r1;")
      .line("bra \t~DRAW;");
  out_.label("~CLAIM");
  out_.line("mov.u64 \t%~word, 0;")
      .line("@%~lead atom.global.exch.b64 \t%~word, [%~a], %~word;");
  share_wide("%~word");
  out_.line("setp.eq.u64 \t%~p, %~word, 0;")
      .line("@%~p bra \t~DRAW;")
      .line("@%~lead red.global.add.u32 \t" + CONTROL("control", left_count) + ", 4294967295;")
      .line("mov.b64 \t{%~next, %~end}, %~word;");
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

void LoopHead::write_head() {
  if (!options_.once) {
    out_.label("~HEAD").line("xor.b32 \t%~rem, %~rem, 1;");
    find_leader();
    out_.line("@!%~p bra \t~WAIT;");
    load_base();
    load_control();
    out_.line("ld.shared.v4.u32 \t{%~next, %~end, %~r6, %~r7}, " + shared(kRange) + ";");
  }
  if (chunked()) {
    // Within a chunk: the next task's index is known, since the leader has stepped to it.
    out_.line("setp.ge.u32 \t%~p, %~next, %~end;").line("@%~p bra \t~DRAW;");
    if (options_.prefetch) {
      // Looked at when the batch began: no wait here.
      write_short_test();
      out_.line("@!%~p bra \t~FRESH;")
          .line("cp.async.wait_all;")
          .line("bar.warp.sync \t-1;")
          .line("ld.shared.u64 \t%~word, " + shared(kWord) + ";")
          .line("bra \t~KNOWN;");
      out_.label("~FRESH");
    }
    load_evict_word();
    if (options_.prefetch) out_.label("~KNOWN");
    write_evict_test("~PUSH", "~STAY_SAME");
    out_.line("bra \t~BATCH;");
  }
  out_.label("~DRAW");
  load_evict_word();
  if (chunked()) {
    // The ticket is drawn while the evict word is on its way; what comes of both is known together.
    out_.line("setp.lt.u32 \t%~p, %~next, %~end;").line("@%~p bra \t~TEST;");
    write_chunk();
    write_ticket();
    out_.label("~TEST");
    write_evict_test("~PUSH", "~STAY");
    out_.line("setp.ge.u32 \t%~p, %~next, %~end;").line("@%~p bra \t~SCAN;");
  } else {
    write_evict_test("~NONE", "~STAY");  // R18
    if (options_.resumable) write_pop();
    out_.line("mov.u32 \t%~r8, 1;");
    write_ticket();
    out_.line("setp.ge.u32 \t%~p, %~next, %~end;").line("@%~p bra \t~NONE;");
    if (options_.resumable) write_fresh();
  }
  write_take();
  if (options_.once && !options_.resumable) {
    out_.line("mov.u32 \t%~r7, 1;").line("bra \t~BEGUN;");
  } else {
    out_.line("bra \t~WAIT;");
  }
  if (chunked()) {
    write_push();
    out_.line("bra \t~NONE;");
    write_scan();
  }
  out_.label("~NONE")
      .line("mov.u32 \t%~r0, 0;")
      .line("and.b32 \t%~r1, %~rem, 1;")
      .line("shl.b32 \t%~r1, %~r1, 4;")
      .line("add.u32 \t%~r1, %~r1, %~base;")
      .line("st.shared.v4.u32 \t[%~r1], {%~r0, %~r0, %~r0, %~r0};");
  if (options_.once) {
    // The block's task will be run to its end, so it may be counted now: the body returns by
    // itself.
    out_.line("mov.u32 \t%~r7, 0;").label("~BEGUN");
    write_account("~WAIT");
  }
  write_wait();
}

// %~p: the block is so small that nothing hides a look at the evict word, and tasks are so short that
// one more batch may begin before an eviction is seen. Not where checking is fixed.
void LoopHead::write_short_test() {
  out_.line("mov.u32 \t%~r0, %ntid.x;")
      .line("mov.u32 \t%~r1, %ntid.y;")
      .line("mul.lo.u32 \t%~r0, %~r0, %~r1;")
      .line("mov.u32 \t%~r1, %ntid.z;")
      .line("mul.lo.u32 \t%~r0, %~r0, %~r1;")
      .line("ld.param.u16 \t%~h, " + PARAM(flags) + ";")
      .line("and.b16 \t%~h, %~h, " + number(SLUICE_LAUNCH_FIXED) + ";")
      .line("setp.eq.u16 \t%~p, %~h, 0;")
      .line("setp.le.and.u32 \t%~p, %~r0, " + number(kSmallBlock) + ", %~p;")
      .line("setp.ge.and.u32 \t%~p, %~r6, " + number(kShortTasks) + ", %~p;");
}

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

void LoopHead::write_evict_test(std::string_view evicted, std::string_view stay) {
  share_wide("%~word");
  // {generation, sm_lo | sm_hi << 16}: a word of 0 has an empty range of SMs.
  out_.line("mov.b64 \t{%~r0, %~r1}, %~word;")
      .line("ld.param.u32 \t%~r2, " + PARAM(generation) + ";")
      .line("setp.lt.u32 \t%~p, %~r0, %~r2;")
      .line("@%~p bra \t" + std::string(stay) + ";")
      .line("and.b32 \t%~r2, %~r1, 65535;")
      .line("shr.u32 \t%~r1, %~r1, 16;")
      .line("mov.u32 \t%~r0, %smid;");
  share("%~r0");
  out_.line("setp.ge.u32 \t%~p, %~r0, %~r2;")
      .line("setp.lt.and.u32 \t%~p, %~r0, %~r1, %~p;")
      .line("@!%~p bra \t" + std::string(stay) + ";")
      .line("ld.shared.u32 \t%~r0, " + shared(kPlace) + ";")
      .line("or.b32 \t%~r0, %~r0, " + number(kEvicted) + ";")
      .line("st.shared.u32 \t" + shared(kPlace) + ", %~r0;")
      .line("bra \t" + std::string(evicted) + ";");
  out_.label(stay);
}

// %~r6: tickets that take the target time, as far as the newest chunk tells; %~r8: tickets to draw.
void LoopHead::write_chunk() {
  out_.line("mov.u32 \t%~r8, %~r6;");
  test_flag(SLUICE_LAUNCH_FIXED);
  out_.line("@%~p bra \t~SIZED;")
      .line("ld.shared.v2.u32 \t{%~r0, %~r1}, " + shared(kFetched) + ";")
      .line("mov.u32 \t%~r2, %clock;");
  share("%~r2");
  out_.line("sub.u32 \t%~r0, %~r2, %~r0;")
      .line("setp.eq.u32 \t%~p, %~r1, 0;")
      .line("@%~p bra \t~GUESSED;")
      // target * tickets / clocks, at most 16 times as many as it was.
      .line("ld.param.u32 \t%~r3, " + PARAM(target_clocks) + ";")
      .line("cvt.rn.f32.u32 \t%~f0, %~r3;")
      .line("cvt.rn.f32.u32 \t%~f1, %~r1;")
      .line("mul.f32 \t%~f0, %~f0, %~f1;")
      .line("max.u32 \t%~r0, %~r0, 1;")
      .line("cvt.rn.f32.u32 \t%~f1, %~r0;")
      .line("div.full.f32 \t%~f0, %~f0, %~f1;")
      .line("cvt.rzi.u32.f32 \t%~r0, %~f0;")
      .line("shl.b32 \t%~r6, %~r6, 4;")
      .line("min.u32 \t%~r6, %~r6, %~r0;");
  out_.label("~GUESSED")
      .line("ld.param.u16 \t%~h, " + PARAM(chunk_max) + ";")
      .line("cvt.u32.u16 \t%~r3, %~h;")
      .line("min.u32 \t%~r6, %~r6, %~r3;")
      .line("max.u32 \t%~r6, %~r6, 1;")
      // Towards the end of the grid what is left is shared out.
      .line("ld.param.u32 \t%~r3, " + PARAM(tasks) + ";")
      .line("sub.u32 \t%~r3, %~r3, %~end;")
      .line("ld.param.u8 \t%~h, " + PARAM(tail_shift) + ";")
      .line("cvt.u32.u16 \t%~r4, %~h;")
      .line("shr.u32 \t%~r3, %~r3, %~r4;")
      .line("min.u32 \t%~r8, %~r6, %~r3;")
      .line("max.u32 \t%~r8, %~r8, 1;")
      .line("st.shared.v2.u32 \t" + shared(kFetched) + ", {%~r2, %~r8};");
  out_.label("~SIZED").line("max.u32 \t%~r8, %~r8, 1;");
}

// [%~next, %~end): the next %~r8 tickets; empty when there are none.
void LoopHead::write_ticket() {
  out_.line("@%~lead atom.global.add.u32 \t%~next, " + CONTROL("control", next_ticket) + ", %~r8;");
  share("%~next");
  out_.line("ld.param.u32 \t%~r1, " + PARAM(first_tickets) + ";")
      .line("add.u32 \t%~next, %~next, %~r1;")
      .line("ld.param.u32 \t%~r1, " + PARAM(tasks) + ";")
      .line("add.u32 \t%~end, %~next, %~r8;")
      .line("min.u32 \t%~end, %~end, %~r1;");
}

// quotient = dividend / d, by the round-up method (Granlund and Montgomery 1994, figure 4.1);
// %~r0 is lost. `shifts` holds the four shift counts, `at` the bit of the first one.
void LoopHead::divide(const std::string& quotient, const std::string& dividend,
                      const std::string& magic, int at) {
  const auto shift = [&](int bit) {
    return "bfe.u32 \t%~r0, %~r5, " + std::to_string(bit) + ", 8;";
  };
  out_.line("ld.param.u32 \t%~r0, " + magic + ";")
      .line("mul.hi.u32 \t%~r3, " + dividend + ", %~r0;")
      .line("sub.u32 \t" + quotient + ", " + dividend + ", %~r3;")
      .line(shift(at))
      .line("shr.u32 \t" + quotient + ", " + quotient + ", %~r0;")
      .line("add.u32 \t" + quotient + ", " + quotient + ", %~r3;")
      .line(shift(at + 8))
      .line("shr.u32 \t" + quotient + ", " + quotient + ", %~r0;");
}

// The index of task %~next, then a batch from the front of [%~next, %~end) into the slot.
void LoopHead::write_take() {
  out_.label("~TAKE");
  if (steps(0)) {
    constexpr std::size_t kShifts = offsetof(sluice_preempt_params, shift_x1);
    static_assert(kShifts % 4 == 0);
    out_.line("ld.param.u32 \t%~r5, " + field("launch", kShifts) + ";");
    divide("%~r1", "%~next", PARAM(magic_x), 0);
    subtract_product("%~x", "%~next", "%~r1", PARAM(grid_x));
  }
  if (steps(1)) {
    divide("%~z", "%~r1", PARAM(magic_y), 16);
    subtract_product("%~y", "%~r1", "%~z", PARAM(grid_y));
  }
  out_.line("setp.ne.u32 \t%~p, %~next, 0;")
      .line("@%~p bra \t~BATCH;")
      .line("ld.param.u64 \t%~record, " + PARAM(record) + ";")
      .line("setp.eq.u64 \t%~p, %~record, 0;")
      .line("@%~p bra \t~BATCH;")
      .line("cvta.to.global.u64 \t%~record, %~record;")
      .line("mov.u64 \t%~a, %globaltimer;")
      .line("@%~lead {ST_SYS}.global.u64 \t" + RECORD("record", start_ns) + ", %~a;")
      .line("mov.u32 \t%~r0, " + number(SLUICE_LAUNCH_RUNNING) + ";")
      .line("@%~lead {ST_SYS}.global.u32 \t" + RECORD("record", state) + ", %~r0;");
  out_.label("~BATCH");
  if (chunked()) {
    out_.line("ld.param.u8 \t%~h, " + PARAM(batch_shift) + ";")
        .line("cvt.u32.u16 \t%~r0, %~h;")
        .line("shr.u32 \t%~r8, %~r6, %~r0;")
        .line("add.u32 \t%~r8, %~r8, 1;")
        .line("sub.u32 \t%~r0, %~end, %~next;")
        .line("min.u32 \t%~r8, %~r8, %~r0;");
  } else {
    out_.line("mov.u32 \t%~r8, 1;");
  }
  if (!options_.once) {
    out_.line("add.u32 \t%~next, %~next, %~r8;")
        .line("add.u32 \t%~r7, %~r7, %~r8;")
        .line("st.shared.v4.u32 \t" + shared(kRange) + ", {%~next, %~end, %~r6, %~r7};");
  }
  const auto element = [&](std::size_t d, const char* reg) {
    return std::string(steps(d) ? reg : "%~r8");
  };
  out_.line("and.b32 \t%~r0, %~rem, 1;")
      .line("shl.b32 \t%~r0, %~r0, 4;")
      .line("add.u32 \t%~r0, %~r0, %~base;")
      .line("st.shared.v4.u32 \t[%~r0], {" + element(0, "%~x") + ", " + element(1, "%~y") + ", " +
            element(2, "%~z") + ", %~r8};");
  if (!chunked() || !options_.prefetch) return;
  write_short_test();
  out_.line("@!%~p bra \t~WAIT;");
  evict_address();
  // .cg: from the L2 cache, where the proxy's store is.
  out_.line("add.u32 \t%~r0, %~base, " + number(kWord) + ";")
      .line("@%~lead cp.async.cg.shared.global \t[%~r0], [%~a], 16;");
}

// Evicted: what this worker has in hand goes on the left-over list.
void LoopHead::write_push() {
  out_.label("~PUSH").line("setp.ge.u32 \t%~p, %~next, %~end;").line("@%~p bra \t~NONE;");
  write_slot_address();
  out_.line("mov.b64 \t%~word, {%~next, %~end};")
      .line("@%~lead {ST_GPU}.global.u64 \t[%~a], %~word;")
      .line("@%~lead red.global.add.u32 \t" + CONTROL("control", left_count) + ", 1;");
}

// No ticket is left: takes up what others have left, those of an SM that had to go or workers that
// a smaller relaunch does not have.
void LoopHead::write_scan() {
  out_.label("~SCAN")
      .line("{LD_GPU}.global.u32 \t%~r0, " + CONTROL("control", left_count) + ";");
  share("%~r0");
  out_.line("setp.eq.u32 \t%~p, %~r0, 0;").line("@%~p bra \t~NONE;");
  write_slot_address();
  out_.line("ld.param.u64 \t%~record, " + PARAM(left) + ";")
      .line("cvta.to.global.u64 \t%~record, %~record;")
      .line("add.s64 \t%~record, %~record, " + number(offsetof(sluice_launch_left, slot)) + ";")
      .line("ld.param.u32 \t%~r3, " + PARAM(left_slots) + ";")
      .line("mov.u32 \t%~r4, 0;");
  out_.label("~LOOK")
      .line("setp.ge.u32 \t%~p, %~r4, %~r3;")
      .line("@%~p bra \t~NONE;")
      .line("add.u32 \t%~r4, %~r4, 1;")
      .line("add.u32 \t%~r0, %~r0, 1;")
      .line("setp.ge.u32 \t%~p, %~r0, %~r3;")
      .line("@%~p mov.u32 \t%~r0, 0;")
      .line("mul.wide.u32 \t%~a, %~r0, 8;")
      .line("add.s64 \t%~a, %~a, %~record;")
      .line("{LD_GPU}.global.u64 \t%~word, [%~a];");
  share_wide("%~word");
  out_.line("setp.eq.u64 \t%~p, %~word, 0;")
      .line("@%~p bra \t~LOOK;")
      .line("mov.u64 \t%~word, 0;")
      .line("@%~lead atom.global.exch.b64 \t%~word, [%~a], %~word;");
  share_wide("%~word");
  out_.line("setp.eq.u64 \t%~p, %~word, 0;")
      .line("@%~p bra \t~LOOK;")
      .line("@%~lead red.global.add.u32 \t" + CONTROL("control", left_count) + ", 4294967295;")
      .line("mov.b64 \t{%~next, %~end}, %~word;")
      .line("bra \t~TAKE;");
}

void LoopHead::write_wait() {
  out_.label("~WAIT");
  barrier();
  load_base();
  out_.line("and.b32 \t%~r0, %~rem, 1;")
      .line("shl.b32 \t%~r0, %~r0, 4;")
      .line("add.u32 \t%~r0, %~r0, %~base;")
      .line("ld.shared.v4.u32 \t{%~x, %~y, %~z, %~r0}, [%~r0];")
      .line("setp.eq.u32 \t%~p, %~r0, 0;")
      .line("@%~p bra \t~LEAVE;");
  if (chunked()) {
    out_.line("shl.b32 \t%~r0, %~r0, 1;").line("or.b32 \t%~rem, %~rem, %~r0;");
    out_.label("~BODY");
  }
  for (const std::string& line : options_.before_task) out_.line(line);
}

// rest = dividend - quotient * divisor
void LoopHead::subtract_product(const std::string& rest, const std::string& dividend,
                                const std::string& quotient, const std::string& divisor) {
  out_.line("ld.param.u32 \t%~r0, " + divisor + ";")
      .line("mul.lo.u32 \t%~r0, " + quotient + ", %~r0;")
      .line("sub.u32 \t" + rest + ", " + dividend + ", %~r0;");
}

void LoopHead::write_tail() {
  out_.label("~TAIL");
  for (const std::string& line : options_.clean_up) out_.line(line);
  if (!options_.release.empty()) {
    barrier();
    find_leader();
    for (const std::string& line : options_.release) out_.line(line);
  }
  if (chunked()) {
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
    out_.line("sub.u32 \t%~rem, %~rem, 2;")
        .line("setp.lt.u32 \t%~p, %~rem, 2;")
        .line("@%~p bra \t~HEAD;");
    if (options_.separate) barrier();
    out_.line("bra \t~BODY;");
    return;
  }
  out_.line("bra \t~HEAD;");
}

}  // namespace sluice::passes
