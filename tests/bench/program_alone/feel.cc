// SPDX-License-Identifier: Apache-2.0
// feel: what a program feels of the channel: copies, launches, waits, alone and after a rest.
//
//   feel --direct LIBRARY --channel LIBRARY [--rounds N] [--samples N] [--rest-us N]
//        [--only ROW,..]
//
// Loads two CUDA driver libraries into one process, each with its own symbols: --direct as a
// program without Sluice would, --channel the guest's libcuda.so.1. Rounds alternate between the
// two, so that whatever else the machine does meets both. Each round checks what it copied and what
// its kernels counted. One thread calls.
//
// One JSON object on stdout: by row and library every sample, in microseconds. feel.py runs this
// program several times and judges. Exit: 0; 2 usage; 3 a call failed or a result is wrong.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/program_alone/driver_library.h"
#include "tests/bench/work_kernel.h"

namespace sluice::bench {
namespace {

// `work`: an integer loop; thread 0 of each block counts its block. `empty`: nothing.
const char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .const .align 4 .b8 table[256];
.visible .entry empty() { ret; }
.visible .entry work(.param .u64 out, .param .u32 steps)
{
  .reg .u64 %rd<4>; .reg .u32 %r<6>; .reg .pred %p<4>;
  ld.param.u32 %r1, [steps];
)" SLUICE_BENCH_LOOP R"(
  @!%p2 bra DONE;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
  red.global.add.u32 [%rd1], %r4;
DONE:
  ret;
}
)";

constexpr std::size_t kSmall = 4 << 10, kMiddle = 1 << 20, kLarge = 64 << 20;
constexpr double kWorkUs = 100;
constexpr unsigned kThreads = 128;
constexpr int kPooled = 50;  // launches in a row, each with memory of its own
// What the busy launch is made of: a block's steps on a real GPU (35 us on an H100).
constexpr unsigned kSteps = 2500;

struct Settings {
  std::string direct, channel;
  int rounds = 3;  // of each library
  int samples = 200;
  int rest_us = 2000;
  std::vector<std::string> only;
};

// Blocks and steps of a launch that takes about kWorkUs without Sluice.
struct Work {
  unsigned blocks = 1, steps = kSteps;
};

// With both kernels, and memory.
class Driver : public DriverLibrary {
 public:
  Driver(std::string label_of_it, const std::string& path)
      : DriverLibrary(std::move(label_of_it), path, kPtx), busy_(function("work")) {
    const auto alloc_host = load<decltype(&::cuMemHostAlloc)>("cuMemHostAlloc");
    const auto wait_for_all = load<decltype(&::cuCtxSynchronize)>("cuCtxSynchronize");
    const auto event_create = load<decltype(&::cuEventCreate)>("cuEventCreate");
    load(priority_, "cuStreamGetPriority");
    load(to_device_, "cuMemcpyHtoD_v2");
    load(to_host_, "cuMemcpyDtoH_v2");
    load(between_, "cuMemcpyDtoDAsync_v2");
    load(fill_, "cuMemsetD8_v2");
    load(fill32_, "cuMemsetD32_v2");
    load(get_global_, "cuModuleGetGlobal_v2");
    load(to_device_async_, "cuMemcpyHtoDAsync_v2");
    load(alloc_, "cuMemAlloc_v2");
    load(free_, "cuMemFree_v2");
    load(alloc_async_, "cuMemAllocAsync");
    load(free_async_, "cuMemFreeAsync");
    load(record_, "cuEventRecord");
    load(elapsed_, "cuEventElapsedTime");
    load(host_func_, "cuLaunchHostFunc");
    load(event_wait_, "cuEventSynchronize");
    for (CUevent& event : events_) check(event_create(&event, 0), "cuEventCreate");
    check(alloc_(&from_, kLarge), "cuMemAlloc");
    check(alloc_(&to_, kLarge), "cuMemAlloc");
    check(alloc_(&count_, 4), "cuMemAlloc");
    check(fill_(from_, 0x5a, kLarge), "cuMemsetD8");
    check(fill32_(count_, 0, 1), "cuMemsetD32");
    check(alloc_host(&pinned_, kLarge, 0), "cuMemHostAlloc");
    std::memset(pinned_, 0x21, kLarge);
    // The fills are in a stream that ours does not wait for.
    check(wait_for_all(), "cuCtxSynchronize");
  }

  void launch_busy(const Work& work) {
    unsigned steps = work.steps;
    void* arguments[] = {&count_, &steps};
    check(launch_(busy_, work.blocks, 1, 1, kThreads, 1, 1, 0, stream_, arguments, nullptr),
          "cuLaunchKernel");
    expected_ += work.blocks;
  }
  // What the guest does not know by itself.
  void ask() {
    int priority = 0;
    check(priority_(stream_, &priority), "cuStreamGetPriority");
  }
  void upload(const void* from, std::size_t bytes) {
    check(to_device_(to_, from, bytes), "cuMemcpyHtoD");
  }
  void download(void* to, std::size_t bytes) { check(to_host_(to, to_, bytes), "cuMemcpyDtoH"); }
  void between(std::size_t bytes) { check(between_(to_, from_, bytes, stream_), "cuMemcpyDtoD"); }
  void* pinned() const { return pinned_; }
  // As cudaMemcpyToSymbolAsync() of a program on the driver API.
  void set_symbol(const void* from, std::size_t bytes) {
    CUdeviceptr at = 0;
    std::size_t size = 0;
    check(get_global_(&at, &size, module_, "table"), "cuModuleGetGlobal");
    check(to_device_async_(at, from, bytes, stream_), "cuMemcpyHtoDAsync");
  }
  void upload_async(const void* from, std::size_t bytes) {
    check(to_device_async_(to_, from, bytes, stream_), "cuMemcpyHtoDAsync");
  }
  void allocate_and_free(std::size_t bytes) {
    CUdeviceptr at = 0;
    check(alloc_(&at, bytes), "cuMemAlloc");
    check(free_(at), "cuMemFree");
  }
  // A launch whose memory lives as long as it does.
  void launch_with_memory(std::size_t bytes, const std::function<void()>& launch) {
    CUdeviceptr at = 0;
    check(alloc_async_(&at, bytes, stream_), "cuMemAllocAsync");
    launch();
    check(free_async_(at, stream_), "cuMemFreeAsync");
  }
  void timed_launch() {
    float ms = 0;
    check(record_(events_[0], stream_), "cuEventRecord");
    launch();
    check(record_(events_[1], stream_), "cuEventRecord");
    check(event_wait_(events_[1]), "cuEventSynchronize");
    check(elapsed_(&ms, events_[0], events_[1]), "cuEventElapsedTime");
  }
  void host_function() {
    check(host_func_(
              stream_, [](void*) {}, nullptr),
          "cuLaunchHostFunc");
  }

  // Every block of every busy launch has run once, and device to device copied what it should.
  void verify() {
    std::uint32_t count = 0;
    check(to_host_(&count, count_, sizeof count), "cuMemcpyDtoH");
    if (count != static_cast<std::uint32_t>(expected_))
      throw std::runtime_error(label + ": blocks ran " + std::to_string(count) + " times, not " +
                               std::to_string(expected_));
    std::vector<char> got(kMiddle);
    between(kMiddle);
    wait();
    download(got.data(), kMiddle);
    if (std::any_of(got.begin(), got.end(), [](char c) { return c != 0x5a; }))
      throw std::runtime_error(label + ": a copy between device memory is wrong");
  }

 private:
  decltype(&::cuStreamGetPriority) priority_;
  decltype(&::cuMemcpyHtoD_v2) to_device_;
  decltype(&::cuMemcpyDtoH_v2) to_host_;
  decltype(&::cuMemcpyDtoDAsync_v2) between_;
  decltype(&::cuMemsetD8_v2) fill_;
  decltype(&::cuMemsetD32_v2) fill32_;
  decltype(&::cuModuleGetGlobal_v2) get_global_;
  decltype(&::cuMemcpyHtoDAsync_v2) to_device_async_;
  decltype(&::cuMemAlloc_v2) alloc_;
  decltype(&::cuMemFree_v2) free_;
  decltype(&::cuMemAllocAsync) alloc_async_;
  decltype(&::cuMemFreeAsync) free_async_;
  decltype(&::cuEventRecord) record_;
  decltype(&::cuEventSynchronize) event_wait_;
  decltype(&::cuEventElapsedTime) elapsed_;
  decltype(&::cuLaunchHostFunc) host_func_;
  CUevent events_[2] = {};
  CUfunction busy_ = nullptr;
  CUdeviceptr from_ = 0, to_ = 0, count_ = 0;
  void* pinned_ = nullptr;
  std::uint64_t expected_ = 0;
};

// How long each of `times` calls of `what` takes, after a fifth as many for warmth. `rest_us`: the
// program sleeps so long before each. `per`: the call is so many of what is measured.
struct Row {
  std::string name;
  int share;  // of --samples: one in so many
  std::function<void(Driver&)> what;
  bool rests = false;
  int per = 1;
};

// The busy launch's size, by the library without Sluice.
Work work_of(Driver& driver) {
  Work work;
  const auto takes_us = [&] {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double begin = now_us();
      driver.launch_busy(work);
      driver.wait();
      best = std::min(best, now_us() - begin);
    }
    return best;
  };
  if (const double us = takes_us(); us > kWorkUs) {
    work.steps = std::max(1u, static_cast<unsigned>(work.steps * kWorkUs / us));
    return work;
  }
  work.blocks = 1024;
  for (int i = 0; i < 4; ++i)
    work.blocks = std::max(1u, static_cast<unsigned>(work.blocks * kWorkUs / takes_us()));
  return work;
}

std::vector<Row> rows(const Settings& settings, const Work& work) {
  const auto small = std::make_shared<std::vector<char>>(kSmall, 'a');
  const auto middle = std::make_shared<std::vector<char>>(kMiddle, 'b');
  const auto back = std::make_shared<std::vector<char>>(kMiddle, 'c');
  const auto there_and_back = [back](Driver& d, std::vector<char>& from) {
    ++from[0], ++from[from.size() - 1];
    d.upload(from.data(), from.size());
    d.download(back->data(), from.size());
    if (std::memcmp(from.data(), back->data(), from.size()) != 0)
      throw std::runtime_error(d.label + ": what came back is not what was sent");
  };
  const int queued = settings.samples;
  return {
      {"upload_4k", 1, [small](Driver& d) { d.upload(small->data(), kSmall); }},
      {"download_4k", 1, [back](Driver& d) { d.download(back->data(), kSmall); }},
      {"there_and_back_4k", 1, [=](Driver& d) { there_and_back(d, *small); }},
      {"upload_1m", 4, [middle](Driver& d) { d.upload(middle->data(), kMiddle); }},
      {"download_1m", 4, [back](Driver& d) { d.download(back->data(), kMiddle); }},
      {"there_and_back_1m", 4, [=](Driver& d) { there_and_back(d, *middle); }},
      {"upload_64m_pinned", 40, [](Driver& d) { d.upload(d.pinned(), kLarge); }},
      {"download_64m_pinned", 40, [](Driver& d) { d.download(d.pinned(), kLarge); }},
      {"launch_and_wait", 1, [](Driver& d) { d.launch(), d.wait(); }},
      {"launch_100us", 2, [work](Driver& d) { d.launch_busy(work), d.wait(); }},
      {"rest_launch", 3, [](Driver& d) { d.launch(), d.wait(); }, true},
      {"rest_launch_100us", 3, [work](Driver& d) { d.launch_busy(work), d.wait(); }, true},
      {"queued_launches", 20,
       [queued](Driver& d) {
         for (int i = 0; i < queued; ++i) d.launch();
         d.wait();
       },
       false, queued},
      {"between_4k", 1, [](Driver& d) { d.between(kSmall), d.wait(); }},
      {"between_64m", 10, [](Driver& d) { d.between(kLarge), d.wait(); }},
      {"empty_call", 1, [](Driver& d) { d.ask(); }},
      {"mem_get_info", 1, [](Driver& d) { d.mem_info(); }},
      {"symbol_launch", 1,
       [small](Driver& d) { d.set_symbol(small->data(), 64), d.launch(), d.wait(); }},
      {"uploads_16x1k", 4,
       [small](Driver& d) {
         for (int i = 0; i < 16; ++i) d.upload_async(small->data(), 1024);
         d.launch(), d.wait();
       }},
      {"alloc_free_64k", 2, [](Driver& d) { d.allocate_and_free(64 << 10); }},
      {"alloc_free_16m", 2, [](Driver& d) { d.allocate_and_free(16 << 20); }},
      {"pool_launches", 20,
       [](Driver& d) {
         for (int i = 0; i < kPooled; ++i) d.launch_with_memory(kMiddle, [&] { d.launch(); });
         d.wait();
       },
       false, kPooled},
      {"pool_launches_100us", 20,
       [work](Driver& d) {
         for (int i = 0; i < kPooled; ++i)
           d.launch_with_memory(kMiddle, [&] { d.launch_busy(work); });
         d.wait();
       },
       false, kPooled},
      {"timed_launch", 1, [](Driver& d) { d.timed_launch(); }},
      {"host_function", 1, [](Driver& d) { d.launch(), d.host_function(), d.wait(); }},
  };
}

void measure(Driver& driver, const Row& row, const Settings& settings, Samples& samples) {
  const int times = std::max(1, settings.samples / row.share);
  const int warm = row.rests ? 2 : times / 5 + 1;
  std::vector<double>& to = samples[row.name][driver.label];
  for (int i = -warm; i < times; ++i) {
    if (row.rests) ::usleep(static_cast<useconds_t>(settings.rest_us));
    const double begin = now_us();
    row.what(driver);
    if (i >= 0) to.push_back((now_us() - begin) / row.per);
  }
}

int run(const Settings& settings) {
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::make_unique<Driver>("direct", settings.direct));
  drivers.push_back(std::make_unique<Driver>("channel", settings.channel));
  const Work work = work_of(*drivers[0]);
  // So that all forms of the kernel are known, and how long it takes.
  for (int i = 0; i < 16; ++i) {
    drivers[1]->launch_busy(work);
    drivers[1]->wait();
  }
  Samples samples;
  for (int i = 0; i < settings.rounds; ++i) {
    for (const Row& row : rows(settings, work)) {
      if (!settings.only.empty() &&
          std::find(settings.only.begin(), settings.only.end(), row.name) == settings.only.end())
        continue;
      for (auto& driver : drivers) measure(*driver, row, settings, samples);
    }
    for (auto& driver : drivers) driver->verify();
  }
  std::printf("{\"device\": \"%s\", \"channel_device\": \"%s\", \"blocks\": %u, \"steps\": %u",
              drivers[0]->device.c_str(), drivers[1]->device.c_str(), work.blocks, work.steps);
  for (const auto& [name, by_library] : samples) {
    std::printf(",\n \"%s\": {", name.c_str());
    const char* comma = "";
    for (const auto& [library, values] : by_library) {
      std::printf("%s\"%s\": [", comma, library.c_str());
      for (std::size_t i = 0; i < values.size(); ++i)
        std::printf("%s%.2f", i == 0 ? "" : ",", values[i]);
      std::printf("]");
      comma = ", ";
    }
    std::printf("}");
  }
  std::printf("}\n");
  return 0;
}

int usage() {
  std::fputs(
      "usage: feel --direct LIBRARY --channel LIBRARY [--rounds N] [--samples N] [--rest-us N]\n"
      "            [--only ROW,..]\n",
      stderr);
  return 2;
}

}  // namespace
}  // namespace sluice::bench

using namespace sluice::bench;

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (i + 1 == argc) return usage();
    const char* value = argv[++i];
    if (option == "--direct") {
      settings.direct = value;
    } else if (option == "--channel") {
      settings.channel = value;
    } else if (option == "--rounds") {
      settings.rounds = std::atoi(value);
    } else if (option == "--samples") {
      settings.samples = std::atoi(value);
    } else if (option == "--rest-us") {
      settings.rest_us = std::atoi(value);
    } else if (option == "--only") {
      std::string names = value;
      for (std::size_t at = 0; at <= names.size();) {
        const std::size_t end = std::min(names.find(',', at), names.size());
        settings.only.push_back(names.substr(at, end - at));
        at = end + 1;
      }
    } else {
      return usage();
    }
  }
  if (settings.direct.empty() || settings.channel.empty() || settings.rounds < 1 ||
      settings.samples < 1 || settings.rest_us < 0)
    return usage();
  try {
    return run(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "feel: %s\n", error.what());
    return 3;
  }
}
