// SPDX-License-Identifier: Apache-2.0
// Finding a word in a long text, such as a module's PTX. std::string_view::find() stops at each
// place of the word's first character; where that is frequent, as a dot is in PTX, it takes ten
// times as long. Pure; any thread.
#pragma once

#include <cstring>
#include <string_view>

namespace sluice {

// As in.find(what, from).
inline size_t find_text(std::string_view in, std::string_view what, size_t from = 0) {
  if (from > in.size()) return in.npos;
  const void* const at = ::memmem(in.data() + from, in.size() - from, what.data(), what.size());
  return at == nullptr ? in.npos : static_cast<size_t>(static_cast<const char*>(at) - in.data());
}

}  // namespace sluice
