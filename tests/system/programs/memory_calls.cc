// SPDX-License-Identifier: Apache-2.0
// Default streams of threads, memory pools, managed and registered memory, stream attributes,
// batches and boxes through the channel: what each call answers, and that the memory has what it
// should have.
//
//   memory-calls     exit 0 if everything came out right; what did not is printed
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "tests/system/programs/memory_calls.h"

namespace {

constexpr unsigned kWords = 1024;
CUcontext context;
CUfunction twice;

// words[i] *= 2 and add 1, a thread each.
const char* const kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry twice(.param .u64 words)
{
  .reg .b64 %d<3>; .reg .b32 %r<6>;
  ld.param.u64 %d1, [words];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3; mul.wide.u32 %d2, %r4, 4; add.u64 %d1, %d1, %d2;
  ld.global.u32 %r5, [%d1]; shl.b32 %r5, %r5, 1; add.u32 %r5, %r5, 1; st.global.u32 [%d1], %r5;
  ret;
}
)";

void run_twice(CUdeviceptr words, CUstream stream) {
  void* params[] = {&words};
  OK(cuLaunchKernel(twice, kWords / 128, 1, 1, 128, 1, 1, 0, stream, params, nullptr));
}

// One thread's stream waits for a word; another thread's work goes on, and writes it. In the legacy
// stream this would never end.
void threads_do_not_wait_for_each_other() {
  uint32_t* word = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&word), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  word[0] = word[1] = 0;
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 2 * kWords * 4));
  OK(cuMemsetD8(memory, 0, 2 * kWords * 4));
  OK(cuCtxSynchronize());
  const auto address = reinterpret_cast<CUdeviceptr>(word);
  OK(cuStreamWaitValue32(CU_STREAM_PER_THREAD, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWaitValue64(CU_STREAM_PER_THREAD, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  run_twice(memory, CU_STREAM_PER_THREAD);
  std::thread([&] {
    OK(cuCtxSetCurrent(context));
    run_twice(memory + kWords * 4, CU_STREAM_PER_THREAD);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    void* form = nullptr;
    OK(cuGetProcAddress("cuStreamSynchronize", &form, 12000,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
    OK(reinterpret_cast<decltype(&cuStreamSynchronize)>(form)(nullptr));
  }).join();
  ANSWERS(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
  __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  std::vector<uint32_t> got(2 * kWords);
  OK(cuMemcpyDtoH(got.data(), memory, got.size() * 4));
  EXPECT(got.front() == 1 && got.back() == 1);
  OK(cuMemFree(memory));
  OK(cuMemFreeHost(word));
}

uint64_t account(CUmemoryPool pool, CUmemPool_attribute attribute) {
  uint64_t value = ~uint64_t{0};
  OK(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

void pools() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  props.maxSize = 1 << 20;
  CUmemoryPool pool = nullptr, current = nullptr, usual = nullptr;
  ANSWERS(kInvalid, cuMemPoolCreate(nullptr, &props));
  ANSWERS(kInvalid, cuMemPoolCreate(&pool, nullptr));
  props.handleTypes = CU_MEM_HANDLE_TYPE_WIN32;
  ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &props));
  props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  props.location.id = 99;
  ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolCreate(&pool, &props));
  props.location.id = 0;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuDeviceGetDefaultMemPool(&usual, 0));
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT(current == usual && pool != usual);

  CUdeviceptr memory = 0, other = 0;
  ANSWERS(kInvalid, cuMemAllocFromPoolAsync(&memory, 4096, nullptr, nullptr));
  ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&memory, 2 << 20, pool, nullptr));
  OK(cuMemAllocFromPoolAsync(&memory, kWords * 4, pool, nullptr));
  OK(cuMemsetD8Async(memory, 0, kWords * 4, nullptr));
  run_twice(memory, nullptr);
  std::vector<uint32_t> got(kWords);
  OK(cuMemcpyDtoH(got.data(), memory, kWords * 4));
  EXPECT(got[0] == 1 && got[kWords - 1] == 1);
  CUmemoryPool named = nullptr;
  OK(cuPointerGetAttribute(&named, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
  EXPECT(named == pool);
  EXPECT(account(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == kWords * 4);

  OK(cuDeviceSetMemPool(0, pool));
  OK(cuMemAllocAsync(&other, 8192, nullptr));
  EXPECT(account(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == kWords * 4 + 8192);
  OK(cuMemFreeAsync(other, nullptr));
  EXPECT(account(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == kWords * 4);
  EXPECT(account(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == kWords * 4 + 8192);
  uint64_t value = 0;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  EXPECT(account(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == kWords * 4);
  ANSWERS(kInvalid, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
  value = 77;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
  EXPECT(account(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 77);
  int reuse = 0;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
  reuse = 5;
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
  EXPECT(reuse == 0);

  CUmemAccess_flags flags{};
  CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(cuMemPoolGetAccess(&flags, pool, &here));
  EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUmemAccessDesc access{here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemPoolSetAccess(pool, &access, 1));
  access.location.id = 3;
  ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(pool, &access, 1));
  OK(cuMemPoolTrimTo(pool, 0));

  // Memory outlives its pool; the default pool is current again.
  OK(cuMemPoolDestroy(pool));
  ANSWERS(kInvalid, cuMemPoolDestroy(pool));
  ANSWERS(kInvalid, cuMemPoolDestroy(usual));
  ANSWERS(kInvalid, cuMemPoolTrimTo(pool, 0));
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT(current == usual);
  OK(cuMemcpyDtoH(got.data(), memory, kWords * 4));
  EXPECT(got[5] == 1);
  OK(cuMemFreeAsync(memory, nullptr));
  OK(cuCtxSynchronize());
}

template <class T = int>
T range_attribute(CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes) {
  T value = -9;
  OK(cuMemRangeGetAttribute(&value, sizeof value, attribute, address, bytes));
  return value;
}

void managed_memory() {
  CUdeviceptr memory = 0;
  constexpr size_t kBytes = kWords * 4;
  ANSWERS(kInvalid, cuMemAllocManaged(&memory, kBytes, CU_MEM_ATTACH_SINGLE));
  ANSWERS(kInvalid, cuMemAllocManaged(&memory, 0, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemAllocManaged(&memory, kBytes, CU_MEM_ATTACH_GLOBAL));
  auto* words = reinterpret_cast<uint32_t*>(memory);
  for (unsigned i = 0; i < kWords; ++i) words[i] = i;
  OK(cuMemPrefetchAsync(memory, kBytes, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, nullptr));
  run_twice(memory, nullptr);
  OK(cuCtxSynchronize());
  EXPECT(words[0] == 1 && words[kWords - 1] == 2 * (kWords - 1) + 1);
  OK(cuMemsetD32(memory, 7, kWords));
  OK(cuCtxSynchronize());
  EXPECT(words[0] == 7 && words[kWords - 1] == 7);

  unsigned is_managed = 0, type = 0;
  OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  EXPECT(is_managed == 1 && type == CU_MEMORYTYPE_DEVICE);

  const CUmemLocation gpu{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(cuMemAdvise(memory, kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
  OK(cuMemAdvise(memory, kBytes / 2, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, gpu));
  OK(cuMemAdvise(memory, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu));
  EXPECT(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, kBytes) == 1);
  EXPECT(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, kBytes / 2) == 0);
  EXPECT(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, kBytes) == -2);
  EXPECT(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, kBytes) == 0);
  int by[3] = {};
  OK(cuMemRangeGetAttribute(by, sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, kBytes));
  EXPECT(by[0] == 0 && by[1] == -2 && by[2] == -2);
  ANSWERS(kInvalid, cuMemAdvise(memory, kBytes + 1, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
  ANSWERS(kInvalid, cuMemAdvise(memory, kBytes, static_cast<CUmem_advise>(9), gpu));
  ANSWERS(CUDA_ERROR_INVALID_DEVICE,
          cuMemPrefetchAsync(memory, kBytes, {CU_MEM_LOCATION_TYPE_DEVICE, 99}, 0, nullptr));
  ANSWERS(kInvalid, cuMemPrefetchAsync(memory + kBytes, 1, gpu, 0, nullptr));
  OK(cuStreamAttachMemAsync(CU_STREAM_PER_THREAD, memory, 0, CU_MEM_ATTACH_SINGLE));
  ANSWERS(kInvalid, cuStreamAttachMemAsync(nullptr, memory, 0, CU_MEM_ATTACH_SINGLE));
  ANSWERS(kInvalid, cuMemFreeHost(words));
  OK(cuMemFree(memory));
  ANSWERS(kInvalid, cuMemFree(memory));
  ANSWERS(kInvalid, cuMemAdvise(memory, kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
}

void stream_attributes_and_values() {
  CUstream stream, other;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUstreamAttrValue value{}, got{};
  value.priority = 2;  // the first word: CU_SYNC_POLICY_SPIN
  const auto kPolicy = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  OK(cuStreamGetAttribute(stream, kPolicy, &got));
  EXPECT(got.priority == 1);
  OK(cuStreamSetAttribute(stream, kPolicy, &value));
  OK(cuStreamCopyAttributes(other, stream));
  OK(cuStreamGetAttribute(other, kPolicy, &got));
  EXPECT(got.priority == 2);
  ANSWERS(kInvalid, cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  ANSWERS(kInvalid, cuStreamGetAttribute(stream, kPolicy, nullptr));
  ANSWERS(CUDA_ERROR_INVALID_HANDLE,
          cuStreamGetAttribute(reinterpret_cast<CUstream>(0x12340), kPolicy, &got));

  CUdeviceptr words = 0;
  OK(cuMemAlloc(&words, 4096));
  OK(cuMemsetD8(words, 0, 4096));
  OK(cuCtxSynchronize());
  CUstreamBatchMemOpParams ops[3] = {};
  ops[0].waitValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[0].waitValue.address = words;
  ops[0].waitValue.value = 41;
  ops[1].operation = CU_STREAM_MEM_OP_BARRIER;
  ops[2].waitValue = ops[0].waitValue;
  ops[2].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  OK(cuStreamBatchMemOp(stream, 3, ops, 0));
  OK(cuStreamSynchronize(stream));
  uint32_t word = 0;
  OK(cuMemcpyDtoH(&word, words, 4));
  EXPECT(word == 41);
  ops[2].waitValue.address = 4096;
  ops[0].waitValue.value = 42;
  ANSWERS(kInvalid, cuStreamBatchMemOp(stream, 3, ops, 0));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(&word, words, 4));
  EXPECT(word == 41);  // none of them
  ANSWERS(kInvalid, cuStreamBatchMemOp(stream, 1, ops, 1));
  ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  ops[0].writeValue.value64 = uint64_t{43} << 32 | 44;
  ops[2].waitValue = ops[0].writeValue;
  ops[2].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  OK(cuStreamBatchMemOp(stream, 3, ops, 0));
  OK(cuStreamSynchronize(stream));
  uint64_t wide = 0;
  OK(cuMemcpyDtoH(&wide, words, 8));
  EXPECT(wide == (uint64_t{43} << 32 | 44));
  ANSWERS(kInvalid, cuStreamWriteValue64(stream, words + 4, 1, 0));
  ANSWERS(kInvalid, cuStreamWaitValue64(stream, 4096, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuMemsetD32(words, 41, 1));

  // Batched copies: device to device and from pageable memory.
  uint32_t from = 77;
  CUdeviceptr dsts[] = {words + 64, words + 128},
              srcs[] = {words, reinterpret_cast<CUdeviceptr>(&from)};
  size_t sizes[] = {4, 4}, first[] = {0};
  CUmemcpyAttributes order{};
  order.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  OK(cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 2, &order, first, 1, stream));
  from = 0;
  OK(cuStreamSynchronize(stream));
  uint32_t copied[2] = {};
  OK(cuMemcpyDtoH(&copied[0], words + 64, 4));
  OK(cuMemcpyDtoH(&copied[1], words + 128, 4));
  EXPECT(copied[0] == 41 && copied[1] == 77);
  ANSWERS(kInvalid, cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 2, &order, first, 1, nullptr));
  ANSWERS(kInvalid, cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 0, &order, first, 1, stream));
  first[0] = 1;
  ANSWERS(kInvalid, cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 2, &order, first, 1, stream));

  CUDA_MEMCPY3D_PEER box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = words;
  box.dstDevice = words + 1024;
  box.srcContext = box.dstContext = context;
  box.WidthInBytes = 4, box.Height = 1, box.Depth = 1;
  OK(cuMemcpy3DPeer(&box));
  OK(cuMemcpyDtoH(&word, words + 1024, 4));
  EXPECT(word == 41);
  box.srcContext = reinterpret_cast<CUcontext>(0x77770);
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpy3DPeer(&box));
  ANSWERS(kInvalid, cuMemcpy3DPeerAsync(nullptr, stream));

  CUdevice device = 9;
  OK(cuCtxGetDevice_v2(&device, context));
  EXPECT(device == 0);
  OK(cuCtxSynchronize_v2(context));
  int peer = 0;
  ANSWERS(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetP2PAttribute(&peer, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  ANSWERS(kInvalid,
          cuDeviceGetP2PAttribute(nullptr, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(context, 0));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDisablePeerAccess(nullptr));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize_v2(reinterpret_cast<CUcontext>(0x77770)));
  OK(cuStreamDestroy(stream));
  OK(cuStreamDestroy(other));
  OK(cuMemFree(words));
}

// Pools by place, where CUDA 13 has them beside those by device.
void pools_of_places() {
  CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0}, host{CU_MEM_LOCATION_TYPE_HOST, 0};
  CUmemLocation nowhere{CU_MEM_LOCATION_TYPE_DEVICE, 99};
  constexpr auto kPinned = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemoryPool usual = nullptr, current = nullptr, pool = nullptr;
  OK(cuMemGetDefaultMemPool(&usual, &here, kPinned));
  OK(cuDeviceGetDefaultMemPool(&current, 0));
  EXPECT(usual != nullptr && usual == current);
  CUmemPoolProps props{};
  props.allocType = kPinned;
  props.location = here;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemSetMemPool(&here, kPinned, pool));
  OK(cuMemGetMemPool(&current, &here, kPinned));
  EXPECT(current == pool);
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT(current == pool);
  OK(cuMemSetMemPool(&here, kPinned, usual));
  OK(cuMemGetMemPool(&current, &here, kPinned));
  EXPECT(current == usual);
  ANSWERS(kInvalid, cuMemGetMemPool(nullptr, &here, kPinned));
  ANSWERS(kInvalid, cuMemGetDefaultMemPool(&current, nullptr, kPinned));
  ANSWERS(kInvalid, cuMemGetMemPool(&current, &here, static_cast<CUmemAllocationType>(0)));
  ANSWERS(kInvalid, cuMemGetMemPool(&current, &nowhere, kPinned));
  ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuMemGetDefaultMemPool(&current, &host, kPinned));
  ANSWERS(kInvalid, cuMemSetMemPool(&nowhere, kPinned, pool));
  ANSWERS(kInvalid, cuMemSetMemPool(&here, kPinned, nullptr));
  OK(cuMemPoolDestroy(pool));
  ANSWERS(kInvalid, cuMemSetMemPool(&here, kPinned, pool));
}

// The calls of CUDA 8, which have a device's number for a place; several attributes at once.
void old_advice_and_attributes() {
  CUresult (*advise)(CUdeviceptr, size_t, CUmem_advise, CUdevice) = nullptr;
  CUresult (*prefetch)(CUdeviceptr, size_t, CUdevice, CUstream) = nullptr;
  OK(cuGetProcAddress("cuMemAdvise", reinterpret_cast<void**>(&advise), 8000, 0, nullptr));
  OK(cuGetProcAddress("cuMemPrefetchAsync", reinterpret_cast<void**>(&prefetch), 8000, 0, nullptr));
  EXPECT(advise != nullptr && prefetch != nullptr);
  if (advise == nullptr || prefetch == nullptr) return;
  constexpr size_t kBytes = 8192;
  CUdeviceptr memory = 0;
  OK(cuMemAllocManaged(&memory, kBytes, CU_MEM_ATTACH_GLOBAL));
  constexpr CUdevice kCpu = -1, kNobody = -2;
  OK(advise(memory, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kCpu));
  OK(prefetch(memory, kBytes, 0, nullptr));
  int preferred = 7, prefetched = 7, read_mostly = 7, by[2] = {7, 7};
  void* data[] = {&preferred, &prefetched, &read_mostly, by};
  size_t sizes[] = {4, 4, 4, 8};
  CUmem_range_attribute attributes[] = {
      CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
      CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY};
  OK(cuMemRangeGetAttributes(data, sizes, attributes, 4, memory, kBytes));
  EXPECT(preferred == kCpu && prefetched == 0 && read_mostly == 0);
  EXPECT(by[0] == kNobody && by[1] == kNobody);
  OK(advise(memory, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kCpu));
  OK(advise(memory, kBytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0));
  OK(cuMemRangeGetAttributes(data, sizes, attributes, 4, memory, kBytes));
  EXPECT(preferred == kNobody && by[0] == kCpu && by[1] == kNobody);
  ANSWERS(kInvalid, advise(memory, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 99));
  ANSWERS(CUDA_ERROR_INVALID_DEVICE, prefetch(memory, kBytes, 99, nullptr));
  ANSWERS(kInvalid, prefetch(memory, kBytes + 1, 0, nullptr));
  ANSWERS(kInvalid, cuMemRangeGetAttributes(data, sizes, attributes, 0, memory, kBytes));
  ANSWERS(kInvalid, cuMemRangeGetAttributes(nullptr, sizes, attributes, 4, memory, kBytes));
  ANSWERS(kInvalid, cuMemRangeGetAttributes(data, sizes, attributes, 4, memory, kBytes + 1));
  sizes[0] = 8;
  ANSWERS(kInvalid, cuMemRangeGetAttributes(data, sizes, attributes, 4, memory, kBytes));
  OK(cuMemFree(memory));
}

void registered_memory() {
  std::vector<uint32_t> words(kWords);
  for (unsigned i = 0; i < kWords; ++i) words[i] = i;
  constexpr size_t kBytes = kWords * 4;
  char* const begin = reinterpret_cast<char*>(words.data());
  OK(cuMemHostRegister(begin + 1024, 1024, 0));
  constexpr auto kAlready = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  ANSWERS(kAlready, cuMemHostRegister(begin + 1024, 1024, 0));
  ANSWERS(kAlready, cuMemHostRegister(begin + 2047, 1024, 0));
  ANSWERS(kAlready, cuMemHostRegister(begin, 1025, 0));
  ANSWERS(kInvalid, cuMemHostRegister(begin, SIZE_MAX, 0));
  ANSWERS(kInvalid, cuMemHostRegister(nullptr, 4096, 0));
  ANSWERS(kInvalid, cuMemHostRegister(begin, 0, 0));
  OK(cuMemHostRegister(begin, 1024, 0));
  OK(cuMemHostUnregister(begin));
  OK(cuMemHostUnregister(begin + 1024));
  ANSWERS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(begin));
  OK(cuMemHostRegister(begin, kBytes, CU_MEMHOSTREGISTER_PORTABLE));
  unsigned type = 0;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                           reinterpret_cast<CUdeviceptr>(begin) + 4096 - 4));
  EXPECT(type == CU_MEMORYTYPE_HOST);
  ANSWERS(kInvalid, cuMemFreeHost(begin));
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, kBytes));
  OK(cuMemcpyHtoDAsync(memory, begin, kBytes, nullptr));
  run_twice(memory, nullptr);
  OK(cuMemcpyDtoHAsync(begin, memory, kBytes, nullptr));
  OK(cuCtxSynchronize());
  EXPECT(words[0] == 1 && words[kWords - 1] == 2 * (kWords - 1) + 1);
  OK(cuMemFree(memory));
  OK(cuMemHostUnregister(begin));
}

void boxes_between_contexts() {
  CUdeviceptr words = 0;
  OK(cuMemAlloc(&words, 4096));
  OK(cuMemsetD32(words, 0, 1024));
  OK(cuMemsetD32(words, 5, 12));
  CUcontext second = nullptr;
  OK(cuCtxCreate_v2(&second, 0, 0));
  OK(cuCtxSetCurrent(context));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUDA_MEMCPY3D_PEER box{};  // 2 slices of 3 rows of 2 words
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = words;
  box.dstDevice = words + 1024;
  box.srcContext = context;
  box.dstContext = second;
  box.dstPitch = 32;
  box.dstHeight = 4;
  box.WidthInBytes = 8, box.Height = 3, box.Depth = 2;
  OK(cuMemcpy3DPeerAsync(&box, stream));
  OK(cuStreamSynchronize(stream));
  std::vector<uint32_t> got(1024);
  OK(cuMemcpyDtoH(got.data(), words, 4096));
  for (unsigned z = 0; z < 2; ++z)
    for (unsigned y = 0; y < 4; ++y)
      for (unsigned x = 0; x < 8; ++x)
        EXPECT(got[256 + z * 32 + y * 8 + x] == (x < 2 && y < 3 ? 5u : 0u));
  OK(cuMemcpyPeerAsync(words + 2048, second, words, context, 8, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(got.data(), words + 2048, 12));
  EXPECT(got[1] == 5 && got[2] == 0);
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT,
          cuMemcpyPeerAsync(words + 2048, second, words, reinterpret_cast<CUcontext>(0x77770), 8,
                            stream));
  box.dstPitch = 7;
  ANSWERS(kInvalid, cuMemcpy3DPeerAsync(&box, stream));
  box.dstPitch = SIZE_MAX / 2;
  ANSWERS(kInvalid, cuMemcpy3DPeerAsync(&box, stream));
  box.dstPitch = 32;
  ANSWERS(CUDA_ERROR_INVALID_HANDLE,
          cuMemcpy3DPeerAsync(&box, reinterpret_cast<CUstream>(0x77770)));
  OK(cuCtxDestroy(second));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpy3DPeerAsync(&box, stream));
  OK(cuStreamDestroy(stream));
  OK(cuMemFree(words));
}

}  // namespace

int main() {
  ::alarm(300);  // a hang is a failure
  CUmodule module;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&twice, module, "twice"));
  if (failures != 0) return 1;
  threads_do_not_wait_for_each_other();
  pools();
  managed_memory();
  stream_attributes_and_values();
  pools_of_places();
  old_advice_and_attributes();
  registered_memory();
  boxes_between_contexts();
  sluice::test::batches_of_boxes();
  return failures == 0 ? 0 : 1;
}
