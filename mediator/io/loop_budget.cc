// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/loop_budget.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice::io {

struct LoopBudgets::Common {
  // This much of the loop's time, and this much at once.
  struct Bucket {
    double share;
    double burst_ns;
    double credit_ns = burst_ns;
    uint64_t at_ns = 0;

    void take(uint64_t now_ns, uint64_t cost_ns) {
      if (at_ns != 0) credit_ns += share * static_cast<double>(now_ns - at_ns);
      credit_ns = std::min(credit_ns, burst_ns);
      at_ns = now_ns;
      credit_ns -= static_cast<double>(cost_ns);
    }
    uint64_t rest_ns() const {
      return credit_ns >= 0 ? 0 : static_cast<uint64_t>(-credit_ns / share);
    }
  };

  explicit Common(const LoopShares& s)
      : shares(s),
        all{s.all, static_cast<double>(s.all_burst_ns)},
        awaited{s.awaited, static_cast<double>(s.awaited_burst_ns)} {}

  // Of each that was served lately, the asker included.
  double share(uint64_t now_ns) const {
    if (all.credit_ns >= 0) return shares.each;
    const auto active = std::count_if(budgets.begin(), budgets.end(), [&](const LoopBudget* b) {
      return b->served_ns_ != 0 && now_ns - b->served_ns_ <= shares.lately_ns;
    });
    return std::min(shares.each, shares.all / static_cast<double>(active));
  }

  const LoopShares shares;
  Bucket all, awaited;
  std::vector<LoopBudget*> budgets;
};

LoopBudgets::LoopBudgets(const LoopShares& shares) : common_(std::make_shared<Common>(shares)) {}

std::shared_ptr<LoopBudget> LoopBudgets::make() { return std::make_shared<LoopBudget>(common_); }

LoopBudget::LoopBudget(std::shared_ptr<LoopBudgets::Common> common)
    : common_(std::move(common)), credit_ns_(static_cast<double>(common_->shares.burst_ns)) {
  common_->budgets.push_back(this);
}

LoopBudget::~LoopBudget() { std::erase(common_->budgets, this); }

// What its share has come to since it was asked last. Returns that share.
double LoopBudget::earn(uint64_t now_ns) {
  const uint64_t since_ns = at_ns_ == 0 ? 0 : now_ns - at_ns_;
  at_ns_ = now_ns;
  const LoopShares& shares = common_->shares;
  const double share = common_->share(now_ns);
  const double burst_ns = static_cast<double>(shares.burst_ns) * share / shares.each;
  credit_ns_ = std::min(burst_ns, credit_ns_ + share * static_cast<double>(since_ns));
  return share;
}

uint64_t LoopBudget::turn_ns(uint64_t now_ns, double share, Descriptor of) {
  if (credit_ns_ >= 0) return 0;
  const uint64_t paid_ns = now_ns + static_cast<uint64_t>(-credit_ns_ / share);
  const uint64_t turn_ns = std::max(paid_ns, next_turn_ns_);
  if (of == Descriptor::kAwaited) return std::min(turn_ns - now_ns, common_->awaited.rest_ns());
  next_turn_ns_ = turn_ns + static_cast<uint64_t>(static_cast<double>(costliest_ns_) / share);
  return turn_ns - now_ns;
}

uint64_t LoopBudget::take(uint64_t now_ns, uint64_t cost_ns, Descriptor of) {
  served_ns_ = now_ns;
  // Served for others' sake: its own debt stays as it was.
  const bool for_others = of == Descriptor::kAwaited && credit_ns_ < 0;
  (for_others ? common_->awaited : common_->all).take(now_ns, cost_ns);
  const double share = earn(now_ns);
  if (!for_others) credit_ns_ -= static_cast<double>(cost_ns);
  constexpr uint64_t kForgetting = 16;  // calls
  costliest_ns_ = std::max(cost_ns, costliest_ns_ - costliest_ns_ / kForgetting);
  return turn_ns(now_ns, share, of);
}

uint64_t LoopBudget::rest_before_ns(uint64_t now_ns, Descriptor of) {
  served_ns_ = now_ns;
  common_->all.take(now_ns, 0);
  common_->awaited.take(now_ns, 0);
  return turn_ns(now_ns, earn(now_ns), of);
}

bool LoopBudget::in_debt(uint64_t now_ns) {
  (void)earn(now_ns);
  return credit_ns_ < 0;
}

void LoopBudget::charge(uint64_t now_ns, uint64_t cost_ns) {
  common_->all.take(now_ns, cost_ns);
  (void)earn(now_ns);
  credit_ns_ -= static_cast<double>(cost_ns);
}

uint64_t LoopBudget::awaited_rest_ns(uint64_t now_ns) {
  common_->awaited.take(now_ns, 0);
  return common_->awaited.rest_ns();
}

}  // namespace sluice::io
