// SPDX-License-Identifier: Apache-2.0
// SessionServices: what all sessions of a daemon share: how they are made (SessionSettings), what a
// fault costs (StallCosts), who has how much memory, and who has neighbours. Owned by the Daemon,
// which outlives the sessions; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mediator/core/penalty.h"
#include "mediator/core/quota.h"
#include "mediator/core/shares.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/daemon/scheduling/grant_executor.h"
#include "mediator/daemon/setup/config.h"
#include "mediator/io/worker_process.h"

namespace sluice {

// What a kernel's fault stops the GPU for, by the CUresult that its program gets, where no source
// measures it. The configuration's.
struct StallCosts {
  uint64_t fault_ns = 150'000'000, exception_ns = 78'000'000;
  uint64_t worst_ns() const { return std::max(fault_ns, exception_ns); }
  // By the number that the kernel's log has. Nothing: that stops nobody.
  std::optional<uint64_t> of_xid(int number) const;
  // Nothing: that is no fault of a kernel.
  std::optional<uint64_t> of(uint64_t cuda_error) const;
};

// How sessions of this daemon are made.
struct SessionSettings {
  std::string library;
  std::string soft_gpu_file;
  bool nvidia = false;
  std::string mps_pipes;  // contexts run side by side by the MPS server of this folder; empty: none
  // Under MPS each client gets the error of whichever faulted (MPS manual, "Memory Protection and
  // Error Containment"), so an error that a worker reports says nothing of whose fault it was. Only
  // the kernel's log can: by the pid of the worker, if it has that.
  bool faults_are_shared() const { return !mps_pipes.empty(); }
  uint32_t chunk_target_us = 200;
  worker_protocol::Signal signal = worker_protocol::Signal::kHost;
  uint32_t signal_chunk = 0;
  uint32_t admission_us = 40;
  uint32_t window_us = 32;
  Clones clones = Clones::kEager;
  uint32_t joined_flags() const {
    if (clones == Clones::kNone) return SLUICE_JOINED_ORIGINALS;
    if (clones == Clones::kEager) return 0;
    // Where turns are priorities, short kernels are never evicted.
    return SLUICE_JOINED_LAZY_CLONES | (turns_by_priority ? SLUICE_JOINED_CLONES_ON_REQUEST : 0);
  }
  uint64_t context_bytes = 0;
  uint64_t host_memory_bytes = UINT64_MAX;
  uint32_t spatial_sms = 0;       // SMs of a GPU that is shared in space; 0: it is given whole
  uint32_t spin_us = 3000;        // of a worker that has a seat
  uint32_t spin_low_us = 20'000;  // ... for calls, where its vGPU is of class low
  uint32_t spin_processors = 0;   // seats
  bool turns_by_priority = false;
  bool time_slices = false;  // of an NVIDIA GPU, each worker's set by itself
  uint32_t turn_whole_us = 0;
  bool green_contexts = true;
  uint64_t staging_bytes = 8u << 20;
  uint32_t worker_start_ms = 60000;
  uint32_t session_end_ms = 5000;
  StallCosts stalls;
  // For how long others stand still while a context is opened and ended, and a module loaded; 0:
  // not paced.
  uint64_t context_stall_ns = 0, module_stall_ns = 0;
  bool back_off = true;
  uint64_t evict_end_ns = 2'000'000'000, evict_end_least_ns = 100'000'000;
};

// Small numbers, the lowest free one first.
class DenseIds {
 public:
  uint32_t take();
  void give_back(uint32_t id) { taken_[id] = false; }

 private:
  std::vector<bool> taken_;
};

struct SessionServices {
  boost::asio::io_context& io;
  GrantExecutor& executor;
  SessionSettings settings;
  core::QuotaLedger memory{
      UINT64_MAX};  // device memory; vGPUs by the scheduler's id, sessions by `ids`
  core::QuotaLedger host_memory{UINT64_MAX};  // what workers keep for their guests; the same ids
  DenseIds ids = {};
  core::Neighbours neighbours = {};  // vGPUs by the scheduler's id
  io::Spawner* spawner = nullptr;    // the Daemon's
  uint32_t spinners = 0;             // sessions whose workers may spin for long
};

// A session in the ledgers of memory, with a number of its own, until end(). Then what it has
// leased is free again, and its part of what several programs share is settled.
class LedgerEntry {
 public:
  LedgerEntry(SessionServices& services, core::VgpuId vgpu, std::shared_ptr<core::Shares> shares)
      : services_(services), shares_(std::move(shares)), id_(services.ids.take()) {
    services_.memory.add_session(vgpu, id_);
    services_.host_memory.add_session(vgpu, id_);
  }
  LedgerEntry(const LedgerEntry&) = delete;
  LedgerEntry& operator=(const LedgerEntry&) = delete;

  uint32_t id() const { return id_; }
  void end() {
    if (std::exchange(ended_, true)) return;
    shares_->session_ends(id_);
    services_.memory.remove_session(id_);
    services_.host_memory.remove_session(id_);
    services_.ids.give_back(id_);
  }

 private:
  SessionServices& services_;
  const std::shared_ptr<core::Shares> shares_;  // the vGPU's
  const uint32_t id_;
  bool ended_ = false;
};

}  // namespace sluice
