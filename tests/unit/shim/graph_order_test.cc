// SPDX-License-Identifier: Apache-2.0
// The guest's libcuda.so.1: whatever a graph's shape, its nodes run behind those that they depend
// on, each once; updates and launches from several threads keep to that.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "abi/cuda_graph.h"
#include "tests/unit/shim/fixture.h"

namespace sluice::testing {
namespace {

// Nodes that write down when they run.
struct Journal {
  std::mutex mutex;
  std::vector<int> order;
};
struct Entry {
  Journal* journal;
  int number;
};
void note(void* entry) {
  const auto* e = static_cast<Entry*>(entry);
  std::lock_guard lock(e->journal->mutex);
  e->journal->order.push_back(e->number);
}

// All that was queued in the stream's program until now. Functions run in the order in which they
// were queued; the fake worker holds nothing else behind them.
std::vector<int> take(Journal& journal, CUstream stream) {
  constexpr int kEnd = -1;
  Entry end{&journal, kEnd};
  EXPECT_EQ(cuLaunchHostFunc(stream, note, &end), CUDA_SUCCESS);
  for (;;) {
    std::this_thread::yield();
    std::lock_guard lock(journal.mutex);
    if (journal.order.empty() || journal.order.back() != kEnd) continue;
    journal.order.pop_back();
    return std::exchange(journal.order, {});
  }
}

// Node k of the shape depends on behind[k], all of them smaller; the last on everything that
// nothing else depends on.
using Shape = std::vector<std::vector<int>>;
Shape random_shape(std::mt19937& random, int nodes) {
  Shape shape(static_cast<size_t>(nodes));
  std::set<int> ends;
  for (int k = 0; k < nodes; ++k) {
    std::set<int> behind;
    if (k + 1 == nodes) {
      behind = ends;
    } else {
      for (unsigned i = random() % 4; i > 0 && k > 0; --i)
        behind.insert(static_cast<int>(random() % static_cast<unsigned>(k)));
    }
    for (const int before : behind) ends.erase(before);
    ends.insert(k);
    shape[static_cast<size_t>(k)].assign(behind.begin(), behind.end());
    std::shuffle(shape[static_cast<size_t>(k)].begin(), shape[static_cast<size_t>(k)].end(),
                 random);
  }
  return shape;
}

// Its nodes made in any order, edges afterwards and node by node.
CUgraph build(const Shape& shape, std::mt19937& random, std::vector<Entry>& entries,
              std::vector<CUgraphNode>* nodes) {
  CUgraph graph = nullptr;
  EXPECT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  std::vector<size_t> making(shape.size());
  for (size_t k = 0; k < making.size(); ++k) making[k] = k;
  std::shuffle(making.begin(), making.end(), random);
  nodes->assign(shape.size(), nullptr);
  for (const size_t k : making) {
    CUDA_HOST_NODE_PARAMS host{note, &entries[k]};
    EXPECT_EQ(cuGraphAddHostNode(&(*nodes)[k], graph, nullptr, 0, &host), CUDA_SUCCESS);
  }
  for (size_t k = 0; k < shape.size(); ++k) {
    for (const int before : shape[k]) {
      const CUgraphNode from = (*nodes)[static_cast<size_t>(before)];
      EXPECT_EQ(cuGraphAddDependencies(graph, &from, &(*nodes)[k], nullptr, 1), CUDA_SUCCESS);
    }
  }
  return graph;
}

void expect_allowed(const Shape& shape, const std::vector<int>& order, int base) {
  ASSERT_EQ(order.size(), shape.size());
  std::set<int> done;
  for (const int number : order) {
    const int k = number - base;
    ASSERT_TRUE(k >= 0 && k < static_cast<int>(shape.size())) << "a node of another graph ran";
    for (const int before : shape[static_cast<size_t>(k)])
      EXPECT_TRUE(done.count(before)) << k << " ran before " << before;
    EXPECT_TRUE(done.insert(k).second) << k << " ran twice";
  }
}

TEST(ShimGraphOrder, RandomGraphsAndTheirUpdates) {
  in_process({}, [](FakeWorker&) {
    set_up();
    CUstream s;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    Journal journal;
    for (unsigned seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      const int n = 2 + static_cast<int>(random() % 20);
      const Shape shape = random_shape(random, n);
      std::vector<Entry> first, second;
      for (int k = 0; k < n; ++k) {
        first.push_back({&journal, k});
        second.push_back({&journal, 100 + k});
      }
      std::vector<CUgraphNode> nodes, others;
      const CUgraph graph = build(shape, random, first, &nodes),
                    other = build(shape, random, second, &others);
      CUgraph clone = nullptr;
      OK(cuGraphClone(&clone, graph));
      CUgraphExec exec = nullptr, of_clone = nullptr;
      OK(cuGraphInstantiate(&exec, graph, 0));
      OK(cuGraphInstantiate(&of_clone, clone, 0));
      for (const CUgraphExec one : {exec, of_clone}) {
        OK(cuGraphLaunch(one, s));
        expect_allowed(shape, take(journal, s), 0);
      }
      // With one last node the other graph is found alike, and then it is what runs.
      CUgraphExecUpdateResultInfo info;
      OK(cuGraphExecUpdate(exec, other, &info));
      OK(cuGraphLaunch(exec, s));
      expect_allowed(shape, take(journal, s), 100);
      // One edge more makes a cycle, or another shape.
      const size_t from = random() % nodes.size(), to = random() % nodes.size();
      if (from != to &&
          cuGraphAddDependencies(other, &others[from], &others[to], nullptr, 1) == CUDA_SUCCESS) {
        EXPECT_EQ(cuGraphExecUpdate(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        CUgraphExec made = nullptr;
        if (from > to) {
          // Perhaps a cycle; if it is none, it still runs in an order that it allows.
          const CUresult r = cuGraphInstantiate(&made, other, 0);
          ASSERT_TRUE(r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_VALUE);
        } else {
          OK(cuGraphInstantiate(&made, other, 0));
        }
        if (made != nullptr) {
          Shape more = shape;
          more[to].push_back(static_cast<int>(from));
          OK(cuGraphLaunch(made, s));
          expect_allowed(more, take(journal, s), 100);
          OK(cuGraphExecDestroy(made));
        }
      }
      for (const CUgraph g : {graph, other, clone}) OK(cuGraphDestroy(g));
      OK(cuGraphExecDestroy(exec));
      OK(cuGraphExecDestroy(of_clone));
    }
  });
}

// A launch of an executable begins when the one before has ended, whichever threads and streams
// they come from.
TEST(ShimGraphOrder, TwoThreadsLaunchOneExecutable) {
  in_process({}, [](FakeWorker&) {
    CUcontext context;
    set_up(&context);
    constexpr int kNodes = 30, kLaunches = 400, kThreads = 2;
    Journal journal;
    std::vector<Entry> entries;
    for (int k = 0; k < kNodes; ++k) entries.push_back({&journal, k});
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode last = nullptr;
    for (Entry& entry : entries) {
      CUDA_HOST_NODE_PARAMS host{note, &entry};
      CUgraphNode node;
      OK(cuGraphAddHostNode(&node, graph, &last, last == nullptr ? 0 : 1, &host));
      last = node;
    }
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    std::vector<std::thread> threads;
    std::atomic<int> ready{0};
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        OK(cuCtxSetCurrent(context));
        CUstream s;
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        ++ready;
        while (ready != kThreads) std::this_thread::yield();
        for (int i = 0; i < kLaunches; ++i) OK(cuGraphLaunch(exec, s));
        OK(cuStreamSynchronize(s));
      });
    }
    for (auto& t : threads) t.join();
    const std::vector<int> order = take(journal, nullptr);
    ASSERT_EQ(order.size(), static_cast<size_t>(kThreads * kLaunches * kNodes));
    for (size_t i = 0; i < order.size(); ++i)
      ASSERT_EQ(order[i], static_cast<int>(i) % kNodes) << i;
  });
}

// A capture to a graph that is destroyed under it is spoilt, and nothing else.
TEST(ShimGraphOrder, AGraphThatGoesSpoilsItsCapture) {
  in_process({}, [](FakeWorker&) {
    set_up();
    CUstream s;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CUgraph outer, inner, within, ended;
    CUgraphNode child, empty;
    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphAddEmptyNode(&empty, inner, nullptr, 0));
    OK(cuGraphAddChildGraphNode(&child, outer, nullptr, 0, inner));
    OK(cuGraphChildGraphNodeGetGraph(child, &within));
    OK(cuStreamBeginCaptureToGraph(s, within, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(cuGraphDestroy(within), CUDA_ERROR_INVALID_VALUE) << "its parent's";
    OK(cuLaunchHostFunc(
        s, [](void*) {}, nullptr));
    OK(cuGraphDestroy(outer));
    EXPECT_EQ(cuLaunchHostFunc(
                  s, [](void*) {}, nullptr),
              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuStreamEndCapture(s, &ended), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamSynchronize(s)) << "the capture is over";
    // One that a capture adds to cannot be destroyed by itself.
    OK(cuStreamBeginCaptureToGraph(s, inner, &empty, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(cuGraphDestroy(inner), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroyNode(empty));  // what the capture came behind
    OK(cuLaunchHostFunc(
        s, [](void*) {}, nullptr));
    OK(cuStreamEndCapture(s, &ended));
    EXPECT_EQ(ended, inner);
    size_t n = 0;
    OK(cuGraphGetRootNodes(inner, nullptr, &n));
    EXPECT_EQ(n, 1u);
    OK(cuGraphDestroy(inner));
  });
}

}  // namespace
}  // namespace sluice::testing
