// SPDX-License-Identifier: Apache-2.0
// CopyEngine: one of the simulated GPU's two copy engines (to the device, to the host). It carries
// one copy, or a part of one, at a time. With parts, vGPUs share it by weight: whoever's next part
// begins first in virtual time (start-time fair queuing, Goyal, Vin and Cheng 1996); who was away
// keeps neither debt nor credit. Without parts it does what hardware does: one copy after the other
// in the order in which they came. Copies of one vGPU are carried in order.
//
// The simulation owns it and drives its clock. Pure; one thread; ns of the engine alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

namespace sluice::policy::sim {

class CopyEngine {
 public:
  struct Copy {
    uint32_t program = 0;
    uint64_t left_ns = 0;
    uint64_t order = 0;
  };

  // `part_ns` 0: copies are not parted.
  CopyEngine(uint64_t part_ns, size_t vgpus) : part_ns_(part_ns), vgpus_(vgpus) {}

  void add(uint32_t vgpu, uint32_t program, uint64_t ns) {
    Flow& f = vgpus_[vgpu];
    if (f.copies.empty()) f.start = std::max(f.start, now_);
    f.copies.push_back({program, ns, ++order_});
  }

  bool busy() const { return busy_; }
  // Begins the next part where there is one, and none under way; how long it takes, or 0.
  template <class WeightOf>
  uint64_t begin(const WeightOf& weight_of) {
    if (busy_) return 0;
    Flow* next = nullptr;
    for (Flow& f : vgpus_)
      if (!f.copies.empty() && (!next || before(f, *next))) next = &f;
    if (!next) return 0;
    busy_ = true;
    served_ = static_cast<uint32_t>(next - vgpus_.data());
    const uint64_t left = next->copies.front().left_ns;
    part_now_ns_ = part_ns_ ? std::min(part_ns_, left) : left;
    now_ = next->start;
    next->start += static_cast<double>(part_now_ns_) / weight_of(served_);
    return part_now_ns_;
  }
  // The part has ended. Whose it was, how long; `copy` is taken out if it has ended with it.
  struct Ended {
    uint32_t vgpu = 0;
    uint64_t ns = 0;
    bool whole = false;
    Copy copy;
  };
  Ended end() {
    busy_ = false;
    Flow& f = vgpus_[served_];
    Ended e{.vgpu = served_, .ns = part_now_ns_, .copy = f.copies.front()};
    f.copies.front().left_ns -= part_now_ns_;
    e.whole = f.copies.front().left_ns == 0;
    if (e.whole) f.copies.pop_front();
    return e;
  }

 private:
  struct Flow {
    std::deque<Copy> copies;
    double start = 0;  // of its next part, in virtual time
  };
  bool before(const Flow& a, const Flow& b) const {
    if (part_ns_ && a.start != b.start) return a.start < b.start;
    return a.copies.front().order < b.copies.front().order;
  }

  const uint64_t part_ns_;
  std::vector<Flow> vgpus_;
  double now_ = 0;  // virtual time: the start of what was begun last
  uint64_t order_ = 0, part_now_ns_ = 0;
  uint32_t served_ = 0;
  bool busy_ = false;
};

}  // namespace sluice::policy::sim
