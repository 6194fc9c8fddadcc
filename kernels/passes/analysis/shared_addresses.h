// SPDX-License-Identifier: Apache-2.0
// Whether a function uses addresses of shared memory that it does not count from a variable.
// OpenCL's local pointers are such: a parameter says how far from where shared memory begins. They
// mean the same in a clone only as long as nothing that it adds moves what is there.
//
// Owner: ModuleFacts::gather(), one function, one thread; refers to the function. It looks at
// registers only: an address that comes from memory, from a parameter, from a call or from an
// instruction that is not known is not counted from a variable.
#pragma once

#include <functional>
#include <string_view>

#include "kernels/ptx/module.h"

namespace sluice::passes {

// `shared`: whether a variable of the module is in shared memory.
bool uses_given_shared_addresses(const ptx::Function& function,
                                 const std::function<bool(std::string_view)>& shared);

}  // namespace sluice::passes
