// SPDX-License-Identifier: Apache-2.0
// All domains of one libvirtd, and what of their XML matters to a vGPU. Reads only. Errors have
// libvirt's own text. A libvirtd that is stopped keeps nobody waiting for ever (patience.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::libvirt {

struct ListedDomain {
  std::string name, uuid;
  std::string state;  // in virsh's words: "running", "shut off"
  std::string xml;    // what it runs with; of one that does not run, what it will start with
  bool runs() const { return state != "shut off" && state != "crashed"; }
};

// `uri` empty: qemu:///system. Error code ENOENT: libvirt is not installed here; ETIMEDOUT: it has
// not answered within limits::kListSeconds.
Result<std::vector<ListedDomain>> list_domains(const std::string& uri);

// What a vGPU needs of a domain. Of XML that cannot be read nothing is known: all fields are false.
struct DomainParts {
  bool vgpu = false;          // it has a <shmem> of model ivshmem-doorbell
  bool iommu = false;         // with interrupt remapping
  bool hugepages = false;     // <memoryBacking> asks for them
  bool reserved = false;      // `sluicectl reserve` made a root port for live attaching
  uint64_t window_bytes = 0;  // of that port
};
DomainParts parts_of(std::string_view xml);

}  // namespace sluice::libvirt
