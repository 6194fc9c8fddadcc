// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/hook.h"

#include <algorithm>

#include "mediator/cli/domain_request.h"
#include "mediator/libvirt/vgpus.h"

namespace sluice::libvirt {
namespace {

// As libvirt prints one: nothing else becomes a file's name.
bool is_uuid(std::string_view text) {
  return text.size() == 36 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-';
         });
}

Result<void> prepare(Vgpus& vgpus, const DomainVgpu& d) {
  if (!is_uuid(d.uuid)) return Error{EINVAL, "the domain has no <uuid>"};
  auto all = vgpus.list();
  if (!all) return all.error();
  const auto known =
      std::find_if(all->begin(), all->end(), [&](const Vgpu& v) { return v.name == d.vgpu; });
  if (known == all->end()) return vgpus.create(create_request(d, owner_of(d.uuid)));
  // Made by hand, or left by a domain whose end libvirt did not see.
  if (known->socket != d.socket)
    return Error{EEXIST, "there is a vGPU '" + d.vgpu + "' with another socket, " + known->socket +
                             "; 'sluicectl delete " + d.vgpu + "' or correct <server path>"};
  if (!known->waiting())
    return Error{EBUSY, "vGPU '" + d.vgpu + "' is " + known->state +
                            ": another virtual machine has its socket, or it is being deleted"};
  return vgpus.set(set_request(d));
}

Result<void> release(Vgpus& vgpus, const DomainVgpu& d) {
  if (!is_uuid(d.uuid)) return {};
  auto all = vgpus.list();
  // Without sluiced there is no vGPU either.
  if (!all) return refused(all.error()) ? Result<void>(all.error()) : Result<void>();
  for (const Vgpu& v : *all)
    if (v.owner == owner_of(d.uuid))
      if (auto gone = vgpus.remove(v.name); !gone) return gone.error();
  return {};
}

}  // namespace

Result<void> run_hook(const HookPaths& paths, std::string_view operation, std::string_view sub,
                      std::string_view xml) {
  const bool begins = sub == "begin";
  const bool known = (operation == "prepare" && begins) || (operation == "migrate" && begins) ||
                     (operation == "release" && sub == "end");
  if (!known) return {};
  auto vgpu = find_vgpu(xml, paths.sockets);
  // The end of a domain whose XML is wrong: its start was denied, so there is nothing of it.
  if (!vgpu) return operation == "release" ? Result<void>() : Result<void>(vgpu.error());
  if (!*vgpu) return {};
  const DomainVgpu& d = **vgpu;
  AdminVgpus vgpus(paths.admin_socket);
  if (operation == "prepare") return prepare(vgpus, d);
  if (operation == "release") return release(vgpus, d);
  return Error{ENOTSUP, "a domain with a vGPU cannot be migrated; 'sluicectl detach' it before"};
}

}  // namespace sluice::libvirt
