// SPDX-License-Identifier: Apache-2.0
// driver_cost: what the calls of a CUDA driver cost that a worker makes for each launch, and how
// soon each way to wait finds a launch's end. By hand; nothing to pass or fail.
//
//   driver_cost [--library libcuda.so.1] [--samples 2000]
//
// One JSON object on stdout; per line P50 and P99 in microseconds.
//   call_*        the call alone, the stream empty before each
//   ask_*         a question: while a kernel runs (busy), or when all has ended (idle)
//   end_*         an empty kernel's launch until its end is found, by each way to wait
//   copy_*        the same of a copy of 4 KiB within the device
//   queued_*      200 empty launches and a wait, for each launch, with what a worker adds to them
//   step_*        what the GPU takes for a short kernel and what stands behind it in its stream,
//                 all queued before the first begins: kernels alone, or each with an event, a fill,
//                 ...; "elsewhere": in another stream, with an event to it and one back
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mediator/gpu/driver_api.h"

namespace {

using namespace sluice;

const char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry empty() { ret; }
.visible .entry work(.param .u32 steps)
{
  .reg .u32 %r<4>; .reg .pred %p<2>;
  ld.param.u32 %r1, [steps];
  mov.u32 %r2, %tid.x;
LOOP:
  mad.lo.u32 %r2, %r2, 1664525, 1013904223;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra LOOP;
  ret;
}
)";
constexpr int kQueued = 200;
constexpr std::size_t kCopyBytes = 4096;
// Longer than a question takes, by far.
constexpr unsigned kSteps = 50000;

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

void check(CUresult r, const char* what) {
  if (r == CUDA_SUCCESS) return;
  std::fprintf(stderr, "driver_cost: %s: %s\n", what, gpu::describe(r).c_str());
  std::exit(3);
}
#define CU(call) check(call, #call)

class DriverCost {
 public:
  DriverCost(const gpu::DriverApi& api, int samples) : api_(api), samples_(samples) {
    CU(api_.cuInit(0));
    CUdevice device = 0;
    CU(api_.cuDeviceGet(&device, 0));
    CUcontext context = nullptr;
    CU(api_.cuDevicePrimaryCtxRetain(&context, device));
    CU(api_.cuCtxSetCurrent(context));
    CUmodule module = nullptr;
    CU(api_.cuModuleLoadDataEx(&module, kPtx, 0, nullptr, nullptr));
    CU(api_.cuModuleGetFunction(&empty_, module, "empty"));
    CU(api_.cuModuleGetFunction(&work_, module, "work"));
    CU(api_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CU(api_.cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    CU(api_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    void* host = nullptr;
    CU(api_.cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    word_ = static_cast<unsigned*>(host);
    CU(api_.cuMemHostGetDevicePointer(&word_at_, host, 0));
    CU(api_.cuMemAlloc(&from_, kCopyBytes));
    CU(api_.cuMemAlloc(&to_, kCopyBytes));
    CU(api_.cuMemsetD8Async(from_, 1, kCopyBytes, stream_));
    wait();
  }

  void run() {
    const auto launch = [this] { this->launch(); };
    const auto copy = [this] { CU(api_.cuMemcpyDtoDAsync(to_, from_, kCopyBytes, stream_)); };
    const auto record = [this] { CU(api_.cuEventRecord(event_, stream_)); };
    std::size_t free = 0, total = 0;

    calls("call_launch", launch);
    calls("call_copy", copy);
    calls("call_event_record", record);
    if (words_) calls("call_write_value", [this] { write_word(); });
    calls("call_mem_get_info", [&] { CU(api_.cuMemGetInfo(&free, &total)); });
    launch(), record(), wait();
    time("ask_event_idle", [this] { (void)api_.cuEventQuery(event_); });
    time("ask_stream_idle", [this] { (void)api_.cuStreamQuery(stream_); });
    busy("ask_event_busy", [this] { return api_.cuEventQuery(event_); });
    busy("ask_stream_busy", [this] { return api_.cuStreamQuery(stream_); });
    ends("end_", launch);
    ends("copy_", copy);

    queued("queued_plain", 0, [] {});
    for (const int each : {1, 4, 8, 16, 32})
      queued("queued_event_each_" + std::to_string(each), each, record);
    queued("queued_event_asked_each_8", 8, [&] { record(), (void)api_.cuEventQuery(event_); });
    queued("queued_set_current_each_1", 1, [this] {
      CUcontext current = nullptr;
      CU(api_.cuCtxGetCurrent(&current));
      CU(api_.cuCtxSetCurrent(current));
    });
    if (words_) queued("queued_write_value_each_8", 8, [this] { write_word(); });
    steps(record);
  }

  void print(const char* library) const {
    std::printf("{\"library\": \"%s\", \"samples\": %d, \"words\": %s", library, samples_,
                words_ ? "true" : "false");
    for (const auto& [name, p50, p99] : rows_)
      std::printf(",\n \"%s\": [%.2f, %.2f]", name.c_str(), p50, p99);
    std::printf("}\n");
  }
  // Whether streams can write words; not everywhere under MPS.
  void find_words() { words_ = api_.cuStreamWriteValue32(stream_, word_at_, 0, 0) == CUDA_SUCCESS; }

 private:
  struct Row {
    std::string name;
    double p50, p99;
  };

  void launch() {
    CU(api_.cuLaunchKernel(empty_, 1, 1, 1, 32, 1, 1, 0, stream_, nullptr, nullptr));
  }
  void wait() { CU(api_.cuStreamSynchronize(stream_)); }
  void write_word() { CU(api_.cuStreamWriteValue32(stream_, word_at_, ++wanted_, 0)); }

  void keep(std::string name, std::vector<double> us) {
    std::sort(us.begin(), us.end());
    rows_.push_back({std::move(name), us[us.size() / 2], us[us.size() * 99 / 100]});
  }
  // `what`, timed; `after` it, not.
  void time(
      std::string name, const std::function<void()>& what,
      const std::function<void()>& after = [] {}) {
    std::vector<double> us;
    for (int i = -samples_ / 5; i < samples_; ++i) {
      const double begin = now_us();
      what();
      if (i >= 0) us.push_back(now_us() - begin);
      after();
    }
    keep(std::move(name), std::move(us));
  }
  void calls(std::string name, const std::function<void()>& call) {
    time(std::move(name), call, [this] { wait(); });
  }
  // A question while a kernel runs.
  void busy(std::string name, const std::function<CUresult()>& ask) {
    std::vector<double> us;
    for (int i = 0; i < 20; ++i) {
      unsigned steps = kSteps;
      void* arguments[] = {&steps};
      CU(api_.cuLaunchKernel(work_, 1, 1, 1, 32, 1, 1, 0, stream_, arguments, nullptr));
      CU(api_.cuEventRecord(event_, stream_));
      for (int n = 0; n < 100; ++n) {
        const double begin = now_us();
        if (ask() != CUDA_ERROR_NOT_READY) break;
        us.push_back(now_us() - begin);
      }
      wait();
    }
    if (!us.empty()) keep(std::move(name), std::move(us));
  }
  void ends(const std::string& name, const std::function<void()>& begin) {
    time(name + "synchronize", [&] { begin(), wait(); });
    time(name + "ask_stream", [&] {
      begin();
      while (api_.cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY) {
      }
    });
    time(name + "event", [&] {
      begin();
      CU(api_.cuEventRecord(event_, stream_));
      while (api_.cuEventQuery(event_) == CUDA_ERROR_NOT_READY) {
      }
    });
    if (!words_) return;
    const auto see_word = [this] {
      while (__atomic_load_n(word_, __ATOMIC_ACQUIRE) != wanted_) {
      }
    };
    time(name + "word", [&] { begin(), write_word(), see_word(); });
    time(name + "word_then_ask_stream", [&] {
      begin(), write_word(), see_word();
      while (api_.cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY) {
      }
    });
    time(name + "event_and_word_then_ask_event", [&] {
      begin();
      CU(api_.cuEventRecord(event_, stream_));
      write_word(), see_word();
      while (api_.cuEventQuery(event_) == CUDA_ERROR_NOT_READY) {
      }
    });
  }
  void queued(std::string name, int each, const std::function<void()>& add) {
    std::vector<double> us;
    const int times = std::max(10, samples_ / 40);
    for (int i = -times / 5; i < times; ++i) {
      const double begin = now_us();
      for (int n = 1; n <= kQueued; ++n) {
        launch();
        if (each != 0 && n % each == 0) add();
      }
      wait();
      if (i >= 0) us.push_back((now_us() - begin) / kQueued);
    }
    keep(std::move(name), std::move(us));
  }

  void steps(const std::function<void()>& record) {
    const auto fill = [this](CUstream in) { CU(api_.cuMemsetD8Async(to_, 0, 4, in)); };
    static char pageable[256];
    step("step_plain", [] {});
    step("step_event", record);
    if (words_) step("step_write_value", [this] { write_word(); });
    step("step_fill", [&] { fill(stream_); });
    step("step_fill_elsewhere", [&] {
      CU(api_.cuEventRecord(event_, stream_));
      CU(api_.cuStreamWaitEvent(other_, event_, 0));
      fill(other_);
      CU(api_.cuEventRecord(event_, other_));
      CU(api_.cuStreamWaitEvent(stream_, event_, 0));
    });
    step("step_upload_pinned",
         [this] { CU(api_.cuMemcpyHtoDAsync(to_, word_ + 64, sizeof pageable, stream_)); });
    step("step_upload_pageable",
         [this] { CU(api_.cuMemcpyHtoDAsync(to_, pageable, sizeof pageable, stream_)); });
    step("step_copy", [this] { CU(api_.cuMemcpyDtoDAsync(to_, from_, 256, stream_)); });
  }
  void step(std::string name, const std::function<void()>& add) {
    constexpr int kEach = 60;
    std::vector<double> us;
    const auto queue = [&](int times) {
      unsigned behind = 10 * kSteps, each = 100;
      void *first[] = {&behind}, *later[] = {&each};
      CU(api_.cuLaunchKernel(work_, 1, 1, 1, 32, 1, 1, 0, stream_, first, nullptr));
      for (int i = 0; i < times; ++i) {
        CU(api_.cuLaunchKernel(work_, 1, 1, 1, 32, 1, 1, 0, stream_, later, nullptr));
        add();
      }
    };
    for (int i = -2; i < std::max(5, samples_ / 100); ++i) {
      double took[2];
      for (const int times : {0, kEach}) {
        const double begin = now_us();
        queue(times);
        wait();
        took[times != 0] = now_us() - begin;
      }
      if (i >= 0) us.push_back((took[1] - took[0]) / kEach);
    }
    keep(std::move(name), std::move(us));
  }

  const gpu::DriverApi& api_;
  const int samples_;
  CUfunction empty_ = nullptr, work_ = nullptr;
  CUstream stream_ = nullptr, other_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr word_at_ = 0, from_ = 0, to_ = 0;
  unsigned* word_ = nullptr;
  unsigned wanted_ = 0;
  bool words_ = false;
  std::vector<Row> rows_;
};

}  // namespace

int main(int argc, char** argv) {
  std::string library = "libcuda.so.1";
  int samples = 2000;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--library") library = argv[i + 1];
    if (std::string_view(argv[i]) == "--samples") samples = std::atoi(argv[i + 1]);
  }
  auto api = gpu::load_driver(library);
  if (!api) {
    std::fprintf(stderr, "driver_cost: %s\n", api.error().message.c_str());
    return 2;
  }
  DriverCost cost(*api, samples);
  cost.find_words();
  cost.run();
  cost.print(library.c_str());
}
