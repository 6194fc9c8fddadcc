// SPDX-License-Identifier: Apache-2.0
// The readers of what a GPU tells of itself (register_reader, soft_gpu) against a file that
// somebody hostile writes, cuts short or replaces.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "abi/registers.h"
#include "mediator/base/fd.h"
#include "mediator/base/process/bus_guard.h"
#include "mediator/gpu/register_reader.h"
#include "mediator/gpu/soft_gpu.h"
#include "mediator/softgpu/shared/shared_gpu.h"

namespace sluice {
namespace {

class Readers : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sluice-gpu-XXXXXX";
    Fd made(::mkstemp(name));
    path_ = name;
    ::unlink(name);
    softgpu::Config config;
    config.gpu_file = path_;
    config.memory_bytes = 64 << 20;
    auto gpu = softgpu::SharedGpu::open(config);
    ASSERT_TRUE(gpu.ok()) << gpu.error().message;
    gpu_ = std::move(*gpu);
    fd_.reset(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  void write_at(off_t at, const void* data, size_t bytes) {
    ASSERT_EQ(::pwrite(fd_.get(), data, bytes, at), static_cast<ssize_t>(bytes));
  }
  void put(uint64_t value) { write_at(SLUICE_SOFT_LOG_OFFSET, &value, sizeof value); }

  std::string path_;
  std::unique_ptr<softgpu::SharedGpu> gpu_;
  Fd fd_;
};

TEST_F(Readers, AFileCutShortUnderTheMappingReadsAsZerosAndTells) {
  auto registers = gpu::RegisterReader::open(path_);
  auto soft = gpu::SoftGpu::open(path_, true);
  ASSERT_TRUE(registers.ok() && soft.ok());
  EXPECT_FALSE((*registers)->lost());
  EXPECT_TRUE((*soft)->intact());
  gpu_.reset();
  ASSERT_EQ(::ftruncate(fd_.get(), 0), 0);
  EXPECT_EQ((*registers)->status0(), 0u);
  EXPECT_TRUE((*registers)->lost());
  EXPECT_FALSE((*soft)->intact());
  std::vector<gpu::SoftGpu::SwitchRecord> records;
  (*soft)->read_log(records);
  EXPECT_EQ((*soft)->channel(1).engine_ns, 0u);
  // Controls go nowhere, and nothing dies.
  (*soft)->set_timeslice(1, 500);
  (*soft)->preempt(64);
  const uint64_t sms[SLUICE_SOFT_MAX_SMS / 64] = {1};
  (*soft)->set_sms(2, sms);
  EXPECT_FALSE(gpu::RegisterReader::open(path_).ok());
  EXPECT_FALSE(gpu::SoftGpu::open(path_, false).ok());
}

TEST_F(Readers, AnOverwrittenFileIsNotTakenForAGpu) {
  auto soft = gpu::SoftGpu::open(path_, false);
  ASSERT_TRUE(soft.ok());
  const std::vector<char> noise(4096, 'x');
  write_at(SLUICE_SOFT_INFO_OFFSET, noise.data(), noise.size());
  EXPECT_FALSE((*soft)->intact());
  auto again = gpu::SoftGpu::open(path_, false);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find(path_), std::string::npos);
}

// `put` jumps anywhere, records are noise: a call brings at most a lap, and comes back.
TEST_F(Readers, NoiseInTheLogIsBounded) {
  auto soft = gpu::SoftGpu::open(path_, false);
  ASSERT_TRUE(soft.ok());
  std::mt19937_64 r(1);
  std::vector<uint64_t> noise(SLUICE_SOFT_LOG_RECORDS * sizeof(sluice_switch_record) / 8);
  for (int i = 0; i < 40; ++i) {
    for (uint64_t& w : noise) w = r();
    // Now and then with sequence numbers that fit.
    if (i % 2)
      for (size_t n = 0; n < SLUICE_SOFT_LOG_RECORDS; ++n)
        noise[4 * n + 1] = (noise[4 * n + 1] & ~0xffff0000ull) | ((n + 1) & 0xffff) << 16;
    write_at(SLUICE_SOFT_LOG_OFFSET + SLUICE_SWITCH_LOG_RECORDS_AT, noise.data(), noise.size() * 8);
    put(i % 3 == 0 ? r() : i % 3 == 1 ? 0 : 4096);
    std::vector<gpu::SoftGpu::SwitchRecord> records;
    (*soft)->read_log(records);
    EXPECT_LE(records.size(), size_t{SLUICE_SOFT_LOG_RECORDS});
    (void)(*soft)->channel(static_cast<uint32_t>(r()));
  }
  EXPECT_TRUE((*soft)->intact());
}

TEST_F(Readers, ARecordThatWasBegunIsReported) {
  auto soft = gpu::SoftGpu::open(path_, false);
  ASSERT_TRUE(soft.ok());
  std::vector<gpu::SoftGpu::SwitchRecord> records;
  put(1);
  EXPECT_EQ((*soft)->read_log(records), 0u);
  EXPECT_TRUE((*soft)->records_pending());
  EXPECT_EQ((*soft)->read_log(records), 1u) << "it will never come";
  EXPECT_FALSE((*soft)->records_pending());
  EXPECT_TRUE(records.empty());
}

TEST(BusGuard, OtherFaultsStayDeadly) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        char name[] = "/tmp/sluice-bus-XXXXXX";
        Fd fd(::mkstemp(name));
        ::unlink(name);
        if (::ftruncate(fd.get(), 8192) != 0) return;
        auto* guarded =
            static_cast<volatile char*>(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0));
        auto* bare = static_cast<volatile char*>(
            ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 4096));
        BusGuard guard(const_cast<char*>(guarded), 4096);
        if (::ftruncate(fd.get(), 0) != 0 || guarded[5] != 0 || !guard.lost()) return;
        (void)bare[5];
      },
      "");
}

TEST(BusGuard, SlotsComeBack) {
  char page[1];
  for (int i = 0; i < 10 * BusGuard::kMost; ++i) {
    BusGuard a(page, 1);
    BusGuard b = std::move(a);
    EXPECT_FALSE(b.lost());
  }
}

}  // namespace
}  // namespace sluice
