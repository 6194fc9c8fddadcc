// SPDX-License-Identifier: Apache-2.0
// Texture and surface references (`.texref` and `.surfref` in PTX): names in a module to which the
// program binds memory by calls, as before there were texture objects. Here each is an object whose
// handle kernels read before each use. The text of a module is changed so:
//
//   .global .texref t;                          .visible .global .align 8 .u64 sluice_reference_0;
//                                           ->
//   tex.2d.v4.f32.f32 {...}, [t, {...}];        ld.global.u64 %sluice_reference_0,
//                                                   [sluice_reference_0];
//                                               tex.2d.v4.f32.f32 {...}, [%sluice_reference_0,
//                                               {...}];
//
// The variable is the reference's cell. A call that changes a bound reference waits for what runs,
// because a launch goes by the reference as it was then, makes another object and writes the cell.
// Machine code has its references in the driver's own way, so such modules run from their PTX.
//
// Any thread; read_zeros() wants all_modules().mutex held. Errors are CUDA's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

struct ReferenceName {
  std::string name;
  bool surface = false;
};

// Changes the text. The references that it had; the cell of the n-th is reference_cell(n). A text
// with one that cannot be reached so stays as it is, after a message: none.
std::vector<ReferenceName> lift_references(std::string* ptx);
std::string reference_cell(size_t n);

// Until they are bound, the texture references of a module that was just loaded read zeros.
void read_zeros(const Entered& entered, uint64_t module, const std::vector<ReferenceName>& names);
// The module has gone: so have its references. With its context still there, what they are bound to
// is released.
void end_references(const Entered& entered, uint64_t module);
void forget_references(uint64_t module);
void forget_references_of_context(uint64_t context);

}  // namespace sluice::guest
