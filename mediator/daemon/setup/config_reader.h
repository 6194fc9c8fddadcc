// SPDX-License-Identifier: Apache-2.0
// Reads one TOML file table by table and key by key. Made by parse_config() for one call, in one
// thread.
//
// Order    table(), then one call per key, then end_table(); after the last table end_file().
// Keys     a key that is missing leaves its variable as it is
//          a key or a table that nobody asked for is unknown, an error
// Errors   only the first is kept: "FILE:LINE: what is wrong"
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mediator/base/result.h"

namespace sluice {

class ConfigReader {
 public:
  ConfigReader(const toml::table& root, std::string file);

  // The following calls read this table; it may be missing. Empty: the keys before any table.
  void table(const std::string& name);

  // An absolute path.
  void path(const char* key, std::string& to);
  // An absolute path, or a soname that the loader looks up.
  void library(const char* key, std::string& to);
  // File modes are strings, because TOML's 0666 is not a number and 666 would be the wrong one.
  void mode(const char* key, unsigned& to);
  std::optional<bool> boolean(const char* key);
  // A whole number of [low, high]; nothing where the key is missing or wrong.
  std::optional<int64_t> number(const char* key, int64_t low, int64_t high);
  // Bytes, [low, high], in whole extents; nothing where the key is missing or wrong.
  std::optional<uint64_t> size(const char* key, uint64_t low, uint64_t high, bool power_of_two);
  // `choose(word)` takes a word; false: it knows no such word. `words` lists them in the error.
  void word(const char* key, const char* words,
            const std::function<bool(const std::string&)>& choose);
  // A list of words; `choose(word, index)` as above.
  void words(const char* key, const char* words,
             const std::function<bool(const std::string&, size_t)>& choose);
  // A user or a group, by name or number; a list of them.
  void name(const char* key, std::string& to);
  void names(const char* key, std::vector<std::string>& to);
  // All keys of this table, which are variables of an environment: none is unknown.
  void environment(std::map<std::string, std::string>& to);

  // A key that does nothing any more: what to say where it stands, whatever its value is.
  std::optional<std::string> gone(const char* key);

  // After the last key of a table: what is left is unknown.
  void end_table();
  void end_file();

  // An error that several keys make together, at the line of `key`.
  void fail_key(const char* key, const std::string& what);
  const std::optional<Error>& error() const { return error_; }

 private:
  const toml::node* get(const char* key);
  std::string full(const char* key) const;  // "TABLE.KEY"
  void fail(const toml::node& node, const std::string& what);

  const toml::table& root_;
  std::string file_;
  std::string name_;
  const toml::table* table_ = nullptr;
  std::set<std::string> keys_, tables_;  // asked for: of this table, of the file
  std::optional<Error> error_;
};

}  // namespace sluice
