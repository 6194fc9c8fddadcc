// SPDX-License-Identifier: Apache-2.0
// What sluice::should_leave() costs (kernels/include/sluice/preempt.cuh) and how soon blocks that
// ask leave: persistent kernels with and without the question, at several intervals, each beside
// its original (tests/authors/ask.cu).
//
//   ask_cost [--library libcuda.so.1] [--us 4000] [--rounds 7] [--evictions 40]
//
// One line of JSON for each kernel, occupancy and interval between two questions:
//   interval_us   a step of the original without a question
//   constant      the asking kernel's original over the one that never asks: what remains without
//   Sluice (a barrier) asked         its clone over the one that never asks;  ask_ns: clone - its
//   original, for each question leave_us      P50 and P99 of the host's store to the last block
//   out, and `physical` launches that it took
// Exit status 1: a clone that had been evicted left other results than its original.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/authors/cases.h"
#include "tests/bench/preempt/gpu.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr double kIntervalsUs[] = {0.5, 1, 2, 5, 10, 20, 50, 100};
struct Pair {
  const char *quiet, *asking;
};
constexpr Pair kPairs[] = {{"never_asks", "block_asks"},
                           {"never_asks_in_queue", "one_asks_in_queue"}};

struct Options {
  std::string library = "libcuda.so.1";
  double us = 4000;  // of a launch
  int rounds = 7, evictions = 40;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
double at_share(std::vector<double> v, double share) {
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<std::size_t>(share * static_cast<double>(v.size())))];
}

// Launches of the kernels of ask.ptx on one GPU. Owns its memory; one thread.
class Asking {
 public:
  Asking(Gpu& gpu, const Options& options)
      : gpu_(gpu), options_(options), module_(gpu.load(authors::ask_text())) {
    CU(gpu_.api.cuEventCreate(&begin_, CU_EVENT_DEFAULT));
    CU(gpu_.api.cuEventCreate(&end_, CU_EVENT_DEFAULT));
    for (const Pair& p : kPairs)
      if (!kernel(p.asking).report.resumable)
        die(std::string(p.asking) + " is not resumable: " + kernel(p.asking).report.reason);
  }

  int run() {
    int wrong = 0;
    for (const Pair& pair : kPairs)
      for (bool full : {false, true}) wrong += occupancy(pair, full);
    return wrong;
  }

 private:
  struct Shape {
    std::uint32_t blocks, steps, work;
  };

  const Kernel& kernel(const char* name) const { return module_.kernels.find(name)->second; }

  void make_room(std::uint32_t blocks, std::uint32_t state_bytes) {
    if (out_) CU(gpu_.api.cuMemFree(out_));
    if (state_) CU(gpu_.api.cuMemFree(state_));
    stride_ = SLUICE_RESUME_STRIDE(kThreads, state_bytes);
    CU(gpu_.api.cuMemAlloc(&out_, std::size_t{blocks} * kThreads * 4));
    CU(gpu_.api.cuMemAlloc(&state_, stride_ * blocks));
  }

  void launch(CUfunction f, const Shape& s, std::uint32_t blocks, sluice_preempt_params* p) {
    Shape shape = s;
    void* params[] = {&out_, &shape.steps, &shape.work,
                      p};  // an original does not look at the fourth
    CU(gpu_.api.cuLaunchKernel(f, blocks, 1, 1, kThreads, 1, 1, 0, gpu_.stream, params, nullptr));
  }

  sluice_preempt_params params(const Shape& s, std::uint32_t generation, bool resumed) {
    const std::uint32_t grid[3] = {s.blocks, 1, 1};
    sluice_preempt_params p =
        worker::make_params(grid, s.blocks, worker::Geometry{}, worker::LoopSettings{});
    p.control = gpu_.control_address(0);
    p.record = gpu_.record_address(0);
    p.signal = gpu_.signal_address(Signal::kProxy);
    p.left = gpu_.left;
    p.generation = generation;
    p.state = state_;
    p.state_stride = static_cast<std::uint32_t>(stride_);
    p.flags |= SLUICE_LAUNCH_DUTY;
    if (resumed) p.flags |= SLUICE_LAUNCH_RESUME;
    return p;
  }

  double timed_ms(CUfunction f, const Shape& s, bool clone) {
    sluice_preempt_params p{};
    if (clone) {
      gpu_.zero_control(0);
      p = params(s, gpu_.next_generation(), false);
    }
    CU(gpu_.api.cuStreamSynchronize(gpu_.stream));
    CU(gpu_.api.cuEventRecord(begin_, gpu_.stream));
    launch(f, s, s.blocks, &p);
    CU(gpu_.api.cuEventRecord(end_, gpu_.stream));
    CU(gpu_.api.cuStreamSynchronize(gpu_.stream));
    float ms = 0;
    CU(gpu_.api.cuEventElapsedTime(&ms, begin_, end_));
    return ms;
  }

  std::vector<std::byte> results(const Shape& s) {
    std::vector<std::byte> bytes(std::size_t{s.blocks} * kThreads * 4);
    CU(gpu_.api.cuMemcpyDtoH(bytes.data(), out_, bytes.size()));
    return bytes;
  }

  // The clone, evicted once at a random time of each physical launch until `evictions` have been
  // timed.
  bool evicted(const Kernel& k, const Shape& s, double us, std::vector<double>* leave_us,
               int* physical) {
    (void)timed_ms(k.original, s, false);
    const std::vector<std::byte> expected = results(s);
    std::mt19937 random(s.steps);
    bool right = true;
    // A launch of which little is left ends before the store arrives: not more than so many
    // launches for that.
    for (int launches = 0; static_cast<int>(leave_us->size()) < options_.evictions &&
                           launches < 4 * options_.evictions;
         ++launches) {
      CU(gpu_.api.cuMemsetD8(out_, 0, expected.size()));
      CU(gpu_.api.cuCtxSynchronize());  // the memset is another stream's
      gpu_.zero_control(0);
      sluice_launch_control c{};
      for (int i = 0; c.done == 0; ++i) {
        if (i > 1000) die(std::string(k.report.name) + " makes no progress");
        sluice_preempt_params p = params(s, gpu_.next_generation(), i != 0);
        CU(gpu_.api.cuStreamSynchronize(gpu_.stream));
        launch(k.clone, s, s.blocks - std::min(s.blocks, c.finished), &p);
        ++*physical;
        const std::uint64_t begin = now_ns();
        std::uint64_t store = 0;
        const bool evict = i < 4;
        const auto nap = static_cast<std::uint64_t>(
            (20 + us * 0.2 * static_cast<double>(random() % 1000) / 1000) * 1000);
        while (evict && now_ns() - begin < nap) {
        }
        const bool running = gpu_.api.cuStreamQuery(gpu_.stream) == CUDA_ERROR_NOT_READY;
        if (evict && running) {
          store = now_ns();
          gpu_.evict(Signal::kProxy, gpu_.generation());
        }
        CUresult r;
        while ((r = gpu_.api.cuStreamQuery(gpu_.stream)) == CUDA_ERROR_NOT_READY) {
        }
        const std::uint64_t out = now_ns();
        check(r, "cuStreamQuery");
        c = gpu_.read_control(0);
        if (store != 0 && c.done == 0) leave_us->push_back(static_cast<double>(out - store) / 1000);
      }
      right &= results(s) == expected;
    }
    return right;
  }

  int occupancy(const Pair& pair, bool full) {
    const Kernel &quiet = kernel(pair.quiet), &asking = kernel(pair.asking);
    int per_sm = 1;
    if (full)
      CU(gpu_.api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, asking.clone, kThreads, 0));
    Shape s{static_cast<std::uint32_t>(per_sm * gpu_.sms), 1, 1};
    make_room(s.blocks, asking.report.state_bytes);
    // What one unit of work takes here: a launch of one long step less one of none.
    const std::uint32_t probe =
        static_cast<std::uint32_t>(std::clamp(options_.us * 100, 200.0, 200000.0));
    const auto step_ms = [&](std::uint32_t work) {
      std::vector<double> ms;
      for (int i = 0; i < 3; ++i)
        ms.push_back(timed_ms(quiet.original, {s.blocks, 1, work}, false));
      return *std::min_element(ms.begin(), ms.end());
    };
    const double unit_us = std::max(1000 * (step_ms(probe) - step_ms(0)) / probe, 1e-5);
    int wrong = 0;
    for (double interval : kIntervalsUs) {
      s.work = static_cast<std::uint32_t>(std::max(1.0, std::round(interval / unit_us)));
      s.steps = static_cast<std::uint32_t>(std::max(4.0, options_.us / interval));
      std::vector<double> base, constant, asked;
      for (int r = -1; r < options_.rounds; ++r) {
        const double q = timed_ms(quiet.original, s, false),
                     o = timed_ms(asking.original, s, false), c = timed_ms(asking.clone, s, true);
        if (gpu_.read_control(0).done != 1) die("a launch that nobody evicted is not done");
        if (r < 0) continue;
        base.push_back(q);
        constant.push_back(o);
        asked.push_back(c);
      }
      const double q = median(base), o = median(constant), c = median(asked);
      std::vector<double> leave_us;
      int physical = 0;
      const bool right =
          options_.evictions == 0 || evicted(asking, s, 1000 * c, &leave_us, &physical);
      wrong += !right;
      std::printf(
          "{\"ask\":\"%s\",\"beside\":\"%s\",\"threads\":%u,\"blocks_per_sm\":%d,\"asked_interval_"
          "us\":%g,\"interval_us\":%.3f,"
          "\"steps\":%u,\"quiet_us\":%.1f,\"constant\":%.4f,\"asked\":%.4f,\"ask_ns\":%.0f,"
          "\"constant_ns\":%.0f,",
          pair.asking, pair.quiet, kThreads, per_sm, interval, 1000 * q / s.steps, s.steps,
          1000 * q, o / q, c / q, 1e6 * (c - o) / s.steps, 1e6 * (o - q) / s.steps);
      if (!leave_us.empty())
        std::printf("\"leave_us\":{\"p50\":%.1f,\"p99\":%.1f},", at_share(leave_us, 0.5),
                    at_share(leave_us, 0.99));
      std::printf("\"evictions\":%zu,\"physical\":%d,\"right\":%s}\n", leave_us.size(), physical,
                  right ? "true" : "false");
      std::fflush(stdout);
    }
    return wrong;
  }

  Gpu& gpu_;
  const Options& options_;
  Module module_;
  CUevent begin_ = nullptr, end_ = nullptr;
  CUdeviceptr out_ = 0, state_ = 0;
  std::uint64_t stride_ = 0;
};

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (i + 1 == argc) die(a + " needs a value, or is unknown; see tests/bench/README.md");
    const char* value = argv[++i];
    if (a == "--library")
      options.library = value;
    else if (a == "--us")
      options.us = std::atof(value);
    else if (a == "--rounds")
      options.rounds = std::atoi(value);
    else if (a == "--evictions")
      options.evictions = std::atoi(value);
    else
      die("unknown option " + a + "; see tests/bench/README.md");
  }
  if (options.us <= 0 || options.rounds < 1) die("--us and --rounds are positive");
  Gpu gpu(options.library);
  std::printf("{\"gpu\":\"%s\",\"sms\":%d,\"clock_khz\":%d}\n", gpu.name.c_str(), gpu.sms,
              gpu.clock_khz);
  return Asking(gpu, options).run() == 0 ? 0 : 1;
}
