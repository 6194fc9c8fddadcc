// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/clone/block_index.h"

#include <array>
#include <vector>

#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::Statement;

namespace {

struct Use {
  std::string_view name;  // "%ctaid.x", "%ctaid"
  std::size_t operand = 0;
  bool grid = false;   // %nctaid
  int dimension = -1;  // 0..2, 3 for .w, -1: the whole vector
};

std::vector<Use> find_uses(const Statement& s) {
  std::vector<Use> uses;
  for (std::size_t k = 0; k < s.operands.size(); ++k) {
    if (s.operands[k].find("ctaid") == std::string_view::npos) continue;
    std::size_t at = 0;
    for (;;) {
      const std::string_view name = ptx::next_identifier(s.operands[k], at);
      if (name.empty()) break;
      const std::string_view base = name.substr(0, name.find('.'));
      if (base != "%ctaid" && base != "%nctaid") continue;
      Use use{name, k, base == "%nctaid", -1};
      if (name.size() != base.size()) {
        const std::string_view suffix = name.substr(base.size());
        const std::size_t dimension = std::string_view("xyzw").find(suffix[1]);
        use.dimension = suffix.size() == 2 && dimension != std::string_view::npos
                            ? static_cast<int>(dimension)
                            : 4;  // not understood
      }
      uses.push_back(use);
    }
  }
  return uses;
}

// The last word of an opcode: the type of its source operands.
std::string_view source_type(std::string_view opcode) {
  const std::size_t dot = opcode.rfind('.');
  return dot == opcode.npos ? std::string_view() : opcode.substr(dot + 1);
}

bool is_32bit(std::string_view type) { return type == "u32" || type == "s32" || type == "b32"; }
bool is_16bit(std::string_view type) { return type == "u16" || type == "s16" || type == "b16"; }

class Rewriter {
 public:
  Rewriter(const ptx::Module& module, const Statement& s, const IndexNames& names,
           ptx::Edits& edits)
      : module_(module), s_(s), names_(names), edits_(edits) {}

  std::string run() {
    const std::vector<Use> uses = find_uses(s_);
    if (uses.empty()) return {};
    const std::string_view type = source_type(s_.opcode);
    for (const Use& use : uses) {
      if (use.dimension == 4) return fail(use);
      if (use.dimension < 0 && uses.size() > 1) return fail(use);
      // The destination, an address or part of a list is no plain read.
      if (use.operand == 0 || s_.operands[use.operand] != use.name) return fail(use);
    }
    const Use& first = uses[0];
    const bool plain_move =
        s_.opcode == "mov.u32" || s_.opcode == "mov.s32" || s_.opcode == "mov.b32";
    if (first.dimension < 0) return vector_move(first);
    if (uses.size() == 1 && first.grid && plain_move) {
      replace_all(guard() + "ld.param.u32 \t" + std::string(s_.operands[0]) + ", " +
                  grid_field(first.dimension) + ";");
      return {};
    }
    if (ptx::base_opcode(s_.opcode) == "mov" && is_16bit(type)) {
      // A 16-bit move of a special register takes its low half.
      replace_all(load_if_grid(first) + guard() + "cvt.u16.u32 \t" + std::string(s_.operands[0]) +
                  ", " + value(first) + ";");
      return {};
    }
    if (!is_32bit(type)) return fail(first);
    for (const Use& use : uses) {
      edits_.insert(s_.range.begin, load_if_grid(use));
      edits_.replace(range_of(use.name), value(use));
    }
    return {};
  }

 private:
  std::string fail(const Use& use) const {
    return "uses " + std::string(use.name) + " in an unusual way (line " + std::to_string(s_.line) +
           ")";
  }
  std::string guard() const {
    if (s_.guard.empty()) return {};
    return std::string(s_.guard_negated ? "@!" : "@") + std::string(s_.guard) + " ";
  }
  std::string grid_field(int dimension) const {
    return std::string("[").append(names_.parameters) + "+" +
           std::to_string(names_.grid_offsets[static_cast<std::size_t>(dimension)]) + "]";
  }
  std::string name_of(std::string_view which) const {
    return std::string("%").append(names_.prefix).append(which);
  }
  // The register that holds the value once load_if_grid() has run.
  std::string value(const Use& use) const {
    if (use.dimension == 3) return "0";
    const std::string dimension(1, "xyz"[use.dimension]);
    return use.grid ? name_of(std::string("g").append(std::to_string(use.dimension)))
                    : name_of(dimension);
  }
  std::string load_if_grid(const Use& use) const {
    if (!use.grid || use.dimension == 3) return {};
    return "ld.param.u32 \t" + value(use) + ", " + grid_field(use.dimension) + ";\n\t";
  }
  ptx::Range range_of(std::string_view part) const {
    const auto begin = static_cast<std::uint32_t>(part.data() - module_.text().data());
    return {begin, begin + static_cast<std::uint32_t>(part.size())};
  }
  void replace_all(std::string text) { edits_.replace(s_.range, std::move(text)); }

  // mov.v4.u32 {a, b, c, d}, %ctaid;
  std::string vector_move(const Use& use) {
    const std::string_view destination = s_.operands[0];
    const bool wide =
        s_.opcode == "mov.v4.u32" || s_.opcode == "mov.v4.s32" || s_.opcode == "mov.v4.b32";
    const bool narrow = s_.opcode == "mov.v4.u16" || s_.opcode == "mov.v4.b16";
    if ((!wide && !narrow) || destination.size() < 2 || destination.front() != '{')
      return fail(use);
    std::string text;
    std::size_t at = 0;
    int dimension = 0;
    for (;;) {
      const std::string_view name = ptx::next_identifier(destination, at);
      if (name.empty()) break;
      if (dimension == 4) return fail(use);
      if (name != "_") {
        Use element = use;
        element.dimension = dimension;
        if (!text.empty()) text += "\n\t";
        text += load_if_grid(element) + guard() + (wide ? "mov.u32 \t" : "cvt.u16.u32 \t") +
                std::string(name) + ", " + value(element) + ";";
      }
      ++dimension;
    }
    if (dimension != 4) return fail(use);
    replace_all(std::move(text));
    return {};
  }

  const ptx::Module& module_;
  const Statement& s_;
  const IndexNames& names_;
  ptx::Edits& edits_;
};

}  // namespace

std::string replace_block_index(const ptx::Module& module, const Statement& statement,
                                const IndexNames& names, ptx::Edits& edits) {
  return Rewriter(module, statement, names, edits).run();
}

}  // namespace sluice::passes
