// SPDX-License-Identifier: Apache-2.0
// sluicectl attach and detach: a vGPU in or out of a libvirt domain's XML. The hook
// (mediator/libvirt/hook.h) makes the vGPU when the domain starts. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mediator/base/result.h"
#include "mediator/cli/admin_client.h"

namespace sluice::cli {

struct AttachOptions {
  std::string domain, uri;
  std::optional<std::string> memory, latency, group;
  std::optional<uint32_t> weight, priority, min, max;
  uint32_t slots = 16;
  bool print_only = false;  // show the XML, change nothing
};
Result<void> attach(AdminClient& client, const AttachOptions& options);
Result<void> detach(const AttachOptions& options);

}  // namespace sluice::cli
