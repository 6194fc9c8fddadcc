// SPDX-License-Identifier: Apache-2.0
// Identity: the user that sluiced runs as. Started as root, sluiced starts the spawner, opens what
// only root may open, and becomes this user with no capability at all. Used once, by Daemon::start.
//
// What needs privileges, and why sluiced keeps none:
//   starting workers         the spawner's keeper does it (mediator/spawner/keeper.h)
//   the GPU's registers      mapped before; a mapping stays
//   sockets of QEMU's group  that group becomes one of sluiced's
//   priority, descriptors    set before; both stay
//   directories and files    handed over before, see `hand_over`
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/daemon/setup/config.h"

namespace sluice {

// Where daemon.user is not set: this user, if the host has it.
inline constexpr const char* kOwnUser = "sluice";

struct Identity {
  std::string name;  // for the log
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // all that the user is a member of

  // The user that sluiced becomes. nullopt: it stays who it is: it was not started as root, shall
  // be root, or has no user of its own.
  static Result<std::optional<Identity>> wanted(const Config& config);
};

// Makes `path` this user's folder. One that is root's, and that nobody else may write, is handed
// over with the files and sockets in it, but for what is the spawner's; anybody else's is an error.
// Only root may have put something there, so no name in it leads to a file that is not meant.
Result<void> hand_over(const std::string& path, const Identity& identity);

// For good: user, groups (`more` besides its own), no capabilities, none to be won by executing.
// Before another thread is started: capabilities are a thread's own.
Result<void> become(const Identity& identity, const std::vector<gid_t>& more);

// The capabilities that this process has now, as the kernel's mask.
uint64_t own_capabilities();

}  // namespace sluice
