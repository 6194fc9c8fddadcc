// SPDX-License-Identifier: Apache-2.0
// Barriers in memory and asynchronous copies: mbarrier in all its forms, cp.async, cp.async.bulk.
#include "tests/conformance/builder.h"
#include "tests/conformance/programs.h"

namespace sluice::conformance {
namespace {

// `words`: 32-bit words of input and output per thread. @ stands for the program's name.
void add(std::vector<Program>& all, const std::string& name, unsigned blocks, unsigned threads,
         unsigned in_words, unsigned out_words, const std::string& body) {
  std::string text =
      "ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; cvta.to.global.u64 %rd1, %rd1; "
      "cvta.to.global.u64 %rd2, %rd2;\nmov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 "
      "%r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;\nmul.wide.u32 %rd3, %r4, " +
      std::to_string(in_words * 4) + "; add.u64 %rd2, %rd2, %rd3; mul.wide.u32 %rd3, %r4, " +
      std::to_string(out_words * 4) + "; add.u64 %rd1, %rd1, %rd3;\n" + body + "ret;\n";
  for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
    // "@%p1" and "@!%p1" are guards.
    if (text[at + 1] == '%' || text[at + 1] == '!') continue;
    text.replace(at, 1, "_" + name);
  }
  add_program(all, name, blocks, threads, in_words, out_words, text);
}

const char kShared[] =
    ".shared .align 8 .b64 bar@; .shared .align 16 .b8 sm@[4096];\nmov.u32 %r5, bar@; mov.u32 %r6, "
    "sm@; shl.b32 %r7, %r1, 2; add.u32 %r7, %r6, %r7; setp.eq.u32 %p1, %r1, 0;\n";

void barriers(std::vector<Program>& all) {
  const std::string shared = kShared;
  add(all, "mbarrier_phases", 2, 128, 1, 1,
      shared +
          "ld.global.b32 %r10, [%rd2];\n@%p1 mbarrier.init.shared.b64 [%r5], 128;\nbar.sync 0; "
          "mov.u32 %r20, 0;\nL: st.shared.b32 [%r7], %r10; mbarrier.arrive.shared.b64 %rd10, "
          "[%r5];\nW: mbarrier.test_wait.shared.b64 %p2, [%r5], %rd10; @!%p2 bra W;\nmad.lo.u32 "
          "%r11, %r1, 3, %r20; and.b32 %r11, %r11, 127; shl.b32 %r11, %r11, 2; add.u32 %r11, %r6, "
          "%r11; ld.shared.b32 %r12, [%r11];\nmbarrier.arrive.release.cta.shared::cta.b64 %rd10, "
          "[%r5];\nW2: mbarrier.try_wait.shared.b64 %p2, [%r5], %rd10; @!%p2 bra W2;\nmad.lo.u32 "
          "%r10, %r10, 1664525, %r12; add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 6; @%p3 bra "
          "L;\nst.global.b32 [%rd1], %r10;\n");
  // 32 threads arrive with 2, 64 with 1; parities by hand; generic addresses.
  add(all, "mbarrier_parity", 2, 96, 1, 1,
      shared +
          "ld.global.b32 %r10, [%rd2]; cvt.u64.u32 %rd11, %r5; cvta.shared.u64 %rd11, "
          "%rd11;\n@%p1 mbarrier.init.b64 [%rd11], 128; fence.mbarrier_init.release.cluster;\n"
          "bar.sync 0; mov.u32 %r20, 0; mov.u32 %r21, 0; setp.lt.u32 %p4, %r1, 32;\nL: "
          "st.shared.b32 [%r7], %r10;\n@%p4 mbarrier.arrive.b64 %rd10, [%rd11], 2;\n@!%p4 "
          "mbarrier.arrive.shared.b64 %rd10, [%r5];\nW: mbarrier.test_wait.parity.shared.b64 %p2, "
          "[%r5], %r21; @!%p2 bra W;\nxor.b32 %r21, %r21, 1; mad.lo.u32 %r11, %r1, 5, %r20; "
          "rem.u32 %r11, %r11, 96; shl.b32 %r11, %r11, 2; add.u32 %r11, %r6, %r11; ld.shared.b32 "
          "%r12, [%r11];\n@%p4 mbarrier.arrive.shared.b64 %rd10, [%r5], 2;\n@!%p4 "
          "mbarrier.arrive.b64 %rd10, [%rd11];\nW2: "
          "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r5], %r21, 100; @!%p2 bra "
          "W2;\nxor.b32 %r21, %r21, 1; mad.lo.u32 %r10, %r10, 22695477, %r12; add.u32 %r20, %r20, "
          "1; setp.lt.u32 %p3, %r20, 5; @%p3 bra L;\nst.global.b32 [%rd1], %r10;\n");
  add(all, "mbarrier_drop", 1, 128, 1, 1,
      shared +
          "ld.global.b32 %r10, [%rd2];\n@%p1 mbarrier.init.shared.b64 [%r5], 128;\nbar.sync 0; "
          "st.shared.b32 [%r7], %r10; setp.ge.u32 %p4, %r1, 64;\n@%p4 "
          "mbarrier.arrive_drop.shared.b64 "
          "%rd10, [%r5];\n@%p4 st.global.b32 [%rd1], %r10;\n@%p4 exit;\nmov.u32 %r20, 0;\nL: "
          "mbarrier.arrive.shared.b64 %rd10, [%r5];\nW: mbarrier.test_wait.shared.b64 %p2, [%r5], "
          "%rd10; @!%p2 bra W;\nxor.b32 %r11, %r1, 64; shr.u32 %r12, %r20, 1; xor.b32 %r11, %r11, "
          "%r12; shl.b32 %r11, %r11, 2; add.u32 %r11, %r6, %r11; ld.shared.b32 %r12, [%r11]; "
          "mad.lo.u32 %r10, %r10, 69069, %r12; add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 4; "
          "@%p3 bra L;\nst.global.b32 [%rd1], %r10;\n");
  // One thread: pending counts and completions, step by step.
  std::string s = shared + "@!%p1 exit;\nmbarrier.init.shared.b64 [%r5], 10;\n";
  unsigned at = 0;
  const auto put = [&s, &at](const std::string& value) {
    s += value + " st.global.b32 [%rd1+" + std::to_string(4 * at++) + "], %r10;\n";
  };
  const std::string pending = "mbarrier.pending_count.b64 %r10, %rd10;";
  const std::string waited = "selp.u32 %r10, 1, 0, %p2;";
  // Waits for the state in %rd10, and for both parities.
  const auto put_waits = [&] {
    for (const char* wait : {".shared.b64 %p2, [%r5], %rd10;", ".parity.shared.b64 %p2, [%r5], 0;",
                             ".parity.shared.b64 %p2, [%r5], 1;"}) {
      s += std::string("mbarrier.test_wait") + wait + "\n";
      put(waited);
    }
  };
  s += "mbarrier.arrive.noComplete.shared.b64 %rd10, [%r5], 3;\n";
  put(pending);
  s += "mbarrier.arrive.shared.b64 %rd10, [%r5];\n";
  put(pending);
  s += "mbarrier.arrive_drop.shared.b64 %rd10, [%r5], 2;\n";
  put(pending);
  s += "mbarrier.arrive_drop.noComplete.shared.b64 %rd10, [%r5], 1;\n";
  put(pending);
  put_waits();
  s += "mbarrier.arrive.shared.b64 %rd11, [%r5], 3;\n";
  put_waits();
  s += "mbarrier.arrive.shared.b64 %rd10, [%r5];\n";
  put(pending);
  s += "mbarrier.arrive.expect_tx.shared.b64 %rd10, [%r5], 48;\n";
  put(pending);
  s += "mbarrier.arrive.shared.b64 %rd10, [%r5], 5;\nmbarrier.test_wait.shared.b64 %p2, [%r5], "
       "%rd10;\n";
  put(waited);
  s += "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r5], 16;\nmbarrier.complete_tx.relaxed.cta."
       "shared.b64 [%r5], 48;\nmbarrier.test_wait.shared.b64 %p2, [%r5], %rd10;\n";
  put(waited);
  s += "mbarrier.complete_tx.relaxed.cta.shared.b64 [%r5], 16;\nmbarrier.test_wait.shared.b64 %p2, "
       "[%r5], %rd10;\n";
  put(waited);
  // Bytes that arrive before they are expected.
  s += "mbarrier.complete_tx.shared::cta.b64 [%r5], 32;\nmbarrier.arrive.shared.b64 %rd10, [%r5], "
       "6;\nmbarrier.arrive.expect_tx.shared.b64 %rd10, [%r5], 32;\nmbarrier.test_wait.shared.b64 "
       "%p2, [%r5], %rd10;\n";
  put(waited);
  s += "mbarrier.arrive.shared.b64 %rd10, [%r5];\n";
  put(pending);
  s += "mbarrier.inval.shared.b64 [%r5];\nmbarrier.init.shared.b64 [%r5], 1048575;\n"
       "mbarrier.arrive.shared.b64 %rd10, [%r5], 1048575;\nmbarrier.test_wait.shared.b64 %p2, "
       "[%r5], %rd10;\n";
  put(waited);
  put(pending);
  add(all, "mbarrier_states", 1, 32, 0, 1, s);
}

void copies(std::vector<Program>& all) {
  const std::string shared = kShared;
  // 16 words per thread; each size with full, short and no source.
  std::string s =
      ".shared .align 16 .b8 sm@[4096];\nmov.u32 %r6, sm@; shl.b32 %r7, %r1, 6; "
      "add.u32 %r7, %r6, %r7;\n";
  for (unsigned k = 0; k < 16; ++k) s += "st.shared.b32 [%r7+" + std::to_string(4 * k) + "], -1;\n";
  s += "and.b32 %r8, %r1, 15; and.b32 %r9, %r1, 7; and.b32 %r10, %r1, 3; setp.gt.u32 %p3, %r9, 3;\n"
       "cp.async.ca.shared.global [%r7], [%rd2], 16;\n"
       "cp.async.cg.shared.global [%r7+16], [%rd2+16], 16, %r8;\ncp.async.commit_group;\n"
       "cp.async.ca.shared.global [%r7+32], [%rd2+32], 8, %r9;\n"
       "cp.async.ca.shared.global [%r7+40], [%rd2+40], 4, %r10;\n"
       "cp.async.ca.shared.global.L2::128B [%r7+44], [%rd2+44], 4;\ncp.async.commit_group;\n"
       "cp.async.ca.shared.global [%r7+48], [%rd2+48], 8, %p3;\n"
       "cp.async.ca.shared::cta.global [%r7+56], [%rd2+56], 8;\ncp.async.commit_group;\n"
       "cp.async.wait_group 1;\nld.shared.v4.b32 {%r11, %r12, %r13, %r14}, [%r7];\n"
       "st.global.v4.b32 [%rd1], {%r11, %r12, %r13, %r14};\n"
       "ld.shared.v4.b32 {%r11, %r12, %r13, %r14}, [%r7+16];\n"
       "st.global.v4.b32 [%rd1+16], {%r11, %r12, %r13, %r14};\n"
       "ld.shared.v4.b32 {%r11, %r12, %r13, %r14}, [%r7+32];\n"
       "st.global.v4.b32 [%rd1+32], {%r11, %r12, %r13, %r14};\ncp.async.wait_all;\n"
       "ld.shared.v4.b32 {%r11, %r12, %r13, %r14}, [%r7+48];\n"
       "st.global.v4.b32 [%rd1+48], {%r11, %r12, %r13, %r14};\n";
  add(all, "cp_async_sizes", 1, 64, 16, 16, s);
  for (const std::string form : {"", ".noinc"}) {
    add(all, "cp_async_mbarrier" + std::string(form.empty() ? "" : "_noinc"), 1, 128, 1, 1,
        shared +
            "@%p1 mbarrier.init.shared.b64 [%r5], 128;\nbar.sync 0;\n"
            "cp.async.ca.shared.global [%r7], [%rd2], 4;\ncp.async.mbarrier.arrive" +
            form + ".shared.b64 [%r5];\n" +
            (form.empty() ? "mbarrier.arrive.shared.b64 %rd10, [%r5];\n" : "") +
            "W: mbarrier.test_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra W;\nsub.u32 %r11, "
            "127, %r1; shl.b32 %r11, %r11, 2; add.u32 %r11, %r6, %r11; ld.shared.b32 %r12, "
            "[%r11]; st.global.b32 [%rd1], %r12;\n");
  }
  // Thread 0 fetches everything in two pieces, the rest wait; then it is written back changed.
  const std::string load =
      "@%p1 mbarrier.init.shared.b64 [%r5], 1;\n@%p1 "
      "fence.mbarrier_init.release.cluster;\nbar.sync "
      "0; @!%p1 bra W;\nmbarrier.arrive.expect_tx.shared.b64 %rd10, [%r5], 512;\nadd.u32 %r8, %r6, "
      "256;\ncp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%rd2], 256, "
      "[%r5];\ncp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], "
      "[%rd2+256], 256, [%r5];\nW: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra "
      "W;\n";
  add(all, "bulk_load", 2, 128, 1, 1,
      shared + load +
          "xor.b32 %r11, %r1, 85; shl.b32 %r11, %r11, 2; add.u32 %r11, %r6, %r11; ld.shared.b32 "
          "%r12, [%r11]; st.global.b32 [%rd1], %r12;\n");
  add(all, "bulk_store", 2, 128, 1, 1,
      shared + load +
          "ld.shared.b32 %r12, [%r7]; mad.lo.u32 %r12, %r12, 3, %r1; st.shared.b32 [%r7], %r12; "
          "fence.proxy.async.shared::cta; bar.sync 0; @!%p1 exit;\n"
          "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r6], 512;\n"
          "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group "
          "0;\n");
  struct Reduction {
    const char *op, *type;
  };
  for (const Reduction& r :
       {Reduction{"add", "u32"}, Reduction{"min", "s32"}, Reduction{"max", "u32"},
        Reduction{"and", "b32"}, Reduction{"or", "b32"}, Reduction{"xor", "b32"},
        Reduction{"inc", "u32"}, Reduction{"dec", "u32"}, Reduction{"add", "u64"},
        Reduction{"min", "s64"}, Reduction{"max", "u64"}}) {
    const std::string type = r.type;
    add(all, std::string("bulk_reduce_") + r.op + "_" + type, 1, 128, 1, 1,
        shared + load +
            "shl.b32 %r12, %r1, 20; st.global.b32 [%rd1], %r12; fence.proxy.async; membar.gl; "
            "bar.sync 0; @!%p1 exit;\ncp.reduce.async.bulk.global.shared::cta.bulk_group." +
            r.op + "." + type +
            " [%rd1], [%r6], 512;\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n");
  }
  add(all, "bulk_reduce_halves", 1, 128, 1, 1,
      shared + load +
          "and.b32 %r12, %r1, 7; or.b32 %r12, %r12, 0x3c003c00; st.global.b32 [%rd1], %r12; "
          "ld.shared.b32 %r13, [%r7]; and.b32 %r13, %r13, 0xbfffbfff; st.shared.b32 [%r7], %r13; "
          "fence.proxy.async; membar.gl; bar.sync 0; @!%p1 "
          "exit;\ncp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%rd1], [%r6], "
          "256;\ncp.reduce.async.bulk.global.shared::cta.bulk_group.max.f16 [%rd1+256], [%r6], "
          "256;\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n");
  add(all, "elect_and_fences", 1, 64, 1, 1,
      "ld.global.b32 %r10, [%rd2]; elect.sync %r11|%p1, -1; fence.proxy.alias; "
      "fence.acq_rel.cluster; fence.sc.gpu; membar.sys;\n@%p1 add.u32 %r10, %r10, 1000; mov.u32 "
      "%r12, 0; and.b32 %r13, %r1, 1; setp.eq.u32 %p2, %r13, 0; @!%p2 bra E;\nelect.sync %r12|%p3, "
      "0x55555555; @%p3 add.u32 %r10, %r10, 7;\nE: shl.b32 %r11, %r11, 8; add.u32 %r10, %r10, "
      "%r11; add.u32 %r10, %r10, %r12; st.global.b32 [%rd1], %r10;\n");
}

}  // namespace

void async_programs(std::vector<Program>& all) {
  barriers(all);
  copies(all);
}

}  // namespace sluice::conformance
