// SPDX-License-Identifier: Apache-2.0
// Texture and surface references: what they answer, and what kernels read through them. Expected is
// what an H100 answered (driver 580). The software GPU alone has none.
#include <algorithm>

#include "tests/conformance/driver/driver_case.h"

namespace sluice::test {
namespace {

const char* const kReferencePtx = R"(
.version 7.0
.target sm_70
.address_size 64
.global .texref picture;
.global .surfref canvas;
.visible .entry at(.param .u64 out, .param .f32 x, .param .f32 y)
{
  .reg .b64 %d<2>; .reg .f32 %f<7>;
  ld.param.u64 %d1, [out]; ld.param.f32 %f1, [x]; ld.param.f32 %f2, [y];
  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [picture, {%f1, %f2}];
  st.global.f32 [%d1], %f3;
  ret;
}
.visible .entry nth(.param .u64 out, .param .s32 n)
{
  .reg .b64 %d<2>; .reg .f32 %f<7>; .reg .b32 %r<2>;
  ld.param.u64 %d1, [out]; ld.param.s32 %r1, [n];
  tex.1d.v4.f32.s32 {%f3, %f4, %f5, %f6}, [picture, {%r1}];
  st.global.f32 [%d1], %f3;
  ret;
}
.visible .entry by_value(.param .u64 out)
{
  .reg .b64 %d<3>; .reg .b32 %r<3>;
  ld.param.u64 %d1, [out];
  mov.u64 %d2, picture;
  txq.width.b32 %r1, [%d2];
  st.global.u32 [%d1], %r1;
  ret;
}
.visible .entry paint(.param .s32 x, .param .s32 y, .param .u32 value)
{
  .reg .b32 %r<4>;
  ld.param.s32 %r1, [x]; ld.param.s32 %r2, [y]; ld.param.u32 %r3, [value];
  shl.b32 %r1, %r1, 2;
  sust.b.2d.b32.trap [canvas, {%r1, %r2}], {%r3};
  ret;
}
)";

constexpr unsigned kTexelsWide = 8, kTexelsHigh = 4;

class GuestCallsOfReferences : public DriverCase {
 protected:
  void SetUp() override {
    DriverCase::SetUp();
    OK(cuModuleLoadData(&module_, kReferencePtx));
    OK(cuModuleGetTexRef(&reference_, module_, "picture"));
    OK(cuMemAlloc(&out_, 64));
    OK(cuMemAlloc(&linear_, 4096));
    for (unsigned i = 0; i < kTexelsWide * kTexelsHigh; ++i) texels_[i] = static_cast<float>(i + 1);
    OK(cuMemcpyHtoD(linear_, texels_, sizeof texels_));
    array_ = filled_array(0);
  }
  void TearDown() override {
    OK(cuModuleUnload(module_));
    OK(cuArrayDestroy(array_));
    OK(cuMemFree(linear_));
    OK(cuMemFree(out_));
    DriverCase::TearDown();
  }
  CUarray filled_array(unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR d{kTexelsWide, kTexelsHigh, 0, CU_AD_FORMAT_FLOAT, 1, flags};
    CUarray made = nullptr;
    OK(cuArray3DCreate(&made, &d));
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = texels_;
    copy.srcPitch = copy.WidthInBytes = kTexelsWide * sizeof(float);
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = made;
    copy.Height = kTexelsHigh;
    OK(cuMemcpy2D(&copy));
    return made;
  }
  template <class... Parameters>
  void run(const char* name, Parameters... parameters) {
    CUfunction function = nullptr;
    OK(cuModuleGetFunction(&function, module_, name));
    void* arguments[] = {&parameters...};
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  }
  float result() {
    float value = -1;
    OK(cuMemcpyDtoH(&value, out_, sizeof value));
    return value;
  }
  float at(float x, float y) {
    run("at", out_, x, y);
    return result();
  }

  CUmodule module_ = nullptr;
  CUtexref reference_ = nullptr;
  CUarray array_ = nullptr;
  CUdeviceptr out_ = 0, linear_ = 0;
  float texels_[kTexelsWide * kTexelsHigh] = {};
};

TEST_F(GuestCallsOfReferences, NamesInAModule) {
  CUtexref again = nullptr;
  CUsurfref surface = nullptr, none = nullptr;
  OK(cuModuleGetTexRef(&again, module_, "picture"));
  EXPECT_EQ(again, reference_);
  ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&again, module_, "nothing"));
  ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&again, module_, "canvas"));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuModuleGetTexRef(nullptr, module_, "picture"));
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetTexRef(&again, nullptr, "picture"));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuModuleGetTexRef(&again, module_, nullptr));
  OK(cuModuleGetSurfRef(&surface, module_, "canvas"));
  ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetSurfRef(&none, module_, "picture"));
  CUdeviceptr address = 0;
  size_t bytes = 0;
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuModuleGetGlobal(&address, &bytes, module_, "picture"));
}

TEST_F(GuestCallsOfReferences, SayWhatTheyAreAtFirst) {
  CUaddress_mode address_mode = CU_TR_ADDRESS_MODE_BORDER;
  CUfilter_mode filter = CU_TR_FILTER_MODE_LINEAR;
  CUarray_format format = CU_AD_FORMAT_HALF;
  unsigned flags = 77;
  int channels = 77, anisotropy = 77;
  float bias = 77, least = 77, most = 77, color[4] = {77, 77, 77, 77};
  for (int k = 0; k < 3; ++k) {
    OK(cuTexRefGetAddressMode(&address_mode, reference_, k));
    EXPECT_EQ(address_mode, CU_TR_ADDRESS_MODE_CLAMP);
  }
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetAddressMode(&address_mode, reference_, 3));
  OK(cuTexRefGetFilterMode(&filter, reference_));
  EXPECT_EQ(filter, CU_TR_FILTER_MODE_POINT);
  OK(cuTexRefGetFlags(&flags, reference_));
  EXPECT_EQ(flags, 0u);
  OK(cuTexRefGetFormat(&format, &channels, reference_));
  EXPECT_EQ(format, CU_AD_FORMAT_FLOAT);
  EXPECT_EQ(channels, 1);
  OK(cuTexRefGetMipmapFilterMode(&filter, reference_));
  EXPECT_EQ(filter, CU_TR_FILTER_MODE_POINT);
  OK(cuTexRefGetMipmapLevelBias(&bias, reference_));
  OK(cuTexRefGetMipmapLevelClamp(&least, &most, reference_));
  OK(cuTexRefGetMaxAnisotropy(&anisotropy, reference_));
  OK(cuTexRefGetBorderColor(color, reference_));
  EXPECT_EQ(bias + least + most + color[0] + color[3] + static_cast<float>(anisotropy), 0);
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  CUdeviceptr address = 0;
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&array, reference_));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetMipmappedArray(&mipmap, reference_));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefGetAddress(&address, reference_));
  EXPECT_EQ(at(1.5f, 1.5f), 0) << "nothing is bound";
}

TEST_F(GuestCallsOfReferences, KeepWhatTheyAreTold) {
  OK(cuTexRefSetMaxAnisotropy(reference_, 4));
  OK(cuTexRefSetMipmapFilterMode(reference_, CU_TR_FILTER_MODE_LINEAR));
  OK(cuTexRefSetMipmapLevelBias(reference_, 1));
  OK(cuTexRefSetMipmapLevelClamp(reference_, 1, 3));
  float color[4] = {1, 2, 3, 4}, is[4] = {};
  OK(cuTexRefSetBorderColor(reference_, color));
  OK(cuTexRefSetFormat(reference_, CU_AD_FORMAT_UNSIGNED_INT8, 4));
  OK(cuTexRefSetFlags(reference_, CU_TRSF_NORMALIZED_COORDINATES));
  OK(cuTexRefSetAddressMode(reference_, 1, CU_TR_ADDRESS_MODE_MIRROR));
  CUfilter_mode filter = CU_TR_FILTER_MODE_POINT;
  CUaddress_mode mode = CU_TR_ADDRESS_MODE_WRAP;
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  int channels = 0, anisotropy = 0;
  unsigned flags = 0;
  float bias = 0, least = 0, most = 0;
  OK(cuTexRefGetMaxAnisotropy(&anisotropy, reference_));
  OK(cuTexRefGetMipmapFilterMode(&filter, reference_));
  OK(cuTexRefGetMipmapLevelBias(&bias, reference_));
  OK(cuTexRefGetMipmapLevelClamp(&least, &most, reference_));
  OK(cuTexRefGetBorderColor(is, reference_));
  OK(cuTexRefGetFormat(&format, &channels, reference_));
  OK(cuTexRefGetFlags(&flags, reference_));
  OK(cuTexRefGetAddressMode(&mode, reference_, 1));
  EXPECT_EQ(anisotropy, 4);
  EXPECT_EQ(filter, CU_TR_FILTER_MODE_LINEAR);
  EXPECT_EQ(bias, 1);
  EXPECT_EQ(least, 1);
  EXPECT_EQ(most, 3);
  EXPECT_TRUE(std::equal(color, color + 4, is));
  EXPECT_EQ(format, CU_AD_FORMAT_UNSIGNED_INT8);
  EXPECT_EQ(channels, 4);
  EXPECT_EQ(flags, unsigned{CU_TRSF_NORMALIZED_COORDINATES});
  EXPECT_EQ(mode, CU_TR_ADDRESS_MODE_MIRROR);
}

TEST_F(GuestCallsOfReferences, ReadAnArray) {
  OK(cuTexRefSetArray(reference_, array_, CU_TRSA_OVERRIDE_FORMAT));
  CUarray bound = nullptr;
  OK(cuTexRefGetArray(&bound, reference_));
  EXPECT_EQ(bound, array_);
  EXPECT_EQ(at(1.5f, 2.5f), 18);
  OK(cuTexRefSetFilterMode(reference_, CU_TR_FILTER_MODE_LINEAR));
  EXPECT_EQ(at(2.0f, 2.5f), 18.5f);
  OK(cuTexRefSetFlags(reference_, CU_TRSF_NORMALIZED_COORDINATES));
  EXPECT_EQ(at(0.25f, 0.25f), 6.5f);
  EXPECT_EQ(at(1.25f, 0.25f), 12) << "clamped";
  OK(cuTexRefSetAddressMode(reference_, 0, CU_TR_ADDRESS_MODE_WRAP));
  EXPECT_EQ(at(1.25f, 0.25f), 6.5f);
  run("by_value", out_);
  unsigned width = 0;
  OK(cuMemcpyDtoH(&width, out_, sizeof width));
  EXPECT_EQ(width, kTexelsWide);
}

TEST_F(GuestCallsOfReferences, ReadMemory) {
  size_t offset = 77;
  OK(cuTexRefSetFormat(reference_, CU_AD_FORMAT_FLOAT, 1));
  OK(cuTexRefSetAddress(&offset, reference_, linear_, sizeof texels_));
  EXPECT_EQ(offset, 0u);
  run("nth", out_, 5);
  EXPECT_EQ(result(), 6);
  OK(cuTexRefSetAddress(&offset, reference_, linear_ + 16, 64));
  EXPECT_EQ(offset, 16u);
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress(nullptr, reference_, linear_ + 16, 64));
  CUdeviceptr address = 0;
  OK(cuTexRefGetAddress(&address, reference_));
  EXPECT_NE(address, 0u);
  const CUDA_ARRAY_DESCRIPTOR d{kTexelsWide, kTexelsHigh, CU_AD_FORMAT_FLOAT, 1};
  OK(cuTexRefSetAddress2D(reference_, &d, linear_, kTexelsWide * sizeof(float)));
  EXPECT_EQ(at(1.5f, 2.5f), 18);
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress2D(reference_, nullptr, linear_, 32));
}

TEST_F(GuestCallsOfReferences, ALaunchGoesByTheReferenceAsItWas) {
  OK(cuTexRefSetArray(reference_, array_, CU_TRSA_OVERRIDE_FORMAT));
  run("at", out_, 0.5f, 0.5f);
  std::reverse(std::begin(texels_), std::end(texels_));
  const CUarray other = filled_array(0);
  OK(cuTexRefSetArray(reference_, other, CU_TRSA_OVERRIDE_FORMAT));
  run("at", out_ + 4, 0.5f, 0.5f);
  float got[2] = {};
  OK(cuMemcpyDtoH(got, out_, sizeof got));
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], 32);
  OK(cuTexRefSetArray(reference_, array_, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuArrayDestroy(other));
}

TEST_F(GuestCallsOfReferences, AMipmappedArray) {
  const CUDA_ARRAY3D_DESCRIPTOR d{kTexelsWide, kTexelsHigh, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmipmappedArray made = nullptr, bound = nullptr;
  OK(cuMipmappedArrayCreate(&made, &d, 2));
  OK(cuTexRefSetMipmappedArray(reference_, made, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuTexRefGetMipmappedArray(&bound, reference_));
  EXPECT_EQ(bound, made);
  REFUSED(cuTexRefSetMipmappedArray(reference_, nullptr, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuTexRefSetArray(reference_, array_, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuMipmappedArrayDestroy(made));
}

TEST_F(GuestCallsOfReferences, ASurfaceWritesWhatATextureReads) {
  const CUarray canvas = filled_array(CUDA_ARRAY3D_SURFACE_LDST);
  CUsurfref surface = nullptr;
  CUarray bound = nullptr;
  OK(cuModuleGetSurfRef(&surface, module_, "canvas"));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuSurfRefGetArray(&bound, surface));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuSurfRefSetArray(surface, array_, 0));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuSurfRefSetArray(surface, canvas, 1));
  OK(cuSurfRefSetArray(surface, canvas, 0));
  OK(cuSurfRefGetArray(&bound, surface));
  EXPECT_EQ(bound, canvas);
  run("paint", 3, 2, 0x42280000u);
  OK(cuTexRefSetArray(reference_, canvas, CU_TRSA_OVERRIDE_FORMAT));
  EXPECT_EQ(at(3.5f, 2.5f), 42);
  EXPECT_EQ(at(2.5f, 2.5f), 19);
  OK(cuTexRefSetArray(reference_, array_, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuArrayDestroy(canvas));
}

TEST_F(GuestCallsOfReferences, OfTheProgramsOwn) {
  CUtexref own = nullptr;
  OK(cuTexRefCreate(&own));
  OK(cuTexRefSetArray(own, array_, CU_TRSA_OVERRIDE_FORMAT));
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module_, "at"));
  OK(cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, own));
  REFUSED(cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, nullptr));
  OK(cuTexRefDestroy(own));
  OK(cuTexRefDestroy(reference_));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefCreate(nullptr));
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuTexRefDestroy(nullptr));
}

TEST_F(GuestCallsOfReferences, WrongValues) {
  CUaddress_mode mode{};
  CUarray_format format{};
  int channels = 0;
  ANSWERS(CUDA_ERROR_INVALID_HANDLE,
          cuTexRefSetArray(reference_, nullptr, CU_TRSA_OVERRIDE_FORMAT));
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetArray(nullptr, array_, CU_TRSA_OVERRIDE_FORMAT));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetArray(reference_, array_, 5));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddressMode(reference_, 3, CU_TR_ADDRESS_MODE_WRAP));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetFlags(reference_, 0x1000));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetFormat(reference_, CU_AD_FORMAT_FLOAT, 3));
  REFUSED(cuTexRefGetAddressMode(&mode, nullptr, 0));
  REFUSED(cuTexRefGetFilterMode(nullptr, reference_));
  REFUSED(cuTexRefGetFlags(nullptr, reference_));
  OK(cuTexRefGetFormat(nullptr, nullptr, reference_));
  REFUSED(cuTexRefGetFormat(&format, &channels, nullptr));
  REFUSED(cuTexRefGetMipmapFilterMode(nullptr, reference_));
  REFUSED(cuTexRefGetMipmapLevelBias(nullptr, reference_));
  REFUSED(cuTexRefGetMipmapLevelClamp(nullptr, nullptr, reference_));
  REFUSED(cuTexRefGetMaxAnisotropy(nullptr, reference_));
  REFUSED(cuTexRefGetBorderColor(nullptr, reference_));
  REFUSED(cuTexRefSetFilterMode(nullptr, CU_TR_FILTER_MODE_POINT));
  REFUSED(cuTexRefSetMipmapFilterMode(nullptr, CU_TR_FILTER_MODE_POINT));
  REFUSED(cuTexRefSetMipmapLevelBias(nullptr, 0));
  REFUSED(cuTexRefSetMipmapLevelClamp(nullptr, 0, 1));
  REFUSED(cuTexRefSetMaxAnisotropy(nullptr, 1));
  REFUSED(cuTexRefSetBorderColor(reference_, nullptr));
}

}  // namespace
}  // namespace sluice::test
