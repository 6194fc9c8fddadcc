// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/memory/freed_memory.h"

#include <algorithm>

namespace sluice::worker {

uint64_t FreedMemory::add(const Allocation& freed, uint32_t stream, uint64_t now_ns) {
  if (blocks_.size() >= kMost) return 0;
  const uint64_t name = next_++;
  blocks_.emplace(name, Block{freed, stream, false, now_ns});
  by_bytes_.emplace(freed.bytes, name);
  charged_ += freed.charged_bytes;
  return name;
}

void FreedMemory::passed(uint64_t block) {
  if (const auto found = blocks_.find(block); found != blocks_.end()) found->second.passed = true;
}

std::optional<Allocation> FreedMemory::take(uint64_t owner, uint32_t stream, uint64_t bytes) {
  const uint64_t most = bytes + bytes / 7;
  for (auto it = by_bytes_.lower_bound(bytes); it != by_bytes_.end() && it->first <= most; ++it) {
    const auto block = blocks_.find(it->second);
    const Block& b = block->second;
    if (b.allocation.owner != owner || (!b.passed && b.stream != stream)) continue;
    Allocation taken = b.allocation;
    taken.bytes = bytes;
    erase(block);
    return taken;
  }
  return std::nullopt;
}

std::vector<Allocation> FreedMemory::take_passed(uint64_t now_ns, uint64_t age_ns) {
  return take_if([=](const Block& b) { return b.passed && now_ns >= b.freed_ns + age_ns; });
}
bool FreedMemory::has_passed() const {
  return std::any_of(blocks_.begin(), blocks_.end(), [](const auto& b) { return b.second.passed; });
}
std::vector<Allocation> FreedMemory::remove_owner(uint64_t owner) {
  return take_if([=](const Block& b) { return b.allocation.owner == owner; });
}

template <class Which>
std::vector<Allocation> FreedMemory::take_if(Which which) {
  std::vector<Allocation> taken;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (!which(it->second)) {
      ++it;
      continue;
    }
    taken.push_back(it->second.allocation);
    it = erase(it);
  }
  return taken;
}

FreedMemory::Blocks::iterator FreedMemory::erase(Blocks::iterator block) {
  const auto [first, last] = by_bytes_.equal_range(block->second.allocation.bytes);
  for (auto it = first; it != last; ++it) {
    if (it->second != block->first) continue;
    by_bytes_.erase(it);
    break;
  }
  charged_ -= block->second.allocation.charged_bytes;
  return blocks_.erase(block);
}

}  // namespace sluice::worker
