// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/witness/witness.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {

constexpr char kEmpty[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry sluice_witness()
{
  ret;
}
)";

Error failed(const char* call, CUresult r) {
  return Error{static_cast<int>(r), std::string(call) + ": " + gpu::describe(r)};
}

Result<void> say(int control, wp::Type type, uint64_t request) {
  wp::Message m{};
  m.type = type;
  m.request = request;
  return send_with_fds(control, &m, sizeof m, {});
}

}  // namespace

Result<Witness> Witness::make(const gpu::DriverApi& api) {
  Witness w(api);
  if (auto loaded = w.load(); !loaded) return loaded.error();
  return w;
}

Result<void> Witness::load() {
  CUdevice device = 0;
  if (CUresult r = api_->cuDeviceGet(&device, 0); r) return failed("cuDeviceGet", r);
  if (CUresult r = api_->cuCtxCreate_v2(&context_, 0, device); r) return failed("cuCtxCreate", r);
  CUmodule module = nullptr;
  if (CUresult r = api_->cuModuleLoadData(&module, kEmpty); r) return failed("cuModuleLoadData", r);
  if (CUresult r = api_->cuModuleGetFunction(&kernel_, module, "sluice_witness"); r)
    return failed("cuModuleGetFunction", r);
  if (CUresult r = api_->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING); r)
    return failed("cuStreamCreate", r);
  if (CUresult r = launch(); r) return failed("cuLaunchKernel", r);
  if (CUresult r = api_->cuStreamSynchronize(stream_); r) return failed("its first launch", r);
  return {};
}

CUresult Witness::launch() {
  return api_->cuLaunchKernel(kernel_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr);
}

Result<void> Witness::try_once(int control, uint64_t request) {
  if (CUresult r = launch(); r) return failed("cuLaunchKernel", r);
  if (auto said = say(control, wp::Type::kTried, request); !said) return said;
  uint64_t said_ns = monotonic_ns();
  for (;;) {
    const CUresult r = api_->cuStreamQuery(stream_);
    if (r == CUDA_SUCCESS) return say(control, wp::Type::kServed, request);
    if (r != CUDA_ERROR_NOT_READY) return failed("cuStreamQuery", r);
    // Only what was asked just now. Should it be late all the same, sluiced sees by the log that it
    // has run.
    if (const uint64_t now_ns = monotonic_ns(); now_ns - said_ns >= kTriedMs * 1'000'000) {
      if (auto said = say(control, wp::Type::kTried, request); !said) return said;
      said_ns = now_ns;
    }
    ::usleep(kWitnessPollUs);
  }
}

int Witness::serve(int control) {
  for (;;) {
    wp::Message m{};
    const ssize_t got = ::recv(control, &m, sizeof m, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    if (got != ssize_t{sizeof m} || m.type != wp::Type::kTry) {
      log::error("witness: sluiced sent what is no message for it");
      return 1;
    }
    if (auto tried = try_once(control, m.request); !tried) {
      log::error("witness: {}", tried.error().message);
      return 1;
    }
  }
}

}  // namespace sluice::worker
