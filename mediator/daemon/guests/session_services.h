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

#include "mediator/base/limits.h"
#include "mediator/core/penalty.h"
#include "mediator/core/quota.h"
#include "mediator/core/shares.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/daemon/scheduling/grant_executor.h"
#include "mediator/daemon/setup/config.h"
#include "mediator/io/worker_process.h"

namespace sluice {

class GuestSession;

// For how long others stand still, where no source measures it. The configuration's.
struct StallCosts {
  // A kernel's fault, by the CUresult that its program gets.
  uint64_t fault_ns = 150'000'000, exception_ns = 78'000'000;
  // While a context is opened and ended, and a module loaded; 0: not paced.
  uint64_t context_ns = 0, module_ns = 0;
  uint64_t worst_ns() const { return std::max(fault_ns, exception_ns); }
  // By the number that the kernel's log has. Nothing: that stops nobody.
  std::optional<uint64_t> of_xid(int number) const;
  // Nothing: that is no fault of a kernel.
  std::optional<uint64_t> of(uint64_t cuda_error) const;
};

// How sessions of this daemon are made.
struct SessionSettings {
  worker_protocol::Start start;  // what all workers get alike; the session adds its own
  std::string soft_gpu_file;     // as in `start`
  std::string mps_pipes;  // contexts run side by side by the MPS server of this folder; empty: none
  Clones clones = Clones::kEager;
  uint64_t host_memory_bytes = UINT64_MAX;
  uint64_t staging_bytes = 8u << 20;
  uint64_t contexts = limits::kNvidiaContexts;  // that the GPU has places for, of all vGPUs'
                                                // programs: one for each, and more on request
  struct {
    uint32_t us = 3000;        // of a worker that has a seat
    uint32_t low_us = 20'000;  // ... for calls, where its vGPU is urgent
    uint32_t seats = 0;
  } spin;
  struct {
    uint32_t worker_start_ms = 60000, session_end_ms = 5000;
    uint64_t evict_end_ns = 2'000'000'000, evict_end_least_ns = 100'000'000;
  } deadlines;
  StallCosts stalls;
  bool back_off = true;

  bool nvidia() const { return start.nvidia != 0; }
  // Under MPS each client gets the error of whichever faulted (MPS manual, "Memory Protection and
  // Error Containment"), so an error that a worker reports says nothing of whose fault it was. Only
  // the kernel's log can: by the pid of the worker, if it has that.
  bool faults_are_shared() const { return !mps_pipes.empty(); }
  uint32_t joined_flags() const {
    if (clones == Clones::kNone) return SLUICE_JOINED_ORIGINALS;
    if (clones == Clones::kEager) return 0;
    // Parts of the GPU hold fewer blocks than the whole of it.
    const bool at_once = start.spatial_sms == 0 && !start.turns_by_priority;
    // Where turns are priorities, short kernels are never evicted.
    return SLUICE_JOINED_LAZY_CLONES | SLUICE_JOINED_FORMS_APART |
           (start.turns_by_priority ? SLUICE_JOINED_CLONES_ON_REQUEST : 0) |
           (at_once ? SLUICE_JOINED_ORIGINALS_AT_ONCE : 0);
  }
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
  // Places for contexts on the GPU; the same ids.
  core::QuotaLedger contexts{settings.contexts, core::QuotaLedger::Rest::kParts};
  DenseIds ids = {};
  core::Neighbours neighbours = {};    // vGPUs by the scheduler's id
  io::SpawnerLink* spawner = nullptr;  // the Daemon's
  std::vector<GuestSession*> spinners =
      {};  // who has a seat (SessionSettings::spin), the newest last
};

// A session in the ledgers of memory, with a number of its own, until end(). Then what it has
// leased is free again, and its part of what several programs share is settled.
class LedgerEntry {
 public:
  LedgerEntry(SessionServices& services, core::VgpuId vgpu, std::shared_ptr<core::Shares> shares)
      : services_(services), shares_(std::move(shares)), id_(services.ids.take()) {
    services_.memory.add_session(vgpu, id_);
    services_.host_memory.add_session(vgpu, id_);
    services_.contexts.add_session(vgpu, id_);
  }
  LedgerEntry(const LedgerEntry&) = delete;
  LedgerEntry& operator=(const LedgerEntry&) = delete;

  uint32_t id() const { return id_; }
  void end() {
    if (std::exchange(ended_, true)) return;
    shares_->session_ends(id_);
    services_.memory.remove_session(id_);
    services_.host_memory.remove_session(id_);
    services_.contexts.remove_session(id_);
    services_.ids.give_back(id_);
  }

 private:
  SessionServices& services_;
  const std::shared_ptr<core::Shares> shares_;  // the vGPU's
  const uint32_t id_;
  bool ended_ = false;
};

}  // namespace sluice
