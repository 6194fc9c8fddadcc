// SPDX-License-Identifier: Apache-2.0
// SeparableModule: a module whose kernels can be taken out of it one by one, each with what it
// calls, as a text of its own. Its variables stay in the module as it is loaded, from PTX or from
// machine code of the same source; the kernel's own text reaches them by their addresses, which the
// driver finds by any name (cuModuleGetGlobal: also those without external linkage, on an H200). So
// a kernel can be assembled again long after its module was loaded, and both see the same
// variables.
//
//   the module              kernel_text()                      addresses_from_array() of that
//   .global .u32 count;     .func step ...                     .const .b64 sluice_addresses[1];
//   .func step ...          .entry scan ...                    .func step ...
//   .entry scan ...           mov.b64 %r, 0x7e534c5500000000;  .entry scan ...
//     step, count                                                ld.const.b64 %r,
//   .entry sort ...                                                [sluice_addresses+0];
//
// The addresses are written into the array when the text is loaded. So the text is the same in
// every program, and a driver that has assembled it before need not do so again. In between, where
// the text is rewritten, each address is a number, which passes can follow as one. A bank of
// constants belongs to one module: the kernel's own text reads the module's from global memory
// (constant_uses.h), but in between it says of each such load that it is of a constant.
//
// What cannot be shared so, and makes parse() fail: constants whose addresses go further than to
// loads, texture and surface references, variables defined elsewhere, calls by a function's
// address, aliases, sections of debuggers.
//
// Immutable; any thread. The text may be a guest's: work is linear in it for parse(), and for each
// kernel linear in what it reaches. Only functions that name variables, call, or are called are cut
// into statements.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "abi/wire.h"
#include "kernels/ptx/module.h"
#include "mediator/base/result.h"

namespace sluice::ptx {

class SeparableModule {
 public:
  // An error says why its kernels cannot be taken out.
  static Result<SeparableModule> parse(std::string text);

  // Its kernels, in the order of the text.
  std::vector<std::string> entries() const;
  // What a kernel, it among them, and what it calls name.
  struct Reached {
    std::vector<size_t> functions;  // indices of definitions and declarations, in order
    std::vector<size_t> variables;
  };
  Reached reached_from(std::string_view entry) const;
  // Those of the variables that have addresses.
  std::vector<std::string> variables_of(const Reached& reached) const;
  // What was reached. `elsewhere`: which of its variables have addresses, in the order of the
  // array; all of them, but strings of the program's own text, which it can have copies of.
  Result<std::string> kernel_text(const Reached& reached,
                                  const std::vector<std::string>& elsewhere) const;
  // That, rewritten or not, as it can be loaded, with so many addresses read from the array.
  Result<std::string> loadable(const std::string& kernel_text, size_t addresses) const;

 private:
  explicit SeparableModule(Module module) : module_(std::move(module)) {}
  // What a function names, and whether it has to be cut into statements for what it may do besides.
  struct Mentions {
    std::vector<size_t> functions, variables;
    bool cut = false;
  };

  Result<void> check_items();
  Result<void> check_functions();
  Mentions mentions_of(const Function& function) const;

  Module module_;                                  // its declarations
  std::vector<Mentions> mentions_;                 // by function
  std::unordered_map<size_t, Module> with_names_;  // functions that name variables, each by itself
  // By name; a function may have several: declarations and a definition.
  std::unordered_map<std::string_view, std::vector<size_t>> functions_;
  std::unordered_map<std::string_view, size_t> variables_;
  std::unordered_set<std::string_view> constants_;
  std::array<bool, 256> begins_{};  // by a character: whether a word that matters begins so
};

// Variables that one kernel may reach.
inline constexpr size_t kMaxAddresses = 2048;
// The array's name in the text.
inline constexpr char kAddressArray[] = SLUICE_ADDRESS_ARRAY;

// A kernel's text, rewritten or not, with its `count` addresses read from the array.
Result<std::string> addresses_from_array(const std::string& text, size_t count);

}  // namespace sluice::ptx
