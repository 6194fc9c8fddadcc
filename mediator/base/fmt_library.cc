// SPDX-License-Identifier: Apache-2.0
// fmt's functions, compiled once from its headers, for all that includes <fmt/core.h> or
// <fmt/format.h>: nothing then needs the shared library, whose name differs from one release of a
// distribution to the next. Calls what others leave undefined, and is not optimised, so that it is
// here and not only inlined.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace sluice::base {

// Never called.
[[gnu::used]] std::string use_fmt(double d, float f, unsigned long n, const std::string& s) {
  return fmt::format("{} {:.1f} {} {:L} {:>{}} {:?}", d, d, f, n, s, n, s) +
         fmt::vformat("{}", fmt::make_format_args(n));
}
[[gnu::used]] void use_print(std::FILE* file) {
  fmt::print(file, "{}", file != nullptr);
  fmt::print("{}", file != nullptr);
}

}  // namespace sluice::base
