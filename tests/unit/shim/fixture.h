// SPDX-License-Identifier: Apache-2.0
// What the tests of the guest's libcuda.so.1 share: each runs in a process of its own, because a
// process has one session, against a worker in a thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "abi/cuda_driver.h"
#include "tests/unit/shim/fake_worker.h"

namespace sluice::testing {

using Options = FakeWorker::Options;

inline const char* const kModule = R"(
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
inline void in_process(const Options& options, const std::function<void(FakeWorker&)>& body) {
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

inline void set_up(CUcontext* context = nullptr) {
  CUcontext own;
  if (context == nullptr) context = &own;
  OK(cuInit(0));
  CUdevice device;
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(context, 0));
  OK(cuCtxSetCurrent(*context));
}

// kModule's function, from a module that stays loaded.
inline void load_fill(CUfunction* fill) {
  CUmodule module;
  OK(cuModuleLoadData(&module, kModule));
  OK(cuModuleGetFunction(fill, module, "fill"));
}

}  // namespace sluice::testing
