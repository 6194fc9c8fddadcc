// SPDX-License-Identifier: Apache-2.0
// The guest's libcuda.so.1: what calls of graphs and captures refuse. Which error it is differs by
// driver where the documentation does not say; nothing is changed, and what was right still runs.
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "abi/cuda_graph.h"
#include "tests/unit/shim/fixture.h"

namespace sluice::testing {
namespace {

#define REFUSED(call) EXPECT_NE(call, CUDA_SUCCESS)

struct GraphSet {
  CUcontext context = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode empty = nullptr, fill = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr p = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
};

GraphSet make_graph_set() {
  GraphSet s;
  set_up(&s.context);
  EXPECT_EQ(cuMemAlloc(&s.p, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8(s.p, 0, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamCreate(&s.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(cuEventCreate(&s.event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphCreate(&s.graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddEmptyNode(&s.empty, s.graph, nullptr, 0), CUDA_SUCCESS);
  const CUDA_MEMSET_NODE_PARAMS fill{s.p, 0, 0x22222222, 4, 1, 1};
  EXPECT_EQ(cuGraphAddMemsetNode(&s.fill, s.graph, &s.empty, 1, &fill, s.context), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphInstantiateWithFlags(&s.exec, s.graph, 0), CUDA_SUCCESS);
  return s;
}
void expect_still_right(const GraphSet& s) {
  size_t nodes = 0;
  EXPECT_EQ(cuGraphGetNodes(s.graph, nullptr, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 2u);
  EXPECT_EQ(cuGraphLaunch(s.exec, s.stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(s.stream), CUDA_SUCCESS);
  uint32_t value = 0;
  EXPECT_EQ(cuMemcpyDtoH(&value, s.p, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 0x22222222u);
}

TEST(ShimGraphErrors, NodesThatCannotBe) {
  in_process({}, [](FakeWorker&) {
    const GraphSet s = make_graph_set();
    CUgraphNode node = nullptr;
    CUgraph graph = nullptr;
    REFUSED(cuGraphCreate(nullptr, 0));
    REFUSED(cuGraphCreate(&graph, 1));
    REFUSED(cuGraphAddKernelNode(&node, s.graph, nullptr, 0, nullptr));
    REFUSED(cuGraphAddMemsetNode(&node, s.graph, nullptr, 0, nullptr, s.context));
    REFUSED(cuGraphAddHostNode(&node, s.graph, nullptr, 0, nullptr));
    REFUSED(cuGraphAddEventRecordNode(&node, s.graph, nullptr, 0, nullptr));
    REFUSED(cuGraphAddEventWaitNode(&node, s.graph, nullptr, 0, nullptr));
    REFUSED(cuGraphAddMemAllocNode(&node, s.graph, nullptr, 0, nullptr));
    REFUSED(cuGraphAddMemFreeNode(&node, s.graph, nullptr, 0, 0));
    REFUSED(cuGraphAddDependencies(s.graph, &s.empty, &s.fill, nullptr, 1));  // there already
    REFUSED(cuGraphRemoveDependencies(s.graph, &s.fill, &s.empty, nullptr, 1));
    EXPECT_EQ(node, nullptr);
    EXPECT_EQ(graph, nullptr);
    expect_still_right(s);
  });
}

TEST(ShimGraphErrors, AskingTheWrongNode) {
  in_process({}, [](FakeWorker&) {
    const GraphSet s = make_graph_set();
    size_t count = 0;
    unsigned enabled = 0;
    cuuint64_t flags = 0;
    CUevent event = nullptr;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUdeviceptr address = 0;
    CUDA_HOST_NODE_PARAMS host{};
    CUDA_MEMCPY3D copy{};
    CUDA_MEMSET_NODE_PARAMS fill{};
    CUDA_MEM_ALLOC_NODE_PARAMS memory{};
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
    CUkernelNodeAttrValue value{};
    REFUSED(cuGraphGetNodes(nullptr, nullptr, &count));
    REFUSED(cuGraphGetRootNodes(nullptr, nullptr, &count));
    REFUSED(cuGraphGetEdges(nullptr, nullptr, nullptr, nullptr, &count));
    REFUSED(cuGraphNodeGetDependentNodes(nullptr, nullptr, nullptr, &count));
    REFUSED(cuGraphNodeGetEnabled(s.exec, nullptr, &enabled));
    REFUSED(cuGraphNodeFindInClone(&node, s.fill, s.graph));
    REFUSED(cuGraphHostNodeGetParams(s.empty, &host));
    REFUSED(cuGraphMemcpyNodeGetParams(s.empty, &copy));
    REFUSED(cuGraphMemsetNodeGetParams(s.empty, &fill));
    REFUSED(cuGraphMemAllocNodeGetParams(s.empty, &memory));
    REFUSED(cuGraphMemFreeNodeGetParams(s.empty, &address));
    REFUSED(cuGraphBatchMemOpNodeGetParams(s.empty, &batch));
    REFUSED(cuGraphKernelNodeGetAttribute(s.empty, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    REFUSED(cuGraphChildGraphNodeGetGraph(s.empty, &graph));
    REFUSED(cuGraphEventRecordNodeGetEvent(s.empty, &event));
    REFUSED(cuGraphEventWaitNodeGetEvent(s.empty, &event));
    REFUSED(cuGraphExecGetFlags(nullptr, &flags));
    REFUSED(cuGraphDebugDotPrint(s.graph, "/no/such/folder/at all", 0));
    REFUSED(cuGraphDebugDotPrint(s.graph, nullptr, 0));
    EXPECT_EQ(node, nullptr);
    EXPECT_EQ(event, nullptr);
    EXPECT_EQ(graph, nullptr);
    expect_still_right(s);
  });
}

TEST(ShimGraphErrors, ChangingTheWrongNode) {
  in_process({}, [](FakeWorker&) {
    const GraphSet s = make_graph_set();
    CUDA_KERNEL_NODE_PARAMS kernel{};
    CUDA_HOST_NODE_PARAMS host{};
    CUDA_MEMCPY3D copy{};
    CUDA_MEMSET_NODE_PARAMS fill{s.p, 0, 1, 3, 1, 1};  // no element has three bytes
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
    CUgraphNodeParams any{};
    any.type = CU_GRAPH_NODE_TYPE_HOST;
    REFUSED(cuGraphKernelNodeSetParams(s.empty, &kernel));
    REFUSED(cuGraphHostNodeSetParams(s.empty, &host));
    REFUSED(cuGraphMemcpyNodeSetParams(s.empty, &copy));
    REFUSED(cuGraphMemsetNodeSetParams(s.fill, &fill));
    REFUSED(cuGraphBatchMemOpNodeSetParams(s.empty, &batch));
    REFUSED(cuGraphEventRecordNodeSetEvent(s.empty, s.event));
    REFUSED(cuGraphEventWaitNodeSetEvent(s.empty, s.event));
    REFUSED(cuGraphNodeSetParams(s.fill, &any));
    REFUSED(cuGraphExecKernelNodeSetParams(s.exec, s.empty, &kernel));
    REFUSED(cuGraphExecHostNodeSetParams(s.exec, s.empty, &host));
    REFUSED(cuGraphExecMemcpyNodeSetParams(s.exec, s.empty, &copy, s.context));
    REFUSED(cuGraphExecMemsetNodeSetParams(s.exec, s.fill, &fill, s.context));
    REFUSED(cuGraphExecBatchMemOpNodeSetParams(s.exec, s.empty, &batch));
    REFUSED(cuGraphExecChildGraphNodeSetParams(s.exec, s.empty, s.graph));
    REFUSED(cuGraphExecEventRecordNodeSetEvent(s.exec, s.empty, s.event));
    REFUSED(cuGraphExecEventWaitNodeSetEvent(s.exec, s.empty, s.event));
    REFUSED(cuGraphExecNodeSetParams(s.exec, s.fill, &any));
    expect_still_right(s);
  });
}

// What is only unsafe while something is captured, as an H100's driver (580) has it: refused in the
// modes GLOBAL and THREAD_LOCAL, and the capture is spoilt; let through where the capture or the
// thread is RELAXED.
TEST(ShimGraphErrors, UnsafeCallsInCaptures) {
  in_process({}, [](FakeWorker&) {
    const GraphSet s = make_graph_set();
    CUstream other;
    CUdeviceptr d = 0;
    size_t pitch = 0, total = 0;
    void* host = nullptr;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventRecord(s.event, other));
    OK(cuStreamSynchronize(other));
    struct Unsafe {
      const char* name;
      std::function<CUresult()> call, undo;
    };
    const Unsafe calls[] = {
        {"alloc", [&] { return cuMemAlloc(&d, 64); }, [&] { return cuMemFree(d); }},
        {"pitch", [&] { return cuMemAllocPitch(&d, &pitch, 64, 2, 4); },
         [&] { return cuMemFree(d); }},
        {"managed", [&] { return cuMemAllocManaged(&d, 64, CU_MEM_ATTACH_GLOBAL); },
         [&] { return cuMemFree(d); }},
        {"host", [&] { return cuMemHostAlloc(&host, 64, 0); }, [&] { return cuMemFreeHost(host); }},
        {"query", [&] { return cuStreamQuery(other); }, [] { return CUDA_SUCCESS; }},
        {"synchronize", [&] { return cuStreamSynchronize(other); }, [] { return CUDA_SUCCESS; }},
        {"event", [&] { return cuEventQuery(s.event); }, [] { return CUDA_SUCCESS; }},
        {"wait for event", [&] { return cuEventSynchronize(s.event); },
         [] { return CUDA_SUCCESS; }},
    };
    const auto captured = [&](CUstreamCaptureMode mode, const auto& call) {
      EXPECT_EQ(cuStreamBeginCapture(s.stream, mode), CUDA_SUCCESS);
      const CUresult r = call();
      CUgraph graph = nullptr;
      const CUresult end = cuStreamEndCapture(s.stream, &graph);
      EXPECT_EQ(end, r == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      return r;
    };
    constexpr CUresult kRefused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (const Unsafe& one : calls) {
      SCOPED_TRACE(one.name);
      const auto let_through = [&](CUstreamCaptureMode mode) {
        EXPECT_EQ(captured(mode, one.call), CUDA_SUCCESS);
        OK(one.undo());
      };
      EXPECT_EQ(captured(CU_STREAM_CAPTURE_MODE_GLOBAL, one.call), kRefused);
      EXPECT_EQ(captured(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, one.call), kRefused);
      let_through(CU_STREAM_CAPTURE_MODE_RELAXED);
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      OK(cuThreadExchangeStreamCaptureMode(&mode));
      EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
      let_through(CU_STREAM_CAPTURE_MODE_GLOBAL);
      let_through(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
      OK(cuThreadExchangeStreamCaptureMode(&mode));
    }
    // Of another thread's captures only global ones count.
    const auto elsewhere = [&](CUstreamCaptureMode of_thread) {
      return [&, of_thread] {
        CUresult r = CUDA_ERROR_UNKNOWN;
        std::thread([&] {
          CUstreamCaptureMode mode = of_thread;
          OK(cuCtxSetCurrent(s.context));
          OK(cuThreadExchangeStreamCaptureMode(&mode));
          r = cuMemAlloc(&d, 64);
        }).join();
        return r;
      };
    };
    EXPECT_EQ(captured(CU_STREAM_CAPTURE_MODE_GLOBAL, elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL)),
              kRefused);
    OK(captured(CU_STREAM_CAPTURE_MODE_GLOBAL, elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)));
    OK(captured(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL)));
    // These are not unsafe.
    OK(captured(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] { return cuMemGetInfo(&pitch, &total); }));
    OK(captured(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] {
      const uint32_t value = 1;
      return cuMemcpyHtoD(d, &value, 4);
    }));
    expect_still_right(s);
  });
}

TEST(ShimGraphErrors, ObjectsAndCaptures) {
  in_process({}, [](FakeWorker&) {
    const GraphSet s = make_graph_set();
    CUgraphExec exec = nullptr;
    CUuserObject object = nullptr;
    CUstreamCaptureStatus status{};
    cuuint64_t used = 0;
    const CUhostFn nothing = [](void*) {};
    REFUSED(cuGraphInstantiateWithParams(&exec, s.graph, nullptr));
    REFUSED(cuGraphUpload(nullptr, s.stream));
    REFUSED(cuUserObjectCreate(&object, nullptr, nothing, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    REFUSED(cuUserObjectCreate(&object, nullptr, nothing, 1, 0));
    REFUSED(cuUserObjectRetain(nullptr, 1));
    REFUSED(cuGraphRetainUserObject(s.graph, nullptr, 1, 0));
    REFUSED(cuGraphReleaseUserObject(s.graph, nullptr, 1));
    REFUSED(cuDeviceGetGraphMemAttribute(1000, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    REFUSED(cuDeviceSetGraphMemAttribute(1000, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
    REFUSED(cuDeviceGraphMemTrim(1000));
    REFUSED(cuStreamIsCapturing(s.stream, nullptr));
    REFUSED(
        cuStreamGetCaptureInfo_v3(s.stream, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
    REFUSED(cuStreamBeginCaptureToGraph(s.stream, nullptr, nullptr, nullptr, 0,
                                        CU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSED(cuStreamUpdateCaptureDependencies(s.stream, nullptr, nullptr, 0,
                                              CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    EXPECT_EQ(cuStreamIsCapturing(s.stream, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(exec, nullptr);
    EXPECT_EQ(object, nullptr);
    expect_still_right(s);
  });
}

// The calls above, as they are meant.
TEST(ShimGraphErrors, ChangesThatAreRight) {
  in_process({}, [](FakeWorker&) {
    const GraphSet s = make_graph_set();
    CUgraphNode host_node = nullptr, record = nullptr, wait = nullptr;
    std::atomic<int> before = 0, calls = 0;
    CUDA_HOST_NODE_PARAMS host{[](void* user) { ++*static_cast<std::atomic<int>*>(user); },
                               nullptr};
    host.userData = &before;
    OK(cuGraphAddHostNode(&host_node, s.graph, &s.fill, 1, &host));
    host.userData = &calls;
    OK(cuGraphHostNodeSetParams(host_node, &host));
    CUevent other = nullptr, got = nullptr;
    OK(cuEventCreate(&other, CU_EVENT_DISABLE_TIMING));
    OK(cuGraphAddEventRecordNode(&record, s.graph, &host_node, 1, s.event));
    OK(cuGraphAddEventWaitNode(&wait, s.graph, &record, 1, s.event));
    OK(cuGraphEventRecordNodeSetEvent(record, other));
    OK(cuGraphEventWaitNodeSetEvent(wait, other));
    OK(cuGraphEventWaitNodeGetEvent(wait, &got));
    EXPECT_EQ(got, other);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiateWithFlags(&exec, s.graph, 0));
    CUgraphNodeParams any{};
    any.type = CU_GRAPH_NODE_TYPE_MEMSET;
    any.memset = {s.p, 0, 0x33333333, 4, 1, 1, s.context};
    OK(cuGraphExecNodeSetParams(exec, s.fill, &any));
    OK(cuGraphLaunch(exec, s.stream));
    OK(cuStreamSynchronize(s.stream));
    uint32_t value = 0;
    OK(cuMemcpyDtoH(&value, s.p, 4));
    EXPECT_EQ(value, 0x33333333u);
    while (calls != 1) std::this_thread::yield();  // the fake worker does not wait for it
    EXPECT_EQ(before, 0);
    const std::string path = ::testing::TempDir() + "shim_graph_" + std::to_string(::getpid());
    OK(cuGraphDebugDotPrint(s.graph, path.c_str(), 0));
    std::string first;
    std::ifstream(path) >> first;
    EXPECT_EQ(first, "digraph");
    std::remove(path.c_str());
  });
}

#undef REFUSED

}  // namespace
}  // namespace sluice::testing
