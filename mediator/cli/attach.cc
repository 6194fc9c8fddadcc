// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/attach.h"

#include <unistd.h>

#include <cstdio>

#include "mediator/base/clock.h"
#include "mediator/cli/answer.h"
#include "mediator/cli/domain_request.h"
#include "mediator/cli/waiting.h"
#include "mediator/libvirt/api/attachment.h"
#include "mediator/libvirt/api/connection.h"
#include "mediator/libvirt/api/domains.h"
#include "mediator/libvirt/api/limits.h"

namespace sluice::cli {

namespace {

// From when on a changed domain has the change; empty: as everybody expects.
Result<std::string> from_when(const libvirt::Domain& domain, const std::string& name) {
  auto running = domain.running();
  if (!running) return running.error();
  if (*running)
    return std::string("; the domain runs: from its next start on (shut it off, then start it)");
  auto saved = domain.saved();
  if (!saved) return saved.error();
  if (!*saved) return std::string();
  return "; the domain is saved, and 'virsh start' goes on as it was: from the start after that on "
         "('virsh managedsave-remove " +
         name + "' gives the saved state up)";
}

// Carries `change` of the XML `before` out, or prints it.
Result<void> apply(const libvirt::Domain& domain, const std::string& before,
                   const libvirt::Change& change, const AttachOptions& o, const char* done) {
  std::fputs(change.shown.c_str(), stdout);
  if (!change.note.empty())
    std::printf("%s: the guest will poll, without interrupts: %s\n", o.domain.c_str(),
                change.note.c_str());
  if (o.print_only) return {};
  auto when = from_when(domain, o.domain);
  if (!when) return when.error();
  // libvirt takes what comes last. What somebody else has just done is not to be undone unseen.
  auto now = domain.next_xml();
  if (!now) return now.error();
  if (*now != before)
    return Error{EAGAIN, "domain " + o.domain + " was changed meanwhile; try again"};
  if (auto defined = domain.define(change.xml); !defined) return defined.error();
  std::printf("%s: %s%s\n", o.domain.c_str(), done, when->c_str());
  return {};
}

Result<libvirt::Domain> find(const AttachOptions& o) {
  auto domain = libvirt::Domain::find(o.uri, o.domain, o.timeout_s);
  if (!domain) return domain.error();
  if (o.live) {
    auto running = domain->running();
    if (!running) return running.error();
    if (!*running)
      return Error{EINVAL,
                   "domain " + o.domain + " does not run; without --live it is for its next start"};
    return domain;
  }
  auto persistent = domain->persistent();
  if (!persistent) return persistent.error();
  if (!*persistent)
    return Error{ENOTSUP,
                 "domain " + o.domain +
                     " is transient: it has no next start. 'virsh define' it, or change the domain "
                     "that runs (attach --live, detach --live)"};
  return domain;
}

std::vector<std::pair<std::string, std::string>> settings_of(const AttachOptions& o) {
  std::vector<std::pair<std::string, std::string>> settings;
  const auto number = [&](const char* name, const std::optional<uint32_t>& value) {
    if (value) settings.emplace_back(name, std::to_string(*value));
  };
  const auto word = [&](const char* name, const std::optional<std::string>& value) {
    if (value) settings.emplace_back(name, *value);
  };
  number("weight", o.weight);
  word("memory", o.memory);
  number("priority", o.priority);
  word("latency", o.latency);
  number("min", o.min);
  number("max", o.max);
  word("group", o.group);
  word("mode", o.mode);
  return settings;
}

libvirt::Iommu iommu_of(const AttachOptions& o) {
  return o.no_iommu ? libvirt::Iommu::kLeave : libvirt::Iommu::kWherePossible;
}

Error of_domain(const Error& e, const AttachOptions& o) {
  return Error(e).with_context("domain " + o.domain);
}

// sluiced's vGPUs of a domain, as it lists them.
Result<json::array> own_vgpus(AdminClient& client, const std::string& uuid) {
  auto all = client.call("vgpu.list");
  if (!all) return all.error();
  json::array own;
  if (all->is_array())
    for (const json::value& v : all->get_array())
      if (text(v, "owner") == owner_of(uuid)) own.push_back(v);
  return own;
}

Result<void> attach_running(AdminClient& client, const libvirt::Domain& domain,
                            const AttachOptions& o, const libvirt::Attachment& a) {
  auto xml = domain.running_xml();
  if (!xml) return xml.error();
  auto live = libvirt::attach_live(*xml, a);
  if (!live) return of_domain(live.error(), o);
  std::fputs((live->settings + live->device).c_str(), stdout);
  if (o.print_only) return {};
  const std::string& name = live->vgpu.vgpu;
  auto left = own_vgpus(client, live->vgpu.uuid);
  if (!left) return left.error();
  if (!left->empty())
    return Error{EEXIST, "vGPU '" + name + "' is left of an attach or detach that did not end; " +
                             "'sluicectl delete " + name + "', then again"};
  auto made = client.call("vgpu.create", create_request(live->vgpu, owner_of(live->vgpu.uuid)));
  if (!made) return made.error();
  // The settings first: sluice-libvirt-events reads them when the device is there.
  auto done = domain.set_metadata(live->settings);
  if (done) {
    done = domain.attach_device(live->device);
    // The device may come yet, and is to find its vGPU; else sluice-libvirt-events deletes that.
    if (!done && done.error().code == ETIMEDOUT) return done;
  }
  if (!done) {
    (void)domain.set_metadata("");
    // sluice-libvirt-events deletes it as well, where this cannot.
    if (auto gone = client.call("vgpu.delete", {{"name", name}}); !gone)
      return Error{done.error().code,
                   done.error().message + "; 'sluicectl delete " + name + "' failed as well"};
    return done;
  }
  std::printf(
      "%s: attached until it is shut off; in the guest 'systemctl start sluice-guest-agent', where "
      "udev has not\n",
      o.domain.c_str());
  return {};
}

// Deletes the domain's vGPU: the guest's agent then lets go of the device.
Result<void> delete_vgpu(AdminClient& client, const std::string& uuid) {
  auto own = own_vgpus(client, uuid);
  if (!own) return own.error();
  for (const json::value& v : *own)
    if (auto gone = client.call("vgpu.delete", {{"name", text(v, "name")}}); !gone)
      return gone.error();
  return {};
}

Result<void> take_out(AdminClient& client, const libvirt::Domain& domain, const AttachOptions& o) {
  auto xml = domain.running_xml();
  if (!xml) return xml.error();
  auto device = libvirt::detach_live(*xml);
  if (!device) return of_domain(device.error(), o);
  std::fputs(device->c_str(), stdout);
  if (o.print_only) return {};
  auto paused = domain.paused();
  if (!paused) return paused.error();
  if (*paused)
    return Error{EBUSY, "domain " + o.domain + " is suspended, and its guest has to release " +
                            "the device; 'virsh resume " + o.domain + "' before"};
  auto uuid = domain.uuid();
  if (!uuid) return uuid.error();
  if (auto gone = delete_vgpu(client, *uuid); !gone) return gone;
  if (auto asked = domain.detach_device(*device); !asked) return asked;
  const Waiting waiting("the guest to release the device, for up to " +
                        std::to_string(libvirt::limits::kDetachSeconds) + " s");
  const uint64_t end = monotonic_ns() + libvirt::limits::kDetachSeconds * 1'000'000'000;
  for (;;) {
    xml = domain.running_xml();
    if (!xml) return xml.error();
    if (!libvirt::detach_live(*xml)) break;
    if (monotonic_ns() > end)
      return Error{ETIMEDOUT, "domain " + o.domain +
                                  ": the guest still has the device. It goes when every program "
                                  "that used it has ended"};
    ::usleep(50'000);
  }
  return domain.set_metadata("");
}

Result<void> detach_running(AdminClient& client, const libvirt::Domain& domain,
                            const AttachOptions& o) {
  auto out = take_out(client, domain, o);
  if (out && !o.print_only) std::printf("%s: detached\n", o.domain.c_str());
  return out;
}

Result<libvirt::Attachment> attachment_of(AdminClient& client, const AttachOptions& o,
                                          VgpuSettings settings, std::optional<unsigned> slots) {
  auto info = client.call("info");
  if (!info) return info.error();
  const std::string folder = text(*info, "runtime_dir");
  return libvirt::Attachment{
      std::move(settings), (folder.empty() ? "/run/sluice" : folder) + "/vgpu", slots, iommu_of(o)};
}

// What saving costs, as a refusal.
Result<void> may_save(AdminClient& client, const std::string& uuid, const std::string& xml,
                      const AttachOptions& o) {
  auto own = own_vgpus(client, uuid);
  if (!own) return own.error();
  for (const json::value& v : *own)
    if (const uint64_t programs = count(v, "sessions"); programs > 0)
      return Error{EBUSY, std::to_string(programs) + (programs == 1 ? " program" : " programs") +
                              " on the GPU would end; end them in the guest, or save with --force"};
  if (!libvirt::parts_of(xml).reserved)
    return Error{ENOTSUP,
                 "after 'restore' it would be without its vGPU until it is shut off: it runs "
                 "without a root port with room for one. 'sluicectl reserve " +
                     o.domain + "' makes it, from the next start on; or save with --force"};
  return {};
}

// What was saved of the vGPU of a domain that is not to start without it.
Result<void> saved_right(const libvirt::Domain& domain, const AttachOptions& o) {
  auto xml = domain.saved_xml();
  if (!xml) return xml.error();
  auto saved = libvirt::saved_vgpu(*xml);
  if (saved) return {};
  const bool none = saved.error().code == ENOENT;
  return of_domain(
      Error{saved.error().code, "it was not started: " + saved.error().message + "; 'virsh " +
                                    (none ? "start " + o.domain + "' starts it"
                                          : "managedsave-edit " + o.domain + "' corrects it")},
      o);
}

}  // namespace

Result<void> attach(AdminClient& client, const AttachOptions& o) {
  const Waiting waiting(kLibvirtAwaited);
  auto a = attachment_of(client, o, settings_of(o), o.slots);
  if (!a) return a.error();
  auto domain = find(o);
  if (!domain) return domain.error();
  if (o.live) return attach_running(client, *domain, o, *a);
  auto xml = domain->next_xml();
  if (!xml) return xml.error();
  auto change = libvirt::attach_vgpu(*xml, *a);
  if (!change) return of_domain(change.error(), o);
  return apply(*domain, *xml, *change, o, "attached");
}

Result<void> detach(const AttachOptions& o, const std::function<Result<AdminClient>()>& connect) {
  const Waiting waiting(kLibvirtAwaited);
  auto domain = find(o);
  if (!domain) return domain.error();
  if (o.live) {
    auto client = connect();
    return client ? detach_running(*client, *domain, o) : Result<void>(client.error());
  }
  auto xml = domain->next_xml();
  if (!xml) return xml.error();
  auto change = libvirt::detach_vgpu(*xml);
  if (!change) return of_domain(change.error(), o);
  return apply(*domain, *xml, *change, o, "detached");
}

Result<void> reserve(AdminClient& client, const AttachOptions& o) {
  const Waiting waiting(kLibvirtAwaited);
  auto info = client.call("info");
  if (!info) return info.error();
  const json::value* defaults = field(*info, "vgpu_defaults");
  const uint64_t region = defaults ? count(*defaults, "region_bytes") : 0;
  if (region == 0) return Error{EPROTO, "sluiced does not say how large a vGPU's region is"};
  auto domain = find(o);
  if (!domain) return domain.error();
  auto xml = domain->next_xml();
  if (!xml) return xml.error();
  // Twice: the region's own alignment within the window.
  auto change = libvirt::reserve_room(*xml, 2 * region, iommu_of(o));
  if (!change) return of_domain(change.error(), o);
  return apply(*domain, *xml, *change, o, "room reserved");
}

Result<void> save(AdminClient& client, const AttachOptions& options) {
  const Waiting waiting(kLibvirtAwaited);
  AttachOptions o = options;
  o.live = true;
  auto domain = find(o);
  if (!domain) return domain.error();
  auto persistent = domain->persistent();
  if (!persistent) return persistent.error();
  if (!*persistent)
    return Error{ENOTSUP, "domain " + o.domain +
                              " is transient: libvirt saves it to no place of "
                              "its own; 'virsh define' it"};
  auto xml = domain->running_xml();
  if (!xml) return xml.error();
  auto saved = libvirt::vgpu_to_save(*xml);
  if (!saved) return of_domain(saved.error(), o);
  auto uuid = domain->uuid();
  if (!uuid) return uuid.error();
  if (!o.force)
    if (auto may = may_save(client, *uuid, *xml, o); !may) return of_domain(may.error(), o);
  auto a = attachment_of(client, o, saved->settings, saved->slots);
  if (!a) return a.error();
  if (auto out = take_out(client, *domain, o); !out) return out;
  auto done = domain->set_metadata(libvirt::saved_xml(*saved), kSavedXmlNamespace);
  if (done) {
    const Waiting saving("libvirt to write the domain's memory");
    done = domain->managed_save();
  }
  if (done) {
    std::printf("%s: saved; 'sluicectl restore %s' starts it and attaches its vGPU\n",
                o.domain.c_str(), o.domain.c_str());
    return {};
  }
  // Whether it was saved, or is yet, nobody knows. The settings stay for 'restore'.
  if (done.error().code == ETIMEDOUT)
    return Error{ETIMEDOUT, done.error().message + "; when libvirt answers, 'sluicectl restore " +
                                o.domain + "' gives it its vGPU, saved or not"};
  (void)domain->set_metadata("", kSavedXmlNamespace);
  const auto again = attach_running(client, *domain, o, *a);
  return Error{
      done.error().code,
      done.error().message + (again ? "; it runs on, with its vGPU"
                                    : "; it runs on, without its vGPU: " + again.error().message)};
}

Result<void> restore(AdminClient& client, const AttachOptions& o) {
  const Waiting waiting(kLibvirtAwaited);
  // Before the domain starts: without sluiced it would run without its vGPU.
  auto reached = client.call("info");
  if (!reached) return reached.error();
  auto domain = find(o);
  if (!domain) return domain.error();
  auto running = domain->running();
  if (!running) return running.error();
  if (!*running) {
    auto saved = domain->saved();
    if (!saved) return saved.error();
    if (!*saved)
      return Error{
          ENOENT, "domain " + o.domain + " is not saved; 'virsh start " + o.domain + "' starts it"};
    if (auto right = saved_right(*domain, o); !right) return right;
    const Waiting starting("libvirt to start the domain from its saved memory");
    if (auto started = domain->start(); !started) return started;
  }
  auto xml = domain->running_xml();
  if (!xml) return xml.error();
  auto saved = libvirt::saved_vgpu(*xml);
  // A domain that was shut off, and not saved, starts with what its XML says.
  if (!saved) return of_domain(saved.error(), o);
  // An earlier 'restore' got as far as that.
  if (libvirt::parts_of(*xml).vgpu) return domain->set_metadata("", kSavedXmlNamespace);
  auto a = attachment_of(client, o, saved->settings, saved->slots);
  if (!a) return a.error();
  if (auto attached = attach_running(client, *domain, o, *a); !attached)
    return Error(attached.error())
        .with_context("domain " + o.domain + " runs, and is without its vGPU");
  return domain->set_metadata("", kSavedXmlNamespace);
}

}  // namespace sluice::cli
