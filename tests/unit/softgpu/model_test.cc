// SPDX-License-Identifier: Apache-2.0
// Named GPUs and the arithmetic of occupancy, against figures that NVIDIA's own occupancy
// calculators give for the same kernels.
#include "mediator/softgpu/state/model.h"

#include <gtest/gtest.h>

#include <set>

#include "mediator/softgpu/state/config.h"

namespace sluice::softgpu {
namespace {

uint32_t fit(const char* model, uint32_t threads, uint32_t registers, uint32_t shared) {
  return block_needs(gpu_models()[static_cast<size_t>(find_model(model))].sm, threads, registers,
                     shared)
      .per_sm;
}

TEST(GpuModel, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const GpuModel& m : gpu_models()) {
    EXPECT_TRUE(names.insert(m.name).second);
    EXPECT_EQ(&gpu_models()[static_cast<size_t>(find_model(m.name))], &m);
    EXPECT_LE(m.sms, SLUICE_SOFT_MAX_SMS);
    EXPECT_LE(m.sm.blocks, kMaxBlocksPerSm);
    EXPECT_GE(m.sm.shared_bytes, m.sm.shared_per_block_optin);
  }
  EXPECT_EQ(find_model("rtx9999"), -1);
  EXPECT_EQ(find_model("sluice"), 0) << "the default";
}

TEST(Occupancy, IsLimitedByThreads) {
  EXPECT_EQ(fit("h200", 1024, 16, 0), 2u);
  EXPECT_EQ(fit("a10", 1024, 16, 0), 1u);
  EXPECT_EQ(fit("t4", 256, 32, 0), 4u);
  EXPECT_EQ(fit("h200", 1, 16, 0), fit("h200", 32, 16, 0)) << "warps, not threads";
}

TEST(Occupancy, IsLimitedByBlocks) {
  EXPECT_EQ(fit("h200", 32, 16, 0), 32u);
  EXPECT_EQ(fit("l4", 32, 16, 0), 24u);
  EXPECT_EQ(fit("kepler13", 32, 16, 0), 16u);
  EXPECT_EQ(fit("sluice", 32, 16, 0), 4u);
}

TEST(Occupancy, IsLimitedByRegistersOfSubPartitions) {
  EXPECT_EQ(fit("h200", 256, 64, 0), 4u);
  EXPECT_EQ(fit("h200", 256, 65, 0), 3u) << "72 per thread: 7 warps on each of 4 partitions";
  EXPECT_EQ(fit("h200", 1024, 64, 0), 1u);
  EXPECT_EQ(fit("h200", 1024, 65, 0), 0u) << "a block's registers do not fit";
  EXPECT_EQ(fit("h200", 256, 255, 0), 1u);
  EXPECT_EQ(fit("h200", 32, 255, 0), 8u);
  // 96 registers: 3072 a warp; 5 warps on each partition, 20 in all, of 3 a block.
  EXPECT_EQ(fit("h200", 96, 96, 0), 6u);
}

TEST(Occupancy, IsLimitedBySharedMemory) {
  EXPECT_EQ(fit("h200", 32, 16, 48 * 1024), 4u) << "1 KiB of each block is the system's";
  EXPECT_EQ(fit("h200", 32, 16, 227 * 1024), 1u);
  EXPECT_EQ(fit("h200", 32, 16, 227 * 1024 + 1), 0u);
  EXPECT_EQ(fit("a100", 32, 16, 40 * 1024), 4u);
  EXPECT_EQ(fit("a100", 32, 16, 41 * 1024), 3u);
  EXPECT_EQ(fit("t4", 32, 16, 32 * 1024), 2u);
  EXPECT_EQ(fit("t4", 32, 16, 32 * 1024 + 1), 1u);
  EXPECT_EQ(fit("k40", 32, 16, 48 * 1024), 1u);
  EXPECT_EQ(fit("k40", 32, 16, 48 * 1024 + 1), 0u);
}

class SoftConfig : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"MODEL", "SMS", "BLOCKS_PER_SM", "MEMORY", "MODE", "PREEMPTION",
                             "TIMESLICE_US", "SWITCH_NS", "SWITCH_MBPS", "STALL_MS"})
      ::unsetenv((std::string("SLUICE_SOFT_") + name).c_str());
    ::unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  }
};

TEST_F(SoftConfig, AModelDecidesWhatIsNotSaid) {
  ::setenv("SLUICE_SOFT_MODEL", "a100", 1);
  auto config = config_from_environment();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->sms, 108u);
  EXPECT_EQ(config->blocks_per_sm, 32u);
  ::setenv("SLUICE_SOFT_SMS", "3", 1);
  ::setenv("SLUICE_SOFT_BLOCKS_PER_SM", "5", 1);
  config = config_from_environment();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->sms, 3u);
  EXPECT_EQ(config->blocks_per_sm, 5u);
  ::setenv("SLUICE_SOFT_MODEL", "t4", 1);
  ::setenv("SLUICE_SOFT_BLOCKS_PER_SM", "17", 1);
  EXPECT_FALSE(config_from_environment().ok()) << "a T4 has room for 16";
}

TEST_F(SoftConfig, ReadsModesAndCosts) {
  auto config = config_from_environment();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->mode, uint32_t{SLUICE_SOFT_FCFS});
  EXPECT_EQ(config->preemption, uint32_t{SLUICE_SOFT_SAVE});
  ::setenv("SLUICE_SOFT_MODE", "timeslice", 1);
  ::setenv("SLUICE_SOFT_PREEMPTION", "drain", 1);
  ::setenv("SLUICE_SOFT_SWITCH_NS", "0", 1);
  ::setenv("SLUICE_SOFT_SWITCH_MBPS", "0", 1);
  ::setenv("SLUICE_SOFT_TIMESLICE_US", "5000", 1);
  ::setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30", 1);
  config = config_from_environment();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->mode, uint32_t{SLUICE_SOFT_TIMESLICE});
  EXPECT_EQ(config->preemption, uint32_t{SLUICE_SOFT_DRAIN});
  EXPECT_EQ(config->switch_fixed_ns, 0u);
  EXPECT_EQ(config->switch_bytes_per_second, 0u);
  EXPECT_EQ(config->timeslice_us, 5000u);
  EXPECT_EQ(config->thread_percentage, 30u);
  for (const auto& [name, value] : {std::pair{"SLUICE_SOFT_MODE", "fifo"},
                                    {"SLUICE_SOFT_PREEMPTION", "kill"},
                                    {"SLUICE_SOFT_MODEL", "riva128"},
                                    {"SLUICE_SOFT_TIMESLICE_US", "1"}}) {
    ::setenv(name, value, 1);
    config = config_from_environment();
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_NE(config.error().message.find(name), std::string::npos);
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace sluice::softgpu
