// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/images/link.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "abi/cuda_driver.h"
#include "kernels/ptx/known_functions.h"
#include "kernels/ptx/module.h"

namespace sluice::ptx {
namespace {

bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}

using Names = std::map<std::string, std::string, std::less<>>;

// Puts other names for those of one module, in everything but strings, comments and words that are
// no names: those behind a dot, and the first of a statement (an instruction, which may be called
// like a function) unless it is a label.
class Renamer {
 public:
  Renamer(std::string_view text, const Names& names) : text_(text), names_(names) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (text_[at_] == '"') {
        copy_to(end_of_string());
      } else if (text_.substr(at_, 2) == "//") {
        copy_to(std::min(text_.find('\n', at_), text_.size()));
      } else if (text_.substr(at_, 2) == "/*") {
        const size_t end = text_.find("*/", at_ + 2);
        copy_to(end == text_.npos ? text_.size() : end + 2);
      } else if (in_name(text_[at_])) {
        word();
      } else {
        mark(text_[at_]);
        copy_to(at_ + 1);
      }
    }
    return std::move(out_);
  }

 private:
  void copy_to(size_t end) {
    out_ += text_.substr(at_, end - at_);
    at_ = end;
  }
  size_t end_of_string() const {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    return std::min(end + 1, text_.size());
  }
  char before() const { return at_ == 0 ? '\0' : text_[at_ - 1]; }

  // What a character that is in no name says about where statements begin.
  void mark(char c) {
    if (c == ';') {
      start_ = true;
      value_ = false;
    } else if (c == '=') {
      value_ = true;
    } else if (c == ':') {
      start_ = before() != ':' && text_.substr(at_, 2) != "::";
    } else if (c == '@') {
      guard_ = true;
    } else if (c == '{') {
      // A block's, or a list's (operands, initialisers).
      blocks_.push_back(start_ || (blocks_.empty() && !value_));
      start_ = blocks_.back();
    } else if (c == '}' && !blocks_.empty()) {
      start_ = blocks_.back();
      blocks_.pop_back();
    }
  }

  void word() {
    const size_t begin = at_;
    size_t end = at_;
    while (end < text_.size() && in_name(text_[end])) ++end;
    const std::string_view name = text_.substr(begin, end - begin);
    const bool behind_dot = before() == '.';
    const bool guard = std::exchange(guard_, false);
    size_t next = end;
    while (next < text_.size() && (text_[next] == ' ' || text_[next] == '\t')) ++next;
    const bool label = next < text_.size() && text_[next] == ':';
    const bool is_name = !behind_dot && (guard || !start_ || label);
    if (!guard) start_ = false;
    const auto found = is_name ? names_.find(name) : names_.end();
    if (found == names_.end()) return copy_to(end);
    out_ += found->second;
    at_ = end;
  }

  const std::string_view text_;
  const Names& names_;
  std::string out_;
  size_t at_ = 0;
  bool start_ = true;   // a statement begins here
  bool value_ = false;  // an initialiser has begun
  bool guard_ = false;  // the next word is a guard's predicate
  std::vector<bool> blocks_;
};

std::string renamed(std::string_view text, const Names& names) {
  return names.empty() ? std::string(text) : Renamer(text, names).run();
}

// What the parser takes for a name may be a number; renamed, all such numbers would be.
bool is_identifier(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), in_name) &&
         !(name[0] >= '0' && name[0] <= '9');
}

struct Symbol {
  bool defined = false, weak = false;
};

Error refuse(std::string why) { return Error{CUDA_ERROR_INVALID_PTX, std::move(why)}; }

bool is_weak(std::string_view linkage) { return linkage == ".weak" || linkage == ".common"; }

// Several modules on their way to one text. link() calls the steps in their order.
class Linker {
 public:
  Result<std::string> link(const std::vector<std::string>& texts) {
    if (auto done = parse(texts); !done) return done.error();
    if (auto done = check_names(); !done) return done.error();
    rename_locals();
    if (auto done = find_definitions(); !done) return done.error();
    for (size_t i = 0; i < modules_.size(); ++i) add_items(i);
    return ".version " + std::to_string(version_.major) + "." + std::to_string(version_.minor) +
           "\n.target " + target_ + "\n.address_size 64\n" + declarations_ + variables_ +
           functions_;
  }

  static bool is_of_the_driver(std::string_view name) {
    const KnownFunction* known = known_function(name);
    return known != nullptr && known->of_driver;
  }
  // The device runtime, with which kernels launch kernels, is the driver's as well: whoever loads
  // the result says whether it is there.
  static bool may_be_of_the_driver(std::string_view name) {
    return is_of_the_driver(name) || name.starts_with("__cudaCDP2") || name.starts_with("cuda");
  }

  // The first name that is `.extern`, defined nowhere and no function that `elsewhere` knows;
  // empty: there is none.
  Result<std::string> missing(const std::string& text, bool (*elsewhere)(std::string_view)) {
    if (auto done = parse({text}); !done) return done.error();
    if (auto done = check_names(); !done) return done.error();
    if (auto done = find_definitions(); !done) return done.error();
    for (const Variable& v : modules_[0].variables())
      if (v.linkage == ".extern" && v.space != Space::kShared && symbols_.count(v.name) == 0)
        return std::string(v.name);
    for (const Function& f : modules_[0].functions())
      if (f.linkage == ".extern" && symbols_.count(f.name) == 0 && !elsewhere(f.name))
        return std::string(f.name);
    return std::string();
  }

 private:
  // The header's version is the highest; its target that of the newest architecture.
  Result<void> parse(const std::vector<std::string>& texts) {
    uint32_t newest = 0;
    for (const std::string& text : texts) {
      auto module = Module::parse(text);
      if (!module)
        return Error{text.find(".version") == std::string::npos ? CUDA_ERROR_INVALID_IMAGE
                                                                : CUDA_ERROR_INVALID_PTX,
                     module.error().message};
      version_ = std::max(version_, module->version());
      if (module->sm() >= newest) {
        newest = module->sm();
        target_ = std::string(module->target());
      }
      modules_.push_back(*std::move(module));
    }
    if (modules_.empty() || target_.empty()) return refuse("nothing to link");
    return {};
  }

  Result<void> check_names() const {
    for (const Module& m : modules_) {
      for (const Variable& v : m.variables())
        if (!is_identifier(v.name)) return refuse("'" + std::string(v.name) + "' is no name");
      for (const Function& f : m.functions())
        if (!f.not_understood.empty()) return refuse(f.not_understood);
      for (const Function& f : m.functions())
        if (!is_identifier(f.name)) return refuse("'" + std::string(f.name) + "' is no name");
    }
    return {};
  }

  // A name that is local to a module gets a number where another module has it, too.
  void rename_locals() {
    std::set<std::string, std::less<>> taken;
    for (const Module& m : modules_) {
      for (const Variable& v : m.variables())
        if (!v.linkage.empty()) taken.emplace(v.name);
      for (const Function& f : m.functions())
        if (!f.linkage.empty() || f.is_entry) taken.emplace(f.name);
    }
    locals_.resize(modules_.size());
    for (size_t i = 0; i < modules_.size(); ++i) {
      std::set<std::string_view> seen;  // a declaration and its definition are one name
      const auto rename = [&](std::string_view name) {
        if (!seen.insert(name).second || taken.emplace(name).second) return;
        std::string other;
        int n = 1;
        do other = std::string(name) + "__" + std::to_string(n++);
        while (!taken.emplace(other).second);
        locals_[i].emplace(name, other);
      };
      for (const Variable& v : modules_[i].variables())
        if (v.linkage.empty()) rename(v.name);
      for (const Function& f : modules_[i].functions())
        if (f.linkage.empty() && !f.is_entry) rename(f.name);
    }
  }

  Result<void> find_definitions() {
    for (const Module& m : modules_) {
      for (const Variable& v : m.variables())
        if (!define(v.name, v.linkage))
          return refuse("multiple definition of " + std::string(v.name));
      for (const Function& f : m.functions())
        if (f.has_body && !define(f.name, linkage_of(f)))
          return refuse("multiple definition of " + std::string(f.name));
    }
    return {};
  }
  // A kernel is visible, whether it says so or not.
  static std::string_view linkage_of(const Function& f) {
    return f.is_entry && f.linkage.empty() ? std::string_view(".visible") : f.linkage;
  }
  // False: a second strong definition.
  bool define(std::string_view name, std::string_view linkage) {
    if (linkage == ".extern" || linkage.empty()) return true;
    Symbol& s = symbols_[std::string(name)];
    const bool weak = is_weak(linkage), twice = s.defined && !s.weak && !weak;
    s.weak = s.defined ? s.weak && weak : weak;
    s.defined = true;
    return !twice;
  }
  // Whether this definition is the one that counts: the strong one, or else the first.
  bool counts(std::string_view name, std::string_view linkage) {
    if (linkage.empty()) return true;
    const auto s = symbols_.find(name);
    if (is_weak(linkage) && s != symbols_.end() && !s->second.weak) return false;
    return emitted_.emplace(name).second;
  }

  void add_items(size_t i) {
    const Module& m = modules_[i];
    for (const Item& item : m.items()) {
      const auto text = [&] { return renamed(m.text_of(item.range), locals_[i]) + "\n"; };
      if (item.kind == Item::Kind::kVariable) {
        const Variable& v = m.variables()[item.index];
        const bool put = v.linkage == ".extern" ? symbols_.count(v.name) == 0 && declared(v.name)
                                                : counts(v.name, v.linkage);
        if (put) variables_ += text();
      } else if (item.kind == Item::Kind::kFunction) {
        const Function& f = m.functions()[item.index];
        if (!f.has_body) {
          if (f.linkage.empty() || declared(f.name)) declarations_ += as_defined(text(), f);
        } else if (counts(f.name, linkage_of(f))) {
          functions_ += text();
        }
      } else if (is_kept(m.directives()[item.index].name)) {
        declarations_ += text();
      }
    }
  }
  // The first declaration of this name.
  bool declared(std::string_view name) { return declared_.emplace(name).second; }
  // The header is made anew; what tells of source files means each module's own.
  static bool is_kept(std::string_view directive) {
    return directive != ".version" && directive != ".target" && directive != ".address_size" &&
           directive != ".file" && directive != ".section";
  }
  // ptxas refuses a function that is `.extern` and defined in one module: its declaration then says
  // what the definition says.
  std::string as_defined(std::string text, const Function& f) const {
    const auto defined = symbols_.find(f.name);
    if (f.linkage != ".extern" || defined == symbols_.end()) return text;
    constexpr std::string_view kExtern = ".extern";
    const size_t at = text.rfind(kExtern, text.find(".func"));
    if (at != text.npos)
      text.replace(at, kExtern.size(), defined->second.weak ? ".weak" : ".visible");
    return text;
  }

  std::vector<Module> modules_;
  Module::Version version_;
  std::string target_;
  std::map<std::string, Symbol, std::less<>> symbols_;  // that other modules see
  std::vector<Names> locals_;                           // of each module, renamed
  std::set<std::string, std::less<>> declared_, emitted_;
  std::string declarations_, variables_, functions_;
};

}  // namespace

Result<std::string> join_ptx(const std::vector<std::string>& texts) { return Linker().link(texts); }
Result<std::string> link_ptx(const std::vector<std::string>& texts) {
  auto joined = join_ptx(texts);
  if (!joined) return joined;
  const auto missing = Linker().missing(*joined, Linker::may_be_of_the_driver);
  if (!missing) return missing.error();
  if (!missing->empty())
    return Error{CUDA_ERROR_INVALID_SOURCE, *missing + " is .extern, and no part defines it"};
  return joined;
}
Result<bool> stands_alone(const std::string& text) {
  const auto missing = Linker().missing(text, Linker::is_of_the_driver);
  if (!missing) return missing.error();
  return missing->empty();
}

}  // namespace sluice::ptx
