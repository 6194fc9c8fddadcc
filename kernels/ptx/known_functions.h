// SPDX-License-Identifier: Apache-2.0
// Device functions without a body in the program that are known nevertheless. A kernel that calls
// one can be rewritten: none of them returns to anywhere but its caller, or reads the grid.
#pragma once

#include <string_view>

namespace sluice::ptx {

struct KnownFunction {
  std::string_view name;
  bool of_driver;    // the driver has it: a linker need not look for it
  bool ends_thread;  // it does not return
};

inline constexpr KnownFunction kKnownFunctions[] = {
    {"vprintf", true, false},     {"malloc", true, false},        {"free", true, false},
    {"__assertfail", true, true}, {"__assert_fail", false, true},
};

// Null: it is none of them.
constexpr const KnownFunction* known_function(std::string_view name) {
  for (const KnownFunction& f : kKnownFunctions)
    if (f.name == name) return &f;
  return nullptr;
}

}  // namespace sluice::ptx
