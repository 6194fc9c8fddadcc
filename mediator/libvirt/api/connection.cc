// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/api/connection.h"

#include <dlfcn.h>

#include <cstdlib>

namespace sluice::libvirt {
namespace {

// libvirt's virDomainXMLFlags.
constexpr unsigned kXmlSecure = 1, kXmlInactive = 2;

void no_output(void*, void*) {}

}  // namespace

// The functions that we call, by their names in libvirt.so.0.
struct Domain::Library {
  void* (*virConnectOpen)(const char*);
  int (*virConnectClose)(void*);
  void* (*virDomainLookupByName)(void*, const char*);
  int (*virDomainFree)(void*);
  char* (*virDomainGetXMLDesc)(void*, unsigned);
  int (*virDomainIsActive)(void*);
  int (*virDomainIsPersistent)(void*);
  void* (*virDomainDefineXML)(void*, const char*);
  const char* (*virGetLastErrorMessage)();
  void (*virSetErrorFunc)(void*, void (*)(void*, void*));

  Error error(const std::string& what) const {
    return Error{EIO, what + ": " + virGetLastErrorMessage()};
  }
};

Result<const Domain::Library*> Domain::library() {
  static Library lib;
  static bool loaded = false;
  if (loaded) return &lib;
  void* file = ::dlopen("libvirt.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!file) return Error{ENOENT, "libvirt is not installed here (libvirt.so.0); install libvirt0"};
  const auto load = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(file, name));
    return function != nullptr;
  };
#define SLUICE_LOAD(name) load(#name, lib.name)
  if (!(SLUICE_LOAD(virConnectOpen) && SLUICE_LOAD(virConnectClose) &&
        SLUICE_LOAD(virDomainLookupByName) && SLUICE_LOAD(virDomainFree) &&
        SLUICE_LOAD(virDomainGetXMLDesc) && SLUICE_LOAD(virDomainIsActive) &&
        SLUICE_LOAD(virDomainIsPersistent) && SLUICE_LOAD(virDomainDefineXML) &&
        SLUICE_LOAD(virGetLastErrorMessage) && SLUICE_LOAD(virSetErrorFunc)))
    return Error{ENOSYS, "libvirt.so.0 is too old: version 1.0.6 or newer is needed"};
#undef SLUICE_LOAD
  // Errors are ours to print.
  lib.virSetErrorFunc(nullptr, no_output);
  loaded = true;
  return &lib;
}

Result<Domain> Domain::find(const std::string& uri, const std::string& name) {
  auto lib = library();
  if (!lib) return lib.error();
  Domain d;
  d.lib_ = *lib;
  const std::string where = uri.empty() ? "qemu:///system" : uri;
  void* connection = d.lib_->virConnectOpen(where.c_str());
  if (!connection) return d.lib_->error("connect to " + where);
  d.connection_.reset(connection, d.lib_->virConnectClose);
  void* domain = d.lib_->virDomainLookupByName(connection, name.c_str());
  if (!domain) return d.lib_->error("find the domain in " + where);
  d.domain_.reset(domain, d.lib_->virDomainFree);
  return d;
}

Result<std::string> Domain::next_xml() const {
  char* xml = lib_->virDomainGetXMLDesc(domain_.get(), kXmlSecure | kXmlInactive);
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

}  // namespace sluice::libvirt
