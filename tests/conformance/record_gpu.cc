// SPDX-License-Identifier: Apache-2.0
// Runs the conformance set on a real GPU through a CUDA driver library and writes what it answers:
//   record_gpu LIBCUDA FOLDER [SCALE [SKIPPED-PROGRAM ...]]
// FOLDER/h200.bin and FOLDER/h200_programs.bin are checked in as golden data (README.md says when
// and how). SCALE above 1 makes that many times the random matrices: for finding out how a
// tensor core adds, not for checking in. A program that fails ends the run with its name.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "mediator/gpu/driver_api.h"
#include "tests/conformance/instructions.h"
#include "tests/conformance/programs.h"

using namespace sluice;

namespace {
bool check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return true;
  std::fprintf(stderr, "%s: CUDA error %d\n", what, static_cast<int>(result));
  return false;
}

bool record_instructions(const gpu::DriverApi& cuda, const std::string& file) {
  const std::vector<conformance::Case> cases = conformance::all_cases();
  const std::string text = conformance::module_text(cases);
  CUmodule module = nullptr;
  if (!check(cuda.cuModuleLoadData(&module, text.c_str()), "cuModuleLoadData")) return false;
  CUdeviceptr in = 0, out = 0;
  const size_t in_bytes = conformance::kThreads * 40, out_bytes = conformance::kThreads * 8;
  if (!check(cuda.cuMemAlloc_v2(&in, in_bytes), "cuMemAlloc") ||
      !check(cuda.cuMemAlloc_v2(&out, out_bytes), "cuMemAlloc"))
    return false;
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
      return false;
    golden.push_back(std::move(g));
  }
  if (!conformance::write_golden(file, golden)) return false;
  std::printf("%zu instructions, %zu results each\n", golden.size(), conformance::kThreads);
  return true;
}

bool record_programs(const gpu::DriverApi& cuda, const std::string& file, unsigned scale,
                     const std::vector<std::string>& skipped) {
  std::vector<conformance::Program> programs;
  for (conformance::Program& p : conformance::all_programs(scale)) {
    bool skip = false;
    for (const std::string& name : skipped) skip = skip || p.name == name;
    if (!skip) programs.push_back(std::move(p));
  }
  std::vector<conformance::ProgramResult> results;
  std::string error;
  const bool done = conformance::run_programs(cuda, programs, results, error);
  if (!done) std::printf("FAILED %s\n", error.c_str());
  std::printf("%zu programs\n", results.size());
  return conformance::write_results(file, results) && done;
}
}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: record_gpu LIBCUDA FOLDER [SCALE [SKIPPED-PROGRAM ...]]\n");
    return 2;
  }
  auto loaded = gpu::load_driver(argv[1]);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 1;
  }
  const auto& cuda = *loaded;
  CUdevice device = 0;
  CUcontext context = nullptr;
  if (!check(cuda.cuInit(0), "cuInit") || !check(cuda.cuDeviceGet(&device, 0), "cuDeviceGet") ||
      !check(cuda.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain") ||
      !check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent"))
    return 1;
  const std::string folder = argv[2];
  const unsigned scale = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 1;
  const std::vector<std::string> skipped(argv + (argc > 4 ? 4 : argc), argv + argc);
  if (scale == 1 && !record_instructions(cuda, folder + "/h200.bin")) return 1;
  const std::string name = scale == 1 ? "/h200_programs.bin" : "/scaled_programs.bin";
  return record_programs(cuda, folder + name, scale, skipped) ? 0 : 3;
}
