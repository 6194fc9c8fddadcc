// SPDX-License-Identifier: Apache-2.0
// Pools and managed memory: allocations in the order of a stream, properties, access, sharing;
// advice, prefetches and what ranges report of them.
#include <cstring>

#include "tests/cudart/gate/cases/cases.h"

using namespace sluice::cudart;

namespace {

constexpr int kPinned = 1, kOnDevice = 1, kReadWrite = 3;
constexpr int kReleaseThreshold = 4, kUsedCurrent = 7, kUsedHigh = 8;
constexpr int kReservedCurrent = 5, kReservedHigh = 6;
const cudaMemLocation kDevice0{kOnDevice, 0};

class PoolCases : public Cases {
 protected:
  cudaMemPool_t make_pool() {
    cudaMemPoolProps properties = {};
    properties.allocType = kPinned;
    properties.location = kDevice0;
    cudaMemPool_t pool = nullptr;
    OK(cudaMemPoolCreate(&pool, &properties));
    return pool;
  }
};

TEST_F(PoolCases, AllocationsFollowTheStream) {
  Stream stream;
  void *p = nullptr, *q = nullptr;
  OK(cudaMallocAsync(&p, 4096, stream));
  OK(cudaMemsetAsync(p, 5, 4096, stream));
  cudaMemPool_t pool = make_pool();
  OK(cudaMallocFromPoolAsync(&q, 4096, pool, stream));
  OK(cudaMemcpyAsync(q, p, 4096, cudaMemcpyDeviceToDevice, stream));
  int value = 0;
  OK(cudaMemcpyAsync(&value, q, 4, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(value, 0x05050505);
  unsigned long long used = 0;
  OK(cudaMemPoolGetAttribute(pool, kUsedCurrent, &used));
  EXPECT_GE(used, 4096u);
  OK(cudaFreeAsync(p, stream));
  OK(cudaFreeAsync_ptsz(q, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemPoolTrimTo(pool, 0));
  OK(cudaMemPoolGetAttribute(pool, kUsedCurrent, &used));
  EXPECT_EQ(used, 0u);
  OK(cudaMemPoolDestroy(pool));
  OK(cudaMallocAsync(&p, 0, stream));
  EXPECT_EQ(p, nullptr);
  OK(cudaFreeAsync(p, stream));
  int here = 0;
  ANSWERS(cudaErrorInvalidValue, cudaMallocAsync(nullptr, 64, stream));
  REFUSED(cudaFreeAsync(&here, stream));
  REFUSED(cudaMallocFromPoolAsync(nullptr, 64, nullptr, stream));
}

// Freed memory stays reserved until the program synchronises, and up to the threshold beyond that.
TEST_F(PoolCases, FreedMemoryStaysReserved) {
  constexpr size_t kBytes = 1 << 20;
  cudaMemPool_t pool = make_pool();
  Stream stream;
  const auto value = [&](int attribute) {
    unsigned long long bytes = 0;
    OK(cudaMemPoolGetAttribute(pool, attribute, &bytes));
    return bytes;
  };
  const auto use = [&] {
    void* p = nullptr;
    OK(cudaMallocFromPoolAsync(&p, kBytes, pool, stream));
    EXPECT_GE(value(kReservedCurrent), kBytes);
    OK(cudaFreeAsync(p, stream));
    EXPECT_GE(value(kReservedCurrent), kBytes);
    OK(cudaStreamSynchronize(stream));
  };
  use();
  EXPECT_EQ(value(kReservedCurrent), 0u);
  unsigned long long all = ~0ull, none = 0;
  OK(cudaMemPoolSetAttribute(pool, kReleaseThreshold, &all));
  use();
  EXPECT_EQ(value(kUsedCurrent), 0u);
  const unsigned long long kept = value(kReservedCurrent);
  EXPECT_GE(kept, kBytes);
  use();
  EXPECT_EQ(value(kReservedCurrent), kept) << "it is used again";
  OK(cudaMemPoolTrimTo(pool, kept));
  EXPECT_EQ(value(kReservedCurrent), kept);
  OK(cudaMemPoolTrimTo(pool, 0));
  EXPECT_EQ(value(kReservedCurrent), 0u);
  use();
  OK(cudaMemPoolSetAttribute(pool, kReleaseThreshold, &none));
  EXPECT_GE(value(kReservedCurrent), kBytes);
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(value(kReservedCurrent), 0u);
  EXPECT_GE(value(kReservedHigh), kBytes);
  OK(cudaMemPoolSetAttribute(pool, kReservedHigh, &none));
  EXPECT_EQ(value(kReservedHigh), 0u);
  EXPECT_GE(value(kUsedHigh), kBytes) << "its own mark";
  OK(cudaMemPoolDestroy(pool));
}

TEST_F(PoolCases, PropertiesAndAttributes) {
  cudaMemPool_t pool = make_pool();
  unsigned long long threshold = 1 << 20, value = 0;
  OK(cudaMemPoolSetAttribute(pool, kReleaseThreshold, &threshold));
  OK(cudaMemPoolGetAttribute(pool, kReleaseThreshold, &value));
  EXPECT_EQ(value, threshold);
  REFUSED(cudaMemPoolSetAttribute(pool, 99, &threshold));
  REFUSED(cudaMemPoolGetAttribute(pool, 99, &value));
  EXPECT_EQ(value, threshold);
  REFUSED(cudaMemPoolTrimTo(nullptr, 0));
  OK(cudaMemPoolDestroy(pool));
  REFUSED(cudaMemPoolDestroy(nullptr));
  cudaMemPoolProps properties = {};
  properties.allocType = 99;
  properties.location = kDevice0;
  pool = nullptr;
  REFUSED(cudaMemPoolCreate(&pool, &properties));
  REFUSED(cudaMemPoolCreate(&pool, nullptr));
  EXPECT_EQ(pool, nullptr);
}

TEST_F(PoolCases, PoolsOfTheDevice) {
  cudaMemPool_t standard = nullptr, current = nullptr;
  OK(cudaDeviceGetDefaultMemPool(&standard, 0));
  OK(cudaDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, standard);
  cudaMemPool_t mine = make_pool();
  OK(cudaDeviceSetMemPool(0, mine));
  OK(cudaDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, mine);
  OK(cudaDeviceSetMemPool(0, standard));
  OK(cudaMemPoolDestroy(mine));
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetDefaultMemPool(nullptr, 0));
  ANSWERS(cudaErrorInvalidDevice, cudaDeviceGetDefaultMemPool(&current, 1000));
  int devices = 0;
  OK(cudaGetDeviceCount(&devices));
  ANSWERS(cudaErrorInvalidDevice, cudaDeviceGetDefaultMemPool(&current, devices));
  ANSWERS(cudaErrorInvalidValue, cudaDeviceGetMemPool(&current, 1000));  // a value, here
  REFUSED(cudaDeviceSetMemPool(1000, standard));
  REFUSED(cudaDeviceSetMemPool(0, nullptr));
  OK(cudaDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, standard);
}

TEST_F(PoolCases, PoolsOfAPlace) {
  cudaMemLocation place = kDevice0;
  cudaMemPool_t standard = nullptr, current = nullptr;
  OK(cudaMemGetDefaultMemPool(&standard, &place, kPinned));
  OK(cudaMemGetMemPool(&current, &place, kPinned));
  EXPECT_EQ(current, standard);
  cudaMemPool_t mine = make_pool();
  OK(cudaMemSetMemPool(&place, kPinned, mine));
  OK(cudaMemGetMemPool(&current, &place, kPinned));
  EXPECT_EQ(current, mine);
  OK(cudaMemSetMemPool(&place, kPinned, standard));
  OK(cudaMemPoolDestroy(mine));
  cudaMemLocation nowhere{kOnDevice, 1000};
  REFUSED(cudaMemGetDefaultMemPool(&current, &nowhere, kPinned));
  REFUSED(cudaMemGetMemPool(&current, &nowhere, kPinned));
  REFUSED(cudaMemSetMemPool(&nowhere, kPinned, standard));
}

TEST_F(PoolCases, Access) {
  cudaMemPool_t pool = make_pool();
  int flags = 0;
  cudaMemLocation place = kDevice0;
  OK(cudaMemPoolGetAccess(&flags, pool, &place));
  EXPECT_EQ(flags, kReadWrite);
  cudaMemAccessDesc access{kDevice0, kReadWrite};
  OK(cudaMemPoolSetAccess(pool, &access, 1));
  access.location.id = 1000;
  REFUSED(cudaMemPoolSetAccess(pool, &access, 1));
  place.id = 1000;
  REFUSED(cudaMemPoolGetAccess(&flags, pool, &place));
  OK(cudaMemPoolDestroy(pool));
}

// A pool that was made for its process alone has nothing to share.
TEST_F(PoolCases, NothingToShare) {
  constexpr int kFileDescriptor = 1;
  cudaMemPool_t pool = make_pool(), imported = nullptr;
  Stream stream;
  void* p = nullptr;
  OK(cudaMallocFromPoolAsync(&p, 4096, pool, stream));
  OK(cudaStreamSynchronize(stream));
  int descriptor = -1;
  cudaMemPoolPtrExportData data = {};
  REFUSED(cudaMemPoolExportToShareableHandle(&descriptor, pool, kFileDescriptor, 0));
  EXPECT_EQ(descriptor, -1);
  REFUSED(cudaMemPoolExportPointer(&data, p));
  REFUSED(cudaMemPoolImportFromShareableHandle(&imported, nullptr, kFileDescriptor, 77));
  REFUSED(cudaMemPoolImportPointer(nullptr, pool, &data));
  EXPECT_EQ(imported, nullptr);
  OK(cudaFreeAsync(p, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemPoolDestroy(pool));
}

class ManagedCases : public Cases {
 protected:
  void SetUp() override {
    Cases::SetUp();
    OK(cudaMallocManaged(&memory_, kBytes, 1));
  }
  void TearDown() override {
    OK(cudaFree(memory_));
    Cases::TearDown();
  }
  static constexpr size_t kBytes = 1 << 16;
  void* memory_ = nullptr;
};

TEST_F(ManagedCases, OneAddressOnBothSides) {
  std::memset(memory_, 1, kBytes);
  OK(cudaMemset(memory_, 2, 4));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(*static_cast<int*>(memory_), 0x02020202);
  EXPECT_EQ(static_cast<int*>(memory_)[1], 0x01010101);
  cudaPointerAttributes attributes = {};
  OK(cudaPointerGetAttributes(&attributes, memory_));
  EXPECT_EQ(attributes.type, cudaMemoryTypeManaged);
}

TEST_F(ManagedCases, AdviceIsReported) {
  constexpr int kSetReadMostly = 1, kUnsetReadMostly = 2, kSetPreferred = 3;
  constexpr int kReadMostly = 1, kPreferred = 2, kLastPrefetch = 4;
  int value = 0;
  OK(cudaMemAdvise(memory_, kBytes, kSetReadMostly, kDevice0));
  OK(cudaMemRangeGetAttribute(&value, sizeof value, kReadMostly, memory_, kBytes));
  EXPECT_EQ(value, 1);
  OK(cudaMemAdvise(memory_, kBytes, kUnsetReadMostly, kDevice0));
  OK(cudaMemAdvise(memory_, kBytes, kSetPreferred, kDevice0));
  Stream stream;
  OK(cudaMemPrefetchAsync(memory_, kBytes, kDevice0, 0, stream));
  OK(cudaStreamSynchronize(stream));
  int answers[3] = {9, 9, 9};
  void* data[] = {&answers[0], &answers[1], &answers[2]};
  size_t sizes[] = {4, 4, 4};
  int wanted[] = {kReadMostly, kPreferred, kLastPrefetch};
  OK(cudaMemRangeGetAttributes(data, sizes, wanted, 3, memory_, kBytes));
  EXPECT_EQ(answers[0], 0);
  EXPECT_EQ(answers[1], 0);
  EXPECT_EQ(answers[2], 0);
  REFUSED(cudaMemAdvise(memory_, kBytes, 99, kDevice0));
  REFUSED(cudaMemAdvise(memory_, 0, kSetReadMostly, kDevice0));
  REFUSED(cudaMemRangeGetAttribute(&value, 3, kReadMostly, memory_, kBytes));
  REFUSED(cudaMemRangeGetAttribute(&value, sizeof value, 99, memory_, kBytes));
  REFUSED(cudaMemRangeGetAttributes(data, sizes, nullptr, 3, memory_, kBytes));
  REFUSED(cudaMemPrefetchAsync(memory_, kBytes, cudaMemLocation{kOnDevice, 1000}, 0, stream));
  int devices = 0;
  OK(cudaGetDeviceCount(&devices));
  const cudaMemLocation beyond{kOnDevice, devices};
  REFUSED(cudaMemPrefetchAsync(memory_, kBytes, beyond, 0, stream));
  REFUSED(cudaMemAdvise(memory_, kBytes, kSetPreferred, beyond));
  REFUSED(cudaMemPrefetchAsync(memory_, 0, kDevice0, 0, stream));
}

TEST_F(ManagedCases, Batches) {
  Stream stream;
  size_t bytes = kBytes, first = 0;
  cudaMemLocation place = kDevice0;
  OFFERED(cudaMemPrefetchBatchAsync(&memory_, &bytes, 1, &place, &first, 1, 0, stream));
  OFFERED(cudaMemDiscardBatchAsync(&memory_, &bytes, 1, 0, stream));
  OFFERED(cudaMemDiscardAndPrefetchBatchAsync(&memory_, &bytes, 1, &place, &first, 1, 0, stream));
  OK(cudaStreamSynchronize(stream));
  REFUSED(cudaMemPrefetchBatchAsync(nullptr, &bytes, 1, &place, &first, 1, 0, stream));
  REFUSED(cudaMemDiscardBatchAsync(nullptr, &bytes, 1, 0, stream));
  REFUSED(cudaMemDiscardAndPrefetchBatchAsync(nullptr, &bytes, 1, &place, &first, 1, 0, stream));
}

}  // namespace
