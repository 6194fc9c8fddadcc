// SPDX-License-Identifier: Apache-2.0
// Files of `state_dir`, which last from one life of sluiced to the next: read whole, and replaced
// whole, so that a stop of the machine leaves the old one or the new one. May wait for the disk:
// called at sluiced's start or on a thread of its own (io/peers/peer_thread.h), never in its loop.
#pragma once

#include <cstddef>
#include <string>

#include "mediator/base/result.h"

namespace sluice {

// An error with ENOENT if there is none; EFBIG beyond `max_bytes`. Follows no link and waits for no
// pipe.
Result<std::string> read_state_file(const std::string& file, size_t max_bytes);
// `dir` is made if it is not there, mode 0700; `file` is in it.
Result<void> replace_state_file(const std::string& dir, const std::string& file,
                                const std::string& text);

}  // namespace sluice
