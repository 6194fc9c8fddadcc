// SPDX-License-Identifier: Apache-2.0
// Initialisers of module-scope variables: `{1, 0x2, {3, 4}}`, floats, and other variables'
// addresses. Internal to kernels/exec; runs inside decode().
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "kernels/exec/program/program.h"
#include "kernels/ptx/module.h"

namespace sluice::exec::detail {

// What a name in an initialiser stands for: a symbol or a function, by index.
struct Named {
  enum Kind : uint8_t { kNothing, kSymbol, kFunction } kind = kNothing;
  uint32_t index = 0;
};

// Fills `symbol`'s bytes, initial and relocations from v.initializer. `find`: what a name is.
Result<void> read_initializer(const ptx::Variable& v,
                              const std::function<Named(std::string_view)>& find,
                              uint64_t max_bytes, SymbolInfo& symbol);

}  // namespace sluice::exec::detail
