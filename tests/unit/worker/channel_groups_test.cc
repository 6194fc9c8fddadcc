// SPDX-License-Identifier: Apache-2.0
// Time slices of a process's own contexts (mediator/worker/process/channel_groups.h): which of the
// driver's calls are those that matter, and what is asked of its kernel module.
#include "mediator/worker/process/channel_groups.h"

#include <gtest/gtest.h>
#include <linux/ioctl.h>

#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "mediator/worker/process/slice_setter.h"

namespace sluice::worker {
namespace {

// As words of 32 bits, which is how the driver lays them out.
using Group = std::array<uint32_t, 5>;  // errors, errors, address space, engine, flags
using Alloc = std::array<uint32_t, 8>;  // client, parent, handle, class, address (2), size, status
using Rights = std::array<uint32_t, 12>;  // the same, rights (2), size, flags, status, padding
using Control =
    std::array<uint32_t, 8>;  // client, object, command, flags, address (2), size, status
using Freeing = std::array<uint32_t, 4>;  // client, parent, handle, status

struct Asked {
  int fd;
  uint32_t client, object, command, bytes;
  uint64_t us;
};
std::vector<Asked> asked;
uint32_t answer = 0;
std::function<void()> in_call;  // what happens while the kernel module keeps a call

int take(int fd, unsigned long request, void* argument) {
  EXPECT_EQ(request, _IOWR('F', 0x2a, Control));
  Control c;
  std::memcpy(c.data(), argument, sizeof c);
  uint64_t at = 0, us = 0;
  std::memcpy(&at, &c[4], sizeof at);
  std::memcpy(&us, reinterpret_cast<const void*>(at), sizeof us);
  asked.push_back({fd, c[0], c[1], c[2], c[6], us});
  static_cast<uint32_t*>(argument)[7] = answer;
  if (in_call) in_call();
  return 0;
}

class ChannelGroupsTest : public ::testing::Test {
 protected:
  void SetUp() override { asked.clear(), answer = 0, in_call = nullptr; }
  void make(uint32_t handle, uint32_t object_class = 0xa06c, uint32_t engine = 1,
            uint32_t status = 0, int fd = 9) {
    const Group group{0, 0, 0, engine, 0};
    Alloc a{0xc1, 0xd0, handle, object_class, 0, 0, 0, status};
    const auto at = reinterpret_cast<uint64_t>(group.data());
    std::memcpy(&a[4], &at, sizeof at);
    groups_.on_called(fd, _IOWR('F', 0x2b, Alloc), a.data());
  }
  void end(uint32_t handle, uint32_t client = 0xc1, uint32_t status = 0) {
    const Freeing f{client, 0xd0, handle, status};
    groups_.on_called(9, _IOWR('F', 0x29, Freeing), f.data());
  }
  ChannelGroups groups_{take};
};

TEST_F(ChannelGroupsTest, SetsTheSliceOfEachGroupOfTheComputeEngine) {
  make(0x10);
  make(0x11, 0xa06c, 9);        // a copy engine's
  make(0x12, 0xc86f);           // a channel
  make(0x13, 0xa06c, 1, 0x1f);  // refused
  ASSERT_EQ(groups_.count(), 1u);
  EXPECT_TRUE(asked.empty()) << "the driver's own slice, until one is asked for";
  EXPECT_EQ(groups_.set_slice(2'500'000), 1u);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].fd, 9);
  EXPECT_EQ(asked[0].client, 0xc1u);
  EXPECT_EQ(asked[0].object, 0x10u);
  EXPECT_EQ(asked[0].command, 0xa06c0103u);
  EXPECT_EQ(asked[0].bytes, 8u);
  EXPECT_EQ(asked[0].us, 2500u);
}

TEST_F(ChannelGroupsTest, OneThatIsMadeLaterHasTheSliceAtOnce) {
  EXPECT_EQ(groups_.set_slice(1'000'000), 0u);
  make(0x10);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].us, 1000u);
}

TEST_F(ChannelGroupsTest, OtherFormOfTheCall) {
  const Group group{0, 0, 0, 1, 0};
  Rights r{0xc1, 0xd0, 0x10, 0xa06c};
  const auto at = reinterpret_cast<uint64_t>(group.data());
  std::memcpy(&r[4], &at, sizeof at);
  groups_.on_called(9, _IOWR('F', 0x2b, Rights), r.data());
  EXPECT_EQ(groups_.count(), 1u);
  r[2] = 0x11;
  r[10] = 0x1f;  // refused
  groups_.on_called(9, _IOWR('F', 0x2b, Rights), r.data());
  EXPECT_EQ(groups_.count(), 1u);
}

TEST_F(ChannelGroupsTest, AGroupThatIsFreedIsLeftAlone) {
  make(0x10), make(0x11), make(0x12);
  end(0x10, 0xc2);        // another client's
  end(0x10, 0xc1, 0x1f);  // refused
  EXPECT_EQ(groups_.count(), 3u);
  end(0x10);
  EXPECT_EQ(groups_.set_slice(1'000'000), 2u);
  end(0xc1);  // the client, with all that it has
  EXPECT_EQ(groups_.count(), 0u);
}

TEST_F(ChannelGroupsTest, ARefusedSliceIsNotCounted) {
  make(0x10);
  answer = 0x56;
  EXPECT_EQ(groups_.set_slice(1'000'000), 0u);
  EXPECT_EQ(groups_.count(), 1u);
}

TEST_F(ChannelGroupsTest, SlicesAreWhatTheHardwareTakes) {
  make(0x10);
  for (const uint64_t ns : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) groups_.set_slice(ns);
  EXPECT_EQ(asked[0].us, 100u);
  EXPECT_EQ(asked[1].us, 100u);
  EXPECT_EQ(asked[2].us, 10'000'000u);
}

// The kernel module may take seconds for it.
TEST_F(ChannelGroupsTest, TheDriversOtherCallsDoNotWaitForASliceThatIsBeingSet) {
  make(0x10), make(0x11);
  in_call = [&] {
    in_call = nullptr;
    std::thread([&] { end(0x11), make(0x12); }).join();
  };
  groups_.set_slice(1'000'000);
  EXPECT_EQ(groups_.count(), 2u);
  EXPECT_EQ(asked.back().us, 1000u);
}

TEST_F(ChannelGroupsTest, OneThatIsMadeWhileTheSliceChangesHasTheLast) {
  groups_.set_slice(1'000'000);
  in_call = [&] {
    in_call = nullptr;
    std::thread([&] { groups_.set_slice(2'000'000); }).join();
  };
  make(0x10);
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked.back().us, 2000u);
}

TEST(SliceSetter, WhoWantsASliceDoesNotWaitForTheOneBefore) {
  std::promise<void> begun, go_on, last;
  std::vector<uint64_t> set;
  SliceSetter setter([&](uint64_t ns) {
    set.push_back(ns);
    if (ns == 1) begun.set_value(), go_on.get_future().wait();
    if (ns == 4) last.set_value();
  });
  setter.want(1);
  begun.get_future().wait();
  for (const uint64_t ns : {2, 3, 4}) setter.want(ns);
  go_on.set_value();
  last.get_future().wait();
  EXPECT_EQ(set, (std::vector<uint64_t>{1, 4})) << "the last of those that came meanwhile";
}

TEST(SliceSetter, EndsWithoutASlice) {
  SliceSetter setter([](uint64_t) { FAIL(); });
}

TEST_F(ChannelGroupsTest, WhatIsNoCallOfTheDriversIsNotRead) {
  const void* nowhere = reinterpret_cast<const void*>(uintptr_t{1});
  groups_.on_called(9, _IOWR('T', 0x2b, Alloc), nowhere);
  groups_.on_called(9, _IOWR('F', 0x2c, Alloc), nowhere);
  groups_.on_called(9, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2b, 24), nowhere);
  groups_.on_called(9, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x29, 8), nowhere);
  groups_.on_called(9, _IOWR('F', 0x2b, Alloc), nullptr);
  const Alloc without{0xc1, 0xd0, 0x10, 0xa06c, 0, 0, 0, 0};  // no parameters
  groups_.on_called(9, _IOWR('F', 0x2b, Alloc), without.data());
  EXPECT_EQ(groups_.count(), 0u);
}

}  // namespace
}  // namespace sluice::worker
