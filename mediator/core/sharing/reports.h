// SPDX-License-Identifier: Apache-2.0
// Reports: what the workers report, and when the policy hears of it.
//
// A report is a hint: it is checked and clipped here. Two of its properties need care, so that no
// decision rests on old news:
//   - a holder with which nobody competes (kAlone) does not ring when it turns idle or busy. When
//     another vGPU becomes backlogged, the holder's grant words get the contended flag and its
//     reports are read, *before* the policy hears of the newcomer;
//   - a contended holder's session that rings idle speaks for itself only. Sessions beside it may
//     have found work without ringing, because their gate is open. Their reports are read before
//     the vGPU counts as idle.
// Closed words carry the contended flag too, so a session whose gate is closed rings at each change
// between work and no work.
//
// Owned by Sharing, one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "mediator/core/sharing/state.h"

namespace sluice::core {

struct Sharing;

class Reports {
 public:
  explicit Reports(Sharing& sharing) : sharing_(sharing) {}

  // Asks for the report of `s`.
  void read(SessionId s, ActionQueue& out);
  // One has come, or will not come any more.
  void answered(SessionId s);
  void forget_session(SessionId s);
  bool outstanding() const { return outstanding_ > 0; }

  // `report` is the first since v ceased to be alone: the policy hears how v came and went.
  void report_rhythm(uint64_t now_ns, SessionId s, const ReportSnapshot& report);
  // Checks and keeps a report.
  void accept(SessionId s, const ReportSnapshot& report, ActionQueue& out);
  void set_backlogged(SessionId s, bool backlogged);
  // The policy has to hear of v again.
  void mark(VgpuId v, News news);
  void forget_vgpu(VgpuId v);

  // Brings the contended flags and the policy's knowledge up to date, as far as reports are in.
  void settle(uint64_t now_ns, ActionQueue& out);
  void turn_busy(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void turn_idle(uint64_t now_ns, VgpuId v, ActionQueue& out);

  uint32_t others_backlogged(VgpuId v) const {
    return backlogged_vgpus_ - (sharing_backlogged(v) ? 1 : 0);
  }

 private:
  // Less says little of how a vGPU comes and goes.
  static constexpr uint64_t kAloneNs = 20'000'000;

  bool sharing_backlogged(VgpuId v) const;
  bool update_contended(uint64_t now_ns, ActionQueue& out);
  bool confirm_idle(VgpuId v, ActionQueue& out);
  VgpuId next_news() const;
  void announce(uint64_t now_ns, VgpuId v, ActionQueue& out);

  Sharing& sharing_;
  uint32_t outstanding_ = 0;  // kReadReport without its on_report() yet
  uint32_t backlogged_vgpus_ = 0;
  std::vector<VgpuId> news_;  // vGPUs with News other than kNone
};

}  // namespace sluice::core
