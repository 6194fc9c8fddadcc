// SPDX-License-Identifier: Apache-2.0
#include "tests/support/play_exec.h"

#include <cstring>
#include <new>
#include <span>
#include <variant>
#include <vector>

#include "kernels/exec/block/block.h"

namespace sluice::testing {

namespace {

// More warp instructions than any case of the catalogue needs at test sizes.
constexpr std::uint64_t kMaxSteps = 2'000'000'000;

class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(
            ::operator new (bytes == 0 ? 1 : bytes, std::align_val_t{256}))) {}
  Memory(Memory&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() { ::operator delete (data_, std::align_val_t{256}); }
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_); }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

class Player final : public exec::Environment {
 public:
  Player(std::uint32_t resident, exec::Checker* with) : resident_(resident) { checker = with; }

  std::uint64_t global_timer_ns() override { return timer_ += 100; }
  void print(std::string_view) override {}

  void play(const suite::Case& work, std::shared_ptr<const exec::Program> program, Played& played) {
    if (!program) {
      auto decoded = exec::decode_text(work.ptx);
      if (!decoded) return void(played.wrong = decoded.error().message);
      program = *decoded;
    }
    if (!place_symbols(*program, program, played)) return;
    std::vector<std::uint64_t> addresses;
    for (const suite::Buffer& buffer : work.buffers) {
      addresses.push_back(add(buffer.initial.size()));
      std::memcpy(memory_.back().data(), buffer.initial.data(), buffer.initial.size());
    }
    const std::span<Memory> buffers = std::span(memory_).last(work.buffers.size());
    for (const suite::Step& step : work.steps) {
      played.wrong =
          std::visit([&](const auto& each) { return act(each, buffers, addresses); }, step);
      if (!played.wrong.empty()) break;
    }
    for (const Memory& buffer : buffers)
      played.contents.emplace_back(buffer.data(), buffer.data() + buffer.size());
    played.steps = steps_;
    if (played.wrong.empty()) played.wrong = work.check(played.contents);
  }

 private:
  std::uint64_t add(std::size_t bytes) {
    memory_.emplace_back(bytes);
    (void)map_.add(memory_.back().address(), bytes == 0 ? 1 : bytes);
    return memory_.back().address();
  }

  bool place_symbols(const exec::Program& program, std::shared_ptr<const exec::Program> shared,
                     Played& played) {
    std::vector<std::uint64_t> addresses;
    for (const exec::SymbolInfo& symbol : program.symbols()) addresses.push_back(add(symbol.bytes));
    auto image = exec::Image::make(std::move(shared), addresses);
    if (!image) {
      played.wrong = image.error().message;
      return false;
    }
    image_ = *image;
    for (std::size_t k = 0; k < addresses.size(); ++k) {
      const std::vector<std::uint8_t> values = image_->initial_values(k);
      std::memcpy(memory_[k].data(), values.data(), values.size());
    }
    return true;
  }

  std::string act(const suite::Upload& upload, std::span<Memory> buffers, const auto&) {
    std::memcpy(buffers[upload.buffer].data() + upload.offset, upload.bytes.data(),
                upload.bytes.size());
    return {};
  }
  std::string act(const suite::Copy& copy, std::span<Memory> buffers, const auto&) {
    std::memmove(buffers[copy.to].data() + copy.to_offset,
                 buffers[copy.from].data() + copy.from_offset, copy.bytes);
    return {};
  }
  std::string act(const suite::Fill& fill, std::span<Memory> buffers, const auto&) {
    std::memset(buffers[fill.buffer].data() + fill.offset, fill.value, fill.bytes);
    return {};
  }
  std::string act(const suite::SetSymbol& symbol, std::span<Memory>, const auto&) {
    const std::span<const exec::SymbolInfo> symbols = image_->program().symbols();
    for (std::size_t k = 0; k < symbols.size(); ++k) {
      if (symbols[k].name != symbol.name) continue;
      if (symbol.offset + symbol.bytes.size() > symbols[k].bytes) break;
      std::memcpy(memory_[k].data() + symbol.offset, symbol.bytes.data(), symbol.bytes.size());
      return {};
    }
    return "no variable " + symbol.name + " of that size";
  }
  std::string act(const suite::Expect& expect, std::span<Memory> buffers, const auto&) {
    const std::byte* got = buffers[expect.buffer].data() + expect.offset;
    for (std::size_t i = 0; i < expect.bytes.size(); ++i)
      if (got[i] != expect.bytes[i])
        return "after " + last_ + ": byte " + std::to_string(expect.offset + i) + " of buffer " +
               std::to_string(expect.buffer) + " is " + std::to_string(unsigned(got[i])) +
               ", not " + std::to_string(unsigned(expect.bytes[i]));
    return {};
  }

  std::string act(const suite::Launch& launch, std::span<Memory>,
                  const std::vector<std::uint64_t>& addresses) {
    last_ = describe(launch);
    const exec::Dim3 grid = {launch.grid[0], launch.grid[1], launch.grid[2]};
    exec::LaunchShape shape;
    shape.grid = grid;
    shape.block = {launch.block[0], launch.block[1], launch.block[2]};
    shape.dynamic_shared_bytes = launch.dynamic_shared;
    shape.grid_id = ++launches_;
    const std::vector<std::byte> params = parameters(launch, addresses);
    const std::uint64_t total = grid.count();
    std::uint64_t next = 0, running = 0;
    std::vector<std::unique_ptr<exec::Block>> places;
    std::vector<bool> busy;
    const auto begin = [&](std::size_t k) {
      places[k]->start({static_cast<std::uint32_t>(next % grid.x),
                        static_cast<std::uint32_t>(next / grid.x % grid.y),
                        static_cast<std::uint32_t>(next / grid.x / grid.y)},
                       {static_cast<std::uint32_t>(k), resident_});
      ++next;
      ++running;
      busy[k] = true;
    };
    for (std::uint64_t k = 0; k < std::min<std::uint64_t>(resident_, total); ++k) {
      auto made = exec::Block::make(image_, launch.kernel, shape, params, map_, *this);
      if (!made) return last_ + ": " + made.error().message;
      places.push_back(std::move(*made));
      busy.push_back(false);
      begin(k);
    }
    while (running != 0) {
      for (std::size_t k = 0; k < places.size(); ++k) {
        if (!busy[k]) continue;
        const exec::RunResult result = places[k]->run(kTurn);
        steps_ += result.steps;
        if (result.state == exec::RunState::kFault)
          return last_ + ": " + places[k]->fault().describe();
        if (result.state != exec::RunState::kDone) continue;
        busy[k] = false;
        --running;
        if (next < total) begin(k);
      }
      if (steps_ > kMaxSteps) return last_ + " does not end";
    }
    return {};
  }

  std::uint32_t resident_;
  std::uint64_t timer_ = 1'000'000;
  std::uint64_t steps_ = 0, launches_ = 0;
  std::string last_ = "the beginning";
  exec::MemoryMap map_;
  std::vector<Memory> memory_;  // the module's variables, then the case's buffers
  std::shared_ptr<const exec::Image> image_;
};

}  // namespace

Played play_on_exec(const suite::Case& work, std::shared_ptr<const exec::Program> program,
                    std::uint32_t resident, exec::Checker* checker) {
  Played played;
  Player(resident, checker).play(work, std::move(program), played);
  return played;
}

}  // namespace sluice::testing
