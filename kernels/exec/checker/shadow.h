// SPDX-License-Identifier: Apache-2.0
// Shadow memory of the checker: who touched which bytes last, and which bytes have been written.
// Internal to kernels/exec (Checker owns the one of global memory, BlockChecker those of its
// block).
//
// A record says when (a count of the launch's checked instructions), which block and thread, at
// which PTX line. Whether one access came before another is for BlockChecker to say.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace sluice::exec::detail {

struct AccessRecord {
  uint32_t time = 0;   // 0: none
  uint32_t block = 0;  // linear %ctaid
  uint32_t line = 0;   // PTX
  uint16_t thread = 0;
  uint8_t strong = 0;  // volatile, relaxed or stronger, atomic
  uint8_t mask = 0;    // which bytes of the granule
};
static_assert(sizeof(AccessRecord) == 16);

// Of one granule: the last write, and two reads: the last one, and the last one by another warp or
// block than that. More readers than two are forgotten, so a race with one of them may be missed.
struct ShadowCell {
  AccessRecord write, read, other_read;
  // Shared memory: a write that `write` raced with. Reported when the result is read: what
  // is thrown away may be written by all at once.
  AccessRecord contested;
};

// What a strong write has made known: all that these blocks did up to these times. Writes only as
// far as a fence or the release covers them; reads up to the strong write itself, because they had
// got their values by then.
struct KnownTime {
  uint32_t writes = 0, reads = 0;
};
using KnownTimes = std::unordered_map<uint32_t, KnownTime>;  // by block

// One launch, as long as blocks of it run.
struct LaunchShadow {
  uint32_t number = 0;  // different for each
  uint32_t time = 0;    // of the last checked instruction; under the shadow's mutex
  // What a strong read of a location teaches its reader. Under the shadow's mutex.
  std::unordered_map<uint64_t, KnownTimes> published;
};

class GlobalShadow {
 public:
  static constexpr uint32_t kGranule = 4;  // bytes of one cell
  static constexpr uint32_t kPageBytes = 256;

  // Held during each checked access to global memory, from before it is made until it is recorded:
  // what a strong access publishes must be there when another one reads it.
  std::mutex& mutex() { return mutex_; }

  // The rest is called with the mutex held.
  // Blocks of one launch get the same object: those of one program, entry and grid number.
  std::shared_ptr<LaunchShadow> launch(const void* program, uint64_t grid);
  ShadowCell& cell(const LaunchShadow& launch, uint64_t address);
  void add(uint64_t base, uint64_t bytes, bool defined);
  void remove(uint64_t base);
  void set_written(uint64_t address, uint64_t bytes);
  void copy_written(uint64_t to, uint64_t from, uint64_t bytes);
  // True where none of the bytes has ever been written, and that is known.
  bool never_written(uint64_t address, uint64_t bytes) const;

 private:
  struct Allocation {
    uint64_t bytes = 0;
    std::vector<bool> written;  // empty: all of it
  };
  struct Page {
    uint32_t launch = 0;
    std::array<ShadowCell, kPageBytes / kGranule> cells;
  };
  const Allocation* find(uint64_t address, uint64_t& offset) const;

  std::mutex mutex_;
  std::map<uint64_t, Allocation> allocations_;  // by base
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::map<std::pair<const void*, uint64_t>, std::weak_ptr<LaunchShadow>> launches_;
  uint32_t launch_count_ = 0;
};

}  // namespace sluice::exec::detail
