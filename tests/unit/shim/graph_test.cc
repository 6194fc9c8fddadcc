// SPDX-License-Identifier: Apache-2.0
// The guest's libcuda.so.1: stream capture, and graphs that replay what was captured.
#include <atomic>
#include <thread>

#include "abi/cuda_graph.h"
#include "tests/unit/shim/fixture.h"

namespace sluice::testing {
namespace {

struct Set {
  CUfunction fill = nullptr;
  CUdeviceptr p = 0;
  CUstream a = nullptr, b = nullptr;
  CUevent e = nullptr;
};
constexpr uint32_t kWords = 1024;

Set make() {
  Set s;
  load_fill(&s.fill);
  EXPECT_EQ(cuMemAlloc(&s.p, kWords * 4), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8(s.p, 0, kWords * 4), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamCreate(&s.a, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamCreate(&s.b, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(cuEventCreate(&s.e, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  return s;
}
CUresult launch(const Set& s, CUstream stream, uint32_t from, uint32_t n, uint32_t value) {
  CUdeviceptr to = s.p + from * 4;
  void* params[] = {&to, &n, &value};
  const CUresult r = cuLaunchKernel(s.fill, 4, 1, 1, 64, 1, 1, 0, stream, params, nullptr);
  to = n = value = 0;  // a graph has its own
  return r;
}
uint32_t word(const Set& s, uint32_t i) {
  uint32_t v = 0;
  EXPECT_EQ(cuMemcpyDtoH(&v, s.p + i * 4, 4), CUDA_SUCCESS);
  return v;
}

TEST(ShimGraph, ReplaysWhatWasCaptured) {
  in_process({}, [](FakeWorker&) {
    set_up();
    Set s = make();
    std::vector<uint32_t> source(16, 77);
    static std::atomic<int> called{0};
    CUstreamCaptureStatus status;
    OK(cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamIsCapturing(s.a, &status));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(launch(s, s.a, 0, 16, 5));
    OK(cuMemsetD32Async(s.p + 64, 6, 16, s.a));
    OK(cuMemcpyHtoDAsync(s.p + 128, source.data(), 64, s.a));
    OK(cuLaunchHostFunc(
        s.a, [](void* n) { ++*static_cast<std::atomic<int>*>(n); }, &called));
    OK(launch(s, s.a, 8, 4, 9));  // over what the first one wrote: order shows
    CUgraph graph;
    OK(cuStreamEndCapture(s.a, &graph));
    OK(cuStreamIsCapturing(s.a, &status));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(word(s, 0), 0u) << "captured, not run";
    size_t nodes = 0;
    OK(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 5u);
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    for (int round = 1; round <= 2; ++round) {
      OK(cuMemsetD8(s.p, 0, kWords * 4));
      std::fill(source.begin(), source.end(), 70 + round);  // memory as it is when the node runs
      OK(cuGraphLaunch(exec, round == 1 ? s.a : s.b));
      OK(cuStreamSynchronize(round == 1 ? s.a : s.b));
      EXPECT_EQ(word(s, 7), 5u);
      EXPECT_EQ(word(s, 8), 9u);
      EXPECT_EQ(word(s, 12), 5u);
      EXPECT_EQ(word(s, 16), 6u);
      EXPECT_EQ(word(s, 32), static_cast<uint32_t>(70 + round));
      while (called != round) std::this_thread::yield();
    }
    OK(cuGraphUpload(exec, s.a));
    OK(cuGraphExecDestroy(exec));
    EXPECT_EQ(cuGraphLaunch(exec, s.a), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
  });
}

// llama.cpp asks once, changes an entry for each token and sets all again.
TEST(ShimGraph, GivenParametersStayWhereTheyAre) {
  in_process({}, [](FakeWorker&) {
    set_up();
    Set s = make();
    CUgraph graph;
    OK(cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch(s, s.a, 0, 16, 5));
    OK(cuStreamEndCapture(s.a, &graph));
    CUgraphNode node;
    size_t one = 1;
    OK(cuGraphGetNodes(graph, &node, &one));
    CUDA_KERNEL_NODE_PARAMS params;
    OK(cuGraphKernelNodeGetParams(node, &params));
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    void** const given = params.kernelParams;
    for (uint32_t value = 7; value < 10; ++value) {
      params.kernelParams[2] = &value;
      OK(cuGraphKernelNodeSetParams(node, &params));
      CUgraphExecUpdateResultInfo info;
      OK(cuGraphExecUpdate(exec, graph, &info));
      OK(cuGraphLaunch(exec, s.a));
      OK(cuStreamSynchronize(s.a));
      EXPECT_EQ(word(s, 15), value);
    }
    OK(cuGraphKernelNodeGetParams(node, &params));
    EXPECT_EQ(params.kernelParams, given);
    EXPECT_EQ(*static_cast<uint32_t*>(params.kernelParams[2]), 9u);
    // They are the node's alone: what was made of it keeps its own.
    *static_cast<uint32_t*>(params.kernelParams[2]) = 11;
    OK(cuGraphLaunch(exec, s.a));
    OK(cuStreamSynchronize(s.a));
    EXPECT_EQ(word(s, 15), 9u);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
  });
}

TEST(ShimGraph, ForksHaveToJoin) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    Set s = make();
    CUevent back;
    OK(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    CUgraph graph = nullptr;
    for (bool joined : {false, true}) {
      OK(cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
      OK(launch(s, s.a, 0, 16, 1));
      OK(cuEventRecord(s.e, s.a));
      OK(cuStreamWaitEvent(s.b, s.e, 0));
      CUstreamCaptureStatus status;
      OK(cuStreamIsCapturing(s.b, &status));
      EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
      OK(launch(s, s.b, 0, 16, 2));
      OK(cuEventRecord(back, s.b));
      if (!joined) {
        OK(launch(s, s.b, 0, 16, 4));  // behind the event: not joined by it
      }
      OK(cuStreamWaitEvent(s.a, back, 0));
      OK(launch(s, s.a, 4, 1, 3));
      EXPECT_EQ(cuStreamEndCapture(s.a, &graph),
                joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
      OK(cuStreamIsCapturing(s.b, &status));
      EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    }
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, nullptr));
    OK(cuCtxSynchronize());
    EXPECT_EQ(word(s, 3), 2u);
    EXPECT_EQ(word(s, 4), 3u);
    // One launch at a time: another stream waits, by one record and one wait more.
    OK(cuGraphLaunch(exec, s.a));  // makes the event
    OK(cuCtxSynchronize());
    uint64_t before = worker.records();
    OK(cuGraphLaunch(exec, s.a));
    OK(cuCtxSynchronize());
    const uint64_t same = worker.records() - before;
    before = worker.records();
    OK(cuGraphLaunch(exec, s.b));
    OK(cuCtxSynchronize());
    EXPECT_EQ(worker.records() - before, same + 2);
  });
}

TEST(ShimGraph, WhatCaptureForbids) {
  in_process({}, [](FakeWorker&) {
    set_up();
    Set s = make();
    CUgraph graph;
    const auto begin = [&](CUstream stream = nullptr) {
      OK(cuStreamBeginCapture(stream ? stream : s.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    };
    const auto spoilt = [&] {
      CUstreamCaptureStatus status;
      OK(cuStreamIsCapturing(s.a, &status));
      EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
      EXPECT_EQ(launch(s, s.a, 0, 1, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      EXPECT_EQ(cuStreamEndCapture(s.a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      EXPECT_EQ(graph, nullptr);
    };
    EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cuStreamBeginCapture(s.a, static_cast<CUstreamCaptureMode>(3)),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamEndCapture(s.a, &graph), CUDA_ERROR_ILLEGAL_STATE);
    begin();
    EXPECT_EQ(cuStreamSynchronize(s.a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    spoilt();
    begin();
    EXPECT_EQ(cuStreamQuery(s.a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    spoilt();
    begin();
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    spoilt();
    begin();
    EXPECT_EQ(cuStreamAddCallback(
                  s.a, [](CUstream, CUresult, void*) {}, nullptr, 0),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    spoilt();
    begin();
    OK(cuEventRecord(s.e, s.a));
    EXPECT_EQ(cuEventQuery(s.e), CUDA_ERROR_CAPTURED_EVENT);
    spoilt();
    OK(cuEventQuery(s.e)) << "the capture is over";
    OK(cuEventRecord(s.e, s.b));
    begin();
    EXPECT_EQ(cuStreamWaitEvent(s.a, s.e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    spoilt();
    begin();
    EXPECT_EQ(cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    spoilt();
    // Two captures do not meet.
    begin();
    begin(s.b);
    OK(cuEventRecord(s.e, s.b));
    EXPECT_EQ(cuStreamWaitEvent(s.a, s.e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    spoilt();
    EXPECT_EQ(cuStreamEndCapture(s.b, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // A fork does not end it, nor another thread.
    begin();
    OK(cuEventRecord(s.e, s.a));
    OK(cuStreamWaitEvent(s.b, s.e, 0));
    EXPECT_EQ(cuStreamEndCapture(s.b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    spoilt();
    begin();
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    std::thread([&] {
      OK(cuCtxSetCurrent(context));
      EXPECT_EQ(cuStreamEndCapture(s.a, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }).join();
    spoilt();
    // The NULL stream would wait for a blocking stream that captures; not for others.
    begin();
    OK(launch(s, nullptr, 0, 1, 1));
    OK(cuStreamEndCapture(s.a, &graph));
    OK(cuGraphDestroy(graph));
    CUstream blocking;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    begin(blocking);
    EXPECT_EQ(launch(s, nullptr, 0, 1, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(launch(s, nullptr, 0, 1, 1)) << "all as before";
    // Destroying the stream, or its context, ends the capture; nobody else is kept from anything by
    // it.
    begin(blocking);
    OK(cuStreamDestroy(blocking));
    OK(launch(s, nullptr, 0, 1, 1)) << "after the stream has gone";
    OK(cuCtxSynchronize());
    CUcontext other;
    OK(cuCtxCreate(&other, nullptr, 0, 0));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    begin(blocking);
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(context));
    OK(launch(s, nullptr, 0, 1, 1)) << "after its context has gone";
    OK(cuCtxSynchronize());
  });
}

TEST(ShimGraph, UpdateNestingAndNames) {
  in_process({}, [](FakeWorker&) {
    set_up();
    Set s = make();
    CUgraph graphs[3];
    for (uint32_t i = 0; i < 3; ++i) {
      OK(cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_RELAXED));
      OK(launch(s, s.a, 0, 4, 10 + i));
      if (i == 2) {
        OK(cuMemsetD32Async(s.p + 64, 1, 4, s.a));
      }
      OK(cuStreamEndCapture(s.a, &graphs[i]));
    }
    CUgraphExec exec;
    EXPECT_EQ(cuGraphInstantiate(&exec, graphs[0], 4), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuGraphInstantiate(&exec, graphs[0], 1 << 10), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphInstantiate(&exec, reinterpret_cast<CUgraph>(&exec), 0),
              CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphInstantiate(&exec, graphs[0], 0));
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, graphs[1], &info));
    OK(cuGraphLaunch(exec, s.a));
    OK(cuStreamSynchronize(s.a));
    EXPECT_EQ(word(s, 3), 11u);
    EXPECT_EQ(cuGraphExecUpdate(exec, graphs[2], &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQ(info.result, static_cast<int>(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED));
    // A graph's launch is not captured.
    CUgraph outer;
    OK(cuStreamBeginCapture(s.b, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_EQ(cuGraphLaunch(exec, s.b), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cuStreamEndCapture(s.b, &outer), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    for (const auto& [name, version, function] :
         {std::tuple{"cuGraphInstantiate", 12000,
                     reinterpret_cast<void*>(&cuGraphInstantiateWithFlags)},
          {"cuGraphInstantiateWithFlags", 11040,
           reinterpret_cast<void*>(&cuGraphInstantiateWithFlags)},
          {"cuStreamBeginCapture", 10010, reinterpret_cast<void*>(&cuStreamBeginCapture_v2)},
          {"cuGraphInstantiate", 11000, reinterpret_cast<void*>(&sluice_instantiate_v2)},
          {"cuGraphAddKernelNode", 11080, reinterpret_cast<void*>(&sluice_add_kernel_node_v1)},
          {"cuGraphAddKernelNode", 12000, reinterpret_cast<void*>(&cuGraphAddKernelNode_v2)},
          {"cuGraphAddDependencies", 12030, reinterpret_cast<void*>(&cuGraphAddDependencies_v2)},
          {"cuGraphLaunch", 12000, reinterpret_cast<void*>(&cuGraphLaunch)}}) {
      void* found = nullptr;
      OK(cuGetProcAddress(name, &found, version, 0, nullptr));
      EXPECT_EQ(found, function) << name;
    }
  });
}

CUgraphNode kernel(const Set& s, CUgraph graph, std::vector<CUgraphNode> behind, uint32_t from,
                   uint32_t n, uint32_t value) {
  CUdeviceptr to = s.p + from * 4;
  void* params[] = {&to, &n, &value};
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = s.fill, node.gridDimX = 4, node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = 64, node.blockDimY = node.blockDimZ = 1, node.kernelParams = params;
  CUgraphNode made = nullptr;
  EXPECT_EQ(cuGraphAddKernelNode(&made, graph, behind.data(), behind.size(), &node), CUDA_SUCCESS);
  return made;
}

// What nodes answer by themselves is compared with a GPU's in tests/conformance/graphs; here:
// order, what ends when.
TEST(ShimGraph, HandBuiltRunsBehindItsDependencies) {
  in_process({}, [](FakeWorker&) {
    set_up();
    Set s = make();
    CUgraph g;
    OK(cuGraphCreate(&g, 0));
    // The node that was made first comes last.
    CUgraphNode last = kernel(s, g, {}, 0, 16, 3), middle = kernel(s, g, {}, 0, 12, 2),
                first = kernel(s, g, {}, 0, 14, 1);
    CUgraphNode from[] = {middle, first}, to[] = {last, middle};
    OK(cuGraphAddDependencies(g, from, to, nullptr, 2));
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, g, 0));
    OK(cuGraphLaunch(exec, s.a));
    OK(cuStreamSynchronize(s.a));
    EXPECT_EQ(word(s, 0), 3u);
    // Without its edge it is the first again.
    OK(cuGraphRemoveDependencies(g, from, to, nullptr, 1));
    CUgraphExec other;
    OK(cuGraphInstantiate(&other, g, 0));
    OK(cuGraphLaunch(other, s.a));
    OK(cuStreamSynchronize(s.a));
    EXPECT_EQ(word(s, 11), 2u);
    EXPECT_EQ(word(s, 13), 1u);
    EXPECT_EQ(word(s, 15), 3u);
    // An edge of a kind that older calls cannot express is not returned as a plain one.
    CUgraphEdgeData edge{}, returned{};
    edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, edge.from_port = 1;
    OK(cuGraphAddDependencies(g, &first, &last, &edge, 1));
    CUgraphNode before[1];
    size_t n = 1;
    EXPECT_EQ(cuGraphNodeGetDependencies(last, before, nullptr, &n), CUDA_ERROR_LOSSY_QUERY);
    OK(cuGraphNodeGetDependencies(last, before, &returned, &n));
    EXPECT_EQ(before[0], first);
    EXPECT_EQ(returned.type, edge.type);
    OK(cuGraphDestroy(g));
    // Handles of what is gone are refused, by every kind of call.
    CUgraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS params;
    EXPECT_EQ(cuGraphNodeGetType(last, &type), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphKernelNodeGetParams(last, &params), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphNodeSetEnabled(exec, last, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphDestroyNode(last), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphAddEmptyNode(&last, g, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, s.b)) << "an executable lives by itself";
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(other));
    EXPECT_EQ(cuGraphExecUpdate(exec, g, nullptr), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(ShimGraph, WhatIsNotOfferedSaysSo) {
  in_process({}, [](FakeWorker&) {
    set_up();
    CUgraph g, child;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphCreate(&child, 0));
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddExternalSemaphoresSignalNode(&node, g, nullptr, 0, nullptr),
              CUDA_ERROR_NOT_SUPPORTED);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
    EXPECT_EQ(cuGraphAddNode(&node, g, nullptr, nullptr, 0, &params), CUDA_ERROR_NOT_SUPPORTED);
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    EXPECT_EQ(cuGraphAddNode(&node, g, nullptr, nullptr, 0, &params), CUDA_ERROR_NOT_SUPPORTED);
    params.type = static_cast<CUgraphNodeType>(14);
    EXPECT_EQ(cuGraphAddNode(&node, g, nullptr, nullptr, 0, &params), CUDA_ERROR_INVALID_VALUE);
    CUstreamBatchMemOpParams op{};
    op.operation = CU_STREAM_MEM_OP_BARRIER;
    const CUDA_BATCH_MEM_OP_NODE_PARAMS barrier{nullptr, 1, &op, 0};
    EXPECT_EQ(cuGraphAddBatchMemOpNode(&node, g, nullptr, 0, &barrier), CUDA_ERROR_NOT_SUPPORTED);
    size_t n = 77;
    OK(cuGraphGetNodes(g, nullptr, &n));
    EXPECT_EQ(n, 0u) << "a refused node is not there";
    OK(cuGraphDestroy(child));
    OK(cuGraphDestroy(g));
  });
}

TEST(ShimGraph, MemoryEndsWithItsLastUser) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    Set s = make();
    OK(cuCtxSynchronize());
    const uint64_t before = worker.live_allocations();
    CUgraph g;
    CUgraphExec exec;
    CUdeviceptr q;
    for (bool capture_it_whole : {true, false}) {
      OK(cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_RELAXED));
      OK(cuMemAllocAsync(&q, 64, s.a));
      OK(cuMemsetD32Async(q, 5, 16, s.a));
      if (capture_it_whole) {
        OK(cuMemFreeAsync(q, s.a));
      }
      OK(cuStreamEndCapture(s.a, &g));
      EXPECT_EQ(worker.live_allocations(), before + 1);
      OK(cuGraphInstantiate(&exec, g, 0));
      OK(cuGraphDestroy(g));
      EXPECT_EQ(worker.live_allocations(), before + 1) << "the executable has it";
      OK(cuGraphLaunch(exec, s.a));
      OK(cuStreamSynchronize(s.a));
      OK(cuGraphExecDestroy(exec));
      EXPECT_EQ(worker.live_allocations(), before + (capture_it_whole ? 0 : 1))
          << "what is allocated is the program's";
      if (!capture_it_whole) {
        OK(cuMemFree(q));
      }
      EXPECT_EQ(worker.live_allocations(), before);
      EXPECT_EQ(cuMemFree(q), CUDA_ERROR_INVALID_VALUE);
    }
    // A capture that ends otherwise keeps nothing.
    OK(cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&q, 64, s.a));
    OK(cuStreamDestroy(s.a));
    EXPECT_EQ(worker.live_allocations(), before);
  });
}

TEST(ShimGraph, ObjectsOfTheProgramEndOnce) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    Set s = make();
    static std::atomic<int> ended{0};
    CUuserObject object;
    OK(cuUserObjectCreate(
        &object, nullptr, [](void*) { ++ended; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CUgraph g, clone;
    CUgraphExec exec;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphRetainUserObject(g, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphClone(&clone, g));
    kernel(s, clone, {}, 0, 16, 1);
    OK(cuGraphInstantiate(&exec, clone, 0));
    OK(cuGraphDestroy(g));
    OK(cuGraphDestroy(clone));
    EXPECT_EQ(ended, 0);
    // Also when the stream of the last launch has gone, or captures.
    CUstream gone;
    OK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    OK(cuGraphLaunch(exec, gone));
    OK(cuStreamDestroy(gone));
    OK(cuGraphExecDestroy(exec));
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
    // More given back than there was: nothing is called twice.
    OK(cuUserObjectCreate(
        &object, nullptr, [](void*) { ++ended; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphRetainUserObject(g, object, 1, 0));
    OK(cuUserObjectRelease(object, 2));
    EXPECT_EQ(ended, 2);
    OK(cuGraphDestroy(g));
    EXPECT_EQ(ended, 2);
    OK(cuUserObjectCreate(
        &object, nullptr, [](void*) { ++ended; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphRetainUserObject(g, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuUserObjectRelease(object, 1));
    EXPECT_EQ(ended, 3);
    OK(cuGraphReleaseUserObject(g, object, 1));
    OK(cuGraphDestroy(g));
    EXPECT_EQ(ended, 3);
    // Also when the session ends before the executable's last launch, and before its graph is
    // destroyed.
    OK(cuUserObjectCreate(
        &object, nullptr, [](void*) { ++ended; }, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CUuserObject other;
    OK(cuUserObjectCreate(
        &other, nullptr, [](void*) { ++ended; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphRetainUserObject(g, object, 2, CU_GRAPH_USER_OBJECT_MOVE));
    kernel(s, g, {}, 0, 16, 1);
    OK(cuGraphInstantiate(&exec, g, 0));
    OK(cuGraphRetainUserObject(g, other, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphReleaseUserObject(g, object, 2));
    worker.pause(true);
    OK(cuGraphLaunch(exec, s.a));
    OK(cuGraphExecDestroy(exec));
    EXPECT_EQ(ended, 3);
    worker.end_session(CUDA_ERROR_DEVICE_UNAVAILABLE, "a test");
    while (ended == 3) std::this_thread::yield();
    EXPECT_EQ(cuGraphDestroy(g), CUDA_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_EQ(ended, 5);
  });
}

}  // namespace
}  // namespace sluice::testing
