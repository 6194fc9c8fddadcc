// SPDX-License-Identifier: Apache-2.0
// One wrong call of each function that has no wrong call elsewhere.
#include "tests/conformance/driver/driver_case.h"

namespace sluice::test {
namespace {

constexpr CUdevice kNoDevice = 99;
constexpr CUdeviceptr kNobodys = 0x1000;

class Refused : public DriverCase {
 protected:
  void SetUp() override {
    DriverCase::SetUp();
    OK(cuMemAlloc(&memory_, 4096));
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event_, CU_EVENT_DEFAULT));
    CUDA_ARRAY_DESCRIPTOR d{16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    OK(cuArrayCreate(&array_, &d));
  }
  void TearDown() override {
    OK(cuArrayDestroy(array_));
    OK(cuEventDestroy(event_));
    OK(cuStreamDestroy(stream_));
    OK(cuMemFree(memory_));
    DriverCase::TearDown();
  }
  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUarray array_ = nullptr;
  char here_[256] = {};
};
// What NVIDIA's driver takes, or ends the program for.
class NotOnNvidiaRefused : public Refused {};
class GuestCallsRefused : public Refused {};  // of functions that the software GPU alone lacks

TEST_F(Refused, OfDevices) {
  int major = 0, minor = 0, active = 0;
  unsigned flags = 0;
  size_t bytes = 0;
  CUdevprop properties{};
  CUuuid uuid{};
  CUcontext context = nullptr;
  REFUSED(cuDeviceComputeCapability(&major, &minor, kNoDevice));
  REFUSED(cuDeviceGetName(here_, sizeof here_, kNoDevice));
  REFUSED(cuDeviceGetProperties(&properties, kNoDevice));
  REFUSED(cuDeviceGetUuid(&uuid, kNoDevice));
  REFUSED(cuDeviceTotalMem(&bytes, kNoDevice));
  REFUSED(cuDevicePrimaryCtxGetState(kNoDevice, &flags, &active));
  REFUSED(cuDevicePrimaryCtxRetain(&context, kNoDevice));
  REFUSED(cuDevicePrimaryCtxSetFlags(0, 0xF000));
  REFUSED(cuCtxCreate(&context, nullptr, 0, kNoDevice));
  EXPECT_EQ(context, nullptr);
}
TEST_F(Refused, OfNullPointers) {
  REFUSED(cuDriverGetVersion(nullptr));
  REFUSED(cuCtxGetCurrent(nullptr));
  REFUSED(cuStreamGetPriority(stream_, nullptr));
}
TEST_F(NotOnNvidiaRefused, OfNullPointers) {
  void* function = nullptr;
  REFUSED(cuGetProcAddress(nullptr, &function, 12000, 0, nullptr));
  EXPECT_EQ(function, nullptr);
  CUlibrary library = nullptr;  // NVIDIA's driver looks at it later
  REFUSED(cuLibraryLoadData(&library, "not a module", nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_EQ(library, nullptr);
  CUDA_RESOURCE_DESC resource{};  // an array that is not for surfaces
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array_;
  CUsurfObject surface = 0;
  REFUSED(cuSurfObjectCreate(&surface, &resource));
  const CUfunction f = kernel("index");  // NVIDIA's driver crashes by these
  REFUSED(cuOccupancyAvailableDynamicSMemPerBlock(nullptr, f, 1, 64));
  REFUSED(cuFuncSetAttribute(f, static_cast<CUfunction_attribute>(-1), 1));
  REFUSED(cuFuncSetAttribute(f, static_cast<CUfunction_attribute>(0x7fffffff), 1));
}
TEST_F(Refused, OfEventsAndStreams) {
  REFUSED(cuEventRecordWithFlags(event_, stream_, 77));
  REFUSED(cuEventSynchronize(nullptr));
  REFUSED(cuLaunchHostFunc(stream_, nullptr, nullptr));
  REFUSED(cuStreamAddCallback(stream_, nullptr, nullptr, 0));
}
TEST_F(Refused, OfFunctions) {
  const CUfunction f = kernel("index");
  int value = 0, grid = 0, block = 0;
  size_t bytes = 0;
  const char* name = nullptr;
  REFUSED(cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(99), f));
  REFUSED(cuFuncGetName(&name, nullptr));
  REFUSED(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, f, 0, 0));
  REFUSED(cuOccupancyMaxPotentialBlockSize(&grid, &block, nullptr, nullptr, 0, 0));
}
TEST_F(Refused, OfLibraries) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  CUkernel nothing = nullptr;
  size_t offset = 0, bytes = 0;
  REFUSED(cuLibraryGetModule(&module, nullptr));
  OK(cuLibraryLoadData(&library,
                       ".version 7.0\n.target sm_70\n.address_size 64\n"
                       ".visible .entry nothing() { ret; }\n",
                       nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&nothing, library, "nothing"));
  REFUSED(cuKernelGetParamInfo(nothing, 0, &offset, &bytes));
  OK(cuLibraryUnload(library));
}
TEST_F(Refused, OfLinks) {
  CUlinkState link = nullptr;
  void* image = nullptr;
  size_t bytes = 0;
  REFUSED(cuLinkCreate(0, nullptr, nullptr, nullptr));
  char text[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".extern .func nowhere();\n.visible .entry calls() { call nowhere; ret; }\n";
  OK(cuLinkCreate(0, nullptr, nullptr, &link));
  if (cuLinkAddData(link, CU_JIT_INPUT_PTX, text, sizeof text, "text", 0, nullptr, nullptr) ==
      CUDA_SUCCESS)
    REFUSED(cuLinkComplete(link, &image, &bytes));
  OK(cuLinkDestroy(link));
  char wrong[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry wrong() { bogus.u32 %r1; }\n";
  char log[512] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  OK(cuLinkCreate(2, options, values, &link));
  ANSWERS(CUDA_ERROR_INVALID_PTX,
          cuLinkAddData(link, CU_JIT_INPUT_PTX, wrong, sizeof wrong, "wrong", 0, nullptr, nullptr));
  EXPECT_NE(log[0], '\0');
  OK(cuLinkDestroy(link));
}
TEST_F(Refused, OfVirtualMemory) {
  CUdeviceptr at = 0;
  CUmemAllocationProp properties{};
  CUmemAccessDesc access{};
  CUmemGenericAllocationHandle handle = 0;
  unsigned long long flags = 0;
  size_t unit = 0;
  properties.type = static_cast<CUmemAllocationType>(77);
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REFUSED(cuMemAddressReserve(&at, 0, 0, 0, 0));
  REFUSED(cuMemAddressFree(kNobodys, 2 << 20));
  REFUSED(cuMemGetAllocationGranularity(&unit, &properties,
                                        static_cast<CUmemAllocationGranularity_flags>(2)));
  REFUSED(cuMemGetAllocationPropertiesFromHandle(&properties, 0));
  REFUSED(cuMemRelease(0));
  REFUSED(cuMemRetainAllocationHandle(&handle, here_));
  REFUSED(cuMemMap(kNobodys, 2 << 20, 0, 0, 0));
  REFUSED(cuMemUnmap(kNobodys, 2 << 20));
  REFUSED(cuMemSetAccess(kNobodys, 2 << 20, &access, 1));
  REFUSED(cuMemGetAccess(&flags, &access.location, kNobodys));
}
TEST_F(Refused, OfMemory) {
  CUdeviceptr at = 0;
  unsigned flags = 0, type = 0;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* to = &type;
  REFUSED(cuMemFreeAsync(kNobodys, stream_));
  REFUSED(cuMemHostGetDevicePointer(&at, here_, 0));
  REFUSED(cuMemHostGetFlags(&flags, here_));
  REFUSED(cuPointerGetAttributes(0, &attribute, &to, memory_));
}
TEST_F(Refused, OfCopies) {
  CUDA_MEMCPY2D rows{};
  rows.WidthInBytes = 64, rows.Height = 4;
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = memory_, rows.dstDevice = memory_ + 2048;
  rows.srcPitch = 32, rows.dstPitch = 64;
  REFUSED(cuMemcpy2DAsync(&rows, stream_));
  CUDA_MEMCPY3D box{};
  box.WidthInBytes = 32, box.Height = box.Depth = 1;
  box.srcMemoryType = CU_MEMORYTYPE_ARRAY, box.srcArray = array_;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE, box.dstDevice = memory_;
  REFUSED(cuMemcpy3DAsync(&box, stream_));  // a row has 16 bytes
  REFUSED(cuMemcpyDtoD(memory_ + 4090, memory_, 64));
  REFUSED(cuMemcpyDtoDAsync(memory_, memory_ + 4090, 64, stream_));
  REFUSED(cuMemcpyDtoHAsync(here_, memory_ + 4090, 64, stream_));
  REFUSED(cuMemcpyHtoDAsync(memory_ + 4090, here_, 64, stream_));
  REFUSED(cuMemcpyDtoA(array_, 8, memory_, 16));
  REFUSED(cuMemcpyAtoHAsync(here_, array_, 8, 16, stream_));
  REFUSED(cuMemcpyHtoAAsync(array_, 8, here_, 16, stream_));
}
TEST_F(Refused, OfFills) {
  REFUSED(cuMemsetD2D8(memory_, 8, 0, 16, 4));
  REFUSED(cuMemsetD2D32(memory_, 62, 0, 4, 4));
  REFUSED(cuMemsetD32Async(memory_ + 2, 0, 1, stream_));
}
TEST_F(Refused, OfTensorMaps) {
  CUtensorMap map{};
  const cuuint64_t sizes[] = {16}, strides[] = {16};
  const cuuint32_t box[] = {16}, steps[] = {1};
  const int corner[] = {0};
  void* const at = reinterpret_cast<void*>(memory_);
  REFUSED(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 0, at, sizes, strides, box,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                 CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  REFUSED(cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, at, sizes, strides,
                                  corner, corner, 1, 1, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  REFUSED(cuTensorMapEncodeIm2colWide(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, at, sizes, strides, 0, 0, 1, 1, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  REFUSED(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(memory_ + 4)));
}

TEST_F(GuestCallsRefused, OfPools) {
  CUmemoryPool pool = nullptr;
  CUmemAccess_flags flags{};
  CUmemLocation nowhere{CU_MEM_LOCATION_TYPE_DEVICE, kNoDevice};
  cuuint64_t value = 0;
  REFUSED(cuDeviceGetDefaultMemPool(&pool, kNoDevice));
  REFUSED(cuDeviceGetMemPool(&pool, kNoDevice));
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  REFUSED(cuDeviceSetMemPool(kNoDevice, pool));
  REFUSED(cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(99), &value));
  REFUSED(cuMemPoolGetAccess(&flags, pool, &nowhere));
  // Pools of several programs; the default one is not.
  constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool imported = nullptr;
  CUmemPoolPtrExportData data{};
  int descriptor = -1;
  REFUSED(cuMemPoolExportToShareableHandle(&descriptor, pool, kDescriptor, 0));
  REFUSED(cuMemPoolImportFromShareableHandle(
      &imported, reinterpret_cast<void*>(static_cast<intptr_t>(-1)), kDescriptor, 0));
  REFUSED(cuMemPoolExportPointer(&data, memory_));
  REFUSED(cuMemPoolImportPointer(nullptr, pool, &data));
}
TEST_F(GuestCallsRefused, OfManagedMemory) {
  int value = 0;
  CUdeviceptr at = 0;
  size_t bytes = 0;
  CUlibrary library = nullptr;
  REFUSED(cuMemRangeGetAttribute(&value, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 4096));
  OK(cuLibraryLoadData(&library,
                       ".version 7.0\n.target sm_70\n.address_size 64\n"
                       ".visible .entry nothing() { ret; }\n",
                       nullptr, nullptr, 0, nullptr, nullptr, 0));
  REFUSED(cuLibraryGetManaged(&at, &bytes, library, "nothing"));
  OK(cuLibraryUnload(library));
}

}  // namespace
}  // namespace sluice::test
