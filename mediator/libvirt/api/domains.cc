// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/api/domains.h"

#include <cstdlib>
#include <memory>
#include <pugixml.hpp>

#include "mediator/core/domain_xml.h"
#include "mediator/libvirt/api/attachment.h"
#include "mediator/libvirt/api/library.h"
#include "mediator/libvirt/api/limits.h"
#include "mediator/libvirt/api/patience.h"

namespace sluice::libvirt {
namespace {

// virDomainState, as virsh prints it.
const char* state_word(int state) {
  static constexpr const char* kWords[] = {"no state",    "running",  "idle",    "paused",
                                           "in shutdown", "shut off", "crashed", "pmsuspended"};
  return state >= 0 && static_cast<size_t>(state) < std::size(kWords) ? kWords[state] : "unknown";
}

// nullopt in effect: a domain that went meanwhile is left out.
bool read(const Library& lib, void* domain, ListedDomain* out) {
  char uuid[virt::kUuidBytes];
  int state = 0, reason = 0;
  const char* name = lib.virDomainGetName(domain);
  if (!name || lib.virDomainGetUUIDString(domain, uuid) != 0 ||
      lib.virDomainGetState(domain, &state, &reason, 0) != 0)
    return false;
  const std::unique_ptr<char, void (*)(void*)> xml(lib.virDomainGetXMLDesc(domain, 0), ::free);
  if (!xml) return false;
  *out = {name, uuid, state_word(state), xml.get()};
  return true;
}

// "pcie-root-port.pref64-reserve=512M" in QEMU's arguments; 0: none.
uint64_t window_of(pugi::xml_node domain) {
  static constexpr std::string_view kSetting = "pcie-root-port.pref64-reserve=";
  for (pugi::xml_node n : domain.child("qemu:commandline").children("qemu:arg")) {
    const std::string_view value = n.attribute("value").value();
    if (!value.starts_with(kSetting)) continue;
    auto bytes = parse_byte_size(value.substr(kSetting.size()));
    return bytes ? *bytes : 0;
  }
  return 0;
}

Result<std::vector<ListedDomain>> list_now(const std::string& uri) {
  auto loaded = Library::load();
  if (!loaded) return loaded.error();
  const Library& lib = **loaded;
  const std::string where = uri.empty() ? "qemu:///system" : uri;
  const std::unique_ptr<void, int (*)(void*)> connection(lib.virConnectOpenReadOnly(where.c_str()),
                                                         lib.virConnectClose);
  if (!connection) return lib.not_connected(where);
  void** domains = nullptr;
  const int n = lib.virConnectListAllDomains(connection.get(), &domains, 0);
  if (n < 0) return lib.error("list the domains");
  std::vector<ListedDomain> all;
  for (int i = 0; i < n; ++i) {
    ListedDomain d;
    if (read(lib, domains[i], &d)) all.push_back(std::move(d));
    lib.virDomainFree(domains[i]);
  }
  ::free(domains);
  return all;
}

}  // namespace

Result<std::vector<ListedDomain>> list_domains(const std::string& uri) {
  return within<std::vector<ListedDomain>>(limits::kListSeconds, [uri] { return list_now(uri); });
}

DomainParts parts_of(std::string_view xml) {
  DomainParts parts;
  pugi::xml_document doc;
  if (!doc.load_buffer(xml.data(), xml.size(), pugi::parse_default)) return parts;
  const pugi::xml_node domain = doc.document_element();
  const pugi::xml_node devices = domain.child("devices");
  for (pugi::xml_node n : devices.children("shmem"))
    if (std::string_view(n.child("model").attribute("type").value()) == "ivshmem-doorbell")
      parts.vgpu = true;
  const pugi::xml_node iommu = devices.child("iommu").child("driver");
  parts.iommu = std::string_view(iommu.attribute("intremap").value()) == "on";
  parts.hugepages = !domain.child("memoryBacking").child("hugepages").empty();
  for (pugi::xml_node n : devices.children("controller"))
    if (std::string_view(n.child("alias").attribute("name").value()) == kReservedPortAlias)
      parts.reserved = true;
  if (parts.reserved) parts.window_bytes = window_of(domain);
  return parts;
}

}  // namespace sluice::libvirt
