// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "mediator/core/domain_xml.h"

namespace sluice {

Result<uint64_t> parse_byte_size(std::string_view text) {
  Error bad{EINVAL, "not a size: '" + std::string(text.substr(0, 40)) +
                        "' (a number with K, M, G or T behind it, for example 8G)"};
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return bad;
  std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  if (suffix.size() > 1 && (suffix.substr(1) == "iB" || suffix.substr(1) == "B"))
    suffix = suffix.substr(0, 1);
  int shift = 0;
  if (suffix.empty())
    shift = 0;
  else if (suffix == "K" || suffix == "k")
    shift = 10;
  else if (suffix == "M" || suffix == "m")
    shift = 20;
  else if (suffix == "G" || suffix == "g")
    shift = 30;
  else if (suffix == "T" || suffix == "t")
    shift = 40;
  else
    return bad;
  if (value > (UINT64_MAX >> shift)) return bad;
  return value << shift;
}

}  // namespace sluice
