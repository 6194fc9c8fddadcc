// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/api/connection.h"

#include <cstdlib>

#include "mediator/core/domain_xml.h"
#include "mediator/libvirt/api/library.h"
#include "mediator/libvirt/api/patience.h"

namespace sluice::libvirt {

Result<Domain> Domain::find(const std::string& uri, const std::string& name, int timeout_s) {
  return within<Domain>(timeout_s,
                        [uri, name, timeout_s] { return find_now(uri, name, timeout_s); });
}

Result<Domain> Domain::find_now(const std::string& uri, const std::string& name, int timeout_s) {
  auto lib = Library::load();
  if (!lib) return lib.error();
  Domain d;
  d.lib_ = *lib;
  d.timeout_s_ = timeout_s;
  const std::string where = uri.empty() ? "qemu:///system" : uri;
  void* connection = d.lib_->virConnectOpen(where.c_str());
  if (!connection) return d.lib_->not_connected(where);
  // Closing asks libvirt as well.
  d.connection_.reset(connection, [close = d.lib_->virConnectClose, timeout_s](void* c) {
    (void)within<void>(timeout_s, [close, c] {
      close(c);
      return Result<void>();
    });
  });
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

template <class T>
Result<T> Domain::noted(const char* what, Result<T> answer) const {
  if (answer || answer.error().code != ETIMEDOUT) return answer;
  *silent_ = answer.error();
  return Error(answer.error()).with_context(what);
}

template <class T>
Result<T> Domain::ask(const char* what, Question<T> question) const {
  if (*silent_) return Error(**silent_).with_context(what);
  return noted(what, within<T>(timeout_s_, [d = *this, question = std::move(question)] {
                 return question(d);
               }));
}

Result<void> Domain::change(const char* what, Question<void> question) const {
  auto done = ask<void>(what, std::move(question));
  if (!done && done.error().code == ETIMEDOUT)
    return Error{ETIMEDOUT, done.error().message + "; it may be done yet"};
  return done;
}

Result<void> Domain::long_change(const char* what, Question<void> question) const {
  if (*silent_) return Error(**silent_).with_context(what);
  const auto ping = [d = *this]() -> Result<void> {
    unsigned long version = 0;
    if (d.lib_->virConnectGetLibVersion(d.connection_.get(), &version) == 0) return {};
    return d.lib_->error("ask for libvirt's version");
  };
  return noted(
      what,
      while_answering<void>(
          timeout_s_, [d = *this, question = std::move(question)] { return question(d); }, ping));
}

Result<std::string> Domain::text(const char* what, char* (*read)(const Domain&)) const {
  return ask<std::string>(what, [what, read](const Domain& d) -> Result<std::string> {
    const std::unique_ptr<char, void (*)(void*)> text(read(d), ::free);
    if (!text) return d.lib_->error(what);
    return std::string(text.get());
  });
}

Result<bool> Domain::truth(const char* what, int (*read)(const Domain&)) const {
  return ask<bool>(what, [what, read](const Domain& d) -> Result<bool> {
    const int yes = read(d);
    if (yes < 0) return d.lib_->error(what);
    return yes == 1;
  });
}

Result<std::string> Domain::next_xml() const {
  return text("read the domain's XML", [](const Domain& d) {
    return d.lib_->virDomainGetXMLDesc(d.domain_.get(), virt::kXmlSecure | virt::kXmlInactive);
  });
}

Result<bool> Domain::running() const {
  return truth("ask whether the domain runs",
               [](const Domain& d) { return d.lib_->virDomainIsActive(d.domain_.get()); });
}

Result<bool> Domain::paused() const {
  return truth("ask whether the domain is suspended", [](const Domain& d) {
    int state = 0, reason = 0;
    if (d.lib_->virDomainGetState(d.domain_.get(), &state, &reason, 0) != 0) return -1;
    return virt::paused(state) ? 1 : 0;
  });
}

Result<bool> Domain::persistent() const {
  return truth("ask whether the domain is persistent",
               [](const Domain& d) { return d.lib_->virDomainIsPersistent(d.domain_.get()); });
}

Result<void> Domain::define(const std::string& xml) const {
  return change("define the domain", [xml](const Domain& d) -> Result<void> {
    void* defined = d.lib_->virDomainDefineXML(d.connection_.get(), xml.c_str());
    if (!defined) return d.lib_->error("define the domain");
    d.lib_->virDomainFree(defined);
    return {};
  });
}

Result<std::string> Domain::running_xml() const {
  return text("read the running domain's XML",
              [](const Domain& d) { return d.lib_->virDomainGetXMLDesc(d.domain_.get(), 0); });
}

Result<std::string> Domain::uuid() const {
  // Known to the library since the domain was found.
  char uuid[virt::kUuidBytes];
  if (lib_->virDomainGetUUIDString(domain_.get(), uuid) != 0)
    return lib_->error("ask for the domain's UUID");
  return std::string(uuid);
}

Result<void> Domain::attach_device(const std::string& xml) const {
  return change("attach the device", [xml](const Domain& d) -> Result<void> {
    if (d.lib_->virDomainAttachDeviceFlags(d.domain_.get(), xml.c_str(), virt::kAffectLive) != 0)
      return d.lib_->error("attach the device");
    return {};
  });
}

Result<void> Domain::detach_device(const std::string& xml) const {
  // libvirt waits for the guest, for some seconds.
  return long_change("detach the device", [xml](const Domain& d) -> Result<void> {
    if (d.lib_->virDomainDetachDeviceFlags(d.domain_.get(), xml.c_str(), virt::kAffectLive) != 0)
      return d.lib_->error("detach the device");
    return {};
  });
}

Result<void> Domain::set_metadata(const std::string& xml, const char* name_space) const {
  return change("write the domain's metadata", [xml, name_space](const Domain& d) -> Result<void> {
    if (d.lib_->virDomainSetMetadata(d.domain_.get(), virt::kMetadataElement,
                                     xml.empty() ? nullptr : xml.c_str(), "sluice", name_space,
                                     virt::kAffectLive) != 0)
      return d.lib_->error("write the domain's metadata");
    return {};
  });
}

Result<void> Domain::managed_save() const {
  return long_change("save the domain", [](const Domain& d) -> Result<void> {
    if (d.lib_->virDomainManagedSave(d.domain_.get(), 0) != 0)
      return d.lib_->error("save the domain");
    return {};
  });
}

Result<bool> Domain::saved() const {
  return truth("ask whether the domain is saved", [](const Domain& d) {
    return d.lib_->virDomainHasManagedSaveImage(d.domain_.get(), 0);
  });
}

Result<std::string> Domain::saved_xml() const {
  return text("read the XML that was saved with the domain", [](const Domain& d) {
    return d.lib_->virDomainManagedSaveGetXMLDesc(d.domain_.get(), 0);
  });
}

Result<void> Domain::start() const {
  return long_change("start the domain", [](const Domain& d) -> Result<void> {
    if (d.lib_->virDomainCreate(d.domain_.get()) != 0) return d.lib_->error("start the domain");
    return {};
  });
}

}  // namespace sluice::libvirt
