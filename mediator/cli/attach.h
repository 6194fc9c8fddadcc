// SPDX-License-Identifier: Apache-2.0
// sluicectl attach, detach, reserve, save and restore: a vGPU in or out of a libvirt domain.
//
// For the next start they change the domain's XML: the hook (mediator/libvirt/hook.h) makes the
// vGPU. Live they create the vGPU, owned by the domain, and then attach the device, because QEMU
// connects at once and libvirt runs no hook; detaching does the reverse.
//
// A live change does not outlive the domain's run. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "mediator/base/result.h"
#include "mediator/cli/admin_client.h"

namespace sluice::cli {

struct AttachOptions {
  std::string domain, uri;
  std::optional<std::string> memory, latency, group, mode;
  std::optional<uint32_t> weight, priority, min, max;
  std::optional<uint32_t> slots;
  bool print_only = false;  // show the XML, change nothing
  bool live = false;        // the running domain, not its next start
  bool no_iommu = false;    // adds no virtual IOMMU
  bool force = false;       // save: although something is lost
  int timeout_s = 0;        // how long to wait for an answer of libvirt's
};
Result<void> attach(AdminClient& client, const AttachOptions& options);
// Needs sluiced only for a live one: `connect` is called then.
Result<void> detach(const AttachOptions& options,
                    const std::function<Result<AdminClient>()>& connect);
// Makes room for a live attach from the domain's next start on.
Result<void> reserve(AdminClient& client, const AttachOptions& options);
// Detaches the vGPU, has libvirt save the domain's memory, and remembers the vGPU's settings in the
// saved state. Refused where programs would end or the vGPU could not come back, unless `force`.
// Where saving fails, the domain has its vGPU again.
Result<void> save(AdminClient& client, const AttachOptions& options);
// Starts the domain from there, if it does not run, and attaches the vGPU again.
Result<void> restore(AdminClient& client, const AttachOptions& options);

}  // namespace sluice::cli
