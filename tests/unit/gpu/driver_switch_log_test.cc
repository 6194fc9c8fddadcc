// SPDX-License-Identifier: Apache-2.0
// The context-switch log of NVIDIA's driver (driver_switch_log), against a driver made for the
// test; the ring in which its records go on (switch_ring); the two clocks (clock_match).
#include "mediator/gpu/driver_switch_log.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "mediator/gpu/clock_match.h"
#include "mediator/gpu/switch_ring.h"
#include "tests/support/fake_driver_device.h"

namespace sluice::gpu {
namespace {

using test::FakeDriverDevice;

class DriverSwitchLogTest : public ::testing::Test {
 protected:
  std::unique_ptr<DriverSwitchLog> open(uint32_t records = 64) {
    auto log = DriverSwitchLog::open(device_, records);
    EXPECT_TRUE(log.ok()) << log.error().message;
    return log ? std::move(*log) : nullptr;
  }
  FakeDriverDevice device_;
};

TEST_F(DriverSwitchLogTest, AsksTheDriverAsItWantsToBeAskedAndReadsItsRecords) {
  auto log = open();
  ASSERT_TRUE(log);
  EXPECT_TRUE(device_.wrong.empty()) << device_.wrong.front();
  std::vector<DriverSwitchLog::Record> records;
  ASSERT_TRUE(log->read(records).ok());
  EXPECT_TRUE(records.empty());
  device_.switches(true, 70, 6400);
  device_.switches(false, 70, 9600);
  ASSERT_TRUE(log->read(records).ok());
  EXPECT_TRUE(records.empty()) << "not flushed";
  ASSERT_TRUE(log->flush().ok());
  auto dropped = log->read(records);
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(*dropped, 0u);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(records[0].start);
  EXPECT_FALSE(records[1].start);
  EXPECT_EQ(records[0].pid, 70u);
  EXPECT_EQ(records[1].time_ns - records[0].time_ns, 3200u);
  EXPECT_EQ(records[1].seq, records[0].seq + 1);
}

TEST_F(DriverSwitchLogTest, GoesRoundTheRingAndCountsWhatFoundNoRoom) {
  auto log = open(8);  // seven at a time
  ASSERT_TRUE(log);
  std::vector<DriverSwitchLog::Record> records;
  uint32_t pid = 100;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 5; ++i) device_.switches(i % 2 == 0, pid++, 1000);
    ASSERT_TRUE(log->flush().ok());
    ASSERT_TRUE(log->read(records).ok());
  }
  ASSERT_EQ(records.size(), 250u);
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i].pid, 100 + i);
  for (int i = 0; i < 10; ++i) device_.switches(true, 7, 1000);
  ASSERT_TRUE(log->flush().ok());
  records.clear();
  EXPECT_EQ(*log->read(records), 3u);
  EXPECT_EQ(records.size(), 7u) << "the oldest stay";
  EXPECT_EQ(*log->read(records), 0u) << "told once";
}

// Whatever the driver refuses, whether by its own status or by the system's error: the error names
// it, and nothing stays open.
TEST_F(DriverSwitchLogTest, EachCallMayBeRefused) {
  std::vector<DriverSwitchLog::Step> steps;
  ASSERT_TRUE(DriverSwitchLog::open(device_, 64, &steps).ok());
  const int calls = device_.calls - 1;  // but for the last one, which frees
  ASSERT_GT(calls, 20);
  ASSERT_EQ(steps.size(), static_cast<size_t>(calls));
  for (int system : {0, ENODEV}) {
    for (int i = 0; i < calls; ++i) {
      FakeDriverDevice device;
      device.refuse_at = i;
      device.refuse_errno = system;
      std::vector<DriverSwitchLog::Step> seen;
      auto log = DriverSwitchLog::open(device, 64, &seen);
      if (steps[static_cast<size_t>(i)].what == "bind") {  // the old form is tried, and goes
        EXPECT_TRUE(log.ok());
        continue;
      }
      ASSERT_FALSE(log.ok()) << "call " << i;
      EXPECT_FALSE(log.error().message.empty());
      ASSERT_EQ(seen.size(), static_cast<size_t>(i) + 1);
      EXPECT_EQ(seen.back().what, steps[static_cast<size_t>(i)].what);
      EXPECT_TRUE(seen.back().error != 0 || seen.back().status != 0);
      EXPECT_EQ(device.open_files(), 0u) << "call " << i;
      EXPECT_EQ(device.mappings(), 0u) << "call " << i;
      EXPECT_EQ(device.objects(), 0u) << "call " << i;
    }
  }
}

TEST_F(DriverSwitchLogTest, FreesAllAtItsEnd) {
  auto log = open();
  EXPECT_GT(device_.objects(), 0u);
  log.reset();
  EXPECT_EQ(device_.open_files(), 0u);
  EXPECT_EQ(device_.mappings(), 0u);
  EXPECT_EQ(device_.objects(), 0u);
}

TEST_F(DriverSwitchLogTest, OldDriversHaveTheFirstFormOfTheBind) {
  device_.old_driver = true;
  auto log = open();
  ASSERT_TRUE(log);
  device_.switches(true, 70, 1000);
  std::vector<DriverSwitchLog::Record> records;
  ASSERT_TRUE(log->flush().ok());
  ASSERT_TRUE(log->read(records).ok());
  EXPECT_EQ(records.size(), 1u);
}

TEST_F(DriverSwitchLogTest, SaysWhyItCannotBeHad) {
  device_.admin = false;
  auto log = DriverSwitchLog::open(device_, 64);
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.error().message.find("it takes root"), std::string::npos) << log.error().message;
  FakeDriverDevice two;
  two.gpus = 2;
  auto of_two = DriverSwitchLog::open(two, 64);
  ASSERT_FALSE(of_two.ok());
  EXPECT_NE(of_two.error().message.find("2 GPUs"), std::string::npos) << of_two.error().message;
}

// ---- the ring ----

TEST(SwitchRing, BringsAllInOrderAndNobodyElseCanWriteIt) {
  auto writer = SwitchRingWriter::make();
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  auto reader = SwitchRingReader::open(writer->fd());
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  void* p = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writer->fd(), 0);
  EXPECT_EQ(p, MAP_FAILED);
  EXPECT_LT(::pwrite(writer->fd(), "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(writer->fd(), 0), 0);
  std::vector<SwitchEvent> events;
  EXPECT_EQ((*reader)->read(events).known_ns, 0u);
  writer->add({1000, 70, 1});
  writer->add({2000, 70, 0});
  writer->publish(2500);
  auto news = (*reader)->read(events);
  EXPECT_EQ(news.known_ns, 2500u);
  EXPECT_FALSE(news.lost);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].time_ns, 2000u);
  EXPECT_EQ(events[1].pid, 70u);
  EXPECT_EQ(events[1].start, 0u);
  writer->add_lost(3);
  EXPECT_TRUE((*reader)->read(events).lost);
  EXPECT_FALSE((*reader)->read(events).lost) << "told once";
  writer->fail(ENODEV);
  EXPECT_EQ((*reader)->read(events).failed, ENODEV);
}

TEST(SwitchRing, AReaderThatIsTooSlowHearsOfIt) {
  auto writer = SwitchRingWriter::make();
  ASSERT_TRUE(writer.ok());
  auto reader = SwitchRingReader::open(writer->fd());
  ASSERT_TRUE(reader.ok());
  for (uint32_t i = 0; i < 40'000; ++i) writer->add({i, i, 1});
  std::vector<SwitchEvent> events;
  EXPECT_TRUE((*reader)->read(events).lost);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().pid, 39'999u);
  for (size_t i = 1; i < events.size(); ++i) EXPECT_EQ(events[i].pid, events[i - 1].pid + 1);
}

TEST(SwitchRing, ReadWhileItIsWritten) {
  auto writer = SwitchRingWriter::make();
  ASSERT_TRUE(writer.ok());
  auto reader = SwitchRingReader::open(writer->fd());
  ASSERT_TRUE(reader.ok());
  std::atomic<bool> over = false;
  std::jthread writes([&] {
    for (uint32_t i = 1; i <= 300'000; ++i) {
      writer->add({uint64_t{i} * 3, i, i & 1});
      writer->publish(uint64_t{i} * 3);
    }
    over = true;
  });
  uint64_t last = 0, known = 0;
  for (bool ended = false; !ended;) {
    ended = over;
    std::vector<SwitchEvent> events;
    const auto news = (*reader)->read(events);
    for (const SwitchEvent& e : events) {
      ASSERT_EQ(e.time_ns, uint64_t{e.pid} * 3) << "half of one record and half of another";
      ASSERT_EQ(e.start, e.pid & 1);
      ASSERT_TRUE(e.pid == last + 1 || news.lost);
      last = e.pid;
    }
    ASSERT_GE(news.known_ns, known);
    known = news.known_ns;
    // A reader that was lapped says so instead: it may have found nothing whole.
    ASSERT_TRUE(news.lost || last * 3 >= known) << "what is known has been read";
  }
  writes.join();
  EXPECT_EQ(last, 300'000u);
}

TEST(SwitchRing, AFileThatIsNoneIsRefused) {
  EXPECT_FALSE(SwitchRingReader::open(-1).ok());
  const int empty = ::memfd_create("empty", MFD_CLOEXEC);
  EXPECT_FALSE(SwitchRingReader::open(empty).ok());
  ASSERT_EQ(::ftruncate(empty, 1 << 20), 0);
  EXPECT_FALSE(SwitchRingReader::open(empty).ok()) << "zeros";
  ::close(empty);
}

// ---- the clocks ----

TEST(ClockMatch, GoesByTheNarrowestOfTheLastMeasurements) {
  ClockMatch clocks;
  EXPECT_FALSE(clocks.known());
  clocks.measured(1000, 500'000, 3000);  // 2000 wide: 500'000 is 2000
  EXPECT_EQ(clocks.host_ns(500'010), 2010u);
  clocks.measured(10'000, 508'200, 10'400);  // better: 508'200 is 10'200
  EXPECT_EQ(clocks.host_ns(508'000), 10'000u);
  for (int i = 0; i < 20; ++i) clocks.measured(100'000, 600'000, 101'000);  // the good one is old
  EXPECT_EQ(clocks.host_ns(600'000), 100'500u);
  clocks.measured(5, 1, 4);  // a clock that goes backwards
  EXPECT_EQ(clocks.host_ns(600'000), 100'500u);
}

}  // namespace
}  // namespace sluice::gpu
