// The persistent loop's own code; see loop_head.h. Field offsets and meanings: abi/preempt.h.
// Sources: EffiSha (PPoPP'17) section 4, FLEP (ASPLOS'17) section 4; rules:
// kernels/passes/README.md.
#include "kernels/passes/loop_head.h"

#include <cstddef>

#include "abi/preempt.h"
#include "kernels/passes/pass.h"

namespace sluice::passes {

namespace {

std::string field(const char* kind, std::size_t offset) {
  return std::string("[~") + kind + "+" + std::to_string(offset) + "]";
}
#define PARAM(name) field("launch", offsetof(sluice_preempt_params, name))
#define CONTROL(reg, name) \
  std::string("[%~" reg "+") + std::to_string(offsetof(sluice_launch_control, name)) + "]"
#define RECORD(reg, name) \
  std::string("[%~" reg "+") + std::to_string(offsetof(sluice_launch_record, name)) + "]"

}  // namespace

void LoopHead::write_entry() {
  out_.line(".reg .pred \t%~leader, %~p;")
      .line(".reg .b16 \t%~h;")
      .line(".reg .b32 \t%~x, %~y, %~z, %~g<3>, %~slot, %~next, %~end, %~count, %~r<6>;")
      .line(".reg .b64 \t%~control, %~record, %~a, %~word;");
  if (dynamic()) {
    // R33: static memory would move the base of dynamic memory, whose alignment kernels rely on.
    out_.line(".reg .b32 \t%~flip;")
        .line("mov.u32 \t%~slot, " + std::string(options_.dynamic_shared) + ";")
        .line("mov.u32 \t%~r0, %dynamic_smem_size;")
        .line("add.u32 \t%~slot, %~slot, %~r0;")
        .line("sub.u32 \t%~slot, %~slot, " + std::to_string(kSlotBytes) + ";")
        .line("add.u32 \t%~flip, %~slot, 16;")
        .line("xor.b32 \t%~flip, %~flip, %~slot;");
  } else {
    // Aligned to both slots, so that flipping bit 4 leads from one to the other.
    out_.line(".shared .align 32 .b8 ~slots[" + std::to_string(kSlotBytes) + "];")
        .line("mov.u32 \t%~slot, ~slots;");
  }
  out_.line("mov.u32 \t%~r0, %tid.x;")
      .line("mov.u32 \t%~r1, %tid.y;")
      .line("mov.u32 \t%~r2, %tid.z;")
      .line("or.b32 \t%~r0, %~r0, %~r1;")
      .line("or.b32 \t%~r0, %~r0, %~r2;")
      .line("setp.eq.u32 \t%~leader, %~r0, 0;")
      .line("mov.u32 \t%~next, 0;")
      .line("mov.u32 \t%~end, 0;")
      .line("mov.u32 \t%~count, 0;");
  test_flag_proxy();
  out_.line("mov.u32 \t%~r0, %ctaid.x;")
      .line("setp.eq.and.u32 \t%~p, %~r0, 0, %~p;")
      .line("@%~p bra \t~PROXY;")
      .line("@!%~leader bra \t~WAIT;");
  test_predecessor("~NONE");
  out_.line("bra \t~FETCH;");
}

// %~p: the launch has a proxy.
void LoopHead::test_flag_proxy() {
  out_.line("ld.param.u16 \t%~h, " + PARAM(flags) + ";")
      .line("and.b16 \t%~h, %~h, " + std::to_string(SLUICE_LAUNCH_PROXY) + ";")
      .line("setp.ne.u16 \t%~p, %~h, 0;");
}

// To `where` if the launch before this one in the stream was evicted: its successors must not
// run.
void LoopHead::test_predecessor(std::string_view where) {
  const std::string skip = where == "~NONE" ? "~READY" : "~PROXY_READY";
  out_.line("ld.param.u64 \t%~a, " + PARAM(pred) + ";")
      .line("setp.eq.u64 \t%~p, %~a, 0;")
      .line("@%~p bra \t" + skip + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("{LD_GPU}.global.u32 \t%~r0, " + CONTROL("a", done) + ";")
      .line("setp.eq.u32 \t%~p, %~r0, 0;")
      .line("@%~p bra \t" + std::string(where) + ";")
      .label(skip);
}

void LoopHead::load_control() {
  out_.line("ld.param.u64 \t%~control, " + PARAM(control) + ";")
      .line("cvta.to.global.u64 \t%~control, %~control;");
}

// Tasks of the logical launch, below 2^31.
void LoopHead::load_total(const std::string& reg, const std::string& scratch) {
  out_.line("ld.param.u32 \t" + reg + ", " + PARAM(grid_x) + ";")
      .line("ld.param.u32 \t" + scratch + ", " + PARAM(grid_y) + ";")
      .line("mul.lo.u32 \t" + reg + ", " + reg + ", " + scratch + ";")
      .line("ld.param.u32 \t" + scratch + ", " + PARAM(grid_z) + ";")
      .line("mul.lo.u32 \t" + reg + ", " + reg + ", " + scratch + ";");
}

void LoopHead::write_head() {
  out_.label("~HEAD")
      .line("@!%~leader bra \t~WAIT;")
      .line("setp.lt.u32 \t%~p, %~next, %~end;")
      .line("@%~p bra \t~TAKE;");
  write_evict_test();
  write_fetch();
  write_take();
  out_.label("~NONE")
      .line("mov.u32 \t%~r0, 0;")
      .line("st.shared.v4.u32 \t[%~slot], {%~r0, %~r0, %~r0, %~r0};");
  out_.label("~WAIT");
  // Lanes that took different ways to the tail need not have met again: only the form without
  // .aligned is defined for them. It needs ISA 6.0.
  out_.line(options_.loose_lanes ? "barrier.sync \t0;" : "bar.sync \t0;")
      .line("ld.shared.v4.u32 \t{%~x, %~y, %~z, %~r0}, [%~slot];")
      .line(dynamic() ? "xor.b32 \t%~slot, %~slot, %~flip;" : "xor.b32 \t%~slot, %~slot, 16;")
      .line("setp.eq.u32 \t%~p, %~r0, 0;")
      .line("@%~p bra \t~LEAVE;");
}

void LoopHead::write_evict_test() {
  out_.label("~FETCH");
  test_flag_proxy();
  load_control();
  out_.line("add.s64 \t%~a, %~control, " +
            std::to_string(offsetof(sluice_launch_control, evict)) + ";")
      .line("ld.param.u64 \t%~word, " + PARAM(signal) + ";")
      .line("cvta.to.global.u64 \t%~word, %~word;")
      .line("selp.b64 \t%~a, %~a, %~word, %~p;")
      .line("{LD_SYS}.global.u64 \t%~word, [%~a];")
      // {generation, sm_lo | sm_hi << 16}: a word of 0 has an empty range of SMs.
      .line("mov.b64 \t{%~r0, %~r1}, %~word;")
      .line("ld.param.u32 \t%~r2, " + PARAM(generation) + ";")
      .line("setp.lt.u32 \t%~p, %~r0, %~r2;")
      .line("@%~p bra \t~TICKET;")
      .line("and.b32 \t%~r2, %~r1, 65535;")
      .line("shr.u32 \t%~r1, %~r1, 16;")
      .line("mov.u32 \t%~r0, %smid;")
      .line("setp.ge.u32 \t%~p, %~r0, %~r2;")
      .line("setp.lt.and.u32 \t%~p, %~r0, %~r1, %~p;")
      .line("@%~p bra \t~NONE;");
}

void LoopHead::write_fetch() {
  out_.label("~TICKET")
      .line("ld.param.u16 \t%~h, " + PARAM(chunk) + ";")
      .line("cvt.u32.u16 \t%~r0, %~h;")
      .line("max.u32 \t%~r0, %~r0, 1;")
      .line("atom.global.add.u32 \t%~next, " + CONTROL("control", next_ticket) + ", %~r0;");
  load_total("%~r1", "%~r2");
  out_.line("setp.ge.u32 \t%~p, %~next, %~r1;")
      .line("@%~p bra \t~NONE;")
      .line("add.u32 \t%~end, %~next, %~r0;")
      .line("min.u32 \t%~end, %~end, %~r1;")
      // A chunk that was fetched is always finished, so it may be counted here.
      .line("sub.u32 \t%~r0, %~end, %~next;")
      .line("add.u32 \t%~count, %~count, %~r0;")
      .line("setp.ne.u32 \t%~p, %~next, 0;")
      .line("@%~p bra \t~TAKE;")
      .line("ld.param.u64 \t%~record, " + PARAM(record) + ";")
      .line("setp.eq.u64 \t%~p, %~record, 0;")
      .line("@%~p bra \t~TAKE;")
      .line("cvta.to.global.u64 \t%~record, %~record;")
      .line("mov.u64 \t%~word, %globaltimer;")
      .line("{ST_SYS}.global.u64 \t" + RECORD("record", start_ns) + ", %~word;")
      .line("mov.u32 \t%~r0, " + std::to_string(SLUICE_LAUNCH_RUNNING) + ";")
      .line("{ST_SYS}.global.u32 \t" + RECORD("record", state) + ", %~r0;");
}

// quotient = dividend / d, by the round-up method (Granlund and Montgomery 1994, figure 4.1);
// %~r0 is lost. `shifts` holds the four shift counts, `at` the bit of the first one.
void LoopHead::divide(const std::string& quotient, const std::string& dividend, const std::string& magic,
            int at) {
  const auto shift = [&](int bit) {
    return "bfe.u32 \t%~r0, %~r4, " + std::to_string(bit) + ", 8;";
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

void LoopHead::write_take() {
  const auto& reads = options_.reads_ctaid;
  out_.label("~TAKE");
  if (reads[0] || reads[1] || reads[2]) {
    constexpr std::size_t kShifts = offsetof(sluice_preempt_params, shift_x1);
    out_.line("ld.param.u32 \t%~r4, " + field("launch", kShifts) + ";");
    divide("%~r1", "%~next", PARAM(magic_x), 0);
  }
  if (reads[0]) subtract_product("%~x", "%~next", "%~r1", PARAM(grid_x));
  if (reads[1] || reads[2]) {
    divide("%~z", "%~r1", PARAM(magic_y), 16);
    if (reads[1]) subtract_product("%~y", "%~r1", "%~z", PARAM(grid_y));
  }
  out_.line("add.u32 \t%~next, %~next, 1;").line("mov.u32 \t%~r0, 1;");
  const auto element = [&](std::size_t d, const char* reg) {
    return std::string(reads[d] ? reg : "%~r0");
  };
  out_.line("st.shared.v4.u32 \t[%~slot], {" + element(0, "%~x") + ", " + element(1, "%~y") +
            ", " + element(2, "%~z") + ", %~r0};")
      .line("bra \t~WAIT;");
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
  out_.line("bra \t~HEAD;");
}

void LoopHead::write_leave() {
  out_.label("~LEAVE").line("@!%~leader ret;");
  out_.label("~OUT");
  load_control();
  load_total("%~r4", "%~r0");
  out_.line("setp.eq.u32 \t%~p, %~count, 0;")
      .line("@%~p bra \t~GONE;")
      .line("{FENCE_GPU};")
      .line("atom.global.add.u32 \t%~r0, " + CONTROL("control", finished) + ", %~count;")
      .line("add.u32 \t%~r0, %~r0, %~count;")
      .line("setp.ne.u32 \t%~p, %~r0, %~r4;")
      .line("@%~p bra \t~GONE;")
      .line("{FENCE_GPU};")
      .line("mov.u32 \t%~r0, 1;")
      .line("{ST_GPU}.global.u32 \t" + CONTROL("control", done) + ", %~r0;");
  out_.label("~GONE")
      .line("mov.u32 \t%~r0, %nctaid.x;")
      .line("sub.u32 \t%~r0, %~r0, 1;")
      .line("{FENCE_GPU};")
      // Wraps to 0 with the last block, so the next physical launch finds it clean.
      .line("atom.global.inc.u32 \t%~r1, " + CONTROL("control", exited) + ", %~r0;")
      .line("setp.ne.u32 \t%~p, %~r1, %~r0;")
      .line("@%~p ret;")
      .line("{FENCE_GPU};")
      .line("atom.global.add.u32 \t%~r0, " + CONTROL("control", physical) + ", 1;")
      .line("ld.param.u64 \t%~record, " + PARAM(record) + ";")
      .line("setp.eq.u64 \t%~p, %~record, 0;")
      .line("@%~p ret;")
      .line("cvta.to.global.u64 \t%~record, %~record;")
      .line("{LD_GPU}.global.u32 \t%~r0, " + CONTROL("control", finished) + ";")
      .line("{ST_SYS}.global.u32 \t" + RECORD("record", tasks_done) + ", %~r0;")
      .line("ld.param.u32 \t%~r1, " + PARAM(generation) + ";")
      .line("{ST_SYS}.global.u32 \t" + RECORD("record", generation) + ", %~r1;")
      .line("mov.u64 \t%~word, %globaltimer;")
      .line("{ST_SYS}.global.u64 \t" + RECORD("record", left_ns) + ", %~word;")
      .line("setp.eq.u32 \t%~p, %~r0, %~r4;")
      .line("selp.b32 \t%~r0, " + std::to_string(SLUICE_LAUNCH_DONE) + ", " +
            std::to_string(SLUICE_LAUNCH_TOEVICT) + ", %~p;")
      .line("{FENCE_SYS};")  // the state is written last
      .line("{ST_SYS}.global.u32 \t" + RECORD("record", state) + ", %~r0;")
      .line("ret;");
}

void LoopHead::write_proxy() {
  out_.label("~PROXY").line("@!%~leader ret;");
  test_predecessor("~OUT");
  load_control();
  load_total("%~r4", "%~r0");
  out_.line("ld.param.u64 \t%~a, " + PARAM(signal) + ";")
      .line("cvta.to.global.u64 \t%~a, %~a;")
      .line("mov.u64 \t%~record, 0;")  // the word that was copied last
      .line("mov.u32 \t%~r5, %nctaid.x;")
      .line("sub.u32 \t%~r5, %~r5, 1;");
  out_.label("~POLL")
      .line("{LD_SYS}.global.u64 \t%~word, [%~a];")
      .line("setp.eq.u64 \t%~p, %~word, %~record;")
      .line("@%~p bra \t~SAME;")
      .line("mov.u64 \t%~record, %~word;")
      .line("{ST_GPU}.global.u64 \t" + CONTROL("control", evict) + ", %~word;");
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
      .line("@%~p bra \t~OUT;");
  out_.label("~MORE")
      .line("{LD_GPU}.global.u32 \t%~r0, " + CONTROL("control", next_ticket) + ";")
      .line("setp.ge.u32 \t%~p, %~r0, %~r4;")
      .line("@%~p bra \t~OUT;")
      // All workers have left, each from its own SM.
      .line("{LD_GPU}.global.u32 \t%~r0, " + CONTROL("control", exited) + ";")
      .line("setp.ge.u32 \t%~p, %~r0, %~r5;")
      .line("@%~p bra \t~OUT;")
      .line("bra \t~POLL;");
}

#undef PARAM
#undef CONTROL
#undef RECORD

}  // namespace sluice::passes
