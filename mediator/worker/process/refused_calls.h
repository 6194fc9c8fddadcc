// SPDX-License-Identifier: Apache-2.0
// What becomes of a system call that the filter beside NVIDIA's driver does not know (sandbox.h):
// the kernel raises SIGSYS, and the handler here logs the call's name and first arguments, once a
// call, and has it fail. So a call that some version of the driver needs is named in sluiced's log
// at once.
//
// State: one table, made before the filter is loaded. The handler runs on any thread.
#pragma once

#include <string_view>

namespace sluice::worker {

// Of a call that is allowed with other arguments: it fails with EPERM. All others fail with ENOSYS,
// as on an older kernel: libraries have a way around that, and none around EPERM.
void allowed_in_part(std::string_view name);

// Installs the handler. False: the kernel refuses.
bool log_refused_calls();

}  // namespace sluice::worker
