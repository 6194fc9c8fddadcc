// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/setup/config_reader.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "mediator/base/limits.h"
#include "mediator/core/domain_xml.h"

namespace sluice {
namespace {

constexpr size_t kMaxNameBytes = 255;

bool good_name(const std::optional<std::string>& text) {
  return text && !text->empty() && text->size() <= kMaxNameBytes;
}

}  // namespace

ConfigReader::ConfigReader(const toml::table& root, std::string file)
    : root_(root), file_(std::move(file)) {}

void ConfigReader::table(const std::string& name) {
  keys_.clear();
  name_ = name;
  table_ = name_.empty() ? &root_ : nullptr;
  if (table_) return;
  tables_.insert(name);
  const toml::node* node = root_.get(name);
  if (!node) return;
  table_ = node->as_table();
  if (!table_) fail(*node, fmt::format("'{}' must be a table: [{}]", name, name));
}

void ConfigReader::path(const char* key, std::string& to) {
  const toml::node* n = get(key);
  if (!n) return;
  auto text = n->value_exact<std::string>();
  if (!text || text->empty() || (*text)[0] != '/')
    return fail(*n, fmt::format("{} must be an absolute path in quotes", full(key)));
  to = *text;
}

void ConfigReader::library(const char* key, std::string& to) {
  const toml::node* n = get(key);
  if (!n) return;
  auto text = n->value_exact<std::string>();
  if (!good_name(text))
    return fail(*n, fmt::format("{} must be a path or a library's name in quotes, of at most {} "
                                "bytes",
                                full(key), kMaxNameBytes));
  to = *text;
}

void ConfigReader::mode(const char* key, unsigned& to) {
  const toml::node* n = get(key);
  if (!n) return;
  auto text = n->value_exact<std::string>();
  unsigned value = 0;
  bool good = text && !text->empty() && text->size() <= 5;
  if (good)
    for (char c : *text) {
      good = good && c >= '0' && c <= '7';
      value = value * 8 + static_cast<unsigned>(c - '0');
    }
  if (!good || value > 0777)
    return fail(*n,
                fmt::format("{} must be a file mode in quotes, for example \"0660\"", full(key)));
  to = value;
}

std::optional<bool> ConfigReader::boolean(const char* key) {
  const toml::node* n = get(key);
  if (!n) return {};
  if (auto value = n->value_exact<bool>()) return *value;
  fail(*n, fmt::format("{} must be true or false", full(key)));
  return {};
}

std::optional<int64_t> ConfigReader::number(const char* key, int64_t low, int64_t high) {
  const toml::node* n = get(key);
  if (!n) return {};
  auto value = n->value_exact<int64_t>();
  if (value && *value >= low && *value <= high) return *value;
  fail(*n, fmt::format("{} must be a whole number from {} to {}", full(key), low, high));
  return {};
}

std::optional<uint64_t> ConfigReader::size(const char* key, uint64_t low, uint64_t high,
                                           bool power_of_two) {
  const toml::node* n = get(key);
  if (!n) return {};
  auto text = n->value_exact<std::string>();
  auto bytes = text ? parse_byte_size(*text) : Result<uint64_t>(Error{EINVAL, ""});
  if (bytes && *bytes >= low && *bytes <= high && *bytes % SLUICE_EXTENT_BYTES == 0 &&
      (!power_of_two || std::has_single_bit(*bytes)))
    return *bytes;
  fail(*n,
       fmt::format("{} must be a size in quotes from \"{}M\" to \"{}M\", {}", full(key), low >> 20,
                   high >> 20, power_of_two ? "a power of two" : "a multiple of 2M"));
  return {};
}

void ConfigReader::word(const char* key, const char* words,
                        const std::function<bool(const std::string&)>& choose) {
  const toml::node* n = get(key);
  if (!n) return;
  auto text = n->value_exact<std::string>();
  if (!text || !choose(*text)) fail(*n, fmt::format("{} must be one of {}", full(key), words));
}

void ConfigReader::words(const char* key, const char* words,
                         const std::function<bool(const std::string&, size_t)>& choose) {
  const toml::node* n = get(key);
  if (!n) return;
  const toml::array* list = n->as_array();
  bool good = list && !list->empty();
  for (size_t i = 0; good && i < list->size(); ++i) {
    auto text = list->get(i)->value_exact<std::string>();
    good = text && choose(*text, i);
  }
  if (!good) fail(*n, fmt::format("{} must be a list, [\"...\"], of {}", full(key), words));
}

void ConfigReader::name(const char* key, std::string& to) {
  const toml::node* n = get(key);
  if (!n) return;
  auto text = n->value_exact<std::string>();
  if (!good_name(text)) return fail(*n, fmt::format("{} must be a name in quotes", full(key)));
  to = *text;
}

void ConfigReader::names(const char* key, std::vector<std::string>& to) {
  const toml::node* n = get(key);
  if (!n) return;
  const toml::array* list = n->as_array();
  const auto wrong = [&](const toml::node& at) {
    fail(at, fmt::format("{} must be a list of names, [\"...\"]", full(key)));
  };
  if (!list || list->empty()) return wrong(*n);
  for (const toml::node& item : *list) {
    auto text = item.value_exact<std::string>();
    if (!good_name(text)) return wrong(item);
    to.push_back(*text);
  }
}

void ConfigReader::environment(std::map<std::string, std::string>& to) {
  const toml::table* all = std::exchange(table_, nullptr);
  if (!all) return;
  for (const auto& [k, v] : *all) {
    std::string variable(k.str());
    auto text = v.value_exact<std::string>();
    if (!text || variable.empty() || variable.find('=') != std::string::npos ||
        text->find('\0') != std::string::npos)
      return fail(v, fmt::format("environment variable '{}' must be a string", variable));
    to[variable] = *text;
  }
}

std::optional<std::string> ConfigReader::gone(const char* key) {
  const toml::node* n = get(key);
  if (!n) return {};
  return fmt::format("{}:{}: {} does nothing any more; take it out", file_, n->source().begin.line,
                     full(key));
}

void ConfigReader::end_table() {
  if (name_.empty()) {
    tables_.insert(keys_.begin(), keys_.end());  // end_file() checks all keys before any table
    return;
  }
  if (!table_) return;
  for (const auto& [k, v] : *table_)
    if (!keys_.count(std::string(k.str())))
      fail(v, fmt::format("unknown key '{}' in [{}]; sluiced(8) lists all", k.str(), name_));
}

void ConfigReader::end_file() {
  for (const auto& [k, v] : root_)
    if (!tables_.count(std::string(k.str())))
      fail(v, v.is_table() ? fmt::format("unknown table [{}]; sluiced(8) lists all", k.str())
                           : fmt::format("unknown key '{}' before any table; sluiced(8) lists all",
                                         k.str()));
}

void ConfigReader::fail_key(const char* key, const std::string& what) {
  if (const toml::node* n = table_ ? table_->get(key) : nullptr)
    fail(*n, what);
  else if (!error_)
    error_ = Error{EINVAL, file_ + ": " + what};
}

const toml::node* ConfigReader::get(const char* key) {
  keys_.insert(key);
  return table_ ? table_->get(key) : nullptr;
}

std::string ConfigReader::full(const char* key) const {
  return name_.empty() ? std::string(key) : fmt::format("{}.{}", name_, key);
}

void ConfigReader::fail(const toml::node& node, const std::string& what) {
  if (!error_)
    error_ = Error{EINVAL, fmt::format("{}:{}: {}", file_, node.source().begin.line, what)};
}

}  // namespace sluice
