// SPDX-License-Identifier: Apache-2.0
// The libvirt hook: a vGPU exists from before its domain starts until the domain has ended.
//
// libvirt runs the hook program as /etc/libvirt/hooks/qemu.d/sluice DOMAIN OPERATION SUB EXTRA,
// with the domain's XML on standard input, and waits for its end. What each operation does:
//
//   prepare     creates the vGPU, anew where a domain has left one, or uses one of the same name
//               and socket that was made by hand; an error denies the start. A sluiced that is
//               not there is waited for, up to limits::kAbsentSeconds
//   release     deletes the vGPUs that the domain owns; libvirt runs it after a denied start too
//   migrate     denies a migration to this host: device memory does not move with a domain
//   others      nothing. An error at "reconnect", when libvirtd came back, would have libvirt end
//               the running domain; sluice-libvirt-events reports a vGPU that is gone
//
// A domain without a vGPU is let through, whether sluiced runs or not. A vGPU that somebody else
// created has another owner or none (vgpus.h): it stays. One process per call, one thread.
#pragma once

#include <string>
#include <string_view>

#include "mediator/base/result.h"

namespace sluice::libvirt {

struct HookPaths {
  std::string admin_socket = "/run/sluice/admin.sock";
  std::string sockets = "/run/sluice/vgpu";  // where sluiced makes the sockets of vGPUs
};

// An error is for the owner: libvirt prints it with the failed start.
Result<void> run_hook(const HookPaths& paths, std::string_view operation, std::string_view sub,
                      std::string_view xml);

}  // namespace sluice::libvirt
