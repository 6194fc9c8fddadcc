// SPDX-License-Identifier: Apache-2.0
// Registered host memory with a device address: kernels and the program see the same bytes, its
// contents stay when it is registered and unregistered, and what cannot be is refused.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/cudart/gate/cases/cases.h"

using namespace sluice::cudart;

namespace {

constexpr unsigned kMapped = 2, kPortable = 1;
constexpr size_t kPage = 4096, kCount = 1000;

// Whole pages of the program's own.
class Pages {
 public:
  explicit Pages(size_t pages) : bytes_(pages * kPage) {
    at_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at_, MAP_FAILED);
  }
  ~Pages() { ::munmap(at_, bytes_); }
  Pages(const Pages&) = delete;
  float* floats() const { return static_cast<float*>(at_); }
  void* at() const { return at_; }
  size_t bytes() const { return bytes_; }

 private:
  void* at_ = nullptr;
  size_t bytes_;
};

class RegisteredCases : public Cases {
 protected:
  static float* device_of(void* host) {
    void* device = nullptr;
    OK(cudaHostGetDevicePointer(&device, host, 0));
    return static_cast<float*>(device);
  }
  // to = from + from, by a kernel.
  static void doubled(float* to, float* from) {
    AddArguments add{from, from, to, kCount};
    OK(cudaLaunchKernel(&host_add, dim3{1, 1, 1}, dim3{1000, 1, 1}, add.list, 0, nullptr));
    OK(cudaDeviceSynchronize());
  }
};

TEST_F(RegisteredCases, KernelsReadAndWriteIt) {
  const Pages from(1), to(1);
  std::fill_n(from.floats(), kCount, 3.0f);
  OK(cudaHostRegister(from.at(), from.bytes(), kMapped));
  OK(cudaHostRegister(to.at(), to.bytes(), kMapped | kPortable));
  unsigned flags = 0;
  OK(cudaHostGetFlags(&flags, from.at()));
  EXPECT_EQ(flags & (kMapped | kPortable), kMapped);
  OK(cudaHostGetFlags(&flags, to.floats() + 25));
  EXPECT_EQ(flags & (kMapped | kPortable), kMapped | kPortable);
  EXPECT_EQ(from.floats()[999], 3);
  doubled(device_of(to.at()), device_of(from.at()));
  EXPECT_EQ(to.floats()[0], 6);
  EXPECT_EQ(to.floats()[999], 6);
  from.floats()[5] = 8;  // the program's next write is seen, too
  doubled(device_of(to.at()), device_of(from.at()));
  EXPECT_EQ(to.floats()[5], 16);
  OK(cudaHostUnregister(from.at()));
  OK(cudaHostUnregister(to.at()));
  EXPECT_EQ(from.floats()[5], 8);
  EXPECT_EQ(to.floats()[5], 16);
  EXPECT_EQ(to.floats()[999], 6);
}
TEST_F(RegisteredCases, AnAddressWithinIt) {
  const Pages memory(4);
  OK(cudaHostRegister(memory.at(), memory.bytes(), kMapped));
  float* const middle = memory.floats() + 1024;
  std::fill_n(middle, kCount, 2.0f);
  EXPECT_EQ(device_of(middle), device_of(memory.at()) + 1024);
  doubled(device_of(middle), device_of(middle));
  EXPECT_EQ(middle[7], 4);
  EXPECT_EQ(memory.floats()[7], 0);
  OK(cudaHostUnregister(memory.at()));
}
// Registered without the flag, it still has one where host memory has device addresses.
TEST_F(RegisteredCases, WithoutTheFlag) {
  const Pages memory(2);
  std::fill_n(memory.floats(), kCount, 1.0f);
  OK(cudaHostRegister(memory.at(), memory.bytes(), 0));
  float* const device = device_of(memory.at());
  doubled(device, device);
  EXPECT_EQ(memory.floats()[3], 2);
  OK(cudaHostUnregister(memory.at()));
  EXPECT_EQ(memory.floats()[3], 2);
}
TEST_F(RegisteredCases, CopiesAndFills) {
  const Pages memory(2);
  OK(cudaHostRegister(memory.at(), memory.bytes(), kMapped));
  float* const device = device_of(memory.at());
  OK(cudaMemset(device, 0, memory.bytes()));
  const float one = 1;
  OK(cudaMemcpy(device + 9, &one, 4, cudaMemcpyHostToDevice));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(memory.floats()[9], 1);
  Memory<float> other(16);
  Stream stream;
  OK(cudaMemcpyAsync(other.at(), memory.at(), 64, cudaMemcpyHostToDevice, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(other[9], 1);
  other.fill(5);
  OK(cudaMemcpyAsync(memory.at(), other.at(), 64, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(memory.floats()[15], 5);
  OK(cudaHostUnregister(memory.at()));
}
TEST_F(RegisteredCases, WhatItsAddressesAre) {
  const Pages memory(1);
  OK(cudaHostRegister(memory.at(), memory.bytes(), kMapped));
  cudaPointerAttributes attributes = {};
  OK(cudaPointerGetAttributes(&attributes, memory.at()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(attributes.hostPointer, memory.at());
  EXPECT_EQ(attributes.devicePointer, device_of(memory.at()));
  OK(cudaHostUnregister(memory.at()));
  OK(cudaPointerGetAttributes(&attributes, memory.at()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}
TEST_F(RegisteredCases, AgainAndAgain) {
  const Pages memory(300);  // more than a megabyte
  for (int round = 1; round <= 5; ++round) {
    OK(cudaHostRegister(memory.at(), memory.bytes(), kMapped));
    ANSWERS(cudaErrorHostMemoryAlreadyRegistered,
            cudaHostRegister(memory.at(), memory.bytes(), kMapped));
    float* const last = memory.floats() + memory.bytes() / 4 - kCount;
    std::fill_n(last, kCount, static_cast<float>(round));
    doubled(device_of(last), device_of(last));
    EXPECT_EQ(last[kCount - 1], 2.0f * static_cast<float>(round));
    OK(cudaHostUnregister(memory.at()));
    EXPECT_EQ(last[kCount - 1], 2.0f * static_cast<float>(round));
  }
}
// What lies at the address now is not touched when the registration of what was there ends.
TEST_F(RegisteredCases, MemoryThatWentBefore) {
  const Pages memory(2);
  OK(cudaHostRegister(memory.at(), memory.bytes(), kMapped));
  ASSERT_EQ(::mmap(memory.at(), memory.bytes(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            memory.at());
  memory.floats()[3] = 77;
  OK(cudaHostUnregister(memory.at()));
  EXPECT_EQ(memory.floats()[3], 77);
  memory.floats()[4] = 78;
  EXPECT_EQ(memory.floats()[4], 78);
}
// A place in a stream where it waits until the program lets it go on, but not for ever.
class Stop {
 public:
  explicit Stop(cudaStream_t stream) {
    OK(cudaLaunchHostFunc(
        stream,
        [](void* self) {
          auto* stop = static_cast<Stop*>(self);
          std::unique_lock lock(stop->mutex_);
          stop->kept_ =
              stop->changed_.wait_for(lock, std::chrono::seconds(60), [&] { return stop->open_; });
        },
        this));
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // Behind the stream's end: nobody waited for the stream while it stood here.
  bool kept() const { return kept_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, kept_ = false;
};

TEST_F(RegisteredCases, CopiesDoNotHoldTheProgramUp) {
  const Pages memory(600);  // more than two megabytes
  const size_t count = memory.bytes() / 4;
  OK(cudaHostRegister(memory.at(), memory.bytes(), kMapped));
  std::fill_n(memory.floats(), count, 1.0f);
  Memory<float> device(count);
  Stream stream;
  Stop stop(stream);
  OK(cudaMemcpyAsync(device.at(), memory.at(), memory.bytes(), cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(memory.floats() + 100, device.at(), memory.bytes() - 400,
                     cudaMemcpyDeviceToHost, stream));
  // Read when the stream comes there, not when the copy is queued.
  std::fill_n(memory.floats(), count, 7.0f);
  EXPECT_EQ(memory.floats()[100], 7);
  stop.open();
  OK(cudaStreamSynchronize(stream));
  EXPECT_TRUE(stop.kept());
  for (const size_t i : {size_t{0}, size_t{100}, count / 2, count - 1})
    EXPECT_EQ(memory.floats()[i], 7) << i;
  OK(cudaHostUnregister(memory.at()));
}
// ... nor where the program has not asked for a device address.
TEST_F(RegisteredCases, CopiesWithoutTheFlagDoNotHoldTheProgramUp) {
  const Pages memory(600);
  const auto* bytes = static_cast<const unsigned char*>(memory.at());
  OK(cudaHostRegister(memory.at(), memory.bytes(), 0));
  Memory<unsigned char> device(memory.bytes());
  OK(cudaMemset(device.at(), 7, memory.bytes()));
  OK(cudaDeviceSynchronize());
  Stream stream;
  Stop stop(stream);
  OK(cudaMemcpyAsync(memory.at(), device.at(), memory.bytes(), cudaMemcpyDeviceToHost, stream));
  stop.open();
  OK(cudaStreamSynchronize(stream));
  EXPECT_TRUE(stop.kept());
  const auto all_there = [&] { return std::count(bytes, bytes + memory.bytes(), 7); };
  EXPECT_EQ(all_there(), static_cast<ptrdiff_t>(memory.bytes()));
  OK(cudaHostUnregister(memory.at()));
  EXPECT_EQ(all_there(), static_cast<ptrdiff_t>(memory.bytes()));
}
// What has a place only for its copies makes room for what the program asks for.
TEST_F(RegisteredCases, MakesRoomForPinnedMemory) {
  constexpr size_t kMiB = 1 << 20;
  const Pages memory(32 * kMiB / kPage);
  std::fill_n(memory.floats(), memory.bytes() / 4, 3.0f);
  OK(cudaHostRegister(memory.at(), memory.bytes(), 0));
  const auto most = [] {  // pieces that can be had at once
    std::vector<void*> pieces;
    void* piece = nullptr;
    while (pieces.size() < 24 && cudaHostAlloc(&piece, 16 * kMiB, 0) == cudaSuccess)
      pieces.push_back(piece);
    (void)cudaGetLastError();
    for (void* one : pieces) OK(cudaFreeHost(one));
    return pieces.size();
  };
  const size_t beside = most();
  Memory<float> device(memory.bytes() / 4);
  OK(cudaMemcpy(device.at(), memory.at(), memory.bytes(), cudaMemcpyHostToDevice));
  EXPECT_EQ(device[memory.bytes() / 4 - 1], 3);
  OK(cudaHostUnregister(memory.at()));
  EXPECT_EQ(memory.floats()[0], 3);
  EXPECT_GE(beside, most());
}
TEST_F(RegisteredCases, CopiesOfSeveralStreamsBesideKernels) {
  constexpr size_t kStreams = 4, kEach = 1024;
  const Pages memory(kStreams);
  OK(cudaHostRegister(memory.at(), memory.bytes(), kMapped | kPortable));
  Memory<float> device(kStreams * kEach);
  Stream streams[kStreams];
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < kStreams * kEach; ++i)
      memory.floats()[i] = static_cast<float>(i + static_cast<size_t>(round));
    for (size_t k = 0; k < kStreams; ++k) {
      float* const host = memory.floats() + k * kEach;
      float* const there = device.at() + k * kEach;
      OK(cudaMemcpyAsync(there, host, kEach * 4, cudaMemcpyHostToDevice, streams[k]));
      AddArguments add{there, there, there, kCount};
      OK(cudaLaunchKernel(&host_add, dim3{1, 1, 1}, dim3{1000, 1, 1}, add.list, 0, streams[k]));
      OK(cudaMemcpyAsync(host, there, kEach * 4, cudaMemcpyDeviceToHost, streams[k]));
    }
    OK(cudaDeviceSynchronize());
    for (size_t i = 0; i < kStreams * kEach; ++i) {
      const float was = static_cast<float>(i + static_cast<size_t>(round));
      ASSERT_EQ(memory.floats()[i], i % kEach < kCount ? 2 * was : was) << i;
    }
  }
  OK(cudaHostUnregister(memory.at()));
}
TEST_F(RegisteredCases, UnregisteredWhileACopyWaits) {
  const Pages memory(2);
  OK(cudaHostRegister(memory.at(), memory.bytes(), kMapped));
  Memory<float> device(2048);
  device.fill(9);
  Stream stream;
  Stop stop(stream);
  OK(cudaMemcpyAsync(memory.at(), device.at(), memory.bytes(), cudaMemcpyDeviceToHost, stream));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.open();
  });
  OK(cudaHostUnregister(memory.at()));
  later.join();
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(memory.floats()[0], 9);
  EXPECT_EQ(memory.floats()[2047], 9);
}
TEST_F(RegisteredCases, PartOfWhatIsRegistered) {
  const Pages memory(4);
  char* const second = static_cast<char*>(memory.at()) + kPage;
  OK(cudaHostRegister(second, 2 * kPage, kMapped));
  ANSWERS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(second + kPage, kPage, kMapped));
  ANSWERS(cudaErrorHostMemoryAlreadyRegistered,
          cudaHostRegister(memory.at(), memory.bytes(), kMapped));
  ANSWERS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(memory.at()));
  // The memory before and behind it is as it was.
  memory.floats()[5] = 3;
  memory.floats()[3 * 1024 + 5] = 4;
  OK(cudaHostRegister(memory.at(), kPage, kMapped));
  EXPECT_EQ(memory.floats()[5], 3);
  OK(cudaHostUnregister(second));
  OK(cudaHostUnregister(memory.at()));
  EXPECT_EQ(memory.floats()[5], 3);
  EXPECT_EQ(memory.floats()[3 * 1024 + 5], 4);
}
// A program may have freed or replaced what it registered; a fork does not look there.
TEST_F(RegisteredCases, AChildOfAProgramWhoseMemoryWentBefore) {
  const Pages gone(2), replaced(2), kept(1);
  for (const Pages* memory : {&gone, &replaced, &kept})
    OK(cudaHostRegister(memory->at(), memory->bytes(), kMapped));
  kept.floats()[0] = 5;
  ASSERT_EQ(::munmap(gone.at(), gone.bytes()), 0);
  ASSERT_EQ(::mmap(replaced.at(), replaced.bytes(), PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            replaced.at());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(kept.floats()[0] == 5 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const Pages* memory : {&gone, &replaced, &kept}) OK(cudaHostUnregister(memory->at()));
  EXPECT_EQ(kept.floats()[0], 5);
}
// A child has what was there, and nobody sees what the other writes.
TEST_F(RegisteredCases, AChildHasItsOwn) {
  const Pages memory(300);
  int* const words = static_cast<int*>(memory.at());
  const size_t last = memory.bytes() / 4 - 1;
  OK(cudaHostRegister(memory.at(), memory.bytes(), kMapped));
  words[0] = words[last] = 11;
  int to_child[2], to_parent[2];
  ASSERT_EQ(::pipe(to_child), 0);
  ASSERT_EQ(::pipe(to_parent), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    char go = 0;
    const bool first = words[0] == 11 && words[last] == 11;
    words[0] = words[last] = 33;
    (void)!::write(to_parent[1], "x", 1);
    (void)!::read(to_child[0], &go, 1);
    ::_exit(first && words[0] == 33 && words[last] == 33 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  ::close(to_parent[1]);  // a child that dies says so
  char there = 0;
  ASSERT_EQ(::read(to_parent[0], &there, 1), 1);
  EXPECT_EQ(words[0], 11);
  EXPECT_EQ(words[last], 11);
  OK(cudaMemset(device_of(words), 0, 4));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(words[0], 0) << "is the GPU's as before";
  words[last] = 22;
  (void)!::write(to_child[1], "x", 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int end : {to_child[0], to_child[1], to_parent[0]}) ::close(end);
  OK(cudaHostUnregister(memory.at()));
  EXPECT_EQ(words[last], 22);
}
TEST_F(RegisteredCases, PartOfAPage) {
  const Pages memory(1);
  char* const odd = static_cast<char*>(memory.at()) + 64;
  if (OFFERED(cudaHostRegister(odd, 1000, kMapped))) OK(cudaHostUnregister(odd));
  OK(cudaHostRegister(odd, 1000, 0));
  OK(cudaHostUnregister(odd));
}
TEST_F(RegisteredCases, WrongOnes) {
  const Pages memory(1);
  ANSWERS(cudaErrorInvalidValue, cudaHostRegister(nullptr, 4096, kMapped));
  ANSWERS(cudaErrorInvalidValue, cudaHostRegister(memory.at(), 0, kMapped));
  ANSWERS(cudaErrorInvalidValue, cudaHostRegister(memory.at(), 4096, 0x100));
  ANSWERS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(memory.at()));
  void* device = nullptr;
  REFUSED(cudaHostGetDevicePointer(&device, memory.at(), 0));
  EXPECT_EQ(device, nullptr);
}

}  // namespace
