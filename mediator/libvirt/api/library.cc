// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/api/library.h"

#include <dlfcn.h>

#include <csignal>
#include <type_traits>

namespace sluice::libvirt {
namespace {

void no_output(void*, void*) {}

}  // namespace

Result<const Library*> Library::load() {
  static Library lib;
  static bool loaded = false;
  if (loaded) return &lib;
  void* file = ::dlopen("libvirt.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!file) return Error{ENOENT, "libvirt is not installed here (libvirt.so.0); install libvirt0"};
  bool all = true;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(file, name));
    all &= function != nullptr;
  };
#define SLUICE_FIND(name) find(#name, lib.name)
  SLUICE_FIND(virConnectOpen);
  SLUICE_FIND(virConnectOpenReadOnly);
  SLUICE_FIND(virConnectClose);
  SLUICE_FIND(virConnectIsAlive);
  SLUICE_FIND(virConnectGetLibVersion);
  SLUICE_FIND(virConnectSetKeepAlive);
  SLUICE_FIND(virConnectListAllDomains);
  SLUICE_FIND(virConnectDomainEventRegisterAny);
  SLUICE_FIND(virConnectDomainEventDeregisterAny);
  SLUICE_FIND(virDomainLookupByName);
  SLUICE_FIND(virDomainLookupByUUIDString);
  SLUICE_FIND(virDomainFree);
  SLUICE_FIND(virDomainGetName);
  SLUICE_FIND(virDomainGetUUIDString);
  SLUICE_FIND(virDomainGetState);
  SLUICE_FIND(virDomainGetXMLDesc);
  SLUICE_FIND(virDomainIsActive);
  SLUICE_FIND(virDomainIsPersistent);
  SLUICE_FIND(virDomainDefineXML);
  SLUICE_FIND(virDomainAttachDeviceFlags);
  SLUICE_FIND(virDomainDetachDeviceFlags);
  SLUICE_FIND(virDomainCreate);
  SLUICE_FIND(virDomainManagedSave);
  SLUICE_FIND(virDomainHasManagedSaveImage);
  SLUICE_FIND(virDomainManagedSaveGetXMLDesc);
  SLUICE_FIND(virDomainSetMetadata);
  SLUICE_FIND(virEventRegisterDefaultImpl);
  SLUICE_FIND(virEventRunDefaultImpl);
  SLUICE_FIND(virEventAddTimeout);
  SLUICE_FIND(virEventUpdateTimeout);
  SLUICE_FIND(virGetLastErrorMessage);
  SLUICE_FIND(virGetLastErrorCode);
  SLUICE_FIND(virSetErrorFunc);
#undef SLUICE_FIND
  if (!all) return Error{ENOSYS, "libvirt.so.0 is too old: version 4.5 or newer is needed"};
  // Errors are ours to print.
  lib.virSetErrorFunc(nullptr, no_output);
  // A libvirtd that ends is an error of the next call, and no signal that ends this program.
  ::signal(SIGPIPE, SIG_IGN);
  loaded = true;
  return &lib;
}

Error Library::not_connected(const std::string& uri) const {
  Error e = error("connect to " + uri);
  const auto says = [&](const char* words) { return e.message.find(words) != std::string::npos; };
  // Who may not open the socket, and whom polkit would ask for a password.
  if (says("Permission denied") || says("polkit"))
    e.message += "; 'adduser YOU libvirt', and log in anew";
  else if (says("No such file") || says("Connection refused"))
    e.message += "; 'systemctl start libvirtd'";
  return e;
}

}  // namespace sluice::libvirt
