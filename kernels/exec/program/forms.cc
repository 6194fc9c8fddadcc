// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/program/forms.h"

#include <string>
#include <unordered_map>
#include <vector>

namespace sluice::exec::detail {
namespace {

// A form is a list of places for words (at most 32), separated by blanks. A place has alternatives,
// separated by bars; "?" behind them: it may be left out. "<name>" stands for the alternatives of
// that name.
struct Row {
  const char* opcodes;  // separated by blanks
  const char* form;
};

const std::pair<const char*, const char*> kSets[] = {
    {"int", "u16|s16|u32|s32|u64|s64"},
    {"int32", "u32|s32"},
    {"int64", "u64|s64"},
    {"bits", "b16|b32|b64"},
    {"halves", "f16|f16x2|bf16|bf16x2"},
    {"any", "b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64"},
    {"round", "rn|rz|rm|rp"},
    {"space",
     "const|global|local|param|param::entry|param::func|shared|shared::cta|shared::cluster"},
    {"scope", "cta|cluster|gpu|sys"},
    {"l1", "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"},
    {"l2", "L2::64B|L2::128B|L2::256B"},
    {"l2e", "L2::evict_last|L2::evict_normal|L2::evict_first"},
    {"hint", "L2::cache_hint"},
    {"gs", "global|shared|shared::cta|shared::cluster"},
    {"sem", "relaxed|acquire|release|acq_rel"},
    {"fcmp", "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"},
    {"logic", "and|or|xor"},
};

const Row kRows[] = {
    // Integers.
    {"add sub", "<int>"},
    {"add sub", "sat s32"},
    {"add", "u16x2|s16x2"},
    {"add sub", "cc u32|s32|u64|s64"},
    {"addc subc", "cc? u32|s32|u64|s64"},
    {"mul", "lo|hi <int>"},
    {"mul", "wide u16|s16|u32|s32"},
    {"mad", "lo|hi <int>"},
    {"mad", "wide u16|s16|u32|s32"},
    {"mad", "hi sat s32"},
    {"mad", "lo|hi cc u32|s32|u64|s64"},
    {"madc", "lo|hi cc? u32|s32|u64|s64"},
    {"mul24 mad24", "lo|hi <int32>"},
    {"mad24", "hi sat s32"},
    {"sad", "<int>"},
    {"div rem", "<int>"},
    {"abs neg", "s16|s32|s64"},
    {"min max", "<int>|u16x2"},
    {"min max", "relu? s16x2|s32"},
    {"min max", "s16x2|s32 relu"},  // as CUDA's headers have it
    {"popc clz brev", "b32|b64"},
    {"bfind", "shiftamt? <int32>|u64|s64"},
    {"fns", "b32"},
    {"bfe", "<int32>|u64|s64"},
    {"bfi", "b32|b64"},
    {"bmsk", "clamp|wrap b32"},
    {"szext", "clamp|wrap <int32>"},
    {"dp4a", "<int32> <int32>"},
    {"dp2a", "lo|hi <int32> <int32>"},
    // Video instructions.
    {"vadd vsub vabsdiff vmin vmax", "<int32> <int32> <int32> sat? add|min|max?"},
    {"vshl vshr", "<int32> <int32> u32 sat? clamp|wrap add|min|max?"},
    {"vmad", "<int32> <int32> <int32> po? sat? shr7|shr15?"},
    {"vset", "<int32> <int32> eq|ne|lt|le|gt|ge add|min|max?"},
    {"vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4",
     "<int32> <int32> <int32> sat|add?"},
    {"vset2 vset4", "<int32> <int32> eq|ne|lt|le|gt|ge add?"},
    // Floating point.
    {"testp", "finite|infinite|number|notanumber|normal|subnormal f32|f64"},
    {"copysign", "f32|f64"},
    {"add sub mul", "<round>? ftz? sat? f32"},
    {"add sub mul", "<round>? f64"},
    {"add sub mul", "rn? ftz? sat? f16|f16x2"},
    {"add sub mul", "rn? bf16|bf16x2"},
    {"fma mad", "<round>? ftz? sat? f32"},
    {"fma mad", "<round>? f64"},
    {"fma", "rn ftz? sat|relu? f16|f16x2"},
    {"fma", "rn relu? bf16|bf16x2"},
    {"div", "approx|full ftz? f32"},
    {"div", "<round>? ftz? f32"},
    {"div", "<round>? f64"},
    {"abs neg", "ftz? f32|f16|f16x2"},
    {"abs neg", "f64|bf16|bf16x2"},
    {"min max", "ftz? NaN? f32|f16|f16x2"},
    {"min max", "ftz? NaN? xorsign abs f32|f16|f16x2"},
    {"min max", "NaN? bf16|bf16x2"},
    {"min max", "NaN? xorsign abs bf16|bf16x2"},
    {"min max", "f64"},
    {"rcp sqrt", "approx|rn|rz|rm|rp ftz? f32"},
    {"rcp sqrt", "<round> f64"},
    {"rcp", "approx ftz f64"},
    {"rsqrt", "approx ftz? f32"},
    {"rsqrt", "approx ftz? f64"},
    {"sin cos lg2 ex2", "approx ftz? f32"},
    {"ex2", "approx f16|f16x2"},
    {"ex2", "approx ftz bf16|bf16x2"},
    {"tanh", "approx f32|f16|f16x2|bf16|bf16x2"},
    // Comparison and selection.
    {"setp", "<fcmp> <logic>? ftz? f32|f16|f16x2"},
    {"setp", "<fcmp> <logic>? f64|bf16|bf16x2"},
    {"setp", "eq|ne|lt|le|gt|ge <logic>? s16|s32|s64"},
    {"setp", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs <logic>? u16|u32|u64"},
    {"setp", "eq|ne <logic>? <bits>"},
    {"set", "<fcmp> <logic>? ftz? u32|s32|f32 f32"},
    {"set", "<fcmp> <logic>? u32|s32|f32 f64"},
    {"set", "eq|ne|lt|le|gt|ge <logic>? u32|s32|f32 s16|s32|s64"},
    {"set", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs <logic>? u32|s32|f32 u16|u32|u64"},
    {"set", "eq|ne <logic>? u32|s32|f32 <bits>"},
    {"set", "<fcmp> <logic>? ftz? f16|u16|s16|u32|s32 f16"},
    {"set", "<fcmp> <logic>? ftz? f16x2|u32|s32 f16x2"},
    {"set", "<fcmp> <logic>? bf16|u16|s16|u32|s32 bf16"},
    {"set", "<fcmp> <logic>? bf16x2|u32|s32 bf16x2"},
    {"selp", "<int>|<bits>|f32|f64|f16|bf16|f16x2|bf16x2"},
    {"slct", "<int>|<bits>|f32|f64 s32"},
    {"slct", "ftz? <int>|<bits>|f32|f64 f32"},
    // Logic and shifts.
    {"and or xor not", "pred|<bits>"},
    {"cnot", "<bits>"},
    {"lop3", "and|or|xor? b32"},
    {"shf", "l|r clamp|wrap b32"},
    {"shl", "<bits>"},
    {"shr", "<bits>|<int>"},
    {"prmt", "b32 f4e|b4e|rc8|ecl|ecr|rc16?"},
    // Moves.
    {"mov", "pred|<int>|<bits>|f32|f64|b128"},
    {"mov", "v2|v4 <int>|<bits>|f32|f64"},
    {"shfl", "sync? up|down|bfly|idx b32"},
    {"ld", "weak? <space>? ca|cg|cs|lu|cv? <l1>? <l2e>? <hint>? <l2>? v2|v4? <any>|b128"},
    {"ld", "volatile <space>? <l2>? v2|v4? <any>|b128"},
    {"ld", "relaxed|acquire <scope> <space>? <l1>? <l2e>? <hint>? <l2>? v2|v4? <any>|b128"},
    {"ld", "mmio relaxed sys global? v2|v4? <any>"},
    {"ld", "global ca|cg|cs? nc <l1>? <l2e>? <hint>? <l2>? v2|v4? <any>|b128"},
    {"ldu", "global? v2|v4? <any>"},
    {"st", "weak? <space>? wb|cg|cs|wt? <l1>? <l2e>? <hint>? v2|v4? <any>|b128"},
    {"st", "volatile <space>? v2|v4? <any>|b128"},
    {"st", "relaxed|release <scope> <space>? <l1>? <l2e>? <hint>? v2|v4? <any>|b128"},
    {"st", "mmio relaxed sys global? v2|v4? <any>"},
    {"st",
     "async weak? shared::cluster mbarrier::complete_tx::bytes v2|v4? "
     "b32|u32|s32|f32|b64|u64|s64|f64"},
    {"red", "async relaxed cluster shared::cluster mbarrier::complete_tx::bytes inc|dec u32"},
    {"red", "async relaxed cluster shared::cluster mbarrier::complete_tx::bytes min|max u32|s32"},
    {"red", "async relaxed cluster shared::cluster mbarrier::complete_tx::bytes add u32|s32|u64"},
    {"red", "async relaxed cluster shared::cluster mbarrier::complete_tx::bytes and|or|xor b32"},
    {"prefetch", "global|local? L1|L2"},
    {"prefetch", "global L2::evict_last|L2::evict_normal"},
    {"prefetch", "const|param|param::entry|param::func? tensormap"},
    {"prefetchu", "L1"},
    {"applypriority", "global? L2::evict_normal"},
    {"discard", "global? L2"},
    {"createpolicy",
     "fractional L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
     "L2::evict_first|L2::evict_unchanged? b64"},
    {"createpolicy",
     "range global? L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
     "L2::evict_first|L2::evict_unchanged? b64"},
    {"createpolicy", "cvt L2 b64"},
    {"isspacep", "const|global|local|shared|shared::cta|shared::cluster|param|param::entry"},
    {"cvta", "to? const|global|local|shared|shared::cta|shared::cluster|param|param::entry u64"},
    // Atomics.
    {"atom", "<sem>? <scope>? <gs>? add <hint>? u32|s32|u64|f32|f64"},
    {"atom", "<sem>? <scope>? <gs>? min|max <hint>? u32|s32|u64|s64"},
    {"atom", "<sem>? <scope>? <gs>? inc|dec <hint>? u32"},
    {"atom", "<sem>? <scope>? <gs>? and|or|xor <hint>? b32|b64"},
    {"atom", "<sem>? <scope>? <gs>? exch <hint>? b32|b64|b128"},
    {"atom", "<sem>? <scope>? <gs>? cas <hint>? b16|b32|b64|b128"},
    {"atom", "<sem>? <scope>? <gs>? add noftz <hint>? f16|f16x2|bf16|bf16x2"},
    {"atom", "<sem>? <scope>? global? add <hint>? v2|v4 f32"},
    {"atom", "<sem>? <scope>? global? add|min|max noftz <hint>? v2|v4|v8 f16|bf16"},
    {"atom", "<sem>? <scope>? global? add|min|max noftz <hint>? v2|v4 f16x2|bf16x2"},
    {"red", "relaxed|release? <scope>? <gs>? add <hint>? u32|s32|u64|f32|f64"},
    {"red", "relaxed|release? <scope>? <gs>? min|max <hint>? u32|s32|u64|s64"},
    {"red", "relaxed|release? <scope>? <gs>? inc|dec <hint>? u32"},
    {"red", "relaxed|release? <scope>? <gs>? and|or|xor <hint>? b32|b64"},
    {"red", "relaxed|release? <scope>? <gs>? add noftz <hint>? f16|f16x2|bf16|bf16x2"},
    {"red", "relaxed|release? <scope>? global? add <hint>? v2|v4 f32"},
    {"red", "relaxed|release? <scope>? global? add|min|max noftz <hint>? v2|v4|v8 f16|bf16"},
    {"red", "relaxed|release? <scope>? global? add|min|max noftz <hint>? v2|v4 f16x2|bf16x2"},
    // Order and barriers.
    {"fence", "sc|acq_rel|acquire|release? <scope>"},
    {"fence", "mbarrier_init release cluster"},
    {"fence", "acquire sync_restrict::shared::cluster cluster"},
    {"fence", "release sync_restrict::shared::cta cluster"},
    {"fence", "proxy async::generic acquire sync_restrict::shared::cluster cluster"},
    {"fence", "proxy async::generic release sync_restrict::shared::cta cluster"},
    {"fence", "proxy alias|async"},
    {"fence", "proxy async global|shared::cta|shared::cluster"},
    {"fence", "proxy tensormap::generic acquire|release <scope>"},
    {"membar", "cta|gl|sys"},
    {"membar", "proxy alias|async"},
    {"membar", "proxy async global|shared::cta|shared::cluster"},
    {"bar barrier", "cta? sync|arrive aligned?"},
    {"bar barrier", "cta? red popc aligned? u32"},
    {"bar barrier", "cta? red and|or aligned? pred"},
    {"bar", "warp sync"},
    {"barrier", "cluster arrive release|relaxed? aligned?"},
    {"barrier", "cluster wait acquire? aligned?"},
    {"vote", "sync? all|any|uni pred"},
    {"vote", "sync? ballot b32"},
    {"match", "any|all sync b32|b64"},
    {"redux", "sync add|min|max u32|s32"},
    {"redux", "sync and|or|xor b32"},
    {"elect", "sync"},
    {"activemask", "b32"},
    // Control.
    {"bra", "uni?"},
    {"brx", "idx uni?"},
    {"call ret", "uni?"},
    {"exit trap brkpt", ""},
    {"alloca stacksave stackrestore", "u32|u64"},
    {"nanosleep", "u32"},
    {"pmevent", "mask?"},
    {"griddepcontrol", "launch_dependents|wait"},
    {"setmaxnreg", "inc|dec sync aligned u32"},
    {"mapa", "shared::cluster? u32|u64"},
    {"getctarank", "shared::cluster? u32|u64"},
};

struct Slot {
  std::vector<std::string_view> words;
  bool optional = false;
};
using Pattern = std::vector<Slot>;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (end != 0) parts.push_back(text.substr(0, end));
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
  }
  return parts;
}

class Table {
 public:
  Table() {
    for (const Row& row : kRows) {
      Pattern pattern;
      for (std::string_view place : split(row.form, ' ')) {
        Slot slot;
        if (place.back() == '?') {
          slot.optional = true;
          place.remove_suffix(1);
        }
        for (const std::string_view word : split(place, '|')) {
          if (word.front() != '<') {
            slot.words.push_back(word);
            continue;
          }
          for (const auto& [name, members] : kSets)
            if (word.substr(1, word.size() - 2) == name)
              for (const std::string_view member : split(members, '|'))
                slot.words.push_back(member);
        }
        pattern.push_back(std::move(slot));
      }
      for (const std::string_view opcode : split(row.opcodes, ' '))
        patterns_[opcode].push_back(pattern);
    }
  }

  Form check(std::string_view opcode) const {
    std::vector<std::string_view> words;
    for (size_t begin = 0; begin <= opcode.size();) {
      const size_t dot = opcode.find('.', begin);
      const size_t end = dot == opcode.npos ? opcode.size() : dot;
      words.push_back(opcode.substr(begin, end - begin));
      begin = end + 1;
    }
    const auto found = patterns_.find(words[0]);
    if (found == patterns_.end()) return Form::kNotListed;
    for (const Pattern& pattern : found->second)
      if (words.size() - 1 <= pattern.size() && matches(pattern, 0, words, 1)) return Form::kKnown;
    return Form::kUnknown;
  }

 private:
  // Each word has a place of its own, and each place that must be filled a word. NVIDIA's assembler
  // takes modifiers in any order (vote.ballot.sync is in its own libraries), so do we; the depth of
  // the recursion is the number of words, at most that of places.
  static bool matches(const Pattern& pattern, uint32_t used,
                      const std::vector<std::string_view>& words, size_t word) {
    if (word == words.size()) {
      for (size_t k = 0; k < pattern.size(); ++k)
        if ((used >> k & 1) == 0 && !pattern[k].optional) return false;
      return true;
    }
    for (size_t k = 0; k < pattern.size(); ++k) {
      if ((used >> k & 1) != 0) continue;
      for (const std::string_view candidate : pattern[k].words)
        if (candidate == words[word] && matches(pattern, used | 1u << k, words, word + 1))
          return true;
    }
    return false;
  }

  std::unordered_map<std::string_view, std::vector<Pattern>> patterns_;
};

}  // namespace

Form check_form(std::string_view opcode) {
  static const Table table;
  return table.check(opcode);
}

}  // namespace sluice::exec::detail
