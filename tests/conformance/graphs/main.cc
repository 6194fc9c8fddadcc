// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "tests/conformance/graphs/graph_calls.h"

namespace sluice::graph_calls {

namespace {

const char* const kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry step(.param .u64 to, .param .u32 n, .param .u32 times, .param .u32 plus)
{
  .reg .b32 %r<9>; .reg .b64 %d<4>; .reg .pred %p1;
  ld.param.u64 %d1, [to]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [times];
  ld.param.u32 %r3, [plus];
  mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x;
  mad.lo.u32 %r7, %r4, %r5, %r6;
  setp.ge.u32 %p1, %r7, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %d1, %d1;
  mul.wide.u32 %d2, %r7, 4; add.u64 %d3, %d1, %d2;
  ld.global.u32 %r8, [%d3];
  mad.lo.u32 %r8, %r8, %r2, %r3;
  st.global.u32 [%d3], %r8;
DONE:
  ret;
}
.visible .entry add(.param .u64 to, .param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .b32 %r<9>; .reg .b64 %d<8>; .reg .pred %p1;
  ld.param.u64 %d1, [to]; ld.param.u64 %d2, [x]; ld.param.u64 %d3, [y]; ld.param.u32 %r1, [n];
  mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x;
  mad.lo.u32 %r7, %r4, %r5, %r6;
  setp.ge.u32 %p1, %r7, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d2, %d2; cvta.to.global.u64 %d3, %d3;
  mul.wide.u32 %d4, %r7, 4; add.u64 %d1, %d1, %d4; add.u64 %d2, %d2, %d4; add.u64 %d3, %d3, %d4;
  ld.global.u32 %r2, [%d2]; ld.global.u32 %r3, [%d3];
  add.u32 %r2, %r2, %r3;
  st.global.u32 [%d1], %r2;
DONE:
  ret;
}
)";

}  // namespace

void clear(const World& w, uint32_t value) {
  for (const CUdeviceptr p : {w.a, w.b, w.c}) NEED(cuMemsetD32(p, value, kWords));
  NEED(cuCtxSynchronize());
}
uint32_t word(CUdeviceptr p, uint32_t index) {
  uint32_t value = 0;
  NEED(cuMemcpyDtoH(&value, p + 4 * index, 4));
  return value;
}
uint32_t all_words(CUdeviceptr p) {
  std::vector<uint32_t> words(kWords);
  NEED(cuMemcpyDtoH(words.data(), p, 4 * kWords));
  uint32_t sum = 0;
  for (const uint32_t one : words) sum = sum * 31 + one;
  return sum;
}

CUDA_MEMCPY3D box(CUmemorytype dst_type, CUdeviceptr dst, CUmemorytype src_type, CUdeviceptr src,
                  size_t bytes) {
  CUDA_MEMCPY3D copy;
  std::memset(&copy, 0, sizeof copy);
  copy.dstMemoryType = dst_type, copy.srcMemoryType = src_type;
  if (dst_type == CU_MEMORYTYPE_HOST)
    copy.dstHost = reinterpret_cast<void*>(dst);
  else
    copy.dstDevice = dst;
  if (src_type == CU_MEMORYTYPE_HOST)
    copy.srcHost = reinterpret_cast<void*>(src);
  else
    copy.srcDevice = src;
  copy.WidthInBytes = copy.srcPitch = copy.dstPitch = bytes;
  copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
  return copy;
}

CUgraphNode kernel_node(const World& w, CUgraph graph, std::vector<CUgraphNode> behind,
                        CUdeviceptr p, uint32_t times, uint32_t plus) {
  Step step(w, p, times, plus);
  CUgraphNode node = nullptr;
  NEED(cuGraphAddKernelNode(&node, graph, behind.data(), behind.size(), &step.node));
  return node;
}

void run(const World& w, CUgraph graph) {
  CUgraphExec exec = nullptr;
  if (CALL(cuGraphInstantiate(&exec, graph, 0)) != CUDA_SUCCESS) return;
  CALL(cuGraphLaunch(exec, w.s));
  CALL(cuStreamSynchronize(w.s));
  NEED(cuGraphExecDestroy(exec));
}

}  // namespace sluice::graph_calls

using namespace sluice::graph_calls;

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  World w;
  CUdevice device;
  NEED(cuInit(0));
  NEED(cuDeviceGet(&device, 0));
  NEED(cuDevicePrimaryCtxRetain(&w.context, device));
  NEED(cuCtxSetCurrent(w.context));
  NEED(cuModuleLoadData(&w.module, kPtx));
  NEED(cuModuleGetFunction(&w.step, w.module, "step"));
  NEED(cuModuleGetFunction(&w.add, w.module, "add"));
  for (CUdeviceptr* p : {&w.a, &w.b, &w.c}) NEED(cuMemAlloc(p, 4 * kWords));
  for (CUstream* s : {&w.s, &w.t}) NEED(cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
  for (CUevent* e : {&w.e, &w.f}) NEED(cuEventCreate(e, CU_EVENT_DISABLE_TIMING));
  const struct {
    const char* name;
    void (*section)(const World&);
  } sections[] = {{"structure", structure},
                  {"kernels", kernels},
                  {"copies", copies},
                  {"hosts_and_events", hosts_and_events},
                  {"children", children},
                  {"updates", updates},
                  {"captures", captures},
                  {"memory", memory},
                  {"user_objects", user_objects},
                  {"launches", launches},
                  {"chains", chains}};
  for (const auto& one : sections) {
    if (argc > 1 && std::strcmp(argv[1], one.name) != 0) continue;
    std::printf("-- %s\n", one.name);
    one.section(w);
    NEED(cuCtxSynchronize());
  }
  std::printf("-- end\n");
  return 0;
}
