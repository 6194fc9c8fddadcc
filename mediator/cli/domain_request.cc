// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/domain_request.h"

namespace sluice {

boost::json::object set_request(const DomainVgpu& d) {
  boost::json::object params{{"name", d.vgpu}};
  if (d.weight) params["weight"] = d.weight;
  if (d.memory_bytes) params["memory_bytes"] = d.memory_bytes;
  if (d.priority >= 0) params["priority"] = d.priority;
  if (!d.latency.empty()) params["latency"] = d.latency;
  if (d.min_permille >= 0) params["min_permille"] = d.min_permille;
  if (d.max_permille >= 0) params["max_permille"] = d.max_permille;
  if (!d.group.empty()) params["group"] = d.group;
  return params;
}

boost::json::object create_request(const DomainVgpu& d, const std::string& owner) {
  boost::json::object params = set_request(d);
  params["socket"] = d.socket;
  if (!owner.empty()) params["owner"] = owner;
  if (!d.mode.empty()) params["mode"] = d.mode;
  // Vector 0 is the agent's, every slot has one more.
  if (d.vectors > 1) params["slots"] = d.vectors - 1;
  return params;
}

}  // namespace sluice
