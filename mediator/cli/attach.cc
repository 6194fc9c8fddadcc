// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/attach.h"

#include <cstdio>

#include "mediator/libvirt/api/attachment.h"
#include "mediator/libvirt/api/connection.h"

namespace sluice::cli {
namespace {

// Carries `change` out, or prints it.
Result<void> apply(const libvirt::Domain& domain, const libvirt::Change& change,
                   const AttachOptions& o, const char* done) {
  std::fputs(change.shown.c_str(), stdout);
  if (o.print_only) return {};
  auto running = domain.running();
  if (!running) return running.error();
  if (auto defined = domain.define(change.xml); !defined) return defined.error();
  std::printf(
      "%s: %s%s\n", o.domain.c_str(), done,
      *running ? "; the domain runs: from its next start on (shut it off, then start it)" : "");
  return {};
}

Result<libvirt::Domain> find(const AttachOptions& o) {
  auto domain = libvirt::Domain::find(o.uri, o.domain);
  if (!domain) return domain.error();
  auto persistent = domain->persistent();
  if (!persistent) return persistent.error();
  if (!*persistent)
    return Error{ENOTSUP, "domain " + o.domain +
                              " is transient; 'virsh define' it, so that it has a next start"};
  return domain;
}

}  // namespace

Result<void> attach(AdminClient& client, const AttachOptions& o) {
  auto info = client.call("info");
  if (!info) return info.error();
  libvirt::Attachment a;
  a.slots = o.slots;
  const auto* folder = info->is_object() ? info->get_object().if_contains("runtime_dir") : nullptr;
  a.socket_folder = (folder && folder->is_string() ? std::string(folder->get_string())
                                                   : std::string("/run/sluice")) +
                    "/vgpu";
  const auto number = [&](const char* name, const std::optional<uint32_t>& value) {
    if (value) a.settings.emplace_back(name, std::to_string(*value));
  };
  const auto word = [&](const char* name, const std::optional<std::string>& value) {
    if (value) a.settings.emplace_back(name, *value);
  };
  number("weight", o.weight);
  word("memory", o.memory);
  number("priority", o.priority);
  word("latency", o.latency);
  number("min", o.min);
  number("max", o.max);
  word("group", o.group);
  auto domain = find(o);
  if (!domain) return domain.error();
  auto xml = domain->next_xml();
  if (!xml) return xml.error();
  auto change = libvirt::attach_vgpu(*xml, a);
  if (!change) return Error(change.error()).with_context("domain " + o.domain);
  return apply(*domain, *change, o, "attached");
}

Result<void> detach(const AttachOptions& o) {
  auto domain = find(o);
  if (!domain) return domain.error();
  auto xml = domain->next_xml();
  if (!xml) return xml.error();
  auto change = libvirt::detach_vgpu(*xml);
  if (!change) return Error(change.error()).with_context("domain " + o.domain);
  return apply(*domain, *change, o, "detached");
}

}  // namespace sluice::cli
