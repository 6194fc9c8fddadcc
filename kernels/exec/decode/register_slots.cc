// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/decode/register_slots.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sluice::exec::detail {
namespace {

constexpr uint32_t kUnset = 0xffffffffu;
// 64-bit words of one set of the liveness analysis: registers / 64 x blocks. Real kernels of 30,000
// instructions need a tenth of it; beyond, registers are not shared.
constexpr size_t kMaxLivenessWords = 4u << 20;

}  // namespace

RegisterSlots::RegisterSlots(const Graph& graph, const std::vector<Inst>& code,
                             std::vector<Reference>& references, const std::vector<uint8_t>& width)
    : graph_(graph), code_(code), references_(references) {
  number_registers(width);
  std::stable_sort(references_.begin(), references_.end(),
                   [](const Reference& a, const Reference& b) { return a.inst < b.inst; });
  find_registers_of_several_blocks();
  const size_t words = (size_t{globals_} + 63) / 64;
  // A text made to be costly.
  analysed_ = words * graph_.size() <= kMaxLivenessWords;
  words_ = analysed_ ? words : 0;
  find_intervals();
}

// Only registers that are mentioned count.
void RegisterSlots::number_registers(const std::vector<uint8_t>& width) {
  std::vector<uint32_t> dense(width.size(), kUnset);
  for (Reference& r : references_) {
    if (dense[r.vreg] == kUnset) {
      dense[r.vreg] = static_cast<uint32_t>(width_.size());
      width_.push_back(width[r.vreg]);
    }
    r.vreg = dense[r.vreg];
  }
}

// The others need no bit sets (most of nvcc's do not).
void RegisterSlots::find_registers_of_several_blocks() {
  std::vector<uint32_t> home(width_.size(), kUnset);
  global_number_.assign(width_.size(), kUnset);
  for (const Reference& r : references_) {
    const uint32_t b = graph_.block_of(r.inst);
    const bool first = home[r.vreg] == kUnset;
    // Read, or written only under a guard, before anything else in its only block: it could come
    // round a loop.
    const bool comes_in = first && (!r.def || code_[r.inst].guard != kPredTrue);
    if (first) home[r.vreg] = b;
    if ((comes_in || home[r.vreg] != b) && global_number_[r.vreg] == kUnset)
      global_number_[r.vreg] = globals_++;
  }
}

// What each block reads before it has written it whole, and what it writes whole.
void RegisterSlots::find_uses_and_kills(Sets& uses, Sets& kills) {
  for (size_t from = 0, to = 0; from < references_.size(); from = to) {
    const uint32_t inst = references_[from].inst;
    while (to < references_.size() && references_[to].inst == inst) ++to;
    const uint32_t b = graph_.block_of(inst);
    // An instruction reads before it writes.
    for (const bool defs : {false, true}) {
      for (size_t k = from; k < to; ++k) {
        const Reference& r = references_[k];
        const uint32_t v = global_number_[r.vreg];
        if (v == kUnset || r.def != defs) continue;
        const uint64_t bit = 1ull << (v % 64);
        if (r.def && code_[inst].guard == kPredTrue)
          kills.of(b)[v / 64] |= bit;
        else if ((kills.of(b)[v / 64] & bit) == 0)
          uses.of(b)[v / 64] |= bit;
      }
    }
  }
}

void RegisterSlots::find_live(Sets& live_in, Sets& live_out) {
  Sets uses(words_, graph_.size()), kills(words_, graph_.size());
  find_uses_and_kills(uses, kills);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = graph_.size(); b-- > 0;) {
      uint64_t* out = live_out.of(b);
      uint64_t* into = live_in.of(b);
      for (const uint32_t to : graph_.out[b])
        for (size_t w = 0; w < words_; ++w) out[w] |= live_in.of(to)[w];
      for (size_t w = 0; w < words_; ++w) {
        const uint64_t value = uses.of(b)[w] | (out[w] & ~kills.of(b)[w]);
        changed |= value != into[w];
        into[w] = value;
      }
    }
  }
}

void RegisterSlots::touch(uint32_t v, uint32_t at) {
  begin_[v] = std::min(begin_[v], at);
  end_[v] = std::max(end_[v], at);
}

// Over the order of the code.
void RegisterSlots::find_intervals() {
  begin_.assign(width_.size(), kUnset);
  end_.assign(width_.size(), 0);
  for (const Reference& r : references_) touch(r.vreg, r.inst);
  if (globals_ == 0) return;
  Sets live_in(words_, graph_.size()), live_out(words_, graph_.size());
  if (analysed_) find_live(live_in, live_out);
  std::vector<uint32_t> by_number(globals_);
  for (uint32_t v = 0; v < width_.size(); ++v) {
    if (global_number_[v] == kUnset) continue;
    by_number[global_number_[v]] = v;
    if (analysed_) continue;
    touch(v, 0);
    touch(v, static_cast<uint32_t>(code_.size()));
  }
  const auto touch_all = [&](const uint64_t* set, uint32_t at) {
    for (size_t w = 0; w < words_; ++w)
      for (uint64_t bits = set[w]; bits != 0; bits &= bits - 1)
        touch(by_number[w * 64 + static_cast<size_t>(std::countr_zero(bits))], at);
  };
  for (uint32_t b = 0; b < graph_.size(); ++b) {
    touch_all(live_in.of(b), graph_.begin[b]);
    touch_all(live_out.of(b), graph_.begin[b + 1] - 1);
  }
}

// An interval ends after its last use: an instruction's result never shares a slot with its
// operands, whose lanes may be of another width.
uint32_t RegisterSlots::assign(uint32_t base, std::vector<uint32_t>& slots) {
  const auto count = static_cast<uint32_t>(width_.size());
  std::vector<uint32_t> order(count);
  for (uint32_t v = 0; v < count; ++v) order[v] = v;
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return begin_[a] < begin_[b]; });
  slot_.assign(count, 0);
  // End, register: a heap, the nearest end on top.
  std::vector<std::pair<uint32_t, uint32_t>> active;
  const auto later = [](const auto& a, const auto& b) { return a.first > b.first; };
  std::vector<uint32_t> free4, free8;
  uint32_t top = base;
  for (const uint32_t v : order) {
    while (!active.empty() && active.front().first < begin_[v]) {
      std::pop_heap(active.begin(), active.end(), later);
      const uint32_t done = active.back().second;
      active.pop_back();
      (width_[done] == 8 ? free8 : free4).push_back(slot_[done]);
    }
    const bool wide = width_[v] == 8;
    std::vector<uint32_t>& pool = wide ? free8 : free4;
    if (!pool.empty()) {
      slot_[v] = pool.back();
      pool.pop_back();
    } else {
      slot_[v] = top;
      slots.push_back(top | (wide ? kWideSlot : 0));
      top += wide ? 2 * kSlotBytes : kSlotBytes;
    }
    active.emplace_back(end_[v], v);
    std::push_heap(active.begin(), active.end(), later);
  }
  return top;
}

}  // namespace sluice::exec::detail
