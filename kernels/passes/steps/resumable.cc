// SPDX-License-Identifier: Apache-2.0
// Kernels whose author says where they can leave (author_points.h): a block runs one task, as in
// the prologue form, but may leave in the middle of it and go on later.
//
// Source: the low-level calls of EffiSha (PPoPP'17, section 4), meant for programmers as well.
#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

Finding place_author_points(Clone& clone) {
  const AuthorPoints& author = clone.in.facts.author;
  if (author.why_not) return author.why_not;
  clone.needs(Tier::kResumable);
  clone.options.resumable = true;
  clone.return_target = "~ENDED";
  clone.state_bytes = static_cast<std::uint32_t>(author.state_bytes);
  for (const ptx::Statement& s : clone.in.entry.statements) {
    const auto marker = author_marker(s);
    if (!marker) continue;
    Emitter lines(clone.in.module, clone.in.prefix);
    LoopHead(clone.options, lines).write_author_point(*marker);
    clone.edits.replace(s.range, lines.text());
  }
  return {};
}

Finding run_resumable_task(Clone& clone) {
  LoopHead(clone.options, clone.head).write_before_body();
  LoopHead(clone.options, clone.tail).write_after_body();
  return {};
}

}  // namespace sluice::passes
