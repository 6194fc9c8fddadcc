// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/checker/shadow.h"

#include <algorithm>

namespace sluice::exec::detail {
namespace {
// Pages kept at once (4 KiB each, so 1 GiB): beyond it they are dropped, which forgets and never
// invents.
constexpr size_t kMaxPages = 1u << 18;
}  // namespace

std::shared_ptr<LaunchShadow> GlobalShadow::launch(const void* program, uint64_t grid) {
  std::weak_ptr<LaunchShadow>& known = launches_[{program, grid}];
  if (auto launch = known.lock()) return launch;
  auto launch = std::make_shared<LaunchShadow>();
  launch->number = ++launch_count_;
  known = launch;
  // Those of launches that are over.
  std::erase_if(launches_, [](const auto& entry) { return entry.second.expired(); });
  return launch;
}

ShadowCell& GlobalShadow::cell(const LaunchShadow& launch, uint64_t address) {
  if (pages_.size() > kMaxPages) pages_.clear();
  std::unique_ptr<Page>& page = pages_[address / kPageBytes];
  if (page == nullptr) page = std::make_unique<Page>();
  if (page->launch != launch.number) {
    page->cells.fill({});
    page->launch = launch.number;
  }
  return page->cells[address % kPageBytes / kGranule];
}

void GlobalShadow::add(uint64_t base, uint64_t bytes, bool defined) {
  Allocation& a = allocations_[base];
  a.bytes = bytes;
  a.written.assign(defined ? 0 : bytes, false);
}

void GlobalShadow::remove(uint64_t base) { allocations_.erase(base); }

const GlobalShadow::Allocation* GlobalShadow::find(uint64_t address, uint64_t& offset) const {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return nullptr;
  --it;
  offset = address - it->first;
  return offset < it->second.bytes ? &it->second : nullptr;
}

void GlobalShadow::set_written(uint64_t address, uint64_t bytes) {
  uint64_t offset = 0;
  const Allocation* a = find(address, offset);
  if (a == nullptr || a->written.empty()) return;
  auto& written = const_cast<Allocation*>(a)->written;
  const auto first = written.begin() + static_cast<std::ptrdiff_t>(offset);
  std::fill(first, first + static_cast<std::ptrdiff_t>(std::min(bytes, a->bytes - offset)), true);
}

void GlobalShadow::copy_written(uint64_t to, uint64_t from, uint64_t bytes) {
  uint64_t source = 0, target = 0;
  const Allocation* a = find(from, source);
  const Allocation* b = find(to, target);
  if (b == nullptr || b->written.empty()) return;
  if (a == nullptr || a->written.empty()) return set_written(to, bytes);
  const uint64_t count = std::min({bytes, a->bytes - source, b->bytes - target});
  auto& written = const_cast<Allocation*>(b)->written;
  // As memmove.
  for (uint64_t k = 0; k < count; ++k) {
    const uint64_t i = to <= from ? k : count - 1 - k;
    written[target + i] = a->written[source + i];
  }
}

bool GlobalShadow::never_written(uint64_t address, uint64_t bytes) const {
  uint64_t offset = 0;
  const Allocation* a = find(address, offset);
  if (a == nullptr || a->written.empty()) return false;
  for (uint64_t k = offset; k < std::min(offset + bytes, a->bytes); ++k)
    if (a->written[k]) return false;
  return true;
}

}  // namespace sluice::exec::detail
