// SPDX-License-Identifier: Apache-2.0
// Witness: a context of the host's own on the GPU, of which no guest knows. sluiced starts
// sluice-worker as one (worker_protocol::kWitness) to find out whether the GPU goes round among its
// contexts (daemon/scheduling/gpu_witness.h).
//
//   sluiced ── Try ──▶ launches an empty kernel ── Tried ──▶ sluiced
//                      as long as that waits for the GPU ── Tried again, each kTriedMs ──▶
//                      it has run ── Served ──▶
//
// So sluiced knows until when it has waited, whatever becomes of this process. One thread; it reads
// nothing that a guest has written.
#pragma once

#include "mediator/base/result.h"
#include "mediator/gpu/driver_api.h"

namespace sluice::worker {

class Witness {
 public:
  // A context with a kernel in it, which has run once. `api` outlives it.
  static Result<Witness> make(const gpu::DriverApi& api);

  // Until sluiced hangs up, or the driver fails: the exit status.
  int serve(int control);

 private:
  explicit Witness(const gpu::DriverApi& api) : api_(&api) {}
  Result<void> load();
  CUresult launch();
  // Whether it has run. While it waits, it reports that to sluiced.
  Result<void> try_once(int control, uint64_t request);

  const gpu::DriverApi* api_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUfunction kernel_ = nullptr;
};

}  // namespace sluice::worker
