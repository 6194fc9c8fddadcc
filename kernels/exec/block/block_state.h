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
  uint32_t local_bytes = 0;  // of one thread
  const uint8_t* params = nullptr;
  uint32_t param_bytes = 0;
  const uint32_t* aux = nullptr;
  MemoryMap* map = nullptr;
  Environment* environment = nullptr;
  BlockChecker* checker = nullptr;  // null: unchecked
  LaunchShape shape;
  SmPlace place;
  Dim3 ctaid;
  uint32_t warp_count = 0;
  const std::vector<CachedRange>* constants = nullptr;  // where the module's .const variables lie
  std::vector<uint64_t> valid_barriers;  // strict: host addresses of mbarrier objects
  uint64_t clock = 0;                    // %clock: warp instructions that this block has executed
};

// mov from a special register (inst.imm): not worth a copy per instruction set.
void read_special(Warp& warp, const Inst& inst);

// The host address of `bytes` at a global address for one access, or 0. Fills `cached`.
uint64_t find_global(Warp& warp, uint64_t address, uint32_t bytes, bool write, CachedRange& cached);
// Drops the warp's remembered ranges when the map has changed.
void refresh_ranges(Warp& warp);

}  // namespace sluice::exec::detail
