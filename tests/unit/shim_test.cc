// The guest's libcuda.so.1 against a worker in a thread: what programs see. Each test runs in a
// process of its own, because a process has one session.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <numeric>
#include <thread>

#include "abi/cuda_driver.h"
#include "tests/unit/shim_fake_worker.h"

namespace sluice::testing {
namespace {

using Options = FakeWorker::Options;

const char* const kModule = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 to, .param .u32 n, .param .u32 value)
{
  .reg .b32 %r<4>;
  mov.u32 %r1, %ctaid.x;
  ret;
}
)";

// Runs `body` in a child with a worker of its own; the child's failures are this test's.
void in_process(const Options& options, const std::function<void(FakeWorker&)>& body) {
  ::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(120);  // a hang is a failure, whatever the test's own limits
    {
      FakeWorker worker(options);
      ::setenv("SLUICE_SOCKET", worker.socket_path().c_str(), 1);
      body(worker);
      for (const std::string& p : worker.problems()) ADD_FAILURE() << "worker: " << p;
    }
    ::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

void set_up(CUcontext* context = nullptr) {
  CUcontext own;
  if (context == nullptr) context = &own;
  OK(cuInit(0));
  CUdevice device;
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(context, 0));
  OK(cuCtxSetCurrent(*context));
}

TEST(Shim, ErrorsBeforeThereIsASession) {
  in_process({}, [](FakeWorker&) {
    int n;
    CUdeviceptr p;
    EXPECT_EQ(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuMemAlloc(&p, 16), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuDriverGetVersion(&n));
    EXPECT_EQ(n, SLUICE_CUDA_VERSION);
    EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    OK(cuInit(0));
    OK(cuInit(0));
    EXPECT_EQ(cuMemAlloc(&p, 16), CUDA_ERROR_INVALID_CONTEXT);
    const char* text;
    OK(cuGetErrorName(CUDA_ERROR_INVALID_CONTEXT, &text));
    EXPECT_STREQ(text, "CUDA_ERROR_INVALID_CONTEXT");
    EXPECT_EQ(cuGetErrorString(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(Shim, NoVgpuIsNoDevice) {
  in_process({}, [](FakeWorker&) {
    ::setenv("SLUICE_SOCKET", "/nowhere/at/all", 1);
    EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE);
  });
  Options refusing;
  refusing.refuse = "the vGPU is full";
  in_process(refusing, [](FakeWorker&) { EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE); });
}

TEST(Shim, ContextStack) {
  in_process({}, [](FakeWorker&) {
    CUcontext a, b, now;
    set_up(&a);
    OK(cuDevicePrimaryCtxRetain(&b, 0));
    EXPECT_EQ(a, b) << "one primary context, however often retained";
    OK(cuCtxCreate(&b, nullptr, 0, 0));
    OK(cuCtxGetCurrent(&now));
    EXPECT_EQ(now, b);
    OK(cuCtxPopCurrent(&now));
    EXPECT_EQ(now, b);
    OK(cuCtxGetCurrent(&now));
    EXPECT_EQ(now, a);
    OK(cuCtxPushCurrent(b));
    CUdevice device = -1;
    OK(cuCtxGetDevice(&device));
    EXPECT_EQ(device, 0);
    OK(cuCtxDestroy(b));
    OK(cuCtxGetCurrent(&now));
    EXPECT_EQ(now, a);
    EXPECT_EQ(cuCtxSetCurrent(b), CUDA_ERROR_INVALID_CONTEXT);
    std::thread([] {
      CUcontext other;
      OK(cuCtxGetCurrent(&other));
      EXPECT_EQ(other, nullptr) << "each thread has its own";
    }).join();
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxRelease(0));
    EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
  });
}

// Sizes around every boundary: staging blocks, pieces, all of staging, and much more.
TEST(Shim, CopiesOfAllSizesAndKinds) {
  Options small;
  small.staging_bytes = 256 << 10;
  in_process(small, [](FakeWorker& worker) {
    set_up();
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t n : {size_t{1}, size_t{63}, size_t{16384}, size_t{65536}, size_t{65537},
                     size_t{262144}, size_t{262145}, size_t{3000001}}) {
      std::vector<unsigned char> in(n), out(n, 0);
      for (size_t i = 0; i < n; ++i) in[i] = static_cast<unsigned char>(i * 131 + n);
      CUdeviceptr a, b;
      OK(cuMemAlloc(&a, n));
      OK(cuMemAlloc(&b, n));
      OK(cuMemcpyHtoD(a, in.data(), n));
      OK(cuMemcpyDtoD(b, a, n));
      OK(cuMemcpyDtoH(out.data(), b, n));
      EXPECT_EQ(in, out) << n;
      std::fill(out.begin(), out.end(), 0);
      OK(cuMemsetD8(a, 0, n));
      OK(cuMemcpyHtoDAsync(a, in.data(), n, stream));
      OK(cuMemcpyDtoHAsync(out.data(), a, n, stream));
      OK(cuStreamSynchronize(stream));
      EXPECT_EQ(in, out) << n;
      void* pinned;
      OK(cuMemAllocHost(&pinned, n));
      std::memset(pinned, 0, n);
      OK(cuMemcpyDtoHAsync(pinned, a, n, stream));
      OK(cuStreamSynchronize(stream));
      EXPECT_EQ(std::memcmp(pinned, in.data(), n), 0) << n;
      OK(cuMemsetD8Async(b, 7, n, stream));
      OK(cuMemcpy(b, reinterpret_cast<CUdeviceptr>(pinned), n));
      std::fill(out.begin(), out.end(), 0);
      OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()), b, n));
      EXPECT_EQ(in, out) << n;
      OK(cuMemFreeHost(pinned));
      // Beyond the end, unknown addresses.
      EXPECT_EQ(cuMemcpyHtoD(a + 1, in.data(), n), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(cuMemcpyHtoD(0x1234, in.data(), n), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(cuMemcpyDtoH(out.data(), a, n + 1), CUDA_ERROR_INVALID_VALUE);
      OK(cuMemcpyHtoD(a, nullptr, 0));
      OK(cuMemFree(a));
      EXPECT_EQ(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
      OK(cuMemFree(b));
    }
    OK(cuStreamDestroy(stream));
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxSynchronize());
    EXPECT_EQ(worker.live_allocations(), 0u);
    EXPECT_LE(worker.live_extents(), 1u) << "one extent is kept for small requests";
  });
}

TEST(Shim, Rectangles) {
  Options small;
  small.staging_bytes = 64 << 10;
  in_process(small, [](FakeWorker&) {
    set_up();
    for (size_t width : {size_t{5}, size_t{1000}, size_t{40000}}) {
      const size_t height = 37, host_pitch = width + 13;
      std::vector<unsigned char> in(host_pitch * height), out(host_pitch * height, 9);
      std::iota(in.begin(), in.end(), static_cast<unsigned char>(3));
      const size_t device_pitch = width + 100;
      CUdeviceptr p;
      OK(cuMemAlloc(&p, device_pitch * height + 50));
      CUDA_MEMCPY2D c{};
      c.srcMemoryType = CU_MEMORYTYPE_HOST;
      c.srcHost = in.data();
      c.srcPitch = host_pitch;
      c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      c.dstDevice = p;
      c.dstPitch = device_pitch;
      c.WidthInBytes = width;
      c.Height = height;
      OK(cuMemcpy2D(&c));
      CUDA_MEMCPY2D back{};
      back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
      back.srcDevice = p;
      back.srcPitch = device_pitch;
      back.dstMemoryType = CU_MEMORYTYPE_HOST;
      back.dstHost = out.data();
      back.dstPitch = host_pitch;
      back.WidthInBytes = width;
      back.Height = height;
      OK(cuMemcpy2D(&back));
      for (size_t row = 0; row < height; ++row) {
        EXPECT_EQ(std::memcmp(&out[row * host_pitch], &in[row * host_pitch], width), 0) << row;
        if (row + 1 < height) {
          EXPECT_EQ(out[row * host_pitch + width], 9) << "gap was touched";
        }
      }
      back.dstPitch = width - 1;
      EXPECT_EQ(cuMemcpy2D(&back), CUDA_ERROR_INVALID_VALUE);
      OK(cuMemsetD2D8(p, device_pitch, 0x5a, width, height));
      unsigned char one = 0;
      OK(cuMemcpyDtoH(&one, p + device_pitch * (height - 1) + width - 1, 1));
      EXPECT_EQ(one, 0x5a);
      EXPECT_EQ(cuMemsetD32(p + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
      OK(cuMemFree(p));
    }
  });
}

TEST(Shim, LaunchesPackTheirParameters) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUmodule module;
    OK(cuModuleLoadData(&module, kModule));
    EXPECT_EQ(worker.modules_with_clones(), 1u) << "the kernel should have been rewritten";
    CUfunction fill, odd;
    OK(cuModuleGetFunction(&fill, module, "fill"));
    OK(cuModuleGetFunction(&odd, module, "odd"));
    EXPECT_EQ(cuModuleGetFunction(&odd, module, "absent"), CUDA_ERROR_NOT_FOUND);
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 4096));
    uint32_t n = 1024, value = 0xdecade;
    void* params[] = {&p, &n, &value};
    OK(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr));
    std::vector<uint32_t> out(1024);
    OK(cuMemcpyDtoH(out.data(), p, 4096));
    EXPECT_EQ(out[0], value);
    EXPECT_EQ(out[1023], value);
    int8_t a = -2;
    int16_t c = 345;
    void* odd_params[] = {&a, &p, &c};
    OK(cuLaunchKernel(odd, 1, 1, 1, 1, 1, 1, 0, nullptr, odd_params, nullptr));
    int64_t result;
    OK(cuMemcpyDtoH(&result, p, 8));
    EXPECT_EQ(result, -2 * 1000 + 345);
    // The same by a packed block.
    struct {
      uint64_t to;
      uint32_t n, value;
    } packed{p, 16, 5};
    size_t bytes = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    OK(cuMemcpyDtoH(out.data(), p, 64));
    EXPECT_EQ(out[15], 5u);
    bytes = 8;
    EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra),
              CUDA_ERROR_INVALID_VALUE);
    // What CUDA refuses at the call.
    auto shape = [&](unsigned gx, unsigned gy, unsigned bx, unsigned bz, unsigned shared) {
      return cuLaunchKernel(fill, gx, gy, 1, bx, 1, bz, shared, nullptr, params, nullptr);
    };
    EXPECT_EQ(shape(0, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(shape(1, 70000, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(shape(1, 1, 2048, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(shape(1, 1, 1024, 2, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(shape(1, 1, 1024, 1, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    EXPECT_EQ(shape(1, 1, 32, 1, 1 << 20), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuLaunchKernel(reinterpret_cast<CUfunction>(uint64_t{0x0300000100000099}), 1, 1, 1, 1,
                             1, 1, 0, nullptr, params, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, reinterpret_cast<CUstream>(uint64_t{0x40}),
                             params, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleUnload(module));
    EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(Shim, ModulesThatDoNotLoad) {
  Options no_clones;
  no_clones.accept_rewritten = false;
  in_process(no_clones, [](FakeWorker& worker) {
    set_up();
    CUmodule module;
    OK(cuModuleLoadData(&module, kModule));  // the original, then
    EXPECT_EQ(worker.modules_with_clones(), 0u);
    char log[64] = "untouched";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    EXPECT_EQ(cuModuleLoadDataEx(&module, "// bad module", 2, options, values),
              CUDA_ERROR_INVALID_PTX);
    EXPECT_STREQ(log, "ptxas would not have it");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(values[1]), std::strlen(log));
    EXPECT_EQ(cuModuleLoadData(&module,
                               "\x7f"
                               "ELF and so on"),
              CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(cuModuleLoadData(&module, ""), CUDA_ERROR_INVALID_IMAGE);
    EXPECT_EQ(cuModuleLoad(&module, "/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
    EXPECT_EQ(cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  });
}

// Texts that fit in a record, in staging, and in neither.
TEST(Shim, LargeModules) {
  Options small;
  small.staging_bytes = 256 << 10;
  in_process(small, [](FakeWorker& worker) {
    set_up();
    for (size_t extra : {size_t{20} << 10, size_t{60} << 10, size_t{3} << 20}) {
      std::string text = kModule;
      text += "// " + std::string(extra, 'x') + "\n";
      CUmodule module;
      OK(cuModuleLoadData(&module, text.c_str()));
      CUfunction f;
      OK(cuModuleGetFunction(&f, module, "fill"));
      OK(cuModuleUnload(module));
    }
    EXPECT_EQ(worker.modules_with_clones(), 3u);
    EXPECT_EQ(worker.live_extents(), 0u);
  });
}

TEST(Shim, Libraries) {
  in_process({}, [](FakeWorker&) {
    OK(cuInit(0));
    CUlibrary library;
    OK(cuLibraryLoadData(&library, kModule, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel kernel;
    OK(cuLibraryGetKernel(&kernel, library, "fill"));
    set_up();
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 64));
    uint32_t n = 4, value = 11;
    void* params[] = {&p, &n, &value};
    OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, params,
                      nullptr));
    uint32_t out = 0;
    OK(cuMemcpyDtoH(&out, p + 12, 4));
    EXPECT_EQ(out, 11u);
    CUfunction function;
    OK(cuKernelGetFunction(&function, kernel));
    const char* name;
    OK(cuFuncGetName(&name, function));
    EXPECT_STREQ(name, "fill");
    size_t offset, size;
    OK(cuFuncGetParamInfo(function, 1, &offset, &size));
    EXPECT_EQ(offset, 8u);
    EXPECT_EQ(size, 4u);
    EXPECT_EQ(cuFuncGetParamInfo(function, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    CUmodule module;
    OK(cuLibraryGetModule(&module, library));
    CUdeviceptr global;
    OK(cuModuleGetGlobal(&global, &size, module, "table"));
    EXPECT_EQ(size, 256u);
    OK(cuMemsetD8(global, 3, size));
    EXPECT_EQ(cuMemFree(global), CUDA_ERROR_INVALID_VALUE);
    OK(cuLibraryUnload(library));
    EXPECT_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(Shim, ErrorsOfQueuedWorkComeWithTheNextSynchronisation) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUmodule module;
    OK(cuModuleLoadData(&module, kModule));
    CUfunction fill;
    OK(cuModuleGetFunction(&fill, module, "fill"));
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 64));
    uint32_t n = 4, value = 1;
    void* params[] = {&p, &n, &value};
    worker.fail_next_launch(CUDA_ERROR_LAUNCH_FAILED);
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    OK(cuCtxSynchronize());  // whether an error sticks is the worker's to say
    worker.fail_next_launch(CUDA_ERROR_LAUNCH_FAILED);
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    uint32_t out;
    EXPECT_EQ(cuMemcpyDtoH(&out, p, 4), CUDA_ERROR_LAUNCH_FAILED);
  });
}

TEST(Shim, EventsAndStreams) {
  in_process({}, [](FakeWorker&) {
    set_up();
    CUevent a, b, untimed;
    CUstream s, t;
    OK(cuEventCreate(&a, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&b, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreateWithPriority(&t, CU_STREAM_DEFAULT, -1));
    OK(cuEventRecord(a, s));
    OK(cuStreamWaitEvent(t, a, 0));
    OK(cuEventRecord(b, t));
    OK(cuEventSynchronize(b));
    OK(cuEventQuery(a));
    OK(cuStreamQuery(t));
    float ms;
    OK(cuEventElapsedTime(&ms, a, b));
    EXPECT_EQ(cuEventElapsedTime(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
    unsigned flags;
    OK(cuStreamGetFlags(s, &flags));
    EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
    CUcontext now, of;
    OK(cuCtxGetCurrent(&now));
    OK(cuStreamGetCtx(s, &of));
    EXPECT_EQ(now, of);
    OK(cuEventDestroy(a));
    EXPECT_EQ(cuEventDestroy(a), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventRecord(a, s), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamWaitEvent(reinterpret_cast<CUstream>(b), b, 0), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamDestroy(s));
    OK(cuCtxSynchronize());
  });
}

TEST(Shim, HostFunctionsRunInOrder) {
  in_process({}, [](FakeWorker&) {
    set_up();
    struct Seen {
      std::mutex mutex;
      std::condition_variable changed;
      std::vector<int> order;
    } seen;
    struct Arg {
      Seen* seen;
      int number;
    };
    std::vector<Arg> args;
    for (int i = 0; i < 20; ++i) args.push_back({&seen, i});
    for (Arg& arg : args)
      OK(cuLaunchHostFunc(
          nullptr,
          [](void* p) {
            auto* a = static_cast<Arg*>(p);
            std::lock_guard lock(a->seen->mutex);
            a->seen->order.push_back(a->number);
            a->seen->changed.notify_one();
          },
          &arg));
    std::unique_lock lock(seen.mutex);
    EXPECT_TRUE(seen.changed.wait_for(lock, std::chrono::seconds(60),
                                      [&] { return seen.order.size() == args.size(); }));
    for (size_t i = 0; i < seen.order.size(); ++i) EXPECT_EQ(seen.order[i], static_cast<int>(i));
  });
}

// Answers that come in any order, to threads that wait, lead and follow.
TEST(Shim, ManyThreadsWaitAtOnce) {
  in_process({}, [](FakeWorker& worker) {
    CUcontext context;
    set_up(&context);
    constexpr int kThreads = 6, kRounds = 200;
    worker.set_hold_syncs(kThreads);  // nobody is answered before all have asked
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        OK(cuCtxSetCurrent(context));
        for (int i = 0; i < kRounds; ++i)
          if (cuCtxSynchronize() == CUDA_SUCCESS) ++right;
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right, kThreads * kRounds);
  });
}

TEST(Shim, ThreadsCopyAndLaunchAtOnce) {
  Options small;
  small.staging_bytes = 128 << 10;  // so that threads compete for it
  in_process(small, [](FakeWorker&) {
    CUcontext context;
    set_up(&context);
    CUmodule module;
    OK(cuModuleLoadData(&module, kModule));
    CUfunction fill;
    OK(cuModuleGetFunction(&fill, module, "fill"));
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        OK(cuCtxSetCurrent(context));
        const uint32_t n = 50000;
        CUdeviceptr p;
        OK(cuMemAlloc(&p, n * 4));
        std::vector<uint32_t> out(n);
        for (uint32_t i = 0; i < 20; ++i) {
          uint32_t count = n, value = t * 1000 + i;
          void* params[] = {&p, &count, &value};
          OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
          OK(cuMemcpyDtoH(out.data(), p, n * 4));
          for (uint32_t v : out) ASSERT_EQ(v, value);
          OK(cuMemcpyHtoD(p, out.data(), n * 4));
        }
        OK(cuMemFree(p));
      });
    for (auto& thread : threads) thread.join();
  });
}

// More launches than the submit ring holds, while the worker does not look.
TEST(Shim, AFullRingWaitsForRoom) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUmodule module;
    OK(cuModuleLoadData(&module, kModule));
    CUfunction fill;
    OK(cuModuleGetFunction(&fill, module, "fill"));
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 64));
    uint32_t n = 1, value = 0;
    void* params[] = {&p, &n, &value};
    const uint64_t before = worker.records();
    worker.pause(true);
    std::thread resume([&] {
      ::usleep(50000);
      worker.pause(false);
    });
    constexpr uint32_t kLaunches = 20000;  // 128 bytes each; the ring holds 4096
    for (uint32_t i = 0; i < kLaunches; ++i) {
      value = i;
      OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    }
    resume.join();
    uint32_t out = 0;
    OK(cuMemcpyDtoH(&out, p, 4));
    EXPECT_EQ(out, kLaunches - 1);
    EXPECT_GE(worker.records() - before, kLaunches);
  });
}

TEST(Shim, PointersAreKnown) {
  in_process({}, [](FakeWorker&) {
    set_up();
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 1000));
    void* host;
    OK(cuMemHostAlloc(&host, 5000, CU_MEMHOSTALLOC_PORTABLE));
    EXPECT_GE(reinterpret_cast<uint64_t>(host), SLUICE_WINDOW_ADDRESS);
    unsigned type = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 999));
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                             reinterpret_cast<CUdeviceptr>(host) + 4999));
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
    EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 1000),
              CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr base;
    size_t size;
    OK(cuMemGetAddressRange(&base, &size, p + 500));
    EXPECT_EQ(base, p);
    EXPECT_EQ(size, 1000u);
    int stack = 0;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    int ordinal = 5;
    void* data[] = {&type, &ordinal};
    OK(cuPointerGetAttributes(2, wanted, data, reinterpret_cast<CUdeviceptr>(&stack)));
    EXPECT_EQ(type, 0u);
    EXPECT_EQ(ordinal, CU_DEVICE_INVALID);
    OK(cuMemHostRegister(&stack, sizeof stack, 0));
    EXPECT_EQ(cuMemHostRegister(&stack, sizeof stack, 0),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemcpyHtoD(p, &stack, sizeof stack));
    OK(cuMemHostUnregister(&stack));
    EXPECT_EQ(cuMemHostUnregister(&stack), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EXPECT_EQ(cuMemHostRegister(&stack, 4, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_ERROR_NOT_SUPPORTED);
  });
}

TEST(Shim, SessionEndIsSeenByEveryCall) {
  in_process({}, [](FakeWorker& worker) {
    CUcontext context;
    set_up(&context);
    worker.set_hold_syncs(100);  // waiters stay waiting
    std::vector<std::thread> threads;
    std::atomic<int> ended{0}, waiting{0};
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        OK(cuCtxSetCurrent(context));
        ++waiting;
        if (cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS) ++ended;
      });
    while (waiting < 3) std::this_thread::yield();
    worker.end_session(CUDA_ERROR_ILLEGAL_ADDRESS, "wrote where it must not");
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(ended, 3);
    CUdeviceptr p;
    EXPECT_EQ(cuMemAlloc(&p, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
  in_process({}, [](FakeWorker& worker) {
    set_up();
    void* pinned;
    OK(cuMemAllocHost(&pinned, 3 << 20));
    std::memset(pinned, 0x33, 3 << 20);
    worker.set_hold_syncs(100);
    std::thread closing([&] {
      ::usleep(20000);
      worker.hang_up();
    });
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    closing.join();
    // The channel's memory is let go of; the program's own data in it stays.
    EXPECT_EQ(static_cast<unsigned char*>(pinned)[(3 << 20) - 1], 0x33);
    std::memset(pinned, 1, 3 << 20);
    EXPECT_FALSE(worker.region_is_mapped_twice());
  });
}

TEST(Shim, ASlotOfAnotherProgramIsNotOurs) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 16));
    const uint64_t before = worker.records();
    worker.give_slot_away();
    EXPECT_EQ(cuMemAlloc(&p, 16), CUDA_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_EQ(cuMemsetD8(p, 0, 16), CUDA_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_EQ(worker.records(), before) << "wrote into another session's ring";
  });
}

TEST(Shim, AForkedChildHasNoSession) {
  in_process({}, [](FakeWorker&) {
    set_up();
    const pid_t child = ::fork();
    if (child == 0) {
      CUdeviceptr p;
      const bool right = cuMemAlloc(&p, 16) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
      ::_exit(right ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    OK(cuCtxSynchronize());  // the parent's goes on
  });
}

TEST(Shim, ProcAddressHonoursTheVersion) {
  void* p = nullptr;
  CUdriverProcAddressQueryResult found;
  OK(cuGetProcAddress("cuCtxCreate", &p, 11000, 0, &found));
  EXPECT_EQ(p, reinterpret_cast<void*>(&cuCtxCreate_v2));
  OK(cuGetProcAddress("cuCtxCreate", &p, 12000, 0, &found));
  EXPECT_EQ(p, reinterpret_cast<void*>(&cuCtxCreate_v3));
  OK(cuGetProcAddress("cuCtxCreate", &p, 13000, 0, &found));
  EXPECT_EQ(p, reinterpret_cast<void*>(&cuCtxCreate_v4));
  OK(cuGetProcAddress("cuLibraryLoadData", &p, 11000, 0, &found));
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(found, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(p, nullptr);
  OK(cuGetProcAddress("cuNoSuchThing", &p, 13000, 0, &found));
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  OK(cuGetProcAddress("cuGetProcAddress", &p, 11030, 0, &found));
  void* p2 = nullptr;
  OK(cuGetProcAddress("cuGetProcAddress", &p2, 12000, 0, &found));
  EXPECT_NE(p, p2) << "the first version has four parameters";
  const void* table = nullptr;
  EXPECT_EQ(cuGetExportTable(&table, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemAllocManaged(nullptr, 1, 1), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace sluice::testing
