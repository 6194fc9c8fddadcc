// SPDX-License-Identifier: Apache-2.0
// fcfs: first come, first served, what a GPU does by itself (Tanasic et al., "Enabling Preemptive
// Multiprogramming on GPUs", section 2.3: kernel commands are served in order of arrival, one
// process at a time; EffiSha section 8.1 and FLEP section 6.1 call it the default). The baseline
// that the preemptive policies are compared with: it evicts nobody who works, so a vGPU that is
// always busy with one launch starves the others. Weights and priorities mean nothing to it.
//
// Where the driver reports launches, each is served in its turn: a vGPU's next launch queues behind
// those that others queued meanwhile. Where it does not, a vGPU keeps the GPU until it has no work.
#include "policies/parts/kernel_queue.h"

namespace sluice::policy {
namespace {

class Fcfs final : public KernelQueue {
 public:
  explicit Fcfs(const Config& config) : KernelQueue(config) {}
  std::string_view name() const override { return "fcfs"; }

 protected:
  void enqueue(uint64_t, uint32_t slot, bool) override { heap_.push(slot); }
  void dequeue(uint64_t, uint32_t slot) override { heap_.remove(slot); }
  uint32_t first(uint64_t) override { return heap_.empty() ? kNone : heap_.top(); }

 private:
  struct Less {
    const Fcfs* q;
    bool operator()(uint32_t a, uint32_t b) const { return q->job(a).seq < q->job(b).seq; }
  };
  IndexedHeap<Less> heap_{Less{this}};
};

}  // namespace

std::unique_ptr<Policy> make_fcfs(const Config& config) { return std::make_unique<Fcfs>(config); }

}  // namespace sluice::policy
