// SPDX-License-Identifier: Apache-2.0
// Video instructions, scalar and SIMD. PTX ISA 9.0, "Video Instructions".
#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/program/rare.h"

namespace sluice::exec::detail {
namespace {

// ".b2" or ".h1" behind an operand; the rest stays in `text`.
bool selector(std::string_view& text, uint32_t& select) {
  select = kSelectAll;
  const size_t dot = text.rfind('.');
  if (dot == text.npos) return true;
  const std::string_view word = text.substr(dot + 1);
  text = text.substr(0, dot);
  if (word.size() != 2) return false;
  const auto n = static_cast<uint32_t>(word[1] - '0');
  if (word[0] == 'b' && n < 4) select = kSelectByte + n;
  if (word[0] == 'h' && n < 2) select = kSelectHalf + n;
  return select != kSelectAll;
}

// ".h31" or ".b7610" behind an operand: a nibble per element, the lowest element's last.
bool simd_selector(std::string_view& text, uint32_t elements, uint32_t otherwise,
                   uint32_t& select) {
  select = otherwise;
  const size_t dot = text.rfind('.');
  if (dot == text.npos) return true;
  const std::string_view word = text.substr(dot + 1);
  text = text.substr(0, dot);
  if (word.size() != elements + 1 || word[0] != (elements == 2 ? 'h' : 'b')) return false;
  select = 0;
  for (const char c : word.substr(1)) {
    if (c < '0' || static_cast<uint32_t>(c - '0') >= 2 * elements) return false;
    select = select << 4 | static_cast<uint32_t>(c - '0');
  }
  return true;
}

// ".h10" or ".b30" behind the destination: the elements that change.
bool simd_mask(std::string_view& text, uint32_t elements, uint32_t& mask) {
  mask = (1u << elements) - 1;
  const size_t dot = text.rfind('.');
  if (dot == text.npos) return true;
  const std::string_view word = text.substr(dot + 1);
  text = text.substr(0, dot);
  if (word.size() < 2 || word[0] != (elements == 2 ? 'h' : 'b')) return false;
  mask = 0;
  char before = static_cast<char>('0' + elements);
  for (const char c : word.substr(1)) {
    if (c < '0' || c >= before) return false;  // from the highest down
    mask |= 1u << (c - '0');
    before = c;
  }
  return true;
}

constexpr std::string_view kCompare[] = {"eq", "ne", "lt", "le", "gt", "ge"};

std::vector<Operand> words_of(const VideoForm& f) {
  std::vector<Operand> words;
  for (const uint32_t v : {f.op, f.d_signed, f.a_signed, f.b_signed, f.saturate, f.second,
                           f.d_select, f.a_select, f.b_select, f.how, f.elements})
    words.push_back(raw(v));
  return words;
}
static_assert(sizeof(VideoForm) == 11 * 4);

bool video_op(std::string_view name, uint32_t& op) {
  static constexpr std::pair<std::string_view, VideoOp> kOps[] = {
      {"vadd", VideoOp::kAdd}, {"vsub", VideoOp::kSub}, {"vabsdiff", VideoOp::kAbsDiff},
      {"vmin", VideoOp::kMin}, {"vmax", VideoOp::kMax}, {"vavrg", VideoOp::kAverage},
      {"vset", VideoOp::kSet}, {"vshl", VideoOp::kShl}, {"vshr", VideoOp::kShr}};
  for (const auto& [word, value] : kOps)
    if (word == name) {
      op = static_cast<uint32_t>(value);
      return true;
    }
  return false;
}

}  // namespace

bool Decoder::video_operand(std::string_view text, uint32_t& select, Operand& out, bool negatable,
                            bool& negated) {
  negated = false;
  Register reg;
  if (negatable && !text.empty() && text.front() == '-' &&
      find_register(text.substr(1, text.find('.') == text.npos ? text.npos : text.find('.') - 1),
                    reg)) {
    negated = true;
    text = text.substr(1);
  }
  return selector(text, select) && source(text, Type::kB32, out);
}

bool Decoder::do_video() {
  VideoForm f;
  if (!video_op(words_[0], f.op)) return unsupported();
  const bool set = words_[0] == "vset";
  if (!set) f.d_signed = is_signed(take_type()) ? 1 : 0;
  f.a_signed = is_signed(take_type()) ? 1 : 0;
  f.b_signed = is_signed(take_type()) ? 1 : 0;
  for (uint32_t k = 0; set && k < 6; ++k)
    if (take(kCompare[k])) f.how = k;
  f.saturate = take("sat") ? 1 : 0;
  if (take("wrap")) f.how = 1;
  take("clamp");
  f.second = take("add")   ? kSecondAdd
             : take("min") ? kSecondMin
             : take("max") ? kSecondMax
                           : kSecondNone;
  if (!all_taken()) return false;
  std::string_view to = text(0);
  if (!selector(to, f.d_select)) return false;
  // Where an H200 was seen to do what the manual does not say, neither is offered.
  const bool sum =
      words_[0] == "vadd" || (words_[0] == "vabsdiff" && (f.a_signed != 0 || f.b_signed != 0));
  if (f.saturate != 0 && ((sum && f.d_signed == 0) || f.d_select != kSelectAll))
    return unsupported();
  if (set && (f.second == kSecondMin || f.second == kSecondMax)) return unsupported();
  // A third source is there for a second operation or for merging, not for both.
  const bool third = f.second != kSecondNone || f.d_select != kSelectAll;
  if ((f.second != kSecondNone && f.d_select != kSelectAll) || operand_count() != (third ? 4u : 3u))
    return false;
  Operand a, b, c, d;
  bool negated;
  if (!video_operand(text(1), f.a_select, a, false, negated) ||
      !video_operand(text(2), f.b_select, b, false, negated) ||
      (third && !source(text(3), Type::kB32, c)) || !destination(to, Type::kB32, d))
    return false;
  emit("video", 0, 0, d, a, b, c);
  emit_aux(words_of(f), false);
  return true;
}

bool Decoder::do_video_simd() {
  VideoForm f;
  f.elements = words_[0].back() == '2' ? 2 : 4;
  const std::string_view name = words_[0].substr(0, words_[0].size() - 1);
  if (!video_op(name, f.op)) return unsupported();
  const bool set = name == "vset";
  if (!set) f.d_signed = is_signed(take_type()) ? 1 : 0;
  f.a_signed = is_signed(take_type()) ? 1 : 0;
  f.b_signed = is_signed(take_type()) ? 1 : 0;
  for (uint32_t k = 0; set && k < 6; ++k)
    if (take(kCompare[k])) f.how = k;
  f.saturate = take("sat") ? 1 : 0;
  f.second = take("add") ? kSecondAdd : kSecondNone;
  if (!all_taken() || operand_count() != 4) return false;
  std::string_view to = text(0), from_a = text(1), from_b = text(2);
  if (!simd_mask(to, f.elements, f.d_select) ||
      !simd_selector(from_a, f.elements, f.elements == 2 ? 0x10 : 0x3210, f.a_select) ||
      !simd_selector(from_b, f.elements, f.elements == 2 ? 0x32 : 0x7654, f.b_select))
    return false;
  Operand a, b, c, d;
  if (!source(from_a, Type::kB32, a) || !source(from_b, Type::kB32, b) ||
      !source(text(3), Type::kB32, c) || !destination(to, Type::kB32, d))
    return false;
  emit("videosimd", 0, 0, d, a, b, c);
  emit_aux(words_of(f), false);
  return true;
}

bool Decoder::do_vmad() {
  VideoForm f;
  f.d_signed = is_signed(take_type()) ? 1 : 0;
  f.a_signed = is_signed(take_type()) ? 1 : 0;
  f.b_signed = is_signed(take_type()) ? 1 : 0;
  const bool plus_one = take("po");
  f.saturate = take("sat") ? 1 : 0;
  f.how = (plus_one ? kMadPlusOne : 0) | (take("shr7") ? kMadShift7 : 0) |
          (take("shr15") ? kMadShift15 : 0);
  if (!all_taken() || operand_count() != 4) return false;
  // Of the scaled and the saturated an H200 does only the signed as the manual says.
  const bool is_signed_only = f.d_signed != 0 && f.a_signed != 0 && f.b_signed != 0;
  if ((f.saturate != 0 || (f.how & (kMadShift7 | kMadShift15)) != 0) && !is_signed_only)
    return unsupported();
  Operand a, b, c, d;
  bool minus_a, minus_b, minus_c;
  uint32_t none;
  if (!video_operand(text(1), f.a_select, a, true, minus_a) ||
      !video_operand(text(2), f.b_select, b, true, minus_b) ||
      !video_operand(text(3), none, c, true, minus_c) || none != kSelectAll ||
      !destination(text(0), Type::kB32, d))
    return false;
  if (plus_one ? minus_a || minus_b || minus_c : minus_a != minus_b && minus_c)
    return unsupported();
  if (minus_a != minus_b) f.how |= kMadNegateProduct;
  if (minus_c) f.how |= kMadNegateC;
  emit("videomad", 0, 0, d, a, b, c);
  emit_aux(words_of(f), false);
  return true;
}

}  // namespace sluice::exec::detail
