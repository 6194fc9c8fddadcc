// SPDX-License-Identifier: Apache-2.0
// GuestSession: one guest process on a vGPU with its worker, from the request for a slot to the
// last byte given back. Owned by its VgpuServer, used from sluiced's one thread.
//
//   starting --Ready--> open --End sent, or Ended received--> ending --worker's exit--> (destroyed)
//
// Whatever happens, there is one way out: the worker process is gone, then leases and the
// scheduler's entry are released, the slot's header says why, and the owner is notified. Slot and
// extents are free when the program has gone as well (SlotState).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mediator/base/peer_socket.h"
#include "mediator/core/penalty.h"
#include "mediator/core/quota.h"
#include "mediator/core/quota_lease.h"
#include "mediator/core/shares.h"
#include "mediator/daemon/guests/channel.h"
#include "mediator/daemon/scheduling/grant_executor.h"
#include "mediator/daemon/setup/config.h"
#include "mediator/io/stub_pages.h"
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

// The CUresult that a program sees when its session is taken from it (abi/cuda_driver_values.h):
// the sticky "unknown", where a worker died or somebody broke a rule.
inline constexpr int kCudaErrorUnknown = 999;

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
  uint32_t spatial_sms = 0;      // SMs of a GPU that is shared in space; 0: it is given whole
  uint32_t spin_us = 3000;       // of a worker that has a seat
  uint32_t spin_processors = 0;  // seats
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

// What all sessions share. Owned by the Daemon, which outlives them.
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

class GuestSession final : private io::WorkerProcess::Owner {
 public:
  enum class State { kStarting, kOpen, kEnding };
  // Who asked, as the VgpuServer knows it.
  struct Origin {
    bool local = false;
    uint64_t id = 0;  // local: connection; guest: the agent's request
  };
  class Owner {
   public:
    // The worker is up and the slot serves: the program may be notified.
    virtual void on_session_open(GuestSession& session) = 0;
    // It has harmed others: for `cost_ns` the GPU stood still. `more`: so much longer than
    // reported before.
    virtual void on_session_offence(GuestSession& session, core::Offence offence, uint64_t cost_ns,
                                    bool more) = 0;
    // Asks to do what stops others in the driver: 0, or for how long it has to wait; then it does.
    virtual uint64_t stall_wait_ns() const = 0;
    virtual void on_session_stalls(uint64_t cost_ns) = 0;
    // Everything is given back. The owner destroys the session after this call.
    virtual void on_session_over(GuestSession& session) = 0;

   protected:
    ~Owner() = default;
  };
  struct Request {
    std::string vgpu;
    core::VgpuId vgpu_id;
    std::shared_ptr<Channel> channel;
    std::shared_ptr<io::PeerThread> peers;      // the vGPU's
    std::shared_ptr<io::LoopBudget> loop_time;  // the vGPU's
    std::shared_ptr<core::Shares> shares;       // the vGPU's
    uint64_t machine_code = 0;                  // io::Spawner::Vgpu's number
    Origin origin;
    std::string program;
    uint32_t guest_pid = 0;
  };

  // Starts a worker in a fresh slot. Errors carry an errno for the program: EBUSY (no slot), ENOMEM
  // (no shared memory), or what starting the worker failed with. On an error nothing is left taken.
  static Result<std::unique_ptr<GuestSession>> start(SessionServices& services, Request request,
                                                     Owner& owner);
  ~GuestSession();

  // As end(), with no time for goodbyes, for what others of its vGPU have done.
  void expel(const std::string& reason);
  // Asks the worker to end; kills it at the deadline. The first reason stays. `cuda_error` 0: an
  // orderly end. `now`: no time for goodbyes.
  void end(int cuda_error, const std::string& reason, bool now = false);

  State state() const { return state_; }
  uint32_t slot() const { return slot_; }
  uint64_t epoch() const { return epoch_; }
  const Origin& origin() const { return request_.origin; }
  const std::string& program() const { return request_.program; }
  uint32_t guest_pid() const { return request_.guest_pid; }
  pid_t worker_pid() const { return worker_ ? worker_->pid() : -1; }
  uint64_t leased_bytes() const { return services_.memory.held_by_session(ledger_id_); }
  // Of those, by kind as the worker says: a hint. They never add up to more than is leased.
  std::array<uint64_t, kChargeKinds> leased_by_kind() const;
  const Channel& channel() const { return *request_.channel; }
  uint64_t started_ns() const { return started_ns_; }
  // Some of the vGPU's shared memory became free: requests that wait for it are tried again.
  void look_for_extents();
  int bell_fd() const { return bell_; }  // the program rings the worker
  int wake_fd() const { return wake_; }  // the worker rings the program
  // After the end: why (for the program's answer, if it was still waiting for one).
  const std::string& end_reason() const { return end_reason_; }
  int end_status() const { return end_status_; }  // an errno
  bool was_open() const { return was_open_; }

 private:
  GuestSession(SessionServices& services, Request request, Owner& owner);
  // prepare() and its steps, in this order: all that a worker needs, then the worker.
  Result<void> prepare();
  Result<ExtentRange> take_slot();
  Result<void> make_wake_ups();
  void take_spin_seat();
  worker_protocol::Start start_message(const ExtentRange& staging) const;
  std::vector<int> worker_fds() const;
  void release();
  core::QuotaLedger* ledger_of(int32_t resource);  // null: there is no such resource
  void on_worker_message(const worker_protocol::Message& message) override;
  void on_worker_bad(const std::string& why) override;
  void on_worker_hangup() override;
  void on_worker_xid(int number) override;
  void on_worker_exit(const io::WorkerExit& exit) override;
  void on_ready(const worker_protocol::Message& message);
  void give_leave();
  void on_sharing(const worker_protocol::Message& message);
  void share(const worker_protocol::Message& question);
  void answer_share(const worker_protocol::Message& question, worker_protocol::Type type,
                    const core::Shares::Token& token, const core::Shares::Share* share);
  void on_error(uint64_t guest_error);
  bool sees_xids() const;
  void settle_offences(bool died_of_signal);
  void note_fault(uint64_t stall_ns);
  void answer(const worker_protocol::Message& question, worker_protocol::Type type, int code,
              ExtentRange range = {});

  SessionServices& services_;
  GrantExecutor& executor_;
  const SessionSettings& settings_;
  Request request_;
  Owner& owner_;
  State state_ = State::kStarting;
  bool spins_ = false;  // it has one of settings_.spin_processors
  bool was_open_ = false;
  uint32_t slot_ = 0;
  bool has_slot_ = false;
  uint64_t epoch_ = 0;
  uint64_t started_ns_;
  uint32_t ledger_id_;
  bool has_ledger_id_ = true;
  std::optional<io::StubPages> pages_;
  WakePair gate_, ring_;
  int bell_ = -1, wake_ = -1;
  std::optional<core::SessionId> scheduler_id_;
  std::deque<worker_protocol::Message> extent_requests_;  // wait for memory that is being scrubbed
  std::deque<worker_protocol::Message> leave_requests_;   // wait for the pace of the vGPU
  std::optional<int> end_error_;
  std::string end_reason_;
  // What of it the owner was notified of: a fault, for so long; an end by force. `expelled_`: not
  // its own doing.
  bool fault_reported_ = false, force_reported_ = false, expelled_ = false, broke_protocol_ = false;
  uint64_t stall_reported_ns_ = 0;
  int end_status_ = EIO;
  io::Timer deadline_, leave_timer_;
  std::unique_ptr<io::WorkerProcess> worker_;
};

}  // namespace sluice
