// SPDX-License-Identifier: Apache-2.0
// A pool of several processes: its descriptor goes over a Unix socket to a child, which imports the
// pool and allocations out of it, changes them and frees them; and what is no pool's descriptor.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "../check.h"

namespace {

constexpr int kCount = 1 << 18, kBuffers = 3;
constexpr cudaMemAllocationHandleType kDescriptor = cudaMemHandleTypePosixFileDescriptor;

struct Message {
  cudaMemPoolPtrExportData buffers[kBuffers];
  int number;  // what the child adds
};

__global__ void add(int* data, int what) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kCount; i += gridDim.x * blockDim.x)
    data[i] += what;
}

void send_message(int socket, const Message& message, int descriptor) {
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {const_cast<Message*>(&message), sizeof message};
  msghdr m = {};
  m.msg_iov = &part, m.msg_iovlen = 1;
  m.msg_control = control, m.msg_controllen = sizeof control;
  cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
  CHECK(sendmsg(socket, &m, 0) == sizeof message);
}
int receive_message(int socket, Message* message) {
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {message, sizeof *message};
  msghdr m = {};
  m.msg_iov = &part, m.msg_iovlen = 1;
  m.msg_control = control, m.msg_controllen = sizeof control;
  CHECK(recvmsg(socket, &m, 0) == sizeof *message);
  int descriptor = -1;
  const cmsghdr* c = CMSG_FIRSTHDR(&m);
  CHECK(c != nullptr && c->cmsg_type == SCM_RIGHTS);
  if (c != nullptr) std::memcpy(&descriptor, CMSG_DATA(c), sizeof descriptor);
  return descriptor;
}
// Waits for the word of the other side.
void await(int socket) {
  char word;
  CHECK(read(socket, &word, 1) == 1);
}
void tell(int socket) { CHECK(write(socket, "", 1) == 1); }

void* as_handle(int descriptor) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
}

cudaMemPool_t make_pool(cudaMemAllocationHandleType type) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.handleTypes = type;
  cudaMemPool_t pool = nullptr;
  OK(cudaMemPoolCreate(&pool, &properties));
  return pool;
}

int child(int socket) {
  Message message;
  const int descriptor = receive_message(socket, &message);
  cudaMemPool_t pool = nullptr;
  OK(cudaMemPoolImportFromShareableHandle(&pool, as_handle(descriptor), kDescriptor, 0));
  close(descriptor);
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  int* data[kBuffers];
  for (int i = 0; i < kBuffers; ++i) {
    OK(cudaMemPoolImportPointer(reinterpret_cast<void**>(&data[i]), pool, &message.buffers[i]));
    add<<<64, 256, 0, stream>>>(data[i], message.number);
  }
  OK(cudaStreamSynchronize(stream));
  // It has nothing of its own; what is imported goes by none of the other ways.
  void* mine = nullptr;
  CHECK(cudaMallocFromPoolAsync(&mine, 4096, pool, stream) != cudaSuccess);
  CHECK(cudaDeviceSetMemPool(0, pool) != cudaSuccess);
  (void)cudaGetLastError();
  OK(cudaFree(data[0]));
  for (int i = 1; i < kBuffers; ++i) OK(cudaFreeAsync(data[i], stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(data[0]) != cudaSuccess);
  (void)cudaGetLastError();
  OK(cudaMemPoolDestroy(pool));
  tell(socket);
  return failures == 0 ? 0 : 1;
}

void parent(int socket) {
  cudaMemPool_t pool = make_pool(kDescriptor);
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  int* data[kBuffers];
  Message message = {};
  message.number = 5;
  // First: NVIDIA's driver exports pointers of a pool that is shared already only.
  int descriptor = -1;
  OK(cudaMemPoolExportToShareableHandle(&descriptor, pool, kDescriptor, 0));
  CHECK(descriptor >= 0);
  for (int i = 0; i < kBuffers; ++i) {
    OK(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&data[i]), kCount * sizeof(int), pool,
                               stream));
    OK(cudaMemsetAsync(data[i], 0, kCount * sizeof(int), stream));
    add<<<64, 256, 0, stream>>>(data[i], i);
    OK(cudaMemPoolExportPointer(&message.buffers[i], data[i]));
  }
  OK(cudaStreamSynchronize(stream));
  send_message(socket, message, descriptor);
  await(socket);
  std::vector<int> here(kCount);
  for (int i = 0; i < kBuffers; ++i) {
    OK(cudaMemcpy(here.data(), data[i], kCount * sizeof(int), cudaMemcpyDeviceToHost));
    bool right = true;
    for (int value : here) right = right && value == i + 5;
    CHECK(right);
    OK(cudaFreeAsync(data[i], stream));
  }
  OK(cudaStreamSynchronize(stream));
  close(descriptor);
  int status = -1;
  wait(&status);
  CHECK(status == 0);
  OK(cudaMemPoolDestroy(pool));
}

void refusals() {
  cudaMemPool_t alone = make_pool(cudaMemHandleTypeNone), shared = make_pool(kDescriptor), usual,
                imported = nullptr;
  OK(cudaDeviceGetDefaultMemPool(&usual, 0));
  int descriptor = -1;
  CHECK(cudaMemPoolExportToShareableHandle(&descriptor, alone, kDescriptor, 0) != cudaSuccess);
  CHECK(cudaMemPoolExportToShareableHandle(&descriptor, usual, kDescriptor, 0) != cudaSuccess);
  CHECK(cudaMemPoolExportToShareableHandle(&descriptor, shared, kDescriptor, 1) != cudaSuccess);
  CHECK(descriptor == -1);
  void* p = nullptr;
  cudaMemPoolPtrExportData data;
  OK(cudaMallocFromPoolAsync(&p, 4096, alone, nullptr));
  CHECK(cudaMemPoolExportPointer(&data, p) != cudaSuccess);
  CHECK(cudaMemPoolExportPointer(&data, nullptr) != cudaSuccess);
  OK(cudaFreeAsync(p, nullptr));
  // No descriptor, one that is no pool's, an empty pipe, a file that was cut off.
  int ends[2];
  CHECK(pipe(ends) == 0);
  char name[] = "/tmp/shared_pools.XXXXXX";
  const int file = mkstemp(name);
  CHECK(file >= 0 && write(file, "0123456789", 10) == 10);
  for (int bad : {-1, 1 << 20, ends[0], ends[1], file})
    CHECK(cudaMemPoolImportFromShareableHandle(&imported, as_handle(bad), kDescriptor, 0) !=
          cudaSuccess);
  CHECK(ftruncate(file, 32) == 0);
  CHECK(cudaMemPoolImportFromShareableHandle(&imported, as_handle(file), kDescriptor, 0) !=
        cudaSuccess);
  CHECK(imported == nullptr);
  unlink(name);
  (void)cudaGetLastError();
  int types = 0;
  OK(cudaDeviceGetAttribute(&types, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
  CHECK((types & kDescriptor) != 0);
  OK(cudaMemPoolDestroy(alone));
  OK(cudaMemPoolDestroy(shared));
}

}  // namespace

int main() {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  if (fork() == 0) {
    alarm(120);  // a hang is a failure
    close(pair[1]);
    const int status = child(pair[0]);
    std::fflush(stdout);
    _exit(status);
  }
  close(pair[0]);
  alarm(120);
  parent(pair[1]);
  refusals();
  return result();
}
