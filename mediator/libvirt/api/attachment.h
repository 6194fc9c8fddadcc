// SPDX-License-Identifier: Apache-2.0
// What a domain's XML needs for a vGPU, and how it is taken out again. Pure: XML in, XML out, or a
// refusal that says what is in the way and what to do. The XML is libvirt's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mediator/base/result.h"
#include "mediator/core/domain_xml.h"

namespace sluice::libvirt {

// The root port that reserve_room() adds. libvirt keeps aliases that begin with "ua-" as they are.
inline constexpr char kReservedPortAlias[] = "ua-sluice";

// A virtual IOMMU gives the guest's agent interrupts. Without one the agent polls.
enum class Iommu {
  kWherePossible,  // added where the domain can have one
  kRequired,       // as before; a domain that cannot have one is refused
  kLeave           // the domain keeps what it has
};

inline constexpr unsigned kDefaultSlots = 16;

struct Attachment {
  VgpuSettings settings;
  std::string socket_folder;  // the vGPU's socket is FOLDER/DOMAIN.sock
  // Programs at once; not given: kDefaultSlots, or what a copied device has.
  std::optional<unsigned> slots;
  Iommu iommu = Iommu::kWherePossible;
};

struct Change {
  std::string xml;    // the whole domain, for libvirt
  std::string shown;  // what was added or removed, for people
  std::string note;   // why the guest will poll; empty: it has interrupts
};

// A vGPU for a domain that runs.
struct LiveAttachment {
  std::string device;    // <shmem>, for libvirt
  std::string settings;  // <vgpu>, for libvirt's metadata in our namespace
  DomainVgpu vgpu;       // what it will be, for sluiced
};

// A copy of another domain, and one that was renamed, have that one's socket: such a device gets
// the domain's own. It keeps its settings where `attachment` has no others.
Result<Change> attach_vgpu(std::string_view xml, const Attachment& attachment);
// The same for a vGPU that somebody else creates and names, on `socket`. May be asked again and
// again: a domain that has the device keeps it, and has these settings and slots afterwards.
Result<Change> provide_vgpu(std::string_view xml, const Attachment& attachment,
                            const std::string& socket);
// With all of ours in the metadata. The IOMMU stays: the guest may use it for more.
Result<Change> detach_vgpu(std::string_view xml);

// A running domain can get the device only on a PCIe root port whose window of addresses was made
// when the domain started. This adds one, with an alias by which the others know it.
Result<Change> reserve_room(std::string_view xml, uint64_t window_bytes,
                            Iommu iommu = Iommu::kWherePossible);
// These two are of the XML that the domain runs with. Settings that are left in its metadata, as
// after 'virsh detach-device', stay where `attachment` has no others.
Result<LiveAttachment> attach_live(std::string_view xml, const Attachment& attachment);
// The <shmem> to detach.
Result<std::string> detach_live(std::string_view xml);

// The vGPU that a domain had when it was saved without it: <saved>, in kSavedXmlNamespace in the
// metadata, which libvirt keeps in the saved state. The attributes are those of <sluice:vgpu>,
// and `slots`.
struct SavedVgpu {
  VgpuSettings settings;
  unsigned slots = kDefaultSlots;
};
std::string saved_xml(const SavedVgpu& saved);
// Of the XML that a domain with a vGPU runs with.
Result<SavedVgpu> vgpu_to_save(std::string_view xml);
// Of the XML that a domain runs with, or will, that was saved so. ENOENT: it was not. Whoever may
// edit the domain may have changed it: other errors name the line and what is wrong there.
Result<SavedVgpu> saved_vgpu(std::string_view xml);

}  // namespace sluice::libvirt
