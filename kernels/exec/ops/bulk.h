// SPDX-License-Identifier: Apache-2.0
// What bulk copies of both kinds (ops_async.cc, ops_tensor_map.cc) do to memory. Internal to
// kernels/exec; the thread in Block::run. Addresses are the host's, resolved before.
#pragma once

#include <cstdint>

#include "kernels/exec/program/ops_async.h"

namespace sluice::exec::detail {

// `bytes` at `from` into those at `to`, element by element and atomically.
void reduce_bytes(BulkReduction op, BulkType type, uint64_t to, const uint8_t* from,
                  uint32_t bytes);
// Bytes have come that an mbarrier waits for.
void complete_bytes(uint64_t barrier, uint32_t bytes);

}  // namespace sluice::exec::detail
