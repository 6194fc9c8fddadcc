// SPDX-License-Identifier: Apache-2.0
// Arena: the device memory of this process: one reserved range of addresses from which allocations
// are cut. Pages exist once they are touched and go back to the machine when freed.
//
// Owned by the library's state, one per process; any thread. It does not charge anybody (SharedGpu
// does) and does not know what kernels may touch (the contexts' exec::MemoryMap does).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice::softgpu {

class Arena {
 public:
  // Alignment of every allocation, and the least distance between two, so that running over the end
  // of one never lands in the next. CUDA promises 256.
  static constexpr uint64_t kGranule = 512;
  // What is left of an allocation's last granule: nobody else's.
  static uint64_t room_behind(uint64_t bytes) { return (kGranule - bytes % kGranule) % kGranule; }

  // Reserves several times `memory_bytes` of addresses, so that freed ones rest a long time before
  // they are used again and fragmentation does not matter.
  static Result<void> make(uint64_t memory_bytes, Arena& arena);
  ~Arena();

  // Address of `bytes` (> 0) new bytes, 0 if there is no room. Contents undefined.
  uint64_t allocate(uint64_t bytes);
  // Frees what begins at `base`, which allocate returned. Nobody may touch it any more.
  void free(uint64_t base);
  bool contains(uint64_t address) const { return address - base_ < bytes_; }

  // The pages of an allocation: where they begin, and how many bytes they are.
  static std::pair<uint64_t, uint64_t> pages_of(uint64_t base, uint64_t bytes);
  // Moves the pages of an allocation to `file`, which is as long as they are, with what is in them.
  // A thread that writes there meanwhile waits. They stay there until all of their memory is free.
  Result<void> share(uint64_t base, uint64_t bytes, Fd file);
  // The file in which the pages lie that begin at `page`; -1: in none.
  int file_of(uint64_t page) const;

 private:
  struct Shared {
    uint64_t bytes = 0;
    Fd file;
  };
  uint64_t place(uint64_t need, uint64_t bytes, uint64_t begin, uint64_t end) const;
  void unshare(uint64_t begin, uint64_t end);

  mutable std::mutex mutex_;
  uint64_t base_ = 0;
  uint64_t bytes_ = 0;
  uint64_t next_ = 0;                  // where the next search begins: addresses go round
  std::map<uint64_t, uint64_t> free_;  // base -> bytes, never adjacent
  std::map<uint64_t, uint64_t> used_;  // base -> bytes with granule and gap
  std::map<uint64_t, Shared> shared_;  // by their first page
};

}  // namespace sluice::softgpu
