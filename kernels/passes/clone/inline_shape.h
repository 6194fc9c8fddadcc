// SPDX-License-Identifier: Apache-2.0
// What inline.cc must know of an entry and of all that it calls before it writes calls in place:
// which variables pass what to which call, how they are accessed, and whether all of it can be
// done.
//
// Owner: one inline_calls(), one thread; refers to the module and its facts.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/passes/analysis/facts.h"
#include "kernels/ptx/module.h"

namespace sluice::passes::inlining {

bool is_call(const ptx::Statement& s);

// "ld.param.b32 %r1, [name+4]" or "st.param...".
struct Access {
  bool is = false;  // of a parameter, in a way that is understood
  bool load = false;
  std::size_t address = 0, value = 0;  // operands
  std::string_view name, offset;       // offset: "+4", or empty
  std::string_view type;               // "b32"
  bool vector = false;
};

Access access_of(const ptx::Statement& s);
// What stands for such an access of variable `v`, which is register %NAME.
std::string move_of(const ptx::Function& f, const ptx::Statement& s, const Access& a,
                    const ptx::Variable& v, const std::string& name);

// One variable of .param space, of a body or of a signature.
struct Passed {
  const ptx::Variable* variable = nullptr;
  bool lowered = false;  // of a body: an argument or result of a call that is written in place
  // Can be a register: of 4 or 8 bytes, and every access moves all of it, or loads the low bytes of
  // an integer.
  bool whole = false;
  bool strange = false;  // its address is taken, or so
  bool stored = false, loaded = false;
};

struct Site {
  std::vector<const ptx::Function*> callees;  // one, or all that a pointer may lead to
  std::string_view pointer;                   // register; empty: a direct call
  std::vector<Passed*> arguments;
  Passed* result = nullptr;  // null: none, or thrown away
  bool throws_away = false;
};

// What is known of one function, found once.
struct Shape {
  bool possible = true;
  std::unordered_map<const ptx::Variable*, Passed> passed;
  std::unordered_map<std::uint32_t, Site> sites;           // by statement
  static constexpr std::uint32_t kSignature = 0xffffffff;  // no scope of a body
  // By name and scope: a body declares the same few names for each of its calls.
  std::unordered_map<std::string_view, std::unordered_map<std::uint32_t, const ptx::Variable*>>
      names;
  std::vector<const ptx::Variable*> shared;
};

class Shapes {
 public:
  Shapes(const ModuleFacts& facts, const ptx::Function& entry) : facts_(facts), entry_(entry) {}

  // Looks at the entry and at all that it calls; false: something cannot be written in place.
  bool look() {
    if (!possible(entry_)) return false;
    settle();
    return true;
  }
  std::size_t looked() const { return looked_; }  // bytes of text, or as much work
  const Shape& of(const ptx::Function& f) const { return shapes_.at(&f); }
  // What a name means in a statement: the innermost declaration.
  static const ptx::Variable* find(const Shape& shape, const ptx::Function& f,
                                   std::string_view name, std::uint32_t scope);

 private:
  bool possible(const ptx::Function& f);
  bool look(const ptx::Function& f, Shape& shape);
  bool call(const ptx::Function& f, std::uint32_t index, Shape& shape);
  // One of a function in another module: it stays a call, with its own variables.
  void leave_call(const ptx::Function& f, const ptx::Statement& s, Shape& shape);
  // The result and the arguments of a call whose callee is operand `callee`.
  bool find_passed(const ptx::Function& f, const ptx::Statement& s, std::size_t callee,
                   Shape& shape, Site& site);
  // The functions that a call whose arguments are known may lead to.
  bool find_callees(const ptx::Function& f, const ptx::Statement& s, std::string_view callee,
                    Site& site);
  void settle();

  static constexpr std::size_t kMaxDepth = 60;

  const ModuleFacts& facts_;
  const ptx::Function& entry_;
  std::unordered_map<const ptx::Function*, Shape> shapes_;
  std::vector<const ptx::Function*> on_the_way_;
  std::size_t calls_ = 0, looked_ = 0;
};

}  // namespace sluice::passes::inlining
