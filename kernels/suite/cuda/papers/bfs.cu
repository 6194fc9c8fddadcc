// SPDX-License-Identifier: Apache-2.0
// Breadth-first search over a graph in compressed rows, one level per pair of launches: expand
// marks the neighbours of the frontier, advance makes them the next frontier. Several threads may
// mark one neighbour; all of them write the same values.
extern "C" __global__ void bfs_expand(const unsigned* begin, const unsigned* edges,
                                      unsigned char* frontier, unsigned char* marked,
                                      const unsigned char* visited, int* cost, unsigned nodes) {
  const unsigned node = blockIdx.x * blockDim.x + threadIdx.x;
  if (node >= nodes || !frontier[node]) return;
  frontier[node] = 0;
  for (unsigned e = begin[node]; e < begin[node + 1]; ++e) {
    const unsigned next = edges[e];
    if (visited[next]) continue;
    cost[next] = cost[node] + 1;
    marked[next] = 1;
  }
}

extern "C" __global__ void bfs_advance(unsigned char* frontier, unsigned char* marked,
                                       unsigned char* visited, int* again, unsigned nodes) {
  const unsigned node = blockIdx.x * blockDim.x + threadIdx.x;
  if (node >= nodes || !marked[node]) return;
  frontier[node] = 1;
  visited[node] = 1;
  marked[node] = 0;
  *again = 1;
}
