// SPDX-License-Identifier: Apache-2.0
// Reads what belongs to Sluice out of a libvirt domain XML:
//
//   <metadata><sluice:vgpu xmlns:sluice='https://sluice.example/vgpu/1' weight='300' memory='8G'/>
//   <shmem name='vgpu0'><model type='ivshmem-doorbell'/><server path='...'/>
//     <msi vectors='17'/></shmem>
//
// Pure: text in, value out; used by sluicectl and the libvirt hook. debian/schema has the same
// rules of <sluice:vgpu> as RELAX NG and XSD. The XML may be hostile: no DTD is loaded, no entity
// is expanded, nothing is fetched, depth and size are bounded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mediator/base/result.h"

namespace sluice {

inline constexpr char kVgpuXmlNamespace[] = "https://sluice.example/vgpu/1";
// That of <saved> (mediator/libvirt/api/attachment.h), and what all of ours begin with.
inline constexpr char kSavedXmlNamespace[] = "https://sluice.example/saved/1";
inline constexpr char kSluiceXmlNamespaces[] = "https://sluice.example/";

struct DomainVgpu {
  std::string domain;                        // the domain's <name>
  std::string uuid;                          // empty: not given
  std::string vgpu;                          // the vGPU's name; empty: not the domain's
  std::string socket;                        // server path
  uint32_t vectors = 0;                      // msi vectors; 0: not given
  uint32_t weight = 0;                       // 0: not given
  uint64_t memory_bytes = 0;                 // 0: no limit given
  int priority = -1;                         // -1: not given
  std::string latency;                       // low, normal, batch; empty: not given
  std::string mode;                          // strict, shared; empty: not given
  int min_permille = -1, max_permille = -1;  // the XML has percent; -1: not given
  std::string group;                         // empty: not given
};

// Who names the vGPU. Only a vGPU's name is bound to its rules (names.h).
enum class VgpuName {
  kOfDomain,   // it has the domain's name
  kByCreator,  // whoever makes it names it, as a Kubernetes node does
};

// Errors name the element and attribute, and say how it should be. A domain with no
// ivshmem-doorbell shmem, or with two, is an error; so is an element of ours that is not known.
Result<DomainVgpu> parse_domain_xml(std::string_view xml, VgpuName name = VgpuName::kOfDomain);

// Whether a domain of that name can have a vGPU, which has the domain's name.
Result<void> can_name_vgpu(std::string_view domain);

// Attributes of <sluice:vgpu>: name and value.
using VgpuSettings = std::vector<std::pair<std::string, std::string>>;

// The settings by themselves, under the rules of <sluice:vgpu>; the rest of the result is empty.
Result<DomainVgpu> parse_vgpu_settings(const VgpuSettings& settings);

// The same for a domain of which it is not known whether Sluice has to do with it. It has when
// <metadata> has an element of ours, of whatever version, or there is a doorbell shmem whose server
// is in the folder `sockets`; else nullopt.
Result<std::optional<DomainVgpu>> find_vgpu(std::string_view xml, std::string_view sockets);

// "8G", "512M", "1073741824": bytes, binary multiples K, M, G, T. For command lines too.
Result<uint64_t> parse_byte_size(std::string_view text);

}  // namespace sluice
