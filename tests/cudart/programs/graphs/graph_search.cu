// SPDX-License-Identifier: Apache-2.0
// A breadth-first search, a union of components and shortest paths over one random graph, as graph
// suites have them: worklists with an atomic tail, flags that the host reads, relaxations by
// atomicMin and compare-and-swap, streams ordered by events.
#include <algorithm>
#include <climits>
#include <queue>
#include <random>
#include <vector>

#include "../check.h"

struct Graph {
  int nodes;
  const int *first, *to, *weight;
};

__global__ void expand(Graph g, const int* work, const int* count, int* next, int* next_count,
                       int* depth, int level) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < *count; i += gridDim.x * blockDim.x) {
    const int v = work[i];
    for (int e = g.first[v]; e < g.first[v + 1]; ++e)
      if (atomicCAS(&depth[g.to[e]], -1, level) == -1) next[atomicAdd(next_count, 1)] = g.to[e];
  }
}
__global__ void relax(Graph g, int* distance, bool* changed) {
  const int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= g.nodes || distance[v] == INT_MAX) return;
  for (int e = g.first[v]; e < g.first[v + 1]; ++e) {
    const int d = distance[v] + g.weight[e];
    if (d < atomicMin(&distance[g.to[e]], d)) *changed = true;
  }
}
__device__ int root(int* parent, int v) {
  while (parent[v] != v) v = parent[v];
  return v;
}
__global__ void hook(Graph g, int* parent) {
  const int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= g.nodes) return;
  for (int e = g.first[v]; e < g.first[v + 1]; ++e) {
    int a = root(parent, v), b = root(parent, g.to[e]);
    while (a != b) {
      if (a < b) {
        const int t = a;
        a = b, b = t;
      }
      const int old = atomicCAS(&parent[a], a, b);
      if (old == a) break;
      a = root(parent, old), b = root(parent, b);
    }
  }
}
__global__ void compress(int n, int* parent) {
  const int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v < n) parent[v] = root(parent, v);
}

template <typename T>
T* to_device(const std::vector<T>& from) {
  T* p = nullptr;
  OK(cudaMalloc(&p, from.size() * sizeof(T)));
  OK(cudaMemcpy(p, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}

int main() {
  constexpr int kNodes = 3000, kEdges = 4000;
  std::mt19937 random(4711);
  std::vector<std::vector<std::pair<int, int>>> edges(kNodes);
  for (int k = 0; k < kEdges; ++k) {
    const int a = random() % kNodes, b = random() % kNodes, w = 1 + random() % 50;
    edges[a].push_back({b, w}), edges[b].push_back({a, w});
  }
  std::vector<int> first{0}, to, weight;
  for (const auto& of : edges) {
    for (const auto& [b, w] : of) to.push_back(b), weight.push_back(w);
    first.push_back(static_cast<int>(to.size()));
  }
  const Graph g = {kNodes, to_device(first), to_device(to), to_device(weight)};
  const int blocks = (kNodes + 255) / 256;

  // Depths.
  std::vector<int> depth(kNodes, -1), expected(kNodes, -1);
  depth[0] = expected[0] = 0;
  std::queue<int> queue({0});
  while (!queue.empty()) {
    const int v = queue.front();
    queue.pop();
    for (const auto& [b, w] : edges[v])
      if (expected[b] < 0) expected[b] = expected[v] + 1, queue.push(b);
  }
  int* device_depth = to_device(depth);
  int *work[2], *count[2], zero = 0, one = 1;
  for (int k = 0; k < 2; ++k) {
    OK(cudaMalloc(&work[k], kNodes * sizeof(int)));
    OK(cudaMalloc(&count[k], sizeof(int)));
    OK(cudaMemcpy(count[k], k ? &zero : &one, sizeof(int), cudaMemcpyHostToDevice));
  }
  OK(cudaMemset(work[0], 0, sizeof(int)));
  for (int level = 1, left = 1; left > 0; ++level) {
    const int a = (level - 1) % 2, b = level % 2;
    OK(cudaMemset(count[b], 0, sizeof(int)));
    expand<<<16, 128>>>(g, work[a], count[a], work[b], count[b], device_depth, level);
    OK(cudaMemcpy(&left, count[b], sizeof(int), cudaMemcpyDeviceToHost));
  }
  OK(cudaMemcpy(depth.data(), device_depth, kNodes * sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(depth == expected);

  // Distances; the flag is mapped, and a pinned copy beside it.
  std::vector<int> distance(kNodes, INT_MAX);
  std::vector<int> shortest = distance;
  shortest[0] = distance[0] = 0;
  using Entry = std::pair<int, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap;
  heap.push({0, 0});
  while (!heap.empty()) {
    const auto [d, v] = heap.top();
    heap.pop();
    if (d > shortest[v]) continue;
    for (const auto& [b, w] : edges[v])
      if (d + w < shortest[b]) shortest[b] = d + w, heap.push({d + w, b});
  }
  int* device_distance = to_device(distance);
  bool *changed, *device_changed;
  OK(cudaHostAlloc(&changed, 1, cudaHostAllocMapped | cudaHostAllocPortable));
  OK(cudaHostGetDevicePointer(&device_changed, changed, 0));
  unsigned flags = 0;
  OK(cudaHostGetFlags(&flags, changed));
  CHECK(flags & cudaHostAllocMapped);
  do {
    *changed = false;
    relax<<<blocks, 256>>>(g, device_distance, device_changed);
    OK(cudaDeviceSynchronize());
  } while (*changed);
  OK(cudaMemcpy(distance.data(), device_distance, kNodes * 4, cudaMemcpyDeviceToHost));
  CHECK(distance == shortest);

  // Components.
  std::vector<int> parent(kNodes);
  for (int v = 0; v < kNodes; ++v) parent[v] = v;
  int* device_parent = to_device(parent);
  cudaStream_t stream[2];
  cudaEvent_t hooked;
  for (auto& s : stream) OK(cudaStreamCreate(&s));
  OK(cudaEventCreateWithFlags(&hooked, cudaEventDisableTiming));
  hook<<<blocks, 256, 0, stream[0]>>>(g, device_parent);
  OK(cudaEventRecord(hooked, stream[0]));
  OK(cudaStreamWaitEvent(stream[1], hooked, 0));
  compress<<<blocks, 256, 0, stream[1]>>>(kNodes, device_parent);
  OK(cudaMemcpyAsync(parent.data(), device_parent, kNodes * 4, cudaMemcpyDeviceToHost, stream[1]));
  OK(cudaStreamSynchronize(stream[1]));
  int wrong = 0;
  for (int v = 0; v < kNodes; ++v) {
    wrong += parent[parent[v]] != parent[v] || (parent[v] == parent[0]) != (expected[v] >= 0);
    for (const auto& [b, w] : edges[v]) wrong += parent[v] != parent[b];
  }
  CHECK(wrong == 0);
  OK(cudaFreeHost(changed));
  return result();
}
