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

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "mediator/core/penalty.h"
#include "mediator/core/quota_lease.h"
#include "mediator/core/shares.h"
#include "mediator/daemon/guests/channel.h"
#include "mediator/daemon/guests/offence_record.h"
#include "mediator/daemon/guests/session_end.h"
#include "mediator/daemon/guests/session_services.h"
#include "mediator/daemon/guests/taken_slot.h"
#include "mediator/daemon/guests/worker_pages.h"
#include "mediator/io/worker_process.h"

namespace sluice {

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
    uint64_t spawner_vgpu = 0;                  // io::SpawnerLink::Vgpu's number
    Origin origin;
    std::string program;
    uint32_t guest_pid = 0;
    bool urgent = false;  // is_urgent() of the vGPU's share
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
  uint32_t slot() const { return slot_.number(); }
  uint64_t epoch() const { return slot_.epoch(); }
  const Origin& origin() const { return request_.origin; }
  const std::string& program() const { return request_.program; }
  uint32_t guest_pid() const { return request_.guest_pid; }
  pid_t worker_pid() const { return worker_ ? worker_->pid() : -1; }
  uint64_t leased_bytes() const { return services_.memory.held_by_session(ledger_.id()); }
  // Of those, by kind as the worker says: a hint. They never add up to more than is leased.
  std::array<uint64_t, kChargeKinds> leased_by_kind() const;
  const Channel& channel() const { return slot_.channel(); }
  uint64_t started_ns() const { return started_ns_; }
  // Its vGPU is or is not from now on.
  void set_urgent(bool urgent);
  // Some of the vGPU's shared memory became free: requests that wait for it are tried again.
  void grant_extents();
  const WorkerPages& pages() const { return pages_; }
  // After the end: why (for the program's answer, if it was still waiting for one).
  const std::string& end_reason() const { return end_.reason(); }
  int end_status() const { return end_.status(); }  // an errno
  bool was_open() const { return was_open_; }

 private:
  GuestSession(SessionServices& services, Request request, Owner& owner);
  // prepare() and its steps, in this order: all that a worker needs, then the worker.
  Result<void> prepare();
  void take_spin_seat();
  GuestSession* who_gives_a_seat() const;  // null: nobody
  void give_up_spin_seat();
  void send_spin();
  uint32_t call_spin_us(bool urgent) const;
  worker_protocol::Start start_message(const ExtentRange& staging) const;
  void release();
  core::QuotaLedger* ledger_of(int32_t resource);  // null: there is no such resource
  void on_worker_message(const worker_protocol::Message& message) override;
  void on_worker_bad(const std::string& why) override;
  void on_worker_hangup() override;
  void on_worker_xid(int number) override;
  void on_worker_starved(uint64_t ns) override;
  void on_worker_exit(const io::WorkerExit& exit) override;
  void on_ready(const worker_protocol::Message& message);
  void give_leave();
  void on_sharing(const worker_protocol::Message& message);
  void share(const worker_protocol::Message& question);
  void answer_share(const worker_protocol::Message& question, worker_protocol::Type type,
                    const core::Shares::Token& token, const core::Shares::Share* share);
  void on_error(uint64_t guest_error);
  void settle_offences(bool died_of_signal);
  void note_fault(uint64_t stall_ns);
  // True: a request of the worker's was put behind those that wait. False: too many do, and it has
  // its answer, of this type.
  bool may_wait(std::deque<worker_protocol::Message>& requests, const worker_protocol::Message& m,
                worker_protocol::Type reply);
  void answer(const worker_protocol::Message& question, worker_protocol::Type type, int code,
              ExtentRange range = {});

  GrantExecutor& executor() const { return services_.executor; }
  const SessionSettings& settings() const { return services_.settings; }

  SessionServices& services_;
  const Request request_;
  Owner& owner_;
  State state_ = State::kStarting;
  bool was_open_ = false;
  bool spins_ = false;  // it has one of the seats of SessionSettings::spin
  // It polls for so long for calls, by the last message to it.
  uint32_t call_spin_us_ = worker_protocol::Start{}.call_spin_us;
  const uint64_t started_ns_;
  TakenSlot slot_;
  LedgerEntry ledger_;
  WorkerPages pages_;
  std::optional<core::SessionId> scheduler_id_;
  std::deque<worker_protocol::Message> extent_requests_;  // wait for memory that is being scrubbed
  std::deque<worker_protocol::Message> leave_requests_;   // wait for the pace of the vGPU
  SessionEnd end_;
  OffenceRecord offences_;
  io::Timer deadline_, leave_timer_;
  std::unique_ptr<io::WorkerProcess> worker_;
};

}  // namespace sluice
