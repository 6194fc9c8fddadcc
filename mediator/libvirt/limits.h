// SPDX-License-Identifier: Apache-2.0
// Limits of the programs that libvirt runs or that speak to it.
#pragma once

#include <cstddef>

namespace sluice::libvirt::limits {

// How long the hook waits for sluiced. libvirt waits for the hook, and `virsh start` with it; less
// would deny starts on a busy host.
inline constexpr int kAdminTimeoutSeconds = 30;
// The domain's XML on standard input. Domains have some kilobytes; more is refused unread.
inline constexpr size_t kMaxXmlBytes = 4u << 20;

}  // namespace sluice::libvirt::limits
