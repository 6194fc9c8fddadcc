// SPDX-License-Identifier: Apache-2.0
// A program that launches a kernel of a given size again and again and says how long each launch
// took, from the call to the end of its stream.
//
//   turnaround BLOCKS STEPS GAP_US SECONDS START_FILE [DEPTH [TIMES]]
//       launches BLOCKS blocks of 128 threads and STEPS steps, waits for the end, sleeps GAP_US,
//       and so on for SECONDS from when START_FILE is there; then one line of JSON: launches, and
//       their mean, median and 99th percentile in us. 1 and a text if a call failed or a block did
//       not run once for each launch. With DEPTH that many launches are queued at a time: a launch
//       then takes from its call to the end of the one that was called DEPTH - 1 before it.
//       `finished`: how many had ended in those SECONDS, in `span_us`. TIMES is a file that gets
//       each call's begin and return, CLOCK_MONOTONIC in ns
//
// Used by turnaround.py.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/bench/work_kernel.h"
#include "tests/support/driver_program.h"

namespace {

using sluice::test::check, sluice::test::load_kernel;

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point t) {
  return std::chrono::duration<double, std::micro>(Clock::now() - t).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6 || argc > 8) return 2;
  auto blocks = static_cast<uint32_t>(std::max(1, std::atoi(argv[1])));
  auto steps = static_cast<uint32_t>(std::max(1, std::atoi(argv[2])));
  const int gap_us = std::atoi(argv[3]);
  const double seconds = std::atof(argv[4]);
  const auto depth = static_cast<size_t>(std::clamp(argc > 6 ? std::atoi(argv[6]) : 1, 1, 64));
  const CUfunction work = load_kernel(sluice::bench::kWorkPtx, "work");
  CUstream stream;
  CUdeviceptr out;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
  check(cuMemAlloc(&out, uint64_t{blocks} * 4), "memory");
  check(cuMemsetD32Async(out, 0, blocks, stream), "memset");
  uint32_t first_block = 0, launches = 0;
  void* arguments[] = {&out, &steps, &first_block};
  std::vector<CUevent> ends(depth);
  for (CUevent& end : ends) check(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING), "event");
  const auto once = [&] {
    const auto begin = Clock::now();
    check(cuLaunchKernel(work, blocks, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr), "launch");
    ++launches;
    if (depth == 1) {
      check(cuStreamSynchronize(stream), "synchronise");
      return us_since(begin);
    }
    check(cuEventRecord(ends[launches % depth], stream), "event");
    if (launches >= depth) check(cuEventSynchronize(ends[(launches + 1) % depth]), "event");
    return us_since(begin);
  };
  // So that all forms of the kernel are known, and how long it takes.
  for (int i = 0; i < 8; ++i) once();
  check(cuStreamSynchronize(stream), "synchronise");
  while (::access(argv[5], F_OK) != 0) ::usleep(1000);
  std::vector<double> us;
  std::vector<std::pair<int64_t, int64_t>> times;
  const auto ns = [](Clock::time_point t) { return t.time_since_epoch().count(); };
  const auto begin = Clock::now();
  while (us_since(begin) < seconds * 1e6) {
    const auto call = Clock::now();
    us.push_back(once());
    times.emplace_back(ns(call), ns(Clock::now()));
    if (gap_us > 0) ::usleep(static_cast<useconds_t>(gap_us));
  }
  const double span_us = us_since(begin);
  size_t finished = us.size();
  for (size_t i = 0; depth > 1 && finished > 0 && i < depth; ++i)
    finished -= cuEventQuery(ends[(launches - i) % depth]) == CUDA_ERROR_NOT_READY;
  check(cuStreamSynchronize(stream), "synchronise");
  std::vector<uint32_t> counts(blocks);
  check(cuMemcpyDtoH(counts.data(), out, uint64_t{blocks} * 4), "copy");
  const auto is_wrong = [&](uint32_t n) { return !sluice::bench::has_run(n, launches); };
  if (const auto first = std::find_if(counts.begin(), counts.end(), is_wrong);
      first != counts.end()) {
    std::fprintf(stderr,
                 "turnaround: %td of %u blocks did not run %u times, first block %td, %u times\n",
                 std::count_if(counts.begin(), counts.end(), is_wrong), blocks, launches,
                 first - counts.begin(), *first);
    return 1;
  }
  double sum = 0;
  for (double t : us) sum += t;
  std::sort(us.begin(), us.end());
  std::printf(
      "{\"launches\":%zu,\"mean_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,"
      "\"finished\":%zu,\"span_us\":%.0f}\n",
      us.size(), sum / static_cast<double>(us.size()), us[us.size() / 2], us[us.size() * 99 / 100],
      us.back(), finished, span_us);
  if (argc <= 7) return 0;
  std::FILE* file = std::fopen(argv[7], "w");
  if (!file) return 1;
  for (const auto& [call, end] : times) std::fprintf(file, "%ld %ld\n", call, end);
  std::fclose(file);
  return 0;
}
