#include "mediator/softgpu/link.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "abi/cuda_driver.h"
#include "kernels/ptx/module.h"

namespace sluice::softgpu {
namespace {

bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}

// `text` with whole names replaced, but not in strings.
std::string renamed(std::string_view text, const std::map<std::string, std::string, std::less<>>& names) {
  if (names.empty()) return std::string(text);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      size_t end = i + 1;
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      out += text.substr(i, end - i);
      i = end;
    } else if (in_name(text[i])) {
      size_t end = i;
      while (end < text.size() && in_name(text[end])) ++end;
      const auto found = names.find(text.substr(i, end - i));
      if (found != names.end()) {
        out += found->second;
      } else {
        out += text.substr(i, end - i);
      }
      i = end;
    } else {
      out += text[i++];
    }
  }
  return out;
}

struct Symbol {
  bool defined = false, weak = false;
};

Error refuse(std::string why) { return Error{CUDA_ERROR_INVALID_PTX, std::move(why)}; }

}  // namespace

Result<std::string> join_ptx(const std::vector<std::string>& texts) {
  using Kind = ptx::Item::Kind;
  std::vector<ptx::Module> modules;
  ptx::Module::Version version;
  std::string target;
  uint32_t newest = 0;
  for (const std::string& text : texts) {
    auto module = ptx::Module::parse(text);
    if (!module) return refuse(module.error().message);
    version = std::max(version, module->version());
    if (module->sm() >= newest) {
      newest = module->sm();
      target = std::string(module->target());
    }
    modules.push_back(*std::move(module));
  }
  if (modules.empty() || target.empty()) return refuse("nothing to link");

  // Who defines what: names that other modules see, and names of one module alone.
  std::map<std::string, Symbol, std::less<>> symbols;
  std::vector<std::map<std::string, std::string, std::less<>>> locals(modules.size());
  std::set<std::string, std::less<>> taken;
  for (const ptx::Module& m : modules) {
    for (const ptx::Variable& v : m.variables())
      if (!v.linkage.empty()) taken.emplace(v.name);
    for (const ptx::Function& f : m.functions())
      if (!f.linkage.empty() || f.is_entry) taken.emplace(f.name);
  }
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto keep_apart = [&](std::string_view name) {
      if (locals[i].count(name) != 0 || taken.emplace(name).second) return;
      std::string other;
      for (int n = 1; !taken.emplace(other = std::string(name) + "__" + std::to_string(n)).second; ++n) {
      }
      locals[i].emplace(name, other);
    };
    std::set<std::string_view> seen;  // a declaration and its definition are one name
    for (const ptx::Variable& v : modules[i].variables())
      if (v.linkage.empty() && seen.insert(v.name).second) keep_apart(v.name);
    for (const ptx::Function& f : modules[i].functions())
      if (f.linkage.empty() && !f.is_entry && seen.insert(f.name).second) keep_apart(f.name);
  }
  for (const ptx::Module& m : modules) {
    const auto define = [&](std::string_view name, std::string_view linkage) -> bool {
      if (linkage == ".extern" || linkage.empty()) return true;
      Symbol& s = symbols[std::string(name)];
      const bool weak = linkage == ".weak" || linkage == ".common";
      const bool twice = s.defined && !s.weak && !weak;
      s.weak = s.defined ? s.weak && weak : weak;
      s.defined = true;
      return !twice;
    };
    for (const ptx::Variable& v : m.variables())
      if (!define(v.name, v.linkage)) return refuse("multiple definition of " + std::string(v.name));
    for (const ptx::Function& f : m.functions()) {
      if (f.has_body && !define(f.name, f.is_entry && f.linkage.empty() ? ".visible" : f.linkage))
        return refuse("multiple definition of " + std::string(f.name));
    }
  }

  std::string declarations, variables, functions;
  std::set<std::string, std::less<>> declared, emitted;
  for (size_t i = 0; i < modules.size(); ++i) {
    const ptx::Module& m = modules[i];
    // Whether this definition is the one that counts: the strong one, or else the first.
    const auto counts = [&](std::string_view name, std::string_view linkage) {
      if (linkage.empty()) return true;
      const auto s = symbols.find(name);
      const bool weak = linkage == ".weak" || linkage == ".common";
      if (weak && s != symbols.end() && !s->second.weak) return false;
      return emitted.emplace(name).second;
    };
    for (const ptx::Item& item : m.items()) {
      const auto put = [&](std::string& to) { to += renamed(m.text_of(item.range), locals[i]) + "\n"; };
      if (item.kind == Kind::kVariable) {
        const ptx::Variable& v = m.variables()[item.index];
        if (v.linkage == ".extern") {
          if (symbols.count(v.name) == 0 && declared.emplace(v.name).second) put(variables);
        } else if (counts(v.name, v.linkage)) {
          put(variables);
        }
      } else if (item.kind == Kind::kFunction) {
        const ptx::Function& f = m.functions()[item.index];
        if (!f.has_body) {
          if (f.linkage.empty() || declared.emplace(f.name).second) put(declarations);
        } else if (f.is_entry || counts(f.name, f.linkage)) {
          put(functions);
        }
      } else {
        const std::string_view name = m.directives()[item.index].name;
        // The header is made anew; what tells of source files means each module's own.
        if (name != ".version" && name != ".target" && name != ".address_size" && name != ".file" &&
            name != ".section")
          put(declarations);
      }
    }
  }
  return ".version " + std::to_string(version.major) + "." + std::to_string(version.minor) +
         "\n.target " + target + "\n.address_size 64\n" + declarations + variables + functions;
}

}  // namespace sluice::softgpu
