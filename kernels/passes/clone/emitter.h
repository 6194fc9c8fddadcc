// SPDX-License-Identifier: Apache-2.0
// Writes PTX lines for a clone: names get the fresh prefix, memory orders the words that the
// module's ISA version has.
//
// Owner: one pass over one entry, one thread. It knows nothing of the loop that it writes.
#pragma once

#include <string>
#include <string_view>

#include "kernels/ptx/module.h"

namespace sluice::passes {

class Emitter {
 public:
  Emitter(const ptx::Module& module, std::string_view prefix);

  // One line; `~` stands for the fresh prefix ("%~next", "~HEAD"). The words {LD_GPU}, {LD_SYS},
  // {ST_GPU}, {ST_SYS}, {FENCE_GPU} and {FENCE_SYS} stand for the module's form of a relaxed load
  // or store and of a fence at that scope.
  Emitter& line(std::string_view text);
  Emitter& label(std::string_view name) { return line(std::string(name) + ":", ""); }
  const std::string& text() const { return out_; }
  std::string name(std::string_view with_tilde) const;  // "%~x" -> "%sluice1_x"

 private:
  Emitter& line(std::string_view text, std::string_view indent);
  std::string expand(std::string_view text) const;

  std::string_view prefix_;
  // The memory model's forms need ISA 6.0 and sm_70; volatile accesses and membar mean the same or
  // more and are everywhere (PTX ISA, "Memory Consistency Model").
  bool memory_model_;
  std::string out_;
};

}  // namespace sluice::passes
