// SPDX-License-Identifier: Apache-2.0
// A program that loads modules which are none, and then one that is: each bad one must be refused
// with a CUresult and a log that says where, and must leave the session as good as before.
//
//   bad-ptx     exit 0 if all of that held; what did not is printed
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/support/driver_program.h"

namespace {

int failures = 0;

void expect(bool ok, const char* what, CUresult got) {
  if (ok) return;
  std::printf("bad-ptx: %s: got %s\n", what, sluice::test::error_name(got));
  ++failures;
}

const char kGood[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry store(.param .u64 out)\n{\n"
    ".reg .u64 %rd<3>;\n.reg .u32 %r<2>;\n"
    "ld.param.u64 %rd1, [out];\ncvta.to.global.u64 %rd2, %rd1;\n"
    "mov.u32 %r1, 42;\nst.global.u32 [%rd2], %r1;\nret;\n}\n";

void refused(const char* what, const std::string& ptx) {
  char log[512] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule module = nullptr;
  CUresult r = cuModuleLoadDataEx(&module, ptx.c_str(), 2, options, values);
  expect(r == CUDA_ERROR_INVALID_PTX || r == CUDA_ERROR_INVALID_IMAGE ||
             r == CUDA_ERROR_NO_BINARY_FOR_GPU || r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
         what, r);
  std::printf("%s: %d %s\n", what, r, log);
  r = cuModuleLoadData(&module, ptx.c_str());
  expect(r != CUDA_SUCCESS, what, r);
}

// A kernel that calls a function of the device runtime library: launches of kernels and of graphs
// from the GPU.
std::string calling(const std::string& name, const std::string& parameters,
                    const std::string& arguments) {
  return ".version 7.0\n.target sm_70\n.address_size 64\n.extern .func (.param .b32 result) " +
         name + " (" + parameters +
         ");\n.visible .entry k()\n{\n.param .b64 a; .param .b64 b; .param .b32 r;\nst.param.b64 "
         "[a], 0; st.param.b64 [b], 0;\n"
         "call.uni (r), " +
         name + ", (" + arguments + ");\nret;\n}\n";
}

void good_still_works() {
  CUmodule module;
  CUfunction function;
  CUdeviceptr memory;
  unsigned value = 0;
  CUresult r = cuModuleLoadData(&module, kGood);
  expect(r == CUDA_SUCCESS, "a good module", r);
  if (r != CUDA_SUCCESS) return;
  r = cuModuleGetFunction(&function, module, "nothing_of_that_name");
  expect(r == CUDA_ERROR_NOT_FOUND, "a function that is not there", r);
  r = cuModuleGetFunction(&function, module, "store");
  expect(r == CUDA_SUCCESS, "its function", r);
  cuMemAlloc(&memory, 4);
  void* arguments[] = {&memory};
  r = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
  expect(r == CUDA_SUCCESS, "its launch", r);
  r = cuMemcpyDtoH(&value, memory, 4);
  expect(r == CUDA_SUCCESS && value == 42, "its result", r);
  cuMemFree(memory);
  cuModuleUnload(module);
}

}  // namespace

int main() {
  CUcontext context;
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) {
    std::printf("bad-ptx: no GPU\n");
    return 1;
  }
  const std::string good = kGood;
  refused("empty text", "");
  refused("no PTX at all", "this is no PTX\n");
  refused("a text that ends in the middle", good.substr(0, good.size() / 2));
  refused("an unknown instruction",
          good.substr(0, good.find("mov.u32")) + "frobnicate.u32 %r1, 1;\nret;\n}\n");
  refused("an undeclared register",
          good.substr(0, good.find("mov.u32")) + "mov.u32 %r9, 1;\nret;\n}\n");
  refused("braces without end", ".version 7.0\n.target sm_70\n" + std::string(100000, '{'));
  refused("a version of the future", ".version 99.0\n" + good.substr(good.find('\n') + 1));
  refused("dynamic parallelism",
          calling("cudaLaunchDeviceV2", ".param .b64 x, .param .b64 y", "a, b"));
  refused("graph launched from the GPU",
          calling("cudaGraphLaunch", ".param .b64 x, .param .b64 y", "a, b"));
  good_still_works();
  std::printf(failures ? "bad-ptx: %d expectations failed\n" : "bad-ptx: right\n", failures);
  return failures ? 1 : 0;
}
