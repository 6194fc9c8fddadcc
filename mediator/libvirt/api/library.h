// SPDX-License-Identifier: Apache-2.0
// libvirt.so.0, loaded when it is needed: programs that can work without libvirt do not depend on
// it. Its functions and their numbers are a stable interface since libvirt 1.0; those of events
// since 3.0. For the files of this folder only. One thread. Who has loaded it gets no SIGPIPE.
#pragma once

#include <string>

#include "mediator/base/result.h"

namespace sluice::libvirt {

// The functions that we call, by their names in libvirt.so.0. Connections and domains are void*.
struct Library {
  static Result<const Library*> load();

  void* (*virConnectOpen)(const char*);
  void* (*virConnectOpenReadOnly)(const char*);
  int (*virConnectClose)(void*);
  int (*virConnectIsAlive)(void*);
  int (*virConnectGetLibVersion)(void*, unsigned long*);
  int (*virConnectSetKeepAlive)(void*, int seconds, unsigned count);
  int (*virConnectListAllDomains)(void*, void*** domains, unsigned flags);
  int (*virConnectDomainEventRegisterAny)(void*, void* domain, int event, void (*call)(),
                                          void* context, void (*free_context)(void*));
  int (*virConnectDomainEventDeregisterAny)(void*, int callback);
  void* (*virDomainLookupByName)(void*, const char*);
  void* (*virDomainLookupByUUIDString)(void*, const char*);
  int (*virDomainFree)(void*);
  const char* (*virDomainGetName)(void*);
  int (*virDomainGetUUIDString)(void*, char*);
  int (*virDomainGetState)(void*, int* state, int* reason, unsigned flags);
  char* (*virDomainGetXMLDesc)(void*, unsigned);
  int (*virDomainIsActive)(void*);
  int (*virDomainIsPersistent)(void*);
  void* (*virDomainDefineXML)(void*, const char*);
  int (*virDomainAttachDeviceFlags)(void*, const char* xml, unsigned flags);
  int (*virDomainDetachDeviceFlags)(void*, const char* xml, unsigned flags);
  int (*virDomainCreate)(void*);
  int (*virDomainManagedSave)(void*, unsigned flags);
  int (*virDomainHasManagedSaveImage)(void*, unsigned flags);
  char* (*virDomainManagedSaveGetXMLDesc)(void*, unsigned flags);
  int (*virDomainSetMetadata)(void*, int type, const char* xml, const char* key, const char* uri,
                              unsigned flags);
  int (*virEventRegisterDefaultImpl)();
  int (*virEventRunDefaultImpl)();
  int (*virEventAddTimeout)(int ms, void (*call)(int, void*), void* context,
                            void (*free_context)(void*));
  void (*virEventUpdateTimeout)(int timer, int ms);
  const char* (*virGetLastErrorMessage)();
  int (*virGetLastErrorCode)();
  void (*virSetErrorFunc)(void*, void (*)(void*, void*));

  // `what` failed, with libvirt's reason.
  Error error(const std::string& what) const {
    return Error{EIO, what + ": " + virGetLastErrorMessage()};
  }
  // The same for a connection to the libvirtd at `uri`, and what to do.
  Error not_connected(const std::string& uri) const;
};

// Of libvirt's enumerations.
namespace virt {
inline constexpr unsigned kXmlSecure = 1, kXmlInactive = 2;  // virDomainXMLFlags
inline constexpr unsigned kAffectLive = 1;                   // virDomainModificationImpact
inline constexpr unsigned kListActive = 1;                   // virConnectListAllDomainsFlags
inline constexpr int kMetadataElement = 2;                   // virDomainMetadataType
inline constexpr int kErrorNoDomain = 42;                    // virErrorNumber
inline constexpr int kStatePaused = 3, kStatePmSuspended = 7;
inline bool paused(int state) { return state == kStatePaused || state == kStatePmSuspended; }
inline constexpr int kEventLifecycle = 0, kEventDeviceRemoved = 15, kEventDeviceAdded = 19,
                     kEventMetadata = 23;  // virDomainEventID
inline constexpr size_t kUuidBytes = 37;   // VIR_UUID_STRING_BUFLEN
}  // namespace virt

}  // namespace sluice::libvirt
