// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/domain_xml.h"

#include <pugixml.hpp>

#include <algorithm>
#include <charconv>
#include <optional>

#include "mediator/base/limits.h"
#include "mediator/core/names.h"

namespace sluice {
namespace {

// A domain XML is some kilobytes; more than this is not one.
constexpr size_t kMaxXmlBytes = 4u << 20;
// Attributes of the elements above whatever may be ours: each of <metadata>'s children is looked up
// there. libvirt writes a handful. More: 3 MB of XML keep whoever reads it for minutes, and all
// other domains wait.
constexpr auto kMostAttributes = 64;

std::string_view local_name(std::string_view name) {
  const size_t colon = name.find(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

// What the prefix of `node` means there (XML namespaces 1.0, section 6): the parser does not
// resolve them. Empty: no namespace.
std::string_view namespace_of(pugi::xml_node node) {
  const std::string_view name = node.name();
  const size_t colon = name.find(':');
  const std::string declaration =
      colon == std::string_view::npos ? "xmlns" : "xmlns:" + std::string(name.substr(0, colon));
  for (pugi::xml_node n = node; n; n = n.parent())
    if (pugi::xml_attribute a = n.attribute(declaration.c_str())) return a.value();
  return {};
}

pugi::xml_node child_in(pugi::xml_node parent, std::string_view name, std::string_view ns) {
  for (pugi::xml_node n : parent.children())
    if (n.type() == pugi::node_element && local_name(n.name()) == name && namespace_of(n) == ns)
      return n;
  return {};
}

std::optional<std::string> attribute(pugi::xml_node node, const char* name) {
  pugi::xml_attribute a = node.attribute(name);
  if (!a) return std::nullopt;
  return std::string(a.value());
}

template <class T>
Result<T> number(const std::string& text, const char* what, T low, T high) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    return Error{EINVAL, std::string(what) + " is '" +
                             clean_text(text.data(), std::min<size_t>(text.size(), 40)) +
                             "', not a number from " + std::to_string(low) + " to " +
                             std::to_string(high)};
  return value;
}

constexpr const char* kAttributes[] = {"weight", "memory", "priority", "latency",
                                       "min",    "max",    "group",    "mode"};

// What the owner wrote and cannot be meant: a misspelt attribute would be no limit at all.
Result<void> nothing_unknown(pugi::xml_node vgpu) {
  for (pugi::xml_attribute a : vgpu.attributes()) {
    const std::string_view name = a.name();
    if (name == "xmlns" || name.starts_with("xmlns:")) continue;
    if (std::find(std::begin(kAttributes), std::end(kAttributes), name) == std::end(kAttributes))
      return Error{EINVAL,
                   "unknown attribute '" +
                       clean_text(name.data(), std::min<size_t>(name.size(), 40)) +
                       "'; there are weight, memory, priority, latency, min, max, group and mode"};
  }
  for (pugi::xml_node n : vgpu.children())
    if (n.type() == pugi::node_element || n.type() == pugi::node_pcdata ||
        n.type() == pugi::node_cdata)
      return Error{EINVAL, "it must be empty; all settings are attributes"};
  return {};
}

Result<void> read_settings(pugi::xml_node vgpu, DomainVgpu& d) {
  if (auto known = nothing_unknown(vgpu); !known) return known;
  if (auto weight = attribute(vgpu, "weight")) {
    auto n = number<uint32_t>(*weight, "weight", limits::kMinWeight, limits::kMaxWeight);
    if (!n) return n.error();
    d.weight = *n;
  }
  if (auto memory = attribute(vgpu, "memory")) {
    auto n = parse_byte_size(*memory);
    if (!n) return Error{EINVAL, "memory: " + n.error().message};
    d.memory_bytes = *n;
  }
  if (auto priority = attribute(vgpu, "priority")) {
    auto n = number<int>(*priority, "priority", limits::kMinPriority, limits::kMaxPriority);
    if (!n) return n.error();
    d.priority = *n;
  }
  if (auto latency = attribute(vgpu, "latency")) {
    if (*latency != "low" && *latency != "normal" && *latency != "batch")
      return Error{EINVAL, "latency must be low, normal or batch"};
    d.latency = *latency;
  }
  if (auto mode = attribute(vgpu, "mode")) {
    if (*mode != "strict" && *mode != "shared")
      return Error{EINVAL, "mode must be strict or shared"};
    d.mode = *mode;
  }
  for (auto [name, permille] :
       {std::pair{"min", &d.min_permille}, std::pair{"max", &d.max_permille}}) {
    auto percent = attribute(vgpu, name);
    if (!percent) continue;
    auto n = number<uint32_t>(*percent, name, 0, 100);
    if (!n) return n.error();
    *permille = static_cast<int>(*n) * 10;
  }
  if (d.min_permille > 0 && d.max_permille > 0 && d.min_permille > d.max_permille)
    return Error{EINVAL, "min is more than max"};
  if (auto group = attribute(vgpu, "group")) {
    if (!valid_vgpu_name(*group)) return Error{EINVAL, "group must be a group's name"};
    d.group = *group;
  }
  return {};
}

// Reads the text into `doc`; the result is its <domain>.
Result<pugi::xml_node> load_domain(std::string_view xml, pugi::xml_document& doc) {
  if (xml.size() > kMaxXmlBytes) return Error{E2BIG, "the domain XML has more than 4 MiB"};
  // The parser knows the five built-in entities and characters by number, and no others; document
  // type declarations are reported (parse_doctype) so that they can be refused.
  pugi::xml_parse_result parsed =
      doc.load_buffer(xml.data(), xml.size(), pugi::parse_default | pugi::parse_doctype);
  if (!parsed) {
    const size_t at = std::min(static_cast<size_t>(parsed.offset), xml.size());
    const auto line = 1 + std::count(xml.begin(), xml.begin() + static_cast<ptrdiff_t>(at), '\n');
    return Error{EINVAL, "domain XML, line " + std::to_string(line) + ": " + parsed.description()};
  }
  for (pugi::xml_node n : doc.children())
    if (n.type() == pugi::node_doctype)
      return Error{EINVAL, "the domain XML has a document type declaration; libvirt's never do"};
  const pugi::xml_node root = doc.document_element();
  if (std::string_view(root.name()) != "domain")
    return Error{EINVAL, "not a libvirt domain: no <domain> element"};
  for (pugi::xml_node n : {root, root.child("metadata")}) {
    const auto all = n.attributes();
    if (std::distance(all.begin(), all.end()) > kMostAttributes)
      return Error{E2BIG, "<" + std::string(n.name()) + "> has more than " +
                              std::to_string(kMostAttributes) + " attributes"};
  }
  return root;
}

bool is_doorbell(pugi::xml_node shmem) {
  return attribute(shmem.child("model"), "type") == "ivshmem-doorbell";
}

// Of any version: an owner who has written it means Sluice.
bool is_ours(pugi::xml_node n) {
  return n.type() == pugi::node_element && namespace_of(n).starts_with(kSluiceXmlNamespaces) &&
         namespace_of(n) != kSavedXmlNamespace;
}

// The only <sluice:vgpu> among the children of <metadata>; null: there is none. What a later Sluice
// may know is refused by name: it would be a limit that nobody keeps.
Result<pugi::xml_node> settings_in(pugi::xml_node metadata) {
  const pugi::xml_node vgpu = child_in(metadata, "vgpu", kVgpuXmlNamespace);
  for (pugi::xml_node n : metadata.children()) {
    if (!is_ours(n) || n == vgpu) continue;
    const std::string_view name = n.name(), ns = namespace_of(n);
    const std::string shown = "<" + clean_text(name.data(), std::min<size_t>(name.size(), 60)) +
                              " xmlns='" + clean_text(ns.data(), std::min<size_t>(ns.size(), 80)) +
                              "'>";
    return Error{EINVAL, local_name(name) == "vgpu" && ns == kVgpuXmlNamespace
                             ? "<metadata> has more than one <sluice:vgpu>"
                             : "<metadata> has an unknown element " + shown +
                                   "; this release knows <sluice:vgpu> of '" + kVgpuXmlNamespace +
                                   "' only"};
  }
  return vgpu;
}

Result<DomainVgpu> read_domain(pugi::xml_node root, VgpuName name) {
  DomainVgpu d;
  d.domain = root.child("name").text().get();
  if (d.domain.empty()) return Error{EINVAL, "the domain has no <name>"};
  const auto vgpu = settings_in(root.child("metadata"));
  if (!vgpu) return vgpu.error();
  d.uuid = root.child("uuid").text().get();

  pugi::xml_node shmem;
  for (pugi::xml_node n : root.child("devices").children("shmem")) {
    if (!is_doorbell(n)) continue;
    if (shmem)
      return Error{EINVAL, "the domain has more than one <shmem> of model ivshmem-doorbell"};
    shmem = n;
  }
  if (!shmem)
    return Error{EINVAL,
                 "the domain has no vGPU: <devices><shmem name='NAME'><model "
                 "type='ivshmem-doorbell'/><server path='SOCKET'/></shmem>; 'sluicectl attach' "
                 "adds it, 'sluicectl detach' takes <sluice:vgpu> out"};
  // A shmem's name is unique within its domain only.
  if (name == VgpuName::kOfDomain) d.vgpu = d.domain;
  if (name == VgpuName::kOfDomain)
    if (auto can = can_name_vgpu(d.vgpu); !can) return can.error();
  d.socket = attribute(shmem.child("server"), "path").value_or("");
  if (d.socket.empty() || d.socket[0] != '/')
    return Error{EINVAL, "<shmem> needs <server path='...'/> with an absolute path"};
  if (auto vectors = attribute(shmem.child("msi"), "vectors")) {
    auto n = number<uint32_t>(*vectors, "<shmem>: <msi> vectors", 1, SLUICE_MAX_SLOTS + 1);
    if (!n) return n.error();
    // Vector 0 is the agent's, every slot has one more.
    if (*n == 1)
      return Error{EINVAL, "<shmem>: <msi vectors='1'> leaves no vector for a program; use 17"};
    d.vectors = *n;
  }

  if (auto read = read_settings(*vgpu, d); !read)
    return Error(read.error()).with_context("<sluice:vgpu>");
  return d;
}

}  // namespace

Result<void> can_name_vgpu(std::string_view domain) {
  if (valid_vgpu_name(domain)) return {};
  return Error{EINVAL, "the domain's name '" +
                           clean_text(domain.data(), std::min<size_t>(domain.size(), 80)) +
                           "' cannot name a vGPU (letters, digits, '.', '_', '-', at most " +
                           std::to_string(limits::kMaxVgpuNameBytes) +
                           ", the first a letter or digit); "
                           "'virsh domrename' changes it"};
}

Result<DomainVgpu> parse_domain_xml(std::string_view xml, VgpuName name) {
  pugi::xml_document doc;
  auto root = load_domain(xml, doc);
  if (!root) return root.error();
  return read_domain(*root, name);
}

Result<DomainVgpu> parse_vgpu_settings(const VgpuSettings& settings) {
  pugi::xml_document doc;
  pugi::xml_node vgpu = doc.append_child("vgpu");
  for (const auto& [name, value] : settings) {
    // In a document these declare namespaces; here they are names that nobody knows.
    const bool declares = name == "xmlns" || name.starts_with("xmlns:");
    vgpu.append_attribute(declares ? ("'" + name + "'").c_str() : name.c_str()) = value.c_str();
  }
  DomainVgpu d;
  if (auto read = read_settings(vgpu, d); !read) return read.error();
  return d;
}

Result<std::optional<DomainVgpu>> find_vgpu(std::string_view xml, std::string_view sockets) {
  pugi::xml_document doc;
  auto root = load_domain(xml, doc);
  if (!root) return root.error();
  bool ours = false;
  for (pugi::xml_node n : root->child("metadata").children()) ours |= is_ours(n);
  for (pugi::xml_node n : root->child("devices").children("shmem")) {
    const std::string path = attribute(n.child("server"), "path").value_or("");
    ours |= is_doorbell(n) && path.size() > sockets.size() && path.starts_with(sockets) &&
            path[sockets.size()] == '/';
  }
  if (!ours) return std::optional<DomainVgpu>();
  auto d = read_domain(*root, VgpuName::kOfDomain);
  if (!d) return d.error();
  return std::optional<DomainVgpu>(std::move(*d));
}

}  // namespace sluice
