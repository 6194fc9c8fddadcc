// SPDX-License-Identifier: Apache-2.0
// The software GPU's driver API: what a kernel takes of an SM and what follows from it, priorities,
// cooperative launches, managed memory, preemption from inside the program.
#include <dlfcn.h>

#include <cstring>

#include "abi/cuda_graph.h"
#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

// Kernels that keep `live` values alive at once, so that they need as many registers.
std::string kernel_with(const std::string& name, int live, const std::string& directives) {
  std::string text = ".visible .entry " + name + "(.param .u64 out)\n" + directives +
                     "\n{\n .reg .b32 %r<" + std::to_string(live + 1) +
                     ">;\n .reg .b64 %rd;\n ld.param.u64 %rd, [out];\n";
  for (int i = 0; i < live; ++i)
    text += " ld.volatile.global.u32 %r" + std::to_string(i) + ", [%rd+" + std::to_string(4 * i) +
            "];\n";
  for (int i = 1; i < live; ++i) text += " xor.b32 %r0, %r0, %r" + std::to_string(i) + ";\n";
  return text + " st.global.u32 [%rd], %r0;\n ret;\n}\n";
}

class SoftGpuResources : public SoftGpuTest {
 protected:
  CUfunction load(const std::string& name, int live, const std::string& directives = "") {
    const std::string text =
        ".version 8.0\n.target sm_80\n.address_size 64\n" + kernel_with(name, live, directives);
    CUmodule module = nullptr;
    CUfunction f = nullptr;
    EXPECT_EQ(api.cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
    EXPECT_EQ(api.cuModuleGetFunction(&f, module, name.c_str()), CUDA_SUCCESS);
    return f;
  }
  int attribute(CUfunction_attribute which, CUfunction f) {
    int value = -1;
    EXPECT_EQ(api.cuFuncGetAttribute(&value, which, f), CUDA_SUCCESS);
    return value;
  }
  int registers(CUfunction f) { return attribute(CU_FUNC_ATTRIBUTE_NUM_REGS, f); }
  int resident(CUfunction f, int threads, size_t shared = 0) {
    int blocks = -1;
    EXPECT_EQ(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads, shared),
              CUDA_SUCCESS);
    return blocks;
  }
};

TEST_F(SoftGpuResources, RegistersFollowWhatLivesAtOnce) {
  const int few = registers(load("few", 4)), some = registers(load("some", 60)),
            many = registers(load("many", 200));
  EXPECT_LT(few, 32);
  EXPECT_GE(some, 60);
  EXPECT_LT(some, 90);
  EXPECT_GE(many, 200);
  EXPECT_LE(many, 255);
}

TEST_F(SoftGpuResources, DirectivesBoundRegisters) {
  EXPECT_LE(registers(load("maxnreg", 60, ".maxnreg 40")), 40);
  EXPECT_LE(registers(load("maxntid", 200, ".maxntid 1024, 1, 1")), 64);
  EXPECT_LE(registers(load("minncta", 200, ".maxntid 256, 1, 1\n.minnctapersm 4")), 64);
  CUfunction f = load("both", 200, ".maxntid 256, 1, 1\n.minnctapersm 4");
  EXPECT_EQ(resident(f, 256), 4) << "that is what it asks for";
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f), 256);
}

TEST_F(SoftGpuResources, ABlockThatDoesNotFitIsOutOfResources) {
  CUfunction f = load("wide", 200);
  CUdeviceptr out = allocate(4096);
  void* arguments[] = {&out};
  EXPECT_EQ(resident(f, 1024), 0);
  FAILS(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        api.cuLaunchKernel(f, 1, 1, 1, 1024, 1, 1, 0, nullptr, arguments, nullptr));
  const int most = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f);
  EXPECT_LT(most, 1024);
  EXPECT_GE(resident(f, most), 1);
  OK(api.cuLaunchKernel(f, 1, 1, 1, static_cast<unsigned>(most), 1, 1, 0, nullptr, arguments,
                        nullptr));
  OK(api.cuCtxSynchronize());
}

TEST_F(SoftGpuResources, OccupancyCallsAgreeWithOneAnother) {
  CUfunction f = kernel("shared");
  for (int blocks = 1; blocks <= 4; ++blocks) {
    size_t bytes = 0;
    OK(api.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024));
    OK(api.cuOccupancyAvailableDynamicSMemPerBlock(&bytes, f, blocks, 128));
    EXPECT_GE(resident(f, 128, bytes), blocks);
    if (bytes < 227 * 1024) {
      EXPECT_LT(resident(f, 128, bytes + 128), blocks);
    }
  }
  int grid = 0, block = 0;
  OK(api.cuOccupancyMaxPotentialBlockSize(&grid, &block, f, nullptr, 0, 0));
  EXPECT_EQ(grid, resident(f, block) * 4) << "4 SMs";
  for (int other = 32; other <= 1024; other += 32)
    EXPECT_LE(resident(f, other) * other, resident(f, block) * block);
}

TEST_F(SoftGpuResources, TheBestBlockIsNoLargerThanTheKernelAllows) {
  const auto best = [this](CUfunction f, int limit) {
    int grid = 0, block = 0;
    EXPECT_EQ(api.cuOccupancyMaxPotentialBlockSize(&grid, &block, f, nullptr, 0, limit),
              CUDA_SUCCESS);
    EXPECT_EQ(grid, resident(f, block) * 4);
    return block;
  };
  CUfunction one = load("one", 4, ".maxntid 1, 1, 1"), fifty = load("fifty", 4, ".maxntid 50");
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, one), 1);
  EXPECT_EQ(best(one, 0), 1);
  EXPECT_EQ(best(fifty, 0), 50);
  EXPECT_EQ(best(fifty, 40), 40);
  EXPECT_EQ(best(load("any", 4), 20), 20);
}

TEST_F(SoftGpuResources, ABlockOfAnotherShapeThanRequiredIsRefused) {
  CUdeviceptr out = allocate(4096);
  void* arguments[] = {&out};
  const auto run = [&](CUfunction f, unsigned x, unsigned y) {
    return api.cuLaunchKernel(f, 1, 1, 1, x, y, 1, 0, nullptr, arguments, nullptr);
  };
  CUfunction one = load("one", 4, ".reqntid 1, 1, 1"), row = load("row", 4, ".reqntid 64, 2");
  OK(run(one, 1, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, run(one, 2, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, run(one, 32, 1));
  OK(run(row, 64, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, run(row, 64, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, run(row, 128, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, run(row, 2, 64));
  OK(api.cuCtxSynchronize());
}

TEST_F(SoftGpuResources, CooperativeGridsMustFit) {
  CUdeviceptr out = allocate(4096);
  void* arguments[] = {&out};
  CUfunction f = kernel("where");
  OK(api.cuLaunchCooperativeKernel(f, 16, 1, 1, 32, 1, 1, 0, nullptr, arguments));
  FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        api.cuLaunchCooperativeKernel(f, 17, 1, 1, 32, 1, 1, 0, nullptr, arguments));
  OK(api.cuCtxSynchronize());
}

// What cooperative groups' grid.sync() does: blocks meet at a counter whose place %envreg tells.
TEST_F(SoftGpuResources, BlocksOfACooperativeGridMeet) {
  CUmodule module;
  CUfunction f;
  OK(api.cuModuleLoadData(&module, R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry meet(.param .u64 out) {
  .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %p<3>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2;
  mov.b64 %d2, {%r2, %r1};
  mov.u32 %r3, %nctaid.x; mov.u32 %r4, %ctaid.x;
  mul.wide.u32 %d3, %r4, 4; add.u64 %d3, %d1, %d3;
  mov.u32 %r5, 7777;
  setp.eq.u64 %p1, %d2, 0;
  @%p1 bra END;
  atom.global.add.u32 %r6, [%d2+4], 1;
AGAIN:
  ld.acquire.gpu.u32 %r5, [%d2+4];
  setp.lt.u32 %p2, %r5, %r3;
  @%p2 bra AGAIN;
END:
  st.global.u32 [%d3], %r5;
  ret;
})"));
  OK(api.cuModuleGetFunction(&f, module, "meet"));
  CUdeviceptr out = allocate(64);
  void* arguments[] = {&out};
  size_t before = 0, after = 0, total = 0;
  OK(api.cuMemGetInfo(&before, &total));
  uint32_t seen[16];
  for (int launch = 0; launch < 3; ++launch) {
    OK(api.cuMemsetD32(out, 0, 16));
    OK(api.cuLaunchCooperativeKernel(f, 16, 1, 1, 1, 1, 1, 0, nullptr, arguments));
    OK(api.cuMemcpyDtoH(seen, out, sizeof seen));
    for (uint32_t value : seen)
      EXPECT_EQ(value, 16u) << "launch " << launch << " begins at 0, and nobody is missing";
  }
  OK(api.cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  OK(api.cuLaunchKernel(f, 16, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  OK(api.cuMemcpyDtoH(seen, out, sizeof seen));
  EXPECT_EQ(seen[0], 7777u) << "other launches have no such place";
}

TEST_F(SoftGpuResources, TheMoreUrgentStreamsBlocksStartFirst) {
  int least = 1, greatest = 1;
  OK(api.cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_LT(greatest, 0);
  CUstream low, high;
  OK(api.cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, 100));
  OK(api.cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, greatest));
  int priority = 1;
  OK(api.cuStreamGetPriority(low, &priority));
  EXPECT_EQ(priority, least);
  // 15 of 16 places are taken for good, the last one until `one` is stored.
  uint32_t* all = pinned_word();
  uint32_t* one = pinned_word();
  CUstream first = stream(), second = stream();
  OK(launch("spin", 15, 32, first, address(all)));
  OK(launch("spin", 1, 32, second, address(one)));
  CUdeviceptr log = allocate(64);
  OK(api.cuMemsetD32Async(log, 0, 16, high));
  OK(api.cuStreamSynchronize(high));
  for (uint32_t i = 1; i <= 3; ++i) OK(launch("append", 1, 32, low, log, i));
  OK(launch("append", 1, 32, high, log, uint32_t{10}));
  store_word(one, 1);
  OK(api.cuStreamSynchronize(high));
  OK(api.cuStreamSynchronize(low));
  store_word(all, 1);
  OK(api.cuCtxSynchronize());
  const std::vector<uint32_t> order = read(log, 5);
  EXPECT_EQ(order[0], 4u);
  EXPECT_EQ(order[1], 10u);
}

TEST_F(SoftGpuResources, ManagedMemoryIsEverybodys) {
  CUdeviceptr p = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, api.cuMemAllocManaged(&p, 4096, 7));
  OK(api.cuMemAllocManaged(&p, 4096, 1));
  auto* words = reinterpret_cast<uint32_t*>(p);
  std::memset(words, 0, 4096);
  words[3] = 5;
  OK(launch("add", 4, 256, nullptr, uint8_t{7}, p, uint16_t{0}, uint32_t{1024}));
  OK(api.cuCtxSynchronize());
  EXPECT_EQ(words[3], 12u);
  EXPECT_EQ(words[1023], 7u);
  unsigned managed = 0;
  void* host = nullptr;
  OK(api.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 8));
  OK(api.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p + 8));
  EXPECT_EQ(managed, 1u);
  EXPECT_EQ(host, words + 2);
  OK(api.cuMemFree(p));
  CUdeviceptr plain = allocate(64);
  OK(api.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
  EXPECT_EQ(managed, 0u);
}

TEST_F(SoftGpuResources, ManagedVariablesAreManagedMemory) {
  CUmodule module = nullptr;
  OK(api.cuModuleLoadData(&module,
                          ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .global .attribute(.managed) .align 4 .u32 both = 5;\n"
                          ".visible .global .align 4 .u32 device = 6;\n"));
  CUdeviceptr both = 0, device = 0;
  size_t bytes = 0;
  OK(api.cuModuleGetGlobal_v2(&both, &bytes, module, "both"));
  OK(api.cuModuleGetGlobal_v2(&device, &bytes, module, "device"));
  unsigned managed = 0;
  void* host = nullptr;
  OK(api.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, both));
  OK(api.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, both));
  EXPECT_EQ(managed, 1u);
  EXPECT_EQ(host, reinterpret_cast<void*>(both));
  EXPECT_EQ(*static_cast<uint32_t*>(host), 5u);
  OK(api.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, device));
  EXPECT_EQ(managed, 0u);
  OK(api.cuModuleUnload(module));
}

TEST_F(SoftGpuResources, StreamsHaveAttributes) {
  const auto set = reinterpret_cast<decltype(&::cuStreamSetAttribute)>(
      ::dlsym(api.library, "cuStreamSetAttribute"));
  const auto get = reinterpret_cast<decltype(&::cuStreamGetAttribute)>(
      ::dlsym(api.library, "cuStreamGetAttribute"));
  const auto copy = reinterpret_cast<decltype(&::cuStreamCopyAttributes)>(
      ::dlsym(api.library, "cuStreamCopyAttributes"));
  ASSERT_TRUE(set != nullptr && get != nullptr && copy != nullptr);
  const CUstream one = stream(), other = stream();
  const auto kPolicy = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  const auto kPriority = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  CUstreamAttrValue value{};
  OK(get(one, kPolicy, &value));
  EXPECT_EQ(value.priority, 1) << "CU_SYNC_POLICY_AUTO";
  value.priority = 2;
  OK(set(one, kPolicy, &value));
  value.priority = -100;
  OK(set(one, kPriority, &value));
  OK(copy(other, one));
  OK(get(other, kPolicy, &value));
  EXPECT_EQ(value.priority, 2);
  int least = 0, greatest = 0, priority = 0;
  OK(api.cuCtxGetStreamPriorityRange(&least, &greatest));
  OK(api.cuStreamGetPriority(other, &priority));
  EXPECT_EQ(priority, greatest);
  OK(get(other, kPriority, &value));
  EXPECT_EQ(value.priority, greatest);
  FAILS(CUDA_ERROR_INVALID_VALUE, set(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  FAILS(CUDA_ERROR_INVALID_VALUE, get(one, kPolicy, nullptr));
  FAILS(CUDA_ERROR_INVALID_HANDLE, get(reinterpret_cast<CUstream>(0x12340), kPolicy, &value));
}

}  // namespace
}  // namespace sluice
