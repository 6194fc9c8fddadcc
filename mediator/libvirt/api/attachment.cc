// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/api/attachment.h"

#include <pugixml.hpp>
#include <sstream>

#include "mediator/core/domain_xml.h"

namespace sluice::libvirt {
namespace {

using Text = std::string_view;

std::string printed(pugi::xml_node node) {
  std::ostringstream out;
  node.print(out, "  ", pugi::format_default | pugi::format_no_declaration);
  return out.str();
}

Result<void> load(Text xml, pugi::xml_document& doc) {
  if (!doc.load_buffer(xml.data(), xml.size(), pugi::parse_full & ~pugi::parse_doctype))
    return Error{EINVAL, "libvirt's XML of the domain cannot be read"};
  if (Text(doc.document_element().name()) != "domain")
    return Error{EINVAL, "not a libvirt domain: no <domain> element"};
  return {};
}

std::string whole(const pugi::xml_document& doc) {
  std::ostringstream out;
  doc.save(out, "  ");
  return out.str();
}

pugi::xml_node child_or_new(pugi::xml_node parent, const char* name) {
  pugi::xml_node n = parent.child(name);
  return n ? n : parent.append_child(name);
}

bool is_doorbell(pugi::xml_node shmem) {
  return Text(shmem.child("model").attribute("type").value()) == "ivshmem-doorbell";
}

// <sluice:vgpu>, by the namespace that libvirt writes at the element itself.
bool is_settings(pugi::xml_node n) {
  for (pugi::xml_attribute a : n.attributes())
    if (Text(a.name()).starts_with("xmlns") && Text(a.value()) == kVgpuXmlNamespace) return true;
  return false;
}

// The virtual IOMMU, by which the guest's agent gets the device. Adds what is missing.
Result<void> add_iommu(pugi::xml_node domain, std::string& shown) {
  pugi::xml_node features = child_or_new(domain, "features");
  pugi::xml_node ioapic = features.child("ioapic");
  if (ioapic && Text(ioapic.attribute("driver").value()) != "qemu")
    return Error{EINVAL,
                 "<features><ioapic driver='kvm'/> rules out a virtual IOMMU with interrupt "
                 "remapping; set driver='qemu' with 'virsh edit'"};
  if (!ioapic) {
    ioapic = features.append_child("ioapic");
    ioapic.append_attribute("driver") = "qemu";
    shown += "<features>\n  " + printed(ioapic) + "</features>\n";
  }
  pugi::xml_node iommu = domain.child("devices").child("iommu");
  if (iommu && Text(iommu.attribute("model").value()) == "intel" &&
      Text(iommu.child("driver").attribute("intremap").value()) != "on")
    return Error{EINVAL,
                 "<iommu model='intel'> has no interrupt remapping; add <driver intremap='on'/> "
                 "with 'virsh edit'"};
  if (!iommu) {
    iommu = child_or_new(domain, "devices").append_child("iommu");
    iommu.append_attribute("model") = "intel";
    iommu.append_child("driver").append_attribute("intremap") = "on";
    shown += printed(iommu);
  }
  return {};
}

}  // namespace

Result<Change> attach_vgpu(Text xml, const Attachment& attachment) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  pugi::xml_node domain = doc.document_element();
  const std::string name = domain.child("name").text().get();
  const std::string machine = domain.child("os").child("type").attribute("machine").value();
  if (machine.find("q35") == std::string::npos)
    return Error{EINVAL, "its machine is '" + machine +
                             "', which has no virtual IOMMU; a vGPU needs machine='q35' in <type>"};
  for (pugi::xml_node n : domain.child("devices").children("shmem"))
    if (is_doorbell(n))
      return Error{EEXIST, "it has a vGPU; change it with 'sluicectl set " + name +
                               "', or detach it before"};
  Change change;
  pugi::xml_node metadata = child_or_new(domain, "metadata");
  for (pugi::xml_node n = metadata.first_child(); n;) {
    pugi::xml_node next = n.next_sibling();
    if (is_settings(n)) metadata.remove_child(n);
    n = next;
  }
  pugi::xml_node vgpu = metadata.append_child("sluice:vgpu");
  vgpu.append_attribute("xmlns:sluice") = kVgpuXmlNamespace;
  for (const auto& [key, value] : attachment.settings)
    vgpu.append_attribute(key.c_str()) = value.c_str();
  change.shown = "<metadata>\n  " + printed(vgpu) + "</metadata>\n";

  if (auto added = add_iommu(domain, change.shown); !added) return added.error();

  pugi::xml_node shmem = child_or_new(domain, "devices").append_child("shmem");
  shmem.append_attribute("name") = "vgpu0";
  shmem.append_child("model").append_attribute("type") = "ivshmem-doorbell";
  shmem.append_child("server").append_attribute("path") =
      (attachment.socket_folder + "/" + name + ".sock").c_str();
  pugi::xml_node msi = shmem.append_child("msi");
  // Vector 0 is the agent's.
  msi.append_attribute("vectors") = attachment.slots + 1;
  msi.append_attribute("ioeventfd") = "on";
  change.shown += printed(shmem);
  change.xml = whole(doc);
  // As the hook will read it when the domain starts.
  if (auto read = parse_domain_xml(change.xml); !read) return read.error();
  return change;
}

Result<Change> detach_vgpu(Text xml) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  pugi::xml_node domain = doc.document_element();
  Change change;
  for (const char* parent : {"metadata", "devices"}) {
    pugi::xml_node from = domain.child(parent);
    for (pugi::xml_node n = from.first_child(); n;) {
      pugi::xml_node next = n.next_sibling();
      if (is_settings(n) || (Text(n.name()) == "shmem" && is_doorbell(n))) {
        change.shown += printed(n);
        from.remove_child(n);
      }
      n = next;
    }
  }
  if (change.shown.empty()) return Error{ENOENT, "it has no vGPU"};
  change.xml = whole(doc);
  return change;
}

}  // namespace sluice::libvirt
