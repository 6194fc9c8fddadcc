// SPDX-License-Identifier: Apache-2.0
// Why something is not possible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::passes {

// A code for programs, which never changes its meaning (docs/internals/rewriter.md lists them all),
// and a sentence for people: "uses .. (line N)".
struct Finding {
  std::string_view code;  // static text; empty: nothing found
  std::string text;
  explicit operator bool() const { return !code.empty(); }
  // The first finding stays.
  void add(std::string_view c, std::string t) {
    if (code.empty()) {
      code = c;
      text = std::move(t);
    }
  }
};

// `what` with the place where it is: "uses .. (line N)".
inline std::string at_line(std::uint32_t line, const std::string& what) {
  return what + " (line " + std::to_string(line) + ")";
}

}  // namespace sluice::passes
