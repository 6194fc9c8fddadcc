// SPDX-License-Identifier: Apache-2.0
// The folders that the configuration names: there, and sluiced's own, before it serves anybody.
// Used once, by Daemon::start.
#pragma once

#include <optional>

#include "mediator/base/result.h"
#include "mediator/daemon/setup/config.h"
#include "mediator/daemon/setup/identity.h"

namespace sluice {

// Makes those that are missing. `identity`: whom sluiced becomes; they are handed over to that
// user. Without it state_dir is made only when there is something to keep: this user may not be
// allowed to. An error names the key of the folder.
Result<void> make_folders(const Config& config, const std::optional<Identity>& identity);

}  // namespace sluice
