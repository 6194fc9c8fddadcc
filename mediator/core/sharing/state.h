// SPDX-License-Identifier: Apache-2.0
// What the scheduler knows of each vGPU and each session, whatever the way in which the GPU is
// shared. Plain records with their states; the rules are in the parts beside this file (sharing.h).
// Owned by Sharing, used from sluiced's one thread. Times are absolute ns, GPU time is SM-ns.
#pragma once

#include <cstdint>
#include <vector>

#include "mediator/core/scheduler.h"

namespace sluice::core {

// How a vGPU stands to the GPU.
//
//   from        event                                    to          who decides
//   kAbsent     add_vgpu()                               kOut        the operator
//   kOut        the policy runs it                       kAlone or   the strategy
//                                                        kContended
//   kAlone      another vGPU becomes backlogged          kContended  Reports::settle()
//   kContended  no other vGPU is backlogged any more     kAlone      Reports::settle()
//   kAlone,     evicted: its gates close                 kLeaving    the strategy (whole GPU)
//   kContended
//   kLeaving    all sessions have drained                kOut        the strategy (whole GPU)
//   kAlone,     its last SMs are released                kOut        the strategy (in space)
//   kContended
//   kOut        remove_vgpu()                            kAbsent     the operator
//
// In space a vGPU gives SMs up part by part, so it is never kLeaving: sharing/in_space.h has the
// states of that.
enum class HoldState : uint8_t {
  kAbsent,
  kOut,
  kAlone,      // holds; its grant words say that nobody waits
  kContended,  // holds; its grant words carry the contended flag
  kLeaving,    // holds; its gates are closed
};

// Whether the policy's knowledge of a vGPU (`busy`) may differ from its sessions' reports.
//
//   kNone            -> kChanged         a report made it backlogged or not
//   kNone, kChanged  -> kEndedLaunches   in space: it counts as idle, and launches of it have ended
//   kChanged         -> kConfirmed       it seems idle: the reports of all its sessions are being
//   read any              -> kNone            the policy has heard
enum class News : uint8_t { kNone, kChanged, kConfirmed, kEndedLaunches };

// Cumulative figures for people. Nothing is decided by them.
struct VgpuCounters {
  uint64_t grants = 0, evictions = 0, overdue = 0, ended = 0, violations = 0, set_changes = 0,
           unasked = 0;
  accounting::LatencyHistogram eviction_latency;
  ReportedSums gone;  // of sessions that have ended
};

struct VgpuState {
  HoldState hold = HoldState::kAbsent;
  policy::VgpuShare share;
  std::vector<SessionId> sessions;
  uint32_t backlogged_sessions = 0;
  bool busy = false;    // as the policy knows it
  bool paused = false;  // its virtual machine is: it counts as idle, whatever its sessions report
  News news = News::kNone;
  uint32_t draining_sessions = 0;
  bool had_in_flight = false;  // while it drained, a session had launches in flight
  uint64_t left_ns = 0;        // the end of its last hold
  uint64_t alone_from_ns = 0;  // kAlone since then, or has not reported since it was; 0: neither
  VgpuCounters counters;

  bool present() const { return hold != HoldState::kAbsent; }
  bool holds() const { return hold != HoldState::kAbsent && hold != HoldState::kOut; }
  bool leaving() const { return hold == HoldState::kLeaving; }
  bool backlogged() const { return backlogged_sessions > 0; }
};

//   kAbsent -> kLive -> kEnding -> kAbsent. An ending session is granted nothing more.
enum class SessionLife : uint8_t { kAbsent, kLive, kEnding };

// Which launches of older generations have to leave.
//
//   kNone       -> kAll, kOutsideSet  evicted, or recalled to another set of SMs
//   kOutsideSet -> kAll               its worker reports that a launch cannot stay
//   both        -> kNone              it has drained, or is gone
enum class Drain : uint8_t { kNone, kAll, kOutsideSet };

struct SessionState {
  SessionLife life = SessionLife::kAbsent;
  VgpuId vgpu = policy::kNoVgpu;
  uint32_t generation = 0;  // of the last grant
  uint64_t word = 0;        // grant word as last set
  Drain drain = Drain::kNone;
  uint32_t drain_generation = 0;  // this generation and all before it have to leave
  uint32_t reads_pending = 0;     // kReadReport asked for and not answered
  bool backlogged = false;
  ReportSnapshot report;  // checked and clipped

  bool present() const { return life != SessionLife::kAbsent; }
};

// Guests control their counters: a sum of them saturates instead of wrapping.
inline void add_counter(uint64_t& to, uint64_t guest_count) {
  if (__builtin_add_overflow(to, guest_count, &to)) to = UINT64_MAX;
}

// The record of `id`, made when it is missing, is as new.
template <class Record>
void reset_record(std::vector<Record>& records, uint32_t id) {
  if (id >= records.size()) records.resize(id + 1);
  records[id] = Record{};
}

}  // namespace sluice::core
