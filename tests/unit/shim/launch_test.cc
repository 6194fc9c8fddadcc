// SPDX-License-Identifier: Apache-2.0
// The guest's libcuda.so.1: modules, launches, streams, events, and many threads at them.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/preempt.h"
#include "tests/support/cubins.h"
#include "tests/unit/shim/fixture.h"
#include "tests/unit/softgpu/fat_binaries.h"

namespace sluice::testing {
namespace {

constexpr uint32_t kLazy = SLUICE_JOINED_LAZY_CLONES,
                   kAtOnce = kLazy | SLUICE_JOINED_ORIGINALS_AT_ONCE;

// A launch of so many blocks, and what the worker has got then.
void launch_fill(CUfunction fill, unsigned blocks, unsigned threads) {
  CUdeviceptr to;
  OK(cuMemAlloc(&to, 4096));
  uint32_t n = 1024, value = 1;
  void* params[] = {&to, &n, &value};
  OK(cuLaunchKernel(fill, blocks, 1, 1, threads, 1, 1, 0, nullptr, params, nullptr));
  OK(cuCtxSynchronize());
  OK(cuMemFree(to));
}
void launch_blocks(FakeWorker& worker, CUfunction fill, unsigned blocks, unsigned threads,
                   uint64_t flags, uint64_t clones) {
  launch_fill(fill, blocks, threads);
  EXPECT_EQ(worker.last_launch_flags(), flags) << blocks << " of " << threads;
  EXPECT_EQ(worker.modules_with_clones(), clones) << blocks << " of " << threads;
}

TEST(Shim, ALaunchThatTheGpuHoldsAtOnceNeedsNoClones) {
  in_process({.joined_flags = kAtOnce}, [](FakeWorker& worker) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    launch_blocks(worker, fill, 4, 64, SLUICE_LAUNCHED_AT_ONCE, 0);
    const uint64_t before = worker.records();
    launch_blocks(worker, fill, 3, 64, SLUICE_LAUNCHED_AT_ONCE, 0);
    EXPECT_EQ(worker.records() - before, 4u) << "what the GPU holds is not asked again";
    launch_blocks(worker, fill, 5, 64, 0, 1);  // a GPU of one SM with room for four
    launch_blocks(worker, fill, 4, 64, 0, 1);
  });
}

TEST(Shim, AKernelOfManyShapesGetsItsClones) {
  in_process({.joined_flags = kAtOnce}, [](FakeWorker& worker) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    for (unsigned threads = 1; threads <= 8; ++threads)
      launch_blocks(worker, fill, 1, threads, SLUICE_LAUNCHED_AT_ONCE, 0);
    launch_blocks(worker, fill, 1, 9, 0, 1);
  });
}

TEST(Shim, ClonesForEveryLaunch) {
  in_process({.joined_flags = kLazy}, [](FakeWorker& worker) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    launch_blocks(worker, fill, 1, 64, 0, 1);
  });
  // sluice-agent kernels wants to know of all that are launched.
  in_process({.joined_flags = kAtOnce}, [](FakeWorker& worker) {
    ::setenv("SLUICE_REWRITE", "all", 1);
    set_up();
    CUfunction fill;
    load_fill(&fill);
    launch_blocks(worker, fill, 1, 64, 0, 1);
  });
}

bool has_entry(const std::string& text, const std::string& name) {
  return text.find(".entry " + name + "(") != text.npos;
}

TEST(Shim, TheOtherFormsOfAKernelComeOnceTheyAreWanted) {
  in_process({.joined_flags = kLazy | SLUICE_JOINED_FORMS_APART}, [](FakeWorker& worker) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    launch_blocks(worker, fill, 1, 64, 0, 1);
    std::string text = worker.clones_text();
    EXPECT_TRUE(has_entry(text, "fill" SLUICE_CLONE_SUFFIX)) << text;
    EXPECT_FALSE(has_entry(text, "fill"));
    EXPECT_FALSE(has_entry(text, "fill" SLUICE_ONE_TASK_SUFFIX));
    EXPECT_FALSE(has_entry(text, "fill" SLUICE_WINDOW_SUFFIX));
    EXPECT_EQ(worker.clones_flags() & (SLUICE_FUNCTION_EVICTABLE | SLUICE_FUNCTION_OTHERS_LATER),
              SLUICE_FUNCTION_EVICTABLE | SLUICE_FUNCTION_OTHERS_LATER);
    launch_blocks(worker, fill, 1, 64, 0, 1);
    worker.want_clones(fill);
    launch_fill(fill, 1, 64);  // does not wait for them
    while ((worker.clones_flags() & SLUICE_FUNCTION_OTHER_FORMS) == 0) std::this_thread::yield();
    text = worker.clones_text();
    EXPECT_FALSE(has_entry(text, "fill" SLUICE_CLONE_SUFFIX)) << text;
    EXPECT_FALSE(has_entry(text, "fill"));
    EXPECT_TRUE(has_entry(text, "fill" SLUICE_ONE_TASK_SUFFIX));
    EXPECT_TRUE(has_entry(text, "fill" SLUICE_WINDOW_SUFFIX));
    launch_blocks(worker, fill, 1, 64, 0, 2);  // wanted as before, but made
    EXPECT_EQ(worker.clones_flags() & SLUICE_FUNCTION_OTHERS_LATER, 0u);
  });
}

TEST(Shim, WhereClonesAreOnRequestAllFormsComeAtOnce) {
  constexpr uint32_t kOnRequest =
      kLazy | SLUICE_JOINED_CLONES_ON_REQUEST | SLUICE_JOINED_FORMS_APART;
  in_process({.joined_flags = kOnRequest}, [](FakeWorker& worker) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    launch_blocks(worker, fill, 1, 64, 0, 0);
    worker.want_clones(fill);
    launch_blocks(worker, fill, 1, 64, 0, 1);
    const std::string text = worker.clones_text();
    EXPECT_TRUE(has_entry(text, "fill" SLUICE_CLONE_SUFFIX)) << text;
    EXPECT_FALSE(has_entry(text, "fill"));
    EXPECT_TRUE(has_entry(text, "fill" SLUICE_WINDOW_SUFFIX));
    EXPECT_EQ(worker.clones_flags() & SLUICE_FUNCTION_OTHERS_LATER, 0u);
  });
}

TEST(Shim, ABlockThatCanLeaveInItsMiddleIsWorthClones) {
  in_process({.joined_flags = kAtOnce}, [](FakeWorker& worker) {
    set_up();
    std::string text = kModule;
    text.insert(text.find("  ret;"), "  { .reg .b32 sluice_leave; and.b32 sluice_leave, 4, 0; }\n");
    CUmodule module;
    OK(cuModuleLoadData(&module, text.c_str()));
    CUfunction fill;
    OK(cuModuleGetFunction(&fill, module, "fill"));
    launch_blocks(worker, fill, 1, 64, 0, 1);
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
    // Of 65,536 registers, at 96 a thread; and more threads than the kernel says.
    EXPECT_EQ(shape(1, 1, 1024, 1, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    EXPECT_EQ(shape(1, 1, 640, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(shape(1, 1, 32, 1, 1 << 20), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuLaunchKernel(reinterpret_cast<CUfunction>(uint64_t{0x0300000100000099}), 1, 1, 1, 1,
                             1, 1, 0, nullptr, params, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, reinterpret_cast<CUstream>(uint64_t{0x40}),
                             params, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
    CUcontext other;
    OK(cuCtxCreate(&other, nullptr, 0, 0));
    EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxDestroy(other));
    EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleUnload(module));
    EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(Shim, ABlockOfAnotherShapeThanRequiredIsRefused) {
  in_process({}, [](FakeWorker&) {
    set_up();
    const std::string machine_code = test::CubinBuilder().kernel("nothing", {}, {64, 2, 1}).image();
    for (const char* image : {R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() .reqntid 64, 2 { ret; }
)",
                              machine_code.data()}) {
      CUmodule module;
      CUfunction nothing;
      OK(cuModuleLoadData(&module, image));
      OK(cuModuleGetFunction(&nothing, module, "nothing"));
      const auto launch = [&](unsigned x, unsigned y, unsigned z) {
        return cuLaunchKernel(nothing, 1, 1, 1, x, y, z, 0, nullptr, nullptr, nullptr);
      };
      OK(launch(64, 2, 1));
      EXPECT_EQ(launch(64, 1, 1), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(launch(128, 1, 1), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(launch(2, 64, 1), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuCtxSynchronize());
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

TEST(Shim, FatBinaries) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUmodule module;
    CUlibrary library;
    const auto* zstd = static_cast<const void*>(kFatBinaryZstd);
    for (const void* image : {zstd, static_cast<const void*>(kFatBinaryLz4)}) {
      OK(cuModuleLoadData(&module, image));
      OK(cuModuleLoadFatBinary(&module, image));
    }
    OK(cuLibraryLoadData(&library, zstd, nullptr, nullptr, 0, nullptr, nullptr, 0));
    EXPECT_EQ(worker.modules_with_clones(), 5u) << "rewritten as texts are";
    // Of a file no more is looked at than there is, and no pointer in it is followed.
    char path[] = "/tmp/sluice-fat-XXXXXX";
    const int fd = ::mkstemp(path);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::write(fd, kFatBinaryZstd, sizeof kFatBinaryZstd),
              static_cast<ssize_t>(sizeof kFatBinaryZstd));
    EXPECT_EQ(cuModuleLoad(&module, path), CUDA_SUCCESS);
    EXPECT_EQ(::ftruncate(fd, sizeof kFatBinaryZstd - 100), 0);
    EXPECT_EQ(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
    const uint32_t wrapper[8] = {0x466243b1, 1, 0x1000, 0, 0, 0, 0, 0};
    EXPECT_EQ(::pwrite(fd, wrapper, sizeof wrapper, 0), static_cast<ssize_t>(sizeof wrapper));
    EXPECT_EQ(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
    ::unlink(path);
    ::close(fd);
  });
}

constexpr char kCarried[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry carried(.param .u64 p) { .reg .b64 %d; ld.param.u64 %d, [p];"
    " st.global.u32 [%d], 7; ret; }\n";

// What a program compiles at run time may carry its PTX (guest-agent/jit): that is rewritten.
TEST(Shim, MachineCodeThatCarriesItsPtx) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    const auto code = [](const char* kernel, const std::string& ptx) {
      return test::CubinBuilder().kernel(kernel, {{0, 8}}).ptx(ptx).image();
    };
    CUmodule module;
    OK(cuModuleLoadData(&module, code("carried", kCarried).data()));
    EXPECT_EQ(worker.modules_with_clones(), 1u);
    CUlibrary library;
    OK(cuLibraryLoadData(&library, code("carried", kCarried + std::string(1, '\0')).data(), nullptr,
                         nullptr, 0, nullptr, nullptr, 0));
    EXPECT_EQ(worker.modules_with_clones(), 2u);
    // PTX that is not the machine code's, or is none, is not used.
    for (const std::string& image : {code("another", kCarried), code("carried", "no PTX")}) {
      (void)cuModuleLoadData(&module, image.data());
      EXPECT_EQ(worker.modules_with_clones(), 2u);
    }
  });
}

TEST(Shim, LinkedTexts) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    char log[200] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    CUlinkState link;
    OK(cuLinkCreate(2, options, values, &link));
    std::string user = kModule;
    OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, user.data(), user.size() + 1, "a", 0, nullptr,
                     nullptr));
    OK(cuLinkAddData(link, CU_JIT_INPUT_FATBINARY, const_cast<unsigned char*>(kFatBinaryZstd),
                     sizeof kFatBinaryZstd, "b", 0, nullptr, nullptr));
    EXPECT_EQ(cuLinkAddData(link, CU_JIT_INPUT_CUBIN, user.data(), 8, "c", 0, nullptr, nullptr),
              CUDA_ERROR_NO_BINARY_FOR_GPU);
    // Machine code cannot be linked, but the PTX that it carries can.
    std::string plain = test::CubinBuilder().kernel("carried", {{0, 8}}).image();
    std::string carrying = test::CubinBuilder().kernel("carried", {{0, 8}}).ptx(kCarried).image();
    EXPECT_EQ(cuLinkAddData(link, CU_JIT_INPUT_CUBIN, plain.data(), plain.size(), "d", 0, nullptr,
                            nullptr),
              CUDA_ERROR_NO_BINARY_FOR_GPU);
    OK(cuLinkAddData(link, CU_JIT_INPUT_CUBIN, carrying.data(), carrying.size(), "e", 0, nullptr,
                     nullptr));
    void* image = nullptr;
    size_t bytes = 0;
    OK(cuLinkComplete(link, &image, &bytes));
    ASSERT_NE(image, nullptr);
    const std::string joined(static_cast<const char*>(image), bytes - 1);
    EXPECT_NE(joined.find(".entry fill"), joined.npos);
    EXPECT_NE(joined.find(".entry twice"), joined.npos);
    EXPECT_NE(joined.find(".entry carried"), joined.npos);
    EXPECT_EQ(worker.modules_with_clones(), 0u);
    CUmodule module;
    OK(cuModuleLoadData(&module, image));
    EXPECT_EQ(worker.modules_with_clones(), 1u);
    OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, user.data(), user.size() + 1, "a", 0, nullptr,
                     nullptr));
    EXPECT_NE(cuLinkComplete(link, &image, &bytes), CUDA_SUCCESS) << "fill is there twice";
    EXPECT_NE(std::string(log).find("fill"), std::string::npos) << log;
    OK(cuLinkDestroy(link));
    EXPECT_EQ(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
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

// Their extents come free when all that is queued has ended, which nobody waits for.
TEST(Shim, LargeModulesLoadBehindWorkThatDoesNotEnd) {
  Options stalled;
  stalled.staging_bytes = 64 << 10;
  stalled.answer_extent_frees = false;
  in_process(stalled, [](FakeWorker& worker) {
    set_up();
    const std::string text = kModule + ("// " + std::string(80 << 10, 'x')) + "\n";
    CUmodule module;
    OK(cuModuleLoadData(&module, text.c_str()));
    OK(cuModuleUnload(module));
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

TEST(Shim, KernelsOfModulesAndLibrariesAreEnumerated) {
  in_process({}, [](FakeWorker&) {
    set_up();
    CUmodule module;
    OK(cuModuleLoadData(&module, kModule));
    unsigned count = 0;
    OK(cuModuleGetFunctionCount(&count, module));
    ASSERT_EQ(count, 1u) << "clones are not the program's";
    CUfunction functions[2] = {}, fill;
    OK(cuModuleEnumerateFunctions(functions, 2, module));
    OK(cuModuleGetFunction(&fill, module, "fill"));
    EXPECT_EQ(functions[0], fill);
    EXPECT_EQ(functions[1], nullptr);
    EXPECT_EQ(cuModuleGetFunctionCount(nullptr, module), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuModuleEnumerateFunctions(functions, 0, module), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuModuleEnumerateFunctions(nullptr, 1, module), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleUnload(module));
    EXPECT_EQ(cuModuleGetFunctionCount(&count, module), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuModuleEnumerateFunctions(functions, 1, module), CUDA_ERROR_INVALID_HANDLE);

    CUlibrary library;
    OK(cuLibraryLoadData(&library, kModule, nullptr, nullptr, 0, nullptr, nullptr, 0));
    OK(cuLibraryGetKernelCount(&count, library));
    ASSERT_EQ(count, 1u);
    CUkernel kernels[2] = {}, named;
    OK(cuLibraryEnumerateKernels(kernels, 2, library));
    OK(cuLibraryGetKernel(&named, library, "fill"));
    EXPECT_EQ(kernels[0], named);
    EXPECT_EQ(kernels[1], nullptr);
    EXPECT_EQ(cuLibraryGetKernelCount(nullptr, library), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuLibraryEnumerateKernels(kernels, 0, library), CUDA_ERROR_INVALID_VALUE);
    OK(cuLibraryUnload(library));
    EXPECT_EQ(cuLibraryGetKernelCount(&count, library), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLibraryEnumerateKernels(kernels, 1, library), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(Shim, ErrorsOfQueuedWorkComeWithTheNextSynchronisation) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 64));
    uint32_t n = 4, value = 1;
    void* params[] = {&p, &n, &value};
    worker.fail_next_launch(CUDA_ERROR_NOT_SUPPORTED);
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuCtxSynchronize());
    worker.fail_next_launch(CUDA_ERROR_NOT_SUPPORTED);
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    uint32_t out;
    EXPECT_EQ(cuMemcpyDtoH(&out, p, 4), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMemcpyDtoH(&out, p, 4));
  });
}

// Also of calls that the worker answers later, or not at all.
TEST(Shim, AFaultIsWhatEveryCallOfTheContextAnswers) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUfunction fill;
    load_fill(&fill);
    CUdeviceptr p;
    CUstream s;
    CUevent e;
    OK(cuMemAlloc(&p, 64));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DEFAULT));
    uint32_t n = 4, value = 1;
    void* params[] = {&p, &n, &value};
    const auto launch = [&] {
      return cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, s, params, nullptr);
    };
    worker.fail_next_launch(CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(launch());
    OK(cuEventRecord(e, s));  // the program does not know of it yet
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    void* pinned = nullptr;
    EXPECT_EQ(cuMemHostAlloc(&pinned, 64, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuEventRecord(e, s), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(launch(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuMemsetD32Async(p, 0, 4, s), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuMemFree(p), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdevice device;
    OK(cuDeviceGet(&device, 0));
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    OK(cuDevicePrimaryCtxReset(device));  // this worker can
    OK(cuCtxSynchronize());
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

// What queues work waits until the worker takes it again. A host function's end does not, and
// neither does what a program asks meanwhile.
TEST(Shim, WorkWaitsWhileTheWorkerHoldsTheProgram) {
  in_process({}, [](FakeWorker& worker) {
    CUcontext context;
    set_up(&context);
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    std::promise<void> release;
    std::promise<void>* const at = &release;
    OK(cuLaunchHostFunc(
        nullptr, [](void* p) { static_cast<std::promise<void>*>(p)->get_future().wait(); }, at));
    worker.hold(true);
    std::atomic<bool> queued{false};
    std::thread launching([&] {
      OK(cuCtxSetCurrent(context));
      OK(cuEventRecord(event, nullptr));
      queued = true;
    });
    for (int i = 0; i < 100; ++i) {
      OK(cuStreamQuery(nullptr));
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    release.set_value();
    while (worker.host_funcs_done() == 0) std::this_thread::yield();
    EXPECT_FALSE(queued);
    worker.hold(false);
    launching.join();
    EXPECT_TRUE(queued);
    OK(cuCtxSynchronize());
  });
}

TEST(Shim, WorkThatWaitsEndsWithTheSession) {
  in_process({}, [](FakeWorker& worker) {
    set_up();
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    worker.hold(true);
    std::thread ending([&] { worker.end_session(CUDA_ERROR_ECC_UNCORRECTABLE, "a test"); });
    EXPECT_EQ(cuEventRecord(event, nullptr), CUDA_ERROR_ECC_UNCORRECTABLE);
    ending.join();
  });
}

TEST(Shim, ThreadsCopyAndLaunchAtOnce) {
  Options small;
  small.staging_bytes = 128 << 10;  // so that threads compete for it
  in_process(small, [](FakeWorker&) {
    CUcontext context;
    set_up(&context);
    CUfunction fill;
    load_fill(&fill);
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
    CUfunction fill;
    load_fill(&fill);
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

}  // namespace
}  // namespace sluice::testing
