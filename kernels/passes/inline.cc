#include "kernels/passes/inline.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/passes/clone.h"
#include "kernels/ptx/edit.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

namespace {

using ptx::Function;
using ptx::Space;
using ptx::Statement;
using ptx::StatementKind;
using ptx::Variable;

bool is_call(const Statement& s) {
  return s.kind == StatementKind::kInstruction && ptx::base_opcode(s.opcode) == "call";
}

// "(a, b)" -> {"a", "b"}.
std::vector<std::string_view> names_of(std::string_view list) {
  std::vector<std::string_view> names;
  std::size_t at = 0;
  for (std::string_view n = ptx::next_identifier(list, at); !n.empty();
       n = ptx::next_identifier(list, at))
    names.push_back(n);
  return names;
}

// "ld.param.b32 %r1, [name+4]" or "st.param...".
struct Access {
  bool is = false;  // of a parameter, in a way that is understood
  bool load = false;
  std::size_t address = 0, value = 0;  // operands
  std::string_view name, offset;       // offset: "+4", or empty
  std::string_view type;               // "b32"
  bool vector = false;
};

Access access_of(const Statement& s) {
  Access a;
  const std::string_view base = ptx::base_opcode(s.opcode);
  if ((base != "ld" && base != "st") || s.operands.size() != 2) return a;
  std::string_view rest = s.opcode.substr(base.size());
  if (rest.starts_with(".param::func")) {
    rest.remove_prefix(12);
  } else if (rest.starts_with(".param") && !rest.starts_with(".param:")) {
    rest.remove_prefix(6);
  } else {
    return a;
  }
  for (std::string_view width : {".v2", ".v4"})
    if (rest.starts_with(width)) {
      a.vector = true;
      rest.remove_prefix(width.size());
    }
  if (rest.size() < 2 || rest.rfind('.') != 0 || ptx::type_bytes(rest.substr(1)) == 0) return a;
  a.type = rest.substr(1);
  a.load = base == "ld";
  a.address = a.load ? 1 : 0;
  a.value = 1 - a.address;
  std::string_view text = s.operands[a.address];
  if (text.size() < 3 || text.front() != '[' || text.back() != ']') return a;
  text = text.substr(1, text.size() - 2);
  std::size_t at = 0;
  a.name = ptx::next_identifier(text, at);
  if (a.name.empty() || !text.starts_with(a.name)) return a;
  a.offset = text.substr(a.name.size());
  if (a.offset.find_first_not_of("+ 0123456789xXabcdefABCDEF") != a.offset.npos) return a;
  a.is = true;
  return a;
}

bool is_zero(std::string_view offset) {
  return offset.find_first_not_of("+ 0") == offset.npos;
}

// One variable of .param space, of a body or of a signature.
struct Passed {
  const Variable* variable = nullptr;
  bool lowered = false;  // of a body: an argument or result of a call that is written in place
  bool whole = true;     // every access moves all of it
  bool strange = false;  // its address is taken, or so
  bool stored = false, loaded = false;
};

struct Site {
  std::vector<const Function*> callees;  // one, or all that a pointer may lead to
  std::string_view pointer;              // register; empty: a direct call
  std::vector<Passed*> arguments;
  Passed* result = nullptr;  // null: none, or thrown away
  bool throws_away = false;
};

// What is known of one function, found once.
struct Shape {
  bool possible = true;
  std::unordered_map<const Variable*, Passed> passed;
  std::unordered_map<std::uint32_t, Site> sites;  // by statement
  std::unordered_map<std::string_view, std::vector<const Variable*>> names;
  std::vector<const Variable*> shared;
};

class Inliner {
 public:
  Inliner(const ptx::Module& module, const ModuleFacts& facts, const Function& entry,
          std::string_view prefix)
      : module_(module), facts_(facts), entry_(entry), prefix_(prefix) {}

  std::optional<std::string> run() {
    if (!possible(entry_)) return std::nullopt;
    if (shapes_.at(&entry_).sites.empty()) return std::nullopt;
    settle();
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
  // What a name means in a statement: the innermost declaration.
  static const Variable* find(const Shape& shape, const Function& f, std::string_view name,
                              std::uint32_t scope) {
    const auto it = shape.names.find(name);
    if (it == shape.names.end()) return nullptr;
    const Variable* outside = nullptr;  // of the signature
    for (;;) {
      for (const Variable* v : it->second) {
        const bool of_body = v >= f.variables.data() && v < f.variables.data() + f.variables.size();
        if (!of_body) {
          outside = v;
        } else if (v->scope == scope) {
          return v;
        }
      }
      if (scope == 0) return outside;
      scope = f.scopes[scope].parent;
    }
  }

  // Looks at a function and all that it calls; false: something cannot be written in place.
  bool possible(const Function& f) {
    const auto known = shapes_.find(&f);
    if (known != shapes_.end()) return known->second.possible;
    // Calls nest as deep as functions do, and each is looked at once.
    if (std::find(on_the_way_.begin(), on_the_way_.end(), &f) != on_the_way_.end()) return false;
    if (on_the_way_.size() > kMaxDepth) return false;
    on_the_way_.push_back(&f);
    Shape shape;
    shape.possible = look(f, shape);
    on_the_way_.pop_back();
    return shapes_.emplace(&f, std::move(shape)).first->second.possible;
  }

  bool look(const Function& f, Shape& shape) {
    const bool called = &f != &entry_;
    if (called && f.is_entry) return false;
    for (const Variable& v : f.variables) {
      shape.names[v.name].push_back(&v);
      if (v.space == Space::kParam) shape.passed[&v].variable = &v;
      if (!called || v.space == Space::kReg || v.space == Space::kLocal || v.space == Space::kParam)
        continue;
      if (v.space != Space::kShared || v.bytes == 0 || !v.linkage.empty()) return false;
      shape.shared.push_back(&v);
    }
    if (called) {
      for (const auto* list : {&f.params, &f.returns})
        for (const Variable& v : *list) {
          if (v.space != Space::kParam || v.bytes == 0) return false;
          shape.names[v.name].push_back(&v);
          shape.passed[&v].variable = &v;
        }
      if (f.returns.size() > 1) return false;
    }
    for (std::uint32_t i = 0; i < f.statements.size(); ++i) {
      const Statement& s = f.statements[i];
      if (s.kind != StatementKind::kInstruction) continue;
      if (is_call(s)) {
        if (!call(f, i, shape)) return false;
        continue;
      }
      look_at_accesses(f, s, shape);
    }
    for (auto& [variable, passed] : shape.passed) {
      const bool of_signature = !(variable >= f.variables.data() &&
                                  variable < f.variables.data() + f.variables.size());
      if ((of_signature || passed.lowered) && passed.strange) return false;
      if (!of_signature) continue;
      // What is passed by value is not written to, and a result is not read.
      const bool result = !f.returns.empty() && variable == &f.returns[0];
      if (result ? passed.loaded : passed.stored) return false;
    }
    return true;
  }

  void look_at_accesses(const Function& f, const Statement& s, Shape& shape) {
    const Access access = access_of(s);
    for (std::size_t k = 0; k < s.operands.size(); ++k) {
      if (s.operands[k].empty()) continue;
      std::size_t at = 0;
      for (std::string_view name = ptx::next_identifier(s.operands[k], at); !name.empty();
           name = ptx::next_identifier(s.operands[k], at)) {
        const Variable* v = find(shape, f, name, s.scope);
        const auto it = v ? shape.passed.find(v) : shape.passed.end();
        if (it == shape.passed.end()) continue;
        Passed& passed = it->second;
        if (!access.is || k != access.address) {
          passed.strange = true;
          continue;
        }
        (access.load ? passed.loaded : passed.stored) = true;
        passed.whole &= moves_whole(f, s, access, *v);
      }
    }
  }

  static bool moves_whole(const Function& f, const Statement& s, const Access& a, const Variable& v) {
    const std::uint32_t bytes = ptx::type_bytes(a.type);
    if (v.is_array || v.vector_width != 1 || a.vector || (bytes != 4 && bytes != 8) ||
        bytes != v.bytes || !is_zero(a.offset))
      return false;
    const std::string_view value = s.operands[a.value];
    if (value.starts_with('%')) return ptx::register_bits(f, value, s) == bytes * 8;
    if (a.load) return false;
    const bool real = value.starts_with("0f") || value.starts_with("0F") ||
                      value.starts_with("0d") || value.starts_with("0D");
    if (real) return a.type.front() == 'f';
    return a.type.front() != 'f' &&
           value.find_first_not_of("-0123456789xXabcdefABCDEFU") == value.npos &&
           (value.front() == '-' || (value.front() >= '0' && value.front() <= '9'));
  }

  // Whether arguments and result of the call are the function's.
  static bool fits(const Function& f, const Site& site) {
    if (f.params.size() != site.arguments.size()) return false;
    for (std::size_t k = 0; k < f.params.size(); ++k)
      if (f.params[k].bytes != site.arguments[k]->variable->bytes) return false;
    const bool result = site.result || site.throws_away;
    if (f.returns.size() != (result ? 1u : 0u)) return false;
    return !site.result || f.returns[0].bytes == site.result->variable->bytes;
  }

  bool call(const Function& f, std::uint32_t index, Shape& shape) {
    const Statement& s = f.statements[index];
    std::size_t k = !s.operands.empty() && s.operands[0].starts_with('(') ? 1 : 0;
    if (k >= s.operands.size()) return false;
    const std::string_view callee = s.operands[k];
    const bool pointer = callee.starts_with('%');
    if (!pointer) {
      const Function* target = facts_.definition(callee);
      if (!target) return false;
      if (!target->has_body) {  // another module's: stays a call, with its own variables
        for (std::string_view operand : s.operands)
          for (std::string_view name : names_of(operand)) {
            const Variable* v = find(shape, f, name, s.scope);
            const auto it = v ? shape.passed.find(v) : shape.passed.end();
            if (it != shape.passed.end()) it->second.strange = true;
          }
        return true;
      }
    } else if (facts_.links()) {
      return false;  // may lead to functions that are not here
    }
    Site site;
    std::unordered_set<const Variable*> seen;
    const auto pass = [&](std::string_view name) -> Passed* {
      const Variable* v = find(shape, f, name, s.scope);
      const auto it = v ? shape.passed.find(v) : shape.passed.end();
      const bool of_body =
          v && v >= f.variables.data() && v < f.variables.data() + f.variables.size();
      if (it == shape.passed.end() || !of_body || !seen.insert(v).second) return nullptr;
      it->second.lowered = true;
      return &it->second;
    };
    if (k == 1) {
      const auto names = names_of(s.operands[0]);
      if (names.size() != 1) return false;
      site.throws_away = names[0] == "_";
      if (!site.throws_away && !(site.result = pass(names[0]))) return false;
    }
    if (k + 1 < s.operands.size() && s.operands[k + 1].starts_with('(')) {
      const std::string_view list = s.operands[k + 1];
      for (std::string_view name : names_of(list)) {
        Passed* p = pass(name);
        if (!p) return false;
        site.arguments.push_back(p);
      }
      // Numbers in the list are no names.
      const auto commas = static_cast<std::size_t>(std::count(list.begin(), list.end(), ','));
      if (!site.arguments.empty() ? commas + 1 != site.arguments.size()
                                  : list.find_first_not_of("( \t\r\n)") != list.npos)
        return false;
    }
    if (pointer) {
      site.pointer = callee;
      if (ptx::register_bits(f, callee, s) != 64) return false;
      for (const Function* target : facts_.address_taken())
        if (fits(*target, site) && facts_.declared_before(*target, entry_))
          site.callees.push_back(target);
        else if (fits(*target, site))
          return false;
      if (site.callees.empty()) return false;
    } else {
      const Function* target = facts_.definition(callee);
      if (!fits(*target, site)) return false;
      site.callees.push_back(target);
    }
    for (const Function* target : site.callees)
      if (!possible(*target)) return false;
    shape.sites.emplace(index, std::move(site));
    return true;
  }

  // A variable is a register only where whoever gets it takes it whole as well, and whoever else calls
  // the same function passes it so.
  void settle() {
    for (bool changed = true; changed;) {
      changed = false;
      const auto join = [&](Passed& a, Passed& b) {
        if (a.whole == b.whole) return;
        a.whole = b.whole = false;
        changed = true;
      };
      for (auto& [f, shape] : shapes_)
        for (auto& [index, site] : shape.sites)
          for (const Function* callee : site.callees) {
            auto& passed = shapes_.at(callee).passed;
            for (std::size_t k = 0; k < site.arguments.size(); ++k)
              join(*site.arguments[k], passed.at(&callee->params[k]));
            if (site.result) join(*site.result, passed.at(&callee->returns[0]));
          }
    }
  }

  std::string fresh(const char* what) {
    return std::string(prefix_) + what + std::to_string(names_++);
  }

  // The name that stands for a passed variable, and where it is declared, its declaration.
  static std::string declaration(const Passed& p, const std::string& name) {
    const Variable& v = *p.variable;
    if (p.whole) return ".reg .b" + std::to_string(v.bytes * 8) + " \t%" + name + ";";
    return ".local .align " + std::to_string(std::max<std::uint32_t>(v.align, 1)) + " .b8 \t" + name +
           "[" + std::to_string(v.bytes) + "];";
  }

  using Names = std::unordered_map<const Variable*, std::string>;

  // The function's body without its braces. `given`: what stands for its own parameters; `end`: where its
  // returns lead; empty: they stay.
  std::string expand(const Function& f, const Names& given, const std::string& end) {
    if (failed_ || ++calls_ > kMostInlinedCalls) return fail();
    const Shape& shape = shapes_.at(&f);
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
      if (it != declared.end() && names.count(&v) == 0) return fail();  // only some of a statement's
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
    shared_declarations_.push_back(".shared .align " + std::to_string(std::max<std::uint32_t>(v.align, 1)) +
                                   " .b8 \t" + name + "[" + std::to_string(v.bytes) + "];");
    return name;
  }

  // With the names that stand for others; empty: as it is.
  std::string statement_text(const Function& f, const Shape& shape, const Statement& s,
                             const Names& names) {
    const Access access = access_of(s);
    if (access.is) {
      const Variable* v = find(shape, f, access.name, s.scope);
      const auto it = v ? shape.passed.find(v) : shape.passed.end();
      if (it != shape.passed.end() && names.count(v) != 0) {
        const std::string& name = names.at(v);
        const std::string value(s.operands[access.value]);
        if (it->second.whole)
          return Clone::guard_of(s) + "mov." + std::string(access.type) + " \t" +
                 (access.load ? value + ", %" + name : "%" + name + ", " + value) + ";";
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
      const Variable* v = find(shape, f, name, s.scope);
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
      text += std::string(s.guard_negated ? "@" : "@!") + std::string(s.guard) + " bra \t" + after + ";\n\t";
    if (site.pointer.empty()) {
      text += body_of(*site.callees[0], site, names, after);
    } else {
      const std::string address = "%" + fresh("a"), other = "%" + fresh("q");
      text += "{\n\t.reg .b64 \t" + address + ";\n\t.reg .pred \t" + other + ";\n\t";
      for (const Function* callee : site.callees) {
        const std::string next = fresh("next");
        text += "mov.u64 \t" + address + ", " + std::string(callee->name) + ";\n\tsetp.ne.u64 \t" + other +
                ", " + address + ", " + std::string(site.pointer) + ";\n\t@" + other + " bra \t" + next +
                ";\n\t" + body_of(*callee, site, names, after) + "\n\tbra \t" + after + ";\n" + next +
                ":\n\t";
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
      before = "\n\t" + declaration(shapes_.at(&callee).passed.at(&callee.returns[0]), name);
    }
    return "{" + before + expand(callee, given, after) + "\n\t}";
  }

  static constexpr std::size_t kMaxDepth = 60;

  const ptx::Module& module_;
  const ModuleFacts& facts_;
  const Function& entry_;
  const std::string_view prefix_;
  std::unordered_map<const Function*, Shape> shapes_;
  std::vector<const Function*> on_the_way_;
  std::unordered_map<const Variable*, std::string> shared_names_;
  std::vector<std::string> shared_declarations_;
  std::size_t names_ = 0, calls_ = 0, bytes_ = 0;
  bool failed_ = false;
};

}  // namespace

bool has_calls(const ptx::Function& entry) {
  return std::any_of(entry.statements.begin(), entry.statements.end(), is_call);
}

std::optional<std::string> inline_calls(const ptx::Module& module, const ModuleFacts& facts,
                                        const ptx::Function& entry, std::string_view prefix) {
  return Inliner(module, facts, entry, prefix).run();
}

}  // namespace sluice::passes
