// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/clone/emitter.h"

#include "mediator/base/check.h"

namespace sluice::passes {

Emitter::Emitter(const ptx::Module& module, std::string_view prefix)
    : prefix_(prefix),
      memory_model_(module.version() >= ptx::Module::Version{6, 0} && module.sm() >= 70) {}

Emitter& Emitter::line(std::string_view text) { return line(text, "\t"); }

Emitter& Emitter::line(std::string_view text, std::string_view indent) {
  out_.append(indent).append(expand(text)) += '\n';
  return *this;
}

std::string Emitter::name(std::string_view with_tilde) const { return expand(with_tilde); }

std::string Emitter::expand(std::string_view text) const {
  struct Word {
    std::string_view word, model, old;
  };
  static constexpr Word kWords[] = {{"{LD_GPU}", "ld.relaxed.gpu", "ld.volatile"},
                                    {"{LD_SYS}", "ld.relaxed.sys", "ld.volatile"},
                                    {"{ST_GPU}", "st.relaxed.gpu", "st.volatile"},
                                    {"{ST_SYS}", "st.relaxed.sys", "st.volatile"},
                                    {"{FENCE_GPU}", "fence.acq_rel.gpu", "membar.gl"},
                                    {"{FENCE_SYS}", "fence.acq_rel.sys", "membar.sys"}};
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '~') {
      out.append(prefix_);
      continue;
    }
    if (text[i] == '{' && i + 1 < text.size() && text[i + 1] >= 'A' && text[i + 1] <= 'Z') {
      const std::size_t close = text.find('}', i);
      bool found = false;
      for (const Word& w : kWords) {
        if (text.substr(i, close - i + 1) != w.word) continue;
        out.append(memory_model_ ? w.model : w.old);
        found = true;
      }
      SLUICE_CHECK(found);
      i = close;
      continue;
    }
    out += text[i];
  }
  return out;
}

}  // namespace sluice::passes
