// SPDX-License-Identifier: Apache-2.0
// Memory that a program takes without allocating it, by a real sluice-worker on the software GPU:
// all of it is charged to the vGPU before it is taken, refused as CUDA refuses it, and given back.
#include <fstream>

#include "tests/support/cubins.h"
#include "tests/support/worker_process.h"

namespace sluice::test {
namespace {

constexpr uint64_t kMiB = 1u << 20;
constexpr uint64_t kSms = 4, kThreads = kSms * 2048;  // of the software GPU: at once

std::string module_of(const std::string& variables) {
  return ".version 7.0\n.target sm_70\n.address_size 64\n" + variables;
}

// out[0] = 7, with so much local memory for each thread.
std::string local_kernel(const std::string& name, uint64_t bytes) {
  return ".visible .entry " + name + "(.param .u64 p)\n{\n\t.local .align 8 .b8 depot[" +
         std::to_string(bytes) +
         "];\n\t.reg .b32 %r<3>;\n\t.reg .b64 %rd<4>;\n\tld.param.u64 %rd1, [p];\n"
         "\tmov.u32 %r1, 7;\n\tmov.u64 %rd2, depot;\n\tst.local.u32 [%rd2], %r1;\n"
         "\tld.local.u32 %r2, [%rd2];\n\tst.global.u32 [%rd1], %r2;\n\tret;\n}\n";
}

class WorkerCharges : public WorkerProcess {
 protected:
  void start_with(uint64_t limit, const std::function<void(WorkerBench::Options&)>& more = {}) {
    WorkerBench::Options o;
    o.memory_limit = o.lease_limit = limit;
    if (more) more(o);
    start(o);
  }
  uint64_t free_memory() {
    const Answer a = generic(kOpcode_cuMemGetInfo_v2, {raw<uint8_t>(1), raw<uint8_t>(1)}, context);
    EXPECT_EQ(a.status, CUDA_SUCCESS);
    return a.as<uint64_t>();
  }
  int unload(uint64_t m) { return generic(kOpcode_cuModuleUnload, {raw(m)}, context).status; }
  int set_limit(CUlimit limit, uint64_t value) {
    return generic(kOpcode_cuCtxSetLimit, {raw<int>(limit), raw(value)}, context).status;
  }
  Answer create_context() {
    return generic(kOpcode_cuCtxCreate_v2, {raw<uint8_t>(1), raw<unsigned>(0), raw<int>(0)});
  }
  Answer create_stream() {
    return generic(kOpcode_cuStreamCreate, {raw<uint8_t>(1), raw<unsigned>(1)}, context);
  }
  void launch_local(uint64_t fn, uint64_t out, uint64_t stream = 0) {
    sluice_launch l{};
    l.function = fn;
    l.stream = stream;
    for (int i = 0; i < 3; ++i) l.grid[i] = l.block[i] = 1;
    l.param_bytes = 8;
    b->post(SLUICE_CALL_LAUNCH, bytes({raw(l), raw(out)}), context, SLUICE_RECORD_NO_REPLY);
  }
};

// Of the GPU's for all, which are not memory.
TEST_F(WorkerCharges, PlacesForContexts) {
  start_with(1024 * kMiB, [](WorkerBench::Options& o) { o.context_places = 1; });
  make_context();
  const Answer second = create_context();
  ASSERT_EQ(second.status, CUDA_SUCCESS);
  EXPECT_EQ(create_context().status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(b->places(), 1u) << "the session's first has the session's";
  EXPECT_EQ(generic(kOpcode_cuCtxDestroy_v2, {raw(second.as<uint64_t>())}).status, CUDA_SUCCESS);
  EXPECT_EQ(create_context().status, CUDA_SUCCESS) << "its place is free again";
  EXPECT_EQ(create_context().status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(b->places(), 1u);
}

TEST_F(WorkerCharges, VariablesOfModules) {
  start_with(64 * kMiB);
  make_context();
  const std::string big = module_of(".global .align 4 .b8 big[41943040];\n");
  const uint64_t before = free_memory();
  Answer a = load(big);
  ASSERT_EQ(a.status, CUDA_SUCCESS);
  const uint64_t first = a.as<uint64_t>();
  EXPECT_LE(free_memory(), before - 40 * kMiB);
  EXPECT_EQ(load(big).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(load(module_of(".const .b8 c[41943040];\n")).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(alloc(30 * kMiB).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(load(module_of(".global .b8 huge[0x7fffffffffffffff];\n")).status,
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(load(module_of(".global .b8 huge[N];\n")).status, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(unload(first), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), before);
  EXPECT_EQ(load(big).status, CUDA_SUCCESS);
}

TEST_F(WorkerCharges, VariablesOfMachineCode) {
  start_with(64 * kMiB);
  make_context();
  const uint64_t before = free_memory();
  const auto cubin = [](uint64_t bytes) {
    return CubinBuilder().variables(bytes).ptx(module_of("")).image();
  };
  const Answer a = load(cubin(40 * kMiB));
  ASSERT_EQ(a.status, CUDA_SUCCESS);
  EXPECT_LE(free_memory(), before - 40 * kMiB);
  EXPECT_EQ(load(cubin(40 * kMiB)).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(load(cubin(uint64_t{1} << 62)).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(unload(a.as<uint64_t>()), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), before);
}

TEST_F(WorkerCharges, ModulesThatDoNotLoadAreGivenBack) {
  start_with(64 * kMiB);
  make_context();
  const uint64_t before = free_memory();
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(load(module_of(".global .b8 big[41943040];\n.entry k( {")).status,
              CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(free_memory(), before);
  EXPECT_EQ(alloc(40 * kMiB).status, CUDA_SUCCESS);
}

TEST_F(WorkerCharges, WhatWaitsForLeaveToBeLoadedIsPaidFor) {
  start_with(64 * kMiB, [](WorkerBench::Options& o) {
    o.refuse_modules = true;
    o.host_limit = 8 * kMiB;
  });
  make_context();
  const std::string text = module_of("//" + std::string(kMiB / 5, ' ') + "\n");
  for (int i = 0; i < 4; ++i) {  // 4.8 MiB each: what the one before was charged was given back
    EXPECT_EQ(load(text).status, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_GE(b->host_at_leave(), 4 * kMiB) << i;
  }
}

TEST_F(WorkerCharges, ModulesGoWithTheirContext) {
  start_with(64 * kMiB);
  for (int i = 0; i < 4; ++i) {
    make_context();
    EXPECT_EQ(load(module_of(".global .align 4 .b8 big[41943040];\n")).status, CUDA_SUCCESS) << i;
    EXPECT_EQ(generic(kOpcode_cuDevicePrimaryCtxRelease_v2, {raw<int>(0)}).status, CUDA_SUCCESS);
  }
}

TEST_F(WorkerCharges, LocalMemoryOfEveryThread) {
  start_with(64 * kMiB);
  make_context();
  ASSERT_EQ(load(module_of(local_kernel("small", 1024) + local_kernel("large", 65536))).status,
            CUDA_SUCCESS);
  Answer a = load(module_of(local_kernel("small", 1024) + local_kernel("large", 65536)));
  module = a.as<uint64_t>();
  const uint64_t small = function("small", 0), large = function("large", 0);
  const uint64_t d = alloc(4096).as<uint64_t>();
  zero(d, 8);
  const uint64_t before = free_memory();
  // Right away, before sluiced can have answered: the launches wait for it, and run.
  launch_local(small, d);
  launch_local(small, d + 4);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(words(d, 8)[0], 7u);
  EXPECT_EQ(words(d, 8)[1], 7u);
  EXPECT_EQ(before - free_memory(), 1024 * kThreads) << "once";
  EXPECT_TRUE(b->async_errors.empty());
  launch_local(large, d);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->async_errors, std::vector<int>{CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(before - free_memory(), 1024 * kThreads);
  launch_local(small, d);  // the session goes on
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->async_errors.size(), 1u);
  EXPECT_EQ(generic(kOpcode_cuDevicePrimaryCtxRelease_v2, {raw<int>(0)}).status, CUDA_SUCCESS);
  for (int i = 0; i < 3000 && b->leased() > kMiB; ++i) ::usleep(10000);
  EXPECT_LE(b->leased(), kMiB) << "a chunk is kept";
}

TEST_F(WorkerCharges, LocalMemoryFitsOnceSomethingIsFreed) {
  start_with(64 * kMiB);
  make_context();
  module = load(module_of(local_kernel("k", 4096))).as<uint64_t>();  // 32 MiB
  const uint64_t k = function("k", 0), d = alloc(4096).as<uint64_t>(),
                 rest = alloc(50 * kMiB).as<uint64_t>();
  launch_local(k, d);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->async_errors, std::vector<int>{CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(generic(kOpcode_cuMemFree_v2, {raw(rest)}, context).status, CUDA_SUCCESS);
  launch_local(k, d);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(b->async_errors.size(), 1u);
  EXPECT_EQ(words(d, 4)[0], 7u);
}

TEST_F(WorkerCharges, LimitsOfHeapStackAndPrintf) {
  start_with(64 * kMiB);
  make_context();
  const uint64_t before = free_memory();
  EXPECT_EQ(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 256 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, ~0ull), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set_limit(CU_LIMIT_STACK_SIZE, 65536), CUDA_ERROR_OUT_OF_MEMORY) << "of each thread";
  EXPECT_EQ(set_limit(CU_LIMIT_STACK_SIZE, ~0ull), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set_limit(CU_LIMIT_PRINTF_FIFO_SIZE, 100 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_memory(), before);
  EXPECT_EQ(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 32 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(before - free_memory(), 24 * kMiB) << "beyond the 8 MiB that every context has";
  EXPECT_EQ(set_limit(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
  EXPECT_EQ(before - free_memory(), 24 * kMiB + 1024 * kThreads);
  EXPECT_EQ(set_limit(CU_LIMIT_PRINTF_FIFO_SIZE, 3 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(before - free_memory(), 26 * kMiB + 1024 * kThreads);
  EXPECT_EQ(alloc(40 * kMiB).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set_limit(CU_LIMIT_STACK_SIZE, 512), CUDA_SUCCESS);
  EXPECT_EQ(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(set_limit(CU_LIMIT_PRINTF_FIFO_SIZE, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), before);
}

TEST_F(WorkerCharges, ContextsThemselves) {
  start_with(64 * kMiB, [](WorkerBench::Options& o) { o.context_bytes = 16 * kMiB; });
  make_context();
  EXPECT_EQ(free_memory(), 48 * kMiB);
  std::vector<uint64_t> contexts;
  for (int i = 0; i < 3; ++i) {
    const Answer a = create_context();
    ASSERT_EQ(a.status, CUDA_SUCCESS) << i;
    contexts.push_back(a.as<uint64_t>());
  }
  EXPECT_EQ(free_memory(), 0u);
  EXPECT_EQ(create_context().status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(alloc(4096).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(generic(kOpcode_cuCtxDestroy_v2, {raw(contexts.back())}).status, CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), 16 * kMiB);
  EXPECT_EQ(create_context().status, CUDA_SUCCESS);
}

TEST_F(WorkerCharges, AContextThatTheLimitDoesNotAllow) {
  start_with(8 * kMiB, [](WorkerBench::Options& o) { o.context_bytes = 16 * kMiB; });
  EXPECT_EQ(generic(kOpcode_cuDevicePrimaryCtxRetain, {raw<uint8_t>(1), raw<int>(0)}).status,
            CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(WorkerCharges, StreamsAreCountedAndPaidFor) {
  start_with(4 * kMiB);
  make_context();
  std::vector<uint64_t> streams;
  Answer a;
  while ((a = create_stream()).status == CUDA_SUCCESS && streams.size() < 2000)
    streams.push_back(a.as<uint64_t>());
  EXPECT_EQ(a.status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_GT(streams.size(), 32u);
  EXPECT_LE(streams.size(), 256u) << "16 KiB each, at least";
  // One that goes makes room for one.
  EXPECT_EQ(generic(kOpcode_cuStreamDestroy_v2, {raw(streams.back())}).status, CUDA_SUCCESS);
  EXPECT_EQ(create_stream().status, CUDA_SUCCESS);
}

// Small kernels, and one whose every instruction has a constant of its own, which the software GPU
// keeps.
class WorkerHostMemory : public WorkerCharges, public testing::WithParamInterface<bool> {};

TEST_P(WorkerHostMemory, ModulesAreChargedWhatTheyHold) {
  start_with(200 * kMiB, [](WorkerBench::Options& o) { o.host_limit = 64 * kMiB; });
  make_context();
  const auto resident = [this] {
    std::ifstream statm("/proc/" + std::to_string(b->pid()) + "/statm");
    uint64_t all = 0, pages = 0;
    statm >> all >> pages;
    return pages * 4096;
  };
  std::string kernels;
  if (GetParam()) {
    kernels = ".visible .entry k()\n{\n.reg .b32 %r<2>;\nmov.u32 %r1, 0;\n";
    for (int i = 0; i < 10000; ++i) kernels += "add.u32 %r1,%r1," + std::to_string(1000 + i) + ";";
    kernels += "ret;\n}\n";
  } else {
    for (int i = 0; i < 20; ++i) kernels += local_kernel("k" + std::to_string(i), 64);
  }
  const std::string text = module_of(kernels);
  const uint64_t before = resident();
  std::vector<uint64_t> modules;
  Answer a;
  while ((a = load(text)).status == CUDA_SUCCESS && modules.size() < 5000)
    modules.push_back(a.as<uint64_t>());
  EXPECT_EQ(a.status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_GT(modules.size(), 4u);
  EXPECT_LE(b->host_leased(), 64 * kMiB);
  printf("%zu modules of %zu bytes: %zu KiB resident\n", modules.size(), text.size(),
         static_cast<size_t>(resident() - before) / 1024);
  // Sanitizers' own memory is not the worker's.
#if !defined(SLUICE_ADDRESS_SANITIZER)
  EXPECT_LE(resident() - before, 64 * kMiB) << "no more is held than is charged";
#endif
  EXPECT_EQ(unload(modules.back()), CUDA_SUCCESS);
  EXPECT_EQ(load(text).status, CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Texts, WorkerHostMemory, testing::Bool());

// --- what a session holds by numbers: objects, and what its streams have queued ---

class WorkerHolds : public WorkerCharges {
 protected:
  static constexpr uint64_t kHostLimit = 12 * kMiB;
  void start_holding(uint64_t host_limit = kHostLimit) {
    start_with(64 * kMiB, [&](WorkerBench::Options& o) { o.host_limit = host_limit; });
    make_context();
  }
  // Behind a host function that is never answered. Returns its call.
  uint64_t stall() {
    const uint64_t id =
        b->post(SLUICE_CALL_HOST_FUNC, sluice_synchronize{SLUICE_SYNC_STREAM, 0, 0}, context);
    EXPECT_EQ(b->wait(id).status, CUDA_SUCCESS);
    return id;
  }
  Answer create_event() {
    return generic(kOpcode_cuEventCreate, {raw<uint8_t>(1), raw<unsigned>(0)}, context);
  }
  void record(uint64_t event) {
    b->post(SLUICE_CALL_EVENT_RECORD, sluice_stream_event{0, event, 0}, context,
            SLUICE_RECORD_NO_REPLY);
  }
};

TEST_F(WorkerHolds, ObjectsAreCharged) {
  start_holding();
  std::vector<uint64_t> events;
  Answer a;
  while ((a = create_event()).status == CUDA_SUCCESS) events.push_back(a.as<uint64_t>());
  EXPECT_EQ(a.status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_GT(events.size(), 8192u) << "some are free";
  EXPECT_LT(events.size(), 1.1 * (kHostLimit + 8 * kMiB) / 1024);
  EXPECT_GT(b->host_leased(), kHostLimit / 2);
  EXPECT_EQ(alloc(1).status, CUDA_ERROR_OUT_OF_MEMORY) << "nothing else is made, either";
  for (const uint64_t event : events)
    ASSERT_EQ(generic(kOpcode_cuEventDestroy_v2, {raw(event)}, context).status, CUDA_SUCCESS);
  EXPECT_LT(b->host_leased(), kHostLimit / 2);
  EXPECT_EQ(create_event().status, CUDA_SUCCESS);
}

TEST_F(WorkerHolds, WhatWaitsForAHostFunctionIsCharged) {
  start_holding();
  const uint64_t event = create_event().as<uint64_t>();
  (void)stall();
  for (int i = 0; i < 100'000 && !b->ended(); ++i) record(event);
  expect_violation("vgpu.host_memory");
  EXPECT_EQ(b->slot->error, CUDA_ERROR_OUT_OF_MEMORY);
  // How much is asked for at once depends on how much was queued before the last answer came.
  EXPECT_GE(b->host_leased(), kHostLimit / 2);
}

// Also when the answer comes after the last record: held, the program sends none that would show
// it.
TEST_F(WorkerHolds, MemoryThatIsRefusedLateEndsAProgramThatWaits) {
  start_holding(1);
  const uint64_t event = create_event().as<uint64_t>();
  b->answers_host_memory = false;
  (void)stall();
  for (int i = 0; i < 20'000; ++i) record(event);
  const sluice_ring& submit = b->slot->submit;
  while (load_shared(submit.tail) != load_shared(submit.head)) ::usleep(1000);
  EXPECT_FALSE(b->ended()) << b->slot->reason;
  b->answers_host_memory = true;
  expect_violation("vgpu.host_memory");
}

// A program that stops when it is asked to is only slowed down, as by CUDA's own full queue.
TEST_F(WorkerHolds, AProgramIsAskedToStopBehindAHostFunction) {
  start_holding(256 * kMiB);
  const uint64_t event = create_event().as<uint64_t>();
  const uint64_t host_function = stall();
  const auto held = [&] { return load_shared(b->slot->hold) != 0; };
  int queued = 0;
  while (queued < 200'000 && !held() && !b->ended()) record(event), ++queued;
  EXPECT_TRUE(held()) << b->slot->reason;
  EXPECT_GT(queued, 60'000);
  b->post(SLUICE_CALL_HOST_FUNC_DONE, host_function, context, SLUICE_RECORD_NO_REPLY);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_FALSE(held());
}

// Where none is to be had, a program that queues more than what is free is only slowed down.
TEST_F(WorkerHolds, WithoutHostMemoryStreamsQueueLess) {
  start_holding(1);
  const uint64_t event = create_event().as<uint64_t>();
  for (int i = 0; i < 100'000; ++i) record(event);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
}

TEST_F(WorkerHolds, BodiesOfCallsThatWaitAreCharged) {
  start_holding();
  (void)stall();
  std::vector<std::byte> body(60'000);
  for (int i = 0; i < 2000 && !b->ended(); ++i)
    b->post(kOpcode_cuMemFree_v2, body, context, SLUICE_RECORD_NO_REPLY);
  expect_violation("vgpu.host_memory");
}

// Frees in stream order answer no calls: a program may have queued more of them than calls may
// wait. Each costs its stream's place.
TEST_F(WorkerHolds, ThousandsOfFreesMayWait) {
  start_holding(64 * kMiB);
  const uint64_t before = free_memory();
  const uint64_t host_function = stall();
  for (int i = 0; i < 5000; ++i) {
    const Answer a = alloc(1);
    ASSERT_EQ(a.status, CUDA_SUCCESS) << i << ": " << b->slot->reason;
    const uint64_t at = a.as<uint64_t>();
    ASSERT_EQ(generic(kOpcode_cuMemFreeAsync, {raw(at), raw<uint64_t>(0)}, context).status,
              CUDA_SUCCESS)
        << i << ": " << b->slot->reason;
  }
  b->post(SLUICE_CALL_HOST_FUNC_DONE, host_function, context, SLUICE_RECORD_NO_REPLY);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  for (int i = 0; i < 1000 && free_memory() != before; ++i) ::usleep(10'000);
  EXPECT_EQ(free_memory(), before);
}

// What costs the driver more than it is charged for, or takes none of the vGPU's memory.
TEST_F(WorkerHolds, NumbersOfObjectsAreBounded) {
  start_with(256 * kMiB);
  make_context();
  // How many there are when one is refused.
  const auto most = [](auto make) {
    constexpr int kMany = 1 << 17;
    Answer a;
    int made = 0;
    while (made < kMany && (a = make()).status == CUDA_SUCCESS) ++made;
    EXPECT_EQ(a.status, CUDA_ERROR_OUT_OF_MEMORY);
    return made;
  };
  const auto reserve = [&](uint64_t size) {
    return generic(
        kOpcode_cuMemAddressReserve,
        {raw<uint8_t>(1), raw(size), raw<uint64_t>(0), raw<uint64_t>(0), raw<uint64_t>(0)},
        context);
  };
  EXPECT_EQ(reserve(uint64_t{65} << 40).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(most([&] { return reserve(2 * kMiB); }), 4096);
  EXPECT_EQ(most([&] { return create_context(); }), 7) << "beside the one that is there";
  EXPECT_EQ(most([&] { return create_stream(); }), 4000);
}

TEST_F(WorkerHolds, TexturesAreBounded) {
  start_with(256 * kMiB);
  make_context();
  constexpr uint64_t kMost = 1 << 16;
  CUDA_RESOURCE_DESC of{};
  of.resType = CU_RESOURCE_TYPE_LINEAR;
  of.res.linear = {alloc(4096).as<uint64_t>(), CU_AD_FORMAT_FLOAT, 1, 4096};
  const auto body = bytes({raw<uint8_t>(1), raw(of), raw(CUDA_TEXTURE_DESC{}), raw<uint8_t>(0),
                           raw(CUDA_RESOURCE_VIEW_DESC{})});
  EXPECT_EQ(
      made_of(kMost, [&](uint64_t) { return b->post(kOpcode_cuTexObjectCreate, body, context); }),
      kMost);
}

// Memory that is freed in a stream's order (FreedMemory).
class WorkerFreed : public WorkerHolds {
 protected:
  static constexpr uint64_t kLimit = 64 * kMiB;
  void start_freeing() {
    start_with(kLimit);
    make_context();
  }
  uint64_t take(uint64_t bytes, uint64_t stream = 0) {
    const Answer a =
        generic(kOpcode_cuMemAllocAsync, {raw<uint8_t>(1), raw(bytes), raw(stream)}, context);
    EXPECT_EQ(a.status, CUDA_SUCCESS);
    return a.as<uint64_t>();
  }
  void give(uint64_t address, uint64_t stream = 0) {
    EXPECT_EQ(generic(kOpcode_cuMemFreeAsync, {raw(address), raw(stream)}, context).status,
              CUDA_SUCCESS);
  }
};

TEST_F(WorkerFreed, IsTakenAgainBehindItsFreeInTheSameStreamAlone) {
  start_freeing();
  const uint64_t other = create_stream().as<uint64_t>();
  const uint64_t before = free_memory();
  const uint64_t host_function = stall();
  const uint64_t first = take(kMiB);
  give(first);
  EXPECT_EQ(free_memory(), before);
  const uint64_t elsewhere = take(kMiB, other);
  EXPECT_NE(elsewhere, first) << "what uses it has not run";
  EXPECT_EQ(take(kMiB), first);
  EXPECT_NE(take(kMiB), first);
  give(first);
  b->post(SLUICE_CALL_HOST_FUNC_DONE, host_function, context, SLUICE_RECORD_NO_REPLY);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(take(kMiB, other), first) << "what used it has run";
  give(elsewhere);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_NE(generic(kOpcode_cuMemFree_v2, {raw(elsewhere)}, context).status, CUDA_SUCCESS);
}

TEST_F(WorkerFreed, GoesBackWhereMemoryLacks) {
  start_freeing();
  for (int i = 0; i < 3; ++i) {
    const uint64_t a = take(10 * kMiB), c = take(kLimit / 2);  // more than is kept
    give(a), give(c);
    EXPECT_EQ(sync().status, CUDA_SUCCESS);
    const Answer all = alloc(kLimit - 2 * kMiB);
    ASSERT_EQ(all.status, CUDA_SUCCESS);
    EXPECT_EQ(generic(kOpcode_cuMemFree_v2, {all.body}, context).status, CUDA_SUCCESS);
  }
}

TEST_F(WorkerFreed, GoesWithItsContext) {
  start_freeing();
  const uint64_t first = context, before = free_memory();
  context = create_context().as<uint64_t>();
  give(take(10 * kMiB));
  EXPECT_EQ(generic(kOpcode_cuCtxDestroy_v2, {raw(context)}, context).status, CUDA_SUCCESS);
  context = first;
  EXPECT_EQ(free_memory(), before);
  EXPECT_EQ(alloc(kLimit - 4 * kMiB).status, CUDA_SUCCESS);
}

// Whoever else uses the GPU sees what is gone, and by how much less it can have.
TEST_F(WorkerCharges, ANeighbourSeesItOnTheSoftwareGpu) {
  const std::string file = testing::TempDir() + "/charges-gpu-" + std::to_string(::getpid());
  ::unlink(file.c_str());
  const auto with_file = [&](WorkerBench::Options& o) { o.soft_gpu_file = file; };
  start_with(1024 * kMiB, with_file);
  make_context();
  module = load(module_of(local_kernel("k", 4096))).as<uint64_t>();
  const uint64_t k = function("k", 0), d = alloc(4096).as<uint64_t>();
  auto taker = std::move(b);
  uint64_t other = context;
  start_with(1024 * kMiB, with_file);
  make_context();
  const auto change_places = [&] { b.swap(taker), std::swap(context, other); };
  const uint64_t before = free_memory();
  change_places();
  launch_local(k, d);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 24 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(create_context().status, CUDA_SUCCESS);
  change_places();
  EXPECT_LE(free_memory(), before - 4096 * kThreads - 16 * kMiB - 2 * kMiB);
  taker.reset();
  EXPECT_GT(free_memory(), before) << "all of it with the process";
  ::unlink(file.c_str());
}

TEST_F(WorkerFreed, GoesBackByItselfAfterAWhile) {
  const std::string file = testing::TempDir() + "/freed-gpu-" + std::to_string(::getpid());
  ::unlink(file.c_str());
  const auto with_file = [&](WorkerBench::Options& o) { o.soft_gpu_file = file; };
  start_with(1024 * kMiB, with_file);
  make_context();
  auto taker = std::move(b);
  uint64_t other = context;
  start_with(1024 * kMiB, with_file);
  make_context();
  const auto change_places = [&] { b.swap(taker), std::swap(context, other); };
  const uint64_t before = free_memory();
  change_places();
  const uint64_t kept = take(200 * kMiB);
  change_places();
  EXPECT_LT(free_memory(), before - 100 * kMiB);
  change_places();
  give(kept);
  change_places();
  for (int i = 0; i < 1000 && free_memory() < before; ++i) ::usleep(10'000);
  EXPECT_EQ(free_memory(), before);
  ::unlink(file.c_str());
}

}  // namespace
}  // namespace sluice::test
