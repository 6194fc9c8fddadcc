// SPDX-License-Identifier: Apache-2.0
// Managed variables (`__managed__`, in PTX `.attribute(.managed)`).
//
// Such a variable lies in managed memory (memory/managed.h): at one address in the program, the
// worker and the GPU. The text of a module is changed so that kernels find it there:
//
//   .global .attribute(.managed) .align 4 .u32 x = 5;      .global .align 4 .u32 x = 5;
//                                                     ->   .visible .const .u64 sluice_managed_0;
//   ld.global.u32 %r1, [x];                                ld.const.u64 %sluice_managed_0,
//                                                              [sluice_managed_0];
//                                                          ld.global.u32 %r1, [%sluice_managed_0];
//
// The constant is the variable's cell: the loader writes the address into it. What is left of the
// variable itself has its first value.
//
// Owner: a module, or a library with all its modules. Everything but the text's change wants
// all_modules().mutex held. Errors are CUDA's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

// Changes the text. The names of its managed variables; the cell of the n-th is managed_cell(n).
// A text with one that cannot be reached so stays as it is, after a message: none.
std::vector<std::string> lift_managed_variables(std::string* ptx);
std::string managed_cell(size_t n);

class ManagedVariables {
 public:
  struct Place {
    CUdeviceptr address = 0;
    CUdeviceptr copy_of_address = 0;  // address of 8 bytes that hold `address`
    size_t bytes = 0;
  };

  ManagedVariables() = default;
  ~ManagedVariables();  // gives the memory back
  ManagedVariables(const ManagedVariables&) = delete;
  ManagedVariables& operator=(const ManagedVariables&) = delete;

  // Writes the cells of a module that the worker has just loaded in the current context. The first
  // module's variables give the first values.
  CUresult bind(const Entered& entered, uint64_t module, const std::vector<std::string>& names);
  const Place* find(const std::string& name) const;

 private:
  std::map<std::string, Place> places_;
};

}  // namespace sluice::guest
