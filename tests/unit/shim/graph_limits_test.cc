// SPDX-License-Identifier: Apache-2.0
// The guest's libcuda.so.1: graphs that outlive what they were made of, and parameters at the edge
// of what is allowed.
#include <algorithm>

#include "abi/cuda_graph.h"
#include "tests/unit/shim/fixture.h"

namespace sluice::testing {
namespace {

// What bodies do when they run is tested with real kernels
// (tests/system/programs/conditional_graph.cc).
TEST(ShimGraphLimits, ConditionalNodesOwnTheirBodiesAndTheirValue) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    OK(cuCtxSynchronize());
    const uint64_t before = worker.live_allocations();
    CUgraph g, other, clone;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphCreate(&other, 0));
    CUgraphConditionalHandle handle = 0, inner = 0;
    EXPECT_EQ(cuGraphConditionalHandleCreate(nullptr, g, nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphConditionalHandleCreate(&handle, g, nullptr, 0, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphConditionalHandleCreate(&handle, nullptr, nullptr, 0, 0),
              CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
    EXPECT_EQ(worker.live_allocations(), before);
    OK(cuGraphConditionalHandleCreate(&handle, g, nullptr, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    OK(cuGraphConditionalHandleCreate(&inner, g, nullptr, 0, 0));
    EXPECT_NE(handle, inner);
    CUgraphNode node = nullptr, nested = nullptr;
    CUgraphNodeParams params{};
    const auto add = [&](CUgraphNode* to, CUgraph in, CUgraphConditionalHandle h,
                         CUgraphConditionalNodeType kind, unsigned size) {
      params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
      params.conditional = {h, kind, size, nullptr, nullptr};
      return cuGraphAddNode(to, in, nullptr, nullptr, 0, &params);
    };
    const auto bad = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(add(&node, g, 77, CU_GRAPH_COND_TYPE_IF, 1), bad) << "no such handle";
    EXPECT_EQ(add(&node, other, handle, CU_GRAPH_COND_TYPE_IF, 1), bad) << "another graph's";
    EXPECT_EQ(add(&node, g, handle, CU_GRAPH_COND_TYPE_IF, 0), bad);
    EXPECT_EQ(add(&node, g, handle, CU_GRAPH_COND_TYPE_IF, 3), bad);
    EXPECT_EQ(add(&node, g, handle, CU_GRAPH_COND_TYPE_WHILE, 2), bad);
    EXPECT_EQ(add(&node, g, handle, CU_GRAPH_COND_TYPE_SWITCH, 0), bad);
    EXPECT_EQ(add(&node, g, handle, static_cast<CUgraphConditionalNodeType>(3), 1), bad);
    OK(add(&node, g, handle, CU_GRAPH_COND_TYPE_IF, 2));
    const CUgraph yes = params.conditional.phGraph_out[0], no = params.conditional.phGraph_out[1];
    EXPECT_NE(yes, no);
    OK(add(&nested, yes, inner, CU_GRAPH_COND_TYPE_SWITCH, 3))
        << "in a body, by a handle of the graph";
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(node, &type));
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
    CUgraphNode in_body = nullptr;
    OK(cuGraphAddEmptyNode(&in_body, no, nullptr, 0));
    EXPECT_EQ(cuGraphDestroy(yes), bad) << "the node's";
    EXPECT_EQ(cuGraphChildGraphNodeGetGraph(node, &clone), bad);
    EXPECT_EQ(cuGraphNodeSetParams(node, &params), bad);
    EXPECT_EQ(cuGraphClone(&clone, g), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuGraphAddChildGraphNode(&in_body, other, nullptr, 0, g), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExec exec = nullptr, second = nullptr;
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    EXPECT_EQ(cuGraphInstantiateWithFlags(&second, g, 0), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, g, &info));
    EXPECT_EQ(cuGraphExecUpdate(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    OK(cuGraphDestroyNode(node));
    EXPECT_EQ(cuGraphAddEmptyNode(&in_body, no, nullptr, 0), bad) << "gone with its node";
    OK(cuGraphDestroy(g));
    OK(cuCtxSynchronize());
    EXPECT_EQ(worker.live_allocations(), before + 2) << "the executable's";
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(other));
    OK(cuCtxSynchronize());
    EXPECT_EQ(worker.live_allocations(), before);
  });
}

// What outlives its context's reset must not touch what lies at its address afterwards.
TEST(ShimGraphLimits, MemoryOfAResetContextIsForgotten) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUdeviceptr address[3];
    CUgraph g[3];
    CUgraphExec exec[2];
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
    alloc.poolProps.allocType = 1;
    alloc.poolProps.location = {1, 0};
    alloc.bytesize = 12345;
    cuuint64_t used = 7, reserved = 7;
    // Allocated by its graph, not allocated, and one whose last user goes with the reset.
    for (int i = 0; i < 2; ++i) {
      OK(cuGraphCreate(&g[i], 0));
      OK(cuGraphAddMemAllocNode(&node, g[i], nullptr, 0, &alloc));
      address[i] = alloc.dptr;
      OK(cuGraphInstantiate(&exec[i], g[i], CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    }
    OK(cuGraphLaunch(exec[0], nullptr));
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    EXPECT_EQ(used + reserved, 0u);
    // A graph's memory and a plain allocation at the addresses of before.
    OK(cuGraphCreate(&g[2], 0));
    OK(cuGraphAddMemAllocNode(&node, g[2], nullptr, 0, &alloc));
    CUgraphExec now;
    OK(cuGraphInstantiate(&now, g[2], 0));
    OK(cuGraphLaunch(now, nullptr));
    OK(cuMemAlloc(&address[2], alloc.bytesize));
    ASSERT_EQ(std::min(alloc.dptr, address[2]), std::min(address[0], address[1]));
    ASSERT_EQ(std::max(alloc.dptr, address[2]), std::max(address[0], address[1]));
    OK(cuMemFree(alloc.dptr));
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(cuGraphLaunch(exec[i], nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
      OK(cuGraphExecDestroy(exec[i]));
      OK(cuGraphDestroy(g[i]));
    }
    EXPECT_EQ(worker.live_allocations(), 2u);
    OK(cuMemsetD8(address[2], 1, alloc.bytesize));
    OK(cuMemFree(address[2]));
    OK(cuGraphLaunch(now, nullptr));
    OK(cuMemsetD8(alloc.dptr, 1, alloc.bytesize));
    OK(cuMemFree(alloc.dptr));
    OK(cuGraphExecDestroy(now));
    OK(cuGraphDestroy(g[2]));
    EXPECT_EQ(worker.live_allocations(), 0u);
  });
}

// The fake GPU has one SM, which takes four blocks of any kernel.
TEST(ShimGraphLimits, CooperativeNodesHaveToFit) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 64));
    uint32_t n = 1, one = 1;
    void* params[] = {&p, &n, &one};
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = fill, node.gridDimX = 4, node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = 64, node.blockDimY = node.blockDimZ = 1, node.kernelParams = params;
    CUgraph g;
    CUgraphNode fits, large;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddKernelNode(&fits, g, nullptr, 0, &node));
    node.gridDimX = 5;
    OK(cuGraphAddKernelNode(&large, g, nullptr, 0, &node));
    CUkernelNodeAttrValue value{};
    value.cooperative = 1;
    EXPECT_EQ(cuGraphKernelNodeSetAttribute(large, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    OK(cuGraphKernelNodeSetAttribute(fits, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    EXPECT_EQ(cuGraphKernelNodeCopyAttributes(large, fits),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    OK(cuGraphKernelNodeGetAttribute(large, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    EXPECT_EQ(value.cooperative, 0) << "a refused attribute is not kept";
    OK(cuGraphDestroyNode(large));
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, g, 0));
    OK(cuGraphLaunch(exec, nullptr));
    OK(cuCtxSynchronize());
    EXPECT_EQ(worker.last_launch_flags(), SLUICE_LAUNCHED_COOPERATIVE);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
  });
}

TEST(ShimGraphLimits, BoxesThatWrapAroundAreRefused) {
  in_process({}, [](FakeWorker&) {
    set_up();
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 4096));
    CUgraph g;
    CUgraphNode node;
    OK(cuGraphCreate(&g, 0));
    CUDA_MEMCPY3D good{};
    good.srcMemoryType = good.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    good.srcDevice = p, good.dstDevice = p + 2048;
    good.WidthInBytes = good.Height = good.Depth = 4;
    OK(cuGraphAddMemcpyNode(&node, g, nullptr, 0, &good, nullptr));
    // Each sum that may wrap to a place within the allocation, at both ends.
    constexpr size_t kHalf = size_t{1} << 63, kQuarter = size_t{1} << 62;
    const auto refused = [&](const char* what, auto&& change) {
      CUDA_MEMCPY3D box = good;
      change(box);
      EXPECT_EQ(cuGraphAddMemcpyNode(&node, g, nullptr, 0, &box, nullptr), CUDA_ERROR_INVALID_VALUE)
          << what;
    };
    refused("x", [](auto& b) { b.srcXInBytes = -size_t{8}, b.srcPitch = 64; });
    refused("x and a row", [](auto& b) { b.dstXInBytes = -size_t{2}, b.dstPitch = 64; });
    refused("y", [](auto& b) { b.srcY = -size_t{4}, b.srcPitch = 64, b.srcHeight = 8; });
    refused("y times the pitch", [](auto& b) { b.Depth = 1, b.srcY = kQuarter, b.srcPitch = 64; });
    refused("z times the slice", [](auto& b) { b.dstZ = kHalf, b.dstPitch = 64, b.dstHeight = 8; });
    refused("z and the depth",
            [](auto& b) { b.dstZ = -size_t{2}, b.dstPitch = 64, b.dstHeight = 8; });
    refused("the slice", [](auto& b) { b.srcPitch = kHalf, b.srcHeight = 4; });
    refused("the slices", [](auto& b) { b.srcPitch = 64, b.srcHeight = kQuarter; });
    refused("the rows", [](auto& b) { b.Depth = 1, b.srcPitch = kQuarter, b.Height = 5; });
    refused("the address",
            [](auto& b) { b.dstDevice = -CUdeviceptr{16}, b.dstXInBytes = 32, b.dstPitch = 64; });
    OK(cuGraphDestroy(g));
  });
}

}  // namespace
}  // namespace sluice::testing
