// SPDX-License-Identifier: Apache-2.0
// BusGuard: keeps this process alive when a file that it has mapped loses its pages. A mapping of a
// file that others may truncate ends in SIGBUS at the next access; within a guarded range zeros are
// read instead from then on (writes go nowhere), and lost() tells. SIGBUS elsewhere is as deadly as
// ever.
//
// Owned by whoever owns the mapping; made after mmap, destroyed before munmap, from any thread. The
// signal's handler is installed by the first guard and stays.
#pragma once

#include <cstddef>

namespace sluice {

class BusGuard {
 public:
  BusGuard() = default;
  // `address` is page aligned. With more guards than kMost at once this one guards nothing.
  BusGuard(void* address, size_t bytes);
  BusGuard(BusGuard&& other) noexcept : slot_(other.slot_) { other.slot_ = -1; }
  BusGuard& operator=(BusGuard&& other) noexcept;
  ~BusGuard();

  // A page was gone when it was read: what is read is not the file any more.
  bool lost() const;

  static constexpr int kMost = 64;

 private:
  int slot_ = -1;
};

}  // namespace sluice
