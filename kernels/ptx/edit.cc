// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/edit.h"

#include <algorithm>

#include "mediator/base/check.h"

namespace sluice::ptx {

void Edits::replace(Range range, std::string text) {
  SLUICE_CHECK(range.begin <= range.end);
  edits_.push_back({range, std::move(text)});
}

std::string Edits::apply(std::string_view text, Range range) const {
  std::vector<const Edit*> order;
  order.reserve(edits_.size());
  std::size_t added = 0;
  for (const Edit& e : edits_) {
    order.push_back(&e);
    added += e.text.size();
  }
  // Insertions sort before a replacement that begins at the same byte.
  std::stable_sort(order.begin(), order.end(), [](const Edit* a, const Edit* b) {
    if (a->range.begin != b->range.begin) return a->range.begin < b->range.begin;
    return (a->range.size() == 0) > (b->range.size() == 0);
  });
  std::string out;
  out.reserve(range.size() + added);
  std::uint32_t at = range.begin;
  for (const Edit* e : order) {
    SLUICE_CHECK(e->range.begin >= at && e->range.end <= range.end);
    out.append(text.substr(at, e->range.begin - at));
    out.append(e->text);
    at = e->range.end;
  }
  out.append(text.substr(at, range.end - at));
  return out;
}

}  // namespace sluice::ptx
