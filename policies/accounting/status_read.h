// SPDX-License-Identifier: Apache-2.0
// StatusRead: what one read of the status register saw: its value at a moment, or, in a window of
// AdaptivePoller's, for how long it held each value. Pure; plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::accounting {

class StatusRead {
 public:
  static constexpr size_t kParts =
      6;  // different values counted apart; later ones count as the last
  struct Part {
    uint32_t status0 = 0;
    uint64_t ns = 0;
  };
  // At a single moment.
  explicit StatusRead(uint32_t status0) : parts_{{{status0, 1}}}, count_(1), all_ns_(1) {}
  // As long as nothing was added it has no parts, and says nothing.
  StatusRead() = default;

  // The register held `status0` for another `ns`.
  void add(uint32_t status0, uint64_t ns) {
    size_t i = 0;
    while (i < count_ && parts_[i].status0 != status0) ++i;
    if (i == count_ && count_ < kParts) parts_[count_++] = {status0, 0};
    parts_[i < count_ ? i : count_ - 1].ns += ns;
    all_ns_ += ns;
  }
  const Part* begin() const { return parts_.data(); }
  const Part* end() const { return parts_.data() + count_; }
  uint64_t all_ns() const { return all_ns_; }
  // Of the whole read, 0 to 1.
  double part_of(const Part& p) const {
    return all_ns_ ? static_cast<double>(p.ns) / static_cast<double>(all_ns_) : 0;
  }

 private:
  std::array<Part, kParts> parts_{};
  size_t count_ = 0;
  uint64_t all_ns_ = 0;
};

}  // namespace sluice::accounting
