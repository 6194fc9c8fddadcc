// SPDX-License-Identifier: Apache-2.0
// A process of its own on a shared software GPU, driven over stdin, one letter at a time,
// and answering each with a line on stdout. For contention_test.cc.
//
//   argv: driver library. Environment: SLUICE_SOFT_GPU.
//   i  initialise, make a context; answers its TSGID
//   s  launch a kernel that spins until `r`; answers at once
//   r  release it; answers when all that was launched has ended, with the CUresult
//   S  launch so many blocks that spin until `r` that they fill the GPU (4 SMs of 4 blocks)
//   c  launch 24 blocks that each work for some 10 ms, beside one another; answers at once
//   C  launch 400 blocks that each work for some 1 ms; answers at once
//   K  launch 8 clusters of 4 blocks that hand numbers round in shared memory; answers at once
//   g  launch a cooperative grid that fills the GPU, whose blocks wait for one another; answers at
//   once y  wait for all; answers with the CUresult w  wait for all; answers with a checksum of
//   what `c` or `C` has made, or -CUresult m  run 64 short blocks; answers with the set of SMs on
//   which they were k  launch 50 kernels in a row that each do a little, wait; answers with the
//   CUresult a  allocate 1 MiB of device memory; answers with the CUresult f  free bytes of device
//   memory 0 to 7  from now on all launches but `k` go to a stream of a new green context of that
//   group of SMs, of
//      groups as small as can be, and `g` to 8 blocks; answers with the number of groups
//   x X t  run a kernel that stores to an address that is not mapped, to a misaligned one, or that
//   ends in `trap`; answers with the CUresult that waiting gives
//   l h  from now on all launches but `k` go to a new stream of the lowest, the highest priority
//   R  the same of what is left over when there are as many groups as can be
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>

#include "abi/soft_gpu.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/softgpu/softgpu.h"
#include "tests/unit/softgpu/ptx.h"

using namespace sluice;

namespace {
// What grid.sync() of cooperative groups does (resources_test.cc).
constexpr const char* kMeet = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry meet() {
  .reg .b32 %r<6>; .reg .b64 %d<2>; .reg .pred %p<2>;
  mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2;
  mov.b64 %d1, {%r2, %r1};
  mov.u32 %r3, %nctaid.x;
  atom.global.add.u32 %r4, [%d1+4], 1;
AGAIN:
  ld.acquire.gpu.u32 %r5, [%d1+4];
  setp.lt.u32 %p1, %r5, %r3;
  @%p1 bra AGAIN;
  ret;
})";

// Each block hands its numbers to the next one of the cluster, round after round.
constexpr const char* kRing = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry ring(.param .u64 out, .param .u32 rounds) .reqnctapercluster 4, 1, 1 {
  .reg .b32 %r<12>; .reg .b64 %d<3>; .reg .pred %p<2>; .shared .align 4 .b32 s[128];
  ld.param.u64 %d0, [out]; ld.param.u32 %r9, [rounds];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
  mad.lo.u32 %r3, %r1, %r2, %r0;
  mov.u32 %r4, s; mad.lo.u32 %r4, %r0, 4, %r4;
  mov.u32 %r5, %cluster_ctarank; add.u32 %r5, %r5, 1; and.b32 %r5, %r5, 3;
  mapa.shared::cluster.u32 %r7, %r4, %r5;
  st.shared.u32 [%r4], %r3;
AGAIN:
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ld.shared.u32 %r8, [%r4]; mad.lo.u32 %r8, %r8, 1664525, %r3;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  st.shared::cluster.u32 [%r7], %r8;
  sub.u32 %r9, %r9, 1; setp.ne.u32 %p1, %r9, 0;
  @%p1 bra AGAIN;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ld.shared.u32 %r8, [%r4];
  mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %d0, %d1; st.global.u32 [%d1], %r8;
  ret;
})";

// A stream of a new green context of group `which`, -1: of what the groups leave. Its groups'
// number, or -CUresult.
long make_green(const gpu::DriverApi& api, int which, CUstream& stream) {
  CUdevResource all, groups[SLUICE_SOFT_MAX_SMS], left;
  unsigned count = SLUICE_SOFT_MAX_SMS;
  CUdevResourceDesc desc = nullptr;
  CUgreenCtx green = nullptr;
  CUresult r = api.cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (r == CUDA_SUCCESS)
    r = api.cuDevSmResourceSplitByCount(groups, &count, &all, &left,
                                        CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 1);
  if (r == CUDA_SUCCESS)
    r = api.cuDevResourceGenerateDesc(&desc, which < 0 ? &left : &groups[which], 1);
  if (r == CUDA_SUCCESS) r = api.cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM);
  if (r == CUDA_SUCCESS) r = api.cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0);
  return r == CUDA_SUCCESS ? static_cast<long>(count) : -static_cast<long>(r);
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto loaded = gpu::load_driver(argv[1]);
  if (!loaded) return 3;
  gpu::DriverApi& api = *loaded;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr, iota = nullptr, churn = nullptr, where = nullptr;
  CUstream stream = nullptr;
  void* word = nullptr;
  CUdeviceptr flag = 0, memory = 0, p = 0, out = 0;
  constexpr size_t kOutWords = 400 * 128;
  char command;
  while (::read(STDIN_FILENO, &command, 1) == 1) {
    long answer = 0;
    switch (command) {
      case 'i': {
        unsigned tsgid = 0;
        const auto ask = reinterpret_cast<decltype(&sluice_softgpu_tsgid)>(
            ::dlsym(api.library, "sluice_softgpu_tsgid"));
        if (api.cuInit(0) != CUDA_SUCCESS ||
            api.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
            api.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
            api.cuModuleLoadData(&module, kTestPtx) != CUDA_SUCCESS ||
            api.cuModuleGetFunction(&spin, module, "spin") != CUDA_SUCCESS ||
            api.cuModuleGetFunction(&iota, module, "iota") != CUDA_SUCCESS ||
            api.cuModuleGetFunction(&churn, module, "churn") != CUDA_SUCCESS ||
            api.cuModuleGetFunction(&where, module, "where") != CUDA_SUCCESS ||
            api.cuMemHostAlloc(&word, 4, 0) != CUDA_SUCCESS ||
            api.cuMemAlloc(&memory, 4096) != CUDA_SUCCESS || ask(nullptr, &tsgid) != CUDA_SUCCESS) {
          return 4;
        }
        flag = reinterpret_cast<CUdeviceptr>(word);
        answer = tsgid;
        break;
      }
      case 's': {
        void* arguments[] = {&flag};
        answer = api.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
        break;
      }
      case 'S': {
        void* arguments[] = {&flag};
        answer = api.cuLaunchKernel(spin, 16, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
        break;
      }
      case 'g': {
        CUmodule meeting = nullptr;
        CUfunction meet = nullptr;
        answer = api.cuModuleLoadData(&meeting, kMeet);
        if (answer == 0) answer = api.cuModuleGetFunction(&meet, meeting, "meet");
        if (answer == 0)
          answer = api.cuLaunchCooperativeKernel(meet, stream == nullptr ? 16 : 8, 1, 1, 1, 1, 1, 0,
                                                 stream, nullptr);
        break;
      }
      case 'y':
        answer = api.cuCtxSynchronize();
        break;
      case 'c':
      case 'C': {
        if (out == 0 && api.cuMemAlloc(&out, kOutWords * 4) != CUDA_SUCCESS) return 6;
        const bool many = command == 'C';
        uint32_t rounds = many ? 150 : 2500;
        void* arguments[] = {&out, &rounds};
        answer = api.cuMemsetD32(out, 0, kOutWords);
        if (answer == 0)
          answer = api.cuLaunchKernel(churn, many ? 400 : 24, 1, 1, 128, 1, 1, 0, stream, arguments,
                                      nullptr);
        break;
      }
      case 'K': {
        if (out == 0 && api.cuMemAlloc(&out, kOutWords * 4) != CUDA_SUCCESS) return 6;
        CUmodule clusters = nullptr;
        CUfunction ring = nullptr;
        uint32_t rounds = 3000;
        void* arguments[] = {&out, &rounds};
        answer = api.cuModuleLoadData(&clusters, kRing);
        if (answer == 0) answer = api.cuModuleGetFunction(&ring, clusters, "ring");
        if (answer == 0) answer = api.cuMemsetD32(out, 0, kOutWords);
        if (answer == 0)
          answer = api.cuLaunchKernel(ring, 32, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr);
        break;
      }
      case 'w': {
        static uint32_t words[kOutWords];
        api.cuStreamSynchronize(stream);
        const CUresult r = api.cuMemcpyDtoH(words, out, sizeof words);
        if (r != CUDA_SUCCESS) {
          answer = -static_cast<long>(r);
          break;
        }
        for (uint32_t w : words) answer = (answer * 31 + w) & 0xff'ffff'ffff;
        break;
      }
      case 'm': {
        static uint32_t sms[64];
        void* arguments[] = {&memory};
        answer = -1;
        if (api.cuLaunchKernel(where, 64, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr) !=
                CUDA_SUCCESS ||
            api.cuStreamSynchronize(stream) != CUDA_SUCCESS ||
            api.cuMemcpyDtoH(sms, memory, sizeof sms) != CUDA_SUCCESS)
          break;
        answer = 0;
        for (uint32_t sm : sms) answer |= 1L << sm;
        break;
      }
      case 'r':
        __atomic_store_n(static_cast<uint32_t*>(word), 1, __ATOMIC_SEQ_CST);
        answer = api.cuCtxSynchronize();
        break;
      case 'k': {
        uint32_t n = 1024, first = 0;
        void* arguments[] = {&memory, &n, &first};
        for (int i = 0; i < 50 && answer == 0; ++i) {
          answer = api.cuLaunchKernel(iota, 4, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr);
        }
        if (answer == 0) answer = api.cuCtxSynchronize();
        break;
      }
      case 'x':
      case 'X': {
        CUdeviceptr wrong = command == 'x' ? 4096 : memory + 1;
        uint32_t n = 32, first = 0;
        void* arguments[] = {&wrong, &n, &first};
        answer = api.cuLaunchKernel(iota, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr);
        if (answer == 0) answer = api.cuCtxSynchronize();
        break;
      }
      case 't': {
        CUmodule trapping = nullptr;
        CUfunction trap = nullptr;
        answer = api.cuModuleLoadData(
            &trapping,
            ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry t() { trap; }");
        if (answer == 0) answer = api.cuModuleGetFunction(&trap, trapping, "t");
        if (answer == 0)
          answer = api.cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
        if (answer == 0) answer = api.cuCtxSynchronize();
        break;
      }
      case 'a':
        answer = api.cuMemAlloc(&p, 1 << 20);
        break;
      case 'f': {
        size_t available = 0, total = 0;
        api.cuMemGetInfo(&available, &total);
        answer = static_cast<long>(available);
        break;
      }
      case 'l':
      case 'h':
        answer = api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING,
                                                command == 'h' ? -5 : 0);
        break;
      case 'R':
        answer = make_green(api, -1, stream);
        break;
      default:
        if (command < '0' || command > '7') return 5;
        answer = make_green(api, command - '0', stream);
        break;
    }
    std::printf("%ld\n", answer);
    std::fflush(stdout);
  }
  return 0;
}
