// SPDX-License-Identifier: Apache-2.0
// The guest's libcuda.so.1: memory, copies and what is known of pointers.
#include <cstring>
#include <numeric>
#include <vector>

#include "abi/cuda_graph.h"
#include "tests/unit/shim/fixture.h"

namespace sluice::testing {
namespace {

// Sizes around every boundary: staging blocks, pieces, all of staging, and much more.
TEST(Shim, CopiesOfAllSizesAndKinds) {
  Options small;
  small.staging_bytes = 256 << 10;
  in_process(small, [](FakeWorker& worker) {
    set_up();
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t n : {size_t{1}, size_t{63}, size_t{16384}, size_t{65536}, size_t{65537},
                     size_t{262144}, size_t{262145}, size_t{3000001}}) {
      std::vector<unsigned char> in(n), out(n, 0);
      for (size_t i = 0; i < n; ++i) in[i] = static_cast<unsigned char>(i * 131 + n);
      CUdeviceptr a, b;
      OK(cuMemAlloc(&a, n));
      OK(cuMemAlloc(&b, n));
      OK(cuMemcpyHtoD(a, in.data(), n));
      OK(cuMemcpyDtoD(b, a, n));
      OK(cuMemcpyDtoH(out.data(), b, n));
      EXPECT_EQ(in, out) << n;
      std::fill(out.begin(), out.end(), 0);
      OK(cuMemsetD8(a, 0, n));
      OK(cuMemcpyHtoDAsync(a, in.data(), n, stream));
      OK(cuMemcpyDtoHAsync(out.data(), a, n, stream));
      OK(cuStreamSynchronize(stream));
      EXPECT_EQ(in, out) << n;
      void* pinned;
      OK(cuMemAllocHost(&pinned, n));
      std::memset(pinned, 0, n);
      OK(cuMemcpyDtoHAsync(pinned, a, n, stream));
      OK(cuStreamSynchronize(stream));
      EXPECT_EQ(std::memcmp(pinned, in.data(), n), 0) << n;
      OK(cuMemsetD8Async(b, 7, n, stream));
      OK(cuMemcpy(b, reinterpret_cast<CUdeviceptr>(pinned), n));
      std::fill(out.begin(), out.end(), 0);
      OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()), b, n));
      EXPECT_EQ(in, out) << n;
      OK(cuMemFreeHost(pinned));
      // Beyond the end, unknown addresses.
      EXPECT_EQ(cuMemcpyHtoD(a + 1, in.data(), n), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(cuMemcpyHtoD(0x1234, in.data(), n), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(cuMemcpyDtoH(out.data(), a, n + 1), CUDA_ERROR_INVALID_VALUE);
      OK(cuMemcpyHtoD(a, nullptr, 0));
      OK(cuMemFree(a));
      EXPECT_EQ(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
      OK(cuMemFree(b));
    }
    OK(cuStreamDestroy(stream));
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxSynchronize());
    EXPECT_EQ(worker.live_allocations(), 0u);
    EXPECT_LE(worker.live_extents(), 1u) << "one extent is kept for small requests";
  });
}

TEST(Shim, Rectangles) {
  Options small;
  small.staging_bytes = 64 << 10;
  in_process(small, [](FakeWorker&) {
    set_up();
    for (size_t width : {size_t{5}, size_t{1000}, size_t{40000}}) {
      const size_t height = 37, host_pitch = width + 13;
      std::vector<unsigned char> in(host_pitch * height), out(host_pitch * height, 9);
      std::iota(in.begin(), in.end(), static_cast<unsigned char>(3));
      const size_t device_pitch = width + 100;
      CUdeviceptr p;
      OK(cuMemAlloc(&p, device_pitch * height + 50));
      CUDA_MEMCPY2D c{};
      c.srcMemoryType = CU_MEMORYTYPE_HOST;
      c.srcHost = in.data();
      c.srcPitch = host_pitch;
      c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      c.dstDevice = p;
      c.dstPitch = device_pitch;
      c.WidthInBytes = width;
      c.Height = height;
      OK(cuMemcpy2D(&c));
      CUDA_MEMCPY2D back{};
      back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
      back.srcDevice = p;
      back.srcPitch = device_pitch;
      back.dstMemoryType = CU_MEMORYTYPE_HOST;
      back.dstHost = out.data();
      back.dstPitch = host_pitch;
      back.WidthInBytes = width;
      back.Height = height;
      OK(cuMemcpy2D(&back));
      for (size_t row = 0; row < height; ++row) {
        EXPECT_EQ(std::memcmp(&out[row * host_pitch], &in[row * host_pitch], width), 0) << row;
        if (row + 1 < height) {
          EXPECT_EQ(out[row * host_pitch + width], 9) << "gap was touched";
        }
      }
      back.dstPitch = width - 1;
      EXPECT_EQ(cuMemcpy2D(&back), CUDA_ERROR_INVALID_VALUE);
      OK(cuMemsetD2D8(p, device_pitch, 0x5a, width, height));
      unsigned char one = 0;
      OK(cuMemcpyDtoH(&one, p + device_pitch * (height - 1) + width - 1, 1));
      EXPECT_EQ(one, 0x5a);
      EXPECT_EQ(cuMemsetD32(p + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
      OK(cuMemFree(p));
    }
  });
}

TEST(Shim, Boxes) {
  in_process({}, [](FakeWorker&) {
    CUcontext context;
    set_up(&context);
    constexpr size_t kWidth = 30, kHeight = 7, kDepth = 5;
    std::vector<unsigned char> in(kWidth * kHeight * kDepth), out(in.size());
    std::iota(in.begin(), in.end(), 1);
    CUdeviceptr p, q;
    OK(cuMemAlloc(&p, in.size()));
    OK(cuMemAlloc(&q, in.size()));
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = CU_MEMORYTYPE_HOST;
    box.srcHost = in.data();
    box.srcPitch = box.dstPitch = box.WidthInBytes = kWidth;
    box.srcHeight = box.dstHeight = box.Height = kHeight;
    box.Depth = kDepth;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = p;
    OK(cuMemcpy3D(&box));
    OK(cuMemcpyPeer(q, context, p, context, in.size()));
    EXPECT_EQ(cuMemcpyPeer(q, nullptr, p, context, 1), CUDA_ERROR_INVALID_CONTEXT);
    // A part of it, packed.
    CUDA_MEMCPY3D part{};
    part.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    part.srcDevice = q;
    part.srcPitch = kWidth;
    part.srcHeight = kHeight;
    part.srcXInBytes = 3;
    part.srcY = 2;
    part.srcZ = 1;
    part.dstMemoryType = CU_MEMORYTYPE_HOST;
    part.dstHost = out.data();
    part.WidthInBytes = part.dstPitch = 10;
    part.Height = part.dstHeight = 4;
    part.Depth = 3;
    OK(cuMemcpy3DAsync(&part, nullptr));
    OK(cuCtxSynchronize());
    for (size_t i = 0; i < 10 * 4 * 3; ++i)
      ASSERT_EQ(out[i], in[((1 + i / 40) * kHeight + 2 + i / 10 % 4) * kWidth + 3 + i % 10]) << i;
    part.Depth = kDepth;  // beyond the end
    EXPECT_EQ(cuMemcpy3D(&part), CUDA_ERROR_INVALID_VALUE);
    part.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    EXPECT_EQ(cuMemcpy3D(&part), CUDA_ERROR_INVALID_HANDLE);
    // In a capture it is one node.
    CUstream stream;
    CUgraph graph;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpy3DAsync(&box, stream));
    OK(cuStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    OK(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 1u);
  });
}

TEST(Shim, PointersAreKnown) {
  in_process({}, [](FakeWorker&) {
    set_up();
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 1000));
    void* host;
    OK(cuMemHostAlloc(&host, 5000, CU_MEMHOSTALLOC_PORTABLE));
    EXPECT_GE(reinterpret_cast<uint64_t>(host), SLUICE_WINDOW_ADDRESS);
    unsigned type = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 999));
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                             reinterpret_cast<CUdeviceptr>(host) + 4999));
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
    EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 1000),
              CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr base;
    size_t size;
    OK(cuMemGetAddressRange(&base, &size, p + 500));
    EXPECT_EQ(base, p);
    EXPECT_EQ(size, 1000u);
    int stack = 0;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    int ordinal = 5;
    void* data[] = {&type, &ordinal};
    OK(cuPointerGetAttributes(2, wanted, data, reinterpret_cast<CUdeviceptr>(&stack)));
    EXPECT_EQ(type, 0u);
    EXPECT_EQ(ordinal, CU_DEVICE_INVALID);
    OK(cuMemHostRegister(&stack, sizeof stack, 0));
    EXPECT_EQ(cuMemHostRegister(&stack, sizeof stack, 0),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemcpyHtoD(p, &stack, sizeof stack));
    OK(cuMemHostUnregister(&stack));
    EXPECT_EQ(cuMemHostUnregister(&stack), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EXPECT_EQ(cuMemHostRegister(&stack, 4, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_ERROR_NOT_SUPPORTED);
  });
}

// The fake worker takes every mapping; what it answers is tested with the real one.
TEST(Shim, FillsOfWhatTheProgramSeesHaveEnded) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    void* host;
    CUdeviceptr device, managed;
    OK(cuMemHostAlloc(&host, 4096, 0));
    OK(cuMemAlloc(&device, 4096));
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    const auto pinned = reinterpret_cast<CUdeviceptr>(host);
    OK(cuMemsetD8(device, 1, 4096));
    OK(cuMemsetD32Async(pinned, 1, 16, nullptr));
    OK(cuCtxSynchronize());
    EXPECT_EQ(worker.waited_fills(), 0u);
    OK(cuMemsetD32(pinned, 2, 16));
    OK(cuMemsetD2D8(managed, 64, 3, 16, 4));
    EXPECT_EQ(worker.waited_fills(), 2u);
    EXPECT_EQ(static_cast<uint32_t*>(host)[15], 2u);
  });
}

TEST(Shim, MappedRangesAreAsOneAndOfNoContext) {
  in_process({}, [](FakeWorker&) {
    constexpr size_t kUnit = size_t{2} << 20;
    constexpr CUdeviceptr kBase = CUdeviceptr{1} << 40;
    OK(cuInit(0));
    OK(cuMemMap(kBase, kUnit, 0, 1, 0));
    OK(cuMemMap(kBase + kUnit, kUnit, 0, 1, 0));
    OK(cuDevicePrimaryCtxReset(0));  // there is none: nobody's memory goes
    set_up();
    CUcontext of = reinterpret_cast<CUcontext>(&of);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, kBase));
    EXPECT_EQ(of, nullptr);
    OK(cuMemGetAddressRange(&base, &bytes, kBase + kUnit + 5));
    EXPECT_EQ(base, kBase + kUnit);
    EXPECT_EQ(bytes, kUnit);
    EXPECT_EQ(cuMemFree(kBase), CUDA_ERROR_INVALID_VALUE);
    // What is checked here alone: a node's fill.
    CUgraph g;
    CUgraphNode node;
    OK(cuGraphCreate(&g, 0));
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.elementSize = 4, fill.height = 1;
    const auto add = [&](CUdeviceptr at, size_t words) {
      fill.dst = at, fill.width = words;
      return cuGraphAddMemsetNode(&node, g, nullptr, 0, &fill, nullptr);
    };
    OK(add(kBase + 4, 2 * kUnit / 4 - 1));
    EXPECT_EQ(add(kBase + 4, 2 * kUnit / 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(kBase, kUnit));
    EXPECT_EQ(add(kBase + kUnit - 4, 2), CUDA_ERROR_INVALID_VALUE);
    OK(add(kBase + kUnit, kUnit / 4));
    OK(cuGraphDestroy(g));
  });
}

}  // namespace
}  // namespace sluice::testing
