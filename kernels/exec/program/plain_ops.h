// SPDX-License-Identifier: Apache-2.0
// Operations whose handlers are compiled once, not per instruction set: rare ones, whose cost is in
// what they do for one lane. Internal to kernels/exec.
#pragma once

#include <cstdint>

#include "kernels/exec/program/ops_async.h"
#include "kernels/exec/program/ops_narrow.h"
#include "kernels/exec/program/ops_tensor.h"
#include "kernels/exec/program/ops_tensor_map.h"
#include "kernels/exec/program/ops_texture.h"

// All of them: X(name, (handler)).
#define SLUICE_EXEC_PLAIN_OPS(X) \
  SLUICE_EXEC_MATRIX_MOVE_OPS(X) \
  SLUICE_EXEC_ASYNC_OPS(X)       \
  SLUICE_EXEC_TENSOR_MAP_OPS(X) SLUICE_EXEC_NARROW_OPS(X) SLUICE_EXEC_TEXTURE_OPS(X)

#define SLUICE_EXEC_FILL_PLAIN(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_PLAIN_STRIP handler;
#define SLUICE_EXEC_PLAIN_STRIP(...) __VA_ARGS__

namespace sluice::exec::detail {

struct Warp;
struct Inst;
enum class Flow : uint32_t;
using Handler = Flow (*)(Warp& warp, const Inst& inst);

void fill_matrix_move(Handler* table);
void fill_async(Handler* table);
void fill_tensor_map(Handler* table);
void fill_narrow(Handler* table);
void fill_texture(Handler* table);
inline void fill_plain(Handler* table) {
  fill_matrix_move(table);
  fill_async(table);
  fill_tensor_map(table);
  fill_narrow(table);
  fill_texture(table);
}

}  // namespace sluice::exec::detail
