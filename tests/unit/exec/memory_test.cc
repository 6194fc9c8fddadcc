// SPDX-License-Identifier: Apache-2.0
// Memory of kernels/exec: spaces, access patterns, faults, module variables, what loads report.
#include "tests/unit/exec/harness.h"

#include <sys/mman.h>

#include <atomic>
#include <thread>

namespace sluice::exec {
namespace {

class ExecMemory : public ExecTest {
 protected:
  // Runs `body` in one block of 64 threads, expecting a fault.
  Fault fault_of(const std::string& body, const std::vector<uint64_t>& values,
                 uint32_t dynamic_shared = 0) {
    EXPECT_TRUE(load(kernel(std::string(kIndex) + body))) << error_;
    EXPECT_EQ(launch({1}, {64}, values, dynamic_shared), RunState::kFault);
    return fault_;
  }
};

TEST_F(ExecMemory, PatternsOfAddresses) {
  // Contiguous, uniform, strided, reversed and permuted loads and stores, whole and partial warps.
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    ld.global.u32 %r4, [%rd10];
    ld.global.u32 %r5, [%rd0+12];
    sub.u32 %r6, 63, %r0; mul.wide.u32 %rd11, %r6, 4; add.s64 %rd11, %rd0, %rd11;
    ld.global.u32 %r7, [%rd11];
    mul.lo.u32 %r8, %r0, 7; and.b32 %r8, %r8, 63; mul.wide.u32 %rd12, %r8, 4;
    add.s64 %rd12, %rd0, %rd12;
    and.b32 %r10, %r0, 3; setp.ne.u32 %p1, %r10, 0;
    mov.u32 %r9, 0; @%p1 ld.global.u32 %r9, [%rd12];
    add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r7; add.u32 %r4, %r4, %r9;
    add.s64 %rd13, %rd1, %rd9; st.global.u32 [%rd13], %r4;
    mul.wide.u32 %rd14, %r8, 4; add.s64 %rd14, %rd2, %rd14; @%p1 st.global.u32 [%rd14], %r0;)")))
      << error_;
  std::vector<uint32_t> in(64), sum(64), scattered(64, 7777);
  for (uint32_t i = 0; i < 64; ++i) in[i] = i * i + 1;
  ASSERT_EQ(launch({1}, {64}, {share(in), share(sum), share(scattered)}), RunState::kDone)
      << fault_.describe();
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(sum[i], in[i] + in[3] + in[63 - i] + (i % 4 != 0 ? in[i * 7 % 64] : 0));
    EXPECT_EQ(scattered[i * 7 % 64], i % 4 != 0 ? i : 7777u);
  }
}

// A thread of the host as another SM: at 32 slots of 16 bytes each, whose halves are always equal.
class OtherSide {
 public:
  explicit OtherSide(bool writes) : thread_([this, writes] { writes ? write() : read(); }) {}
  ~OtherSide() { end(); }
  uint64_t end() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
    return torn_;
  }
  uint64_t address() { return reinterpret_cast<uint64_t>(slots_); }
  static constexpr uint64_t kBytes = 32 * 16;

 private:
  using Slot = long long __attribute__((vector_size(16)));
  void write() {
    for (long long n = 1; !over_; ++n)
      for (Slot& slot : slots_) asm volatile("movdqa %1, %0" : "=m"(slot) : "x"(Slot{n, n}));
  }
  void read() {
    while (!over_)
      for (Slot& slot : slots_) {
        Slot seen;
        asm volatile("movdqa %1, %0" : "=x"(seen) : "m"(slot));
        torn_ += seen[0] != seen[1];
      }
  }
  Slot slots_[32] = {};
  std::atomic<bool> over_{false};
  uint64_t torn_ = 0;
  std::thread thread_;
};

// As on a GPU: programs keep a value and its flag in one vector (CUB's look-back).
TEST_F(ExecMemory, VectorsThatAreNotCachedAreReadAndWrittenAtOnce) {
  for (const char* order : {"relaxed.gpu.global", "volatile.global", "global.cg"}) {
    SCOPED_TRACE(order);
    const std::string begin =
        "mov.u32 %r0, %tid.x;\nmul.wide.u32 %rd11, %r0, 16;\nadd.s64 %rd10, %rd0, %rd11;\n"
        "mov.u64 %rd20, 0;\nmov.u64 %rd21, 0;\nL:\nadd.u64 %rd20, %rd20, 1;\n";
    const std::string end = "setp.lt.u64 %p1, %rd20, 20000;\n@%p1 bra L;\n";
    const std::string op = std::string(order) + ".v2.u64 ";
    ASSERT_TRUE(load(kernel(begin + "ld." + op + "{%rd12, %rd13}, [%rd10];\n" +
                            "setp.ne.u64 %p2, %rd12, %rd13;\n@%p2 add.u64 %rd21, %rd21, 1;\n" +
                            end + "red.global.add.u64 [%rd1], %rd21;")))
        << error_;
    std::vector<uint64_t> torn(1);
    {
      OtherSide writer(true);
      ASSERT_TRUE(map_.add(writer.address(), OtherSide::kBytes));
      ASSERT_EQ(launch({1}, {32}, {writer.address(), share(torn)}), RunState::kDone)
          << fault_.describe();
      EXPECT_TRUE(map_.remove(writer.address()));
    }
    EXPECT_EQ(torn[0], 0u) << "loads";
    EXPECT_TRUE(map_.remove(reinterpret_cast<uint64_t>(torn.data())));
    ASSERT_TRUE(load(kernel(begin + "st." + op + "[%rd10], {%rd20, %rd20};\n" + end))) << error_;
    OtherSide reader(false);
    ASSERT_TRUE(map_.add(reader.address(), OtherSide::kBytes));
    ASSERT_EQ(launch({1}, {32}, {reader.address()}), RunState::kDone) << fault_.describe();
    EXPECT_EQ(reader.end(), 0u) << "stores";
    EXPECT_TRUE(map_.remove(reader.address()));
  }
}

TEST_F(ExecMemory, Vectors) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    mul.wide.u32 %rd11, %r0, 16; add.s64 %rd12, %rd0, %rd11; add.s64 %rd13, %rd1, %rd11;
    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd12];
    st.global.v4.u32 [%rd13], {%r7, %r6, %r5, %r4};
    ld.global.v2.u64 {%rd14, %rd15}, [%rd12];
    add.s64 %rd16, %rd2, %rd11; st.global.v2.b64 [%rd16], {%rd15, %rd14};)")))
      << error_;
  alignas(16) static uint32_t in[128], out[128], swapped[128];
  for (uint32_t i = 0; i < 128; ++i) in[i] = i * 3;
  for (uint32_t* p : {in, out, swapped}) ASSERT_TRUE(map_.add(reinterpret_cast<uint64_t>(p), 512));
  ASSERT_EQ(launch({1}, {32},
                   {reinterpret_cast<uint64_t>(in), reinterpret_cast<uint64_t>(out),
                    reinterpret_cast<uint64_t>(swapped)}),
            RunState::kDone)
      << fault_.describe();
  for (uint32_t i = 0; i < 128; ++i) {
    EXPECT_EQ(out[i], in[i / 4 * 4 + 3 - i % 4]);
    EXPECT_EQ(swapped[i], in[i ^ 2]);
  }
}

TEST_F(ExecMemory, SharedLocalGenericAndDynamic) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    .shared .align 8 .b8 fixed[100];
    .local .align 8 .b8 mine[64];
    mov.u64 %rd20, fixed; cvta.shared.u64 %rd21, %rd20;
    mov.u64 %rd22, dyn; cvta.shared.u64 %rd23, %rd22;
    setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [fixed+96], 55;
    add.s64 %rd24, %rd23, %rd9; st.u32 [%rd24], %r0;
    mov.u64 %rd25, mine; cvta.local.u64 %rd26, %rd25; and.b32 %r5, %r0, 7;
    mul.wide.u32 %rd27, %r5, 8; add.s64 %rd28, %rd26, %rd27;
    mul.lo.u32 %r6, %r0, 1000; cvt.u64.u32 %rd29, %r6; st.u64 [%rd28], %rd29;
    bar.sync 0;
    add.s64 %rd30, %rd25, %rd27; ld.local.u32 %r7, [%rd30];
    ld.u32 %r8, [%rd21+96];
    xor.b32 %r9, %r0, 1; mul.wide.u32 %rd31, %r9, 4; add.s64 %rd32, %rd23, %rd31;
    ld.u32 %r10, [%rd32];
    cvta.to.shared.u64 %rd33, %rd32; ld.shared.u32 %r11, [%rd33];
    isspacep.shared %p2, %rd32; isspacep.global %p3, %rd10; isspacep.local %p4, %rd28;
    isspacep.global %p5, %rd28;
    selp.u32 %r12, 1, 0, %p2; selp.u32 %r13, 2, 0, %p3; selp.u32 %r14, 4, 0, %p4;
    selp.u32 %r15, 8, 0, %p5;
    add.u32 %r12, %r12, %r13; add.u32 %r12, %r12, %r14; add.u32 %r12, %r12, %r15;
    mov.u32 %r16, %dynamic_smem_size; mov.u32 %r17, %total_smem_size;
    mul.wide.u32 %rd34, %r0, 28; add.s64 %rd34, %rd0, %rd34;
    st.global.u32 [%rd34], %r7; st.global.u32 [%rd34+4], %r8; st.global.u32 [%rd34+8], %r10;
    st.global.u32 [%rd34+12], %r11;
    st.global.u32 [%rd34+16], %r12; st.global.u32 [%rd34+20], %r16;
    st.global.u32 [%rd34+24], %r17;)",
                          ".extern .shared .align 16 .b8 dyn[];")))
      << error_;
  EXPECT_EQ(program_->entries()[0].static_shared_bytes, 100u);
  EXPECT_EQ(program_->entries()[0].local_bytes, 64u);
  std::vector<uint32_t> out(64 * 7);
  ASSERT_EQ(launch({1}, {64}, {share(out)}, 256), RunState::kDone) << fault_.describe();
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i * 7], i * 1000);
    EXPECT_EQ(out[i * 7 + 1], 55u);
    EXPECT_EQ(out[i * 7 + 2], i ^ 1);
    EXPECT_EQ(out[i * 7 + 3], i ^ 1);
    EXPECT_EQ(out[i * 7 + 4], 7u);
    EXPECT_EQ(out[i * 7 + 5], 256u);
    EXPECT_EQ(out[i * 7 + 6], 384u);  // 112 + 256, in units of 128
  }
}

TEST_F(ExecMemory, ModuleVariablesAndTheirPointers) {
  ASSERT_TRUE(load(kernel(R"(
    ld.const.u32 %r4, [table+8];
    ld.global.u64 %rd11, [pointers+8]; ld.u32 %r5, [%rd11];
    mov.u64 %rd12, matrix; ld.global.u16 %rs1, [%rd12+10]; cvt.u32.u16 %r6, %rs1;
    ld.global.f32 %f1, [pi]; cvt.rni.s32.f32 %r7, %f1;
    st.global.u32 [counter], 9; ld.global.u32 %r8, [counter];
    st.global.u32 [%rd0], %r4; st.global.u32 [%rd0+4], %r5; st.global.u32 [%rd0+8], %r6;
    st.global.u32 [%rd0+12], %r7; st.global.u32 [%rd0+16], %r8;)",
                          R"(
.const .align 4 .u32 table[4] = {1, 0x2, 33, 0};
.global .align 8 .u64 pointers[2] = {generic(table), generic(table)+4};
.global .align 2 .b16 matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
.global .f32 pi = 0f40490FDB;
.visible .global .align 4 .u32 counter;)")))
      << error_;
  const auto symbol = [&](std::string_view name) {
    const auto symbols = program_->symbols();
    return std::find_if(symbols.begin(), symbols.end(),
                        [&](const SymbolInfo& s) { return s.name == name; });
  };
  ASSERT_NE(symbol("counter"), program_->symbols().end());
  EXPECT_EQ(symbol("counter")->bytes, 4u);
  EXPECT_EQ(symbol("table")->space, SymbolSpace::kConst);
  std::vector<uint32_t> out(5);
  ASSERT_EQ(launch({1}, {1}, {share(out)}), RunState::kDone) << fault_.describe();
  EXPECT_EQ(out, (std::vector<uint32_t>{33, 2, 6, 3, 9}));
}

TEST_F(ExecMemory, AsyncCopies) {
  ASSERT_TRUE(load(kernel(std::string(kIndex) + R"(
    .shared .align 16 .b8 tile[1024];
    mov.u32 %r4, tile; shl.b32 %r5, %r0, 4; add.u32 %r4, %r4, %r5; mul.wide.u32 %rd11, %r0, 16;
    add.s64 %rd11, %rd0, %rd11;
    and.b32 %r6, %r0, 1; shl.b32 %r6, %r6, 3;
    cp.async.cg.shared.global [%r4], [%rd11], 16, %r6;
    cp.async.commit_group; cp.async.wait_group 0;
    ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [%r4];
    mul.wide.u32 %rd12, %r0, 16; add.s64 %rd12, %rd1, %rd12;
    st.global.v4.u32 [%rd12], {%r7, %r8, %r9, %r10};)")))
      << error_;
  alignas(16) static uint32_t in[256], out[256];
  for (uint32_t i = 0; i < 256; ++i) in[i] = i + 1;
  ASSERT_TRUE(map_.add(reinterpret_cast<uint64_t>(in), sizeof(in)));
  ASSERT_TRUE(map_.add(reinterpret_cast<uint64_t>(out), sizeof(out)));
  ASSERT_EQ(launch({1}, {64}, {reinterpret_cast<uint64_t>(in), reinterpret_cast<uint64_t>(out)}),
            RunState::kDone)
      << fault_.describe();
  for (uint32_t i = 0; i < 256; ++i) EXPECT_EQ(out[i], i / 4 % 2 == 1 && i % 4 < 2 ? in[i] : 0u);
}

TEST_F(ExecMemory, OutOfBoundsSaysWhoAndWhere) {
  std::vector<uint32_t> memory(40);
  const uint64_t base = share(memory);
  const Fault fault = fault_of("st.global.u32 [%rd10], %r0;", {base});
  EXPECT_EQ(fault.kind, FaultKind::kOutOfBounds);
  EXPECT_EQ(fault.thread.x, 40u);
  EXPECT_EQ(fault.address, base + 160);
  EXPECT_EQ(fault.bytes, 4u);
  EXPECT_EQ(fault.kernel, "k");
  EXPECT_NE(fault.describe().find("thread (40,0,0)"), std::string::npos) << fault.describe();
}

TEST_F(ExecMemory, NullAndWildPointers) {
  for (const uint64_t address :
       {uint64_t{0}, uint64_t{8}, ~uint64_t{0} - 3, uint64_t{0x7fffffffff00},
        kSharedWindow + (1 << 20), kLocalWindow, kCodeWindow, uint64_t{1} << 63}) {
    EXPECT_EQ(fault_of("ld.global.u32 %r4, [%rd0];", {address}).kind, FaultKind::kOutOfBounds)
        << address;
    const Fault generic = fault_of("ld.u32 %r4, [%rd0];", {address});
    EXPECT_NE(generic.kind, FaultKind::kNone);
    const Fault atomic = fault_of("atom.add.u32 %r4, [%rd0], 1;", {address});
    EXPECT_NE(atomic.kind, FaultKind::kNone);
    const Fault vector = fault_of("st.v4.u32 [%rd0], {%r4, %r4, %r4, %r4};", {address});
    EXPECT_NE(vector.kind, FaultKind::kNone);
  }
}

TEST_F(ExecMemory, Misaligned) {
  std::vector<uint64_t> memory(1000);
  const uint64_t base = share(memory);
  Fault fault = fault_of("ld.global.u32 %r4, [%rd10+2];", {base});
  EXPECT_EQ(fault.kind, FaultKind::kMisaligned);
  EXPECT_EQ(fault.address, base + 2);
  fault = fault_of("ld.global.v2.u32 {%r4, %r5}, [%rd10];", {base});
  EXPECT_EQ(fault.kind, FaultKind::kMisaligned);
  EXPECT_EQ(fault.thread.x, 1u);
  EXPECT_EQ(fault_of("atom.global.add.u64 %rd11, [%rd0+4], 1;", {base}).kind,
            FaultKind::kMisaligned);
}

TEST_F(ExecMemory, ReadOnlyRanges) {
  alignas(8) static uint32_t page[64];
  ASSERT_TRUE(map_.add(reinterpret_cast<uint64_t>(page), sizeof(page), false));
  EXPECT_EQ(fault_of("ld.global.u32 %r4, [%rd10]; st.global.u32 [%rd10], %r4;",
                     {reinterpret_cast<uint64_t>(page)})
                .kind,
            FaultKind::kReadOnly);
  EXPECT_EQ(fault_of("red.add.u32 [%rd10], 1;", {reinterpret_cast<uint64_t>(page)}).kind,
            FaultKind::kReadOnly);
}

TEST_F(ExecMemory, SharedLocalAndParameterBounds) {
  EXPECT_EQ(fault_of(".shared .align 4 .b8 s[100];\nmov.u32 %r4, s; shl.b32 %r5, %r0, 2; add.u32 "
                     "%r4, %r4, %r5; st.shared.u32 [%r4], 1;",
                     {})
                .kind,
            FaultKind::kSharedBounds);
  EXPECT_EQ(fault_.thread.x, 25u);
  EXPECT_EQ(fault_of(".local .align 4 .b8 l[32];\nmov.u64 %rd11, l; add.s64 %rd11, %rd11, %rd9; "
                     "st.local.u32 [%rd11], 1;",
                     {})
                .kind,
            FaultKind::kLocalBounds);
  EXPECT_EQ(fault_of("ld.param.u32 %r4, [p5+8];", {}).kind, FaultKind::kOutOfBounds);
  // A lane's local memory is its own, however the address was made.
  EXPECT_EQ(fault_of(".local .align 4 .b8 l[32];\nld.local.u32 %r4, [l+-4];", {}).kind,
            FaultKind::kLocalBounds);
}

TEST_F(ExecMemory, FreedMemoryFaultsInARunningBlock) {
  ASSERT_TRUE(
      load(kernel("L: ld.volatile.global.u32 %r4, [%rd0];\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bra L;")))
      << error_;
  std::vector<uint32_t> flag(1);
  const uint64_t base = share(flag);
  LaunchShape shape;
  shape.block = {32};
  auto block = Block::make(image_, "k", shape, parameters({base}), map_, environment_);
  ASSERT_TRUE(block.ok());
  (*block)->start({0, 0, 0}, {});
  EXPECT_EQ((*block)->run(1000).state, RunState::kYielded);
  EXPECT_TRUE(map_.remove(base));
  EXPECT_EQ((*block)->run(1000).state, RunState::kFault);
  EXPECT_EQ((*block)->fault().kind, FaultKind::kOutOfBounds);
  EXPECT_EQ((*block)->run(1000).state, RunState::kFault) << "and stays faulted";
}

TEST_F(ExecMemory, VolatileLoadsSeeWhatAnotherProcessWrites) {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* word = static_cast<uint64_t*>(page);
  ASSERT_TRUE(map_.add(reinterpret_cast<uint64_t>(page), 4096));
  ASSERT_TRUE(
      load(kernel("L: ld.relaxed.sys.global.u64 %rd11, [%rd0];\nsetp.eq.u64 %p1, %rd11, 0;\n@%p1 "
                  "bra L;\nst.release.sys.global.u64 [%rd0+8], %rd11;")))
      << error_;
  const pid_t child = ::fork();
  if (child == 0) {
    ::usleep(20'000);
    __atomic_store_n(word, 0x1234'5678'9abcull, __ATOMIC_RELEASE);
    ::_exit(0);
  }
  LaunchShape shape;
  shape.block = {32};
  auto block = Block::make(image_, "k", shape, parameters({reinterpret_cast<uint64_t>(page)}), map_,
                           environment_);
  (*block)->start({0, 0, 0}, {});
  while ((*block)->run(1000).state == RunState::kYielded) {
  }
  EXPECT_EQ(__atomic_load_n(word + 1, __ATOMIC_ACQUIRE), 0x1234'5678'9abcull);
  EXPECT_TRUE(map_.remove(reinterpret_cast<uint64_t>(page)));
  ::munmap(page, 4096);
}

TEST_F(ExecMemory, MapRefusesOverlapsAndFindsRanges) {
  MemoryMap map;
  EXPECT_TRUE(map.add(1000, 100));
  EXPECT_TRUE(map.add(1100, 50, false));
  EXPECT_FALSE(map.add(1050, 10));
  EXPECT_FALSE(map.add(990, 11));
  EXPECT_FALSE(map.add(500, 5000));
  EXPECT_FALSE(map.add(5000, 0));
  EXPECT_FALSE(map.add(~uint64_t{0} - 5, 100));
  EXPECT_EQ(map.find(1000, 100).bytes, 100u);
  EXPECT_EQ(map.find(1001, 100).bytes, 0u) << "an access may not span two ranges";
  EXPECT_EQ(map.find(1149, 1).base, 1100u);
  EXPECT_FALSE(map.find(1149, 1).writable);
  EXPECT_EQ(map.find(1150, 1).bytes, 0u);
  EXPECT_EQ(map.find(999, 1).bytes, 0u);
  EXPECT_FALSE(map.remove(1001));
  EXPECT_TRUE(map.remove(1000));
  EXPECT_EQ(map.find(1000, 1).bytes, 0u);
}

// As on a GPU, where a call saves what is live: not the sum of all functions.
TEST_F(ExecMemory, AKernelThatCallsNeedsTheRegistersOfItsWidestFunction) {
  std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n";
  std::string calls;
  constexpr int kFunctions = 12, kValues = 40;
  for (int f = 0; f < kFunctions; ++f) {
    const std::string name = "f" + std::to_string(f);
    text += ".func " + name + "(.param .u64 at) { .reg .b64 %a; .reg .b32 %v<" +
            std::to_string(kValues) + ">; ld.param.u64 %a, [at];\n";
    for (const char* way : {"ld.global.u32 %vK, [%a+O];\n", "st.global.u32 [%a+O], %vK;\n"})
      for (int v = 0; v < kValues; ++v) {
        std::string line = way;
        line.replace(line.find('K'), 1, std::to_string(v));
        line.replace(line.find('O'), 1, std::to_string(4 * v));
        text += line;
      }
    text += "ret; }\n";
    calls += "{ .param .b64 p; st.param.b64 [p], %a; call " + name + ", (p); }\n";
  }
  text += ".visible .entry calls(.param .u64 at) { .reg .b64 %a; ld.param.u64 %a, [at];\n" + calls +
          "ret; }\n.visible .entry alone() { ret; }\n";
  ASSERT_TRUE(load(text)) << error_;
  const uint32_t registers = program_->find_entry("calls")->registers;
  EXPECT_GE(registers, static_cast<uint32_t>(kValues));
  EXPECT_LE(registers, 64u) << "a block of 1024 threads could not be launched";
  EXPECT_EQ(program_->find_entry("alone")->registers, 16u);
}

TEST_F(ExecMemory, EntriesTellWhatALauncherNeeds) {
  ASSERT_TRUE(load(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry first(.param .u32 a, .param .align 8 .b8 b[24], .param .u8 c) .maxntid 128, 2,
1 { .shared .align 16 .b8 s[48]; ret; }
.visible .entry second() .reqntid 32 { ret; }
)")) << error_;
  const EntryInfo* first = program_->find_entry("first");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->param_bytes, 33u);
  EXPECT_EQ(first->params[1].offset, 8u);
  EXPECT_EQ(first->params[2].offset, 32u);
  EXPECT_EQ(first->max_threads, 256u);
  EXPECT_EQ(first->static_shared_bytes, 48u);
  EXPECT_GE(first->registers, 16u);
  const EntryInfo* second = program_->find_entry("second");
  EXPECT_EQ(second->required_block[0], 32u);
  EXPECT_EQ(second->param_bytes, 0u);
  EXPECT_EQ(program_->find_entry("third"), nullptr);
  LaunchShape shape;
  shape.block = {32};
  EXPECT_TRUE(Block::make(image_, "second", shape, {}, map_, environment_).ok());
  shape.block = {16, 2};
  EXPECT_FALSE(Block::make(image_, "second", shape, {}, map_, environment_).ok());
}

// The toolkit's own code (tiles of several warps) keeps words there, in blocks without any
// variable, too: 1 KiB that is nobody else's.
TEST_F(ExecMemory, ReservedSharedMemory) {
  const std::string text =
      kernel(std::string(kIndex) +
             "mov.u32 %r4, %reserved_smem_offset_1;\nmov.u32 %r5, %reserved_smem_offset_end;\n"
             "mov.u32 %r6, %reserved_smem_offset_begin;\nsub.u32 %r6, %r5, %r6;\n"
             "sub.u32 %r5, %r5, %r4;\ncvt.u64.u32 %rd1, %r4;\ncvta.shared.u64 %rd1, %rd1;\n"
             "setp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.u32 [%r4], 7;\nbar.sync 0;\n"
             "red.add.u32 [%rd1], 1;\nbar.sync 0;\nld.shared.u32 %r7, [%r4];\n"
             "st.global.u32 [%rd10], %r7;\n"
             "@%p0 st.global.u32 [%rd0+1024], %r5;\n@%p0 st.global.u32 [%rd0+1028], %r6;\n");
  ASSERT_TRUE(load(text)) << error_;
  std::vector<uint32_t> out(258);
  ASSERT_EQ(launch({2}, {96}, {share(out)}), RunState::kDone) << fault_.describe();
  for (int i = 0; i < 192; ++i) EXPECT_EQ(out[i], 103u) << i;
  EXPECT_GE(out[256], 288u) << "what the toolkit wants";
  EXPECT_EQ(out[257], 1024u);
}

TEST_F(ExecMemory, LaunchesOutOfRangeAreErrors) {
  ASSERT_TRUE(load(kernel(""))) << error_;
  const auto refused = [this](Dim3 grid, Dim3 block, uint32_t shared, size_t bytes) {
    LaunchShape shape;
    shape.grid = grid;
    shape.block = block;
    shape.dynamic_shared_bytes = shared;
    return !Block::make(image_, "k", shape, std::vector<std::byte>(bytes), map_, environment_).ok();
  };
  EXPECT_FALSE(refused({1}, {1024}, 0, 48));
  EXPECT_TRUE(refused({1}, {1025}, 0, 48));
  EXPECT_TRUE(refused({1}, {32, 32, 2}, 0, 48));
  EXPECT_TRUE(refused({1}, {0}, 0, 48));
  EXPECT_TRUE(refused({0}, {1}, 0, 48));
  EXPECT_TRUE(refused({1, 70000}, {1}, 0, 48));
  EXPECT_TRUE(refused({1}, {1}, kMaxSharedBytes + 1, 48));
  EXPECT_TRUE(refused({1}, {1}, 0xffffffffu, 48));
  EXPECT_TRUE(refused({1}, {1}, 0, 40));
}

}  // namespace
}  // namespace sluice::exec
