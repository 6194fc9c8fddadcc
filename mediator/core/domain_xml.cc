#include "mediator/core/domain_xml.h"

#include <libxml/parser.h>
#include <libxml/tree.h>

#include <charconv>
#include <memory>
#include <optional>

#include "mediator/base/limits.h"
#include "mediator/core/names.h"

namespace sluice {
namespace {

// A domain XML is some kilobytes; more than this is not one.
constexpr size_t kMaxXmlBytes = 4u << 20;

struct FreeDoc {
  void operator()(xmlDoc* doc) const { xmlFreeDoc(doc); }
};
struct FreeContext {
  void operator()(xmlParserCtxt* context) const { xmlFreeParserCtxt(context); }
};

bool is(const xmlNode* node, const char* name, const char* ns = nullptr) {
  if (node->type != XML_ELEMENT_NODE) return false;
  if (std::string_view(reinterpret_cast<const char*>(node->name)) != name) return false;
  const char* href = node->ns ? reinterpret_cast<const char*>(node->ns->href) : nullptr;
  if (!ns) return !href;
  return href && std::string_view(href) == ns;
}

const xmlNode* child(const xmlNode* parent, const char* name, const char* ns = nullptr) {
  for (const xmlNode* n = parent ? parent->children : nullptr; n; n = n->next)
    if (is(n, name, ns)) return n;
  return nullptr;
}

std::optional<std::string> attribute(const xmlNode* node, const char* name) {
  if (!node) return std::nullopt;
  xmlChar* text = xmlGetNoNsProp(node, reinterpret_cast<const xmlChar*>(name));
  if (!text) return std::nullopt;
  std::string value(reinterpret_cast<const char*>(text));
  xmlFree(text);
  return value;
}

std::string content(const xmlNode* node) {
  if (!node) return "";
  xmlChar* text = xmlNodeGetContent(node);
  std::string value(text ? reinterpret_cast<const char*>(text) : "");
  xmlFree(text);
  return value;
}

template <class T>
Result<T> number(const std::string& text, const char* what, T low, T high) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    return Error{EINVAL, std::string(what) + " is '" + text.substr(0, 40) + "', not a number from " +
                             std::to_string(low) + " to " + std::to_string(high)};
  return value;
}

}  // namespace

Result<DomainVgpu> parse_domain_xml(std::string_view xml) {
  if (xml.size() > kMaxXmlBytes) return Error{E2BIG, "the domain XML has more than 4 MiB"};
  std::unique_ptr<xmlParserCtxt, FreeContext> context(xmlNewParserCtxt());
  if (!context) return Error{ENOMEM, "no memory for an XML parser"};
  // No NOENT, DTDLOAD or HUGE: entities stay references, and libxml2's own bounds on depth stay on.
  std::unique_ptr<xmlDoc, FreeDoc> doc(
      xmlCtxtReadMemory(context.get(), xml.data(), static_cast<int>(xml.size()), "domain.xml", nullptr,
                        XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING));
  if (!doc) {
    const xmlError* e = xmlCtxtGetLastError(context.get());
    std::string why = e && e->message ? e->message : "not XML";
    while (!why.empty() && why.back() == '\n') why.pop_back();
    return Error{EINVAL, "domain XML, line " + std::to_string(e ? e->line : 0) + ": " + why};
  }
  if (doc->intSubset || doc->extSubset)
    return Error{EINVAL, "the domain XML has a document type declaration; libvirt's never do"};
  const xmlNode* root = xmlDocGetRootElement(doc.get());
  if (!root || !is(root, "domain")) return Error{EINVAL, "not a libvirt domain: no <domain> element"};

  DomainVgpu d;
  d.domain = content(child(root, "name"));
  if (d.domain.empty()) return Error{EINVAL, "the domain has no <name>"};

  const xmlNode* devices = child(root, "devices");
  const xmlNode* shmem = nullptr;
  for (const xmlNode* n = devices ? devices->children : nullptr; n; n = n->next) {
    if (!is(n, "shmem")) continue;
    auto model = attribute(child(n, "model"), "type");
    if (!model || *model != "ivshmem-doorbell") continue;
    if (shmem) return Error{EINVAL, "the domain has more than one <shmem> of model ivshmem-doorbell"};
    shmem = n;
  }
  if (!shmem)
    return Error{EINVAL, "the domain has no vGPU: <devices><shmem name='NAME'><model "
                         "type='ivshmem-doorbell'/><server path='SOCKET'/></shmem>"};
  d.vgpu = attribute(shmem, "name").value_or("");
  if (!valid_vgpu_name(d.vgpu))
    return Error{EINVAL, "the shmem name '" + clean_text(d.vgpu.data(), std::min<size_t>(d.vgpu.size(), 80)) +
                             "' is no vGPU name (letters, digits, '.', '_', '-'; at most 48)"};
  d.socket = attribute(child(shmem, "server"), "path").value_or("");
  if (d.socket.empty() || d.socket[0] != '/')
    return Error{EINVAL, "<shmem> needs <server path='...'/> with an absolute path"};
  if (auto vectors = attribute(child(shmem, "msi"), "vectors")) {
    auto n = number<uint32_t>(*vectors, "msi vectors", 1, SLUICE_MAX_SLOTS + 1);
    if (!n) return n.error();
    d.vectors = *n;
  }

  const xmlNode* vgpu = child(child(root, "metadata"), "vgpu", kVgpuXmlNamespace);
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
  return d;
}

}  // namespace sluice
