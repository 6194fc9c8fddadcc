// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {

std::string format_table(const std::vector<Column>& columns,
                         const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const Column& c : columns) widths.push_back(c.title.size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  auto add_row = [&](auto cell) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i) line += "  ";
      const std::string text = cell(i);
      line += columns[i].right ? fmt::format("{:>{}}", text, widths[i])
                               : fmt::format("{:<{}}", text, widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line;
    out += '\n';
  };
  add_row([&](size_t i) { return columns[i].title; });
  for (const auto& row : rows)
    add_row([&](size_t i) { return i < row.size() ? row[i] : std::string(); });
  return out;
}

std::string format_bytes(uint64_t bytes, const char* none) {
  if (bytes == 0) return none;
  static const char kUnits[] = {'B', 'K', 'M', 'G', 'T', 'P'};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < sizeof kUnits) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{}", bytes);
  if (value == static_cast<double>(static_cast<uint64_t>(value)))
    return fmt::format("{:.0f}{}", value, kUnits[unit]);
  return fmt::format("{:.1f}{}", value, kUnits[unit]);
}

}  // namespace sluice
