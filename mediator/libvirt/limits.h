// SPDX-License-Identifier: Apache-2.0
// Limits of the programs that libvirt runs or that speak to it.
#pragma once

#include <cstddef>

namespace sluice::libvirt::limits {

// How long the hook waits for sluiced. libvirt waits for the hook, and `virsh start` with it; less
// would deny starts on a busy host.
inline constexpr int kAdminTimeoutSeconds = 30;
// How long the hook waits for a sluiced that is not there, and how often it polls. One that systemd
// starts anew is there after 1 to 2 s; less would deny starts during an upgrade on a busy host.
inline constexpr int kAbsentSeconds = 10, kAbsentPollMs = 200;
// The domain's XML on standard input. Domains have some kilobytes; more is refused unread.
inline constexpr size_t kMaxXmlBytes = 4u << 20;
// Pauses between attempts to reach libvirtd or sluiced: from the least, doubled, to the most.
// Shorter ones would fill the journal of a host whose libvirtd is stopped for good.
inline constexpr int kLeastRetryMs = 500, kMostRetryMs = 30'000;
// How often all domains are checked although no event came: makes good a lost event. And how
// often while a vGPU seems to be left over.
inline constexpr unsigned kPollSeconds = 60, kLeftoverPollSeconds = 5;

}  // namespace sluice::libvirt::limits
