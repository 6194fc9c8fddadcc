// SPDX-License-Identifier: Apache-2.0
// A program that compiles its kernel at run time and hands the driver the machine code alone, as
// CuPy and Triton do.
//
//   jit-program nvrtc LIBRARY          compiles with that libnvrtc
//   jit-program ptxas PTXAS FOLDER     writes PTX into FOLDER, has ptxas assemble it
//
// Then it launches the kernel 20 times and checks every result. Exit 0: right; 4: the module does
// not load.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "abi/cuda_driver.h"
#include "tests/jit/fakes.h"

namespace {

// For the real one; the fake's kernel is the same.
constexpr char kSource[] =
    "extern \"C\" __global__ void scale(float* out, float factor, int count) {"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;"
    "  if (i < count) out[i] = out[i] * factor;"
    "}";

#define OK(call)                                                                 \
  do {                                                                           \
    if (const int answer = static_cast<int>(call); answer != 0) {                \
      std::fprintf(stderr, "line %d: %s answers %d\n", __LINE__, #call, answer); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

std::string by_nvrtc(const char* path) {
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::exit(1);
  }
  const auto call = [&]<class... A>(const char* name, A... a) {
    return reinterpret_cast<int (*)(A...)>(::dlsym(library, name))(a...);
  };
  void* p = nullptr;
  char** none = nullptr;
  const char* options[] = {"-arch=sm_90"};
  OK(call("nvrtcCreateProgram", &p, kSource, "scale.cu", 0, none, none));
  OK(call("nvrtcCompileProgram", p, 1, options));
  size_t bytes = 0;
  OK(call("nvrtcGetCUBINSize", p, &bytes));
  std::string code(bytes, '\0');
  OK(call("nvrtcGetCUBIN", p, code.data()));
  OK(call("nvrtcDestroyProgram", &p));
  return code;
}

std::string by_ptxas(const std::string& ptxas, const std::string& folder) {
  std::ofstream(folder + "/scale.ptx") << sluice::test::scale_ptx();
  const std::string output = folder + "/scale.cubin";
  OK(std::system((ptxas + " --gpu-name=sm_90 " + folder + "/scale.ptx -o " + output).c_str()));
  std::ifstream file(output, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  std::string code;
  if (argc == 3 && std::strcmp(argv[1], "nvrtc") == 0)
    code = by_nvrtc(argv[2]);
  else if (argc == 4 && std::strcmp(argv[1], "ptxas") == 0)
    code = by_ptxas(argv[2], argv[3]);
  else
    return 2;
  OK(cuInit(0));
  CUcontext context;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUmodule module;
  if (const CUresult r = cuModuleLoadData(&module, code.data()); r != CUDA_SUCCESS) {
    std::fprintf(stderr, "cuModuleLoadData: %d\n", static_cast<int>(r));
    return 4;
  }
  CUfunction scale;
  OK(cuModuleGetFunction(&scale, module, "scale"));
  constexpr unsigned kCount = 100'000, kBlock = 128;
  std::vector<float> values(kCount);
  for (unsigned i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  CUdeviceptr device;
  OK(cuMemAlloc_v2(&device, kCount * sizeof(float)));
  OK(cuMemcpyHtoD_v2(device, values.data(), kCount * sizeof(float)));
  float factor = 2;
  unsigned count = kCount;
  void* params[] = {&device, &factor, &count};
  for (int round = 0; round < 20; ++round) {
    factor = round % 2 == 0 ? 2.0F : 0.5F;
    OK(cuLaunchKernel(scale, (kCount + kBlock - 1) / kBlock, 1, 1, kBlock, 1, 1, 0, nullptr, params,
                      nullptr));
  }
  OK(cuCtxSynchronize());
  std::vector<float> got(kCount);
  OK(cuMemcpyDtoH_v2(got.data(), device, kCount * sizeof(float)));
  for (unsigned i = 0; i < kCount; ++i)
    if (got[i] != values[i]) {
      std::fprintf(stderr, "element %u is %g\n", i, static_cast<double>(got[i]));
      return 1;
    }
  return 0;
}
