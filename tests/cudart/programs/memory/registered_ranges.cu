// SPDX-License-Identifier: Apache-2.0
// Memory that is registered without any flag: whole pages, parts of pages, shared pages; copied in
// parts and rows; written by a thread and by a host function while it is registered; what is known
// of it; and after a reset.
#include <sys/mman.h>

#include <atomic>
#include <thread>
#include <vector>

#include "../check.h"

constexpr int kCount = 1 << 18;
constexpr size_t kBytes = kCount * sizeof(int);

__global__ void twice(int* p, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= 2;
}

int* pages(size_t bytes, int kind) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  return static_cast<int*>(p);
}

// There and back in a stream, doubled on the way.
void there_and_back(int* host, int* device, cudaStream_t stream) {
  for (int i = 0; i < kCount; ++i) host[i] = i;
  OK(cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, stream));
  twice<<<kCount / 64, 64, 0, stream>>>(device, kCount);
  OK(cudaMemcpyAsync(host, device, kBytes, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += host[i] != 2 * i;
  CHECK(wrong == 0);
}

void kinds_of_pages(int* device, cudaStream_t stream) {
  std::vector<int> of_the_heap(kCount);
  int *whole = pages(kBytes, MAP_PRIVATE), *shared = pages(kBytes, MAP_SHARED);
  for (int* host : {whole, shared, of_the_heap.data()}) {
    OK(cudaHostRegister(host, kBytes, 0));
    there_and_back(host, device, stream);
    OK(cudaHostUnregister(host));
    CHECK(host[kCount - 1] == 2 * (kCount - 1));
  }
  munmap(whole, kBytes);
  munmap(shared, kBytes);
}

void parts_and_rows(int* device, cudaStream_t stream) {
  int* host = pages(2 * kBytes, MAP_PRIVATE);
  for (int i = 0; i < 2 * kCount; ++i) host[i] = i;
  OK(cudaHostRegister(host, 2 * kBytes, 0));
  OK(cudaMemcpyAsync(device, host + kCount / 2, kBytes, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(host, device, kBytes, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += host[i] != i + kCount / 2;
  CHECK(wrong == 0);
  int* const to = host + kCount + 7;
  OK(cudaMemcpy2DAsync(device, 256, host + 3, 512, 200, 100, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpy2DAsync(to, 200, device, 256, 200, 100, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  for (int row = 0; row < 100; ++row)
    for (int k = 0; k < 50; ++k) wrong += to[row * 50 + k] != 3 + row * 128 + k + kCount / 2;
  CHECK(wrong == 0);
  cudaPointerAttributes known{};
  OK(cudaPointerGetAttributes(&known, host));
  CHECK(known.type == cudaMemoryTypeHost);
  CHECK(known.devicePointer != nullptr);
  if (known.devicePointer != nullptr)
    twice<<<1, 64, 0, stream>>>(static_cast<int*>(known.devicePointer), 64);
  OK(cudaStreamSynchronize(stream));
  CHECK(host[9] == 2 * (9 + kCount / 2));
  OK(cudaHostUnregister(host));
  CHECK(host[9] == 2 * (9 + kCount / 2));
  munmap(host, 2 * kBytes);
}

void a_thread_writes() {
  for (int round = 0; round < 20; ++round) {
    int* const host = pages(kBytes, MAP_PRIVATE);
    std::atomic<bool> stop{false};
    std::atomic<long> last{0};
    std::thread writer([&] {
      for (long k = 1; !stop; ++k) {
        static_cast<volatile int*>(host)[k % kCount] = static_cast<int>(k);
        last = k;
      }
    });
    while (last < 1000) std::this_thread::yield();
    OK(cudaHostRegister(host, kBytes, 0));
    stop = true;
    writer.join();
    int lost = 0;
    for (long k = last; k > last - 900; --k) lost += host[k % kCount] != static_cast<int>(k);
    CHECK(lost == 0);
    OK(cudaHostUnregister(host));
    munmap(host, kBytes);
  }
}

void a_host_function_writes(int* device, cudaStream_t stream) {
  int* const host = pages(kBytes, MAP_PRIVATE);
  const auto fill = [](void* to) {
    for (int i = 0; i < kCount; ++i) static_cast<volatile int*>(to)[i] = i + 1;
  };
  OK(cudaLaunchHostFunc(stream, fill, host));
  OK(cudaHostRegister(host, kBytes, 0));
  OK(cudaStreamSynchronize(stream));
  int lost = 0;
  for (int i = 0; i < kCount; ++i) lost += host[i] != i + 1;
  CHECK(lost == 0);
  there_and_back(host, device, stream);
  OK(cudaHostUnregister(host));
  munmap(host, kBytes);
}

int main() {
  int *device = nullptr, *kept = pages(kBytes, MAP_PRIVATE);
  cudaStream_t stream;
  OK(cudaMalloc(&device, kBytes));
  OK(cudaStreamCreate(&stream));
  OK(cudaHostRegister(kept, kBytes, 0));
  kinds_of_pages(device, stream);
  parts_and_rows(device, stream);
  a_thread_writes();
  a_host_function_writes(device, stream);
  there_and_back(kept, device, stream);
  OK(cudaDeviceReset());
  CHECK(kept[3] == 6);
  kept[3] = 78;
  OK(cudaMalloc(&device, kBytes));
  OK(cudaStreamCreate(&stream));
  int* const again = pages(kBytes, MAP_PRIVATE);
  OK(cudaHostRegister(again, kBytes, 0));
  there_and_back(again, device, stream);
  CHECK(kept[3] == 78);
  return result();
}
