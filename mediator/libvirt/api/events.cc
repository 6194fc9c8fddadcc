// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/api/events.h"

#include <cstdlib>
#include <utility>

#include "mediator/libvirt/api/library.h"
#include "mediator/libvirt/api/limits.h"
#include "mediator/libvirt/api/patience.h"

namespace sluice::libvirt {
namespace {

using Call = void (*)();

// libvirt's own event loop: one per process, for good. What callbacks write is here too, as one may
// be called when its connection has been closed.
struct EventLoop {
  int timer = -1;     // ends a wait
  bool over = false;  // it has
  std::set<std::string> changed;
};
EventLoop loop;

void note(void* domain) {
  char uuid[virt::kUuidBytes];
  auto lib = Library::load();
  if (lib && (*lib)->virDomainGetUUIDString(domain, uuid) == 0) loop.changed.insert(uuid);
}

Result<void> start_loop(const Library& lib) {
  if (loop.timer >= 0) return {};
  static bool registered = false;
  if (!registered && lib.virEventRegisterDefaultImpl() != 0)
    return lib.error("start libvirt's event loop");
  registered = true;
  loop.timer = lib.virEventAddTimeout(
      -1, [](int, void*) { loop.over = true; }, nullptr, nullptr);
  if (loop.timer < 0) return lib.error("make a timer in libvirt's event loop");
  return {};
}

}  // namespace

Result<std::unique_ptr<DomainEvents>> DomainEvents::open(
    const std::string& uri, const std::function<void(const Error&)>& silent) {
  auto lib = Library::load();
  if (!lib) return lib.error();
  if (auto started = start_loop(**lib); !started) return started.error();
  std::unique_ptr<DomainEvents> e(new DomainEvents);
  e->lib_ = *lib;
  const std::string where = uri.empty() ? "qemu:///system" : uri;
  auto connected = however_long<void*>(
      limits::kSilentSeconds,
      [lib = e->lib_, where]() -> Result<void*> {
        void* connection = lib->virConnectOpenReadOnly(where.c_str());
        if (!connection) return lib->not_connected(where);
        return connection;
      },
      silent);
  if (!connected) return connected.error();
  e->connection_ = *connected;
  // From here on each question ends with the connection.
  e->lib_->virConnectSetKeepAlive(e->connection_, limits::kKeepAliveSeconds, limits::kKeepAlives);
  // Each event has arguments of its own; the domain is the second of all.
  const auto lifecycle = +[](void*, void* domain, int, int, void*) { note(domain); };
  const auto device = +[](void*, void* domain, const char*, void*) { note(domain); };
  const auto metadata = +[](void*, void* domain, int, const char*, void*) { note(domain); };
  const std::pair<int, Call> calls[] = {{virt::kEventLifecycle, reinterpret_cast<Call>(lifecycle)},
                                        {virt::kEventDeviceAdded, reinterpret_cast<Call>(device)},
                                        {virt::kEventDeviceRemoved, reinterpret_cast<Call>(device)},
                                        {virt::kEventMetadata, reinterpret_cast<Call>(metadata)}};
  for (const auto& [event, call] : calls) {
    const int id = e->lib_->virConnectDomainEventRegisterAny(e->connection_, nullptr, event, call,
                                                             nullptr, nullptr);
    if (id < 0) return e->lib_->error("follow the events of " + where);
    e->callbacks_.push_back(id);
  }
  return e;
}

DomainEvents::~DomainEvents() {
  // A callback holds its connection open.
  for (int id : callbacks_) lib_->virConnectDomainEventDeregisterAny(connection_, id);
  if (connection_) lib_->virConnectClose(connection_);
}

bool DomainEvents::wait(int ms) {
  if (!loop.changed.empty()) ms = 0;
  loop.over = false;
  lib_->virEventUpdateTimeout(loop.timer, ms);
  bool goes_on = false;
  do {  // each question of ours wakes libvirt's loop once more: a round of it means nothing
    goes_on = lib_->virEventRunDefaultImpl() == 0 && lib_->virConnectIsAlive(connection_) == 1;
  } while (goes_on && !loop.over && loop.changed.empty());
  lib_->virEventUpdateTimeout(loop.timer, -1);
  return goes_on;
}

std::set<std::string> DomainEvents::take_changed() { return std::exchange(loop.changed, {}); }

Result<std::optional<RunningDomain>> DomainEvents::find(const std::string& uuid) {
  void* domain = lib_->virDomainLookupByUUIDString(connection_, uuid.c_str());
  if (!domain) {
    if (lib_->virGetLastErrorCode() == virt::kErrorNoDomain) return std::optional<RunningDomain>();
    return lib_->error("find domain " + uuid);
  }
  std::unique_ptr<void, int (*)(void*)> free_domain(domain, lib_->virDomainFree);
  const int active = lib_->virDomainIsActive(domain);
  if (active < 0) return lib_->error("ask whether domain " + uuid + " runs");
  if (!active) return std::optional<RunningDomain>();
  char* xml = lib_->virDomainGetXMLDesc(domain, 0);
  // One that is gone when it ends may have ended meanwhile.
  if (!xml && lib_->virGetLastErrorCode() == virt::kErrorNoDomain)
    return std::optional<RunningDomain>();
  if (!xml) return lib_->error("read the XML of domain " + uuid);
  int state = 0, reason = 0;
  const bool known = lib_->virDomainGetState(domain, &state, &reason, 0) == 0;
  RunningDomain d{lib_->virDomainGetName(domain), xml, known && virt::paused(state)};
  ::free(xml);
  return std::optional<RunningDomain>(std::move(d));
}

Result<std::set<std::string>> DomainEvents::uuids() {
  void** domains = nullptr;
  const int n = lib_->virConnectListAllDomains(connection_, &domains, virt::kListActive);
  if (n < 0) return lib_->error("list the domains");
  std::set<std::string> all;
  for (int i = 0; i < n; ++i) {
    char uuid[virt::kUuidBytes];
    if (lib_->virDomainGetUUIDString(domains[i], uuid) == 0) all.insert(uuid);
    lib_->virDomainFree(domains[i]);
  }
  ::free(domains);
  return all;
}

}  // namespace sluice::libvirt
