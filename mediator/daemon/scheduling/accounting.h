// SPDX-License-Identifier: Apache-2.0
// Accounting: drives the sources of measured GPU time in sluiced's one thread: polls the status
// registers as AdaptivePoller plans, reads the switch log and the launches' words, finds out whose
// each channel group is, and feeds UsageMeter; hands the meter's corrections to the scheduler's
// owner. Owned by the GrantExecutor.
//
// What it costs is bounded by `cpu_budget`: short dense phases in slices of some microseconds,
// between which whatever else waits is served, and single reads by timer in between. While fewer
// than two vGPUs have work it reads a tenth as often, without dense phases; while nobody holds the
// GPU, not at all.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "abi/stub.h"
#include "mediator/core/scheduler.h"
#include "mediator/daemon/scheduling/gpu_sources.h"
#include "mediator/io/fd_watch.h"
#include "policies/accounting/adaptive_poller.h"
#include "policies/accounting/usage_meter.h"

namespace sluice {

class Accounting {
 public:
  // vGPU, nanoseconds of the whole GPU to give back, to charge besides.
  using Correct = std::function<void(core::VgpuId, uint64_t, uint64_t)>;
  // The session whose context was at work on the GPU when its registers were read;
  // core::kNoSession: nobody's that is known.
  using Seen = std::function<void(core::SessionId)>;
  Accounting(boost::asio::io_context& io, const AccountingSettings& settings, Correct correct,
             Seen seen = {});
  ~Accounting();

  void add_vgpu(core::VgpuId vgpu, const std::string& name);
  void remove_vgpu(core::VgpuId vgpu);
  // `worker`: its process, by which the software GPU's channel groups name their owners. `report`,
  // `records` outlive the session.
  void add_session(core::SessionId session, core::VgpuId vgpu, pid_t worker,
                   const sluice_report_header* report, const sluice_launch_records* records);
  void remove_session(core::SessionId session);
  // What the scheduler has logged; the kinds that matter here are taken.
  void event(uint64_t now_ns, core::LogEvent event, core::VgpuId vgpu);

  accounting::UsageMeter::Reading read(core::VgpuId vgpu) const;
  // Its kernels' words claim less than the hardware saw, and all of its launches were seen.
  bool words_lie(core::VgpuId vgpu) const;

  // For how long faults of a worker have stopped the GPU since then, where a source shows it;
  // nothing: none does.
  std::optional<uint64_t> fault_stall_ns(pid_t worker, uint64_t since_ns) const;

  struct SourceState {
    std::string name, state, why;
  };
  std::vector<SourceState> sources() const;
  std::string source() const;  // what `used` goes by now
  bool polling() const { return poll_.phase != Phase::kStopped; }
  // For the benchmark: how many reads, and the wake-ups they took.
  uint64_t reads() const { return counts_.reads; }
  uint64_t wakes() const { return counts_.wakes; }
  uint64_t dense_phases() const { return counts_.dense_phases; }
  const accounting::UsageMeter& meter() const { return meter_; }

 private:
  enum class Phase : uint8_t { kStopped, kDense, kSparse };
  struct MeasuredSession {
    core::VgpuId vgpu = policy::kNoVgpu;
    pid_t worker = 0;
    const sluice_report_header* report = nullptr;  // null: no session
    const sluice_launch_records* records = nullptr;
    std::vector<uint64_t> seen;  // launch id by record, the last one taken
    bool has_group = false;      // a channel group of its worker was found
    uint64_t taken = 0;          // launches whose words were taken
    uint64_t done = 0;           // its report's launches_done when they were last looked for
  };
  void start();
  void stop(uint64_t now_ns);
  void begin_round(uint64_t now_ns);
  void dense_slice();
  void begin_sparse(uint64_t now_ns);
  void arm();
  accounting::StatusRead read_status(uint64_t now_ns);
  void measure_wakes();
  void on_wake();
  void housekeep(uint64_t now_ns);
  void read_log(uint64_t now_ns);
  void correct(uint64_t now_ns);
  void see();
  void use_sources(uint64_t now_ns);
  void find_channels(uint64_t now_ns);
  void name_processes();
  uint32_t group_of(uint32_t pid) const;
  void take_words(uint64_t now_ns);
  void take_words(uint64_t now_ns, MeasuredSession& session);
  bool engaged() const { return meter_.busy() >= 2; }

  boost::asio::io_context& io_;
  const AccountingSettings settings_;
  Correct correct_;
  Seen seen_;
  GpuSources sources_;
  accounting::UsageMeter meter_;
  accounting::AdaptivePoller poller_;
  io::Timer timer_;
  // Reads of the status registers: rounds of a dense phase and a sparse part.
  struct Polling {
    Phase phase = Phase::kStopped;
    uint64_t turn = 0;  // slices posted for an earlier phase are stale
    accounting::AdaptivePoller::Plan plan{};
    uint64_t dense_end_ns = 0;
    uint64_t dense_due_ns = 0;   // the next dense phase begins no sooner
    uint64_t follow_end_ns = 0;  // a run that began in the phase is followed no longer than this
    bool phase_open = false;     // of kDense: the phase itself has not ended
    uint64_t pause_end_ns = 0, stratum_ns = 0, window_ns = 0, from_ns = 0, due_ns = 0;
    uint64_t windows_ns = 0;  // read in windows since cpu_mark_ns
    bool engaged_round = false;
    uint64_t engaged_ns = 0;                   // when two or more vGPUs had work last
    uint64_t cpu_mark_ns = 0, wakes_mark = 0;  // at the begin of the sparse part
    uint64_t idle_since_ns = 0;                // nobody holds since; 0: somebody does
  } poll_;
  // When the other sources are looked at next.
  struct Next {
    uint64_t log_ns = 0, check_ns = 0, channels_ns = 0, words_ns = 0;
    uint64_t channels_wait_ns = 1'000'000'000, last_channels_ns = 0;
  } next_;
  // Whose each channel group is, as found.
  struct Groups {
    std::vector<uint32_t> owner;           // of the software GPU: its vGPU, ...
    std::vector<core::SessionId> session;  // ... and its session
    // Of NVIDIA's log: the vGPU of group `session + 1`, as the meter has it.
    std::vector<uint32_t> of_process;
  } groups_;
  // More sessions than the meter has groups are nobody's.
  static constexpr size_t kProcessGroups = 4095;
  std::vector<MeasuredSession> sessions_;  // by SessionId
  core::SessionId words_from_ = 0;         // whose words are taken next
  std::vector<std::string> names_;         // by VgpuId; empty: none
  std::vector<uint64_t> logged_ns_;        // by VgpuId, when use without a grant was last logged
  std::vector<gpu::SoftGpu::SwitchRecord> records_;
  std::vector<accounting::UsageMeter::Correction> corrections_;
  struct Counts {
    uint64_t reads = 0, wakes = 0, dense_phases = 0;
  } counts_;
};

}  // namespace sluice
