// SPDX-License-Identifier: Apache-2.0
// Barriers in memory and bulk copies: mbarrier, cp.async.mbarrier, cp.async.bulk, cp.reduce.async.
#include <optional>

#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/program/ops_async.h"

namespace sluice::exec::detail {
namespace {

bool fits(int64_t offset) { return offset == static_cast<int32_t>(offset); }

// `expect`, `parity`: of an arrival with .expect_tx and a wait with .parity. None: not one of
// mbarrier's.
std::optional<MbarrierKind> mbarrier_kind(std::string_view what, bool expect, bool parity) {
  if (what == "init") return MbarrierKind::kInit;
  if (what == "inval") return MbarrierKind::kInvalidate;
  if (what == "arrive") return expect ? MbarrierKind::kArriveExpect : MbarrierKind::kArrive;
  if (what == "arrive_drop")
    return expect ? MbarrierKind::kArriveDropExpect : MbarrierKind::kArriveDrop;
  if (what == "expect_tx") return MbarrierKind::kExpect;
  if (what == "complete_tx") return MbarrierKind::kComplete;
  if (what == "test_wait" || what == "try_wait")
    return parity ? MbarrierKind::kWaitParity : MbarrierKind::kWait;
  return std::nullopt;
}

}  // namespace

bool Decoder::mbarrier_pending_count() {
  Operand a, d;
  if (!all_taken() || operand_count() != 2 || !source(text(1), Type::kU64, a) ||
      !destination(text(0), Type::kU32, d))
    return false;
  emit("mbarpending", 0, 0, d, a);
  return true;
}

bool Decoder::do_mbarrier() {
  if (words_.size() < 2) return unsupported();
  const std::string_view what = words_[1];
  taken_[1] = true;
  if (!take("b64")) return unsupported();
  if (what == "pending_count") return mbarrier_pending_count();
  Space space;
  memory_space(space);
  // Weaker than what a block on one host thread has anyway.
  take_any({"acquire", "release", "relaxed", "cta", "cluster"});
  if (space != kSpaceShared && space != kSpaceCluster && space != kSpaceGeneric)
    return unsupported();
  const bool wait = what == "test_wait" || what == "try_wait";
  const bool arrive = what == "arrive" || what == "arrive_drop";
  const bool parity = wait && take("parity"), expect = arrive && take("expect_tx");
  if (arrive && !expect) take("noComplete");
  const auto kind = mbarrier_kind(what, expect, parity);
  if (!kind) return unsupported();
  if (!all_taken()) return false;

  const size_t at_index = arrive || wait ? 1 : 0;
  // init, expect, complete, waits: one more; arrive: perhaps a count; inval: none; try_wait: a
  // hint.
  const size_t least =
      at_index + 1 + (*kind == MbarrierKind::kInvalidate || (arrive && !expect) ? 0 : 1);
  const size_t most = least + ((arrive && !expect) || what == "try_wait" ? 1 : 0);
  if (operand_count() < least || operand_count() > most) return false;
  Address at;
  if (!address(text(at_index), at) || !fits(at.offset)) return false;
  if (at.known_space) space = at.space;
  Operand b, d;
  if (operand_count() > at_index + 1 &&
      !source(text(at_index + 1), *kind == MbarrierKind::kWait ? Type::kU64 : Type::kU32, b))
    return false;
  if (arrive && text(0) != "_" && !destination(text(0), Type::kU64, d)) return false;
  if (wait) {
    uint32_t p;
    if (!destination_pred(text(0), p)) return false;
    d = raw(p);
  }
  emit("mbarrier", static_cast<uint16_t>(space | (at.narrow ? kModAddress32 : 0)),
       static_cast<int64_t>(*kind), d, at.base, b);
  emit_aux({raw(static_cast<uint32_t>(at.offset))}, false);
  return true;
}

// cp.async.mbarrier.arrive[.noinc]: the copies before it are done, so with .noinc it is an arrival;
// otherwise it would add one to the pending arrivals and take it away again.
bool Decoder::do_cp_mbarrier() {
  if (!take("mbarrier") || !take("arrive") || !take("b64")) return unsupported();
  const bool noinc = take("noinc");
  Space space;
  memory_space(space);
  if (space != kSpaceShared && space != kSpaceCluster && space != kSpaceGeneric)
    return unsupported();
  if (!all_taken() || operand_count() != 1) return false;
  Address at;
  if (!address(text(0), at) || !fits(at.offset)) return false;
  if (at.known_space) space = at.space;
  emit("mbarrier", static_cast<uint16_t>(space | (at.narrow ? kModAddress32 : 0)),
       static_cast<int64_t>(noinc ? MbarrierKind::kArrive : MbarrierKind::kExpect), {}, at.base,
       noinc ? Operand{} : constant(0, 4));
  emit_aux({raw(static_cast<uint32_t>(at.offset))}, false);
  return true;
}

namespace {

// The elements of a bulk reduction; none: the operation does not exist for this type.
std::optional<BulkType> bulk_type(BulkReduction op, Type type) {
  const bool bitwise =
      op == BulkReduction::kAnd || op == BulkReduction::kOr || op == BulkReduction::kXor;
  const bool count = op == BulkReduction::kInc || op == BulkReduction::kDec;
  const bool add = op == BulkReduction::kAdd;
  const bool compare = op == BulkReduction::kMin || op == BulkReduction::kMax;
  const auto if_allowed = [](bool allowed, BulkType elements) {
    return allowed ? std::optional(elements) : std::nullopt;
  };
  switch (type) {
    case Type::kB32:
      return if_allowed(bitwise, BulkType::kU32);
    case Type::kB64:
      return if_allowed(bitwise, BulkType::kU64);
    case Type::kU32:
      return if_allowed(!bitwise, BulkType::kU32);
    case Type::kS32:
      return if_allowed(!bitwise && !count, BulkType::kS32);
    case Type::kU64:
      return if_allowed(!bitwise && !count, BulkType::kU64);
    case Type::kS64:
      return if_allowed(!bitwise && !count, BulkType::kS64);
    case Type::kF16:
      return if_allowed(add || compare, BulkType::kF16);
    case Type::kBf16:
      return if_allowed(add || compare, BulkType::kBf16);
    case Type::kF32:
      return if_allowed(add, BulkType::kF32);
    case Type::kF64:
      return if_allowed(add, BulkType::kF64);
    default:
      return std::nullopt;
  }
}

}  // namespace

BulkReduction Decoder::take_reduction() {
  static constexpr std::pair<std::string_view, BulkReduction> kOperations[] = {
      {"add", BulkReduction::kAdd}, {"min", BulkReduction::kMin}, {"max", BulkReduction::kMax},
      {"inc", BulkReduction::kInc}, {"dec", BulkReduction::kDec}, {"and", BulkReduction::kAnd},
      {"or", BulkReduction::kOr},   {"xor", BulkReduction::kXor}};
  for (const auto& [name, operation] : kOperations)
    if (take(name)) return operation;
  return BulkReduction::kNone;
}

// Of a bulk copy: the destination's, then the source's.
std::vector<Space> Decoder::take_bulk_spaces() {
  std::vector<Space> spaces;
  for (size_t k = 1; k < words_.size(); ++k) {
    if (taken_[k]) continue;
    if (words_[k] == "global")
      spaces.push_back(kSpaceGlobal);
    else if (words_[k] == "shared::cta")
      spaces.push_back(kSpaceShared);
    else if (words_[k] == "shared::cluster")
      spaces.push_back(kSpaceCluster);
    else
      continue;
    taken_[k] = true;
  }
  return spaces;
}

// The operation and the type of a bulk reduction.
bool Decoder::take_bulk_reduction(BulkReduction& op, BulkType& type) {
  op = take_reduction();
  take("noftz");
  const auto reduced = bulk_type(op, take_type());
  if (op == BulkReduction::kNone || !reduced) return unsupported();
  type = *reduced;
  return true;
}

// cp.async.bulk.DST.SRC.COMPLETION and cp.reduce.async.bulk.DST.SRC.COMPLETION.OP.TYPE.
bool Decoder::do_cp_bulk() {
  if (has_word("tensor")) return do_tensor_copy();
  const bool reduce = take("reduce");
  if (!take("async") || !take("bulk")) return unsupported();
  if (!reduce && (take("commit_group") || take("wait_group"))) {
    take("read");
    return all_taken();  // it is done already
  }
  if (!reduce && take("prefetch")) {
    const bool hint = take("L2::cache_hint");
    if (!take("L2") || !take("global")) return unsupported();
    return all_taken() && operand_count() == (hint ? 3 : 2);
  }
  const bool hint = take("L2::cache_hint");
  const std::vector<Space> spaces = take_bulk_spaces();
  const bool barrier = take("mbarrier::complete_tx::bytes");
  if (spaces.size() != 2 || barrier == take("bulk_group") || (spaces[0] != kSpaceGlobal) != barrier)
    return unsupported();
  const bool multicast = take("multicast::cluster");
  if (multicast && (reduce || spaces[0] != kSpaceCluster || spaces[1] != kSpaceGlobal))
    return unsupported();
  BulkReduction op = BulkReduction::kNone;
  BulkType type = BulkType::kU32;
  if (reduce && !take_bulk_reduction(op, type)) return false;
  if (!all_taken() ||
      operand_count() != 3u + (barrier ? 1 : 0) + (multicast ? 1 : 0) + (hint ? 1 : 0))
    return false;
  Address to, from, bar;
  Operand bytes, blocks;
  if (multicast && !source(text(4), Type::kU16, blocks)) return false;
  if (!address(text(0), to) || !address(text(1), from) || !source(text(2), Type::kU32, bytes) ||
      (barrier && !address(text(3), bar)))
    return false;
  if (!fits(to.offset) || !fits(from.offset) || !fits(bar.offset)) return false;
  emit("cpbulk", 0,
       static_cast<int64_t>(spaces[0]) | static_cast<int64_t>(spaces[1]) << 4 |
           static_cast<int64_t>(op) << 8 | static_cast<int64_t>(type) << 12,
       {}, to.base, from.base, bytes, barrier ? bar.base : Operand{});
  emit_aux({raw(static_cast<uint32_t>(to.offset)), raw(static_cast<uint32_t>(from.offset)),
            raw(static_cast<uint32_t>(bar.offset)),
            raw((to.narrow ? 1u : 0u) | (from.narrow ? 2u : 0u) | (bar.narrow ? 4u : 0u)),
            multicast ? blocks : raw(kNoOperand)},
           false);
  return true;
}

// st.async and red.async: to another block's shared memory; what arrives counts at an mbarrier
// there.
bool Decoder::do_store_async(bool reduction) {
  take("async");
  take_any({"weak", "relaxed", "cluster"});
  if (!take("shared::cluster") || !take("mbarrier::complete_tx::bytes")) return unsupported();
  BulkReduction op = BulkReduction::kNone;
  if (reduction) op = take_reduction();
  const size_t vector = reduction ? 1 : take("v2") ? 2 : take("v4") ? 4 : 1;
  const Type type = take_type();
  const uint32_t bits = bits_of(type);
  if (!all_taken() || (bits != 32 && bits != 64) || (reduction && op == BulkReduction::kNone))
    return unsupported();
  BulkType elements = BulkType::kU32;
  if (reduction) {
    const auto reduced = bulk_type(op, type);
    // 64 bits only of sums.
    if (!reduced || is_float(type) || (bits == 64 && op != BulkReduction::kAdd))
      return unsupported();
    elements = *reduced;
  }
  Address to, bar;
  if (operand_count() != 3 || !address(text(0), to) || !address(text(2), bar) || !fits(to.offset) ||
      !fits(bar.offset))
    return false;
  std::vector<std::string_view> names = braces(text(1));
  if (names.empty()) names.push_back(text(1));
  if (names.size() != vector) return false;
  std::vector<Operand> aux = {raw(static_cast<uint32_t>(to.offset)),
                              raw(static_cast<uint32_t>(bar.offset)),
                              raw((to.narrow ? 1u : 0u) | (bar.narrow ? 2u : 0u)), raw(bits / 8),
                              raw(static_cast<uint32_t>(vector))};
  for (const std::string_view name : names) {
    Operand value;
    if (!source(name, type, value)) return false;
    aux.push_back(value);
  }
  emit("stasync", 0, static_cast<int64_t>(op) | static_cast<int64_t>(elements) << 4, {}, to.base,
       bar.base);
  emit_aux(aux, false);
  return true;
}

// A cache policy has no effect here; its bits are the implementation's own.
bool Decoder::do_createpolicy() {
  Operand d;
  if (words_.back() != "b64" || operand_count() < 1 || !destination(text(0), Type::kU64, d))
    return unsupported();
  emit("mov_b64", 0, 0, d, constant(0, 8));
  return true;
}

}  // namespace sluice::exec::detail
