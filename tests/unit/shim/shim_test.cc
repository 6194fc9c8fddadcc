// SPDX-License-Identifier: Apache-2.0
// The guest's libcuda.so.1 against a worker in a thread: sessions, contexts, the entry points. Also
// memory_test.cc and launch_test.cc.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "abi/cuda_graph.h"
#include "tests/unit/shim/fixture.h"

// As programs that are linked with them: by symbol.
#define DECLARE_ABSENT(symbol) extern "C" CUresult symbol();
SLUICE_CUDA_ABSENT_FUNCTIONS(DECLARE_ABSENT)
SLUICE_CUDA_ABSENT_OLD_FUNCTIONS(DECLARE_ABSENT)
SLUICE_CUDA_ABSENT_GRAPHICS_FUNCTIONS(DECLARE_ABSENT)
extern "C" CUresult cuEventRecord_ptsz(CUevent, CUstream);
extern "C" CUresult cuStreamGetFlags_ptsz(CUstream, unsigned*);
// By the names of older versions, which cuda_driver.h turns into those of newer ones. Who looks
// them up with dlsym(), as GCC's libgomp does, finds no GPU without them.
extern "C" CUresult old_link_create(unsigned, CUjit_option*, void**,
                                    CUlinkState*) asm("cuLinkCreate");
extern "C" CUresult old_link_add(CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned,
                                 CUjit_option*, void**) asm("cuLinkAddData");
extern "C" CUresult old_link_add_file(CUlinkState, CUjitInputType, const char*, unsigned,
                                      CUjit_option*, void**) asm("cuLinkAddFile");
extern "C" CUresult old_stream_destroy(CUstream) asm("cuStreamDestroy");
extern "C" CUresult old_event_destroy(CUevent) asm("cuEventDestroy");
extern "C" CUresult old_push(CUcontext) asm("cuCtxPushCurrent");
extern "C" CUresult old_pop(CUcontext*) asm("cuCtxPopCurrent");
extern "C" CUresult old_destroy(CUcontext) asm("cuCtxDestroy");
extern "C" CUresult of_32_bits(unsigned*, unsigned*, CUmodule,
                               const char*) asm("cuModuleGetGlobal");

namespace sluice::testing {
namespace {

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

// Answers that come in any order, to threads that wait, lead and follow.
TEST(Shim, ManyThreadsWaitAtOnce) {
  in_process({}, [](FakeWorker& worker) {
    CUcontext context;
    set_up(&context);
    constexpr int kThreads = 6, kRounds = 200;
    CUdeviceptr at;
    OK(cuMemAlloc(&at, 16));
    worker.set_hold_syncs(kThreads);  // nobody is answered before all have asked
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        OK(cuCtxSetCurrent(context));
        for (int i = 0; i < kRounds; ++i) {
          OK(cuMemsetD8Async(at, 0, 1, nullptr));  // so that there is something to wait for
          if (cuCtxSynchronize() == CUDA_SUCCESS) ++right;
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right, kThreads * kRounds);
  });
}

TEST(Shim, WhatKernelsPrintIsTheProgramsOutput) {
  Options printing;
  printing.printed = "three bytes, or more\n";
  in_process(printing, [](FakeWorker&) {
    set_up();
    ::testing::internal::CaptureStdout();
    std::printf("before ");
    const CUresult r = cuCtxSynchronize();
    std::printf("behind\n");
    const std::string all = ::testing::internal::GetCapturedStdout();
    OK(r);
    EXPECT_EQ(all, "before three bytes, or more\nbehind\n");
    OK(cuStreamQuery(nullptr));  // it was no error
  });
}

TEST(Shim, WhatAssertionsSayIsTheProgramsStandardError) {
  Options failing;
  failing.printed = "a.cu:3: failed.\n";
  failing.printed_to = SLUICE_PRINTED_ERROR;
  in_process(failing, [](FakeWorker&) {
    set_up();
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const CUresult r = cuCtxSynchronize();
    const std::string error = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
    OK(r);
    EXPECT_EQ(error, "a.cu:3: failed.\n");
  });
}

TEST(Shim, SessionEndIsSeenByEveryCall) {
  in_process({}, [](FakeWorker& worker) {
    CUcontext context;
    set_up(&context);
    CUdeviceptr at;
    OK(cuMemAlloc(&at, 16));
    worker.set_hold_syncs(100);  // waiters stay waiting
    std::vector<std::thread> threads;
    std::atomic<int> ended{0}, waiting{0};
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        OK(cuCtxSetCurrent(context));
        OK(cuMemsetD8Async(at, 0, 1, nullptr));
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
    OK(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(pinned), 0x33, 1, nullptr));
    worker.set_hold_syncs(100);
    std::thread closing([&] {
      ::usleep(20000);
      worker.hang_up();
    });
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    closing.join();
    // The region is this program's alone, and stays: also for those who write to it just now.
    EXPECT_EQ(static_cast<unsigned char*>(pinned)[(3 << 20) - 1], 0x33);
    std::memset(pinned, 1, 3 << 20);
    EXPECT_TRUE(worker.region_is_mapped_twice());
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

// Nor does it wait for a lock that a thread of its parent held.
TEST(Shim, AForkedChildHasNoSession) {
  in_process({}, [](FakeWorker&) {
    CUcontext context;
    set_up(&context);
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 4096));
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::atomic<bool> stop{false};
    std::vector<std::thread> busy;
    for (int i = 0; i < 3; ++i) {
      busy.emplace_back([&] {
        cuCtxSetCurrent(context);
        while (!stop) {
          CUdeviceptr own;
          cuMemAlloc(&own, 64);
          cuMemsetD8(own, 1, 64);
          cuMemFree(own);
        }
      });
    }
    for (int round = 0; round < 40; ++round) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(30);
        int n = 0;
        CUdevice device;
        CUcontext other;
        CUdeviceptr q;
        size_t bytes, all;
        unsigned type;
        const CUresult answers[] = {
            cuInit(0),
            cuDeviceGetCount(&n),
            cuDeviceGet(&device, 0),
            cuDevicePrimaryCtxRetain(&other, 0),
            cuCtxGetCurrent(&other),
            cuCtxSynchronize(),
            cuMemAlloc(&q, 16),
            cuMemFree(p),
            cuMemGetInfo(&bytes, &all),
            cuMemsetD8(p, 0, 16),
            cuMemsetD8Async(p, 0, 16, stream),
            cuMemcpyDtoH(&n, p, 4),
            cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p),
            cuStreamSynchronize(stream),
            cuStreamDestroy(stream),
            cuStreamWriteValue64(stream, p, 1, 0),
        };
        int wrong = 0;
        for (const CUresult answer : answers) wrong += answer != CUDA_ERROR_NOT_INITIALIZED;
        ::_exit(wrong);
      }
      int status = 1;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    stop = true;
    for (auto& thread : busy) thread.join();
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
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cuGetExportTable(&table, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("-cudart shared"), std::string::npos);
}

TEST(Shim, AllOfThePublicApiIsExported) {
#define IS_ABSENT(symbol) EXPECT_EQ(::symbol(), CUDA_ERROR_NOT_SUPPORTED) << #symbol;
  SLUICE_CUDA_ABSENT_FUNCTIONS(IS_ABSENT)
  SLUICE_CUDA_ABSENT_OLD_FUNCTIONS(IS_ABSENT)
  SLUICE_CUDA_ABSENT_GRAPHICS_FUNCTIONS(IS_ABSENT)
  void* p = nullptr;
  CUdriverProcAddressQueryResult found;
  OK(cuGetProcAddress("cuImportExternalMemory", &p, 13000, 0, &found));
  EXPECT_EQ(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) << "who asks takes another way";
  in_process({}, [](FakeWorker&) {
    set_up();
    CUstream stream;
    unsigned flags = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamGetFlags_ptsz(stream, &flags));
    EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  });
}

}  // namespace

TEST(Shim, SymbolsOfOlderVersionsAreThere) {
  in_process({}, [](FakeWorker&) {
    CUcontext context;
    set_up(&context);
    CUlinkState link;
    OK(old_link_create(0, nullptr, nullptr, &link));
    char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n";
    OK(old_link_add(link, CU_JIT_INPUT_PTX, text, sizeof text, "k", 0, nullptr, nullptr));
    EXPECT_EQ(old_link_add_file(link, CU_JIT_INPUT_PTX, "/nowhere", 0, nullptr, nullptr),
              CUDA_ERROR_FILE_NOT_FOUND);
    OK(cuLinkDestroy(link));
    CUstream stream;
    CUevent event;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(old_stream_destroy(stream));
    OK(cuEventCreate(&event, 0));
    OK(old_event_destroy(event));
    OK(old_push(context));
    CUcontext popped = nullptr;
    OK(old_pop(&popped));
    EXPECT_EQ(popped, context);
    EXPECT_EQ(old_destroy(nullptr), cuCtxDestroy(nullptr));
    unsigned at = 1, bytes = 1;  // FFmpeg loads this one, and never calls it
    EXPECT_EQ(of_32_bits(&at, &bytes, nullptr, "x"), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(at + bytes, 2u);
  });
}

TEST(Shim, EachThreadHasADefaultStreamOfItsOwn) {
  in_process({}, [](FakeWorker&) {
    CUcontext context;
    set_up(&context);
    unsigned flags = 7;
    OK(cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
    EXPECT_EQ(flags, CU_STREAM_DEFAULT);
    // Work in it is not in the legacy stream: a capture of it takes what is queued there.
    OK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    std::thread([&] {
      OK(cuCtxSetCurrent(context));
      OK(cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status));
      EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    }).join();
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    OK(cuGraphDestroy(graph));
    // The forms for such programs: null is the thread's own stream.
    void* form = nullptr;
    OK(cuGetProcAddress("cuStreamBeginCapture", &form, 12000,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
    const auto begin = reinterpret_cast<decltype(&cuStreamBeginCapture)>(form);
    EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(begin(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
    // So are those of older versions.
    OK(cuGetProcAddress("cuStreamGetCaptureInfo", &form, 11000,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
    cuuint64_t id;
    OK(reinterpret_cast<decltype(&sluice_capture_info_v1)>(form)(nullptr, &status, &id));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUevent event;
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord_ptsz(event, nullptr));  // captured
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph),
              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
  });
}

}  // namespace sluice::testing
