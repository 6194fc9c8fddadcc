// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/domain_list.h"

#include <boost/json/object.hpp>

#include "mediator/cli/answer.h"
#include "mediator/cli/domain_request.h"
#include "mediator/cli/table.h"
#include "mediator/core/domain_xml.h"

namespace sluice::cli {
namespace {

// The one that the domain owns, else one made by hand whose socket is in its XML. A copy of a
// domain has the socket of another domain's.
const json::value* vgpu_for(const json::array& vgpus, const libvirt::ListedDomain& domain,
                            const std::string& socket) {
  for (const json::value& v : vgpus)
    if (text(v, "owner") == owner_of(domain.uuid)) return &v;
  for (const json::value& v : vgpus)
    if (!socket.empty() && text(v, "socket") == socket && text(v, "owner").empty()) return &v;
  return nullptr;
}

VgpuState state_of(bool runs, bool in_xml, const json::value* vgpu) {
  if (!vgpu) return !in_xml ? VgpuState::kNone : runs ? VgpuState::kLost : VgpuState::kNextStart;
  if (runs && in_xml) return VgpuState::kPresent;
  return in_xml && text(*vgpu, "owner").empty() ? VgpuState::kNextStart : VgpuState::kLeft;
}

const char* word_of(VgpuState state) {
  switch (state) {
    case VgpuState::kNone:
      return "none";
    case VgpuState::kNextStart:
      return "next-start";
    case VgpuState::kPresent:
      return "present";
    case VgpuState::kLost:
      return "lost";
    case VgpuState::kLeft:
      return "left";
  }
  return "unknown";
}

// For people, with what to do.
std::string described(const DomainRow& d) {
  switch (d.vgpu_state) {
    case VgpuState::kNone:
      return "none";
    case VgpuState::kNextStart:
      return d.wrong.empty() ? "attached, from its next start on" : "does not start: " + d.wrong;
    case VgpuState::kPresent:
      return d.channel;
    case VgpuState::kLost:
      return "lost: shut the domain off, then start it";
    case VgpuState::kLeft:
      return "left over: sluicectl delete " + d.vgpu;
  }
  return "";
}

}  // namespace

DomainList match_domains(const json::array& vgpus,
                         const std::vector<libvirt::ListedDomain>& domains,
                         const std::string& sockets) {
  DomainList list;
  for (const libvirt::ListedDomain& d : domains) {
    const auto read = parse_domain_xml(d.xml);
    const json::value* vgpu = vgpu_for(vgpus, d, read ? read->socket : "");
    // Settings that are wrong are an error here: the domain has them all the same.
    const auto found = find_vgpu(d.xml, sockets);
    const bool by_socket = vgpu && read && text(*vgpu, "socket") == read->socket;
    // virsh detaches the device of a domain that runs, and leaves it the settings.
    const bool wants = found ? found->has_value() : !d.runs() || libvirt::parts_of(d.xml).vgpu;
    const bool in_xml = by_socket || wants;
    DomainRow row{d.name, d.uuid, d.state, state_of(d.runs(), in_xml, vgpu), "", "", ""};
    if (!found) row.wrong = found.error().message;
    if (vgpu) {
      row.vgpu = text(*vgpu, "name");
      row.channel = text(*vgpu, "state");
      list.by_vgpu[row.vgpu] = d.name;
    }
    list.domains.push_back(std::move(row));
  }
  for (const json::value& v : vgpus)
    if (!list.by_vgpu.contains(text(v, "name")))
      list.vgpus_without_domain.push_back(text(v, "name"));
  return list;
}

std::string domain_table(const DomainList& list) {
  std::vector<std::vector<std::string>> cells;
  for (const DomainRow& d : list.domains)
    cells.push_back({d.name, d.state, d.vgpu.empty() ? "-" : d.vgpu, described(d)});
  return format_table({{"DOMAIN"}, {"STATE"}, {"VGPU"}, {"ITS STATE"}}, cells);
}

json::object domains_as_json(const DomainList& list) {
  json::array domains, alone;
  for (const DomainRow& d : list.domains) {
    json::object row{{"name", d.name},
                     {"uuid", d.uuid},
                     {"state", d.state},
                     {"attached", word_of(d.vgpu_state)}};
    row["vgpu"] = d.vgpu.empty() ? json::value(nullptr) : json::value(d.vgpu);
    if (!d.wrong.empty()) row["wrong"] = d.wrong;
    domains.push_back(std::move(row));
  }
  for (const std::string& name : list.vgpus_without_domain) alone.emplace_back(name);
  return {{"domains", std::move(domains)}, {"vgpus_without_domain", std::move(alone)}};
}

}  // namespace sluice::cli
