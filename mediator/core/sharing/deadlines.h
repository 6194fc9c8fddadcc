// SPDX-License-Identifier: Apache-2.0
// Deadlines: who is ended for not leaving the GPU, and who is not.
//
// Two things are known of a session: what its worker reports, and, where the host can sample the
// GPU by itself (on_seen()), whether a context of it was running at that moment. A sample stands
// for the time since the one before. What it means:
//
// clang-format off
//   running is                    | for that session             | for others being evicted
//   ------------------------------+------------------------------+----------------------------------
//   a session of a vGPU that      | nothing                      | the deadline runs
//   holds a grant, or left just   |                              |
//   now                           |                              |
//   a session of a vGPU that      | `ungranted_ns` grows; it is  | the deadline stands still: their
//   holds none: it reported       | ended at evict_end_ns        | launches may not have begun
//   *left*, or was never granted  |                              |
//   nobody, nobody known, or      | -                            | the deadline runs: who reports
//   there is no sample at all     |                              | launches in flight has not left
// clang-format on
//
// So a worker that reports *left* while its kernel runs on does not have its successor ended: it is
// ended itself. And a session that has not left gains nothing by reporting that its launches have
// not begun: no report enters this table. What it can gain is one evict_end_ns for each session
// that an accomplice sacrifices. Without samples (`sources = ["clock"]`, NVIDIA) only a session
// that reports launches in flight is ended. A kernel cannot write that report (abi/stub.h), so
// there a victim loses its session only to a *worker* that was taken over. Under the opposite rule,
// which ends the predecessor, any kernel that spins would have an honest predecessor ended.
//
// Between the warning and the end lies the whole time between their limits: a host that stood still
// for seconds, with its workers, ends no session whose kernel was about to leave.
//
// A worker without a processor cannot report that it has left, nor can its kernels leave where the
// GPU is software. So no session is ended before the host's kernel was asked for how long since the
// warning nothing of the worker ran although something of it could have. That time does not count;
// with what else is excused it is one limit at most. A session that starves itself gains as much,
// and pays for it (overstay_ns()).
//
//   kRunning --warned: asked--> kWarned --deadline: asked again--> kAsked --> kEnded
//                               |  ^  ^----------- it had starved -------|
//                      asked when twice as late
//
// `ungranted_ns` shrinks as time passes (SchedulerConfig::ungranted_leak), so that the delays of an
// honest worker between its kernel's end and the GPU's release never add up. A worker without a
// processor may delay that for long, although its kernel's end was reported. So no session is ended
// for that either before the host's kernel was asked, at half of the limit and at the limit: what
// it starved in between does not count, one limit of it at most. What was excused is forgotten as
// the sum is, and after it, and it is part of what the session pays for (overstay_ns()). And no
// single sample stands for more than a part of the limit, so that a pause of sluiced's is not taken
// for the session's.
//
// Where sluiced itself had no processor for so long that its gates counted as open (abi/stub.h),
// workers launched without a grant as they should, and what they launched may run for a while.
// Nothing is added up for a session until its own deadline has passed since then. Sessions that
// wait meanwhile do not pay for it: the table's third column holds.
//
// A session may also go before its deadline with launches in flight that had to leave: by itself,
// by a crash, or ended for something else. A guest that always does would never be ended at a
// deadline. So the time that it stayed counts as if it had been ended for it (take_stay_ns()), as
// far as it is known that its worker had a processor: the kernel is asked at intervals that double
// while it is late, and what came after the last answer is not counted. Nor is anything if less
// than evict_warn_ns is known, so that nobody pays who waited behind another. An honest program
// with long launches that is killed in the midst of one looks the same. What tells them apart is
// how long sessions of its vGPU have taken to leave by themselves: so much is free. A guest that
// shows long launches to be free later has kept the GPU for as long with launches that end, which
// it may do again and again.
//
// Owned by Sharing, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mediator/core/sharing/state.h"

namespace sluice::core {

struct Sharing;

class Deadlines {
 public:
  explicit Deadlines(Sharing& sharing) : sharing_(sharing) {}

  void reset_vgpu(VgpuId v) { reset_record(evictions_, v); }
  void reset_session(SessionId s) {
    reset_record(ungranted_, s);
    reset_record(starved_, s);
  }

  // v's deadline: 0 is everybody's.
  void set_limit(VgpuId v, uint64_t evict_end_ns) { evictions_[v].limit_ns = evict_end_ns; }
  uint64_t limit_ns(VgpuId v) const;

  // v was evicted: its deadline runs from now.
  void start(uint64_t now_ns, VgpuId v);
  // It has left, or may take its time.
  void stop(VgpuId v);
  uint64_t evicted_at_ns(VgpuId v) const { return evictions_[v].since_ns; }
  // So much of the time since then was not v's to leave in. In sum at most so many of its limits;
  // what was excused already stays so.
  void excuse(VgpuId v, uint64_t now_ns, uint64_t ns, uint32_t limits = 1);
  // The GPU stood still for so long, through v's fault.
  void excuse_others(VgpuId v, uint64_t now_ns, uint64_t ns);
  // The answer to kAskStarved: so long since its worker's start. To be followed by enforce().
  void on_starved(uint64_t now_ns, SessionId s, uint64_t starved_ns, ActionQueue& out);
  uint64_t excused_ns(VgpuId v) const { return evictions_[v].excused_ns; }
  // For how long `s`, which is being ended for `reason`, has kept the GPU from others.
  uint64_t overstay_ns(SessionId s, EndReason reason) const;
  // `s` has left as it had to, by its own report.
  void on_left(uint64_t now_ns, SessionId s);
  // `s` is gone, and nobody has ended it for not leaving. For how long it has kept the GPU from
  // others all the same: once for all sessions of its vGPU. 0: it has not.
  uint64_t take_stay_ns(SessionId s);
  // For statistics: an eviction that needed no deadline.
  void set_evicted_at(VgpuId v, uint64_t at_ns) { evictions_[v].since_ns = at_ns; }

  // Acts on deadlines that have passed: warns, then ends the sessions that have not drained.
  void enforce(uint64_t now_ns, ActionQueue& out);
  // A context of `running` was on the GPU, or of nobody known (kNoSession).
  void sample(uint64_t now_ns, SessionId running, ActionQueue& out);
  // Until now gates may have counted as open.
  void on_silence(uint64_t now_ns) { silent_until_ns_ = now_ns; }
  // The next time at which enforce() has something to do.
  uint64_t next_ns() const;

 private:
  // stop() leads back from each to kStopped.
  enum class Stage : uint8_t { kStopped, kRunning, kWarned, kAsked, kEnded };
  struct Eviction {
    Stage stage = Stage::kStopped;
    uint64_t since_ns = 0;
    uint64_t excused_ns = 0;  // since then, in which another was seen running without a grant
    uint64_t limit_ns = 0;    // 0: evict_end_ns
    uint64_t starved_ns = 0;  // of its workers the one that starved longest, since the warning
    uint64_t warned_ns = 0;   // when it was
    uint64_t asked_ns = 0;    // the last time at its deadline; 0: never
    uint64_t looked_ns = 0;   // the last time, for whatever reason
    uint64_t from_ns = 0, known_ns = 0;  // the first answers and the last; 0: none
    uint64_t counted_ns = 0;             // by take_stay_ns(), of this eviction
    uint64_t shown_ns = 0;               // longest time in which sessions have left, ever
  };
  // For how long v has stayed for certain, though it could have left.
  uint64_t known_stay_ns(VgpuId v) const;
  // The kernel's count for a worker at the warning, and how many answers are on their way.
  struct Starved {
    std::optional<uint64_t> before_ns;
    uint32_t pending = 0;
  };
  uint64_t warn_ns(VgpuId v) const;
  uint64_t starved_ns(VgpuId v) const;
  uint64_t deadline_ns(VgpuId v) const;
  uint64_t end_at_ns(VgpuId v) const;
  uint64_t look_at_ns(VgpuId v) const;
  // About its sessions that have not drained; their reports are read once more.
  void ask(uint64_t now_ns, VgpuId v, ActionQueue& out);
  bool is_answered(VgpuId v) const;
  void end(VgpuId v, ActionQueue& out);
  // Since it was last seen to be gone for long enough that its sum was 0, but for excused_ns.
  struct Ungranted {
    uint64_t sum_ns = 0, at_ns = 0;
    uint64_t excused_ns = 0;            // taken off the sum; shrinks after it
    uint64_t asked_ns = 0;              // its answer is on its way since then; 0: none is
    std::optional<uint64_t> before_ns;  // the kernel's last count; none: it was not asked yet
  };
  void ask_ungranted(uint64_t now_ns, SessionId s, ActionQueue& out);
  void answer_ungranted(SessionId s, uint64_t starved_ns, ActionQueue& out);
  void warn(uint64_t now_ns, VgpuId v, uint64_t since_ns, ActionQueue& out);

  Sharing& sharing_;
  std::vector<Eviction> evictions_;   // by VgpuId
  std::vector<Ungranted> ungranted_;  // by SessionId
  std::vector<Starved> starved_;      // by SessionId
  std::vector<VgpuId> running_;       // rarely more than one
  uint64_t sampled_ns_ = 0;           // the last sample; 0: none
  uint64_t silent_until_ns_ = 0;      // 0: sluiced never was silent
};

}  // namespace sluice::core
