// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces: geometries, formats, address modes, filters, gathers, queries. One fetch
// per thread, at coordinates inside and outside.
#include <cstring>

#include "tests/conformance/builder.h"
#include "tests/conformance/programs.h"

namespace sluice::conformance {
namespace {

constexpr unsigned kFetches = 128;

enum class Coordinates { kInteger, kTexels, kNormalised };

const char kTextureHead[] =
    "(.param .u64 out, .param .u64 in, .param .u64 tex)\n{\n.reg .pred %p<4>; .reg .b16 %h<16>; "
    ".reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>;\nld.param.u64 %rd1, [out]; "
    "ld.param.u64 %rd2, [in]; ld.param.u64 %rd9, [tex];\nmov.u32 %r1, %tid.x; mul.wide.u32 %rd3, "
    "%r1, 16; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;\nld.global.v4.b32 {%r10, %r11, "
    "%r12, %r13}, [%rd2]; mov.b32 %f10, %r10; mov.b32 %f11, %r11; mov.b32 %f12, %r12; mov.b32 "
    "%f13, %r13; mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;\n";
const char kTail[] = "\nst.global.v4.b32 [%rd1], {%r20, %r21, %r22, %r23};\nret;\n}\n";

// x, y, z in the first three words, a layer in the last.
std::vector<std::uint8_t> coordinates(const std::string& name, const TextureSpec& t,
                                      Coordinates kind) {
  Random r{hash(name)};
  std::vector<std::uint32_t> words;
  const unsigned sizes[3] = {t.width, t.height == 0 ? 1 : t.height, t.depth == 0 ? 1 : t.depth};
  for (unsigned k = 0; k < kFetches; ++k) {
    for (unsigned d = 0; d < 3; ++d) {
      const int size = static_cast<int>(sizes[d]);
      if (kind == Coordinates::kInteger) {
        words.push_back(static_cast<std::uint32_t>(
            static_cast<int>(r.next() % static_cast<unsigned>(size + 8)) - 4));
        continue;
      }
      double v = static_cast<double>(r.next() >> 11) * 0x1p-53;
      v = kind == Coordinates::kNormalised ? v * 5 - 2 : v * (size + 8) - 4;
      if (k % 16 == 0) v = static_cast<double>(static_cast<int>(v * 256)) / 256;
      if (k % 16 == 1) v = static_cast<double>(static_cast<int>(v * 2)) / 2;
      if (k == 2 + d) v = 1e30;
      if (k == 5 + d) v = -1e30;
      const float f = static_cast<float>(v);
      std::uint32_t bits;
      std::memcpy(&bits, &f, 4);
      if (k == 8 + d) bits = 0x7fffffff;  // NaN
      if (k == 11 + d) bits = 0x80000000;
      words.push_back(bits);
    }
    words.push_back(static_cast<std::uint32_t>(r.next() % (sizes[2] + 2)));
  }
  std::vector<std::uint8_t> bytes(words.size() * 4);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

void add(std::vector<Program>& all, std::string name, const TextureSpec& t, Coordinates kind,
         const std::string& body) {
  Program p;
  for (char& ch : name)
    if (std::isalnum(static_cast<unsigned char>(ch)) == 0) ch = '_';
  p.name = "t" + std::to_string(all.size()) + "_" + name;
  p.threads = kFetches;
  p.text = ".visible .entry " + p.name + kTextureHead + body + kTail;
  p.input = coordinates(name, t, kind);
  p.output_bytes = kFetches * 16;
  p.texture = t;
  if (t.filter == CU_TR_FILTER_MODE_LINEAR) {
    // Means agree to one step of each dimension's weight (1/256 of the texels' range).
    const bool numbers = t.format == CU_AD_FORMAT_FLOAT || t.format == CU_AD_FORMAT_HALF;
    p.values = Values::kF32;
    p.absolute = 3.0 / 256 * (numbers ? 16 : 2);
  }
  all.push_back(std::move(p));
}

std::string point(const std::string& geometry, Coordinates kind) {
  const std::string p = kind == Coordinates::kInteger ? "%r" : "%f";
  const std::string x = p + "10", y = p + "11", z = p + "12";
  if (geometry == "1d") return "{" + x + "}";
  if (geometry == "2d") return "{" + x + ", " + y + "}";
  if (geometry == "3d") return "{" + x + ", " + y + ", " + z + ", " + z + "}";
  if (geometry == "a1d") return "{%r13, " + x + "}";
  return "{%r13, " + x + ", " + y + ", " + y + "}";
}

TextureSpec shaped(const std::string& geometry, CUarray_format format, unsigned channels) {
  TextureSpec t;
  t.format = format;
  t.channels = channels;
  t.width = geometry == "3d" ? 7 : 13;
  t.height = geometry.back() == 'd' && geometry[geometry.size() - 2] == '1' ? 0 : 9;
  t.depth = geometry == "3d" ? 5 : geometry[0] == 'a' ? 3 : 0;
  t.layered = geometry[0] == 'a';
  if (geometry == "3d") t.height = 6;
  return t;
}

std::string fetch(const std::string& geometry, const std::string& type, Coordinates kind,
                  const std::string& level = "") {
  const std::string coordinate = kind == Coordinates::kInteger ? ".s32" : ".f32";
  const bool floats = type == "f32";
  const std::string to = floats ? "{%f1, %f2, %f3, %f4}" : "{%r20, %r21, %r22, %r23}";
  return "tex" + level + "." + geometry + ".v4." + type + coordinate + " " + to + ", [%rd9, " +
         point(geometry, kind) + "]" + (level == ".level" ? ", %f14" : "") + ";" +
         (floats ? " mov.b32 %r20, %f1; mov.b32 %r21, %f2; mov.b32 %r22, %f3; mov.b32 %r23, %f4;"
                 : "");
}

void fetches(std::vector<Program>& all) {
  struct Named {
    const char* name;
    CUaddress_mode mode;
  };
  const Named modes[] = {{"wrap", CU_TR_ADDRESS_MODE_WRAP},
                         {"clamp", CU_TR_ADDRESS_MODE_CLAMP},
                         {"mirror", CU_TR_ADDRESS_MODE_MIRROR},
                         {"border", CU_TR_ADDRESS_MODE_BORDER}};
  for (const std::string geometry : {"1d", "2d", "3d", "a1d", "a2d"}) {
    TextureSpec t = shaped(geometry, CU_AD_FORMAT_FLOAT, 4);
    for (const Named& mode : modes) {
      t.address = mode.mode;
      const float border[4] = {0.25f, -3.0f, 7.5f, 1.0f};
      std::memcpy(t.border, border, sizeof border);
      const std::string tail = geometry + "_" + mode.name;
      for (const bool linear : {false, true}) {
        t.filter = linear ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT;
        t.flags = CU_TRSF_NORMALIZED_COORDINATES;
        add(all, std::string(linear ? "linear" : "point") + "_normalised_" + tail, t,
            Coordinates::kNormalised, fetch(geometry, "f32", Coordinates::kNormalised));
        t.flags = 0;
        add(all, std::string(linear ? "linear" : "point") + "_texels_" + tail, t,
            Coordinates::kTexels, fetch(geometry, "f32", Coordinates::kTexels));
      }
      t.filter = CU_TR_FILTER_MODE_POINT;
      add(all, "integers_" + tail, t, Coordinates::kInteger,
          fetch(geometry, "f32", Coordinates::kInteger));
    }
  }
  // Formats: as they are, as numbers between 0 and 1, filtered.
  struct Reading {
    const char* name;
    CUarray_format format;
    const char* type;
  };
  const Reading formats[] = {{"u8", CU_AD_FORMAT_UNSIGNED_INT8, "u32"},
                             {"s8", CU_AD_FORMAT_SIGNED_INT8, "s32"},
                             {"u16", CU_AD_FORMAT_UNSIGNED_INT16, "u32"},
                             {"s16", CU_AD_FORMAT_SIGNED_INT16, "s32"},
                             {"u32", CU_AD_FORMAT_UNSIGNED_INT32, "u32"},
                             {"s32", CU_AD_FORMAT_SIGNED_INT32, "s32"},
                             {"f16", CU_AD_FORMAT_HALF, "f32"}};
  for (const Reading& f : formats) {
    for (const unsigned channels : {1u, 2u, 4u}) {
      TextureSpec t = shaped("2d", f.format, channels);
      const std::string tail = std::string("_") + f.name + "_" + std::to_string(channels);
      const bool wide =
          f.format == CU_AD_FORMAT_UNSIGNED_INT32 || f.format == CU_AD_FORMAT_SIGNED_INT32;
      if (f.format != CU_AD_FORMAT_HALF) {
        t.flags = CU_TRSF_READ_AS_INTEGER;
        add(all, "as_integer" + tail, t, Coordinates::kInteger,
            fetch("2d", f.type, Coordinates::kInteger));
        t.address = CU_TR_ADDRESS_MODE_BORDER;
        t.border[0] = 0.5f;
        t.border[1] = 2.0f;
        t.border[3] = 1.0f;
        add(all, "as_integer_border" + tail, t, Coordinates::kTexels,
            fetch("2d", f.type, Coordinates::kTexels));
        t.address = CU_TR_ADDRESS_MODE_CLAMP;
      }
      if (wide) continue;
      t.flags = 0;
      add(all, "as_float" + tail, t, Coordinates::kInteger,
          fetch("2d", "f32", Coordinates::kInteger));
      t.filter = CU_TR_FILTER_MODE_LINEAR;
      t.flags = CU_TRSF_NORMALIZED_COORDINATES;
      add(all, "filtered" + tail, t, Coordinates::kNormalised,
          fetch("2d", "f32", Coordinates::kNormalised));
    }
  }
  // Memory that is no array.
  TextureSpec t = shaped("1d", CU_AD_FORMAT_FLOAT, 2);
  t.width = 40;
  t.resource = TextureSpec::Resource::kLinear;
  add(all, "linear_memory", t, Coordinates::kInteger, fetch("1d", "f32", Coordinates::kInteger));
  t.format = CU_AD_FORMAT_UNSIGNED_INT16;
  t.channels = 4;
  t.flags = CU_TRSF_READ_AS_INTEGER;
  add(all, "linear_memory_u16", t, Coordinates::kInteger,
      fetch("1d", "u32", Coordinates::kInteger));
  t = shaped("2d", CU_AD_FORMAT_FLOAT, 4);
  t.resource = TextureSpec::Resource::kPitch2d;
  add(all, "pitched_memory", t, Coordinates::kInteger, fetch("2d", "f32", Coordinates::kInteger));
  t.filter = CU_TR_FILTER_MODE_LINEAR;
  t.flags = CU_TRSF_NORMALIZED_COORDINATES;
  t.address = CU_TR_ADDRESS_MODE_WRAP;
  add(all, "pitched_memory_linear", t, Coordinates::kNormalised,
      fetch("2d", "f32", Coordinates::kNormalised));
  // Levels of a texture that has one.
  t.resource = TextureSpec::Resource::kArray;
  add(all, "level", t, Coordinates::kNormalised,
      "mov.b32 %f14, 0f3f800000; " + fetch("2d", "f32", Coordinates::kNormalised, ".level"));
  for (const std::string component : {"r", "g", "b", "a"}) {
    for (const bool normalised : {false, true}) {
      TextureSpec g = shaped("2d", CU_AD_FORMAT_FLOAT, 4);
      g.gather = true;
      g.flags = normalised ? CU_TRSF_NORMALIZED_COORDINATES : 0;
      g.address = normalised ? CU_TR_ADDRESS_MODE_WRAP : CU_TR_ADDRESS_MODE_CLAMP;
      add(all, "gather_" + component + (normalised ? "_wrap" : "_clamp"), g,
          normalised ? Coordinates::kNormalised : Coordinates::kTexels,
          "tld4." + component +
              ".2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd9, {%f10, %f11}]; mov.b32 %r20, %f1; "
              "mov.b32 %r21, %f2; mov.b32 %r22, %f3; mov.b32 %r23, %f4;");
    }
  }
  // Width alone and in combinations.
  t = shaped("2d", CU_AD_FORMAT_FLOAT, 2);
  add(all, "query", t, Coordinates::kInteger,
      "txq.width.b32 %r20, [%rd9]; txq.height.b32 %r21, [%rd9];");
  t = shaped("3d", CU_AD_FORMAT_FLOAT, 2);
  add(all, "query_3d", t, Coordinates::kInteger,
      "txq.width.b32 %r20, [%rd9]; txq.height.b32 %r21, [%rd9]; txq.depth.b32 %r22, [%rd9];");
}

void surfaces(std::vector<Program>& all) {
  struct Form {
    const char* type;
    unsigned bytes, vector;
  };
  const Form forms[] = {{"b8", 1, 1},  {"b8", 1, 2},  {"b8", 1, 4},  {"b16", 2, 1},
                        {"b16", 2, 2}, {"b16", 2, 4}, {"b32", 4, 1}, {"b32", 4, 2},
                        {"b32", 4, 4}, {"b64", 8, 1}, {"b64", 8, 2}};
  for (const std::string geometry : {"1d", "2d", "3d", "a1d", "a2d"}) {
    for (const Form& f : forms) {
      if (geometry != "2d" && !(f.bytes == 4 && f.vector == 4)) continue;
      for (const std::string mode : {"trap", "clamp", "zero"}) {
        const unsigned size = f.bytes * f.vector;
        const unsigned channel = size / (size >= 16 ? 4 : f.vector == 4 ? 4 : f.vector);
        TextureSpec t = shaped(geometry,
                               channel >= 4   ? CU_AD_FORMAT_UNSIGNED_INT32
                               : channel == 2 ? CU_AD_FORMAT_UNSIGNED_INT16
                                              : CU_AD_FORMAT_UNSIGNED_INT8,
                               channel >= 4 ? size / 4 : f.vector);
        t.surface = true;
        const std::string what =
            geometry + std::string("_") + f.type + "_v" + std::to_string(f.vector) + "_" + mode;
        // .trap must stay inside; x counts bytes.
        std::string prepare;
        if (mode == "trap")
          prepare = "rem.u32 %r10, %r1, " + std::to_string(t.width) + "; rem.u32 %r11, %r1, " +
                    std::to_string(t.height == 0 ? 1 : t.height) + "; rem.u32 %r12, %r1, " +
                    std::to_string(t.depth == 0 ? 1 : t.depth) + ";";
        if (t.layered || mode == "trap")
          prepare += "rem.u32 %r13, %r1, " + std::to_string(t.depth == 0 ? 1 : t.depth) + ";";
        prepare += "mul.lo.s32 %r10, %r10, " + std::to_string(size) + ";\n";
        const char* prefix = f.bytes == 8 ? "%rd" : f.bytes <= 2 ? "%h" : "%r";
        const unsigned first = f.bytes == 8 ? 10 : f.bytes <= 2 ? 1 : 20;
        std::string list = "{";
        for (unsigned k = 0; k < f.vector; ++k)
          list += (k == 0 ? "" : ", ") + std::string(prefix) + std::to_string(first + k);
        list += "}";
        std::string unpack;
        for (unsigned k = 0; k < f.vector; ++k) {
          const std::string h = std::to_string(1 + k), r = std::to_string(20 + k);
          if (f.bytes == 8)
            unpack += "mov.b64 {%r" + std::to_string(20 + 2 * k) + ", %r" +
                      std::to_string(21 + 2 * k) + "}, %rd" + std::to_string(10 + k) + ";";
          else if (f.bytes <= 2)
            unpack += "cvt.u32.u16 %r" + r + ", %h" + h + ";";
        }
        const std::string vector = f.vector == 1 ? "" : ".v" + std::to_string(f.vector);
        const std::string at = ", [%rd9, " + point(geometry, Coordinates::kInteger) + "];";
        add(all, "suld_" + what, t, Coordinates::kInteger,
            prepare + "suld.b." + geometry + vector + "." + f.type + "." + mode + " " + list + at +
                "\n" + unpack);
        // Threads write different texels where they can; where not, the same value.
        if (geometry == "2d" || geometry == "1d") {
          std::string values;
          const std::string h =
              "mad.lo.u32 %r14, %r10, 40503, 77; mad.lo.u32 %r14, %r11, 9973, %r14;";
          for (unsigned k = 0; k < f.vector; ++k) {
            const std::string n = std::to_string(first + k);
            values += "add.u32 %r14, %r14, 771;";
            values += f.bytes == 8   ? "mov.b64 %rd" + n + ", {%r14, %r14};"
                      : f.bytes <= 2 ? "cvt.u16.u32 %h" + n + ", %r14;"
                                     : "mov.b32 %r" + n + ", %r14;";
          }
          TextureSpec w = t;
          w.read_back = true;
          // Values by the place they land at, so that clamped threads agree.
          std::string place;
          if (mode == "clamp") {
            place = "max.s32 %r10, %r10, 0; min.s32 %r10, %r10, " +
                    std::to_string((t.width - 1) * size) +
                    "; max.s32 %r11, %r11, 0; min.s32 %r11, "
                    "%r11, " +
                    std::to_string((t.height == 0 ? 1 : t.height) - 1) + ";";
          }
          if (geometry == "1d") place += "mov.b32 %r11, 0;";
          // The unclamped coordinates go to the instruction.
          const std::string keep = "mov.b32 %r15, %r10; mov.b32 %r16, %r11;";
          const std::string give = "mov.b32 %r10, %r15; mov.b32 %r11, %r16;";
          add(all, "sust_" + what, w, Coordinates::kInteger,
              prepare + keep + place + h + values + give + "sust.b." + geometry + vector + "." +
                  f.type + "." + mode + " [%rd9, " + point(geometry, Coordinates::kInteger) +
                  "], " + list + ";" +
                  " mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; "
                  "mov.b32 %r23, 0;");
        }
      }
    }
  }
  for (const std::string op : {"add.u32", "min.u32", "max.s32", "and.b32", "or.b32", "add.u64"}) {
    TextureSpec t = shaped("2d", CU_AD_FORMAT_UNSIGNED_INT32, op == "add.u64" ? 2 : 1);
    t.surface = t.read_back = true;
    const unsigned size = 4 * t.channels;
    add(all, "sured_" + op, t, Coordinates::kInteger,
        "mul.lo.s32 %r10, %r10, " + std::to_string(size) +
            "; mov.b64 %rd10, {%r13, %r11}; sured.b.2d." + op + ".zero [%rd9, {%r10, %r11}], " +
            (op == "add.u64" ? "%rd10;" : "%r10;"));
  }
  TextureSpec t = shaped("2d", CU_AD_FORMAT_UNSIGNED_INT16, 2);
  t.surface = true;
  add(all, "surface_query", t, Coordinates::kInteger,
      "suq.width.b32 %r20, [%rd9]; suq.height.b32 %r21, [%rd9];");
}

}  // namespace

void texture_programs(std::vector<Program>& all) {
  fetches(all);
  surfaces(all);
}

}  // namespace sluice::conformance
