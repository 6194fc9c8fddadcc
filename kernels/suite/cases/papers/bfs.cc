// SPDX-License-Identifier: Apache-2.0
// The host side of bfs.cu: a random graph of low degree, as many levels as it has.
#include "kernels/suite/bfs.ptx.h"
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"

namespace sluice::suite {

Case case_bfs(const CaseOptions& options) {
  const std::uint32_t nodes = scaled(options, 2000);
  Generator random(options.seed);
  std::vector<std::uint32_t> begin = {0}, edges;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const std::uint64_t degree = 1 + random.next() % 5;
    for (std::uint64_t e = 0; e < degree; ++e)
      edges.push_back(static_cast<std::uint32_t>(random.next() % nodes));
    begin.push_back(static_cast<std::uint32_t>(edges.size()));
  }
  // How many launches there are is the host's decision, from the flag it reads back each time.
  std::vector<std::int32_t> cost(nodes, -1);
  std::vector<std::uint32_t> queue = {0};
  cost[0] = 0;
  for (std::size_t head = 0; head < queue.size(); ++head)
    for (std::uint32_t e = begin[queue[head]]; e < begin[queue[head] + 1]; ++e) {
      if (cost[edges[e]] >= 0) continue;
      cost[edges[e]] = cost[queue[head]] + 1;
      queue.push_back(edges[e]);
    }
  const std::int32_t levels = cost[queue.back()];

  std::vector<std::uint8_t> first(nodes);
  first[0] = 1;
  std::vector<std::int32_t> start(nodes, -1);
  start[0] = 0;
  CaseBuilder build("bfs", kBfsPtx);
  const Pointer d_begin = build.input("begin", begin), d_edges = build.input("edges", edges);
  const Pointer d_frontier = build.input("frontier", first);
  const Pointer d_marked = build.zeros<std::uint8_t>("marked", nodes);
  const Pointer d_visited = build.input("visited", first);
  const Pointer d_cost = build.input("cost", start);
  const Pointer d_again = build.zeros<std::int32_t>("again", 1);
  const Extent3 grid = {blocks(nodes, 256), 1, 1}, block = {256, 1, 1};
  const auto expand = [&] {
    build.launch("bfs_expand", grid, block, 0, d_begin, d_edges, d_frontier, d_marked, d_visited,
                 d_cost, nodes);
  };
  for (std::int32_t level = 0; level < levels; ++level) {
    build.fill(d_again, 0, 4);
    expand();
    build.launch("bfs_advance", grid, block, 0, d_frontier, d_marked, d_visited, d_again, nodes);
  }
  expand();  // finds nobody, and leaves the frontier empty
  build.expect<std::int32_t>(d_cost, 0, [cost] { return cost; });
  build.expect<std::uint8_t>(d_visited, 0, [cost] {
    std::vector<std::uint8_t> visited;
    for (std::int32_t each : cost) visited.push_back(each >= 0 ? 1 : 0);
    return visited;
  });
  build.expect<std::uint8_t>(d_frontier, 0, [nodes] { return std::vector<std::uint8_t>(nodes); });
  build.expect<std::int32_t>(d_again, 0, [] { return std::vector<std::int32_t>{1}; });
  return build.take();
}

}  // namespace sluice::suite
