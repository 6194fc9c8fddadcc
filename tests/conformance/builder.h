// SPDX-License-Identifier: Apache-2.0
// Builds the lists of cases (instructions*.cc). Internal to tests/conformance; pure.
#pragma once

#include <cctype>
#include <string>
#include <vector>

#include "tests/conformance/instructions.h"

namespace sluice::conformance {

// SplitMix64: the operands must never change with a library's.
struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    state += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
};
std::uint64_t hash(const std::string& text);

// Bits of an operand of that kind.
int width(Kind kind);

class Builder {
 public:
  std::vector<Case> cases;

  void add(const std::string& text, Kind d, Kind a, Kind b = Kind::kNone, Kind c = Kind::kNone,
           Kind e = Kind::kNone, double relative = 0, double absolute = 0) {
    Case added;
    for (const char ch : text.substr(0, text.find(';')))
      if (std::isalnum(static_cast<unsigned char>(ch)) != 0)
        added.name += ch;
      else if (!added.name.empty() && added.name.back() != '_')
        added.name += '_';
    added.name = "c" + std::to_string(cases.size()) + "_" + added.name;
    added.text = text;
    added.d = d;
    added.a = a;
    added.b = b;
    added.c = c;
    added.e = e;
    added.relative = relative;
    added.absolute = absolute;
    cases.push_back(added);
  }
  // op $d, $a, $b[, $c]
  void unary(const std::string& op, Kind d, Kind a, double relative = 0, double absolute = 0) {
    add(op + " $d, $a;", d, a, Kind::kNone, Kind::kNone, Kind::kNone, relative, absolute);
  }
  void binary(const std::string& op, Kind d, Kind a, Kind b, double relative = 0) {
    add(op + " $d, $a, $b;", d, a, b, Kind::kNone, Kind::kNone, relative);
  }
  void ternary(const std::string& op, Kind d, Kind a, Kind b, Kind c) {
    add(op + " $d, $a, $b, $c;", d, a, b, c);
  }
};

// The families; each appends its cases.
void integer_cases(Builder& b);
void float_cases(Builder& b);
void convert_cases(Builder& b);
void warp_cases(Builder& b);
void memory_cases(Builder& b);
void half_cases(Builder& b);
void narrow_cases(Builder& b);
void video_cases(Builder& b);

}  // namespace sluice::conformance
