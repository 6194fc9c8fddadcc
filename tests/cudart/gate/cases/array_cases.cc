// SPDX-License-Identifier: Apache-2.0
// Arrays, textures, surfaces: what they report, copies of rows and boxes into, out of and between
// them, kernels that read and write through them, descriptions that cannot be.
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "tests/cudart/gate/cases/cases.h"

using namespace sluice::cudart;

namespace {

constexpr int kSigned = 0, kFloat32 = 2, kFirstNormalised = 5, kNormalisedKinds = 12;
constexpr unsigned kSurfaceLoadStore = 2, kLayered = 1, kCubemap = 4;
constexpr size_t kWidth = 8, kHeight = 4, kRowBytes = kWidth * sizeof(int);

cudaChannelFormatDesc one_int() { return cudaCreateChannelDesc(32, 0, 0, 0, kSigned); }

class ArrayCases : public Cases {
 protected:
  void SetUp() override {
    Cases::SetUp();
    const cudaChannelFormatDesc format = one_int();
    OK(cudaMallocArray(&array_, &format, kWidth, kHeight, kSurfaceLoadStore));
    from_.resize(kWidth * kHeight);
    std::iota(from_.begin(), from_.end(), 100);
    OK(cudaMemcpy2DToArray(array_, 0, 0, from_.data(), kRowBytes, kRowBytes, kHeight,
                           cudaMemcpyHostToDevice));
  }
  void TearDown() override {
    OK(cudaFreeArray(array_));
    Cases::TearDown();
  }
  std::vector<int> contents(cudaArray_t array) {
    std::vector<int> to(kWidth * kHeight);
    OK(cudaMemcpy2DFromArray(to.data(), kRowBytes, array, 0, 0, kRowBytes, kHeight,
                             cudaMemcpyDeviceToHost));
    return to;
  }
  cudaResourceDesc resource() const {
    cudaResourceDesc r = {};
    r.resType = cudaResourceTypeArray;
    r.res.array.array = array_;
    return r;
  }
  cudaArray_t array_ = nullptr;
  std::vector<int> from_;
};

TEST_F(ArrayCases, WhatTheyReport) {
  cudaChannelFormatDesc format = {};
  cudaExtent extent = {};
  unsigned flags = 0;
  OK(cudaArrayGetInfo(&format, &extent, &flags, array_));
  EXPECT_EQ(format.x, 32);
  EXPECT_EQ(format.y, 0);
  EXPECT_EQ(format.f, kSigned);
  EXPECT_EQ(extent.width, kWidth);
  EXPECT_EQ(extent.height, kHeight);
  EXPECT_EQ(extent.depth, 0u);
  EXPECT_EQ(flags, kSurfaceLoadStore);
  format = {};
  OK(cudaGetChannelDesc(&format, array_));
  EXPECT_EQ(format.x, 32);
  REFUSED(cudaArrayGetInfo(&format, &extent, &flags, nullptr));
  REFUSED(cudaGetChannelDesc(&format, nullptr));
  REFUSED(cudaGetChannelDesc(nullptr, array_));
}

TEST_F(ArrayCases, WrongOnes) {
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = one_int();
  const cudaChannelFormatDesc three = cudaCreateChannelDesc(32, 32, 32, 0, kSigned);
  ANSWERS(cudaErrorInvalidValue, cudaMallocArray(nullptr, &format, 8, 8, 0));
  ANSWERS(cudaErrorInvalidValue, cudaMallocArray(&array, nullptr, 8, 8, 0));
  REFUSED(cudaMallocArray(&array, &format, 0, 0, 0));
  REFUSED(cudaMallocArray(&array, &format, size_t{1} << 40, 8, 0));
  REFUSED(cudaMallocArray(&array, &three, 8, 8, 0));
  REFUSED((cudaCreateChannelDesc(7, 0, 0, 0, kSigned), cudaMallocArray(&array, nullptr, 8, 8, 0)));
  REFUSED(cudaMalloc3DArray(&array, &format, cudaExtent{8, 0, 8}, 0));
  REFUSED(cudaMalloc3DArray(&array, &three, cudaExtent{8, 8, 8}, 0));
  REFUSED(cudaMalloc3DArray(&array, &format, cudaExtent{8, 4, 6}, kCubemap));  // not square
  EXPECT_EQ(array, nullptr);
  OK(cudaFreeArray(nullptr));
  cudaArray_t gone = nullptr;
  OK(cudaMallocArray(&gone, &format, 8, 8, 0));
  OK(cudaFreeArray(gone));
}

TEST_F(ArrayCases, CopiesOfRows) {
  EXPECT_EQ(contents(array_), from_);
  Stream stream;
  cudaArray_t other = nullptr;
  const cudaChannelFormatDesc format = one_int();
  OK(cudaMallocArray(&other, &format, kWidth, kHeight, 0));
  OK(cudaMemcpy2DArrayToArray(other, 0, 0, array_, 0, 0, kRowBytes, kHeight,
                              cudaMemcpyDeviceToDevice));
  EXPECT_EQ(contents(other), from_);
  const int corner[2] = {7, 8};
  OK(cudaMemcpy2DToArrayAsync(other, 4, 1, corner, 4, 4, 2, cudaMemcpyHostToDevice, stream));
  int back[2] = {};
  OK(cudaMemcpy2DFromArrayAsync(back, 4, other, 4, 1, 4, 2, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(back[0], 7);
  EXPECT_EQ(back[1], 8);
  EXPECT_EQ(contents(other)[1 + kWidth], 7);
  EXPECT_EQ(contents(other)[0], from_[0]);
  REFUSED(cudaMemcpy2DToArray(array_, 4, 0, from_.data(), kRowBytes, kRowBytes, kHeight,
                              cudaMemcpyHostToDevice));
  REFUSED(cudaMemcpy2DToArrayAsync(array_, 0, 1, from_.data(), kRowBytes, kRowBytes, kHeight,
                                   cudaMemcpyHostToDevice, stream));
  REFUSED(cudaMemcpy2DFromArray(back, 2, array_, 0, 0, 4, 1, cudaMemcpyDeviceToHost));
  cudaMemcpy3DParms narrow = {};
  narrow.srcArray = array_;
  narrow.dstPtr = {back, 2, 4, 1};
  narrow.extent = {1, 1, 1};
  narrow.kind = cudaMemcpyDeviceToHost;
  REFUSED(cudaMemcpy3D(&narrow));
  REFUSED(cudaMemcpy2DFromArrayAsync(back, 4, array_, 0, kHeight, 4, 1, cudaMemcpyDeviceToHost,
                                     stream));
  REFUSED(cudaMemcpy2DArrayToArray(other, 4, 0, array_, 0, 0, kRowBytes, kHeight,
                                   cudaMemcpyDeviceToDevice));
  EXPECT_EQ(contents(array_), from_);
  OK(cudaFreeArray(other));
}

// Deprecated, and still there: runs of bytes that go over the ends of rows.
TEST_F(ArrayCases, CopiesOfRuns) {
  Stream stream;
  std::vector<int> to(kWidth + 2);
  OK(cudaMemcpyFromArray(to.data(), array_, 0, 0, kRowBytes, cudaMemcpyDeviceToHost));
  EXPECT_EQ(to[3], from_[3]);
  OK(cudaMemcpyFromArrayAsync(to.data(), array_, 0, 1, kRowBytes, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(to[3], from_[3 + kWidth]);
  std::vector<int> ones(kWidth, 1);
  OK(cudaMemcpyToArray(array_, 0, 2, ones.data(), kRowBytes, cudaMemcpyHostToDevice));
  OK(cudaMemcpyToArrayAsync(array_, 0, 3, ones.data(), 4, cudaMemcpyHostToDevice, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(contents(array_)[2 * kWidth + 7], 1);
  EXPECT_EQ(contents(array_)[3 * kWidth], 1);
  EXPECT_EQ(contents(array_)[3 * kWidth + 1], from_[3 * kWidth + 1]);
  OK(cudaMemcpyArrayToArray(array_, 0, 0, array_, 0, 3, 4, cudaMemcpyDeviceToDevice));
  EXPECT_EQ(contents(array_)[0], 1);
  REFUSED(cudaMemcpyFromArray(to.data(), nullptr, 0, 0, 4, cudaMemcpyDeviceToHost));
  // NVIDIA's takes any direction here, also one that there is not.
  REFUSED(cudaMemcpyFromArrayAsync(to.data(), nullptr, 0, 0, 4, cudaMemcpyDeviceToHost, stream));
  REFUSED(cudaMemcpyToArray(nullptr, 0, 0, ones.data(), 4, cudaMemcpyHostToDevice));
  REFUSED(cudaMemcpyToArrayAsync(nullptr, 0, 0, ones.data(), 4, cudaMemcpyHostToDevice, stream));
  REFUSED(cudaMemcpyArrayToArray(nullptr, 0, 0, array_, 0, 0, 4, cudaMemcpyDeviceToDevice));
}

TEST_F(ArrayCases, Boxes) {
  cudaArray_t box = nullptr;
  const cudaChannelFormatDesc format = one_int();
  OK(cudaMalloc3DArray(&box, &format, cudaExtent{4, 3, 2}, 0));
  std::vector<int> from(24), to(24);
  std::iota(from.begin(), from.end(), 1);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = {from.data(), 16, 4, 3};
  copy.dstArray = box;
  copy.extent = {4, 3, 2};
  copy.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&copy));
  copy = {};
  copy.srcArray = box;
  copy.srcPos = {1, 1, 1};
  copy.dstPtr = {to.data(), 8, 2, 2};
  copy.extent = {2, 2, 1};
  copy.kind = cudaMemcpyDeviceToHost;
  OK(cudaMemcpy3D(&copy));
  EXPECT_EQ(to[0], from[1 + 4 + 12]);
  EXPECT_EQ(to[3], from[2 + 8 + 12]);
  copy.extent = {4, 3, 2};  // beyond it, from where it starts
  REFUSED(cudaMemcpy3D(&copy));
  OK(cudaFreeArray(box));
  cudaArray_t layers = nullptr;
  if (OFFERED(cudaMalloc3DArray(&layers, &format, cudaExtent{4, 4, 3}, kLayered)))
    OK(cudaFreeArray(layers));
}

TEST_F(ArrayCases, TexturesReportTheirDescriptions) {
  const cudaResourceDesc array = resource();
  cudaTextureDesc description = {};
  description.addressMode[0] = 1;
  description.readMode = 0;
  cudaTextureObject_t texture = 0;
  OK(cudaCreateTextureObject(&texture, &array, &description, nullptr));
  cudaResourceDesc of = {};
  cudaTextureDesc how = {};
  OK(cudaGetTextureObjectResourceDesc(&of, texture));
  EXPECT_EQ(of.resType, cudaResourceTypeArray);
  EXPECT_EQ(of.res.array.array, array_);
  OK(cudaGetTextureObjectTextureDesc(&how, texture));
  EXPECT_EQ(how.addressMode[0], 1);
  cudaResourceViewDesc view = {};
  OK(cudaGetTextureObjectResourceViewDesc(&view, texture));  // of no view
  OK(cudaGetTextureObjectResourceViewDesc(nullptr, texture));
  REFUSED(cudaGetTextureObjectResourceViewDesc(&view, 0));
  REFUSED(cudaGetTextureObjectResourceDesc(nullptr, texture));
  REFUSED(cudaGetTextureObjectTextureDesc(nullptr, texture));
  OK(cudaDestroyTextureObject(texture));
  texture = 0;
  REFUSED(cudaCreateTextureObject(&texture, nullptr, &description, nullptr));
  REFUSED(cudaCreateTextureObject(&texture, &array, nullptr, nullptr));
  REFUSED(cudaCreateTextureObject(nullptr, &array, &description, nullptr));
  cudaResourceDesc unknown = array;
  unknown.resType = 17;
  REFUSED(cudaCreateTextureObject(&texture, &unknown, &description, nullptr));
  description.filterMode = 1;  // integers have no mean
  ANSWERS(cudaErrorInvalidFilterSetting,
          cudaCreateTextureObject(&texture, &array, &description, nullptr));
  EXPECT_EQ(texture, 0u);
}

TEST_F(ArrayCases, SurfacesReportTheirResource) {
  const cudaResourceDesc array = resource();
  cudaSurfaceObject_t surface = 0;
  OK(cudaCreateSurfaceObject(&surface, &array));
  cudaResourceDesc of = {};
  OK(cudaGetSurfaceObjectResourceDesc(&of, surface));
  EXPECT_EQ(of.resType, cudaResourceTypeArray);
  EXPECT_EQ(of.res.array.array, array_);
  REFUSED(cudaGetSurfaceObjectResourceDesc(nullptr, surface));
  OK(cudaDestroySurfaceObject(surface));
  surface = 0;
  REFUSED(cudaCreateSurfaceObject(&surface, nullptr));
  REFUSED(cudaCreateSurfaceObject(nullptr, &array));
  Memory<int> memory(64);
  cudaResourceDesc linear = {};
  linear.resType = cudaResourceTypeLinear;
  linear.res.linear = {memory.at(), one_int(), 256};
  REFUSED(cudaCreateSurfaceObject(&surface, &linear));
  EXPECT_EQ(surface, 0u);
}

// Reads what it finds at its own place and writes twice that beside it.
constexpr char kTexturePtx[] = R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry twice(.param .u64 texture, .param .u64 surface)
{
 .reg .b32 %r<9>; .reg .f32 %f<3>; .reg .b64 %rd<3>;
 ld.param.u64 %rd1, [texture];
 ld.param.u64 %rd2, [surface];
 mov.u32 %r1, %tid.x;
 mov.u32 %r2, %tid.y;
 cvt.rn.f32.u32 %f1, %r1;
 cvt.rn.f32.u32 %f2, %r2;
 tex.2d.v4.s32.f32 {%r3, %r4, %r5, %r6}, [%rd1, {%f1, %f2}];
 add.s32 %r7, %r3, %r3;
 shl.b32 %r8, %r1, 2;
 sust.b.2d.b32.trap [%rd2, {%r8, %r2}], {%r7};
 ret;
}
)";

TEST_F(ArrayCases, KernelsReadAndWriteThroughThem) {
  static char host_twice;
  Program with(fat_binary_of(kTexturePtx));
  with.kernel(&host_twice, "twice");
  const cudaResourceDesc array = resource();
  const cudaTextureDesc description = {};
  cudaTextureObject_t texture = 0;
  cudaSurfaceObject_t surface = 0;
  OK(cudaCreateTextureObject(&texture, &array, &description, nullptr));
  cudaArray_t out = nullptr;
  const cudaChannelFormatDesc format = one_int();
  OK(cudaMallocArray(&out, &format, kWidth, kHeight, kSurfaceLoadStore));
  cudaResourceDesc written = array;
  written.res.array.array = out;
  OK(cudaCreateSurfaceObject(&surface, &written));
  void* args[] = {&texture, &surface};
  OK(cudaLaunchKernel(&host_twice, {1, 1, 1}, {kWidth, kHeight, 1}, args, 0, nullptr));
  OK(cudaDeviceSynchronize());
  const std::vector<int> to = contents(out);
  for (size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i], 2 * from_[i]) << i;
  OK(cudaDestroyTextureObject(texture));
  OK(cudaDestroySurfaceObject(surface));
  OK(cudaFreeArray(out));
}

// Reads the middle of the first texel's four channels.
constexpr char kFourChannelsPtx[] = R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry four(.param .u64 texture, .param .u64 out)
{
 .reg .f32 %f<6>; .reg .b64 %rd<3>;
 ld.param.u64 %rd1, [texture];
 ld.param.u64 %rd2, [out];
 mov.f32 %f1, 0f3F000000;
 tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1, %f1}];
 st.global.v4.f32 [%rd2], {%f2, %f3, %f4, %f5};
 ret;
}
)";

// Kinds from UnsignedNormalized8X1 to SignedNormalized16X4: 1, 2, 4 channels, 8 and 16 bits.
cudaChannelFormatDesc normalised(int kind) {
  const int bits = (kind - kFirstNormalised) / 3 % 2 == 0 ? 8 : 16;
  const int channels = 1 << (kind - kFirstNormalised) % 3;
  const auto size = [&](int channel) { return channel < channels ? bits : 0; };
  return cudaCreateChannelDesc(size(0), size(1), size(2), size(3), kind);
}

// Every channel holds 1/5 of the largest number, or -1/7 of it.
TEST_F(ArrayCases, NormalisedKindsAreReadAsNumbers) {
  static char host_four;
  Program with(fat_binary_of(kFourChannelsPtx));
  with.kernel(&host_four, "four");
  Memory<float> out(4);
  for (int kind = kFirstNormalised; kind < kFirstNormalised + kNormalisedKinds; ++kind) {
    const cudaChannelFormatDesc format = normalised(kind);
    const bool is_signed = kind >= kFirstNormalised + kNormalisedKinds / 2, wide = format.x == 16;
    cudaArray_t array = nullptr;
    OK(cudaMallocArray(&array, &format, 1, 1, 0));
    const int most = is_signed ? (wide ? 32767 : 127) : (wide ? 65535 : 255);
    const int value = is_signed ? -most / 7 : most / 5;
    unsigned char texel[8];
    for (int i = 0; i < 8; ++i) texel[i] = value >> (wide && i % 2 == 1 ? 8 : 0) & 0xff;
    const size_t bytes = (format.x + format.y + format.z + format.w) / 8;
    OK(cudaMemcpy2DToArray(array, 0, 0, texel, bytes, bytes, 1, cudaMemcpyHostToDevice));
    REFUSED(
        cudaMemcpy2DToArray(array, 0, 0, texel, bytes + 1, bytes + 1, 1, cudaMemcpyHostToDevice));
    cudaChannelFormatDesc reported = {};
    OK(cudaGetChannelDesc(&reported, array));
    EXPECT_EQ(reported.f, kind);
    EXPECT_EQ(reported.x, format.x);
    EXPECT_EQ(reported.w, format.w);
    cudaResourceDesc of = {};
    of.resType = cudaResourceTypeArray;
    of.res.array.array = array;
    cudaTextureDesc description = {};
    description.readMode = 1;  // cudaReadModeNormalizedFloat
    description.filterMode = 1;
    cudaTextureObject_t texture = 0;
    OK(cudaCreateTextureObject(&texture, &of, &description, nullptr));
    float* to = out.at();
    void* args[] = {&texture, &to};
    OK(cudaLaunchKernel(&host_four, {1, 1, 1}, {1, 1, 1}, args, 0, nullptr));
    float got[4] = {};
    OK(cudaMemcpy(got, to, sizeof got, cudaMemcpyDeviceToHost));
    EXPECT_NEAR(got[0], static_cast<float>(value) / most, 1e-5) << kind;
    EXPECT_NEAR(got[3], format.w != 0 ? static_cast<float>(value) / most : got[3], 1e-5) << kind;
    OK(cudaDestroyTextureObject(texture));
    OK(cudaFreeArray(array));
  }
}

TEST_F(ArrayCases, NormalisedKindsOfOtherChannelsAreRefused) {
  cudaArray_t array = nullptr;
  cudaChannelFormatDesc format = normalised(kFirstNormalised + 2);
  format.z = format.w = 0;
  REFUSED(cudaMallocArray(&array, &format, 8, 8, 0));
  format = normalised(kFirstNormalised);
  format.x = 16;
  REFUSED(cudaMallocArray(&array, &format, 8, 8, 0));
  EXPECT_EQ(array, nullptr);
}

// Handles of before a fork are the parent's: a child ends none of them.
TEST_F(ArrayCases, ChildrenEndNothing) {
  const cudaResourceDesc array = resource();
  const cudaTextureDesc description = {};
  cudaTextureObject_t texture = 0;
  cudaSurfaceObject_t surface = 0;
  OK(cudaCreateTextureObject(&texture, &array, &description, nullptr));
  OK(cudaCreateSurfaceObject(&surface, &array));
  Stream one, other;
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = cudaDestroyTextureObject(texture) == cudaErrorInitializationError &&
                         cudaDestroySurfaceObject(surface) == cudaErrorInitializationError &&
                         cudaFreeArray(array_) == cudaErrorInitializationError &&
                         cudaFreeMipmappedArray(nullptr) == cudaErrorInitializationError &&
                         cudaStreamCopyAttributes(one, other) == cudaErrorInitializationError;
    _exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  OK(cudaDestroyTextureObject(texture));
  OK(cudaDestroySurfaceObject(surface));
  EXPECT_EQ(contents(array_), from_);
}

// Nothing of these was asked for when the array was made.
TEST_F(ArrayCases, NotOfThisArray) {
  cudaArray_t plane = nullptr;
  char answer[128];
  REFUSED(cudaArrayGetPlane(&plane, array_, 0));
  REFUSED(
      cudaArrayGetSparseProperties(reinterpret_cast<cudaArraySparseProperties*>(answer), array_));
  REFUSED(cudaArrayGetMemoryRequirements(nullptr, array_, 0));
  EXPECT_EQ(plane, nullptr);
}

TEST_F(ArrayCases, MipmappedArrays) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc(32, 0, 0, 0, kFloat32);
  cudaMipmappedArray_t mipmap = nullptr;
  cudaArray_t level = nullptr;
  char answer[128];
  if (OFFERED(cudaMallocMipmappedArray(&mipmap, &format, cudaExtent{16, 8, 0}, 3, 0))) {
    OK(cudaGetMipmappedArrayLevel(&level, mipmap, 2));
    cudaExtent extent = {};
    OK(cudaArrayGetInfo(nullptr, &extent, nullptr, level));
    EXPECT_EQ(extent.width, 4u);
    EXPECT_EQ(extent.height, 2u);
    REFUSED(cudaGetMipmappedArrayLevel(&level, mipmap, 3));
    OK(cudaFreeMipmappedArray(mipmap));
  }
  mipmap = nullptr;
  REFUSED(cudaMallocMipmappedArray(&mipmap, nullptr, cudaExtent{16, 8, 0}, 3, 0));
  REFUSED(cudaMallocMipmappedArray(nullptr, &format, cudaExtent{16, 8, 0}, 3, 0));
  OK(cudaFreeMipmappedArray(nullptr));
  REFUSED(cudaGetMipmappedArrayLevel(&level, nullptr, 0));
  REFUSED(cudaMipmappedArrayGetMemoryRequirements(nullptr, nullptr, 0));
  REFUSED(cudaMipmappedArrayGetSparseProperties(
      reinterpret_cast<cudaArraySparseProperties*>(answer), nullptr));
  EXPECT_EQ(mipmap, nullptr);
}

}  // namespace
