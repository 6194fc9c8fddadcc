// SPDX-License-Identifier: Apache-2.0
// UsageMeter: what every source says about the vGPUs' GPU time, joined: for people how much each
// has used and by how much that may be wrong, for the scheduler what the clock's charges have to be
// corrected by.
//
// Two figures of a vGPU, kept apart:
//   - *used*: its contexts ran on the engine while it was granted. By the status registers where
//     they can be read; else by the switch log (then: it was resident, granted and had work); else
//     by the clock. Bounded from above by the time for which it held the GPU and by the log's
//     residency. Fused by usage_fusion.h.
//   - *charged*, the scheduler's: the time for which it held the GPU (what is held is nobody
//     else's, used or not), less what switches of contexts took of it, plus what it used *without*
//     a grant. The last two come from here (take_corrections()), as lower bounds of what the
//     sources say, so that an error never charges.
//
// Trusted are the hardware's registers and log, and the mediator's own clock. Words that a guest
// could have forged may raise `used` within the trusted bounds, never lower it, and enter no
// correction. A worker that says it has left while its kernel runs is seen by the registers and
// pays.
//
// Between dense phases the registers are read at random times. Since the mediator knows exactly for
// how long each vGPU held the GPU, only the running part of that has to be estimated
// (register_reads.h).
//
// Pure; one thread; times do not go backwards. Whoever reads
// (mediator/daemon/scheduling/accounting.h) feeds it. vGPUs are small dense ids; all work per call
// is O(1) but where it says otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policies/accounting/adaptive_poller.h"
#include "policies/accounting/clock_estimator.h"
#include "policies/accounting/register_reads.h"
#include "policies/accounting/register_source.h"
#include "policies/accounting/status_read.h"
#include "policies/accounting/switch_log.h"
#include "policies/accounting/usage_fusion.h"
#include "policies/accounting/word_source.h"

namespace sluice::accounting {

enum class Source : uint8_t { kClock, kRegisters, kSwitchLog, kWords };
inline constexpr size_t kSources = 4;

class UsageMeter {
 public:
  static constexpr uint32_t kNobody = 0xffffffffu;
  struct Config {
    SwitchLog::Config log;
    // Use that ends so shortly after the release is the release's own delay, not use without a
    // grant.
    uint64_t grace_ns = 100'000;
    // Smaller corrections wait until they have grown to this.
    uint64_t least_correction_ns = 20'000;
    uint64_t late_ns = 250'000;  // a read is late after this
    uint64_t gap_ns = 5'000;     // in a phase: RegisterSource
    // Grants of one vGPU in which an unknown group has to be seen before it is taken for that
    // vGPU's.
    uint32_t grants_to_learn = 4;
  };

  UsageMeter() : UsageMeter(Config{}) {}
  explicit UsageMeter(const Config& config);

  // --- what the mediator knows --------------------------------------------------------------
  void add_vgpu(uint64_t now_ns, uint32_t vgpu);
  void remove_vgpu(uint64_t now_ns, uint32_t vgpu);
  void on_granted(uint64_t now_ns, uint32_t vgpu);
  void on_left(uint64_t now_ns, uint32_t vgpu);
  void on_busy(uint64_t now_ns, uint32_t vgpu, bool busy);
  uint32_t holders() const { return static_cast<uint32_t>(holders_.size()); }
  uint32_t busy() const { return busy_; }

  // Channel group `tsgid` is `vgpu`'s; kNobody: no vGPU's.
  void assign(uint32_t tsgid, uint32_t vgpu);
  // Not all of v's channel groups are known: meanwhile neither registers nor log show what it uses.
  void set_groups_missing(uint64_t now_ns, uint32_t vgpu, bool missing);
  // Whether an unknown group was seen running since the last call.
  bool take_unknown() { return std::exchange(unknown_seen_, false); }
  // One group stands for all contexts (an MPS server): its time is the holder's; where several hold
  // the GPU, it is nobody's.
  void share_group(uint32_t tsgid);

  // Where the owner of a channel group is not known: a group that runs again and again while the
  // same vGPU holds the GPU alone, and never in another's turn, is that vGPU's.
  void learn_groups(bool learn) { learns_ = learn; }

  // A source can be used from now on, or not. kClock and kWords need no saying. O(vGPUs).
  void set_usable(uint64_t now_ns, Source source, bool usable);
  bool usable(Source source) const { return usable_[static_cast<size_t>(source)]; }
  // What `used` goes by now.
  Source source() const;

  // --- status registers ---------------------------------------------------------------------
  // A phase: begin, samples, end. Or a single read at `now_ns`, meant for `due_ns`, that stands for
  // [from_ns, to_ns). Phases and strata follow one another; what lies between is a gap, of which
  // nothing is known. So is the stratum of a read that came late: on a busy host the reader gets a
  // processor when somebody else sleeps, perhaps the very one who is looked at (the software GPU),
  // so late reads see too little.
  void begin_phase(uint64_t now_ns);
  void sample(uint64_t now_ns, uint32_t status0);
  void end_phase(uint64_t now_ns);
  // `half`: of its batch (AdaptivePoller::half()). `now_ns`: when the read began.
  void point(uint64_t now_ns, const StatusRead& seen, uint64_t from_ns, uint64_t to_ns,
             uint64_t due_ns, uint32_t half = 0);
  void point(uint64_t now_ns, uint32_t status0, uint64_t from_ns, uint64_t to_ns, uint64_t due_ns,
             uint32_t half = 0) {
    point(now_ns, StatusRead(status0), from_ns, to_ns, due_ns, half);
  }
  void point(uint64_t now_ns, uint32_t status0, uint64_t from_ns, uint64_t to_ns) {
    point(now_ns, status0, from_ns, to_ns, now_ns);
  }
  // The last single read ended a batch (AdaptivePoller::batch_ends()). O(vGPUs).
  void end_batch();
  // After a phase: a run that began in it goes on, and reading on until its end makes it a whole
  // one.
  bool follows() const { return registers_.follows(); }
  void follow(uint64_t now_ns, uint32_t status0);
  uint64_t late_points() const { return late_points_; }
  // For AdaptivePoller. O(vGPUs).
  double take_change() { return registers_.take_change(); }
  AdaptivePoller::Known known() const;
  RegisterSource::Runs runs(uint32_t vgpu) const { return registers_.runs(run_id(vgpu)); }

  // --- switch log ---------------------------------------------------------------------------
  // As in SwitchLog, but by channel group.
  void on_record(uint64_t time_ns, uint32_t seq, uint32_t tsgid, bool start);
  void on_dropped() { log_.on_dropped(); }
  void settle_log(uint64_t watermark_ns);
  const SwitchLog& log() const { return log_; }

  // --- words --------------------------------------------------------------------------------
  void on_launch_words(uint64_t now_ns, uint32_t vgpu, uint64_t begin_ns, uint64_t end_ns);

  // --- results ------------------------------------------------------------------------------
  struct Reading {
    Estimate used;                // fused: the truth lies within used_ns +- error_ns
    uint64_t held_ns = 0;         // granted to left
    uint64_t ungranted_ns = 0;    // used without a grant, as far as charged
    uint64_t contradictions = 0;  // times that trusted sources excluded each other
    bool words_lie = false;       // a kernel's words claim less than the trusted sources allow
    std::optional<Estimate>
        by[kSources];  // what each says by itself, since it was usable; kWords without bound
  };
  Reading read(uint64_t now_ns, uint32_t vgpu) const;

  struct Correction {
    uint32_t vgpu;
    uint64_t refund_ns, extra_ns;  // of the whole GPU
  };
  // Appends what the scheduler has to correct since the last call. O(vGPUs).
  void take_corrections(uint64_t now_ns, std::vector<Correction>& out);

 private:
  // From granted to left.
  struct Holds {
    bool now = false;
    uint64_t since_ns = 0, left_ns = 0;
    uint64_t ended_ns = 0;  // of those that have ended
    uint64_t grants = 0;
    uint64_t ns(uint64_t now_ns) const {
      return ended_ns + (now && now_ns > since_ns ? now_ns - since_ns : 0);
    }
  };
  // Where each source stood when the sources in use changed last.
  struct Base {
    uint64_t held_ns = 0;
    uint64_t clock_ns = 0, clock_error_ns = 0;
    SwitchLog::Totals log;
    uint64_t log_unfinished_ns = 0;
    Estimate used;  // until then
  };
  // While not all of its channel groups are known.
  struct LostGroups {
    bool now = false;
    uint64_t held_ns = 0;   // held when that began
    uint64_t ended_ns = 0;  // held in such times that have ended
    uint64_t ns(uint64_t held_ns_now) const { return ended_ns + (now ? held_ns_now - held_ns : 0); }
  };
  // What has been handed out as corrections, and what they are made of.
  struct Corrected {
    uint64_t extra_ns = 0, switched_ns = 0;
    // By the log, while there were no registers, and where the log stood.
    uint64_t outside_ns = 0, outside_log_ns = 0;
    // Others without a grant were seen running while it held alone, and what of that was refunded.
    uint64_t taken_ns = 0, refunded_ns = 0;
  };
  struct Vgpu {
    bool present = false, busy = false;
    Holds holds;
    ClockEstimator clock;
    std::optional<WordSource> words;
    RegisterReads reads;
    Base base;
    LostGroups lost;
    Corrected corrected;
    uint64_t contradictions = 0;
    std::vector<uint32_t> tsgids;
  };
  struct Vote {
    uint32_t vgpu = kNobody;
    uint32_t grants = 0;
    uint64_t last_grant = 0;
  };
  // Ids within registers_: 0 is everybody else's time.
  static uint32_t run_id(uint32_t v) { return 3 * v + 1; }
  static uint32_t ungranted_id(uint32_t v) { return 3 * v + 2; }
  static uint32_t switch_id(uint32_t v) { return 3 * v + 3; }

  Vgpu* find(uint32_t v) { return v < vgpus_.size() && vgpus_[v].present ? &vgpus_[v] : nullptr; }
  void map(uint32_t v, uint32_t id);
  void map_shared();
  void update_contended(uint64_t now_ns);
  void flip_late(uint64_t now_ns);
  void learn(uint32_t status0);
  void note_unknown(uint32_t status0);
  void note_taken(uint32_t status0, uint64_t ns);
  void add_blind(uint64_t from_ns, uint64_t to_ns);
  bool runs(uint32_t v, uint32_t status0) const;
  Estimate by_registers(const Vgpu& g, uint32_t v, uint64_t held_ns, uint64_t open_ns) const;
  bool blind() const { return shared_group_ != kNobody && holders_.size() > 1; }
  void rebase(uint64_t now_ns);
  Fused fuse_since_mark(uint64_t now_ns, uint32_t v, Reading* detail) const;

  const Config config_;
  std::vector<Vgpu> vgpus_;
  std::vector<uint32_t> holders_;
  std::vector<uint32_t>
      leaving_;  // left so shortly ago that what runs of them still counts as granted
  std::vector<uint32_t> owner_;  // by tsgid, the vGPU
  bool learns_ = false;
  std::unordered_map<uint32_t, Vote> votes_;  // by unknown tsgid; at most kTsgCount
  uint32_t busy_ = 0;
  uint32_t shared_group_ = kNobody;
  bool usable_[kSources] = {true, false, false, false};
  RegisterSource registers_;
  bool in_phase_ = false;
  bool unknown_seen_ = false;
  uint64_t late_points_ = 0;
  uint64_t phase_at_ns_ = 0;
  uint64_t covered_ns_ = 0;  // registers have been read up to here
  SwitchLog log_;
};

}  // namespace sluice::accounting
