// A program whose tasks write down on which SM they ran, and from when to when (%smid, %globaltimer).
//
//   sm-tasks STOP_FILE OUT_FILE    launches large and small grids over two streams until STOP_FILE is there, then
//                                  writes a line "SM BEGIN_NS END_NS" for each of the last tasks, and exits 0; 1 and
//                                  a text if a task ran not at all, or twice
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "abi/cuda_driver.h"

namespace {

struct Task {
  uint64_t begin, end;
  uint32_t sm, runs;
};

// One thread of each block works; a task is some thousands of steps.
const char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 out, .param .u32 steps)
{
  .reg .u64 %rd<7>; .reg .u32 %r<8>; .reg .pred %p<3>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra DONE;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %rd2, %r2, 24;
  add.s64 %rd3, %rd1, %rd2;
  mov.u64 %rd4, %globaltimer;
  mov.u32 %r3, %smid;
  ld.param.u32 %r4, [steps];
LOOP:
  sub.u32 %r4, %r4, 1;
  setp.ne.u32 %p2, %r4, 0;
  @%p2 bra LOOP;
  mov.u64 %rd5, %globaltimer;
  st.global.u64 [%rd3], %rd4;
  st.global.u64 [%rd3+8], %rd5;
  st.global.u32 [%rd3+16], %r3;
  atom.global.add.u32 %r5, [%rd3+20], 1;
DONE:
  ret;
}
)";

constexpr uint32_t kLarge = 96, kSmall = 3, kSteps = 4000;
constexpr size_t kKept = 20000;

void check(CUresult r, const char* what) {
  if (r == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(r, &name);
  std::fprintf(stderr, "sm-tasks: %s: %s\n", what, name ? name : "?");
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  CUcontext context;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "context");
  check(cuCtxSetCurrent(context), "context");
  CUmodule module;
  CUfunction work;
  check(cuModuleLoadData(&module, kPtx), "module");
  check(cuModuleGetFunction(&work, module, "work"), "function");
  CUstream streams[2];
  CUdeviceptr memory[2];
  for (int i = 0; i < 2; ++i) {
    check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "stream");
    check(cuMemAlloc(&memory[i], kLarge * sizeof(Task)), "memory");
  }
  std::deque<Task> kept;
  std::vector<Task> tasks;
  for (uint32_t round = 0; ::access(argv[1], F_OK) != 0; ++round) {
    // Every fourth launch fits on the GPU at once, even on one SM.
    const uint32_t grid[2] = {round % 4 == 3 ? kSmall : kLarge, round % 4 == 1 ? kSmall : kLarge};
    for (int i = 0; i < 2; ++i) {
      uint32_t steps = kSteps;
      void* arguments[] = {&memory[i], &steps};
      check(cuMemsetD32Async(memory[i], 0, kLarge * sizeof(Task) / 4, streams[i]), "memset");
      check(cuLaunchKernel(work, grid[i], 1, 1, 32, 1, 1, 0, streams[i], arguments, nullptr), "launch");
    }
    for (int i = 0; i < 2; ++i) {
      check(cuStreamSynchronize(streams[i]), "synchronise");
      tasks.assign(grid[i], {});
      check(cuMemcpyDtoH(tasks.data(), memory[i], grid[i] * sizeof(Task)), "copy");
      for (const Task& t : tasks) {
        if (t.runs != 1) {
          std::fprintf(stderr, "sm-tasks: round %u: a task ran %u times\n", round, t.runs);
          return 1;
        }
        kept.push_back(t);
        if (kept.size() > kKept) kept.pop_front();
      }
    }
  }
  std::FILE* out = std::fopen(argv[2], "w");
  if (!out) return 1;
  for (const Task& t : kept)
    std::fprintf(out, "%u %llu %llu\n", t.sm, static_cast<unsigned long long>(t.begin),
                 static_cast<unsigned long long>(t.end));
  return std::fclose(out) == 0 ? 0 : 1;
}
