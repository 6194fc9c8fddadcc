// SPDX-License-Identifier: Apache-2.0
// Calls: direct and through pointers, to functions with and without bodies; alloca and the stack
// pointer.
//
// Every activation of a .func has a frame in local memory: parameters, results, variables, in that
// order from the frame's beginning, so that a caller knows from the parameters' types alone where
// they lie (Layout). The caller's own pieces are relative to its frame pointer, the callee's to the
// stack pointer at the call.
#include <algorithm>

#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {
namespace {

// "(.param .align 8 .b8 _[16], .param .b32 _)" from its opening parenthesis; what follows it stays
// in `text`. False: not understood.
bool parse_parameters(std::string_view& text, std::vector<ParameterShape>& out) {
  text = ptx::trimmed(text);
  if (text.empty() || text.front() != '(') return false;
  const size_t close = text.find(')');
  if (close == std::string_view::npos) return false;
  std::string_view list = text.substr(1, close - 1);
  text = ptx::trimmed(text.substr(close + 1));
  while (!ptx::trimmed(list).empty()) {
    const size_t comma = list.find(',');
    std::string_view one = ptx::trimmed(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    ParameterShape shape;
    uint64_t element = 0, count = 1;
    bool pointer = false;
    while (!one.empty()) {
      size_t end = 0;
      while (end < one.size() && std::string_view(" \t\r\n[").find(one[end]) == one.npos) ++end;
      const std::string_view word = one.substr(0, end);
      one = ptx::trimmed(one.substr(end));
      if (word == ".align") {
        size_t digits = 0;
        while (digits < one.size() && one[digits] >= '0' && one[digits] <= '9') ++digits;
        uint64_t value;
        if (!ptx::parse_integer(one.substr(0, digits), value) || value == 0 || value > 4096)
          return false;
        if (!pointer) shape.align = static_cast<uint32_t>(value);
        one = ptx::trimmed(one.substr(digits));
      } else if (word == ".ptr") {
        pointer = true;
      } else if (word == ".param" || word == ".reg" || word == ".global" || word == ".shared" ||
                 word == ".local" || word == ".const") {
      } else if (!word.empty() && word.front() == '.') {
        element = ptx::type_bytes(word.substr(1));
        if (element == 0) return false;
      } else if (one.substr(0, 1) == "[") {
        const size_t end_of_size = one.find(']');
        if (end_of_size == one.npos ||
            !ptx::parse_integer(ptx::trimmed(one.substr(1, end_of_size - 1)), count))
          return false;
        one = ptx::trimmed(one.substr(end_of_size + 1));
      } else if (word.empty()) {
        return false;
      }
    }
    if (element == 0 || count == 0 || count > kMaxLocalBytes) return false;
    shape.bytes = element * count;
    if (shape.align == 0) shape.align = static_cast<uint32_t>(element);
    out.push_back(shape);
  }
  return true;
}

}  // namespace

bool make_layout(const std::vector<ParameterShape>& params,
                 const std::vector<ParameterShape>& returns, Layout& layout) {
  uint64_t end = 0;
  const auto place = [&](const std::vector<ParameterShape>& list, std::vector<Piece>& pieces) {
    for (const ParameterShape& p : list) {
      const uint64_t align = std::max<uint64_t>(p.align, 1);
      end = (end + align - 1) / align * align;
      if (p.bytes == 0 || p.bytes > kMaxLocalBytes || end + p.bytes > kMaxLocalBytes) return false;
      pieces.push_back({static_cast<uint32_t>(end), static_cast<uint32_t>(p.bytes)});
      end += p.bytes;
      layout.align = std::max(layout.align, p.align);
    }
    return true;
  };
  if (!place(params, layout.params) || !place(returns, layout.returns)) return false;
  layout.end = end;
  return true;
}

void ModuleContext::sign(Layout& layout) {
  std::string key;
  for (const Piece& p : layout.params)
    key += std::to_string(p.offset) + ":" + std::to_string(p.bytes) + ",";
  key += ">";
  for (const Piece& p : layout.returns)
    key += std::to_string(p.offset) + ":" + std::to_string(p.bytes) + ",";
  layout.signature =
      signatures.try_emplace(std::move(key), static_cast<uint32_t>(signatures.size() + 1))
          .first->second;
}

Operand Decoder::frame_base() { return function_.is_entry ? constant(0, 8) : raw(kFramePointer); }

bool Decoder::frame_access(bool store, std::string_view operand, uint64_t offset, uint32_t bytes) {
  const Type type = bytes == 1   ? Type::kB8
                    : bytes == 2 ? Type::kB16
                    : bytes == 4 ? Type::kB32
                    : bytes == 8 ? Type::kB64
                                 : Type::kNone;
  if (type == Type::kNone) return false;
  const std::string suffix = bytes == 1 ? "u8" : bytes == 2 ? "u16" : bytes == 4 ? "b32" : "b64";
  Operand value;
  if (store ? !source(operand, type, value) : !destination(operand, type, value)) return false;
  const int64_t imm = static_cast<int64_t>(offset);
  if (store)
    emit("st_" + suffix, kSpaceLocal, imm, {}, frame_base(), value);
  else
    emit("ld_" + suffix, kSpaceLocal, imm, value, frame_base());
  return true;
}

// Formal parameters in registers arrive in the frame like the others.
bool Decoder::register_parameters() {
  if (function_.is_entry) return true;
  const Layout& layout = module_.callees[node_].layout;
  for (size_t k = 0; k < function_.params.size(); ++k) {
    if (function_.params[k].space != ptx::Space::kReg) continue;
    if (!frame_access(false, function_.params[k].name, layout.params[k].offset,
                      layout.params[k].bytes) ||
        !finish_statement())
      return absent("the parameter " + std::string(function_.params[k].name) + " is not supported");
  }
  return true;
}
bool Decoder::register_results() {
  if (function_.is_entry) return true;
  const Layout& layout = module_.callees[node_].layout;
  for (size_t k = 0; k < function_.returns.size(); ++k) {
    if (function_.returns[k].space != ptx::Space::kReg) continue;
    if (!frame_access(true, function_.returns[k].name, layout.returns[k].offset,
                      layout.returns[k].bytes))
      return absent("the result " + std::string(function_.returns[k].name) + " is not supported");
  }
  return true;
}

bool Decoder::call_prototype(std::string_view name, Layout& layout) {
  const ptx::Statement* found = nullptr;
  for (uint32_t scope = statement_->scope;; scope = function_.scopes[scope].parent) {
    const auto it = prototypes_.find({scope, name});
    if (it != prototypes_.end()) found = it->second;
    if (found != nullptr || scope == 0) break;
  }
  if (found == nullptr) return fail("unknown call prototype or targets " + std::string(name));
  if (found->opcode == ".calltargets") {
    if (found->operands.empty()) return fail("no targets of the call");
    for (const std::string_view target : found->operands) {
      const auto callee = module_.callee_index.find(target);
      if (callee == module_.callee_index.end())
        return fail("call of unknown function " + std::string(target));
      layout = module_.callees[callee->second].layout;
    }
    return true;
  }
  if (found->operands.size() != 1) return absent("the call prototype is not understood");
  std::string_view text = ptx::trimmed(found->operands[0]);
  std::vector<ParameterShape> params, returns;
  if (!text.empty() && text.front() == '(' && !parse_parameters(text, returns))
    return absent("the results of the call prototype are not understood");
  const size_t open = text.find_first_of("( \t");  // its name, usually `_`
  text = open == text.npos ? std::string_view() : ptx::trimmed(text.substr(open));
  if (!text.empty() && text.front() == '(' && !parse_parameters(text, params))
    return absent("the parameters of the call prototype are not understood");
  while (!text.empty()) {
    const size_t end = text.find_first_of(" \t\n");
    const std::string_view word = text.substr(0, end);
    text = end == text.npos ? std::string_view() : ptx::trimmed(text.substr(end));
    // They say what the compiler may assume or keep.
    if (word != ".noreturn" && word.substr(0, 13) != ".abi_preserve" &&
        word.find_first_not_of("0123456789") != word.npos)
      return absent(std::string(word) + " of a call prototype is not supported");
  }
  if (!make_layout(params, returns, layout))
    return fail("the parameters of the call prototype are too large");
  module_.sign(layout);
  return true;
}

namespace {

struct Known {
  std::string_view name;
  Builtin builtin;
  std::vector<uint64_t> arguments;  // bytes of each
  uint64_t result;
};
// The device runtime's names are without their prefix, __cudaCDP2 or cuda, and without _ptsz.
const std::vector<Known>& known_functions() {
  static const std::vector<Known> all = {
      {"vprintf", Builtin::kVprintf, {8, 8}, 4},
      {"__assertfail", Builtin::kAssertFail, {8, 8, 4, 8, 8}, 0},
      {"malloc", Builtin::kMalloc, {8}, 8},
      {"free", Builtin::kFree, {8}, 0},
      {"GetParameterBufferV2", Builtin::kLaunchParameters, {8, 12, 12, 4}, 8},
      {"LaunchDeviceV2", Builtin::kLaunch, {8, 8}, 4},
      {"MemcpyAsync", Builtin::kCopy, {8, 8, 8, 4, 8}, 4},
      {"MemsetAsync", Builtin::kFill, {8, 4, 8, 8}, 4},
      {"GetLastError", Builtin::kLastError, {}, 4},
      {"PeekAtLastError", Builtin::kPeekAtLastError, {}, 4},
      {"GetErrorName", Builtin::kErrorName, {4}, 8},
      {"GetErrorString", Builtin::kErrorText, {4}, 8},
      {"DeviceGetLimit", Builtin::kLimit, {8, 4}, 4},
      {"StreamCreateWithFlags", Builtin::kMakeHandle, {8, 4}, 4},
      {"EventCreateWithFlags", Builtin::kMakeHandle, {8, 4}, 4},
      // A grid's launches run in their order: nothing is left to wait for.
      {"StreamDestroy", Builtin::kNothingToDo, {8}, 4},
      {"EventDestroy", Builtin::kNothingToDo, {8}, 4},
      {"EventRecord", Builtin::kNothingToDo, {8, 8}, 4},
      {"StreamWaitEvent", Builtin::kNothingToDo, {8, 8, 4}, 4},
      {"EventRecordWithFlags", Builtin::kNothingToDo, {8, 8, 4}, 4},
      {"Memcpy2DAsync", Builtin::kCopyRows, {8, 8, 8, 8, 8, 8, 4, 8}, 4},
      {"Memset2DAsync", Builtin::kFillRows, {8, 8, 4, 8, 8, 8}, 4},
      {"GetDevice", Builtin::kGetDevice, {8}, 4},
      {"GetDeviceCount", Builtin::kDeviceCount, {8}, 4},
      {"RuntimeGetVersion", Builtin::kRuntimeVersion, {8}, 4},
      {"DeviceGetCacheConfig", Builtin::kCacheConfig, {8}, 4},
      {"DeviceGetAttribute", Builtin::kDeviceAttribute, {8, 4, 4}, 4},
      {"FuncGetAttributes", Builtin::kKernelAttributes, {8, 8}, 4},
      {"OccupancyMaxActiveBlocksPerMultiprocessor", Builtin::kOccupancy, {8, 8, 4, 8}, 4},
      {"OccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
       Builtin::kOccupancy,
       {8, 8, 4, 8, 4},
       4},
      {"Malloc", Builtin::kDeviceMalloc, {8, 8}, 4},
      {"Free", Builtin::kDeviceFree, {8}, 4}};
  return all;
}

constexpr std::string_view kDeviceRuntime[] = {"__cudaCDP2", "cuda"};

bool is_device_runtime(std::string_view name) {
  return std::any_of(std::begin(kDeviceRuntime), std::end(kDeviceRuntime),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is(const Known& known, std::string_view name) {
  if (!of_device_runtime(known.builtin)) return known.name == name;
  for (const std::string_view prefix : kDeviceRuntime) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    if (name.ends_with("_ptsz")) name.remove_suffix(5);
    return known.name == name;
  }
  return false;
}

}  // namespace

bool Decoder::call_builtin(const Callee& callee, const std::vector<std::string_view>& results,
                           const std::vector<std::string_view>& arguments) {
  const std::string name(callee.function->name);
  for (const Known& known : known_functions()) {
    if (!is(known, name)) continue;
    if (arguments.size() != known.arguments.size() ||
        results.size() > (known.result != 0 ? 1u : 0u))
      return fail("the call of " + name + " does not match the function");
    std::vector<Operand> offsets;
    const auto local = [&](std::string_view variable, uint64_t bytes) {
      const Place* place = find_place(variable);
      if (place == nullptr || place->space != kSpaceLocal || place->bytes != bytes)
        return absent("the call of " + name + " needs .param variables of its parameters' sizes");
      offsets.push_back(raw(static_cast<uint32_t>(place->offset)));
      return true;
    };
    for (size_t k = 0; k < arguments.size(); ++k)
      if (!local(arguments[k], known.arguments[k])) return false;
    Operand result;
    if (!results.empty()) {
      if (!local(results[0], known.result)) return false;
      result = offsets.back();
      offsets.pop_back();
    }
    if (needs_launches(known.builtin)) module_.program->launches_kernels = true;
    emit("builtin", 0, static_cast<int64_t>(known.builtin), result);
    emit_aux(offsets, false);
    return true;
  }
  const std::string what = "call of the external function " + name + " is not supported";
  return is_device_runtime(name) ? absent(what) : fail(what);
}

bool Decoder::do_call() {
  take("uni");
  if (!all_taken()) return false;
  size_t k = 0;
  std::vector<std::string_view> results, arguments;
  if (k < operand_count() && text(k).starts_with('(')) results = braces(text(k++));
  if (k >= operand_count()) return false;
  const std::string_view name = text(k++);
  if (k < operand_count() && text(k).starts_with('(')) arguments = braces(text(k++));
  Layout prototype;
  const Layout* layout = nullptr;
  Operand target;
  int64_t callee_index = -1;
  Register pointer;
  if (find_register(name, pointer)) {
    if (k + 1 != operand_count()) return fail("a call through a register needs its prototype");
    if (!call_prototype(text(k), prototype) || !source(name, Type::kU64, target)) return false;
    layout = &prototype;
    module_.nodes[node_].signatures.push_back(prototype.signature);
  } else {
    if (k != operand_count()) return false;
    const auto found = module_.callee_index.find(name);
    if (found == module_.callee_index.end())
      return fail("call of unknown function " + std::string(name));
    const Callee& callee = module_.callees[found->second];
    if (!callee.unread.empty()) return absent(callee.unread);
    if (!callee.function->has_body) return call_builtin(callee, results, arguments);
    layout = &callee.layout;
    callee_index = found->second;
    module_.nodes[node_].callees.push_back(found->second);
  }
  if (arguments.size() != layout->params.size() || results.size() != layout->returns.size())
    return fail("the call of " + std::string(name) + " does not match its declaration");
  const uint32_t guard = guard_;
  std::vector<Operand> copies;
  if (!pass_arguments(arguments, *layout, copies)) return false;
  guard_ = guard;
  emit("call", 0, callee_index, {}, target, raw(layout->signature));
  emit_aux(copies, false);
  return results.empty() || take_results(results, *layout);
}

// Where an argument or a result lies in this frame; registers and constants get a place first.
bool Decoder::place_in_frame(std::string_view operand, const Piece& piece, bool& in_register,
                             uint64_t& offset) {
  const Place* place = find_place(operand);
  in_register = place == nullptr;
  if (place != nullptr) {
    if (place->space != kSpaceLocal || place->bytes < piece.bytes)
      return absent("arguments and results of calls must be .param variables of the right size");
    offset = place->offset;
    return true;
  }
  local_end_ = (local_end_ + 7) / 8 * 8;
  offset = local_end_;
  local_end_ += piece.bytes;
  return true;
}

// `copies`: the number, then for each its place here, its place there, and its size.
bool Decoder::pass_arguments(const std::vector<std::string_view>& arguments, const Layout& layout,
                             std::vector<Operand>& copies) {
  copies = {raw(static_cast<uint32_t>(arguments.size()))};
  for (size_t i = 0; i < arguments.size(); ++i) {
    bool in_register = false;
    uint64_t offset = 0;
    const Piece& piece = layout.params[i];
    if (!place_in_frame(arguments[i], piece, in_register, offset)) return false;
    if (in_register && !frame_access(true, arguments[i], offset, piece.bytes)) return false;
    copies.push_back(raw(static_cast<uint32_t>(offset)));
    copies.push_back(raw(piece.offset));
    copies.push_back(raw(piece.bytes));
  }
  return true;
}

bool Decoder::take_results(const std::vector<std::string_view>& results, const Layout& layout) {
  std::vector<std::pair<size_t, uint64_t>> loads;
  std::vector<Operand> copies = {raw(static_cast<uint32_t>(results.size()))};
  for (size_t i = 0; i < results.size(); ++i) {
    bool in_register = false;
    uint64_t offset = 0;
    const Piece& piece = layout.returns[i];
    if (!place_in_frame(results[i], piece, in_register, offset)) return false;
    if (in_register) loads.emplace_back(i, offset);
    copies.push_back(raw(static_cast<uint32_t>(offset)));
    copies.push_back(raw(piece.offset));
    copies.push_back(raw(piece.bytes));
  }
  emit("results", 0, 0);
  emit_aux(copies, false);
  for (const auto& [i, offset] : loads)
    if (results[i] != "_" && !frame_access(false, results[i], offset, layout.returns[i].bytes))
      return false;
  return true;
}

bool Decoder::do_alloca() {
  const Type type = take_type();
  if (bits_of(type) < 32 || !all_taken() || operand_count() < 2 || operand_count() > 3)
    return unsupported();
  uint64_t align = 8;
  if (operand_count() == 3 && (!immediate(text(2), Type::kU32, align) || align == 0 ||
                               align > 4096 || (align & (align - 1)) != 0))
    return false;
  Operand d, size;
  if (!source(text(1), Type::kU64, size) || !destination(text(0), Type::kU64, d)) return false;
  emit("alloca", 0, static_cast<int64_t>(align), d, size);
  module_.nodes[node_].alloca = true;
  return true;
}

bool Decoder::do_stack() {
  const bool save = words_[0] == "stacksave";
  const Type type = take_type();
  if (bits_of(type) < 32 || !all_taken() || operand_count() != 1) return unsupported();
  Operand value;
  module_.nodes[node_].alloca = true;
  if (save) {
    if (!destination(text(0), Type::kU64, value)) return false;
    emit("mov_b64", 0, 0, value, raw(kStackPointer));
  } else {
    if (!source(text(0), Type::kU64, value)) return false;
    emit("mov_b64", 0, 0, raw(kStackPointer), value);
  }
  return true;
}

}  // namespace sluice::exec::detail
