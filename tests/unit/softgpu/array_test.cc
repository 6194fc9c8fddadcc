// SPDX-License-Identifier: Apache-2.0
// The software GPU's driver API: arrays and copies between them and memory.
#include <dlfcn.h>

#include <cstdint>
#include <vector>

#include "abi/cuda_texture.h"
#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

class SoftGpuArrays : public SoftGpuTest {
 protected:
  template <class F>
  F* find(const char* name) {
    auto* f = reinterpret_cast<F*>(::dlsym(api.library, name));
    EXPECT_NE(f, nullptr) << name;
    return f;
  }
  decltype(&::cuArray3DCreate_v2) create =
      find<decltype(::cuArray3DCreate_v2)>("cuArray3DCreate_v2");
  decltype(&::cuMemcpy3D_v2) copy = find<decltype(::cuMemcpy3D_v2)>("cuMemcpy3D_v2");
  decltype(&::cuArrayDestroy) destroy = find<decltype(::cuArrayDestroy)>("cuArrayDestroy");
};

CUDA_MEMCPY3D between(CUdeviceptr from, CUdeviceptr to, size_t width, size_t height, size_t depth) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = from;
  c.dstDevice = to;
  c.WidthInBytes = width;
  c.Height = height;
  c.Depth = depth;
  return c;
}

TEST_F(SoftGpuArrays, ABoxGoesInAndComesBack) {
  const CUDA_ARRAY3D_DESCRIPTOR d{8, 4, 3, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
  CUarray array = nullptr;
  ASSERT_EQ(create(&array, &d), CUDA_SUCCESS);
  std::vector<uint8_t> in(8 * 4 * 3), out(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 7);
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = in.data();
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = array;
  c.WidthInBytes = 8;
  c.Height = 4;
  c.Depth = 3;
  EXPECT_EQ(copy(&c), CUDA_SUCCESS);
  CUDA_MEMCPY3D back{};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.srcXInBytes = 2;
  back.srcY = 1;
  back.srcZ = 1;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = out.data();
  back.WidthInBytes = 5;
  back.Height = 3;
  back.Depth = 2;
  EXPECT_EQ(copy(&back), CUDA_SUCCESS);
  for (size_t z = 0; z < 2; ++z)
    for (size_t y = 0; y < 3; ++y)
      for (size_t x = 0; x < 5; ++x)
        EXPECT_EQ(out[(z * 3 + y) * 5 + x], in[((z + 1) * 4 + y + 1) * 8 + x + 2]);
  back.WidthInBytes = 7;
  EXPECT_EQ(copy(&back), CUDA_ERROR_INVALID_VALUE) << "beyond the array";
  EXPECT_EQ(destroy(array), CUDA_SUCCESS);
  EXPECT_EQ(copy(&c), CUDA_ERROR_INVALID_VALUE) << "no such array any more";
}

// Sizes and pitches whose products do not fit into 64 bits.
constexpr const char* kFetch = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry fetch(.param .u64 out, .param .u64 texture)
{ .reg .b64 %d<4>; .reg .b32 %r<7>;
  ld.param.u64 %d1, [out]; ld.param.u64 %d2, [texture]; mov.u32 %r1, %tid.x;
  tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%d2, {%r1}];
  mul.wide.u32 %d3, %r1, 4; add.u64 %d1, %d1, %d3; st.global.u32 [%d1], %r2; ret; }
)";

// The object stays; what was its memory may be another program's tomorrow.
TEST_F(SoftGpuArrays, ATextureOverFreedMemoryIsAFault) {
  auto make = find<decltype(::cuTexObjectCreate)>("cuTexObjectCreate");
  CUmodule module = nullptr;
  CUfunction fetch = nullptr;
  OK(api.cuModuleLoadData(&module, kFetch));
  OK(api.cuModuleGetFunction(&fetch, module, "fetch"));
  CUdeviceptr out = allocate(64);
  const CUdeviceptr memory = allocate(4096);
  OK(api.cuMemsetD32(memory, 7, 1024));
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_LINEAR;
  r.res.linear.devPtr = memory;
  r.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
  r.res.linear.numChannels = 1;
  r.res.linear.sizeInBytes = 4096;
  CUDA_TEXTURE_DESC t{};
  t.flags = CU_TRSF_READ_AS_INTEGER;
  CUtexObject texture = 0;
  OK(make(&texture, &r, &t, nullptr));
  void* arguments[] = {&out, &texture};
  const auto run = [&] {
    EXPECT_EQ(api.cuLaunchKernel(fetch, 1, 1, 1, 16, 1, 1, 0, nullptr, arguments, nullptr),
              CUDA_SUCCESS);
    return api.cuCtxSynchronize();
  };
  OK(run());
  EXPECT_EQ(read(out, 16), std::vector<uint32_t>(16, 7));
  OK(api.cuMemFree(memory));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, run());
}

TEST_F(SoftGpuArrays, ImpossibleBoxesAreRefused) {
  const CUdeviceptr from = allocate(4096), to = allocate(4096);
  CUDA_MEMCPY3D c = between(from, to, 16, 4, 4);
  EXPECT_EQ(copy(&c), CUDA_SUCCESS);
  for (const size_t large : {size_t{1} << 24, size_t{1} << 32, size_t{1} << 40, ~size_t{0}}) {
    for (size_t CUDA_MEMCPY3D::*field :
         {&CUDA_MEMCPY3D::WidthInBytes, &CUDA_MEMCPY3D::Height, &CUDA_MEMCPY3D::Depth,
          &CUDA_MEMCPY3D::srcXInBytes, &CUDA_MEMCPY3D::srcY, &CUDA_MEMCPY3D::srcZ,
          &CUDA_MEMCPY3D::dstXInBytes, &CUDA_MEMCPY3D::dstY, &CUDA_MEMCPY3D::dstZ,
          &CUDA_MEMCPY3D::srcPitch, &CUDA_MEMCPY3D::dstPitch}) {
      c = between(from, to, 16, 4, 4);
      c.*field = large;
      EXPECT_EQ(copy(&c), CUDA_ERROR_INVALID_VALUE);
      c.srcPitch = c.dstPitch = large;
      EXPECT_EQ(copy(&c), CUDA_ERROR_INVALID_VALUE);
    }
  }
  // One slice, so that its height is not asked for: rows times pitch is 2^64.
  c = between(from, to, 16, size_t{1} << 40, 1);
  c.srcPitch = c.dstPitch = size_t{1} << 24;
  c.srcHeight = c.dstHeight = 1;
  EXPECT_EQ(copy(&c), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace sluice
