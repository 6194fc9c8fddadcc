// SPDX-License-Identifier: Apache-2.0
// Functions that device code calls and the driver provides: vprintf, __assertfail, malloc, free.
#include <cstdio>
#include <cstring>

#include "kernels/exec/memory/device_heap.h"
#include "kernels/exec/run/block_impl.h"

namespace sluice::exec::detail {
namespace {

// What a kernel may print at once: longer texts are cut.
constexpr size_t kMaxText = 64 * 1024;
constexpr size_t kMaxFormat = 4096;
constexpr int kMaxFieldWidth = 1024;  // of one conversion

// A lane's view of memory through generic addresses.
struct LaneMemory {
  WarpState& warp;
  const BlockState& block;
  uint32_t lane;

  bool read(uint64_t address, void* to, size_t bytes) const {
    const uint64_t window = address & ~(kWindowBytes - 1), inside = address & (kWindowBytes - 1);
    const uint8_t* from = nullptr;
    const auto within = [&](const uint8_t* base, uint64_t size) {
      if (bytes <= size && inside <= size - bytes) from = base + inside;
    };
    if (window == kLocalWindow)
      within(warp.local + size_t{lane} * block.local_bytes, block.local_bytes);
    else if (window == kSharedWindow)
      within(block.shared, block.shared_bytes);
    else if (window == kParamWindow)
      within(block.params, block.param_bytes);
    else if (block.map->find(address, bytes).bytes != 0)
      from = reinterpret_cast<const uint8_t*>(address);
    if (from == nullptr) return false;
    std::memcpy(to, from, bytes);
    return true;
  }
  // False: not readable before its end or the limit.
  bool read_string(uint64_t address, std::string& text) const {
    for (size_t k = 0; k < kMaxFormat; ++k) {
      char c;
      if (!read(address + k, &c, 1)) return false;
      if (c == '\0') return true;
      text += c;
    }
    return true;
  }
};

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

  bool conversion(const std::string& f, size_t& k, std::string& out) {
    const size_t begin = k++;
    std::string spec = "%";
    while (k < f.size() && std::strchr("-+ #0", f[k]) != nullptr) spec += f[k++];
    const auto number = [&](int& value) {
      if (k < f.size() && f[k] == '*') {
        ++k;
        if (!next(value)) return false;
      } else {
        while (k < f.size() && f[k] >= '0' && f[k] <= '9' && value < kMaxFieldWidth)
          value = value * 10 + (f[k++] - '0');
      }
      value = value > kMaxFieldWidth    ? kMaxFieldWidth
              : value < -kMaxFieldWidth ? -kMaxFieldWidth
                                        : value;
      return true;
    };
    int value = 0;
    if (!number(value)) return false;
    if (value != 0) spec += std::to_string(value);
    if (k < f.size() && f[k] == '.') {
      ++k;
      value = 0;
      if (!number(value)) return false;
      if (value >= 0) spec.append(".").append(std::to_string(value));
    }
    int longs = 0, shorts = 0;
    while (k < f.size() && std::strchr("hlLqjzt", f[k]) != nullptr) {
      f[k] == 'h' ? ++shorts : ++longs;
      ++k;
    }
    const char* const narrow = shorts == 0 ? "" : shorts == 1 ? "h" : "hh";
    if (k >= f.size()) {
      out += f.substr(begin);
      return true;
    }
    const char kind = f[k++];
    char text[kMaxFieldWidth * 2 + 512];
    const auto print = [&](const char* length, auto argument) {
      const std::string full = spec + length + kind;
      const int n = std::snprintf(text, sizeof(text), full.c_str(), argument);
      if (n > 0) out.append(text, std::min<size_t>(static_cast<size_t>(n), sizeof(text) - 1));
    };
    switch (kind) {
      case 'd':
      case 'i': {
        if (longs != 0) {
          long long v;
          if (!next(v)) return false;
          print("ll", v);
        } else {
          int v;
          if (!next(v)) return false;
          print(narrow, v);
        }
        return true;
      }
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        if (longs != 0) {
          unsigned long long v;
          if (!next(v)) return false;
          print("ll", v);
        } else {
          unsigned v;
          if (!next(v)) return false;
          print(narrow, v);
        }
        return true;
      }
      case 'c': {
        int v;
        if (!next(v)) return false;
        print("", v);
        return true;
      }
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
      case 'a':
      case 'A': {
        double v;
        if (!next(v)) return false;
        print("", v);
        return true;
      }
      case 'p': {
        uint64_t v;
        if (!next(v)) return false;
        print("", reinterpret_cast<const void*>(v));
        return true;
      }
      case 's': {
        uint64_t address;
        std::string s;
        if (!next(address)) return false;
        if (address == 0)
          s = "(null)";
        else if (!memory_.read_string(address, s))
          return false;
        print("", s.c_str());
        return true;
      }
      default:
        out += f.substr(begin, k - begin);
        return true;
    }
  }

  const LaneMemory& memory_;
  uint64_t buffer_;
  uint64_t offset_ = 0;
  int32_t arguments_ = 0;
};

}  // namespace

bool BlockImpl::builtin(WarpState& w, const Inst& in) {
  const uint32_t* offsets = aux + in.aux;
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    const LaneMemory memory{w, *this, lane};
    uint64_t frame = 0;
    if (code_.has_frames) std::memcpy(&frame, w.regs + kFramePointer + size_t{8} * lane, 8);
    uint8_t* local = w.local + size_t{lane} * local_bytes + frame;
    const auto argument = [&](uint32_t k) {
      uint64_t v;
      std::memcpy(&v, local + offsets[k], 8);
      return v;
    };
    switch (static_cast<Builtin>(in.imm)) {
      case Builtin::kAssertFail: {
        std::string message, file, function;
        uint32_t line;
        std::memcpy(&line, local + offsets[2], 4);
        memory.read_string(argument(0), message);
        memory.read_string(argument(1), file);
        memory.read_string(argument(3), function);
        const auto triple = [](uint32_t x, uint32_t y, uint32_t z) {
          return "[" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + "]";
        };
        // As the driver's own message.
        detail_ = file + ":" + std::to_string(line) + ": " + function +
                  ": block: " + triple(ctaid.x, ctaid.y, ctaid.z) +
                  ", thread: " + triple(w.tid[0][lane], w.tid[1][lane], w.tid[2][lane]) +
                  " Assertion `" + message + "` failed.";
        w.fault(FaultKind::kAssert, lane, 0, 0);
        return false;
      }
      case Builtin::kMalloc: {
        const uint64_t address = shape.heap == nullptr ? 0 : shape.heap->allocate(argument(0));
        if (in.d != kNoOperand) std::memcpy(local + in.d, &address, 8);
        break;
      }
      case Builtin::kFree: {
        const uint64_t address = argument(0);
        if (address == 0 || (shape.heap != nullptr && shape.heap->free(address))) break;
        w.fault(FaultKind::kBadFree, lane, address, 0);
        detail_ = "free of what malloc did not give, or a second free";
        return false;
      }
      case Builtin::kVprintf: {
        // What printf returns: the number of arguments, or -1 without a format.
        int32_t result = -1;
        std::string format, text;
        if (const uint64_t address = argument(0); address != 0) {
          if (!memory.read_string(address, format)) {
            w.fault(FaultKind::kOutOfBounds, lane, address, 1);
            return false;
          }
          Formatter formatter(memory, argument(1));
          if (!formatter.format(format, text)) {
            w.fault(FaultKind::kOutOfBounds, lane, argument(1), 1);
            return false;
          }
          result = formatter.arguments();
          environment->print(text);
        }
        if (in.d != kNoOperand) std::memcpy(local + in.d, &result, 4);
        break;
      }
    }
  }
  ++w.splits[w.current].pc;
  return true;
}

}  // namespace sluice::exec::detail
