// SPDX-License-Identifier: Apache-2.0
// Names that people, domain XML or guests give: checks, and fields that hold them. Pure; any
// thread.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "mediator/base/limits.h"

namespace sluice {

// A vGPU's name: letters, digits, '.', '_', '-'; starts with a letter or digit; at most
// limits::kMaxVgpuNameBytes. It becomes a file name, so nothing else is let through.
inline bool valid_vgpu_name(std::string_view name) {
  auto alnum = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= limits::kMaxVgpuNameBytes && alnum(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return alnum(c) || c == '.' || c == '_' || c == '-'; });
}

// A text field that a peer filled: up to the first NUL or the field's end, with everything that is
// not printable ASCII replaced, so that it can go into logs, JSON and terminals.
inline std::string clean_text(const char* guest_text, size_t field_bytes) {
  std::string text;
  for (size_t i = 0; i < field_bytes && guest_text[i]; ++i) {
    char c = guest_text[i];
    text += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return text;
}

// Fills a text field for a peer: cut where it does not fit, zeros behind it, at least one.
inline void copy_text(char* to, size_t bytes, std::string_view text) {
  std::memset(to, 0, bytes);
  std::memcpy(to, text.data(), std::min(text.size(), bytes - 1));
}

}  // namespace sluice
