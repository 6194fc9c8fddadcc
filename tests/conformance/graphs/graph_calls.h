// SPDX-License-Identifier: Apache-2.0
// One program of CUDA graph calls that says what each answered: run on an H200 with NVIDIA's driver
// it gives h200.txt, and through the channel it has to give the same. Everything printed is the
// same in every run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "abi/cuda_graph.h"
#include "tests/conformance/calls.h"

namespace sluice::graph_calls {

inline constexpr uint32_t kWords = 4096;

// What every section uses. `step` makes each of n words x into x * times + plus: two of them do not
// commute.
struct World {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction step = nullptr, add = nullptr;
  CUdeviceptr a = 0, b = 0, c = 0;  // kWords each
  CUstream s = nullptr, t = nullptr;
  CUevent e = nullptr, f = nullptr;
};
void clear(const World& w, uint32_t value = 1);
uint32_t word(CUdeviceptr p, uint32_t index = 0);
// A checksum over all words.
uint32_t all_words(CUdeviceptr p);

// Parameters of a launch of `step`, which have to outlive the call they are for.
struct Step {
  CUdeviceptr p;
  uint32_t n = kWords, times, plus;
  void* array[4];
  CUDA_KERNEL_NODE_PARAMS node{};
  Step(const World& w, CUdeviceptr to, uint32_t times_by, uint32_t plus_by)
      : p(to), times(times_by), plus(plus_by) {
    array[0] = &p, array[1] = &n, array[2] = &times, array[3] = &plus;
    node.func = w.step;
    node.gridDimX = kWords / 64, node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = 64, node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = array;
  }
  Step(const Step&) = delete;
  CUresult launch(CUstream stream) {
    return cuLaunchKernel(node.func, node.gridDimX, 1, 1, 64, 1, 1, 0, stream, array, nullptr);
  }
};
CUDA_MEMCPY3D box(CUmemorytype dst_type, CUdeviceptr dst, CUmemorytype src_type, CUdeviceptr src,
                  size_t bytes);
CUgraphNode kernel_node(const World& w, CUgraph graph, std::vector<CUgraphNode> behind,
                        CUdeviceptr p, uint32_t times, uint32_t plus);
// Instantiates, launches once in w.s, waits, destroys the executable; says how it went.
void run(const World& w, CUgraph graph);

void structure(const World& w);
void kernels(const World& w);
void copies(const World& w);
void hosts_and_events(const World& w);
void children(const World& w);
void updates(const World& w);
void captures(const World& w);
void memory(const World& w);
void user_objects(const World& w);
void launches(const World& w);
void chains(const World& w);

}  // namespace sluice::graph_calls
