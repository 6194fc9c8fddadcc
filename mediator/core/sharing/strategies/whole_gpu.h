// SPDX-License-Identifier: Apache-2.0
// WholeGpu: what Exclusive and Slices have in common. A vGPU holds the GPU or does not (HoldState
// in state.h). All its gates close together. Owned by Sharing as its strategy, one thread.
#pragma once

#include "mediator/core/sharing/strategy.h"

namespace sluice::core {

class WholeGpu : public SharingStrategy {
 public:
  bool gates_open(VgpuId v) const override;
  uint32_t charged_sms(VgpuId v) const override;
  void on_drained(uint64_t now_ns, VgpuId v, ActionQueue& out) override;
  void on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) override;

 protected:
  explicit WholeGpu(Sharing& sharing) : sharing_(sharing) {}
  void open(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void close(uint64_t now_ns, VgpuId v, ActionQueue& out);

  // The holder has changed.
  virtual void on_opened(uint64_t now_ns, VgpuId v) = 0;
  virtual void on_evicted_running(uint64_t /*evicted_at_ns*/) {}  // it had launches in flight
  virtual void on_freed(uint64_t now_ns) = 0;

  Sharing& sharing_;
};

}  // namespace sluice::core
