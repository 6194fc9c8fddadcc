// SPDX-License-Identifier: Apache-2.0
// The table of methods, and those that are short.
#include "mediator/daemon/admin/rpc_methods.h"

#include <boost/json/array.hpp>
#include <boost/json/string.hpp>
#include <utility>

#include "mediator/base/limits.h"
#include "mediator/daemon/admin/metrics.h"

namespace sluice {
namespace rpc {
namespace {

json::value version(Daemon&) {
  return json::object{{"name", "sluiced"},
                      {"version", SLUICE_VERSION},
                      {"channel_version", SLUICE_CHANNEL_VERSION}};
}

// Those that this configuration can run.
json::value policies(Daemon& d) {
  json::array rows;
  const auto kind =
      d.config().slices ? policy::PreemptorKind::kProportional : policy::PreemptorKind::kExclusive;
  for (const policy::Registration& r : policy::registry())
    if (core::Scheduler::runs(r, kind)) rows.push_back({{"name", r.name}, {"summary", r.summary}});
  return rows;
}

json::value metrics(Daemon& d) { return json::string(metrics_text(d)); }

void events(Daemon& d, RpcParams& p, const RpcReply& reply) {
  const uint64_t after = p.number("after", 0, UINT64_MAX).value_or(0);
  const uint64_t limit = p.number("limit", 1, limits::kMaxEvents).value_or(limits::kMaxEvents);
  if (auto bad = p.finish()) return reply.error(*bad);
  json::array list;
  const auto& all = d.events().events();
  // The youngest `limit` of those after `after`.
  size_t first = 0;
  while (first < all.size() && (all[first].number <= after || all.size() - first > limit)) ++first;
  for (size_t i = first; i < all.size(); ++i)
    list.push_back({{"number", all[i].number},
                    {"unix_ms", all[i].unix_ms},
                    {"level", log::level_name(all[i].level)},
                    {"text", all[i].text}});
  reply.value(json::object{{"last", d.events().last()}, {"events", std::move(list)}});
}

struct Query {
  const char* name;
  json::value (*answer)(Daemon& d);
};
constexpr Query kQueries[] = {
    {"version", version},     {"info", info},   {"policies", policies}, {"group.list", group_list},
    {"vgpu.list", vgpu_list}, {"stats", stats}, {"metrics", metrics},
};

struct Method {
  const char* name;
  void (*call)(Daemon& d, RpcParams& p, const RpcReply& reply);
};
constexpr Method kMethods[] = {
    {"group.set", group_set},     {"top", top},
    {"vgpu.create", vgpu_create}, {"vgpu.set", vgpu_set},
    {"vgpu.show", vgpu_show},     {"vgpu.delete", vgpu_delete},
    {"events", events},
};

}  // namespace
}  // namespace rpc

void add_rpc_methods(RpcDispatcher& dispatcher, Daemon& d) {
  for (const rpc::Query& query : rpc::kQueries)
    dispatcher.add(query.name,
                   [&d, &query](const boost::json::object& params, const RpcReply& reply) {
                     if (auto bad = RpcParams(params).finish()) return reply.error(*bad);
                     reply.value(query.answer(d));
                   });
  for (const rpc::Method& method : rpc::kMethods)
    dispatcher.add(method.name,
                   [&d, &method](const boost::json::object& params, const RpcReply& reply) {
                     RpcParams p(params);
                     method.call(d, p, reply);
                   });
}

}  // namespace sluice
