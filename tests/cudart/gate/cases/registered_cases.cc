// SPDX-License-Identifier: Apache-2.0
// Registered host memory with a device address: kernels and the program see the same bytes, its
// contents stay when it is registered and unregistered, and what cannot be is refused.
#include <sys/mman.h>

#include <algorithm>
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
