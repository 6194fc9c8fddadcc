// SPDX-License-Identifier: Apache-2.0
// Memory instructions: ld, st, atom, red, fences, cp.async, cvta, isspacep.
#include "kernels/exec/block/block.h"
#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {

// The state space word, if any.
bool Decoder::memory_space(Space& space) {
  if (take_any({"shared", "shared::cta"}))
    space = kSpaceShared;
  else if (take("shared::cluster"))
    space = kSpaceCluster;
  else if (take_any({"global", "const"}))
    space = kSpaceGlobal;
  else if (take("local"))
    space = kSpaceLocal;
  else if (take_any({"param", "param::entry", "param::func"}))
    space = kSpaceParam;
  else
    space = kSpaceGeneric;
  return true;
}

uint16_t Decoder::take_order_and_hints() {
  uint16_t mod = 0;
  if (take_any({"volatile", "relaxed", "mmio"})) mod |= kModStrong;
  if (take("acquire")) mod |= kModStrong | kModAcquire;
  if (take("release")) mod |= kModStrong | kModRelease;
  take_any({"cta", "cluster", "gpu", "sys", "weak", "ca", "cg", "cs", "lu", "cv", "nc", "unified",
            "wb", "wt"});
  take_any({"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
            "L1::no_allocate"});
  take_any(
      {"L2::64B", "L2::128B", "L2::256B", "L2::evict_first", "L2::evict_last", "L2::evict_normal"});
  return mod;
}

// One register, or a brace list of them: as many as `values` has room for.
bool Decoder::vector_values(std::string_view list, bool store, Type type,
                            std::vector<Operand>& values) {
  std::vector<std::string_view> names = braces(list);
  if (names.empty()) names.push_back(list);
  if (names.size() != values.size()) return false;
  for (size_t k = 0; k < names.size(); ++k)
    if (!(store ? source(names[k], type, values[k]) : destination(names[k], type, values[k])))
      return false;
  return true;
}

// ld, ldu and st; which words each may have is in forms.cc.
bool Decoder::do_ld_st() {
  const bool store = words_[0] == "st";
  if (store && has_word("async")) return do_store_async(false);
  const bool hint = take("L2::cache_hint");
  Space space;
  memory_space(space);
  // Blocks hand values to one another by vectors that no cache keeps (CUB's look-back until 2.1).
  const bool uncached = has_word("cg") || has_word("cv");
  uint16_t mod = take_order_and_hints();
  size_t vector = take("v2") ? 2 : take("v4") ? 4 : 1;
  if (vector > 1 && uncached) mod |= kModStrong;
  Type type = take_type();
  if (type == Type::kNone || type == Type::kPred || bits_of(type) * vector > 128)
    return unsupported();
  if (!all_taken() || operand_count() != (hint ? 3u : 2u)) return false;
  if (Operand policy; hint && !source(text(2), Type::kB64, policy)) return false;
  const bool wide = type == Type::kB128;  // as two of 64 bits
  if (wide) {
    type = Type::kB64;
    vector = 2;
  }
  Address at;
  if (!address(text(store ? 0 : 1), at)) return false;
  // Parameters of a .func, and those of calls, are local memory; an entry's are the launch's.
  if (at.known_space && (space == kSpaceParam || space == kSpaceGeneric))
    space = at.space;
  else if (space == kSpaceParam && !function_.is_entry)
    space = kSpaceLocal;
  const std::string_view list = text(store ? 1 : 0);
  std::vector<Operand> values(vector);
  if (wide) {
    Operand pair[2];
    if (!pair128(list, !store, pair)) return false;
    values = {pair[0], pair[1]};
  } else {
    if (!vector_values(list, store, type, values)) return false;
  }
  const uint32_t bits = bits_of(type);
  const std::string suffix = bits >= 32 ? bits_name(type)
                             : store    ? bits == 8 ? "u8" : "u16"
                                     : exact_name(bits == 16 && is_float(type) ? Type::kU16 : type);
  mod = static_cast<uint16_t>(mod | space | (at.narrow ? kModAddress32 : 0));
  const std::string name = std::string(store ? "st" : "ld") +
                           (vector == 1   ? "_"
                            : vector == 2 ? "v2_"
                                          : "v4_") +
                           suffix;
  const Operand single = vector == 1 ? values[0] : Operand{};
  emit(name, mod, at.offset, store ? Operand{} : single, at.base, store ? single : Operand{});
  if (vector > 1) emit_aux(values, !store);
  return true;
}

bool Decoder::do_atom() {
  const bool reduction = words_[0] == "red";
  if (reduction && has_word("async")) return do_store_async(true);
  Space space;
  memory_space(space);
  if (has_word("b128")) return do_atom128(space);
  if (has_word("v2") || has_word("v4") || has_word("v8")) return do_atom_vector(reduction, space);
  // Host atomics are sequentially consistent, whatever is asked for; the checker asks what was.
  uint16_t order = 0;
  if (take("acquire")) order |= kModAcquire;
  if (take("release")) order |= kModRelease;
  if (take("acq_rel")) order |= kModAcquire | kModRelease;
  take_any({"relaxed", "cta", "cluster", "gpu", "sys", "noftz"});
  const bool hint = take("L2::cache_hint");
  static constexpr std::string_view operations[] = {"add", "min",  "max", "and", "or",
                                                    "xor", "exch", "inc", "dec", "cas"};
  std::string operation;
  for (const std::string_view word : operations)
    if (operation.empty() && take(word)) operation = word;
  const Type type = take_type();
  if (operation.empty() || type == Type::kNone || !all_taken()) return unsupported();
  if (space == kSpaceLocal || space == kSpaceParam) return unsupported();
  const size_t first = reduction ? 0 : 1;
  const bool cas = operation == "cas";
  if (operand_count() != first + (cas ? 3u : 2u) + (hint ? 1u : 0u)) return false;
  const bool bitwise = operation == "and" || operation == "or" || operation == "xor" ||
                       operation == "exch" || cas || (operation == "add" && !is_float(type));
  Address at;
  if (!address(text(first), at)) return false;
  if (at.known_space && space == kSpaceGeneric) space = at.space;
  Operand b, c, d;
  if (!source(text(first + 1), type, b)) return false;
  if (cas && !source(text(first + 2), type, c)) return false;
  if (!reduction && !destination(text(0), type, d)) return false;
  const uint16_t mod = static_cast<uint16_t>(space | order | (at.narrow ? kModAddress32 : 0));
  emit("atom_" + operation + "_" + (bitwise ? bits_name(type) : exact_name(type)), mod, at.offset,
       d, at.base, b, c);
  return true;
}

bool Decoder::do_fence() {
  // One-sided and proxy fences are weaker than the full one that we make.
  if (take("tensormap::generic")) {  // an acquisition names the map: [address], 128
    Address at;
    uint64_t bytes;
    if (has_word("acquire") ? operand_count() != 2 || !address(text(0), at) ||
                                  !immediate(text(1), Type::kU32, bytes) || bytes != 128
                            : operand_count() != 0)
      return false;
    emit("fence", 0, 0);
    return true;
  }
  take_any({"mbarrier_init", "acquire", "release"});
  take_any(
      {"cta", "cluster", "gl", "gpu", "sys", "sc", "acq_rel", "proxy", "alias", "async", "global"});
  take_any(
      {"shared::cta", "shared::cluster", "async::generic", "async::global", "async::shared::cta"});
  take_any({"sync_restrict::shared::cta", "sync_restrict::shared::cluster"});
  if (!all_taken() || operand_count() != 0) return false;
  emit("fence", 0, 0);
  return true;
}

bool Decoder::do_cp() {
  for (const std::string_view word : words_) {
    if (word == "bulk") return do_cp_bulk();
    if (word == "mbarrier") {
      take("async");
      return do_cp_mbarrier();
    }
  }
  if (!take("async")) return unsupported();
  if (take_any({"commit_group", "wait_group", "wait_all"}))
    return all_taken();  // it is done already
  take_any({"ca", "cg"});
  if (!take_any({"shared", "shared::cta"}) || !take("global")) return unsupported();
  take_any({"L2::64B", "L2::128B", "L2::256B"});
  const size_t operands = operand_count() - (take("L2::cache_hint") ? 1 : 0);  // the policy is last
  if (!all_taken()) return false;
  if (operands != 3 && operands != 4) return false;
  Address to, from;
  uint64_t bytes;
  if (!address(text(0), to) || !address(text(1), from) || !immediate(text(2), Type::kU32, bytes))
    return false;
  if ((bytes != 4 && bytes != 8 && bytes != 16) || from.narrow) return unsupported();
  Operand limit;
  if (operands == 4) {
    // Bytes to read, or a predicate: ignore the source and write zeros.
    Register reg;
    uint32_t ignore;
    const std::string_view name = text(3).substr(text(3).empty() || text(3)[0] != '!' ? 0 : 1);
    if (find_register(name, reg) && reg.is_pred) {
      if (!source_pred(text(3), ignore)) return false;
      limit = temporary(4);
      emit("selp_b32", 0, 0, limit, constant(0, 4), constant(bytes, 4), raw(ignore));
    } else if (!source(text(3), Type::kU32, limit)) {
      return false;
    }
  }
  emit("cpasync", to.narrow ? kModAddress32 : kModNone, static_cast<int64_t>(bytes), {}, to.base,
       from.base, limit);
  emit_aux({raw(static_cast<uint32_t>(to.offset)), raw(static_cast<uint32_t>(from.offset))}, false);
  return true;
}

bool Decoder::do_cvta() {
  const bool to = take("to");
  Space space;
  memory_space(space);
  const Type type = take_type();
  if (bits_of(type) != 64 || !all_taken()) return unsupported();
  if (space == kSpaceGeneric || operand_count() != 2) return false;
  Operand a, d;
  if (!source(text(1), Type::kU64, a) || !destination(text(0), Type::kU64, d)) return false;
  if (space == kSpaceGlobal) {  // and .const: their addresses are generic already
    emit("mov_b64", 0, 0, d, a);
    return true;
  }
  const bool shared = space == kSpaceShared || space == kSpaceCluster;
  const uint64_t window = shared                 ? kSharedWindow
                          : space == kSpaceLocal ? kLocalWindow
                                                 : kParamWindow;
  emit(to ? "sub_b64" : "add_b64", 0, 0, d, a, constant(window, 8));
  return true;
}

bool Decoder::do_isspacep() {
  const bool is_const = take("const"), is_global = has_word("global");
  Space space;
  memory_space(space);
  if (!all_taken()) return unsupported();
  const uint64_t window = space == kSpaceCluster ? kSharedWindow
                          : space == kSpaceLocal ? kLocalWindow
                          : space == kSpaceParam ? kParamWindow
                                                 : 0;
  Operand a;
  uint32_t p;
  if (operand_count() != 2 || !destination_pred(text(0), p) || p == kNoOperand ||
      !source(text(1), Type::kU64, a))
    return false;
  if (space == kSpaceShared)
    emit("isown", 0, 0, raw(p), a);
  else if (is_const || is_global)
    emit("isconst", 0, is_const ? 1 : 0, raw(p), a);
  else
    emit("isspacep", 0, static_cast<int64_t>(window), raw(p), a);
  return true;
}

}  // namespace sluice::exec::detail
