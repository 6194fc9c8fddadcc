// SPDX-License-Identifier: Apache-2.0
// From a parsed module to a Program: variables get their places, functions are decoded.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <system_error>
#include <unordered_set>

#include "kernels/exec/block/block.h"
#include "kernels/exec/decode/declarations.h"
#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/decode/initializer.h"
#include "kernels/exec/decode/source_lines.h"
#include "kernels/exec/decode/stack_depth.h"
#include "kernels/exec/program/program.h"

namespace sluice::exec {
namespace detail {
namespace {

using Places = ByScopedName<Place>;

uint64_t align_up(uint64_t value, uint64_t align) {
  return align <= 1 ? value : (value + align - 1) / align * align;
}

// The names that a function's statements mention, of those given.
std::unordered_set<std::string_view> mentioned(
    const ptx::Function& f,
    const std::unordered_map<std::string_view, const ptx::Variable*>& names) {
  std::unordered_set<std::string_view> found;
  if (names.empty()) return found;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%';
  };
  for (const ptx::Statement& s : f.statements) {
    if (s.kind != ptx::StatementKind::kInstruction) continue;
    for (const std::string_view operand : s.operands) {
      size_t k = 0;
      while (k < operand.size()) {
        if (!is_word(operand[k])) {
          ++k;
          continue;
        }
        const size_t begin = k;
        while (k < operand.size() && is_word(operand[k])) ++k;
        const auto it = names.find(operand.substr(begin, k - begin));
        if (it != names.end()) found.insert(it->first);
      }
    }
  }
  return found;
}

class ModuleDecoder {
 public:
  ModuleDecoder(const ptx::Module& module, const DecodeOptions& options)
      : module_(module), options_(options), program_(std::make_unique<ProgramData>()) {
    context_.program = program_.get();
  }

  Result<std::shared_ptr<const Program>> run();

 private:
  Result<void> symbols();
  Result<void> functions();
  Result<void> read_headers();
  Result<void> collect_functions();
  Result<void> place_function(Callee& callee, uint32_t& frame_align);
  Place function_shared(const ptx::Variable& v);
  Result<void> function_symbols(const ptx::Function& f, Places& places);
  Result<void> function(const ptx::Function& f, uint32_t callee);
  Result<void> entry(const ptx::Function& f);
  Result<uint32_t> entry_shared(const ptx::Function& f, bool calls, Places& places) const;
  Result<void> entry_or_refusal(const ptx::Function& f);
  // Whether an error costs only the kernels that reach what it is about.
  bool costs_kernels_only(const Error& error) const {
    return options_.refuse_kernels_alone && error.code == ENOTSUP;
  }
  void refuse_callers();
  Result<uint32_t> add_symbol(const ptx::Variable& v, const std::string& name);
  Result<Layout> layout_of(const ptx::Function& f);
  Result<void> check_size(const ptx::Function& f, const FunctionFrame& frame) const;
  // Local and parameter variables of a body; returns the end of local memory.
  Result<uint64_t> local_places(const ptx::Function& f, uint64_t base, Places& places) const;

  const ptx::Module& module_;
  const DecodeOptions& options_;
  std::unique_ptr<ProgramData> program_;
  ModuleContext context_;
  std::unordered_map<std::string_view, const ptx::Variable*> shared_;  // of the module
  std::unordered_map<const ptx::Function*, std::string> unread_;       // why
  std::vector<Places> callee_places_;
  std::vector<uint64_t> callee_frames_;  // where their own variables end
  std::vector<std::string> absent_;      // by callee: why it cannot be called; empty: it can
  struct PendingInitializer {
    uint32_t symbol;
    const ptx::Variable* variable;
  };
  std::vector<PendingInitializer> initializers_;
  uint64_t function_shared_ = 0;     // static shared memory of .func bodies, before the entries'
  uint32_t function_registers_ = 0;  // bytes: of all functions, one behind the other
  uint32_t widest_function_ = 0;     // bytes: the most that one of them has
  uint32_t dynamic_align_ = 16;      // of dynamic shared memory that functions name
};

Result<uint32_t> ModuleDecoder::add_symbol(const ptx::Variable& v, const std::string& name) {
  SymbolInfo symbol;
  symbol.name = name;
  symbol.space = v.space == ptx::Space::kConst ? SymbolSpace::kConst : SymbolSpace::kGlobal;
  symbol.bytes = v.bytes;
  symbol.align = std::max(v.align, 1u);
  symbol.external = v.linkage == ".extern";
  symbol.managed = v.is_managed;
  const uint32_t index = static_cast<uint32_t>(program_->symbols.size());
  program_->symbols.push_back(std::move(symbol));
  program_->symbol_index.emplace(name, index);
  initializers_.push_back({index, &v});
  return index;
}

Result<void> ModuleDecoder::symbols() {
  for (const ptx::Variable& v : module_.variables()) {
    switch (v.space) {
      case ptx::Space::kGlobal:
      case ptx::Space::kConst: {
        const auto before = program_->symbol_index.find(std::string(v.name));
        if (before != program_->symbol_index.end()) {
          // An .extern declaration and the definition of the same variable.
          if (v.linkage == ".extern") break;
          SymbolInfo& symbol = program_->symbols[before->second];
          symbol.external = false;
          symbol.managed = v.is_managed;
          symbol.bytes = v.bytes;
          symbol.align = std::max(v.align, 1u);
          initializers_.push_back({before->second, &v});
          break;
        }
        auto index = add_symbol(v, std::string(v.name));
        if (!index) return std::move(index).error();
        Place place;
        place.space = kSpaceGlobal;
        place.symbol = *index;
        place.is_symbol = true;
        place.bytes = v.bytes;
        context_.places[v.name] = place;
        break;
      }
      case ptx::Space::kShared:
        shared_[v.name] = &v;
        break;
      case ptx::Space::kTex:
        break;  // refused where it is used
      default:
        return at_line(v.line,
                       "variable " + std::string(v.name) + " at module scope is not supported");
    }
  }
  return {};
}

Result<uint64_t> ModuleDecoder::local_places(const ptx::Function& f, uint64_t base,
                                             Places& places) const {
  uint64_t end = base;
  for (const ptx::Variable& v : f.variables) {
    if (v.space != ptx::Space::kLocal && v.space != ptx::Space::kParam) continue;
    end = align_up(end, std::max(v.align, 1u));
    Place place;
    place.space = kSpaceLocal;
    place.in_frame = !f.is_entry;
    place.offset = end;
    place.bytes = v.bytes;
    place.count = v.register_count;
    place.stride = align_up(v.bytes, std::max(v.align, 1u));
    places[{v.scope, v.name}] = place;
    const uint64_t before = v.register_count > 1 ? v.register_count - 1 : 0;
    if (v.bytes > kMaxLocalBytes || end + before * place.stride + v.bytes > kMaxLocalBytes)
      return at_line(v.line, "more local memory than a thread can have");
    end += before * place.stride + v.bytes;
  }
  return end;
}

Result<void> ModuleDecoder::function_symbols(const ptx::Function& f, Places& places) {
  for (const ptx::Variable& v : f.variables) {
    if (v.space != ptx::Space::kGlobal && v.space != ptx::Space::kConst) continue;
    auto index = add_symbol(
        v, std::string(f.name) + "/" + std::to_string(v.scope) + "/" + std::string(v.name));
    if (!index) return std::move(index).error();
    Place place;
    place.space = kSpaceGlobal;
    place.symbol = *index;
    place.is_symbol = true;
    place.bytes = v.bytes;
    places[{v.scope, v.name}] = place;
  }
  return {};
}

// Sizes and places of a function's parameters.
Result<Layout> ModuleDecoder::layout_of(const ptx::Function& f) {
  const auto shapes = [](const std::vector<ptx::Variable>& list) {
    std::vector<ParameterShape> out;
    for (const ptx::Variable& v : list) {
      const bool in_register = v.space == ptx::Space::kReg;
      out.push_back({in_register ? v.element_bytes : v.bytes, std::max(v.align, 1u)});
    }
    return out;
  };
  Layout layout;
  if (!make_layout(shapes(f.params), shapes(f.returns), layout))
    return at_line(f.line, "the parameters of " + std::string(f.name) + " are not supported");
  context_.sign(layout);
  return layout;
}

// Functions of which more than their instructions is not understood.
Result<void> ModuleDecoder::read_headers() {
  for (const ptx::Function& f : module_.functions()) {
    auto done = check_declarations(f);
    if (done) continue;
    // A kernel that the parser did not understand costs itself, whatever the options.
    const bool alone = f.is_entry && !f.not_understood.empty();
    if (!options_.refuse_kernels_alone && !alone) return done;
    unread_.emplace(&f, std::move(done).error().message);
  }
  return {};
}

// Of each name its definition, or a declaration where there is none.
Result<void> ModuleDecoder::collect_functions() {
  for (const ptx::Function& f : module_.functions()) {
    if (f.is_entry) {
      const auto number = static_cast<uint32_t>(program_->kernel_names.size());
      if (context_.kernels.try_emplace(f.name, number).second)
        program_->kernel_names.emplace_back(f.name);
      continue;
    }
    if (f.name.empty()) continue;  // not understood: nobody can call it
    const auto [it, fresh] =
        context_.callee_index.try_emplace(f.name, static_cast<uint32_t>(context_.callees.size()));
    if (fresh) context_.callees.emplace_back();
    Callee& callee = context_.callees[it->second];
    callee.index = it->second;
    const bool second = callee.function != nullptr && callee.function->has_body && f.has_body;
    if (second && f.linkage == ".weak") continue;  // any one of them will do
    if (second && callee.function->linkage != ".weak")
      return at_line(f.line, "function " + std::string(f.name) + " is defined twice");
    if (callee.function == nullptr || f.has_body) callee.function = &f;
    if (const auto unread = unread_.find(&f); unread != unread_.end()) {
      callee.unread = unread->second;
      continue;
    }
    auto layout = layout_of(f);
    if (!layout) return std::move(layout).error();
    callee.layout = *std::move(layout);
  }
  return {};
}

Place ModuleDecoder::function_shared(const ptx::Variable& v) {
  Place place;
  place.space = kSpaceShared;
  if (v.bytes == 0) {
    place.dynamic_shared = true;
    dynamic_align_ = std::max(dynamic_align_, v.align);
    return place;
  }
  function_shared_ = align_up(function_shared_, std::max(v.align, 1u));
  place.offset = function_shared_;
  place.bytes = v.bytes;
  function_shared_ += std::min<uint64_t>(v.bytes, kMaxSharedBytes + 1);
  return place;
}

// Places of what a body names: parameters, local and shared variables, its own and the module's.
Result<void> ModuleDecoder::place_function(Callee& callee, uint32_t& frame_align) {
  const ptx::Function& f = *callee.function;
  Places& places = callee_places_[callee.index];
  frame_align = std::max(frame_align, callee.layout.align);
  const auto parameters = [&places](const std::vector<ptx::Variable>& list,
                                    const std::vector<Piece>& pieces) {
    for (size_t k = 0; k < list.size(); ++k) {
      if (list[k].space == ptx::Space::kReg) continue;
      Place place;
      place.space = kSpaceLocal;
      place.in_frame = true;
      place.offset = pieces[k].offset;
      place.bytes = pieces[k].bytes;
      places[{0, list[k].name}] = place;
    }
  };
  parameters(f.params, callee.layout.params);
  parameters(f.returns, callee.layout.returns);
  auto local = local_places(f, callee.layout.end, places);
  if (!local) return std::move(local).error();
  callee_frames_[callee.index] = *local;
  for (const ptx::Variable& v : f.variables)
    if (v.space == ptx::Space::kLocal) frame_align = std::max(frame_align, v.align);
  if (auto done = function_symbols(f, places); !done) return done;
  for (const ptx::Variable& v : f.variables)
    if (v.space == ptx::Space::kShared) places[{v.scope, v.name}] = function_shared(v);
  for (const std::string_view name : mentioned(f, shared_))
    if (context_.places.count(name) == 0)
      context_.places[name] = function_shared(*shared_.at(name));
  if (function_shared_ > kMaxSharedBytes)
    return at_line(f.line, "more shared memory than a block can have");
  return {};
}

// The .func bodies. Their variables lie in frames, which every activation has anew; their registers
// at places of their own, beside those of all others; their static shared memory before the
// kernels'.
Result<void> ModuleDecoder::functions() {
  if (auto done = collect_functions(); !done) return done;
  callee_places_.resize(context_.callees.size());
  callee_frames_.resize(context_.callees.size());
  context_.nodes.resize(context_.callees.size());
  uint32_t frame_align = 16;
  Code& code = program_->code;
  code.callables.resize(context_.callees.size());
  for (Callee& callee : context_.callees) {
    Callable& callable = code.callables[callee.index];
    callable.name = std::string(callee.function->name);
    callable.signature = callee.layout.signature;
    if (!callee.function->has_body) continue;
    code.has_frames = true;
    if (!callee.unread.empty()) continue;
    if (auto done = place_function(callee, frame_align); !done) return done;
  }
  for (const ptx::Function& f : module_.functions())
    for (const ptx::Statement& s : f.statements)
      if (s.kind == ptx::StatementKind::kInstruction &&
          (ptx::base_opcode(s.opcode) == "alloca" || ptx::base_opcode(s.opcode) == "stacksave" ||
           ptx::base_opcode(s.opcode) == "stackrestore"))
        code.has_frames = true;
  code.frame_align = frame_align;
  function_registers_ = code.has_frames ? kFrameRegisterBytes : 0;
  absent_.resize(context_.callees.size());
  for (const Callee& callee : context_.callees) {
    if (!callee.function->has_body) continue;
    Result<void> done = Error{ENOTSUP, callee.unread};
    if (callee.unread.empty()) done = function(*callee.function, callee.index);
    if (done) continue;
    if (!costs_kernels_only(done.error())) return done;
    // It has no code: a call through a pointer faults as one of no function.
    code.callables[callee.index].defined = false;
    absent_[callee.index] = done.error().message;
  }
  return {};
}

// Kernels that reach a function without code, by calls that name it, are refused.
void ModuleDecoder::refuse_callers() {
  const size_t callees = context_.callees.size();
  std::vector<std::vector<uint32_t>> callers(callees);
  for (uint32_t node = 0; node < context_.nodes.size(); ++node)
    for (const uint32_t to : context_.nodes[node].callees) callers[to].push_back(node);
  std::vector<uint32_t> next;
  for (uint32_t k = 0; k < callees; ++k)
    if (!absent_[k].empty()) next.push_back(k);
  while (!next.empty()) {
    const uint32_t callee = next.back();
    next.pop_back();
    for (const uint32_t caller : callers[callee]) {
      std::string& why =
          caller < callees ? absent_[caller] : program_->entries[caller - callees].refused;
      if (!why.empty()) continue;
      why = absent_[callee];
      if (caller < callees) {
        program_->code.callables[caller].defined = false;
        next.push_back(caller);
      }
    }
  }
}

Result<void> ModuleDecoder::function(const ptx::Function& f, uint32_t callee) {
  Callable& callable = program_->code.callables[callee];
  callable.defined = true;
  callable.begin = static_cast<uint32_t>(program_->code.code.size());
  callable.first_predicate = program_->code.predicates;
  Decoder decoder(context_, f, callee_places_[callee]);
  FunctionFrame frame;
  if (!decoder.run(function_registers_, callee_frames_[callee], callee, frame))
    return decoder.error();
  widest_function_ = std::max(widest_function_, frame.register_bytes - function_registers_);
  function_registers_ = frame.register_bytes;
  callable.end_predicate = program_->code.predicates;
  callable.slots = std::move(frame.slots);
  // A call costs something even where there is nothing to keep: endless recursion must end.
  callable.frame_bytes = static_cast<uint32_t>(std::max(
      align_up(frame.local_end, program_->code.frame_align), uint64_t{program_->code.frame_align}));
  return check_size(f, frame);
}

// Static shared memory: the functions', then the module's that this entry mentions, then its own.
// Returns its bytes.
Result<uint32_t> ModuleDecoder::entry_shared(const ptx::Function& f, bool calls,
                                             Places& places) const {
  uint64_t shared = calls ? function_shared_ : 0;
  uint64_t dynamic_align = calls ? dynamic_align_ : 16;
  std::vector<ScopedName> dynamic;
  const auto put = [&](const ScopedName& key, const ptx::Variable& v) {
    if (v.bytes == 0) {
      dynamic.push_back(key);
      dynamic_align = std::max<uint64_t>(dynamic_align, v.align);
      return;
    }
    shared = align_up(shared, std::max(v.align, 1u));
    Place place;
    place.space = kSpaceShared;
    place.offset = shared;
    place.bytes = v.bytes;
    places[key] = place;
    shared += std::min<uint64_t>(v.bytes, kMaxSharedBytes + 1);
  };
  const auto used = mentioned(f, shared_);
  for (const ptx::Variable& v : module_.variables())
    if (used.count(v.name) != 0 && shared_.at(v.name) == &v &&
        (!calls || v.bytes == 0 || context_.places.count(v.name) == 0))
      put({0, v.name}, v);
  for (const ptx::Variable& v : f.variables)
    if (v.space == ptx::Space::kShared) put({v.scope, v.name}, v);
  if (dynamic_align > 16) shared = align_up(shared, dynamic_align);
  if (shared > kMaxSharedBytes) return at_line(f.line, "more shared memory than a block can have");
  for (const ScopedName& key : dynamic) {
    Place place;
    place.space = kSpaceShared;
    place.offset = align_up(shared, 16);
    places[key] = place;
  }
  return static_cast<uint32_t>(shared);
}

// What the kernel is reported to use, of so many bytes: a compiler keeps to what lets the promised
// block, or several of them, be resident.
uint32_t reported_registers(const ptx::Function& f, uint32_t register_bytes, uint32_t max_threads) {
  uint32_t registers = std::clamp<uint32_t>(register_bytes / kSlotBytes + 8, 16, 255);
  if (f.maxnreg != 0) registers = std::min(registers, f.maxnreg);
  if (max_threads == 0) return registers;
  constexpr uint64_t kRegistersPerSm = 65536;
  // An SM has four parts with registers of their own, over which a block's warps are dealt.
  const uint64_t warps = (uint64_t{max_threads} + 127) / 128 * 4 * std::max(f.minnctapersm, 1u);
  const uint64_t bound = std::max<uint64_t>(16, kRegistersPerSm / 32 / warps / 8 * 8);
  return std::min(registers, static_cast<uint32_t>(bound));
}

// What a kernel says of its clusters: each side 1 to 65535 as the launch has them.
Result<void> cluster_directives(const ptx::Function& f, EntryInfo& info) {
  for (const ptx::HeaderDirective& d : f.directives) {
    const bool required = d.name == ".reqnctapercluster", most = d.name == ".maxclusterrank";
    if (d.name == ".explicitcluster") info.explicit_cluster = true;
    if (d.name == ".blocksareclusters") info.blocks_are_clusters = true;
    if (!required && !most) continue;
    if (d.arguments.empty() || d.arguments.size() > (required ? 3u : 1u))
      return at_line(f.line, std::string(d.name) + " has the wrong number of values");
    uint32_t values[3] = {1, 1, 1};
    for (size_t k = 0; k < d.arguments.size(); ++k) {
      const std::string_view text = d.arguments[k];
      const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), values[k]);
      if (failed != std::errc{} || end != text.data() + text.size() || values[k] == 0 ||
          values[k] > 65535)
        return at_line(
            f.line, std::string(d.name) + ": " + std::string(text) + " is not between 1 and 65535");
    }
    if (most)
      info.max_cluster_blocks = values[0];
    else
      std::copy(std::begin(values), std::end(values), info.required_cluster);
  }
  if (info.blocks_are_clusters && (info.required_cluster[0] == 0 || info.required_block[0] == 0))
    return at_line(f.line, ".blocksareclusters needs .reqntid and .reqnctapercluster");
  return {};
}

bool has_calls(const ptx::Function& f) {
  return std::any_of(f.statements.begin(), f.statements.end(), [](const ptx::Statement& s) {
    return s.kind == ptx::StatementKind::kInstruction && ptx::base_opcode(s.opcode) == "call";
  });
}

// .reqntid and .maxntid.
void thread_directives(const ptx::Function& f, EntryInfo& info) {
  const auto product = [](const std::array<uint32_t, 3>& d) {
    return d[0] == 0 ? 0u : d[0] * std::max(d[1], 1u) * std::max(d[2], 1u);
  };
  info.max_threads = f.reqntid[0] != 0 ? product(f.reqntid) : product(f.maxntid);
  for (int k = 0; k < 3; ++k)
    info.required_block[k] =
        f.reqntid[0] == 0 ? 0 : std::max(f.reqntid[static_cast<size_t>(k)], 1u);
}

void entry_parameters(const ptx::Function& f, EntryInfo& info, Places& places) {
  info.param_bytes = static_cast<uint32_t>(f.param_bytes);
  for (const ptx::Variable& p : f.params) {
    info.params.push_back({std::string(p.name), static_cast<uint32_t>(p.offset),
                           static_cast<uint32_t>(p.bytes), std::max(p.align, 1u)});
    Place place;
    place.space = kSpaceParam;
    place.offset = p.offset;
    place.bytes = p.bytes;
    places[{0, p.name}] = place;
  }
}

Result<void> ModuleDecoder::entry(const ptx::Function& f) {
  EntryInfo info;
  info.name = std::string(f.name);
  if (f.param_bytes > kMaxParamBytes)
    return at_line(f.line, "more parameters than a kernel can have");
  info.line = f.line;
  Places places;
  entry_parameters(f, info, places);
  thread_directives(f, info);
  if (auto done = cluster_directives(f, info); !done) return done;
  auto local = local_places(f, 0, places);
  if (!local) return std::move(local).error();
  if (auto done = function_symbols(f, places); !done) return done;

  const bool calls = has_calls(f);
  auto shared = entry_shared(f, calls, places);
  if (!shared) return std::move(shared).error();
  info.static_shared_bytes = *shared;

  const uint32_t begin = static_cast<uint32_t>(program_->code.code.size());
  const uint32_t base = calls                       ? function_registers_
                        : program_->code.has_frames ? kFrameRegisterBytes
                                                    : 0;
  Decoder decoder(context_, f, places);
  FunctionFrame frame;
  const uint32_t node = static_cast<uint32_t>(context_.nodes.size());
  context_.nodes.emplace_back();
  if (!decoder.run(base, *local, node, frame)) return decoder.error();
  const auto own = static_cast<uint32_t>(align_up(frame.local_end, program_->code.frame_align));
  // On a GPU functions use the same registers: what is live across a call is saved.
  const uint32_t used = frame.register_bytes - base;
  info.registers =
      reported_registers(f, calls ? std::max(used, widest_function_) : used, info.max_threads);
  const uint32_t index = static_cast<uint32_t>(program_->entries.size());
  if (!program_->entry_index.emplace(info.name, index).second)
    return at_line(f.line, "kernel " + info.name + " is defined twice");
  program_->entries.push_back(std::move(info));
  program_->entry_code.push_back({begin, frame.register_bytes, own, false});
  return check_size(f, frame);
}

Result<void> ModuleDecoder::check_size(const ptx::Function& f, const FunctionFrame& frame) const {
  if (frame.register_bytes / kSlotBytes > options_.max_register_slots)
    return at_line(f.line, std::string(f.name) + " needs too many registers");
  if (program_->code.constants.size() > options_.max_constant_bytes)
    return at_line(f.line, "too many different constants");
  return {};
}

// A kernel that cannot be launched here is known by its header, without code.
Result<void> ModuleDecoder::entry_or_refusal(const ptx::Function& f) {
  const auto unread = unread_.find(&f);
  std::string refused = unread == unread_.end() ? "" : unread->second;
  ptx::Function without_body = f;
  without_body.statements.clear();
  if (refused.empty()) {
    const size_t nodes = context_.nodes.size();
    auto done = entry(f);
    if (done || !costs_kernels_only(done.error())) return done;
    refused = std::move(done).error().message;
    context_.nodes.resize(nodes);
    // Variables of its body have their places, and nothing uses them or its registers.
    std::erase_if(without_body.variables, [](const ptx::Variable& v) {
      return v.space == ptx::Space::kGlobal || v.space == ptx::Space::kConst ||
             v.space == ptx::Space::kReg;
    });
  }
  if (auto done = entry(without_body); !done) return done;
  program_->entries.back().refused = std::move(refused);
  return {};
}

Result<std::shared_ptr<const Program>> ModuleDecoder::run() {
  if (module_.address_size() != 64) return Error{0, "only .address_size 64 is supported"};
  uint64_t instructions = 0;
  for (const ptx::Function& f : module_.functions()) instructions += f.statements.size();
  if (instructions > options_.max_instructions)
    return Error{0, "the module has too many instructions"};
  if (auto done = check_declarations(module_); !done) return done.error();
  if (auto done = read_headers(); !done) return done.error();
  if (auto done = symbols(); !done) return done.error();
  if (auto done = functions(); !done) return done.error();
  for (const ptx::Function& f : module_.functions()) {
    if (!f.is_entry || !f.has_body || f.name.empty()) continue;
    if (f.linkage == ".weak" && program_->entry_index.count(std::string(f.name)) != 0) continue;
    if (auto done = entry_or_refusal(f); !done) return done.error();
  }
  refuse_callers();
  for (const PendingInitializer& pending : initializers_) {
    const auto find = [this](std::string_view name) -> Named {
      if (const auto found = program_->symbol_index.find(std::string(name));
          found != program_->symbol_index.end())
        return {Named::kSymbol, found->second};
      const auto callee = context_.callee_index.find(name);
      if (callee == context_.callee_index.end()) return {};
      Callee& target = context_.callees[callee->second];
      if (!target.function->has_body) return {};
      target.address_taken = true;
      return {Named::kFunction, callee->second};
    };
    auto done = read_initializer(*pending.variable, find, options_.max_initialized_bytes,
                                 program_->symbols[pending.symbol]);
    if (!done) return done.error();
  }
  measure_stacks(context_);
  read_source_lines(module_, program_->code);
  for (const EntryInfo& info : program_->entries)
    if (info.local_bytes > kMaxLocalBytes)
      return at_line(info.line, "more local memory than a thread can have");
  return std::shared_ptr<const Program>(std::make_shared<Program>(std::move(program_)));
}

}  // namespace
}  // namespace detail

Result<std::shared_ptr<const Program>> decode(const ptx::Module& module,
                                              const DecodeOptions& options) {
  return detail::ModuleDecoder(module, options).run();
}

Result<std::shared_ptr<const Program>> decode_text(std::string_view text,
                                                   const DecodeOptions& options) {
  auto module = ptx::Module::parse(std::string(text));
  if (!module) return std::move(module).error();
  return decode(*module, options);
}

}  // namespace sluice::exec
