// SPDX-License-Identifier: Apache-2.0
// What a domain's XML asks of sluiced, as parameters of the admin methods. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "mediator/core/domain_xml.h"

namespace sluice {

// Who owns the vGPU of a libvirt domain: a domain keeps its UUID when it is renamed.
inline constexpr std::string_view kOwnerPrefix = "libvirt:";
inline std::string owner_of(const std::string& uuid) { return std::string(kOwnerPrefix) + uuid; }

// For vgpu.create. What the XML does not say is left out. `owner`: who deletes it again, if not
// whoever created it.
boost::json::object create_request(const DomainVgpu& domain, const std::string& owner = "");
// For vgpu.set: what can change while the domain runs.
boost::json::object set_request(const DomainVgpu& domain);

}  // namespace sluice
