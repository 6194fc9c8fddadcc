// SPDX-License-Identifier: Apache-2.0
// SmGroups: the smallest groups that the driver splits a GPU's SMs into. Only a union of them can
// be a green context. SMs size * k to size * k + size - 1 are group k. A value.
#pragma once

#include <cstdint>

#include "mediator/base/sm_set.h"

namespace sluice::worker {

struct SmGroups {
  uint32_t size = 0;  // SMs of each; 0: not known yet
  SmSet all;          // the SMs of all groups

  // `count` groups of `size`, on a GPU of `sms` SMs, which may have some that are in no group.
  static SmGroups of(uint32_t size, uint32_t count, uint32_t sms) {
    return {size, SmSet(0, size * count < sms ? size * count : sms)};
  }
  bool known() const { return size != 0; }
  bool is_union(const SmSet& sms) const {
    if (!all.contains_all(sms)) return false;
    for (uint32_t lo = 0; lo < all.count(); lo += size) {
      const SmSet group(lo, lo + size);
      if (sms.meets(group) && !sms.contains_all(group)) return false;
    }
    return true;
  }
};

}  // namespace sluice::worker
