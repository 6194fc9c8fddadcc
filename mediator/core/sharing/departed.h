// SPDX-License-Identifier: Apache-2.0
// Departed: vGPUs that were removed lately. To the policy they are still there, and idle: one that
// is made again under its name has the debts, empty buckets and used-up credits of its earlier
// life. When they were forgotten at once, a vGPU that was made again each 2 ms had twice its share.
// Names are the owner's. Part of Sharing, same thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "policies/policy.h"

namespace sluice::core {

class Departed {
 public:
  // Longer: vGPUs that do not come back count in what others' shares of all of them are; shorter:
  // debts end sooner than a heavy sibling would have been paid.
  static constexpr uint64_t kRememberedNs = 1'000'000'000;
  static constexpr size_t kMost = 64;  // each has an id that no other vGPU can have

  void add(uint64_t now_ns, std::string_view name, policy::VgpuId v) {
    all_.push_back({std::string(name), v, now_ns});
  }
  // The vGPU of that name, which is here no longer.
  std::optional<policy::VgpuId> take(std::string_view name) {
    const auto at = std::find_if(all_.begin(), all_.end(),
                                 [&](const One& o) { return !name.empty() && o.name == name; });
    if (at == all_.end()) return std::nullopt;
    const policy::VgpuId v = at->vgpu;
    all_.erase(at);
    return v;
  }
  bool contains(policy::VgpuId v) const {
    return std::any_of(all_.begin(), all_.end(), [&](const One& o) { return o.vgpu == v; });
  }
  // One whose time is over, if there is one; `room`: or the oldest.
  std::optional<policy::VgpuId> forget(uint64_t now_ns, bool room = false) {
    if (all_.empty()) return std::nullopt;
    const bool over = all_.front().since_ns + kRememberedNs <= now_ns || all_.size() > kMost;
    if (!over && !room) return std::nullopt;
    const policy::VgpuId v = all_.front().vgpu;
    all_.pop_front();
    return v;
  }

 private:
  struct One {
    std::string name;
    policy::VgpuId vgpu;
    uint64_t since_ns;
  };
  std::deque<One> all_;  // the first gone first
};

}  // namespace sluice::core
