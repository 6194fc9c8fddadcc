// SPDX-License-Identifier: Apache-2.0
// A program that loads modules which are none, and then ones that are: each bad one must be refused
// with a CUresult and a log that says where, and must leave the session as good as before. So must
// a kernel that needs what the software GPU has not. Good modules are PTX and machine code, as far
// as the software GPU runs it (tests/support/cubins.h).
//
//   bad-ptx     exit 0 if all of that held; what did not is printed
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/support/cubins.h"
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

void refused(const char* what, const std::string& ptx, const char* words = "") {
  char log[512] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule module = nullptr;
  CUresult r = cuModuleLoadDataEx(&module, ptx.c_str(), 2, options, values);
  expect(r == CUDA_ERROR_INVALID_PTX || r == CUDA_ERROR_INVALID_IMAGE ||
             r == CUDA_ERROR_NO_BINARY_FOR_GPU || r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
         what, r);
  std::printf("%s: %d %s\n", what, r, log);
  expect(std::strstr(log, words) != nullptr, "what the log says", r);
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

// What the software GPU has not costs the kernel that needs it, when that is launched.
void not_launched(const char* what, const std::string& ptx) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUresult r = cuModuleLoadData(&module, ptx.c_str());
  expect(r == CUDA_SUCCESS, what, r);
  r = cuModuleGetFunction(&function, module, "k");
  expect(r == CUDA_SUCCESS, what, r);
  r = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  if (r == CUDA_SUCCESS) r = cuCtxSynchronize();
  expect(r == CUDA_ERROR_NOT_SUPPORTED, what, r);
  cuModuleUnload(module);
}

void good_still_works(const std::string& image) {
  CUmodule module;
  CUfunction function;
  CUdeviceptr memory;
  unsigned value = 0;
  CUresult r = cuModuleLoadData(&module, image.data());
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

sluice::test::CubinBuilder machine_code() {
  return sluice::test::CubinBuilder().kernel("store", {{0, 8}});
}

// A fat binary with machine code only, as nvcc makes one with -gencode code=sm_90.
std::string fat_binary(const std::string& cubin) {
  const std::string padded = cubin + std::string(8 - cubin.size() % 8, '\0');
  const uint64_t payload = padded.size(), all = 64 + payload;
  std::string image(16 + 64, '\0');
  const auto put = [&](size_t at, auto value) { std::memcpy(&image[at], &value, sizeof value); };
  put(0, 0xba55ed50u), put(4, uint16_t{1}), put(6, uint16_t{16}), put(8, all);
  put(16, uint16_t{2}), put(18, uint16_t{0x101}), put(20, 64u), put(24, payload);
  put(16 + 28, 90u), put(16 + 40, uint64_t{0x11});
  return image + padded;
}

// The software GPU runs none, and says what to do; what no GPU's driver should see says so.
void bad_machine_code() {
  const std::string cubin = machine_code().image();
  const char* mend = "build with PTX as well: nvcc -gencode arch=compute_80,code=compute_80";
  refused("machine code", cubin, mend);
  refused("a fat binary of machine code", fat_binary(cubin), mend);
  refused("a fat binary for another GPU", fat_binary(cubin).replace(16 + 28, 1, "\x50"), mend);
  std::string spoilt = cubin;
  spoilt[offsetof(Elf64_Ehdr, e_shstrndx)] = 3;
  refused("machine code with broken tables", spoilt, "a cubin whose sections have no names");
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
  not_launched("graph launched from the GPU",
               calling("cudaGraphLaunch", ".param .b64 x, .param .b64 y", "a, b"));
  bad_machine_code();
  good_still_works(good);
  good_still_works(machine_code().ptx(good).image());
  std::printf(failures ? "bad-ptx: %d expectations failed\n" : "bad-ptx: right\n", failures);
  return failures ? 1 : 0;
}
