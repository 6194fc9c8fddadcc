// SPDX-License-Identifier: Apache-2.0
// LaunchServices: what the parts of the launcher share. Each part is a class with a header of its
// own:
//
//   LaunchPlanner       which clone, in which form, with what geometry      planner.h
//   Lanes               the driver's streams in which a guest's continues   lanes.h
//   SmConfinement       what confines a launch to its SMs                   sms/confinement.h
//   BlockConfinement    ... its own blocks                                  sms/block_confinement.h
//   WindowedLaunches    launches that are queued a window at a time         windows.h
//   Launcher            submissions to the driver, and how they ended       launcher.h
//   Filler              keeps others out of the gaps of a chain             filler.h
//   CudaStreams         the stream engine's driver, in front of them        cuda_streams.h
//
// Owned by CudaStreams; all of them are used under the session's lock.
#pragma once

#include <cstdint>

#include "abi/stub.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/objects.h"
#include "mediator/worker/launch/plan/geometry.h"
#include "mediator/worker/launch/record_pool.h"

namespace sluice::worker {

struct LaunchServices {
  const gpu::DriverApi& api;
  const bool proxy;  // block 0 of a clone polls the signal page for the others
  const LoopSettings settings;
  const sluice_signal_page* const signal;
  RecordPool records;
  uint64_t next_launch_id = 1;

  // The newest generation that was evicted.
  uint32_t evicted() const {
    return static_cast<uint32_t>(__atomic_load_n(&signal->evict, __ATOMIC_SEQ_CST));
  }
  // Blocks of a launch that run no task. A resumable clone polls by itself.
  uint32_t proxies_of(const LaunchWork& w) const {
    return proxy && !w.request.function->form.resumable ? 1 : 0;
  }
  // `early`: the launch may wait for long (RecordPool::take).
  void take_record(LaunchWork& w, bool early) {
    w.launch_id = next_launch_id++;
    w.records = &records;
    const LaunchRequest& asked = w.request;
    w.record = records.take(w.launch_id, w.plan.tasks, asked.function->kernel,
                            {.block_threads = asked.block[0] * asked.block[1] * asked.block[2],
                             .shared_bytes = asked.dynamic_shared,
                             .input_bytes = asked.input_bytes},
                            asked.ready_ns, early);
  }
};

}  // namespace sluice::worker
