// SPDX-License-Identifier: Apache-2.0
// What the sections of green-calls share: the driver, kernels, and how answers are said. One file
// includes it.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "mediator/base/cuda_errors.h"
#include "mediator/gpu/driver_api.h"

namespace {

using namespace sluice;

gpu::DriverApi api;
CUcontext primary = nullptr;
CUfunction places = nullptr, spin = nullptr, empty = nullptr;
CUdevResource all;
constexpr unsigned kFine = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, kMostGroups = 200;

// places(out): out[2 * block] = SM, out[2 * block + 1] = SMs there are. spin(flag): until the word
// is not 0.
const char* const kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry places(.param .u64 out)
{
  .reg .b32 %r<4>; .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %smid; mov.u32 %r3, %nsmid;
  mul.wide.u32 %d2, %r1, 8; add.u64 %d1, %d1, %d2;
  st.global.v2.u32 [%d1], {%r2, %r3};
  ret;
}
.visible .entry spin(.param .u64 flag)
{
  .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .pred %p1;
  ld.param.u64 %d1, [flag];
AGAIN:
  ld.volatile.global.u32 %r1, [%d1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
  ret;
}
.visible .entry empty() { ret; }
)";

CUresult say(const char* what, CUresult result) {
  const char* name = cuda_error_name(result);
  std::printf("%s = %s\n", what, name == nullptr ? std::to_string(result).c_str() : name);
  std::fflush(stdout);  // the next call may be the last
  return result;
}
void say(const char* what, long long value) {
  std::printf("%s = %lld\n", what, value);
  std::fflush(stdout);
}
void need(const char* what, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  say(what, result);
  std::_Exit(1);
}
#define CALL(call) say(#call, api.call)
#define VALUE(expression) say(#expression, static_cast<long long>(expression))
#define NEED(call) need(#call, api.call)

void set_up() {
  NEED(cuInit(0));
  NEED(cuDevicePrimaryCtxRetain(&primary, 0));
  NEED(cuCtxSetCurrent(primary));
  CUmodule module = nullptr;
  NEED(cuModuleLoadData(&module, kPtx));
  NEED(cuModuleGetFunction(&places, module, "places"));
  NEED(cuModuleGetFunction(&spin, module, "spin"));
  NEED(cuModuleGetFunction(&empty, module, "empty"));
  NEED(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
}

std::vector<CUdevResource> groups_of(const CUdevResource& input, unsigned size,
                                     CUdevResource* left = nullptr) {
  std::vector<CUdevResource> groups(kMostGroups);
  unsigned count = kMostGroups;
  NEED(cuDevSmResourceSplitByCount(groups.data(), &count, &input, left, kFine, size));
  groups.resize(count);
  return groups;
}
CUresult describe_all(std::vector<CUdevResource> resources, CUdevResourceDesc* desc) {
  return api.cuDevResourceGenerateDesc(desc, resources.data(),
                                       static_cast<unsigned>(resources.size()));
}
CUgreenCtx green_of(std::vector<CUdevResource> resources) {
  CUdevResourceDesc desc = nullptr;
  CUgreenCtx green = nullptr;
  need("describe", describe_all(std::move(resources), &desc));
  NEED(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}
CUstream stream_of(CUgreenCtx green) {
  CUstream stream = nullptr;
  NEED(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  return stream;
}
void show(const char* what, const CUdevResource& r) {
  std::printf("%s: type %d, %u SMs, at least %u, multiples of %u\n", what, r.type, r.sm.smCount,
              r.sm.minSmPartitionSize, r.sm.smCoscheduledAlignment);
  std::fflush(stdout);
}
CUdevResource nothing() {
  CUdevResource r;
  std::memset(&r, 0, sizeof r);
  return r;
}
// How many SMs many blocks in the stream were on.
void count_sms(const char* what, CUstream stream) {
  constexpr unsigned kBlocks = 4096;
  CUdeviceptr out = 0;
  NEED(cuMemAlloc(&out, kBlocks * 8));
  void* arguments[] = {&out};
  if (say(what, api.cuLaunchKernel(places, kBlocks, 1, 1, 1024, 1, 1, 0, stream, arguments,
                                   nullptr)) != CUDA_SUCCESS)
    return;
  NEED(cuStreamSynchronize(stream));
  std::vector<unsigned> words(2 * kBlocks);
  NEED(cuMemcpyDtoH(words.data(), out, kBlocks * 8));
  std::set<unsigned> sms;
  for (unsigned i = 0; i < kBlocks; ++i) sms.insert(words[2 * i]);
  std::printf("  on %zu SMs, %%nsmid %u\n", sms.size(), words[1]);
}
unsigned* flag_word() {
  void* p = nullptr;
  NEED(cuMemHostAlloc(&p, 4, 0));
  *static_cast<volatile unsigned*>(p) = 0;
  return static_cast<unsigned*>(p);
}
CUresult launch_spin(unsigned* flag, CUstream stream) {
  auto address = reinterpret_cast<CUdeviceptr>(flag);
  void* arguments[] = {&address};
  return api.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}
CUresult launch_empty(CUstream stream) {
  return api.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
}
void set(unsigned* flag) { __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST); }
// What has nothing to wait for is done by then.
CUresult query_later(CUstream stream) {
  ::usleep(200'000);
  return api.cuStreamQuery(stream);
}

}  // namespace
