// SPDX-License-Identifier: Apache-2.0
// Graphs: every kind of node, its setters in graph and executable, topology, user objects, memory,
// if and switch, changes of a capture.
// nvcc: -lcuda
#include <cstring>
#include <fstream>
#include <string>
#include <vector>
#include "../check.h"
__device__ int symbol[64];
__global__ void add(int* p, int v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += v;
}
__global__ void mul(int* p, int v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= v;
}
__global__ void decide(cudaGraphConditionalHandle h, const int* p) {
  cudaGraphSetConditional(h, *p);
}
static void CUDART_CB count(void* p) { ++*(int*)p; }
static int destroyed = 0;
static void CUDART_CB destroy(void*) { ++destroyed; }
static std::vector<int> back(const int* d, int n) {
  std::vector<int> v(n);
  OK(cudaMemcpy(v.data(), d, n * 4, cudaMemcpyDeviceToHost));
  return v;
}
int main() {
  const int n = 64;
  int *d, *e;
  OK(cudaMalloc(&d, 4096));
  OK(cudaMalloc(&e, 4096));
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  OK(cudaMemset(d, 0, 4096));
  OK(cudaMemset(e, 0, 4096));
  std::vector<int> a(n, 5), b(n, 0), c(n, 9);
  cudaGraph_t g;
  OK(cudaGraphCreate(&g, 0));
  cudaGraphNode_t up, tosym, fromsym, k, down, host, set, er, ew, em;
  OK(cudaGraphAddMemcpyNode1D(&up, g, nullptr, 0, d, a.data(), n * 4, cudaMemcpyHostToDevice));
  OK(cudaGraphAddMemcpyNodeToSymbol(&tosym, g, &up, 1, symbol, d, n * 4, 0,
                                    cudaMemcpyDeviceToDevice));
  OK(cudaGraphAddMemcpyNodeFromSymbol(&fromsym, g, &tosym, 1, e, symbol, 32 * 4, 32 * 4,
                                      cudaMemcpyDeviceToDevice));
  int v = 3, cnt = n;
  void* args[] = {&e, &v, &cnt};
  cudaKernelNodeParams kp{};
  kp.func = (void*)add;
  kp.gridDim = dim3(1);
  kp.blockDim = dim3(64);
  kp.kernelParams = args;
  OK(cudaGraphAddKernelNode(&k, g, &fromsym, 1, &kp));
  OK(cudaGraphAddMemcpyNode1D(&down, g, &k, 1, b.data(), e, n * 4, cudaMemcpyDeviceToHost));
  int calls = 0, calls2 = 0;
  cudaHostNodeParams hp{count, &calls};
  OK(cudaGraphAddHostNode(&host, g, &down, 1, &hp));
  cudaMemsetParams mp{};
  mp.dst = d;
  mp.value = 0x01;
  mp.elementSize = 1;
  mp.width = 16;
  mp.height = 4;
  mp.pitch = 64;
  OK(cudaGraphAddMemsetNode(&set, g, &host, 1, &mp));
  cudaEvent_t ev, ev2;
  OK(cudaEventCreate(&ev));
  OK(cudaEventCreate(&ev2));
  OK(cudaGraphAddEventRecordNode(&er, g, &set, 1, ev));
  OK(cudaGraphAddEventWaitNode(&ew, g, &er, 1, ev));
  OK(cudaGraphAddEmptyNode(&em, g, &ew, 1));
  cudaGraphExec_t x;
  OK(cudaGraphInstantiateWithFlags(&x, g, 0));
  unsigned long long fl = 9;
  OK(cudaGraphExecGetFlags(x, &fl));
  CHECK(fl == 0);
  OK(cudaGraphLaunch(x, s));
  OK(cudaStreamSynchronize(s));
  CHECK(b[0] == 8 && b[31] == 8 && b[32] == 3 && calls == 1);
  CHECK(cudaEventQuery(ev) == cudaSuccess);
  auto r = back(d, n);
  CHECK(r[0] == 0x01010101 && r[3] == 0x01010101 && r[4] == 5 && r[16] == 0x01010101 && r[20] == 5);
  // setters of the executable
  mp.value = 0;  // of several rows NVIDIA's driver changes nothing else
  OK(cudaGraphExecMemsetNodeSetParams(x, set, &mp));
  cudaHostNodeParams hq{count, &calls2};
  OK(cudaGraphExecHostNodeSetParams(x, host, &hq));
  OK(cudaGraphExecMemcpyNodeSetParams1D(x, up, d, c.data(), n * 4, cudaMemcpyHostToDevice));
  OK(cudaGraphExecMemcpyNodeSetParamsFromSymbol(x, fromsym, e, symbol, 16 * 4, 0,
                                                cudaMemcpyDeviceToDevice));
  OK(cudaGraphExecMemcpyNodeSetParamsToSymbol(x, tosym, symbol, d, n * 4, 0,
                                              cudaMemcpyDeviceToDevice));
  OK(cudaGraphExecEventRecordNodeSetEvent(x, er, ev2));
  OK(cudaGraphExecEventWaitNodeSetEvent(x, ew, ev2));
  v = 100;
  OK(cudaGraphExecKernelNodeSetParams(x, k, &kp));
  OK(cudaGraphLaunch(x, s));
  OK(cudaStreamSynchronize(s));
  CHECK(b[0] == 109 && b[15] == 109 && b[16] == 108 && calls == 1 && calls2 == 1);
  CHECK(back(d, n)[0] == 0);
  // setters of the graph
  cudaKernelNodeParams kq{};
  OK(cudaGraphKernelNodeGetParams(k, &kq));
  CHECK(kq.blockDim.x == 64 && kq.func == (void*)add && *(int*)kq.kernelParams[1] == 3);
  v = 2;
  kp.func = (void*)mul;
  OK(cudaGraphKernelNodeSetParams(k, &kp));
  cudaHostNodeParams hg{};
  OK(cudaGraphHostNodeGetParams(host, &hg));
  CHECK(hg.userData == &calls);
  OK(cudaGraphHostNodeSetParams(host, &hq));
  cudaMemsetParams mg{};
  OK(cudaGraphMemsetNodeGetParams(set, &mg));
  CHECK(mg.height == 4);
  OK(cudaGraphMemsetNodeSetParams(set, &mp));
  OK(cudaGraphMemcpyNodeSetParamsToSymbol(tosym, symbol, d, 64, 0, cudaMemcpyDeviceToDevice));
  OK(cudaGraphMemcpyNodeSetParamsFromSymbol(fromsym, e, symbol, 64, 0, cudaMemcpyDeviceToDevice));
  OK(cudaGraphMemcpyNodeSetParams1D(up, d, c.data(), 128, cudaMemcpyHostToDevice));
  cudaMemcpy3DParms cp{};
  OK(cudaGraphMemcpyNodeGetParams(down, &cp));
  CHECK(cp.extent.width == 256);
  OK(cudaGraphMemcpyNodeSetParams(down, &cp));
  cudaEvent_t eq;
  OK(cudaGraphEventRecordNodeGetEvent(er, &eq));
  CHECK(eq == ev);
  OK(cudaGraphEventRecordNodeSetEvent(er, ev2));
  OK(cudaGraphEventWaitNodeGetEvent(ew, &eq));
  OK(cudaGraphEventWaitNodeSetEvent(ew, ev2));
  cudaGraphExecUpdateResultInfo info{};
  cudaError_t ue = cudaGraphExecUpdate(x, g, &info);
  CHECK(ue == cudaSuccess && info.result == cudaGraphExecUpdateSuccess);
  if (ue) cudaGetLastError();
  OK(cudaGraphLaunch(x, s));
  OK(cudaStreamSynchronize(s));
  CHECK(b[0] == 18 && calls2 == 2);
  // topology
  size_t cn = 0;
  OK(cudaGraphGetRootNodes(g, nullptr, &cn));
  CHECK(cn == 1);
  cudaGraphNode_t root;
  OK(cudaGraphGetRootNodes(g, &root, &cn));
  CHECK(root == up);
  cn = 1;
  cudaGraphNode_t dep;
  OK(cudaGraphNodeGetDependencies(k, &dep, nullptr, &cn));
  CHECK(cn == 1 && dep == fromsym);
  cn = 1;
  OK(cudaGraphNodeGetDependentNodes(k, &dep, nullptr, &cn));
  CHECK(dep == down);
  OK(cudaGraphRemoveDependencies(g, &ew, &em, nullptr, 1));
  OK(cudaGraphAddDependencies(g, &host, &em, nullptr, 1));
  OK(cudaGraphDestroyNode(em));
  cn = 0;
  OK(cudaGraphGetNodes(g, nullptr, &cn));
  CHECK(cn == 9);
  unsigned en = 7;
  OK(cudaGraphNodeGetEnabled(x, k, &en));
  CHECK(en == 1);
  OK(cudaGraphNodeSetEnabled(x, k, 0));
  OK(cudaGraphLaunch(x, s));
  OK(cudaStreamSynchronize(s));
  CHECK(b[0] == 9);
  OK(cudaGraphNodeSetEnabled(x, k, 1));
  cudaLaunchAttributeValue av{};
  av.priority = 0;
  OK(cudaGraphKernelNodeSetAttribute(k, cudaLaunchAttributePriority, &av));
  cudaLaunchAttributeValue ag{};
  ag.priority = 77;
  OK(cudaGraphKernelNodeGetAttribute(k, cudaLaunchAttributePriority, &ag));
  CHECK(ag.priority == 0);
  OK(cudaGraphDebugDotPrint(g, "/tmp/graph_all.dot", cudaGraphDebugDotFlagsVerbose));
  std::ifstream f("/tmp/graph_all.dot");
  std::string t((std::istreambuf_iterator<char>(f)), {});
  CHECK(t.find("digraph") != std::string::npos);
  // user objects
  cudaUserObject_t o;
  OK(cudaUserObjectCreate(&o, &calls, destroy, 1, cudaUserObjectNoDestructorSync));
  OK(cudaGraphRetainUserObject(g, o, 1, cudaGraphUserObjectMove));
  cudaGraph_t g2;
  OK(cudaGraphClone(&g2, g));
  OK(cudaGraphReleaseUserObject(g2, o, 1));
  CHECK(destroyed == 0);
  OK(cudaGraphDestroy(g2));
  // memory nodes
  cudaGraph_t m;
  OK(cudaGraphCreate(&m, 0));
  cudaMemAllocNodeParams ap{};
  ap.poolProps.allocType = cudaMemAllocationTypePinned;
  ap.poolProps.location = {cudaMemLocationTypeDevice, 0};
  ap.bytesize = 1 << 20;
  cudaGraphNode_t al, mk, fr;
  OK(cudaGraphAddMemAllocNode(&al, m, nullptr, 0, &ap));
  CHECK(ap.dptr != nullptr);
  cudaMemsetParams ms{};
  ms.dst = ap.dptr;
  ms.value = 4;
  ms.elementSize = 4;
  ms.width = 100;
  ms.height = 1;
  cudaGraphNode_t mset;
  OK(cudaGraphAddMemsetNode(&mset, m, &al, 1, &ms));
  OK(cudaGraphAddMemcpyNode1D(&mk, m, &mset, 1, d, ap.dptr, 400, cudaMemcpyDeviceToDevice));
  OK(cudaGraphAddMemFreeNode(&fr, m, &mk, 1, ap.dptr));
  void* fp = nullptr;
  OK(cudaGraphMemFreeNodeGetParams(fr, &fp));
  CHECK(fp == ap.dptr);
  cudaMemAllocNodeParams aq{};
  OK(cudaGraphMemAllocNodeGetParams(al, &aq));
  CHECK(aq.bytesize == 1 << 20);
  cudaGraphExec_t mx;
  OK(cudaGraphInstantiate(&mx, m, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(mx, s));
  OK(cudaStreamSynchronize(s));
  CHECK(back(d, 100)[99] == 4);
  unsigned long long used = 0;
  OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &used));
  unsigned long long zero = 0;
  OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
  OK(cudaDeviceGraphMemTrim(0));
  // if, switch
  cudaGraph_t q;
  OK(cudaGraphCreate(&q, 0));
  cudaGraphConditionalHandle h;
  OK(cudaGraphConditionalHandleCreate(&h, q, 0, cudaGraphCondAssignDefault));
  cudaGraphNode_t dn, cond;
  void* dargs[] = {&h, &d};
  cudaKernelNodeParams dp{};
  dp.func = (void*)decide;
  dp.gridDim = dim3(1);
  dp.blockDim = dim3(1);
  dp.kernelParams = dargs;
  OK(cudaGraphAddKernelNode(&dn, q, nullptr, 0, &dp));
  cudaGraphNodeParams cpar{};
  cpar.type = cudaGraphNodeTypeConditional;
  cpar.conditional.handle = h;
  cpar.conditional.type = cudaGraphCondTypeSwitch;
  cpar.conditional.size = 3;
  OK(cudaGraphAddNode(&cond, q, &dn, nullptr, 1, &cpar));
  for (int i = 0; i < 3; ++i) {
    int w = 10 * (i + 1);
    int one = 1;
    void* aa[] = {&e, &w, &one};
    cudaKernelNodeParams pp{};
    pp.func = (void*)add;
    pp.gridDim = dim3(1);
    pp.blockDim = dim3(1);
    pp.kernelParams = aa;
    cudaGraphNode_t nn;
    OK(cudaGraphAddKernelNode(&nn, cpar.conditional.phGraph_out[i], nullptr, 0, &pp));
  }
  cudaGraphExec_t qx;
  OK(cudaGraphInstantiate(&qx, q, 0));
  OK(cudaMemset(e, 0, 4));
  for (int i : {0, 1, 2, 5, 1}) {
    OK(cudaMemcpy(d, &i, 4, cudaMemcpyHostToDevice));
    OK(cudaGraphLaunch(qx, s));
    OK(cudaStreamSynchronize(s));
  }
  CHECK(back(e, 1)[0] == 10 + 20 + 30 + 20);
  cudaGraph_t ifg;
  OK(cudaGraphCreate(&ifg, 0));
  OK(cudaGraphConditionalHandleCreate(&h, ifg, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams ip{};
  ip.type = cudaGraphNodeTypeConditional;
  ip.conditional.handle = h;
  ip.conditional.type = cudaGraphCondTypeIf;
  ip.conditional.size = 2;
  cudaGraphNode_t in;
  OK(cudaGraphAddNode(&in, ifg, nullptr, nullptr, 0, &ip));
  for (int i = 0; i < 2; ++i) {
    OK(cudaStreamBeginCaptureToGraph(s, ip.conditional.phGraph_out[i], nullptr, nullptr, 0,
                                     cudaStreamCaptureModeRelaxed));
    add<<<1, 1, 0, s>>>(e, 1000 + i, 1);
    OK(cudaStreamEndCapture(s, nullptr));
  }
  cudaGraphInstantiateParams gip{};
  gip.flags = cudaGraphInstantiateFlagUpload;
  gip.uploadStream = s;
  cudaGraphExec_t ix;
  OK(cudaGraphInstantiateWithParams(&ix, ifg, &gip));
  CHECK(gip.result_out == cudaGraphInstantiateSuccess);
  OK(cudaGraphLaunch(ix, s));
  OK(cudaStreamSynchronize(s));
  CHECK(back(e, 1)[0] == 1080);
  // child graph executable changed; capture info; dependencies updated
  cudaGraph_t ch, par;
  OK(cudaGraphCreate(&ch, 0));
  int w = 1, one = 1;
  void* ca[] = {&e, &w, &one};
  cudaKernelNodeParams cp2{};
  cp2.func = (void*)add;
  cp2.gridDim = dim3(1);
  cp2.blockDim = dim3(1);
  cp2.kernelParams = ca;
  cudaGraphNode_t cn1, cnode;
  OK(cudaGraphAddKernelNode(&cn1, ch, nullptr, 0, &cp2));
  OK(cudaGraphCreate(&par, 0));
  OK(cudaGraphAddChildGraphNode(&cnode, par, nullptr, 0, ch));
  cudaGraph_t inner;
  OK(cudaGraphChildGraphNodeGetGraph(cnode, &inner));
  CHECK(inner != ch);
  cudaGraphExec_t px;
  OK(cudaGraphInstantiate(&px, par, 0));
  w = 50;
  OK(cudaGraphKernelNodeSetParams(cn1, &cp2));
  OK(cudaGraphExecChildGraphNodeSetParams(px, cnode, ch));
  OK(cudaGraphLaunch(px, s));
  OK(cudaStreamSynchronize(s));
  CHECK(back(e, 1)[0] == 1130);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  add<<<1, 1, 0, s>>>(e, 1, 1);
  cudaStreamCaptureStatus st;
  unsigned long long id;
  cudaGraph_t cg;
  const cudaGraphNode_t* deps;
  size_t nd;
  OK(cudaStreamGetCaptureInfo(s, &st, &id, &cg, &deps, nullptr, &nd));
  CHECK(st == cudaStreamCaptureStatusActive && nd == 1);
  cudaGraphNode_t extra;
  OK(cudaGraphAddKernelNode(&extra, cg, deps, nd, &cp2));
  OK(cudaStreamUpdateCaptureDependencies(s, &extra, nullptr, 1, cudaStreamSetCaptureDependencies));
  add<<<1, 1, 0, s>>>(e, 2, 1);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  int* tmp;
  OK(cudaMalloc(&tmp, 64));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  cudaGraph_t cap;
  OK(cudaStreamEndCapture(s, &cap));
  cudaGraphExec_t cx;
  OK(cudaGraphInstantiate(&cx, cap, 0));
  OK(cudaGraphLaunch(cx, s));
  OK(cudaStreamSynchronize(s));
  CHECK(back(e, 1)[0] == 1183);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecordWithFlags(ev, s, cudaEventRecordExternal));
  add<<<1, 1, 0, s>>>(e, 1, 1);
  OK(cudaEventRecordWithFlags(ev2, s, cudaEventRecordExternal));
  OK(cudaStreamEndCapture(s, &cap));
  OK(cudaGraphInstantiate(&cx, cap, 0));
  OK(cudaGraphLaunch(cx, s));
  OK(cudaStreamSynchronize(s));
  float ms2 = -1;
  OK(cudaEventElapsedTime(&ms2, ev, ev2));
  CHECK(ms2 >= 0);
  cudaGraphNodeParams np{};
  np.type = cudaGraphNodeTypeKernel;
  np.kernel.func = (void*)add;
  np.kernel.gridDim = dim3(1);
  np.kernel.blockDim = dim3(1);
  np.kernel.kernelParams = ca;
  w = 7;
  OK(cudaGraphNodeSetParams(cn1, &np));
  cudaGraphExec_t hx;
  OK(cudaGraphInstantiate(&hx, ch, 0));
  w = 8;
  OK(cudaGraphExecNodeSetParams(hx, cn1, &np));
  OK(cudaGraphLaunch(hx, s));
  OK(cudaStreamSynchronize(s));
  CHECK(back(e, 1)[0] == 1192);
  OK(cudaGraphDestroy(g));
  OK(cudaGraphExecDestroy(x));
  OK(cudaDeviceSynchronize());
  CHECK(destroyed == 1);
  return result();
}
