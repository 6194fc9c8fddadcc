// SPDX-License-Identifier: Apache-2.0
// The device code of the program: fat binaries that compiled code registers before main(), with the
// host addresses of its kernels and variables. Each is given to the driver as it is when something
// of it is first used, so the driver chooses between machine code and PTX. Lives as long as the
// process. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "guest-agent/cudart/driver.h"
#include "guest-agent/cudart/types.h"

namespace sluice::cudart {

// What a compiled program hands over (section .nvFatBinSegment).
struct FatBinaryWrapper {
  uint32_t magic;
  uint32_t version;
  const void* image;  // a fat binary; with version 2 the one that was linked for chosen GPUs
  const void*
      more;  // with version 2: the relocatable fat binaries it was linked of, null at the end
};
inline constexpr uint32_t kWrapperMagic = 0x466243B1;
inline constexpr uint32_t kFatBinaryMagic = 0xBA55ED50;
inline constexpr uint32_t kLinkedWrapper = 2;

struct Binary;
struct Function {
  Binary* binary;
  const void* host;
  std::string name;
  std::atomic<CUkernel> kernel{nullptr};
};
struct Variable {
  Binary* binary;
  const void* host;
  std::string name;
  size_t size;
  void** managed;  // where the program keeps the address of a managed variable; null for others
};
struct Binary {
  const FatBinaryWrapper* wrapper = nullptr;
  std::mutex mutex;  // of loading
  CUlibrary library = nullptr;
  std::string linked;                // what was linked of relocatable code
  CUresult left_out = CUDA_SUCCESS;  // why a part of it was left out, if one was
  bool was_reset = false;            // cudaDeviceReset unloaded it
  std::vector<std::unique_ptr<Function>> functions;
  std::vector<std::unique_ptr<Variable>> variables;
};

Binary* register_binary(const void* wrapper);
void register_function(Binary* binary, const void* host, const char* name);
void register_variable(Binary* binary, const void* host, const char* name, size_t size,
                       void** managed);
// The program or one of its libraries is being unloaded.
void unregister_binary(Binary* binary);
// Managed variables get their addresses. Needs a context.
cudaError_t bind_managed(Binary* binary);

// Null where nothing of this address is registered.
Function* find_function(const void* host);
Variable* find_variable(const void* host);
// The host address that a kernel was registered with; null where it was not.
const void* host_of_kernel(CUkernel kernel);
// The same for a function of the current context, by its name. Null where several kernels have it.
const void* host_of_function(CUfunction function);

// The driver's kernel; loads its binary. Needs a context.
cudaError_t kernel_of(Function& function, CUkernel* kernel);
// What programs name a kernel by: a host address, or a kernel's handle that this runtime handed
// out.
cudaError_t resolve_kernel(const void* named, CUkernel* kernel);
void remember_kernel(CUkernel kernel);
// Where a variable is in device memory. Needs a context.
cudaError_t address_of(const void* symbol, CUdeviceptr* address, size_t* size);

// All go back to the driver; what is used afterwards is loaded anew.
void unload_binaries();

}  // namespace sluice::cudart
