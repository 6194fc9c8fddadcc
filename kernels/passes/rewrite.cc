// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/rewrite.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "abi/preempt.h"
#include "kernels/passes/analysis/sync/barrier_numbers.h"
#include "kernels/passes/clone/clone.h"
#include "kernels/passes/clone/inline.h"
#include "kernels/passes/plan.h"
#include "kernels/ptx/address_uses.h"
#include "kernels/ptx/edit.h"
#include "mediator/base/find_text.h"

namespace sluice::passes {

namespace {

// "sluiceN_" with the lowest N above every number that follows "sluice" in the text: one walk, and
// no identifier of any scope, comment or string contains it (rule fresh-names).
std::string fresh_prefix(std::string_view text) {
  constexpr std::string_view kWord = "sluice";
  std::uint64_t highest = 0;
  for (std::size_t at = find_text(text, kWord); at != text.npos;
       at = find_text(text, kWord, at + 1)) {
    std::uint64_t number = 0;
    std::size_t digits = 0;
    for (std::size_t i = at + kWord.size(); i < text.size() && digits <= 9; ++i, ++digits) {
      if (text[i] < '0' || text[i] > '9') break;
      number = number * 10 + static_cast<std::uint64_t>(text[i] - '0');
    }
    // Ten digits and more are longer than any number that we come to use.
    if (digits <= 9) highest = std::max(highest, number);
  }
  return std::string(kWord) + std::to_string(highest + 1) + "_";
}

constexpr std::string_view kSuffixes[] = {SLUICE_CLONE_SUFFIX, SLUICE_ONE_TASK_SUFFIX,
                                          SLUICE_WINDOW_SUFFIX};

constexpr std::size_t kMostBytesWithSeconds = std::size_t{16} << 20;

// What stands beside a loop. A choice for the launcher; in huge modules they would only cost.
constexpr std::pair<std::string_view, Form> kSeconds[] = {{SLUICE_ONE_TASK_SUFFIX, Form::kOneTask},
                                                          {SLUICE_WINDOW_SUFFIX, Form::kWindow}};

// One form of one kernel.
struct Attempt {
  Form form = Form::kNone;
  Finding why_not;
  std::string text;
  KernelReport report;
  ptx::Module::Version version;
};

Attempt attempt(const PassInput& input, Form form, const RewriteOptions& options) {
  Attempt a;
  Clone clone(input, form);
  for (const Step& step : steps_of(form)) {
    if (!step.wanted(input.facts)) continue;
    a.why_not = step.run(clone);
    if (options.after_each)
      options.after_each(input.entry.name, step.name, a.why_not ? std::string() : clone.text(),
                         a.why_not);
    if (a.why_not) return a;
    if (!always_wanted(step)) a.report.passes.push_back(step.name);
  }
  a.form = form;
  a.text = clone.text();
  a.report.tier = clone.tier;
  a.report.slot = clone.slot;
  a.report.in_order = clone.options.in_order;
  a.report.once = form == Form::kOneTask;
  a.report.resumable = clone.options.resumable;
  a.report.state_bytes = clone.state_bytes;
  a.version = clone.version_needed;
  return a;
}

// The best form of one kernel.
struct Made {
  const ptx::Function* entry = nullptr;
  std::uint32_t number = 0;
  bool named = true;  // its clone can have a name
  bool in_order = false;
  bool calls_touch_global = false;  // facts.h
  Attempt made;
  std::vector<Attempt> seconds;  // the other forms beside a loop
  KernelReport& report() { return made.report; }
};

// `name`: why its clone can have none.
Made make(const PassInput& input, const Finding& name, const RewriteOptions& options) {
  Made m;
  m.entry = &input.entry;
  m.named = !name;
  const KernelFacts& facts = input.facts;
  m.in_order = facts.waits.for_lower_tasks;
  m.calls_touch_global = facts.calls_touch_global;
  Finding why = name;
  for (Form form : {Form::kResumable, Form::kLoop, Form::kOneTask}) {
    if (name || (form == Form::kResumable && !facts.author.any)) continue;
    m.made = attempt(input, form, options);
    if (!m.made.why_not) break;
    if (form == Form::kResumable && !facts.opaque) continue;  // author_code says why
    if (!why || facts.opaque) why = std::move(m.made.why_not);
    if (facts.opaque) break;
  }
  m.report().may_have_others = !m.made.text.empty() && !m.report().once && !m.report().resumable;
  if (m.report().may_have_others && options.forms != Forms::kFirst) {
    PassInput second = input;
    for (const auto& [suffix, form] : kSeconds) {
      ++second.number;
      second.suffix = suffix;
      Attempt other = attempt(second, form, options);
      if (!other.why_not) m.seconds.push_back(std::move(other));
    }
  }
  KernelReport& report = m.report();
  report.name = input.entry.name;
  report.param_bytes_original = input.entry.param_bytes;
  report.uses_dynamic_shared = !facts.shared.dynamic.empty();
  report.persistent = facts.waits.fetches_work || facts.waits.strides_by_grid;
  report.evictable = !m.made.text.empty();
  report.one_row = report.evictable && facts.waits.one_row;
  if (facts.author.any && !report.resumable) {
    const Finding& ignored = facts.author.why_not ? facts.author.why_not : why;
    report.author_code = ignored.code;
    report.author_reason = ignored.text;
  }
  report.code = why.code;
  report.reason = std::move(why.text);
  if (report.evictable) {
    constexpr std::uint64_t kAlign = SLUICE_PREEMPT_PARAMS_ALIGN;
    report.param_offset_of_block = (input.entry.param_bytes + kAlign - 1) / kAlign * kAlign;
  } else {
    report.passes.clear();
  }
  return m;
}

// A reason without its "(line 12)": that is a line of text which the guest has never seen.
std::string without_line(const std::string& reason) {
  const std::size_t begin = reason.find("(line "), end = reason.find(')', begin);
  if (begin == reason.npos || end == reason.npos) return reason;
  return reason.substr(0, begin) + "(with its calls written in place)" + reason.substr(end + 1);
}

// Takes what was made of a kernel with its calls written in place, where that is the better of the
// two: a loop is better than none, and any clone better than none.
void choose(Made& old, Made m, bool waits) {
  const bool loops = m.report().tier != Tier::kPrologue;
  if (!waits && (!m.report().evictable || (!loops && old.report().evictable))) return;
  m.entry = old.entry;
  // Found before as well: then in the guest's own lines.
  m.report().reason =
      m.report().code == old.report().code ? old.report().reason : without_line(m.report().reason);
  if (m.report().evictable) m.report().passes.insert(m.report().passes.begin(), "inline");
  old = std::move(m);
}

// `flat`: the module with the calls of the kernels that are `changed` written in place.
void make_again(ptx::Module flat, const std::vector<bool>& changed, std::vector<Made>& kernels,
                const RewriteOptions& options) {
  const auto whole = [](const ptx::Module& m) {
    return ptx::Range{0, static_cast<std::uint32_t>(m.text().size())};
  };
  ptx::Edits numbers;
  std::size_t entry = 0;
  for (const ptx::Function& f : flat.functions())
    if (f.is_entry && f.has_body && changed[entry++]) write_barrier_numbers(flat, f, numbers);
  if (!numbers.empty()) {
    auto numbered = ptx::Module::parse(numbers.apply(flat.text(), whole(flat)));
    if (!numbered) return;
    flat = *std::move(numbered);
  }
  const std::string prefix = fresh_prefix(flat.text());
  ModuleFacts all_facts(flat);
  std::size_t k = 0;
  for (const ptx::Function& f : flat.functions()) {
    if (!f.is_entry || !f.has_body) continue;
    Made& old = kernels[k++];
    if (!changed[k - 1]) continue;
    const KernelFacts facts = all_facts.of_kernel(f);
    const bool waits =
        facts.opaque.code == "waits" || (facts.waits.for_lower_tasks && !old.in_order);
    if (!waits && old.report().evictable && old.report().tier != Tier::kPrologue) continue;
    choose(old, make({flat, f, facts, prefix, old.number}, {}, options), waits);
  }
}

// Kernels that got no loop, once more with their calls written in place, in a module where that has
// been done to all of them (inline.h). Also kernels that call what reads or swaps global memory: a
// loop around it waits, or takes a lock, which shows only so.
void write_calls_in_place(const ptx::Module& module, const ModuleFacts& facts,
                          std::vector<Made>& kernels, const RewriteOptions& options) {
  const auto may_gain = [](const Made& m) {
    const KernelReport& r = m.made.report;
    // Where the author placed points to leave at, the report is about the author's code as written.
    return m.named && r.author_code.empty() &&
           (r.tier == Tier::kOpaque || r.tier == Tier::kPrologue || m.calls_touch_global) &&
           has_calls(*m.entry);
  };
  if (std::none_of(kernels.begin(), kernels.end(), may_gain)) return;
  const std::string& text = module.text();
  const std::string prefix = fresh_prefix(text);
  ptx::Edits edits;
  std::vector<bool> changed(kernels.size());
  std::size_t bytes = 0, work = 0;
  for (std::size_t k = 0; k < kernels.size() && bytes < kMostInlinedBytesOfModule; ++k) {
    if (!may_gain(kernels[k])) continue;
    if (work > kMostInliningWork) break;
    std::optional<std::string> body = inline_calls(module, facts, *kernels[k].entry, prefix, work);
    if (!body) continue;
    changed[k] = true;
    bytes += body->size();
    if (options.after_each) options.after_each(kernels[k].entry->name, "inline", *body, {});
    edits.replace(kernels[k].entry->range, std::move(*body));
  }
  if (edits.empty()) return;
  auto flat = ptx::Module::parse(edits.apply(text, {0, static_cast<std::uint32_t>(text.size())}));
  if (!flat) return;  // larger than a module may be
  make_again(std::move(*flat), changed, kernels, options);
}

// Why no clone can have a name; empty: it can.
Finding name_is_taken(const ptx::Function& f, const std::unordered_set<std::string>& taken) {
  Finding name;
  for (const std::string_view suffix : kSuffixes) {
    if (f.name.ends_with(suffix)) name = {"name", "has a name that is kept for clones"};
    if (!name && taken.count(std::string(f.name).append(suffix)) != 0)
      name = {"name", "the name of its clone is taken"};
  }
  return name;
}

std::vector<Made> make_all(const ptx::Module& module, ModuleFacts& module_facts,
                           const RewriteOptions& options) {
  std::unordered_set<std::string> taken;  // names at module scope
  for (const ptx::Function& f : module.functions()) taken.emplace(f.name);
  for (const ptx::Variable& v : module.variables()) taken.emplace(v.name);
  const std::string prefix = fresh_prefix(module.text());
  std::vector<Made> kernels;
  std::uint32_t number = 0;
  for (const ptx::Function& f : module.functions()) {
    if (!f.is_entry || !f.has_body) continue;
    const Finding name = name_is_taken(f, taken);
    const KernelFacts facts = module_facts.of_kernel(f);
    kernels.push_back(make({module, f, facts, prefix, name ? 0 : number}, name, options));
    kernels.back().number = number;
    if (!name) number += std::size(kSuffixes);
  }
  return kernels;
}

bool has_room_for_seconds(const ptx::Module& module, const std::vector<Made>& kernels) {
  std::size_t bytes = module.text().size();
  for (const Made& m : kernels) {
    bytes += m.made.text.size();
    for (const Attempt& second : m.seconds) bytes += second.text.size();
  }
  return bytes <= kMostBytesWithSeconds;
}

// Takes the originals out, and the functions that no clone reaches.
void keep_clones_alone(const ptx::Module& module, const std::vector<std::string_view>& clones,
                       ptx::Edits& edits) {
  std::unordered_map<std::string_view, std::vector<const ptx::Function*>> functions;
  for (const ptx::Function& f : module.functions())
    if (!f.is_entry) functions[f.name].push_back(&f);
  std::unordered_set<const ptx::Function*> reached;
  std::vector<std::string_view> todo(clones);
  for (const ptx::Variable& v : module.variables()) todo.push_back(v.initializer);
  for (const ptx::ModuleDirective& d : module.directives()) todo.push_back(module.text_of(d.range));
  while (!functions.empty() && !todo.empty()) {
    const std::string_view text = todo.back();
    todo.pop_back();
    ptx::for_each_word(text, [&](std::string_view word, std::size_t) {
      const auto found = functions.find(word);
      if (found == functions.end()) return;
      for (const ptx::Function* f : found->second)
        if (reached.insert(f).second) todo.push_back(module.text_of(f->range));
    });
  }
  for (const ptx::Function& f : module.functions())
    if (!reached.contains(&f)) edits.remove(f.range);
}

// The module's header, where its clones need more than it says.
void raise_header(const ptx::Module& module, ptx::Module::Version version, ptx::Edits& clones) {
  if (!clones.empty()) version = std::max(version, kLeastVersion);  // rule isa-version
  if (version != module.version() && module.version_range().size() != 0)
    clones.replace(module.version_range(),
                   std::to_string(version.major) + "." + std::to_string(version.minor));
  if (!clones.empty() && module.sm() < kLeastSm) {
    const auto at = static_cast<std::uint32_t>(module.target().data() - module.text().data());
    clones.replace({at, at + static_cast<std::uint32_t>(module.target().size())},
                   "sm_" + std::to_string(kRaisedSm));
  }
}

}  // namespace

const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::kPlain:
      return "plain";
    case Tier::kUnified:
      return "unified";
    case Tier::kTwoPhase:
      return "two-phase";
    case Tier::kLaneMasks:
      return "lane-masks";
    case Tier::kInOrder:
      return "in-order";
    case Tier::kPrologue:
      return "prologue";
    case Tier::kResumable:
      return "resumable";
    case Tier::kOpaque:
      break;
  }
  return "opaque";
}

Rewritten rewrite_module(const ptx::Module& module, const RewriteOptions& options) {
  ModuleFacts module_facts(module);
  std::vector<Made> kernels = make_all(module, module_facts, options);
  write_calls_in_place(module, module_facts, kernels, options);
  const bool seconds = has_room_for_seconds(module, kernels);

  Rewritten out;
  ptx::Edits clones;
  std::vector<std::string_view> texts;
  ptx::Module::Version version = module.version();
  const auto add = [&](const Made& m, const Attempt& form) {
    clones.insert(m.entry->range.end, std::string("\n\n").append(form.text));
    texts.push_back(form.text);
    version = std::max(version, form.version);
  };
  for (Made& m : kernels) {
    if (!m.report().evictable) continue;
    if (options.forms != Forms::kOthers) add(m, m.made);
    for (const Attempt& second : m.seconds) {
      if (!seconds) break;
      (second.form == Form::kOneTask ? m.report().one_task_too : m.report().windows_too) = true;
      add(m, second);
    }
  }
  raise_header(module, version, clones);
  if (options.alone) keep_clones_alone(module, texts, clones);
  for (Made& m : kernels) out.kernels.push_back(std::move(m.report()));
  out.text = clones.apply(module.text(), {0, static_cast<std::uint32_t>(module.text().size())});
  return out;
}

Result<Rewritten> rewrite_module(std::string text, const RewriteOptions& options) {
  auto module = ptx::Module::parse(std::move(text));
  if (!module) return std::move(module).error();
  return rewrite_module(*module, options);
}

}  // namespace sluice::passes
