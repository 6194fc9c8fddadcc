// SPDX-License-Identifier: Apache-2.0
// Traces: what happened on a GPU, one JSON object a line (docs/operating/simulator.md). The
// recorder is an Observer of the simulator; sluiced writes the same format
// (mediator/daemon/scheduling/trace_file.h). A trace replayed is a workload: each interval in which
// a vGPU had work becomes one run whose work is the GPU time that it got in it. Pure: text in, text
// out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mediator/base/result.h"
#include "policies/sim/simulation.h"
#include "policies/sim/workload.h"

namespace sluice::policy::sim {

// Some five million lines. sluice-sim reads twice as much.
inline constexpr size_t kMaxTraceBytes = 512u << 20;

class TraceRecorder final : public Observer {
 public:
  explicit TraceRecorder(const Workload& w);
  void on_busy(uint64_t now_ns, VgpuId v) override;
  void on_idle(uint64_t now_ns, VgpuId v) override;
  void on_grant(uint64_t now_ns, VgpuId v, LaunchId l, SmRange sms) override;
  void on_evict(uint64_t now_ns, VgpuId v, LaunchId l, SmRange sms) override;
  void on_left(uint64_t now_ns, VgpuId v, LaunchId l, SmRange sms, LeftReason why) override;
  void on_launch(uint64_t now_ns, const Launch& l, uint32_t program, uint32_t kernel) override;
  void on_done(uint64_t now_ns, LaunchId l) override;
  void on_share(uint64_t now_ns, VgpuId v, const VgpuShare& share) override;

  const std::string& text() const { return text_; }
  // Not all of it is written: it would be longer than kMaxTraceBytes.
  bool full() const { return full_; }

 private:
  void line(uint64_t now_ns, std::string_view event, VgpuId v, const std::string& rest = {});

  std::vector<std::string> vgpus_, programs_, kernels_;  // quoted
  std::vector<VgpuId> vgpu_of_launch_;
  std::string text_;
  bool full_ = false;
};

// Errors name the line. The file may be hostile.
sluice::Result<Workload> parse_trace(std::string_view text);

}  // namespace sluice::policy::sim
