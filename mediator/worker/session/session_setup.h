// SPDX-License-Identifier: Apache-2.0
// SessionSetup: what a session begins with: what came with Start, mapped, and its limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi/channel.h"
#include "abi/stub.h"
#include "mediator/base/fd.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/gpu/driver_api.h"

namespace sluice::worker {

// What a worker may hold for its guest in its own memory. Each bounds a queue that the guest fills.
struct SessionLimits {
  size_t queued_operations = 1u << 16;  // in streams; the decoder stops taking records at it ...
  // ... unless a host function waits: then the program is asked to stop. If it does not, the
  // session ends here.
  size_t hard_operations = 1u << 18;
  size_t jobs = 256;                     // for the job thread; the decoder stops taking records
  size_t parked_calls = 4096;            // that wait for streams, leases or extents; more end it
  uint64_t module_bytes = 256ull << 20;  // of one module's text
  uint32_t contexts = 8;                 // each costs hundreds of MB on a real GPU
  // A session that is asked to end while launches are in flight first waits this long for their
  // ends: one may be about to fault, which stops the GPU (146 to 151 ms on an H100) and would not
  // be known of. Shorter: guests hide their faults by leaving; longer: programs that are
  // interrupted in a long kernel hold what they have for so much longer.
  uint64_t drain_at_end_ms = 200;
  // Without sluiced nobody reports the program's end. A program that makes no call for this long,
  // while none of its work runs, counts as ended, and its memory is freed.
  uint64_t orphan_ms = 60'000;
};

// What came with Start, mapped.
struct SessionSetup {
  worker_protocol::Start start;
  Fd control;
  std::vector<Fd> fds;  // by worker_protocol::StartFd
  uint8_t* region = nullptr;
  const sluice_host_page* host = nullptr;
  const sluice_signal_page* signal = nullptr;
  sluice_report_header* report = nullptr;
  sluice_launch_records* records = nullptr;  // the only one that kernels may write
  gpu::DriverApi api;
  Fd printed;  // Printed::capture()'s
  SessionLimits limits = {};

  sluice_slot_header* slot() const {
    return reinterpret_cast<sluice_slot_header*>(region + SLUICE_SLOT_OFFSET +
                                                 uint64_t{start.slot} * SLUICE_SLOT_STRIDE);
  }
};

}  // namespace sluice::worker
