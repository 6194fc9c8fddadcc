// SPDX-License-Identifier: Apache-2.0
// Fat binaries: which PTX in one is chosen, and what is refused, by the library as a program calls
// it.
#include <cstring>
#include <string>

#include "tests/unit/softgpu/fat_binaries.h"
#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

// The container, put together by hand: the layout of nvcc 13.0.
struct Builder {
  std::string entries;
  void add(uint16_t kind, uint32_t sm, std::string payload, uint64_t flags = 0x11) {
    payload.resize((payload.size() + 8) / 8 * 8);  // a terminator, and padding
    char entry[64] = {};
    const auto put = [&](size_t at, auto value) { std::memcpy(entry + at, &value, sizeof value); };
    put(0, kind);
    put(2, uint16_t{0x101});
    put(4, uint32_t{64});
    put(8, uint64_t{payload.size()});
    put(16, static_cast<uint32_t>(payload.size()));
    put(28, sm);
    put(40, flags);
    put(56, uint64_t{payload.size()});
    entries += std::string(entry, sizeof entry) + payload;
  }
  std::string image() const {
    char header[16] = {};
    const uint32_t magic = 0xba55ed50;
    const uint16_t version = 1, bytes = 16;
    const uint64_t size = entries.size();
    std::memcpy(header, &magic, 4);
    std::memcpy(header + 4, &version, 2);
    std::memcpy(header + 6, &bytes, 2);
    std::memcpy(header + 8, &size, 8);
    return std::string(header, sizeof header) + entries;
  }
};

std::string text(uint32_t sm, const char* name) {
  return ".version 8.0\n.target sm_" + std::to_string(sm) + "\n.address_size 64\n.visible .entry " +
         name + "()\n{\n ret;\n}\n";
}

class SoftGpuFatBinary : public SoftGpuTest {
 protected:
  // Names of what is in the loaded module, or the error.
  std::string kernel_of(const void* image) {
    CUmodule module = nullptr;
    const CUresult r = api.cuModuleLoadFatBinary(&module, image);
    if (r != CUDA_SUCCESS) return gpu::describe(r);
    CUfunction f = nullptr;
    const char* name = "";
    EXPECT_EQ(api.cuModuleEnumerateFunctions(&f, 1, module), CUDA_SUCCESS);
    EXPECT_EQ(api.cuFuncGetName(&name, f), CUDA_SUCCESS);
    const std::string copy = name;
    EXPECT_EQ(api.cuModuleUnload(module), CUDA_SUCCESS);
    return copy;
  }
};

TEST_F(SoftGpuFatBinary, TheNewestPtxThatItCanRunIsChosen) {
  Builder b;
  b.add(2, 90,
        "\x7f"
        "ELF machine code");
  b.add(1, 80, text(80, "for_80"));
  b.add(1, 89, text(89, "for_89"));
  b.add(1, 120, text(120, "for_120"));
  b.add(1, 75, text(75, "for_75"));
  const std::string image = b.image();
  EXPECT_EQ(kernel_of(image.data()), "for_89");
  struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void *data, *more = nullptr;
  } wrapper;
  wrapper.data = image.data();
  EXPECT_EQ(kernel_of(&wrapper), "for_89") << "by the wrapper that programs register";
}

TEST_F(SoftGpuFatBinary, WhatItCannotRunIsRefused) {
  Builder machine;
  machine.add(2, 90,
              "\x7f"
              "ELF machine code");
  machine.add(1, 100, text(100, "too_new"));
  EXPECT_EQ(kernel_of(machine.image().data()), gpu::describe(CUDA_ERROR_NO_BINARY_FOR_GPU));
  EXPECT_EQ(kernel_of(Builder().image().data()), gpu::describe(CUDA_ERROR_NO_BINARY_FOR_GPU));
  Builder b;
  b.add(1, 80, text(80, "k"));
  std::string longer = b.image();
  longer[16 + 8 + 3] = 1;  // the entry's payload: 16 MiB more than there is
  EXPECT_EQ(kernel_of(longer.data()), gpu::describe(CUDA_ERROR_INVALID_IMAGE));
}

TEST_F(SoftGpuFatBinary, CompressedPtxRunsWhereTheLibrariesAreThere) {
  for (const void* image :
       {static_cast<const void*>(kFatBinaryZstd), static_cast<const void*>(kFatBinaryLz4)}) {
    const std::string name = kernel_of(image);
    if (name == gpu::describe(CUDA_ERROR_NO_BINARY_FOR_GPU)) continue;  // built without
    EXPECT_EQ(name, "twice");
    CUmodule module = nullptr;
    CUfunction f = nullptr;
    OK(api.cuModuleLoadData(&module, image));
    OK(api.cuModuleGetFunction(&f, module, "twice"));
    CUdeviceptr p = allocate(256);
    const float three = 3;
    uint32_t bits;
    std::memcpy(&bits, &three, 4);
    OK(api.cuMemsetD32(p, bits, 64));
    int n = 64;
    void* arguments[] = {&p, &n};
    OK(api.cuLaunchKernel(f, 2, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
    float value = 0;
    OK(api.cuMemcpyDtoH(&value, p + 252, 4));
    EXPECT_EQ(value, 6);
  }
}

TEST_F(SoftGpuFatBinary, GarbageThatClaimsToBeCompressedIsRefused) {
  for (uint64_t flags : {uint64_t{0x2011}, uint64_t{0x8011}}) {
    Builder b;
    b.add(1, 80, std::string(200, '\x5a'), flags);
    const std::string r = kernel_of(b.image().data());
    EXPECT_TRUE(r == gpu::describe(CUDA_ERROR_INVALID_IMAGE) ||
                r == gpu::describe(CUDA_ERROR_NO_BINARY_FOR_GPU))
        << r;
  }
}

}  // namespace
}  // namespace sluice
