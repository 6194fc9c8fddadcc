// SPDX-License-Identifier: Apache-2.0
// Original and rewritten form leave the same memory, however often and wherever the latter is
// evicted: 0 to 50 times, from all SMs or a range of them, with every signal, chunks of 1 to 64.
#include <cstdio>
#include <random>
#include <thread>

#include "tests/bench/preempt/measure.h"

namespace sluice::bench {

namespace {

struct Count {
  int evictions = 0, left = 0, spatial = 0, grown = 0, physical = 0;  // left: with work to do
};

void nap(std::uint64_t ns) {
  const std::uint64_t until = now_ns() + ns;
  while (now_ns() < until) {
  }
}

// Which buffers differ, where first and in how many bytes. Words that already differ between `want`
// and `again`, two runs of the original, are not looked at.
std::string difference(const suite::Contents& got, const suite::Contents& want,
                       const suite::Contents& again) {
  std::string text;
  for (std::size_t b = 0; b < got.size(); ++b) {
    if (got[b] == want[b]) continue;
    std::size_t first = got[b].size(), bytes = 0;
    for (std::size_t i = 0; i < got[b].size(); ++i)
      if (got[b][i] != want[b][i] &&
          std::equal(want[b].begin() + static_cast<std::ptrdiff_t>(i / 4 * 4),
                     want[b].begin() +
                         static_cast<std::ptrdiff_t>(std::min(i / 4 * 4 + 4, want[b].size())),
                     again[b].begin() + static_cast<std::ptrdiff_t>(i / 4 * 4))) {
        first = std::min(first, i);
        ++bytes;
      }
    if (bytes != 0)
      text += "buffer " + std::to_string(b) + " of " + std::to_string(got.size()) + ": " +
              std::to_string(bytes) + " bytes of " + std::to_string(got[b].size()) + ", first at " +
              std::to_string(first) + "; ";
  }
  return text;
}

void run_evicted(Gpu& gpu, CloneLaunch& clone, Signal signal, std::mt19937& random,
                 std::uint64_t longest_ns, Count& count) {
  const bool once = clone.one_task();
  int left = static_cast<int>(random() % 51);
  // So that most of them fall into the time that the launch takes.
  longest_ns = 2 * longest_ns / static_cast<std::uint64_t>(left + 1) + 1;
  for (;;) {
    if (clone.windows()) {
      clone.stop_at(left > 0 ? now_ns() + random() % longest_ns : 0);
      if (left-- > 0) ++count.evictions;
    }
    clone.queue();
    ++count.physical;
    if (left > 0 && !clone.windows()) {
      nap(random() % longest_ns);
      std::uint32_t lo = 0, hi = 0xffff;
      const bool spatial = random() % 3 == 0;
      if (spatial) {
        const auto sms = static_cast<std::uint32_t>(gpu.sms);
        lo = random() % sms;
        hi = lo + 1 + random() % (sms - lo);
        ++count.spatial;
      }
      gpu.evict(signal, clone.generation(), lo, hi);
      ++count.evictions;
      --left;
      if (spatial && !once && random() % 2 == 0) {
        // Growing back while the first grid still runs on the other SMs.
        nap(random() % longest_ns);
        clone.queue(-1, true);
        ++count.grown;
        ++count.physical;
      }
    }
    CU(gpu.api.cuCtxSynchronize());
    if (clone.done()) return;
    ++count.left;
    if (count.physical > 100000) die("a launch makes no progress");
  }
}

}  // namespace

int check_equality(Gpu& gpu, const MeasureOptions& options) {
  int wrong = 0, runs = 0;
  // CUB's algorithms are one module, which takes the driver half a minute to compile, and leave
  // nothing in its variables.
  Module module;
  std::string loaded;
  for (const CaseMaker& maker : cases_of(options)) {
    const suite::Case work = maker.make();
    if (!maker.name.starts_with("cccl/") || work.ptx != loaded) {
      if (module.cu != nullptr) CU(gpu.api.cuModuleUnload(module.cu));
      module = gpu.load(work.ptx);
      loaded = work.ptx;
    }
    Memory memory(gpu, work);
    std::uint64_t longest_ns = 0;
    testing::DeviceImages images(gpu.api, gpu.stream, check);
    const std::vector<testing::DevicePiece> pieces = memory.pieces();
    testing::DeviceImages::Image initial, want;
    images.take(pieces, initial);
    const auto all = [&](auto launcher) {
      images.put(pieces, initial);
      for (const suite::Step& step : work.steps) {
        if (const auto* l = std::get_if<suite::Launch>(&step)) {
          launcher(*l, module.kernels.at(l->kernel), memory.params(*l));
        } else {
          memory.step(module, step);
        }
      }
      CU(gpu.api.cuCtxSynchronize());
    };
    all([&](const suite::Launch& l, const Kernel& k, std::vector<std::byte> p) {
      CU(gpu.api.cuCtxSynchronize());
      const std::uint64_t begin = now_ns();
      launch_original(gpu, k.original, l, p, gpu.stream);
      CU(gpu.api.cuCtxSynchronize());
      longest_ns = std::max(longest_ns, now_ns() - begin);
    });
    images.take(pieces, want);
    longest_ns = std::min<std::uint64_t>(longest_ns, 2'000'000);
    // What the original leaves now so and now so (an unused word of CUB's temporary memory) says
    // nothing.
    all([&](const suite::Launch& l, const Kernel& k, std::vector<std::byte> p) {
      launch_original(gpu, k.original, l, p, gpu.stream);
      CU(gpu.api.cuCtxSynchronize());
    });
    // On the host only what differs on the device.
    suite::Contents want_here, again_here;
    const auto fetch_want = [&] {
      if (!want_here.empty()) return;
      images.put(pieces, want);
      want_here = memory.read();
    };
    if (!images.same(pieces, want)) {
      again_here = memory.read();
      fetch_want();
      std::printf("{\"original_differs\":\"%s\",\"why\":\"%s\"}\n", maker.name.c_str(),
                  difference(again_here, want_here, want_here).c_str());
    }
    const auto difference_from_want = [&] {
      if (images.same(pieces, want)) return std::string();
      const suite::Contents got = memory.read();
      fetch_want();
      return difference(got, want_here, again_here.empty() ? want_here : again_here);
    };
    Count count;
    int case_wrong = 0, evictable = 0;
    for (int seed = 0; seed < options.seeds * 4; ++seed) {
      const auto signal = static_cast<Signal>(seed % 4);
      std::mt19937 random(static_cast<unsigned>(seed + 1));
      CloneLaunch::Settings settings;
      settings.signal = signal;
      settings.loop.chunk_max = static_cast<std::uint16_t>(1u << (random() % 11));
      settings.loop.batch_shift = static_cast<std::uint8_t>(random() % 7);
      settings.loop.target_us = 1 + random() % 60;
      settings.loop.fixed_chunk =
          random() % 3 == 0 ? static_cast<std::uint16_t>(1 + random() % 64) : 0;
      settings.first_chunk = 1 + random() % 64;
      settings.spatial = random() % 2;
      settings.one_task = random() % 2;
      settings.clamp = options.clamp;
      const bool windows = random() % 4 == 0;
      all([&](const suite::Launch& l, const Kernel& k, std::vector<std::byte> p) {
        gpu.zero_control(0);
        CU(gpu.api.cuCtxSynchronize());
        if (windows)
          settings.windows.tasks =
              1 + random() % std::max(1u, worker::task_count(l.grid[0], l.grid[1], l.grid[2]) / 4);
        CloneLaunch clone(gpu, k, l, p, 0, settings);
        if (!clone.evictable()) {
          launch_original(gpu, k.original, l, p, gpu.stream);
          // A second grid of the next launch has a stream of its own, which would not wait for
          // this.
          CU(gpu.api.cuCtxSynchronize());
          return;
        }
        ++evictable;
        run_evicted(gpu, clone, signal, random, std::max<std::uint64_t>(longest_ns, 2000), count);
      });
      ++runs;
      const std::string why = difference_from_want();
      if (!why.empty()) {
        ++case_wrong;
        std::printf("{\"wrong\":\"%s\",\"seed\":%d,\"signal\":\"%s\",\"why\":\"%s\"}\n",
                    maker.name.c_str(), seed, kSignalNames[seed % 4], why.c_str());
      }
    }
    wrong += case_wrong;
    std::printf(
        "{\"equality\":\"%s\",\"runs\":%d,\"wrong\":%d,\"launches\":%d,\"evictions\":%d,\"left\":%"
        "d,\"spatial\":%d,\"second_grids\":%d,"
        "\"physical\":%d,\"longest_us\":%.0f}\n",
        maker.name.c_str(), options.seeds * 4, case_wrong, evictable, count.evictions, count.left,
        count.spatial, count.grown, count.physical, static_cast<double>(longest_ns) / 1000);
    images.free(initial);
    images.free(want);
    std::fflush(stdout);
  }
  if (module.cu != nullptr) CU(gpu.api.cuModuleUnload(module.cu));
  return wrong;
}

}  // namespace sluice::bench
