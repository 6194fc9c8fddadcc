// SPDX-License-Identifier: Apache-2.0
// SmSet: a set of a GPU's SMs, as grants carry it (abi/stub.h). A plain value, 32 bytes.
#pragma once

#include <bit>
#include <cstdint>

#include "abi/preempt.h"

namespace sluice {

class SmSet {
 public:
  static constexpr uint32_t kMax = SLUICE_LEFT_SMS;  // SMs are numbered below this
  static constexpr uint32_t kWords = kMax / 64;

  SmSet() = default;
  // [lo, hi), cut at kMax.
  SmSet(uint32_t lo, uint32_t hi) {
    for (uint32_t i = lo; i < hi && i < kMax; ++i) add(i);
  }

  bool contains(uint32_t sm) const { return sm < kMax && (words_[sm / 64] >> (sm % 64) & 1); }
  void add(uint32_t sm) { words_[sm / 64] |= uint64_t{1} << (sm % 64); }
  bool empty() const { return count() == 0; }
  uint32_t count() const {
    uint32_t n = 0;
    for (const uint64_t w : words_) n += static_cast<uint32_t>(std::popcount(w));
    return n;
  }
  bool contains_all(const SmSet& o) const { return (o - *this).empty(); }
  bool meets(const SmSet& o) const { return !(*this & o).empty(); }

  // The first range [lo, hi) of SMs that are in the set, at or behind `from`; lo == hi: none.
  struct Range {
    uint32_t lo, hi;
  };
  Range next_range(uint32_t from = 0) const {
    while (from < kMax && !contains(from)) ++from;
    uint32_t hi = from;
    while (hi < kMax && contains(hi)) ++hi;
    return {from, hi};
  }

  uint64_t word(uint32_t i) const { return words_[i]; }
  void set_word(uint32_t i, uint64_t w) { words_[i] = w; }

  SmSet operator|(const SmSet& o) const {
    return zip(o, [](uint64_t a, uint64_t b) { return a | b; });
  }
  SmSet operator&(const SmSet& o) const {
    return zip(o, [](uint64_t a, uint64_t b) { return a & b; });
  }
  SmSet operator-(const SmSet& o) const {
    return zip(o, [](uint64_t a, uint64_t b) { return a & ~b; });
  }
  bool operator==(const SmSet&) const = default;

 private:
  template <class Op>
  SmSet zip(const SmSet& o, Op op) const {
    SmSet r;
    for (uint32_t i = 0; i < kWords; ++i) r.words_[i] = op(words_[i], o.words_[i]);
    return r;
  }
  uint64_t words_[kWords] = {};
};

}  // namespace sluice
