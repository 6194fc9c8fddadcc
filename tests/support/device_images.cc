// SPDX-License-Identifier: Apache-2.0
#include "tests/support/device_images.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace sluice::testing {

namespace {

constexpr std::size_t kWide = 16;

// Adds to `out` how many of `count` words differ; the loads of a word into %rd11 (and %rd12) of a,
// %rd13 (and %rd14) of b, from %rd9 and %rd10, and its bytes' logarithm.
std::string kernel(const char* name, const char* loads, int shift) {
  return std::string(".visible .entry ") + name +
         R"((.param .u64 a, .param .u64 b, .param .u64 count, .param .u64 out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<15>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [count];
  ld.param.u64 %rd4, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd5, %r1, %r2;
  cvt.u64.u32 %rd6, %r3;
  add.u64 %rd5, %rd5, %rd6;
  mul.wide.u32 %rd7, %r4, %r2;
  mov.u64 %rd12, 0;
  mov.u64 %rd14, 0;
NEXT:
  setp.ge.u64 %p1, %rd5, %rd3;
  @%p1 bra DONE;
  shl.b64 %rd8, %rd5, )" +
         std::to_string(shift) + R"(;
  add.u64 %rd9, %rd1, %rd8;
  add.u64 %rd10, %rd2, %rd8;
  )" + loads +
         R"(
  add.u64 %rd5, %rd5, %rd7;
  xor.b64 %rd11, %rd11, %rd13;
  xor.b64 %rd12, %rd12, %rd14;
  or.b64 %rd11, %rd11, %rd12;
  mov.u64 %rd12, 0;
  setp.eq.u64 %p2, %rd11, 0;
  @%p2 bra NEXT;
  red.global.add.u64 [%rd4], 1;
  bra NEXT;
DONE:
  ret;
}
)";
}

}  // namespace

DeviceImages::DeviceImages(const gpu::DriverApi& api, CUstream stream, Check check)
    : api_(api), stream_(stream), check_(std::move(check)) {
  const std::string text =
      ".version 7.0\n.target sm_70\n.address_size 64\n" +
      kernel(
          "wide",
          "ld.global.v2.u64 {%rd11, %rd12}, [%rd9];\n  ld.global.v2.u64 {%rd13, %rd14}, [%rd10];",
          4) +
      kernel("bytes", "ld.global.u8 %rd11, [%rd9];\n  ld.global.u8 %rd13, [%rd10];", 0);
  check_(api_.cuModuleLoadData(&module_, text.c_str()), "the module that compares");
  check_(api_.cuModuleGetFunction(&wide_, module_, "wide"), "cuModuleGetFunction");
  check_(api_.cuModuleGetFunction(&bytes_, module_, "bytes"), "cuModuleGetFunction");
  check_(api_.cuMemAlloc(&differing_, 16), "cuMemAlloc");
}

DeviceImages::~DeviceImages() {
  check_(api_.cuMemFree(differing_), "cuMemFree");
  check_(api_.cuModuleUnload(module_), "cuModuleUnload");
}

void DeviceImages::take(std::span<const DevicePiece> pieces, Image& image) {
  check_(api_.cuCtxSynchronize(), "what came before a copy");
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i == image.size()) {
      image.push_back({0, pieces[i].bytes});
      check_(api_.cuMemAlloc(&image[i].address, std::max<std::size_t>(pieces[i].bytes, 1)),
             "cuMemAlloc");
    }
    if (pieces[i].bytes != 0)
      check_(api_.cuMemcpyDtoDAsync(image[i].address, pieces[i].address, pieces[i].bytes, stream_),
             "cuMemcpyDtoDAsync");
  }
  check_(api_.cuStreamSynchronize(stream_), "copies on the GPU");
}

void DeviceImages::put(std::span<const DevicePiece> pieces, const Image& image) {
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].bytes != 0)
      check_(api_.cuMemcpyDtoDAsync(pieces[i].address, image[i].address, pieces[i].bytes, stream_),
             "cuMemcpyDtoDAsync");
  check_(api_.cuStreamSynchronize(stream_), "copies on the GPU");
}

void DeviceImages::compare(CUfunction f, CUdeviceptr a, CUdeviceptr b, std::size_t count) {
  constexpr std::size_t kThreads = 256, kMostBlocks = 1024;
  if (count == 0) return;
  std::uint64_t words = count;
  void* params[] = {&a, &b, &words, &differing_};
  const auto blocks =
      static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMostBlocks));
  check_(api_.cuLaunchKernel(f, blocks, 1, 1, kThreads, 1, 1, 0, stream_, params, nullptr),
         "a comparison");
}

bool DeviceImages::same(std::span<const DevicePiece> pieces, const Image& image) {
  check_(api_.cuMemsetD8Async(differing_, 0, 16, stream_), "cuMemsetD8Async");
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const CUdeviceptr a = pieces[i].address, b = image[i].address;
    // A module's variable may begin anywhere; copies do not.
    const std::size_t wide = a % kWide == 0 ? pieces[i].bytes / kWide : 0;
    compare(wide_, a, b, wide);
    compare(bytes_, a + wide * kWide, b + wide * kWide, pieces[i].bytes - wide * kWide);
  }
  check_(api_.cuStreamSynchronize(stream_), "a comparison");
  std::uint64_t differing = 0;
  check_(api_.cuMemcpyDtoH(&differing, differing_, sizeof differing), "cuMemcpyDtoH");
  return differing == 0;
}

void DeviceImages::free(Image& image) {
  for (const DevicePiece& p : image) check_(api_.cuMemFree(p.address), "cuMemFree");
  image.clear();
}

}  // namespace sluice::testing
