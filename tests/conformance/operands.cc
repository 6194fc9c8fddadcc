// SPDX-License-Identifier: Apache-2.0
// Operands, the module's text and the golden file of the single-instruction cases.
#include <cstring>
#include <fstream>

#include "tests/conformance/builder.h"

namespace sluice::conformance {

std::uint64_t hash(const std::string& text) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char ch : text) h = (h ^ static_cast<unsigned char>(ch)) * 0x100000001b3u;
  return h;
}

int width(Kind kind) {
  switch (kind) {
    case Kind::kB16:
    case Kind::kF16:
    case Kind::kBf16:
    case Kind::kDivisor16:
      return 16;
    case Kind::kB64:
    case Kind::kF64:
    case Kind::kDivisor64:
      return 64;
    case Kind::kPred:
      return 1;
    default:
      return 32;
  }
}
namespace {

std::uint64_t float_value(Random& r, int exponent_bits, int mantissa_bits) {
  const int bits = 1 + exponent_bits + mantissa_bits;
  const std::uint64_t all = bits == 64 ? ~0ull : (1ull << bits) - 1;
  const std::uint64_t infinity = ((1ull << exponent_bits) - 1) << mantissa_bits;
  const std::uint64_t sign = (r.next() & 1) << (bits - 1);
  const std::uint64_t mantissa = r.next() & ((1ull << mantissa_bits) - 1);
  const std::uint64_t bias = (1ull << (exponent_bits - 1)) - 1;
  switch (r.next() % 12) {
    case 0:
      return sign;  // zero
    case 1:
      return sign | infinity;
    case 2:
      return sign | infinity | (1ull << (mantissa_bits - 1)) | mantissa;  // quiet NaN
    case 3:
      return sign | mantissa;  // subnormal
    case 4:
      return sign | (bias << mantissa_bits);  // one
    case 5:
      return sign | ((bias + r.next() % 12) << mantissa_bits) | (mantissa & ~0xfull);
    case 6:
      return r.next() & all & ~(1ull << (bits - 2));  // not the largest exponents
    default:
      return sign | ((bias - 6 + r.next() % 12) << mantissa_bits) | mantissa;
  }
}

std::uint64_t integer_value(Random& r, int bits) {
  const std::uint64_t all = bits == 64 ? ~0ull : (1ull << bits) - 1;
  switch (r.next() % 8) {
    case 0:
      return r.next() % 5;
    case 1:
      return (0 - r.next() % 5) & all;
    case 2:
      return 1ull << (bits - 1);
    case 3:
      return (1ull << (bits - 1)) - 1;
    case 4:
      return (r.next() & all) >> (r.next() % static_cast<std::uint64_t>(bits));
    default:
      return r.next() & all;
  }
}

std::uint64_t value(Random& r, Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return 0;
    case Kind::kPred:
      return r.next() & 1;
    case Kind::kF16:
      return float_value(r, 5, 10);
    case Kind::kBf16:
      return float_value(r, 8, 7);
    case Kind::kF16x2:
      return float_value(r, 5, 10) | float_value(r, 5, 10) << 16;
    case Kind::kBf16x2:
      return float_value(r, 8, 7) | float_value(r, 8, 7) << 16;
    case Kind::kF32:
      return float_value(r, 8, 23);
    case Kind::kF64:
      return float_value(r, 11, 52);
    case Kind::kShift:
      return r.next() % 8 == 0 ? r.next() & 0xffffffffu : r.next() % 70;
    case Kind::kDivisor16:
    case Kind::kDivisor:
    case Kind::kDivisor64: {
      const std::uint64_t v = integer_value(r, width(kind));
      return v == 0 ? 3 : v;
    }
    case Kind::kUnit: {
      const float f = static_cast<float>(static_cast<std::int64_t>(r.next()) >> 40) * 0x1p-20f;
      std::uint32_t bits;
      std::memcpy(&bits, &f, 4);
      return bits;
    }
    case Kind::kPositive:
      return (r.next() % 0x7e000000u) + 0x00800000u;
    default:
      return integer_value(r, width(kind));
  }
}

const char* prefix(Kind kind) {
  switch (width(kind)) {
    case 1:
      return "%p";
    case 16:
      return "%h";
    case 64:
      return kind == Kind::kF64 ? "%fd" : "%rd";
    default:
      return kind == Kind::kF32 || kind == Kind::kUnit || kind == Kind::kPositive ? "%f" : "%r";
  }
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

}  // namespace

std::vector<std::uint64_t> operands(const Case& c) {
  Random r{hash(c.name.substr(c.name.find('_')))};
  std::vector<std::uint64_t> words;
  words.reserve(kThreads * 5);
  for (std::size_t t = 0; t < kThreads; ++t) {
    for (const Kind kind : {c.a, c.b, c.c, c.e}) words.push_back(value(r, kind));
    words.push_back(r.next());
  }
  return words;
}

std::string module_text(const std::vector<Case>& cases) {
  std::string all = ".version 8.7\n.target sm_90\n.address_size 64\n";
  for (const Case& c : cases) {
    std::string text = ".visible .entry " + c.name +
                       "(.param .u64 out, .param .u64 in)\n{\n"
                       ".reg .pred %p<32>; .reg .b16 %h<32>; .reg .b32 %r<32>; .reg .b64 %rd<32>;\n"
                       ".reg .f32 %f<32>; .reg .f64 %fd<32>;\n"
                       "ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];\nmov.u32 %r1, %tid.x;\n"
                       "mul.wide.u32 %rd3, %r1, 8; add.s64 %rd4, %rd1, %rd3;\n"
                       "mul.wide.u32 %rd3, %r1, 40; add.s64 %rd5, %rd2, %rd3;\n";
    std::string body = c.text;
    int number = 10;
    const auto bind = [&](const char* name, Kind kind, int offset) {
      if (kind == Kind::kNone) return;
      const std::string reg = prefix(kind) + std::to_string(number++);
      replace(body, name, reg);
      if (offset < 0) return;
      text += "ld.global.u64 %rd6, [%rd5+" + std::to_string(offset) + "];\n";
      switch (width(kind)) {
        case 1:
          text += "cvt.u32.u64 %r2, %rd6; setp.ne.u32 " + reg + ", %r2, 0;\n";
          break;
        case 16:
          text += "cvt.u16.u64 " + reg + ", %rd6;\n";
          break;
        case 64:
          text += "mov.b64 " + reg + ", %rd6;\n";
          break;
        default:
          text += "cvt.u32.u64 %r2, %rd6; mov.b32 " + reg + ", %r2;\n";
          break;
      }
    };
    bind("$a", c.a, 0);
    bind("$b", c.b, 8);
    bind("$c", c.c, 16);
    bind("$e", c.e, 24);
    const std::string d = prefix(c.d) + std::to_string(number);
    bind("$d", c.d, -1);
    text += body + "\n";
    switch (width(c.d)) {
      case 1:
        text += "selp.u64 %rd7, 1, 0, " + d + ";\n";
        break;
      case 16:
        text += "cvt.u64.u16 %rd7, " + d + ";\n";
        break;
      case 64:
        text += "mov.b64 %rd7, " + d + ";\n";
        break;
      default:
        text += "mov.b32 %r3, " + d + "; cvt.u64.u32 %rd7, %r3;\n";
        break;
    }
    all += text + "st.global.u64 [%rd4], %rd7;\nret;\n}\n";
  }
  return all;
}

bool write_golden(const std::string& path, const std::vector<Golden>& golden) {
  std::ofstream file(path, std::ios::binary);
  for (const Golden& g : golden) {
    const std::uint32_t length = static_cast<std::uint32_t>(g.name.size());
    file.write(reinterpret_cast<const char*>(&length), 4);
    std::uint64_t all = 0;
    for (const std::uint64_t r : g.results) all |= r;
    const char bytes = all >> 8 == 0 ? 1 : all >> 16 == 0 ? 2 : all >> 32 == 0 ? 4 : 8;
    file.write(g.name.data(), length);
    file.write(&bytes, 1);
    for (const std::uint64_t r : g.results) file.write(reinterpret_cast<const char*>(&r), bytes);
  }
  return static_cast<bool>(file);
}

std::vector<Golden> read_golden(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<Golden> all;
  std::uint32_t length;
  while (file.read(reinterpret_cast<char*>(&length), 4) && length < 4096) {
    Golden g;
    g.name.resize(length);
    g.results.resize(kThreads);
    char bytes = 0;
    file.read(g.name.data(), length);
    if (!file.read(&bytes, 1) || bytes < 1 || bytes > 8) break;
    for (std::uint64_t& r : g.results) file.read(reinterpret_cast<char*>(&r), bytes);
    if (!file) break;
    all.push_back(std::move(g));
  }
  return all;
}

}  // namespace sluice::conformance
