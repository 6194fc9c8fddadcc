// SPDX-License-Identifier: Apache-2.0
// Where a kernel's author has said that a block may leave in mid-work, with the header
// kernels/include/sluice/preempt.cuh: it asks whether it should (sluice::should_leave), saves what
// each of its threads needs to go on (sluice::leave) and takes that up again (sluice::resume).
//
// The header writes each of these as an instruction whose destination has a name of its own, which
// without Sluice is a constant that the assembler folds away:
//
//   mov.b32 sluice_should_leave, 0;        1 in the clone: leave now
//   and.b64 sluice_resume_at, BYTES, 0;    address of what this thread has saved; 0: a fresh start
//   and.b64 sluice_save_at, BYTES, 0;      address to save it at
//   and.b32 sluice_leave, BYTES, 0;        the block leaves; `exit` follows
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/passes/analysis/finding.h"
#include "kernels/ptx/cfg.h"
#include "kernels/ptx/dominators.h"

namespace sluice::passes {

enum class AuthorPoint : std::uint8_t { kAsk, kResume, kSave, kLeave };
struct Marker {
  AuthorPoint point;
  std::string_view destination;
  std::uint64_t bytes = 0;  // of state for each thread
  bool understood = false;  // written as the header writes it
};
// Whether the text has the name of any instruction by which a block leaves.
bool may_have_author_points(std::string_view text);
// Whether a function of this text may have any marker. Much faster than finding them.
bool may_name_author_points(std::string_view text);
// Nothing: an instruction like any other.
std::optional<Marker> author_marker(const ptx::Statement& s);

struct AuthorPoints {
  bool any = false;
  std::uint64_t state_bytes = 0;  // of each thread
  Finding why_not;                // they cannot be used as they stand
};
// Of one function's own body; a .func's are of no use.
AuthorPoints find_author_points(const ptx::Cfg& cfg, const ptx::PostDominators& post_dominators);

}  // namespace sluice::passes
