// SPDX-License-Identifier: Apache-2.0
// The guest's libcuda.so.1: what rides on a launch.
#include <array>

#include "tests/unit/shim/fixture.h"

namespace sluice::testing {
namespace {

// What becomes of a launch's attributes: docs/internals/life-of-a-launch.md.
TEST(Shim, LaunchAttributes) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 4096));
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    uint32_t n = 1024, value = 7;
    void* params[] = {&p, &n, &value};
    CUlaunchConfig config{};
    config.gridDimX = 4;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 64;
    std::vector<CUlaunchAttribute> attributes;
    const auto launch = [&] {
      config.attrs = attributes.data();
      config.numAttrs = static_cast<unsigned>(attributes.size());
      const CUresult r = cuLaunchKernelEx(&config, fill, params, nullptr);
      if (r == CUDA_SUCCESS) {
        EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
      }
      return r;
    };
    const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
      attributes.push_back({});
      attributes.back().id = id;
      return attributes.back().value;
    };
    // Hints, and what asks for less order than there is.
    for (CUlaunchAttributeID id :
         {CU_LAUNCH_ATTRIBUTE_IGNORE, CU_LAUNCH_ATTRIBUTE_PRIORITY,
          CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
          CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
          CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
          CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
          CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT}) {
      add(id);
    }
    add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        .programmaticStreamSerializationAllowed = 1;
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {1, 1, 1};
    add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 0;
    OK(launch());
    EXPECT_EQ(worker.last_launch_flags(), 0u);
    // Events are recorded behind the launch: one record more for each.
    const uint64_t before = worker.records();
    OK(launch());
    const uint64_t plain = worker.records() - before;
    add(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT).programmaticEvent.event = event;
    add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT).programmaticEvent.event = event;
    OK(launch());
    EXPECT_EQ(worker.records() - before - plain, plain + 2);
    attributes.back().value.programmaticEvent.event = nullptr;
    EXPECT_EQ(launch(), CUDA_ERROR_INVALID_HANDLE);
    attributes.clear();
    // The worker gets clusters and cooperation.
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {2, 1, 1};
    OK(launch());
    EXPECT_EQ(worker.last_launch_flags(), SLUICE_LAUNCHED_CLUSTER(2, 1, 1));
    for (const auto& [x, y, z] :
         {std::array{0u, 1u, 1u}, {3u, 1u, 1u}, {1u, 2u, 1u}, {1u << 16, 1u, 1u}}) {
      attributes.back().value.clusterDim = {x, y, z};
      EXPECT_EQ(launch(), CUDA_ERROR_INVALID_CLUSTER_SIZE) << x << y << z;
    }
    // What only the driver knows is asked of it, once for launches that are alike.
    attributes.back().value.clusterDim = {4, 1, 1};
    worker.set_clusters_that_fit(0);
    EXPECT_EQ(launch(), CUDA_ERROR_INVALID_CLUSTER_SIZE) << "does not fit on the GPU";
    worker.set_clusters_that_fit(1);
    OK(launch());
    const uint64_t known = worker.records();
    OK(launch());
    EXPECT_EQ(worker.records() - known, plain);
    config.blockDimX = 32;
    worker.set_clusters_that_fit(0);
    EXPECT_EQ(launch(), CUDA_ERROR_INVALID_CLUSTER_SIZE) << "another shape is asked about anew";
    config.blockDimX = 64;
    worker.set_clusters_that_fit(1);
    attributes.back().value.clusterDim = {16, 1, 1};
    config.gridDimX = 32;
    EXPECT_EQ(launch(), CUDA_ERROR_INVALID_CLUSTER_SIZE) << "more than 8 blocks";
    config.gridDimX = 4;
    attributes.clear();
    add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
    OK(launch());
    EXPECT_EQ(worker.last_launch_flags(), SLUICE_LAUNCHED_COOPERATIVE);
    config.gridDimX = 5;  // a GPU of one SM with room for four
    EXPECT_EQ(launch(), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    config.gridDimX = 0x7fffffff;
    config.gridDimY = config.gridDimZ = 65535;
    EXPECT_EQ(launch(), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT_EQ(cuLaunchCooperativeKernel(fill, 5, 1, 1, 64, 1, 1, 0, nullptr, params),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT_EQ(cuLaunchCooperativeKernel(fill, 0, 1, 1, 64, 1, 1, 0, nullptr, params),
              CUDA_ERROR_INVALID_VALUE);
    OK(cuLaunchCooperativeKernel(fill, 4, 1, 1, 64, 1, 1, 0, nullptr, params));
    OK(cuCtxSynchronize());
    EXPECT_EQ(worker.last_launch_flags(), SLUICE_LAUNCHED_COOPERATIVE);
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    attributes.clear();
    add(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE);
    EXPECT_EQ(launch(), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuLaunchKernelEx(nullptr, fill, params, nullptr), CUDA_ERROR_INVALID_VALUE);
    config.attrs = nullptr;
    EXPECT_EQ(cuLaunchKernelEx(&config, fill, params, nullptr), CUDA_ERROR_INVALID_VALUE);
  });
}

// A captured kernel that may begin before the last one has ended depends on it so.
TEST(Shim, CapturedLaunchesDependProgrammatically) {
  in_process({}, [](FakeWorker&) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 4096));
    uint32_t n = 64, value = 7;
    void* params[] = {&p, &n, &value};
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 64;
    config.blockDimY = config.blockDimZ = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    OK(cuStreamCreate(&config.hStream, CU_STREAM_NON_BLOCKING));
    std::pair<int, int> got;
    const auto captured = [&](int allowed, bool behind_kernel) {
      attribute.value.programmaticStreamSerializationAllowed = allowed;
      CUgraph graph = nullptr;
      OK(cuStreamBeginCapture(config.hStream, CU_STREAM_CAPTURE_MODE_RELAXED));
      if (behind_kernel)
        OK(cuLaunchKernelEx(&config, fill, params, nullptr));
      else
        OK(cuMemsetD8Async(p, 0, 16, config.hStream));
      OK(cuLaunchKernelEx(&config, fill, params, nullptr));
      OK(cuStreamEndCapture(config.hStream, &graph));
      CUgraphNode from, to;
      CUgraphEdgeData data{};
      size_t count = 1;
      OK(cuGraphGetEdges_v2(graph, &from, &to, &data, &count));
      EXPECT_EQ(count, 1u);
      CUgraphExec exec;
      OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
      OK(cuGraphLaunch(exec, config.hStream));
      OK(cuStreamSynchronize(config.hStream));
      OK(cuGraphExecDestroy(exec));
      OK(cuGraphDestroy(graph));
      got = {data.type, data.from_port};
    };
    const std::pair<int, int> full{0, 0}, programmatic{CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, 1};
    captured(1, true);
    EXPECT_EQ(got, programmatic);
    captured(0, true);
    EXPECT_EQ(got, full);
    captured(1, false);
    EXPECT_EQ(got, full);
    uint32_t out = 0;
    OK(cuMemcpyDtoH(&out, p, 4));
    EXPECT_EQ(out, value);
  });
}

}  // namespace
}  // namespace sluice::testing
