// fcfs: vGPUs get the whole GPU in the order in which they came to have work, and keep it until they
// have none. The baseline that the preemptive policies are compared with; it evicts nobody who works,
// so a vGPU that is always busy starves the others. Weights and priorities mean nothing to it.
#include <algorithm>
#include <deque>
#include <vector>

#include "policies/policy.h"

namespace sluice::policy {
namespace {

class Fcfs final : public Policy {
 public:
  std::string_view name() const override { return "fcfs"; }

  void on_vgpu_added(uint64_t, VgpuId v, const VgpuShare&, Actions&) override {
    if (v >= busy_.size()) busy_.resize(v + 1);
    busy_[v] = false;
  }
  void on_vgpu_changed(uint64_t, VgpuId, const VgpuShare&, Actions&) override {}
  void on_vgpu_removed(uint64_t, VgpuId, Actions&) override {}
  void on_arrival(uint64_t, VgpuId v, Actions& out) override {
    busy_[v] = true;
    if (v != holder_ || leaving_) waiting_.push_back(v);
    decide(out);
  }
  void on_idle(uint64_t, VgpuId v, Actions& out) override {
    busy_[v] = false;
    std::erase(waiting_, v);
    decide(out);
  }
  void on_usage(uint64_t, VgpuId, const Usage&) override {}
  void on_left(uint64_t, VgpuId v, LeftReason, Actions& out) override {
    if (v == holder_) {
      holder_ = kNoVgpu;
      // Taken away for a short gap and busy again: at the end of the queue, once.
      if (busy_[v] && std::find(waiting_.begin(), waiting_.end(), v) == waiting_.end())
        waiting_.push_back(v);
      leaving_ = false;
    }
    decide(out);
  }
  void on_wake(uint64_t, Actions&) override {}

 private:
  void decide(Actions& out) {
    if (leaving_ || waiting_.empty()) return;
    if (holder_ != kNoVgpu) {
      if (busy_[holder_]) return;
      leaving_ = true;
      out.push_back(Action::evict(holder_, waiting_.front()));
      return;
    }
    holder_ = waiting_.front();
    waiting_.pop_front();
    out.push_back(Action::run(holder_));
  }

  std::vector<char> busy_;
  std::deque<VgpuId> waiting_;
  VgpuId holder_ = kNoVgpu;
  bool leaving_ = false;
};

}  // namespace

std::unique_ptr<Policy> make_fcfs(const Config&) { return std::make_unique<Fcfs>(); }

}  // namespace sluice::policy
