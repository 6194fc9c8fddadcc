// SPDX-License-Identifier: Apache-2.0
// The parts of a sluice-worker's session, each by itself: what a guest may name, calls that wait,
// what is asked of sluiced, jobs.
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "abi/channel.h"
#include "mediator/worker/session/control_link.h"
#include "mediator/worker/session/freed_memory.h"
#include "mediator/worker/session/job_queue.h"
#include "mediator/worker/session/memory_table.h"
#include "mediator/worker/session/waiting_calls.h"

namespace sluice::worker {
namespace {

namespace wp = worker_protocol;

TEST(MemoryTable, AnExtentIsOwnedUpToItsLastByte) {
  MemoryTable m;
  m.add_extent(0x200000, 0x200000);
  EXPECT_TRUE(m.owns_region(0x200000, 0x200000));
  EXPECT_TRUE(m.owns_region(0x3fffff, 1));
  EXPECT_FALSE(m.owns_region(0x3fffff, 2));
  EXPECT_FALSE(m.owns_region(0x1fffff, 1));
  EXPECT_FALSE(m.owns_region(0x400000, 0));
  EXPECT_TRUE(m.owns_range(SLUICE_WINDOW_ADDRESS + 0x200000, 16));
  EXPECT_FALSE(m.owns_range(SLUICE_WINDOW_ADDRESS, 16));
}

TEST(MemoryTable, LengthsThatOverflowOwnNothing) {
  MemoryTable m;
  m.add_extent(0, 0x200000);
  ASSERT_TRUE(m.allocations.add({0x700000000, 4096, 1, 4096}));
  const uint64_t most = ~uint64_t{0};
  EXPECT_FALSE(m.owns_region(1, most));
  EXPECT_FALSE(m.owns_region(most, most));
  EXPECT_FALSE(m.owns_range(0x700000001, most));
  EXPECT_FALSE(m.owns_range(most, 2));
  EXPECT_FALSE(m.owns_rows(0x700000000, 16, most / 2, 4));
  EXPECT_TRUE(m.owns_rows(0x700000000, 16, 1024, 4));
  EXPECT_FALSE(m.owns_rows(0x700000000, 16, 1024, 5));
}

TEST(MemoryTable, AnExtentGoesOnlyAsAWhole) {
  MemoryTable m;
  m.add_extent(0x200000, 0x400000);
  EXPECT_FALSE(m.remove_extent(0x400000, 0x200000));
  EXPECT_FALSE(m.remove_extent(0x200000, 0x200000));
  EXPECT_TRUE(m.remove_extent(0x200000, 0x400000));
  EXPECT_FALSE(m.owns_region(0x200000, 1));
  EXPECT_FALSE(m.remove_extent(0x200000, 0x400000));
}

TEST(WaitingCalls, EachIsCompletedOnce) {
  WaitingCalls w;
  int calls = 0;
  CUresult with = CUDA_SUCCESS;
  const uint64_t token = w.add([&](CUresult status) {
    ++calls;
    with = status;
  });
  EXPECT_EQ(w.calls(), 1u);
  w.complete(token + 1, CUDA_SUCCESS);
  EXPECT_EQ(calls, 0);
  w.complete(token, CUDA_ERROR_UNKNOWN);
  w.complete(token, CUDA_SUCCESS);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(with, CUDA_ERROR_UNKNOWN);
  EXPECT_TRUE(w.empty());
  EXPECT_EQ(w.calls(), 0u);
}

TEST(WaitingCalls, TheWorkersOwnAreNoCalls) {
  WaitingCalls w;
  bool done = false;
  const uint64_t token = w.add_own([&](CUresult) { done = true; });
  EXPECT_EQ(w.calls(), 0u);
  EXPECT_FALSE(w.empty());
  w.complete(token, CUDA_SUCCESS);
  EXPECT_TRUE(done && w.empty());
  EXPECT_EQ(w.calls(), 0u);
}

TEST(WaitingCalls, AHostFunctionsIdIsTakenUntilItHasRun) {
  WaitingCalls w;
  EXPECT_TRUE(w.add_host_function(7, 100));
  EXPECT_FALSE(w.add_host_function(7, 101));
  EXPECT_EQ(w.host_function(7), 100u);
  EXPECT_EQ(w.host_function(8), std::nullopt);
  w.remove_host_function(7);
  EXPECT_TRUE(w.add_host_function(7, 102));
}

TEST(JobQueue, KeepsTheirOrderAndSaysWhenItIsFull) {
  JobQueue q;
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) q.post([&ran, i] { ran.push_back(i); });
  bool stopped = false;
  EXPECT_FALSE(q.full(4, [&] { stopped = true; }));
  EXPECT_FALSE(stopped);
  EXPECT_TRUE(q.full(3, [&] { stopped = true; }));
  EXPECT_TRUE(stopped);
  Spinner spinner(0);
  for (int i = 0; i < 3; ++i) q.take(spinner, std::chrono::hours(1)).value()();
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(q.take(spinner, std::chrono::nanoseconds(1)).has_value());
}

TEST(FreedMemory, IsForAllocationsOfItsSizeAndOwner) {
  constexpr uint64_t kOwner = 1, kOther = 2;
  FreedMemory freed;
  const uint64_t block = freed.add({0x1000, 800, kOwner, 1024}, 1, 100);
  EXPECT_EQ(freed.charged_bytes(), 1024u);
  EXPECT_FALSE(freed.take(kOther, 1, 800).has_value());
  EXPECT_FALSE(freed.take(kOwner, 2, 800).has_value()) << "its stream has not come there";
  EXPECT_FALSE(freed.take(kOwner, 1, 801).has_value());
  EXPECT_FALSE(freed.take(kOwner, 1, 699).has_value()) << "too large";
  EXPECT_FALSE(freed.take(kOwner, 1, 0).has_value());
  EXPECT_TRUE(freed.take_passed(1000).empty());
  freed.passed(block);
  EXPECT_TRUE(freed.take_passed(1000, 901).empty()) << "too young";
  const auto taken = freed.take(kOwner, 2, 700);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->address, 0x1000u);
  EXPECT_EQ(taken->bytes, 700u);
  EXPECT_EQ(taken->charged_bytes, 1024u);
  EXPECT_TRUE(freed.empty());
  EXPECT_EQ(freed.charged_bytes(), 0u);
  freed.passed(block);  // it has been taken
}

TEST(FreedMemory, GoesBackOnceOrWithItsOwner) {
  FreedMemory freed;
  std::vector<uint64_t> blocks;
  for (uint64_t i = 0; i < FreedMemory::kMost; ++i)
    blocks.push_back(freed.add({0x1000 * (i + 1), 512, i % 2, 512}, 1, i));
  EXPECT_EQ(freed.add({0x10, 512, 0, 512}, 1, 0), 0u) << "there are too many";
  EXPECT_EQ(freed.remove_owner(1).size(), FreedMemory::kMost / 2);
  EXPECT_FALSE(freed.has_passed());
  for (const uint64_t block : blocks) freed.passed(block);
  EXPECT_TRUE(freed.has_passed());
  EXPECT_EQ(freed.take_passed(100, 90).size(), 6u) << "of 0, 2, .. 10";
  EXPECT_EQ(freed.take_passed(0).size(), 0u) << "none is of then";
  EXPECT_EQ(freed.take_passed(1u << 20).size(), FreedMemory::kMost / 2 - 6);
  EXPECT_TRUE(freed.empty());
  EXPECT_EQ(freed.charged_bytes(), 0u);
}

class ControlLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    sluiced = Fd(ends[1]);
    wp::Start start{};
    start.region_bytes = 64 * SLUICE_EXTENT_BYTES;
    start.memory_limit_bytes = 256ull << 20;
    start.host_memory_bytes = 256ull << 20;
    link.emplace(Fd(ends[0]), start, [this] { ++times_full; });
  }
  wp::Message next() {
    wp::Message m{};
    EXPECT_EQ(::recv(sluiced.get(), &m, sizeof m, MSG_DONTWAIT), static_cast<ssize_t>(sizeof m));
    return m;
  }
  bool nothing_sent() {
    wp::Message m;
    return ::recv(sluiced.get(), &m, sizeof m, MSG_DONTWAIT) < 0;
  }
  static wp::Message reply(wp::Type type, uint64_t request, int code) {
    wp::Message m{};
    m.type = type;
    m.request = request;
    m.code = code;
    return m;
  }
  Fd sluiced;
  int times_full = 0;
  std::optional<ControlLink> link;
};

TEST_F(ControlLinkTest, AsksForJustWhatIsLackingWhenAChunkIsRefused) {
  std::optional<bool> granted;
  link->ask_lease(wp::kDeviceMemory, 1000, [&](bool g) { granted = g; });
  const wp::Message chunk = next();
  EXPECT_EQ(chunk.type, wp::Type::kLeaseRequest);
  EXPECT_GT(chunk.bytes, 1000u);
  EXPECT_FALSE(link->on_lease_reply(reply(wp::Type::kLeaseReply, chunk.request, 1)));
  const wp::Message just = next();
  EXPECT_EQ(just.bytes, 1000u);
  const auto ready = link->on_lease_reply(reply(wp::Type::kLeaseReply, just.request, 0));
  ASSERT_TRUE(ready);
  ready();
  EXPECT_EQ(granted, true);
  EXPECT_EQ(link->device().leased_bytes(), 1000u);
  EXPECT_EQ(link->host().leased_bytes(), 0u);
}

TEST_F(ControlLinkTest, IgnoresAReplyThatNobodyWaitsForOrThatCameBefore) {
  EXPECT_FALSE(link->on_lease_reply(reply(wp::Type::kLeaseReply, 77, 0)));
  EXPECT_FALSE(link->on_extent_reply(reply(wp::Type::kExtentReply, 77, 0)));
  int calls = 0;
  link->ask_lease(wp::kHostMemory, 1, [&](bool) { ++calls; });
  const wp::Message m = next();
  const auto ready = link->on_lease_reply(reply(wp::Type::kLeaseReply, m.request, 0));
  ASSERT_TRUE(ready);
  ready();
  EXPECT_FALSE(link->on_lease_reply(reply(wp::Type::kLeaseReply, m.request, 0)));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(link->host().leased_bytes(), m.bytes);
}

TEST_F(ControlLinkTest, TakesNoRangeThatIsNotOfItsRegion) {
  const auto lent = [&](uint64_t offset, uint64_t bytes) {
    std::optional<sluice_bulk> range;
    link->ask_extent(SLUICE_EXTENT_BYTES, [&](std::optional<sluice_bulk> r) { range = r; });
    wp::Message m = reply(wp::Type::kExtentReply, next().request, 0);
    m.offset = offset;
    m.bytes = bytes;
    link->on_extent_reply(m)();
    return range.has_value();
  };
  EXPECT_TRUE(lent(0, SLUICE_EXTENT_BYTES));
  EXPECT_TRUE(lent(63ull * SLUICE_EXTENT_BYTES, SLUICE_EXTENT_BYTES));
  EXPECT_FALSE(lent(63ull * SLUICE_EXTENT_BYTES, 2ull * SLUICE_EXTENT_BYTES));
  EXPECT_FALSE(lent(64ull * SLUICE_EXTENT_BYTES, SLUICE_EXTENT_BYTES));
  EXPECT_FALSE(lent(1, SLUICE_EXTENT_BYTES));
  EXPECT_FALSE(lent(0, 0));
  EXPECT_FALSE(lent(SLUICE_EXTENT_BYTES, ~uint64_t{0}));
}

TEST_F(ControlLinkTest, RefusesEverythingOnceSluicedIsGone) {
  int refused = 0;
  link->ask_lease(wp::kDeviceMemory, 1, [&](bool granted) { refused += granted ? 0 : 1; });
  link->ask_extent(1, [&](std::optional<sluice_bulk> range) { refused += range ? 0 : 1; });
  sluiced = Fd();
  wp::Message m;
  EXPECT_EQ(link->receive(&m), ControlLink::Received::kLost);
  EXPECT_TRUE(link->lost());
  for (const auto& refuse : link->refuse_all()) refuse();
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(link->leases_waiting() + link->extents_waiting(), 0u);
  EXPECT_TRUE(link->refuse_all().empty());
}

// A request that is lost is never answered, and what is given back in vain is the vGPU's no more.
TEST_F(ControlLinkTest, WhatTheSocketDoesNotTakeIsSentLater) {
  constexpr uint64_t kRequests = 1000, kMiB = 1u << 20;
  for (uint64_t i = 0; i < kRequests; ++i) link->ask_extent(SLUICE_EXTENT_BYTES, [](auto) {});
  link->device().leased(kRequests * kMiB);
  ASSERT_TRUE(link->device().charge(kRequests * kMiB));
  for (uint64_t i = 0; i < kRequests; ++i) link->release_device(kMiB, ChargeKind::kAllocations);
  EXPECT_EQ(times_full, 1);
  ASSERT_TRUE(link->full());
  uint64_t requests = 0, given_back = 0;
  for (wp::Message m; requests < kRequests || link->full(); link->flush()) {
    while (::recv(sluiced.get(), &m, sizeof m, MSG_DONTWAIT) > 0) {
      if (m.type == wp::Type::kLeaseReturn)
        given_back += m.bytes;
      else
        EXPECT_EQ(m.request, ++requests) << "in order";
    }
  }
  for (wp::Message m; ::recv(sluiced.get(), &m, sizeof m, MSG_DONTWAIT) > 0;) given_back += m.bytes;
  EXPECT_EQ(given_back + link->device().leased_bytes(), kRequests * kMiB);
}

TEST_F(ControlLinkTest, AMessageOfAnotherLengthIsNoMessage) {
  wp::Message m;
  EXPECT_EQ(link->receive(&m), ControlLink::Received::kNothing);
  ASSERT_EQ(::send(sluiced.get(), "x", 1, 0), 1);
  EXPECT_EQ(link->receive(&m), ControlLink::Received::kMalformed);
  EXPECT_FALSE(link->lost());
}

TEST_F(ControlLinkTest, ReturnsWhatIsBeyondOneUnusedChunk) {
  link->ask_lease(wp::kDeviceMemory, 100ull << 20, [](bool) {});
  const wp::Message m = next();
  link->on_lease_reply(reply(wp::Type::kLeaseReply, m.request, 0))();
  ASSERT_TRUE(link->device().charge(100ull << 20, ChargeKind::kAllocations));
  link->release_device(1, ChargeKind::kAllocations);
  EXPECT_TRUE(nothing_sent());
  link->release_device((100ull << 20) - 1, ChargeKind::kAllocations);
  const wp::Message back = next();
  EXPECT_EQ(back.type, wp::Type::kLeaseReturn);
  EXPECT_EQ(back.code, wp::kDeviceMemory);
  EXPECT_EQ(link->device().leased_bytes(), m.bytes - back.bytes);
}

}  // namespace
}  // namespace sluice::worker
