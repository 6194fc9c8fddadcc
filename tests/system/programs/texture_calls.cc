// SPDX-License-Identifier: Apache-2.0
// Arrays, texture and surface objects: what each call of the driver API answers, and what kernels
// read and write. The same program runs through the channel and on the software GPU alone.
//
//   texture-calls     exit 0 if everything came out right; what did not is printed
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "tests/system/programs/expect.h"

namespace {

constexpr CUresult kBadHandle = CUDA_ERROR_INVALID_HANDLE;

// sample: out[thread] = the texture at (x0 + thread * step, y), point or linear as it is made.
// invert: each word of the surface, ~.
const char* const kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry sample(.param .u64 out, .param .u64 texture, .param .f32 x0, .param .f32 step,
                       .param .f32 y)
{
  .reg .b64 %d<4>; .reg .b32 %r<3>; .reg .f32 %f<9>;
  ld.param.u64 %d1, [out]; ld.param.u64 %d2, [texture];
  ld.param.f32 %f1, [x0]; ld.param.f32 %f2, [step]; ld.param.f32 %f3, [y];
  mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f4, %r1; fma.rn.f32 %f1, %f4, %f2, %f1;
  tex.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%d2, {%f1, %f3}];
  mul.wide.u32 %d3, %r1, 4; add.u64 %d1, %d1, %d3; st.global.f32 [%d1], %f5;
  ret;
}
.visible .entry fetch(.param .u64 out, .param .u64 texture)
{
  .reg .b64 %d<4>; .reg .b32 %r<7>;
  ld.param.u64 %d1, [out]; ld.param.u64 %d2, [texture];
  mov.u32 %r1, %tid.x;
  tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%d2, {%r1}];
  mul.wide.u32 %d3, %r1, 4; add.u64 %d1, %d1, %d3; st.global.u32 [%d1], %r2;
  ret;
}
.visible .entry invert(.param .u64 surface)
{
  .reg .b64 %d<2>; .reg .b32 %r<5>;
  ld.param.u64 %d1, [surface];
  mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 2; mov.u32 %r2, %ctaid.x;
  suld.b.2d.b32.trap %r3, [%d1, {%r1, %r2}];
  not.b32 %r3, %r3;
  sust.b.2d.b32.trap [%d1, {%r1, %r2}], %r3;
  ret;
}
)";

CUfunction sample, fetch, invert;
CUdeviceptr out;

std::vector<float> samples(CUtexObject texture, unsigned n, float x0, float step, float y) {
  void* params[] = {&out, &texture, &x0, &step, &y};
  OK(cuLaunchKernel(sample, 1, 1, 1, n, 1, 1, 0, nullptr, params, nullptr));
  std::vector<float> got(n, -1);
  OK(cuMemcpyDtoH(got.data(), out, n * 4));
  return got;
}

CUDA_RESOURCE_DESC of_array(CUarray array) {
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_ARRAY;
  r.res.array.hArray = array;
  return r;
}
CUDA_TEXTURE_DESC with(CUaddress_mode mode, CUfilter_mode filter, unsigned flags) {
  CUDA_TEXTURE_DESC t{};
  t.addressMode[0] = t.addressMode[1] = t.addressMode[2] = mode;
  t.filterMode = filter;
  t.flags = flags;
  t.borderColor[0] = 9;
  return t;
}

// 4 by 2 texels, 0 to 7.
CUarray small_array() {
  const CUDA_ARRAY_DESCRIPTOR d{4, 2, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  OK(cuArrayCreate(&array, &d));
  std::vector<float> texels(8);
  for (int i = 0; i < 8; ++i) texels[i] = static_cast<float>(i);
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = texels.data();
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = array;
  c.WidthInBytes = 16;
  c.Height = 2;
  OK(cuMemcpy2D(&c));
  return array;
}

void modes_of_textures() {
  const CUarray array = small_array();
  struct Case {
    CUaddress_mode mode;
    CUfilter_mode filter;
    unsigned flags;
    float x0, step, y;
    float expected[4];
  };
  constexpr unsigned kNormal = CU_TRSF_NORMALIZED_COORDINATES;
  const Case cases[] = {
      {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0, 0.5f, 1, 1.5f, {4, 5, 6, 7}},
      {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0, 2.5f, 1, 0.5f, {2, 3, 3, 3}},
      {CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_POINT, 0, 2.5f, 1, 0.5f, {2, 3, 9, 9}},
      {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0, 1, 1, 1, {2.5f, 3.5f, 4.5f, 5}},
      {CU_TR_ADDRESS_MODE_WRAP,
       CU_TR_FILTER_MODE_POINT,
       kNormal,
       0.625f,
       0.25f,
       0.25f,
       {2, 3, 0, 1}},
      {CU_TR_ADDRESS_MODE_MIRROR,
       CU_TR_FILTER_MODE_POINT,
       kNormal,
       0.625f,
       0.25f,
       0.25f,
       {2, 3, 3, 2}}};
  for (const Case& one : cases) {
    const auto r = of_array(array);
    const auto t = with(one.mode, one.filter, one.flags);
    CUtexObject texture = 0;
    OK(cuTexObjectCreate(&texture, &r, &t, nullptr));
    const auto got = samples(texture, 4, one.x0, one.step, one.y);
    for (int i = 0; i < 4; ++i) EXPECT(got[i] == one.expected[i]);
    OK(cuTexObjectDestroy(texture));
  }
  OK(cuArrayDestroy(array));
}

// Bytes as numbers between 0 and 1; rows of plain memory; plain memory.
void other_resources() {
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 4096));
  std::vector<uint8_t> bytes(4096);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i % 2 * 255);
  OK(cuMemcpyHtoD(memory, bytes.data(), bytes.size()));
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_PITCH2D;
  r.res.pitch2D = {memory, CU_AD_FORMAT_UNSIGNED_INT8, 1, 16, 4, 512};
  const auto t = with(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  CUtexObject texture = 0;
  OK(cuTexObjectCreate(&texture, &r, &t, nullptr));
  const auto got = samples(texture, 4, 0.5f, 1, 3.5f);
  EXPECT(got[0] == 0 && got[1] == 1 && got[2] == 0 && got[3] == 1);
  CUDA_RESOURCE_DESC back{};
  OK(cuTexObjectGetResourceDesc(&back, texture));
  EXPECT(back.resType == CU_RESOURCE_TYPE_PITCH2D && back.res.pitch2D.devPtr == memory &&
         back.res.pitch2D.pitchInBytes == 512);
  OK(cuTexObjectDestroy(texture));
  r.res.pitch2D.pitchInBytes = 8;
  ANSWERS(kInvalid, cuTexObjectCreate(&texture, &r, &t, nullptr));
  r.res.pitch2D = {memory, CU_AD_FORMAT_UNSIGNED_INT8, 1, 16, 4000, 512};
  ANSWERS(kInvalid, cuTexObjectCreate(&texture, &r, &t, nullptr));

  r = {};
  r.resType = CU_RESOURCE_TYPE_LINEAR;
  r.res.linear = {memory, CU_AD_FORMAT_UNSIGNED_INT32, 1, 256};
  OK(cuTexObjectCreate(&texture, &r, &t, nullptr));
  void* params[] = {&out, &texture};
  OK(cuLaunchKernel(fetch, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  uint32_t words[32] = {};
  OK(cuMemcpyDtoH(words, out, sizeof words));
  EXPECT(words[0] == 0xff00ff00u && words[31] == 0xff00ff00u);
  OK(cuTexObjectDestroy(texture));
  r.res.linear.sizeInBytes = 4100;
  ANSWERS(kInvalid, cuTexObjectCreate(&texture, &r, &t, nullptr));
  CUsurfObject surface = 0;
  ANSWERS(kInvalid, cuSurfObjectCreate(&surface, &r));
  OK(cuMemFree(memory));
}

// Boxes of a volume: from and to pageable, pinned and device memory, and between arrays; larger
// than what is staged at once.
void boxes() {
  constexpr size_t kWidth = 700, kHeight = 300, kDepth = 3;
  constexpr size_t kRow = kWidth * 4, kSlice = kRow * kHeight, kAll = kSlice * kDepth;
  const CUDA_ARRAY3D_DESCRIPTOR d{kWidth, kHeight, kDepth, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
  CUarray array = nullptr, second = nullptr;
  OK(cuArray3DCreate(&array, &d));
  OK(cuArray3DCreate(&second, &d));
  CUDA_ARRAY3D_DESCRIPTOR got{};
  OK(cuArray3DGetDescriptor(&got, array));
  EXPECT(got.Width == kWidth && got.Height == kHeight && got.Depth == kDepth &&
         got.Format == CU_AD_FORMAT_UNSIGNED_INT32 && got.NumChannels == 1 && got.Flags == 0);
  std::vector<uint32_t> in(kAll / 4), back(kAll / 4);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint32_t>(i * 2654435761u);
  uint32_t* pinned = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kAll, 0));
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, kAll));

  CUDA_MEMCPY3D c{};
  c.WidthInBytes = kRow, c.Height = kHeight, c.Depth = kDepth;
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = in.data();
  c.srcPitch = kRow, c.srcHeight = kHeight;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = array;
  OK(cuMemcpy3D(&c));
  CUDA_MEMCPY3D between = c;
  between.srcMemoryType = CU_MEMORYTYPE_ARRAY, between.srcArray = array;
  between.dstArray = second;
  OK(cuMemcpy3DAsync(&between, nullptr));
  CUDA_MEMCPY3D down = c;
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY, down.srcArray = second;
  down.dstMemoryType = CU_MEMORYTYPE_HOST, down.dstHost = pinned;
  down.dstPitch = kRow, down.dstHeight = kHeight;
  OK(cuMemcpy3DAsync(&down, nullptr));
  OK(cuStreamSynchronize(nullptr));
  EXPECT(std::vector<uint32_t>(pinned, pinned + kAll / 4) == in);
  down.dstHost = back.data();
  OK(cuMemcpy3D(&down));
  EXPECT(back == in);
  down.dstMemoryType = CU_MEMORYTYPE_DEVICE, down.dstDevice = memory;
  OK(cuMemcpy3D(&down));
  back.assign(back.size(), 0);
  OK(cuMemcpyDtoH(back.data(), memory, kAll));
  EXPECT(back == in);

  // Part of the second slice, into a place of another pitch.
  std::vector<uint32_t> part(5 * 16, 7);
  CUDA_MEMCPY3D some{};
  some.srcMemoryType = CU_MEMORYTYPE_ARRAY, some.srcArray = array;
  some.srcXInBytes = 40, some.srcY = 3, some.srcZ = 1;
  some.dstMemoryType = CU_MEMORYTYPE_HOST, some.dstHost = part.data();
  some.dstPitch = 64, some.dstXInBytes = 8, some.dstY = 1;
  some.WidthInBytes = 24, some.Height = 4, some.Depth = 1;
  OK(cuMemcpy3D(&some));
  for (size_t y = 0; y < 5; ++y)
    for (size_t x = 0; x < 16; ++x)
      EXPECT(part[y * 16 + x] ==
             (y >= 1 && x >= 2 && x < 8 ? in[(kSlice + (y + 2) * kRow) / 4 + 10 + x - 2] : 7));
  const auto refused = [&](auto edit) {
    CUDA_MEMCPY3D bad = some;
    edit(bad);
    ANSWERS(kInvalid, cuMemcpy3D(&bad));
  };
  refused([](auto& b) { b.srcXInBytes = kRow - 20; });
  refused([](auto& b) { b.srcY = kHeight - 3; });
  refused([](auto& b) { b.srcZ = kDepth; });
  refused([](auto& b) { b.srcZ = SIZE_MAX; });
  refused([](auto& b) { b.dstPitch = 24; });
  refused([](auto& b) { b.srcLOD = 1; });
  refused([](auto& b) { b.WidthInBytes = SIZE_MAX / 2; });
  OK(cuMemFree(memory));
  OK(cuMemFreeHost(pinned));
  OK(cuArrayDestroy(array));
  OK(cuArrayDestroy(second));
  ANSWERS(kBadHandle, cuArrayDestroy(second));
}

// Arrays of one dimension have copies of their own.
void lines() {
  const CUDA_ARRAY_DESCRIPTOR d{64, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
  CUarray array = nullptr, second = nullptr;
  OK(cuArrayCreate(&array, &d));
  OK(cuArrayCreate(&second, &d));
  CUDA_ARRAY_DESCRIPTOR got{};
  OK(cuArrayGetDescriptor(&got, array));
  EXPECT(got.Width == 64 && got.Height == 0);
  uint32_t words[64], back[64] = {};
  for (uint32_t i = 0; i < 64; ++i) words[i] = i + 1;
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 256));
  OK(cuMemcpyHtoA(array, 0, words, 256));
  OK(cuMemcpyAtoA(second, 128, array, 0, 128));
  OK(cuMemcpyHtoAAsync(second, 0, words, 128, nullptr));
  OK(cuMemcpyAtoD(memory, second, 0, 256));
  OK(cuMemcpyDtoA(array, 0, memory, 256));
  OK(cuMemcpyAtoHAsync(back, array, 0, 256, nullptr));
  OK(cuStreamSynchronize(nullptr));
  for (uint32_t i = 0; i < 64; ++i) EXPECT(back[i] == i % 32 + 1);
  OK(cuMemcpyAtoH(back, array, 4, 4));
  EXPECT(back[0] == 2);
  ANSWERS(kInvalid, cuMemcpyHtoA(array, 4, words, 256));
  ANSWERS(kInvalid, cuMemcpyAtoH(back, array, 257, 4));
  ANSWERS(kInvalid, cuMemcpyAtoD(memory, array, 0, 260));
  ANSWERS(kInvalid, cuMemcpyAtoA(second, 240, array, 0, 32));
  OK(cuMemFree(memory));
  OK(cuArrayDestroy(array));
  OK(cuArrayDestroy(second));
}

void surfaces() {
  const CUDA_ARRAY3D_DESCRIPTOR d{
      32, 4, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};
  CUarray array = nullptr;
  OK(cuArray3DCreate(&array, &d));
  std::vector<uint32_t> words(128), back(128);
  for (uint32_t i = 0; i < 128; ++i) words[i] = i * 3;
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = words.data();
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = array;
  c.WidthInBytes = 128, c.Height = 4;
  OK(cuMemcpy2DAsync(&c, nullptr));
  const auto r = of_array(array);
  CUsurfObject surface = 0;
  OK(cuSurfObjectCreate(&surface, &r));
  CUDA_RESOURCE_DESC named{};
  OK(cuSurfObjectGetResourceDesc(&named, surface));
  EXPECT(named.res.array.hArray == array);
  void* params[] = {&surface};
  OK(cuLaunchKernel(invert, 4, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  CUDA_MEMCPY2D down{};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY, down.srcArray = array;
  down.dstMemoryType = CU_MEMORYTYPE_HOST, down.dstHost = back.data();
  down.WidthInBytes = 128, down.Height = 4;
  OK(cuMemcpy2D(&down));
  for (uint32_t i = 0; i < 128; ++i) EXPECT(back[i] == ~(i * 3));
  ANSWERS(kInvalid, cuTexObjectDestroy(surface));
  OK(cuSurfObjectDestroy(surface));
  ANSWERS(kInvalid, cuSurfObjectDestroy(surface));
  OK(cuArrayDestroy(array));
}

void wrong_arguments() {
  CUarray array = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR d{4, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  ANSWERS(kInvalid, cuArray3DCreate(nullptr, &d));
  ANSWERS(kInvalid, cuArray3DCreate(&array, nullptr));
  ANSWERS(kInvalid, cuArrayCreate(&array, nullptr));
  d.NumChannels = 3;
  ANSWERS(kInvalid, cuArray3DCreate(&array, &d));
  d.NumChannels = 1, d.Width = 0;
  ANSWERS(kInvalid, cuArray3DCreate(&array, &d));
  d.Width = size_t{1} << 40;
  ANSWERS(kInvalid, cuArray3DCreate(&array, &d));
  d.Width = 4, d.Format = static_cast<CUarray_format>(99);
  ANSWERS(kInvalid, cuArray3DCreate(&array, &d));
  const auto nobody = reinterpret_cast<CUarray>(uint64_t{0x77770});
  CUDA_ARRAY_DESCRIPTOR flat{};
  ANSWERS(kBadHandle, cuArrayGetDescriptor(&flat, nobody));
  ANSWERS(kBadHandle, cuArray3DGetDescriptor(&d, nobody));
  ANSWERS(kBadHandle, cuArrayDestroy(nobody));
  array = small_array();
  ANSWERS(kInvalid, cuArrayGetDescriptor(nullptr, array));
  ANSWERS(kInvalid, cuArray3DGetDescriptor(nullptr, array));
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  auto r = of_array(array);
  auto t = with(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  ANSWERS(kInvalid, cuTexObjectCreate(nullptr, &r, &t, nullptr));
  ANSWERS(kInvalid, cuTexObjectCreate(&texture, nullptr, &t, nullptr));
  ANSWERS(kInvalid, cuTexObjectCreate(&texture, &r, nullptr, nullptr));
  ANSWERS(kInvalid, cuSurfObjectCreate(&surface, &r));  // the array is not for surfaces
  ANSWERS(kInvalid, cuSurfObjectCreate(nullptr, &r));
  t.addressMode[0] = static_cast<CUaddress_mode>(7);
  ANSWERS(kInvalid, cuTexObjectCreate(&texture, &r, &t, nullptr));
  r = of_array(nobody);
  t = with(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  ANSWERS(kBadHandle, cuTexObjectCreate(&texture, &r, &t, nullptr));
  r = of_array(array);
  OK(cuTexObjectCreate(&texture, &r, &t, nullptr));
  CUDA_TEXTURE_DESC back{};
  OK(cuTexObjectGetTextureDesc(&back, texture));
  EXPECT(back.addressMode[0] == CU_TR_ADDRESS_MODE_CLAMP && back.borderColor[0] == 9);
  ANSWERS(kInvalid, cuTexObjectGetTextureDesc(nullptr, texture));
  ANSWERS(kInvalid, cuTexObjectGetResourceDesc(nullptr, texture));
  ANSWERS(kInvalid, cuTexObjectGetTextureDesc(&back, texture + 77));
  CUDA_RESOURCE_DESC none{};
  ANSWERS(kInvalid, cuSurfObjectGetResourceDesc(&none, texture));
  ANSWERS(kInvalid, cuTexObjectGetResourceViewDesc(nullptr, texture));
  OK(cuTexObjectDestroy(texture));
  ANSWERS(kInvalid, cuTexObjectDestroy(texture));
  OK(cuArrayDestroy(array));
}

}  // namespace

int main() {
  ::alarm(300);  // a hang is a failure
  CUcontext context;
  CUmodule module;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&sample, module, "sample"));
  OK(cuModuleGetFunction(&fetch, module, "fetch"));
  OK(cuModuleGetFunction(&invert, module, "invert"));
  OK(cuMemAlloc(&out, 4096));
  if (failures != 0) return 1;
  modes_of_textures();
  other_resources();
  boxes();
  lines();
  surfaces();
  wrong_arguments();
  OK(cuMemFree(out));
  return failures == 0 ? 0 : 1;
}
