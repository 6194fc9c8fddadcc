// SPDX-License-Identifier: Apache-2.0
// Functions that device code calls and the driver provides: vprintf, __assertfail, malloc, free,
// and those of device_runtime.h.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/exec/memory/device_heap.h"
#include "kernels/exec/run/block_impl.h"
#include "kernels/exec/run/device_runtime.h"
#include "kernels/exec/run/lane_call.h"

namespace sluice::exec::detail {
namespace {

// What a kernel may print at once: longer texts are cut.
constexpr size_t kMaxText = 64 * 1024;
constexpr int kMaxFieldWidth = 1024;  // of one conversion

// Formats as printf does; the arguments lie in `buffer`, each at a multiple of its size, as the
// compiler packs them for vprintf.
class Formatter {
 public:
  Formatter(const LaneMemory& memory, uint64_t buffer) : memory_(memory), buffer_(buffer) {}

  int32_t arguments() const { return arguments_; }

  bool format(const std::string& f, std::string& out) {
    size_t k = 0;
    while (k < f.size() && out.size() < kMaxText) {
      if (f[k] != '%') {
        out += f[k++];
        continue;
      }
      if (k + 1 < f.size() && f[k + 1] == '%') {
        out += '%';
        k += 2;
        continue;
      }
      if (!conversion(f, k, out)) return false;
    }
    return true;
  }

 private:
  template <class T>
  bool next(T& value) {
    offset_ = (offset_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    const bool good = memory_.read(buffer_ + offset_, &value, sizeof(T));
    offset_ += sizeof(T);
    ++arguments_;
    return good;
  }

  // A conversion without its kind: "%", flags, width, precision; and the length.
  struct Specification {
    std::string text = "%";
    int longs = 0, shorts = 0;
  };

  // A width or a precision; `*`: the next argument.
  bool number(const std::string& f, size_t& k, int& value) {
    if (k < f.size() && f[k] == '*') {
      ++k;
      if (!next(value)) return false;
    } else {
      while (k < f.size() && f[k] >= '0' && f[k] <= '9' && value < kMaxFieldWidth)
        value = value * 10 + (f[k++] - '0');
    }
    value = std::clamp(value, -kMaxFieldWidth, kMaxFieldWidth);
    return true;
  }

  bool specification(const std::string& f, size_t& k, Specification& s) {
    while (k < f.size() && std::strchr("-+ #0", f[k]) != nullptr) s.text += f[k++];
    int value = 0;
    if (!number(f, k, value)) return false;
    if (value != 0) s.text += std::to_string(value);
    if (k < f.size() && f[k] == '.') {
      ++k;
      value = 0;
      if (!number(f, k, value)) return false;
      if (value >= 0) s.text.append(".").append(std::to_string(value));
    }
    for (; k < f.size() && std::strchr("hlLqjzt", f[k]) != nullptr; ++k)
      f[k] == 'h' ? ++s.shorts : ++s.longs;
    return true;
  }

  // Prints one argument, which the kernel passes as a T.
  template <class T>
  bool print(const std::string& specification, std::string& out) {
    T v;
    if (!next(v)) return false;
    put(specification, v, out);
    return true;
  }
  template <class T>
  void put(const std::string& specification, T v, std::string& out) {
    char text[kMaxFieldWidth * 2 + 512];
    const int n = std::snprintf(text, sizeof(text), specification.c_str(), v);
    if (n > 0) out.append(text, std::min<size_t>(static_cast<size_t>(n), sizeof(text) - 1));
  }

  bool conversion(const std::string& f, size_t& k, std::string& out) {
    const size_t begin = k++;
    Specification s;
    if (!specification(f, k, s)) return false;
    if (k >= f.size()) {
      out += f.substr(begin);
      return true;
    }
    const char kind = f[k++];
    const bool wide = s.longs != 0;
    const char* const length = wide ? "ll" : s.shorts == 0 ? "" : s.shorts == 1 ? "h" : "hh";
    if (std::strchr("di", kind) != nullptr)
      return wide ? print<long long>(s.text + length + kind, out)
                  : print<int>(s.text + length + kind, out);
    if (std::strchr("uxXo", kind) != nullptr)
      return wide ? print<unsigned long long>(s.text + length + kind, out)
                  : print<unsigned>(s.text + length + kind, out);
    if (kind == 'c') return print<int>(s.text + kind, out);
    if (std::strchr("fFeEgGaA", kind) != nullptr) return print<double>(s.text + kind, out);
    if (kind == 'p') return print<void*>(s.text + kind, out);
    if (kind != 's') {
      out += f.substr(begin, k - begin);
      return true;
    }
    uint64_t address;
    std::string string;
    if (!next(address)) return false;
    if (address == 0)
      string = "(null)";
    else if (!memory_.read_string(address, string))
      return false;
    put(s.text + kind, string.c_str(), out);
    return true;
  }

  const LaneMemory& memory_;
  uint64_t buffer_;
  uint64_t offset_ = 0;
  int32_t arguments_ = 0;
};

}  // namespace

namespace {

std::string triple(uint32_t x, uint32_t y, uint32_t z) {
  return "[" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + "]";
}

// What the assertion says, as the driver's own message does.
std::string assertion_text(const BlockState& block, const LaneMemory& memory,
                           const Parameters& parameters) {
  const WarpState& w = memory.warp;
  std::string message, file, function;
  uint32_t line;
  std::memcpy(&line, parameters.local + parameters.offsets[2], 4);
  memory.read_string(parameters[0], message);
  memory.read_string(parameters[1], file);
  memory.read_string(parameters[3], function);
  return file + ":" + std::to_string(line) + ": " + function +
         ": block: " + triple(block.ctaid.x, block.ctaid.y, block.ctaid.z) + ", thread: " +
         triple(w.tid[0][memory.lane], w.tid[1][memory.lane], w.tid[2][memory.lane]) +
         " Assertion `" + message + "` failed.";
}

// The text of printf, and what it returns: the number of arguments, or -1 without a format. False:
// `bad` is no address that can be read.
bool print(const LaneMemory& memory, const Parameters& parameters, std::string& text,
           int32_t& result, uint64_t& bad) {
  result = -1;
  bad = parameters[0];
  if (bad == 0) return true;
  std::string format;
  if (!memory.read_string(bad, format)) return false;
  bad = parameters[1];
  Formatter formatter(memory, bad);
  if (!formatter.format(format, text)) return false;
  result = formatter.arguments();
  return true;
}

}  // namespace

// False: a fault that ends the whole call.
bool BlockImpl::builtin_of_lane(WarpState& w, const Inst& in, uint32_t lane) {
  const LaneMemory memory{w, *this, lane};
  uint64_t frame = 0;
  if (code_.has_frames) std::memcpy(&frame, w.regs + kFramePointer + size_t{8} * lane, 8);
  const Parameters parameters{w.local + size_t{lane} * local_bytes + frame, aux + in.aux};
  const auto give = [&](const auto& value) {
    if (in.d != kNoOperand) std::memcpy(parameters.local + in.d, &value, sizeof value);
  };
  switch (const auto function = static_cast<Builtin>(in.imm)) {
    case Builtin::kAssertFail: {  // each thread says so; the fault is the first one's
      const std::string text = assertion_text(*this, memory, parameters);
      environment->assertion_failed(text);
      if (w.fault_kind != FaultKind::kNone) return true;
      detail_ = text;
      w.fault(FaultKind::kAssert, lane, 0, 0);
      return true;
    }
    case Builtin::kMalloc:
      give(uint64_t{shape.heap == nullptr ? 0 : shape.heap->allocate(parameters[0])});
      return true;
    case Builtin::kFree: {
      const uint64_t address = parameters[0];
      if (address == 0 || (shape.heap != nullptr && shape.heap->free(address))) return true;
      w.fault(FaultKind::kBadFree, lane, address, 0);
      detail_ = "free of what malloc did not give, or a second free";
      return false;
    }
    case Builtin::kVprintf: {
      std::string text;
      int32_t result;
      uint64_t bad;
      if (!print(memory, parameters, text, result, bad)) {
        w.fault(FaultKind::kOutOfBounds, lane, bad, 1);
        return false;
      }
      if (result >= 0) environment->print(text);
      give(result);
      return true;
    }
    default: {
      const auto result = call_device_runtime(function, memory, parameters, detail_);
      if (!result) return false;
      if (function == Builtin::kLaunchParameters || function == Builtin::kErrorName ||
          function == Builtin::kErrorText)
        give(*result);
      else
        give(static_cast<uint32_t>(*result));
      return true;
    }
  }
}

bool BlockImpl::builtin(WarpState& w, const Inst& in) {
  for (uint32_t m = w.exec; m != 0; m &= m - 1)
    if (!builtin_of_lane(w, in, static_cast<uint32_t>(__builtin_ctz(m)))) return false;
  if (w.fault_kind != FaultKind::kNone) return false;
  ++w.splits[w.current].pc;
  return true;
}

}  // namespace sluice::exec::detail
