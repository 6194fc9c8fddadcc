// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/kept_vgpu.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>

#include "mediator/base/limits.h"

namespace sluice {
namespace {

namespace json = boost::json;

constexpr uint64_t kVersion = 1;

// Reads one object; afterwards `good` is whether all of it was there.
class Reader {
 public:
  explicit Reader(const json::value& value) : object_(value.if_object()), good_(object_) {}

  uint64_t number(const char* key, uint64_t most) {
    const json::value* v = find(key);
    // A number that fits both is parsed as signed.
    if (v && v->is_int64() && v->get_int64() >= 0 && static_cast<uint64_t>(v->get_int64()) <= most)
      return static_cast<uint64_t>(v->get_int64());
    if (v && v->is_uint64() && v->get_uint64() <= most) return v->get_uint64();
    good_ = false;
    return 0;
  }
  uint32_t number32(const char* key, uint32_t most) {
    return static_cast<uint32_t>(number(key, most));
  }
  std::string text(const char* key) {
    const json::value* v = find(key);
    if (v && v->is_string()) return std::string(v->get_string());
    good_ = false;
    return {};
  }
  const json::value* find(const char* key) {
    const json::value* v = object_ ? object_->if_contains(key) : nullptr;
    good_ = good_ && v;
    return v;
  }
  bool has(const char* key) const { return object_ && object_->contains(key); }
  bool good() const { return good_; }

 private:
  const json::object* object_;
  bool good_;
};

Error unreadable() { return {EPROTO, "what an earlier sluiced kept cannot be read"}; }

json::value parsed(const std::string& text) {
  boost::system::error_code error;
  json::value v = json::parse(text, error);
  return error ? json::value() : v;
}

}  // namespace

std::string kept_text(const KeptVgpu& v) {
  return json::serialize(json::object{{"version", kVersion},
                                      {"name", v.name},
                                      {"weight", v.share.weight},
                                      {"priority", v.share.priority},
                                      {"latency", static_cast<uint32_t>(v.share.latency)},
                                      {"target_p99_us", v.share.target_p99_us},
                                      {"min_permille", v.share.min_permille},
                                      {"max_permille", v.share.max_permille},
                                      {"group", v.group},
                                      {"memory_bytes", v.memory_bytes},
                                      {"socket", v.socket},
                                      {"owner", v.owner},
                                      {"mode", v.mode},
                                      {"region_bytes", v.region_bytes},
                                      {"slots", v.slots},
                                      {"paused", v.paused ? 1 : 0},
                                      {"debt_ns", v.owed.debt_ns},
                                      {"debt_at_ns", v.owed.at_ns},
                                      {"waits_until_ns", v.owed.wait_until_ns},
                                      {"life", v.life}});
}

Result<KeptVgpu> read_kept_vgpu(const std::string& text) {
  const json::value value = parsed(text);
  Reader r(value);
  KeptVgpu v;
  if (r.number("version", UINT32_MAX) != kVersion) return unreadable();
  v.name = r.text("name");
  v.share.weight = r.number32("weight", limits::kMaxWeight);
  v.share.priority = r.number32("priority", limits::kMaxPriority);
  v.share.latency = static_cast<policy::LatencyClass>(
      r.number("latency", static_cast<uint64_t>(policy::LatencyClass::kBatch)));
  v.share.target_p99_us = r.number32("target_p99_us", limits::kMaxTargetUs);
  v.share.min_permille = r.number32("min_permille", policy::kWholePermille);
  v.share.max_permille = r.number32("max_permille", policy::kWholePermille);
  v.group = r.text("group");
  v.memory_bytes = r.number("memory_bytes", UINT64_MAX);
  v.socket = r.text("socket");
  v.owner = r.text("owner");
  v.mode = r.text("mode");
  v.region_bytes = r.number("region_bytes", limits::kMaxRegionBytes);
  v.slots = r.number32("slots", SLUICE_MAX_SLOTS);
  v.paused = r.number("paused", 1) != 0;
  if (r.has("debt_ns"))
    v.owed = {r.number("debt_ns", core::Penalty::kMost), r.number("debt_at_ns", UINT64_MAX),
              r.number("waits_until_ns", UINT64_MAX)};
  if (!r.good() || v.slots == 0 || v.region_bytes < limits::kMinRegionBytes) return unreadable();
  return v;
}

std::string kept_text(const std::vector<KeptGroup>& groups) {
  json::array rows;
  for (const KeptGroup& g : groups)
    rows.push_back({{"name", g.name},
                    {"parent", g.parent},
                    {"weight", g.share.weight},
                    {"priority", g.share.priority},
                    {"min_permille", g.share.min_permille},
                    {"max_permille", g.share.max_permille}});
  return json::serialize(json::object{{"version", kVersion}, {"groups", std::move(rows)}});
}

Result<std::vector<KeptGroup>> read_kept_groups(const std::string& text) {
  const json::value value = parsed(text);
  Reader r(value);
  const uint64_t version = r.number("version", UINT32_MAX);
  const json::value* rows = r.find("groups");
  if (version != kVersion || !rows || !rows->is_array()) return unreadable();
  std::vector<KeptGroup> groups;
  for (const json::value& row : rows->get_array()) {
    Reader g(row);
    KeptGroup& group = groups.emplace_back();
    group.name = g.text("name");
    group.parent = g.text("parent");
    group.share.weight = g.number32("weight", limits::kMaxWeight);
    group.share.priority = g.number32("priority", limits::kMaxPriority);
    group.share.min_permille = g.number32("min_permille", policy::kWholePermille);
    group.share.max_permille = g.number32("max_permille", policy::kWholePermille);
    if (!g.good()) return unreadable();
  }
  return groups;
}

}  // namespace sluice
