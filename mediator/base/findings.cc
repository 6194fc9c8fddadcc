// SPDX-License-Identifier: Apache-2.0
#include "mediator/base/findings.h"

#include <algorithm>
#include <cstdio>

namespace sluice {
namespace {

const char* word(Finding::State state) {
  switch (state) {
    case Finding::State::kRight:
      return "right";
    case Finding::State::kWrong:
      return "wrong";
    case Finding::State::kSkipped:
      return "skipped";
  }
  return "";
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(c));
      out += escaped;
    }
  }
  return out + "\"";
}

}  // namespace

bool all_right(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.state == Finding::State::kRight; });
}

bool any_wrong(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.state == Finding::State::kWrong; });
}

std::string as_text(const std::vector<Finding>& findings) {
  size_t width = 8;
  for (const Finding& f : findings) width = std::max(width, f.name.size());
  std::string out;
  for (const Finding& f : findings) {
    std::string state = word(f.state), name = f.name;
    state.resize(8, ' ');
    name.resize(width, ' ');
    out += state + " " + name + " " + f.fact + "\n";
    if (!f.mend.empty()) out += std::string(width + 10, ' ') + "-> " + f.mend + "\n";
  }
  return out;
}

std::string as_json(const std::vector<Finding>& findings, bool right) {
  std::string out = std::string("{\"right\": ") + (right ? "true" : "false") + ", \"checks\": [";
  for (size_t i = 0; i < findings.size(); ++i) {
    const Finding& f = findings[i];
    out += std::string(i == 0 ? "" : ", ") + "{\"name\": " + quoted(f.name) +
           ", \"state\": " + quoted(word(f.state)) + ", \"fact\": " + quoted(f.fact) +
           ", \"mend\": " + quoted(f.mend) + "}";
  }
  return out + "]}\n";
}

}  // namespace sluice
