// SPDX-License-Identifier: Apache-2.0
// What a domain's XML needs for a vGPU, and how it is taken out again. Pure: XML in, XML out, or a
// refusal that says what is in the way and what to do. The XML is libvirt's own.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::libvirt {

struct Attachment {
  // Attributes of <sluice:vgpu>: name and value.
  std::vector<std::pair<std::string, std::string>> settings;
  std::string socket_folder;  // the vGPU's socket is FOLDER/DOMAIN.sock
  unsigned slots = 16;        // programs at once
};

struct Change {
  std::string xml;    // the whole domain, for libvirt
  std::string shown;  // what was added or removed, for people
};

Result<Change> attach_vgpu(std::string_view xml, const Attachment& attachment);
// The IOMMU stays: the guest may use it for more.
Result<Change> detach_vgpu(std::string_view xml);

}  // namespace sluice::libvirt
