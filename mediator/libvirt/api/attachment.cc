// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/api/attachment.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <pugixml.hpp>
#include <sstream>

#include "abi/channel.h"
#include "mediator/core/names.h"
#include "mediator/libvirt/api/limits.h"

namespace sluice::libvirt {
namespace {

using Text = std::string_view;

std::string printed(pugi::xml_node node) {
  std::ostringstream out;
  node.print(out, "  ", pugi::format_default | pugi::format_no_declaration);
  return out.str();
}

// Printing indents each line by its depth: what is deep takes the square of its size.
bool is_deep(const pugi::xml_document& doc) {
  pugi::xml_node n = doc;
  int depth = 0;
  while (n) {
    if (pugi::xml_node child = n.first_child()) {
      if (++depth > limits::kMaxXmlDepth) return true;
      n = child;
      continue;
    }
    while (n && !n.next_sibling()) {
      n = n.parent();
      --depth;
    }
    n = n.next_sibling();
  }
  return false;
}

Result<void> load(Text xml, pugi::xml_document& doc) {
  if (!doc.load_buffer(xml.data(), xml.size(), pugi::parse_full))
    return Error{EINVAL, "libvirt's XML of the domain cannot be read"};
  int roots = 0;
  for (pugi::xml_node n : doc.children()) {
    if (n.type() == pugi::node_doctype)
      return Error{EINVAL, "the domain XML has a document type declaration; libvirt's never do"};
    roots += n.type() == pugi::node_element;
  }
  if (roots > 1) return Error{EINVAL, "the domain XML has more than one document element"};
  if (is_deep(doc))
    return Error{E2BIG, "the domain XML has elements more than " +
                            std::to_string(limits::kMaxXmlDepth) + " deep"};
  // What comes out is UTF-8, whatever went in.
  for (pugi::xml_node n : doc.children())
    if (n.type() == pugi::node_declaration) n.remove_attribute("encoding");
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

Text server_of(pugi::xml_node shmem) { return shmem.child("server").attribute("path").value(); }

bool is_doorbell(pugi::xml_node shmem) {
  return Text(shmem.child("model").attribute("type").value()) == "ivshmem-doorbell";
}

// An element of `name_space`, which libvirt writes at the element itself.
bool is_of(pugi::xml_node n, Text name_space) {
  for (pugi::xml_attribute a : n.attributes())
    if (Text(a.name()).starts_with("xmlns") && Text(a.value()) == name_space) return true;
  return false;
}

bool is_settings(pugi::xml_node n) {
  const Text name = n.name();
  return is_of(n, kVgpuXmlNamespace) && (name == "vgpu" || name.ends_with(":vgpu"));
}

// <sluice:vgpu>, or something of ours that this release does not know.
bool is_ours(pugi::xml_node n) {
  for (pugi::xml_attribute a : n.attributes())
    if (Text(a.name()).starts_with("xmlns") && Text(a.value()).starts_with(kSluiceXmlNamespaces))
      return Text(a.value()) != kSavedXmlNamespace;
  return false;
}

// All attributes but the namespace's.
VgpuSettings settings_of(pugi::xml_node n) {
  VgpuSettings settings;
  for (pugi::xml_attribute a : n.attributes())
    if (!Text(a.name()).starts_with("xmlns")) settings.emplace_back(a.name(), a.value());
  return settings;
}

// The machine has the devices of q35: PCI Express and a virtual IOMMU.
bool is_q35(pugi::xml_node domain) {
  const Text machine = domain.child("os").child("type").attribute("machine").value();
  return machine.find("q35") != Text::npos;
}

// Why the domain can have no virtual IOMMU with interrupt remapping; empty: it can, or has one.
std::string no_iommu_because(pugi::xml_node domain) {
  if (!is_q35(domain))
    return "its machine is '" +
           std::string(domain.child("os").child("type").attribute("machine").value()) +
           "', and only machine='q35' in <type> has a virtual IOMMU";
  const pugi::xml_node ioapic = domain.child("features").child("ioapic");
  if (ioapic && Text(ioapic.attribute("driver").value()) != "qemu")
    return "<features><ioapic driver='kvm'/> rules out a virtual IOMMU; for one set driver='qemu' "
           "with 'virsh edit'";
  const pugi::xml_node iommu = domain.child("devices").child("iommu");
  if (!iommu || Text(iommu.child("driver").attribute("intremap").value()) == "on") return "";
  const std::string model = iommu.attribute("model").value();
  return "<iommu model='" + clean_text(model.data(), std::min<size_t>(model.size(), 40)) +
         "'> has no interrupt remapping; for it " +
         (model == "intel" ? "add <driver intremap='on'/>"
                           : "have <iommu model='intel'><driver intremap='on'/></iommu> instead") +
         " with 'virsh edit'";
}

// The virtual IOMMU, by which the guest's agent gets interrupts. Adds what is missing, or notes why
// it does not.
Result<void> add_iommu(pugi::xml_node domain, Iommu wanted, Change& change) {
  const bool has_one = !domain.child("devices").child("iommu").empty();
  std::string because = no_iommu_because(domain);
  if (because.empty() && wanted == Iommu::kLeave && !has_one)
    because = "it has no virtual IOMMU, as --no-iommu says";
  if (!because.empty() && wanted == Iommu::kRequired)
    return Error{EINVAL, "it can have no virtual IOMMU: " + because};
  if (!because.empty()) {
    change.note = because;
    return {};
  }
  pugi::xml_node features = child_or_new(domain, "features");
  if (!features.child("ioapic")) {
    pugi::xml_node ioapic = features.append_child("ioapic");
    ioapic.append_attribute("driver") = "qemu";
    change.shown += "<features>\n  " + printed(ioapic) + "</features>\n";
  }
  if (has_one) return {};
  pugi::xml_node iommu = child_or_new(domain, "devices").append_child("iommu");
  iommu.append_attribute("model") = "intel";
  iommu.append_child("driver").append_attribute("intremap") = "on";
  change.shown += printed(iommu);
  return {};
}

pugi::xml_node doorbell_of(pugi::xml_node domain) {
  for (pugi::xml_node n : domain.child("devices").children("shmem"))
    if (is_doorbell(n)) return n;
  return {};
}

Error other_server(pugi::xml_node shmem) {
  const Text path = server_of(shmem);
  return {EEXIST, "it has an ivshmem-doorbell device, with the server '" +
                      clean_text(path.data(), std::min<size_t>(path.size(), 200)) +
                      "', and can have one only; remove that one with 'virsh edit' before"};
}

bool has_settings(pugi::xml_node domain) {
  for (pugi::xml_node n : domain.child("metadata").children())
    if (is_settings(n)) return true;
  return false;
}

// The vGPU whose socket sluiced would make at `path`, FOLDER/vgpu/NAME.sock; empty: none.
Text vgpu_at(Text path) {
  static constexpr Text kSuffix = ".sock";
  const size_t slash = path.rfind('/');
  if (slash == Text::npos || !path.substr(0, slash).ends_with("/vgpu")) return {};
  Text name = path.substr(slash + 1);
  if (!name.ends_with(kSuffix)) return {};
  name.remove_suffix(kSuffix.size());
  return valid_vgpu_name(name) ? name : Text();
}

// The device of the domain's vGPU: on a socket as sluiced names it, or with settings. Others may
// use ivshmem-doorbell for something else. The name is not the domain's where the domain was
// renamed, or is a copy.
pugi::xml_node vgpu_of(pugi::xml_node domain) {
  const Text own = domain.child("name").text().get();
  pugi::xml_node found;
  for (pugi::xml_node n : domain.child("devices").children("shmem")) {
    if (!is_doorbell(n)) continue;
    const Text name = vgpu_at(server_of(n));
    if (!name.empty() && name == own) return n;
    if (!found && !name.empty()) found = n;
  }
  if (found) return found;
  return has_settings(domain) ? doorbell_of(domain) : pugi::xml_node();
}

Result<void> can_have_vgpu(pugi::xml_node domain) {
  const pugi::xml_node shmem = doorbell_of(domain);
  if (!shmem) return {};
  if (vgpu_of(domain))
    return Error{EEXIST, "it has a vGPU; change it with 'sluicectl set " +
                             std::string(domain.child("name").text().get()) +
                             "', or detach it before"};
  return other_server(shmem);
}

void remove_settings(pugi::xml_node metadata) {
  for (pugi::xml_node n = metadata.first_child(); n;) {
    pugi::xml_node next = n.next_sibling();
    if (is_settings(n)) metadata.remove_child(n);
    n = next;
  }
}

pugi::xml_node add_settings(pugi::xml_node parent, const char* name, const Attachment& attachment) {
  pugi::xml_node vgpu = parent.append_child(name);
  for (const auto& [key, value] : attachment.settings)
    vgpu.append_attribute(key.c_str()) = value.c_str();
  return vgpu;
}

// <sluice:vgpu> of the domain's metadata, in the place of one that is there.
void put_settings(pugi::xml_node domain, const Attachment& attachment, Change& change) {
  pugi::xml_node metadata = child_or_new(domain, "metadata");
  remove_settings(metadata);
  pugi::xml_node vgpu = add_settings(metadata, "sluice:vgpu", attachment);
  vgpu.prepend_attribute("xmlns:sluice") = kVgpuXmlNamespace;
  change.shown = "<metadata>\n  " + printed(vgpu) + "</metadata>\n";
}

std::string socket_of(const Attachment& attachment, const std::string& domain) {
  return attachment.socket_folder + "/" + domain + ".sock";
}

void put_msi(pugi::xml_node shmem, const Attachment& attachment) {
  pugi::xml_node msi = child_or_new(shmem, "msi");
  for (const char* name : {"vectors", "ioeventfd"}) msi.remove_attribute(name);
  // Vector 0 is the agent's.
  msi.append_attribute("vectors") = attachment.slots.value_or(kDefaultSlots) + 1;
  msi.append_attribute("ioeventfd") = "on";
}

pugi::xml_node add_shmem(pugi::xml_node parent, const std::string& socket,
                         const Attachment& attachment) {
  pugi::xml_node shmem = parent.append_child("shmem");
  shmem.append_attribute("name") = "vgpu0";
  shmem.append_child("model").append_attribute("type") = "ivshmem-doorbell";
  shmem.append_child("server").append_attribute("path") = socket.c_str();
  put_msi(shmem, attachment);
  return shmem;
}

pugi::xml_node reserved_port(pugi::xml_node domain) {
  for (pugi::xml_node n : domain.child("devices").children("controller"))
    if (Text(n.child("alias").attribute("name").value()) == kReservedPortAlias) return n;
  return {};
}

// "0x05" or "5"; -1: no number.
int bus_number(const char* text) {
  Text t(text);
  const bool hex = t.starts_with("0x");
  if (hex) t.remove_prefix(2);
  int n = -1;
  auto [end, bad] = std::from_chars(t.data(), t.data() + t.size(), n, hex ? 16 : 10);
  return bad == std::errc{} && end == t.data() + t.size() ? n : -1;
}

bool bus_taken(pugi::xml_node domain, int bus) {
  for (pugi::xml_node n : domain.child("devices").children()) {
    const pugi::xml_node address = n.child("address");
    if (Text(address.attribute("type").value()) == "pci" &&
        bus_number(address.attribute("bus").value()) == bus)
      return true;
  }
  return false;
}

// The device of a domain that is a copy of another one, or was renamed: its socket is of another
// name than its own.
pugi::xml_node copied_vgpu(pugi::xml_node domain, const Attachment& attachment) {
  const pugi::xml_node shmem = vgpu_of(domain);
  const Text path = server_of(shmem);
  const Text name = vgpu_at(path);
  if (name.empty() || name == Text(domain.child("name").text().get())) return {};
  return path == socket_of(attachment, std::string(name)) ? shmem : pugi::xml_node();
}

// What the domain's metadata says, and in its place or beside it what is asked for.
VgpuSettings with_those_of(pugi::xml_node domain, const VgpuSettings& wanted) {
  VgpuSettings all;
  for (pugi::xml_node n : domain.child("metadata").children())
    if (is_settings(n)) all = settings_of(n);
  for (const auto& [name, value] : wanted) {
    const auto there = std::find_if(all.begin(), all.end(),
                                    [&name = name](const auto& s) { return s.first == name; });
    if (there == all.end())
      all.emplace_back(name, value);
    else
      there->second = value;
  }
  return all;
}

}  // namespace

Result<Change> attach_vgpu(Text xml, const Attachment& wanted) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  pugi::xml_node domain = doc.document_element();
  const std::string name = domain.child("name").text().get();
  pugi::xml_node shmem = copied_vgpu(domain, wanted);
  Attachment attachment = wanted;
  if (shmem) {
    if (auto read = parse_domain_xml(xml); !read) return read.error();
    attachment.settings = with_those_of(domain, wanted.settings);
  } else if (auto can = can_have_vgpu(domain); !can) {
    return can.error();
  }
  Change change;
  put_settings(domain, attachment, change);
  if (auto added = add_iommu(domain, attachment.iommu, change); !added) return added.error();
  if (shmem) {
    shmem.child("server").attribute("path") = socket_of(attachment, name).c_str();
    if (attachment.slots) put_msi(shmem, attachment);
  } else {
    shmem = add_shmem(child_or_new(domain, "devices"), socket_of(attachment, name), attachment);
  }
  change.shown += printed(shmem);
  change.xml = whole(doc);
  // As the hook will read it when the domain starts.
  if (auto read = parse_domain_xml(change.xml); !read) return read.error();
  return change;
}

Result<Change> provide_vgpu(Text xml, const Attachment& attachment, const std::string& socket) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  pugi::xml_node domain = doc.document_element();
  pugi::xml_node shmem = doorbell_of(domain);
  if (shmem && server_of(shmem) != socket) return other_server(shmem);
  Change change;
  put_settings(domain, attachment, change);
  if (auto added = add_iommu(domain, attachment.iommu, change); !added) return added.error();
  if (shmem)
    put_msi(shmem, attachment);
  else
    shmem = add_shmem(child_or_new(domain, "devices"), socket, attachment);
  change.shown += printed(shmem);
  change.xml = whole(doc);
  if (auto read = parse_domain_xml(change.xml, VgpuName::kByCreator); !read) return read.error();
  return change;
}

Result<Change> detach_vgpu(Text xml) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  pugi::xml_node domain = doc.document_element();
  Change change;
  const auto take_out = [&change](pugi::xml_node n) {
    change.shown += printed(n);
    n.parent().remove_child(n);
  };
  const pugi::xml_node shmem = vgpu_of(domain);
  pugi::xml_node metadata = domain.child("metadata");
  for (pugi::xml_node n = metadata.first_child(); n;) {
    const pugi::xml_node next = n.next_sibling();
    if (is_ours(n)) take_out(n);
    n = next;
  }
  if (!change.shown.empty() && !metadata.first_child()) domain.remove_child(metadata);
  if (shmem) take_out(shmem);
  if (change.shown.empty()) return Error{ENOENT, "it has no vGPU"};
  change.xml = whole(doc);
  return change;
}

Result<Change> reserve_room(Text xml, uint64_t window_bytes, Iommu iommu) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  pugi::xml_node domain = doc.document_element();
  if (auto can = can_name_vgpu(domain.child("name").text().get()); !can) return can.error();
  if (!is_q35(domain))
    return Error{EINVAL,
                 "live attaching needs a PCI Express root port, which only machine='q35' in <type> "
                 "has; attach without --live"};
  if (reserved_port(domain)) return Error{EEXIST, "it has room for a vGPU already"};
  Change change;
  if (auto added = add_iommu(domain, iommu, change); !added) return added.error();
  pugi::xml_node port = child_or_new(domain, "devices").append_child("controller");
  port.append_attribute("type") = "pci";
  port.append_attribute("model") = "pcie-root-port";
  port.append_child("alias").append_attribute("name") = kReservedPortAlias;
  change.shown += printed(port);
  // libvirt has no element for the size of a port's window.
  if (!domain.attribute("xmlns:qemu"))
    domain.append_attribute("xmlns:qemu") = "http://libvirt.org/schemas/domain/qemu/1.0";
  pugi::xml_node line = child_or_new(domain, "qemu:commandline");
  for (const std::string& word :
       {std::string("-global"),
        "pcie-root-port.pref64-reserve=" + std::to_string(window_bytes >> 20) + "M"})
    line.append_child("qemu:arg").append_attribute("value") = word.c_str();
  change.shown += printed(line);
  change.xml = whole(doc);
  return change;
}

Result<LiveAttachment> attach_live(Text xml, const Attachment& wanted) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  pugi::xml_node domain = doc.document_element();
  Attachment attachment = wanted;
  attachment.settings = with_those_of(domain, wanted.settings);
  const std::string name = domain.child("name").text().get();
  if (auto can = can_have_vgpu(domain); !can) return can.error();
  const pugi::xml_node port = reserved_port(domain);
  if (!port)
    return Error{ENOTSUP,
                 "it runs without a root port that has room for a vGPU; 'sluicectl reserve " +
                     name + "', then shut it off and start it, or attach without --live"};
  const int bus = bus_number(port.attribute("index").value());
  if (bus < 0 || bus_taken(domain, bus))
    return Error{EBUSY, "another device is on the root port with room for a vGPU; detach that one"};

  LiveAttachment live;
  pugi::xml_node metadata = child_or_new(domain, "metadata");
  remove_settings(metadata);
  pugi::xml_document settings;
  live.settings = printed(add_settings(settings, "vgpu", attachment));
  add_settings(metadata, "sluice:vgpu", attachment).append_attribute("xmlns:sluice") =
      kVgpuXmlNamespace;

  pugi::xml_node shmem =
      add_shmem(child_or_new(domain, "devices"), socket_of(attachment, name), attachment);
  pugi::xml_node address = shmem.append_child("address");
  address.append_attribute("type") = "pci";
  for (const auto& [key, value] : {std::pair{"domain", 0}, {"bus", bus}, {"slot", 0}})
    address.append_attribute(key) = value;
  live.device = printed(shmem);
  auto read = parse_domain_xml(whole(doc));
  if (!read) return read.error();
  live.vgpu = std::move(*read);
  return live;
}

Result<std::string> detach_live(Text xml) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  const pugi::xml_node shmem = vgpu_of(doc.document_element());
  if (!shmem) return Error{ENOENT, "it runs without a vGPU"};
  return printed(shmem);
}

namespace {

// From 1. The document was loaded from `xml`.
size_t line_of(pugi::xml_node n, Text xml) {
  const Text before = xml.substr(0, static_cast<size_t>(std::max<ptrdiff_t>(n.offset_debug(), 0)));
  return 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
}

Result<SavedVgpu> read_saved(pugi::xml_node n) {
  if (n.first_child()) return Error{EINVAL, "it must be empty; all settings are attributes"};
  SavedVgpu saved;
  if (const pugi::xml_attribute slots = n.attribute("slots")) {
    const Text text = slots.value();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), saved.slots);
    if (error != std::errc{} || end != text.data() + text.size() || saved.slots == 0 ||
        saved.slots > SLUICE_MAX_SLOTS)
      return Error{EINVAL, "slots is '" +
                               clean_text(text.data(), std::min<size_t>(text.size(), 40)) +
                               "', not a number from 1 to " + std::to_string(SLUICE_MAX_SLOTS)};
    n.remove_attribute(slots);
  }
  saved.settings = settings_of(n);
  if (auto right = parse_vgpu_settings(saved.settings); !right) return right.error();
  return saved;
}

}  // namespace

std::string saved_xml(const SavedVgpu& saved) {
  pugi::xml_document doc;
  pugi::xml_node node = doc.append_child("saved");
  node.append_attribute("slots") = saved.slots;
  for (const auto& [key, value] : saved.settings)
    node.append_attribute(key.c_str()) = value.c_str();
  return printed(node);
}

Result<SavedVgpu> vgpu_to_save(Text xml) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  pugi::xml_node domain = doc.document_element();
  const std::string name = domain.child("name").text().get();
  auto vgpu = parse_domain_xml(xml);
  if (!vgpu_of(domain))
    return Error{ENOENT, "it runs without a vGPU: 'virsh managedsave " + name + "' saves it"};
  if (!vgpu) return vgpu.error();
  SavedVgpu saved;
  if (vgpu->vectors > 1) saved.slots = vgpu->vectors - 1;
  for (pugi::xml_node n : domain.child("metadata").children())
    if (is_settings(n)) saved.settings = settings_of(n);
  return saved;
}

Result<SavedVgpu> saved_vgpu(Text xml) {
  pugi::xml_document doc;
  if (auto loaded = load(xml, doc); !loaded) return loaded.error();
  std::optional<SavedVgpu> saved;
  for (pugi::xml_node n : doc.document_element().child("metadata").children()) {
    if (!is_of(n, kSavedXmlNamespace)) continue;
    auto read = saved ? Result<SavedVgpu>(Error{EINVAL, "there is more than one"}) : read_saved(n);
    if (!read)
      return Error(read.error())
          .with_context("line " + std::to_string(line_of(n, xml)) + ", <saved>");
    saved = std::move(*read);
  }
  if (!saved) return Error{ENOENT, "it was not saved by 'sluicectl save'"};
  return std::move(*saved);
}

}  // namespace sluice::libvirt
