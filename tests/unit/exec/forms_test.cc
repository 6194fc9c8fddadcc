// SPDX-License-Identifier: Apache-2.0
// What is not carried out is refused when the module is loaded, by name and line: unknown
// instructions, words, types, operands and directives. And what there is loads.
#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

class ExecForms : public ExecTest {
 protected:
  // The body's line in what kernel() makes.
  static constexpr uint32_t kLine = 20;
  static std::string body(const std::string& statement) {
    return kernel(".reg .b128 %q<4>;\n" + statement);
  }
};

TEST_F(ExecForms, WhatIsNotThereIsRefusedByNameAndLine) {
  const char* const statements[] = {
      // Words that nobody knows, or that stand at the wrong place.
      "add.u32.wrong %r1, %r2, %r3;", "add.sat.u32 %r1, %r2, %r3;", "add.rn.u32 %r1, %r2, %r3;",
      "add.ftz.f64 %fd1, %fd2, %fd3;", "add.b32 %r1, %r2, %r3;", "add.rz.f16 %rs1, %rs2, %rs3;",
      "add.sat.bf16 %rs1, %rs2, %rs3;", "sub.u16x2 %r1, %r2, %r3;", "add %r1, %r2, %r3;",
      "add.u32.u32 %r1, %r2, %r3;", "mul.u32 %r1, %r2, %r3;", "mul.lo.hi.u32 %r1, %r2, %r3;",
      "mul.wide.u64 %rd1, %rd2, %rd3;", "mad.lo.sat.s32 %r1, %r2, %r3, %r4;",
      "mad.wide.cc.u32 %rd1, %r2, %r3, %rd4;", "addc.u16 %rs1, %rs2, %rs3;", "abs.u32 %r1, %r2;",
      "abs.ftz.f64 %fd1, %fd2;", "min.abs.f32 %f1, %f2, %f3;", "min.xorsign.f32 %f1, %f2, %f3;",
      "min.NaN.f64 %fd1, %fd2, %fd3;", "min.f32 %f1, %f2, %f3, %f4;", "min.relu.u32 %r1, %r2, %r3;",
      "fma.f16 %rs1, %rs2, %rs3, %rs4;", "fma.rn.oob.f16 %rs1, %rs2, %rs3, %rs4;",
      "fma.rn.relu.f32 %f1, %f2, %f3, %f4;", "sin.f32 %f1, %f2;", "sin.approx.f64 %fd1, %fd2;",
      "rcp.f32 %f1, %f2;", "rsqrt.rn.f32 %f1, %f2;", "tanh.approx.ftz.f32 %f1, %f2;",
      "div.approx.f64 %fd1, %fd2, %fd3;", "rem.f32 %f1, %f2, %f3;", "setp.lo.s32 %p1, %r1, %r2;",
      "setp.lt.b32 %p1, %r1, %r2;", "setp.equ.u32 %p1, %r1, %r2;",
      "setp.lt.nand.u32 %p1, %r1, %r2, %p2;", "setp.lt.ftz.f64 %p1, %fd1, %fd2;",
      "setp.lt.u8 %p1, %r1, %r2;", "set.lt.f16.f64 %rs1, %fd1, %fd2;",
      "selp.pred %p1, %p2, %p3, %p4;", "slct.f32.u32 %f1, %f2, %f3, %r1;", "and.u32 %r1, %r2, %r3;",
      "shl.u32 %r1, %r2, %r3;", "shf.l.b32 %r1, %r2, %r3, %r4;",
      "shf.l.wrap.b64 %rd1, %rd2, %rd3, %r4;", "lop3.b32 %r1, %r2, %r3, %r4, 256;",
      "lop3.nand.b32 %r1|%p1, %r2, %r3, %r4, 3, %p2;", "lop3.b32 %r1|%p1, %r2, %r3, %r4, 3;",
      "prmt.b32.f5e %r1, %r2, %r3, %r4;", "bfe.b32 %r1, %r2, 0, 1;", "bfi.u32 %r1, %r2, %r3, 0, 1;",
      "popc.u32 %r1, %r2;", "brev.s32 %r1, %r2;", "dp4a.u32 %r1, %r2, %r3, %r4;",
      "dp2a.u32.u32 %r1, %r2, %r3, %r4;", "bmsk.b32 %r1, %r2, %r3;",
      "szext.clamp.b32 %r1, %r2, %r3;", "vadd3.u32 %r1, %r2, %r3;", "vadd.u32.u32 %r1, %r2, %r3;",
      "vadd.u32.u32.u32.add %r1, %r2, %r3;", "vadd.u32.u32.u32.add %r1.b0, %r2, %r3, %r4;",
      "vadd.u32.u32.u32 %r1, %r2.b4, %r3;", "vshl.u32.u32.u32 %r1, %r2, %r3;",
      "vadd2.u32.u32.u32.sat.add %r1, %r2, %r3, %r4;", "vadd2.u32.u32.u32 %r1, %r2.h40, %r3, %r4;",
      "vadd4.u32.u32.u32 %r1.b01, %r2, %r3, %r4;", "vmad.u32.u32.u32.po %r1, -%r2, %r3, %r4;",
      // What an H200 does otherwise than the manual says.
      "vadd.u32.s32.u32.sat %r1, %r2, %r3;", "vabsdiff.u32.s32.u32.sat %r1, %r2, %r3;",
      "vmin.s32.s32.s32.sat %r1.h1, %r2, %r3, %r4;", "vset.s32.s32.lt.max %r1, %r2, %r3, %r4;",
      "vmad.u32.u32.u32.shr7 %r1, %r2, %r3, %r4;", "vmad.s32.u32.s32.sat %r1, %r2, %r3, %r4;",
      // Memory.
      "ld.u32 %r1, %rd0;", "ld.global.f16 %rs1, [%rd0];", "ld.v8.u32 {%r1}, [%rd0];",
      "ld.global.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [%rd0];", "ld.v2.u32 {%r1, %r2, %r3}, [%rd0];",
      "ld.relaxed.global.u32 %r1, [%rd0];", "ld.acquire.u32 %r1, [%rd0];",
      "ld.volatile.gpu.global.u32 %r1, [%rd0];", "ld.global.ca.cg.u32 %r1, [%rd0];",
      "ld.shared.nc.u32 %r1, [%r0];", "ld.global.L3::128B.u32 %r1, [%rd0];",
      "ld.global.L2::cache_hint.u32 %r1, [%rd0];", "ld.global.u32 %r1, [%rd0], %rd1;",
      "st.const.foo.u32 [%rd0], %r1;", "st.release.u32 [%rd0], %r1;", "st.ca.u32 [%rd0], %r1;",
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u16 [%r0], %rs1, [%r2];",
      "st.bulk.weak.shared::cta [%r0], 64, 0;",
      ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.u64 [%r0], "
       "%rd1, [%r2];"),
      "atom.add.s64 %rd1, [%rd0], %rd2;", "atom.add.f16 %rs1, [%rd0], %rs2;",
      "atom.min.f32 %f1, [%rd0], %f2;", "atom.inc.u64 %rd1, [%rd0], %rd2;",
      "atom.cas.b32 %r1, [%rd0], %r2;", "atom.add.v2.f64 {%fd1, %fd2}, [%rd0], {%fd3, %fd4};",
      "atom.shared.add.v2.f32 {%f1, %f2}, [%r0], {%f3, %f4};",
      "atom.local.add.u32 %r1, [%rd0], %r2;", "atom.add.noftz.u32 %r1, [%rd0], %r2;",
      "red.exch.b32 [%rd0], %r1;", "red.cas.b32 [%rd0], %r1, %r2;",
      "red.acquire.gpu.add.u32 [%rd0], %r1;", "multimem.ld_reduce.global.add.u32 %r1, [%rd0];",
      "multimem.red.global.add.u32 [%rd0], %r1;", "fence;", "fence.gl;", "fence.sc;",
      "fence.proxy.tensormap::generic.sc.gpu;", "membar.gpu;", "fence.sc.gpu %r1;",
      "prefetch.shared.L1 [%rd0];", "prefetch.L3 [%rd0];", "prefetchu.L2 [%rd0];",
      "discard.L2 [%rd0];", "cvta.u32 %r1, %r2;", "cvta.texture.u64 %rd1, %rd2;",
      "isspacep.sreg %p1, %rd0;", "mov.u8 %r1, %r2;", "mov.b32 %r1, %rd1;",
      "mov.b64 %rd1, {%r1, %r2, %r3};", "mov.b128 %q1, %rd1;", "mov.u32 %r1, %nosuch;",
      "mov.u32 %r1, nosuch;", "mov.f32 %f1, %pm9;",
      // Operands of another width than the instruction's.
      "add.u32 %r1, %r2, %rd3;", "add.u64 %rd1, %r2, %rd3;", "add.u32 %r1, %rs2, %r3;",
      "add.u16 %rs1, %r2, %rs3;", "add.f64 %fd1, %f2, %fd3;", "ld.u64 %r1, [%rd0];",
      "st.u32 [%rd0], %rs1;", "add.u32 %p1, %r2, %r3;", "selp.u32 %r1, %r2, %r3, %r4;",
      "add.u32 %r1, %r2;", "add.u32 %r1, %r2, %r3, %r4;", "add.u32 %r1, %r2, %p1;",
      "ld.u32 %r1, [%rs1];", "add.u64 %q1, %rd1, %rd2;",
      // Barriers and warps.
      "barrier.cluster.sync;", "barrier.cluster.arrive.acquire;", "barrier.cluster.wait.release;",
      "barrier.cluster.wait 0;", "bar.sync;", "bar.arrive 0;", "bar.sync 0, 32, 1;",
      "bar.red.popc 0, %p1;", "bar.red.xor.pred %p1, 0, %p2;", "bar.warp.arrive 1;",
      "shfl.sync.left.b32 %r1, %r2, 1, 31, -1;", "shfl.sync.up.b64 %rd1, %rd2, 1, 31, -1;",
      "shfl.sync.up.b32 %r1, %r2, 1, 31;", "vote.sync.none.pred %p1, %p2, -1;",
      "match.any.b32 %r1, %r2;", "redux.sync.add.f32 %f1, %f2, -1;",
      "redux.sync.min.NaN.f32 %f1, %f2, -1;", "redux.sync.mul.u32 %r1, %r2, -1;",
      "redux.sync.and.u32 %r1, %r2, -1;", "elect.one %r1|%p1, -1;", "activemask.u32 %r1;",
      "nanosleep.u32;", "nanosleep.s32 5;",
      // Control.
      "bra NOWHERE;", "bra;", "bra.div NOWHERE;", "brx.idx %r1, NOWHERE;", "call nowhere, ();",
      "call %rd1, ();", "call.div nowhere, ();", "ret.sync;", "exit 1;", "trap 1;", "@%r1 exit;",
      "@%nosuch exit;", "alloca.u64 %rd1, %rd2, 3;", "alloca.f64 %rd1, %rd2;",
      "stacksave.u16 %rs1;", "setmaxnreg.inc.sync.aligned.u32 23;",
      "setmaxnreg.set.sync.aligned.u32 24;", "griddepcontrol.stop;",
      "getctarank.global.u32 %r1, %r2;",
      // Other chapters of the manual, and other GPUs.
      "tcgen05.fence::before_thread_sync;", "wgmma.fence.sync;", "tensormap.cp_fenceproxy [%rd0];",
      "clusterlaunchcontrol.try_cancel.async [%r1], [%r2];", "surf.frobnicate;",
      "istypep.texref %p1, %rd0;", "txq.frobnicate.b32 %r1, [%rd0];", "add.f32.f16 %f1, %rs1, %f2;",
      "video.add %r1;", "foo;", "foo.bar %r1;",
      // Directives and declarations.
      ".unknown 1;", ".reg .b256 %z;", ".reg .v2 .pred %z;", ".local .unknown z;", ".reg .f8 %z;"};
  for (const char* statement : statements) {
    SCOPED_TRACE(statement);
    program_ = nullptr;
    error_.clear();
    EXPECT_FALSE(load(body(statement)));
    EXPECT_EQ(error_.substr(0, 5), "line ") << error_;
    const std::string text(statement);
    if (text[0] == '.') continue;
    const uint32_t line = static_cast<uint32_t>(std::strtoul(error_.c_str() + 5, nullptr, 10));
    EXPECT_EQ(line, kLine) << error_;
    EXPECT_GT(error_.size(), std::string("line 20: ").size()) << error_;
  }
}

TEST_F(ExecForms, DirectivesThatChangeTheMeaningAreRefused) {
  const char* const modules[] = {".alias f, g;",
                                 ".unknown;",
                                 ".weak .alias f, g;",
                                 ".global .surfref s;",
                                 ".visible .entry e() .frobnicate 2 { ret; }",
                                 ".func f() { ret; } .func f() { ret; }",
                                 ".entry e() { ret; } .entry e() { ret; }",
                                 ".global .u64 p = f; .extern .func f();",
                                 ".global .u64 p = nothing;",
                                 ".global .u32 p = q; .global .u32 q;",
                                 ".global .u8 p = 0xff01(q); .global .u32 q;",
                                 ".global .u32 a[2] = {1, 2, 3, 4};"};
  for (const char* module : modules) {
    SCOPED_TRACE(module);
    EXPECT_FALSE(
        load(std::string(".version 9.0\n.target sm_90\n.address_size 64\n") + module + "\n"));
    EXPECT_NE(error_.find("line "), std::string::npos) << error_;
  }
  EXPECT_FALSE(load(".version 9.0\n.target sm_90, map_f64_to_f32\n.address_size 64\n"));
}

// A grid that counts clusters has to know how large they and their blocks are.
TEST_F(ExecForms, BlocksAreClustersOnlyWhereBothSizesAreGiven) {
  const auto entry = [](const char* header) {
    return std::string(".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry e() ") +
           header + " { ret; }\n";
  };
  ASSERT_TRUE(load(entry(".reqntid 32, 1, 1 .reqnctapercluster 2, 1, 1 .blocksareclusters")))
      << error_;
  EXPECT_TRUE(program_->find_entry("e")->blocks_are_clusters);
  EXPECT_EQ(program_->find_entry("e")->refused, "");
  for (const char* header : {".blocksareclusters", ".reqntid 32, 1, 1 .blocksareclusters",
                             ".maxntid 32, 1, 1 .reqnctapercluster 2, 1, 1 .blocksareclusters"}) {
    EXPECT_FALSE(load(entry(header))) << header;
    EXPECT_NE(error_.find(".blocksareclusters needs .reqntid"), std::string::npos) << error_;
  }
}

// An instruction that is not there costs the kernels that reach it, if the owner of the module
// wishes so; what is no PTX costs the module.
TEST_F(ExecForms, AnAbsentInstructionCostsOnlyTheKernelsThatReachIt) {
  const std::string head = ".version 9.0\n.target sm_90\n.address_size 64\n";
  const std::string functions =
      ".func absent() { .reg .b32 %r<3>; .reg .b64 %rd; tcgen05.fence::before_thread_sync; ret; }\n"
      ".func calls_it() { call.uni absent; ret; }\n"
      ".func good(.reg .u64 %p) { st.global.u32 [%p], 7; ret; }\n"
      ".global .u64 table[2] = {calls_it, good};\n";
  const std::string headers =
      ".func odd_header() .newdirective { ret; }\n"
      ".func odd_text(.param .b32 p q) { ret; }\n";
  const std::string entries =
      ".visible .entry itself() { .global .u32 own; tcgen05.fence::before_thread_sync; ret; }\n"
      ".visible .entry cube() { .reg .f32 %f<8>; .reg .u64 %rd;\n"
      "  tex.grad.cube.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd, {%f4, %f5, %f6, %f7}],\n"
      "    {%f0, %f0, %f0, %f0}, {%f0, %f0, %f0, %f0}; ret; }\n"
      ".visible .entry vector() { .reg .v4 .b128 %v; mov.v4.b128 %v, %v; ret; }\n"
      ".visible .entry video() { .reg .u32 %u; vadd.u32.u32.s32.sat %u, %u, %u; ret; }\n"
      ".visible .entry tensor() { .reg .u64 %u; .reg .u32 %r; "
      "cp.async.bulk.tensor.1d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%u], "
      "[%u, {%r}], [%u]; ret; }\n"
      ".visible .entry modifier() { .reg .f32 %f; add.rn.frob.f32 %f, %f, %f; ret; }\n"
      ".visible .entry operands() { .reg .u32 %r; add.u32 %r, {%r}, %r; ret; }\n"
      ".visible .entry type(.param .u64 p) { .reg .f7 %f; ret; }\n"
      ".visible .entry directive() { .newdirective 7; ret; }\n"
      ".extern .func (.param .b32 r) cudaGraphLaunch(.param .b64 a, .param .b64 b);\n"
      ".visible .entry runtime() { .param .b64 a; .param .b32 r;\n"
      "  call.uni (r), cudaGraphLaunch, (a, a); ret; }\n"
      ".visible .entry callers_caller() { call.uni calls_it; ret; }\n"
      ".visible .entry pointer() { .reg .u64 %rd<2>; ld.global.u64 %rd0, [table];\n"
      "  call %rd0, p; ret; p: .callprototype _ (); }\n"
      ".visible .entry other() { .global .u32 own; .reg .u64 %rd; mov.u64 %rd, own;\n"
      "  call.uni good, (%rd); ret; }\n";
  EXPECT_FALSE(load(head + functions + entries));
  EXPECT_NE(error_.find("tcgen05.fence::before_thread_sync is not supported"), std::string::npos)
      << error_;

  const std::string more =
      ".visible .entry variable() { .local .f7 x; ret; }\n"
      ".visible .entry calls_header() { call.uni odd_header; ret; }\n"
      ".visible .entry calls_text() { .param .b32 a; call.uni odd_text, (a); ret; }\n";
  EXPECT_FALSE(load(head + headers + more));

  DecodeOptions options;
  options.refuse_kernels_alone = true;
  ASSERT_TRUE(load(head + functions + headers + entries + more, options)) << error_;
  for (const char* name :
       {"itself", "callers_caller", "cube", "vector", "video", "tensor", "modifier", "operands",
        "type", "variable", "directive", "calls_header", "calls_text", "runtime"}) {
    SCOPED_TRACE(name);
    EXPECT_NE(program_->find_entry(name)->refused, "");
    EXPECT_FALSE(Block::make(image_, name, {{1, 1, 1}, {1, 1, 1}, 0}, {}, map_, environment_));
  }
  for (const char* name : {"pointer", "other"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(program_->find_entry(name)->refused, "");
  }
  EXPECT_EQ(launch_raw({1}, {1}, {}, 0, "other"), RunState::kDone);
  EXPECT_EQ(launch_raw({1}, {1}, {}, 0, "pointer"), RunState::kFault);

  EXPECT_FALSE(load(head + ".entry e() { frobnicate.u32; ret; }", options));
  EXPECT_FALSE(load(head + ".entry e() { bra nowhere; }", options));
  EXPECT_FALSE(load(head + ".entry e() { .reg .u32 %r; add.u32 %r, %s, %r; ret; }", options));
  EXPECT_FALSE(load(head + ".extern .func f();\n.entry e() { call.uni f; ret; }", options));
}

TEST_F(ExecForms, WhatIsThereLoads) {
  const char* const statements[] = {
      "add.u16x2 %r1, %r2, %r3;",
      "add.rn.ftz.sat.f16x2 %r1, %r2, %r3;",
      "fma.rn.ftz.relu.f16 %rs1, %rs2, %rs3, %rs4;",
      "min.ftz.NaN.xorsign.abs.f16x2 %r1, %r2, %r3;",
      "min.NaN.bf16 %rs1, %rs2, %rs3;",
      "max.relu.s16x2 %r1, %r2, %r3;",
      "max.relu.s32 %r1, %r2, %r3;",
      "add.sat.s32 %r1, %r2, %r3;",
      "add.rn.bf16 %rs1, %rs2, %rs3;",

      "rcp.approx.ftz.f64 %fd1, %fd2;",
      "rsqrt.approx.ftz.f64 %fd1, %fd2;",
      "ex2.approx.ftz.bf16x2 %r1, %r2;",
      "lop3.and.b32 %r1|%p1, %r2, %r3, %r4, 0x80, %p2;",
      "ld.global.L2::cache_hint.u32 %r1, [%rd0], %rd1;",
      "ld.relaxed.gpu.global.L1::no_allocate.v4.f32 {%f1, %f2, %f3, %f4}, [%rd0];",
      "ld.global.nc.L1::evict_last.L2::cache_hint.L2::256B.v2.b64 {%rd1, %rd2}, [%rd0], %rd3;",
      "ld.mmio.relaxed.sys.global.u32 %r1, [%rd0];",
      "ld.volatile.shared::cta.u8 %rs1, [%r0];",
      "ldu.global.v2.f32 {%f1, %f2}, [%rd0];",
      "ld.global.b128 %q1, [%rd0];",
      "st.weak.global.cs.L1::evict_first.b128 [%rd0], %q1;",
      "st.release.sys.global.u32 [%rd0], %r1;",
      "ld.u8 %r1, [%rd0];",
      "ld.s16 %r1, [%rd0];",
      "st.u8 [%rd0], %r1;",
      "mov.b128 %q1, {%rd1, %rd2};",
      "mov.b128 {%rd1, _}, %q1;",
      "mov.b128 %q1, %q2;",
      "atom.acq_rel.gpu.global.exch.b128 %q1, [%rd0], %q2;",
      "atom.relaxed.cta.shared::cta.cas.b128 %q1, [%r0], %q2, %q3;",
      "atom.global.add.L2::cache_hint.u32 %r1, [%rd0], %r2, %rd1;",
      "red.relaxed.gpu.global.add.v4.f32 [%rd0], {%f1, %f2, %f3, %f4};",
      ("atom.global.max.noftz.v8.bf16 {%rs1, %rs2, %rs3, %rs4, %rs5, %rs6, %rs7, %rs8}, [%rd0], "
       "{%rs1, %rs2, %rs3, %rs4, %rs5, %rs6, %rs7, %rs8};"),
      "fence.mbarrier_init.release.cluster;",
      "fence.proxy.async.shared::cta;",
      "fence.acquire.cluster;",
      "fence.acquire.sync_restrict::shared::cluster.cluster;",
      "fence.release.sync_restrict::shared::cta.cluster;",
      "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;",
      "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;",
      "membar.gl;",
      "fence.proxy.alias;",
      "prefetch.global.L2::evict_last [%rd0];",
      "prefetch.L1 [%rd0];",
      "prefetchu.L1 [%rd0];",
      "discard.global.L2 [%rd0], 128;",
      "applypriority.global.L2::evict_normal [%rd0], 128;",
      "createpolicy.fractional.L2::evict_last.b64 %rd1, 0.5;",
      "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd1;",
      "createpolicy.range.global.L2::evict_first.b64 %rd1, [%rd0], 64, 128;",
      "createpolicy.cvt.L2.b64 %rd1, %rd2;",
      "griddepcontrol.wait;",
      "griddepcontrol.launch_dependents;",
      "pmevent 3;",
      "setmaxnreg.inc.sync.aligned.u32 232;",
      "mapa.shared::cluster.u32 %r1, %r2, 0;",
      "getctarank.shared::cluster.u32 %r1, %r2;",
      "mov.u32 %r1, %cluster_nctarank;",
      "mov.pred %p1, %is_explicit_cluster;",
      "mov.u32 %r1, %envreg31;",
      "mov.u32 %r1, %reserved_smem_offset_begin;",
      "bar.cta.sync 0;",
      "barrier.cta.red.popc.aligned.u32 %r1, 0, 64, %p1;",
      "vote.sync.uni.pred %p1, !%p2, -1;",
      "isspacep.const %p1, %rd0;",
      "isspacep.param::entry %p1, %rd0;",
      "cvta.to.param.u64 %rd1, %rd2;",
      "nanosleep.u32 %r1;",
      "@!%p1 exit;",
      ".pragma \"nounroll\";",
      "vset.u32.s32.lt.add %r1, %r2.h1, %r3.b0, %r4;",
      "vmad.s32.s32.s32.sat.shr7 %r1, %r2.h0, -%r3.b3, %r4;",
      "vavrg4.u32.u32.s32.sat %r1.b310, %r2.b7610, %r3, %r4;"};
  for (const char* statement : statements) {
    SCOPED_TRACE(statement);
    EXPECT_TRUE(load(body(statement))) << error_;
  }
  for (const char* module :
       {".visible .entry e() .reqnctapercluster 1, 1, 1 { ret; }", ".common .global .u32 c;",
        ".func f() .noreturn { trap; }", ".weak .func f() { ret; } .weak .func f() { ret; }",
        ".weak .func f() { ret; } .func f() { ret; } .weak .entry e() { call f; ret; } .weak "
        ".entry e() { ret; }",
        ".visible .entry e() .maxntid 32 .minnctapersm 2 { ret; }",
        ".global .attribute(.managed) .align 4 .u32 m;", ".section .debug_str { .b8 0 }"})
    EXPECT_TRUE(
        load(std::string(".version 9.0\n.target sm_90\n.address_size 64\n") + module + "\n"))
        << module << ": " << error_;
}

}  // namespace
}  // namespace sluice::exec
