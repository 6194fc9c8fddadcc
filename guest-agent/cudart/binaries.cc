// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/cudart/binaries.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "guest-agent/cudart/runtime.h"

extern "C" const char* cudaGetErrorName(sluice::cudart::cudaError_t error);

namespace sluice::cudart {
namespace {

struct Registry {
  std::shared_mutex mutex;
  std::unordered_set<Binary*> binaries;
  std::unordered_map<const void*, Function*> functions;
  std::unordered_map<const void*, Variable*> variables;
  std::unordered_map<CUkernel, const void*> hosts;  // of kernels that were loaded or handed out
  // What was unregistered: a thread may still be in a launch of it, so the records stay.
  std::vector<std::unique_ptr<Binary>> ended;
};
Registry& registry() {
  static Registry* const r = new Registry;
  return *r;
}

// The size of a fat binary with its header.
size_t size_of_image(const void* image) {
  uint16_t header = 0;
  uint64_t body = 0;
  std::memcpy(&header, static_cast<const char*>(image) + 6, sizeof header);
  std::memcpy(&body, static_cast<const char*>(image) + 8, sizeof body);
  return header + body;
}
bool is_fat_binary(const void* image) {
  uint32_t magic = 0;
  if (image != nullptr) std::memcpy(&magic, image, sizeof magic);
  return magic == kFatBinaryMagic;
}

// With -rdc=true and code of PTX only, nvcc leaves the linked fat binary empty. A driver that loads
// lazily takes it and finds no kernel in it later.
bool is_empty_fat_binary(const void* image) {
  uint64_t body = 0;
  std::memcpy(&body, static_cast<const char*>(image) + 8, sizeof body);
  return body == 0;
}

bool log_is_asked_for() {
  static const bool asked = std::getenv("SLUICE_CUDART_LOG") != nullptr;
  return asked;
}

// What did not load, and why, for whoever asks.
CUresult report(const char* what, CUresult r) {
  if (log_is_asked_for() && r != CUDA_SUCCESS) {
    std::fprintf(stderr, "libcudart: %s: %s\n", what, cudaGetErrorName(to_runtime(r)));
  }
  return r;
}

// A driver without the call is one whose memory the host addresses anyway: the software GPU.
CUresult managed_address(CUlibrary library, const char* name, CUdeviceptr* address, size_t* bytes) {
  if (driver_symbol("cuLibraryGetManaged") == nullptr) {
    return driver().cuLibraryGetGlobal(address, bytes, library, name);
  }
  return call_driver<CUdeviceptr*, size_t*, CUlibrary, const char*>("cuLibraryGetManaged", address,
                                                                    bytes, library, name);
}

CUresult load(CUlibrary* library, const void* image) {
  return driver().cuLibraryLoadData(library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

// Where the driver says what is wrong with an image that another way may still load, so that it
// does not tell the user.
struct Errors {
  char text[512] = "";
  CUjit_option options[2] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[2] = {text, reinterpret_cast<void*>(sizeof text)};

  CUresult load(CUlibrary* library, const void* image) {
    values[1] = reinterpret_cast<void*>(sizeof text);  // a driver writes there how much it used
    return driver().cuLibraryLoadData(library, image, options, values, 2, nullptr, nullptr, 0);
  }
};

// Links the parts that -rdc=true left relocatable. A part without code for this GPU is left out:
// the device runtime, which nvcc always adds, has machine code only. Whoever misses something of it
// gets an error with the reason, which is in `errors` if it is not that no part has such code.
CUresult link_parts(Binary& binary, Errors& errors) {
  CUlinkState state = nullptr;
  errors.values[1] = reinterpret_cast<void*>(sizeof errors.text);
  CUresult r = driver().cuLinkCreate_v2(2, errors.options, errors.values, &state);
  if (r != CUDA_SUCCESS) return r;
  const auto* parts = static_cast<const void* const*>(binary.wrapper->more);
  bool any = false;
  for (size_t i = 0; r == CUDA_SUCCESS && parts[i] != nullptr; ++i) {
    if (!is_fat_binary(parts[i])) r = CUDA_ERROR_INVALID_IMAGE;
    if (r != CUDA_SUCCESS) break;
    const std::string name = "part " + std::to_string(i);
    r = driver().cuLinkAddData_v2(state, CU_JIT_INPUT_FATBINARY, const_cast<void*>(parts[i]),
                                  size_of_image(parts[i]), name.c_str(), 0, nullptr, nullptr);
    report(name.c_str(), r);
    if (r == CUDA_ERROR_NO_BINARY_FOR_GPU) {
      binary.left_out = r;
      r = CUDA_SUCCESS;
    } else {
      any = true;
    }
  }
  if (r == CUDA_SUCCESS && any) errors.text[0] = '\0';
  if (r == CUDA_SUCCESS && !any) r = CUDA_ERROR_NO_BINARY_FOR_GPU;
  void* image = nullptr;
  size_t bytes = 0;
  if (r == CUDA_SUCCESS) r = report("link", driver().cuLinkComplete(state, &image, &bytes));
  if (r == CUDA_SUCCESS) {
    binary.linked.assign(static_cast<const char*>(image), bytes);
    r = report("linked image", load(&binary.library, binary.linked.c_str()));
  }
  driver().cuLinkDestroy(state);
  return r;
}

// Whether the driver offers the binary without some of its managed variables. A guest's does so
// with machine code that was linked from parts: it keeps such variables in pinned memory, which
// takes the PTX that the parts have.
bool lacks_managed(const Binary& binary) {
  for (const auto& variable : binary.variables) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (variable->managed != nullptr && managed_address(binary.library, variable->name.c_str(),
                                                        &address, &bytes) == CUDA_ERROR_NOT_FOUND)
      return true;
  }
  return false;
}

void link_for_managed(Binary& binary) {
  Errors errors;  // of this link alone: an image that did not load matters no more
  CUlibrary linked_before = std::exchange(binary.library, nullptr);
  if (report("linked parts", link_parts(binary, errors)) == CUDA_SUCCESS) {
    driver().cuLibraryUnload(linked_before);
  } else {
    if (errors.text[0] != '\0') std::fprintf(stderr, "libcudart: %s\n", errors.text);
    binary.library = linked_before;
  }
}

// Tells the program where its managed variables are.
cudaError_t bind_variables(const Binary& binary) {
  for (const auto& variable : binary.variables) {
    if (variable->managed == nullptr) continue;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    const CUresult r = managed_address(binary.library, variable->name.c_str(), &address, &bytes);
    if (r == CUDA_ERROR_NOT_SUPPORTED) {
      std::fprintf(stderr,
                   "libcudart: this driver has no managed variables (%s); use cudaMallocManaged\n",
                   variable->name.c_str());
    }
    // The program would read it through a null pointer, and end without a word.
    if (r == CUDA_ERROR_NOT_FOUND)
      std::fprintf(stderr,
                   "libcudart: the managed variable %s is in machine code without PTX; build with "
                   "PTX (-gencode arch=compute_75,code=compute_75)\n",
                   variable->name.c_str());
    if (r != CUDA_SUCCESS) return to_runtime(r);
    *variable->managed = reinterpret_cast<void*>(address);
  }
  return cudaSuccess;
}

// As it is, unless it is empty; then with its wrapper, because a driver may know the parts that it
// was linked of; then linked of those parts.
cudaError_t load_binary(Binary& binary) {
  std::lock_guard lock(binary.mutex);
  if (binary.library != nullptr) return cudaSuccess;
  const FatBinaryWrapper* wrapper = binary.wrapper;
  if (wrapper == nullptr || wrapper->magic != kWrapperMagic) return cudaErrorInvalidKernelImage;
  const bool in_parts = wrapper->version == kLinkedWrapper && wrapper->more != nullptr;
  CUresult r = CUDA_ERROR_INVALID_IMAGE;
  Errors errors;
  if (is_fat_binary(wrapper->image) && !(in_parts && is_empty_fat_binary(wrapper->image))) {
    const bool with_reason = in_parts || log_is_asked_for();
    r = report("fat binary", with_reason ? errors.load(&binary.library, wrapper->image)
                                         : load(&binary.library, wrapper->image));
    if (r != CUDA_SUCCESS && !in_parts && errors.text[0] != '\0')
      std::fprintf(stderr, "libcudart: %s\n", errors.text);
  }
  if (r != CUDA_SUCCESS && in_parts)
    r = report("its wrapper", errors.load(&binary.library, wrapper));
  const bool as_it_is = r == CUDA_SUCCESS;
  if (!as_it_is && in_parts) r = report("linked parts", link_parts(binary, errors));
  if (as_it_is && in_parts && lacks_managed(binary)) link_for_managed(binary);
  if (r != CUDA_SUCCESS && in_parts && errors.text[0] != '\0')
    std::fprintf(stderr, "libcudart: %s\n", errors.text);
  if (r != CUDA_SUCCESS) binary.library = nullptr;
  if (r == CUDA_SUCCESS && binary.was_reset) bind_variables(binary);  // they lie elsewhere now
  binary.was_reset = false;
  return to_runtime(r);
}

}  // namespace

Binary* register_binary(const void* wrapper) {
  auto* binary = new Binary;
  binary->wrapper = static_cast<const FatBinaryWrapper*>(wrapper);
  std::lock_guard lock(registry().mutex);
  registry().binaries.insert(binary);
  return binary;
}

void register_function(Binary* binary, const void* host, const char* name) {
  std::lock_guard lock(registry().mutex);
  if (registry().binaries.count(binary) == 0 || name == nullptr) return;
  auto function = std::make_unique<Function>();
  function->binary = binary;
  function->host = host;
  function->name = name;
  registry().functions[host] = function.get();
  binary->functions.push_back(std::move(function));
}

void register_variable(Binary* binary, const void* host, const char* name, size_t size,
                       void** managed) {
  std::lock_guard lock(registry().mutex);
  if (registry().binaries.count(binary) == 0 || name == nullptr) return;
  auto variable = std::make_unique<Variable>(Variable{binary, host, name, size, managed});
  registry().variables[host] = variable.get();
  binary->variables.push_back(std::move(variable));
}

void unregister_binary(Binary* binary) {
  {
    std::lock_guard lock(registry().mutex);
    if (registry().binaries.erase(binary) == 0) return;
    std::erase_if(registry().functions, [&](const auto& f) { return f.second->binary == binary; });
    std::erase_if(registry().variables, [&](const auto& v) { return v.second->binary == binary; });
    for (const auto& f : binary->functions) registry().hosts.erase(f->kernel);
    registry().ended.emplace_back(binary);
  }
  // At exit the driver is left alone.
  if (ensure_driver() == cudaSuccess && binary->library != nullptr)
    driver().cuLibraryUnload(binary->library);
  binary->library = nullptr;
}

cudaError_t bind_managed(Binary* binary) {
  {
    std::shared_lock lock(registry().mutex);
    if (registry().binaries.count(binary) == 0) return cudaErrorInvalidValue;
  }
  bool any = false;
  for (const auto& variable : binary->variables) any = any || variable->managed != nullptr;
  if (!any) return cudaSuccess;
  if (const cudaError_t error = load_binary(*binary); error != cudaSuccess) return error;
  return bind_variables(*binary);
}

Function* find_function(const void* host) {
  std::shared_lock lock(registry().mutex);
  const auto found = registry().functions.find(host);
  return found == registry().functions.end() ? nullptr : found->second;
}

Variable* find_variable(const void* host) {
  std::shared_lock lock(registry().mutex);
  const auto found = registry().variables.find(host);
  if (found != registry().variables.end()) return found->second;
  // A program that names a managed variable gives the address that it has got.
  for (const auto& [pointer, variable] : registry().variables)
    if (variable->managed != nullptr && host != nullptr && *variable->managed == host)
      return variable;
  return nullptr;
}

const void* host_of_kernel(CUkernel kernel) {
  std::shared_lock lock(registry().mutex);
  const auto found = registry().hosts.find(kernel);
  return found == registry().hosts.end() ? nullptr : found->second;
}

const void* host_of_function(CUfunction function) {
  const char* name = nullptr;
  if (driver().cuFuncGetName(&name, function) != CUDA_SUCCESS || name == nullptr) return nullptr;
  std::shared_lock lock(registry().mutex);
  const void* host = nullptr;
  for (const auto& [address, registered] : registry().functions) {
    if (registered->name != name) continue;
    if (host != nullptr) return nullptr;
    host = address;
  }
  return host;
}

void remember_kernel(CUkernel kernel) {
  std::lock_guard lock(registry().mutex);
  registry().hosts.try_emplace(kernel, nullptr);
}

cudaError_t kernel_of(Function& function, CUkernel* kernel) {
  *kernel = function.kernel.load(std::memory_order_acquire);
  if (*kernel != nullptr) return cudaSuccess;
  if (const cudaError_t error = load_binary(*function.binary); error != cudaSuccess) return error;
  const CUresult r =
      driver().cuLibraryGetKernel(kernel, function.binary->library, function.name.c_str());
  if (r == CUDA_ERROR_NOT_FOUND) {
    const CUresult left_out = function.binary->left_out;
    return left_out != CUDA_SUCCESS ? to_runtime(left_out) : cudaErrorInvalidDeviceFunction;
  }
  if (r != CUDA_SUCCESS) return to_runtime(r);
  {
    std::lock_guard lock(registry().mutex);
    registry().hosts[*kernel] = function.host;
  }
  function.kernel.store(*kernel, std::memory_order_release);
  return cudaSuccess;
}

cudaError_t resolve_kernel(const void* named, CUkernel* kernel) {
  if (named == nullptr) return cudaErrorInvalidDeviceFunction;
  if (Function* function = find_function(named)) return kernel_of(*function, kernel);
  *kernel = static_cast<CUkernel>(const_cast<void*>(named));
  std::shared_lock lock(registry().mutex);
  return registry().hosts.count(*kernel) != 0 ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t address_of(const void* symbol, CUdeviceptr* address, size_t* size) {
  const Variable* variable = find_variable(symbol);
  if (variable == nullptr) return cudaErrorInvalidSymbol;
  if (const cudaError_t error = load_binary(*variable->binary); error != cudaSuccess) return error;
  const CUlibrary library = variable->binary->library;
  const char* name = variable->name.c_str();
  const CUresult r = variable->managed != nullptr
                         ? managed_address(library, name, address, size)
                         : driver().cuLibraryGetGlobal(address, size, library, name);
  return r == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : to_runtime(r);
}

void unload_binaries() {
  std::lock_guard lock(registry().mutex);
  for (Binary* binary : registry().binaries) {
    std::lock_guard loading(binary->mutex);
    for (const auto& function : binary->functions) function->kernel = nullptr;
    if (binary->library != nullptr) driver().cuLibraryUnload(binary->library);
    binary->was_reset = binary->library != nullptr;
    binary->library = nullptr;
  }
  registry().hosts.clear();
}

}  // namespace sluice::cudart
