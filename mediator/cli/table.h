// SPDX-License-Identifier: Apache-2.0
// Tables for terminals: rows of text, columns as wide as their widest cell. Pure.
#pragma once

#include <string>
#include <vector>

namespace sluice {

struct Column {
  std::string title;
  bool right = false;  // numbers
};

std::string format_table(const std::vector<Column>& columns,
                         const std::vector<std::vector<std::string>>& rows);

// "1.5G", "256M", "17K", "0"; 0 becomes `none` where that is given.
std::string format_bytes(uint64_t bytes, const char* none = "0");

}  // namespace sluice
