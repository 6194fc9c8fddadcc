// SPDX-License-Identifier: Apache-2.0
// Calls and stacks of kernels/exec in hand-written PTX: forms that nvcc seldom emits, and what goes
// wrong.
#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

// %r0 = %tid.x and %rd10 = p0 + 4 * %tid.x.
const char* const kThreadIndex =
    "mov.u32 %r0, %tid.x;\nmul.wide.u32 %rd9, %r0, 4;\nadd.s64 %rd10, %rd0, %rd9;\n";

class ExecCalls : public ExecTest {
 protected:
  uint32_t run_sum(uint32_t threads, std::vector<uint32_t>& out) {
    return launch({1}, {threads}, {share(out)}) == RunState::kDone ? 1 : 0;
  }
};

// Names of registers: a set's prefix may end in digits, one of its own hides a set's, and an inner
// scope hides the outer's. With few sets in a scope, and with many.
TEST_F(ExecCalls, RegistersAreFoundByTheirNames) {
  std::string many;
  for (int i = 0; i < 40; ++i)
    many +=
        ".reg .b32 %more" + std::string(1, char('a' + i % 26)) + (i < 26 ? "x" : "y") + "<3>;\n";
  for (const std::string& others : {std::string(), many}) {
    ASSERT_TRUE(load(kernel(others + kThreadIndex + R"(
      .reg .b32 %q1<5>; .reg .b32 %q<12>; .reg .b32 %own; .reg .b32 %own5; .reg .b32 %own<9>;
      mov.u32 %q11, 100;
      mov.u32 %q7, 7;
      mov.u32 %own5, 40;
      mov.u32 %own8, 8;
      {
        .reg .b32 %q7; .reg .b64 %other<3>;
        mov.u32 %q7, 1000;
        add.u32 %q11, %q11, %q7;
      }
      add.u32 %r1, %q11, %q7;
      add.u32 %r1, %r1, %own5;
      add.u32 %r1, %r1, %own8;
      add.u32 %r1, %r1, %r0;
      st.global.u32 [%rd10], %r1;)")))
        << error_;
    std::vector<uint32_t> out(64);
    ASSERT_EQ(launch({1}, {64}, {share(out)}), RunState::kDone) << fault_.describe();
    for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 1155 + i);
    EXPECT_FALSE(load(kernel(others + ".reg .b32 %q<12>; mov.u32 %q12, 1;")));
    EXPECT_FALSE(load(kernel(others + "{ .reg .b32 %z<2>; } mov.u32 %z1, 1;")));
  }
}

// Each activation has its own variables: the callee adds to its caller's through a pointer.
const char* const kChain = R"(
.func chain(.param .b32 n, .param .b64 above)
{
  .local .align 8 .b8 mine[8];
  .reg .pred %q<3>; .reg .b32 %a<5>; .reg .b64 %b<6>;
  ld.param.u32 %a0, [n];
  ld.param.u64 %b0, [above];
  mov.u64 %b1, mine;
  cvta.local.u64 %b1, %b1;
  st.local.u32 [mine], 0;
  setp.eq.u32 %q1, %a0, 0;
  @%q1 bra LEAF;
  sub.u32 %a1, %a0, 1;
  { .param .b32 p0; st.param.b32 [p0], %a1; .param .b64 p1; st.param.b64 [p1], %b1;
    call chain, (p0, p1); }
LEAF:
  ld.local.u32 %a2, [mine];
  ld.u32 %a3, [%b0];
  add.u32 %a3, %a3, %a2;
  add.u32 %a3, %a3, %a0;
  st.u32 [%b0], %a3;
  ret;
}
)";

TEST_F(ExecCalls, EveryActivationHasItsOwnVariables) {
  ASSERT_TRUE(load(kernel(std::string(kThreadIndex) + R"(
    .local .align 8 .b8 sum[8];
    mov.u64 %rd11, sum; cvta.local.u64 %rd11, %rd11; st.local.u32 [sum], 0;
    rem.u32 %r1, %r0, 13;
    { .param .b32 p0; st.param.b32 [p0], %r1; .param .b64 p1; st.param.b64 [p1], %rd11;
      call chain, (p0, p1); }
    ld.local.u32 %r2, [sum]; activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r2, %r3, 1000, %r2;
    st.global.u32 [%rd10], %r2;)",
                          kChain)))
      << error_;
  std::vector<uint32_t> out(64);
  ASSERT_EQ(launch({1}, {64}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t n = i % 13;
    EXPECT_EQ(out[i], n * (n + 1) / 2 + 32000) << i << ": lanes of all depths meet again";
  }
}

// cuTile says which language a module was written in. Other directives may mean anything.
TEST_F(ExecCalls, LanguageOfTheModuleChangesNothing) {
  const char* const head = ".version 8.6\n.target sm_90\n.address_size 64\n";
  const char* const entry = ".visible .entry k() { ret; }\n";
  EXPECT_TRUE(load(std::string(head) + ".language \"cutile\"\n" + entry)) << error_;
  EXPECT_FALSE(load(std::string(head) + ".novelty \"cutile\"\n" + entry));
  EXPECT_NE(error_.find("line 4"), std::string::npos) << error_;
}

TEST_F(ExecCalls, StackOverflowIsAFault) {
  ASSERT_TRUE(load(kernel(std::string(kThreadIndex) + R"(
    .local .align 8 .b8 sum[8];
    mov.u64 %rd11, sum; cvta.local.u64 %rd11, %rd11;
    setp.ne.u32 %p1, %r0, 3; @%p1 bra END;
    { .param .b32 p0; st.param.b32 [p0], 100000; .param .b64 p1; st.param.b64 [p1], %rd11;
      call chain, (p0, p1); }
  END: st.global.u32 [%rd10], 1;)",
                          kChain)))
      << error_;
  std::vector<uint32_t> out(32);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kStackOverflow) << fault_.describe();
  EXPECT_EQ(fault_.thread.x, 3u);
  EXPECT_NE(fault_.describe().find("chain"), std::string::npos);
}

TEST_F(ExecCalls, TheStackLimitCounts) {
  const std::string text = kernel(std::string(kThreadIndex) + R"(
    .local .align 8 .b8 sum[8];
    mov.u64 %rd11, sum; cvta.local.u64 %rd11, %rd11; st.local.u32 [sum], 0;
    { .param .b32 p0; st.param.b32 [p0], 500; .param .b64 p1; st.param.b64 [p1], %rd11;
      call chain, (p0, p1); }
    ld.local.u32 %r2, [sum]; st.global.u32 [%rd10], %r2;)",
                                  kChain);
  ASSERT_TRUE(load(text)) << error_;
  std::vector<uint32_t> out(32);
  const uint64_t base = share(out);
  EXPECT_EQ(launch({1}, {32}, {base}), RunState::kFault);
  stack_bytes_ = 64 * 1024;
  ASSERT_EQ(launch({1}, {32}, {base}), RunState::kDone) << fault_.describe();
  EXPECT_EQ(out[5], 500u * 501 / 2);
}

TEST_F(ExecCalls, EndlessRecursionWithoutVariablesEnds) {
  ASSERT_TRUE(load(kernel("call again, ();", ".func again()\n{\n call again, (); ret;\n}\n")))
      << error_;
  stack_bytes_ = kMaxStackBytes;
  ASSERT_EQ(launch({1}, {64}, {}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kStackOverflow) << fault_.describe();
}

TEST_F(ExecCalls, ParametersInRegistersAndConstants) {
  ASSERT_TRUE(load(kernel(std::string(kThreadIndex) + R"(
    call (%r5), weigh, (%r0, 3);
    setp.lt.u32 %p1, %r0, 5;
    @%p1 call (%r5), weigh, (%r5, 100);
    st.global.u32 [%rd10], %r5;)",
                          ".func (.reg .b32 result) weigh(.reg .b32 a, .reg .b32 b)\n{\n"
                          " mad.lo.u32 result, a, b, 1; ret;\n}\n")))
      << error_;
  std::vector<uint32_t> out(32);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(out[i], i < 5 ? (3 * i + 1) * 100 + 1 : 3 * i + 1) << i;
}

// GCC's text for OpenMP: parameters that are numbered like registers, registers that are vectors.
TEST_F(ExecCalls, NumberedParametersAndVectorRegisters) {
  ASSERT_TRUE(load(kernel(std::string(kThreadIndex) + R"(
    .reg .v2 .b32 %v; .reg .v4 .u64 %w<2>; .param .b32 %P1; .reg .b64 %at;
    st.param.b32 [%P1], 77;
    { .param .b32 %P<2>; .param .b32 q;
      st.param.b32 [%P0], %r0; st.param.b32 [%P1], 3;
      call (q), weigh, (%P0, %P1);
      ld.param.b32 %v.x, [q]; }
    ld.param.b32 %v.y, [%P1];
    mov.v2.u32 %v, {%v.y, %v.x};
    cvt.u64.u32 %w0.z, %v.x; cvt.u64.u32 %w1.x, %v.y;
    add.u64 %w1.w, %w0.z, %w1.x;
    cvt.u32.u64 %r2, %w1.w;
    add.u64 %at, %rd0, 256; mul.wide.u32 %rd13, %r0, 8; add.u64 %at, %at, %rd13;
    st.v2.u32 [%at], %v; ld.v2.b32 %v, [%at]; sub.u32 %r3, %v.y, %v.x;
    shl.b32 %r3, %r3, 16; add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd10], %r2;)",
                          ".func (.param .b32 r) weigh(.param .b32 a, .param .b32 b)\n{\n"
                          " .reg .b32 %x<2>; ld.param.b32 %x0, [a]; ld.param.b32 %x1, [b];\n"
                          " mad.lo.u32 %x0, %x0, %x1, 1; st.param.b32 [r], %x0; ret;\n}\n")))
      << error_;
  std::vector<uint32_t> out(128);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t weighed = 3 * i + 1;
    EXPECT_EQ(out[i], 77 + weighed + ((weighed - 77) << 16)) << i;
  }
}

TEST_F(ExecCalls, NumberedParametersAreSoMany) {
  EXPECT_FALSE(load(kernel(".param .b32 %P<2>; st.param.b32 [%P2], 1;")));
  EXPECT_FALSE(load(kernel(".param .b32 %P<2>; st.param.b32 [%P], 1;")));
  EXPECT_FALSE(load(kernel(".param .b32 %P<2>; st.param.b32 [%P01], 1;")));
  EXPECT_FALSE(load(kernel(".param .b64 %P<4000000000>; st.param.b32 [%P1], 1;")));
  EXPECT_FALSE(load(kernel(".reg .v2 .b32 %v; mov.u32 %v.z, 1;")));
  EXPECT_FALSE(load(kernel(".reg .v2 .b32 %v; mov.u32 %v, 1;")));
  EXPECT_FALSE(load(kernel(".reg .v2 .pred %v; mov.u32 %r0, 1;")));
}

const char* const kTargets = R"(
.func (.param .b32 r) f0(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 1;
st.param.b32 [r], %x; ret; }
.func (.param .b32 r) f1(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a];
mul.lo.u32 %x, %x, 7; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) f2(.param .b32 a) { .reg .b32 %x; .reg .pred %q; ld.param.b32 %x, [a];
setp.gt.u32 %q, %x, 20; @%q exit; st.param.b32 [r], 5; ret; }
.func other(.param .b64 a) { ret; }
.global .align 8 .u64 functions[5] = {f0, f1, f2, other, 0};
.global .align 1 .b8 bytes[8] = {0xFF(f1), 0xFF00(f1), 0xFF0000(f1), 0xFF000000(f1),
0xFF00000000(f1), 0xFF0000000000(f1), 0xFF000000000000(f1), 0xFF00000000000000(f1)};
)";

TEST_F(ExecCalls, IndirectCallsByLane) {
  ASSERT_TRUE(load(kernel(std::string(kThreadIndex) + R"(
    TARGETS: .calltargets f0, f1, f2;
    rem.u32 %r1, %r0, 3; mul.wide.u32 %rd11, %r1, 8; mov.u64 %rd12, functions;
    add.s64 %rd11, %rd11, %rd12;
    ld.global.u64 %rd13, [%rd11];
    { .param .b32 p; st.param.b32 [p], %r0; .param .b32 q;
      call (q), %rd13, (p), TARGETS; ld.param.b32 %r2, [q]; }
    mov.u64 %rd14, bytes; mov.u64 %rd16, 0; mov.u32 %r6, 0;
  L: ld.global.u8 %rd15, [%rd14]; shl.b64 %rd15, %rd15, %r6; or.b64 %rd16, %rd16, %rd15;
    add.s64 %rd14, %rd14, 1; add.u32 %r6, %r6, 8; setp.lt.u32 %p1, %r6, 64; @%p1 bra L;
    { .param .b32 p; st.param.b32 [p], %r2; .param .b32 q;
      P: .callprototype (.param .b32 _) _ (.param .align 4 .b8 _[4]);
      call (q), %rd16, (p), P; ld.param.b32 %r2, [q]; }
    activemask.b32 %r3; shr.u32 %r3, %r3, 31; shl.b32 %r3, %r3, 16; add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd10], %r2;)",
                          kTargets)))
      << error_;
  std::vector<uint32_t> out(32);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t one = i % 3 == 0 ? i + 1 : i % 3 == 1 ? i * 7 : i > 20 ? 0 : 5;
    EXPECT_EQ(out[i], i % 3 == 2 && i > 20 ? 0 : one * 7 + 0x10000) << i;
  }
}

TEST_F(ExecCalls, CallsOfNothingAreFaults) {
  for (const char* which : {"24", "32", "40"}) {
    const bool wild = std::string(which) == "40";
    ASSERT_TRUE(
        load(kernel(std::string(kThreadIndex) + "ld.global.u64 %rd13, [functions+" +
                        (wild ? "0" : which) + "];" + (wild ? "add.s64 %rd13, %rd13, 4;" : "") +
                        "{ .param .b32 p; st.param.b32 [p], %r0; .param .b32 q;"
                        "  P: .callprototype (.param .b32 _) _ (.param .b32 _);"
                        "  call (q), %rd13, (p), P; }",
                    kTargets)))
        << error_;
    ASSERT_EQ(launch({1}, {32}, {0}), RunState::kFault);
    EXPECT_EQ(fault_.kind, FaultKind::kBadCall) << fault_.describe();
  }
}

TEST_F(ExecCalls, AllocaBeyondTheStackIsAFault) {
  ASSERT_TRUE(load(kernel(std::string(kThreadIndex) + R"(
    stacksave.u64 %rd11;
    mul.wide.u32 %rd12, %r0, 1024; alloca.u64 %rd13, %rd12, 32;
    stackrestore.u64 %rd11;)")))
      << error_;
  ASSERT_EQ(launch({1}, {32}, {0}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kStackOverflow) << fault_.describe();
  EXPECT_EQ(fault_.thread.x, 3u) << "2 KiB are there, 3 are not";
}

TEST_F(ExecCalls, StackPointersOutOfNowhereDoNoHarm) {
  ASSERT_TRUE(load(kernel("stackrestore.u64 %rd0; call f, ();",
                          ".func f()\n{ .local .b32 x; st.local.u32 [x], 1; ret; }\n")))
      << error_;
  for (const uint64_t stack : {~uint64_t{0}, ~uint64_t{7}, uint64_t{1} << 40, uint64_t{4096}}) {
    ASSERT_EQ(launch({1}, {32}, {stack}), RunState::kFault);
    EXPECT_EQ(fault_.kind, FaultKind::kStackOverflow) << fault_.describe();
  }
}

TEST_F(ExecCalls, SecondFreeIsAFault) {
  const std::string heap =
      ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n";
  ASSERT_TRUE(load(kernel(R"(
    { .param .b64 n; st.param.b64 [n], 100; .param .b64 r; call (r), malloc, (n);
      ld.param.b64 %rd6, [r]; }
    add.s64 %rd6, %rd6, %rd0;
    { .param .b64 p; st.param.b64 [p], %rd6; call free, (p); }
    { .param .b64 p; st.param.b64 [p], %rd6; call free, (p); })",
                          heap)))
      << error_;
  ASSERT_EQ(launch({1}, {1}, {0}), RunState::kFault);
  EXPECT_EQ(fault_.kind, FaultKind::kBadFree) << fault_.describe();
  EXPECT_EQ(fault_.line, 26u);
  ASSERT_EQ(launch({1}, {1}, {16}), RunState::kFault) << "inside an allocation";
  EXPECT_EQ(fault_.kind, FaultKind::kBadFree);
}

// A register of 64 bits on one side of a branch and one of 32 bits on the other, both in use at the
// same time, because the sides wait for each other.
TEST_F(ExecCalls, DivergedLanesDoNotShareSlotsOfDifferentWidth) {
  ASSERT_TRUE(load(kernel(std::string(kThreadIndex) + R"(
    and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0;
    @%p1 bra EVEN;
    add.u32 %r20, %r0, 1; add.u32 %r21, %r0, 2; add.u32 %r22, %r0, 3; add.u32 %r23, %r0, 4;
    bar.warp.sync 0xffffffff;
    add.u32 %r2, %r20, %r21; add.u32 %r2, %r2, %r22; add.u32 %r2, %r2, %r23;
    bra END;
  EVEN:
    cvt.u64.u32 %rd20, %r0; add.u64 %rd21, %rd20, 1; add.u64 %rd22, %rd20, 2;
    bar.warp.sync 0xffffffff;
    add.u64 %rd20, %rd20, %rd21; add.u64 %rd20, %rd20, %rd22; cvt.u32.u64 %r2, %rd20;
  END: st.global.u32 [%rd10], %r2;)")))
      << error_;
  std::vector<uint32_t> out(32);
  ASSERT_EQ(launch({1}, {32}, {share(out)}), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? 3 * i + 3 : 4 * i + 10) << i;
}

}  // namespace
}  // namespace sluice::exec
