// SPDX-License-Identifier: Apache-2.0
// Thread block clusters through the driver API: which sizes can be launched, attributes, occupancy,
// a ring through the shared memory of a cluster's blocks. Errors are what an H100 (driver 580)
// answers, unless a comment says otherwise.
#include <array>
#include <optional>

#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

// Each thread stores its number in the grid to the next block's shared memory and writes what it
// has got to out[number].
std::string ring(const char* name, const char* header) {
  return std::string(".visible .entry ") + name + "(.param .u64 out) " + header + R"(
{ .reg .b32 r<12>; .reg .b64 d<4>; .shared .align 4 .b32 s[1024];
  ld.param.u64 d0, [out];
  mov.u32 r0, %ctaid.x; mov.u32 r1, %ntid.x; mov.u32 r2, %tid.x; mad.lo.u32 r3, r0, r1, r2;
  mov.u32 r4, s; mad.lo.u32 r4, r2, 4, r4;
  mov.u32 r5, %cluster_ctarank; mov.u32 r6, %cluster_nctarank;
  add.u32 r5, r5, 1; rem.u32 r5, r5, r6;
  mapa.shared::cluster.u32 r7, r4, r5;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  st.shared::cluster.u32 [r7], r3;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ld.shared.u32 r8, [r4];
  mul.wide.u32 d1, r3, 4; add.u64 d1, d0, d1; st.global.u32 [d1], r8;
  ret; }
)";
}

class SoftGpuCluster : public SoftGpuTest {
 protected:
  using Size = std::optional<std::array<unsigned, 3>>;

  void SetUp() override {
    SoftGpuTest::SetUp();
    const std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n" + ring("plain", "") +
                             ring("pair", ".reqnctapercluster 2, 1, 1") +
                             ring("any", ".explicitcluster") + ring("four", ".maxclusterrank 4") +
                             ring("one", ".reqnctapercluster 1, 1, 1") +
                             ring("counted",
                                  ".reqntid 32, 1, 1 .reqnctapercluster 2, 1, 1 "
                                  ".blocksareclusters");
    OK(api.cuModuleLoadData(&clusters_, text.c_str()));
  }
  CUfunction function(const char* name) {
    CUfunction f = nullptr;
    EXPECT_EQ(api.cuModuleGetFunction(&f, clusters_, name), CUDA_SUCCESS) << name;
    return f;
  }
  CUlaunchConfig config(unsigned grid, const Size& size, unsigned threads = 32) {
    CUlaunchConfig c{};
    c.gridDimX = grid, c.gridDimY = c.gridDimZ = 1;
    c.blockDimX = threads, c.blockDimY = c.blockDimZ = 1;
    if (size) {
      attribute_.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attribute_.value.clusterDim = {(*size)[0], (*size)[1], (*size)[2]};
      c.attrs = &attribute_;
      c.numAttrs = 1;
    }
    return c;
  }
  CUresult run(CUfunction f, unsigned grid, const Size& size, unsigned threads = 32) {
    if (out_ == 0) out_ = allocate(1 << 16);
    void* params[] = {&out_};
    const CUlaunchConfig c = config(grid, size, threads);
    const CUresult r = api.cuLaunchKernelEx(&c, f, params, nullptr);
    return r != CUDA_SUCCESS ? r : api.cuCtxSynchronize();
  }
  void expect_ring(unsigned grid, unsigned cluster, unsigned threads = 32) {
    const std::vector<uint32_t> got = read(out_, size_t{grid} * threads);
    for (uint32_t i = 0; i < got.size(); ++i) {
      const uint32_t block = i / threads, first = block / cluster * cluster;
      const uint32_t before = first + (block - first + cluster - 1) % cluster;
      ASSERT_EQ(got[i], before * threads + i % threads) << i;
    }
  }
  std::array<int, 6> attributes(CUfunction f) {
    std::array<int, 6> values{};
    for (int k = 0; k < 6; ++k)
      EXPECT_EQ(
          api.cuFuncGetAttribute(
              &values[static_cast<size_t>(k)],
              static_cast<CUfunction_attribute>(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET + k), f),
          CUDA_SUCCESS);
    return values;
  }

  CUmodule clusters_ = nullptr;
  CUdeviceptr out_ = 0;
  CUlaunchAttribute attribute_{};
};

TEST_F(SoftGpuCluster, BlocksOfAClusterReachEachOther) {
  int there = 0;
  OK(api.cuDeviceGetAttribute(&there, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0));
  EXPECT_EQ(there, 1);
  for (const unsigned cluster : {1u, 2u, 3u, 4u, 8u}) {
    SCOPED_TRACE(cluster);
    OK(run(function("plain"), 24, Size({cluster, 1, 1})));
    expect_ring(24, cluster);
  }
  OK(run(function("pair"), 12, std::nullopt));
  expect_ring(12, 2);
  // And by the call that knows nothing of clusters.
  void* params[] = {&out_};
  OK(api.cuMemsetD8(out_, 0, 1 << 16));
  OK(api.cuLaunchKernel(function("pair"), 12, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  OK(api.cuCtxSynchronize());
  expect_ring(12, 2);
  // Blocks of 1024 threads: two on an SM, so a cluster of 8 is on all four.
  OK(run(function("plain"), 8, Size({8, 1, 1}), 1024));
  expect_ring(8, 8, 1024);
}

TEST_F(SoftGpuCluster, SizesThatCannotBeAreRefusedAtTheCall) {
  constexpr CUresult kOk = CUDA_SUCCESS, kBad = CUDA_ERROR_INVALID_CLUSTER_SIZE;
  struct {
    unsigned grid;
    Size size;
    CUresult plain, pair, any, four, one;
  } const cases[] = {
      {4, std::nullopt, kOk, kOk, kBad, kOk, kOk},
      {3, std::nullopt, kOk, kBad, kBad, kOk, kOk},
      {4, Size({1, 1, 1}), kOk, kBad, kOk, kOk, kOk},
      {4, Size({2, 1, 1}), kOk, kOk, kOk, kOk, kBad},
      {3, Size({2, 1, 1}), kBad, kBad, kBad, kBad, kBad},
      {4, Size({4, 1, 1}), kOk, kBad, kOk, kOk, kBad},
      {6, Size({3, 1, 1}), kOk, kBad, kOk, kOk, kBad},
      {8, Size({8, 1, 1}), kOk, kBad, kOk, kBad, kBad},
      {16, Size({16, 1, 1}), kBad, kBad, kBad, kBad, kBad},
      {4, Size({0, 1, 1}), kBad, kBad, kBad, kBad, kBad},
      {4, Size({1, 2, 1}), kBad, kBad, kBad, kBad, kBad},
      {4, Size({0x8000'0000u, 2, 1}), kBad, kBad, kBad, kBad, kBad},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(c.grid) + " by " +
                 (c.size ? std::to_string((*c.size)[0]) : "none"));
    EXPECT_EQ(run(function("plain"), c.grid, c.size), c.plain);
    EXPECT_EQ(run(function("pair"), c.grid, c.size), c.pair);
    EXPECT_EQ(run(function("any"), c.grid, c.size), c.any);
    EXPECT_EQ(run(function("four"), c.grid, c.size), c.four);
    EXPECT_EQ(run(function("one"), c.grid, c.size), c.one);
  }
  // 16 blocks of 1024 threads are no 8 that this GPU's 4 SMs hold at once.
  CUfunction f = function("plain");
  OK(api.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  OK(run(f, 32, Size({16, 1, 1})));
  expect_ring(32, 16);
  EXPECT_EQ(run(f, 16, Size({16, 1, 1}), 1024), kBad);
  EXPECT_EQ(run(f, 64, Size({32, 1, 1})), kBad);
}

// .blocksareclusters: the launch counts clusters, the kernel sees blocks.
TEST_F(SoftGpuCluster, AGridOfClusters) {
  CUfunction f = function("counted");
  OK(run(f, 3, std::nullopt));
  expect_ring(6, 2);
  OK(api.cuMemsetD8(out_, 0, 1 << 16));
  OK(run(f, 3, Size({2, 1, 1})));
  expect_ring(6, 2);
  OK(api.cuMemsetD8(out_, 0, 1 << 16));
  OK(run(f, 3, std::nullopt, 1));  // the kernel knows its blocks
  expect_ring(6, 2);
  FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, run(f, 4, Size({4, 1, 1})));
  FAILS(CUDA_ERROR_INVALID_VALUE, run(f, 3, std::nullopt, 64));
  FAILS(CUDA_ERROR_INVALID_VALUE, run(f, 0x7fffffff, std::nullopt));
  EXPECT_EQ(attributes(f), (std::array<int, 6>{0, 2, 1, 1, 0, 0}));
  const CUlaunchConfig c = config(1, std::nullopt);
  int clusters = 0;
  OK(api.cuOccupancyMaxActiveClusters(&clusters, f, &c));
  EXPECT_EQ(clusters, 8);
}

TEST_F(SoftGpuCluster, AttributesOfFunctions) {
  using A = std::array<int, 6>;  // must be set, width, height, depth, non-portable, policy
  EXPECT_EQ(attributes(function("plain")), (A{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(attributes(function("pair")), (A{0, 2, 1, 1, 0, 0}));
  EXPECT_EQ(attributes(function("any")), (A{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(attributes(function("four")), (A{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(attributes(function("one")), (A{0, 1, 1, 1, 0, 0}));

  CUfunction f = function("plain");
  const auto set = [&](CUfunction_attribute which, int value) {
    return api.cuFuncSetAttribute(f, which, value);
  };
  FAILS(CUDA_ERROR_INVALID_VALUE, set(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 1));
  OK(set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 2));
  EXPECT_EQ(attributes(f)[4], 1);
  OK(set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, set(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 3));
  OK(set(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, set(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, -1));
  OK(set(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2));
  EXPECT_EQ(attributes(f), (A{0, 2, 0, 0, 0, 1}));
  FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, run(f, 4, std::nullopt));  // not all three sides
  OK(set(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1));
  OK(set(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1));
  OK(run(f, 4, std::nullopt));
  expect_ring(4, 2);
  FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, run(f, 4, Size({4, 1, 1})));
  // What the kernel says itself stays.
  f = function("pair");
  OK(set(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, set(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4));
  EXPECT_EQ(attributes(f), (A{0, 2, 1, 1, 0, 0}));
}

TEST_F(SoftGpuCluster, Occupancy) {
  const auto active = [&](CUfunction f, const CUlaunchConfig& c) {
    int clusters = -1;
    const CUresult r = api.cuOccupancyMaxActiveClusters(&clusters, f, &c);
    return r == CUDA_SUCCESS ? clusters : -static_cast<int>(r);
  };
  const auto largest = [&](CUfunction f, const CUlaunchConfig& c) {
    int size = -1;
    const CUresult r = api.cuOccupancyMaxPotentialClusterSize(&size, f, &c);
    return r == CUDA_SUCCESS ? size : -static_cast<int>(r);
  };
  // 4 SMs of 4 blocks.
  EXPECT_EQ(active(function("plain"), config(16, Size({1, 1, 1}))), 16);
  EXPECT_EQ(active(function("plain"), config(16, Size({2, 1, 1}))), 8);
  EXPECT_EQ(active(function("plain"), config(18, Size({3, 1, 1}))), 5);
  EXPECT_EQ(active(function("plain"), config(16, Size({8, 1, 1}), 1024)), 1);
  EXPECT_EQ(active(function("pair"), config(16, std::nullopt)), 8);
  EXPECT_EQ(active(function("pair"), config(16, Size({4, 1, 1}))), -912);
  EXPECT_EQ(active(function("plain"), config(16, Size({3, 1, 1}))), -912);
  EXPECT_EQ(active(function("plain"), config(16, Size({16, 1, 1}))), -912);
  EXPECT_EQ(active(function("any"), config(16, std::nullopt)), -912);
  EXPECT_EQ(largest(function("plain"), config(16, std::nullopt)), 8);
  EXPECT_EQ(largest(function("four"), config(16, Size({2, 1, 1}))), 8);
  EXPECT_EQ(largest(function("plain"), config(16, Size({3, 1, 1}))), -912);
  EXPECT_EQ(largest(function("any"), config(16, std::nullopt)), -912);
  CUfunction f = function("plain");
  OK(api.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  EXPECT_EQ(largest(f, config(16, std::nullopt)), 16);
  EXPECT_EQ(largest(f, config(16, std::nullopt, 1024)), 8);
}

// An access to a block that is not there ends the context, like any bad address.
TEST_F(SoftGpuCluster, ABadAddressIsAFault) {
  CUmodule module = nullptr;
  OK(api.cuModuleLoadData(&module, R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry bad() { .reg .b32 r<4>; .shared .align 4 .b32 s[4];
  mov.u32 r0, s; mapa.shared::cluster.u32 r1, r0, 5; ld.shared::cluster.u32 r2, [r1];
  st.shared.u32 [r0], r2; ret; })"));
  CUfunction f = nullptr;
  OK(api.cuModuleGetFunction(&f, module, "bad"));
  FAILS(CUDA_ERROR_LAUNCH_FAILED, run(f, 4, Size({2, 1, 1})));
  FAILS(CUDA_ERROR_LAUNCH_FAILED, run(f, 4, Size({2, 1, 1})));  // sticky
}

}  // namespace
}  // namespace sluice
