// SPDX-License-Identifier: Apache-2.0
#include "kernels/suite/catalog/trace.h"

#include <charconv>
#include <stdexcept>

namespace sluice::suite {

namespace {

// What fresh device memory holds when a program is recorded.
constexpr std::byte kFreshByte{0xcd};

class Parser {
 public:
  Parser(std::string_view text, std::uint64_t max_bytes) : rest_(text), max_bytes_(max_bytes) {}

  Trace run() {
    Trace trace;
    if (!next_line() || word() != "sluice-trace" || number() != 1) fail("not a trace");
    bool ended = false;
    while (!ended && next_line()) {
      const std::string_view what = word();
      if (what == "case") {
        trace.work.name = word();
      } else if (what == "module") {
        trace.module = word();
      } else if (what == "buffer") {
        if (number() != sizes_.size()) fail("buffers are numbered from 0 on");
        const std::uint64_t bytes = number();
        if (bytes > max_bytes_ - all_bytes_) fail("too large a buffer");
        all_bytes_ += bytes;
        sizes_.push_back(bytes);
        trace.work.buffers.push_back(
            {std::to_string(sizes_.size() - 1), std::vector<std::byte>(bytes, kFreshByte)});
      } else if (what == "end") {
        ended = true;
      } else {
        trace.work.steps.push_back(step(what));
      }
    }
    if (!ended) fail("the end is missing");
    trace.work.check = [](const Contents&) { return std::string(); };
    return trace;
  }

 private:
  Step step(std::string_view what) {
    if (what == "upload" || what == "expect") {
      const std::uint32_t buffer = buffer_number();
      const std::uint64_t offset = number();
      std::vector<std::byte> bytes = hex();
      require(buffer, offset, bytes.size());
      if (what == "upload") return Upload{buffer, offset, std::move(bytes)};
      return Expect{buffer, offset, std::move(bytes)};
    }
    if (what == "copy") {
      Copy copy;
      copy.to = buffer_number();
      copy.to_offset = number();
      copy.from = buffer_number();
      copy.from_offset = number();
      copy.bytes = number();
      require(copy.to, copy.to_offset, copy.bytes);
      require(copy.from, copy.from_offset, copy.bytes);
      return copy;
    }
    if (what == "fill") {
      Fill fill;
      fill.buffer = buffer_number();
      fill.offset = number();
      fill.bytes = number();
      fill.value = static_cast<std::uint8_t>(number());
      require(fill.buffer, fill.offset, fill.bytes);
      return fill;
    }
    if (what == "symbol") {
      SetSymbol symbol;
      symbol.name = word();
      symbol.offset = number();
      symbol.bytes = hex();
      return symbol;
    }
    if (what == "launch") return launch();
    fail("unknown step");
  }

  Launch launch() {
    Launch launch;
    launch.kernel = word();
    for (std::uint32_t& each : launch.grid) each = static_cast<std::uint32_t>(number());
    for (std::uint32_t& each : launch.block) each = static_cast<std::uint32_t>(number());
    launch.dynamic_shared = static_cast<std::uint32_t>(number());
    launch.params = hex();
    const std::uint64_t count = number();
    for (std::uint64_t i = 0; i < count; ++i) {
      launch.param_offsets.push_back(static_cast<std::uint32_t>(number()));
      if (launch.param_offsets.back() >= launch.params.size()) fail("offset outside the block");
    }
    while (!line_.empty()) {
      PointerAt pointer;
      pointer.offset = static_cast<std::uint32_t>(number(':'));
      pointer.buffer = static_cast<std::uint32_t>(number(':'));
      pointer.addend = number();
      if (pointer.offset + std::uint64_t{8} > launch.params.size()) fail("pointer outside");
      if (pointer.buffer >= sizes_.size()) fail("unknown buffer");
      launch.pointers.push_back(pointer);
    }
    return launch;
  }

  [[noreturn]] void fail(const char* what) const {
    throw std::runtime_error("trace, line " + std::to_string(number_of_line_) + ": " + what);
  }
  bool next_line() {
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_ = end == rest_.npos ? std::string_view() : rest_.substr(end + 1);
    ++number_of_line_;
    return true;
  }
  std::string_view word(char stop = ' ') {
    if (line_.empty()) fail("a word is missing");
    const std::size_t end = line_.find(stop);
    const std::string_view result = line_.substr(0, end);
    line_ = end == line_.npos ? std::string_view() : line_.substr(end + 1);
    return result;
  }
  std::uint64_t number(char stop = ' ') {
    const std::string_view text = word(stop);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail("not a number");
    return value;
  }
  std::uint32_t buffer_number() {
    const std::uint64_t buffer = number();
    if (buffer >= sizes_.size()) fail("unknown buffer");
    return static_cast<std::uint32_t>(buffer);
  }
  void require(std::uint32_t buffer, std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > sizes_[buffer] || bytes > sizes_[buffer] - offset) fail("outside the buffer");
  }
  std::vector<std::byte> hex() {
    const std::string_view text = word();
    if (text == "-") return {};
    if (text.size() % 2 != 0) fail("half a byte");
    std::vector<std::byte> bytes(text.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = std::byte(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    return bytes;
  }
  unsigned digit(char c) const {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
    fail("not a hexadecimal digit");
  }

  std::string_view rest_, line_;
  std::size_t number_of_line_ = 0;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t max_bytes_;
  std::uint64_t all_bytes_ = 0;
};

}  // namespace

Trace parse_trace(std::string_view text, std::uint64_t max_bytes) {
  return Parser(text, max_bytes).run();
}

}  // namespace sluice::suite
