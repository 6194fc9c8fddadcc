// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/api/connection.h"

#include <cstdlib>

#include "mediator/core/domain_xml.h"
#include "mediator/libvirt/api/library.h"
#include "mediator/libvirt/api/limits.h"
#include "mediator/libvirt/api/patience.h"

namespace sluice::libvirt {

Result<Domain> Domain::find(const std::string& uri, const std::string& name) {
  return within<Domain>(limits::kFindSeconds, [uri, name] { return find_now(uri, name); });
}

Result<Domain> Domain::find_now(const std::string& uri, const std::string& name) {
  auto lib = Library::load();
  if (!lib) return lib.error();
  Domain d;
  d.lib_ = *lib;
  const std::string where = uri.empty() ? "qemu:///system" : uri;
  void* connection = d.lib_->virConnectOpen(where.c_str());
  if (!connection) return d.lib_->not_connected(where);
  d.connection_.reset(connection, d.lib_->virConnectClose);
  void* domain = d.lib_->virDomainLookupByName(connection, name.c_str());
  if (!domain) {
    Error e = d.lib_->error("find the domain in " + where);
    if (d.lib_->virGetLastErrorCode() == virt::kErrorNoDomain)
      e.message += "; 'sluicectl list --domains' shows those that are there";
    return e;
  }
  d.domain_.reset(domain, d.lib_->virDomainFree);
  return d;
}

Result<std::string> Domain::next_xml() const {
  char* xml = lib_->virDomainGetXMLDesc(domain_.get(), virt::kXmlSecure | virt::kXmlInactive);
  if (!xml) return lib_->error("read the domain's XML");
  std::string text = xml;
  ::free(xml);
  return text;
}

Result<bool> Domain::running() const {
  const int yes = lib_->virDomainIsActive(domain_.get());
  if (yes < 0) return lib_->error("ask whether the domain runs");
  return yes == 1;
}

Result<bool> Domain::paused() const {
  int state = 0, reason = 0;
  if (lib_->virDomainGetState(domain_.get(), &state, &reason, 0) != 0)
    return lib_->error("ask whether the domain is suspended");
  return virt::paused(state);
}

Result<bool> Domain::persistent() const {
  const int yes = lib_->virDomainIsPersistent(domain_.get());
  if (yes < 0) return lib_->error("ask whether the domain is persistent");
  return yes == 1;
}

Result<void> Domain::define(const std::string& xml) const {
  void* defined = lib_->virDomainDefineXML(connection_.get(), xml.c_str());
  if (!defined) return lib_->error("define the domain");
  lib_->virDomainFree(defined);
  return {};
}

Result<std::string> Domain::running_xml() const {
  char* xml = lib_->virDomainGetXMLDesc(domain_.get(), 0);
  if (!xml) return lib_->error("read the running domain's XML");
  std::string text = xml;
  ::free(xml);
  return text;
}

Result<std::string> Domain::uuid() const {
  char uuid[virt::kUuidBytes];
  if (lib_->virDomainGetUUIDString(domain_.get(), uuid) != 0)
    return lib_->error("ask for the domain's UUID");
  return std::string(uuid);
}

Result<void> Domain::attach_device(const std::string& xml) const {
  if (lib_->virDomainAttachDeviceFlags(domain_.get(), xml.c_str(), virt::kAffectLive) != 0)
    return lib_->error("attach the device");
  return {};
}

Result<void> Domain::detach_device(const std::string& xml) const {
  if (lib_->virDomainDetachDeviceFlags(domain_.get(), xml.c_str(), virt::kAffectLive) != 0)
    return lib_->error("detach the device");
  return {};
}

Result<void> Domain::set_metadata(const std::string& xml, const char* name_space) const {
  if (lib_->virDomainSetMetadata(domain_.get(), virt::kMetadataElement,
                                 xml.empty() ? nullptr : xml.c_str(), "sluice", name_space,
                                 virt::kAffectLive) != 0)
    return lib_->error("write the domain's metadata");
  return {};
}

Result<void> Domain::managed_save() const {
  if (lib_->virDomainManagedSave(domain_.get(), 0) != 0) return lib_->error("save the domain");
  return {};
}

Result<bool> Domain::saved() const {
  const int yes = lib_->virDomainHasManagedSaveImage(domain_.get(), 0);
  if (yes < 0) return lib_->error("ask whether the domain is saved");
  return yes == 1;
}

Result<std::string> Domain::saved_xml() const {
  char* xml = lib_->virDomainManagedSaveGetXMLDesc(domain_.get(), 0);
  if (!xml) return lib_->error("read the XML that was saved with the domain");
  std::string text = xml;
  ::free(xml);
  return text;
}

Result<void> Domain::start() const {
  if (lib_->virDomainCreate(domain_.get()) != 0) return lib_->error("start the domain");
  return {};
}

}  // namespace sluice::libvirt
