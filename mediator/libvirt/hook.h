// SPDX-License-Identifier: Apache-2.0
// The libvirt hook: a vGPU exists from before its domain starts until the domain has ended.
//
// libvirt runs the hook program as /etc/libvirt/hooks/qemu.d/sluice DOMAIN OPERATION SUB EXTRA,
// with the domain's XML on standard input, and waits for its end. What each operation does:
//
//   prepare    creates the vGPU, or takes over one of the same socket; an error denies the start
//   release    deletes the vGPU that `prepare` created; libvirt runs it after a denied start as
//   well reconnect  libvirtd came back: reports a vGPU that is gone migrate    denies a migration
//   to this host: device memory does not move with a domain others     nothing
//
// A domain without a vGPU is let through, whether sluiced runs or not. Which vGPUs the hook created
// is noted in a folder of its own, a file named by the domain's UUID: a vGPU that somebody else
// created stays. One process per call, one thread.
#pragma once

#include <string>
#include <string_view>

#include "mediator/base/result.h"

namespace sluice::libvirt {

struct HookPaths {
  std::string admin_socket = "/run/sluice/admin.sock";
  std::string sockets = "/run/sluice/vgpu";  // where sluiced makes the sockets of vGPUs
  std::string notes = "/run/sluice-libvirt";
};

// An error is for the owner: libvirt prints it with the failed start.
Result<void> run_hook(const HookPaths& paths, std::string_view operation, std::string_view sub,
                      std::string_view xml);

}  // namespace sluice::libvirt
