// SPDX-License-Identifier: Apache-2.0
// Conditional nodes with kernels that set their values, through the channel. (The driver of a real
// GPU takes the same calls; there the PTX has to be linked to libcudadevrt first.)
//
//   conditional-graph     exit 0 if everything came out right; what did not is printed
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "abi/cuda_graph.h"
#include "tests/conformance/calls.h"

namespace {

// count: *n -= 1 and the value is whether anything is left; add: *to += *n + by, by 64 blocks of
// which each adds to a word of its own; set: the value as it stands in memory.
const char* const kPtx = R"(
.version 7.8
.target sm_70
.address_size 64
.extern .func cudaGraphSetConditional
(
	.param .b64 cudaGraphSetConditional_param_0,
	.param .b32 cudaGraphSetConditional_param_1
)
;
.visible .entry count(.param .u64 n, .param .u64 handle)
{
  .reg .b64 %d<3>; .reg .b32 %r<4>; .reg .pred %p;
  ld.param.u64 %d1, [n]; ld.param.u64 %d2, [handle];
  ld.global.u32 %r1, [%d1]; sub.u32 %r1, %r1, 1; st.global.u32 [%d1], %r1;
  setp.ne.u32 %p, %r1, 0; selp.u32 %r2, 1, 0, %p;
  { .param .b64 a; .param .b32 b;
    st.param.b64 [a], %d2; st.param.b32 [b], %r2;
    call.uni cudaGraphSetConditional, (a, b); }
  ret;
}
.visible .entry set(.param .u64 n, .param .u64 handle, .param .u32 mask)
{
  .reg .b64 %d<3>; .reg .b32 %r<4>;
  ld.param.u64 %d1, [n]; ld.param.u64 %d2, [handle]; ld.param.u32 %r2, [mask];
  ld.global.u32 %r1, [%d1]; and.b32 %r1, %r1, %r2;
  { .param .b64 a; .param .b32 b;
    st.param.b64 [a], %d2; st.param.b32 [b], %r1;
    call.uni cudaGraphSetConditional, (a, b); }
  ret;
}
.visible .entry add(.param .u64 to, .param .u64 n, .param .u32 by)
{
  .reg .b64 %d<4>; .reg .b32 %r<5>;
  ld.param.u64 %d1, [to]; ld.param.u64 %d2, [n]; ld.param.u32 %r1, [by];
  ld.global.u32 %r2, [%d2]; add.u32 %r1, %r1, %r2;
  mov.u32 %r3, %ctaid.x; mul.wide.u32 %d3, %r3, 4; add.u64 %d1, %d1, %d3;
  ld.global.u32 %r4, [%d1]; add.u32 %r4, %r4, %r1; st.global.u32 [%d1], %r4;
  ret;
}
)";

constexpr unsigned kBlocks = 64;
int failures = 0;
CUfunction count_kernel, set_kernel, add_kernel;
CUdeviceptr n, sum;
CUstream stream;

void expect(const char* what, long long got, long long wanted) {
  if (got == wanted) return;
  std::printf("conditional-graph: %s: %lld, not %lld\n", what, got, wanted);
  ++failures;
}

CUgraphNode kernel(CUgraph graph, CUfunction function, unsigned blocks,
                   std::initializer_list<void*> params, std::vector<CUgraphNode> behind = {}) {
  std::vector<void*> pointers(params);
  CUDA_KERNEL_NODE_PARAMS p{};
  p.func = function;
  p.gridDimX = blocks;
  p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = pointers.data();
  CUgraphNode node = nullptr;
  NEED(cuGraphAddKernelNode(&node, graph, behind.data(), behind.size(), &p));
  return node;
}
CUgraphNode conditional(CUgraph graph, CUgraphConditionalHandle handle,
                        CUgraphConditionalNodeType kind, std::vector<CUgraph>* bodies,
                        std::vector<CUgraphNode> behind = {}) {
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  p.conditional = {handle, kind, static_cast<unsigned>(bodies->size()), nullptr, nullptr};
  CUgraphNode node = nullptr;
  NEED(cuGraphAddNode(&node, graph, behind.data(), nullptr, behind.size(), &p));
  bodies->assign(p.conditional.phGraph_out, p.conditional.phGraph_out + bodies->size());
  return node;
}
// What each word of `sum` has when the graph has run with *n = `begin`; all have to be the same.
long long run(CUgraphExec exec, uint32_t begin) {
  NEED(cuMemsetD32Async(n, begin, 1, stream));
  NEED(cuMemsetD32Async(sum, 0, kBlocks, stream));
  NEED(cuGraphLaunch(exec, stream));
  uint32_t words[kBlocks];
  NEED(cuMemcpyDtoHAsync(words, sum, sizeof words, stream));
  NEED(cuStreamSynchronize(stream));
  for (const uint32_t one : words) expect("a block's word", one, words[0]);
  return words[0];
}

// while (...) { sum += n; --n; if (n & 1) sum += 1000 + n; else sum += 2000 + n; }, and behind it
// sum += 7 + n.
void loop_with_a_choice_in_it() {
  CUgraph graph;
  CUgraphConditionalHandle goes_on, odd;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphConditionalHandleCreate(&goes_on, graph, nullptr, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  NEED(cuGraphConditionalHandleCreate(&odd, graph, nullptr, 0, 0));
  std::vector<CUgraph> body(1), choice(2);
  const CUgraphNode loop = conditional(graph, goes_on, CU_GRAPH_COND_TYPE_WHILE, &body);
  uint32_t zero = 0, seven = 7, one = 1, thousand = 1000, two_thousand = 2000;
  kernel(graph, add_kernel, kBlocks, {&sum, &n, &seven}, {loop});
  const CUgraphNode first = kernel(body[0], add_kernel, kBlocks, {&sum, &n, &zero});
  const CUgraphNode counted = kernel(body[0], count_kernel, 1, {&n, &goes_on}, {first});
  const CUgraphNode chosen = kernel(body[0], set_kernel, 1, {&n, &odd, &one}, {counted});
  conditional(body[0], odd, CU_GRAPH_COND_TYPE_IF, &choice, {chosen});
  kernel(choice[0], add_kernel, kBlocks, {&sum, &n, &thousand});
  kernel(choice[1], add_kernel, kBlocks, {&sum, &n, &two_thousand});
  CUgraphExec exec;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  NEED(cuGraphDestroy(graph));
  for (const uint32_t begin : {5u, 1u, 12u}) {
    long long wanted = 7;
    for (uint32_t left = begin; left != 0;) {
      wanted += left--;
      wanted += left + (left & 1 ? 1000 : 2000);
    }
    expect("a loop with a choice", run(exec, begin), wanted);
  }
  NEED(cuGraphExecDestroy(exec));
}

void one_of_three() {
  CUgraph graph;
  CUgraphConditionalHandle which;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphConditionalHandleCreate(&which, graph, nullptr, 0, 0));
  uint32_t all = ~0u, by[] = {100, 200, 300};
  std::vector<CUgraph> bodies(3);
  const CUgraphNode set = kernel(graph, set_kernel, 1, {&n, &which, &all});
  conditional(graph, which, CU_GRAPH_COND_TYPE_SWITCH, &bodies, {set});
  for (int i = 0; i < 3; ++i) kernel(bodies[i], add_kernel, kBlocks, {&sum, &n, &by[i]});
  CUgraphExec exec;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  for (uint32_t i = 0; i < 5; ++i) expect("one of three", run(exec, i), i < 3 ? by[i] + i : 0);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

// A value that nobody sets is the default one at each launch.
void default_value() {
  CUgraph graph;
  CUgraphConditionalHandle handle;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphConditionalHandleCreate(&handle, graph, nullptr, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  std::vector<CUgraph> body(1);
  const CUgraphNode node = conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, &body);
  uint32_t two = 2, all = ~0u;
  kernel(body[0], add_kernel, kBlocks, {&sum, &n, &two});
  kernel(graph, set_kernel, 1, {&n, &handle, &all},
         {node});  // 0, too late for this launch and gone at the next
  CUgraphExec exec;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) expect("the default value", run(exec, 0), 2);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  CUcontext context;
  CUmodule module;
  NEED(cuInit(0));
  NEED(cuDevicePrimaryCtxRetain(&context, 0));
  NEED(cuCtxSetCurrent(context));
  NEED(cuModuleLoadData(&module, kPtx));
  NEED(cuModuleGetFunction(&count_kernel, module, "count"));
  NEED(cuModuleGetFunction(&set_kernel, module, "set"));
  NEED(cuModuleGetFunction(&add_kernel, module, "add"));
  NEED(cuMemAlloc(&n, 4));
  NEED(cuMemAlloc(&sum, 4 * kBlocks));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  loop_with_a_choice_in_it();
  one_of_three();
  default_value();
  std::printf(failures ? "conditional-graph: %d wrong\n" : "conditional-graph: right\n", failures);
  return failures ? 1 : 0;
}
