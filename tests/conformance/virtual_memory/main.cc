// SPDX-License-Identifier: Apache-2.0
// One program of virtual memory management calls, right and wrong ones, that says what each
// answered and what is in memory then. Run on a GPU with NVIDIA's driver it gives what the channel
// has to give. Everything printed is the same in every run. Each section is a process of its own:
// some end their context. A section's name as the argument runs that one alone.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "tests/conformance/calls.h"

namespace {

const char* const kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 to, .param .u32 n, .param .u32 value)
{
  .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p1;
  ld.param.u64 %d1, [to]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [value];
  mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x;
  mad.lo.u32 %r7, %r4, %r5, %r6;
  setp.ge.u32 %p1, %r7, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %d1, %d1;
  mul.wide.u32 %d2, %r7, 4; add.u64 %d3, %d1, %d2;
  add.u32 %r2, %r2, %r7;
  st.global.u32 [%d3], %r2;
DONE:
  ret;
}
)";

constexpr size_t kUnit = size_t{2} << 20;
CUcontext context = nullptr;
CUfunction fill = nullptr;
CUmemAllocationProp prop;  // device memory, nothing else

void set_up() {
  NEED(cuInit(0));
  NEED(cuDevicePrimaryCtxRetain(&context, 0));
  NEED(cuCtxSetCurrent(context));
  CUmodule module = nullptr;
  NEED(cuModuleLoadData(&module, kPtx));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
}
CUresult launch(CUdeviceptr to, uint32_t n, uint32_t value) {
  void* params[] = {&to, &n, &value};
  const CUresult r =
      cuLaunchKernel(fill, (n + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, params, nullptr);
  return r == CUDA_SUCCESS ? cuCtxSynchronize() : r;
}
uint32_t word(CUdeviceptr p) {
  uint32_t value = 0;
  NEED(cuMemcpyDtoH(&value, p, 4));
  return value;
}
CUresult access(CUdeviceptr p, size_t bytes, int flags) {
  const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
  return cuMemSetAccess(p, bytes, &desc, 1);
}
void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

// What there is, and what no context is needed for.
void surface() {
  NEED(cuInit(0));
  int value = -1;
  NEED(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  VALUE(value);
  for (const char* name :
       {"cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemMap",
        "cuMemUnmap", "cuMemSetAccess", "cuMemGetAccess", "cuMemGetAllocationGranularity",
        "cuMemGetAllocationPropertiesFromHandle", "cuMemRetainAllocationHandle",
        "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"}) {
    void* function = nullptr;
    NEED(cuGetProcAddress(name, &function, 12000, 0, nullptr));
    sluice::conformance::say(name, static_cast<long long>(function != nullptr));
  }
  size_t unit = 0;
  CALL(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  VALUE(unit);
  CALL(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  VALUE(unit);
  CALL(cuMemGetAllocationGranularity(&unit, &prop,
                                     static_cast<CUmemAllocationGranularity_flags>(2)));
  CALL(cuMemGetAllocationGranularity(nullptr, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CALL(cuMemGetAllocationGranularity(&unit, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemAllocationProp odd = prop;
  odd.location.id = 1000;
  CALL(cuMemGetAllocationGranularity(&unit, &odd, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  odd = prop, odd.type = 0;
  CALL(cuMemGetAllocationGranularity(&unit, &odd, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  odd = prop, odd.location.type = 0;
  CALL(cuMemGetAllocationGranularity(&unit, &odd, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr p = 0;
  CUmemGenericAllocationHandle h = 0;
  CALL(cuMemAddressReserve(&p, kUnit, 0, 0, 0));
  CALL(cuMemCreate(&h, kUnit, &prop, 0));
  CALL(cuMemMap(p, kUnit, 0, h, 0));
  CALL(access(p, kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CALL(cuMemUnmap(p, kUnit));
  CALL(cuMemRelease(h));
  CALL(cuMemAddressFree(p, kUnit));
}

// An H200's driver crashes.
void nowhere_for_the_address() {
  set_up();
  CALL(cuMemAddressReserve(nullptr, kUnit, 0, 0, 0));
}

void addresses() {
  set_up();
  CUdeviceptr p = 0, q = 0;
  CALL(cuMemAddressReserve(&p, 0, 0, 0, 0));
  CALL(cuMemAddressReserve(&p, 1000, 0, 0, 0));
  CALL(cuMemAddressReserve(&p, kUnit, 0, 0, 1));
  CALL(cuMemAddressReserve(&p, kUnit, 3, 0, 0));
  CALL(cuMemAddressReserve(&p, size_t{1} << 62, 0, 0, 0));
  CALL(cuMemAddressReserve(&p, 4 * kUnit, 0, 0, 0));
  VALUE(p % kUnit);
  CALL(cuMemAddressReserve(&q, 2 * kUnit, 16 * kUnit, 0, 0));
  VALUE(q % (16 * kUnit));
  CALL(cuMemAddressFree(q, kUnit));
  CALL(cuMemAddressFree(q + kUnit, kUnit));
  CALL(cuMemAddressFree(q, 2 * kUnit));
  CALL(cuMemAddressFree(p + 100, 4 * kUnit));
  CALL(cuMemAddressFree(0, kUnit));
  CALL(cuMemAddressFree(p, 4 * kUnit));
  // Reserved is not there.
  NEED(cuMemAddressReserve(&p, 4 * kUnit, 0, 0, 0));
  uint32_t value = 0;
  CALL(cuMemcpyDtoH(&value, p, 4));
  CALL(cuMemcpyHtoD(p, &value, 4));
  CALL(cuMemcpy(p, reinterpret_cast<CUdeviceptr>(&value), 4));
  CALL(cuMemsetD32(p, 1, 4));
  CALL(cuMemFree(p));
  CUmemGenericAllocationHandle h = 0;
  CALL(cuMemRetainAllocationHandle(&h, pointer(p)));
  CALL(cuMemUnmap(p, kUnit));
  CALL(access(p, kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  unsigned long long flags = 0;
  const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CALL(cuMemGetAccess(&flags, &device, p));
  unsigned type = 0;
  CALL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  NEED(cuMemAddressFree(p, 4 * kUnit));
}

void memory() {
  set_up();
  CUmemGenericAllocationHandle h = 0;
  CALL(cuMemCreate(nullptr, kUnit, &prop, 0));
  CALL(cuMemCreate(&h, kUnit, nullptr, 0));
  CALL(cuMemCreate(&h, 0, &prop, 0));
  CALL(cuMemCreate(&h, kUnit / 2, &prop, 0));
  CALL(cuMemCreate(&h, kUnit, &prop, 1));
  CALL(cuMemCreate(&h, size_t{1} << 46, &prop, 0));
  CUmemAllocationProp odd = prop;
  odd.type = 0;
  CALL(cuMemCreate(&h, kUnit, &odd, 0));
  odd = prop, odd.location.type = 0;
  CALL(cuMemCreate(&h, kUnit, &odd, 0));
  odd = prop, odd.location.id = 1000;
  CALL(cuMemCreate(&h, kUnit, &odd, 0));
  odd = prop, odd.location.id = -1;
  CALL(cuMemCreate(&h, kUnit, &odd, 0));
  odd = prop, odd.win32HandleMetaData = &odd;
  CALL(cuMemCreate(&h, kUnit, &odd, 0));
  CALL(cuMemCreate(&h, 2 * kUnit, &prop, 0));
  CUmemAllocationProp stored;
  std::memset(&stored, 0xff, sizeof stored);
  CALL(cuMemGetAllocationPropertiesFromHandle(&stored, h));
  VALUE(stored.type);
  VALUE(stored.requestedHandleTypes);
  VALUE(stored.location.type);
  VALUE(stored.location.id);
  VALUE(stored.win32HandleMetaData == nullptr);
  VALUE(stored.allocFlags.compressionType);
  VALUE(stored.allocFlags.usage);
  CALL(cuMemGetAllocationPropertiesFromHandle(nullptr, h));
  // Without a kind of handle it cannot leave the process.
  int file = -1;
  CALL(cuMemExportToShareableHandle(&file, h, CU_MEM_HANDLE_TYPE_NONE, 0));
  CALL(cuMemRelease(h));
}

void mappings() {
  set_up();
  CUdeviceptr p = 0;
  CUmemGenericAllocationHandle a = 0, b = 0, again = 0;
  NEED(cuMemAddressReserve(&p, 8 * kUnit, 0, 0, 0));
  NEED(cuMemCreate(&a, kUnit, &prop, 0));
  NEED(cuMemCreate(&b, 2 * kUnit, &prop, 0));
  CALL(cuMemMap(p, 0, 0, a, 0));
  CALL(cuMemMap(p, kUnit, 0, a, 1));
  CALL(cuMemMap(p + 4096, kUnit, 0, a, 0));
  CALL(cuMemMap(p, kUnit / 2, 0, a, 0));
  CALL(cuMemMap(p, 2 * kUnit, 0, a, 0));
  CALL(cuMemMap(p, kUnit, kUnit, a, 0));
  if (CALL(cuMemMap(p, kUnit, kUnit, b, 0)) == CUDA_SUCCESS) NEED(cuMemUnmap(p, kUnit));
  CALL(cuMemMap(p + 7 * kUnit, 2 * kUnit, 0, b, 0));
  CALL(cuMemMap(p - kUnit, kUnit, 0, a, 0));
  CALL(cuMemMap(p, kUnit, 0, a, 0));
  CALL(cuMemMap(p, kUnit, 0, a, 0));
  CALL(cuMemMap(p + kUnit, 2 * kUnit, 0, b, 0));
  CALL(cuMemMap(p + 2 * kUnit, kUnit, 0, a, 0));
  // Mapped is not yet to be touched.
  uint32_t value = 0;
  unsigned long long flags = 77;
  const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                      nobody = {CU_MEM_LOCATION_TYPE_DEVICE, 1000};
  CALL(cuMemGetAccess(&flags, &device, p));
  VALUE(flags);
  CALL(cuMemcpyDtoH(&value, p, 4));
  CALL(access(p, kUnit, 2));
  CALL(access(p, kUnit / 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CALL(access(p + kUnit, kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CALL(access(p, 4 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CALL(access(p, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CALL(cuMemSetAccess(p, kUnit, nullptr, 1));
  const CUmemAccessDesc desc = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CALL(cuMemSetAccess(p, kUnit, &desc, 0));
  const CUmemAccessDesc other = {nobody, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CALL(cuMemSetAccess(p, kUnit, &other, 1));
  CALL(access(p, 3 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CALL(cuMemGetAccess(&flags, &device, p + kUnit + 5));
  VALUE(flags);
  CALL(cuMemGetAccess(&flags, &nobody, p));
  CALL(cuMemGetAccess(&flags, &device, p + 3 * kUnit));
  // Side by side they are as one, for kernels, copies and fills.
  CALL(launch(p + kUnit - 512, 256, 1000));
  VALUE(word(p + kUnit - 4));
  VALUE(word(p + kUnit));
  uint32_t words[256] = {};
  CALL(cuMemcpyDtoH(words, p + kUnit - 512, sizeof words));
  VALUE(words[0]);
  VALUE(words[255]);
  CALL(cuMemsetD32(p + kUnit - 8, 5, 4));
  VALUE(word(p + kUnit + 4));
  CALL(cuMemcpyDtoD(p + 2 * kUnit, p + kUnit - 512, 1024));
  VALUE(word(p + 2 * kUnit));
  CALL(cuMemcpyDtoH(words, p + 3 * kUnit - 512, sizeof words));
  // What is known of the addresses.
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CALL(cuMemGetAddressRange(&base, &bytes, p + kUnit + 100));
  VALUE(base == p + kUnit);
  VALUE(bytes);
  unsigned type = 0;
  CUcontext owner = context;
  int ordinal = -7;
  CALL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5));
  VALUE(type);
  CALL(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
  VALUE(owner == nullptr);
  CALL(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
  VALUE(ordinal);
  CALL(cuMemFree(p));
  // Handles.
  CALL(cuMemRetainAllocationHandle(&again, pointer(p + 5)));
  VALUE(again == a);
  CALL(cuMemRetainAllocationHandle(&again, pointer(p + 3 * kUnit)));
  CALL(cuMemRelease(a));
  CALL(cuMemRelease(a));
  CALL(cuMemRetainAllocationHandle(&again, pointer(p)));
  VALUE(word(p + kUnit - 4));
  CALL(cuMemRelease(again));
  // Taking away.
  CALL(cuMemUnmap(p + kUnit, kUnit));
  CALL(cuMemUnmap(p, kUnit / 2));
  CALL(cuMemAddressFree(p, 8 * kUnit));
  CALL(cuMemUnmap(p, 4 * kUnit));
  CALL(cuMemUnmap(p, 3 * kUnit));
  CALL(cuMemUnmap(p, kUnit));
  CALL(cuMemcpyDtoH(&value, p, 4));
  // The same memory twice, and what it had.
  CALL(cuMemMap(p, 2 * kUnit, 0, b, 0));
  CALL(cuMemMap(p + 4 * kUnit, 2 * kUnit, 0, b, 0));
  CALL(access(p, 2 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CALL(access(p + 4 * kUnit, 2 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  VALUE(word(p + 4));
  CALL(launch(p, 1, 77));
  VALUE(word(p + 4 * kUnit));
  CALL(cuMemRelease(b));
  CALL(cuMemUnmap(p, 2 * kUnit));
  VALUE(word(p + 4 * kUnit));
  CALL(cuMemUnmap(p + 4 * kUnit, 2 * kUnit));
  CALL(cuMemAddressFree(p, 8 * kUnit));
  CALL(cuCtxSynchronize());
}

// What is asked first, where two things are wrong, and parts of memory.
void order() {
  set_up();
  CUdeviceptr p = 0;
  CUmemGenericAllocationHandle b = 0;
  NEED(cuMemAddressReserve(&p, 8 * kUnit, 0, 0, 0));
  NEED(cuMemCreate(&b, 2 * kUnit, &prop, 0));
  if (CALL(cuMemMap(p, kUnit, 0, b, 0)) == CUDA_SUCCESS) NEED(cuMemUnmap(p, kUnit));
  CALL(cuMemMap(p, 2 * kUnit, 0, 0, 0));
  CALL(cuMemMap(p, kUnit / 2, 0, 0, 0));
  CALL(cuMemMap(p + 4096, kUnit / 2, 0, b, 0));
  CALL(cuMemMap(p - kUnit, kUnit / 2, 0, b, 0));
  NEED(cuMemMap(p, 2 * kUnit, 0, b, 0));
  CALL(cuMemMap(p, kUnit / 2, 0, b, 0));
  CALL(cuMemUnmap(p + 4 * kUnit, kUnit));
  CALL(cuMemUnmap(p + 4 * kUnit, kUnit / 2));
  CALL(cuMemUnmap(p + 4 * kUnit + 4096, kUnit));
  CALL(cuMemUnmap(p + 4 * kUnit, 0));
  CALL(access(p + 4 * kUnit, kUnit, 2));
  CALL(access(p + 1, 2 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  const CUmemAccessDesc twice[] = {
      {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
      {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
  unsigned long long flags = 77;
  CALL(cuMemSetAccess(p, 2 * kUnit, twice, 2));
  if (cuMemGetAccess(&flags, &twice[0].location, p) == CUDA_SUCCESS) VALUE(flags);
  int file = -1;
  CALL(cuMemExportToShareableHandle(&file, b, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CALL(cuMemExportToShareableHandle(nullptr, b, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  NEED(cuMemUnmap(p, 2 * kUnit));
  NEED(cuMemRelease(b));
  NEED(cuMemAddressFree(p, 8 * kUnit));
}

// Each ends its context.
CUdeviceptr one_unit(int flags, CUmemGenericAllocationHandle* h) {
  set_up();
  CUdeviceptr p = 0;
  NEED(cuMemAddressReserve(&p, 2 * kUnit, 0, 0, 0));
  NEED(cuMemCreate(h, kUnit, &prop, 0));
  NEED(cuMemMap(p, kUnit, 0, *h, 0));
  if (flags >= 0) NEED(access(p, kUnit, flags));
  return p;
}
void touch_reserved() {
  CUmemGenericAllocationHandle h = 0;
  const CUdeviceptr p = one_unit(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &h);
  CALL(launch(p, 1, 1));
  CALL(launch(p + kUnit, 1, 1));
  CALL(cuCtxSynchronize());
}
void touch_without_access() {
  CUmemGenericAllocationHandle h = 0;
  const CUdeviceptr p = one_unit(-1, &h);
  CALL(launch(p, 1, 1));
  CALL(cuMemUnmap(p, kUnit));
  CALL(cuMemRelease(h));
}
void touch_read_only() {
  CUmemGenericAllocationHandle h = 0;
  const CUdeviceptr p = one_unit(CU_MEM_ACCESS_FLAGS_PROT_READ, &h);
  uint32_t value = 0;
  CALL(cuMemcpyDtoH(&value, p, 4));
  CALL(launch(p, 1, 1));
}
void fill_read_only() {
  CUmemGenericAllocationHandle h = 0;
  const CUdeviceptr p = one_unit(CU_MEM_ACCESS_FLAGS_PROT_READ, &h);
  CALL(cuMemsetD32(p, 1, 1));
  CALL(cuCtxSynchronize());
}
void copy_to_read_only() {
  CUmemGenericAllocationHandle h = 0;
  const CUdeviceptr p = one_unit(CU_MEM_ACCESS_FLAGS_PROT_READ, &h);
  const uint32_t value = 5;
  CALL(cuMemcpyHtoD(p, &value, 4));
  CALL(cuMemcpyHtoDAsync(p, &value, 4, nullptr));
  CALL(cuMemcpyDtoD(p, p + 64, 4));
  CALL(cuMemsetD32Async(p, 1, 1, nullptr));
  CALL(cuCtxSynchronize());
  VALUE(word(p));
}
// Managing needs no context, so it goes on.
void manage_after_a_fault() {
  CUmemGenericAllocationHandle h = 0, more = 0;
  const CUdeviceptr p = one_unit(-1, &h);
  CUdeviceptr q = 0;
  unsigned long long flags = 77;
  size_t unit = 0;
  const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CALL(launch(p, 1, 1));
  CALL(cuMemAddressReserve(&q, kUnit, 0, 0, 0));
  CALL(cuMemCreate(&more, kUnit, &prop, 0));
  CALL(cuMemMap(q, kUnit, 0, more, 0));
  CALL(access(q, kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CALL(cuMemGetAccess(&flags, &device, q));
  CALL(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CALL(cuMemRetainAllocationHandle(&h, pointer(q)));
  CALL(cuMemUnmap(q, kUnit));
  CALL(cuMemRelease(more));
  CALL(cuMemAddressFree(q, kUnit));
  CALL(cuCtxSynchronize());
}
void touch_unmapped() {
  CUmemGenericAllocationHandle h = 0;
  const CUdeviceptr p = one_unit(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &h);
  CALL(cuMemUnmap(p, kUnit));
  CALL(launch(p, 1, 1));
}
void touch_after_access_is_taken() {
  CUmemGenericAllocationHandle h = 0;
  const CUdeviceptr p = one_unit(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &h);
  CALL(launch(p, 1, 1));
  CALL(access(p, kUnit, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  CALL(launch(p, 1, 1));
}

struct Section {
  const char* name;
  void (*run)();
};
constexpr Section kSections[] = {{"surface", surface},
                                 {"nowhere_for_the_address", nowhere_for_the_address},
                                 {"addresses", addresses},
                                 {"memory", memory},
                                 {"mappings", mappings},
                                 {"order", order},
                                 {"touch_reserved", touch_reserved},
                                 {"touch_without_access", touch_without_access},
                                 {"touch_read_only", touch_read_only},
                                 {"fill_read_only", fill_read_only},
                                 {"copy_to_read_only", copy_to_read_only},
                                 {"manage_after_a_fault", manage_after_a_fault},
                                 {"touch_unmapped", touch_unmapped},
                                 {"touch_after_access_is_taken", touch_after_access_is_taken}};

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was said before a crash is seen
  std::memset(&prop, 0, sizeof prop);
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  int failed = 0;
  for (const Section& section : kSections) {
    if (argc > 1 && std::strcmp(argv[1], section.name) != 0) continue;
    std::printf("-- %s\n", section.name);
    std::fflush(stdout);
    const pid_t child = ::fork();  // before CUDA is initialised
    if (child == 0) {
      section.run();
      std::fflush(stdout);
      std::_Exit(0);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) {
      std::printf("the section ended with status %d\n", status);
      failed = 1;
    }
  }
  return failed;
}
