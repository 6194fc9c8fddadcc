// Initialisers of module-scope variables: `{1, 0x2, {3, 4}}`, floats, and other variables'
// addresses. Internal to kernels/exec; runs inside decode().
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "kernels/exec/program.h"
#include "kernels/ptx/module.h"

namespace sluice::exec::detail {

// Fills `symbol`'s bytes, initial and relocations from v.initializer. `find`: a symbol's index by
// name, negative when there is none.
Result<void> read_initializer(const ptx::Variable& v,
                              const std::function<int64_t(std::string_view)>& find,
                              uint64_t max_bytes, SymbolInfo& symbol);

}  // namespace sluice::exec::detail
