// SPDX-License-Identifier: Apache-2.0
// From the host's store to the last block out, and what an eviction with its resumption costs.
#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/bench/preempt/measure.h"

namespace sluice::bench {

namespace {

double at(std::vector<double>& v, double quantile) {
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1,
                    static_cast<std::size_t>(quantile * static_cast<double>(v.size())))];
}

std::uint64_t clocks(const Gpu& gpu, std::uint64_t us) {
  return us * static_cast<std::uint64_t>(gpu.clock_khz) / 1000;
}

void wait_until(std::uint64_t ns) {
  while (now_ns() < ns) {
  }
}

// Waits for the record of physical launch `generation` to say that its last block is out.
std::uint64_t wait_left(volatile sluice_launch_record* r, std::uint32_t generation) {
  const std::uint64_t limit = now_ns() + 10'000'000'000u;
  for (;;) {
    const std::uint32_t state = __atomic_load_n(&r->state, __ATOMIC_ACQUIRE);
    if ((state == SLUICE_LAUNCH_TOEVICT || state == SLUICE_LAUNCH_DONE) &&
        r->generation == generation)
      return now_ns();
    if (now_ns() > limit) die("a launch does not leave");
  }
}

}  // namespace

void measure_latency(Gpu& gpu, const MeasureOptions& options) {
  std::mt19937 random(1);
  for (std::uint64_t task_us : {1, 2, 5, 10, 50}) {
    for (Signal signal : {Signal::kProxy, Signal::kWrite, Signal::kCopy, Signal::kHost}) {
      for (std::uint16_t fixed : {0, 1}) {
        suite::Case work = spin_case(1u << 27, 256, clocks(gpu, task_us));
        const Module module = gpu.load(work.ptx);
        Memory memory(gpu, work);
        const auto& launch = std::get<suite::Launch>(work.steps[0]);
        CloneLaunch::Settings settings;
        settings.signal = signal;
        settings.loop.batch_shift = static_cast<std::uint8_t>(options.batch_shift);
        settings.loop.target_us = options.target_us;
        settings.loop.fixed_chunk = fixed;
        gpu.zero_control(0);
        CloneLaunch clone(gpu, module.kernels.at("spin"), launch, memory.params(launch), 0,
                          settings);
        std::vector<double> left, issue, lengths;
        const int samples = signal == Signal::kHost ? options.samples / 4 : options.samples;
        for (int i = 0; i < samples; ++i) {
          volatile sluice_launch_record* r = gpu.record(0);
          const std::uint32_t before = gpu.read_control(0).finished;
          r->state = SLUICE_LAUNCH_TORUN;
          const std::uint64_t queued = now_ns();
          clone.queue();
          // Long enough for the kernel to have found its chunk.
          wait_until(queued + 400'000 + random() % 200'000);
          const std::uint64_t stored = now_ns();
          gpu.evict(signal, clone.generation());
          const std::uint64_t issued = now_ns();
          const std::uint64_t out = wait_left(r, clone.generation());
          CU(gpu.api.cuStreamSynchronize(gpu.stream));
          left.push_back(static_cast<double>(out - stored) / 1000);
          issue.push_back(static_cast<double>(issued - stored) / 1000);
          const std::uint32_t ran = gpu.read_control(0).finished - before;
          if (ran == 0) die("nothing ran");
          // What a task takes here, beside a full GPU's others and at the clock that the GPU has,
          // not the length that was asked for.
          lengths.push_back(static_cast<double>(out - queued) / 1000 * clone.workers() / ran);
        }
        std::string quantiles;  // 0, 2, .. 100 per cent: the distribution for the plot
        for (int q = 0; q <= 100; q += 2) {
          char text[32];
          std::snprintf(text, sizeof text, "%s%.2f", q == 0 ? "" : ",", at(left, q / 100.0));
          quantiles += text;
        }
        std::printf(
            "{\"latency\":\"%s\",\"task_us\":%llu,\"task_took_us\":%.2f,\"chunks\":\"%s\",\"p50_"
            "us\":%.2f,\"p90_us\":%.2f,\"p99_us\":%.2f,"
            "\"max_us\":%.2f,\"issue_us\":%.2f,\"samples\":%zu,\"quantiles_us\":[%s]}\n",
            kSignalNames[static_cast<int>(signal)], static_cast<unsigned long long>(task_us),
            at(lengths, 0.5), fixed ? "one ticket" : "adaptive", at(left, 0.5), at(left, 0.9),
            at(left, 0.99), *std::max_element(left.begin(), left.end()), at(issue, 0.5),
            left.size(), quantiles.c_str());
        std::fflush(stdout);
        CU(gpu.api.cuModuleUnload(module.cu));
      }
    }
  }
}

void measure_loss(Gpu& gpu, const MeasureOptions& options) {
  for (std::uint64_t task_us : {1, 10, 50}) {
    const std::uint32_t blocks_a_us = static_cast<std::uint32_t>(gpu.sms) * 8;
    const auto tasks = static_cast<std::uint32_t>(blocks_a_us * 60'000 / task_us);  // some 60 ms
    suite::Case work = spin_case(tasks, 256, clocks(gpu, task_us));
    const Module module = gpu.load(work.ptx);
    Memory memory(gpu, work);
    const auto& launch = std::get<suite::Launch>(work.steps[0]);
    std::vector<double> whole[2], drains, resumes;
    int evictions = 0;
    for (int round = 0; round < 8; ++round) {
      for (int evicting : {0, 1}) {
        CloneLaunch::Settings settings;
        settings.loop.batch_shift = static_cast<std::uint8_t>(options.batch_shift);
        settings.loop.target_us = options.target_us;
        settings.first_chunk = 1;
        gpu.zero_control(0);
        CU(gpu.api.cuStreamSynchronize(gpu.stream));
        volatile sluice_launch_record* r = gpu.record(0);
        CloneLaunch clone(gpu, module.kernels.at("spin"), launch, memory.params(launch), 0,
                          settings);
        const std::uint64_t begin = now_ns();
        clone.queue();
        if (evicting) {
          for (int i = 0; i < 50; ++i) {
            wait_until(now_ns() + 500'000);
            const std::uint64_t stored = now_ns();
            gpu.evict(Signal::kProxy, clone.generation());
            const std::uint64_t out = wait_left(r, clone.generation());
            if (r->state == SLUICE_LAUNCH_DONE) break;
            const std::uint64_t left = r->left_ns;
            drains.push_back(static_cast<double>(out - stored) / 1000);
            r->state = SLUICE_LAUNCH_TORUN;
            clone.queue();
            (void)left;
            ++evictions;
          }
        }
        CU(gpu.api.cuStreamSynchronize(gpu.stream));
        whole[evicting].push_back(static_cast<double>(now_ns() - begin) / 1000);
        if (!clone.done()) die("not done");
      }
    }
    const double calm = at(whole[0], 0.5), evicted = at(whole[1], 0.5);
    const double each = (evicted - calm) / (evictions / 8.0);
    std::printf(
        "{\"loss\":\"proxy\",\"task_us\":%llu,\"evictions\":%d,\"calm_us\":%.0f,\"evicted_us\":%."
        "0f,"
        "\"lost_us_each\":%.2f,\"store_to_out_us\":%.2f}\n",
        static_cast<unsigned long long>(task_us), evictions / 8, calm, evicted, each,
        at(drains, 0.5));
    std::fflush(stdout);
    CU(gpu.api.cuModuleUnload(module.cu));
  }
}

// What a grid with one task a block takes to leave that is evicted before it begins: all but the
// blocks that start before the proxy has looked come only to be sent home (LoopSettings::leave_ps).
void measure_leave(Gpu& gpu, const MeasureOptions& options) {
  CUevent begin, end;
  CU(gpu.api.cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CU(gpu.api.cuEventCreate(&end, CU_EVENT_DEFAULT));
  for (std::uint32_t threads : {32u, 256u, 1024u}) {
    const auto tasks = static_cast<std::uint32_t>(200'000 * options.scale);
    suite::Case work = spin_case(tasks, threads, clocks(gpu, 1));
    const Module module = gpu.load(work.ptx);
    Memory memory(gpu, work);
    const auto& launch = std::get<suite::Launch>(work.steps[0]);
    CloneLaunch::Settings settings;
    settings.one_task = true;
    std::vector<double> us;
    for (int round = 0; round < 8; ++round) {
      gpu.zero_control(0);
      CU(gpu.api.cuStreamSynchronize(gpu.stream));
      CloneLaunch clone(gpu, module.kernels.at("spin"), launch, memory.params(launch), 0, settings);
      gpu.evict(Signal::kProxy, gpu.generation() + 1);
      CU(gpu.api.cuEventRecord(begin, gpu.stream));
      clone.queue();
      CU(gpu.api.cuEventRecord(end, gpu.stream));
      CU(gpu.api.cuStreamSynchronize(gpu.stream));
      if (clone.done()) die("a launch that was evicted before it began is done");
      float ms = 0;
      CU(gpu.api.cuEventElapsedTime(&ms, begin, end));
      if (round != 0) us.push_back(1000.0 * ms);
    }
    std::printf("{\"leave\":%u,\"blocks\":%u,\"us\":%.1f,\"ps_a_block\":%.0f}\n", threads, tasks,
                at(us, 0.5), 1e6 * at(us, 0.5) / tasks);
    std::fflush(stdout);
    CU(gpu.api.cuModuleUnload(module.cu));
  }
}

// From the decision to evict until the stream has ended, as the host sees both, for each form of a
// clone: the proxy stops a loop and one task a block; of windows none follows.
void measure_forms(Gpu& gpu, const MeasureOptions& options) {
  struct Form {
    const char* name;
    std::uint32_t window_us, lead_us;
  };
  const worker::LoopSettings ours;
  const Form kForms[] = {{"loop", 0, 0},
                         {"one task a block", 0, 0},
                         {"windows", ours.window_us, ours.window_lead_us},
                         {"windows of 16 us", 16, ours.window_lead_us}};
  for (const std::uint32_t task_us : {1u, 3u, 10u}) {
    const std::uint32_t resident = static_cast<std::uint32_t>(gpu.sms) * 8;
    const auto tasks = static_cast<std::uint32_t>(resident * 3000 / task_us * options.scale);
    suite::Case work = spin_case(tasks, 256, clocks(gpu, task_us));
    const Module module = gpu.load(work.ptx);
    Memory memory(gpu, work);
    const auto& launch = std::get<suite::Launch>(work.steps[0]);
    // What the worker learns of it.
    CUfunction original = module.kernels.at("spin").original;
    std::vector<std::byte> plain = memory.params(launch);
    std::uint64_t took = 0;
    for (int round = 0; round < 2; ++round) {
      const std::uint64_t begin = now_ns();
      launch_original(gpu, original, launch, plain, gpu.stream);
      CU(gpu.api.cuStreamSynchronize(gpu.stream));
      took = now_ns() - begin;
    }
    const auto places = static_cast<std::uint32_t>(gpu.resident(original, launch, 0));
    const std::uint64_t task_ns = took * places / tasks;
    for (const Form& form : kForms) {
      const bool windows = form.window_us != 0;
      std::mt19937 random(task_us);
      std::vector<double> us;
      for (int sample = 0; sample < options.samples; ++sample) {
        CloneLaunch::Settings settings;
        settings.one_task = &form == kForms + 1;
        settings.loop.window_us = form.window_us;
        settings.loop.window_lead_us = form.lead_us;
        if (windows)
          settings.windows =
              worker::FormChoice::windows(launch.grid.data(), places, task_ns, settings.loop);
        gpu.zero_control(0);
        CU(gpu.api.cuStreamSynchronize(gpu.stream));
        CloneLaunch clone(gpu, module.kernels.at("spin"), launch, memory.params(launch), 0,
                          settings);
        const std::uint64_t at_ns = now_ns() + 300'000 + random() % 1'000'000;
        if (windows) clone.stop_at(at_ns);
        clone.queue();
        wait_until(at_ns);
        const std::uint64_t decided = windows ? at_ns : now_ns();
        if (!windows) gpu.evict(Signal::kProxy, clone.generation());
        while (gpu.api.cuStreamQuery(gpu.stream) == CUDA_ERROR_NOT_READY) {
        }
        const double until_out = static_cast<double>(now_ns() - decided) / 1000;
        if (!clone.done()) us.push_back(until_out);
      }
      if (us.empty()) continue;
      std::printf(
          "{\"forms\":\"%s\",\"task_us\":%.1f,\"tasks\":%u,\"samples\":%zu,\"p50_us\":%.1f,\"p99_"
          "us\":%.1f}\n",
          form.name, static_cast<double>(task_ns) / 1000, tasks, us.size(), at(us, 0.5),
          at(us, 0.99));
      std::fflush(stdout);
    }
    CU(gpu.api.cuModuleUnload(module.cu));
  }
}

}  // namespace sluice::bench
