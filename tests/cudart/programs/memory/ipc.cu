// SPDX-License-Identifier: Apache-2.0
// Memory and events of several processes: a parent passes handles to two children, which were made
// before anybody used CUDA. Each adds to what it finds, in the order that events give them.
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "../check.h"

namespace {

constexpr int kCount = 1 << 20, kChildren = 2;

struct Handles {
  cudaIpcMemHandle_t memory, part;
  cudaIpcEventHandle_t before, after;
  size_t offset;
};

__global__ void add(int* data, int count, int what) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    data[i] += what;
}

bool all_are(int* data, int expected) {
  std::vector<int> here(kCount);
  OK(cudaMemcpy(here.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int value : here)
    if (value != expected) return false;
  return true;
}

// Waits for the word of the other side.
void await(int pipe) {
  char word;
  CHECK(read(pipe, &word, 1) == 1);
}
void tell(int pipe) { CHECK(write(pipe, "", 1) == 1); }

int child(int in, int out, int number) {
  Handles handles;
  CHECK(read(in, &handles, sizeof handles) == sizeof handles);
  int *data = nullptr, *again = nullptr, *part = nullptr;
  OK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&data), handles.memory,
                          cudaIpcMemLazyEnablePeerAccess));
  OK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), handles.memory,
                          cudaIpcMemLazyEnablePeerAccess));
  CHECK(again == data);
  // The handle of an address within names the whole allocation.
  OK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&part), handles.part,
                          cudaIpcMemLazyEnablePeerAccess));
  CHECK(part == data);
  OK(cudaIpcCloseMemHandle(part));
  OK(cudaIpcCloseMemHandle(again));
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, data));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(cudaFree(data) != cudaSuccess);
  (void)cudaGetLastError();

  cudaEvent_t before, after;
  OK(cudaIpcOpenEventHandle(&before, handles.before));
  OK(cudaIpcOpenEventHandle(&after, handles.after));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamWaitEvent(stream, before, 0));
  add<<<64, 256, 0, stream>>>(data, kCount, 10 + number);
  OK(cudaEventRecord(after, stream));
  tell(out);  // recorded
  OK(cudaEventSynchronize(after));
  await(in);
  float ms;
  ANSWERS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, before, after));
  (void)cudaGetLastError();
  OK(cudaEventDestroy(before));
  OK(cudaEventDestroy(after));
  OK(cudaIpcCloseMemHandle(data));
  return failures == 0 ? 0 : 1;
}

void parent(const int* to, const int* from) {
  int* data;
  OK(cudaMalloc(&data, kCount * sizeof(int)));
  OK(cudaMemset(data, 0, kCount * sizeof(int)));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  int expected = 0;
  cudaEvent_t before, after;
  OK(cudaEventCreateWithFlags(&before, cudaEventDisableTiming | cudaEventInterprocess));
  OK(cudaEventCreateWithFlags(&after, cudaEventDisableTiming | cudaEventInterprocess));
  Handles handles;
  OK(cudaIpcGetMemHandle(&handles.memory, data));
  OK(cudaIpcGetMemHandle(&handles.part, data + 1000));
  OK(cudaIpcGetEventHandle(&handles.before, before));
  OK(cudaIpcGetEventHandle(&handles.after, after));
  for (int i = 0; i < kChildren; ++i) {
    add<<<64, 256, 0, stream>>>(data, kCount, 1);
    OK(cudaEventRecord(before, stream));
    CHECK(write(to[i], &handles, sizeof handles) == sizeof handles);
    await(from[i]);
    OK(cudaStreamWaitEvent(stream, after, 0));
    add<<<64, 256, 0, stream>>>(data, kCount, 100);
    OK(cudaStreamSynchronize(stream));
    OK(cudaEventQuery(after));
    expected += 1 + 10 + i + 100;
    CHECK(all_are(data, expected));
    tell(to[i]);
  }
  void* own = nullptr;
  CHECK(cudaIpcOpenMemHandle(&own, handles.memory, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
  (void)cudaGetLastError();
  for (int i = 0; i < kChildren; ++i) {
    int status = -1;
    wait(&status);
    CHECK(status == 0);
  }
  OK(cudaEventDestroy(before));
  OK(cudaEventDestroy(after));
  OK(cudaFree(data));
}

void refusals() {
  cudaEvent_t event;
  cudaIpcEventHandle_t handle;
  cudaIpcMemHandle_t memory;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventInterprocess) != cudaSuccess);
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaIpcGetEventHandle(&handle, event) != cudaSuccess);
  OK(cudaEventDestroy(event));
  int here = 0;
  CHECK(cudaIpcGetMemHandle(&memory, &here) != cudaSuccess);
  CHECK(cudaIpcCloseMemHandle(&here) != cudaSuccess);
  (void)cudaGetLastError();
}

}  // namespace

int main() {
  int to[kChildren], from[kChildren];
  for (int i = 0; i < kChildren; ++i) {
    int down[2], up[2];
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    if (fork() == 0) {
      alarm(120);  // a hang is a failure
      const int status = child(down[0], up[1], i);
      std::fflush(stdout);
      _exit(status);
    }
    to[i] = down[1];
    from[i] = up[0];
  }
  parent(to, from);
  refusals();
  return result();
}
