// SPDX-License-Identifier: Apache-2.0
// Wrong calls, one case each, by what is documented of them. What NVIDIA's driver follows without
// looking (null where a result goes, in many calls) is not here.
#include "tests/conformance/driver/driver_case.h"

namespace sluice::test {
namespace {

CUstream no_stream() { return nullptr; }

// Things that wrong calls are made with.
struct Things {
  CUdeviceptr memory = 0;
  CUfunction function = nullptr;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUevent untimed = nullptr;
  CUarray array = nullptr;
  void* parameters[2] = {};
  unsigned n = 1;
};

struct Wrong {
  const char* name;
  CUresult expected;  // CUDA_SUCCESS: any error
  CUresult (*call)(Things&);
};

constexpr CUresult kValue = CUDA_ERROR_INVALID_VALUE, kAny = CUDA_SUCCESS;
constexpr size_t kHuge = size_t{1} << 50;

CUresult launch(Things& t, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz, unsigned shared = 0) {
  return cuLaunchKernel(t.function, gx, gy, gz, bx, by, bz, shared, no_stream(), t.parameters,
                        nullptr);
}
CUresult make_array(size_t width, size_t height, size_t depth, unsigned format, unsigned channels,
                    unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR d{width,    height, depth, static_cast<CUarray_format>(format),
                            channels, flags};
  CUarray array = nullptr;
  return cuArray3DCreate(&array, &d);
}
CUDA_RESOURCE_DESC array_resource(const Things& t) {
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_ARRAY;
  r.res.array.hArray = t.array;
  return r;
}
CUresult make_texture(const CUDA_RESOURCE_DESC& r, const CUDA_TEXTURE_DESC& d) {
  CUtexObject object = 0;
  return cuTexObjectCreate(&object, &r, &d, nullptr);
}
CUresult load(const char* text) {
  CUmodule module = nullptr;
  return cuModuleLoadData(&module, text);
}

const Wrong kWrong[] = {
    {"InitWithFlags", kValue, [](Things&) { return cuInit(1); }},
    {"DeviceThatIsNot", CUDA_ERROR_INVALID_DEVICE,
     [](Things&) {
       CUdevice d = 0;
       return cuDeviceGet(&d, 99);
     }},
    {"DeviceBelowZero", CUDA_ERROR_INVALID_DEVICE,
     [](Things&) {
       CUdevice d = 0;
       return cuDeviceGet(&d, -1);
     }},
    {"AttributeThatIsNot", kValue,
     [](Things&) {
       int v = 0;
       return cuDeviceGetAttribute(&v, static_cast<CUdevice_attribute>(99999), 0);
     }},
    {"AttributeOfNoDevice", CUDA_ERROR_INVALID_DEVICE,
     [](Things&) {
       int v = 0;
       return cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99);
     }},
    {"ErrorThatIsNot", kValue,
     [](Things&) {
       const char* name = nullptr;
       return cuGetErrorName(static_cast<CUresult>(98765), &name);
     }},
    {"NoMemory", kValue,
     [](Things&) {
       CUdeviceptr p = 0;
       return cuMemAlloc(&p, 0);
     }},
    {"MoreMemoryThanThereIs", CUDA_ERROR_OUT_OF_MEMORY,
     [](Things&) {
       CUdeviceptr p = 0;
       return cuMemAlloc(&p, kHuge);
     }},
    {"PitchOfNoWidth", kValue,
     [](Things&) {
       CUdeviceptr p = 0;
       size_t pitch = 0;
       return cuMemAllocPitch(&p, &pitch, 0, 4, 4);
     }},
    {"PitchOfAnOddElement", kValue,
     [](Things&) {
       CUdeviceptr p = 0;
       size_t pitch = 0;
       return cuMemAllocPitch(&p, &pitch, 64, 4, 3);
     }},
    {"FreeOfNobodys", kValue, [](Things&) { return cuMemFree(0x1234); }},
    {"FreeInTheMiddle", kValue, [](Things& t) { return cuMemFree(t.memory + 256); }},
    {"FreeOfHostMemory", kValue,
     [](Things&) {
       int here = 0;
       return cuMemFreeHost(&here);
     }},
    {"ManagedWithNoFlag", kValue,
     [](Things&) {
       CUdeviceptr p = 0;
       return cuMemAllocManaged(&p, 64, 0);
     }},
    {"ManagedOfNoBytes", kValue,
     [](Things&) {
       CUdeviceptr p = 0;
       return cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL);
     }},
    {"HostFlagsThatAreNot", kValue,
     [](Things&) {
       void* p = nullptr;
       return cuMemHostAlloc(&p, 64, 0x100);
     }},
    {"RegisterNothing", kValue, [](Things&) { return cuMemHostRegister(nullptr, 4096, 0); }},
    {"UnregisterNobodys", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
     [](Things&) {
       static char here[64];
       return cuMemHostUnregister(here);
     }},
    {"CopyBeyondTheEnd", kValue,
     [](Things& t) {
       static char bytes[8192];
       return cuMemcpyHtoD(t.memory + 100, bytes, 4096);
     }},
    {"CopyFromBeyondTheEnd", kValue,
     [](Things& t) {
       static char bytes[8192];
       return cuMemcpyDtoH(bytes, t.memory + 4000, 200);
     }},
    {"CopyToNobodys", kValue,
     [](Things&) {
       int here = 0;
       return cuMemcpyHtoD(0x1000, &here, 4);
     }},
    {"CopyBetweenNobodys", kValue, [](Things& t) { return cuMemcpyDtoD(t.memory, 0x1000, 4); }},
    {"RectangleOfANarrowPitch", kValue,
     [](Things& t) {
       CUDA_MEMCPY2D c{};
       c.WidthInBytes = 64, c.Height = 4;
       c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
       c.srcDevice = t.memory, c.dstDevice = t.memory + 2048;
       c.srcPitch = 32, c.dstPitch = 64;
       return cuMemcpy2D(&c);
     }},
    {"RectangleOfNoKind", kAny,
     [](Things& t) {
       CUDA_MEMCPY2D c{};
       c.WidthInBytes = 64, c.Height = 4;
       c.srcDevice = t.memory, c.dstDevice = t.memory + 2048;
       return cuMemcpy2D(&c);
     }},
    {"BoxOfALevelThatIsNot", kValue,
     [](Things& t) {
       CUDA_MEMCPY3D c{};
       c.WidthInBytes = 4, c.Height = c.Depth = 1;
       c.srcLOD = 1;
       c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = t.array;
       c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.dstDevice = t.memory;
       return cuMemcpy3D(&c);
     }},
    {"FillBeyondTheEnd", kValue, [](Things& t) { return cuMemsetD8(t.memory + 4000, 0, 200); }},
    {"FillAcrossAWord", kValue, [](Things& t) { return cuMemsetD32(t.memory + 2, 0, 1); }},
    {"FillAcrossAHalf", kValue, [](Things& t) { return cuMemsetD16(t.memory + 1, 0, 1); }},
    {"FillOfNobodys", kValue, [](Things&) { return cuMemsetD8(0x1000, 0, 4); }},
    {"FillOfRowsThatOverlap", kValue,
     [](Things& t) { return cuMemsetD2D8(t.memory, 8, 0, 16, 4); }},
    {"NoBlock", kValue, [](Things& t) { return launch(t, 1, 1, 1, 0, 1, 1); }},
    {"NoGrid", kValue, [](Things& t) { return launch(t, 0, 1, 1, 1, 1, 1); }},
    {"NoGridY", kValue, [](Things& t) { return launch(t, 1, 0, 1, 1, 1, 1); }},
    {"NoGridZ", kValue, [](Things& t) { return launch(t, 1, 1, 0, 1, 1, 1); }},
    {"BlockTooWide", kValue, [](Things& t) { return launch(t, 1, 1, 1, 1025, 1, 1); }},
    {"BlockTooLarge", kValue, [](Things& t) { return launch(t, 1, 1, 1, 64, 64, 1); }},
    {"BlockTooDeep", kValue, [](Things& t) { return launch(t, 1, 1, 1, 1, 1, 65); }},
    {"GridTooTall", kValue, [](Things& t) { return launch(t, 1, 65536, 1, 1, 1, 1); }},
    {"GridTooDeep", kValue, [](Things& t) { return launch(t, 1, 1, 65536, 1, 1, 1); }},
    {"MoreSharedMemoryThanAsked", kValue,
     [](Things& t) { return launch(t, 1, 1, 1, 1, 1, 1, 200 << 10); }},
    {"LaunchWithoutParameters", kAny,
     [](Things& t) {
       return cuLaunchKernel(t.function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
     }},
    {"LaunchOfNothing", CUDA_ERROR_INVALID_HANDLE,
     [](Things& t) {
       return cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, t.parameters, nullptr);
     }},
    {"CooperativeTooLarge", CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
     [](Things& t) {
       return cuLaunchCooperativeKernel(t.function, 1 << 20, 1, 1, 1024, 1, 1, 0, t.stream,
                                        t.parameters);
     }},
    {"FunctionThatIsNot", CUDA_ERROR_NOT_FOUND,
     [](Things& t) {
       CUfunction f = nullptr;
       return cuModuleGetFunction(&f, t.module, "no_such_kernel");
     }},
    {"GlobalThatIsNot", CUDA_ERROR_NOT_FOUND,
     [](Things& t) {
       CUdeviceptr p = 0;
       size_t n = 0;
       return cuModuleGetGlobal(&p, &n, t.module, "no_such_variable");
     }},
    {"TextWithAnError", CUDA_ERROR_INVALID_PTX,
     [](Things&) {
       return load(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry x() { wrong; }");
     }},
    {"TextForALaterGpu", CUDA_ERROR_INVALID_PTX,
     [](Things&) { return load(".version 7.0\n.target sm_999\n.address_size 64\n"); }},
    {"NoText", CUDA_ERROR_INVALID_IMAGE, [](Things&) { return load("not a module"); }},
    {"FileThatIsNot", CUDA_ERROR_FILE_NOT_FOUND,
     [](Things&) {
       CUmodule m = nullptr;
       return cuModuleLoad(&m, "/no/such/file.ptx");
     }},
    {"StreamFlagsThatAreNot", kValue,
     [](Things&) {
       CUstream s = nullptr;
       return cuStreamCreate(&s, 77);
     }},
    {"EventFlagsThatAreNot", kValue,
     [](Things&) {
       CUevent e = nullptr;
       return cuEventCreate(&e, 0x100);
     }},
    {"WaitFlagsThatAreNot", kValue,
     [](Things& t) { return cuStreamWaitEvent(t.stream, t.untimed, 77); }},
    {"WaitForNothing", CUDA_ERROR_INVALID_HANDLE,
     [](Things& t) { return cuStreamWaitEvent(t.stream, nullptr, 0); }},
    {"RecordOfNothing", CUDA_ERROR_INVALID_HANDLE,
     [](Things& t) { return cuEventRecord(nullptr, t.stream); }},
    {"TimeWithoutTiming", CUDA_ERROR_INVALID_HANDLE,
     [](Things& t) {
       float ms = 0;
       return cuEventElapsedTime(&ms, t.untimed, t.untimed);
     }},
    {"TimeOfNothing", CUDA_ERROR_INVALID_HANDLE,
     [](Things& t) {
       float ms = 0;
       return cuEventElapsedTime(&ms, nullptr, t.untimed);
     }},
    {"LimitThatIsNot", kAny, [](Things&) { return cuCtxSetLimit(static_cast<CUlimit>(99), 1); }},
    {"LimitOfNoName", kAny,
     [](Things&) {
       size_t v = 0;
       return cuCtxGetLimit(&v, static_cast<CUlimit>(99));
     }},
    {"ContextFlagsThatAreNot", kValue,
     [](Things&) {
       CUcontext c = nullptr;
       return cuCtxCreate(&c, nullptr, 0x1000, 0);
     }},
    {"ContextOfNoDevice", CUDA_ERROR_INVALID_DEVICE,
     [](Things&) {
       CUcontext c = nullptr;
       return cuCtxCreate(&c, nullptr, 0, 99);
     }},
    {"ArrayOfNoWidth", kAny, [](Things&) { return make_array(0, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0); }},
    {"ArrayOfThreeChannels", kAny,
     [](Things&) { return make_array(8, 8, 0, CU_AD_FORMAT_FLOAT, 3, 0); }},
    {"ArrayOfNoFormat", kAny, [](Things&) { return make_array(8, 8, 0, 0x77, 1, 0); }},
    {"ArrayTooWide", kAny,
     [](Things&) { return make_array(1 << 20, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0); }},
    {"ArrayTooDeep", kAny,
     [](Things&) { return make_array(8, 8, 1 << 16, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0); }},
    {"LayersOfNone", kAny,
     [](Things&) { return make_array(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED); }},
    {"CubeThatIsNotSquare", kAny,
     [](Things&) { return make_array(8, 4, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP); }},
    {"CubeOfFiveFaces", kAny,
     [](Things&) { return make_array(8, 8, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP); }},
    {"TextureOfNoKind", kAny,
     [](Things& t) {
       CUDA_RESOURCE_DESC r = array_resource(t);
       r.resType = static_cast<CUresourcetype>(9);
       return make_texture(r, {});
     }},
    {"TextureWithFlags", kAny,
     [](Things& t) {
       CUDA_RESOURCE_DESC r = array_resource(t);
       r.flags = 1;
       return make_texture(r, {});
     }},
    {"TextureOfMisalignedMemory", kAny,
     [](Things& t) {
       CUDA_RESOURCE_DESC r{};
       r.resType = CU_RESOURCE_TYPE_LINEAR;
       r.res.linear = {t.memory + 4, CU_AD_FORMAT_FLOAT, 1, 64};
       return make_texture(r, {});
     }},
    {"OccupancyOfNoBlock", kAny,
     [](Things& t) {
       int blocks = 0;
       return cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, t.function, 0, 0);
     }},
    {"AttributeOfFunctionThatIsNot", kValue,
     [](Things& t) {
       int v = 0;
       return cuFuncGetAttribute(&v, static_cast<CUfunction_attribute>(99), t.function);
     }},
    {"SharedMemoryBeyondTheGpu", kValue,
     [](Things& t) {
       return cuFuncSetAttribute(t.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 1 << 20);
     }},
    {"AddressOfNobodys", kAny,
     [](Things&) {
       CUdeviceptr base = 0;
       size_t n = 0;
       return cuMemGetAddressRange(&base, &n, 0x1000);
     }},
    {"PriorityIsClampedButFlagsAreNot", kValue,
     [](Things&) {
       CUstream s = nullptr;
       return cuStreamCreateWithPriority(&s, 77, 0);
     }},
    {"WordOfNobodys", kAny, [](Things& t) { return cuStreamWriteValue32(t.stream, 0x1000, 1, 0); }},
    {"WordMisaligned", kAny,
     [](Things& t) { return cuStreamWriteValue32(t.stream, t.memory + 2, 1, 0); }},
    {"HostFunctionOfNone", kValue,
     [](Things& t) { return cuLaunchHostFunc(t.stream, nullptr, nullptr); }},
    {"LinkOfNothing", kAny,
     [](Things&) {
       CUlinkState link = nullptr;
       if (cuLinkCreate(0, nullptr, nullptr, &link) != CUDA_SUCCESS) return CUDA_SUCCESS;
       char text[] = "wrong";
       void* image = nullptr;
       size_t bytes = 0;
       CUresult r =
           cuLinkAddData(link, CU_JIT_INPUT_PTX, text, sizeof text, "text", 0, nullptr, nullptr);
       if (r == CUDA_SUCCESS) r = cuLinkComplete(link, &image, &bytes);
       (void)cuLinkDestroy(link);
       return r;
     }},
};

class Errors : public DriverCase, public testing::WithParamInterface<Wrong> {};

TEST_P(Errors, AreReportedAndLeaveNothing) {
  Things t;
  OK(cuMemAlloc(&t.memory, 4096));
  OK(cuStreamCreate(&t.stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&t.untimed, CU_EVENT_DISABLE_TIMING));
  OK(cuEventRecord(t.untimed, t.stream));
  CUDA_ARRAY_DESCRIPTOR d{8, 8, CU_AD_FORMAT_FLOAT, 1};
  OK(cuArrayCreate(&t.array, &d));
  t.function = kernel("index");
  OK(cuFuncGetModule(&t.module, t.function));
  t.parameters[0] = &t.memory;
  t.parameters[1] = &t.n;
  const CUresult answer = GetParam().call(t);
  tell_answer(GetParam().name, answer);
  EXPECT_NE(answer, CUDA_SUCCESS);
  if (GetParam().expected != kAny) {
    EXPECT_EQ(answer, GetParam().expected);
  }
  // All goes on.
  OK(launch(t, 1, 1, 1, 1, 1, 1));
  uint32_t word = 0;
  OK(cuMemcpyDtoH(&word, t.memory, 4));
  EXPECT_EQ(word, 1u);
  OK(cuArrayDestroy(t.array));
  OK(cuEventDestroy(t.untimed));
  OK(cuStreamDestroy(t.stream));
  OK(cuMemFree(t.memory));
}
INSTANTIATE_TEST_SUITE_P(All, Errors, testing::ValuesIn(kWrong),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace sluice::test
