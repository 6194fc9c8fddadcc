// SPDX-License-Identifier: Apache-2.0
// Memory: allocations of all kinds, fills, copies of bytes, rows and boxes, symbols, registered
// host memory, attributes of pointers, copies between devices, batches.
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/cudart/gate/cases/cases.h"

using namespace sluice::cudart;

namespace {

constexpr int kBadKind = 7;
class MemoryCases : public Cases {};

TEST_F(MemoryCases, AllocationsOfNothing) {
  void* p = &p;
  size_t pitch = 4711;
  OK(cudaMalloc(&p, 0));
  EXPECT_EQ(p, nullptr);
  p = &p;
  OK(cudaMallocManaged(&p, 0, 1));
  EXPECT_EQ(p, nullptr);
  p = &p;
  OK(cudaMallocHost(&p, 0));
  EXPECT_EQ(p, nullptr);
  p = &p;
  OK(cudaMallocPitch(&p, &pitch, 0, 10));
  EXPECT_EQ(p, nullptr);
  OK(cudaFree(nullptr));
  OK(cudaFreeHost(nullptr));
}

TEST_F(MemoryCases, WrongAllocations) {
  void* p = nullptr;
  size_t pitch = 0;
  int here = 0;
  ANSWERS(cudaErrorInvalidValue, cudaMalloc(nullptr, 4));
  ANSWERS(cudaErrorMemoryAllocation, cudaMalloc(&p, size_t{1} << 60));
  EXPECT_EQ(p, nullptr);
  ANSWERS(cudaErrorInvalidValue, cudaMallocManaged(nullptr, 4, 1));
  ANSWERS(cudaErrorInvalidValue, cudaMallocManaged(&p, 4, 99));
  ANSWERS(cudaErrorInvalidValue, cudaMallocHost(nullptr, 4));
  ANSWERS(cudaErrorInvalidValue, cudaHostAlloc(nullptr, 4, 0));
  ANSWERS(cudaErrorInvalidValue, cudaHostAlloc(&p, 64, 0xFF00));
  ANSWERS(cudaErrorInvalidValue, cudaMallocPitch(nullptr, &pitch, 10, 10));
  ANSWERS(cudaErrorInvalidValue, cudaMallocPitch(&p, nullptr, 10, 10));
  ANSWERS(cudaErrorInvalidValue, cudaMalloc3D(nullptr, cudaExtent{8, 8, 8}));
  ANSWERS(cudaErrorInvalidValue, cudaFree(&here));
  ANSWERS(cudaErrorInvalidValue, cudaFreeHost(&here));
  EXPECT_EQ(p, nullptr);
}

TEST_F(MemoryCases, HostMemoryIsMapped) {
  constexpr unsigned kMapped = 2, kPortable = 1;
  int* host = nullptr;
  OK(cudaHostAlloc(reinterpret_cast<void**>(&host), 4096, kMapped | kPortable));
  unsigned flags = 0;
  OK(cudaHostGetFlags(&flags, host));
  EXPECT_EQ(flags & (kMapped | kPortable), kMapped | kPortable);
  void* device = nullptr;
  OK(cudaHostGetDevicePointer(&device, host, 0));
  OK(cudaMemset(device, 1, 4096));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(host[1023], 0x01010101);
  cudaPointerAttributes attributes = {};
  OK(cudaPointerGetAttributes(&attributes, host));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(attributes.hostPointer, host);
  OK(cudaFreeHost(host));
  int here = 0;
  REFUSED(cudaHostGetFlags(&flags, &here));
  REFUSED(cudaHostGetDevicePointer(&device, &here, 0));
  ANSWERS(cudaErrorInvalidValue, cudaPointerGetAttributes(nullptr, &here));
  OK(cudaPointerGetAttributes(&attributes, &here));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(MemoryCases, RegisteredHostMemory) {
  std::vector<char> room(3 * 4096);
  void* page =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(room.data()) + 4095) & ~uintptr_t{4095});
  if (OFFERED(cudaHostRegister(page, 4096, 0))) {
    ANSWERS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(page, 4096, 0));
    OK(cudaHostUnregister(page));
  }
  ANSWERS(cudaErrorInvalidValue, cudaHostRegister(nullptr, 64, 0));
  REFUSED(cudaHostUnregister(page));
}

TEST_F(MemoryCases, BytesInAllDirections) {
  Memory<int> one(4), other(4);
  int from[] = {1, 2, 3, 4}, to[4] = {};
  Stream stream;
  OK(cudaMemcpyAsync(one.at(), from, 16, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync_ptsz(other.at(), one.at(), 16, cudaMemcpyDeviceToDevice, stream));
  OK(cudaMemcpyAsync(to, other.at(), 16, cudaMemcpyDefault, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(std::memcmp(from, to, sizeof to), 0);
  OK(cudaMemcpy(to, from + 2, 8, cudaMemcpyHostToHost));
  EXPECT_EQ(to[0], 3);
  OK(cudaMemcpy(to, from, 0, cudaMemcpyHostToHost));
  to[0] = 4711;
  ANSWERS(cudaErrorInvalidMemcpyDirection, cudaMemcpy(to, one.at(), 4, kBadKind));
  ANSWERS(cudaErrorInvalidMemcpyDirection, cudaMemcpyAsync(to, one.at(), 4, kBadKind, stream));
  ANSWERS(cudaErrorInvalidValue,
          cudaMemcpyAsync(one.at(), nullptr, 4, cudaMemcpyHostToDevice, stream));
  EXPECT_EQ(to[0], 4711);
}

TEST_F(MemoryCases, Fills) {
  constexpr size_t kPitch = 64;
  Memory<char> rows(kPitch * 6);
  Stream stream;
  OK(cudaMemset2DAsync(rows.at(), kPitch, 1, 3, 6, stream));
  OK(cudaMemset2D_ptds(rows.at() + 8, kPitch, 2, 3, 6));
  const cudaPitchedPtr box{rows.at() + 16, kPitch, 16, 3};
  OK(cudaMemset3D(box, 3, cudaExtent{2, 2, 2}));
  OK(cudaMemset3DAsync(box, 4, cudaExtent{1, 1, 1}, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(rows[2 + 5 * kPitch], 1);
  EXPECT_EQ(rows[3 + 5 * kPitch], 0);
  EXPECT_EQ(rows[10], 2);
  EXPECT_EQ(rows[16], 4);
  EXPECT_EQ(rows[17], 3);
  EXPECT_EQ(rows[17 + 1 * kPitch], 3);
  EXPECT_EQ(rows[17 + 2 * kPitch], 0);
  EXPECT_EQ(rows[17 + 4 * kPitch], 3);
  REFUSED(cudaMemset(nullptr, 0, 4));
  REFUSED(cudaMemsetAsync(nullptr, 0, 4, stream));
  REFUSED(cudaMemset2D(nullptr, kPitch, 0, 8, 2));
  REFUSED(cudaMemset2D(rows.at(), 4, 9, 8, 2));
  REFUSED(cudaMemset2DAsync(rows.at(), 4, 9, 8, 2, stream));
  REFUSED(cudaMemset3D(cudaPitchedPtr{rows.at(), 8, 16, 2}, 9, cudaExtent{16, 2, 1}));
  REFUSED(cudaMemset3DAsync(cudaPitchedPtr{rows.at(), 8, 16, 2}, 9, cudaExtent{16, 2, 1}, stream));
  EXPECT_EQ(rows[0], 1);
}

TEST_F(MemoryCases, RowsAndBoxes) {
  constexpr size_t w = 24, h = 5;
  std::vector<char> from(w * h), to(w * h);
  std::iota(from.begin(), from.end(), '\0');
  void* p = nullptr;
  size_t pitch = 0;
  OK(cudaMallocPitch(&p, &pitch, w, h));
  Stream stream;
  OK(cudaMemcpy2DAsync(p, pitch, from.data(), w, w, h, cudaMemcpyHostToDevice, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemcpy2D_ptds(to.data(), w, p, pitch, w, h, cudaMemcpyDeviceToHost));
  EXPECT_EQ(to, from);
  ANSWERS(cudaErrorInvalidPitchValue,
          cudaMemcpy2DAsync(p, w - 1, from.data(), w, w, h, cudaMemcpyHostToDevice, stream));
  ANSWERS(cudaErrorInvalidMemcpyDirection, cudaMemcpy2D(p, pitch, from.data(), w, w, h, kBadKind));
  OK(cudaFree(p));

  cudaPitchedPtr box = {};
  OK(cudaMalloc3D(&box, cudaExtent{8, 5, 3}));
  EXPECT_GE(box.pitch, 8u);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = {from.data(), 8, 8, 5};
  copy.dstPtr = box;
  copy.extent = {8, 5, 3};
  copy.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&copy));
  copy = {};
  copy.srcPtr = box;
  copy.srcPos = {1, 1, 1};
  copy.dstPtr = {to.data(), 2, 2, 2};
  copy.extent = {2, 2, 2};
  copy.kind = cudaMemcpyDeviceToHost;
  OK(cudaMemcpy3DAsync(&copy, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(to[0], from[1 + 8 * 1 + 40 * 1]);
  EXPECT_EQ(to[7], from[2 + 8 * 2 + 40 * 2]);
  ANSWERS(cudaErrorInvalidValue, cudaMemcpy3D(nullptr));
  ANSWERS(cudaErrorInvalidValue, cudaMemcpy3DAsync(nullptr, stream));
  copy.srcPtr.ptr = nullptr;
  REFUSED(cudaMemcpy3D(&copy));
  REFUSED(cudaMemcpy3DAsync(&copy, stream));
  OK(cudaFree(box.ptr));
}

TEST_F(MemoryCases, Symbols) {
  Stream stream;
  int values[4] = {11, 12, 13, 14}, to[4] = {}, before[4] = {};
  void* address = nullptr;
  size_t size = 0;
  OK(cudaGetSymbolAddress(&address, host_weights));
  OK(cudaGetSymbolSize(&size, host_weights));
  EXPECT_EQ(size, sizeof host_weights);
  OK(cudaMemcpyFromSymbol(before, host_weights, 16, 0, cudaMemcpyDeviceToHost));
  OK(cudaMemcpyToSymbolAsync(host_weights, values, 8, 8, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyFromSymbolAsync(to, host_weights, 16, 0, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(to[0], before[0]);
  EXPECT_EQ(to[2], 11);
  EXPECT_EQ(to[3], 12);
  OK(cudaMemcpyToSymbol(host_weights, before, 16, 0, cudaMemcpyHostToDevice));
  ANSWERS(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&address, &size));
  ANSWERS(cudaErrorInvalidSymbol, cudaGetSymbolSize(&size, &address));
  ANSWERS(cudaErrorInvalidValue,
          cudaMemcpyToSymbolAsync(host_weights, values, 16, 4, cudaMemcpyHostToDevice, stream));
  ANSWERS(cudaErrorInvalidValue,
          cudaMemcpyFromSymbol(to, host_weights, 16, 4, cudaMemcpyDeviceToHost));
  ANSWERS(cudaErrorInvalidValue,
          cudaMemcpyFromSymbolAsync(to, host_weights, 16, 4, cudaMemcpyDeviceToHost, stream));
  ANSWERS(cudaErrorInvalidSymbol, cudaMemcpyFromSymbol(to, &size, 16, 0, cudaMemcpyDeviceToHost));
}

TEST_F(MemoryCases, BetweenDevices) {
  Memory<int> one(2), other(2);
  one.fill(9);
  Stream stream;
  OK(cudaMemcpyPeer(other.at(), 0, one.at(), 0, 4));
  OK(cudaMemcpyPeerAsync(other.at() + 1, 0, one.at(), 0, 4, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(other[0], 9);
  EXPECT_EQ(other[1], 9);
  cudaMemcpy3DPeerParms copy = {};
  copy.srcPtr = {one.at(), 8, 8, 1};
  copy.dstPtr = {other.at(), 8, 8, 1};
  copy.extent = {8, 1, 1};
  one.fill(10);
  OK(cudaMemcpy3DPeer(&copy));
  EXPECT_EQ(other[1], 10);
  one.fill(11);
  OK(cudaMemcpy3DPeerAsync(&copy, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(other[1], 11);
  ANSWERS(cudaErrorInvalidDevice, cudaMemcpyPeer(other.at(), 1000, one.at(), 0, 4));
  ANSWERS(cudaErrorInvalidDevice, cudaMemcpyPeerAsync(other.at(), 0, one.at(), 1000, 4, stream));
  copy.dstDevice = 1000;
  ANSWERS(cudaErrorInvalidDevice, cudaMemcpy3DPeer(&copy));
  ANSWERS(cudaErrorInvalidDevice, cudaMemcpy3DPeerAsync(&copy, stream));
}

// In the order of the stream, as the attributes ask.
struct BatchAttributes {
  int source_order = 1;
  int source_type = 0, source_id = 0, target_type = 0, target_id = 0;
  unsigned flags = 0;
};

TEST_F(MemoryCases, Batches) {
  Memory<int> one(2), other(2);
  one.fill(21);
  Stream stream;
  void* to[] = {other.at() + 1, other.at()};
  const void* from[] = {one.at(), one.at() + 1};
  size_t sizes[] = {4, 4}, first = 0;
  BatchAttributes attributes;
  auto* as_handed_over = reinterpret_cast<cudaMemcpyAttributes*>(&attributes);
  OK(cudaMemcpyBatchAsync(to, from, sizes, 2, as_handed_over, &first, 1, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(other[0], 21);
  EXPECT_EQ(other[1], 21);
  REFUSED(cudaMemcpyBatchAsync(to, from, sizes, 2, as_handed_over, &first, 0, stream));
  REFUSED(cudaMemcpyBatchAsync(nullptr, from, sizes, 2, as_handed_over, &first, 1, stream));
  REFUSED(cudaMemcpy3DBatchAsync(1, nullptr, 0, stream));
}

}  // namespace
