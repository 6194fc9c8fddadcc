// SPDX-License-Identifier: Apache-2.0
// Linking PTX: several modules become one text, as cuLink* and nvcc -rdc want it.
//
// Pure; any thread. It joins declarations and definitions by name; what the joined text means, and
// whether everything is resolved, is checked when it is loaded.
#pragma once

#include <string>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::ptx {

// One module with everything of all: names of external linkage are matched (a second definition is
// an error, of weak ones the first counts), names local to a module are renamed where they meet
// others. Errors have a CUresult as code.
Result<std::string> join_ptx(const std::vector<std::string>& texts);
// The same at the end of a link: it is an error, too, if something is defined in none of them.
Result<std::string> link_ptx(const std::vector<std::string>& texts);

// Whether a module needs nothing of another module, so that it loads without the rest of a link. An
// error: it is no PTX.
Result<bool> stands_alone(const std::string& text);

}  // namespace sluice::ptx
