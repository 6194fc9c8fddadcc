// SPDX-License-Identifier: Apache-2.0
// Where PTX lines come from: .file and .loc.
#include <cctype>
#include <unordered_map>

#include "kernels/exec/decode/source_lines.h"
#include "kernels/exec/program/inst.h"
#include "kernels/ptx/module.h"

namespace sluice::exec::detail {
namespace {

// The next word of `text`, which moves behind it.
std::string_view take_word(std::string_view& text) {
  size_t begin = 0;
  while (begin < text.size() && std::isspace(static_cast<unsigned char>(text[begin])) != 0) ++begin;
  size_t end = begin;
  while (end < text.size() && std::isspace(static_cast<unsigned char>(text[end])) == 0 &&
         text[end] != ',')
    ++end;
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return word;
}

}  // namespace

void read_source_lines(const ptx::Module& module, Code& code) {
  constexpr uint32_t kNoFile = 0xffffffff;
  std::unordered_map<uint64_t, uint32_t> files;  // their numbers in the text
  for (const ptx::ModuleDirective& d : module.directives()) {
    if (d.name != ".file") continue;
    std::string_view text = module.text_of(d.range);
    take_word(text);  // .file
    uint64_t number = 0;
    if (!ptx::parse_integer(take_word(text), number)) continue;
    const size_t open = text.find('"'), close = text.find('"', open + 1);
    if (open == text.npos || close == text.npos) continue;
    std::string_view path = text.substr(open + 1, close - open - 1);
    if (const size_t slash = path.rfind('/'); slash != path.npos) path.remove_prefix(slash + 1);
    files[number] = static_cast<uint32_t>(code.source_files.size());
    code.source_files.emplace_back(path);
  }
  if (files.empty()) return;
  for (const ptx::Function& f : module.functions()) {
    if (!f.has_body) continue;
    code.sources.push_back({f.line, kNoFile, 0});
    for (const ptx::Statement& s : f.statements) {
      if (s.kind != ptx::StatementKind::kDirective || s.opcode != ".loc") continue;
      std::string_view text = module.text_of(s.range);
      take_word(text);  // .loc
      uint64_t file = 0, line = 0;
      if (!ptx::parse_integer(take_word(text), file) || !ptx::parse_integer(take_word(text), line))
        continue;
      const auto known = files.find(file);
      code.sources.push_back(
          {s.line, known == files.end() ? kNoFile : known->second, static_cast<uint32_t>(line)});
    }
  }
}

}  // namespace sluice::exec::detail
