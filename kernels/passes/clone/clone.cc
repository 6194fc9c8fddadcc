// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/clone/clone.h"

#include <algorithm>

namespace sluice::passes {

Clone::Clone(const PassInput& input, Form its_form)
    : in(input),
      form(its_form),
      tier(its_form == Form::kOneTask ? Tier::kPrologue : Tier::kPlain),
      start(input.module, input.prefix),
      head(input.module, input.prefix),
      end(input.module, input.prefix),
      tail(input.module, input.prefix) {
  options.reads_ctaid = input.facts.grid.ctaid;
  options.has_warp_sync = input.module.version() >= ptx::Module::Version{6, 0};
}

void Clone::needs(Tier t) { tier = std::max(tier, t); }

std::string Clone::guard_of(const ptx::Statement& s) {
  if (s.guard.empty()) return {};
  return std::string(s.guard_negated ? "@!" : "@") + std::string(s.guard) + " ";
}

ptx::Range Clone::range_of(std::string_view part) const {
  const auto begin = static_cast<std::uint32_t>(part.data() - in.module.text().data());
  return {begin, begin + static_cast<std::uint32_t>(part.size())};
}

void Clone::replace(const ptx::Statement& s, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) text += "\n\t";
    text += guard_of(s) + name(line);
  }
  edits.replace(s.range, std::move(text));
}

std::string Clone::text() const {
  ptx::Edits all = edits;
  const auto put = [&](std::uint32_t at, const Emitter& lines) {
    if (!lines.text().empty()) all.insert(at, std::string("\n").append(lines.text()));
  };
  const std::uint32_t first = in.entry.body_range.begin + 1, last = in.entry.body_range.end - 1;
  put(first, start);
  put(first, head);
  put(last, end);
  put(last, tail);
  return module_scope + all.apply(in.module.text(), in.entry.range);
}

}  // namespace sluice::passes
