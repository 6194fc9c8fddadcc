// SPDX-License-Identifier: Apache-2.0
// Random: the simulator's generator (SplitMix64, Steele, Lea and Flood 2014) and the distributions
// that it draws from. Written out, because the standard library's distributions differ between
// implementations and a seed must mean the same run everywhere. One object per stream of numbers.
#pragma once

#include <cmath>
#include <cstdint>

namespace sluice::policy::sim {

class Random {
 public:
  explicit Random(uint64_t seed = 1) : state_(seed) {}
  // A generator of its own for part `n` of what `seed` describes.
  static Random of(uint64_t seed, uint64_t n) {
    Random r(seed ^ (n + 1) * 0x9e3779b97f4a7c15ull);
    r.next();
    return r;
  }
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // In (0, 1).
  double unit() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
  // In [0, n); n > 0. The bias of the multiplication is below n / 2^64.
  uint64_t below(uint64_t n) {
    __extension__ typedef unsigned __int128 Wide;
    return static_cast<uint64_t>((static_cast<Wide>(next()) * n) >> 64);
  }
  // In [lo, hi].
  uint64_t between(uint64_t lo, uint64_t hi) { return lo + below(hi - lo + 1); }
  double exponential(double mean) { return -mean * std::log(unit()); }
  double normal() {  // Box and Muller
    const double radius = std::sqrt(-2 * std::log(unit()));
    return radius * std::cos(6.283185307179586 * unit());
  }
  // Log-normal factor of mean 1 and this coefficient of variation.
  double factor(double cv) {
    if (cv <= 0) return 1;
    const double s2 = std::log(1 + cv * cv);
    return std::exp(std::sqrt(s2) * normal() - s2 / 2);
  }

 private:
  uint64_t state_;
};

}  // namespace sluice::policy::sim
