// Runs the conformance set on a real GPU through a CUDA driver library and writes what it answers:
//   record_gpu [libcuda.so.1] FILE
// The file is checked in as golden data (tests/conformance/golden); README.md there says how.
#include <cstdio>
#include <cstring>
#include <vector>

#include "mediator/gpu/driver_api.h"
#include "tests/conformance/instructions.h"

using namespace sluice;

namespace {
bool check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return true;
  std::fprintf(stderr, "%s: CUDA error %d\n", what, static_cast<int>(result));
  return false;
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: record_gpu LIBCUDA FILE\n");
    return 2;
  }
  auto loaded = gpu::load_driver(argv[1]);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 1;
  }
  const auto& cuda = *loaded;
  const std::vector<conformance::Case> cases = conformance::all_cases();
  const std::string text = conformance::module_text(cases);
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  if (!check(cuda.cuInit(0), "cuInit") || !check(cuda.cuDeviceGet(&device, 0), "cuDeviceGet") ||
      !check(cuda.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain") ||
      !check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent") ||
      !check(cuda.cuModuleLoadData(&module, text.c_str()), "cuModuleLoadData"))
    return 1;
  CUdeviceptr in = 0, out = 0;
  const size_t in_bytes = conformance::kThreads * 40, out_bytes = conformance::kThreads * 8;
  if (!check(cuda.cuMemAlloc_v2(&in, in_bytes), "cuMemAlloc") ||
      !check(cuda.cuMemAlloc_v2(&out, out_bytes), "cuMemAlloc"))
    return 1;
  std::vector<conformance::Golden> golden;
  for (const conformance::Case& c : cases) {
    CUfunction function = nullptr;
    const std::vector<uint64_t> words = conformance::operands(c);
    conformance::Golden g;
    g.name = c.name;
    g.results.resize(conformance::kThreads);
    void* parameters[] = {&out, &in};
    if (!check(cuda.cuModuleGetFunction(&function, module, c.name.c_str()), c.name.c_str()) ||
        !check(cuda.cuMemcpyHtoD_v2(in, words.data(), in_bytes), "cuMemcpyHtoD") ||
        !check(cuda.cuLaunchKernel(function, 1, 1, 1, conformance::kThreads, 1, 1, 0, nullptr,
                                   parameters, nullptr),
               c.name.c_str()) ||
        !check(cuda.cuMemcpyDtoH_v2(g.results.data(), out, out_bytes), c.name.c_str()))
      return 1;
    golden.push_back(std::move(g));
  }
  if (!conformance::write_golden(argv[2], golden)) return 1;
  std::printf("%zu instructions, %zu results each\n", golden.size(), conformance::kThreads);
  return 0;
}
