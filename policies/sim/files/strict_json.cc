// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/files/strict_json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/error.hpp>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace json = boost::json;

namespace sluice::policy::sim {
namespace {

// Follows the text without building anything: keeps the keys of the objects that are open. Its
// interface is Boost.JSON's.
struct Keys {
  static constexpr size_t max_object_size = ~size_t{0}, max_array_size = ~size_t{0};
  static constexpr size_t max_key_size = ~size_t{0}, max_string_size = ~size_t{0};
  using Bad = json::error_code;
  using Text = json::string_view;

  std::vector<std::set<std::string, std::less<>>> open;
  std::string key, twice;

  bool on_document_begin(Bad&) { return true; }
  bool on_document_end(Bad&) { return true; }
  bool on_object_begin(Bad&) { return open.emplace_back(), true; }
  bool on_object_end(size_t, Bad&) { return open.pop_back(), true; }
  bool on_array_begin(Bad&) { return true; }
  bool on_array_end(size_t, Bad&) { return true; }
  bool on_key_part(Text part, size_t, Bad&) { return key.append(part.data(), part.size()), true; }
  bool on_key(Text part, size_t, Bad& bad) {
    key.append(part.data(), part.size());
    const bool fresh = open.back().insert(key).second;
    if (!fresh) twice = key, bad = json::error::syntax;
    key.clear();
    return fresh;
  }
  bool on_string_part(Text, size_t, Bad&) { return true; }
  bool on_string(Text, size_t, Bad&) { return true; }
  bool on_number_part(Text, Bad&) { return true; }
  bool on_int64(int64_t, Text, Bad&) { return true; }
  bool on_uint64(uint64_t, Text, Bad&) { return true; }
  bool on_double(double, Text, Bad&) { return true; }
  bool on_bool(bool, Bad&) { return true; }
  bool on_null(Bad&) { return true; }
  bool on_comment_part(Text, Bad&) { return true; }
  bool on_comment(Text, Bad&) { return true; }
};

std::string place(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t begin = before.rfind('\n');
  const size_t column = before.size() - (begin == before.npos ? 0 : begin + 1) + 1;
  return " at line " + std::to_string(line) + ", column " + std::to_string(column);
}

}  // namespace

sluice::Result<json::value> parse_strict(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::basic_parser<Keys> follower(options);
  json::error_code bad;
  const size_t at = follower.write_some(false, text.data(), text.size(), bad);
  if (!follower.handler().twice.empty())
    return Error{0, "the key '" + follower.handler().twice.substr(0, 80) + "' is there twice" +
                        place(text, at)};
  if (!bad && text.find_first_not_of(" \t\r\n", at) != text.npos) bad = json::error::extra_data;
  if (bad == json::error::incomplete)
    return Error{0, "not JSON: the text ends too early (cut off?)" + place(text, text.size())};
  if (bad == json::error::too_deep)
    return Error{0, "not JSON for this: nested deeper than " + std::to_string(kMaxJsonDepth) +
                        place(text, at)};
  if (bad) return Error{0, "not JSON: " + bad.message() + place(text, at)};
  const json::value v = json::parse(json::string_view(text.data(), text.size()), bad, {}, options);
  if (bad) return Error{0, "not JSON: " + bad.message()};
  return v;
}

}  // namespace sluice::policy::sim
