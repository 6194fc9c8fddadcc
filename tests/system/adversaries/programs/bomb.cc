// SPDX-License-Identifier: Apache-2.0
// Makes as many of one kind of object as it is asked for, or as it can, each of which costs next to
// nothing to ask for.
//
//   bomb WAY COUNT     prints "WAY: N of COUNT, ERROR", what the last one gave, holds them until
//                      its input ends, and exits 0
#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "abi/cuda_graph.h"
#include "abi/cuda_texture.h"

#include "tests/support/driver_program.h"

namespace {

using sluice::test::check;
using sluice::test::error_name;

constexpr char kHeader[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
constexpr char kNothing[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .b64 p)\n{\nret;\n}\n";

CUfunction nothing;
CUdeviceptr words;  // some memory
uint64_t param;

void sleep_for_ever(void*) {
  for (;;) ::pause();
}
void nap(void*) { ::usleep(1000); }

// Behind a host function that does not return.
CUstream stalled() {
  static CUstream s;
  if (s) return s;
  check(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), "stream");
  check(cuLaunchHostFunc(s, sleep_for_ever, nullptr), "host function");
  return s;
}

CUresult launch(CUstream stream) {
  void* params[] = {&param};
  return cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
}

CUresult event(long) {
  CUevent e;
  return cuEventCreate(&e, 0);
}
CUresult lost_event(long) {  // recorded where it never completes, and destroyed
  CUevent e;
  CUresult r = cuEventCreate(&e, 0);
  if (r == CUDA_SUCCESS) r = cuEventRecord(e, stalled());
  if (r == CUDA_SUCCESS) r = cuEventDestroy(e);
  return r;
}
CUresult stream(long) {
  CUstream s;
  return cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
}
CUresult lost_stream(long) {
  CUstream s;
  CUresult r = cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
  CUevent e;
  if (r == CUDA_SUCCESS) r = cuEventCreate(&e, 0);
  if (r == CUDA_SUCCESS) r = cuEventRecord(e, stalled());
  if (r == CUDA_SUCCESS) r = cuStreamWaitEvent(s, e, 0);
  if (r == CUDA_SUCCESS) r = launch(s);
  if (r == CUDA_SUCCESS) r = cuStreamDestroy(s);
  if (r == CUDA_SUCCESS) r = cuEventDestroy(e);
  return r;
}
CUresult link(long i, CUstream first) {  // each stream waits for the one before
  static std::vector<CUstream> streams;
  if (streams.size() < 500) {
    CUstream s;
    const CUresult r = cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    if (r != CUDA_SUCCESS) return r;
    streams.push_back(s);
  }
  const CUstream from = i == 0 ? first : streams[(i - 1) % streams.size()];
  const CUstream to = streams[i % streams.size()];
  CUevent e;
  CUresult r = cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
  if (r == CUDA_SUCCESS) r = cuEventRecord(e, from);
  if (r == CUDA_SUCCESS && from != to) r = cuStreamWaitEvent(to, e, 0);
  if (r == CUDA_SUCCESS) r = launch(to);
  if (r == CUDA_SUCCESS) r = cuEventDestroy(e);
  return r;
}
CUresult chain(long i) { return link(i, stalled()); }
CUresult busy_chain(long i) { return link(i, nullptr); }
// Beside a host function that does not return: who is stalled is found anew each time.
CUresult watched_chain(long i) {
  (void)stalled();
  return link(i, nullptr);
}
CUresult stalled_launch(long) { return launch(stalled()); }
CUresult stalled_copy(long) { return cuMemcpyDtoDAsync(words, words + 64, 64, stalled()); }
CUresult stalled_value(long) { return cuStreamWriteValue32(stalled(), words, 1, 0); }
CUresult stalled_free(long) {
  CUdeviceptr at;
  CUresult r = cuMemAlloc(&at, 1);
  if (r == CUDA_SUCCESS) r = cuMemFreeAsync(at, stalled());
  return r;
}
CUresult host_function(long) { return cuLaunchHostFunc(stalled(), nap, nullptr); }
CUresult slow_host_function(long) {
  static CUstream s;
  if (!s) check(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), "stream");
  return cuLaunchHostFunc(s, nap, nullptr);
}
CUresult allocation(long) {
  CUdeviceptr at;
  return cuMemAlloc(&at, 1);
}
CUresult pool_allocation(long) {
  CUdeviceptr at;
  return cuMemAllocAsync(&at, 1, nullptr);
}
CUresult pool(long) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool p;
  return cuMemPoolCreate(&p, &props);
}
CUresult host_memory(long) {
  void* at;
  return cuMemHostAlloc(&at, 1, 0);
}
CUresult reservation(long) {
  CUdeviceptr at;
  return cuMemAddressReserve(&at, 2 << 20, 0, 0, 0);
}
CUresult mapping(long i) {
  static CUmemGenericAllocationHandle memory;
  static CUdeviceptr at;
  constexpr size_t kPiece = 2 << 20, kPieces = 1 << 18;
  if (i == 0) {
    CUmemAllocationProp props{};
    props.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    check(cuMemCreate(&memory, kPiece, &props, 0), "memory");
    check(cuMemAddressReserve(&at, kPieces * kPiece, 0, 0, 0), "addresses");
  }
  CUresult r = cuMemMap(at + static_cast<uint64_t>(i) * kPiece, kPiece, 0, memory, 0);
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (r == CUDA_SUCCESS)
    r = cuMemSetAccess(at + static_cast<uint64_t>(i) * kPiece, kPiece, &access, 1);
  return r;
}
CUresult physical(long) {
  CUmemAllocationProp props{};
  props.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle memory;
  return cuMemCreate(&memory, 2 << 20, &props, 0);
}
CUarray one_texel() {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  d.Width = 1;
  d.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  d.NumChannels = 1;
  CUarray a = nullptr;
  if (cuArray3DCreate(&a, &d) != CUDA_SUCCESS) return nullptr;
  return a;
}
CUresult array(long) { return one_texel() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; }
CUresult mipmap(long) {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  d.Width = 128;
  d.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  d.NumChannels = 1;
  CUmipmappedArray m;
  CUresult r = cuMipmappedArrayCreate(&m, &d, 8);
  CUarray level;
  for (unsigned i = 0; i < 8 && r == CUDA_SUCCESS; ++i) r = cuMipmappedArrayGetLevel(&level, m, i);
  return r;
}
CUresult texture(long) {
  static CUarray a;
  if (!a) a = one_texel();
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = a;
  CUDA_TEXTURE_DESC desc{};
  CUtexObject t;
  return cuTexObjectCreate(&t, &resource, &desc, nullptr);
}
CUresult module(long) {
  CUmodule m;
  return cuModuleLoadData(&m, kNothing);
}
CUresult function_in_shapes(long i) {
  void* params[] = {&param};
  return cuLaunchKernel(nothing, 1, 1, 1, 1 + i % 1024, 1, 1, i / 1024 % 4096, stalled(), params,
                        nullptr);
}
CUresult graph(long) {
  CUgraph g;
  return cuGraphCreate(&g, 0);
}
CUgraph wide;
CUresult graph_node(long) {
  if (!wide) check(cuGraphCreate(&wide, 0), "graph");
  CUgraphNode n;
  return cuGraphAddEmptyNode(&n, wide, nullptr, 0);
}
CUresult kernel_node(long) {
  if (!wide) check(cuGraphCreate(&wide, 0), "graph");
  CUDA_KERNEL_NODE_PARAMS p{};
  void* params[] = {&param};
  p.func = nothing;
  p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = params;
  CUgraphNode n;
  return cuGraphAddKernelNode(&n, wide, nullptr, 0, &p);
}
CUresult chained_node(long) {
  static CUgraphNode last;
  if (!wide) check(cuGraphCreate(&wide, 0), "graph");
  CUgraphNode n;
  const CUresult r = cuGraphAddEmptyNode(&n, wide, last ? &last : nullptr, last ? 1 : 0);
  last = n;
  return r;
}
CUgraph graph_of_one() {
  CUgraph graph;
  CUgraphNode n;
  check(cuGraphCreate(&graph, 0), "graph");
  check(cuGraphAddEmptyNode(&n, graph, nullptr, 0), "node");
  return graph;
}
CUresult child_node(long) {  // each has the one before in it, twice
  static CUgraph inner = graph_of_one();
  CUgraphNode n;
  CUgraph g;
  CUresult r = cuGraphCreate(&g, 0);
  for (int i = 0; i < 2 && r == CUDA_SUCCESS; ++i)
    r = cuGraphAddChildGraphNode(&n, g, nullptr, 0, inner);
  inner = g;
  return r;
}
CUresult deep_node(long) {  // each has the one before in it
  static CUgraph inner = graph_of_one();
  CUgraphNode n;
  CUgraph g;
  CUresult r = cuGraphCreate(&g, 0);
  if (r == CUDA_SUCCESS) r = cuGraphAddChildGraphNode(&n, g, nullptr, 0, inner);
  (void)cuGraphDestroy(inner);
  wide = inner = g;
  return r;
}
CUresult instance(long) {
  if (!wide)
    for (int i = 0; i < 100; ++i) (void)kernel_node(0);
  CUgraphExec e;
  return cuGraphInstantiateWithFlags(&e, wide, 0);
}
CUresult captured_launch(long i) {
  static CUstream s;
  if (i == 0) {
    check(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), "stream");
    check(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), "capture");
  }
  return launch(s);
}
void ended(void*) {}
CUresult user_object(long) {
  CUuserObject o;
  return cuUserObjectCreate(&o, nullptr, ended, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
}
CUresult graph_launch(long i) {  // of a graph with 1,000 kernels
  static CUgraphExec e;
  if (i == 0) {
    for (int n = 0; n < 1000; ++n) (void)kernel_node(0);
    check(cuGraphInstantiateWithFlags(&e, wide, 0), "graph");
  }
  return cuGraphLaunch(e, stalled());
}
CUresult plain_launch(long) { return launch(nullptr); }
CUresult event_pairs(long) {
  static CUevent e;
  if (!e) check(cuEventCreate(&e, 0), "event");
  CUresult r = cuEventRecord(e, stalled());
  if (r == CUDA_SUCCESS) r = cuStreamWaitEvent(stalled(), e, 0);
  return r;
}
CUresult primary(long) {
  CUcontext c;
  CUresult r = cuDevicePrimaryCtxRetain(&c, 0);
  return r;
}
CUresult symbol(long i) {
  static CUmodule m;
  if (i == 0) {
    std::string text = kHeader;
    for (int n = 0; n < 20000; ++n) text += ".global .b8 v" + std::to_string(n) + ";\n";
    check(cuModuleLoadData(&m, text.c_str()), "module");
  }
  CUdeviceptr at;
  size_t bytes;
  return cuModuleGetGlobal(&at, &bytes, m, ("v" + std::to_string(i)).c_str());
}
CUresult kernels(long i) {
  static CUmodule m;
  if (i == 0) {
    std::string text = kHeader;
    for (int n = 0; n < 2000; ++n)
      text += ".visible .entry k" + std::to_string(n) + "()\n{\nret;\n}\n";
    check(cuModuleLoadData(&m, text.c_str()), "module");
  }
  CUfunction f;
  return cuModuleGetFunction(&f, m, ("k" + std::to_string(i)).c_str());
}

CUresult host_memory_again(long) {  // written and given back
  void* at;
  constexpr size_t kBytes = 16 << 20;
  CUresult r = cuMemHostAlloc(&at, kBytes, 0);
  if (r != CUDA_SUCCESS) return r;
  std::memset(at, 1, kBytes);
  return cuMemFreeHost(at);
}
CUresult small_host_memory_again(long) {
  void* at;
  const CUresult r = cuMemHostAlloc(&at, 2 << 20, 0);
  return r == CUDA_SUCCESS ? cuMemFreeHost(at) : r;
}

CUresult allocations_again(long) {  // more than the worker keeps leased, and all of it freed
  std::vector<CUdeviceptr> all(40000);
  for (CUdeviceptr& at : all)
    if (const CUresult r = cuMemAlloc(&at, 512); r != CUDA_SUCCESS) return r;
  for (const CUdeviceptr at : all)
    if (const CUresult r = cuMemFree(at); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}

struct Way {
  const char* name;
  CUresult (*one)(long);
};
constexpr Way kWays[] = {{"events", event},
                         {"lost-events", lost_event},
                         {"streams", stream},
                         {"lost-streams", lost_stream},
                         {"chain", chain},
                         {"busy-chain", busy_chain},
                         {"watched-chain", watched_chain},
                         {"stalled-launches", stalled_launch},
                         {"stalled-copies", stalled_copy},
                         {"stalled-values", stalled_value},
                         {"stalled-frees", stalled_free},
                         {"host-functions", host_function},
                         {"slow-host-functions", slow_host_function},
                         {"allocations", allocation},
                         {"pool-allocations", pool_allocation},
                         {"pools", pool},
                         {"host-memory", host_memory},
                         {"reservations", reservation},
                         {"mappings", mapping},
                         {"physical", physical},
                         {"arrays", array},
                         {"mipmaps", mipmap},
                         {"textures", texture},
                         {"modules", module},
                         {"shapes", function_in_shapes},
                         {"graphs", graph},
                         {"graph-nodes", graph_node},
                         {"kernel-nodes", kernel_node},
                         {"chained-nodes", chained_node},
                         {"child-nodes", child_node},
                         {"deep-nodes", deep_node},
                         {"instances", instance},
                         {"captured", captured_launch},
                         {"user-objects", user_object},
                         {"graph-launches", graph_launch},
                         {"launches", plain_launch},
                         {"event-pairs", event_pairs},
                         {"primary", primary},
                         {"symbols", symbol},
                         {"allocations-again", allocations_again},
                         {"host-memory-again", host_memory_again},
                         {"small-host-memory-again", small_host_memory_again},
                         {"kernels", kernels}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Way* way = nullptr;
  for (const Way& w : kWays)
    if (std::strcmp(w.name, argv[1]) == 0) way = &w;
  if (!way) return 2;
  const long count = std::atol(argv[2]);
  nothing = sluice::test::load_kernel(kNothing, "k");
  check(cuMemAlloc(&words, 4096), "memory");
  std::puts("begins");
  std::fflush(stdout);
  long made = 0;
  CUresult last = CUDA_SUCCESS;
  for (; made < count && last == CUDA_SUCCESS; ++made) last = way->one(made);
  if (last != CUDA_SUCCESS) --made;
  std::printf("%s: %ld of %ld, %s\n", way->name, made, count, error_name(last));
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  ::_exit(0);
}
