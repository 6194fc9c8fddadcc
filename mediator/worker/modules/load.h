// SPDX-License-Identifier: Apache-2.0
// Modules and functions of a session: loads a guest's PTX and finds its kernels with their clones,
// or its machine code, whose kernels have none: they are opaque, and each launch runs to its end.
//
// Job thread; each answers its call, at once or when memory has been leased. The text and the names
// are the guest's: the text is sized and charged before the driver sees it (modules/size.h), a
// cubin's tables are checked (kernels/cubin), and a clone is used only if the driver says that its
// parameters are what a launch will pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

// `log_bytes`: of the compiler's log, in the answer if it fails.
void load_module(WorkerSession& s, const Call& call, std::string text, uint32_t log_bytes);

// `guest_flags`: SLUICE_FUNCTION_*, what the guest's rewriter says of the clones. `state_bytes`:
// what a thread of a resumable one saves.
void get_function(WorkerSession& s, const Call& call, uint64_t guest_module,
                  const std::string& name, uint32_t guest_flags, uint32_t state_bytes);

// The clones of `function` are those in `module`, which becomes a part of the function's own
// module. `addresses`: what its array of them is to hold; the guest's own, as those in its text.
// Of a text without the original, that is what its clones' registers are compared with now.
void add_clones(WorkerSession& s, const Call& call, const sluice_function_clones& clones,
                std::vector<std::byte> addresses);

}  // namespace sluice::worker
