// What must hold for any text that claims to be PTX. Used by the fuzz target and by the test that
// replays what fuzzing found, so that both ask the same questions.
//
// Pure; any thread. A broken property ends the process with a message (a fuzzer's way to fail).
#pragma once

#include <string>

namespace sluice::fuzz {

struct PtxOutcome {
  bool parsed = false;   // cut into statements
  bool decoded = false;  // understood by the interpreter as well
};

// Parses, prints, analyses every function (control flow, post-dominators, divergence), rewrites,
// parses the result again, and decodes both for execution.
PtxOutcome check_ptx(std::string text);

}  // namespace sluice::fuzz
