// SPDX-License-Identifier: Apache-2.0
// What must hold for any text that claims to be PTX; a row of targets.h. Pure; any thread.
#pragma once

#include <string>

namespace sluice::fuzz {

struct PtxOutcome {
  bool parsed = false;   // cut into statements
  bool decoded = false;  // understood by the interpreter as well
};

// Parses, prints, analyses every function (control flow, post-dominators, divergence), rewrites,
// parses the result again, decodes the text for execution and runs it (exec_property.h).
PtxOutcome check_ptx_text(std::string text);

}  // namespace sluice::fuzz
