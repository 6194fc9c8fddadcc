// SPDX-License-Identifier: Apache-2.0
// Replacements in a text, collected in any order and applied at once: how passes change a module
// without touching a byte that they do not mean.
//
// Owner: one pass over one function, one thread. It knows no PTX. Ranges are those of the text that
// the module was parsed from. Overlaps are a fault of the pass, so they end the process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/ptx/module.h"

namespace sluice::ptx {

class Edits {
 public:
  // Puts `text` before the byte at `offset`. Several at one offset come out in the order of the
  // calls, and before what replaces a range that begins there.
  void insert(std::uint32_t offset, std::string text) {
    replace({offset, offset}, std::move(text));
  }
  void replace(Range range, std::string text);
  void remove(Range range) { replace(range, {}); }
  // The bytes of `range` of `text` with every edit, all of which must lie in `range`.
  std::string apply(std::string_view text, Range range) const;
  bool empty() const { return edits_.empty(); }

 private:
  struct Edit {
    Range range;
    std::string text;
  };
  std::vector<Edit> edits_;
};

}  // namespace sluice::ptx
