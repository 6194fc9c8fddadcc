// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/hook.h"

#include <unistd.h>

#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/cli/domain_request.h"
#include "mediator/libvirt/limits.h"
#include "mediator/libvirt/vgpus.h"

namespace sluice::libvirt {
namespace {

// As libvirt prints one: nothing else becomes a file's name.
bool is_uuid(std::string_view text) {
  return text.size() == 36 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-';
         });
}

// vGPUs of domains whose end nobody saw: the domain's own, or one of its name. They have the
// settings of that time.
Result<void> remove_left_over(Vgpus& vgpus, std::vector<ListedVgpu>& all, const DomainVgpu& d) {
  for (auto v = all.begin(); v != all.end();) {
    const bool left =
        v->owner == owner_of(d.uuid) || (v->name == d.vgpu && v->owner.starts_with(kOwnerPrefix));
    if (!left || !v->waiting()) {
      ++v;
      continue;
    }
    if (auto gone = vgpus.remove(v->name); !gone) return gone;
    v = all.erase(v);
  }
  return {};
}

// Why the domain cannot have its vGPU beside those that there are.
std::optional<Error> in_the_way(const std::vector<ListedVgpu>& all, const DomainVgpu& d) {
  for (const ListedVgpu& v : all) {
    const bool same_name = v.name == d.vgpu;
    if (same_name && !v.waiting())
      return Error{EBUSY, "vGPU '" + v.name + "' is " + v.state +
                              ": another virtual machine has its socket, or it is being deleted"};
    if (same_name && !v.owner.empty())
      return Error{EEXIST, "there is a vGPU '" + v.name + "' of " + v.owner +
                               "; 'virsh domrename' gives the domain another name"};
    if (same_name && v.socket != d.socket)
      return Error{EEXIST, "there is a vGPU '" + v.name + "' with another socket, " + v.socket +
                               "; 'sluicectl delete " + v.name + "' or correct <server path>"};
    // virt-clone and domrename leave the path as it was.
    if (!same_name && v.socket == d.socket) {
      const std::string other = d.socket.ends_with("/" + d.vgpu + ".sock") ? v.name : d.domain;
      return Error{EEXIST, "its <server path> is the socket of vGPU '" + v.name +
                               "' as well; 'sluicectl attach " + other + "' gives " + other +
                               " one of its own"};
    }
  }
  return std::nullopt;
}

// sluiced may be about to start: systemd starts it anew after an upgrade.
Result<std::vector<ListedVgpu>> list_when_there(Vgpus& vgpus) {
  const uint64_t end_ns = monotonic_ns() + limits::kAbsentSeconds * 1'000'000'000ull;
  for (;;) {
    auto all = vgpus.list();
    const bool absent = !all && (all.error().code == ENOENT || all.error().code == ECONNREFUSED);
    if (!absent || monotonic_ns() > end_ns) return all;
    ::usleep(limits::kAbsentPollMs * 1000);
  }
}

Result<void> prepare(Vgpus& vgpus, const DomainVgpu& d) {
  if (!is_uuid(d.uuid)) return Error{EINVAL, "the domain has no <uuid>"};
  auto all = list_when_there(vgpus);
  if (!all) return all.error();
  if (auto removed = remove_left_over(vgpus, *all, d); !removed) return removed;
  if (auto why = in_the_way(*all, d)) return *why;
  // One of its name is left: made by hand, with its socket.
  for (const ListedVgpu& v : *all)
    if (v.name == d.vgpu) return vgpus.set(set_request(d));
  return vgpus.create(create_request(d, owner_of(d.uuid)));
}

Result<void> release(Vgpus& vgpus, const DomainVgpu& d) {
  if (!is_uuid(d.uuid)) return {};
  auto all = vgpus.list();
  // Without sluiced there is no vGPU either.
  if (!all) return refused(all.error()) ? Result<void>(all.error()) : Result<void>();
  for (const ListedVgpu& v : *all)
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
