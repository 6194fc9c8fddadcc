// SPDX-License-Identifier: Apache-2.0
// Types as instructions name them, and the constants that a module's functions share.
#include <cstring>

#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {

Type type_of(std::string_view word) {
  static const std::unordered_map<std::string_view, Type> types = {
      {"pred", Type::kPred},   {"b8", Type::kB8},         {"u8", Type::kU8},
      {"s8", Type::kS8},       {"b16", Type::kB16},       {"u16", Type::kU16},
      {"s16", Type::kS16},     {"b32", Type::kB32},       {"u32", Type::kU32},
      {"s32", Type::kS32},     {"b64", Type::kB64},       {"u64", Type::kU64},
      {"s64", Type::kS64},     {"f16", Type::kF16},       {"bf16", Type::kBf16},
      {"f16x2", Type::kF16x2}, {"bf16x2", Type::kBf16x2}, {"f32", Type::kF32},
      {"f64", Type::kF64},     {"tf32", Type::kTf32},     {"b128", Type::kB128}};
  const auto found = types.find(word);
  return found == types.end() ? Type::kNone : found->second;
}

uint32_t bits_of(Type type) {
  switch (type) {
    case Type::kPred:
      return 1;
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
      return 8;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
      return 16;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 64;
    case Type::kB128:
      return 128;
    default:
      return 32;
  }
}

bool is_signed(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

bool is_float(Type type) {
  return type == Type::kF32 || type == Type::kF64 || type == Type::kF16 || type == Type::kBf16 ||
         type == Type::kF16x2 || type == Type::kBf16x2;
}

const char* exact_name(Type type) {
  switch (type) {
    case Type::kB8:
    case Type::kU8:
      return "u8";
    case Type::kS8:
      return "s8";
    case Type::kB16:
    case Type::kU16:
      return "u16";
    case Type::kS16:
      return "s16";
    case Type::kB32:
    case Type::kU32:
      return "u32";
    case Type::kS32:
      return "s32";
    case Type::kB64:
    case Type::kU64:
      return "u64";
    case Type::kS64:
      return "s64";
    case Type::kF16:
      return "f16";
    case Type::kBf16:
      return "bf16";
    case Type::kF16x2:
      return "f16x2";
    case Type::kBf16x2:
      return "bf16x2";
    case Type::kF32:
      return "f32";
    case Type::kF64:
      return "f64";
    case Type::kPred:
      return "pred";
    default:
      return "none";
  }
}

const char* bits_name(Type type) {
  switch (bits_of(type)) {
    case 1:
      return "pred";
    case 8:
      return "u8";
    case 16:
      return "b16";
    case 64:
      return "b64";
    default:
      return "b32";
  }
}

uint32_t ModuleContext::append(uint64_t value, uint32_t width) {
  std::vector<uint8_t>& pool = program->code.constants;
  const uint32_t offset = static_cast<uint32_t>(pool.size());
  pool.resize(pool.size() + size_t{32} * width);
  for (uint32_t i = 0; i < 32; ++i)
    std::memcpy(pool.data() + offset + size_t{i} * width, &value, width);
  return offset | kConstBit;
}
uint32_t ModuleContext::constant32(uint32_t value) {
  const auto [it, fresh] = constants32.try_emplace(value, 0);
  if (fresh) it->second = append(value, 4);
  return it->second;
}
uint32_t ModuleContext::constant64(uint64_t value) {
  const auto [it, fresh] = constants64.try_emplace(value, 0);
  if (fresh) it->second = append(value, 8);
  return it->second;
}
uint32_t ModuleContext::symbol_address(uint32_t symbol, int64_t addend) {
  const std::string key = std::to_string(symbol) + "+" + std::to_string(addend);
  const auto [it, fresh] = symbol_constants_.try_emplace(key, 0);
  if (fresh) {
    it->second = append(0, 8);
    program->code.patches.push_back({it->second & ~kConstBit, symbol, addend});
  }
  return it->second;
}

}  // namespace sluice::exec::detail
