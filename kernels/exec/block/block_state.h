// SPDX-License-Identifier: Apache-2.0
// What the warps of one block share. Internal to kernels/exec; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/program/inst.h"

namespace sluice::exec::detail {

class BlockChecker;

struct BlockState {
  uint8_t* shared = nullptr;
  uint32_t shared_bytes = 0;  // static + dynamic
  uint32_t static_shared_bytes = 0;
  uint8_t* reserved_shared = nullptr;  // kReservedShared
  uint32_t local_bytes = 0;            // of one thread
  const uint8_t* params = nullptr;
  uint32_t param_bytes = 0;
  const uint32_t* aux = nullptr;
  MemoryMap* map = nullptr;
  Environment* environment = nullptr;
  BlockChecker* checker = nullptr;  // null: unchecked
  LaunchShape shape;
  SmPlace place;
  Dim3 ctaid;
  // The blocks of its cluster by rank, itself among them; empty: it is alone.
  std::vector<BlockState*> cluster;
  uint32_t rank = 0;
  bool ended = false;  // every thread has left: its shared memory is no more
  uint32_t warp_count = 0;
  const std::vector<CachedRange>* constants = nullptr;  // where the module's .const variables lie
  std::vector<uint64_t> valid_barriers;  // strict: host addresses of mbarrier objects
  uint64_t clock = 0;                    // %clock: warp instructions that this block has executed
};

// mov from a special register (inst.imm): not worth a copy per instruction set.
void read_special(Warp& warp, const Inst& inst);

// The host address of `bytes` at a global address for one access, or 0. Fills `cached`.
uint64_t find_global(Warp& warp, uint64_t address, uint32_t bytes, bool write, CachedRange& cached);
// The host address of `bytes` at an address in the window of shared memory, or 0: it is beyond the
// memory of the block that it names (kRankShift) and not reserved there (kReservedShared), or that
// block is not there, has ended, or is, in kSpaceShared, another one.
uint64_t find_shared(const BlockState& block, uint32_t space, uint64_t inside, uint32_t bytes);
// Which of these it was.
FaultKind shared_fault(const BlockState& block, uint32_t space, uint64_t inside);
// The block of the cluster that such an address names; null: none.
const BlockState* owner_of(const BlockState& block, uint64_t inside);
// Drops the warp's remembered ranges when the map has changed.
void refresh_ranges(Warp& warp);

}  // namespace sluice::exec::detail
