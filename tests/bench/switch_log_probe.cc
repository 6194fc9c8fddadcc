// SPDX-License-Identifier: Apache-2.0
// Whether NVIDIA's driver lets us read its context-switch log here, step by step, and what it says.
//
// usage: switch_log_probe [SECONDS [FILE]]
//
// Opens the log as the spawner's recorder does, prints each step with its status, reads the log for
// so many seconds (3) with a flush every 10 ms, and prints per process: intervals, the time that
// its contexts were resident, and the longest interval. One JSON object. FILE gets each record as a
// line: CLOCK_MONOTONIC in ns, process, 1 for a start and 0 for an end. To be run as root, beside
// programs that use the GPU. Exit status 1: the log cannot be had.
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/gpu/clock_match.h"
#include "mediator/gpu/driver_switch_log.h"

using sluice::monotonic_ns;
using sluice::gpu::DriverSwitchLog;

namespace {

uint64_t cpu_ns() {
  timespec ts;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(ts.tv_nsec);
}

struct Process {
  uint64_t starts = 0, ends = 0, resident_ns = 0, longest_ns = 0, since_ns = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  std::FILE* file = argc > 2 ? std::fopen(argv[2], "w") : nullptr;
  std::vector<DriverSwitchLog::Step> steps;
  const uint64_t opening = monotonic_ns();
  auto log = DriverSwitchLog::open(sluice::gpu::system_driver_device(), 16384, &steps);
  std::printf("{\"opened\": %s, \"open_ms\": %.1f, \"error\": \"%s\",\n \"steps\": [",
              log ? "true" : "false", static_cast<double>(monotonic_ns() - opening) / 1e6,
              log ? "" : log.error().message.c_str());
  for (size_t i = 0; i < steps.size(); ++i)
    std::printf("%s\n  {\"what\": \"%s\", \"errno\": %d, \"status\": \"0x%x\"}", i ? "," : "",
                steps[i].what.c_str(), steps[i].error, steps[i].status);
  struct stat ns {};
  ::stat("/proc/self/ns/pid", &ns);
  std::printf("],\n \"pid\": %d, \"first_pid_namespace\": %s", ::getpid(),
              ns.st_ino == 4026531836u ? "true" : "false");
  if (!log) {
    std::printf("}\n");
    return 1;
  }

  sluice::gpu::ClockMatch clocks;
  uint64_t narrowest = ~0ull;
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = monotonic_ns();
    auto gpu = (*log)->time_ns();
    const uint64_t after = monotonic_ns();
    if (!gpu) continue;
    narrowest = std::min(narrowest, after - before);
    clocks.measured(before, *gpu, after);
  }
  std::map<uint32_t, Process> processes;
  std::vector<DriverSwitchLog::Record> records;
  uint64_t all = 0, dropped = 0, gaps = 0, flushes = 0, flush_ns = 0, behind_ns = 0, future = 0;
  uint16_t last_seq = 0;
  std::string first;
  const uint64_t begin = monotonic_ns(), cpu = cpu_ns();
  while (static_cast<double>(monotonic_ns() - begin) < seconds * 1e9) {
    ::usleep(10'000);
    const uint64_t before = monotonic_ns();
    if (auto r = (*log)->flush(); !r) std::fprintf(stderr, "%s\n", r.error().message.c_str());
    flush_ns += monotonic_ns() - before;
    ++flushes;
    records.clear();
    auto lost = (*log)->read(records);
    if (!lost) {
      std::fprintf(stderr, "%s\n", lost.error().message.c_str());
      break;
    }
    dropped += *lost;
    const uint64_t now = monotonic_ns();
    for (const auto& r : records) {
      const uint64_t at = clocks.host_ns(r.time_ns);
      if (file) std::fprintf(file, "%lu %u %d\n", at, r.pid, r.start ? 1 : 0);
      if (at > now) ++future;
      if (at < now) behind_ns = std::max(behind_ns, now - at);
      if (all < 12)
        first += (all ? ",\n  " : "\n  ") + std::string("[") + (r.start ? "\"start\"" : "\"end\"") +
                 ", " + std::to_string(r.pid) + ", " + std::to_string(r.channel) + ", " +
                 std::to_string(r.seq) + ", " + std::to_string(r.time_ns) + "]";
      if (all++ != 0 && static_cast<uint16_t>(last_seq + 1) != r.seq) ++gaps;
      last_seq = r.seq;
      Process& p = processes[r.pid];
      if (r.start) {
        ++p.starts;
        p.since_ns = r.time_ns;
      } else {
        ++p.ends;
        if (p.since_ns != 0 && r.time_ns > p.since_ns) {
          p.resident_ns += r.time_ns - p.since_ns;
          p.longest_ns = std::max(p.longest_ns, r.time_ns - p.since_ns);
        }
        p.since_ns = 0;
      }
    }
  }
  const auto took = static_cast<double>(monotonic_ns() - begin);
  if (file) std::fclose(file);
  std::printf(
      ",\n \"clock_call_us\": %.1f, \"records\": %lu, \"dropped\": %lu, \"gaps\": %lu, "
      "\"flushes\": %lu, \"flush_us\": %.1f,\n \"core_percent\": %.2f, "
      "\"oldest_ms\": %.2f, \"from_the_future\": %lu,\n \"first\": [%s],\n \"processes\": {",
      static_cast<double>(narrowest) / 1e3, all, dropped, gaps, flushes,
      static_cast<double>(flush_ns) / 1e3 / static_cast<double>(std::max(flushes, 1ul)),
      100 * static_cast<double>(cpu_ns() - cpu) / took, static_cast<double>(behind_ns) / 1e6,
      future, first.c_str());
  bool any = false;
  for (const auto& [pid, p] : processes) {
    std::printf(
        "%s\n  \"%u\": {\"starts\": %lu, \"ends\": %lu, \"resident\": %.4f, "
        "\"longest_ms\": %.3f}",
        any ? "," : "", pid, p.starts, p.ends, static_cast<double>(p.resident_ns) / took,
        static_cast<double>(p.longest_ns) / 1e6);
    any = true;
  }
  std::printf("}}\n");
  return 0;
}
