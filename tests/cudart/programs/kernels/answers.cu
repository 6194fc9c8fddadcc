// SPDX-License-Identifier: Apache-2.0
// Prints what calls answer to what is wrong or on the edge: a line each, to be compared with
// NVIDIA's own runtime. Nothing here is checked by itself.
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

__device__ int variable = 1;
__constant__ char few[3];
__global__ void kernel(int* p) { *p = 1; }
__global__ void __launch_bounds__(64) bounded(int* p) { *p = 1; }

#define SAY(call)                                                                           \
  do {                                                                                      \
    const cudaError_t e_ = (call);                                                          \
    const cudaError_t last_ = cudaGetLastError();                                           \
    std::printf("%s: %d, then %d\n", #call, static_cast<int>(e_), static_cast<int>(last_)); \
  } while (0)
#define LAUNCH(...)                                                              \
  do {                                                                           \
    __VA_ARGS__;                                                                 \
    std::printf("%s: %d\n", #__VA_ARGS__, static_cast<int>(cudaGetLastError())); \
  } while (0)

int main() {
  int* p = nullptr;
  int here = 0, n = 0;
  void* v = nullptr;
  size_t size = 0;
  SAY(cudaMalloc(&p, 1024));
  void* args[] = {&p};
  LAUNCH(kernel<<<0, 1>>>(p));
  LAUNCH(kernel<<<1, 0>>>(p));
  LAUNCH(kernel<<<1, 1025>>>(p));
  LAUNCH(kernel<<<dim3(1, 70000), 1>>>(p));
  LAUNCH(kernel<<<1, dim3(1, 1, 65)>>>(p));
  LAUNCH(bounded<<<1, 65>>>(p));
  LAUNCH(kernel<<<1, 1, 49153>>>(p));
  LAUNCH(kernel<<<1, 1, 1 << 28>>>(p));
  SAY(cudaLaunchKernel((void*)kernel, dim3(0), dim3(1), args, 0, nullptr));
  SAY(cudaLaunchKernel((void*)kernel, dim3(1), dim3(4096), args, 0, nullptr));
  SAY(cudaLaunchKernel((void*)kernel, dim3(1), dim3(1), args, size_t{1} << 33, nullptr));
  SAY(cudaLaunchKernel((void*)&here, dim3(1), dim3(1), args, 0, nullptr));
  SAY(cudaLaunchKernel(nullptr, dim3(1), dim3(1), args, 0, nullptr));
  SAY(cudaLaunchCooperativeKernel((void*)kernel, dim3(1 << 20), dim3(1024), args, 0, nullptr));
  SAY(cudaLaunchCooperativeKernel((void*)&here, dim3(1), dim3(1), args, 0, nullptr));
  SAY(cudaLaunchKernelExC(nullptr, (void*)kernel, args));
  SAY(cudaDeviceSynchronize());

  cudaFuncAttributes fa;
  SAY(cudaFuncGetAttributes(nullptr, (void*)kernel));
  SAY(cudaFuncGetAttributes(&fa, nullptr));
  SAY(cudaFuncGetAttributes(&fa, &here));
  SAY(cudaFuncSetAttribute((void*)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, -5));
  SAY(cudaFuncSetAttribute((void*)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
  SAY(cudaFuncSetAttribute((void*)kernel, static_cast<cudaFuncAttribute>(99), 1));
  SAY(cudaFuncSetAttribute(&here, cudaFuncAttributeMaxDynamicSharedMemorySize, 1));
  SAY(cudaFuncSetCacheConfig(&here, cudaFuncCachePreferL1));
  SAY(cudaFuncSetCacheConfig((void*)kernel, static_cast<cudaFuncCache>(9)));
  SAY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, &here, 64, 0));
  SAY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, (void*)kernel, 64, 0));
  SAY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, (void*)kernel, -1, 0));
  SAY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, (void*)kernel, 5000, 0));
  cudaFunction_t function = nullptr;
  cudaKernel_t handle = nullptr;
  SAY(cudaGetFuncBySymbol(&function, &here));
  SAY(cudaGetFuncBySymbol(&function, nullptr));
  SAY(cudaGetKernel(&handle, &here));
  SAY(cudaGetKernel(nullptr, (void*)kernel));
  const char* name = nullptr;
  SAY(cudaFuncGetName(&name, (void*)kernel));
  SAY(cudaFuncGetParamInfo((void*)kernel, 0, &size, &size));
  SAY(cudaFuncGetParamInfo((void*)kernel, 1, &size, &size));

  SAY(cudaMalloc(nullptr, 4));
  SAY(cudaMalloc(&v, 0));
  std::printf("%d\n", v == nullptr);
  SAY(cudaMalloc(&v, size_t{1} << 62));
  SAY(cudaMallocManaged(&v, 0));
  std::printf("%d\n", v == nullptr);
  SAY(cudaMallocManaged(&v, 64, 99));
  SAY(cudaMallocHost(&v, 0));
  std::printf("%d\n", v == nullptr);
  SAY(cudaHostAlloc(&v, 64, 0xFF00));
  SAY(cudaHostAlloc(nullptr, 64, 0));
  SAY(cudaMallocPitch(&v, &size, 0, 10));
  std::printf("%d %zu\n", v == nullptr, size);
  SAY(cudaMallocPitch(&v, nullptr, 10, 10));
  SAY(cudaMallocPitch(nullptr, &size, 10, 10));
  cudaPitchedPtr pitched = {};
  SAY(cudaMalloc3D(&pitched, make_cudaExtent(0, 3, 3)));
  SAY(cudaMalloc3D(&pitched, make_cudaExtent(16, SIZE_MAX / 2, 4)));
  SAY(cudaFree(&here));
  SAY(cudaFree(p + 1));
  SAY(cudaFreeHost(&here));
  SAY(cudaFreeHost(p));
  SAY(cudaFreeAsync(nullptr, 0));
  SAY(cudaFreeAsync(&here, 0));
  SAY(cudaHostRegister(nullptr, 64, 0));
  SAY(cudaHostRegister(&here, 0, 0));
  SAY(cudaHostUnregister(&here));
  SAY(cudaHostGetDevicePointer(&v, &here, 0));
  unsigned flags = 0;
  SAY(cudaHostGetFlags(&flags, &here));
  cudaPointerAttributes pa;
  SAY(cudaPointerGetAttributes(nullptr, &here));
  SAY(cudaPointerGetAttributes(&pa, nullptr));
  std::printf("%d %d %d %d\n", pa.type, pa.device, pa.devicePointer == nullptr,
              pa.hostPointer == nullptr);
  SAY(cudaPointerGetAttributes(&pa, &here));
  std::printf("%d %d %d %d\n", pa.type, pa.device, pa.devicePointer == nullptr,
              pa.hostPointer == &here);
  SAY(cudaPointerGetAttributes(&pa, p + 3));
  std::printf("%d %d %d %d\n", pa.type, pa.device, pa.devicePointer == p + 3,
              pa.hostPointer == nullptr);

  SAY(cudaMemcpy(p, &here, 4, cudaMemcpyDeviceToHost));
  SAY(cudaMemcpy(&here, &n, 4, cudaMemcpyDeviceToDevice));
  SAY(cudaMemcpy(&here, &n, 4, cudaMemcpyHostToDevice));
  SAY(cudaMemcpy(&here, p, 4, cudaMemcpyHostToHost));
  SAY(cudaMemcpy(p, &here, 4, static_cast<cudaMemcpyKind>(5)));
  SAY(cudaMemcpy(p, &here, 0, static_cast<cudaMemcpyKind>(5)));
  SAY(cudaMemcpy(nullptr, nullptr, 4, cudaMemcpyDefault));
  SAY(cudaMemcpy(p, &here, 2048, cudaMemcpyDeviceToDevice));
  SAY(cudaMemcpyAsync(p, nullptr, 4, cudaMemcpyHostToDevice, 0));
  SAY(cudaMemset(nullptr, 0, 4));
  SAY(cudaMemset(nullptr, 0, 0));
  SAY(cudaMemset(&here, 0, 4));
  SAY(cudaMemset2D(p, 4, 0, 8, 2));
  SAY(cudaMemset2D(p, 4, 0, 8, 1));
  SAY(cudaMemset3D(make_cudaPitchedPtr(p, 16, 16, 2), 0, make_cudaExtent(16, 3, 1)));
  SAY(cudaMemset3D(make_cudaPitchedPtr(p, 8, 16, 2), 0, make_cudaExtent(16, 2, 1)));
  SAY(cudaMemcpy2D(p, 3, &here, 4, 4, 1, cudaMemcpyHostToDevice));
  SAY(cudaMemcpy2D(p, 4, &here, 3, 4, 1, cudaMemcpyHostToDevice));
  SAY(cudaMemcpy2D(p, 4, &here, 4, 0, 1, cudaMemcpyHostToDevice));
  SAY(cudaMemcpy2D(p, 4, &here, 4, 4, 1, static_cast<cudaMemcpyKind>(7)));
  cudaMemcpy3DParms box = {};
  SAY(cudaMemcpy3D(&box));
  SAY(cudaMemcpy3D(nullptr));
  box.srcPtr = make_cudaPitchedPtr(&here, 4, 4, 1);
  box.dstPtr = make_cudaPitchedPtr(p, 4, 4, 1);
  box.extent = make_cudaExtent(8, 1, 1);
  box.kind = cudaMemcpyHostToDevice;
  SAY(cudaMemcpy3D(&box));
  box.extent = make_cudaExtent(0, 0, 0);
  SAY(cudaMemcpy3D(&box));

  SAY(cudaGetSymbolAddress(&v, static_cast<const void*>(&here)));
  SAY(cudaGetSymbolAddress(&v, static_cast<const void*>(nullptr)));
  SAY(cudaGetSymbolAddress(nullptr, variable));
  SAY(cudaGetSymbolSize(&size, few));
  std::printf("%zu\n", size);
  SAY(cudaMemcpyToSymbol(few, "abcd", 4));
  SAY(cudaMemcpyToSymbol(few, "abcd", 2, 2));
  SAY(cudaMemcpyToSymbol(few, "abcd", 0, 99));
  SAY(cudaMemcpyToSymbol(few, "abcd", 2, 0, cudaMemcpyHostToHost));
  SAY(cudaMemcpyFromSymbol(&here, variable, 4, 0, cudaMemcpyHostToDevice));
  SAY(cudaMemcpyFromSymbol(&n, here, 4));

  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr, other = nullptr;
  float ms = 0;
  SAY(cudaStreamCreate(nullptr));
  SAY(cudaStreamCreateWithFlags(&stream, 77));
  SAY(cudaStreamCreateWithPriority(&stream, cudaStreamDefault, -100));
  SAY(cudaStreamDestroy(nullptr));
  SAY(cudaStreamSynchronize(nullptr));
  SAY(cudaStreamQuery(cudaStreamLegacy));
  SAY(cudaStreamGetFlags(nullptr, &flags));
  SAY(cudaStreamGetFlags(nullptr, nullptr));
  SAY(cudaStreamWaitEvent(nullptr, nullptr, 0));
  SAY(cudaEventCreateWithFlags(&event, 99));
  SAY(cudaEventCreate(&event));
  SAY(cudaEventCreate(&other));
  SAY(cudaEventQuery(event));
  SAY(cudaEventSynchronize(event));
  SAY(cudaEventElapsedTime(&ms, event, other));
  SAY(cudaEventRecord(event, 0));
  SAY(cudaEventElapsedTime(nullptr, event, event));
  SAY(cudaEventDestroy(nullptr));
  SAY(cudaEventRecord(nullptr, 0));
  SAY(cudaEventQuery(nullptr));
  SAY(cudaLaunchHostFunc(0, nullptr, nullptr));
  SAY(cudaStreamAddCallback(0, nullptr, nullptr, 0));

  SAY(cudaSetDevice(-1));
  SAY(cudaSetDevice(1000));
  SAY(cudaGetDevice(nullptr));
  SAY(cudaGetDeviceCount(nullptr));
  SAY(cudaDeviceGetAttribute(&n, static_cast<cudaDeviceAttr>(9999), 0));
  SAY(cudaDeviceGetAttribute(nullptr, cudaDevAttrWarpSize, 0));
  SAY(cudaDeviceGetAttribute(&n, cudaDevAttrWarpSize, 1000));
  cudaDeviceProp properties;
  SAY(cudaGetDeviceProperties(nullptr, 0));
  SAY(cudaGetDeviceProperties(&properties, -1));
  SAY(cudaSetDeviceFlags(0xF000));
  SAY(cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceScheduleYield));
  SAY(cudaSetDeviceFlags(cudaDeviceScheduleAuto));
  SAY(cudaGetDeviceFlags(&flags));
  std::printf("%u\n", flags);
  SAY(cudaGetDeviceFlags(nullptr));
  SAY(cudaInitDevice(0, 0, 7));
  SAY(cudaInitDevice(1000, 0, 0));
  SAY(cudaSetValidDevices(nullptr, 0));
  SAY(cudaSetValidDevices(nullptr, 1));
  char id[32];
  SAY(cudaDeviceGetPCIBusId(nullptr, 8, 0));
  SAY(cudaDeviceGetPCIBusId(id, 2, 0));
  SAY(cudaDeviceGetPCIBusId(id, 32, 1000));
  SAY(cudaDeviceGetByPCIBusId(&n, "nonsense"));
  SAY(cudaDeviceGetByPCIBusId(&n, nullptr));
  SAY(cudaDeviceCanAccessPeer(&n, 0, 0));
  SAY(cudaDeviceCanAccessPeer(&n, 0, 1000));
  SAY(cudaDeviceEnablePeerAccess(0, 0));
  SAY(cudaDeviceEnablePeerAccess(1000, 0));
  SAY(cudaDeviceEnablePeerAccess(0, 3));
  SAY(cudaDeviceDisablePeerAccess(0));
  SAY(cudaDeviceDisablePeerAccess(1000));
  SAY(cudaDeviceGetP2PAttribute(&n, cudaDevP2PAttrAccessSupported, 0, 0));
  SAY(cudaMemcpyPeer(p, 0, p + 4, 0, 4));
  SAY(cudaMemcpyPeer(p, 0, p + 4, 1000, 4));
  SAY(cudaDeviceSetLimit(static_cast<cudaLimit>(99), 1));
  SAY(cudaDeviceGetLimit(&size, static_cast<cudaLimit>(99)));
  SAY(cudaDeviceGetLimit(nullptr, cudaLimitStackSize));
  SAY(cudaDeviceSetCacheConfig(static_cast<cudaFuncCache>(9)));
  SAY(cudaDeviceSetCacheConfig(cudaFuncCachePreferShared));
  SAY(cudaRuntimeGetVersion(nullptr));
  SAY(cudaDriverGetVersion(nullptr));
  SAY(cudaProfilerStart());
  SAY(cudaProfilerStop());

  cudaDriverEntryPointQueryResult status;
  SAY(cudaGetDriverEntryPointByVersion("cuNothing", &v, 13000, cudaEnableDefault, &status));
  std::printf("%d %d\n", status, v == nullptr);
  SAY(cudaGetDriverEntryPointByVersion("cuNothing", &v, 13000, cudaEnableDefault, nullptr));
  SAY(cudaGetDriverEntryPointByVersion(nullptr, &v, 13000, cudaEnableDefault, &status));
  SAY(cudaGetDriverEntryPointByVersion("cuInit", nullptr, 13000, cudaEnableDefault, &status));
  SAY(cudaGetDriverEntryPointByVersion("", &v, 13000, cudaEnableDefault, &status));
  SAY(cudaGetDriverEntryPointByVersion("cuMemAlloc", &v, 3020, cudaEnableDefault, &status));
  SAY(cudaGetDriverEntryPointByVersion("cuGraphCreate", &v, 3020, cudaEnableDefault, &status));
  std::printf("%d\n", status);
  SAY(cudaGetDriverEntryPointByVersion("cuInit", &v, 13000, 77, &status));

  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr;
  cudaGraphExec_t exec = nullptr;
  SAY(cudaGraphCreate(nullptr, 0));
  SAY(cudaGraphCreate(&graph, 5));
  SAY(cudaGraphCreate(&graph, 0));
  cudaKernelNodeParams k = {};
  SAY(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &k));
  SAY(cudaGraphAddKernelNode(&node, graph, nullptr, 0, nullptr));
  SAY(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, p, &here, 4,
                               static_cast<cudaMemcpyKind>(8)));
  SAY(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, nullptr));
  SAY(cudaGraphInstantiate(nullptr, graph, 0));
  SAY(cudaGraphInstantiate(&exec, nullptr, 0));
  SAY(cudaGraphLaunch(nullptr, 0));
  SAY(cudaStreamEndCapture(0, &graph));
  SAY(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal));

  std::printf("%s\n", cudaGetErrorName(static_cast<cudaError_t>(54321)));
  std::printf("%s\n", cudaGetErrorString(static_cast<cudaError_t>(54321)));
  SAY(cudaPeekAtLastError());
  SAY(cudaDeviceReset());
  SAY(cudaFree(p));
  return 0;
}
