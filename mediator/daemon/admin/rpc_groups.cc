// SPDX-License-Identifier: Apache-2.0
// group.*: groups of vGPUs, which share as one.
#include "mediator/daemon/admin/rpc_methods.h"

#include <boost/json/array.hpp>
#include <string>

#include "mediator/base/limits.h"

namespace sluice::rpc {
namespace {

json::object describe_group(const std::string& name, const Daemon::Group& g) {
  return {{"name", name},
          {"parent", g.parent},
          {"weight", g.share.weight},
          {"priority", g.share.priority},
          {"min_permille", g.share.min_permille},
          {"max_permille", g.share.max_permille}};
}

}  // namespace

json::value group_list(Daemon& d) {
  json::array rows;
  for (const auto& [name, g] : d.groups()) rows.push_back(describe_group(name, g));
  return rows;
}

void group_set(Daemon& d, RpcParams& p, const RpcReply& reply) {
  const std::string name = p.required_text("name");
  const auto known = d.groups().find(name);
  Daemon::Group g = known != d.groups().end() ? known->second : Daemon::Group{};
  if (auto parent = p.text("parent")) g.parent = *parent;
  const auto number = [&](const char* key, uint64_t least, uint64_t most, uint32_t& value) {
    if (auto n = p.number(key, least, most)) value = static_cast<uint32_t>(*n);
  };
  number("weight", limits::kMinWeight, limits::kMaxWeight, g.share.weight);
  number("priority", limits::kMinPriority, limits::kMaxPriority, g.share.priority);
  number("min_permille", 0, policy::kWholePermille, g.share.min_permille);
  number("max_permille", 0, policy::kWholePermille, g.share.max_permille);
  if (auto bad = p.finish()) return reply.error(*bad);
  auto set = d.set_group(name, g, [&d, name, reply](const Result<void>& kept) {
    if (kept) return reply.value(describe_group(name, d.groups().at(name)));
    reply.error(Error{kept.error().code,
                      "group '" + name + "' is as you asked, but only until sluiced is stopped: " +
                          d.config().state_dir +
                          "/groups cannot be written: " + kept.error().message +
                          "; mend that, then 'sluicectl group " + name + "' keeps all groups"});
  });
  if (!set) reply.error(set.error());
}

}  // namespace sluice::rpc
