// SPDX-License-Identifier: Apache-2.0
// The conformance programs against what a real GPU answered: textures through the software GPU's
// driver API, everything else on kernels/exec itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "kernels/exec/block/block.h"
#include "tests/conformance/programs.h"

namespace sluice::conformance {
namespace {

// Two results of a program that need not be the same bits.
bool agree(const Program& p, uint32_t here, uint32_t there) {
  float x, y;
  if (p.values != Values::kF32) return false;
  std::memcpy(&x, &here, 4);
  std::memcpy(&y, &there, 4);
  return std::fabs(double{x} - double{y}) <= p.absolute;
}

class NoEnvironment : public exec::Environment {
 public:
  uint64_t global_timer_ns() override { return 0; }
  void print(std::string_view) override {}
};

// All programs as one module, one block after the other.
void run_on_exec(const std::vector<Program>& programs, std::vector<ProgramResult>& results) {
  const auto program = exec::decode_text(programs_text(programs));
  ASSERT_TRUE(program.ok()) << program.error().message;
  const auto image = exec::Image::make(*program, {});
  ASSERT_TRUE(image.ok());
  for (const Program& p : programs) {
    ProgramResult result{p.name, std::vector<uint8_t>(p.output_bytes)};
    std::vector<uint64_t> in(p.input.size() / 8 + 4), out(p.output_bytes / 8 + 4);
    exec::MemoryMap map;
    NoEnvironment environment;
    // Bulk copies want 16 bytes' alignment.
    const auto aligned = [](const std::vector<uint64_t>& v) {
      return (reinterpret_cast<uint64_t>(v.data()) + 15) / 16 * 16;
    };
    const uint64_t addresses[2] = {aligned(out), aligned(in)};
    if (!p.input.empty())
      std::memcpy(reinterpret_cast<void*>(addresses[1]), p.input.data(), p.input.size());
    ASSERT_TRUE(map.add(addresses[0], p.output_bytes));
    ASSERT_TRUE(map.add(addresses[1], p.input.empty() ? 8 : p.input.size()));
    exec::LaunchShape shape;
    shape.grid = {p.blocks};
    shape.block = {p.threads};
    auto block = exec::Block::make(*image, p.name, shape, std::as_bytes(std::span(addresses)), map,
                                   environment);
    ASSERT_TRUE(block.ok()) << block.error().message;
    for (unsigned k = 0; k < p.blocks; ++k) {
      (*block)->start({k, 0, 0}, {});
      exec::RunState state = exec::RunState::kYielded;
      for (int turn = 0; turn < 1000 && state == exec::RunState::kYielded; ++turn)
        state = (*block)->run(1'000'000).state;
      ASSERT_EQ(state, exec::RunState::kDone) << p.name << ": " << (*block)->fault().describe();
    }
    std::memcpy(result.output.data(), reinterpret_cast<const void*>(addresses[0]), p.output_bytes);
    results.push_back(std::move(result));
  }
}

class Programs : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (ProgramResult& r : read_results(SLUICE_GOLDEN_PROGRAMS))
      golden_[r.name] = std::move(r.output);
  }
  static void load() {
    auto loaded = gpu::load_driver(SLUICE_SOFTCUDA);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    cuda_ = new gpu::DriverApi(std::move(*loaded));
    CUdevice device = 0;
    CUcontext context = nullptr;
    ASSERT_EQ(cuda_->cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuda_->cuDeviceGet(&device, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuda_->cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    ASSERT_EQ(cuda_->cuCtxSetCurrent(context), CUDA_SUCCESS);
  }

  // Runs the family in one module and compares every byte.
  void compare(const std::vector<Program>& programs) {
    ASSERT_FALSE(programs.empty());
    std::vector<ProgramResult> results;
    std::string error;
    if (cuda_ != nullptr)
      ASSERT_TRUE(run_programs(*cuda_, programs, results, error)) << error;
    else
      ASSERT_NO_FATAL_FAILURE(run_on_exec(programs, results));
    size_t wrong = 0;
    for (const ProgramResult& r : results) {
      ASSERT_TRUE(golden_.contains(r.name)) << r.name << ": record the golden data anew";
      const std::vector<uint8_t>& expected = golden_[r.name];
      ASSERT_EQ(r.output.size(), expected.size()) << r.name << ": record the golden data anew";
      const Program& program = programs[static_cast<size_t>(&r - results.data())];
      if (r.output == expected) continue;
      const size_t words = expected.size() / 4;
      std::string text;
      size_t differ = 0;
      for (size_t k = 0; k < words; ++k) {
        uint32_t here, there;
        std::memcpy(&here, r.output.data() + 4 * k, 4);
        std::memcpy(&there, expected.data() + 4 * k, 4);
        if (here == there || agree(program, here, there) || differ++ >= 4) continue;
        char line[96];
        std::snprintf(line, sizeof line, "\n  word %zu: here %08x, GPU %08x", k, here, there);
        text += line;
      }
      if (differ == 0) continue;
      ++wrong;
      ADD_FAILURE() << r.name << ": " << differ << " of " << words << " words differ" << text;
    }
    std::printf("%zu programs, %zu wrong\n", results.size(), wrong);
  }

  static inline gpu::DriverApi* cuda_ = nullptr;
  static inline std::map<std::string, std::vector<uint8_t>> golden_;
};

TEST_F(Programs, MatricesAreAsOnTheGpu) {
  std::vector<Program> programs;
  tensor_programs(programs, 1);
  compare(programs);
}
TEST_F(Programs, AsynchronousCopiesAndBarriersInMemory) {
  std::vector<Program> programs;
  async_programs(programs);
  compare(programs);
}
TEST_F(Programs, BlocksWarpsAndAtomics) {
  std::vector<Program> programs;
  block_programs(programs);
  compare(programs);
}
TEST_F(Programs, TexturesAndSurfaces) {
  load();
  ASSERT_NE(cuda_, nullptr);
  // Names carry the position among all programs.
  std::vector<Program> programs = all_programs(1);
  std::erase_if(programs, [](const Program& p) { return !p.texture.has_value(); });
  compare(programs);
}

// What is missing is refused when the module is loaded, by name and line.
TEST(Refusals, NameTheInstructionAndTheLine) {
  const std::string head =
      ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.reg .b16 %h<9>; "
      ".reg "
      ".b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .pred %p<3>;\n";
  for (const std::string instruction :
       {"mma.sp.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, "
        "{%r3, "
        "%r4}, {%f1, %f2, %f3, %f4}, %r5, 0;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, "
        "%r4}, {%r1, %r2}, {%f1, %f2, %f3, %f4};",
        "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
        "[%r1], "
        "[%rd1, {%r2, %r2, %r2, %r2, %r2}], [%r3];",
        "sust.p.2d.v4.b32.trap [%rd1, {%r1, %r2}], {%r1, %r2, %r3, %r4};",
        "fma.rn.oob.f16 %h1, %h2, %h3, %h4;", "cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2;",
        "cvt.rn.satfinite.tf32.f32 %r1, %f1;",
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f16 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, "
        "%r4}, {%r1, %r2}, {%r5, %r6};",
        "fence.proxy.tensormap::generic.sc.gpu;"}) {
    const auto program = exec::decode_text(head + instruction + "\nret;\n}\n");
    ASSERT_FALSE(program.ok()) << instruction;
    const std::string& message = program.error().message;
    EXPECT_NE(message.find("line 7"), std::string::npos) << message;
    EXPECT_NE(message.find(instruction.substr(0, instruction.find_first_of(" ;"))),
              std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace sluice::conformance
