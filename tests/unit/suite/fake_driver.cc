// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/suite/fake_driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <span>

#include "kernels/suite/workloads/reference.h"

namespace sluice::suite::testing {

namespace {

FakeDriver driver;

// One record of an event: done when the stream has reached it.
struct Mark {
  bool reached = false;
  CUstream_st* stream = nullptr;
};

}  // namespace

FakeDriver& fake_driver() { return driver; }
void reset_fake_driver() { driver = FakeDriver{}; }

}  // namespace sluice::suite::testing

using namespace sluice::suite;
using namespace sluice::suite::testing;

struct CUstream_st {
  std::deque<std::function<void()>> work;
};
struct CUevent_st {
  std::shared_ptr<Mark> mark;
};
struct CUfunc_st {
  std::string name;
};
struct CUmod_st {
  std::deque<CUfunc_st> functions;
};

namespace {

void run_one(CUstream stream) {
  auto work = std::move(stream->work.front());
  stream->work.pop_front();
  work();
}

void run_until(const std::shared_ptr<Mark>& mark) {
  while (mark && !mark->reached) run_one(mark->stream);
}

CUresult queue(CUstream stream, std::function<void()> work) {
  stream->work.push_back(std::move(work));
  if (!driver.lazy) {
    while (!stream->work.empty()) run_one(stream);
  }
  return CUDA_SUCCESS;
}

template <class T>
T* pointer(CUdeviceptr address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

// Values of a launch's arguments, copied when it is queued, as CUDA does.
struct Values {
  std::uint64_t words[12] = {};
  template <class T>
  T get(std::size_t i) const {
    T value;
    std::memcpy(&value, &words[i], sizeof(T));
    return value;
  }
  template <class T>
  T* address(std::size_t i) const {
    return pointer<T>(words[i]);
  }
};

std::size_t argument_count(const std::string& name) {
  if (name == "triad") return 5;
  if (name == "matmul") return 7;
  if (name == "stencil2d") return 8;
  if (name == "empty") return 0;
  return 4;  // reduction, histogram, md5
}

void compute(const std::string& name, const Values& v) {
  if (name == "triad") {
    const auto n = v.get<std::uint64_t>(4);
    reference_triad({v.address<double>(0), n}, {v.address<double>(1), n}, {v.address<double>(2), n},
                    v.get<double>(3));
  } else if (name == "matmul") {
    const std::size_t rows = v.get<std::uint32_t>(4), cols = v.get<std::uint32_t>(5),
                      inner = v.get<std::uint32_t>(6);
    reference_matmul({v.address<float>(0), rows * cols}, {v.address<float>(1), rows * inner},
                     {v.address<float>(2), inner * cols}, v.get<float>(3), cols, inner);
  } else if (name == "reduction") {
    *v.address<std::uint64_t>(0) += reference_reduction(
        {v.address<std::uint32_t>(1), v.get<std::uint64_t>(3)}, v.get<std::uint32_t>(2));
  } else if (name == "stencil2d") {
    const std::size_t width = v.get<std::uint32_t>(6), height = v.get<std::uint32_t>(7);
    reference_stencil2d(
        {v.address<float>(0), width * height}, {v.address<float>(1), width * height},
        {v.get<float>(2), v.get<float>(3), v.get<float>(4)}, v.get<float>(5), width, height);
  } else if (name == "histogram") {
    reference_histogram(std::span<std::uint32_t, kHistogramBins>(v.address<std::uint32_t>(0), 256),
                        {v.address<std::uint32_t>(1), v.get<std::uint64_t>(3)},
                        v.get<std::uint32_t>(2));
  } else if (name == "md5") {
    const auto words = v.get<std::uint64_t>(3) * 4;
    reference_md5({v.address<std::uint32_t>(0), words}, {v.address<std::uint32_t>(1), words},
                  v.get<std::uint64_t>(2));
  }
}

template <class T, class... Arguments>
T* make_object(Arguments&&... arguments) {
  ++driver.live_objects;
  return new T{std::forward<Arguments>(arguments)...};
}

template <class T>
CUresult delete_object(T* object) {
  --driver.live_objects;
  delete object;
  return CUDA_SUCCESS;
}

CUresult allocate(void** address, std::size_t bytes) {
  *address = std::calloc(1, bytes);
  ++driver.live_objects;
  return *address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult release(void* address) {
  --driver.live_objects;
  std::free(address);
  return CUDA_SUCCESS;
}

}  // namespace

#define FAIL_IF_ASKED(call) \
  if (driver.failing_call == #call) return driver.failure

extern "C" {

CUresult cuGetErrorName(CUresult error, const char** str) {
  *str = error == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "SOME_ERROR";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** str) {
  *str = "some text";
  return CUDA_SUCCESS;
}
CUresult cuInit(unsigned int) {
  FAIL_IF_ASKED(cuInit);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int len, CUdevice) {
  std::strncpy(name, "Fake \"GPU\"", static_cast<std::size_t>(len));
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*,
                            void**) {
  FAIL_IF_ASKED(cuModuleLoadDataEx);
  if (std::strstr(static_cast<const char*>(image), ".visible .entry") == nullptr) {
    return CUDA_ERROR_INVALID_PTX;
  }
  *module = make_object<CUmod_st>();
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleUnload(CUmodule module) { return delete_object(module); }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  *function = &module->functions.emplace_back(CUfunc_st{name});
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  FAIL_IF_ASKED(cuMemAlloc);
  void* memory = nullptr;
  const CUresult result = allocate(&memory, bytes);
  *address = reinterpret_cast<std::uintptr_t>(memory);
  return result;
}
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = 1 << 30;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) { return release(pointer<void>(address)); }
CUresult cuMemAllocHost(void** address, std::size_t bytes) { return allocate(address, bytes); }
CUresult cuMemFreeHost(void* address) { return release(address); }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  std::memcpy(pointer<void>(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return queue(stream, [=] { std::memcpy(to, pointer<void>(from), bytes); });
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return queue(stream, [=] { std::memcpy(pointer<void>(to), pointer<void>(from), bytes); });
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, std::size_t count, CUstream stream) {
  return queue(stream, [=] { std::fill_n(pointer<unsigned int>(to), count, value); });
}

CUresult cuStreamCreate(CUstream* stream, unsigned int) {
  *stream = make_object<CUstream_st>();
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) { return delete_object(stream); }
CUresult cuStreamSynchronize(CUstream stream) {
  while (!stream->work.empty()) run_one(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
  return stream->work.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  // What counts is the record as it is now, not when the stream gets there.
  return queue(stream, [mark = event->mark] { run_until(mark); });
}

CUresult cuEventCreate(CUevent* event, unsigned int) {
  *event = make_object<CUevent_st>();
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) { return delete_object(event); }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  event->mark = std::make_shared<Mark>(Mark{.stream = stream});
  return queue(stream, [mark = event->mark] { mark->reached = true; });
}
CUresult cuEventSynchronize(CUevent event) {
  FAIL_IF_ASKED(cuEventSynchronize);
  ++driver.waits;
  driver.fewest_queued_in_wait = std::min(driver.fewest_queued_in_wait, driver.launches_queued);
  run_until(event->mark);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, unsigned int, unsigned int, CUstream stream,
                        void** parameters, void**) {
  FAIL_IF_ASKED(cuLaunchKernel);
  Values values;
  for (std::size_t i = 0; i < argument_count(function->name); ++i) {
    std::memcpy(&values.words[i], parameters[i], 8);
  }
  ++driver.launches_queued;
  return queue(stream, [name = function->name, values] {
    const std::uint64_t launch = driver.launches_run++;
    --driver.launches_queued;
    for (int i = driver.times(launch); i > 0; --i) compute(name, values);
    driver.spoil(launch, values.address<void>(0));
  });
}

}  // extern "C"
