// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/session_services.h"

namespace sluice {

std::optional<uint64_t> StallCosts::of_xid(int number) const {
  switch (number) {
    case 31:
      return fault_ns;  // an address that is not mapped
    case 13:
      return exception_ns;  // an exception of an SM
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> StallCosts::of(uint64_t cuda_error) const {
  switch (cuda_error) {
    case 700:
      return fault_ns;  // illegal address
    case 710:
      return 0;  // assert
    case 714:    // stack
    case 715:    // illegal instruction
    case 716:    // misaligned address
    case 717:    // address space
    case 718:    // program counter
    case 719:    // launch failed: a trap, or an address beyond shared memory
      return exception_ns;
    default:
      return std::nullopt;
  }
}

uint32_t DenseIds::take() {
  size_t id = 0;
  while (id < taken_.size() && taken_[id]) ++id;
  if (id == taken_.size()) taken_.push_back(false);
  taken_[id] = true;
  return static_cast<uint32_t>(id);
}

}  // namespace sluice
