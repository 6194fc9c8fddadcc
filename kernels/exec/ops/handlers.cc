// SPDX-License-Identifier: Apache-2.0
// The table of handlers: filled once from the files of the best instruction set that the machine
// has. SLUICE_SOFT_ISA=base|avx2|avx512 asks for a lesser one, for tests.
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "kernels/exec/block/warp.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/plain_ops.h"

namespace sluice::exec::detail {

#define SLUICE_EXEC_DECLARE(isa)           \
  void fill_int_##isa(Handler*);           \
  void fill_bits_##isa(Handler*);          \
  void fill_move_##isa(Handler*);          \
  void fill_mem_##isa(Handler*);           \
  void fill_atomic_##isa(Handler*);        \
  void fill_float_##isa(Handler*);         \
  void fill_convert_##isa(Handler*);       \
  void fill_tensor_##isa(Handler*);        \
  void fill_warpgroup_##isa(Handler*);     \
  inline void fill_##isa(Handler* table) { \
    fill_int_##isa(table);                 \
    fill_bits_##isa(table);                \
    fill_move_##isa(table);                \
    fill_mem_##isa(table);                 \
    fill_atomic_##isa(table);              \
    fill_float_##isa(table);               \
    fill_convert_##isa(table);             \
    fill_tensor_##isa(table);              \
    fill_warpgroup_##isa(table);           \
  }
SLUICE_EXEC_DECLARE(base)
#if SLUICE_EXEC_ALL_ISAS
SLUICE_EXEC_DECLARE(avx2)
SLUICE_EXEC_DECLARE(avx512)
#endif

void fill_rare(Handler* table);  // ops_rare.cc

namespace {

Flow take_control(Warp&, const Inst&) { return Flow::kControl; }

struct HandlerTable {
  std::array<Handler, kOpCount> handlers;
  HandlerTable() {
    handlers.fill(&take_control);
#if SLUICE_EXEC_ALL_ISAS
    int level = 0;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("popcnt"))
      level = 1;
    if (level == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512cd"))
      level = 2;
    if (const char* wish = std::getenv("SLUICE_SOFT_ISA"); wish != nullptr) {
      if (std::strcmp(wish, "base") == 0) level = 0;
      if (std::strcmp(wish, "avx2") == 0 && level > 1) level = 1;
    }
#endif
    Handler* const table = handlers.data();
    fill_plain(table);
    fill_rare(table);
    fill_base(table);
#if SLUICE_EXEC_ALL_ISAS
    if (level == 1) {
      fill_avx2(table);
    } else if (level == 2) {
      fill_avx512(table);
    }
#endif
  }
};

}  // namespace

const Handler* handlers() {
  static const HandlerTable table;
  return table.handlers.data();
}

Op find_op(const char* name, uint32_t length) {
  static const std::unordered_map<std::string_view, uint16_t> ops = [] {
    std::unordered_map<std::string_view, uint16_t> map;
    for (uint16_t k = 0; k < kOpCount; ++k) map.emplace(kOpNames[k], k);
    return map;
  }();
  const auto found = ops.find(std::string_view(name, length));
  return found == ops.end() ? Op::kCount : static_cast<Op>(found->second);
}

}  // namespace sluice::exec::detail
