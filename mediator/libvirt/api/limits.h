// SPDX-License-Identifier: Apache-2.0
// Limits of what is asked of libvirt.
#pragma once

#include <cstdint>

namespace sluice::libvirt::limits {

// How long a live detach waits for the guest to release the device. Idle guests need less than a
// second; a shorter wait would report programs that are about to end.
inline constexpr uint64_t kDetachSeconds = 10;
// How long a list of all domains may take: a hundred domains need less than a second. A shorter
// wait would find no domains on a busy host.
inline constexpr int kListSeconds = 10;
// After how long sluice-libvirt-events says that libvirtd does not answer. A host that starts it
// for that and is busy needs some seconds; less would report that.
inline constexpr int kSilentSeconds = 10;
// A libvirtd that is silent for so many seconds, so many times, is gone. Less would drop the
// connection to one that is busy.
inline constexpr int kKeepAliveSeconds = 5;
inline constexpr unsigned kKeepAlives = 4;

// How deep elements of a domain's XML may be: libxml2's limit, by which libvirt reads them. More
// would let printing take the square of what 4 MiB of XML can nest.
inline constexpr int kMaxXmlDepth = 256;

}  // namespace sluice::libvirt::limits
