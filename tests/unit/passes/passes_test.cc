// SPDX-License-Identifier: Apache-2.0
// The rewriter's decisions that golden files show badly: limits, names, and what it must not touch.
// That clones compute the right thing is tested by running them (tests of kernels/exec and of the
// software GPU, tests/system).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "abi/preempt.h"
#include "kernels/passes/rewrite.h"

namespace sluice::passes {
namespace {

const char* const kHead = ".version 8.0\n.target sm_90\n.address_size 64\n";

KernelReport only(const std::string& text) {
  auto rewritten = rewrite_module(text);
  EXPECT_TRUE(rewritten) << rewritten.error().message;
  if (!rewritten) return {};
  EXPECT_EQ(rewritten->kernels.size(), 1u);
  return rewritten->kernels.empty() ? KernelReport{} : rewritten->kernels[0];
}

std::string with_parameters(std::uint64_t bytes, const std::string& version = "8.0") {
  return ".version " + version + "\n.target sm_90\n.address_size 64\n.entry k(.param .b8 p[" +
         std::to_string(bytes) + "]) { ret; }";
}

TEST(PtxRewrite, ParameterLimit) {
  constexpr std::uint64_t kBlock = SLUICE_PREEMPT_PARAMS_BYTES;
  KernelReport k = only(with_parameters(4096 - kBlock));
  EXPECT_TRUE(k.evictable);
  EXPECT_EQ(k.param_bytes_original, 4096 - kBlock);
  EXPECT_EQ(k.param_offset_of_block, 4096 - kBlock);
  EXPECT_TRUE(only(with_parameters(4097 - kBlock, "8.1")).evictable);
  EXPECT_EQ(only(with_parameters(4097 - kBlock, "8.1")).param_offset_of_block, 4104 - kBlock);
  EXPECT_TRUE(only(with_parameters(32760 - kBlock, "8.1")).evictable);
  EXPECT_FALSE(only(with_parameters(32761 - kBlock, "8.1")).evictable);
  EXPECT_EQ(only(with_parameters(32761 - kBlock, "8.1")).code, "parameters");
}

// Rule isa-version: room for more parameters comes with a later version of the ISA, and only where
// it is needed.
TEST(PtxRewrite, VersionIsRaisedForParametersOnly) {
  const std::uint64_t fits = 4096 - SLUICE_PREEMPT_PARAMS_BYTES;
  EXPECT_TRUE(rewrite_module(with_parameters(fits))->text.starts_with(".version 8.0\n"));
  auto raised = rewrite_module(with_parameters(fits + 1));
  EXPECT_TRUE(raised->kernels[0].evictable);
  EXPECT_TRUE(raised->text.starts_with(".version 8.1\n")) << raised->text.substr(0, 40);
  EXPECT_TRUE(rewrite_module(with_parameters(fits + 1, "8.4"))->text.starts_with(".version 8.4\n"));
}

// Rule isa-version: what clones are made of came with ISA 3.1 and sm_30.
TEST(PtxRewrite, OldModulesAreRaised) {
  const auto text = [](const std::string& version, const std::string& target,
                       const std::string& before = "") {
    return ".version " + version + "\n.target " + target + ", texmode_independent\n" + before +
           ".entry k() { exit; }";
  };
  EXPECT_TRUE(rewrite_module(text("2.0", "sm_20"))
                  ->text.starts_with(".version 3.1\n.target sm_35, texmode"));
  EXPECT_TRUE(rewrite_module(text("4.2", "sm_21"))
                  ->text.starts_with(".version 4.2\n.target sm_35, texmode"));
  EXPECT_TRUE(rewrite_module(text("3.0", "sm_30"))
                  ->text.starts_with(".version 3.1\n.target sm_30, texmode"));
  // Nothing but for clones.
  EXPECT_TRUE(rewrite_module(text("2.0", "sm_20", ".global .u32 g;"))->kernels[0].evictable);
  for (const std::string before : {".global .u32 g; .global .u64 at = g;\n", ".reg .u32 r;\n"}) {
    EXPECT_EQ(rewrite_module(text("2.0", "sm_20", before))->text, text("2.0", "sm_20", before));
    EXPECT_EQ(only(text("2.0", "sm_20", before)).code, "target");
  }
  EXPECT_EQ(only(text("1.4", "sm_13")).code, "target");
}

TEST(PtxRewrite, ThirtyTwoBitAddressesAreOpaque) {
  const auto with = [](const char* size, const char* bits) {
    return std::string(".version 8.0\n.target sm_90\n") + size +
           "\n.shared .u32 s;\n.entry k(.param ." + bits + " p) { .reg ." + bits +
           " %a; .reg .b32 %r; ld.shared.u32 %r, [s]; ld.param." + bits +
           " %a, [p]; st.global.u32 [%a], 1; ret; }";
  };
  EXPECT_EQ(only(with(".address_size 32", "u64")).code, "address-size");
  // As wide as what is used, where it is not given.
  EXPECT_EQ(only(with("", "b32")).code, "address-size");
  EXPECT_EQ(only(with("", "u64")).code, "");
  EXPECT_EQ(only(".version 8.0\n.target sm_90\n.entry k() { ret; }").code, "");
  EXPECT_FALSE(
      only(".version 8.0\n.target weird\n.address_size 64\n.entry k() { ret; }").evictable);
}

std::string kernel_of(const std::string& body) {
  return std::string(kHead) +
         ".entry k(.param .u64 p) { .reg .b32 %r<4>; .reg .b64 %rd<4>; "
         ".reg .pred %q<4>; ld.param.u64 %rd0, [p];\n" +
         body + "\nret; }";
}

// Asking where an address points is no use of clusters; a pointer into another block is.
TEST(PtxRewrite, AskingForTheClusterWindowNeedsNoCluster) {
  EXPECT_EQ(only(kernel_of("isspacep.shared::cluster %q0, %rd0;")).code, "");
  EXPECT_EQ(only(kernel_of("mapa.shared::cluster.u32 %r0, %r1, 0;")).code, "cluster");
}

// A load that fetches again each time is a poll like a volatile one; a plain one is data, unless
// nothing in the loop can change what it finds.
TEST(PtxRewrite, LoadsThatFetchAgainArePolls) {
  const auto loop = [](const std::string& load) {
    return kernel_of(".shared .u32 own; $L: " + load +
                     " %r0, [%rd0]; setp.eq.u32 %q0, %r0, 0; @%q0 bra $L;");
  };
  EXPECT_EQ(only(loop("ld.global.cv.u32")).code, "waits");
  EXPECT_EQ(only(loop("ld.volatile.global.u32")).code, "waits");
  EXPECT_EQ(only(loop("ld.volatile.shared.u32")).code, "");
  EXPECT_EQ(only(loop("ld.global.cg.u32")).code, "waits");
  EXPECT_EQ(only(loop("bar.sync 0; ld.global.u32")).code, "waits");
  EXPECT_EQ(only(loop("add.s64 %rd0, %rd0, 4; ld.global.u32")).code, "");
  EXPECT_EQ(only(loop("st.global.u32 [%rd0], 7; ld.global.u32")).code, "");
  EXPECT_EQ(
      only(loop("add.u32 %r1, %r1, 1; setp.gt.u32 %q1, %r1, 9; @%q1 ret; ld.global.u32")).code, "");
}

// The suite is what the whole project demonstrates eviction with.
TEST(PtxRewrite, TheSuiteLoops) {
  int kernels = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::string(SLUICE_SOURCE_ROOT) + "/kernels/suite/ptx")) {
    if (entry.path().extension() != ".ptx") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::stringstream contents;
    contents << file.rdbuf();
    auto rewritten = rewrite_module(contents.str());
    ASSERT_TRUE(rewritten) << entry.path() << ": " << rewritten.error().message;
    for (const KernelReport& k : rewritten->kernels) {
      EXPECT_TRUE(k.evictable && !k.once) << k.name << ": " << k.reason;
      ++kernels;
    }
  }
  EXPECT_GE(kernels, 50);
}

TEST(PtxRewrite, ATakenCloneNameIsLeftAlone) {
  EXPECT_FALSE(only(std::string(kHead) + ".global .u32 k__sluice; .entry k() { ret; }").evictable);
  EXPECT_FALSE(
      only(std::string(kHead) + ".func k__sluice() { ret; } .entry k() { ret; }").evictable);
}

// Rule admission: the carry does not live across the check's branches.
TEST(PtxRewrite, OneTaskABlockAsksBeforeAChainOfCarries) {
  auto rewritten =
      rewrite_module(std::string(kHead) +
                     ".entry k(.param .u64 p) { .reg .u32 %r<4>; .reg .u64 %rd1;\n"
                     "mov.u32 %r1, %tid.x; add.u32 %r0, %r1, 1; ld.param.u64 %rd1, [p];\n"
                     "add.cc.u32 %r2, %r1, %r0; addc.u32 %r3, %r1, 0;\n"
                     "st.global.u32 [%rd1], %r3; ret; }");
  ASSERT_TRUE(rewritten);
  ASSERT_TRUE(rewritten->kernels[0].one_task_too);
  const std::string clone =
      rewritten->text.substr(rewritten->text.find("k" SLUICE_ONE_TASK_SUFFIX));
  const std::size_t check = clone.find("bar.red.or.pred");
  ASSERT_NE(check, clone.npos);
  EXPECT_GT(check, clone.find("add.u32 %r0"));
  EXPECT_LT(check, clone.find("add.cc.u32"));
}

// Rule admission: behind an evicted launch a block finds memory unwritten, and must not follow what
// it loads there.
TEST(PtxRewrite, OneTaskABlockAsksBeforeItFollowsWhatItLoaded) {
  for (const char* follow :
       {"ld.global.u64 %rd2, [%rd1]; add.s64 %rd3, %rd2, 4; ld.global.u32 %r3, [%rd3];",
        "ld.const.u64 %rd2, [c]; mov.b64 {%r1, %r2}, %rd2; cvt.u64.u32 %rd3, %r2; ld.u32 %r3, "
        "[%rd3+4];",
        "ld.global.v2.u64 {%rd2, %rd3}, [%rd1]; ld.global.u32 %r3, [%rd3];",
        "ld.global.u32 %r1, [%rd1]; setp.ne.u32 %p1, %r1, 0; @%p1 ld.global.u32 %r3, [%rd1+8];"}) {
    SCOPED_TRACE(follow);
    auto rewritten = rewrite_module(std::string(kHead) +
                                    ".const .u64 c; .entry k(.param .u64 p) { .reg .pred %p<2>;\n"
                                    ".reg .u32 %r<4>; .reg .u64 %rd<4>; ld.param.u64 %rd1, [p];\n" +
                                    follow + " st.global.u32 [%rd1], %r3; ret; }");
    ASSERT_TRUE(rewritten);
    ASSERT_TRUE(rewritten->kernels[0].one_task_too);
    const std::string clone =
        rewritten->text.substr(rewritten->text.find("k" SLUICE_ONE_TASK_SUFFIX));
    const std::size_t check = clone.find("bar.red.or.pred");
    ASSERT_NE(check, clone.npos);
    EXPECT_GT(check, clone.find(std::string(follow).substr(0, 20)))
        << "the first load waits for nothing";
    const std::string last = std::string(follow).substr(std::string(follow).rfind("ld."));
    EXPECT_LT(check, clone.find(last));
  }
}

TEST(PtxRewrite, NamesAreFree) {
  auto rewritten = rewrite_module(std::string(kHead) +
                                  ".global .u32 sluice7_x;\n// sluice41_ sluice99999999999\n"
                                  ".entry k() { .reg .b32 %sluice3_y; ret; }");
  ASSERT_TRUE(rewritten);
  EXPECT_NE(rewritten->text.find("%sluice42_next"), std::string::npos);
}

TEST(PtxRewrite, LinkageDirectivesAndDeclarationsStay) {
  auto rewritten = rewrite_module(std::string(kHead) +
                                  ".weak .entry k() .maxntid 64 .minnctapersm 2 { ret; }\n"
                                  ".extern .entry elsewhere(.param .u32 n);\n");
  ASSERT_TRUE(rewritten);
  EXPECT_EQ(rewritten->kernels.size(), 1u);  // a declaration is not a kernel
  auto module = ptx::Module::parse(rewritten->text);
  ASSERT_TRUE(module);
  const ptx::Function* clone = module->find_function("k__sluice");
  ASSERT_NE(clone, nullptr);
  EXPECT_EQ(clone->linkage, ".weak");
  EXPECT_EQ(clone->maxntid[0], 64u);
  EXPECT_EQ(clone->minnctapersm, 2u);
  ASSERT_EQ(clone->params.size(), 1u);
  EXPECT_EQ(clone->params[0].bytes, std::uint64_t{SLUICE_PREEMPT_PARAMS_BYTES});
  EXPECT_EQ(clone->params[0].align, 8u);
}

TEST(PtxRewrite, BlockStandsWhereTheReportSays) {
  auto rewritten =
      rewrite_module(std::string(kHead) +
                     ".entry k(.param .u64 a, .param .u8 b, .param .align 16 .b8 c[20]) {ret;}");
  ASSERT_TRUE(rewritten);
  auto module = ptx::Module::parse(rewritten->text);
  const ptx::Function* clone = module->find_function("k__sluice");
  ASSERT_NE(clone, nullptr);
  EXPECT_EQ(clone->params.back().offset, rewritten->kernels[0].param_offset_of_block);
  EXPECT_EQ(clone->params[2].offset, 16u);
}

TEST(PtxRewrite, NothingToDoChangesNothing) {
  const std::string text = std::string(kHead) + ".func f() { ret; }\n// end";
  auto rewritten = rewrite_module(text);
  ASSERT_TRUE(rewritten);
  EXPECT_EQ(rewritten->text, text);
  EXPECT_TRUE(rewritten->kernels.empty());
  EXPECT_FALSE(rewrite_module(std::string("not PTX")));
}

TEST(PtxRewrite, RewritingTwiceLeavesOriginalsAlone) {
  auto once = rewrite_module(std::string(kHead) + ".entry k() { ret; }");
  ASSERT_TRUE(once);
  auto twice = rewrite_module(once->text);
  ASSERT_TRUE(twice);
  EXPECT_EQ(twice->text, once->text);
  for (const KernelReport& k : twice->kernels) EXPECT_FALSE(k.evictable);
}

// A collective in a region that some threads leave early is a hazard only if the way to the end has
// no block-wide barrier: with one, the original's lanes wait there just as the clone's do.
TEST(PtxRewrite, CollectivesBeforeABarrierArePlain) {
  const std::string body =
      ".reg .pred %p<2>; .reg .b32 %r<4>;\nmov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;\n"
      "@!%p1 bra J; shfl.sync.down.b32 %r2, %r1, 1, 31, -1;\nJ: ";
  const auto tier = [&](const std::string& end) {
    return tier_name(only(std::string(kHead) + ".entry k() {" + body + end + "ret; }").tier);
  };
  EXPECT_STREQ(tier("bar.sync 0; "), "plain");
  EXPECT_STREQ(tier(""), "lane-masks");
  EXPECT_STREQ(tier("bar.sync 1, 64; "), "lane-masks");
}

// Rule index-in-calls: by another name, too.
TEST(PtxRewrite, AliasesMeanTheirFunctions) {
  const auto made = rewrite_module(
      std::string(kHead) +
      ".func f() { .reg .b32 %r; mov.u32 %r, %ctaid.x; ret; }\n.func g();\n.func h();\n"
      ".alias g, f;\n.entry k() { call g; ret; }\n.entry j() { call h; ret; }");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->kernels[0].tier, Tier::kPlain);
  EXPECT_EQ(made->kernels[1].code, "call-unknown");
  // Every clone calls its copy of f, which has its index.
  std::size_t originals = 0;
  for (std::size_t at = made->text.find("call g"); at != std::string::npos;
       at = made->text.find("call g", at + 1))
    ++originals;
  EXPECT_EQ(originals, 1u);
  EXPECT_EQ(only(std::string(kHead) + ".func w() { .reg .pred %p; .reg .b32 %r; .reg .b64 %rd; M: "
                                      "ld.volatile.global.u32 %r, [%rd]; "
                                      "setp.eq.u32 %p, %r, 0; @%p bra M; ret; }\n.func "
                                      "g();\n.alias g, w;\n.entry k() { call g; ret; }")
                .code,
            "waits");
}

TEST(PtxRewrite, SpinLoops) {
  const auto loop = [](const std::string& load) {
    return std::string(kHead) + ".entry k(.param .u64 p) { .reg .pred %p<2>; .reg .b32 %r<4>; " +
           ".reg .b64 %rd<2>; .shared .u32 own; ld.param.u64 %rd1, [p];\nL: " + load +
           " setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret; }";
  };
  for (const char* waits :
       {"ld.volatile.global.u32 %r1, [%rd1];", "ld.acquire.gpu.u32 %r1, [%rd1];",
        "ld.global.u32 %r1, [%rd1];", "mov.u32 %r2, 3; atom.global.cas.b32 %r1, [%rd1], %r2, 3;",
        // A token that this block does not put back.
        "atom.global.cas.b32 %r1, [%rd1], 1, 0;", "atom.global.exch.b32 %r1, [%rd1], 0;",
        "ld.relaxed.sys.global.u32 %r1, [%rd1];", "membar.gl; ld.global.u32 %r1, [%rd1];",
        "nanosleep.u32 20; ld.u32 %r1, [%rd1];", "atom.global.or.b32 %r1, [%rd1], 0;",
        "atom.global.cas.b32 %r1, [%rd1], 0, 0;", "membar.gl; ldu.global.u32 %r1, [%rd1];",
        "membar.gl; suld.b.1d.b32.trap {%r1}, [%rd1, {%r2}];",
        "multimem.ld_reduce.acquire.gpu.global.add.u32 %r1, [%rd1];"})
    EXPECT_FALSE(only(loop(waits)).evictable) << waits;
  for (const char* goes : {"ld.volatile.shared.u32 %r1, [%r2];", "ld.acquire.cta.u32 %r1, [%rd1];",
                           // What it read is what it swaps: it fails when another one got through.
                           "ld.volatile.global.u32 %r2, [%rd1]; add.u32 %r3, %r2, 1;"
                           "atom.global.cas.b32 %r1, [%rd1], %r2, %r3; setp.ne.u32 %p0, %r1, %r2; "
                           "@%p0 bra L; mov.u32 %r1, 1;"})
    EXPECT_TRUE(only(loop(goes)).evictable) << goes;
  // The block's own turn, which it passes on; not where the turns go down the grid's columns.
  const auto own = [&](const std::string& number) {
    return tier_name(
        only(kernel_of(
                 "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y; " + number +
                 "L: ld.volatile.global.u32 %r0, [%rd0]; setp.ne.u32 %q0, %r0, %r1; @%q0 bra L; "
                 "red.global.add.u32 [%rd0], 1;"))
            .tier);
  };
  EXPECT_STREQ(own(""), "in-order");
  EXPECT_STREQ(own("mad.lo.u32 %r1, %r1, %r2, %r3; "), "opaque");
  EXPECT_STREQ(own("add.u32 %r1, %r1, 1; "), "opaque");
  // A lock, which is given back; also where it is looked at before it is tried.
  for (const std::string take :
       {"atom.global.exch.b32 %r1, [%rd0], 1;", "atom.global.cas.b32 %r1, [%rd0], 0, 1;"})
    for (const std::string look :
         {"", "M: ld.volatile.global.u32 %r2, [%rd0]; setp.ne.u32 %q1, %r2, 0; @%q1 bra M;"}) {
      const std::string lock = "L: " + look + take + "setp.ne.u32 %q0, %r1, 0; @%q0 bra L;";
      EXPECT_EQ(only(kernel_of(lock + "st.global.u32 [%rd0], 0;")).code, "");
      EXPECT_EQ(only(kernel_of(lock + "ld.param.u64 %rd1, [p]; st.global.u32 [%rd1], 0;")).code,
                "");
      EXPECT_EQ(only(kernel_of(lock)).code, "waits");
    }
  // A swap that only its block's turn lets succeed; one that takes whatever comes is a retry.
  const std::string turn =
      "mov.u32 %r2, %ctaid.x; add.u32 %r3, %r2, 1; L: atom.global.cas.b32 %r0, [%rd0], %r2, %r3;"
      "setp.ne.u32 %q0, %r0, ";
  EXPECT_EQ(only(kernel_of(turn + "%r2; @%q0 bra L;")).code, "waits");
  EXPECT_EQ(only(kernel_of(turn + "%r2; mov.u32 %r2, %r0; @%q0 bra L;")).code, "");
  // A fence, or the load, in a function that the loop calls.
  const std::string called =
      std::string(kHead) +
      ".func fence() { membar.gl; ret; }\n"
      ".func (.param .b32 v) look(.param .b64 p) { .reg .b32 %r; .reg .b64 %rd; "
      "ld.param.u64 %rd, [p]; ld.global.u32 %r, [%rd]; st.param.b32 [v], %r; ret; }\n";
  const std::string look =
      "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %rd1; call (b), look, (a); ld.param.b32 "
      "%r1, [b]; } ";
  const auto calling = [&](const std::string& body) {
    return called + loop(body).substr(std::string(kHead).size());
  };
  EXPECT_EQ(only(calling("call fence; ld.global.u32 %r1, [%rd1];")).code, "waits");
  EXPECT_EQ(only(calling("membar.gl; " + look)).code, "waits");
  EXPECT_EQ(only(calling("call fence; " + look)).code, "waits");
  EXPECT_EQ(only(calling(look)).code, "waits");  // the same each turn: it stands still
  EXPECT_TRUE(only(calling(look + "add.u64 %rd1, %rd1, 4;")).evictable);
  // The same through a pointer, whatever its register is called.
  for (const std::string pointer : {"%look", "pointer"}) {
    std::string by_pointer = look;
    by_pointer.replace(by_pointer.find("look, (a)"), 9, pointer + ", (a), P");
    EXPECT_EQ(only(called + loop(".reg .b64 " + pointer +
                                 "; P: .callprototype (.param .b32 _) _ (.param .b64 _); mov.u64 " +
                                 pointer + ", look; membar.gl; " + by_pointer)
                                .substr(std::string(kHead).size()))
                  .code,
              "waits")
        << pointer;
  }
  EXPECT_TRUE(only(calling("call fence; add.u32 %r1, %r1, 1;")).evictable);
  // Reading a flag in a loop whose end does not depend on it is no wait.
  EXPECT_TRUE(only(loop("ld.volatile.global.u32 %r2, [%rd1]; add.u32 %r1, %r1, 1;")).evictable);
}

// A register that hides a function, and a variable that each clone would have for itself.
TEST(PtxRewrite, NamesOfTheModuleInABody) {
  const std::string functions =
      std::string(kHead) + ".func f() { ret; } .func g() { ret; } .global .u64 t[1] = {g};\n";
  const std::string call = "P: .callprototype ()_ (); call f, P; ret; }";
  EXPECT_EQ(only(functions + ".entry k() { .reg .b64 f; mov.u64 f, g; " + call).code, "shadowing");
  EXPECT_EQ(only(functions + ".entry k() { call f; { .reg .b64 f; } ret; }").code, "");
  EXPECT_EQ(only(std::string(kHead) + ".entry k() { .global .u32 n; ret; }").code, "linked");
  EXPECT_EQ(only(std::string(kHead) + ".entry k() { .const .u32 n = 4; ret; }").code, "linked");
  // The loop's words stand behind dynamic shared memory that only the body names.
  auto dynamic =
      rewrite_module(std::string(kHead) +
                     ".entry k() { .reg .b32 %r; .extern .shared .b8 d[]; mov.u32 %r, d; ret; }");
  ASSERT_TRUE(dynamic);
  const std::string clone = dynamic->text.substr(dynamic->text.find("k__sluice"));
  EXPECT_GT(clone.find(", d;"), clone.find(".extern .shared")) << clone;
}

TEST(PtxRewrite, FunctionsThatEndTheirThreadOrRecur) {
  EXPECT_EQ(only(std::string(kHead) + ".func f() { exit; } .entry k() { call f; ret; }").tier,
            Tier::kPlain);
  EXPECT_EQ(
      only(std::string(kHead) + ".func f() { call f; exit; } .entry k() { call f; ret; }").tier,
      Tier::kPrologue);
  EXPECT_TRUE(only(std::string(kHead) + ".func f() { call f; ret; } .entry k() { call f; ret; }")
                  .evictable);
  EXPECT_FALSE(only(std::string(kHead) +
                    ".entry k(.param .u64 p) { .reg .b64 %rd1; ld.param.u64 %rd1, [p]; "
                    "P: .callprototype _ (); call %rd1, P; ret; }")
                   .evictable);
}

// Rule register-pool: how many registers a block begins with must be known, or they cannot be put
// back.
TEST(PtxRewrite, RegistersThatWarpsHandOver) {
  const auto kernel = [](const std::string& bounds, const std::string& body) {
    auto rewritten = rewrite_module(".version 8.0\n.target sm_90a\n.address_size 64\n.entry k() " +
                                    bounds + " { " + body + " ret; }");
    EXPECT_TRUE(rewritten) << rewritten.error().message;
    return *rewritten;
  };
  const std::string gives = "setmaxnreg.dec.sync.aligned.u32 40;";
  struct Row {
    const char *bounds, *back;
  };
  for (const Row& row :
       {Row{".maxnreg 152", "152"}, Row{".maxntid 384 .minnctapersm 1", "168"},
        Row{".reqntid 128, 3 .minnctapersm 2", "80"}, Row{".maxntid 160 .minnctapersm 2", "168"},
        Row{".maxntid 416 .minnctapersm 1", "128"}}) {
    const Rewritten made = kernel(row.bounds, gives);
    EXPECT_EQ(made.kernels[0].tier, Tier::kPlain) << row.bounds << ": " << made.kernels[0].reason;
    EXPECT_NE(made.text.find(std::string("setmaxnreg.inc.sync.aligned.u32 \t") + row.back + ";"),
              std::string::npos)
        << row.bounds;
    EXPECT_EQ(made.text.find(std::string(".maxnreg ") + row.back) != std::string::npos, true)
        << row.bounds;
  }
  for (const char* bounds :
       {"", ".maxntid 384", ".reqntid 384", ".minnctapersm 1", ".maxnreg 100", ".maxnreg 248",
        ".maxntid 128 .minnctapersm 1", ".maxntid 1024 .minnctapersm 32"}) {
    const Rewritten made = kernel(bounds, gives);
    EXPECT_EQ(made.kernels[0].code, "setmaxnreg") << bounds;
    EXPECT_EQ(made.kernels[0].tier, Tier::kPrologue) << bounds;
  }
  EXPECT_EQ(kernel(".maxnreg 152", "setmaxnreg.dec.sync.aligned.u32 N;").kernels[0].code,
            "setmaxnreg");
}

// Copies by tensor maps are cleaned up behind like other bulk copies; those that more than this
// block takes part in are not.
TEST(PtxRewrite, CopiesByTensorMaps) {
  const auto kernel = [](const std::string& before, const std::string& copy) {
    auto rewritten = rewrite_module(
        ".version 8.6\n.target sm_100a\n.address_size 64\n.entry k(.param .align 64 .b8 map[128]) "
        "{\n"
        ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<2>; .shared .align 128 .b8 tile[1024]; "
        ".shared .align 8 .b64 full;\nmov.u64 %rd1, map; cvta.param.u64 %rd1, %rd1; mov.u32 %r1, "
        "tile; "
        "mov.u32 %r2, full; mov.u32 %r3, 0;\n" +
        before + copy + " ret; }");
    EXPECT_TRUE(rewritten) << rewritten.error().message;
    return *rewritten;
  };
  const std::string store =
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r3, %r3}], [%r1]; "
      "cp.async.bulk.commit_group;";
  const Rewritten stored = kernel("", store);
  EXPECT_EQ(stored.kernels[0].tier, Tier::kPlain) << stored.kernels[0].reason;
  EXPECT_EQ(stored.kernels[0].passes, std::vector<std::string_view>{"clean-up"});
  EXPECT_NE(stored.text.find("cp.async.bulk.wait_group"), std::string::npos);
  const std::string made = "mbarrier.init.shared.b64 [%r2], 1;\n";
  const std::string wait = "\nL: mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0; @!%p1 bra L;";
  const auto load = [](const std::string& how) {
    return "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" +
           how + " [%r1], [%rd1, {%r3, %r3}], [%r2];";
  };
  EXPECT_EQ(kernel(made, load("") + wait).kernels[0].tier, Tier::kPlain);
  EXPECT_EQ(kernel(made, load(".cta_group::1") + wait).kernels[0].tier, Tier::kPlain);
  EXPECT_EQ(kernel(made, load("")).kernels[0].code, "mbarrier");  // nobody waits
  EXPECT_EQ(kernel(made, load(".cta_group::2") + wait).kernels[0].code, "bulk-copy");
  EXPECT_EQ(kernel(made, load(".multicast::cluster") + wait).kernels[0].code, "bulk-copy");
  const std::string change =
      "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd1; "
      "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128; ";
  EXPECT_EQ(kernel(change, store).kernels[0].tier, Tier::kPlain);
  EXPECT_EQ(kernel("", "tcgen05.fence::after_thread_sync;").kernels[0].code, "tensor-memory");
}

// What cannot be written in place leaves the kernel as it was: text that would double with every
// call, and parameters whose address is taken.
TEST(PtxRewrite, CallsThatAreNotWrittenInPlace) {
  std::string doubling(kHead);
  doubling += ".func f30() { exit; }\n";
  for (int k = 29; k >= 0; --k) {
    const std::string next = "call f" + std::to_string(k + 1) + "; ";
    doubling += ".func f" + std::to_string(k) + "() { " + next + next + "ret; }\n";
  }
  EXPECT_EQ(only(doubling + ".entry k() { call f0; ret; }").code, "exit-in-function");
  const auto passing = [](const std::string& body) {
    return only(std::string(kHead) + ".func f(.param .b32 a) { .reg .b32 %r; .reg .b64 %rd; " +
                body +
                " exit; }\n.entry k() { .reg .b32 %r; mov.u32 %r, 1; { .param .b32 v; "
                "st.param.b32 [v], %r; call f, (v); } ret; }");
  };
  const KernelReport taken = passing("ld.param.b32 %r, [a];");
  EXPECT_EQ(taken.tier, Tier::kPlain);
  ASSERT_FALSE(taken.passes.empty());
  EXPECT_EQ(taken.passes[0], "inline");
  // A name of the caller's would hide what the function means by it.
  for (const char* hides : {".local .b32 word; ", "bra word; word: "})
    EXPECT_EQ(only(std::string(kHead) +
                   ".global .b32 word;\n.func f() { .reg .b32 %r; ld.global.b32 %r, "
                   "[word]; exit; }\n.entry k() { " +
                   hides + "call f; ret; }")
                  .code,
              "exit-in-function")
        << hides;
  // What nobody accesses is no register either where there is none of its size.
  const auto untouched =
      rewrite_module(std::string(kHead) +
                     ".func f(.param .align 4 .b8 a[12]) { exit; }\n"
                     ".entry k() { { .param .align 4 .b8 v[12]; call f, (v); } ret; }");
  ASSERT_TRUE(untouched);
  EXPECT_EQ(untouched->kernels[0].tier, Tier::kPlain);
  EXPECT_EQ(untouched->text.find(".b96"), std::string::npos);
  EXPECT_EQ(passing("mov.b64 %rd, a; ld.local.b32 %r, [%rd];").code, "exit-in-function");
  EXPECT_EQ(passing("st.param.b32 [a], %r;").code, "exit-in-function");
}

// Of what the original called, a text of clones alone has what they call, too.
TEST(Passes, ClonesAloneHaveNoFunctionsThatTheyDoNotReach) {
  const std::string text = std::string(kHead) + R"(
.func used(.reg .b32 %x) { ret; }
.func (.reg .b32 %y) index() { mov.u32 %y, %ctaid.x; ret; }
.func never() { ret; }
.func named() { ret; }
.global .u64 table = named;
.visible .entry k() {
  .reg .b32 %r<3>;
  call (%r1), index;
  call used, (%r1);
  ret;
}
)";
  RewriteOptions options;
  options.alone = true;
  options.forms = Forms::kFirst;
  const auto alone = rewrite_module(text, options);
  ASSERT_TRUE(alone);
  ASSERT_TRUE(alone->kernels[0].evictable) << alone->kernels[0].reason;
  const auto module = ptx::Module::parse(alone->text);
  ASSERT_TRUE(module);
  EXPECT_EQ(module->find_function("k"), nullptr);
  EXPECT_NE(module->find_function("k" SLUICE_CLONE_SUFFIX), nullptr);
  EXPECT_NE(module->find_function("used"), nullptr);
  EXPECT_NE(module->find_function("named"), nullptr);
  EXPECT_EQ(module->find_function("never"), nullptr);
  EXPECT_EQ(module->find_function("index"), nullptr) << "its copy takes the index";
}

}  // namespace
}  // namespace sluice::passes
