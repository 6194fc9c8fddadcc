// SPDX-License-Identifier: Apache-2.0
// Which instructions make threads wait for each other, and where a barrier lies ahead. Pure; any
// thread.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/ptx/cfg.h"
#include "kernels/ptx/dominators.h"

namespace sluice::passes {

// Shuffles, votes, matrix instructions, warp barriers: what lanes of a warp do together.
bool is_collective(const ptx::Statement& s);

// A barrier of all threads of the block on number 0; with a guard only where `guarded` allows it.
bool is_block_barrier(const ptx::Statement& s, bool guarded = false);

// By block: whether such a barrier stands in it or in a block that every path from it to the end
// passes. There the original's lanes are waiting too, not gone, so that parking a thread in the
// clone's loop is nothing new.
std::vector<bool> barrier_follows(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators);

}  // namespace sluice::passes
