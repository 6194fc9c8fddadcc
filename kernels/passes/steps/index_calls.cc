// SPDX-License-Identifier: Apache-2.0
// Rule index-in-calls: called functions that read the block's index or the grid's size themselves.
//
// Each of them, and each function on the way to one, gets a copy for this clone that takes index
// and grid as one more parameter; calls within the clone lead to the copies. Calls through pointers
// cannot be led elsewhere (facts.h calls them index-by-pointer).
#include <unordered_map>

#include "kernels/passes/clone/block_index.h"
#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

namespace {

// {x, y, z, grid x, grid y, grid z}, 4 bytes each.
constexpr std::size_t kBytes = 24;
constexpr std::array<std::size_t, 3> kGridOffsets = {12, 16, 20};

class Calls {
 public:
  explicit Calls(Clone& clone) : clone_(clone) {
    for (const ptx::Function* f : clone.in.facts.index_functions)
      copies_[f->name] =
          clone.name("~f") + std::to_string(clone.in.number) + "_" + std::to_string(copies_.size());
    for (const auto& [name, means] : clone.in.module.aliases())
      if (const auto copy = copies_.find(means); copy != copies_.end())
        copies_.emplace(name, copy->second);
  }

  Finding run() {
    std::string prototypes, bodies;
    for (const ptx::Function* f : clone_.in.facts.index_functions) {
      if (Finding why = copy(*f, prototypes, bodies)) return why;
    }
    clone_.module_scope += prototypes + bodies;
    return lead(clone_.in.entry, clone_.edits, /*of_entry=*/true);
  }

 private:
  static std::string guard(const ptx::Statement& s) { return Clone::guard_of(s); }

  std::string parameter() const {
    return ".param .align 8 .b8 " + clone_.name("~index") + "[" + std::to_string(kBytes) + "]";
  }

  // Leads the function's calls to the copies, with the argument that they take.
  Finding lead(const ptx::Function& f, ptx::Edits& edits, bool of_entry) {
    for (const ptx::Statement& s : f.statements) {
      if (s.kind != ptx::StatementKind::kInstruction || ptx::base_opcode(s.opcode) != "call")
        continue;
      const std::size_t k = !s.operands.empty() && s.operands[0].starts_with('(') ? 1 : 0;
      const auto it = k < s.operands.size() ? copies_.find(s.operands[k]) : copies_.end();
      if (it == copies_.end()) continue;
      const std::string argument = clone_.name("~arg") + std::to_string(arguments_++);
      std::string text =
          ".param .align 8 .b8 " + argument + "[" + std::to_string(kBytes) + "];\n\t";
      static constexpr const char* kFields[] = {"%~x", "%~y", "%~z", "%~g0", "%~g1", "%~g2"};
      for (std::size_t d = 0; d < 6; ++d) {
        if (d >= 3 && of_entry)
          text += "ld.param.u32 \t" + clone_.name(kFields[d]) + ", [" + clone_.parameters + "+" +
                  std::to_string(kLaunchGridOffsets[d - 3]) + "];\n\t";
        text += "st.param.b32 \t[" + argument + "+" + std::to_string(4 * d) + "], " +
                clone_.name(kFields[d]) + ";\n\t";
      }
      edits.insert(s.range.begin, std::move(text));
      edits.replace(clone_.range_of(s.operands[k]), it->second);
      if (s.operands.size() == k + 1) {
        edits.insert(clone_.range_of(s.operands[k]).end, ", (" + argument + ")");
        continue;
      }
      const std::string_view list = s.operands[k + 1];
      if (!list.starts_with('(')) return {"call", "calls a function in an unusual way"};
      const bool empty = list.find_first_not_of(" \t\r\n", 1) == list.size() - 1;
      edits.insert(clone_.range_of(list).end - 1, (empty ? "" : ", ") + argument);
    }
    return {};
  }

  Finding copy(const ptx::Function& f, std::string& prototypes, std::string& bodies) {
    ptx::Edits edits;
    const std::string& name = copies_.at(f.name);
    edits.replace(f.name_range, name);
    // It is of this module alone.
    const std::size_t linkage = f.linkage.size();
    if (linkage != 0) edits.remove(clone_.range_of(f.linkage));
    if (!f.params.empty()) {
      edits.insert(f.params.back().range.end, ", " + parameter());
    } else if (f.has_param_list) {
      edits.insert(f.params_range.begin, parameter());
    } else {
      edits.insert(f.name_range.end, "(" + parameter() + ")");
    }
    std::string header = edits.apply(clone_.in.module.text(), {f.range.begin, f.body_range.begin});
    // A prototype has no directives behind its parameters.
    std::string prototype = header;
    if (!f.directives.empty()) {
      ptx::Edits without = edits;
      for (const ptx::HeaderDirective& d : f.directives) without.remove(d.range);
      prototype = without.apply(clone_.in.module.text(), {f.range.begin, f.body_range.begin});
    }
    prototypes += prototype + ";\n";

    Emitter start(clone_.in.module, clone_.in.prefix);
    start.line(".reg .b16 \t%~h;").line(".reg .b32 \t%~x, %~y, %~z, %~g<3>;");
    static constexpr const char* kFields[] = {"%~x", "%~y", "%~z", "%~g0", "%~g1", "%~g2"};
    for (std::size_t d = 0; d < 6; ++d)
      start.line(std::string("ld.param.b32 \t") + kFields[d] + ", [~index+" +
                 std::to_string(4 * d) + "];");
    edits.insert(f.body_range.begin + 1, "\n" + start.text());
    const std::string index = clone_.name("~index");
    const IndexNames names{clone_.in.prefix, index, kGridOffsets};
    for (const ptx::Statement& s : f.statements) {
      if (s.kind == ptx::StatementKind::kDirective && s.opcode == ".loc") {
        edits.remove(s.range);
        continue;
      }
      if (s.kind != ptx::StatementKind::kInstruction) continue;
      if (std::string why = replace_block_index(clone_.in.module, s, names, edits); !why.empty())
        return {"index-use", "calls " + std::string(f.name) + ", which " + why};
    }
    if (Finding why = lead(f, edits, /*of_entry=*/false)) return why;
    bodies += edits.apply(clone_.in.module.text(), f.range) + "\n\n";
    return {};
  }

  Clone& clone_;
  std::unordered_map<std::string_view, std::string> copies_;
  std::uint32_t arguments_ = 0;
};

}  // namespace

Finding replace_index_in_calls(Clone& clone) { return Calls(clone).run(); }

}  // namespace sluice::passes
