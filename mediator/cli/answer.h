// SPDX-License-Identifier: Apache-2.0
// Fields of sluiced's answers. sluiced is ours, but may be of another version: a field that is
// missing, or of another type, is empty. Pure; any thread.
#pragma once

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>

namespace sluice::cli {

namespace json = boost::json;

inline const json::value* field(const json::value& from, const char* name) {
  return from.is_object() ? from.get_object().if_contains(name) : nullptr;
}
inline std::string text(const json::value& from, const char* name) {
  const json::value* v = field(from, name);
  if (!v) return "";
  return v->is_string() ? std::string(v->get_string()) : json::serialize(*v);
}
inline double number(const json::value& from, const char* name) {
  const json::value* v = field(from, name);
  return v && v->is_number() ? v->to_number<double>() : 0.0;
}
inline uint64_t count(const json::value& from, const char* name) {
  const json::value* v = field(from, name);
  boost::system::error_code bad;
  const uint64_t n = v ? v->to_number<uint64_t>(bad) : 0;
  return bad ? 0 : n;
}
inline bool truth(const json::value& from, const char* name) {
  const json::value* v = field(from, name);
  return v && v->is_bool() && v->get_bool();
}
inline const json::array& rows_of(const json::value& v) {
  static const json::array kNone;
  return v.is_array() ? v.get_array() : kNone;
}

}  // namespace sluice::cli
