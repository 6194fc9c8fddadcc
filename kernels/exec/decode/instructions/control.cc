// SPDX-License-Identifier: Apache-2.0
// Control flow, barriers and warp-wide instructions.
#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {

bool Decoder::do_bra() {
  const bool uniform = take("uni");
  uint32_t id;
  if (!all_taken() || operand_count() != 1) return false;
  if (!label(text(0), id)) return false;
  const uint32_t index = emit("bra", 0, 0);
  label_uses_.push_back({index, id, false, 0});
  uniform_.back() = uniform;
  return true;
}

bool Decoder::do_brx() {
  if (!take("idx")) return unsupported();
  const bool uniform = take("uni");
  if (!all_taken() || operand_count() != 2) return false;
  const std::vector<std::string_view>* targets = nullptr;
  for (uint32_t scope = statement_->scope;; scope = function_.scopes[scope].parent) {
    const auto found = branch_targets_.find({scope, text(1)});
    if (found != branch_targets_.end()) targets = &found->second;
    if (targets != nullptr || scope == 0) break;
  }
  if (targets == nullptr) return fail("unknown branch targets " + std::string(text(1)));
  Operand a;
  if (!source(text(0), Type::kU32, a)) return false;
  emit("brx", 0, 0, {}, a);
  std::vector<Operand> table = {raw(static_cast<uint32_t>(targets->size()))};
  for (size_t k = 0; k < targets->size(); ++k) table.push_back(raw(0));
  emit_aux(table, false);
  const uint32_t index = static_cast<uint32_t>(code_.size() - 1);
  for (size_t k = 0; k < targets->size(); ++k) {
    uint32_t id;
    if (!label((*targets)[k], id)) return false;
    label_uses_.push_back({index, id, true, code_.back().aux + 1 + static_cast<uint32_t>(k)});
  }
  uniform_.back() = uniform;
  return true;
}

bool Decoder::do_ret() {
  take("uni");
  if (!all_taken() || operand_count() != 0 || !register_results()) return false;
  emit("ret", 0, 0);
  return true;
}
bool Decoder::do_exit() {
  if (!all_taken() || operand_count() != 0) return false;
  emit("exit", 0, 0);
  return true;
}
bool Decoder::do_trap() {
  if (operand_count() != 0) return false;
  emit("trap", 0, 0);
  return true;
}

bool Decoder::do_bar() {
  if (take("warp")) {
    if (!take("sync") || !all_taken() || operand_count() != 1) return unsupported();
    Operand mask;
    if (!source(text(0), Type::kB32, mask)) return false;
    emit("barwarp", 0, 0);
    emit_aux({mask}, false);
    return true;
  }
  if (take("cluster")) {
    const bool arrive = take("arrive");
    if (!arrive && !take("wait")) return unsupported();
    // All of a cluster runs on one thread: whatever comes before an arrival has been done.
    take_any({"release", "relaxed", "acquire"});
    const uint16_t mod = take("aligned") ? kModAligned : kModNone;
    if (!all_taken() || operand_count() != 0) return false;
    emit("barcluster", mod, arrive ? kClusterArrive : kClusterWait);
    return true;
  }
  take("cta");
  const uint16_t aligned = take("aligned") || words_[0] == "bar" ? kModAligned : kModNone;
  int64_t kind = -1;
  if (take("sync"))
    kind = 0;
  else if (take("arrive"))
    kind = 1;
  else if (take("red"))
    kind = take("popc") ? 2 : take("and") ? 3 : take("or") ? 4 : -1;
  if (kind < 0) return unsupported();
  take_any({"u32", "pred"});
  if (!all_taken()) return false;
  // sync a[, b]; arrive a, b; red d, a[, b], p
  size_t k = kind >= 2 ? 1 : 0;
  const size_t tail = kind >= 2 ? 1 : 0;
  const size_t numbers = operand_count() - k - tail;
  if (operand_count() < k + tail + 1 || numbers > 2 || (kind == 1 && numbers != 2)) return false;
  Operand a, b, d;
  uint32_t p = kNoOperand;
  if (!source(text(k), Type::kU32, a)) return false;
  if (numbers == 2 && !source(text(k + 1), Type::kU32, b)) return false;
  if (kind >= 2 && !source_pred(text(operand_count() - 1), p)) return false;
  if (kind == 2 && !destination(text(0), Type::kU32, d)) return false;
  if (kind >= 3) {
    uint32_t to;
    if (!destination_pred(text(0), to)) return false;
    if (to == kNoOperand) to = module_.program->code.predicates++;
    d = raw(to);
  }
  emit("bar", aligned, kind, d, a, b, raw(p));
  return true;
}

bool Decoder::do_shfl() {
  const bool sync = take("sync");
  const int64_t mode = take("up") ? 0 : take("down") ? 1 : take("bfly") ? 2 : take("idx") ? 3 : -1;
  take_type();
  if (mode < 0 || !all_taken() || operand_count() != (sync ? 5u : 4u)) return unsupported();
  uint32_t p = kNoOperand;
  const size_t bar = text(0).find('|');
  if (bar != std::string_view::npos && !destination_pred(text(0).substr(bar + 1), p)) return false;
  Operand a, b, c, d, mask;
  const Type type = Type::kB32;
  if (!source(text(1), type, a) || !source(text(2), type, b) || !source(text(3), type, c) ||
      (sync && !source(text(4), type, mask)) || !destination(text(0).substr(0, bar), type, d))
    return false;
  emit("shfl", 0, mode, d, a, b, c, raw(p));
  emit_aux({mask}, false);
  return true;
}

bool Decoder::do_vote() {
  const bool sync = take("sync");
  const int64_t mode = take("all")      ? 0
                       : take("any")    ? 1
                       : take("uni")    ? 2
                       : take("ballot") ? 3
                                        : -1;
  take_any({"pred", "b32"});
  if (mode < 0 || !all_taken() || operand_count() != (sync ? 3u : 2u)) return unsupported();
  Operand d, mask;
  uint32_t p = kNoOperand, q;
  if (!source_pred(text(1), q)) return false;
  if (sync && !source(text(2), Type::kB32, mask)) return false;
  if (mode == 3 ? !destination(text(0), Type::kB32, d) : !destination_pred(text(0), p))
    return false;
  emit("vote", 0, mode, d, raw(q), {}, {}, raw(p));
  emit_aux({mask}, false);
  return true;
}

bool Decoder::do_match() {
  const int64_t mode = take("any") ? 0 : take("all") ? 1 : -1;
  take("sync");
  const Type type = take_type();
  if (mode < 0 || !all_taken() || operand_count() != 3) return unsupported();
  uint32_t p = kNoOperand;
  const size_t bar = text(0).find('|');
  if (bar != std::string_view::npos && !destination_pred(text(0).substr(bar + 1), p)) return false;
  Operand a, d, mask;
  if (!source(text(1), type, a) || !source(text(2), Type::kB32, mask) ||
      !destination(text(0).substr(0, bar), Type::kB32, d))
    return false;
  emit("match", bits_of(type) == 64 ? kModNone : kModAddress32, mode, d, a, {}, {}, raw(p));
  emit_aux({mask}, false);
  return true;
}

bool Decoder::do_redux() {
  take("sync");
  const bool add = take("add"), min = take("min"), max = take("max");
  const int64_t bitwise = take("and") ? 5 : take("or") ? 6 : take("xor") ? 7 : -1;
  const Type type = take_type();
  if (is_float(type) || !all_taken() || operand_count() != 3) return unsupported();
  const int64_t mode = add   ? 0
                       : min ? (is_signed(type) ? 3 : 1)
                       : max ? (is_signed(type) ? 4 : 2)
                             : bitwise;
  if (mode < 0) return unsupported();
  Operand a, d, mask;
  if (!source(text(1), type, a) || !source(text(2), Type::kB32, mask) ||
      !destination(text(0), type, d))
    return false;
  emit("redux", 0, mode, d, a);
  emit_aux({mask}, false);
  return true;
}

bool Decoder::do_elect() {
  take("sync");
  if (!all_taken() || operand_count() != 2) return unsupported();
  uint32_t p = kNoOperand;
  const size_t bar = text(0).find('|');
  if (bar == std::string_view::npos || !destination_pred(text(0).substr(bar + 1), p)) return false;
  Operand d, mask;
  if (!source(text(1), Type::kB32, mask) || !destination(text(0).substr(0, bar), Type::kB32, d))
    return false;
  emit("elect", 0, 0, d, {}, {}, {}, raw(p));
  emit_aux({mask}, false);
  return true;
}

bool Decoder::do_activemask() {
  take_type();
  if (!all_taken() || operand_count() != 1) return unsupported();
  Operand d;
  if (!destination(text(0), Type::kB32, d)) return false;
  emit("activemask", 0, 0, d);
  return true;
}

bool Decoder::do_nanosleep() {
  Operand time;
  if (operand_count() != 1 || !source(text(0), Type::kU32, time)) return false;
  emit("nanosleep", 0, 0);
  return true;
}

}  // namespace sluice::exec::detail
