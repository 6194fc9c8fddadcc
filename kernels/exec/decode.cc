// From a parsed module to a Program: variables get their places, functions are decoded.
#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "kernels/exec/block.h"
#include "kernels/exec/decoder.h"
#include "kernels/exec/initializer.h"
#include "kernels/exec/program.h"

namespace sluice::exec {
namespace detail {
namespace {

using Places = std::unordered_map<std::string, Place>;

uint64_t align_up(uint64_t value, uint64_t align) {
  return align <= 1 ? value : (value + align - 1) / align * align;
}

Error at_line(uint32_t line, const std::string& what) {
  return {0, "line " + std::to_string(line) + ": " + what};
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
  Result<void> function_symbols(const ptx::Function& f, Places& places);
  Result<void> function(const ptx::Function& f, uint32_t callee);
  Result<void> entry(const ptx::Function& f);
  Result<uint32_t> add_symbol(const ptx::Variable& v, const std::string& name);
  Result<void> check_recursion() const;
  Result<void> check_size(const ptx::Function& f, const FunctionFrame& frame) const;
  // Local and parameter variables of a body; returns the end of local memory.
  Result<uint64_t> local_places(const ptx::Function& f, uint64_t base, Places& places) const;

  const ptx::Module& module_;
  const DecodeOptions& options_;
  std::unique_ptr<ProgramData> program_;
  ModuleContext context_;
  std::unordered_map<std::string_view, const ptx::Variable*> shared_;  // of the module
  std::vector<Places> callee_places_;
  struct PendingInitializer {
    uint32_t symbol;
    const ptx::Variable* variable;
  };
  std::vector<PendingInitializer> initializers_;
  uint64_t function_shared_ = 0;     // static shared memory of .func bodies, before the entries'
  uint64_t function_local_ = 0;      // local memory of .func bodies
  uint32_t function_registers_ = 0;  // bytes
};

Result<uint32_t> ModuleDecoder::add_symbol(const ptx::Variable& v, const std::string& name) {
  SymbolInfo symbol;
  symbol.name = name;
  symbol.space = v.space == ptx::Space::kConst ? SymbolSpace::kConst : SymbolSpace::kGlobal;
  symbol.bytes = v.bytes;
  symbol.align = std::max(v.align, 1u);
  symbol.external = v.linkage == ".extern";
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
    place.offset = end;
    place.bytes = v.bytes;
    places[Decoder::scope_key(v.scope, v.name)] = place;
    if (v.bytes > kMaxLocalBytes || end + v.bytes > kMaxLocalBytes)
      return at_line(v.line, "more local memory than a thread can have");
    end += v.bytes;
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
    places[Decoder::scope_key(v.scope, v.name)] = place;
  }
  return {};
}

// All .func bodies: their local and static shared memory and registers lie before the entries',
// each at places of its own. A thread is in each of them at most once at a time, because recursion
// is refused, so that is enough.
Result<void> ModuleDecoder::functions() {
  for (const ptx::Function& f : module_.functions()) {
    if (f.is_entry) continue;
    const auto [it, fresh] =
        context_.callee_index.try_emplace(f.name, static_cast<uint32_t>(context_.callees.size()));
    if (fresh) context_.callees.emplace_back();
    Callee& callee = context_.callees[it->second];
    callee.index = it->second;
    if (callee.function == nullptr || f.has_body) callee.function = &f;
    callee.builtin =
        !callee.function->has_body && (f.name == "vprintf" || f.name == "__assertfail");
  }
  callee_places_.resize(context_.callees.size());
  for (Callee& callee : context_.callees) {
    const ptx::Function& f = *callee.function;
    if (!f.has_body) continue;
    Places& places = callee_places_[callee.index];
    uint64_t end = align_up(function_local_, 16);
    const auto parameters = [&](const std::vector<ptx::Variable>& list,
                                std::vector<uint32_t>& offsets) {
      for (const ptx::Variable& v : list) {
        if (v.space != ptx::Space::kParam || v.bytes > kMaxLocalBytes) return false;
        end = align_up(end, std::max(v.align, 1u));
        Place place;
        place.space = kSpaceLocal;
        place.offset = end;
        place.bytes = v.bytes;
        places[Decoder::scope_key(0, v.name)] = place;
        offsets.push_back(static_cast<uint32_t>(end));
        end += v.bytes;
        if (end > kMaxLocalBytes) return false;
      }
      return true;
    };
    if (!parameters(f.params, callee.param_offsets) ||
        !parameters(f.returns, callee.return_offsets))
      return at_line(f.line, "the parameters of " + std::string(f.name) + " are not supported");
    auto local = local_places(f, end, places);
    if (!local) return std::move(local).error();
    function_local_ = align_up(*local, 16);
    if (auto done = function_symbols(f, places); !done) return done;
    // Shared variables, its own and the module's that it mentions.
    for (const ptx::Variable& v : f.variables) {
      if (v.space != ptx::Space::kShared) continue;
      function_shared_ = align_up(function_shared_, std::max(v.align, 1u));
      Place place;
      place.space = kSpaceShared;
      place.offset = function_shared_;
      place.bytes = v.bytes;
      places[Decoder::scope_key(v.scope, v.name)] = place;
      function_shared_ += std::min<uint64_t>(v.bytes, kMaxSharedBytes + 1);
    }
    for (const std::string_view name : mentioned(f, shared_)) {
      const ptx::Variable& v = *shared_.at(name);
      if (v.bytes == 0)
        return at_line(f.line, "dynamic shared memory named in the function " +
                                   std::string(f.name) + " is not supported");
      if (context_.places.count(name) != 0) continue;
      function_shared_ = align_up(function_shared_, std::max(v.align, 1u));
      Place place;
      place.space = kSpaceShared;
      place.offset = function_shared_;
      place.bytes = v.bytes;
      context_.places[v.name] = place;
      function_shared_ += std::min<uint64_t>(v.bytes, kMaxSharedBytes + 1);
    }
    if (function_shared_ > kMaxSharedBytes)
      return at_line(f.line, "more shared memory than a block can have");
  }
  for (const Callee& callee : context_.callees) {
    if (!callee.function->has_body) continue;
    if (auto done = function(*callee.function, callee.index); !done) return done;
  }
  return {};
}

Result<void> ModuleDecoder::function(const ptx::Function& f, uint32_t callee) {
  Decoder decoder(context_, f, callee_places_[callee]);
  FunctionFrame frame;
  if (!decoder.run(function_registers_, callee, frame)) return decoder.error();
  function_registers_ = frame.register_bytes;
  return check_size(f, frame);
}

Result<void> ModuleDecoder::entry(const ptx::Function& f) {
  EntryInfo info;
  info.name = std::string(f.name);
  if (f.param_bytes > kMaxParamBytes)
    return at_line(f.line, "more parameters than a kernel can have");
  info.line = f.line;
  info.param_bytes = static_cast<uint32_t>(f.param_bytes);
  bool calls = false;
  for (const ptx::Statement& s : f.statements)
    calls = calls ||
            (s.kind == ptx::StatementKind::kInstruction && ptx::base_opcode(s.opcode) == "call");
  Places places;
  for (const ptx::Variable& p : f.params) {
    info.params.push_back({std::string(p.name), static_cast<uint32_t>(p.offset),
                           static_cast<uint32_t>(p.bytes), std::max(p.align, 1u)});
    Place place;
    place.space = kSpaceParam;
    place.offset = p.offset;
    place.bytes = p.bytes;
    places[Decoder::scope_key(0, p.name)] = place;
  }
  for (const ptx::HeaderDirective& d : f.directives)
    if (d.name == ".reqnctapercluster" || d.name == ".explicitcluster" ||
        d.name == ".blocksareclusters")
      return at_line(f.line, std::string(d.name) + " of " + info.name + " is not supported");
  const auto product = [](const std::array<uint32_t, 3>& d) {
    return d[0] == 0 ? 0u : d[0] * std::max(d[1], 1u) * std::max(d[2], 1u);
  };
  info.max_threads = f.reqntid[0] != 0 ? product(f.reqntid) : product(f.maxntid);
  for (int k = 0; k < 3; ++k)
    info.required_block[k] =
        f.reqntid[0] == 0 ? 0 : std::max(f.reqntid[static_cast<size_t>(k)], 1u);

  auto local = local_places(f, calls ? function_local_ : 0, places);
  if (!local) return std::move(local).error();
  info.local_bytes = static_cast<uint32_t>(align_up(*local, 16));
  if (auto done = function_symbols(f, places); !done) return done;

  // Static shared memory: the functions', then the module's that this entry mentions, then its own.
  uint64_t shared = calls ? function_shared_ : 0;
  uint64_t dynamic_align = 16;
  std::vector<std::string> dynamic;
  const auto put = [&](const std::string& key, const ptx::Variable& v) {
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
        (!calls || context_.places.count(v.name) == 0))
      put(Decoder::scope_key(0, v.name), v);
  for (const ptx::Variable& v : f.variables)
    if (v.space == ptx::Space::kShared) put(Decoder::scope_key(v.scope, v.name), v);
  if (dynamic_align > 16) shared = align_up(shared, dynamic_align);
  if (shared > kMaxSharedBytes) return at_line(f.line, "more shared memory than a block can have");
  info.static_shared_bytes = static_cast<uint32_t>(shared);
  for (const std::string& key : dynamic) {
    Place place;
    place.space = kSpaceShared;
    place.offset = align_up(shared, 16);
    places[key] = place;
  }

  const uint32_t begin = static_cast<uint32_t>(program_->code.code.size());
  const uint32_t base = calls ? function_registers_ : 0;
  Decoder decoder(context_, f, places);
  FunctionFrame frame;
  if (!decoder.run(base, static_cast<uint32_t>(context_.callees.size()), frame))
    return decoder.error();
  info.registers = std::clamp<uint32_t>(frame.register_bytes / kSlotBytes + 8, 16, 255);
  if (f.maxnreg != 0) info.registers = std::min(info.registers, f.maxnreg);
  const uint32_t index = static_cast<uint32_t>(program_->entries.size());
  if (!program_->entry_index.emplace(info.name, index).second)
    return at_line(f.line, "kernel " + info.name + " is defined twice");
  program_->entries.push_back(std::move(info));
  program_->entry_code.push_back({begin, frame.register_bytes});
  return check_size(f, frame);
}

Result<void> ModuleDecoder::check_size(const ptx::Function& f, const FunctionFrame& frame) const {
  if (frame.register_bytes / kSlotBytes > options_.max_register_slots)
    return at_line(f.line, std::string(f.name) + " needs too many registers");
  if (program_->code.constants.size() > options_.max_constant_bytes)
    return at_line(f.line, "too many different constants");
  return {};
}

// Functions keep their variables at fixed places, so none may be in itself.
Result<void> ModuleDecoder::check_recursion() const {
  std::vector<uint8_t> state(context_.callees.size(), 0);  // 1: on the path, 2: done
  for (uint32_t start = 0; start < state.size(); ++start) {
    if (state[start] != 0) continue;
    std::vector<std::pair<uint32_t, size_t>> path = {{start, 0}};
    state[start] = 1;
    while (!path.empty()) {
      auto& [f, next] = path.back();
      const std::vector<uint32_t>& calls = context_.callees[f].calls;
      if (next == calls.size()) {
        state[f] = 2;
        path.pop_back();
        continue;
      }
      const uint32_t to = calls[next++];
      if (state[to] == 1)
        return at_line(context_.callees[to].function->line,
                       "the recursive function " +
                           std::string(context_.callees[to].function->name) + " is not supported");
      if (state[to] == 0) {
        state[to] = 1;
        path.emplace_back(to, 0);
      }
    }
  }
  return {};
}

Result<std::shared_ptr<const Program>> ModuleDecoder::run() {
  if (module_.address_size() != 64) return Error{0, "only .address_size 64 is supported"};
  uint64_t instructions = 0;
  for (const ptx::Function& f : module_.functions()) instructions += f.statements.size();
  if (instructions > options_.max_instructions)
    return Error{0, "the module has too many instructions"};
  if (auto done = symbols(); !done) return done.error();
  if (auto done = functions(); !done) return done.error();
  if (auto done = check_recursion(); !done) return done.error();
  for (const ptx::Function& f : module_.functions()) {
    if (!f.is_entry || !f.has_body) continue;
    if (auto done = entry(f); !done) return done.error();
  }
  std::unordered_map<uint32_t, uint32_t> begins;
  for (const FunctionCode& f : program_->code.functions) {
    const auto found = context_.callee_index.find(f.name);
    if (!f.is_entry && found != context_.callee_index.end()) begins[found->second] = f.begin;
  }
  for (const ModuleContext::CallFix& fix : context_.call_fixes)
    program_->code.code[fix.inst].imm = begins.at(fix.callee);
  for (const PendingInitializer& pending : initializers_) {
    const auto find = [this](std::string_view name) -> int64_t {
      const auto found = program_->symbol_index.find(std::string(name));
      return found == program_->symbol_index.end() ? -1 : static_cast<int64_t>(found->second);
    };
    auto done = read_initializer(*pending.variable, find, options_.max_initialized_bytes,
                                 program_->symbols[pending.symbol]);
    if (!done) return done.error();
  }
  return std::shared_ptr<const Program>(std::make_shared<Program>(std::move(program_)));
}

}  // namespace
}  // namespace detail

Program::Program(std::unique_ptr<detail::ProgramData> data) : data_(std::move(data)) {}
Program::~Program() = default;
std::span<const EntryInfo> Program::entries() const { return data_->entries; }
std::span<const SymbolInfo> Program::symbols() const { return data_->symbols; }
size_t Program::instruction_count() const { return data_->code.code.size(); }
const EntryInfo* Program::find_entry(std::string_view name) const {
  const auto found = data_->entry_index.find(std::string(name));
  return found == data_->entry_index.end() ? nullptr : &data_->entries[found->second];
}
const SymbolInfo* Program::find_symbol(std::string_view name) const {
  const auto found = data_->symbol_index.find(std::string(name));
  return found == data_->symbol_index.end() ? nullptr : &data_->symbols[found->second];
}

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

Image::~Image() = default;

Result<std::shared_ptr<const Image>> Image::make(std::shared_ptr<const Program> program,
                                                 std::span<const uint64_t> symbol_addresses) {
  const detail::Code& code = program->data().code;
  if (symbol_addresses.size() != program->symbols().size())
    return Error{0, "one address per symbol is needed"};
  std::shared_ptr<Image> image(new Image());
  image->addresses_.assign(symbol_addresses.begin(), symbol_addresses.end());
  image->data_ = std::make_unique<detail::ImageData>(code.constants.size());
  if (image->data_->constants.data == nullptr)
    return Error{0, "no memory for the module's constants"};
  if (!code.constants.empty())
    std::memcpy(image->data_->constants.data, code.constants.data(), code.constants.size());
  for (const detail::ConstPatch& patch : code.patches) {
    const uint64_t value = symbol_addresses[patch.symbol] + static_cast<uint64_t>(patch.addend);
    for (uint32_t i = 0; i < kWarpLanes; ++i)
      std::memcpy(image->data_->constants.data + patch.offset + size_t{i} * 8, &value, 8);
  }
  image->program_ = std::move(program);
  return std::shared_ptr<const Image>(std::move(image));
}

std::vector<uint8_t> Image::initial_values(size_t index) const {
  const SymbolInfo& symbol = program_->symbols()[index];
  std::vector<uint8_t> bytes(symbol.initial);
  bytes.resize(symbol.bytes);
  for (const Relocation& r : symbol.relocations) {
    const uint64_t value = addresses_[r.target] + static_cast<uint64_t>(r.addend);
    if (r.offset + r.width <= bytes.size()) std::memcpy(bytes.data() + r.offset, &value, r.width);
  }
  return bytes;
}

}  // namespace sluice::exec
