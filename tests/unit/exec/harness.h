// SPDX-License-Identifier: Apache-2.0
// A kernel in a few lines: PTX text in, memory in, one launch, memory or a fault out. For the tests
// of kernels/exec; each test owns its own harness. Blocks run one after the other on the test's
// thread unless a test asks for more.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/exec/block/block.h"
#include "kernels/exec/memory/device_heap.h"

namespace sluice::exec {

class TestEnvironment : public Environment {
 public:
  uint64_t global_timer_ns() override { return timer_ += 100; }
  void print(std::string_view text) override { printed += text; }
  void assertion_failed(std::string_view line) override { failed.emplace_back(line); }
  std::string printed;
  std::vector<std::string> failed;

 private:
  uint64_t timer_ = 1'000'000;
};

// PTX: %rd10 becomes the address of the thread's 32-bit element of the array at %rd0, %r3 its index
// in the grid.
inline const char* const kIndex =
    "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\n"
    "mad.lo.s32 %r3, %r1, %r2, %r0;\nmul.wide.u32 %rd9, %r3, 4;\nadd.s64 %rd10, %rd0, %rd9;\n";

class ExecTest : public ::testing::Test {
 protected:
  // Decodes `text` and places its module variables.
  bool load(const std::string& text, const DecodeOptions& options = {}) {
    auto program = decode_text(text, options);
    if (!program) {
      error_ = program.error().message;
      return false;
    }
    program_ = *program;
    std::vector<uint64_t> addresses;
    for (const SymbolInfo& symbol : program_->symbols()) {
      symbol_memory_.push_back(
          std::make_unique<std::vector<uint64_t>>((symbol.bytes + 15) / 8 + 2));
      uint64_t base = reinterpret_cast<uint64_t>(symbol_memory_.back()->data());
      addresses.push_back((base + symbol.align - 1) / symbol.align * symbol.align);
      EXPECT_TRUE(map_.add(addresses.back(), symbol.bytes == 0 ? 1 : symbol.bytes));
    }
    auto image = Image::make(program_, addresses);
    if (!image) {
      error_ = image.error().message;
      return false;
    }
    image_ = *image;
    for (size_t k = 0; k < addresses.size(); ++k) {
      const auto values = image_->initial_values(k);
      if (!values.empty())
        std::memcpy(reinterpret_cast<void*>(addresses[k]), values.data(), values.size());
    }
    return true;
  }

  // An entry `k` whose body is `body`, with registers and parameters p0..p5 (u64 each, in %rd0..5).
  static std::string kernel(const std::string& body, const std::string& before = "") {
    std::string text =
        ".version 8.0\n.target sm_90\n.address_size 64\n" + before +
        "\n.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, "
        ".param .u64 p3, .param .u64 p4, .param .u64 p5)\n{\n"
        ".reg .pred %p<16>;\n.reg .b16 %rs<32>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<64>;\n"
        ".reg .f32 %f<32>;\n.reg .f64 %fd<32>;\n";
    for (int k = 0; k < 6; ++k) {
      const std::string n = std::to_string(k);
      text += "ld.param.u64 %rd" + n + ", [p" + n + "];\n";
    }
    return text + body + "\nret;\n}\n";
  }

  template <class T>
  uint64_t share(std::vector<T>& memory) {
    const uint64_t base = reinterpret_cast<uint64_t>(memory.data());
    EXPECT_TRUE(map_.add(base, memory.size() * sizeof(T)));
    return base;
  }

  std::vector<std::byte> parameters(std::vector<uint64_t> values) const {
    values.resize(6);
    std::vector<std::byte> bytes(48);
    std::memcpy(bytes.data(), values.data(), 48);
    return bytes;
  }

  // Runs all blocks of the grid; the last one's state.
  RunState launch(Dim3 grid, Dim3 block, const std::vector<uint64_t>& values,
                  uint32_t dynamic_shared = 0, const std::string& entry = "k") {
    return launch_raw(grid, block, parameters(values), dynamic_shared, entry);
  }
  RunState launch_raw(Dim3 grid, Dim3 block, const std::vector<std::byte>& bytes,
                      uint32_t dynamic_shared = 0, const std::string& entry = "k") {
    LaunchShape shape;
    shape.grid = grid;
    shape.block = block;
    shape.dynamic_shared_bytes = dynamic_shared;
    shape.stack_bytes = stack_bytes_;
    shape.heap = &heap_;
    shape.cluster = cluster_;
    shape.explicit_cluster = explicit_cluster_;
    auto made = Block::make(image_, entry, shape, bytes, map_, environment_);
    if (!made) {
      ADD_FAILURE() << made.error().message;
      return RunState::kFault;
    }
    const std::unique_ptr<Block> resident = std::move(*made);
    for (uint32_t z = 0; z < grid.z; z += cluster_.z)
      for (uint32_t y = 0; y < grid.y; y += cluster_.y)
        for (uint32_t x = 0; x < grid.x; x += cluster_.x) {
          resident->start({x, y, z}, {0, 1});
          uint64_t steps = 0;
          for (;;) {
            const RunResult result = resident->run(slice_);
            steps += result.steps;
            if (result.state == RunState::kFault) {
              fault_ = resident->fault();
              return RunState::kFault;
            }
            if (result.state == RunState::kDone) break;
            if (steps > 200'000'000) {
              ADD_FAILURE() << "the kernel does not end";
              return RunState::kYielded;
            }
          }
          steps_ += steps;
        }
    return RunState::kDone;
  }

  std::string error_;
  std::shared_ptr<const Program> program_;
  std::shared_ptr<const Image> image_;
  MemoryMap map_;
  DeviceHeap heap_{map_};
  uint64_t stack_bytes_ = kDefaultStackBytes;
  Dim3 cluster_;
  bool explicit_cluster_ = false;
  TestEnvironment environment_;
  std::vector<std::unique_ptr<std::vector<uint64_t>>> symbol_memory_;
  Fault fault_;
  uint64_t slice_ = 1000;
  uint64_t steps_ = 0;
};

}  // namespace sluice::exec
