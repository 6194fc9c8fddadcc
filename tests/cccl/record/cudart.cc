// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime of our own, as small as the CCCL programs need it: the runtime API's host side on
// the public driver API, which also writes down what it is asked for (trace_writer.h). Programs
// compiled by nvcc with `-cudart none` link with it; it links with whatever libcuda.so.1 is there:
// the software GPU, or NVIDIA's on a machine with a GPU.
//
// Environment: SLUICE_RECORD_DIR (the folder of traces and modules; unset: record nothing),
// SLUICE_RECORD_ARCH (75 or 90: which of the program's PTX images is loaded; default 90).
// SLUICE_RECORD_DRY (set: kernels are not run, and fresh memory is not written; for programs whose
// host side asks for no result). One thread, one device, synchronous: every operation has ended
// when its call returns. Does not: streams that overlap, events, managed memory, arrays, graphs.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/cccl/record/trace_writer.h"

namespace {

using sluice::record::TraceWriter;

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kFatbinMagic = 0xba55ed50;
constexpr uint16_t kPtxEntry = 1;
constexpr size_t kPadding = 512;      // behind each allocation: see TraceWriter::find
constexpr uint8_t kFreshByte = 0xcd;  // what fresh memory holds, here and in replays

struct Image {
  const uint8_t* fatbin = nullptr;
  CUmodule module = nullptr;
};
struct Function {
  Image* image = nullptr;
  std::string name;
  CUfunction handle = nullptr;
};
struct Variable {
  Image* image = nullptr;
  std::string name;
};
struct PushedConfiguration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};

struct Runtime {
  std::vector<Image*> images;
  std::map<const void*, Function> functions;
  std::map<const void*, Variable> variables;
  std::vector<PushedConfiguration> pushed;
  TraceWriter writer;
  cudaError_t last = cudaSuccess;
  bool ready = false;
  std::string folder;
  std::string program;
};

Runtime& runtime() {
  static Runtime* the = new Runtime;  // programs' static destructors come later than ours would
  return *the;
}

const char* arch() {
  const char* text = std::getenv("SLUICE_RECORD_ARCH");
  return text != nullptr ? text : "90";
}

bool dry() {
  static const bool is = std::getenv("SLUICE_RECORD_DRY") != nullptr;
  return is;
}

cudaError_t note(CUresult result) {
  if (result == CUDA_SUCCESS) return cudaSuccess;
  runtime().last = static_cast<cudaError_t>(result);  // the driver's codes are the runtime's
  return runtime().last;
}

[[noreturn]] void die(const std::string& message) {
  std::fprintf(stderr, "recording runtime: %s\n", message.c_str());
  std::exit(1);
}

void start() {
  Runtime& r = runtime();
  if (r.ready) return;
  r.ready = true;
  CUdevice device = 0;
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
      cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS)
    die("no device");
  if (const char* folder = std::getenv("SLUICE_RECORD_DIR")) r.folder = folder;
  r.program = program_invocation_short_name;
}

template <class T>
T read_at(const uint8_t* bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof(T));
  return value;
}

// The PTX text for arch() in a fat binary that was made with --no-compress.
std::string ptx_of(const uint8_t* fatbin) {
  if (read_at<uint32_t>(fatbin, 0) != kFatbinMagic) die("not a fat binary");
  const uint64_t end = read_at<uint16_t>(fatbin, 6) + read_at<uint64_t>(fatbin, 8);
  const std::string target = std::string(".target sm_") + arch();
  for (uint64_t at = read_at<uint16_t>(fatbin, 6); at < end;) {
    const uint16_t kind = read_at<uint16_t>(fatbin, at);
    const uint32_t header = read_at<uint32_t>(fatbin, at + 4);
    const uint64_t payload = read_at<uint64_t>(fatbin, at + 8);
    if (kind == kPtxEntry) {
      const char* text = reinterpret_cast<const char*>(fatbin + at + header);
      std::string ptx(text, strnlen(text, payload));
      if (ptx.find(target) != std::string::npos) return ptx;
    }
    at += header + payload;
  }
  die(std::string("no PTX for sm_") + arch() + " (compressed?)");
}

void load(Image& image) {
  start();
  if (image.module != nullptr) return;
  const std::string ptx = ptx_of(image.fatbin);
  Runtime& r = runtime();
  if (!r.folder.empty()) {
    const std::string path = r.folder + "/" + r.program + ".sm_" + arch() + ".ptx";
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr) die("cannot write " + path);
    std::fwrite(ptx.data(), 1, ptx.size(), file);
    std::fclose(file);
  }
  char log[4096] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log) - 1)};
  const CUresult result = cuModuleLoadDataEx(&image.module, ptx.c_str(), 2, options, values);
  if (result != CUDA_SUCCESS) die(std::string("the module does not load: ") + log);
}

Function* function_of(const void* key) {
  Runtime& r = runtime();
  const auto found = r.functions.find(key);
  if (found == r.functions.end()) return nullptr;
  Function& function = found->second;
  if (function.handle == nullptr) {
    load(*function.image);
    if (cuModuleGetFunction(&function.handle, function.image->module, function.name.c_str()) !=
        CUDA_SUCCESS)
      return nullptr;
  }
  return &function;
}

cudaError_t launch(const void* key, dim3 grid, dim3 block, void** args, size_t shared) {
  Function* function = function_of(key);
  if (function == nullptr) return runtime().last = cudaErrorInvalidDeviceFunction;
  std::vector<uint8_t> params;
  std::vector<uint32_t> offsets;
  for (size_t i = 0;; ++i) {
    size_t offset = 0, bytes = 0;
    if (cuFuncGetParamInfo(function->handle, i, &offset, &bytes) != CUDA_SUCCESS) break;
    params.resize(offset + bytes);
    std::memcpy(&params[offset], args[i], bytes);
    offsets.push_back(static_cast<uint32_t>(offset));
  }
  const uint32_t g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z};
  runtime().writer.launch(function->name, g, b, static_cast<uint32_t>(shared), params, offsets);
  if (dry()) return cudaSuccess;
  cudaError_t result =
      note(cuLaunchKernel(function->handle, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                          static_cast<unsigned>(shared), nullptr, args, nullptr));
  if (result == cudaSuccess) result = note(cuCtxSynchronize());
  if (result != cudaSuccess)
    std::fprintf(stderr, "recording runtime: %s: %s\n", function->name.c_str(),
                 cudaGetErrorString(result));
  return result;
}

bool is_device(const void* pointer) {
  return runtime().writer.find(reinterpret_cast<uint64_t>(pointer)).known;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  start();
  if (bytes == 0) return cudaSuccess;
  const uint64_t target = reinterpret_cast<uint64_t>(to), source = reinterpret_cast<uint64_t>(from);
  if (kind == cudaMemcpyDefault)
    kind = is_device(to) ? (is_device(from) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                         : (is_device(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  CUresult result = CUDA_SUCCESS;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      runtime().writer.upload(target, from, bytes);
      result = cuMemcpyHtoD(target, from, bytes);
      break;
    case cudaMemcpyDeviceToHost:
      result = cuMemcpyDtoH(to, source, bytes);
      runtime().writer.expect(source, to, bytes);
      break;
    case cudaMemcpyDeviceToDevice:
      runtime().writer.copy(target, source, bytes);
      result = cuMemcpyDtoD(target, source, bytes);
      break;
    default:
      std::memmove(to, from, bytes);
  }
  return note(result);
}

}  // namespace

extern "C" {

void sluice_record_begin(const char* name) {
  start();
  Runtime& r = runtime();
  if (!r.folder.empty()) r.writer.begin(r.folder, name, r.program + ".sm_" + arch() + ".ptx");
}
// What an input will hold when the trace is replayed; tests/bench/preempt/cccl_cases.cc reads
// these.
void sluice_record_noise(void* memory, uint32_t mask) {
  runtime().writer.contents(reinterpret_cast<uint64_t>(memory), "noise " + std::to_string(mask));
}
void sluice_record_ramp(void* memory, uint64_t multiplier, uint64_t divisor) {
  runtime().writer.contents(reinterpret_cast<uint64_t>(memory),
                            "ramp " + std::to_string(multiplier) + " " + std::to_string(divisor));
}
void sluice_record_end(int right) { runtime().writer.end(right != 0); }

// What nvcc's generated code calls.
void** __cudaRegisterFatBinary(void* wrapper) {
  const auto* words = static_cast<const uint8_t*>(wrapper);
  if (read_at<uint32_t>(words, 0) != kWrapperMagic) die("unknown fat binary wrapper");
  auto* image = new Image{read_at<const uint8_t*>(words, 8), nullptr};
  runtime().images.push_back(image);
  return reinterpret_cast<void**>(image);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** image, const char* host, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  runtime().functions[host] = {reinterpret_cast<Image*>(image), name, nullptr};
}
void __cudaRegisterVar(void** image, char* host, char*, const char* name, int, size_t, int, int) {
  runtime().variables[host] = {reinterpret_cast<Image*>(image), name};
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  runtime().pushed.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  auto& pushed = runtime().pushed;
  if (pushed.empty()) return cudaErrorMissingConfiguration;
  *grid = pushed.back().grid;
  *block = pushed.back().block;
  *shared = pushed.back().shared;
  *static_cast<void**>(stream) = pushed.back().stream;
  pushed.pop_back();
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               size_t shared, cudaStream_t) {
  return launch(kernel, grid, block, args, shared);
}
cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** args, size_t shared,
                             cudaStream_t) {
  return launch(host, grid, block, args, shared);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** args) {
  return launch(host, config->gridDim, config->blockDim, args, config->dynamicSmemBytes);
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  start();
  CUdeviceptr address = 0;
  const CUresult result = cuMemAlloc(&address, bytes + kPadding);
  if (result != CUDA_SUCCESS) return note(result);
  if (!dry()) cuMemsetD8(address, kFreshByte, bytes + kPadding);
  runtime().writer.allocate(address, bytes);
  *pointer = reinterpret_cast<void*>(address);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}
cudaError_t cudaFree(void* pointer) {
  start();
  if (pointer == nullptr) return cudaSuccess;
  runtime().writer.free(reinterpret_cast<uint64_t>(pointer));
  return note(cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)));
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  *pointer = std::malloc(bytes);
  return *pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  return copy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  start();
  if (bytes == 0) return cudaSuccess;
  runtime().writer.fill(reinterpret_cast<uint64_t>(to), static_cast<uint8_t>(value), bytes);
  if (dry()) return cudaSuccess;
  return note(cuMemsetD8(reinterpret_cast<CUdeviceptr>(to), static_cast<uint8_t>(value), bytes));
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  return cudaMemset(to, value, bytes);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind) {
  const auto found = runtime().variables.find(symbol);
  if (found == runtime().variables.end()) return runtime().last = cudaErrorInvalidSymbol;
  load(*found->second.image);
  CUdeviceptr address = 0;
  size_t size = 0;
  const CUresult result =
      cuModuleGetGlobal(&address, &size, found->second.image->module, found->second.name.c_str());
  if (result != CUDA_SUCCESS) return note(result);
  runtime().writer.symbol(found->second.name, offset, from, bytes);
  return note(cuMemcpyHtoD(address + offset, from, bytes));
}

cudaError_t cudaDeviceSynchronize() {
  start();
  return note(cuCtxSynchronize());
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  start();
  return note(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), 0));
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  Function* function = function_of(host);
  if (function == nullptr) return runtime().last = cudaErrorInvalidDeviceFunction;
  std::memset(attributes, 0, sizeof(*attributes));
  const auto ask = [&](CUfunction_attribute which) {
    int value = 0;
    cuFuncGetAttribute(&value, which, function->handle);
    return value;
  };
  attributes->sharedSizeBytes = ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  attributes->constSizeBytes = ask(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
  attributes->localSizeBytes = ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  attributes->maxThreadsPerBlock = ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  attributes->numRegs = ask(CU_FUNC_ATTRIBUTE_NUM_REGS);
  // What the image was compiled for decides which tuning CUB's host code takes.
  attributes->ptxVersion = std::atoi(arch());
  attributes->binaryVersion = ask(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
  attributes->maxDynamicSharedSizeBytes = ask(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
  Function* function = function_of(host);
  if (function == nullptr) return runtime().last = cudaErrorInvalidDeviceFunction;
  return note(
      cuFuncSetAttribute(function->handle, static_cast<CUfunction_attribute>(attribute), value));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host,
                                                                   int threads, size_t shared,
                                                                   unsigned flags) {
  Function* function = function_of(host);
  if (function == nullptr) return runtime().last = cudaErrorInvalidDeviceFunction;
  return note(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function->handle,
                                                                   threads, shared, flags));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host,
                                                          int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}
cudaError_t cudaGetLastError() {
  const cudaError_t last = runtime().last;
  runtime().last = cudaSuccess;
  return last;
}
cudaError_t cudaPeekAtLastError() { return runtime().last; }
const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  cuGetErrorString(static_cast<CUresult>(error), &text);
  return text != nullptr ? text : "unknown error";
}
const char* cudaGetErrorName(cudaError_t error) {
  const char* text = nullptr;
  cuGetErrorName(static_cast<CUresult>(error), &text);
  return text != nullptr ? text : "cudaErrorUnknown";
}

}  // extern "C"
