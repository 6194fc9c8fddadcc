// SPDX-License-Identifier: Apache-2.0
// Functions of the driver API that no other program here calls, each also wrongly: the same program
// runs through the channel and on the software GPU alone, and both answer alike.
//
//   driver-calls FILE     exit 0 if everything came out right; what did not is printed. FILE may be
//                         written.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/system/programs/expect.h"

namespace {

constexpr CUresult kBadHandle = CUDA_ERROR_INVALID_HANDLE;
constexpr CUresult kNoDevice = CUDA_ERROR_INVALID_DEVICE;

const char* const kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 number = 42;
.visible .entry nothing() { ret; }
.visible .entry store(.param .u64 out, .param .u32 value)
{
  .reg .b64 %d<2>; .reg .b32 %r<2>;
  ld.param.u64 %d1, [out]; ld.param.u32 %r1, [value];
  st.global.u32 [%d1], %r1;
  ret;
}
)";

CUcontext context;
CUmodule module;
CUfunction store;

template <class Handle>
Handle nobody() {
  return reinterpret_cast<Handle>(uint64_t{0x77770});
}

void devices() {
  char text[64] = {};
  CUdevice device = 9;
  OK(cuDeviceGetPCIBusId(text, sizeof text, 0));
  EXPECT(std::strlen(text) >= 12);
  ANSWERS(kInvalid, cuDeviceGetPCIBusId(nullptr, sizeof text, 0));
  ANSWERS(kNoDevice, cuDeviceGetPCIBusId(text, sizeof text, 9));
  OK(cuDeviceGetByPCIBusId(&device, text));
  EXPECT(device == 0);
  ANSWERS(kInvalid, cuDeviceGetByPCIBusId(nullptr, text));
  int major = 0, minor = -1, attribute = 0, yes = 7;
  OK(cuDeviceComputeCapability(&major, &minor, 0));
  OK(cuDeviceGetAttribute(&attribute, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  EXPECT(major == attribute && minor >= 0);
  ANSWERS(kNoDevice, cuDeviceComputeCapability(&major, &minor, 9));
  CUdevprop properties{};
  OK(cuDeviceGetProperties(&properties, 0));
  EXPECT(properties.SIMDWidth == 32);
  ANSWERS(kNoDevice, cuDeviceGetProperties(&properties, 9));
  CUuuid uuid{};
  OK(cuDeviceGetUuid(&uuid, 0));
  ANSWERS(kNoDevice, cuDeviceGetUuid(&uuid, 9));
  size_t bytes = 0;
  OK(cuDeviceTotalMem(&bytes, 0));
  EXPECT(bytes != 0);
  ANSWERS(kNoDevice, cuDeviceTotalMem(&bytes, 9));
  OK(cuDeviceCanAccessPeer(&yes, 0, 0));
  EXPECT(yes == 0);
  ANSWERS(kInvalid, cuDeviceCanAccessPeer(nullptr, 0, 0));
  ANSWERS(kInvalid, cuDeviceGetExecAffinitySupport(nullptr, static_cast<CUexecAffinityType>(0), 0));
}

// What needs a current context, in a thread that has none.
void without_context() {
  CUdevice device = 9;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  CUmodule loaded = nullptr;
  void* host = nullptr;
  size_t bytes = 0, total = 0;
  int least = 0, greatest = 0;
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetStreamPriorityRange(&least, &greatest));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreateWithPriority(&stream, 0, 0));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuEventCreate(&event, 0));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo(&bytes, &total));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocPitch(&memory, &bytes, 64, 4, 4));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocHost(&host, 64));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemHostAlloc(&host, 64, 0));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync(&memory, 64, nullptr));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuModuleLoadFatBinary(&loaded, kPtx));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuProfilerStart());
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuProfilerStop());
  EXPECT(device == 9 && stream == nullptr && event == nullptr && memory == 0);
  EXPECT(host == nullptr && loaded == nullptr);
}

void contexts() {
  unsigned flags = 77, version = 0;
  unsigned long long id = 0;
  OK(cuCtxGetFlags(&flags));
  OK(cuCtxSetFlags(flags & CU_CTX_SCHED_MASK));
  ANSWERS(kInvalid, cuCtxGetFlags(nullptr));
  OK(cuCtxGetId(context, &id));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetId(nobody<CUcontext>(), &id));
  OK(cuCtxGetApiVersion(context, &version));
  EXPECT(version != 0);
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetApiVersion(nobody<CUcontext>(), &version));
  CUfunc_cache cache{};
  OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  OK(cuCtxGetCacheConfig(&cache));
  ANSWERS(kInvalid, cuCtxGetCacheConfig(nullptr));
  CUsharedconfig shared{};
  OK(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  OK(cuCtxGetSharedMemConfig(&shared));
  ANSWERS(kInvalid, cuCtxGetSharedMemConfig(nullptr));
  OK(cuCtxResetPersistingL2Cache());
  CUcontext none = nullptr;
  OK(cuCtxPopCurrent(&none));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetFlags(&flags));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetFlags(0));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT,
          cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxResetPersistingL2Cache());
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(&none));
  without_context();
  OK(cuCtxPushCurrent(context));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  ANSWERS(kInvalid, cuThreadExchangeStreamCaptureMode(nullptr));
}

void functions() {
  CUmodule of = nullptr;
  OK(cuFuncGetModule(&of, store));
  EXPECT(of == module);
  unsigned count = 0;
  CUfunction all[3] = {};
  OK(cuModuleGetFunctionCount(&count, module));
  EXPECT(count == 2);
  OK(cuModuleEnumerateFunctions(all, 3, module));
  EXPECT((all[0] == store || all[1] == store) && all[0] != all[1] && all[2] == nullptr);
  ANSWERS(kInvalid, cuFuncGetModule(nullptr, store));
  ANSWERS(kBadHandle, cuFuncGetModule(&of, nobody<CUfunction>()));
  CUfunctionLoadingState loaded{};
  OK(cuFuncLoad(store));
  ANSWERS(kBadHandle, cuFuncLoad(nobody<CUfunction>()));
  OK(cuFuncIsLoaded(&loaded, store));
  EXPECT(loaded == CU_FUNCTION_LOADING_STATE_LOADED);
  ANSWERS(kInvalid, cuFuncIsLoaded(nullptr, store));
  OK(cuFuncSetCacheConfig(store, CU_FUNC_CACHE_PREFER_SHARED));
  ANSWERS(kBadHandle, cuFuncSetCacheConfig(nobody<CUfunction>(), CU_FUNC_CACHE_PREFER_SHARED));
  OK(cuFuncSetSharedMemConfig(store, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  ANSWERS(kBadHandle,
          cuFuncSetSharedMemConfig(nobody<CUfunction>(), CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  int grid = 0, block = 0;
  OK(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, store, nullptr, 0, 0, 0));
  EXPECT(grid > 0 && block > 0);
  ANSWERS(kInvalid,
          cuOccupancyMaxPotentialBlockSizeWithFlags(nullptr, &block, store, nullptr, 0, 0, 0));
  CUmoduleLoadingMode mode{};
  OK(cuModuleGetLoadingMode(&mode));
  ANSWERS(kInvalid, cuModuleGetLoadingMode(nullptr));
}

void libraries(const char* path) {
  CUlibrary library = nullptr, of = nullptr;
  CUkernel kernel = nullptr;
  ANSWERS(CUDA_ERROR_FILE_NOT_FOUND, cuLibraryLoadFromFile(&library, "/nowhere/at all", nullptr,
                                                           nullptr, 0, nullptr, nullptr, 0));
  std::ofstream(path) << kPtx;
  OK(cuLibraryLoadFromFile(&library, path, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&kernel, library, "store"));
  OK(cuKernelGetLibrary(&of, kernel));
  EXPECT(of == library);
  ANSWERS(kInvalid, cuKernelGetLibrary(nullptr, kernel));
  ANSWERS(kBadHandle, cuKernelGetLibrary(&of, nobody<CUkernel>()));
  const char* name = nullptr;
  OK(cuKernelGetName(&name, kernel));
  EXPECT(name != nullptr && std::strcmp(name, "store") == 0);
  ANSWERS(kInvalid, cuKernelGetName(nullptr, kernel));
  int value = 0;
  OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
  EXPECT(value >= 1);
  ANSWERS(kInvalid,
          cuKernelGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
  OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, kernel, 0));
  ANSWERS(kInvalid, cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024, kernel, 0));
  OK(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 0));
  ANSWERS(kBadHandle, cuKernelSetCacheConfig(nobody<CUkernel>(), CU_FUNC_CACHE_PREFER_L1, 0));
  CUdeviceptr number = 0;
  size_t bytes = 0;
  OK(cuLibraryGetGlobal(&number, &bytes, library, "number"));
  EXPECT(bytes == 4);
  uint32_t got = 0;
  OK(cuMemcpyDtoH(&got, number, 4));
  EXPECT(got == 42);
  ANSWERS(CUDA_ERROR_NOT_FOUND, cuLibraryGetGlobal(&number, &bytes, library, "nobody"));
  unsigned count = 0;
  CUkernel all[3] = {};
  OK(cuLibraryGetKernelCount(&count, library));
  EXPECT(count == 2);
  OK(cuLibraryEnumerateKernels(all, 3, library));
  EXPECT((all[0] == kernel || all[1] == kernel) && all[0] != all[1] && all[2] == nullptr);
  ANSWERS(kInvalid, cuLibraryGetKernelCount(nullptr, library));
  ANSWERS(kInvalid, cuLibraryEnumerateKernels(nullptr, 1, library));
  OK(cuLibraryUnload(library));
  ANSWERS(kBadHandle, cuLibraryGetKernelCount(&count, library));
  ANSWERS(kBadHandle, cuLibraryEnumerateKernels(all, 1, library));
  ANSWERS(kBadHandle, cuLibraryGetGlobal(&number, &bytes, library, "number"));

  CUlinkState link = nullptr;
  void* image = nullptr;
  OK(cuLinkCreate(0, nullptr, nullptr, &link));
  ANSWERS(CUDA_ERROR_FILE_NOT_FOUND,
          cuLinkAddFile(link, CU_JIT_INPUT_PTX, "/nowhere/at all", 0, nullptr, nullptr));
  OK(cuLinkAddFile(link, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr));
  OK(cuLinkComplete(link, &image, &bytes));
  EXPECT(image != nullptr && bytes != 0);
  OK(cuLinkDestroy(link));
}

void memory() {
  constexpr size_t kBytes = 4096;
  CUdeviceptr a = 0, b = 0;
  OK(cuMemAlloc(&a, kBytes));
  OK(cuMemAlloc(&b, kBytes));
  std::vector<uint8_t> bytes(kBytes);
  const auto read_back = [&] {
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(bytes.data(), a, kBytes));
  };
  OK(cuMemsetD8(a, 0, kBytes));
  OK(cuMemsetD16Async(a, 0x1234, 16, nullptr));
  OK(cuMemsetD2D8Async(a + 512, 64, 5, 8, 2, nullptr));
  OK(cuMemsetD2D16(a + 1024, 64, 0x0607, 4, 2));
  OK(cuMemsetD2D16Async(a + 1536, 64, 0x0809, 4, 2, nullptr));
  OK(cuMemsetD2D32Async(a + 2048, 64, 0x0a0b0c0d, 2, 2, nullptr));
  read_back();
  EXPECT(bytes[30] == 0x34 && bytes[31] == 0x12 && bytes[32] == 0);
  EXPECT(bytes[512 + 7] == 5 && bytes[512 + 8] == 0 && bytes[512 + 64] == 5 && bytes[640] == 0);
  EXPECT(bytes[1024 + 7] == 6 && bytes[1024 + 8] == 0 && bytes[1024 + 64] == 7);
  EXPECT(bytes[1536 + 7] == 8 && bytes[1536 + 64] == 9);
  EXPECT(bytes[2048 + 7] == 0x0a && bytes[2048 + 8] == 0 && bytes[2048 + 64] == 0x0d);
  ANSWERS(kInvalid, cuMemsetD16Async(a + 1, 1, 4, nullptr));
  ANSWERS(kInvalid, cuMemsetD16Async(a, 1, kBytes, nullptr));
  ANSWERS(kInvalid, cuMemsetD2D8Async(a, 4, 5, 8, 2, nullptr));
  ANSWERS(kInvalid, cuMemsetD2D16(a + 1, 64, 5, 8, 2));
  ANSWERS(kInvalid, cuMemsetD2D16Async(a, 64, 5, 8, 1000, nullptr));
  ANSWERS(kInvalid, cuMemsetD2D32Async(a + 2, 64, 5, 8, 2, nullptr));

  OK(cuMemsetD8(b, 9, kBytes));
  OK(cuMemcpyAsync(a, b, 100, nullptr));
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = b, rows.srcPitch = 64;
  rows.dstDevice = a + 400, rows.dstPitch = 32;
  rows.WidthInBytes = 7, rows.Height = 3;
  OK(cuMemcpy2DUnaligned(&rows));
  read_back();
  EXPECT(bytes[99] == 9 && bytes[100] == 0);
  EXPECT(bytes[400 + 64 + 6] == 9 && bytes[400 + 64 + 7] == 0);
  ANSWERS(kInvalid, cuMemcpyAsync(a, 0, 100, nullptr));
  rows.dstPitch = 6;
  ANSWERS(kInvalid, cuMemcpy2DUnaligned(&rows));
  const unsigned yes = 1;
  OK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
  ANSWERS(kInvalid, cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
  ANSWERS(kInvalid, cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, a));
  OK(cuMemFree(a));
  OK(cuMemFree(b));
}

void streams() {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, 0));
  CUdevice device = 9;
  unsigned long long id = 0, other = 0;
  OK(cuStreamGetDevice(stream, &device));
  EXPECT(device == 0);
  ANSWERS(kBadHandle, cuStreamGetDevice(nobody<CUstream>(), &device));
  OK(cuStreamGetId(stream, &id));
  OK(cuStreamGetId(nullptr, &other));
  EXPECT(id != other);
  ANSWERS(kBadHandle, cuStreamGetId(nobody<CUstream>(), &id));
  OK(cuStreamDestroy(stream));
  OK(cuProfilerStart());
  OK(cuProfilerStop());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ::alarm(300);  // a hang is a failure
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
  ANSWERS(kNoDevice, cuDevicePrimaryCtxSetFlags(9, 0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&store, module, "store"));
  if (failures != 0) return 1;
  devices();
  contexts();
  functions();
  libraries(argv[1]);
  memory();
  streams();
  return failures == 0 ? 0 : 1;
}
