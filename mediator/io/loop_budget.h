// SPDX-License-Identifier: Apache-2.0
// LoopBudget: how much of the loop's time the descriptors of one vGPU may take, whatever one call
// costs. LoopBudgets: what all vGPUs of a loop may take together.
//
// Terms   cost   processor time of the loop's thread in one call of a watched descriptor, and to
//                come to it (three times as much as in the call of a worker that does nothing but
//                ring)
//         share  the part of the loop's time that a vGPU may take now:
//                  LoopShares::each, while all vGPUs together take no more than LoopShares::all;
//                  else its equal part of LoopShares::all among those that were served lately
//         debt   cost beyond the burst and the share; its descriptors rest until it is paid back
//         awaited  a descriptor whose next word other vGPUs wait for: of a holder of the GPU. Of
//                those whose vGPUs are in debt, the cost goes to a share of the loop of their own,
//                LoopShares::awaited, and they rest no longer than that asks
//
//   turn     of a descriptor whose vGPU is in debt: when the debt is paid back, and those that
//            asked earlier have been served, if each costs as much as the costliest of late
//
// A descriptor that becomes readable while its vGPU is in debt rests until its turn, also if it has
// never been served: else each of a thousand sessions would cost the loop one call, all in a row.
// It is served after kMostRests turns whatever is owed then, so it is never forgotten. The debt of
// one vGPU is not another's, and delays nothing that another one waits for.
//
// Used from the loop's thread only. Reads no clock: time is an argument.
#pragma once

#include <cstdint>
#include <memory>

#include "mediator/base/limits.h"

namespace sluice::io {

struct LoopShares {
  double each = limits::kVgpuLoopShare;
  double all = limits::kAllVgpusLoopShare;
  // Beyond them, at once. That of each is less while its share is.
  uint64_t burst_ns = limits::kVgpuLoopBurstMs * 1'000'000;
  uint64_t all_burst_ns = limits::kAllVgpusLoopBurstMs * 1'000'000;
  uint64_t lately_ns = 100'000'000;  // shares are of those that were served so short ago
  // Of awaited descriptors of vGPUs in debt, all together, and at once.
  double awaited = limits::kAwaitedLoopShare;
  uint64_t awaited_burst_ns = limits::kAwaitedLoopBurstMs * 1'000'000;
};

class LoopBudget;

class LoopBudgets {
 public:
  explicit LoopBudgets(const LoopShares& shares);
  // Of one vGPU. May outlive this object.
  std::shared_ptr<LoopBudget> make();

 private:
  friend class LoopBudget;
  struct Common;
  std::shared_ptr<Common> common_;
};

class LoopBudget {
 public:
  explicit LoopBudget(std::shared_ptr<LoopBudgets::Common> common);
  ~LoopBudget();
  LoopBudget(const LoopBudget&) = delete;
  LoopBudget& operator=(const LoopBudget&) = delete;

  enum class Descriptor : uint8_t { kOrdinary, kAwaited };
  // In a row, before it is served. Fewer: calls that cost more than those before all come in the
  // same turn of the loop. More: such a vGPU's descriptors wait for longer.
  static constexpr unsigned kMostRests = 2;
  // One of its descriptors is readable. For how long it has to rest first; 0: not at all.
  uint64_t rest_before_ns(uint64_t now_ns, Descriptor of = Descriptor::kOrdinary);
  // A call of one of its descriptors took `cost_ns`, until now. For how long that descriptor has to
  // rest; 0: not at all.
  uint64_t take(uint64_t now_ns, uint64_t cost_ns, Descriptor of = Descriptor::kOrdinary);
  // What is done for it without a descriptor: whether it owes, so that this is left to a later
  // time; and what it took.
  bool in_debt(uint64_t now_ns);
  void charge(uint64_t now_ns, uint64_t cost_ns);
  // For how long one that rests still has to, if it is awaited from now on.
  uint64_t awaited_rest_ns(uint64_t now_ns);

 private:
  friend struct LoopBudgets::Common;
  double earn(uint64_t now_ns);
  uint64_t turn_ns(uint64_t now_ns, double share, Descriptor of);

  std::shared_ptr<LoopBudgets::Common> common_;
  double credit_ns_;
  uint64_t at_ns_ = 0;         // of credit_ns_; 0: it was never asked for
  uint64_t served_ns_ = 0;     // a descriptor of it was, or came; 0: never
  uint64_t costliest_ns_ = 0;  // call lately
  uint64_t next_turn_ns_ = 0;  // not before the turns that were given
};

}  // namespace sluice::io
