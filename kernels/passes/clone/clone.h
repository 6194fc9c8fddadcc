// SPDX-License-Identifier: Apache-2.0
// A clone under construction: the original entry's text with the edits of the passes so far.
//
// Owner: rewrite_module(), for one entry and one form; one thread. It knows where things go, not
// what they mean.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/passes/clone/emitter.h"
#include "kernels/passes/clone/loop_head.h"
#include "kernels/passes/clone/pass.h"
#include "kernels/ptx/edit.h"

namespace sluice::passes {

// What the clones' own instructions need (PTX ISA: %globaltimer and shfl). A module for less is
// raised to this version and to a target that also has maxima of 64 bits (rule isa-version); no GPU
// that a driver of today knows is older.
inline constexpr ptx::Module::Version kLeastVersion{3, 1};
inline constexpr std::uint32_t kLeastSm = 30, kRaisedSm = 35;

class Clone {
 public:
  Clone(const PassInput& input, Form its_form);

  const PassInput& in;
  const Form form;
  Tier tier;
  SlotPlace slot = SlotPlace::kNone;
  LoopOptions options;
  std::uint32_t state_bytes = 0;   // resumable: of each thread
  std::string parameters;          // name of the appended parameter block
  ptx::Edits edits;                // of the module's text; all within the entry
  Emitter start;                   // behind the body's `{`, before everything else: declarations
  Emitter head;                    // then the loop's head
  Emitter end;                     // behind the body, in front of the loop's tail
  Emitter tail;                    // the loop's tail; then the `}`
  std::string module_scope;        // text in front of the clone
  std::string own_dynamic_shared;  // backs options.dynamic_shared where the kernel has none
  std::string return_target;       // label that the body's returns lead to; empty: they stay
  ptx::Module::Version version_needed;  // of the module; {0, 0}: as it is

  // The hardest pass names the tier.
  void needs(Tier t);
  // "@!%p1 " or nothing.
  static std::string guard_of(const ptx::Statement& s);
  // Where an operand of a statement stands in the text.
  ptx::Range range_of(std::string_view part) const;
  // `s`, instruction by instruction, with its guard, in place of the statement.
  void replace(const ptx::Statement& s, const std::vector<std::string>& lines);
  // The clone as it stands; does not change it.
  std::string text() const;
  std::string name(std::string_view with_tilde) const { return start.name(with_tilde); }
};

}  // namespace sluice::passes
