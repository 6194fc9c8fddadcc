// SPDX-License-Identifier: Apache-2.0
// What reading the GPU's status registers costs and how right it is: LoGA's fixed polling (VEE
// 2018: 1 ms of 6 without a pause) beside sluiced's Accounting, on the same registers, one after
// the other in one run. By hand; nothing to pass or fail; prints one JSON object.
//
// `away_percent`: for how much of the time the thread that plays the GPU was kept off its
// processor. Its kernels were longer then, some of them by much, and no sample of some of them
// tells by how much all were: look at lengths where it is some tenths of a percent.
//
//   accounting_cost [SECONDS [load|length]]     of each measurement, default 3; which cases,
//   default both
//
// A thread plays the GPU: it writes kernels of known lengths into the status register of a software
// GPU's file and notes when it really did, so that the truth holds whatever this machine does.
// Processor time is the reading thread's (RUSAGE_THREAD), all of it: timers, system calls, the
// loop. Wants two processors to itself: on a busy machine run it at real-time priority, `chrt -f 1
// accounting_cost`, where nothing else gets between.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/base/fd.h"
#include "mediator/base/log.h"
#include "mediator/daemon/scheduling/accounting.h"
#include "mediator/softgpu/shared/shared_gpu.h"
#include "policies/accounting/phase_planner.h"

namespace {

using namespace sluice;
constexpr uint64_t kUs = 1'000, kMs = 1'000'000;

double cpu_ns() {
  rusage u{};
  ::getrusage(RUSAGE_THREAD, &u);
  return 1e9 * static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e3 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

// Kernels of `kernel_ns`, `idle_ns` apart.
class Gpu {
 public:
  Gpu(std::byte* file, uint64_t kernel_ns, uint64_t idle_ns)
      : status0_(reinterpret_cast<uint32_t*>(file +
                                             SLUICE_REG_ENGINE_STATUS0(softgpu::kRunlistBase, 0))),
        thread_([this, kernel_ns, idle_ns] { play(kernel_ns, idle_ns); }) {}
  ~Gpu() {
    stop_ = true;
    thread_.join();
  }
  // Up to now, the kernel that runs included.
  uint64_t ran_ns() const {
    const uint64_t since = since_.load(), done = done_.load();
    return done + (since ? monotonic_ns() - since : 0);
  }
  uint64_t kernels() const { return kernels_; }
  uint64_t done_ns() const { return done_; }
  // For how long the thread was kept off its processor: kernels and pauses that were longer than
  // they should have been.
  uint64_t away_ns() const { return away_; }

 private:
  uint64_t spin_until(uint64_t end) {
    uint64_t now = monotonic_ns();
    while (now < end) {
      const uint64_t last = std::exchange(now, monotonic_ns());
      if (now > last + 20 * kUs) away_ += now - last;
    }
    return now;
  }
  void show(uint32_t busy) {
    __atomic_store_n(status0_, SLUICE_STATUS0(1, SLUICE_CTX_VALID, 0, busy), __ATOMIC_SEQ_CST);
  }
  void play(uint64_t kernel_ns, uint64_t idle_ns) {
    uint64_t now = monotonic_ns(), slept = now;
    while (!stop_) {
      show(1);
      since_ = now;
      const uint64_t begin = now;
      now = spin_until(begin + kernel_ns);
      show(0);
      done_ += now - begin;
      since_ = 0;
      ++kernels_;
      // Periods that do not march in step with anybody's timer.
      const uint64_t idle = idle_ns - idle_ns / 20 + idle_ns * ((kernels_ * 7919) % 11) / 100;
      const uint64_t end = now + idle;
      now = spin_until(end);
      // At real-time priority the kernel would stop a thread that never sleeps, in the middle of a
      // "kernel".
      if (now < slept + 850 * kMs) continue;
      ::usleep(60'000);
      slept = now = monotonic_ns();
    }
    show(0);
  }
  uint32_t* status0_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> since_{0}, done_{0}, kernels_{0}, away_{0};
  std::thread thread_;
};

struct Result {
  double load = 0, truth = 0, length_us = 0, true_length_us = 0, cpu = 0, bound = 0;
  double late = 0, away = 0;
};

// The truth's side of a measurement.
struct Span {
  explicit Span(const Gpu& gpu)
      : gpu_(gpu),
        ran_(gpu.ran_ns()),
        done_(gpu.done_ns()),
        kernels_(gpu.kernels()),
        away_(gpu.away_ns()),
        at_(monotonic_ns()) {
    start_cpu();
  }
  // Processor time counts from here.
  void start_cpu() { cpu_at_ = monotonic_ns(), cpu_ = cpu_ns(); }
  void end(Result& r) const {
    const uint64_t now = monotonic_ns();
    const double ns = static_cast<double>(now - at_);
    r.truth = static_cast<double>(gpu_.ran_ns() - ran_) / ns;
    r.true_length_us = static_cast<double>(gpu_.done_ns() - done_) /
                       static_cast<double>(gpu_.kernels() - kernels_) / 1e3;
    r.away = static_cast<double>(gpu_.away_ns() - away_) / ns;
    r.cpu = (cpu_ns() - cpu_) / static_cast<double>(now - cpu_at_);
  }
  const Gpu& gpu_;
  uint64_t ran_, done_, kernels_, away_, at_, cpu_at_ = 0;
  double cpu_ = 0;
};

Result loga(const std::string& path, const Gpu& gpu, double seconds) {
  auto reader = *gpu::RegisterReader::open(path);
  accounting::RegisterSource source;
  source.assign(1, 0);
  accounting::PhasePlanner planner({});
  Span span(gpu);
  const uint64_t begin = monotonic_ns(), end = begin + static_cast<uint64_t>(seconds * 1e9);
  uint64_t covered = 0;
  while (monotonic_ns() < end) {
    const auto plan = planner.next(1);
    const uint64_t from = monotonic_ns();
    source.begin_phase();
    uint64_t now = from;
    for (; now < from + plan.poll_ns; now = monotonic_ns()) source.sample(now, reader->status0());
    const timespec pause{0, static_cast<long>(plan.pause_ns)};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
    const uint64_t woken = monotonic_ns();
    source.end_phase(woken - now);
    covered += woken - from;
  }
  Result r;
  span.end(r);
  r.load = static_cast<double>(source.used_ns(0)) / static_cast<double>(covered);
  r.length_us = source.runs(0).mean_ns() / 1e3;
  r.bound = static_cast<double>(source.error_ns(0)) / static_cast<double>(covered);
  return r;
}

// Two vGPUs compete, of which one holds: what sluiced does in steady state.
Result ours(const std::string& path, const Gpu& gpu, double seconds) {
  boost::asio::io_context io{1};
  AccountingSettings settings;
  settings.soft_gpu_file = path;
  settings.switch_log = settings.words = false;
  auto* report = new sluice_report_header{};
  auto* records = new sluice_launch_records{};
  Accounting a(io, settings, [](auto...) {});
  for (uint32_t v : {0u, 1u}) a.add_vgpu(v, "v");
  a.add_session(0, 0, ::getpid(), report, records);
  for (uint32_t v : {0u, 1u}) a.event(monotonic_ns(), core::LogEvent::kBusy, v);
  Span span(gpu);
  a.event(monotonic_ns(), core::LogEvent::kGranted, 0);
  // It learns what a wake-up costs here. Loads are measured from the grant on: a difference of two
  // readings would have the error of both, and the first, of half a second, is not what is asked.
  io.run_for(std::chrono::milliseconds(500));
  span.start_cpu();
  const uint64_t wakes = a.wakes(), late = a.meter().late_points();
  io.run_for(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
  Result r;
  span.end(r);
  const auto after = a.read(0);
  r.load = static_cast<double>(after.used.used_ns) / static_cast<double>(after.held_ns);
  r.length_us = a.meter().runs(0).mean_ns() / 1e3;
  r.bound = static_cast<double>(after.used.error_ns) / static_cast<double>(after.held_ns);
  r.late = static_cast<double>(a.meter().late_points() - late) /
           static_cast<double>(std::max<uint64_t>(a.wakes() - wakes, 1));
  a.event(monotonic_ns(), core::LogEvent::kLeft, 0);
  delete report;
  return r;
}

void print(const char* who, const Result& r) {
  std::printf(
      "\"%s\":{\"truth\":%.4f,\"load\":%.4f,\"error_points\":%.2f,\"bound_points\":%.2f,\"true_"
      "length_us\":%.1f,"
      "\"length_us\":%.1f,\"length_error_percent\":%.2f,\"cpu_percent\":%.2f,\"late_reads\":%.3f,"
      "\"away_percent\":%.2f}",
      who, r.truth, r.load, 100 * (r.load - r.truth), 100 * r.bound, r.true_length_us, r.length_us,
      100 * (r.length_us / r.true_length_us - 1), 100 * r.cpu, r.late, 100 * r.away);
}

// The largest errors of all cases, for people in a hurry: load in points, lengths and processor
// time in percent.
struct Worst {
  double load = 0, length = 0, cpu = 0, away = 0;
  int beyond_bound = 0;
  void take(const Result& r) {
    load = std::max(load, 100 * std::abs(r.load - r.truth));
    length = std::max(length, 100 * std::abs(r.length_us / r.true_length_us - 1));
    cpu = std::max(cpu, 100 * r.cpu);
    away = std::max(away, 100 * r.away);
    beyond_bound += std::abs(r.load - r.truth) > r.bound;
  }
  void print(const char* who) const {
    std::printf(
        "\"%s\":{\"load_error_points\":%.2f,\"length_error_percent\":%.2f,\"cpu_percent\":%.2f,"
        "\"away_percent\":%.2f,\"loads_beyond_bound\":%d}",
        who, load, length, cpu, away, beyond_bound);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  log::init("accounting_cost", log::Level::kError);
  char name[] = "/tmp/accounting-cost-XXXXXX";
  Fd made(::mkstemp(name));
  ::unlink(name);
  softgpu::Config config;
  config.gpu_file = name;
  auto shared = softgpu::SharedGpu::open(config);
  if (!shared) return std::fprintf(stderr, "%s\n", shared.error().message.c_str()), 1;
  Fd fd(::open(name, O_RDWR | O_CLOEXEC));
  auto* file = static_cast<std::byte*>(
      ::mmap(nullptr, softgpu::kGpuFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  reinterpret_cast<sluice_soft_channel*>(file + SLUICE_SOFT_CHANNELS_OFFSET)->pid =
      static_cast<uint32_t>(::getpid());
  struct Case {
    const char* what;
    uint64_t kernel_ns, idle_ns;
  };
  std::vector<Case> cases;
  const std::string which = argc > 2 ? argv[2] : "both";
  for (uint64_t k : {100u, 300u, 500u, 700u, 900u})
    if (which != "length") cases.push_back({"load", k * kUs, kMs - k * kUs});
  for (uint64_t k : {100u, 300u, 1000u})
    if (which != "load") cases.push_back({"length", k * kUs, 10 * kUs});
  Worst worst_fixed, worst_adaptive;
  std::printf("{\"seconds\":%.1f,\"cases\":[", seconds);
  for (size_t i = 0; i < cases.size(); ++i) {
    Gpu gpu(file, cases[i].kernel_ns, cases[i].idle_ns);
    ::usleep(20'000);
    std::printf("%s\n{\"what\":\"%s\",\"kernel_us\":%llu,\"idle_us\":%llu,", i ? "," : "",
                cases[i].what, static_cast<unsigned long long>(cases[i].kernel_ns / kUs),
                static_cast<unsigned long long>(cases[i].idle_ns / kUs));
    const auto fixed = loga(name, gpu, seconds);
    print("loga", fixed);
    std::printf(",");
    const auto adaptive = ours(name, gpu, seconds);
    print("sluiced", adaptive);
    std::printf("}");
    worst_fixed.take(fixed), worst_adaptive.take(adaptive);
    std::fflush(stdout);
  }
  std::printf("],\n\"worst\":{");
  worst_fixed.print("loga");
  std::printf(",");
  worst_adaptive.print("sluiced");
  std::printf("}}\n");
  ::unlink(name);
  return 0;
}
