// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/exec_property.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "kernels/exec/block/block.h"
#include "kernels/exec/checker/checker.h"
#include "kernels/exec/memory/device_heap.h"
#include "tests/fuzz/targets.h"

namespace sluice::fuzz {
namespace {

constexpr std::size_t kMostEntries = 4;
constexpr std::uint64_t kSteps = 4000, kSlice = 500;
constexpr std::uint64_t kMostSymbolBytes = 1u << 20, kMostLocalBytes = 1u << 16;
constexpr std::size_t kBufferWords = 1024;

class Quiet final : public exec::Environment {
 public:
  std::uint64_t global_timer_ns() override { return timer_ += 100; }
  void print(std::string_view) override {}

 private:
  std::uint64_t timer_ = 0;
};

// A module's variables and the memory that kernels are given.
struct World {
  exec::MemoryMap map;
  exec::DeviceHeap heap{map, 1u << 20};
  std::vector<std::vector<std::uint64_t>> memory;
  std::vector<std::uint64_t> symbols;
  std::uint64_t buffer = 0, texture = 0, surface = 0;

  std::uint64_t place(std::uint64_t bytes, std::uint64_t align) {
    memory.emplace_back((bytes + align) / 8 + 2);
    const auto base = reinterpret_cast<std::uint64_t>(memory.back().data());
    const std::uint64_t at = (base + align - 1) / align * align;
    require(static_cast<bool>(map.add(at, std::max<std::uint64_t>(bytes, 1))), "memory is added",
            "");
    return at;
  }
};

bool furnish(World& world, const exec::Program& program) {
  std::uint64_t sum = 0;
  for (const exec::SymbolInfo& s : program.symbols()) {
    if (s.bytes > kMostSymbolBytes || s.align > 4096) return false;
    if ((sum += s.bytes) > kMostSymbolBytes) return false;
    world.symbols.push_back(world.place(s.bytes, std::max(s.align, 1u)));
  }
  world.buffer = world.place(kBufferWords * 8, 256);
  auto* words = reinterpret_cast<std::uint64_t*>(world.buffer);
  for (std::size_t i = 0; i < kBufferWords; ++i)
    words[i] = i % 3 == 0 ? world.buffer + i * 8 : i * 0x9e3779b97f4a7c15u;
  exec::TextureDescriptor t;
  t.base = world.buffer;
  t.row_bytes = 64;
  t.slice_bytes = 512;
  t.width = 16;
  t.height = 8;
  t.depth = 2;
  t.filter = true;
  world.texture = world.map.textures().add(t);
  t.surface = true;
  world.surface = world.map.textures().add(t);
  return true;
}

void run(const std::shared_ptr<const exec::Image>& image, World& world,
         exec::Environment& environment, const exec::EntryInfo& entry) {
  exec::LaunchShape shape;
  shape.grid = {3, 1, 1};
  shape.block = {40, 1, 1};  // a whole warp, and a part of one
  if (entry.required_block[0] != 0)
    shape.block = {entry.required_block[0], entry.required_block[1], entry.required_block[2]};
  else if (entry.max_threads != 0)
    shape.block.x = std::min(shape.block.x, entry.max_threads);
  if (std::uint64_t{shape.block.x} * shape.block.y * shape.block.z > 128) return;
  shape.dynamic_shared_bytes = 1024;
  exec::Dim3 first{1, 0, 0};
  const std::uint32_t* cluster = entry.required_cluster;
  if (std::uint64_t{cluster[0]} * cluster[1] * cluster[2] != 0) {
    shape.grid = shape.cluster = {cluster[0], cluster[1], cluster[2]};
    first = {0, 0, 0};
  }
  shape.heap = &world.heap;
  // What kernels usually take: two arrays, a texture and a surface, numbers of things.
  const std::uint64_t wide[] = {world.buffer, world.buffer + 4096, world.texture, world.surface,
                                world.buffer + 2048};
  const std::uint32_t narrow[] = {64, 8, 3};
  std::vector<std::byte> params(entry.param_bytes, std::byte{1});
  std::size_t wides = 0, narrows = 0;
  for (const exec::ParamInfo& p : entry.params) {
    require(p.offset + std::size_t{p.bytes} <= params.size(), "a parameter lies in its block",
            entry.name);
    if (p.bytes == 8) std::memcpy(params.data() + p.offset, &wide[wides++ % std::size(wide)], 8);
    if (p.bytes == 4)
      std::memcpy(params.data() + p.offset, &narrow[narrows++ % std::size(narrow)], 4);
  }
  auto made = exec::Block::make(image, entry.name, shape, params, world.map, environment);
  if (!made) return require(!made.error().message.empty(), "a refusal has a reason", entry.name);
  (*made)->start(first, {0, 1});
  for (std::uint64_t steps = 0; steps < kSteps;) {
    const exec::RunResult result = (*made)->run(kSlice);
    if (result.state == exec::RunState::kFault)
      return require(!(*made)->fault().describe().empty(), "a fault says what it is", entry.name);
    if (result.state == exec::RunState::kDone) return;
    steps += std::max<std::uint64_t>(result.steps, 1);
  }
}

}  // namespace

void run_entries(const std::shared_ptr<const exec::Program>& program) {
  World world;
  if (!furnish(world, *program)) return;
  auto image = exec::Image::make(program, world.symbols);
  if (!image) return require(!image.error().message.empty(), "a refusal has a reason", "");
  for (std::size_t k = 0; k < world.symbols.size(); ++k) {
    const std::vector<std::uint8_t> values = (*image)->initial_values(k);
    require(values.size() == program->symbols()[k].bytes, "a variable is filled",
            program->symbols()[k].name);
    if (!values.empty())
      std::memcpy(reinterpret_cast<void*>(world.symbols[k]), values.data(), values.size());
  }
  Quiet plain, watched;
  exec::Checker checker(*exec::CheckOptions::parse("all"));
  watched.checker = &checker;
  checker.on_allocate(world.buffer, kBufferWords * 8, 1);
  std::size_t entries = 0;
  for (const exec::EntryInfo& entry : program->entries()) {
    if (entry.local_bytes > kMostLocalBytes) continue;
    if (++entries > kMostEntries) break;
    run(*image, world, plain, entry);
    run(*image, world, watched, entry);
  }
  for (const exec::Finding& f : checker.findings())
    require(!f.describe().empty() && !f.json().empty(), "a finding is described", f.kernel);
}

}  // namespace sluice::fuzz
