// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/vgpus.h"

#include <algorithm>
#include <boost/json/value.hpp>

#include "mediator/libvirt/limits.h"

namespace sluice::libvirt {
namespace {

namespace json = boost::json;

std::string text(const json::value& from, const char* name) {
  const json::value* v = from.is_object() ? from.get_object().if_contains(name) : nullptr;
  return v && v->is_string() ? std::string(v->get_string()) : std::string();
}

bool flag(const json::value& from, const char* name) {
  const json::value* v = from.is_object() ? from.get_object().if_contains(name) : nullptr;
  return v && v->is_bool() && v->get_bool();
}

Result<void> without_value(Result<json::value> answer) {
  return answer ? Result<void>() : Result<void>(answer.error());
}

}  // namespace

Result<json::value> AdminVgpus::call(const char* method, json::object params) {
  if (!client_) {
    auto client = AdminClient::connect(socket_, timeout_s_);
    if (!client && client.error().code == ETIMEDOUT) return client.error();
    if (!client)
      return Error{client.error().code, client.error().message + "; 'systemctl start sluiced'"};
    client_ = std::move(*client);
  }
  auto answer = client_->call(method, std::move(params));
  if (!answer && !refused(answer.error())) client_.reset();
  return answer;
}

Result<std::vector<ListedVgpu>> AdminVgpus::list() {
  auto answer = call("vgpu.list", {});
  if (!answer) return answer.error();
  std::vector<ListedVgpu> all;
  if (answer->is_array())
    for (const json::value& v : answer->get_array())
      all.push_back({text(v, "name"), text(v, "state"), text(v, "socket"), text(v, "owner"),
                     flag(v, "paused")});
  return all;
}

Result<VgpuDefaults> AdminVgpus::defaults() {
  auto info = call("info", {});
  if (!info) return info.error();
  VgpuDefaults d;
  d.host_mode = text(*info, "mode");
  const json::value* v =
      info->is_object() ? info->get_object().if_contains("vgpu_defaults") : nullptr;
  if (!v || !v->is_object()) return d;
  d.latency = text(*v, "latency");
  const json::value* weight = v->get_object().if_contains("weight");
  boost::system::error_code bad;
  if (weight) d.weight = weight->to_number<uint32_t>(bad);
  return d;
}

Result<void> AdminVgpus::create(json::object request) {
  return without_value(call("vgpu.create", std::move(request)));
}

Result<void> AdminVgpus::set(json::object request) {
  return without_value(call("vgpu.set", std::move(request)));
}

Result<void> AdminVgpus::remove(const std::string& name) {
  return without_value(call("vgpu.delete", {{"name", name}}));
}

const ListedVgpu* vgpu_of(const std::vector<ListedVgpu>& all, const DomainVgpu& d) {
  const std::string owner = owner_of(d.uuid);
  auto own =
      std::find_if(all.begin(), all.end(), [&](const ListedVgpu& v) { return v.owner == owner; });
  if (own == all.end())
    own = std::find_if(all.begin(), all.end(), [&](const ListedVgpu& v) {
      return v.owner.empty() && v.name == d.vgpu && v.socket == d.socket;
    });
  return own == all.end() ? nullptr : &*own;
}

}  // namespace sluice::libvirt
