// SPDX-License-Identifier: Apache-2.0
// A program whose tasks write down on which SM they ran, and from when to when (%smid,
// %globaltimer).
//
//   sm-tasks STOP_FILE OUT_FILE [TASKS KEPT STREAMS]
//       launches large (TASKS, 96) and small grids over STREAMS (3 at most and by default) until
//       STOP_FILE is there, then writes a line "SM BEGIN_NS END_NS" for each of the last KEPT
//       tasks, and exits 0; 1 and a text if a task ran not at all, or twice
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "tests/support/driver_program.h"

namespace {

using sluice::test::check, sluice::test::load_kernel;

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
  .reg .u64 %rd<7>; .reg .u32 %r<9>; .reg .pred %p<4>;
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
  mov.u32 %r7, %r4;
LOOP:
  mad.lo.u32 %r7, %r7, 1664525, 1013904223;
  sub.u32 %r4, %r4, 1;
  setp.ne.u32 %p2, %r4, 0;
  @%p2 bra LOOP;
  mov.u64 %rd5, %globaltimer;
  // The loop's value is used, or an assembler would drop the loop: no task counts twice for it.
  setp.eq.u32 %p3, %r7, 0;
  selp.u32 %r8, 2, 1, %p3;
  st.global.u64 [%rd3], %rd4;
  st.global.u64 [%rd3+8], %rd5;
  st.global.u32 [%rd3+16], %r3;
  atom.global.add.u32 %r5, [%rd3+20], %r8;
DONE:
  ret;
}
)";

constexpr uint32_t kSmall = 3, kSteps = 3000;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 6) return 2;
  const auto large = static_cast<uint32_t>(argc == 6 ? std::atoi(argv[3]) : 96);
  const auto most_kept = static_cast<size_t>(argc == 6 ? std::atoi(argv[4]) : 20000);
  const int most_streams = argc == 6 ? std::clamp(std::atoi(argv[5]), 1, 3) : 3;
  const CUfunction work = load_kernel(kPtx, "work");
  // While the results of one launch are looked at, others wait: the program is never idle.
  constexpr int kSlots = 3;
  CUstream streams[kSlots];
  CUevent ends[kSlots];
  CUdeviceptr memory[kSlots];
  uint32_t grids[kSlots] = {};
  for (int i = 0; i < kSlots; ++i) {
    if (i < most_streams) check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "stream");
    check(cuEventCreate(&ends[i], CU_EVENT_DISABLE_TIMING), "event");
    check(cuMemAlloc(&memory[i], large * sizeof(Task)), "memory");
  }
  std::deque<Task> kept;
  std::vector<Task> tasks;
  const auto take_results = [&](int i) {
    if (grids[i] == 0) return;
    check(cuEventSynchronize(ends[i]), "synchronise");
    tasks.assign(grids[i], {});
    check(cuMemcpyDtoH(tasks.data(), memory[i], grids[i] * sizeof(Task)), "copy");
    for (const Task& t : tasks) {
      if (t.runs != 1) {
        std::fprintf(stderr, "sm-tasks: a task ran %u times\n", t.runs);
        std::exit(1);
      }
      kept.push_back(t);
      if (kept.size() > most_kept) kept.pop_front();
    }
  };
  for (uint32_t round = 0; ::access(argv[1], F_OK) != 0; ++round) {
    const int i = static_cast<int>(round % kSlots);
    CUstream stream = streams[i % most_streams];
    take_results(i);
    // Every fourth launch fits on the GPU at once, even on one SM.
    grids[i] = round % 4 == 3 ? kSmall : large;
    uint32_t steps = kSteps;
    void* arguments[] = {&memory[i], &steps};
    check(cuMemsetD32Async(memory[i], 0, large * sizeof(Task) / 4, stream), "memset");
    check(cuLaunchKernel(work, grids[i], 1, 1, 32, 1, 1, 0, stream, arguments, nullptr), "launch");
    check(cuEventRecord(ends[i], stream), "event");
  }
  for (int i = 0; i < kSlots; ++i) take_results(i);
  std::FILE* out = std::fopen(argv[2], "w");
  if (!out) return 1;
  for (const Task& t : kept)
    std::fprintf(out, "%u %llu %llu\n", t.sm, static_cast<unsigned long long>(t.begin),
                 static_cast<unsigned long long>(t.end));
  return std::fclose(out) == 0 ? 0 : 1;
}
