// Functions that device code calls and the driver provides: vprintf and __assertfail.
#include <cstdio>
#include <cstring>

#include "kernels/exec/block_impl.h"

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
    int longs = 0;
    while (k < f.size() && std::strchr("hlLqjzt", f[k]) != nullptr) {
      if (f[k] != 'h') ++longs;
      ++k;
    }
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
          print("", v);
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
          print("", v);
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
};

}  // namespace

bool BlockImpl::builtin(WarpState& w, const Inst& in) {
  const uint32_t* arguments = aux + in.aux;
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    const LaneMemory memory{w, *this, lane};
    uint8_t* local = w.local + size_t{lane} * local_bytes;
    const auto argument = [&](uint32_t k) {
      uint64_t v;
      std::memcpy(&v, local + arguments[k], 8);
      return v;
    };
    if (static_cast<Builtin>(in.imm) == Builtin::kAssertFail) {
      std::string message, file, function;
      uint32_t line;
      std::memcpy(&line, local + arguments[2], 4);
      memory.read_string(argument(0), message);
      memory.read_string(argument(1), file);
      memory.read_string(argument(3), function);
      detail_ = file + ":" + std::to_string(line) + ": " + function + ": " + message;
      w.fault(FaultKind::kAssert, lane, 0, 0);
      return false;
    }
    std::string format, text;
    if (!memory.read_string(argument(0), format)) {
      w.fault(FaultKind::kOutOfBounds, lane, argument(0), 1);
      return false;
    }
    const uint64_t buffer = argument(1);
    if (!Formatter(memory, buffer).format(format, text)) {
      w.fault(FaultKind::kOutOfBounds, lane, buffer, 1);
      return false;
    }
    environment->print(text);
    if (in.d != kNoOperand) {
      const int32_t result = static_cast<int32_t>(text.size());
      std::memcpy(local + in.d, &result, 4);
    }
  }
  ++w.splits[w.current].pc;
  return true;
}

}  // namespace sluice::exec::detail
