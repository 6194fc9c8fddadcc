// SPDX-License-Identifier: Apache-2.0
// Variables of a module that are reached by an address in a register instead of by their name:
//
//   ld.global.u32 %r1, [x+4];     ->    LOAD
//                                       ld.global.u32 %r1, [REGISTER+4];
//
// Pure; any thread; linear in the function's text. The text may be a guest's.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "kernels/ptx/edit.h"
#include "kernels/ptx/module.h"

namespace sluice::ptx {

// How one variable is reached.
struct AddressUse {
  std::string address_register;  // declared in each function that uses it: "%sluice_managed_0"
  std::string load;              // the statement that puts the address there, with its `;`
};
using AddressUses = std::unordered_map<std::string_view, AddressUse>;  // by the variable's name

// Every use in `function`'s body. False: one has no other form (a register takes an offset only in
// an address, and in a `mov`), a local name hides a variable, or the body is not understood.
bool replace_addresses(const Module& module, const Function& function, const AddressUses& uses,
                       Edits* edits);

// Calls `visit` with each word of `text` that may be a name, and where it begins. Words of strings
// and comments are among them.
template <class Visit>
void for_each_word(std::string_view text, Visit&& visit);

// ---- below: definition of the template ----

inline bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}

template <class Visit>
void for_each_word(std::string_view text, Visit&& visit) {
  for (size_t at = 0; at < text.size();) {
    if (!in_word(text[at])) {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < text.size() && in_word(text[at])) ++at;
    visit(text.substr(begin, at - begin), begin);
  }
}

}  // namespace sluice::ptx
