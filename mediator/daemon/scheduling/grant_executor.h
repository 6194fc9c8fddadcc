// SPDX-License-Identifier: Apache-2.0
// GrantExecutor: executes what the scheduler (core/scheduler.h) decides. It owns the scheduler,
// stores into the sessions' host and signal pages, reads their reports, rings gates, keeps the one
// decision timer and the host pages' heartbeats (only while there are sessions). Used from
// sluiced's one thread; makes no decision of its own.
//
// Between the ring of a worker and the answering store lie: epoll, one socket read, the report's
// reads, the policy. No allocation, no lock, no log line at the default level.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/core/progress.h"
#include "mediator/core/scheduler.h"
#include "mediator/daemon/scheduling/accounting.h"
#include "mediator/daemon/scheduling/learnt_files.h"
#include "mediator/daemon/scheduling/time_slices.h"
#include "mediator/daemon/scheduling/trace_file.h"
#include "mediator/io/fd_watch.h"
#include "mediator/io/loop_budget.h"
#include "mediator/io/stub_pages.h"

namespace sluice {

// Its vGPU is to be served as soon as it comes: what serves it polls for longer before it sleeps
// (Config::spin_low_us).
inline bool is_urgent(const policy::VgpuShare& share) {
  return share.latency == policy::LatencyClass::kLow || share.priority > 0;
}

class GrantExecutor {
 public:
  // The session's contexts are to have a slice of so long.
  using SliceHook = std::function<void(uint64_t slice_ns)>;
  // Called when the scheduler asks for how long the session's worker had no processor: the answer
  // is on_starved().
  using StarvedHook = std::function<void()>;
  // Called when the scheduler wants a session ended. It ends the worker and, once that is gone,
  // calls remove_session(); not before this call returns.
  using EndHook = std::function<void(core::EndReason)>;

  // An error if there is no policy of that name.
  static Result<std::unique_ptr<GrantExecutor>> make(boost::asio::io_context& io,
                                                     const core::SchedulerConfig& config,
                                                     const AccountingSettings& accounting);
  ~GrantExecutor();

  // From now on what the scheduler does is written there.
  void set_trace(std::unique_ptr<TraceFile> trace) { trace_ = std::move(trace); }
  // What is learnt of kernels' durations is kept there between runs. Before any vGPU.
  void keep_learnt(const std::string& state_dir) {
    learnt_files_ = std::make_unique<LearntFiles>(io_, state_dir);
  }

  // The GPU's time slices, where the policy sets them. Before any session.
  void set_time_slices(std::unique_ptr<TimeSlices> slices) { slices_ = std::move(slices); }
  const TimeSlices* time_slices() const { return slices_.get(); }  // null: there are none

  // `owner`: empty, or whose it is. What was learnt of another owner's kernels is not its.
  Result<core::VgpuId> add_vgpu(const std::string& name, const std::string& owner,
                                const policy::VgpuShare& share);
  void set_share(core::VgpuId vgpu, const policy::VgpuShare& share);
  void set_paused(core::VgpuId vgpu, bool paused);
  void set_group(policy::GroupId group, const policy::GroupShare& share);
  const core::Scheduler& scheduler() const { return *scheduler_; }
  void remove_vgpu(core::VgpuId vgpu);
  // What its workers' rings, and whatever else they wake the loop by, may take of its time.
  std::shared_ptr<io::LoopBudget> loop_time(core::VgpuId vgpu) const {
    return vgpus_[vgpu].loop_time;
  }

  // `pages` and both wake sockets (base/peer_socket.h) stay the session's and outlive
  // remove_session(). `worker`: its process.
  Result<core::SessionId> add_session(core::VgpuId vgpu, io::StubPages& pages, int gate_fd,
                                      int ring_fd, pid_t worker, EndHook end, SliceHook slice,
                                      StarvedHook ask_starved);
  void on_starved(core::SessionId session, uint64_t ns);
  // Whether workers have to be woken to take an eviction further (worker_protocol::is_forwarded).
  // Before any session.
  void ring_on_evict(bool ring) { ring_on_evict_ = ring; }
  // The workers of an urgent vGPU ring again within this, probably; 0: not known.
  void expect_urgent_rings_within(uint64_t ns) { urgent_ring_ns_ = ns; }
  // Until then such a ring is expected, so it is worth polling for.
  uint64_t expects_ring_until_ns() const { return expects_ring_until_ns_; }
  // `hook` is called, once and not before this returns, when the session's report says that it has
  // failed (a CUresult, as its worker has it).
  using ErrorHook = std::function<void(uint64_t guest_error)>;
  void watch_errors(core::SessionId session, ErrorHook hook);
  // A fault of the vGPU has stopped the GPU until now: it pays for what the clock has not charged
  // it. An event from outside.
  void charge_stall(core::VgpuId vgpu, uint64_t stall_ns);
  uint64_t overstay_ns(core::SessionId session, core::EndReason reason) const {
    return scheduler_->overstay_ns(session, reason);
  }
  // Of a session whose worker is gone, once, before remove_session().
  uint64_t take_stay_ns(core::SessionId session);
  std::optional<uint64_t> fault_stall_ns(pid_t worker, uint64_t since_ns) const {
    return accounting_->fault_stall_ns(worker, since_ns);
  }
  // The deadline of its evictions; 0: everybody's.
  void set_evict_end(core::VgpuId vgpu, uint64_t ns) { scheduler_->set_evict_end(vgpu, ns); }
  // From now on the worker reads in its grant word that its session is being ended.
  void mark_ending(core::SessionId session);
  void remove_session(core::SessionId session);
  size_t session_count() const { return session_count_; }

  // For people: the scheduler's figures, and what the vGPU has used by all sources.
  struct Figures : core::VgpuStats {
    accounting::UsageMeter::Reading usage;
  };
  // Reads every report first, so that the figures are of now.
  Figures stats(core::VgpuId vgpu);
  const Accounting& accounting() const { return *accounting_; }
  const accounting::LatencyHistogram& eviction_latency(core::VgpuId vgpu) const;
  uint64_t all_contended_ns() const;
  // Physical launches that went on where an evicted one had left, as the vGPU's workers report it
  // (ended sessions included): a hint, like all their words.
  uint64_t relaunches(core::VgpuId vgpu) const;
  // How far the launches of the vGPU's sessions are, and for how long they will go on: hints, too.
  core::ProgressSums progress(core::VgpuId vgpu) const;
  const core::Progress& learnt(core::VgpuId vgpu) const { return vgpus_[vgpu].progress; }
  uint32_t sm_count() const {
    return sm_count_;
  }  // that the policy knows: 1 where the GPU is given whole
  uint64_t quantum_ns() const;
  std::string policy_name() const;

  // Figures of `vgpu` some time ago: the sample nearest to `ns_ago`, with its age; false: none yet.
  struct Sample {
    uint64_t at_ns = 0;
    std::vector<Figures> vgpus;  // by VgpuId; empty entries where there was none
    std::vector<bool> present;
    uint64_t all_contended_ns = 0;
  };
  const Sample* sample_before(uint64_t ns_ago) const;

 private:
  explicit GrantExecutor(boost::asio::io_context& io);
  struct SessionEntry;
  void run();
  void execute(const core::Action& action);
  void log_event(const core::Action& action);
  void read_report(core::SessionId session);
  void on_ring(core::SessionId session);
  void store_grant(SessionEntry& entry);
  static TimeSlices::Work work_of(const SessionEntry& entry);
  // What was used until now, where the scheduler's own clock cannot tell; before events that
  // decide.
  void measure(bool now);
  Figures figures(core::VgpuId vgpu) const;
  static uint64_t relaunches_of(const SessionEntry& entry);
  // Whether gates counted as open for want of a beat. To be called before anything is held against
  // a session.
  void note_silence(uint64_t now_ns);
  void beat();
  // beat()'s parts.
  void read_reports();
  void learn(uint64_t now_ns);
  void learn_evictions();
  void start_beating();
  void take_sample();

  boost::asio::io_context& io_;
  std::unique_ptr<core::Scheduler> scheduler_;
  std::unique_ptr<Accounting> accounting_;
  core::ActionQueue actions_;
  std::unique_ptr<TraceFile> trace_;           // null: none is recorded
  std::unique_ptr<LearntFiles> learnt_files_;  // null: nothing is kept
  std::unique_ptr<TimeSlices> slices_;         // null: one vGPU has the GPU at a time, or SMs of it
  io::Timer wake_timer_, beat_timer_;
  std::vector<std::unique_ptr<SessionEntry>> sessions_;  // by SessionId
  struct VgpuEntry {
    std::string name;               // empty: none
    std::string learnt_as;          // LearntFiles::name_of()
    uint64_t ended_relaunches = 0;  // of sessions that are over
    core::Progress progress;
    std::shared_ptr<io::LoopBudget> loop_time;
    uint64_t evictions_seen = 0, evictions_seen_ns = 0;  // that progress has learnt from
    bool urgent = false;                                 // is_urgent() of its share
  };
  io::LoopBudgets loop_budgets_{io::LoopShares{}};
  std::vector<VgpuEntry> vgpus_;  // by VgpuId
  bool ring_on_evict_ = false;
  uint64_t urgent_ring_ns_ = 0, expects_ring_until_ns_ = 0;
  std::unordered_map<pid_t, core::SessionId>
      session_of_;  // by worker: asked for each, at each ring
  size_t session_count_ = 0;
  core::SessionId read_from_ = 0, learn_from_ = 0;  // where the last beat came to
  uint32_t sm_count_ = 1;
  uint64_t beats_ = 0, last_beat_ns_ = 0;
  std::deque<Sample> samples_;
  uint64_t last_violation_log_ns_ = 0;
};

}  // namespace sluice
