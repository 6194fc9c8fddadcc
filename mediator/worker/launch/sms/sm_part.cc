// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/sms/sm_part.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "mediator/base/check.h"

namespace sluice::worker {

Part plan_part(const SmSet& sms, uint32_t gpu_sms, uint32_t per_sm, uint32_t chunks,
               uint32_t most_blocks) {
  const uint32_t count = sms.count();
  SLUICE_CHECK(count != 0 && per_sm != 0 && chunks != 0);
  Part p;
  p.lo = sms.next_range().lo;
  for (SmSet::Range r = sms.next_range(); r.lo < r.hi; r = sms.next_range(r.hi)) p.hi = r.hi;
  p.barred = SmSet(p.lo, p.hi) - sms;
  p.workers = static_cast<uint32_t>(std::min(uint64_t{count} * per_sm, uint64_t{chunks}));
  p.quota = std::min((p.workers + count - 1) / count, 0xffffu);
  p.tail_shift = static_cast<uint8_t>(std::bit_width(2 * p.workers - 1));
  const uint64_t over = uint64_t{gpu_sms} * std::min(p.quota * kOverLaunch, per_sm);
  p.blocks = static_cast<uint32_t>(std::clamp<uint64_t>(over, 1, std::max(most_blocks, 1u)));
  return p;
}

SmSet share_of(const SmSet& own, const SmSet& part, uint32_t gpu_sms) {
  std::vector<uint32_t> pairs;  // of `part`, by the first SM's number
  for (uint32_t sm = 0; sm < SmSet::kMax; sm += 2)
    if (part.meets(SmSet(sm, sm + 2))) pairs.push_back(sm);
  SmSet share;
  const uint64_t all = std::max((gpu_sms + 1) / 2, 1u);
  for (uint32_t sm = 0; sm < gpu_sms && !pairs.empty(); sm += 2) {
    if (!own.meets(SmSet(sm, sm + 2))) continue;
    const uint32_t at = pairs[std::min(sm / 2 * pairs.size() / all, pairs.size() - 1)];
    share = share | (part & SmSet(at, at + 2));
  }
  return share;
}

}  // namespace sluice::worker
