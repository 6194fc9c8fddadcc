// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/clone/inline.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/passes/clone/clone.h"
#include "kernels/passes/clone/inline_shape.h"
#include "kernels/ptx/edit.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

namespace {

using inlining::Access;
using inlining::access_of;
using inlining::Passed;
using inlining::Shape;
using inlining::Shapes;
using inlining::Site;
using ptx::Function;
using ptx::Statement;
using ptx::StatementKind;
using ptx::Variable;

class Inliner {
 public:
  Inliner(const ptx::Module& module, const ModuleFacts& facts, const Function& entry,
          std::string_view prefix)
      : module_(module), entry_(entry), prefix_(prefix), shapes_(facts, entry) {}

  // What it took, in bytes of text, also where it came to nothing.
  std::size_t work() const { return shapes_.looked() + bytes_ + calls_ * kBytesAsACall; }

  std::optional<std::string> run() {
    if (!shapes_.look() || shapes_.of(entry_).sites.empty()) return std::nullopt;
    std::string body = expand(entry_, {}, {});
    if (failed_) return std::nullopt;
    const std::string& text = module_.text();
    std::string out = text.substr(entry_.range.begin, entry_.body_range.begin - entry_.range.begin);
    out += "{\n";
    for (const std::string& line : shared_declarations_) out += "\t" + line + "\n";
    out += body + "}";
    return out;
  }

 private:
  static constexpr std::size_t kBytesAsACall = 1024;

  std::string fresh(const char* what) {
    return std::string(prefix_) + what + std::to_string(names_++);
  }

  // The name that stands for a passed variable, and where it is declared, its declaration.
  static std::string declaration(const Passed& p, const std::string& name) {
    const Variable& v = *p.variable;
    if (p.whole) return ".reg .b" + std::to_string(v.bytes * 8) + " \t%" + name + ";";
    return ".local .align " + std::to_string(std::max<std::uint32_t>(v.align, 1)) + " .b8 \t" +
           name + "[" + std::to_string(v.bytes) + "];";
  }

  using Names = std::unordered_map<const Variable*, std::string>;

  // The function's body without its braces. `given`: what stands for its own parameters; `end`:
  // where its returns lead; empty: they stay.
  std::string expand(const Function& f, const Names& given, const std::string& end) {
    if (failed_ || ++calls_ > kMostInlinedCalls) return fail();
    const Shape& shape = shapes_.of(f);
    Names names = given;
    ptx::Edits edits;
    std::unordered_map<std::uint32_t, std::string> declared;  // by where the statement begins
    for (const Variable& v : f.variables) {
      const auto it = shape.passed.find(&v);
      if (it == shape.passed.end() || !it->second.lowered) continue;
      const std::string name = names[&v] = fresh("p");
      declared[v.range.begin] += declaration(it->second, name) + " ";
    }
    for (const Variable* v : shape.shared) names[v] = shared_name(*v);
    for (const Variable& v : f.variables) {
      const auto it = declared.find(v.range.begin);
      if (it != declared.end() && names.count(&v) == 0)
        return fail();  // only some of a statement's
    }
    std::unordered_set<std::uint32_t> replaced;
    for (const Variable& v : f.variables) {
      if (names.count(&v) == 0 || !replaced.insert(v.range.begin).second) continue;
      edits.replace(v.range, declared.count(v.range.begin) ? declared[v.range.begin] : "");
    }
    for (std::uint32_t i = 0; i < f.statements.size(); ++i) {
      const Statement& s = f.statements[i];
      if (s.kind == StatementKind::kDirective && s.opcode == ".loc") edits.remove(s.range);
      if (s.kind != StatementKind::kInstruction) continue;
      const auto site = shape.sites.find(i);
      if (site != shape.sites.end()) {
        edits.replace(s.range, call_text(s, site->second, names));
      } else if (!end.empty() && ptx::base_opcode(s.opcode) == "ret") {
        edits.replace(s.range, Clone::guard_of(s) + "bra \t" + end + ";");
      } else if (std::string text = statement_text(f, shape, s, names); !text.empty()) {
        edits.replace(s.range, std::move(text));
      }
      if (failed_) return {};
    }
    const ptx::Range inside{f.body_range.begin + 1, f.body_range.end - 1};
    std::string text = edits.apply(module_.text(), inside);
    bytes_ += inside.size();
    return bytes_ > kMostInlinedBytes ? fail() : text;
  }

  std::string fail() {
    failed_ = true;
    return {};
  }

  // Shared memory of a function exists once, however often it is called.
  std::string shared_name(const Variable& v) {
    std::string& name = shared_names_[&v];
    if (!name.empty()) return name;
    name = fresh("s");
    shared_declarations_.push_back(".shared .align " +
                                   std::to_string(std::max<std::uint32_t>(v.align, 1)) + " .b8 \t" +
                                   name + "[" + std::to_string(v.bytes) + "];");
    return name;
  }

  // With the names that stand for others; empty: as it is.
  std::string statement_text(const Function& f, const Shape& shape, const Statement& s,
                             const Names& names) {
    const Access access = access_of(s);
    if (access.is) {
      const Variable* v = Shapes::find(shape, f, access.name, s.scope);
      const auto it = v ? shape.passed.find(v) : shape.passed.end();
      if (it != shape.passed.end() && names.count(v) != 0) {
        const std::string& name = names.at(v);
        const std::string value(s.operands[access.value]);
        if (it->second.whole) return Clone::guard_of(s) + move_of(f, s, access, *v, name);
        const std::string place = "[" + name + std::string(access.offset) + "]";
        return Clone::guard_of(s) + (access.load ? "ld.local" : "st.local") +
               (access.vector ? std::string(s.opcode.substr(s.opcode.find(".v"), 3)) : "") + "." +
               std::string(access.type) + " \t" +
               (access.load ? renamed(f, shape, s, value, names) + ", " + place
                            : place + ", " + renamed(f, shape, s, value, names)) +
               ";";
      }
    }
    bool any = false;
    std::string text = Clone::guard_of(s) + std::string(s.opcode) + " \t";
    for (std::size_t k = 0; k < s.operands.size(); ++k) {
      const std::string operand = renamed(f, shape, s, s.operands[k], names);
      any |= operand != s.operands[k];
      text += (k == 0 ? "" : ", ") + operand;
    }
    return any ? text + ";" : std::string();
  }

  static std::string renamed(const Function& f, const Shape& shape, const Statement& s,
                             std::string_view operand, const Names& names) {
    std::string out;
    std::size_t at = 0, copied = 0;
    for (std::string_view name = ptx::next_identifier(operand, at); !name.empty();
         name = ptx::next_identifier(operand, at)) {
      const Variable* v = Shapes::find(shape, f, name, s.scope);
      const auto it = v ? names.find(v) : names.end();
      if (it == names.end()) continue;
      const auto begin = static_cast<std::size_t>(name.data() - operand.data());
      out += std::string(operand.substr(copied, begin - copied)) + it->second;
      copied = begin + name.size();
    }
    return out + std::string(operand.substr(copied));
  }

  std::string call_text(const Statement& s, const Site& site, const Names& names) {
    const std::string after = fresh("after");
    std::string text;
    if (!s.guard.empty())
      text += std::string(s.guard_negated ? "@" : "@!") + std::string(s.guard) + " bra \t" + after +
              ";\n\t";
    if (site.pointer.empty()) {
      text += body_of(*site.callees[0], site, names, after);
    } else {
      const std::string address = "%" + fresh("a"), other = "%" + fresh("q");
      text += "{\n\t.reg .b64 \t" + address + ";\n\t.reg .pred \t" + other + ";\n\t";
      for (const Function* callee : site.callees) {
        const std::string next = fresh("next");
        text += "mov.u64 \t" + address + ", " + std::string(callee->name) + ";\n\tsetp.ne.u64 \t" +
                other + ", " + address + ", " + std::string(site.pointer) + ";\n\t@" + other +
                " bra \t" + next + ";\n\t" + body_of(*callee, site, names, after) + "\n\tbra \t" +
                after + ";\n" + next + ":\n\t";
      }
      text += "trap;\n\t}";
    }
    return text + "\n" + after + ":";
  }

  std::string body_of(const Function& callee, const Site& site, const Names& names,
                      const std::string& after) {
    Names given;
    std::string before;
    for (std::size_t k = 0; k < site.arguments.size(); ++k)
      given[&callee.params[k]] = names.at(site.arguments[k]->variable);
    if (site.result) {
      given[&callee.returns[0]] = names.at(site.result->variable);
    } else if (site.throws_away) {
      const std::string name = given[&callee.returns[0]] = fresh("p");
      before = "\n\t" + declaration(shapes_.of(callee).passed.at(&callee.returns[0]), name);
    }
    return "{" + before + expand(callee, given, after) + "\n\t}";
  }

  const ptx::Module& module_;
  const Function& entry_;
  const std::string_view prefix_;
  Shapes shapes_;
  std::unordered_map<const Variable*, std::string> shared_names_;
  std::vector<std::string> shared_declarations_;
  std::size_t names_ = 0, calls_ = 0, bytes_ = 0;
  bool failed_ = false;
};

}  // namespace

bool has_calls(const ptx::Function& entry) {
  return std::any_of(entry.statements.begin(), entry.statements.end(), inlining::is_call);
}

std::optional<std::string> inline_calls(const ptx::Module& module, const ModuleFacts& facts,
                                        const ptx::Function& entry, std::string_view prefix,
                                        std::size_t& work) {
  Inliner inliner(module, facts, entry, prefix);
  std::optional<std::string> text = inliner.run();
  work += inliner.work();
  return text;
}

}  // namespace sluice::passes
